"""Rows as a source hands them over, for tests of cleaning."""

from pathlib import Path

import numpy as np
import pandas as pd

from forecaster.bars.calendar import Calendar
from forecaster.bars.cleaning import clean
from forecaster.bars.cleaning.policy import Policy
from forecaster.bars.contract import Bars
from forecaster.bars.raw import RAW_COLUMNS, Raw

NOW = pd.Timestamp("2024-06-03 12:00", tz="UTC")  # a Monday before the New York open


def daily(count: int = 120, seed: int = 0, last: str = "2024-05-31", code: str = "XNYS") -> pd.DataFrame:
    """A clean random walk on the last sessions of a calendar, as rows of Raw; symbol ACME."""
    rng = np.random.default_rng(seed)
    sessions = Calendar(code).sessions("2015-01-02", last)[-count:]
    close = np.round(80 * np.exp(np.cumsum(rng.normal(0, 0.01, count))), 2)
    start = np.round(close * np.exp(rng.normal(0, 0.003, count)), 2)
    high = np.round(np.maximum(start, close) * (1 + np.abs(rng.normal(0, 0.004, count))), 2)
    low = np.round(np.minimum(start, close) * (1 - np.abs(rng.normal(0, 0.004, count))), 2)
    volume = np.round(np.exp(rng.normal(13, 0.3, count)))
    frame = pd.DataFrame({"open": start, "high": high, "low": low, "close": close, "volume": volume})
    return numbered(frame.assign(symbol="ACME", time=sessions))


def numbered(frame: pd.DataFrame) -> pd.DataFrame:
    """The same rows with their places in a file of that order."""
    places = [f"a.csv line {line + 2}" for line in range(len(frame))]
    return frame.reset_index(drop=True).assign(place=pd.Series(places, dtype="str"))[list(RAW_COLUMNS)]


def raw(frame: pd.DataFrame, unread: list[tuple[int, str, str]] | None = None, intraday: bool = False) -> Raw:
    cells = pd.DataFrame(unread or [], columns=["row", "column", "text"])
    return Raw(frame.astype({"symbol": "str"}), cells, (), "as given", intraday, (Path("a.csv"),))


def cleaned(
    frame: pd.DataFrame,
    on_error: str | None = None,
    accept: tuple[str, ...] = (),
    calendar: str | None = "XNYS",
    intraday: bool = False,
    unread: list[tuple[int, str, str]] | None = None,
    now: pd.Timestamp = NOW,
) -> Bars:
    return clean(raw(frame, unread, intraday), Policy(calendar, on_error, accept, now), "a.csv")


def told(bars: Bars) -> list[tuple[str, str, str]]:
    """(date, kind, action) of every quality row."""
    quality = bars.quality
    return [
        (str(time)[:10], kind, action)
        for time, kind, action in zip(quality["time"], quality["kind"], quality["action"], strict=True)
    ]
