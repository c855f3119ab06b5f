"""Opens, closes and breaks as arrays, on two sessions made by hand."""

import numpy as np
import pandas as pd
import pytest

from forecaster.bars.hours import Hours, forex
from hourly import dated


@pytest.fixture
def hours() -> Hours:
    """1 July: 01:00 to 07:00 UTC with a break from 03:00 to 04:00. 3 July: 01:00 to 03:00, without one."""
    table = {
        "open": ["2024-07-01T01:00", "2024-07-03T01:00"],
        "break_start": ["2024-07-01T03:00", None],
        "break_end": ["2024-07-01T04:00", None],
        "close": ["2024-07-01T07:00", "2024-07-03T03:00"],
    }
    schedule = pd.DataFrame(
        {name: pd.to_datetime(column, utc=True) for name, column in table.items()},
        index=pd.DatetimeIndex(["2024-07-01", "2024-07-03"]).as_unit("ns"),
    )
    return Hours.of(schedule, "Asia/Tokyo", 5)


def test_when_a_market_breaks_then_no_time_is_traded(hours: Hours) -> None:
    stamps = dated(
        "2024-06-30", "2024-07-01T02:00", "2024-07-01T03:30", "2024-07-01T05:00", "2024-07-03T02:00", "2025-01-01"
    )
    assert hours.traded(stamps).tolist() == [0.0, 60.0, 120.0, 180.0, 360.0, 420.0]


def test_when_a_bar_touches_open_hours_then_it_is_inside(hours: Hours) -> None:
    stamps = dated("2024-07-01T00:30", "2024-07-01T00:31", "2024-07-01T03:20", "2024-07-01T07:00", "2024-07-01T07:01")
    bar = np.timedelta64(30, "m")
    assert hours.open_at(stamps, bar).tolist() == [False, True, True, True, False]
    assert hours.trading_at(stamps, bar).tolist() == [False, True, False, True, False]


def test_when_a_date_is_asked_for_then_only_sessions_count(hours: Hours) -> None:
    assert hours.has(dated("2024-06-30", "2024-07-01", "2024-07-02", "2024-07-03", "2024-07-04")).tolist() == [
        *(False, True, False, True, False)
    ]


def test_forex_sessions_begin_on_the_evening_before() -> None:
    week = forex(pd.Timestamp("2024-07-01"), pd.Timestamp("2024-07-07"))
    assert len(week.sessions) == 5
    assert week.opens[0] == np.datetime64("2024-06-30T21:00")
    assert (week.usual, week.ahead) == (1440, pd.Timedelta(hours=7))
