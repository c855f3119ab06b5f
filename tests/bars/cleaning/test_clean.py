"""Dirty rows become bars that satisfy the contract, with a quality row for every change, or one line says why not."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dirty import NOW, cleaned, daily, numbered, raw, told
from forecaster.bars.calendar import Calendar
from forecaster.bars.cleaning import PoisonedBarsError, clean
from forecaster.bars.cleaning.policy import Policy
from forecaster.bars.contract import COLUMNS, check
from forecaster.errors import DataError

PRICES = ["open", "high", "low", "close"]


def test_clean_bars_come_through_as_they_are_without_a_word() -> None:
    rows = daily()
    bars = cleaned(rows)
    pd.testing.assert_frame_equal(bars.frame, check(rows[list(COLUMNS)], "rows"))
    assert told(bars) == []
    assert (bars.interval, bars.basis) == ("1d", "as given")
    assert cleaned(rows, calendar=None).calendar == "XNYS"


def test_order_of_rows_is_no_matter() -> None:
    rows = daily()
    shuffled = numbered(rows.sample(frac=1, random_state=1))
    bars = cleaned(shuffled)
    pd.testing.assert_frame_equal(bars.frame, cleaned(rows).frame)
    assert [(kind, action) for _, kind, action in told(bars)] == [("unsorted", "sorted")]


def test_repeated_rows_are_dropped_and_named_one_by_one() -> None:
    rows = daily()
    bars = cleaned(numbered(pd.concat([rows, rows.iloc[[5, 9, 9]]])))
    pd.testing.assert_frame_equal(bars.frame, cleaned(rows).frame)
    days = [str(rows["time"][row].date()) for row in (5, 9, 9)]
    assert told(bars) == [(day, "duplicate", "dropped") for day in days]
    assert bars.quality["detail"].tolist() == [f"a.csv line {line}: the same bar again" for line in (122, 123, 124)]


def test_two_bars_of_one_time_that_differ_stop_the_run_in_either_order() -> None:
    rows = daily()
    other = rows.iloc[[7]].assign(close=rows["close"][7] + 0.01, high=rows["high"][7] + 0.01)
    for frame in (pd.concat([rows, other]), pd.concat([other, rows])):
        with pytest.raises(PoisonedBarsError, match=r"conflict: line .* another bar of this time differs"):
            cleaned(numbered(frame))
        dropped = cleaned(numbered(frame), "drop")
        assert rows["time"][7] not in set(dropped.frame["time"])
        assert len(dropped.frame) == len(rows) - 1


def test_text_in_a_number_stops_with_line_column_and_text() -> None:
    rows = daily()
    rows.loc[44, "close"] = np.nan
    with pytest.raises(PoisonedBarsError) as stopped:
        cleaned(rows, unread=[(44, "Close", "-")])
    assert str(stopped.value) == (
        f"a.csv: ACME {rows['time'][44].date()} unreadable: line 46: Close '-' can't be read: "
        "correct the data, or leave such bars out with source.on_error=drop"
    )
    assert len(cleaned(rows, "drop", unread=[(44, "Close", "-")]).frame) == 119


def test_row_without_a_readable_time_stops() -> None:
    rows = daily()
    rows.loc[3, "time"] = pd.NaT
    with pytest.raises(PoisonedBarsError, match=r"^a\.csv: ACME unreadable: line 5: Date '2023-13-45' can't be read"):
        cleaned(rows, unread=[(3, "Date", "2023-13-45")])
    bars = cleaned(rows, "drop", unread=[(3, "Date", "2023-13-45")])
    assert bars.quality["time"].isna().tolist()[0]


def test_blank_row_is_no_bar_and_half_blank_row_stops() -> None:
    rows = daily()
    rows.loc[10, [*PRICES, "volume"]] = np.nan
    bars = cleaned(rows)
    assert ("blank", "no bar") in [row[1:] for row in told(bars)]
    assert len(bars.frame) == 119
    rows.loc[20, "open"] = np.nan
    with pytest.raises(PoisonedBarsError, match=r"missing_price: line 22: no open"):
        cleaned(rows)


def test_blank_volume_is_read_as_none_and_said() -> None:
    rows = daily()
    rows.loc[[10, 30], "volume"] = np.nan
    bars = cleaned(rows)
    assert bars.frame["volume"][[10, 30]].tolist() == [0.0, 0.0]
    assert [row[1:] for row in told(bars)] == [("missing_volume", "read as 0")] * 2


def test_close_only_bars_are_bars_and_say_what_is_off() -> None:
    rows = daily().assign(open=np.nan, high=np.nan, low=np.nan, volume=np.nan)
    bars = cleaned(rows)
    assert bars.absent == ("open", "high", "low", "volume")
    assert [row[1:] for row in told(bars)] == [("close_only", "open, high and low off"), ("no_volume", "volume off")]


def test_volume_of_zero_throughout_is_no_volume() -> None:
    assert cleaned(daily().assign(volume=0.0)).absent == ("volume",)


def test_what_one_symbol_lacks_is_off_for_all() -> None:
    rows = pd.concat([daily(), daily(seed=1).assign(symbol="IDX", volume=0.0)])
    bars = cleaned(numbered(rows))
    assert bars.absent == ("volume",)
    [(symbol, action)] = bars.quality[["symbol", "action"]].itertuples(index=False)
    assert (symbol, action) == ("IDX", "volume off for every symbol, so that all have the same features")


@pytest.mark.parametrize("column", [*PRICES, "volume"])
def test_number_below_zero_stops(column: str) -> None:
    rows = daily()
    rows.loc[50, column] = -1.0
    with pytest.raises(PoisonedBarsError, match=rf"non_positive: line 52: .*{column} -1"):
        cleaned(rows)
    assert len(cleaned(rows, "adjust").frame) == 119


def test_impossible_bar_stops_and_a_rounding_is_widened() -> None:
    rows = daily()
    rows.loc[50, "high"] = rows.loc[50, PRICES].min() - 0.5
    with pytest.raises(PoisonedBarsError, match=r"impossible: line 52: open "):
        cleaned(rows)
    rows = daily()
    rows.loc[50, "high"] = rows.loc[50, ["open", "close"]].max() * (1 - 1e-8)
    bars = cleaned(rows)
    assert bars.frame["high"][50] == rows.loc[50, ["open", "close"]].max()
    assert [row[1:] for row in told(bars)] == [("rounding", "widened")]


def test_weekend_and_holiday_fillers_go_and_what_moved_stays() -> None:
    rows = daily()
    friday = rows.index[rows["time"] == "2024-05-24"][0]
    copies = pd.concat([rows.iloc[[friday]]] * 3).assign(
        time=pd.to_datetime(["2024-05-25", "2024-05-26", "2024-05-27"])
    )
    bars = cleaned(numbered(pd.concat([rows, copies])))
    dropped = [row for row in told(bars) if row[2] == "dropped"]
    # Memorial Day on the 27th.
    assert dropped == [
        ("2024-05-25", "weekend", "dropped"),
        ("2024-05-26", "weekend", "dropped"),
        ("2024-05-27", "holiday", "dropped"),
    ]
    pd.testing.assert_frame_equal(bars.frame, cleaned(rows).frame)
    moved = copies.iloc[:1].assign(close=copies["close"].iloc[0] + 0.05, high=copies["high"].iloc[0] + 0.1)
    bars = cleaned(numbered(pd.concat([rows, moved])))
    assert ("2024-05-25", "weekend", "kept") in told(bars)
    assert len(bars.frame) == 121


def test_seven_day_market_keeps_its_weekends() -> None:
    bars = cleaned(daily(code="24/7"), calendar=None)
    assert (bars.calendar, len(bars.frame), told(bars)) == ("24/7", 120, [])


def test_wrong_calendar_is_refused() -> None:
    with pytest.raises(DataError, match=r"of the bars lie on days on which XNYS is closed, .* source\.calendar"):
        cleaned(daily(code="24/7"), calendar="XNYS")


def test_symbols_of_different_weeks_are_refused_with_a_choice() -> None:
    rows = pd.concat([daily(), daily(code="24/7", seed=1).assign(symbol="BTC-USD")])
    with pytest.raises(DataError, match=r'"ACME" trade five days, "BTC-USD" seven.*source\.symbols=\["ACME"\]'):
        cleaned(numbered(rows), calendar=None)


def test_future_bars_stop_and_the_session_that_is_not_over_is_left_out() -> None:
    rows = daily(last="2024-06-14")
    with pytest.raises(PoisonedBarsError, match=r"future: line 113: later than now, 2024-06-03 12:00 UTC"):
        cleaned(rows)
    bars = cleaned(rows, "drop")
    assert str(bars.frame["time"].max().date()) == "2024-05-31"
    assert ("2024-06-03", "partial_last", "dropped") in told(bars)
    after_close = cleaned(daily(last="2024-06-03"), now=pd.Timestamp("2024-06-03 20:00", tz="UTC"))
    assert str(after_close.frame["time"].max().date()) == "2024-06-03"


def test_gap_is_told_with_its_sessions_and_nothing_is_invented() -> None:
    rows = daily()
    bars = cleaned(numbered(rows.drop(range(40, 45))))
    assert len(bars.frame) == 115
    [(day, kind, action)] = told(bars)
    assert (day, kind, action) == (str(rows["time"][45].date()), "gap", "kept")
    assert bars.quality["detail"][0] == f"sessions without a bar: 5, since {rows['time'][39].date()}"


def test_flat_stretch_and_phantom_bar_are_told() -> None:
    rows = daily()
    rows.loc[30:37, PRICES] = rows.loc[29, "close"]
    rows.loc[33, "volume"] = 0.0
    kinds = [row[1] for row in told(cleaned(rows))]
    assert kinds == ["flat", "phantom"]


def split_rows(row: int = 60, ratio: float = 0.1) -> pd.DataFrame:
    rows = daily()
    rows.loc[: row - 1, PRICES] /= ratio
    rows.loc[: row - 1, "volume"] *= ratio
    return rows


def test_split_stops_with_date_and_ratio() -> None:
    with pytest.raises(PoisonedBarsError) as stopped:
        cleaned(split_rows())
    day = daily()["time"][60].date()
    assert f"ACME {day} split: line 62: close" in str(stopped.value)
    assert "near 1/10, volume the other way" in str(stopped.value)
    assert f"""'source.accept=["ACME {day}"]'""" in str(stopped.value)
    assert stopped.value.quality["action"].tolist() == ["stop"]


def test_split_is_adjusted_to_what_the_bars_are_without_it() -> None:
    bars, whole = cleaned(split_rows(), "adjust"), cleaned(daily())
    pd.testing.assert_frame_equal(bars.frame, whole.frame, rtol=1e-12)
    assert bars.quality["action"].tolist() == ["prices of the 60 bars before times 0.1, volumes divided"]


def test_several_splits_are_adjusted_one_on_the_other() -> None:
    rows = split_rows(40, 0.5)
    rows.loc[:79, PRICES] *= 3
    rows.loc[:79, "volume"] /= 3
    pd.testing.assert_frame_equal(cleaned(rows, "adjust").frame, cleaned(daily()).frame, rtol=1e-12)


def test_dropping_a_split_keeps_only_the_bars_on_its_level_and_names_every_other() -> None:
    bars = cleaned(split_rows(), "drop")
    pd.testing.assert_frame_equal(bars.frame, cleaned(daily()).frame.iloc[60:].reset_index(drop=True))
    assert (bars.quality["kind"] == "before_split").sum() == 60


def test_accepted_move_is_kept() -> None:
    rows = split_rows()
    bars = cleaned(rows, accept=(f"ACME {rows['time'][60].date()}",))
    pd.testing.assert_frame_equal(bars.frame[PRICES], rows[PRICES])
    assert bars.quality["action"].tolist() == ["kept as accepted"]


def test_slips_are_divided_or_left_out() -> None:
    rows = daily()
    rows.loc[[35, 36, 90], PRICES] *= 100
    with pytest.raises(PoisonedBarsError) as stopped:
        cleaned(rows)
    for row in (35, 36, 90):
        assert f"ACME {rows['time'][row].date()} spike: line {row + 2}" in str(stopped.value)
    pd.testing.assert_frame_equal(cleaned(rows, "adjust").frame, cleaned(daily()).frame, rtol=1e-12)
    assert len(cleaned(rows, "drop").frame) == 117


def test_slip_and_split_together_are_both_mended() -> None:
    rows = split_rows()
    rows.loc[30, PRICES] *= 100
    pd.testing.assert_frame_equal(cleaned(rows, "adjust").frame, cleaned(daily()).frame, rtol=1e-12)


def test_change_of_units_is_brought_to_the_unit_of_the_more_bars() -> None:
    rows = daily()
    rows.loc[:29, PRICES] *= 100
    bars = cleaned(rows, "adjust")
    pd.testing.assert_frame_equal(bars.frame, cleaned(daily()).frame, rtol=1e-12)
    assert [row[1] for row in told(bars)] == ["unit_switch"]


def test_bars_of_a_week_or_of_seconds_are_refused() -> None:
    weekly = numbered(daily(300).iloc[::5])
    with pytest.raises(DataError, match="ACME: bars are 7 days apart: bring daily or intraday bars"):
        cleaned(weekly)
    stamps = pd.date_range("2024-05-01", periods=120, freq="30s", tz="UTC").as_unit("us")
    with pytest.raises(DataError, match="bars of 30 seconds"):
        cleaned(daily().assign(time=stamps), intraday=True)


def test_symbols_of_two_intervals_are_refused() -> None:
    hours = pd.date_range("2024-05-01", periods=120, freq="1h", tz="UTC").as_unit("us")
    minutes = pd.date_range("2024-05-01", periods=120, freq="5min", tz="UTC").as_unit("us")
    rows = pd.concat([daily().assign(time=hours), daily().assign(time=minutes, symbol="B")])
    with pytest.raises(DataError, match="ACME has bars of 60 minutes and B of 5"):
        cleaned(numbered(rows), intraday=True)


def test_running_bar_of_an_hour_is_left_out() -> None:
    stamps = pd.date_range(end="2024-06-03 11:00", periods=120, freq="1h", tz="UTC").as_unit("us")
    bars = cleaned(daily().assign(time=stamps), calendar=None, intraday=True, now=NOW - pd.Timedelta(minutes=1))
    assert (bars.interval, bars.calendar) == ("1h", "24/7")
    assert ("2024-06-03", "partial_last", "dropped") in told(bars)
    assert bars.frame["time"].iloc[-1] == pd.Timestamp("2024-06-03 10:00", tz="UTC")


def test_nothing_left_is_told() -> None:
    rows = daily(30)
    rows[PRICES] = np.nan
    with pytest.raises(DataError, match="none of its 30 rows is a bar"):
        cleaned(rows)


@settings(max_examples=50)
@given(st.data())
def test_whatever_rows_there_are_every_lost_one_has_a_quality_row(data: st.DataObject) -> None:
    rows = daily(40)
    for _ in range(data.draw(st.integers(0, 6))):
        row = data.draw(st.integers(0, len(rows) - 1))
        match data.draw(st.sampled_from(["number", "repeat", "move", "cut", "swap"])):
            case "number":
                column = data.draw(st.sampled_from([*PRICES, "volume"]))
                rows.loc[row, column] = data.draw(
                    st.sampled_from([np.nan, 0.0, -1.0, 1e-9, 1e12, float(rows.loc[row, "close"]) * 100])
                )
            case "repeat":
                rows = pd.concat([rows, rows.iloc[[row]]], ignore_index=True)
            case "move":
                days = pd.Timedelta(days=data.draw(st.integers(-400, 400)))
                rows.loc[row, "time"] += days
            case "cut":
                rows = rows.drop(row).reset_index(drop=True)
            case _:
                rows.loc[row, PRICES] *= data.draw(st.sampled_from([0.01, 0.1, 0.5, 2.0, 10.0, 100.0]))
        if rows.empty:
            return
    rows = numbered(rows)
    faults: list[str] = []
    for on_error in (None, "drop", "adjust"):
        try:
            bars = clean(raw(rows), Policy("XNYS", on_error, (), NOW), "a.csv")
        except DataError as fault:
            faults.append(str(fault))
            continue
        check(bars.frame, "cleaned")
        gone = bars.quality["action"].isin(["dropped", "no bar"]).sum()
        assert len(rows) - len(bars.frame) == gone
        assert on_error or "stop" not in set(bars.quality["action"])
    assert not any("\n" in fault for fault in faults)


def test_calendar_of_the_bars_is_that_of_their_exchange() -> None:
    sessions = Calendar("XLON").sessions("2023-01-01", "2024-05-31")
    rows = daily(len(sessions)).assign(time=sessions)
    assert cleaned(rows, calendar=None).calendar == "XLON"
