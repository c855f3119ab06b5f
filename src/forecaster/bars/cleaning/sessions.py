"""Bars against time: their interval, the calendar they keep, closed days, and what is not over yet."""

from typing import Final

import numpy as np
import pandas as pd

from forecaster.bars.calendar import Calendar
from forecaster.bars.cleaning.policy import Policy, Step, told, told_once, written
from forecaster.bars.contract import NUMBERS, PRICES, quality_report, symbol_bounds
from forecaster.bars.matching import fitting
from forecaster.errors import DataError

SEVEN_DAYS: Final = 0.15  # share of bars at weekends: 2/7 where markets never close, 1/24 at most in a forex week
WEEKDAYS: Final = "24/5"  # found where no exchange fits
MOST_WEEKS: Final = 0.5  # with bars at closed hours, beyond which it is the time zone that is wrong
VOTERS: Final = 50  # symbols that are asked for the calendar of all
MOST_DAYS: Final = 4  # median distance of bars beyond which they are weekly or monthly ones
MOST_SECONDS: Final = 12 * 3600
LONG_GAP: Final = np.timedelta64(90, "D")
LEAST_MOVED: Final = 10  # bars that moved, below which all of a symbol's bars are asked
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
    before = _before(rows, ["close", "volume"])
    traded = (rows["volume"] > 0) & (rows["volume"] != before["volume"])  # the same volume again is a copy
    speaks = (rows["close"] != before["close"]) | traded
    moved = _picked(rows, speaks | (speaks.groupby(rows["symbol"]).transform("sum") < LEAST_MOVED))
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
    found = [fitting(_longest(times[first:end]), interval) for _, first, end in voters]
    return max(dict.fromkeys(found), key=found.count)


def _longest(times: np.ndarray) -> np.ndarray:
    """The longest of the stretches that long gaps part: a date that is wrong by years lies alone."""
    parts = np.split(times, np.flatnonzero(np.diff(times) > LONG_GAP) + 1)
    return max(parts, key=len)


def doubtful(rows: pd.DataFrame, code: str, interval: str) -> list[pd.DataFrame]:
    """What is open about a calendar that was found from the bars."""
    first, last = rows["time"].min(), rows["time"].max()
    saturdays = (last.normalize() - first.normalize()).days + (first.day_of_week + 1) % 7 >= 6
    if code == "forex" and not saturdays:
        detail = "forex: no weekend lies among the bars, so that 24/7 would fit as well"
    elif code == WEEKDAYS and interval == "1d":
        detail = f"{code}: no exchange that is tried has a session on each of these days and rests on the others"
    else:
        return []
    return [quality_report([("all", first, "calendar", detail, "found; source.calendar=... says another")])]


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
    before = _before(rows, list(NUMBERS))
    for name in PRICES:
        again &= (rows[name] == before[name]) | (rows[name].isna() & before[name].isna())
        still &= (rows[name] == before["close"]) | rows[name].isna()
    filler = ~inside & (again | still) & (~(rows["volume"] > 0) | (rows["volume"] == before["volume"]))
    odd = ~inside & ~filler
    closed = odd if interval == "1d" else odd & ~_on_sessions(rows, code, interval)
    if closed.sum() > 3 and closed.mean() > STRANGE:
        bar = _picked(rows, closed).iloc[0]
        raise DataError(
            f"{where}: {closed.mean():.0%} of the bars lie on days on which {code} is closed, first {bar['symbol']} "
            f"{written(bar['time'])}: choose another source.calendar"
        )
    weekend = rows["time"].dt.day_of_week >= 5
    report: list[pd.DataFrame] = []
    for kind, day in (("weekend", weekend), ("holiday", ~weekend)):
        copies = _picked(rows, filler & day)
        detail = copies["place"] + f": {code} is closed, the previous bar stands there again"
        report += told(copies, kind, detail, "dropped")
        if interval == "1d":
            moved = _picked(rows, odd & day)
            report += told(moved, kind, moved["place"] + f": {code} is closed, and yet there is a bar", "kept")
    if interval != "1d":
        doubt = f" ({odd.mean():.0%} of all: is source.timezone right?)" if odd.mean() > STRANGE else ""
        report += told_once(rows, odd, "off_hours", "{n} bars outside the hours of " + code + doubt, "kept")
    return rows[~filler], report


def check_zone(rows: pd.DataFrame, code: str, interval: str, where: str) -> None:
    """DataError where stamps without a zone, read as UTC, have currencies trade when they rest in most weeks."""
    if code != "forex":
        return
    times = rows["time"].to_numpy(dtype="datetime64[us]")
    outside = ~Calendar(code).inside(times, interval)
    weeks = times.astype("datetime64[W]")
    share = len(np.unique(weeks[outside])) / len(np.unique(weeks))
    if share > MOST_WEEKS:
        raise DataError(
            f"{where}: read as UTC, bars lie outside the hours of currencies in {share:.0%} of the weeks: the stamps "
            "are of another zone; give it, as source.timezone=Europe/Athens for a broker's clock, or UTC if it is"
        )


def _on_sessions(rows: pd.DataFrame, code: str, interval: str) -> pd.Series:
    calendar = Calendar(code)
    days = calendar.days(rows["time"].to_numpy(dtype="datetime64[us]"), interval)
    return pd.Series(calendar.inside(days, "1d"), index=rows.index)


def finished(rows: pd.DataFrame, code: str, interval: str, policy: Policy) -> Step:
    """Without bars whose session, or whose minutes, are not over yet."""
    now = policy.now.tz_convert("UTC")
    if interval == "1d":
        recent = rows["time"] >= (now - pd.Timedelta(days=2)).tz_localize(None).normalize()
        exchange = Calendar(code)
        partial = rows["time"].isin([time for time in rows["time"][recent].unique() if exchange.closed(time) > now])
    else:
        partial = rows["time"] + pd.Timedelta(interval) > now
    detail = rows["place"][partial] + ": its session is not over"
    return rows[~partial], told(rows[partial], "partial_last", detail, "dropped")


def _before(rows: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Each row's predecessor of the same symbol, in sorted rows; NaN for the first."""
    before = rows[names].shift()
    before.iloc[[first for _, first, _ in symbol_bounds(rows["symbol"])]] = np.nan
    return before


def _picked(rows: pd.DataFrame, which: pd.Series) -> pd.DataFrame:
    return rows.loc[np.asarray(which, dtype=np.bool_)]
