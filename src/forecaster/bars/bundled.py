"""Daily bars of two indices, 1999 to 2018, that the library `arch` ships: real, offline, the default source."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from arch.data import nasdaq, sp500

from forecaster.bars.contract import PRICES, Bars, check, quality_report
from forecaster.errors import DataError

SYMBOLS = {"NASDAQ": nasdaq.load, "SP500": sp500.load}

# Below this share of its neighbours' median a volume is hardly a session's: half days reach .25.
LOW_VOLUME_SHARE = 0.2
NEIGHBOURS = 21
# Volumes are given to 10,000: by chance one stands on three bars of 5,000, hardly on four.
PLACEHOLDER_BARS = 4


def load(symbols: Sequence[str] = ("SP500", "NASDAQ")) -> Bars:
    """The bars of the symbols named, prices on the basis of Adj Close. DataError for a symbol that is not bundled."""
    for symbol in symbols:
        if symbol not in SYMBOLS:
            raise DataError(f"bundled bars: no symbol {symbol!r}: choose from {', '.join(sorted(SYMBOLS))}")
    if not symbols:
        raise DataError(f"bundled bars: no symbol given: choose from {', '.join(sorted(SYMBOLS))}")
    tables = {symbol: SYMBOLS[symbol]() for symbol in sorted(set(symbols))}
    frame = pd.concat([_bars(symbol, table) for symbol, table in tables.items()])
    frame = check(frame, "bundled bars")
    adjusted = sum(int((table["Adj Close"] != table["Close"]).sum()) for table in tables.values())
    return Bars(
        frame=frame,
        quality=quality_report(row for _, bars in frame.groupby("symbol") for row in suspicions(bars)),
        calendar="XNYS",
        interval="1d",
        basis=f"Adj Close; open, high and low scaled with it, {adjusted} bars differing from Close",
    )


def _bars(symbol: str, table: pd.DataFrame) -> pd.DataFrame:
    adjustment = table["Adj Close"] / table["Close"]
    prices = {price: table[price.capitalize()] * adjustment for price in PRICES}
    frame = pd.DataFrame({**prices, "volume": table["Volume"].astype(np.float64)})
    return frame.assign(symbol=symbol, time=table.index)


def suspicions(bars: pd.DataFrame) -> Iterator[tuple[str, pd.Timestamp, str, str, str]]:
    """Quality rows for what is odd about one symbol's daily bars, all kept as they are.

    zero_volume. low_volume: under a fifth of the median of the 21 bars around. repeated_volume: to the last digit that
    of the previous bar, or of three others. stale_open, one row for all: the open is the previous close, so that the
    bar's open-to-close move and its range hold the night as well.
    """
    symbol = str(bars["symbol"].iloc[0])
    volume = bars["volume"]
    around = volume.rolling(NEIGHBOURS, center=True, min_periods=1).median()
    zero = volume == 0
    low = ~zero & (volume < LOW_VOLUME_SHARE * around)
    occurrences = volume.map(volume.value_counts())
    repeated = ~zero & ((volume == volume.shift()) | (occurrences >= PLACEHOLDER_BARS))
    for row in np.flatnonzero(zero | low | repeated):
        time, traded = bars["time"].iloc[row], volume.iloc[row]
        if zero.iloc[row]:
            yield symbol, time, "zero_volume", "prices moved, volume is 0", "kept"
        if low.iloc[row]:
            share = f"{traded / around.iloc[row]:.0%} of the median of the {NEIGHBOURS} bars around"
            yield symbol, time, "low_volume", f"volume {traded:.0f} is {share}", "kept"
        if repeated.iloc[row]:
            yield symbol, time, "repeated_volume", f"volume {traded:.0f} stands on {occurrences.iloc[row]} bars", "kept"
    stale = np.flatnonzero(bars["open"] == bars["close"].shift())
    if len(stale):
        last = bars["time"].iloc[stale[-1]].date()
        detail = f"open equals the previous close on {len(stale)} of {len(bars)} bars, last on {last}"
        yield symbol, bars["time"].iloc[stale[0]], "stale_open", detail, "kept"
