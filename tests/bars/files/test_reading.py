import gzip
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forecaster.bars.files import Options, read
from forecaster.bars.raw import RAW_COLUMNS, Raw
from forecaster.errors import ConfigError, DataError

CASES = Path(__file__).parents[2] / "cases"
HEADER = "Date,Open,High,Low,Close,Volume\n"
DAYS = "2024-01-02,10,12,9,11,100\n2024-01-03,11,13,10,12,200\n2024-01-04,12,14,11,13,300\n"

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(text: str | bytes, name: str = "AAA.csv") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return put


def take(path: Path | str, **options: object) -> Raw:
    return read(Options(path=(str(path),), **options))


def refused(path: Path | str, **options: object) -> str:
    """The one line of the error, with the path shortened to its name."""
    with pytest.raises(DataError) as error:
        take(path, **options)
    message = str(error.value)
    assert "\n" not in message
    return message.replace(str(path), Path(path).name)


def closes(raw: Raw) -> list[float]:
    return raw.frame["close"].tolist()


def dates(raw: Raw) -> list[str]:
    return [str(time) for time in raw.frame["time"].dt.strftime("%Y-%m-%d")]


def notes(raw: Raw) -> list[tuple[str, str]]:
    return [(kind, action) for _, _, kind, _, action in raw.notes]


# --- the files under tests/cases: rows, first and last date, first close, symbols ---

DAILY = [
    ("01_control_clean.csv", 160, "2023-06-01", "2024-01-19", 100.03),
    ("02_yahoo_adj_close.csv", 160, "2023-06-01", "2024-01-19", 98.1384),
    ("03_stooq_bulk.csv", 40, "2023-06-01", "2023-07-28", 55.04),
    ("05_broker_preamble_footer.csv", 60, "2023-06-01", "2023-08-25", 100.03),
    ("10_thousand_separators.csv", 40, "2023-06-01", "2023-07-28", 1200.36),
    ("11_unsorted.csv", 160, "2023-07-14", "2023-07-26", 86.93),
    ("12_duplicate_rows_identical.csv", 163, "2023-06-01", "2024-01-19", 100.03),
    ("18_zero_volume_phantom_days.csv", 160, "2023-06-01", "2024-01-19", 100.03),
    ("19_volume_blank.csv", 160, "2023-06-01", "2024-01-19", 100.03),
    ("21_split_10_to_1_raw.csv", 160, "2023-06-01", "2024-01-19", 1000.3),
    ("22_spikes_100x.csv", 160, "2023-06-01", "2024-01-19", 100.03),
    ("24_zero_and_negative_price.csv", 160, "2023-06-01", "2024-01-19", 100.03),
    ("26_missing_five_sessions.csv", 155, "2023-06-01", "2024-01-19", 100.03),
    ("28_yf_multi_ticker.csv", 144, "2024-03-01", "2024-04-29", 49.78),
    ("29_yf_single_ticker_row.csv", 42, "2024-03-01", "2024-04-29", 49.78),
    ("31_utf8_bom.csv", 40, "2023-06-01", "2023-07-28", 100.03),
    ("36_text_in_numbers.csv", 160, "2023-06-01", "2024-01-19", 100.03),
    ("38_one_symbol_too_short.csv", 169, "2023-06-01", "2023-06-13", 100.03),
    ("39_weekend_rows.csv", 166, "2023-06-01", "2024-01-19", 100.03),
    ("41_constant_price.csv", 160, "2023-06-01", "2024-01-19", 25.0),
    ("43_symbols_that_look_like_values.csv", 84, "2023-06-01", "2023-06-16", 29.63),
    ("49_tz_index.parquet", 60, "2023-06-01", "2023-08-25", 100.03),
]


@pytest.mark.parametrize(("name", "rows", "first", "last", "close"), DAILY, ids=[case[0][:2] for case in DAILY])
def test_when_a_case_holds_daily_bars_then_its_rows_are_read(name: str, rows: int, first: str, last: str, close: float):
    raw = take(CASES / name)
    assert tuple(raw.frame.columns) == RAW_COLUMNS
    assert raw.frame["time"].dtype == "datetime64[us]"
    assert raw.frame["symbol"].dtype == raw.frame["place"].dtype == "str"
    assert not raw.intraday
    assert (len(raw.frame), dates(raw)[0], dates(raw)[-1], closes(raw)[0]) == (rows, first, last, close)
    assert raw.files == (CASES / name,)


def test_when_the_file_is_clean_then_nothing_is_noted():
    raw = take(CASES / "01_control_clean.csv")
    assert raw.notes == ()
    assert raw.unread.empty
    assert raw.basis == "as given"
    assert raw.frame["symbol"].unique().tolist() == ["01_control_clean"]
    assert raw.frame["place"].iloc[[0, -1]].tolist() == [f"{CASES}/01_control_clean.csv line {n}" for n in (2, 161)]


def test_when_adj_close_is_there_then_all_four_prices_are_on_its_basis():
    raw = take(CASES / "02_yahoo_adj_close.csv")
    given = pd.read_csv(CASES / "02_yahoo_adj_close.csv")
    factor = given["Adj Close"] / given["Close"]
    assert raw.basis == "Adj Close; open, high and low scaled with it"
    assert closes(raw) == given["Adj Close"].tolist()
    for price in ("Open", "High", "Low"):
        np.testing.assert_allclose(raw.frame[price.lower()], given[price] * factor, rtol=1e-12)
    assert raw.frame["volume"].tolist() == given["Volume"].tolist()


def test_when_klines_have_no_header_then_the_first_bar_is_one():
    raw = take(CASES / "06_binance_klines_ms.csv")
    assert raw.intraday
    assert raw.frame["time"].dtype == "datetime64[us, UTC]"
    stamps = raw.frame["time"]
    assert (len(stamps), str(stamps.iloc[0]), str(stamps.iloc[-1])) == (
        96,
        "2024-12-30 00:00:00+00:00",
        "2025-01-02 23:00:00+00:00",
    )
    assert closes(raw)[0] == 93727.07
    assert raw.frame["volume"].iloc[0] == 96.123


def test_when_offsets_change_with_the_clock_then_bars_are_in_utc_at_the_same_local_time():
    raw = take(CASES / "14_dst_mixed_offsets.csv")
    local = raw.frame["time"].dt.tz_convert("America/New_York")
    assert (raw.intraday, len(local), set(local.dt.minute)) == (True, 28, {30})
    assert local.groupby(local.dt.date).min().dt.strftime("%H:%M").tolist() == ["09:30"] * 4


def test_when_ticker_columns_are_blank_then_no_bar_is_made_and_it_is_said():
    raw = take(CASES / "28_yf_multi_ticker.csv")
    assert raw.frame["symbol"].value_counts().to_dict() == {"AAA": 42, "BBB": 42, "CCC-USD": 60}
    where = f"{CASES}/28_yf_multi_ticker.csv line 5"
    assert [(symbol, *rest) for symbol, _, *rest in raw.notes] == [
        ("AAA", "absent", f"blank on 18 of 60 dates, first {where}", "no bar made"),
        ("BBB", "absent", f"blank on 18 of 60 dates, first {where}", "no bar made"),
    ]
    assert not raw.frame.isna().any().any()


def test_when_text_stands_in_numbers_then_each_cell_is_told():
    raw = take(CASES / "36_text_in_numbers.csv")
    assert raw.unread.to_numpy().tolist() == [[44, "Close", "-"], [45, "Volume", "halted"], [80, "Open", "#N/A N/A"]]
    assert raw.frame["place"].iloc[44].endswith("line 46")
    assert int(raw.frame[["open", "high", "low", "close", "volume"]].isna().sum().sum()) == 4  # and one n/a


def test_when_volume_is_blank_then_it_is_nan_and_no_text():
    raw = take(CASES / "19_volume_blank.csv")
    assert int(raw.frame["volume"].isna().sum()) == 3
    assert raw.unread.empty


def test_when_symbols_look_like_values_then_they_are_text():
    raw = take(CASES / "43_symbols_that_look_like_values.csv")
    names = ["NA", "TRUE", "005930", "1E5", "BRK.B", "NAN", "NULL"]
    assert raw.frame["symbol"].value_counts().to_dict() == dict.fromkeys(names, 12)


def test_when_the_index_of_a_parquet_file_is_aware_then_bars_equal_those_of_the_text():
    names = ["time", "open", "high", "low", "close", "volume"]
    left = take(CASES / "49_tz_index.parquet").frame[names]
    pd.testing.assert_frame_equal(left, take(CASES / "01_control_clean.csv").frame[names].head(60))


def test_when_decimal_commas_are_announced_then_the_german_file_is_read():
    raw = take(CASES / "08_european_semicolon_comma.csv", sep=";", decimal=",", thousands=".")
    assert (len(raw.frame), closes(raw)[0], raw.frame["volume"].iloc[0]) == (60, 1200.36, 1193255)
    assert (dates(raw)[0], dates(raw)[-1]) == ("2023-06-01", "2023-08-25")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "08_european_semicolon_comma.csv",
            (
                "08_european_semicolon_comma.csv line 1: no columns Date, Open, High, Low, Close: its fields are "
                "separated by "
                "';': give source.sep=';' source.decimal=',' source.thousands='.'"
            ),
        ),
        (
            "16_mixed_aware_and_naive.csv",
            (
                "16_mixed_aware_and_naive.csv line 7: Date '2024-05-08 00:00:00-04:00' has an offset from UTC, "
                "the lines "
                "before it have none: mixed time zones; write all stamps one way"
            ),
        ),
        ("32_empty.csv", "32_empty.csv is empty: fetch it again"),
        (
            "33_header_only.csv",
            "0 rows in 33_header_only.csv: it holds a header and nothing else: save it again with its bars",
        ),
        (
            "34_missing_close.csv",
            (
                "34_missing_close.csv line 1: no column Close; found Date, Open, High, Low, Volume: name it, as "
                "source.columns={close: NAME}, or give source.layout=wide if each column holds the closes of one symbol"
            ),
        ),
        (
            "46_html_saved_as_csv.csv",
            (
                "46_html_saved_as_csv.csv is not a price table: it begins with '<!DOCTYPE html>', and no line "
                "among its first "
                "30 names columns such as Date, Open, High, Low, Close: fetch it again, or name its columns in "
                "source.columns"
            ),
        ),
    ],
)
def test_when_a_case_is_no_table_of_bars_then_one_line_says_why(name: str, message: str):
    assert refused(CASES / name) == message


# --- suffixes, packing, encoding ---


def test_when_files_are_packed_then_they_read_as_their_text(write: Write, tmp_path: Path):
    text = (HEADER + DAYS).encode()
    write(gzip.compress(text, mtime=0), "GZ.csv.gz")
    with zipfile.ZipFile(tmp_path / "ZIP.csv.zip", "w") as archive:
        archive.writestr("inside.csv", text)
    for name in ("GZ.csv.gz", "ZIP.csv.zip"):
        raw = take(tmp_path / name)
        assert closes(raw) == [11, 12, 13]
        assert raw.frame["symbol"].unique().tolist() == [name.split(".")[0]]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
def test_when_text_has_a_byte_order_mark_then_it_is_read(write: Write, encoding: str):
    text = ("\ufeff" if encoding == "utf-16-le" else "") + HEADER + DAYS
    assert closes(take(write(text.encode(encoding)))) == [11, 12, 13]


def test_when_text_is_no_utf8_then_it_is_read_as_cp1252_and_noted(write: Write):
    path = write("Datum,Eröffnung,Hoch,Tief,Schluss,Stücke\n2024-01-02,10,12,9,11,100\n".encode("cp1252"))
    raw = take(path)
    assert closes(raw) == [11]
    assert raw.notes[0][2:] == ("encoding", f"{path} line 1: not UTF-8", "read as cp1252")


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"\x1f\x8bbroken", "A.csv.gz", "A.csv.gz can't be unpacked"),
        (b"plain", "A.csv.gz", "A.csv.gz is no gzip file: it begins with b'plain': fetch it again"),
        (gzip.compress(b"Date,Close\n" * 99, mtime=0)[:-9], "A.csv.gz", "A.csv.gz can't be unpacked"),
        (b"PK\x03\x04broken", "A.csv.zip", "A.csv.zip can't be unpacked"),
        (b"no archive", "A.csv.zip", "A.csv.zip can't be unpacked"),
        (b"PAR1broken", "A.parquet", "A.parquet is cut or no Parquet file"),
        (b"", "A.parquet", "A.parquet is empty: fetch it again"),
        (b"broken", "A.feather", "A.feather is cut or no Feather file"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "A.csv", "A.csv is no text: line 2 holds the byte 26"),
        (b"Date,Close\n2024-01-02,\x001\n", "A.csv", "A.csv is no text: line 2 holds the byte 0"),
        (b"\xff\xfeD\x00a", "A.csv", "A.csv is cut or broken UTF-16 (byte 4): save it as UTF-8"),
        (b" \n\n", "A.csv", "A.csv is empty: fetch it again"),
        (b'{"chart": {"result": null}}', "A.csv", 'A.csv is not a price table: it begins with \'{"chart"'),
        (b"x", "A.xlsx", "A.xlsx: unknown suffix '.xlsx': save it as one of .csv .txt .tsv (also with .gz"),
    ],
)
def test_when_a_file_is_broken_then_one_line_says_so(write: Write, content: bytes, name: str, message: str):
    assert refused(write(content, name)).startswith(message)


def test_when_an_archive_holds_two_files_then_they_are_named(tmp_path: Path):
    path = tmp_path / "A.csv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("one.csv", "x")
        archive.writestr("two.csv", "x")
    assert refused(path) == "A.csv.zip holds 2 files (one.csv, two.csv): unpack it and name those with bars"


def test_when_a_spreadsheet_is_named_csv_then_the_error_says_so(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "A.csv", "w") as archive:
        archive.writestr("[Content_Types].xml", "x")
        archive.writestr("xl/workbook.xml", "x")
    assert refused(tmp_path / "A.csv") == "A.csv is a spreadsheet: save it as CSV"


def test_when_a_file_may_not_be_read_then_the_error_says_so(write: Write, monkeypatch: pytest.MonkeyPatch):
    path = write(HEADER + DAYS)

    def forbidden(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", forbidden)
    assert refused(path) == "AAA.csv can't be opened: no permission to read it: change its mode"


# --- paths ---


def test_when_a_folder_is_given_then_known_suffixes_are_read_and_others_named(write: Write, tmp_path: Path):
    for name in ("B.csv", "A.txt", "readme.md", ".DS_Store", "deeper/C.csv"):
        write(HEADER + DAYS, name)
    raw = take(tmp_path)
    assert raw.frame["symbol"].unique().tolist() == ["A", "B"]
    assert raw.notes[0][2:] == ("file", f"{tmp_path}: .DS_Store, deeper/, readme.md", "left out")
    assert raw.files == (tmp_path / "A.txt", tmp_path / "B.csv")


def test_when_a_folder_holds_hidden_files_and_dead_links_then_they_are_left_out_and_named(write: Write, tmp_path: Path):
    write(HEADER + DAYS, "A.csv")
    write(b"\x00\x05\x16\x07", "._A.csv")
    (tmp_path / "B.csv").symlink_to(tmp_path / "nowhere.csv")
    raw = take(tmp_path)
    assert raw.frame["symbol"].unique().tolist() == ["A"]
    assert raw.notes[0][3] == f"{tmp_path}: ._A.csv, B.csv"
    assert refused(tmp_path / "B.csv") == "B.csv is a link to a file that is not there: mend the link"


def test_when_a_folder_holds_only_folders_then_the_error_names_them(write: Write, tmp_path: Path):
    write(HEADER + DAYS, "deeper/A.csv")
    assert "holds only deeper/: name a folder with files" in refused(tmp_path)


def test_when_an_archive_is_named_zip_then_its_one_file_is_read(write: Write, tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "BTCUSDT.zip", "w") as archive:
        archive.writestr("BTCUSDT-1d.csv", HEADER + DAYS)
    assert closes(take(tmp_path / "BTCUSDT.zip")) == [11, 12, 13]
    assert take(tmp_path).frame["symbol"].unique().tolist() == ["BTCUSDT"]


def test_when_a_typed_file_took_stamps_in_a_wrong_unit_then_the_error_says_so(tmp_path: Path):
    milliseconds = pd.date_range("2024-01-02", periods=5).as_unit("ms").asi8
    table = pd.DataFrame({"Date": pd.to_datetime(milliseconds), "Close": np.arange(1.0, 6.0)})
    table.to_parquet(tmp_path / "A.parquet")
    assert refused(tmp_path / "A.parquet").startswith("A.parquet row 1: Date 1970-01-01 00:28:24.153600: no stamp of")


@pytest.mark.parametrize(("dtype", "missing"), [("str", None), ("object", None), ("string[pyarrow]", pd.NA)])
def test_when_text_of_a_typed_file_is_missing_then_it_is_blank(tmp_path: Path, dtype: str, missing: object):
    cells = pd.array(["1.5", missing, "x"], dtype=dtype)
    table = pd.DataFrame({"Date": pd.date_range("2024-01-02", periods=3), "Close": cells})
    table.to_parquet(tmp_path / "A.parquet")
    raw = take(tmp_path / "A.parquet")
    np.testing.assert_array_equal(raw.frame["close"], [1.5, np.nan, np.nan])
    assert raw.unread.to_numpy().tolist() == [[2, "Close", "x"]]


def test_when_paths_overlap_then_a_file_is_read_once(write: Write, tmp_path: Path):
    write(HEADER + DAYS, "A.csv")
    write(HEADER + DAYS, "B.csv")
    raw = read(Options(path=(str(tmp_path / "*.csv"), str(tmp_path / "A.csv"), str(tmp_path))))
    assert raw.frame["symbol"].tolist() == ["A"] * 3 + ["B"] * 3


def test_when_two_files_give_one_symbol_then_rows_of_both_are_there(write: Write, tmp_path: Path):
    write(HEADER + DAYS, "one/A.csv")
    write(HEADER + "2024-01-05,1,1,1,1,1\n", "two/A.csv")
    raw = take(tmp_path / "*" / "A.csv")
    assert raw.frame["symbol"].tolist() == ["A"] * 4
    assert raw.frame["place"].tolist()[-1] == f"{tmp_path}/two/A.csv line 2"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("AAB.csv", "AAB.csv: no such file or folder: did you mean AAA.csv?"),
        ("none/AAA.csv", "AAA.csv: no such file or folder: there is no folder {}/none"),
        ("*.parquet", "*.parquet fits no file: check the pattern: check the name; {} holds 2 others"),
        ("empty", "empty holds no files: name a folder with files of prices (.csv .txt .tsv (also with .gz or"),
    ],
)
def test_when_a_path_leads_nowhere_then_the_error_names_what_is_near(
    write: Write, tmp_path: Path, path: str, message: str
):
    write(HEADER + DAYS)
    (tmp_path / "empty").mkdir()
    assert refused(tmp_path / path).startswith(message.format(tmp_path))


# --- symbols ---

LONG = "Date,Symbol,Open,High,Low,Close,Volume\n" + "".join(
    f"2024-01-0{day},{symbol},1,1,1,{close},1\n"
    for symbol, close in (("^GSPC", 1), ("EURUSD=X", 2), ("M&M.NS", 3))
    for day in (2, 3)
)


def test_when_symbols_are_asked_for_then_only_they_are_read(write: Write):
    raw = take(write(LONG), symbols=("M&M.NS", "^GSPC"))
    assert closes(raw) == [1, 1, 3, 3]
    assert raw.frame["place"].iloc[2].endswith("line 6")


def test_when_a_symbol_is_not_there_then_near_ones_are_named(write: Write):
    assert refused(write(LONG), symbols=("GSPC",)) == "AAA.csv: no symbol 'GSPC': choose from ^GSPC"
    assert refused(write(LONG), symbols=("q",)) == "AAA.csv: no symbol 'q': choose from ^GSPC, EURUSD=X, M&M.NS"


def test_when_all_cells_of_a_symbol_are_blank_then_asking_for_it_is_refused(write: Write):
    path = write("Date,A,B\n2024-01-02,1,\n2024-01-03,2,\n")
    raw = take(path, layout="wide")
    assert raw.frame["symbol"].tolist() == ["A", "A"]
    assert raw.notes[0][:1] + raw.notes[0][3:] == ("B", f"blank on 2 of 2 dates, first {path} line 2", "no bar made")
    message = "AAA.csv: 'B' has no bar, its cells are blank: leave it out of the symbols"
    assert refused(path, layout="wide", symbols=("A", "B")) == message


def test_when_a_file_is_named_as_another_symbol_then_its_numbers_are_not_read(write: Write, tmp_path: Path):
    write(HEADER + DAYS, "A.csv")
    write("Date,Close\n01/02/2024,1\n", "B.csv")  # ambiguous, if anybody asked
    assert closes(take(tmp_path, symbols=("A",))) == [11, 12, 13]


def test_when_a_symbol_is_blank_then_its_row_is_kept_and_told(write: Write):
    raw = take(write("Date,Symbol,Close\n2024-01-02,A,1\n2024-01-03,,2\n"))
    assert raw.frame["symbol"].tolist() == ["A", ""]
    assert raw.unread.to_numpy().tolist() == [[1, "Symbol", ""]]


# --- basis ---

ADJUSTED = "Date,Open,High,Low,Close,Adj Close,Volume\n"


def test_when_only_some_files_have_adj_close_then_the_basis_names_which(write: Write, tmp_path: Path):
    write(HEADER + DAYS, "A.csv")
    write(ADJUSTED + "2024-01-02,10,12,9,10,5,100\n", "B.csv")
    raw = take(tmp_path)
    assert raw.basis == "Adj Close; open, high and low scaled with it, for B; as given for A"
    assert raw.frame.iloc[-1][["open", "high", "low", "close"]].tolist() == [5, 6, 4.5, 5]


def test_when_one_symbol_is_on_two_bases_then_it_is_refused(write: Write, tmp_path: Path):
    one, two = write(HEADER + DAYS, "1/A.csv"), write(ADJUSTED + "2024-01-05,10,12,9,10,5,100\n", "2/A.csv")
    assert refused(tmp_path / "*" / "*") == (
        f"A: prices on two bases: Adj Close in {two}, as given in {one}: keep the files of one"
    )


def test_when_adj_close_is_missing_somewhere_then_prices_stay_as_given_and_it_is_said(write: Write):
    path = write(ADJUSTED + "2024-01-02,10,12,9,10,5,100\n2024-01-03,10,12,9,10,,100\n2024-01-04,,,,,,\n")
    raw = take(path)
    assert raw.basis == "as given"
    assert closes(raw)[:2] == [10, 10]
    assert raw.notes[0][2:] == (
        "adj_close",
        f"no usable Adj Close on 1 of 3 rows, first {path} line 3",
        "left out: prices as given",
    )


def test_when_a_close_is_no_price_then_its_row_stays_and_the_others_are_scaled(write: Write):
    raw = take(write(ADJUSTED + "2024-01-02,10,12,9,10,5,1\n2024-01-03,10,12,9,0,0,1\n2024-01-04,10,12,9,-,5,1\n"))
    assert raw.frame["high"].tolist() == [6, 12, 12]
    np.testing.assert_array_equal(raw.frame["close"], [5, 0, np.nan])


# --- stamps and numbers, as far as files join them ---


def test_when_forex_hours_are_naive_then_they_are_read_as_utc_and_it_is_said(write: Write):
    hours = pd.date_range("2013-01-01", "2013-02-01", freq="h", inclusive="left")
    hours = hours[~((hours.weekday == 5) | ((hours.weekday == 4) & (hours.hour >= 22)))]
    text = "".join(f"{hour:%d.%m.%Y %H:%M:%S}.000,1.31,1.33,1.29,1.32,{hour.hour}.5\n" for hour in hours)
    path = write("Time,Open,High,Low,Close,Volume\n" + text, "EURUSD.csv")
    raw = take(path)
    assert raw.intraday
    assert raw.frame["time"].tolist() == list(hours.tz_localize("UTC"))
    assert raw.frame["volume"].tolist() == [hour.hour + 0.5 for hour in hours]
    detail = f"{len(hours)} stamps without a zone, from {path} line 2 on, in 24 of 24 parts of the day"
    assert [(symbol, *rest) for symbol, _, *rest in raw.notes] == [("EURUSD", "timezone", detail, "read as UTC")]


def test_when_a_clock_time_never_was_then_its_row_is_unread(write: Write):
    stamps = ("2024-03-29 10:00", "2024-03-31 01:30", "2024-03-31 02:30", "2024-03-31 03:30")
    raw = take(write("Date,Close\n" + "".join(f"{stamp},1\n" for stamp in stamps)), timezone="Europe/Berlin")
    assert raw.unread.to_numpy().tolist() == [[2, "Date", "2024-03-31 02:30:00"]]
    assert raw.frame["time"].isna().tolist() == [False, False, True, False]


def test_when_daily_and_intraday_files_are_together_then_they_are_refused(write: Write, tmp_path: Path):
    write(HEADER + DAYS, "DAY.csv")
    write("Date,Close\n2024-01-02T10:00Z,1\n2024-01-02T11:00Z,1\n", "HOUR.csv")
    message = "DAY has daily bars, HOUR intraday ones: read them apart, with source.path or source.symbols"
    assert refused(tmp_path) == message
    assert not take(tmp_path, symbols=("DAY",)).intraday


def test_when_volume_is_a_dash_then_it_is_blank_and_it_is_said(write: Write):
    raw = take(write(HEADER + "2024-01-02,10,12,9,11,-\n2024-01-03,10,12,9,11,5\n"))
    np.testing.assert_array_equal(raw.frame["volume"], [np.nan, 5])
    assert raw.notes == (("AAA", pd.NaT, "volume", "Volume holds only '-' on 1 of 2 rows", "read as blank"),)


def test_when_a_wide_table_is_parquet_then_each_column_is_a_symbol(tmp_path: Path):
    days = pd.DatetimeIndex(["2024-01-02", "2024-01-03"], name="Date")
    table = pd.DataFrame({"OPEN": [1.0, 2.0], "1E5": [3.0, None]}, index=days)
    table.to_parquet(tmp_path / "x.parquet")
    raw = take(tmp_path / "x.parquet", layout="wide")
    assert raw.frame[["symbol", "close"]].to_numpy().tolist() == [["OPEN", 1], ["OPEN", 2], ["1E5", 3]]


# --- options that say nothing ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layout": "long"}, "source.layout=long: choose wide, or leave it out"),
        ({"sep": ";;"}, "source.sep=';;': give one character, such as ';' or '\\t'"),
        ({"sep": '"'}, "source.sep='\"': it can't separate fields: give one such as ';' or '\\t'"),
        ({"decimal": ";"}, "source.decimal=';': choose '.' or ','"),
        ({"thousands": "x"}, "source.thousands='x': choose '.', ',', \"'\" or ' '"),
        ({"thousands": "."}, "source.thousands='.' is source.decimal too: give two characters"),
        (
            {"columns": {"adj": "X"}},
            (
                "source.columns={adj: ...}: name ours first: choose from time, date, clock, symbol, open, high, "
                "low, close, "
                "volume"
            ),
        ),
        (
            {"timezone": "New_York"},
            "source.timezone=New_York: no such time zone: give a name such as America/New_York, Europe/Berlin or UTC",
        ),
        (
            {"date_format": "%Q"},
            "source.date_format=%Q: 'Q' is a bad directive in format '%Q': write it as %d/%m/%Y %H:%M",
        ),
    ],
)
def test_when_an_option_says_nothing_then_it_is_named(write: Write, options: dict, message: str):
    with pytest.raises(ConfigError) as error:
        take(write(HEADER + DAYS), **options)
    assert str(error.value) == message


def test_when_no_path_is_given_then_it_is_asked_for():
    with pytest.raises(ConfigError, match=r"source\.path: no path given: name files, folders or globs"):
        read(Options(path=()))
