"""The calendar is found from what traded, whatever fills its closed days."""

import numpy as np
import pandas as pd
import pytest

from dirty import cleaned, daily, numbered, told
from forecaster.bars.cleaning import PoisonedBarsError

PRICES = ["open", "high", "low", "close"]


def filled(rows: pd.DataFrame, days: pd.DatetimeIndex, volume: float | None = None) -> pd.DataFrame:
    """Rows with a copy of the row before on each of the days that has none."""
    every = rows.set_index("time").reindex(rows.set_index("time").index.union(days)).ffill()
    if volume is not None:
        every.loc[~every.index.isin(rows["time"]), "volume"] = volume
    return numbered(every.reset_index(names="time"))


@pytest.mark.parametrize("volume", [None, 0.0])
@pytest.mark.parametrize("freq", ["D", "B"])
def test_copies_on_every_closed_day_are_dropped_and_make_no_other_calendar(volume: float | None, freq: str) -> None:
    # Friday's bar again on each Saturday, Sunday and holiday (or holiday alone), with its volume or with none.
    rows = daily()
    days = pd.date_range(rows["time"].iloc[0], rows["time"].iloc[-1], freq=freq).as_unit("us")
    bars = cleaned(filled(rows, days, volume), calendar=None)
    assert bars.calendar == "XNYS"
    pd.testing.assert_frame_equal(bars.frame, cleaned(rows).frame)
    assert len(told(bars)) == len(days) - len(rows)
    assert {action for _, _, action in told(bars)} == {"dropped"}


def test_price_that_never_moves_has_the_calendar_of_its_days() -> None:
    rows = daily().assign(**dict.fromkeys(PRICES, 25.0), volume=1000.0)
    bars = cleaned(rows, calendar=None)
    assert (bars.calendar, len(bars.frame)) == ("XNYS", 120)


@pytest.mark.parametrize("day", ["1931-01-05", "2031-01-06"])
def test_date_that_is_wrong_by_years_changes_no_calendar(day: str) -> None:
    rows = daily()
    rows.loc[119, "time"] = pd.Timestamp(day)
    bars = cleaned(numbered(rows), "drop", calendar=None)
    assert bars.calendar == "XNYS"
    assert {kind for _, kind, _ in told(bars)} <= {"future", "gap", "unsorted"}


@pytest.mark.parametrize(("first", "open_"), [("2024-05-06", True), ("2024-05-09", False)])
def test_calendar_is_doubtful_where_no_weekend_lies_among_hours_around_the_clock(first: str, open_: bool) -> None:
    # Monday to Thursday could be of currencies or of coins; Thursday to Monday without a weekend only of currencies.
    stamps = pd.date_range(first, periods=96 if open_ else 110, freq="1h", tz="UTC").as_unit("us")
    if not open_:
        stamps = stamps[stamps.day_of_week < 5]
    rows = daily(len(stamps)).assign(time=stamps)
    bars = cleaned(rows, calendar=None, intraday=True)
    assert bars.calendar == "forex"
    assert ("calendar" in [kind for _, kind, _ in told(bars)]) is open_
    assert "calendar" not in [kind for _, kind, _ in told(cleaned(rows, calendar="24/7", intraday=True))]


def test_weekdays_of_no_exchange_are_told() -> None:
    days = pd.bdate_range("2023-01-02", periods=260).as_unit("us")
    bars = cleaned(daily(260).assign(time=days), calendar=None)
    assert (bars.calendar, told(bars)[0][1]) == ("24/5", "calendar")


@pytest.mark.parametrize(("shift", "doubt"), [(0, False), (-4, True)])
def test_many_bars_outside_the_hours_ask_for_the_zone(shift: int, doubt: bool) -> None:
    days = daily(40)["time"]
    stamps = [day + pd.Timedelta(hours=13.5 + hour + shift) for day in days for hour in range(7)]
    rng = np.random.default_rng(0)
    close = 80 * np.exp(np.cumsum(rng.normal(0, 0.003, len(stamps))))
    rows = pd.DataFrame(dict.fromkeys(PRICES, close) | {"volume": 1e3, "symbol": "ACME"})
    bars = cleaned(numbered(rows.assign(time=pd.DatetimeIndex(stamps, tz="UTC").as_unit("us"))), intraday=True)
    details = bars.quality.loc[bars.quality["kind"] == "off_hours", "detail"]
    assert details.str.contains("is source.timezone right?").any() == doubt


def test_bar_of_another_day_is_a_copy_only_if_all_of_it_is() -> None:
    rows = daily()
    copied = rows.copy()
    copied.loc[31, [*PRICES, "volume"]] = copied.loc[30, [*PRICES, "volume"]].to_numpy()
    assert [kind for _, kind, _ in told(cleaned(copied))] == ["copy"]
    copied.loc[31, "volume"] += 1
    assert told(cleaned(copied)) == []


@pytest.mark.parametrize("factor", [1e-3, 100.0])
def test_volume_of_other_units_is_told_at_its_day(factor: float) -> None:
    rows = daily()
    rows.loc[60:, "volume"] *= factor
    assert told(cleaned(rows)) == [(str(rows["time"][60].date()), "volume_shift", "kept")]
    # One day with a crowd, or volume that grows over weeks, is none.
    crowd = daily()
    crowd.loc[60, "volume"] *= 50
    crowd["volume"] *= np.exp(np.linspace(0, 6, 120))
    assert told(cleaned(crowd)) == []


def test_shift_without_a_ratio_stops_and_leaves_the_bars_on_its_level() -> None:
    rows = daily()
    rows.loc[60:, PRICES] *= 4.6
    day = str(rows["time"][60].date())
    with pytest.raises(PoisonedBarsError, match=f"{day} level_shift: line 62: .*accept.*ACME {day}") as stopped:
        cleaned(rows)
    assert "source.on_error=adjust" not in str(stopped.value)
    for on_error in ("drop", "adjust"):
        assert len(cleaned(rows, on_error).frame) == 60
    assert len(cleaned(rows, accept=(f"ACME {day}",)).frame) == 120


def test_last_bar_far_off_stops_and_is_left_out_alone() -> None:
    rows = daily()
    rows.loc[119, PRICES] /= 10.9
    with pytest.raises(PoisonedBarsError, match=r"spike: line 121: close .* of the bar before"):
        cleaned(rows)
    pd.testing.assert_frame_equal(cleaned(rows, "drop").frame, cleaned(daily()).frame.iloc[:119])
