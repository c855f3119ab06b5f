"""When the next intraday bars are due."""

import numpy as np
import pandas as pd
import pytest

from forecaster.bars.calendar import Calendar
from hourly import dated, stamps, utc


@pytest.mark.parametrize("code", ["XNYS", "XLON", "forex", "24/7"])
def test_when_intraday_bars_are_forecast_then_their_stamps_are_those_that_came(code: str):
    # Over both clock changes, half days and holidays.
    times = stamps(code, "2024-02-01", "2024-12-30")
    for place in range(200, len(times) - 40, 61):
        ahead = Calendar(code).after(times[place], 30, "1h", times[: place + 1])
        assert [utc(stamp) for stamp in ahead] == list(times[place + 1 : place + 31])
        assert str(ahead[0].tzinfo) == "UTC"


def test_when_a_symbol_has_bars_before_and_after_the_open_hours_then_so_have_the_next():
    days = Calendar("XNYS").sessions("2024-06-03", "2024-07-02")
    slots = [pd.Timedelta(hours=hour) for hour in range(8, 24)]  # 04:00 to 19:00 New York
    times = np.array([utc(str(day + slot)) for day in days for slot in slots])
    ahead = [utc(stamp) for stamp in Calendar("XNYS").after(times[-1], 16, "1h", times)]
    # The 3rd of July closes at 17:00 UTC: nothing then until the hours after the usual close.
    hours = [8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 21, 22, 23]
    assert ahead == [utc(f"2024-07-03T{hour:02d}:00") for hour in hours] + [
        utc(f"2024-07-05T{hour:02d}:00") for hour in (8, 9, 10)
    ]


def test_when_stamps_end_their_bars_then_the_next_do_too():
    times = np.concatenate(
        [
            dated(*(f"2024-07-{day:02d}T{h}" for h in ("14:30", "15:30", "16:30", "17:30", "18:30", "19:30", "20:00")))
            for day in (8, 9, 10)
        ]
    )
    ahead = Calendar("XNYS").after(times[-2], 3, "1h", times[:-1])
    assert [utc(stamp) for stamp in ahead] == list(dated("2024-07-10T20:00", "2024-07-11T14:30", "2024-07-11T15:30"))


def test_when_stamps_end_their_bars_then_a_half_day_ends_at_its_close():
    days = dated("2024-07-01", "2024-07-02")
    slots = [np.timedelta64(minutes, "m") for minutes in (870, 930, 990, 1050, 1110, 1170, 1200)]
    times = (days[:, None] + np.array(slots)).ravel()
    ahead = [utc(stamp) for stamp in Calendar("XNYS").after(times[-1], 5, "1h", times)]
    # The 3rd of July closes at 17:00 UTC.
    hours = ("2024-07-03T14:30", "2024-07-03T15:30", "2024-07-03T16:30", "2024-07-03T17:00", "2024-07-05T14:30")
    assert ahead == list(dated(*hours))


def test_when_an_exchange_closed_earlier_in_those_years_then_its_last_stamp_is_of_those_years():
    # Tokyo closed at 15:00 until November 2024, 6:00 UTC, and at 15:30 since; lunch from 11:30 to 12:30.
    days = dated("2023-05-08", "2023-05-09", "2023-05-10")
    slots = [np.timedelta64(minutes, "m") for minutes in (60, 120, 150, 270, 330, 360)]
    times = (days[:, None] + np.array(slots)).ravel()
    ahead = [utc(stamp) for stamp in Calendar("XTKS").after(times[-2], 7, "1h", times[:-1])]
    assert ahead == [times[-1], *(np.datetime64("2023-05-11", "us") + slot for slot in slots)]


def test_when_currencies_are_stamped_at_the_end_of_their_bars_then_their_weekend_is_too():
    times = stamps("forex", "2024-02-05", "2024-03-08") + np.timedelta64(1, "h")
    friday = int(np.flatnonzero(times == np.datetime64("2024-02-23T21:00", "us"))[0])
    ahead = [utc(stamp) for stamp in Calendar("forex").after(times[friday], 3, "1h", times[: friday + 1])]
    assert ahead == list(dated("2024-02-23T22:00", "2024-02-25T23:00", "2024-02-26T00:00"))


def test_when_bars_of_four_hours_keep_to_the_open_then_they_do_over_a_change_of_clocks():
    days = Calendar("forex").sessions("2023-09-04", "2024-03-11")
    opens = [Calendar("forex").end(day - pd.Timedelta(days=1)) for day in days]
    times = np.array([utc(opening + pd.Timedelta(hours=4 * bar)) for opening in opens for bar in range(6)])
    ahead = [utc(stamp) for stamp in Calendar("forex").after(times[-7], 6, "4h", times[:-6])]
    assert ahead == list(times[-6:])
    assert ahead[0] == np.datetime64("2024-03-10T21:00", "us")


def test_when_a_symbol_rests_at_an_hour_of_every_day_then_no_bar_is_due_there():
    times = stamps("forex", "2024-06-03", "2024-06-14")
    times = times[(times - times.astype("datetime64[D]")) != np.timedelta64(21, "h")]  # 17:00 in New York
    ahead = [utc(stamp) for stamp in Calendar("forex").after("2024-06-13T20:00", 2, "1h", times)]
    assert ahead == list(dated("2024-06-13T22:00", "2024-06-13T23:00"))
    # What it has shown on four days only is no rule.
    early = times[times < np.datetime64("2024-06-06T21:00", "us")]
    assert utc(Calendar("forex").after("2024-06-06T20:00", 1, "1h", early)[0]) == np.datetime64(
        "2024-06-06T21:00", "us"
    )


def test_when_nothing_is_known_of_a_symbols_hours_then_they_begin_at_the_open():
    ahead = Calendar("XNYS").after("2024-07-05T19:30", 2, "1h")
    assert [utc(stamp) for stamp in ahead] == list(dated("2024-07-08T13:30", "2024-07-08T14:30"))
