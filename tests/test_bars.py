"""`forecaster bars`: what each kind of file comes to, through the command line."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from forecaster import cli

CASES = Path(__file__).parent / "cases"


class Ended(NamedTuple):
    code: int
    out: str
    err: str


Bars = Callable[..., Ended]


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bars:
    """The verb in this process: exit code, what it printed and what it said on stderr."""

    def run(*arguments: str) -> Ended:
        monkeypatch.setattr("sys.argv", ["forecaster", "bars", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        assert printed.err.count("\n") == (1 if ended.value.code else 0)
        assert "Traceback" not in printed.err
        return Ended(ended.value.code, printed.out, printed.err)

    return run


def case(bars: Bars, name: str, *options: str) -> Ended:
    [path] = CASES.glob(f"{name}_*")
    return bars("source=files", f'source.path="{path}"', *options)


@pytest.fixture
def frame(bars: Bars) -> Callable[..., pd.DataFrame]:
    """The bars that a case is loaded as."""
    from forecaster.compose import configured
    from forecaster.data import load_bars

    def load(name: str, *options: str) -> pd.DataFrame:
        [path] = CASES.glob(f"{name}_*")
        given = ["~experiment", "experiment_name=bars", "source=files", f'source.path="{path}"', *options]
        return load_bars(configured(given).source).frame

    return load


# outcome of EXPECTED.csv, what stdout holds (regular expressions), what the line on stderr holds
OUTCOMES: dict[str, tuple[int, Sequence[str], Sequence[str]]] = {
    "01": (0, [r"160 2023-06-01 2024-01-19", "quality: nothing to report"], []),
    "02": (0, [r"160 2023-06-01", "prices: Adj Close; open, high and low scaled with it"], []),
    "03": (0, [r"ACME\.US +40 2023-06-01 2023-07-28"], []),
    "05": (0, [r" 60 2023-06-01", "preamble: .* lines 1 to 3", "footer: .* line 65: 'Total rows,60"], []),
    "06": (0, [r" 96 2024-12-30 00:00Z 2025-01-02 23:00Z", "bars of 1h"], []),
    "08": (3, [], ["Open, High, Low, Close", "';'", r"source\.sep=';' source\.decimal=',' source\.thousands='\.'"]),
    "10": (0, [r" 40 2023-06-01 2023-07-28"], []),
    "11": (0, [r"160 2023-06-01 2024-01-19", "unsorted +1 +1 sorted"], []),
    "12": (0, [r"160 2023-06-01", "duplicate +3 +1 dropped"], []),
    "14": (0, [r" 28 2024-03-07 14:30Z 2024-03-12 19:30Z", "quality: nothing"], []),
    "16": (3, [], ["line 7", "mixed time zones"]),
    "18": (
        0,
        [r"160 2023", "phantom +3 +1 kept", "2023-07-10", "2023-09-12", "2023-11-17", "flat bar with volume 0"],
        [],
    ),
    "19": (0, [r"160 2023", "missing_volume +3 +1 read as 0", "2023-06-15", "2023-06-16", "2023-10-10"], []),
    "21": (3, ["split +1 +1 stop"], ["2023-09-26", r"ratio 0\.09951, near 1/10", r"source\.on_error=adjust"]),
    "22": (3, ["spike +3 +1 stop"], ["2023-07-20", "2023-07-21", "2023-10-19", "100 times the bars around"]),
    "24": (3, ["non_positive +3 +1 stop"], ["2023-08-28", "2023-08-29", "2023-10-24", r"close -37\.63"]),
    "26": (0, [r"155 2023", "gap: .* 2023-09-21: sessions without a bar: 5, since 2023-09-13: kept"], []),
    "28": (3, [], ["several symbols that keep different weeks", r"source\.symbols=\[\"AAA\",\"BBB\"\]"]),
    "29": (0, [r"AAA +42 2024-03-01 2024-04-29"], []),
    "31": (0, [r" 40 2023-06-01"], []),
    "32": (3, [], [r"32_empty\.csv is empty"]),
    "33": (3, [], [r"0 rows in \S*33_header_only\.csv"]),
    "34": (3, [], ["no column Close; found Date, Open, High, Low, Volume"]),
    "36": (3, ["unreadable +3", "missing_price +1"], ["line 46: Close '-' can't be read", "line 47: Volume 'halted'"]),
    "38": (0, [r"AAA +160", r"NEWCO +9", r"too_short: NEWCO .*: 9 bars < 67 .*: symbol left out"], []),
    "39": (0, [r"160 2023", "weekend +6 +1 dropped"], []),
    "41": (0, [r"160 2023", "flat: ", "constant"], []),
    "43": (
        0,
        [
            "7 symbols, 84 bars",
            *(rf"^{name} +12 " for name in ("005930", "1E5", r"BRK\.B", "NA", "NAN", "NULL", "TRUE")),
        ],
        [],
    ),
    "46": (3, [], ["is not a price table"]),
    "49": (0, [r" 60 2023-06-01 2023-08-25", "quality: nothing"], []),
}


@pytest.mark.parametrize("name", sorted(OUTCOMES))
def test_every_file_comes_to_what_is_expected_of_it(bars: Bars, name: str) -> None:
    code, printed, told = OUTCOMES[name]
    ended = case(bars, name)
    assert ended.code == code, ended
    for pattern in printed:
        assert re.search(pattern, ended.out, re.MULTILINE), (pattern, ended.out)
    for pattern in told:
        assert re.search(pattern, ended.err), (pattern, ended.err)


def test_every_file_is_expected_of() -> None:
    files = {path.name[:2] for path in CASES.glob("[0-9]*")}
    assert files == set(OUTCOMES)


@pytest.mark.parametrize("name", ["11", "12", "39"])
def test_what_is_mended_equals_the_clean_file(frame: Callable[..., pd.DataFrame], name: str) -> None:
    pd.testing.assert_frame_equal(frame(name).drop(columns="symbol"), frame("01").drop(columns="symbol"))


@pytest.mark.parametrize("name", ["21", "22"])
def test_what_is_adjusted_equals_the_clean_file_but_for_rounding(frame: Callable[..., pd.DataFrame], name: str) -> None:
    adjusted = frame(name, "source.on_error=adjust").drop(columns="symbol")
    pd.testing.assert_frame_equal(adjusted, frame("01").drop(columns="symbol"), rtol=6e-4, check_exact=False)


def test_parquet_with_a_zoned_index_holds_the_sessions_of_the_clean_file(frame: Callable[..., pd.DataFrame]) -> None:
    pd.testing.assert_frame_equal(frame("49").drop(columns="symbol"), frame("01").drop(columns="symbol").head(60))


def test_adjusted_prices_are_on_one_basis(frame: Callable[..., pd.DataFrame]) -> None:
    found, plain = frame("02"), pd.read_csv(next(CASES.glob("02_*")))
    ratio = plain["Adj Close"] / plain["Close"]
    for column in ("Open", "High", "Low", "Close"):
        np.testing.assert_allclose(found[column.lower()], plain[column] * ratio, rtol=1e-12)
    assert (found["high"] >= found["close"]).all()


def test_hours_over_a_clock_change_keep_their_local_time(frame: Callable[..., pd.DataFrame]) -> None:
    local = frame("14")["time"].dt.tz_convert("America/New_York")
    assert set(local.dt.minute) == {30}
    assert set(local.groupby(local.dt.date).min().dt.hour) == {9}


def test_european_file_is_read_with_its_signs(frame: Callable[..., pd.DataFrame]) -> None:
    found = frame("08", 'source.sep=";"', 'source.decimal=","', 'source.thousands="."')
    assert (len(found), found["close"].iloc[0]) == (60, 1200.36)


def test_several_tickers_of_one_kind_are_chosen(frame: Callable[..., pd.DataFrame]) -> None:
    found = frame("28", "source.symbols=[AAA,BBB]")
    assert found["symbol"].value_counts().to_dict() == {"AAA": 42, "BBB": 42}
    assert len(frame("28", "source.symbols=[CCC-USD]")) == 60


SYMBOLS = ["NA", "TRUE", "NULL", "1E5", "005930", "^GSPC", "EURUSD=X", "BRK-B", "M&M.NS"]


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A file with a symbol column of symbols that look like values or carry signs."""
    table = pd.read_csv(next(CASES.glob("01_*")))
    path = tmp_path / "odd.csv"
    pd.concat([table.assign(Symbol=symbol) for symbol in SYMBOLS]).to_csv(path, index=False)
    return path


def test_odd_symbols_are_text_from_a_column_a_list_and_a_file(bars: Bars, odd: Path, tmp_path: Path) -> None:
    listed = tmp_path / "symbols.txt"
    listed.write_text("# mine\n" + "\n".join(SYMBOLS) + "\n", encoding="utf-8")
    quoted = ",".join(f'"{symbol}"' for symbol in SYMBOLS)
    for options in ([], [f"source.symbols=[{quoted}]"], [f"source.symbols_file={listed}"]):
        ended = bars("source=files", f"source.path={odd}", *options)
        assert ended.code == 0, ended
        for symbol in SYMBOLS:
            assert re.search(rf"^{re.escape(symbol)} +160 ", ended.out, re.MULTILINE), ended.out


def test_odd_symbols_are_text_from_file_names(bars: Bars, tmp_path: Path) -> None:
    for symbol in SYMBOLS:
        (tmp_path / f"{symbol}.csv").write_text(next(CASES.glob("01_*")).read_text())
    ended = bars("source=files", f"source.path={tmp_path}")
    assert ended.code == 0
    for symbol in SYMBOLS:
        assert re.search(rf"^{re.escape(symbol)} +160 ", ended.out, re.MULTILINE), ended.out


def test_unquoted_symbols_are_refused_with_their_quotes(bars: Bars, odd: Path) -> None:
    ended = bars("source=files", f"source.path={odd}", "source.symbols=[NA,TRUE,1E5]")
    assert ended.code == 2
    assert """'source.symbols=["NA","TRUE","1E5"]'""" in ended.err


def test_missing_symbols_file_is_told(bars: Bars, odd: Path, tmp_path: Path) -> None:
    ended = bars("source=files", f"source.path={odd}", f"source.symbols_file={tmp_path / 'none.txt'}")
    assert (ended.code, "none.txt can't be read" in ended.err) == (2, True)


def test_report_is_written_where_asked_also_when_a_run_would_stop(bars: Bars, tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    ended = case(bars, "22", f"quality={path}")
    assert ended.code == 3
    table = pd.read_csv(path)
    assert table.columns.tolist() == ["symbol", "time", "kind", "detail", "action"]
    assert table["action"].tolist() == ["stop"] * 3


def test_bundled_bars_are_shown_too(bars: Bars) -> None:
    ended = bars("source=bundled")
    assert ended.code == 0
    assert "2 symbols, 10,062 bars of 1d, calendar XNYS" in ended.out
    assert re.search(r"windows of 64 bars: train [\d,]+", ended.out)
