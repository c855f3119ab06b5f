"""What bars are: one tidy frame with one price basis, in which a wrong number cannot hide."""

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int
from pandas.api.typing import NaTType

from forecaster.errors import DataError

COLUMNS = ("symbol", "time", "open", "high", "low", "close", "volume")
PRICES = ("open", "high", "low", "close")
NUMBERS = (*PRICES, "volume")
ALL = "all"  # the pooled row's symbol in the tables of scores and of quality
OPTIONAL = (("open", "high", "low"), ("volume",))
QUALITY_COLUMNS = ("symbol", "time", "kind", "detail", "action")

# A row of the quality report; a stamp that could not be read is NaT.
Row = tuple[str, pd.Timestamp | NaTType, str, str, str]

# Relative. Rounding only: prices scaled by an adjustment factor may differ in the last bits.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Bars:
    """Bars of one calendar and interval, as `check` leaves them, with everything noticed about them on the way.

    frame: COLUMNS, sorted by symbol then time. quality: QUALITY_COLUMNS, one row per change or suspicion.
    calendar: market identifier code, as "XNYS", or "24/7", or "forex". interval: "1d", or as "5min", "1h".
    basis: in words, how prices were adjusted.
    """

    frame: pd.DataFrame
    quality: pd.DataFrame
    calendar: str
    interval: str
    basis: str

    @property
    def absent(self) -> tuple[str, ...]:
        """The columns that the source does not have: NaN in every row."""
        return absent(self.frame)


def absent(frame: pd.DataFrame) -> tuple[str, ...]:
    """Columns that bars may lack altogether, and here do: volume, or open, high and low together (close-only bars)."""
    groups = [group for group in OPTIONAL if all(frame[name].isna().all() for name in group)]
    return tuple(name for group in groups for name in group)


def minutes(interval: str) -> int:
    """Length of a bar in minutes: "1d" is 1440, "1h" 60, "5min" 5. ValueError for any other text."""
    found = re.fullmatch(r"([1-9]\d*)(min|h|d)", interval)
    if not found:
        raise ValueError(f"{interval!r} is no interval: write it as 5min, 1h or 1d")
    return int(found[1]) * {"min": 1, "h": 60, "d": 1440}[found[2]]


def check(frame: pd.DataFrame, where: str) -> pd.DataFrame:
    """The same bars with COLUMNS in order, text symbols, microsecond stamps and a fresh index; DataError at any fault.

    Daily bars carry the session's date (naive, midnight), intraday bars an aware UTC stamp. Prices are finite and above
    0, volume finite and not below 0, high at or above and low at or below every other price of the bar. A column that
    the source does not have (see `absent`) is NaN in every row instead.
    Nothing is repaired: a source does that, and says so in its quality report.
    """
    _check_columns(frame, where)
    checked = frame.loc[:, list(COLUMNS)].reset_index(drop=True)
    if checked.empty:
        raise DataError(f"{where}: no bars: name symbols and dates for which the source has some")
    checked["symbol"] = _symbols(checked["symbol"], where)
    checked["time"] = _times(checked, where)
    _check_order(checked, where)
    _check_numbers(checked, where)
    _check_range(checked, where)
    return checked


def quality_report(rows: Iterable[Row]) -> pd.DataFrame:
    """Quality rows (symbol, time, kind, detail, action) as a frame, typed also where there are none."""
    report = pd.DataFrame(list(rows), columns=list(QUALITY_COLUMNS))
    text = {name: "str" for name in QUALITY_COLUMNS if name != "time"}
    return report.assign(time=pd.to_datetime(report["time"]).dt.as_unit("us")).astype(text)


def _check_columns(frame: pd.DataFrame, where: str) -> None:
    given = [str(name) for name in frame.columns]
    missing = [name for name in COLUMNS if name not in given]
    if missing:
        raise DataError(f"{where}: no column {', '.join(missing)}: bars need {', '.join(COLUMNS)}")
    other = [name for name in given if name not in COLUMNS]
    if other:
        raise DataError(f"{where}: unknown column {', '.join(other)}: bars have only {', '.join(COLUMNS)}")
    if len(given) > len(COLUMNS):
        raise DataError(f"{where}: a column occurs twice in {', '.join(given)}: keep one of each")
    for name in NUMBERS:
        if frame[name].dtype != np.float64:
            raise DataError(f"{where}: column {name} holds {frame[name].dtype}: convert it to float64")


def _symbols(symbols: pd.Series, where: str) -> pd.Series:
    distinct = [symbol for symbol in symbols.unique() if not isinstance(symbol, str) or not symbol.strip()]
    if distinct:
        wrong = np.flatnonzero(symbols.isin(distinct) | symbols.isna())
        raise DataError(
            f"{where}: row {wrong[0]}: symbol {symbols.array[wrong[0]]!r} is no text: write every symbol as text"
            f"{_more(len(wrong))}"
        )
    if (symbols == ALL).any():
        raise DataError(f"{where}: symbol {ALL!r} means all symbols together in every table: rename it in the data")
    return symbols.astype("str")


def _times(frame: pd.DataFrame, where: str) -> pd.Series:
    times = frame["time"]
    if not pd.api.types.is_datetime64_any_dtype(times.dtype):
        raise DataError(f"{where}: column time holds {times.dtype}: parse it to stamps with a unit")
    unknown = times.isna().to_numpy()
    if unknown.any():
        raise DataError(
            f"{where}: {frame['symbol'].array[int(unknown.argmax())]}: row {int(unknown.argmax())} has no time: "
            f"give the bar its date{_more(int(unknown.sum()))}"
        )
    zone = times.dt.tz
    if zone is not None and str(zone) != "UTC":
        raise DataError(f"{where}: column time is in {zone}: convert intraday stamps to UTC")
    if zone is None:
        _raise_at(
            frame,
            (times != times.dt.normalize()).to_numpy(),
            where,
            "time",
            "a daily bar carries its session's date at midnight; give intraday stamps their time zone, as UTC",
        )
    return times.dt.as_unit("us")


def _check_order(frame: pd.DataFrame, where: str) -> None:
    codes: Int[np.ndarray, " R"] = pd.factorize(frame["symbol"], sort=True)[0]
    stamps = frame["time"].to_numpy(dtype="datetime64[us]")
    same = codes[1:] == codes[:-1]
    first = np.zeros(1, dtype=bool)
    repeated = np.concatenate([first, same & (stamps[1:] == stamps[:-1])])
    _raise_at(frame, repeated, where, "time", "the bar stands twice; keep one of them")
    backwards = np.concatenate([first, (codes[1:] < codes[:-1]) | (same & (stamps[1:] < stamps[:-1]))])
    _raise_at(frame, backwards, where, "time", "earlier than the row before it; sort by symbol, then time")


def _check_numbers(frame: pd.DataFrame, where: str) -> None:
    lacking = absent(frame)
    for name in NUMBERS:
        if name in lacking:
            continue
        values = frame[name].to_numpy()
        _raise_at(frame, ~np.isfinite(values), where, name, "not a number; correct or remove the bar")
        if name == "volume":
            _raise_at(frame, values < 0, where, name, "volume is never below 0; correct or remove the bar")
        else:
            _raise_at(frame, values <= 0, where, name, "prices are above 0; correct or remove the bar")


def _check_range(frame: pd.DataFrame, where: str) -> None:
    high, low = frame["high"].to_numpy(), frame["low"].to_numpy()
    for name in ("open", "close", "low"):
        fault = high < frame[name].to_numpy() * (1 - ROUNDING)
        _raise_at(frame, fault, where, "high", f"below the bar's {name}; correct or remove the bar")
    for name in ("open", "close"):
        fault = low > frame[name].to_numpy() * (1 + ROUNDING)
        _raise_at(frame, fault, where, "low", f"above the bar's {name}; correct or remove the bar")


def _raise_at(frame: pd.DataFrame, fault: Bool[np.ndarray, " R"], where: str, column: str, problem: str) -> None:
    """DataError for the first row at fault, with the number of further ones."""
    if not fault.any():
        return
    row = int(fault.argmax())
    symbol, stamp = frame["symbol"].array[row], frame["time"].array[row]
    value = "" if column == "time" else f" {frame[column].array[row]:.10g}"
    raise DataError(f"{where}: {symbol} {_written(stamp)}: {column}{value}: {problem}{_more(int(fault.sum()))}")


def _more(count: int) -> str:
    return "" if count == 1 else f" ({count} such bars)"


def _written(stamp: pd.Timestamp) -> str:
    # A session's date has no time of day.
    return stamp.isoformat() if stamp.tzinfo is not None or stamp != stamp.normalize() else str(stamp.date())


def symbol_bounds(symbols: pd.Series) -> Iterator[tuple[str, int, int]]:
    """Each symbol of sorted bars with its first row and one past its last."""
    codes, names = pd.factorize(symbols)
    edges = np.concatenate(([0], np.flatnonzero(np.diff(codes)) + 1, [len(codes)])) if len(codes) else np.zeros(1, int)
    for first, end in itertools.pairwise(map(int, edges)):
        yield str(names[codes[first]]), first, end
