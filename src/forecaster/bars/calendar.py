"""Market hours: which dates and which hours have a bar, and which bars come next."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from itertools import islice
from typing import Final

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Shaped

from forecaster.bars.contract import minutes
from forecaster.bars.exchanges import hours_of, known_code
from forecaster.bars.hours import RECENT_SESSIONS
from forecaster.errors import DataError

ROUND_THE_CLOCK: Final = 20 * 60  # minutes: longer sessions have one bar after the other, not bars of their own hours
FEWEST_SESSIONS: Final = 5  # that show at what times of the day a market around the clock rests
ROUNDING: Final = 1e-6  # of a bar
DAY: Final = np.timedelta64(1, "D")
HOUR: Final = np.timedelta64(1, "h")  # by which clocks change
MIDNIGHT: Final = np.datetime64("1970-01-01", "us")

Times = Shaped[np.ndarray, " n"]
Day = str | date | np.datetime64 | pd.Timestamp


@dataclass(frozen=True)
class Calendar:
    """Sessions of a market with their hours, from 1950 (or its first recorded year) to a year from today.

    code: market identifier code such as "XNYS"; "24/7" for markets that never close; "forex" for sessions Monday to
    Friday, each from 17:00 New York the day before. DataError for any other.
    Times are datetime64[us]: session dates for an interval of "1d", otherwise instants in UTC.
    """

    code: str

    def __post_init__(self) -> None:
        if not known_code(self.code):
            raise DataError(
                f"calendar {self.code!r}: unknown: give a market identifier code such as XNYS, or 24/7 or forex"
            )

    @property
    def zone(self) -> str:
        """Name of the time zone in which the market's clock runs."""
        return hours_of(self.code).zone

    @property
    def week_bars(self) -> int:
        """Daily bars in a week without holidays: 5 for exchanges and forex, 7 for markets that never close."""
        return hours_of(self.code).week

    def session_bars(self, interval: str) -> int:
        """Bars of a usual session: its trading time in intervals, rounded up; 1 for daily bars."""
        return 1 if interval == "1d" else -(-hours_of(self.code).usual // minutes(interval))

    def sessions(self, first: Day, last: Day) -> pd.DatetimeIndex:
        """Sessions from first to last, both included: naive dates in us. DataError outside the years covered."""
        known = hours_of(self.code).sessions
        start, end = _day(first), _day(last)
        for day in (start, end):
            self._check_covered(day)
        return known[known.searchsorted(start) : known.searchsorted(end, side="right")]

    def traded(self, times: Times, interval: str) -> Float[np.ndarray, " n"]:
        """Trading time up to each stamp in minutes, breaks and early closes left out; of dates, the sessions up to it.

        It stands still where the market is closed and outside the years covered.
        """
        hours = hours_of(self.code)
        if interval == "1d":
            return np.searchsorted(hours.sessions.to_numpy(), times, side="right").astype(np.float64)
        return hours.traded(times)

    def missing(self, times: Times, interval: str) -> Int[np.ndarray, " m"]:
        """How many expected bars are missing between each of n bars of one symbol and the next, m = n - 1.

        Closed hours hold no bar: over a night, a weekend, a holiday or after an early close nothing is missing.
        """
        gap = np.diff(self.traded(times, interval))
        if interval == "1d":
            # A bar on a closed day is no session of its own.
            lost = gap - hours_of(self.code).has(times[1:])
        else:
            lost = np.ceil(gap / minutes(interval) - ROUNDING) - 1.0
        return np.maximum(lost, 0.0).astype(np.int64)

    def due(self, times: Times, steps: int, interval: str) -> Shaped[np.ndarray, "n H"]:
        """When the next bars are due after each, by the market's hours alone: sessions, or trading time in intervals.

        It knows nothing of the bars that came: a halt is not foreseen. Beyond the years covered the last one known.
        """
        hours = hours_of(self.code)
        if interval != "1d":
            return hours.trading_after(times, minutes(interval) * np.arange(1.0, steps + 1))
        sessions = hours.sessions.to_numpy()
        places = np.searchsorted(sessions, times, side="right")[:, None] + np.arange(steps)
        return sessions[np.minimum(places, len(sessions) - 1)]

    def inside(self, times: Times, interval: str) -> Bool[np.ndarray, " n"]:
        """Whether each date is a session; whether each stamp begins or ends a bar that the session's hours reach into.

        True outside the years covered: nothing is known of them.
        """
        hours = hours_of(self.code)
        if interval == "1d":
            known = hours.sessions.to_numpy()
            return hours.has(times) | (times < known[0]) | (times > known[-1])
        within = hours.open_at(times, np.timedelta64(minutes(interval), "m"))
        return within | (times < hours.opens[0]) | (times > hours.closes[-1])

    def days(self, times: Times, interval: str) -> Times:
        """The session date that each stamp belongs to, before and after the open hours too; dates as they stand."""
        if interval == "1d":
            return times
        clock = clocks(times, self.zone) + hours_of(self.code).ahead.to_timedelta64()
        return clock.astype("datetime64[D]").astype("datetime64[us]")

    def end(self, session: Day) -> pd.Timestamp:
        """The instant (UTC) at which a session's date is over: midnight, or where the next session begins before it."""
        midnight = _day(session) + pd.Timedelta(days=1) - hours_of(self.code).ahead
        # Where clocks change at midnight, the first instant that exists.
        return midnight.tz_localize(self.zone, ambiguous=True, nonexistent="shift_forward").tz_convert("UTC")

    def closed(self, session: Day) -> pd.Timestamp:
        """The close of a session in UTC, from when on its daily bar is final; of any other date, its end."""
        hours = hours_of(self.code)
        place = int(hours.sessions.searchsorted(_day(session)))
        if place < len(hours.sessions) and hours.sessions[place] == _day(session):
            return pd.Timestamp(hours.closes[place]).tz_localize("UTC")
        return self.end(session)

    def after(self, time: Day, steps: int, interval: str = "1d", recent: Times | None = None) -> list[pd.Timestamp]:
        """The next `steps` sessions strictly after the date of `time`; of intraday bars, the stamps (UTC) after it.

        recent: the symbol's last stamps, which show at what times of its sessions it has bars, outside the open hours
        too; without them, bars from the open on. Markets around the clock: one interval after the other.
        DataError where the calendar ends before.
        """
        self._check_covered(_day(time))
        hours = hours_of(self.code)
        if interval == "1d":
            start = int(hours.sessions.searchsorted(_day(time), side="right"))
            ahead = [pd.Timestamp(session) for session in hours.sessions[start : start + steps]]
        else:
            stamp, length = np.datetime64(_naive(time), "us"), np.timedelta64(minutes(interval), "m")
            seen = np.empty(0, dtype="datetime64[us]") if recent is None else recent[recent <= stamp]
            stamps = self._stamps(stamp, length, seen, interval)
            ahead = [pd.Timestamp(one).tz_localize("UTC") for one in islice(stamps, steps)]
        if len(ahead) < steps:
            what = "sessions" if interval == "1d" else f"bars of {interval}"
            raise DataError(
                f"calendar {self.code}: {steps} {what} after {_day(time).date()}: it ends on "
                f"{hours.sessions[-1].date()}; forecast fewer steps or from an earlier bar"
            )
        return ahead

    def _stamps(
        self, time: np.datetime64, length: np.timedelta64, seen: Times, interval: str
    ) -> Iterator[np.datetime64]:
        """Stamps after a time at which the market trades and the symbol had bars in its last sessions, as `seen` shows.

        Of sessions with hours, those times after the open at which at least half of them have a bar. Around the clock,
        one bar after the other, without times of the day at which there was none; but like sessions with hours where
        bars kept to the open although clocks changed.
        """
        hours, nothing = hours_of(self.code), np.timedelta64(0, "us")
        days = self.days(seen, interval)
        known = hours.has(days)
        place = np.searchsorted(hours.sessions.to_numpy(), days[known])
        opens = hours.opens[place]
        kept_open = (
            len(np.unique((seen[known] - opens) % length)) == 1 < len(np.unique(opens - opens.astype("datetime64[D]")))
        )
        latest = np.unique(place)[-RECENT_SESSIONS:]
        recent = np.isin(place, latest)
        own, place = seen[known][recent], place[recent]
        at_close, at_open = (int(np.isin(times[latest], seen).sum()) for times in (hours.closes, hours.opens))
        ends = at_close > at_open  # a stamp is the end of its bar
        if hours.usual < ROUND_THE_CLOCK or (length > HOUR and kept_open and not ends):
            day = self.days(np.array([time]), interval)[0]
            slots, counts = np.unique(own - hours.opens[place], return_counts=True)
            slots = slots[2 * counts >= len(latest)]
            if len(slots) == 0:
                slots = np.arange(nothing, hours.usual_span(day), length)
            yield from hours.following(time, day, slots, length if ends and slots[0] > nothing else nothing)
            return
        clock = np.unique((clocks(own, self.zone) - MIDNIGHT) % DAY)
        for stamp in hours.stepping(time, length, length if ends else nothing):
            apart = np.abs(clock - (clocks(np.array([stamp]), self.zone) - MIDNIGHT) % DAY)
            if len(latest) < FEWEST_SESSIONS or np.minimum(apart, DAY - apart).min() < length:
                yield stamp

    def _check_covered(self, day: pd.Timestamp) -> None:
        known = hours_of(self.code).sessions
        if not known[0] <= day <= known[-1]:
            raise DataError(
                f"calendar {self.code}: {day.date()}: it knows {known[0].date()} to {known[-1].date()}; "
                "use bars between these dates"
            )


def clocks(times: Times, zone: str) -> Times:
    """What a clock in the zone shows at instants in UTC."""
    if zone == "UTC":
        return times
    stamps = pd.DatetimeIndex(times).as_unit("us").tz_localize("UTC").tz_convert(zone)
    return stamps.tz_localize(None).to_numpy()


def _naive(time: Day) -> pd.Timestamp:
    stamp = pd.Timestamp(time)
    return (stamp if stamp.tzinfo is None else stamp.tz_convert("UTC").tz_localize(None)).as_unit("us")


def _day(time: Day) -> pd.Timestamp:
    return _naive(time).normalize()
