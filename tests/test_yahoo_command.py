"""Yahoo Finance through the command line: every way an answer can fail has a line and an exit code of its own."""

import functools
import json
import re
import subprocess
from collections.abc import Callable, Generator
from pathlib import Path

import pandas as pd
import pytest

import yahoo_server
from forecaster import cli
from forecaster.bars import yahoo
from forecaster.bars.calendar import Calendar
from yahoo_server import Listing, Reply, YahooServer, daily

ODD = ["NA", "TRUE", "NULL", "1E5", "005930", "^GSPC", "EURUSD=X", "BRK-B", "M&M.NS"]


def listing(count: int = 400, start: float = 100.0) -> Listing:
    days = Calendar("XNYS").sessions("2020-01-02", "2024-05-10")[-count:]
    closes = {str(day.date()): start + (7 * number) % 11 for number, day in enumerate(days)}
    return Listing({"1d": daily(closes)})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Generator[YahooServer]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(yahoo, "read", functools.partial(yahoo.read, pauses=(), timeout=0.5))
    with yahoo_server.served(str(pd.Timestamp.now("UTC"))) as found:
        yahoo_server.point(found.url, monkeypatch.setattr)
        found.listings["AAA"] = listing()
        yield found


Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """`forecaster bars source=yahoo ...` in this process: exit code, stdout, the last line of stderr."""

    def run(symbols: str, *options: str) -> tuple[int, str, str]:
        dates = ["source.start=2023-01-01", "source.end=2024-05-10"]
        given = ["forecaster", "bars", "source=yahoo", f"source.symbols=[{symbols}]", *dates, *options]
        monkeypatch.setattr("sys.argv", given)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        assert "Traceback" not in printed.err
        return ended.value.code, printed.out, printed.err.splitlines()[-1] if printed.err else ""

    return run


def test_bars_are_shown_and_asked_for_once(server: YahooServer, ask: Ask) -> None:
    for _ in range(2):
        code, out, _ = ask("AAA")
        assert code == 0
        assert "1 symbol, 341 bars of 1d, calendar XNYS" in out
        assert "prices: Yahoo auto_adjust=true" in out
    assert server.requests("AAA") == 1


FAULTS = {
    "rate limited": (Reply(429, "Too Many Requests"), r"Yahoo: AAA: rate limited \(HTTP 429\)"),
    "unknown": (Reply(404, yahoo_server.refusal(**yahoo_server.NOT_FOUND)), r"Yahoo: AAA: no such symbol"),
    "web page": (Reply(200, "<html>maintenance</html>"), r"Yahoo: AAA: the answer \(HTTP 200\) is a web page"),
    "broken": (Reply(200, '{"chart": {"result": [{"meta"'), r"Yahoo: AAA: the answer \(HTTP 200\) is broken JSON"),
    "slow": (Reply(delay=1.5), r"Yahoo: AAA: no answer within 0\.5 s"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_has_its_own_line_and_is_not_cached(server: YahooServer, ask: Ask, fault: str) -> None:
    reply, expected = FAULTS[fault]
    server.replies["AAA"] = reply
    code, out, told = ask("AAA")
    assert (code, out) == (3, "")
    assert re.match(f"error: {expected}", told), told
    server.replies.clear()
    assert ask("AAA")[0] == 0


def test_empty_answer_says_that_these_dates_have_no_bars(server: YahooServer, ask: Ask) -> None:
    code, _, told = ask("AAA", "source.start=1990-01-01", "source.end=1990-02-01")
    assert (code, told.startswith("error: Yahoo: AAA: no bars from 1990-01-01 to 1990-02-01")) == (3, True)


def test_no_network_is_told_as_such(server: YahooServer, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    yahoo_server.point("http://127.0.0.1:1", monkeypatch.setattr)
    code, _, told = ask("AAA")
    assert (code, told.startswith("error: Yahoo: AAA: no network: ")) == (3, True)


def test_intraday_limits_are_a_usage_error_before_anything_is_asked(server: YahooServer, ask: Ask) -> None:
    code, _, told = ask("AAA", "source.interval=5min")
    assert code == 2
    assert "Yahoo has bars of 5min for 60 days back only: the first date possible is" in told
    assert server.asked == []


def test_one_failed_symbol_is_named_and_the_others_kept_unless_strict(server: YahooServer, ask: Ask) -> None:
    code, out, _ = ask("AAA,ZZZQ")
    assert code == 0
    assert "symbol_failed: ZZZQ" in out
    assert "symbol left out" in out
    code, _, told = ask("AAA,ZZZQ", "source.strict=true")
    assert code == 3
    assert "ZZZQ" in told


def test_odd_symbols_are_asked_for_as_they_are(server: YahooServer, ask: Ask) -> None:
    for symbol in ODD:
        server.listings[symbol] = listing()
    code, out, _ = ask(",".join(f'"{symbol}"' for symbol in ODD))
    assert code == 0
    assert {line.split()[0] for line in out.splitlines()[3:12]} == set(ODD)
    assert {symbol for symbol, _ in server.asked} == set(ODD)


def test_training_on_yahoo_writes_its_basis_and_evaluates_without_the_network(
    server: YahooServer, tmp_path: Path
) -> None:
    given = ["experiment=smoke", "source=yahoo", "source.symbols=[AAA]", "source.start=2022-01-01"]
    more = ["source.end=2024-05-10", "trainer.max_epochs=1", "probes=off", "hydra.run.dir=run"]
    for arguments in (["train", *given, *more], ["evaluate", "run=run"]):
        program = yahoo_server.program(server.url, yahoo_server.COMMAND, *arguments)
        done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert server.requests("AAA") == 1
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["basis"].startswith("Yahoo auto_adjust=true")


def test_two_processes_at_once_make_one_request_for_each_symbol(server: YahooServer, tmp_path: Path) -> None:
    for symbol in ("BBB", "CCC"):
        server.listings[symbol] = listing()
        server.replies[symbol] = Reply(delay=0.3)
    given = ["bars", "source=yahoo", "source.symbols=[AAA,BBB,CCC]", "source.start=2023-01-01", "source.end=2024-05-10"]
    program = yahoo_server.program(server.url, yahoo_server.COMMAND, *given)
    pipe = subprocess.PIPE
    both = [subprocess.Popen(program, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True) for _ in range(2)]
    outputs = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert outputs[0] == outputs[1]
    assert [server.requests(symbol) for symbol in ("AAA", "BBB", "CCC")] == [1, 1, 1]
