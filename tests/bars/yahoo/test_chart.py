import json
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from curl_cffi.requests.exceptions import Timeout

import yahoo_server
from forecaster.bars import yahoo
from forecaster.bars.yahoo import Options, chart
from forecaster.errors import DataError
from yahoo_case import DAYS, NOON, dates, hourly, listing, read, refused
from yahoo_server import Reply, YahooServer


def test_when_rate_limited_for_ever_then_it_is_tried_again_and_the_error_says_so(server: YahooServer, options: Options):
    server.replies["AAA"] = Reply(status=429, body="Too Many Requests")
    said: list[str] = []
    with pytest.raises(DataError, match=r"^Yahoo: AAA: rate limited \(HTTP 429\): wait some minutes, then run again$"):
        yahoo.read(options, server.now, said.append, (0.001, 0.002))
    assert said[:2] == [
        f"Yahoo: AAA: rate limited (HTTP 429): wait some minutes, then run again (asking again in {pause} s)"
        for pause in ("0.001", "0.002")
    ]
    # Three tries, and yfinance asks twice in each.
    assert server.requests("AAA") == 6
    assert not list(Path(options.cache).glob("*.parquet"))


def test_when_rate_limited_once_then_the_bars_come_after_the_pause(server: YahooServer, options: Options):
    server.replies["AAA"] = Reply(status=429, body="Too Many Requests", times=2)
    raw, said = read(options, server, pauses=(0.001,))
    assert dates(raw) == DAYS
    assert len(said) == 1


def test_when_yahoo_does_not_know_the_symbol_then_it_is_not_tried_again(server: YahooServer, options: Options):
    text = refused(replace(options, symbols=("ZZZQ",)), server, pauses=(60.0,))
    assert text == (
        "Yahoo: ZZZQ: no such symbol (Yahoo: No data found, symbol may be delisted): correct it in source.symbols"
    )


def test_when_nothing_listens_then_the_error_is_the_networks(
    server: YahooServer, options: Options, monkeypatch: pytest.MonkeyPatch
):
    yahoo_server.point("http://127.0.0.1:9", monkeypatch.setattr)
    text = refused(options, server, pauses=(0.001,))
    assert text.startswith("Yahoo: AAA: no network: Failed to connect to 127.0.0.1:9 ")
    assert text.endswith(": check the connection and any proxy")
    assert "curl" not in text


def test_when_the_answer_is_slow_then_the_error_says_for_how_long_it_was_awaited(server: YahooServer, options: Options):
    server.replies["AAA"] = Reply(delay=2)
    text = refused(options, server, timeout=0.2)
    assert text == "Yahoo: AAA: no answer within 0.2 s: the network or Yahoo is slow; run again later"


def test_when_the_cookie_is_slow_then_it_is_hardly_waited_for(server: YahooServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(chart, "COOKIE_TIMEOUT", 0.1)
    server.replies["getcrumb"] = Reply(delay=2)
    with pytest.raises(Timeout):
        chart._listener().get(f"{server.url}/v1/test/getcrumb", timeout=30)


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (
            Reply(body="<html><body>Will be right back</body></html>"),
            "the answer (HTTP 200) is a web page, not bars: Yahoo is down or a proxy answers: run again later",
        ),
        (
            Reply(status=502, body="<html>Bad Gateway</html>"),
            "the answer (HTTP 502) is a web page, not bars: Yahoo is down or a proxy answers: run again later",
        ),
        (
            Reply(body='{"chart": {"result": [{"meta'),
            (
                "the answer (HTTP 200) is broken JSON "
                "(Unterminated string starting at: line 1 column 24 (char 23)): run again"
            ),
        ),
        (Reply(body='{"finance": 1}'), """the answer (HTTP 200) is JSON but no chart: '{"finance": 1}': run again"""),
        (Reply(body="[]"), "the answer (HTTP 200) is JSON but no chart: '[]': run again"),
        (
            Reply(body=yahoo_server.refusal("Bad Request", "Data doesn't exist for startDate = 1, endDate = 2")),
            (
                "no bars from 2024-05-01 to 2024-05-10 "
                "(Yahoo: Data doesn't exist for startDate = 1, endDate = 2): give other dates"
            ),
        ),
        (
            Reply(status=422, body=yahoo_server.refusal("Unprocessable Entity", "Invalid input - interval=1d")),
            "Yahoo refuses (HTTP 422): Invalid input - interval=1d",
        ),
    ],
    ids=["html", "gateway", "cut", "no_chart", "list", "no_data", "refused"],
)
def test_when_the_answer_is_not_bars_then_the_error_says_what_it_is(
    server: YahooServer, options: Options, reply: Reply, text: str
):
    server.replies["AAA"] = reply
    assert refused(options, server, pauses=(60.0,)) == f"Yahoo: AAA: {text}"
    assert not list(Path(options.cache).glob("*.parquet"))


def test_when_the_range_has_no_session_then_the_error_names_it_and_nothing_is_kept(
    server: YahooServer, options: Options
):
    # The question reaches half a day further, as the exchange's zone is not known: Friday's bar comes along.
    weekend = refused(replace(options, start="2024-05-04", end="2024-05-05"), server)
    assert weekend.endswith(
        "no bars from 2024-05-04 to 2024-05-05 (the answer has none of these dates): give other dates"
    )
    text = refused(replace(options, start="2024-04-06", end="2024-04-07"), server)
    assert text == "Yahoo: AAA: no bars from 2024-04-06 to 2024-04-07 (Yahoo's answer is empty): give other dates"
    assert not list(Path(options.cache).glob("*.parquet"))


def test_when_only_todays_unfinished_bar_is_there_then_the_error_says_so(server: YahooServer, options: Options):
    server.now = pd.Timestamp(NOON)
    text = refused(replace(options, start="2024-05-10"), server)
    assert "no bars from 2024-05-10 to 2024-05-10 (only partial_last: the session was not over" in text


def test_when_the_answer_is_of_another_symbol_or_interval_then_it_is_refused(server: YahooServer, options: Options):
    server.listings["AAA"] = listing(meta={"symbol": "BBB"})
    assert refused(options, server).startswith("Yahoo: AAA: the answer is of 'BBB': ")
    server.listings["AAA"] = listing(meta={"dataGranularity": "1mo"})
    assert "asked for bars of 1d, the answer has '1mo'" in refused(options, server)


def test_when_minutes_span_weeks_then_no_request_spans_more_than_seven_days(server: YahooServer, options: Options):
    stamps = pd.DatetimeIndex([pd.Timestamp(f"{day} 13:{minute}Z") for day in DAYS for minute in (30, 31, 32)])
    server.listings["AAA"].bars["1m"] = yahoo_server.bars(stamps, [float(row + 50) for row in range(24)])
    raw, _ = read(replace(options, interval="1min", start="2024-04-20"), server)
    assert raw.frame["time"].tolist() == list(stamps)
    spans = [int(query["period2"]) - int(query["period1"]) for _, query in server.asked]
    assert len(spans) == 4
    assert max(spans) <= 7 * 86400


def changed(part: object, value: object) -> Generator[object]:
    """The JSON with each of its parts replaced by the value in turn, and with each left out."""
    if isinstance(part, dict):
        for name, inner in part.items():
            yield part | {name: value}
            yield {other: part[other] for other in part if other != name}
            for below in changed(inner, value):
                yield part | {name: below}
    elif isinstance(part, list):
        for row, inner in enumerate(part[:2]):
            for below in changed(inner, value):
                yield [*part[:row], below, *part[row + 1 :]]


@pytest.mark.parametrize(("interval", "value"), [("1d", None), ("1h", "text"), ("1d", 10**30)])
def test_when_any_part_of_the_answer_is_missing_or_odd_then_the_error_is_one_line(
    server: YahooServer, options: Options, interval: str, value: object
):
    server.listings["AAA"] = listing(dividends={"2024-05-07": 2.0}, splits={"2024-05-03": (2, 1)})
    server.listings["AAA"].bars["60m"] = hourly(["2024-05-09", "2024-05-10"])
    query = {"interval": {"1d": "1d", "1h": "60m"}[interval], "period1": "1714500000", "period2": "1715500000"}
    _, good = server.answer("AAA", query)
    errors: set[str] = set()
    for number, odd in enumerate(changed(json.loads(good), value)):
        server.replies["AAA"] = Reply(body=json.dumps(odd))
        try:
            raw, _ = read(replace(options, interval=interval, cache=f"{options.cache}/{number}"), server)
        except DataError as error:
            errors.add(str(error))
        else:
            assert len(raw.frame) == {"1d": 8, "1h": 14}[interval] or raw.notes
    assert len(errors) > 5
    assert all(error.startswith("Yahoo: AAA: ") and "\n" not in error for error in errors)
