import numpy as np
import pandas as pd
import pytest

from forecaster.bars import bundled
from forecaster.bars.calendar import Calendar
from forecaster.errors import DataError
from hourly import dated, stamps


def dates(sessions: pd.DatetimeIndex | list[pd.Timestamp]) -> list[str]:
    return [str(session.date()) for session in sessions]


def test_when_a_week_holds_a_holiday_then_it_is_no_session():
    # Good Friday, 2 April 2021.
    assert dates(Calendar("XNYS").sessions("2021-04-01", "2021-04-06")) == ["2021-04-01", "2021-04-05", "2021-04-06"]


def test_when_the_range_is_older_than_twenty_years_then_it_is_covered():
    sessions = Calendar("XNYS").sessions("1950-01-03", "1950-01-10")
    assert dates(sessions) == ["1950-01-03", "1950-01-04", "1950-01-05", "1950-01-06", "1950-01-09", "1950-01-10"]


def test_when_sessions_are_given_then_they_are_naive_microseconds():
    assert Calendar("XNYS").sessions("2020-01-01", "2020-02-01").dtype == "datetime64[us]"
    assert Calendar("XNYS").after("2020-01-01", 1)[0].unit == "us"


def test_when_compared_with_the_bundled_bars_then_all_5031_sessions_agree():
    times = bundled.load(["SP500"]).frame["time"]
    sessions = Calendar("XNYS").sessions(times.iloc[0], times.iloc[-1])
    assert len(sessions) == 5031
    assert sessions.tolist() == times.tolist()


def test_when_steps_are_asked_for_then_they_begin_strictly_after_the_time():
    # New Year 2019 on a Tuesday; the bar itself is no step.
    assert dates(Calendar("XNYS").after("2018-12-31", 3)) == ["2019-01-02", "2019-01-03", "2019-01-04"]
    # From a Saturday.
    assert dates(Calendar("XNYS").after(pd.Timestamp("2019-01-05"), 2)) == ["2019-01-07", "2019-01-08"]
    assert Calendar("XNYS").after("2018-12-31", 0) == []


def test_when_the_market_never_closes_then_weekends_are_sessions():
    assert dates(Calendar("24/7").after("2021-12-31", 3)) == ["2022-01-01", "2022-01-02", "2022-01-03"]
    assert len(Calendar("24/7").sessions("2020-02-01", "2020-02-29")) == 29


@pytest.mark.parametrize(("code", "bars"), [("XNYS", 5), ("XETR", 5), ("24/7", 7)])
def test_when_a_week_has_no_holiday_then_its_bars_are_counted(code: str, bars: int):
    assert Calendar(code).week_bars == bars


def test_when_an_exchange_is_recorded_from_a_later_year_then_its_calendar_begins_there():
    assert dates(Calendar("XTKS").sessions("1997-01-06", "1997-01-07")) == ["1997-01-06", "1997-01-07"]
    with pytest.raises(DataError, match="calendar XTKS: 1990-05-01: it knows 1997-01-06 to "):
        Calendar("XTKS").sessions("1990-05-01", "1998-01-01")


def test_when_the_code_is_unknown_then_the_error_says_what_to_give():
    with pytest.raises(DataError) as error:
        Calendar("XNYSE")
    assert str(error.value) == (
        "calendar 'XNYSE': unknown: give a market identifier code such as XNYS, or 24/7 or forex"
    )


def test_when_the_library_cannot_build_a_calendar_then_the_error_says_why():
    for code in ("ASEX", "XTAE"):
        with pytest.raises(
            DataError, match=rf"calendar {code}: exchange_calendars can't build it \(.+\): use"
        ) as error:
            Calendar(code).sessions("2020-01-01", "2020-02-01")
        assert len(str(error.value)) < 200  # the library lists a thousand dates for Tel Aviv


def test_when_the_years_are_not_covered_then_the_error_names_the_ones_that_are():
    with pytest.raises(DataError, match="calendar XNYS: 1949-12-30: it knows 1950-01-02 to 20"):
        Calendar("XNYS").sessions("1949-12-30", "1950-02-01")
    with pytest.raises(DataError, match=r"calendar XNYS: 2199-01-02: .*; use bars between these dates"):
        Calendar("XNYS").sessions("2020-01-02", "2199-01-02")


def test_when_steps_go_beyond_the_calendar_then_the_error_says_where_it_ends():
    last = Calendar("XNYS").after(pd.Timestamp.now().normalize(), 200)[-1]
    with pytest.raises(DataError, match=r"calendar XNYS: 400 sessions after .*: it ends on .*; forecast fewer steps"):
        Calendar("XNYS").after(last, 400)
    with pytest.raises(DataError, match="calendar XNYS: 2199-01-02: it knows"):
        Calendar("XNYS").after("2199-01-02", 1)


def test_when_the_clock_changes_then_forex_days_still_begin_at_17_new_york():
    # Clocks went forward in New York on Sunday 10 March 2024: 17:00 is 22:00 UTC before and 21:00 UTC after.
    forex = Calendar("forex")
    assert dates(forex.sessions("2024-03-07", "2024-03-12")) == ["2024-03-07", "2024-03-08", "2024-03-11", "2024-03-12"]
    assert str(forex.closed("2024-03-08")) == "2024-03-08 22:00:00+00:00"
    assert str(forex.closed("2024-03-11")) == "2024-03-11 21:00:00+00:00"
    bars = dated("2024-03-08T21:00", "2024-03-08T22:00", "2024-03-09T12:00", "2024-03-10T20:30", "2024-03-10T21:00")
    # A bar of 22:00 may end at the close, one of 20:30 reaches into the next session.
    assert forex.inside(bars, "1h").tolist() == [True, True, False, True, True]
    assert forex.inside(dated("2024-03-10T19:59"), "1h").tolist() == [False]
    assert np.diff(forex.traded(bars[[0, 4]], "1h")).tolist() == [60.0]


def test_when_time_is_traded_then_half_days_and_breaks_are_left_out():
    # 3 July 2024: NYSE closes at 13:00 (17:00 UTC); the 4th is a holiday.
    nyse = Calendar("XNYS").traded(dated("2024-07-03T13:00", "2024-07-03T15:30", "2024-07-05T00:00"), "1min")
    assert np.diff(nyse).tolist() == [120.0, 90.0]
    # Tokyo breaks from 11:30 to 12:30 (02:30 to 03:30 UTC).
    tokyo = Calendar("XTKS").traded(dated("2024-07-03T02:00", "2024-07-03T03:00", "2024-07-03T04:00"), "1min")
    assert np.diff(tokyo).tolist() == [30.0, 30.0]
    assert np.diff(Calendar("XNYS").traded(dated("2024-07-03", "2024-07-08"), "1d")).tolist() == [2.0]


@pytest.mark.parametrize(
    ("code", "interval", "times", "missing"),
    [
        # A night, a half day and the holiday after it, a weekend: no gap; one bar, then a session of seven left out.
        ("XNYS", "1h", ["2024-07-02T19:30", "2024-07-03T13:30"], [0]),
        ("XNYS", "1h", ["2024-07-03T16:30", "2024-07-05T13:30"], [0]),
        ("XNYS", "1h", ["2024-07-05T19:30", "2024-07-08T13:30", "2024-07-08T15:30"], [0, 1]),
        ("XNYS", "1h", ["2024-07-08T19:30", "2024-07-10T13:30"], [6]),
        # Stamps at the end of bars, on the clock's hours, and outside the open hours.
        ("XNYS", "1h", ["2024-07-08T20:00", "2024-07-09T14:30", "2024-07-09T15:30"], [0, 0]),
        ("XNYS", "1h", ["2024-07-08T13:00", "2024-07-08T14:00", "2024-07-08T16:00"], [0, 1]),
        ("XNYS", "5min", ["2024-07-08T23:55", "2024-07-09T08:00", "2024-07-09T13:30", "2024-07-09T13:45"], [0, 0, 2]),
        ("XTKS", "1h", ["2024-07-03T02:00", "2024-07-03T03:30"], [0]),
        ("forex", "1h", ["2024-07-05T20:00", "2024-07-07T21:00", "2024-07-08T21:00"], [0, 23]),
        ("24/7", "4h", ["2024-07-05T20:00", "2024-07-06T00:00", "2024-07-06T12:00"], [0, 2]),
        ("XNYS", "1d", ["2024-07-03", "2024-07-05", "2024-07-06", "2024-07-10", "2024-07-11"], [0, 0, 2, 0]),
        ("24/7", "1d", ["2024-07-05", "2024-07-08"], [2]),
        ("XNYS", "1d", ["1900-01-02", "1901-01-02"], [0]),
        ("XNYS", "1d", ["2024-07-03"], []),
    ],
)
def test_when_bars_follow_one_another_then_only_open_hours_can_miss_some(
    code: str, interval: str, times: list[str], missing: list[int]
):
    assert Calendar(code).missing(dated(*times), interval).tolist() == missing


@pytest.mark.parametrize("code", ["XNYS", "XLON", "forex", "24/7"])
@pytest.mark.parametrize("interval", ["1h", "30min"])
def test_when_every_bar_of_a_year_is_there_then_none_is_missing_and_all_are_inside(code: str, interval: str):
    times = stamps(code, "2024-01-02", "2024-12-30", interval)
    assert not Calendar(code).missing(times, interval).any()
    assert Calendar(code).inside(times, interval).all()


def test_when_a_date_is_no_session_then_it_is_outside():
    days = dated("2024-07-03", "2024-07-04", "2024-07-06", "1900-01-01")
    assert Calendar("XNYS").inside(days, "1d").tolist() == [True, False, False, True]


def test_when_stamps_are_before_the_open_or_in_the_evening_then_their_date_is_the_markets():
    assert (
        Calendar("XNYS").days(dated("2024-07-09T00:30", "2024-07-09T08:00"), "5min").tolist()
        == dated("2024-07-08", "2024-07-09").tolist()
    )
    # Sunday evening in New York is the forex Monday.
    assert Calendar("forex").days(dated("2024-07-07T21:00"), "1h").tolist() == dated("2024-07-08").tolist()
    assert Calendar("XNYS").days(dated("2024-07-06"), "1d").tolist() == dated("2024-07-06").tolist()


def test_when_a_session_is_over_then_its_end_is_midnight_and_its_close_the_markets():
    assert str(Calendar("XNYS").closed("2024-07-03")) == "2024-07-03 17:00:00+00:00"
    assert str(Calendar("XNYS").closed("2024-07-06")) == "2024-07-07 04:00:00+00:00"
    assert str(Calendar("XNYS").end("2024-07-03")) == "2024-07-04 04:00:00+00:00"
    assert str(Calendar("24/7").closed("2024-07-06")) == "2024-07-07 00:00:00+00:00"


@pytest.mark.parametrize(
    ("code", "day", "hour", "five", "one"),
    [("XNYS", 1, 7, 78, 390), ("XTKS", 1, 6, 66, 330), ("forex", 1, 24, 288, 1440), ("24/7", 1, 24, 288, 1440)],
)
def test_when_a_session_is_usual_then_its_bars_are_counted(code: str, day: int, hour: int, five: int, one: int):
    assert [Calendar(code).session_bars(i) for i in ("1d", "1h", "5min", "1min")] == [day, hour, five, one]
