"""Exchange sessions: which dates have a bar, and which come next."""

from dataclasses import dataclass
from datetime import date
from functools import cache

import exchange_calendars
import numpy as np
import pandas as pd
from exchange_calendars import ExchangeCalendar

from forecaster.errors import DataError

# The library covers the last 20 years unless a start is given; NYSE has traded Monday to Friday since 1952.
FIRST = pd.Timestamp("1950-01-01")

Day = str | date | np.datetime64 | pd.Timestamp


@dataclass(frozen=True)
class Calendar:
    """Sessions of an exchange, from 1950 (or its first recorded year) to a year from today.

    code: market identifier code such as "XNYS", or "24/7" for markets that never close. DataError for any other.
    """

    code: str

    def __post_init__(self) -> None:
        if self.code not in exchange_calendars.get_calendar_names(include_aliases=True):
            raise DataError(f"calendar {self.code!r}: unknown: give a market identifier code such as XNYS, or 24/7")

    @property
    def week_bars(self) -> int:
        """Daily bars in a week without holidays: 5 for exchanges, 7 for markets that never close."""
        return _library_calendar(self.code).weekmask.count("1")

    def sessions(self, first: Day, last: Day) -> pd.DatetimeIndex:
        """Sessions from first to last, both included: naive dates in us. DataError outside the years covered."""
        known = _sessions(self.code)
        start, end = _day(first), _day(last)
        for day in (start, end):
            self._check_covered(day, known)
        return known[known.searchsorted(start) : known.searchsorted(end, side="right")]

    def after(self, time: Day, steps: int) -> list[pd.Timestamp]:
        """The next `steps` sessions strictly after the date of `time`. DataError where the calendar ends before."""
        known = _sessions(self.code)
        day = _day(time)
        self._check_covered(day, known)
        start = int(known.searchsorted(day, side="right"))
        ahead = [pd.Timestamp(session) for session in known[start : start + steps]]
        if len(ahead) < steps:
            raise DataError(
                f"calendar {self.code}: {steps} sessions after {day.date()}: it ends on {known[-1].date()}; "
                "forecast fewer steps or from an earlier bar"
            )
        return ahead

    def _check_covered(self, day: pd.Timestamp, known: pd.DatetimeIndex) -> None:
        if not known[0] <= day <= known[-1]:
            raise DataError(
                f"calendar {self.code}: {day.date()}: it knows {known[0].date()} to {known[-1].date()}; "
                "use bars between these dates"
            )


def _day(time: Day) -> pd.Timestamp:
    return pd.Timestamp(time).normalize().as_unit("us")


@cache
def _sessions(code: str) -> pd.DatetimeIndex:
    # The library stamps in ns, bars in us.
    return pd.DatetimeIndex(_library_calendar(code).sessions).as_unit("us")


@cache
def _library_calendar(code: str) -> ExchangeCalendar:
    try:
        return exchange_calendars.get_calendar(code, start=FIRST)
    except (ValueError, NotImplementedError):
        return _from_first_record(code)


def _from_first_record(code: str) -> ExchangeCalendar:
    """The calendar of an exchange whose holidays are recorded from a later year than 1950 only."""
    try:
        recent = exchange_calendars.get_calendar(code)
        return exchange_calendars.get_calendar(code, start=type(recent).bound_min())
    except (ValueError, NotImplementedError) as reason:
        raise DataError(f"calendar {code}: exchange_calendars can't build it ({reason}): use another one") from reason
