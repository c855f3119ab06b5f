import pandas as pd
import pytest

from forecaster.bars import bundled
from forecaster.bars.calendar import Calendar
from forecaster.errors import DataError


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
    assert str(error.value) == ("calendar 'XNYSE': unknown: give a market identifier code such as XNYS, or 24/7")


def test_when_the_library_cannot_build_a_calendar_then_the_error_says_why():
    with pytest.raises(DataError, match=r"calendar ASEX: exchange_calendars can't build it \(.+\): use another one"):
        Calendar("ASEX").sessions("2020-01-01", "2020-02-01")


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
