"""Bars a week: of exchanges, currencies, markets that never close, and of what a file really holds."""

import numpy as np
import pandas as pd
import pytest

from forecaster.bars.calendar import Calendar
from forecaster.windows.week import week_bars
from hourly import bars_at, dated, stamps, utc


@pytest.mark.parametrize(
    ("code", "interval", "last", "bars"),
    [
        ("XNYS", "1h", "2024-04-30", 35),
        ("XNYS", "30min", "2024-04-30", 65),
        ("XNYS", "1min", "2024-02-15", 1950),
        ("XLON", "1h", "2024-04-30", 45),
        ("forex", "1h", "2024-04-30", 120),
        ("24/7", "4h", "2024-04-30", 42),
    ],
)
def test_when_bars_are_complete_then_a_week_is_counted(code: str, interval: str, last: str, bars: int) -> None:
    frame = bars_at({"A": stamps(code, "2024-01-02", last, interval)}, code, interval).frame
    assert week_bars(frame, code, interval) == bars


def test_when_bars_come_before_and_after_the_open_hours_then_they_count() -> None:
    days = Calendar("XNYS").sessions("2024-01-02", "2024-03-28")
    times = np.array([utc(str(day + pd.Timedelta(hours=hour))) for day in days for hour in range(9, 24)])
    assert week_bars(bars_at({"A": times}, "XNYS", "1h").frame, "XNYS", "1h") == 75


def test_when_bars_are_fewer_than_a_week_then_the_calendar_says() -> None:
    times = stamps("XNYS", "2024-01-02", "2024-01-08")
    assert week_bars(bars_at({"A": times}, "XNYS", "1h").frame, "XNYS", "1h") == 35
    assert week_bars(bars_at({"A": dated("2024-01-02")}, "24/7", "1d").frame, "24/7", "1d") == 7


def test_when_daily_bars_of_a_market_that_never_closes_stop_at_weekends_then_a_week_has_five() -> None:
    weekdays = pd.bdate_range("2024-01-01", "2024-03-29").as_unit("us").to_numpy()
    every = pd.date_range("2024-01-01", "2024-03-29").as_unit("us").to_numpy()
    assert week_bars(bars_at({"A": weekdays}, "24/7", "1d").frame, "24/7", "1d") == 5
    assert week_bars(bars_at({"A": every}, "24/7", "1d").frame, "24/7", "1d") == 7
    assert week_bars(bars_at({"A": weekdays}, "forex", "1d").frame, "forex", "1d") == 5
    # Daily bars of an exchange have its week, however many are missing.
    assert week_bars(bars_at({"A": weekdays[::2]}, "XNYS", "1d").frame, "XNYS", "1d") == 5


def test_when_symbols_differ_then_the_commonest_week_counts() -> None:
    full = stamps("XNYS", "2024-01-02", "2024-04-30")
    frame = bars_at({"A": full, "B": full[::3], "C": full[:-20]}, "XNYS", "1h").frame
    assert week_bars(frame, "XNYS", "1h") == 35
