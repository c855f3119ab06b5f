import json
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import yahoo_server
from forecaster.bars import yahoo
from forecaster.bars.yahoo import Options, cache
from forecaster.bars.yahoo.stretch import Series
from forecaster.errors import ConfigError
from yahoo_case import CLOSES, DAYS, EVENING, NOON, dates, hourly, kinds, listing, read, refused
from yahoo_server import Reply, YahooServer

SYMBOLS = ("^GSPC", "EURUSD=X", "BRK-B", "M&M.NS", "NA", "TRUE", "005930.KS", "CON", "1E5")


def test_when_the_end_is_left_open_then_bars_go_to_the_last_finished_session(server: YahooServer, options: Options):
    raw, _ = read(replace(options, end=None), server)
    assert dates(raw) == DAYS


def test_when_nothing_can_have_come_then_nothing_is_asked_twice(server: YahooServer, options: Options):
    server.now = pd.Timestamp(NOON)
    first, _ = read(replace(options, end=None), server)
    server.now = pd.Timestamp("2024-05-10 20:10Z")
    again, _ = read(replace(options, end=None), server)
    part, _ = read(replace(options, start="2024-05-03", end="2024-05-07"), server)
    assert server.requests("AAA") == 1
    pd.testing.assert_frame_equal(first.frame, again.frame, check_exact=True)
    assert first.notes == again.notes
    assert dates(part) == DAYS[2:5]
    server.now = pd.Timestamp(EVENING)
    closed, _ = read(replace(options, end=None), server)
    assert server.requests("AAA") == 2
    assert dates(closed) == DAYS
    assert closed.notes == ()


def test_when_bars_are_refreshed_then_only_the_end_is_asked_for_and_the_bars_are_those_of_one_request(
    server: YahooServer, options: Options, tmp_path: Path
):
    server.listings["AAA"] = listing(dividends={"2024-05-02": 2.0})
    whole, _ = read(options, server)
    grown = replace(options, cache=str(tmp_path / "grown"))
    for start, end in (("2024-05-08", "2024-05-09"), ("2024-05-03", "2024-05-09"), ("2024-05-01", "2024-05-10")):
        raw, said = read(replace(grown, start=start, end=end), server)
        assert said == []
    pd.testing.assert_frame_equal(raw.frame, whole.frame, check_exact=True)
    series = Series("AAA", "1d", adjusted=True)
    left, right = (cache.read(raw.files[0], series, print), cache.read(whole.files[0], series, print))
    assert left
    assert right
    pd.testing.assert_frame_equal(left.frame, right.frame, check_exact=True)
    assert (left.first, left.last, left.scaled) == (right.first, right.last, right.scaled)


def test_when_newer_bars_are_missing_then_the_question_starts_five_bars_before_them(
    server: YahooServer, options: Options
):
    read(replace(options, end="2024-05-09"), server)
    read(options, server)
    [_, (_, query)] = server.asked
    # The fifth bar from the 9th backwards is that of the 3rd; asked from 14 hours before its UTC midnight.
    assert query["period1"] == str(int(pd.Timestamp("2024-05-02 10:00Z").timestamp()))


def test_when_a_later_dividend_rewrote_the_past_then_all_is_fetched_again_and_it_is_said(
    server: YahooServer, options: Options
):
    read(replace(options, end="2024-05-08"), server)
    server.listings["AAA"].dividends["2024-05-09"] = 2.1
    raw, said = read(options, server)
    np.testing.assert_allclose(raw.frame["close"][:6], np.array(CLOSES[:6]) * (1 - 2.1 / 105), rtol=1e-12)
    assert raw.frame["close"][6:].tolist() == CLOSES[6:]
    why = "a dividend or split of 2024-05-09 changed the prices before it"
    assert said == [f"Yahoo: AAA: {why}: all its bars were fetched again"]
    assert raw.notes == (("AAA", pd.Timestamp("2024-05-01"), "rewritten", why, "all bars fetched again"),)
    assert server.requests("AAA") == 3


def test_when_prices_differ_from_those_held_then_all_is_fetched_again(server: YahooServer, options: Options):
    read(replace(options, end="2024-05-09"), server)
    server.listings["AAA"] = listing([close / 2 for close in CLOSES])
    raw, said = read(options, server)
    assert raw.frame["close"].tolist() == [close / 2 for close in CLOSES]
    assert said == ["Yahoo: AAA: the open of 2024-05-03 is now 50.5 and was 102: all its bars were fetched again"]


def test_when_one_price_held_differs_by_a_fiftieth_of_a_percent_then_all_is_fetched_again(
    server: YahooServer, options: Options
):
    read(replace(options, end="2024-05-09"), server)
    server.listings["AAA"].bars["1d"].iloc[3, 3] *= 1.0002
    raw, said = read(options, server)
    assert raw.frame["close"][3] == 102 * 1.0002
    assert said == ["Yahoo: AAA: the close of 2024-05-06 is now 102.02 and was 102: all its bars were fetched again"]


def test_when_the_day_is_over_then_nothing_is_asked_before_the_next(server: YahooServer, options: Options):
    # 23:00 UTC is 19:00 in New York; the next day begins there at 04:00 UTC.
    for clock, requests in ((EVENING, 1), ("2024-05-11 03:59Z", 1), ("2024-05-11 04:00Z", 2)):
        server.now = pd.Timestamp(clock)
        read(replace(options, end=None), server)
        assert server.requests("AAA") == requests


def test_when_adjusted_prices_carry_noise_only_then_nothing_is_fetched_again(server: YahooServer, options: Options):
    read(replace(options, end="2024-05-09"), server)
    server.listings["AAA"].noise = 1e-5
    raw, said = read(options, server)
    assert (said, server.requests("AAA")) == ([], 2)
    np.testing.assert_allclose(raw.frame["close"], CLOSES, rtol=2e-5)


def test_when_one_of_three_fails_then_the_others_are_kept_unless_strict(server: YahooServer, options: Options):
    server.listings["BBB"] = listing([2 * close for close in CLOSES])
    three = replace(options, symbols=("AAA", "ZZZQ", "BBB"))
    raw, said = read(three, server)
    assert raw.frame["symbol"].tolist() == ["AAA"] * 8 + ["BBB"] * 8
    [(symbol, time, kind, detail, action)] = raw.notes
    assert (symbol, kind, action) == ("ZZZQ", "symbol_failed", "symbol left out")
    assert pd.isna(time)
    assert detail.startswith("Yahoo: ZZZQ: no such symbol")
    assert said == [f"{detail} (ZZZQ is left out)"]
    assert refused(replace(three, strict=True), server) == detail


def test_when_all_fail_then_the_first_error_counts_them(server: YahooServer, options: Options):
    text = refused(replace(options, symbols=("ZZZQ", "QQQZ")), server)
    assert text.startswith("Yahoo: ZZZQ: no such symbol")
    assert text.endswith("(0 of 2 symbols could be read)")


def test_when_the_service_stays_away_then_the_rest_is_not_asked_for_and_the_run_stops(
    server: YahooServer, options: Options
):
    many = [f"S{number}" for number in range(6)]
    for symbol in many:
        server.replies[symbol] = Reply(status=429, body="Too Many Requests")
    text = refused(replace(options, symbols=("AAA", *many)), server, pauses=(0.001,))
    assert text.startswith("Yahoo: S0: rate limited (HTTP 429)")
    assert text.endswith("(1 of 7 symbols could be read; those fetched are in the cache)")
    assert [server.requests(symbol) for symbol in many] == [4, 2, 2, 0, 0, 0]


def test_when_rate_limited_and_older_bars_are_held_then_they_are_used_with_a_note_unless_strict(
    server: YahooServer, options: Options
):
    read(replace(options, end="2024-05-08"), server)
    server.replies["AAA"] = Reply(status=429, body="Too Many Requests")
    raw, said = read(options, server)
    assert dates(raw) == DAYS[:6]
    [(_, time, kind, detail, action)] = raw.notes
    assert (time, kind, action) == (pd.Timestamp("2024-05-08"), "cache_outdated", "cached bars used")
    assert detail == (
        "bars up to 2024-05-08, fetched on 2024-05-10 23:00 UTC, no newer ones: "
        "Yahoo: AAA: rate limited (HTTP 429): wait some minutes, then run again"
    )
    assert said == [f"Yahoo: AAA: {detail}"]
    assert "rate limited" in refused(replace(options, strict=True), server)
    assert "rate limited" in refused(replace(options, start="2024-04-01"), server)


def test_when_symbols_are_odd_then_each_is_asked_for_as_written_and_has_its_own_file(
    server: YahooServer, options: Options
):
    for number, symbol in enumerate(SYMBOLS):
        server.listings[symbol] = listing([close + number for close in CLOSES])
    raw, _ = read(replace(options, symbols=SYMBOLS), server)
    assert raw.frame["symbol"].unique().tolist() == list(SYMBOLS)
    firsts = raw.frame.groupby("symbol")["close"].first()
    assert [firsts[symbol] for symbol in SYMBOLS] == [100 + number for number in range(len(SYMBOLS))]
    assert [symbol for symbol, _ in server.asked] == list(SYMBOLS)
    assert len({file.name.casefold() for file in raw.files}) == len(SYMBOLS)
    again, _ = read(replace(options, symbols=SYMBOLS), server)
    pd.testing.assert_frame_equal(raw.frame, again.frame, check_exact=True)


def test_when_a_symbol_is_in_small_letters_then_its_bars_keep_that_name(server: YahooServer, options: Options):
    raw, _ = read(replace(options, symbols=("aaa",)), server)
    assert raw.frame["symbol"].unique().tolist() == ["aaa"]
    assert [symbol for symbol, _ in server.asked] == ["AAA"]


def test_when_prices_are_in_pence_then_it_is_noted(server: YahooServer, options: Options):
    server.listings["AAA"].currency = "GBp"
    raw, _ = read(options, server)
    assert raw.notes == (
        ("AAA", pd.Timestamp("2024-05-01"), "minor_currency", "prices in GBp, hundredths of GBP", "kept"),
    )


@pytest.mark.parametrize(
    ("interval", "start", "first", "days"),
    [
        ("1min", "2024-04-11", "2024-04-11", 30),
        ("5min", "2024-03-12", "2024-03-12", 60),
        ("30min", "2024-03-12", "2024-03-12", 60),
        ("1h", "2022-05-12", "2022-05-12", 730),
    ],
)
def test_when_intraday_bars_are_too_old_for_yahoo_then_the_first_date_possible_is_named(
    server: YahooServer, options: Options, interval: str, start: str, first: str, days: int
):
    early = str((pd.Timestamp(start) - pd.Timedelta(days=1)).date())
    with pytest.raises(ConfigError) as raised:
        read(replace(options, interval=interval, start=early), server)
    assert str(raised.value) == (
        f"source.start={early}: Yahoo has bars of {interval} for {days} days back only: "
        f"the first date possible is {first}"
    )
    assert server.asked == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"interval": "4h"}, "source.interval=4h: Yahoo has 1min, 2min, 5min, 15min, 30min, 90min, 1h, 1d: choose"),
        ({"start": "2024-13-01"}, "source.start=2024-13-01: no date: write it as 2020-01-31"),
        ({"start": "2024-05-11"}, "source.start=2024-05-11: after source.end=2024-05-10: give an earlier date"),
        ({"start": "2024-06-01", "end": None}, "source.start=2024-06-01: after today: give an earlier date"),
        ({"symbols": ()}, "source.symbols: no symbol given"),
        ({"symbols": ("A/B",)}, "source.symbols: 'A/B' is no symbol of Yahoo's"),
        ({"symbols": ("AAA", "aaa")}, "source.symbols: AAA and aaa are one symbol to Yahoo: name it once"),
    ],
)
def test_when_options_can_not_be_met_then_the_error_names_the_option(
    server: YahooServer, options: Options, change: dict[str, object], text: str
):
    with pytest.raises(ConfigError) as raised:
        read(replace(options, **change), server)  # pyright: ignore
    assert str(raised.value).startswith(text)
    assert server.asked == []


def test_when_older_bars_are_missing_then_only_they_are_asked_for_and_compared(server: YahooServer, options: Options):
    read(replace(options, start="2024-05-03"), server)
    raw, said = read(options, server)
    assert dates(raw) == DAYS
    assert said == []
    # The fifth bar held is that of the 9th; asked to noon of the day after.
    assert server.asked[-1][1]["period2"] == str(int(pd.Timestamp("2024-05-10 12:00Z").timestamp()))
    server.listings["AAA"] = listing([close / 2 for close in CLOSES])
    raw, said = read(replace(options, start="2024-04-29"), server)
    assert raw.frame["close"].tolist() == [close / 2 for close in CLOSES]
    assert len(said) == 1


def test_when_dividends_are_not_in_the_prices_then_a_later_one_rewrites_nothing_but_a_split_does(
    server: YahooServer, options: Options
):
    plain = replace(options, auto_adjust=False)
    read(replace(plain, end="2024-05-07"), server)
    server.listings["AAA"].dividends["2024-05-08"] = 2.0
    _, said = read(replace(plain, end="2024-05-08"), server)
    assert (said, server.requests("AAA")) == ([], 2)
    server.listings["AAA"] = listing([close / 4 for close in CLOSES], splits={"2024-05-09": (4, 1)})
    raw, said = read(plain, server)
    assert raw.frame["close"].tolist() == [close / 4 for close in CLOSES]
    assert said == [
        "Yahoo: AAA: a dividend or split of 2024-05-09 changed the prices before it: all its bars were fetched again"
    ]


def test_when_a_dividend_is_of_today_then_all_is_fetched_again_only_once(server: YahooServer, options: Options):
    server.now = pd.Timestamp("2024-05-09 23:00Z")
    read(options, server)
    server.now = pd.Timestamp(NOON)
    server.listings["AAA"].dividends["2024-05-10"] = 3.0
    morning, said = read(options, server)
    assert len(said) == 1
    server.now = pd.Timestamp(EVENING)
    evening, said = read(options, server)
    assert said == []
    assert (len(morning.frame), len(evening.frame)) == (7, 8)
    np.testing.assert_allclose(evening.frame["close"][:7], np.array(CLOSES[:7]) * (1 - 3 / 107), rtol=1e-12)


def test_when_the_held_file_is_damaged_then_it_is_said_and_all_is_fetched(server: YahooServer, options: Options):
    whole, _ = read(options, server)
    [file] = whole.files
    file.write_text("<html>")
    raw, said = read(options, server)
    assert len(said) == 1
    assert "no good cache of AAA" in said[0]
    pd.testing.assert_frame_equal(raw.frame, whole.frame, check_exact=True)
    assert server.requests("AAA") == 2
    _, said = read(options, server)
    assert (said, server.requests("AAA")) == ([], 2)


def test_when_hours_are_refreshed_then_the_bars_are_those_of_one_request(
    server: YahooServer, options: Options, tmp_path: Path
):
    server.listings["AAA"].bars["60m"] = hourly(DAYS)
    grown = replace(options, interval="1h", end=None)
    for clock in ("2024-05-07 16:00Z", "2024-05-07 23:00Z", NOON, EVENING):
        server.now = pd.Timestamp(clock)
        # The server knows the future, and Yahoo does not.
        server.listings["AAA"].bars["60m"] = hourly(DAYS)[lambda bars: bars.index <= server.now]
        raw, said = read(grown, server)
        assert said == []
    whole, _ = read(replace(grown, cache=str(tmp_path / "whole")), server)
    pd.testing.assert_frame_equal(raw.frame, whole.frame, check_exact=True)
    assert len(raw.frame) == 7 * len(DAYS)
    assert server.requests("AAA") == 5


def test_when_minutes_are_held_that_yahoo_no_longer_has_then_they_are_used_and_a_gap_is_not_bridged(
    server: YahooServer, options: Options
):
    server.listings["AAA"].bars["15m"] = hourly(DAYS)
    quarter = replace(options, interval="15min", start="2024-05-01", end="2024-05-10")
    raw, _ = read(quarter, server)
    server.now = pd.Timestamp("2024-07-05 23:00Z")
    later, _ = read(quarter, server)
    pd.testing.assert_frame_equal(raw.frame, later.frame, check_exact=True)
    assert server.requests("AAA") == 1
    # Sixty days before the 5th of August is the 6th of June; the bars held end in May.
    server.now = pd.Timestamp("2024-08-05 23:00Z")
    server.listings["AAA"].bars["15m"] = hourly(["2024-07-01", "2024-07-02"])
    with pytest.raises(ConfigError, match=r"the first date possible is 2024-06-07$"):
        read(replace(quarter, end="2024-07-02"), server)
    raw, said = read(replace(quarter, start="2024-07-01", end="2024-07-02"), server)
    assert len(raw.frame) == 14
    why = "the bars held end on 2024-05-10, before the first that Yahoo still has"
    assert said == [f"Yahoo: AAA: {why}: all its bars were fetched again"]


def test_when_a_split_rewrote_minutes_that_yahoo_no_longer_has_then_the_first_date_possible_is_named(
    server: YahooServer, options: Options
):
    quarter = replace(options, interval="15min", end=None)
    server.listings["AAA"].bars["15m"] = hourly(DAYS)
    read(quarter, server)
    server.now = pd.Timestamp("2024-07-05 23:00Z")
    split = hourly([*DAYS, "2024-07-05"]) / 2
    server.listings["AAA"].bars["15m"] = split
    with pytest.raises(ConfigError) as raised:
        read(quarter, server)
    assert str(raised.value) == (
        "source.start=2024-05-01: AAA: the open of 2024-05-10 is now 74 and was 148, "
        "and Yahoo has bars of 15min from 2024-05-07 on only: start there"
    )
    raw, _ = read(replace(quarter, start="2024-05-07"), server)
    assert raw.frame["close"].tolist() == split["close"].tolist()[28:]


READ = """
import json, sys
import pandas as pd
from forecaster.bars import yahoo
options = json.loads(sys.argv[1])
raw = yahoo.read(yahoo.Options(**options | {"symbols": tuple(options["symbols"])}), pd.Timestamp(sys.argv[2]))
print(len(raw.frame), raw.frame["close"].sum())
"""


def test_when_two_processes_ask_at_once_then_each_symbol_is_asked_for_once(server: YahooServer, options: Options):
    server.listings["BBB"] = listing()
    for symbol in ("AAA", "BBB"):
        server.replies[symbol] = Reply(delay=0.3, times=1)
    asked = json.dumps(replace(options, symbols=("AAA", "BBB")).__dict__)
    started = [
        subprocess.Popen(
            yahoo_server.program(server.url, READ, asked, EVENING), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]
    for process in started:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, b"")
        assert out.split() == [b"16", b"1656.0"]
    assert (server.requests("AAA"), server.requests("BBB")) == (1, 1)
    assert len(list(Path(options.cache).glob("*.parquet"))) == 2


@pytest.mark.network
def test_when_asked_for_real_then_yahoo_answers(options: Options):
    raw = yahoo.read(replace(options, symbols=("^GSPC", "EURUSD=X", "BRK-B"), start="2024-01-02", end="2024-01-31"))
    sessions = raw.frame.groupby("symbol")["time"].count()
    assert sessions["^GSPC"] == sessions["BRK-B"] == 21
    np.testing.assert_allclose(raw.frame.query("symbol == '^GSPC'")["close"].iloc[0], 4742.83, atol=0.01)
    assert not [kind for kind in kinds(raw) if kind == "symbol_failed"]
