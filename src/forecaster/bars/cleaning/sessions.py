"""Bars against time: their interval, the calendar they keep, closed days, and what is not over yet."""

from typing import Final

import numpy as np
import pandas as pd

from forecaster.bars.calendar import Calendar, fitting
from forecaster.bars.cleaning.policy import Policy, Step, told, told_once, written
from forecaster.bars.contract import NUMBERS, PRICES, symbol_bounds
from forecaster.errors import DataError

SEVEN_DAYS: Final = 0.15  # share of bars at weekends: 2/7 where markets never close, 1/24 at most in a forex week
VOTERS: Final = 50  # symbols that are asked for the calendar of all
MOST_DAYS: Final = 4  # median distance of bars beyond which they are weekly or monthly ones
MOST_SECONDS: Final = 12 * 3600
STRANGE: Final = 0.2  # share of bars on closed days at which it is the calendar that is wrong


def interval(rows: pd.DataFrame, intraday: bool, where: str) -> str:
    """The commonest distance of two bars, as "1d", "1h" or "5min"; DataError where symbols differ or none is meant."""
    found: dict[int, str] = {}
    for symbol, first, end in symbol_bounds(rows["symbol"]):
        stamps = rows["time"].to_numpy(dtype="datetime64[us]")[first:end]
        steps = np.diff(stamps).astype("timedelta64[s]").astype(np.int64)
        if len(steps) and not intraday and np.median(steps) > MOST_DAYS * 86400:
            days = np.median(steps) / 86400
            raise DataError(f"{where}: {symbol}: bars are {days:g} days apart: bring daily or intraday bars")
        if len(steps) and intraday:
            distances, counts = np.unique(steps, return_counts=True)
            found.setdefault(int(distances[counts.argmax()]), symbol)
    if not intraday:
        return "1d"
    if not found:
        raise DataError(f"{where}: one bar a symbol: bring more")
    if len(found) > 1:
        (one, a), (other, b) = list(found.items())[:2]
        raise DataError(
            f"{where}: {a} has bars of {one / 60:g} minutes and {b} of {other / 60:g}: choose the symbols of one "
            f"interval: 'source.symbols=[\"{a}\"]'"
        )
    seconds = next(iter(found))
    if seconds % 60 or seconds > MOST_SECONDS:
        raise DataError(
            f"{where}: bars of {seconds} seconds: bring bars of whole minutes up to 12 hours, or daily ones"
        )
    return f"{seconds // 3600}h" if seconds % 3600 == 0 else f"{seconds // 60}min"


def calendar(rows: pd.DataFrame, interval: str, where: str) -> str:
    """The calendar that fits most symbols best; DataError where some trade at weekends and others don't.

    Only bars in which something moved speak: fillers of closed days would make any market one that never closes.
    """
    moved = _picked(rows, (rows["close"] != rows.groupby("symbol")["close"].shift()) | (rows["volume"] > 0))
    times = moved["time"].to_numpy(dtype="datetime64[us]")
    spans = list(symbol_bounds(moved["symbol"]))
    weekend = moved["time"].dt.day_of_week.to_numpy() >= 5
    share = {symbol: weekend[first:end].mean() for symbol, first, end in spans}
    always = [f'"{symbol}"' for symbol in share if share[symbol] >= SEVEN_DAYS]
    others = [f'"{symbol}"' for symbol in share if share[symbol] < SEVEN_DAYS]
    if always and others:
        some = ",".join(others[:5]) + (",..." if len(others) > 5 else "")
        raise DataError(
            f"{where}: several symbols that keep different weeks: {', '.join(others[:3])} trade five days, "
            f"{', '.join(always[:3])} seven, and a run has one calendar: choose those of one kind: "
            f"'source.symbols=[{some}]'"
        )
    voters = spans[:: -(-len(spans) // VOTERS)]
    found = [fitting(times[first:end], interval) for _, first, end in voters]
    return max(dict.fromkeys(found), key=found.count)


def known(rows: pd.DataFrame, code: str, interval: str, policy: Policy) -> Step:
    """Without bars of the future."""
    now = policy.now.tz_convert("UTC")
    last = now if interval != "1d" else pd.Timestamp(_session_of(code, now))
    ahead = rows["time"] > last
    detail = rows["place"][ahead] + f": later than now, {now:%Y-%m-%d %H:%M} UTC"
    return rows[~ahead], told(rows[ahead], "future", detail, policy.dropping)


def _session_of(code: str, now: pd.Timestamp) -> np.datetime64:
    """The session date that is running somewhere on the market's clock."""
    stamp = np.array([now.tz_localize(None).to_datetime64()], dtype="datetime64[us]")
    return Calendar(code).days(stamp, "1min")[0]


def open_days(rows: pd.DataFrame, code: str, interval: str, where: str) -> Step:
    """Without fillers: bars that repeat the one before while the market is closed. What moved there is kept, and said.

    DataError where so many daily bars lie on closed days that it is the calendar that is wrong.
    """
    inside = pd.Series(Calendar(code).inside(rows["time"].to_numpy(dtype="datetime64[us]"), interval), index=rows.index)
    still = pd.Series(True, index=rows.index)
    again = pd.Series(True, index=rows.index)
    before = rows.groupby("symbol")[list(NUMBERS)].shift()
    for name in NUMBERS:
        again &= (rows[name] == before[name]) | (rows[name].isna() & before[name].isna())
    for name in PRICES:
        still &= (rows[name] == before["close"]) | rows[name].isna()
    filler = ~inside & (again | still) & (~(rows["volume"] > 0) | again)
    odd = ~inside & ~filler
    if interval == "1d" and odd.sum() > 3 and odd.mean() > STRANGE:
        bar = rows[odd].iloc[0]
        raise DataError(
            f"{where}: {odd.mean():.0%} of the bars lie on days on which {code} is closed, first {bar['symbol']} "
            f"{written(bar['time'])}: choose another source.calendar"
        )
    weekend = rows["time"].dt.day_of_week >= 5
    report: list[pd.DataFrame] = []
    for kind, day in (("weekend", weekend), ("holiday", ~weekend)):
        detail = rows["place"] + f": {code} is closed, the previous bar stands there again"
        report += told(_picked(rows, filler & day), kind, detail, "dropped")
        if interval == "1d":
            moved = rows["place"] + f": {code} is closed, and yet there is a bar"
            report += told(_picked(rows, odd & day), kind, moved, "kept")
    if interval != "1d":
        report += told_once(rows, odd, "off_hours", "{n} bars outside the hours of " + code, "kept")
    return rows[~filler], report


def finished(rows: pd.DataFrame, code: str, interval: str, policy: Policy) -> Step:
    """Without bars whose session, or whose minutes, are not over yet."""
    now = policy.now.tz_convert("UTC")
    if interval == "1d":
        recent = rows["time"] >= (now - pd.Timedelta(days=2)).tz_localize(None).normalize()
        exchange = Calendar(code)
        ends = {time: exchange.closed(time) for time in rows["time"][recent].unique()}
        partial = pd.Series([time in ends and ends[time] > now for time in rows["time"]], index=rows.index, dtype=bool)
    else:
        partial = rows["time"] + pd.Timedelta(interval) > now
    detail = rows["place"][partial] + ": its session is not over"
    return rows[~partial], told(rows[partial], "partial_last", detail, "dropped")


def _picked(rows: pd.DataFrame, which: pd.Series) -> pd.DataFrame:
    return rows.loc[np.asarray(which, dtype=np.bool_)]
