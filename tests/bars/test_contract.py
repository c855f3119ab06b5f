import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecaster.bars.contract import COLUMNS, QUALITY_COLUMNS, check, quality_report
from forecaster.errors import DataError


def bars(**columns: object) -> pd.DataFrame:
    """Two bars of AAA, then one of BBB."""
    frame = pd.DataFrame(
        {
            "symbol": ["AAA", "AAA", "BBB"],
            "time": pd.to_datetime(["2020-01-02", "2020-01-03", "2020-01-02"]),
            "open": [10.0, 11.0, 5.0],
            "high": [12.0, 12.0, 6.0],
            "low": [9.0, 10.0, 4.0],
            "close": [11.0, 10.5, 5.5],
            "volume": [100.0, 0.0, 7.0],
        }
    )
    return frame.assign(**columns)


def refused(frame: pd.DataFrame, message: str) -> None:
    with pytest.raises(DataError) as error:
        check(frame, "prices.csv")
    assert str(error.value) == message
    assert error.value.exit_code == 3


def test_when_bars_are_sound_then_they_come_back_unchanged():
    checked = check(bars(), "prices.csv")
    assert tuple(checked.columns) == COLUMNS
    assert checked["symbol"].dtype == "str"
    assert checked["time"].dtype == "datetime64[us]"
    pd.testing.assert_frame_equal(checked, bars(), check_dtype=False, check_exact=True)


def test_when_columns_and_index_are_in_another_order_then_only_these_change():
    shuffled = bars()[[*reversed(COLUMNS)]].set_axis([7, 3, 5])
    pd.testing.assert_frame_equal(check(shuffled, "here"), check(bars(), "here"))


def test_when_checked_then_the_frame_given_is_left_alone():
    given_frame = bars(time=bars()["time"].dt.as_unit("ns"), symbol=bars()["symbol"].astype(object))
    check(given_frame, "here")
    assert given_frame["time"].dtype == "datetime64[ns]"
    assert given_frame["symbol"].dtype == object


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_when_stamps_are_in_another_unit_then_they_are_cast_to_microseconds(unit: str):
    checked = check(bars(time=bars()["time"].dt.as_unit(unit)), "here")
    assert checked["time"].dtype == "datetime64[us]"
    assert checked["time"].tolist() == bars()["time"].tolist()


def test_when_intraday_stamps_are_utc_then_they_pass_with_their_time_of_day():
    times = pd.to_datetime(["2020-01-02T14:30Z", "2020-01-02T14:35Z", "2020-01-02T14:30Z"])
    assert check(bars(time=times), "here")["time"].dtype == "datetime64[us, UTC]"


@pytest.mark.parametrize("symbol", ["NA", "TRUE", "005930", "^GSPC", "1E5", "null"])
def test_when_a_symbol_looks_like_a_value_then_it_stays_text(symbol: str):
    frame = bars(symbol=symbol).iloc[:2]
    assert check(frame, "here")["symbol"].tolist() == [symbol, symbol]


def test_when_a_price_exceeds_the_high_by_rounding_only_then_it_passes():
    check(bars(high=[11.0 * (1 - 1e-12), 12.0, 6.0]), "here")
    check(bars(low=[10.0 * (1 + 1e-12), 10.0, 4.0], close=[11.0, 10.5, 5.5]), "here")


def test_when_a_column_is_missing_then_it_is_named():
    refused(
        bars().drop(columns=["low", "volume"]),
        "prices.csv: no column low, volume: bars need symbol, time, open, high, low, close, volume",
    )


def test_when_a_column_is_unknown_then_it_is_named():
    refused(
        bars(dividend=0.0),
        "prices.csv: unknown column dividend: bars have only symbol, time, open, high, low, close, volume",
    )


def test_when_a_column_occurs_twice_then_it_is_refused():
    refused(
        bars()[[*COLUMNS, "close"]],
        "prices.csv: a column occurs twice in symbol, time, open, high, low, close, volume, close: keep one of each",
    )


def test_when_there_are_no_bars_then_it_says_so():
    refused(bars().iloc[:0], "prices.csv: no bars: name symbols and dates for which the source has some")


@pytest.mark.parametrize("column", ["open", "high", "low", "close", "volume"])
def test_when_numbers_are_of_another_type_then_the_column_is_named(column: str):
    refused(
        bars(**{column: bars()[column].astype(np.float32)}),
        f"prices.csv: column {column} holds float32: convert it to float64",
    )


def test_when_a_number_is_text_then_the_column_is_named():
    refused(bars(close=["11", "10.5", "x"]), "prices.csv: column close holds str: convert it to float64")


def test_when_a_symbol_is_a_number_then_its_row_is_named():
    refused(
        bars(symbol=["AAA", "AAA", 5930]),
        "prices.csv: row 2: symbol 5930 is no text: write every symbol as text",
    )


def test_when_symbols_are_missing_or_blank_then_the_first_is_named_and_all_are_counted():
    refused(
        bars(symbol=["AAA", " ", None]),
        "prices.csv: row 1: symbol ' ' is no text: write every symbol as text (2 such bars)",
    )


def test_when_time_is_text_then_it_is_refused():
    refused(bars(time="2020-01-02"), "prices.csv: column time holds str: parse it to stamps with a unit")


def test_when_time_is_missing_then_the_symbol_and_row_are_named():
    times = bars()["time"].where([True, True, False])
    refused(bars(time=times), "prices.csv: BBB: row 2 has no time: give the bar its date")


def test_when_stamps_are_in_another_zone_then_it_is_named():
    refused(
        bars(time=bars()["time"].dt.tz_localize("America/New_York")),
        "prices.csv: column time is in America/New_York: convert intraday stamps to UTC",
    )


def test_when_intraday_stamps_have_no_zone_then_the_first_is_named():
    times = pd.to_datetime(["2020-01-02T00:00", "2020-01-03T09:30", "2020-01-02T09:30"])
    refused(
        bars(time=times),
        "prices.csv: AAA 2020-01-03T09:30:00: time: a daily bar carries its session's date at midnight; "
        "give intraday stamps their time zone, as UTC (2 such bars)",
    )


def test_when_a_bar_stands_twice_then_it_is_named():
    times = pd.to_datetime(["2020-01-02", "2020-01-02", "2020-01-02"])
    refused(bars(time=times), "prices.csv: AAA 2020-01-02: time: the bar stands twice; keep one of them")


def test_when_times_run_backwards_then_the_first_is_named():
    times = pd.to_datetime(["2020-01-03", "2020-01-02", "2020-01-02"])
    refused(
        bars(time=times),
        "prices.csv: AAA 2020-01-02: time: earlier than the row before it; sort by symbol, then time",
    )


def test_when_symbols_are_out_of_order_then_the_first_is_named():
    refused(
        bars(symbol=["BBB", "BBB", "AAA"]),
        "prices.csv: AAA 2020-01-02: time: earlier than the row before it; sort by symbol, then time",
    )


@pytest.mark.parametrize("column", ["open", "high", "low", "close", "volume"])
@pytest.mark.parametrize(("value", "written"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf")])
def test_when_a_value_is_not_finite_then_bar_and_column_are_named(column: str, value: float, written: str):
    values = bars()[column].to_numpy(copy=True)
    values[1] = value
    refused(
        bars(**{column: values}),
        f"prices.csv: AAA 2020-01-03: {column} {written}: not a number; correct or remove the bar",
    )


@pytest.mark.parametrize("column", ["open", "high", "low", "close"])
@pytest.mark.parametrize("value", [0.0, -1.5])
def test_when_a_price_is_not_above_zero_then_bar_and_column_are_named(column: str, value: float):
    values = bars()[column].to_numpy(copy=True)
    values[2] = value
    refused(
        bars(**{column: values}),
        f"prices.csv: BBB 2020-01-02: {column} {value:.10g}: prices are above 0; correct or remove the bar",
    )


def test_when_volume_is_negative_then_the_bar_is_named():
    refused(
        bars(volume=[100.0, 0.0, -7.0]),
        "prices.csv: BBB 2020-01-02: volume -7: volume is never below 0; correct or remove the bar",
    )


@pytest.mark.parametrize(("column", "value"), [("open", 12.5), ("close", 13.0), ("low", 12.25)])
def test_when_a_price_is_above_the_high_then_the_bar_is_named(column: str, value: float):
    values = bars()[column].to_numpy(copy=True)
    values[1] = value
    refused(
        bars(**{column: values}),
        f"prices.csv: AAA 2020-01-03: high 12: below the bar's {column}; correct or remove the bar",
    )


@pytest.mark.parametrize(("column", "value"), [("open", 3.5), ("close", 3.0)])
def test_when_a_price_is_below_the_low_then_the_bar_is_named(column: str, value: float):
    values = bars()[column].to_numpy(copy=True)
    values[2] = value
    refused(
        bars(**{column: values}),
        f"prices.csv: BBB 2020-01-02: low 4: above the bar's {column}; correct or remove the bar",
    )


def test_when_an_intraday_bar_is_wrong_then_its_stamp_is_written_in_full():
    times = pd.to_datetime(["2020-01-02T14:30Z", "2020-01-02T14:35Z", "2020-01-02T14:30Z"])
    refused(
        bars(time=times, close=[11.0, 0.0, 5.5]),
        "prices.csv: AAA 2020-01-02T14:35:00+00:00: close 0: prices are above 0; correct or remove the bar",
    )


@given(st.permutations(range(12)))
def test_when_rows_are_permuted_then_only_the_sorted_order_passes(order: list[int]):
    frame = pd.concat([bars(), bars(symbol=["CCC", "CCC", "DDD"]), bars(symbol=["EEE", "EEE", "F"])])
    frame = pd.concat([frame, bars(symbol=["G", "G", "a"])], ignore_index=True)
    permuted = frame.iloc[order]
    if order == sorted(order):
        check(permuted, "here")
    else:
        with pytest.raises(DataError, match=re.escape("sort by symbol, then time")):
            check(permuted, "here")


def test_when_nothing_was_noticed_then_the_quality_report_still_has_its_types():
    empty, full = quality_report(()), quality_report([("A", pd.Timestamp("2020-01-02"), "gap", "x", "kept")])
    assert tuple(empty.columns) == tuple(full.columns) == QUALITY_COLUMNS
    assert empty.empty
    assert empty.dtypes.tolist() == full.dtypes.tolist()
    assert full["time"].dtype == "datetime64[us]"
