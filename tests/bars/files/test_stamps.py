import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecaster.bars.files.stamps import Stamps, read, typed
from forecaster.errors import ConfigError, DataError


def one_line(refusal: DataError) -> None:
    assert str(refusal).isprintable()


def take(texts: list[str], clock: list[str] | None = None, date_format: str | None = None) -> Stamps:
    beside = None if clock is None else pa.array(clock, pa.string())
    return read(pa.array(texts, pa.string()), beside, date_format, "Date", lambda row: f"a.csv line {row + 2}")


def refused(texts: list[str], **options: object) -> str:
    with pytest.raises(DataError) as error:
        take(texts, **options)
    return str(error.value)


def shown(stamps: Stamps) -> list[str]:
    return [str(stamp) for stamp in stamps.wall.astype("datetime64[s]")]


NAIVE = {
    "2023-06-01": "2023-06-01T00:00:00",
    "2023-6-1": "2023-06-01T00:00:00",
    "2023/06/01": "2023-06-01T00:00:00",
    "2023.06.01": "2023-06-01T00:00:00",
    "20230601": "2023-06-01T00:00:00",
    "20230601.0": "2023-06-01T00:00:00",
    "2023-06-01 09:30": "2023-06-01T09:30:00",
    "2023-06-01T09:30:15": "2023-06-01T09:30:15",
    "2023-06-01 09:30:15.999": "2023-06-01T09:30:15",
    "2023-06-01, 09:30:15": "2023-06-01T09:30:15",
    "20230601 093015": "2023-06-01T09:30:15",
    "20230601T0930": "2023-06-01T09:30:00",
    "202306010930": "2023-06-01T09:30:00",
    "20230601093015": "2023-06-01T09:30:15",
    "20230601 09:30": "2023-06-01T09:30:00",
    "13.06.2023": "2023-06-13T00:00:00",
    "06/13/2023": "2023-06-13T00:00:00",
    "6/13/2023 4:00 PM": "2023-06-13T16:00:00",
    "6/13/2023 12:05 AM": "2023-06-13T00:05:00",
    "13.06.2023 01:00:00.000": "2023-06-13T01:00:00",
    "01-Jun-2023": "2023-06-01T00:00:00",
    "1 June 2023": "2023-06-01T00:00:00",
    "Jun 01, 2023": "2023-06-01T00:00:00",
    "Thu, Jun 1, 2023": "2023-06-01T00:00:00",
    "Thursday 1 Jun 2023": "2023-06-01T00:00:00",
    "Sept 1, 2023": "2023-09-01T00:00:00",
    "2023-Jun-01": "2023-06-01T00:00:00",
    "01/01/2023": "2023-01-01T00:00:00",
    "2024-02-29": "2024-02-29T00:00:00",
    "1900-01-01": "1900-01-01T00:00:00",
}


@pytest.mark.parametrize(("text", "stamp"), NAIVE.items())
def test_when_a_stamp_is_written_without_zone_then_it_is_read_as_written(text: str, stamp: str):
    stamps = take([text])
    assert shown(stamps) == [stamp]
    assert not stamps.aware
    assert not stamps.unread.any()


AWARE = {
    "2023-06-01T09:30:00Z": ("2023-06-01T09:30:00", 0),
    "2023-06-01 09:30:00+00:00": ("2023-06-01T09:30:00", 0),
    "2023-06-01 09:30:00-04:00": ("2023-06-01T09:30:00", -240),
    "2023-06-01 09:30:00 +0530": ("2023-06-01T09:30:00", 330),
    "2023-06-01 09:30:00.5+02": ("2023-06-01T09:30:00", 120),
    "13.06.2023 09:30:00.000 GMT+0100": ("2023-06-13T09:30:00", 60),
    "2023-06-01 09:30 UTC": ("2023-06-01T09:30:00", 0),
    "1735516800": ("2024-12-30T00:00:00", 0),
    "1735516800000": ("2024-12-30T00:00:00", 0),
    "1735516800000000": ("2024-12-30T00:00:00", 0),
    "1735516800000000000": ("2024-12-30T00:00:00", 0),
    "1735516800.0": ("2024-12-30T00:00:00", 0),
    "946684800": ("2000-01-01T00:00:00", 0),
    "-631152000": ("1950-01-01T00:00:00", 0),
}


@pytest.mark.parametrize(("text", "expected"), AWARE.items())
def test_when_a_stamp_has_an_offset_then_its_wall_clock_and_offset_are_kept(text: str, expected: tuple[str, int]):
    stamps = take([text])
    assert (shown(stamps)[0], int(stamps.ahead[0]), stamps.aware) == (*expected, True)


@pytest.mark.parametrize(
    "text",
    [
        "2023-02-30",
        "2023-13-01",
        "2023-06-01 24:00",
        "2023-06-01 09:60",
        "1899-12-31",
        "2101-01-01",
        "0000-00-00",
        "20230631",
        "abc",
        "2023",
        "2023-06",
        "NaT",
        "2023-06/01",
        "2023-06-01 13:00 PM",
        "99999999999999999999",
        "1 Foo 2023",
        "32.01.2023",
        "45079",
        "01/02/23",
        "2023-06-01x",
        "1.7355E+12",
        "12:30",
        "2023-06-001",
    ],
)
def test_when_text_is_no_stamp_then_it_is_unread(text: str):
    stamps = take(["2023-06-01", text, ""])
    assert stamps.unread.tolist() == [False, True, False]
    assert np.isnat(stamps.wall).tolist() == [False, True, True]


def test_when_the_unit_changes_inside_a_file_then_each_row_has_its_own():
    assert shown(take(["1735603200000", "1735689600000000", "1735776000"])) == [
        f"{day}T00:00:00" for day in ("2024-12-31", "2025-01-01", "2025-01-02")
    ]


def test_when_one_part_is_above_twelve_then_all_dates_are_in_its_order():
    assert shown(take(["01/02/2023", "13/02/2023"])) == ["2023-02-01T00:00:00", "2023-02-13T00:00:00"]
    assert shown(take(["01/02/2023", "01/13/2023"])) == ["2023-01-02T00:00:00", "2023-01-13T00:00:00"]
    assert shown(take(["01.02.2023", "13.02.2023 10:00"])) == ["2023-02-01T00:00:00", "2023-02-13T10:00:00"]


def test_when_no_part_is_above_twelve_then_the_error_asks_for_the_format():
    message = (
        "a.csv line 3: Date '01/02/2023': day and month can't be told apart in this file: give "
        "source.date_format, such "
        "as %d/%m/%Y or %m/%d/%Y, as the file writes it"
    )
    assert refused(["03/03/2023", "01/02/2023"]) == message
    assert shown(take(["01/02/2023"], date_format="%m/%d/%Y")) == ["2023-01-02T00:00:00"]


def test_when_orders_disagree_then_both_lines_are_named():
    assert refused(["13/02/2023", "02/13/2023"]) == (
        "a.csv line 3: Date '02/13/2023': the month comes first, but the day in a.csv line 2: Date '13/02/2023': write "
        "all dates in one order"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("45079", "seems to be a spreadsheet's count of days: write dates as 2023-06-01"),
        ("45079.5", "seems to be a spreadsheet's count of days: write dates as 2023-06-01"),
        ("01/02/23", "has a year of two digits: give source.date_format, such as %m/%d/%y"),
        (
            "first",
            (
                "is no date that can be recognised: give source.date_format, such as %d/%m/%Y, or the column's name as "
                "source.columns={date: NAME}"
            ),
        ),
    ],
)
def test_when_no_cell_is_a_stamp_then_the_error_says_what_they_seem_to_be(text: str, message: str):
    assert refused(["", text]) == f"a.csv line 3: Date {text!r} {message}"


def test_when_a_format_is_given_then_it_is_used_strictly():
    stamps = take(["03.02.2023", "2023-02-03"], date_format="%d.%m.%Y")
    assert shown(stamps) == ["2023-02-03T00:00:00", "NaT"]
    assert stamps.unread.tolist() == [False, True]
    assert refused(["x", "y"], date_format="%d.%m.%Y") == (
        "a.csv line 2: Date 'x' does not fit source.date_format=%d.%m.%Y: correct the format"
    )
    with pytest.raises(ConfigError, match=r"source\.date_format=%Q: "):
        take(["x"], date_format="%Q")


def test_when_a_format_holds_an_offset_then_it_is_kept():
    stamps = take(["01/02/2023 09:30-0500", "01/07/2023 09:30-0400"], date_format="%d/%m/%Y %H:%M%z")
    assert shown(stamps) == ["2023-02-01T09:30:00", "2023-07-01T09:30:00"]
    assert stamps.ahead.tolist() == [-300, -240]
    assert stamps.aware


@pytest.mark.parametrize(
    ("clock", "times"),
    [
        (["000000", "93000", "0"], ["00:00:00", "09:30:00", "00:00:00"]),
        (["0930", "945", "1600"], ["09:30:00", "09:45:00", "16:00:00"]),
        (["09:30", "09:30:05", ""], ["09:30:00", "09:30:05", "00:00:00"]),
        (["4:00 PM", "12:00 AM", "12:00 PM"], ["16:00:00", "00:00:00", "12:00:00"]),
    ],
)
def test_when_the_clock_has_its_own_column_then_it_is_joined(clock: list[str], times: list[str]):
    assert shown(take(["20230601"] * 3, clock)) == [f"2023-06-01T{time}" for time in times]


@pytest.mark.parametrize(("clock", "time"), [("09:30", "09:30:00"), ("09:30:05", "09:30:05"), ("93005", "09:30:05")])
def test_when_a_format_is_that_of_the_date_alone_then_the_clock_is_joined_to_it(clock: str, time: str):
    assert shown(take(["01/02/2023"], [clock], "%d/%m/%Y")) == [f"2023-02-01T{time}"]


def test_when_only_some_stamps_have_an_offset_then_the_line_of_the_change_is_named():
    tail = "mixed time zones; write all stamps one way"
    assert refused(["2023-06-01", "", "2023-06-02 00:00:00-04:00"]) == (
        f"a.csv line 4: Date '2023-06-02 00:00:00-04:00' has an offset from UTC, the lines before it have none: {tail}"
    )
    assert refused(["2023-06-01T00:00:00Z", "2023-06-02"]) == (
        f"a.csv line 3: Date '2023-06-02' has no offset, the lines before it have one from UTC: {tail}"
    )


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_when_stamps_are_typed_then_unit_and_zone_change_nothing(unit: str, zone: str | None):
    times = pd.Series(pd.DatetimeIndex(["2024-01-02 09:30", "2024-07-02 09:30", None]).as_unit(unit).tz_localize(zone))
    stamps = typed(times)
    assert shown(stamps) == ["2024-01-02T09:30:00", "2024-07-02T09:30:00", "NaT"]
    assert stamps.wall.dtype == "datetime64[us]"
    assert stamps.ahead.tolist() == ([-300, -240, 0] if zone == "America/New_York" else [0, 0, 0])
    assert stamps.aware == (zone is not None)
    assert not stamps.unread.any()


FORMS = ("%Y-%m-%d %H:%M:%S", "%Y%m%d%H%M%S", "%d-%b-%Y %H:%M:%S", "%B %d, %Y %I:%M:%S %p", "%Y/%m/%dT%H:%M:%SZ")


@given(
    st.lists(st.datetimes(pd.Timestamp("1950-01-01"), pd.Timestamp("2099-12-31")), min_size=1, max_size=9),
    st.sampled_from(FORMS),
)
def test_when_stamps_are_written_then_they_come_back(times: list, form: str):
    stamps = take([time.strftime(form) for time in times])
    assert shown(stamps) == [time.replace(microsecond=0).isoformat() for time in times]


@given(st.lists(st.text(max_size=12), min_size=1, max_size=5))
def test_when_cells_are_any_text_then_each_is_a_stamp_blank_or_unread(texts: list[str]):
    try:
        stamps = take(texts)
    except DataError as refusal:
        one_line(refusal)
    else:
        assert not (stamps.unread & ~np.isnat(stamps.wall)).any()


def test_when_a_stamp_is_the_count_zero_then_it_is_unread():
    stamps = take(["1970-01-01", "1970-01-02", "2023-06-01"])
    assert stamps.unread.tolist() == [True, False, False]
    zero = typed(pd.Series(pd.to_datetime(["1970-01-01", "2023-06-01"])))
    assert zero.unread.tolist() == [True, False]
