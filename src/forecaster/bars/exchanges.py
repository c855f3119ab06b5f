"""The hours of each market that has a code: exchange_calendars' and, of currencies, our own."""

import textwrap
from functools import cache
from typing import Final

import exchange_calendars
import pandas as pd
from exchange_calendars import ExchangeCalendar

from forecaster.bars.hours import Hours, forex
from forecaster.errors import DataError

# The library covers the last 20 years unless a start is given; NYSE has traded Monday to Friday since 1952.
FIRST: Final = pd.Timestamp("1950-01-01")
REASON: Final = 80  # characters of the library's own words, which may list every date of 20 years


def known_code(code: str) -> bool:
    """Whether there is a market of this code."""
    return code == "forex" or code in exchange_calendars.get_calendar_names(include_aliases=True)


@cache
def hours_of(code: str) -> Hours:
    """Its hours, to a year from today; DataError where the library can't build them."""
    if code == "forex":
        return forex(FIRST, pd.Timestamp.now().normalize() + pd.DateOffset(years=1))
    known = _library_calendar(code)
    return Hours.of(known.schedule, str(known.tz), known.weekmask.count("1"))


@cache
def _library_calendar(code: str) -> ExchangeCalendar:
    try:
        return exchange_calendars.get_calendar(code, start=FIRST)
    # What the library raises for a start before its first recorded holiday; the narrower one is tried, and told.
    except (ValueError, NotImplementedError):
        return _from_first_record(code)


def _from_first_record(code: str) -> ExchangeCalendar:
    """The calendar of an exchange whose holidays are recorded from a later year than 1950 only."""
    try:
        recent = exchange_calendars.get_calendar(code)
        return exchange_calendars.get_calendar(code, start=type(recent).bound_min())
    except (ValueError, NotImplementedError) as reason:
        told = textwrap.shorten(str(reason), REASON, placeholder=" ...")
        raise DataError(f"calendar {code}: exchange_calendars can't build it ({told}): use another one") from reason
