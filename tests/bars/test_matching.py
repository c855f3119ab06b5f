import numpy as np
import pandas as pd
import pytest

from forecaster.bars.calendar import Calendar
from forecaster.bars.matching import fitting
from hourly import dated, stamps, utc


@pytest.mark.parametrize("code", ["XNYS", "XLON", "XETR", "XTKS", "XHKG", "XSHG", "XBOM", "XASX", "BVMF"])
def test_when_daily_bars_keep_an_exchanges_sessions_then_it_is_found(code: str):
    sessions = Calendar(code).sessions("2015-01-05", "2019-12-20").to_numpy()
    assert fitting(sessions) == code
    # A suspension and a few bars on closed days change nothing.
    holes = np.delete(sessions, slice(300, 340))
    odd = dated("2016-01-02", "2016-01-03", "2017-05-06")
    assert fitting(np.sort(np.concatenate((holes, odd)))) == code


def test_when_bars_come_at_weekends_then_the_market_never_closes():
    assert fitting(np.arange("2024-01-01", "2024-01-13", dtype="datetime64[D]").astype("datetime64[us]")) == "24/7"
    # Six copies of Friday in 160 sessions are no rule.
    sessions = Calendar("XNYS").sessions("2023-06-01", "2024-01-19").to_numpy()
    weekend = dated("2023-06-10", "2023-06-11", "2023-08-05", "2023-08-06", "2023-11-04", "2023-11-05")
    assert fitting(np.sort(np.concatenate((sessions, weekend)))) == "XNYS"


def test_when_bars_come_on_every_weekday_then_no_exchange_is_assumed():
    days = pd.bdate_range("2015-01-01", "2019-12-31").as_unit("us").to_numpy()
    assert fitting(days) == "24/5"


def test_when_there_are_few_bars_then_a_calendar_is_found_all_the_same():
    assert fitting(Calendar("XNYS").sessions("2024-07-01", "2024-07-15").to_numpy()) == "XNYS"
    assert fitting(dated("2024-07-02")) == "XNYS"
    assert fitting(dated("2024-07-02T15:30"), "1h") == "XNYS"


@pytest.mark.parametrize("code", ["XNYS", "XLON", "forex", "24/7"])
@pytest.mark.parametrize("interval", ["1h", "5min"])
def test_when_intraday_bars_keep_a_markets_hours_then_it_is_found(code: str, interval: str):
    times = stamps(code, "2024-01-08", "2024-06-28", interval)
    assert fitting(times, interval) == code


def test_when_bars_come_before_and_after_the_open_hours_then_their_dates_tell_the_exchange():
    days = Calendar("XNYS").sessions("2024-01-02", "2024-12-30")
    times = np.array([utc(str(day + pd.Timedelta(hours=hour))) for day in days for hour in range(9, 24)])
    assert fitting(times, "1h") == "XNYS"
