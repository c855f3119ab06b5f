"""Every layout, as its vendor writes it, read through `files`."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forecaster.bars.files import Options, read
from forecaster.bars.files.layouts import is_header, normal, role, two_levels
from forecaster.bars.raw import Raw
from forecaster.errors import DataError

NUMBERS = ["open", "high", "low", "close", "volume"]


def take(folder: Path, text: str, name: str = "AAA.csv", **options: object) -> Raw:
    path = folder / name
    path.write_text(text)
    return read(Options(path=(str(path),), **options))


def refused(folder: Path, text: str, **options: object) -> str:
    with pytest.raises(DataError) as error:
        take(folder, text, **options)
    return str(error.value).replace(str(folder) + "/", "")


def rows(raw: Raw) -> list[list[object]]:
    """Symbol, stamp and numbers of each row, as the file's own words."""
    assert raw.unread.empty
    stamps = raw.frame["time"].dt.strftime("%Y-%m-%d %H:%M" if raw.intraday else "%Y-%m-%d")
    return [
        [symbol, stamp, *numbers]
        for symbol, stamp, numbers in zip(
            raw.frame["symbol"], stamps, raw.frame[NUMBERS].to_numpy().tolist(), strict=True
        )
    ]


ONE = [["AAA", "2024-01-02", 10, 12, 9, 11, 100]]

DAILY = {
    "stooq": "Date,Open,High,Low,Close,Volume\n2024-01-02,10,12,9,11,100\n",
    "stooq, bulk": "<TICKER>,<PER>,<DATE>,<TIME>,<OPEN>,<HIGH>,<LOW>,<CLOSE>,<VOL>,<OPENINT>\n"
    "AAA,D,20240102,000000,10,12,9,11,100,0\n",
    "metastock": "<TICKER>,<DTYYYYMMDD>,<OPEN>,<HIGH>,<LOW>,<CLOSE>,<VOL>\nAAA,20240102,10,12,9,11,100\n",
    "yahoo, web": "Date,Open,High,Low,Close*,Volume\n2024-01-02,10,12,9,11,100\n",
    "yfinance, one ticker": "Price,Close,High,Low,Open,Volume\nTicker,AAA,AAA,AAA,AAA,AAA\nDate,,,,,\n"
    "2024-01-02,11,12,9,10,100\n",
    "yfinance, ticker first": "Ticker,AAA,AAA,AAA,AAA,AAA\nPrice,Open,High,Low,Close,Volume\nDate,,,,,\n"
    "2024-01-02,10,12,9,11,100\n",
    "yfinance, old": ",Close,High,Low,Open,Volume\n,AAA,AAA,AAA,AAA,AAA\nDate,,,,,\n2024-01-02,11,12,9,10,100\n",
    "yfinance, index reset": "Date,Close,High,Low,Open,Volume\n,AAA,AAA,AAA,AAA,AAA\n2024-01-02,11,12,9,10,100\n",
    "yfinance, index reset and kept": "Price,Date,Close,High,Low,Open,Volume\nTicker,,AAA,AAA,AAA,AAA,AAA\n"
    "0,2024-01-02,11,12,9,10,100\n",
    "pandas-datareader": "Attributes,Close,High,Low,Open,Volume\nSymbols,AAA,AAA,AAA,AAA,AAA\nDate,,,,,\n"
    "2024-01-02,11,12,9,10,100\n",
    "yfinance, history": "Date,Open,High,Low,Close,Volume,Dividends,Stock Splits\n"
    "2024-01-02 00:00:00-05:00,10,12,9,11,100,0.0,0.0\n",
    "investing.com": '"Date","Price","Open","High","Low","Vol.","Change %"\n'
    '"Jan 02, 2024","11","10","12","9","0.10K","1.19%"\n',
    "nasdaq.com": "Date,Close/Last,Volume,Open,High,Low\n2024-01-02,$11.00,100,$10.00,$12.00,$9.00\n",
    "alpha vantage": "timestamp,open,high,low,close,volume\n2024-01-02,10,12,9,11,100\n",
    "alpha vantage, json": "date,1. open,2. high,3. low,4. close,5. volume\n2024-01-02,10,12,9,11,100\n",
    "kaggle": "date,open,high,low,close,volume,Name\n2024-01-02,10,12,9,11,100,AAA\n",
    "code": "code,date,open,high,low,close,volume,vwap,trades\nAAA,2024-01-02,10,12,9,11,100,10.5,7\n",
    "symbol and company": "Symbol,Name,Date,Open,High,Low,Close,Volume\nAAA,Triple A,2024-01-02,10,12,9,11,100\n",
    "unnamed index": ",Open,High,Low,Close,Volume\n2024-01-02,10,12,9,11,100\n",
    "row numbers": ",Date,Open,High,Low,Close,Volume\n0,2024-01-02,10,12,9,11,100\n",
    "letters": "t,o,h,l,c,v,n\n2024-01-02,10,12,9,11,100,7\n",
    "shouted": " DATE , OPEN ,HIGH,LOW,CLOSE,VOLUME\n2024-01-02, 10,12 ,9,11,100\n",
    "tabs": "Date\tOpen\tHigh\tLow\tClose\tVolume\n2024-01-02\t10\t12\t9\t11\t100\n",
    "stooq, polish": "Data,Otwarcie,Najwyzszy,Najnizszy,Zamkniecie,Wolumen\n2024-01-02,10,12,9,11,100\n",
    "german": "Datum,Erster,Hoch,Tief,Schlusskurs,Stuecke,Volumen\n2024-01-02,10,12,9,11,100,1100\n",
    "german, umlauts": "Datum,Eröffnung,Hoch,Tief,Schluss,Stücke\n2024-01-02,10,12,9,11,100\n",
    "cryptodatadownload": "https://www.CryptoDataDownload.com\n"
    "unix,date,symbol,open,high,low,close,Volume AAA,Volume USD\n"
    "1704153600000,2024-01-02 00:00:00,AAA,10,12,9,11,100,1100\n",
    "trailing separators": "Date,Open,High,Low,Close,Volume,\n2024-01-02,10,12,9,11,100,\n",
    "separators only below": "Date,Open,High,Low,Close,Volume\n2024-01-02,10,12,9,11,100,,\n",
    "carriage returns": "Date,Open,High,Low,Close,Volume\r\n2024-01-02,10,12,9,11,100\r\n",
}


@pytest.mark.parametrize("text", DAILY.values(), ids=DAILY.keys())
def test_when_a_vendor_writes_daily_bars_then_the_bar_is_read(tmp_path: Path, text: str):
    raw = take(tmp_path, text)
    assert rows(raw) == ONE
    assert not raw.intraday
    assert raw.basis == "as given"


INTRADAY = {
    "klines": "1704190200000,10,12,9,11,100,1704190259999,1100,7,50,550,0\n"
    "1704190260000000,10,12,9,11,100,1704190319999999,1100,7,50,550,0\n",
    "klines, header": "open_time,open,high,low,close,volume,close_time,quote_volume,count,taker_buy_volume,"
    "taker_buy_quote_volume,ignore\n1704190200000,10,12,9,11,100,1704190259999,1100,7,50,550,0\n"
    "1704190260000,10,12,9,11,100,1704190319999,1100,7,50,550,0\n",
    "metatrader": "2024.01.02,10:10,10,12,9,11,100\n2024.01.02,10:11,10,12,9,11,100\n",
    "metatrader, header": "<DATE>\t<TIME>\t<OPEN>\t<HIGH>\t<LOW>\t<CLOSE>\t<TICKVOL>\t<VOL>\t<SPREAD>\n"
    "2024.01.02\t10:10:00\t10\t12\t9\t11\t100\t0\t1\n2024.01.02\t10:11:00\t10\t12\t9\t11\t100\t0\t1\n",
    "dukascopy": "Time,Open,High,Low,Close,Volume\n"
    "02.01.2024 10:10:00.000,10,12,9,11,100\n02.01.2024 10:11:00.000,10,12,9,11,100\n",
    "dukascopy, gmt": "Gmt time,Open,High,Low,Close,Volume\n"
    "02.01.2024 10:10:00.000,10,12,9,11,100\n02.01.2024 10:11:00.000,10,12,9,11,100\n",
    "dukascopy, local": "Local time,Open,High,Low,Close,Volume\n"
    "02.01.2024 11:10:00.000 GMT+0100,10,12,9,11,100\n02.01.2024 11:11:00.000 GMT+0100,10,12,9,11,100\n",
    "date and time": "Date,Time,Open,High,Low,Close,Volume\n"
    "2024-01-02,10:10:00,10,12,9,11,100\n2024-01-02,10:11:00,10,12,9,11,100\n",
    "time without colons": "Date,Time,Open,High,Low,Close,Volume\n"
    "20240102,1010,10,12,9,11,100\n20240102,1011,10,12,9,11,100\n",
    "offsets": "datetime,open,high,low,close,volume\n"
    "2024-01-02T05:10:00-05:00,10,12,9,11,100\n2024-01-02T10:11:00Z,10,12,9,11,100\n",
}
TWO = [["AAA", f"2024-01-02 10:1{minute}", 10, 12, 9, 11, 100] for minute in (0, 1)]


@pytest.mark.parametrize("text", INTRADAY.values(), ids=INTRADAY.keys())
def test_when_a_vendor_writes_intraday_bars_then_they_are_read_in_utc(tmp_path: Path, text: str):
    options: dict[str, str] = {"date_format": "%d.%m.%Y %H:%M:%S.%f"} if "02.01.2024 10" in text else {}
    if "GMT" in text:
        options = {"date_format": "%d.%m.%Y %H:%M:%S.%f GMT%z"}
    raw = take(tmp_path, text, timezone="UTC", **options)
    assert raw.intraday
    assert rows(raw) == TWO


WIDE = "Date,AAA,LOW,C\n2024-01-02,1,,3\n2024-01-03,4,5,\n"


def test_when_wide_then_each_column_is_a_symbol_with_closes_only(tmp_path: Path):
    raw = take(tmp_path, WIDE, layout="wide")
    assert raw.frame[["symbol", "close"]].to_numpy().tolist() == [["AAA", 1], ["AAA", 4], ["LOW", 5], ["C", 3]]
    assert raw.frame[["open", "high", "low", "volume"]].isna().all().all()
    path = tmp_path / "AAA.csv"
    assert [(symbol, *rest) for symbol, _, *rest in raw.notes] == [
        ("LOW", "absent", f"blank on 1 of 2 dates, first {path} line 2", "no bar made"),
        ("C", "absent", f"blank on 1 of 2 dates, first {path} line 3", "no bar made"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "Date,AAA,BBB,CCC\n2024-01-02,1,2,3\n",
            (
                "AAA.csv line 1: no column Close; found Date, AAA, BBB, CCC: if each column holds the closes of "
                "one symbol, "
                "give source.layout=wide"
            ),
        ),
        (
            "DATE,SP500\n2024-01-02,1\n",
            (
                "AAA.csv line 1: no column Close; found DATE, SP500: name it, as source.columns={close: SP500}, "
                "or give "
                "source.layout=wide"
            ),
        ),
        (
            "2024-01-02,10,12,9,11,100\n",
            (
                "AAA.csv has no header line: line 1 holds 2024-01-02, 10, 12, 9, 11, 100: add one on top, such as "
                "Date,Open,High,Low,Close,Volume"
            ),
        ),
        (
            "Date,Close,Last,Volume\n2024-01-02,1,2,3\n",
            "AAA.csv line 1: Close and Last could each be close: say which, as source.columns={close: Close}",
        ),
        (
            "Date,Close,Close,Volume\n2024-01-02,1,2,3\n",
            "AAA.csv line 1: 2 columns are named Close: keep one",
        ),
        (
            "Date,Open,High,Low,Adj Close\n2024-01-02,1,1,1,1\n",
            (
                "AAA.csv line 1: no column Close; found Date, Open, High, Low, Adj Close: Adj Close beside unadjusted "
                "prices is no close: save the file with its Close, too"
            ),
        ),
        (
            "Date,High,Low,Close\n2024-01-02,1,2,3\n",
            (
                "AAA.csv line 1: no column Open beside the other prices; found Date, High, Low, Close: name it in "
                "source.columns, or leave only the closes"
            ),
        ),
        (
            "Open,High,Low,Close\n1,1,1,1\n",
            "AAA.csv line 1: no column Date; found Open, High, Low, Close: name it, as source.columns={date: NAME}",
        ),
        (
            "Date,Datetime,Close\n2024-01-02,2024-01-02,1\n",
            "AAA.csv line 1: Date and Datetime could each be date: say which, as source.columns={date: Date}",
        ),
        (
            "Timestamp,Time,Close\n2024-01-02,2024-01-02,1\n",
            "AAA.csv line 1: Timestamp and Time could each be time: say which, as source.columns={time: Timestamp}",
        ),
        (
            "date,close,Volume BTC,Volume USD\n2024-01-02,1,2,3\n",
            (
                "AAA.csv line 1: Volume BTC and Volume USD could each be volume: say which, as "
                "source.columns={volume: NAME}"
            ),
        ),
        (
            "Date|Open|High|Low|Close\n2024-01-02|1|1|1|1\n",
            (
                "AAA.csv line 1: no columns Date, Open, High, Low, Close: its fields are separated by '|': give "
                "source.sep='|'"
            ),
        ),
        (
            "Date Open High Low Close\n2024-01-02 1 1 1 1\n",
            (
                "AAA.csv line 1: no columns Date, Open, High, Low, Close: its fields are separated by ' ': give "
                "source.sep=' '"
            ),
        ),
        (
            "the Date of Open and Close\n",
            (
                "AAA.csv is not a price table: it begins with 'the Date of Open and Close', and no line among its "
                "first 30 "
                "names columns such as Date, Open, High, Low, Close: fetch it again, or name its columns in "
                "source.columns"
            ),
        ),
        (
            "Date;Close\n2024-01-02;1,5\n",
            (
                "AAA.csv line 1: no columns Date, Open, High, Low, Close: its fields are separated by ';': give "
                "source.sep=';' source.decimal=',' source.thousands='.'"
            ),
        ),
        (
            "Price,Open,Open\nTicker,A,B\nDate,,\n2024-01-02,1,1\n",
            "AAA.csv line 1: no column Close for A: it has open: save it with its close",
        ),
        (
            "Price,Close,Open\nTicker,A,B\nDate,,\n2024-01-02,1,1\n",
            "AAA.csv line 1: no column Close for B: it has open: save it with its close",
        ),
    ],
)
def test_when_columns_leave_it_open_then_the_error_says_what_to_give(tmp_path: Path, text: str, message: str):
    assert refused(tmp_path, text) == message


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "Date,Open,High,Low,Close\n2024-01-02,1,1,1,1\n",
            {},
            "AAA.csv line 1: Date, Open, High, Low, Close are prices of one symbol: leave out source.layout=wide",
        ),
        (
            "Price,Close,Close\nTicker,A,B\nDate,,\n2024-01-02,1,1\n",
            {},
            "AAA.csv line 1: prices and tickers above each other: leave out source.layout=wide",
        ),
        ("Date,A,A\n2024-01-02,1,2\n", {}, "AAA.csv line 1: symbol 'A' names two columns: keep one"),
        (
            "Date,A,,B\n2024-01-02,1,2,3\n",
            {},
            "AAA.csv line 1: column 3 has no name: with source.layout=wide it names a symbol",
        ),
        (
            "Date,A\n2024-01-02,1\n",
            {"columns": {"close": "A"}},
            "AAA.csv line 1: source.columns names close: with source.layout=wide only date",
        ),
    ],
)
def test_when_a_wide_table_is_unclear_then_the_error_says_what(tmp_path: Path, text: str, options: dict, message: str):
    assert refused(tmp_path, text, layout="wide", **options) == message


def test_when_prices_and_tickers_stand_above_each_other_then_columns_can_not_be_named(tmp_path: Path):
    text = "Price,Close\nTicker,A\nDate,\n2024-01-02,1\n"
    assert take(tmp_path, text).frame[["symbol", "close"]].to_numpy().tolist() == [["A", 1]]
    assert refused(tmp_path, text, columns={"close": "Close"}) == (
        "AAA.csv line 1: prices and tickers above each other: leave out source.columns"
    )


def test_when_only_closes_are_there_then_the_other_prices_are_absent(tmp_path: Path):
    raw = take(tmp_path, "Date,Close,Volume\n2024-01-02,11,100\n")
    assert raw.frame[["close", "volume"]].to_numpy().tolist() == [[11, 100]]
    assert raw.frame[["open", "high", "low"]].isna().all().all()
    assert take(tmp_path, "Date,Close\n2024-01-02,11\n").frame["volume"].isna().all()


def test_when_columns_are_named_then_they_go_before_what_would_be_recognised(tmp_path: Path):
    text = "day of trade,Close,settle,lots\n2024-01-02,1,2,3\n"
    columns = {"date": "day of trade", "close": "settle", "volume": "LOTS"}
    raw = take(tmp_path, text, columns=columns)
    assert raw.frame[["close", "volume"]].to_numpy().tolist() == [[2, 3]]
    assert refused(tmp_path, text, columns={"close": "setle"}) == (
        "AAA.csv is not a price table: it begins with 'day of trade,Close,settle,lots', and no line among its first 30 "
        "names columns such as Date, Open, High, Low, Close: fetch it again, or name its columns in source.columns"
    )
    assert refused(tmp_path, "Date,Close,settle\n2024-01-02,1,2\n", columns={"close": "setle"}) == (
        "AAA.csv line 1: source.columns close=setle: no such column: choose from settle"
    )


def test_when_close_is_named_to_be_adj_close_then_prices_still_have_one_basis(tmp_path: Path):
    text = "Date,Open,High,Low,Close,Adj Close\n2024-01-02,10,12,9,10,5\n"
    raw = take(tmp_path, text, columns={"close": "Adj Close"})
    assert raw.frame[["open", "high", "low", "close"]].to_numpy().tolist() == [[5, 6, 4.5, 5]]
    assert raw.basis.startswith("Adj Close")


def test_when_volume_is_that_of_the_base_then_the_pair_tells_which(tmp_path: Path):
    text = "unix,date,symbol,close,Volume USDT,Volume BTC\n1704153600,2024-01-02,BTC/USDT,11,1100,100\n"
    assert rows(take(tmp_path, text))[0][-1] == 100


def test_when_ticks_are_all_there_is_then_they_are_the_volume_and_it_is_said(tmp_path: Path):
    header = "<DATE>\t<OPEN>\t<HIGH>\t<LOW>\t<CLOSE>\t<TICKVOL>\t<VOL>\n"
    raw = take(tmp_path, header + "2024.01.02\t1\t1\t1\t1\t7\t0\n")
    assert raw.frame["volume"].tolist() == [7]
    assert raw.notes[0][2:] == ("volume", "volume is <TICKVOL>, a count of ticks; <VOL> is 0 throughout", "used")
    raw = take(tmp_path, header + "2024.01.02\t1\t1\t1\t1\t7\t9\n")
    assert raw.frame["volume"].tolist() == [9]
    assert raw.notes == ()


@pytest.mark.parametrize("levels", [["Price", "Ticker"], ["Ticker", "Price"]])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_when_yfinance_saves_several_tickers_then_each_has_its_bars(tmp_path: Path, levels: list[str], suffix: str):
    columns = pd.MultiIndex.from_product(
        [["Close", "High", "Low", "Open", "Volume"], ["LOW", "OPEN"]], names=["Price", "Ticker"]
    )
    index = pd.DatetimeIndex(["2024-01-02", "2024-01-03"], name="Date")
    table = pd.DataFrame([[11, 21, 12, 22, 9, 19, 10, 20, 100, 200], [np.nan, 31, *[np.nan, 30] * 4]], index, columns)
    table = table.reorder_levels(levels, axis=1)
    path = tmp_path / f"x.{suffix}"
    table.to_csv(path) if suffix == "csv" else table.to_parquet(path)
    raw = read(Options(path=(str(path),)))
    assert rows(raw) == [
        ["LOW", "2024-01-02", 10, 12, 9, 11, 100],
        ["OPEN", "2024-01-02", 20, 22, 19, 21, 200],
        ["OPEN", "2024-01-03", 30, 30, 30, 31, 30],
    ]


def test_when_a_first_row_has_no_date_then_it_is_no_line_of_tickers():
    header = ("Date", "Open", "High", "Low", "Close")
    assert two_levels(header, ("", "1.5", "2", "1", "$2")) is None
    assert two_levels(header, ("", "AAA", "AAA", "AAA", "AAA")) == (header, ("", "AAA", "AAA", "AAA", "AAA"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Adj Close**", "adjusted"),
        ("adjusted_close", "adjusted"),
        ("Close*", "close"),
        ("4. close", "close"),
        ("<VOL>", "volume"),
        ("Vol.", "volume"),
        ("Größe", None),
        ("C", None),
    ],
)
def test_when_names_vary_then_their_role_does_not(name: str, expected: str | None):
    assert role(name) == expected


def test_when_a_line_is_prose_then_it_is_no_header():
    assert not is_header(["Daily prices", "Open", ""])
    assert is_header(["Date", "Close"])
    assert normal(" Gmt time ") == "gmttime"


OHLCV = ("Open", "High", "Low", "Close", "Volume")


@pytest.mark.parametrize("copy", ["{}.1", "{}_1", "{} 1", "{}_duplicated_0"])
def test_second_symbol_beside_the_first_is_not_passed_over(tmp_path: Path, copy: str) -> None:
    header = ",".join(["Date", *OHLCV, *(copy.format(name) for name in OHLCV)])
    told = refused(tmp_path, f"{header}\n2024-01-02,10,12,9,11,100,20,22,19,21,100\n")
    assert copy.format("Close") in told
    assert "several symbols stand side by side" in told


@pytest.mark.parametrize("name", ["AAA.{}", "Bid {}", "{}_AAA", "mid_{}"])
@pytest.mark.parametrize("layout", [None, "wide"])
def test_prices_under_longer_names_are_refused_with_the_option_that_reads_them(
    tmp_path: Path, name: str, layout: str | None
) -> None:
    # As closes of the symbols AAA.Open and AAA.Volume they would train in silence.
    theirs = {one.lower(): name.format(one) for one in OHLCV}
    text = f"Date,{','.join(theirs.values())}\n2024-01-02,10,12,9,11,100\n"
    told = refused(tmp_path, text, layout=layout)
    pairs = ", ".join(f'{ours}: "{one}"' for ours, one in theirs.items())
    assert told.endswith(f"name them, as 'source.columns={{{pairs}}}'")
    assert ("leave out source.layout=wide" in told) == (layout == "wide")
    assert rows(take(tmp_path, text, columns=theirs)) == ONE


def test_prices_of_several_symbols_under_longer_names_are_refused(tmp_path: Path) -> None:
    names = [f"{one} {symbol}" for symbol in ("AAA", "BBB") for one in OHLCV[:4]]
    told = refused(tmp_path, f"Date,{','.join(names)}\n2024-01-02,10,12,9,11,20,22,19,21\n")
    assert "prices of several kinds or symbols" in told


def test_splits_that_only_adj_close_takes_out_are_told_for_the_volumes(tmp_path: Path) -> None:
    header = "Symbol,Date,Open,High,Low,Close,Adj Close,Volume\n"
    split = "AAA,2024-01-02,100,100,100,100,10,5\nBBB,2024-01-02,7,7,7,7,6.8,5\n"
    after = "AAA,2024-01-03,10,10,10,10,10,50\nBBB,2024-01-03,7,7,7,7,7,5\n"
    raw = take(tmp_path, header + split + after)
    assert raw.frame["close"].tolist() == [10, 6.8, 10, 7]
    [(symbol, _, kind, detail, _)] = raw.notes
    assert (symbol, kind) == ("AAA", "adj_close")
    assert "takes out: 1, first" in detail
    assert "line 4" in detail
