"""Intraday bars for tests: random walks on the hours of a market."""

import numpy as np
import pandas as pd

from forecaster.bars.calendar import Calendar
from forecaster.bars.contract import Bars, check, minutes, quality_report


def stamps(code: str, first: str, last: str, interval: str = "1h") -> np.ndarray:
    """Every bar's stamp (UTC, its begin) of the sessions from first to last, each session's bars from its open on."""
    if code in ("forex", "24/7"):
        step = np.timedelta64(minutes(interval), "m")
        begin, end = Calendar(code).end(pd.Timestamp(first) - pd.Timedelta(days=1)), Calendar(code).end(last)
        every = np.arange(utc(begin), utc(end), step)
        return every[Calendar(code).inside(every + step // 2, "1min")]  # mid-bar
    market = {"XNYS": ("America/New_York", "09:30", "16:00"), "XLON": ("Europe/London", "08:00", "16:30")}
    zone, opening, closing = market[code]
    days = Calendar(code).sessions(first, last)
    found = []
    for day in days:
        begin = pd.Timestamp(f"{day.date()} {opening}").tz_localize(zone)
        end = min(
            pd.Timestamp(f"{day.date()} {closing}").tz_localize(zone), Calendar(code).closed(day).tz_convert(zone)
        )
        found.append(pd.date_range(begin, end, freq=pd.Timedelta(minutes=minutes(interval)), inclusive="left"))
    return np.concatenate([utc(session.tz_convert("UTC")) for session in found])


def utc(times: pd.Timestamp | pd.DatetimeIndex | str) -> np.ndarray:
    """As datetime64[us]; text is taken as UTC."""
    if isinstance(times, pd.DatetimeIndex):
        return times.as_unit("us").tz_convert("UTC").tz_localize(None).to_numpy()
    stamp = pd.Timestamp(times)
    return np.datetime64(stamp if stamp.tzinfo is None else stamp.tz_convert("UTC").tz_localize(None), "us")


def dated(*days: str) -> np.ndarray:
    """Dates or stamps as datetime64[us]."""
    return np.array(days, dtype="datetime64[us]")


def bars_at(times: dict[str, np.ndarray], calendar: str, interval: str, seed: int = 0, lacking: str = "") -> Bars:
    """A random walk for each symbol at its stamps. lacking: "ohl", "volume" or "both" are NaN."""
    rng = np.random.default_rng(seed)
    frames = []
    for symbol, own in sorted(times.items()):
        size = len(own)
        close = 100 * np.exp(np.cumsum(rng.normal(0, 0.01, size)))
        opening = close * np.exp(rng.normal(0, 0.003, size))
        high = np.maximum(opening, close) * np.exp(np.abs(rng.normal(0, 0.004, size)))
        low = np.minimum(opening, close) * np.exp(-np.abs(rng.normal(0, 0.004, size)))
        volume = np.round(np.exp(rng.normal(12, 0.3, size)))
        columns = {"open": opening, "high": high, "low": low, "close": close, "volume": volume}
        absent = {"": (), "ohl": ("open", "high", "low"), "volume": ("volume",)}.get(
            lacking, ("open", "high", "low", "volume")
        )
        columns |= {name: np.full(size, np.nan) for name in absent}
        time = pd.Series(pd.DatetimeIndex(own).as_unit("us"))
        if interval != "1d":
            time = time.dt.tz_localize("UTC")
        frames.append(pd.DataFrame({"symbol": symbol, "time": time, **columns}))
    return Bars(check(pd.concat(frames), "made bars"), quality_report([]), calendar, interval, "as made")
