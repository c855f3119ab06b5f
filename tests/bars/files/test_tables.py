"""Lines, quotes, preambles, footers: where rows stand in a text file; and files that were damaged at random."""

import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from damage import SOURCES, damaged
from forecaster.bars.files import Options, read
from forecaster.bars.files.tables import read as read_table
from forecaster.bars.raw import Raw
from forecaster.errors import DataError

CASES = Path(__file__).parents[2] / "cases"
HEADER = "Date,Open,High,Low,Close,Volume\n"
BAR = "2024-01-0{},10,12,9,11,100\n"


def take(folder: Path, text: str, name: str = "AAA.csv", **options: object) -> Raw:
    path = folder / name
    path.write_text(text, newline="")
    return read(Options(path=(str(path),), **options))


def lines(raw: Raw) -> list[int]:
    return [int(place.rsplit(" ", 1)[1]) for place in raw.frame["place"]]


def unread(raw: Raw) -> list[list[object]]:
    return raw.unread.to_numpy().tolist()


def noted(raw: Raw, folder: Path) -> list[tuple[str, ...]]:
    return [(kind, detail.replace(f"{folder}/", ""), action) for _, _, kind, detail, action in raw.notes]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_when_lines_are_empty_or_before_the_header_then_places_are_still_those_of_the_file(tmp_path: Path, end: str):
    text = "\nACME,prices\n\n" + HEADER + BAR.format(2) + "\n  \n" + BAR.format(3) + "\n\n"
    raw = take(tmp_path, text.replace("\n", end))
    assert lines(raw) == [5, 8]
    assert noted(raw, tmp_path) == [("preamble", "AAA.csv lines 1 to 3: ACME,prices", "skipped")]


@pytest.mark.parametrize(("end", "last"), [("", "85."), ("", "8"), ("", ""), ("", "85.1"), ("\n", "8")])
def test_when_a_file_ends_within_a_cell_then_a_short_one_is_noted(tmp_path: Path, end: str, last: str):
    days = "".join(f"2024-01-{day:02},85.{day:02}\n" for day in range(10, 20))
    raw = take(tmp_path, f"Date,Close\n{days}2024-01-20,{last}{end}")
    detail = f"AAA.csv line 12: the file ends within a line, at {last!r}, shorter than those above: is it whole?"
    assert noted(raw, tmp_path) == ([("cut", detail, "kept")] if last and not end else [])


def test_when_a_file_ends_within_its_last_line_but_not_short_then_nothing_is_noted(tmp_path: Path):
    days = "".join(f"2024-01-{day:02},{85 + day / 100:g}\n" for day in range(10, 21))
    assert noted(take(tmp_path, f"Date,Close\n{days}2024-01-21,85.3"), tmp_path) == []


def test_when_cells_hold_quoted_line_ends_then_places_are_where_rows_begin(tmp_path: Path):
    text = 'Date,Note,Close\n2024-01-02,"two\nlines, and ""more""",1\n2024-01-03,"x",2\n2024-01-04,"a\n\nb",3\n'
    raw = take(tmp_path, text)
    assert lines(raw) == [2, 4, 5]
    assert raw.frame["close"].tolist() == [1, 2, 3]
    assert raw.unread.empty


@pytest.mark.parametrize("line", ['2024-01-03,"10,12,9,11,100', '2024-01-03,10,12,9,11,"100', '"2024-01-03,1,1,1,1,1'])
def test_when_a_quote_is_not_closed_then_only_its_line_is_unread(tmp_path: Path, line: str):
    raw = take(tmp_path, HEADER + BAR.format(2) + line + "\n" + BAR.format(4) + BAR.format(5))
    assert unread(raw) == [[1, "line", line]]
    assert lines(raw) == [2, 3, 4, 5]
    assert raw.frame["close"].isna().tolist() == [False, True, False, False]


def test_when_two_stray_quotes_enclose_rows_then_no_row_is_swallowed(tmp_path: Path):
    text = 'Date,Close,Note\n2024-01-02,1,"a\n2024-01-03,2,b\n2024-01-04,3,c"\n2024-01-05,4,d\n'
    raw = take(tmp_path, text)
    assert lines(raw) == [2, 3, 4, 5]
    assert unread(raw) == [[0, "line", '2024-01-02,1,"a']]
    assert raw.frame["close"].tolist()[1:] == [2, 3, 4]


def test_when_quotes_stand_after_blanks_or_inside_a_cell_then_cells_are_those_of_csv(tmp_path: Path):
    text = 'Date, Note, Close\n2024-01-02, "a, b", "1"\n2024-01-03, 5" tall, 2\n2024-01-04,a"b,3\n2024-01-05,"a" b,4\n'
    raw = take(tmp_path, text)
    assert raw.frame["close"].tolist() == [1, 2, 3, 4]
    assert lines(raw) == [2, 3, 4, 5]
    assert raw.unread.empty


@pytest.mark.parametrize(
    "line",
    ["2024-01-04,76.63,76.73,75.3", "2024-01-04", "2024-01-0", "2024-01-04,10,12,9,11,100,7", "20", "x,10,12,9,11"],
)
def test_when_a_line_has_fewer_or_more_cells_then_it_is_unread(tmp_path: Path, line: str):
    for text in (line, line + "\n", line + "\n" + BAR.format(5)):
        raw = take(tmp_path, HEADER + BAR.format(2) + BAR.format(3) + text)
        assert unread(raw) == [[2, "line", line]]
        assert raw.frame.iloc[2][["open", "high", "low", "close", "volume", "time"]].isna().all()
        assert raw.frame["symbol"].tolist()[2] == "AAA"


def test_when_every_line_has_more_cells_than_the_header_then_every_line_is_unread(tmp_path: Path):
    raw = take(tmp_path, "Date,Close\n2024-01-02,1,2\n2024-01-03,1,2\n")
    assert unread(raw) == [[0, "line", "2024-01-02,1,2"], [1, "line", "2024-01-03,1,2"]]


def test_when_a_cut_line_still_names_its_symbol_then_it_is_that_ones(tmp_path: Path):
    text = "Date,Symbol,Close\n2024-01-02,A,1\n2024-01-02,B,1\n2024-01-03,A\n"
    assert take(tmp_path, text).frame["symbol"].tolist() == ["A", "B", "A"]


FOOTERS = [
    "Total rows,2,,,,",
    "Source: ACME",
    ",,,,,",
    "Average,,,,11,",
    "Disclaimer: see, our, terms",
    "End of data,,",
]


@pytest.mark.parametrize("line", FOOTERS)
def test_when_lines_at_the_end_are_no_bars_then_they_are_noted_and_left_out(tmp_path: Path, line: str):
    raw = take(tmp_path, HEADER + BAR.format(2) + BAR.format(3) + line + "\n")
    assert lines(raw) == [2, 3]
    assert raw.unread.empty
    assert noted(raw, tmp_path) == [("footer", f"AAA.csv line 4: {line!r}", "left out")]


def test_when_such_a_line_is_in_the_middle_then_it_stays_a_row(tmp_path: Path):
    raw = take(tmp_path, HEADER + BAR.format(2) + "halted,,,,,\n,,,,,\n" + BAR.format(3))
    assert lines(raw) == [2, 3, 4, 5]
    assert unread(raw) == [[1, "Date", "halted"]]
    assert raw.frame["time"].isna().tolist() == [False, True, True, False]


def test_when_the_last_line_has_all_prices_then_it_is_no_footer(tmp_path: Path):
    raw = take(tmp_path, HEADER + BAR.format(2) + "today,10,12,9,11,100\n")
    assert unread(raw) == [[1, "Date", "today"]]


def test_when_the_header_stands_again_then_it_is_noted_and_left_out(tmp_path: Path):
    raw = take(tmp_path, HEADER + BAR.format(2) + HEADER + BAR.format(3) + HEADER + BAR.format(4))
    assert lines(raw) == [2, 4, 6]
    assert raw.unread.empty
    again = [("header", f"AAA.csv line {line}: the header again", "left out") for line in (3, 5)]
    assert noted(raw, tmp_path) == again


def test_when_no_line_is_a_bar_then_the_file_has_no_rows(tmp_path: Path):
    with pytest.raises(DataError) as error:
        take(tmp_path, HEADER + "nothing,,,,,\n")
    assert str(error.value) == (
        f"0 rows in {tmp_path}/AAA.csv: no line below its header begins with a date: save it again with its bars"
    )


def test_when_the_header_comes_late_then_it_is_found_within_thirty_lines(tmp_path: Path):
    assert lines(take(tmp_path, "x\n" * 29 + HEADER + BAR.format(2))) == [31]
    with pytest.raises(DataError, match=r"no line among its first 30 names columns"):
        take(tmp_path, "x\n" * 30 + HEADER + BAR.format(2))


def test_when_bars_stand_before_the_header_then_they_are_not_skipped(tmp_path: Path):
    with pytest.raises(DataError) as error:
        take(tmp_path, "ACME\n" + BAR.format(2) + HEADER + BAR.format(3))
    assert str(error.value) == (
        f"{tmp_path}/AAA.csv line 2 looks like a bar but stands before the header on line 3: move the header to the top"
    )
    for preamble in ("From,2024-01-02,To,2024-02-03\n", "2024 prices\n", "Rows,60,,,,\n", "2024-01-02,,,,,\n"):
        assert lines(take(tmp_path, preamble + HEADER + BAR.format(3))) == [3]


def test_when_a_separator_is_given_then_only_it_separates(tmp_path: Path):
    text = HEADER.replace(",", ";") + BAR.format(2).replace(",", ";")
    assert take(tmp_path, text, sep=";").frame["close"].tolist() == [11]
    assert take(tmp_path, text.replace(";", "\t"), sep="\\t").frame["close"].tolist() == [11]
    with pytest.raises(DataError, match=r"its fields are separated by ',': give source\.sep=','"):
        take(tmp_path, text.replace(";", ","), sep=";")


def test_when_a_table_is_read_then_it_holds_text_only(tmp_path: Path):
    path = tmp_path / "AAA.csv"
    path.write_text("Date,Symbol,Close\n20240102,005930,1E5\n20240103,NA,\n")
    table = read_table(path, "AAA.csv", None, False, ())
    assert [column.to_pylist() for column in table.columns] == [["20240102", "20240103"], ["005930", "NA"], ["1E5", ""]]
    assert table.lines.tolist() == [2, 3]


# --- Parquet and Feather ---

TABLE = pd.DataFrame(
    {"Open": [10, 11], "High": [12, 13], "Low": [9, 8], "Close": [11.5, 12.5], "Volume": [100, 200]},
    index=pd.DatetimeIndex(["2024-01-02", "2024-01-03"], name="Date"),
)


def save(frame: pd.DataFrame, folder: Path, suffix: str = "parquet", **options: object) -> Raw:
    path = folder / f"AAA.{suffix}"
    frame.to_parquet(path, **options) if suffix == "parquet" else frame.to_feather(path, **options)
    return read(Options(path=(str(path),)))


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_when_a_file_is_packed_by_column_then_it_is_read(tmp_path: Path, suffix: str, compression: str):
    raw = save(TABLE.reset_index(), tmp_path, suffix, compression=compression)
    assert raw.frame["close"].tolist() == [11.5, 12.5]
    assert raw.frame["place"].tolist() == [f"{tmp_path}/AAA.{suffix} row {row}" for row in (1, 2)]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
@pytest.mark.parametrize("name", ["Date", None, "index"])
def test_when_the_index_holds_stamps_then_unit_zone_and_name_change_nothing(
    tmp_path: Path, unit: str, zone: str | None, name: str | None
):
    frame = TABLE.set_axis(pd.DatetimeIndex(TABLE.index.as_unit(unit).tz_localize(zone), name=name))
    raw = save(frame, tmp_path)
    assert raw.frame["time"].tolist() == [pd.Timestamp("2024-01-02"), pd.Timestamp("2024-01-03")]
    assert raw.frame["time"].dtype == "datetime64[us]"


@pytest.mark.parametrize("levels", [["date", "symbol"], ["symbol", "date"], [None, None]])
def test_when_the_index_holds_stamps_and_symbols_then_both_are_found(tmp_path: Path, levels: list[str | None]):
    days = pd.DatetimeIndex(["2024-01-02", "2024-01-03"])
    pairs = [days, ["NA", "1E5"]] if levels[0] != "symbol" else [["NA", "1E5"], days]
    index = pd.MultiIndex.from_arrays(pairs, names=levels)
    raw = save(TABLE.set_axis(index), tmp_path)
    assert raw.frame["symbol"].tolist() == ["NA", "1E5"]
    assert raw.frame["time"].tolist() == list(days)


def test_when_columns_are_decimal_small_or_text_then_they_are_numbers(tmp_path: Path):
    from decimal import Decimal

    frame = TABLE.assign(
        Open=[Decimal("10.25"), None],
        High=TABLE["High"].astype("Int64"),
        Low=TABLE["Low"].astype("float32"),
        Close=["11.5", "halted"],
        Volume=[np.inf, np.nan],
    )
    raw = save(frame.reset_index().assign(Date=[day.date() for day in frame.index]), tmp_path)
    numbers = raw.frame[["open", "high", "low", "close", "volume"]].to_numpy()
    np.testing.assert_array_equal(numbers, [[10.25, 12, 9, 11.5, np.nan], [np.nan, 13, 8, np.nan, np.nan]])
    assert unread(raw) == [[0, "Volume", "inf"], [1, "Close", "halted"]]


@pytest.mark.parametrize("dates", [[20240102, 20240103], [1704153600000, 1704240000000], ["2024-01-02", "2024-01-03"]])
def test_when_stamps_are_counts_or_text_then_they_are_read_as_in_a_text_file(tmp_path: Path, dates: list):
    raw = save(TABLE.reset_index(drop=True).assign(time=dates), tmp_path)
    assert raw.frame["time"].tolist() == [pd.Timestamp("2024-01-02"), pd.Timestamp("2024-01-03")]


def test_when_symbols_are_numbers_then_their_lost_zeros_are_named(tmp_path: Path):
    with pytest.raises(DataError, match=r"column code holds numbers, so that zeros in front of symbols are lost"):
        save(TABLE.reset_index().assign(code=5930), tmp_path)


def test_when_a_typed_file_has_no_rows_or_names_then_the_error_says_so(tmp_path: Path):
    with pytest.raises(DataError, match=r"^0 rows in "):
        save(TABLE.head(0), tmp_path)
    with pytest.raises(DataError, match=r"no column Close; found Date, A, B: name it"):
        save(TABLE[["Open", "High"]].set_axis(["A", "B"], axis=1), tmp_path)


def test_when_the_description_of_columns_is_damaged_then_one_line_says_so(tmp_path: Path):
    columns = pd.MultiIndex.from_tuples([("Close", "A"), ("Volume", "A")])
    path = tmp_path / "AAA.parquet"
    TABLE[["Close", "Volume"]].set_axis(columns, axis=1).to_parquet(path)
    path.write_bytes(path.read_bytes().replace(b"('Volume'", b"(FVolume'"))
    with pytest.raises(DataError, match=r"AAA\.parquet is cut or no Parquet file \(.*\): fetch it again"):
        read(Options(path=(str(path),)))


# --- damaged files ---


def one_line(refusal: DataError) -> None:
    assert str(refusal).isprintable()


@settings(max_examples=200)
@given(st.randoms(use_true_random=False), st.sampled_from(SOURCES), st.integers(1, 4))
def test_when_a_file_is_damaged_then_every_line_is_a_row_or_told_or_one_line_refuses_it(
    tmp_path_factory: pytest.TempPathFactory, rng: random.Random, content: bytes, times: int
):
    for _ in range(times):
        content = damaged(content, rng)
    path = tmp_path_factory.getbasetemp() / "damaged.csv"
    path.write_bytes(content)
    try:
        raw = read(Options(path=(str(path),)))
    except DataError as refusal:
        one_line(refusal)
        return
    assert raw.frame["place"].notna().all()
    assert raw.unread["row"].between(0, len(raw.frame) - 1).all()
    text = content.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    placed, told = set(lines(raw)), " ".join(detail for _, _, _, detail, _ in raw.notes) + " "
    for number, line in enumerate(text.split("\n"), start=1):
        if number <= min(placed) or number in placed or not line.strip("\ufeff\x1a \t\n\x0c\u2028\xa0"):
            continue
        # A quoted cell may reach over lines; a line of blank groups is counted.
        assert '"' in line or f"line {number}:" in told or "blank on" in told, f"line {number} is nowhere: {line!r}"
