"""Whether bars are daily or intraday, and when they were in UTC."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int

from forecaster.bars.contract import Row
from forecaster.bars.files.layouts import short
from forecaster.errors import ConfigError, DataError

DAY = np.timedelta64(1, "D")
ASK = "give source.timezone, such as America/New_York (the exchange's), or UTC"
# A market that never closes has bars in nearly all hours of the day: 22 of 24.
NEARLY_ALL = 0.9

Place = Callable[[int], str]


@dataclass(frozen=True)
class Clocks:
    """Rows of all files. wall: the file's own clock. ahead: of UTC, in minutes. aware: UTC is known.

    symbol: number of each row's symbol in `symbols`. place: tells where a row stands.
    """

    wall: np.ndarray  # datetime64[us]
    ahead: Int[np.ndarray, " R"]
    aware: Bool[np.ndarray, " R"]
    symbol: Int[np.ndarray, " R"]
    symbols: Sequence[str]
    place: Place


@dataclass(frozen=True)
class Settled:
    """times: session dates, or UTC where intraday, datetime64[us]. skipped: rows on a clock time that never was, or
    that was twice and stands once.
    """

    times: np.ndarray
    intraday: bool
    skipped: Int[np.ndarray, " N"]
    notes: tuple[Row, ...]


def settle(clocks: Clocks, timezone: str | None) -> Settled:
    """Stamps as session dates or as UTC, decided for all rows of a symbol together.

    Daily: all at midnight, by the file's clock or in `timezone`; or one a day at one clock time. DataError where that
    takes a zone that is not given, where naive intraday stamps could be anything, and for daily beside intraday
    symbols.
    """
    zone = _zone(timezone)
    times = np.full(len(clocks.wall), np.datetime64("NaT"), dtype="datetime64[us]")
    skipped: list[Int[np.ndarray, " N"]] = []
    notes: list[Row] = []
    kinds: dict[bool, str] = {}
    order = np.argsort(clocks.symbol, kind="stable")
    bounds = np.searchsorted(clocks.symbol[order], np.arange(len(clocks.symbols) + 1))
    for number, symbol in enumerate(clocks.symbols):
        rows = order[bounds[number] : bounds[number + 1]]
        rows = rows[~np.isnat(clocks.wall[rows])]
        if not len(rows):
            continue
        dates = _dates(clocks, rows, symbol, zone)
        intraday = dates is None
        if dates is not None:
            times[rows] = dates
        elif clocks.aware[rows[0]]:
            times[rows] = clocks.wall[rows] - clocks.ahead[rows].astype("timedelta64[m]")
        elif zone is not None:
            times[rows] = _localised(clocks.wall[rows], zone)
            skipped.append(rows[np.isnat(times[rows])])
        else:
            times[rows] = clocks.wall[rows]
            notes.append(_round_the_clock(clocks, rows, symbol))
        kinds.setdefault(intraday, symbol)
    if len(kinds) > 1:
        raise DataError(
            f"{short(kinds[False])} has daily bars, {short(kinds[True])} intraday ones: read them apart, with "
            "source.path or source.symbols"
        )
    missed = np.concatenate([np.zeros(0, dtype=np.int64), *skipped])
    return Settled(times, next(iter(kinds), False), missed, tuple(notes))


def _zone(timezone: str | None) -> ZoneInfo | None:
    if timezone is None:
        return None
    try:
        return ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as reason:
        raise ConfigError(
            f"source.timezone={timezone}: no such time zone: give a name such as America/New_York, Europe/Berlin or UTC"
        ) from reason


def _dates(clocks: Clocks, rows: Int[np.ndarray, " N"], symbol: str, zone: ZoneInfo | None) -> np.ndarray | None:
    """Session dates of a symbol's daily bars; None for intraday ones."""
    wall, aware, who = clocks.wall[rows], clocks.aware[rows], short(symbol)
    if aware.any() and not aware.all():
        other = int(rows[(aware != aware[0]).argmax()])
        raise DataError(
            f"{clocks.place(other)}: {who}: mixed time zones: some stamps have an offset from UTC, others none, "
            f"as at {clocks.place(int(rows[0]))}: write all one way"
        )
    there = _in_zone(clocks, rows, zone) if aware[0] and zone is not None else None
    for own in (there, wall):
        if own is not None and (own == _days(own)).all():
            return _days(own)
    if not aware[0]:
        constant = (wall - _days(wall) == wall[0] - _days(wall)[0]).all()
        return _days(wall) if constant else None
    own = wall if there is None else there
    distinct = np.unique(own)
    if len(np.unique(_days(distinct))) < len(distinct):
        return None
    if there is not None:
        return _days(there)
    odd = int(rows[(wall != _days(wall)).argmax()])
    raise DataError(
        f"{clocks.place(odd)}: {who}: one bar a day, here stamped {_utc(clocks, odd)}: which date it belongs to "
        f"depends on the zone: {ASK}"
    )


def _utc(clocks: Clocks, row: int) -> str:
    return f"{pd.Timestamp(clocks.wall[row] - np.timedelta64(int(clocks.ahead[row]), 'm'))} UTC"


def _days(wall: np.ndarray) -> np.ndarray:
    return wall.astype("datetime64[D]").astype("datetime64[us]")


def _in_zone(clocks: Clocks, rows: Int[np.ndarray, " N"], zone: ZoneInfo) -> np.ndarray:
    utc = clocks.wall[rows] - clocks.ahead[rows].astype("timedelta64[m]")
    there = pd.DatetimeIndex(utc).tz_localize("UTC").tz_convert(zone).tz_localize(None)
    return there.as_unit("us").to_numpy(dtype="datetime64[us]")


def _localised(wall: np.ndarray, zone: ZoneInfo) -> np.ndarray:
    """UTC of a zone's clock, in the order of the rows.

    NaT for a time that the clock skips, or that it shows twice where the rows don't tell which is meant.
    """
    index = pd.DatetimeIndex(wall)
    summer, winter = (
        index.tz_localize(zone, ambiguous=np.full(len(wall), first), nonexistent="NaT")
        .tz_convert("UTC")
        .tz_localize(None)
        .as_unit("us")
        .to_numpy(dtype="datetime64[us]")
        for first in (True, False)
    )
    twice = np.flatnonzero((summer != winter) & ~np.isnat(summer))
    times = summer.copy()
    # Newest first: the second of the two hours stands before the first.
    backwards = bool(len(wall) > 1 and np.mean(np.diff(wall) < np.timedelta64(0, "us")) > 0.5)
    walk = twice[::-1] if backwards else twice
    for day in np.unique(_days(wall[twice])):
        hour = walk[_days(wall[walk]) == day]
        again = np.concatenate([[False], np.diff(wall[hour]) <= np.timedelta64(0, "us")])
        second = np.cumsum(again) > 0
        times[hour[second]] = winter[hour[second]]
        if not second.any():
            times[hour] = np.datetime64("NaT")
    return times


def _round_the_clock(clocks: Clocks, rows: Int[np.ndarray, " N"], symbol: str) -> Row:
    """The note that naive stamps are read as UTC; DataError unless they cover nearly all hours, each once."""
    wall, who = clocks.wall[rows], short(symbol)
    stamps, counts = np.unique(wall, return_counts=True)
    first = clocks.place(int(rows[0]))
    if len(np.unique(_days(stamps))) == len(stamps):
        late = int(rows[(wall - _days(wall) != wall[0] - _days(wall)[0]).argmax()])
        raise DataError(
            f"{clocks.place(late)}: {who}: one bar a day, at {_clock(clocks.wall[late])} here but at "
            f"{_clock(wall[0])} at {first}: write one clock time for all, or {ASK}"
        )
    steps = np.diff(stamps)
    sizes, often = np.unique(steps, return_counts=True)
    step = max(int(sizes[often.argmax()] / np.timedelta64(1, "us")), 1)
    day = int(DAY / np.timedelta64(1, "us"))
    slots = max(min(24, day // step), 1)
    clock = (stamps - _days(stamps)) // np.timedelta64(1, "us")
    seen = len(np.unique(clock.astype(np.int64) * slots // day))
    if seen < NEARLY_ALL * slots:
        raise DataError(f"{first}: {who}: {pd.Timestamp(wall[0])} is a time of day without a zone: {ASK}")
    if (counts > 1).any():
        again = int(rows[np.flatnonzero(wall == stamps[(counts > 1).argmax()])[1]])
        raise DataError(
            f"{clocks.place(again)}: {who}: {pd.Timestamp(clocks.wall[again])} stands twice and has no zone (a "
            f"clock set back, or a repeated bar): {ASK}"
        )
    detail = f"{len(wall)} stamps without a zone, from {first} on, in {seen} of {slots} parts of the day"
    return symbol, pd.Timestamp(stamps[0]).tz_localize("UTC"), "timezone", detail, "read as UTC"


def _clock(stamp: np.datetime64) -> str:
    return f"{pd.Timestamp(stamp):%H:%M:%S}"
