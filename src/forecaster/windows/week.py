"""How many bars a week has: what a weekly lag is in bars, and when the seasonal forecast repeats."""

from typing import Final

import numpy as np
import pandas as pd

from forecaster.bars.calendar import Calendar, clocks
from forecaster.bars.contract import symbol_bounds

WEEK: Final = np.timedelta64(7, "D")
SYMBOLS: Final = 64  # that are counted, evenly spaced among all
EXCHANGE_DAYS: Final = 5


def week_bars(frame: pd.DataFrame, calendar: str, interval: str) -> int:
    """Bars in a week without holidays: 5 a week for daily bars of an exchange; otherwise the commonest number in the 7
    days, by the market's clock, up to a bar. Where bars hold no more than a week, what the calendar says.
    """
    market = Calendar(calendar)
    expected = market.week_bars * market.session_bars(interval)
    if interval == "1d" and expected == EXCHANGE_DAYS:
        return expected
    bounds = list(symbol_bounds(frame["symbol"]))
    counts = np.zeros(1, dtype=np.int64)
    for _, first, end in bounds[:: -(-len(bounds) // SYMBOLS)]:
        times = frame["time"].iloc[first:end].to_numpy(dtype="datetime64[us]")
        clock = times if interval == "1d" else clocks(times, market.zone)
        full = np.flatnonzero(clock >= clock[0] + WEEK)
        held = full + 1 - np.searchsorted(clock, clock[full] - WEEK, side="right")
        counts = np.bincount(held, minlength=len(counts)) + np.pad(
            counts, (0, max(0, int(held.max(initial=0)) + 1 - len(counts)))
        )
    if counts.sum() < expected:
        return expected
    # Of equally common numbers the largest: holidays and gaps only take bars away.
    return len(counts) - 1 - int(counts[::-1].argmax())
