from dataclasses import replace

import numpy as np
import pandas as pd

import yahoo_server
from forecaster.bars.yahoo import Options
from yahoo_case import CLOSES, DAYS, NOON, dates, hourly, kinds, listing, read
from yahoo_server import Listing, YahooServer, daily


def test_when_bars_are_daily_then_both_ends_are_included_and_one_request_was_made(
    server: YahooServer, options: Options
):
    raw, _ = read(replace(options, start="2024-05-02", end="2024-05-08"), server)
    assert list(raw.frame.columns) == ["symbol", "time", "open", "high", "low", "close", "volume", "place"]
    assert dates(raw) == ["2024-05-02", "2024-05-03", "2024-05-06", "2024-05-07", "2024-05-08"]
    assert raw.frame["close"].tolist() == [101, 103, 102, 104, 105]
    assert raw.frame["open"].tolist() == [100, 102, 101, 103, 104]
    assert raw.frame["high"].tolist() == [102, 104, 103, 105, 106]
    assert raw.frame["low"].tolist() == [99, 101, 100, 102, 103]
    assert raw.frame["volume"].tolist() == [1001, 1002, 1003, 1004, 1005]
    assert raw.frame["time"].dtype == "datetime64[us]"
    assert raw.frame["symbol"].tolist() == ["AAA"] * 5
    assert (raw.notes, raw.intraday, raw.unread.empty) == ((), False, True)
    assert server.requests("AAA") == 1


def test_when_a_dividend_was_paid_then_auto_adjust_decides_whether_it_is_in_the_prices(
    server: YahooServer, options: Options
):
    # 2 paid on the 7th after a close of 102: prices before are 100/102 of what they were.
    server.listings["AAA"] = listing(dividends={"2024-05-07": 2.0}, splits={"2024-05-03": (2, 1)})
    adjusted, _ = read(options, server)
    plain, _ = read(replace(options, auto_adjust=False), server)
    assert plain.frame["close"].tolist() == CLOSES
    factor = np.array([100 / 102] * 4 + [1.0] * 4)
    np.testing.assert_allclose(adjusted.frame["close"], np.array(CLOSES) * factor, rtol=1e-12)
    np.testing.assert_allclose(adjusted.frame["low"], (np.array(CLOSES) - 2) * factor, rtol=1e-12)
    assert adjusted.basis == "Yahoo auto_adjust=true: splits and dividends"
    assert plain.basis == "Yahoo auto_adjust=false: splits only, dividends not"
    assert adjusted.files != plain.files


def test_when_todays_session_is_still_open_then_its_bar_is_left_out_with_a_note(server: YahooServer, options: Options):
    server.now = pd.Timestamp(NOON)
    raw, _ = read(options, server)
    assert dates(raw) == DAYS[:-1]
    [(symbol, time, kind, detail, action)] = raw.notes
    assert (symbol, time, kind, action) == ("AAA", pd.Timestamp("2024-05-10"), "partial_last", "dropped")
    assert detail == (
        "the session was not over (it counts as over half an hour after the close) at 2024-05-10 14:00 EDT"
    )


def test_when_the_session_has_just_closed_then_its_bar_waits_half_an_hour(server: YahooServer, options: Options):
    for clock, count in (("20:29", 7), ("20:30", 8)):
        server.now = pd.Timestamp(f"2024-05-10 {clock}Z")
        raw, _ = read(options, server)
        assert len(raw.frame) == count


def test_when_rows_are_blank_then_they_are_no_bars_and_counted_and_a_missing_volume_is_not_zero(
    server: YahooServer, options: Options
):
    bars = server.listings["AAA"].bars["1d"]
    bars.iloc[[2, 4], :] = np.nan
    bars.iloc[5, 4] = np.nan
    raw, _ = read(options, server)
    assert dates(raw) == [day for row, day in enumerate(DAYS) if row not in (2, 4)]
    assert np.isnan(raw.frame["volume"]).tolist() == [False, False, False, True, False, False]
    detail = "a row without prices (2 such rows, the last on 2024-05-07)"
    assert raw.notes == (("AAA", pd.Timestamp("2024-05-07"), "blank_row", detail, "no bar"),)
    again, _ = read(options, server)
    assert again.notes == raw.notes


def test_when_the_exchange_is_far_east_then_the_date_is_its_own(server: YahooServer, options: Options):
    bars = daily(dict(zip(DAYS, CLOSES, strict=True)), "Asia/Seoul", "09:00")
    server.listings["005930.KS"] = Listing({"1d": bars}, zone="Asia/Seoul", opens="09:00", closes="15:30")
    raw, _ = read(replace(options, symbols=("005930.KS",), start="2024-05-02", end="2024-05-09"), server)
    assert dates(raw) == DAYS[1:7]
    # 06:59 UTC on the 10th is 15:59 in Seoul, 29 minutes after the close.
    for clock, last in (("06:59", "2024-05-09"), ("07:00", "2024-05-10")):
        server.now = pd.Timestamp(f"2024-05-10 {clock}Z")
        raw, _ = read(replace(options, symbols=("005930.KS",)), server)
        assert dates(raw)[-1] == last


def test_when_bars_are_hourly_then_stamps_are_utc_across_a_clock_change(server: YahooServer, options: Options):
    # New York puts its clocks forward on Sunday 2024-03-10: 09:30 is 14:30 UTC before and 13:30 UTC after.
    server.now = pd.Timestamp("2024-03-12 23:00Z")
    server.listings["AAA"].bars["60m"] = hourly(["2024-03-08", "2024-03-11"])
    raw, _ = read(replace(options, interval="1h", start="2024-03-08", end="2024-03-11"), server)
    assert str(raw.frame["time"].dtype) == "datetime64[us, UTC]"
    opens = raw.frame["time"].iloc[[0, 7]].dt.strftime("%d %H:%M").tolist()
    assert opens == ["08 14:30", "11 13:30"]
    assert (len(raw.frame), raw.intraday, raw.notes) == (14, True, ())
    assert raw.basis == "Yahoo auto_adjust=true: splits only, dividends not (Yahoo has no intraday bars without them)"


def test_when_an_hour_is_running_then_its_bar_and_the_live_quote_are_dropped_with_notes(
    server: YahooServer, options: Options
):
    # 14:00 in New York: the bar of 13:30 runs; the quote stands at 14:00:07, in the same hour for yfinance.
    server.now = pd.Timestamp(NOON)
    bars = hourly(["2024-05-09", "2024-05-10"]).iloc[:12]
    quote = bars.iloc[[-1]].set_axis(pd.DatetimeIndex([pd.Timestamp("2024-05-10 17:59:07Z")])).assign(volume=0.0)
    server.listings["AAA"].bars["60m"] = pd.concat([bars, quote])
    raw, _ = read(replace(options, interval="1h", start="2024-05-09"), server)
    assert len(raw.frame) == 11
    assert raw.frame["time"].iloc[-1] == pd.Timestamp("2024-05-10 16:30Z")
    assert [(kind, time) for _, time, kind, _, _ in raw.notes] == [
        ("live_quote", pd.Timestamp("2024-05-10 17:59:07Z")),
        ("partial_last", pd.Timestamp("2024-05-10 17:30Z")),
    ]


def test_when_a_quiet_symbols_quote_stands_alone_then_it_is_no_bar(server: YahooServer, options: Options):
    server.now = pd.Timestamp(NOON)
    bars = hourly(["2024-05-10"]).iloc[:2]
    quote = bars.iloc[[-1]].set_axis(pd.DatetimeIndex([pd.Timestamp("2024-05-10 17:41:07Z")])).assign(volume=0.0)
    server.listings["AAA"].bars["60m"] = pd.concat([bars, quote])
    raw, _ = read(replace(options, interval="1h", start="2024-05-10"), server)
    assert raw.frame["time"].tolist() == list(bars.index)
    assert kinds(raw) == ["live_quote"]


def test_when_the_feed_is_late_then_the_bar_of_its_last_trade_is_unfinished(server: YahooServer, options: Options):
    server.now = pd.Timestamp("2024-05-10 17:40Z")
    server.listings["AAA"].bars["60m"] = hourly(["2024-05-10"]).iloc[:4]
    server.listings["AAA"].meta = {"regularMarketTime": int(pd.Timestamp("2024-05-10 17:25Z").timestamp())}
    raw, _ = read(replace(options, interval="1h", start="2024-05-10"), server)
    assert raw.frame["time"].iloc[-1] == pd.Timestamp("2024-05-10 15:30Z")
    assert kinds(raw) == ["partial_last"]


def test_when_it_is_weekend_then_the_short_last_hour_of_friday_is_a_bar(server: YahooServer, options: Options):
    server.listings["AAA"].bars["60m"] = hourly(["2024-05-10"])
    server.now = pd.Timestamp("2024-05-12 15:00Z")
    server.listings["AAA"].meta = {"regularMarketTime": int(pd.Timestamp("2024-05-10 20:00:01Z").timestamp())}
    raw, _ = read(replace(options, interval="1h", start="2024-05-10", end=None), server)
    assert raw.frame["time"].iloc[-1] == pd.Timestamp("2024-05-10 19:30Z")
    assert raw.notes == ()


def test_when_bars_are_of_half_an_hour_then_they_are_made_of_quarters_and_the_running_one_is_dropped(
    server: YahooServer, options: Options
):
    # 13:30 to 14:45 UTC in quarters; at 14:50 the half hour from 14:30 runs.
    stamps = pd.date_range("2024-05-10 13:30Z", periods=6, freq="15min")
    server.listings["AAA"].bars["15m"] = yahoo_server.bars(stamps, [10.0, 11.0, 12.0, 13.0, 14.0, 15.0])
    server.now = pd.Timestamp("2024-05-10 14:50Z")
    raw, _ = read(replace(options, interval="30min", start="2024-05-10"), server)
    assert raw.frame["time"].tolist() == list(stamps[[0, 2]])
    assert raw.frame["close"].tolist() == [11, 13]
    assert raw.frame["open"].tolist() == [9, 11]
    assert raw.frame["volume"].tolist() == [2001, 2005]
    assert kinds(raw) == ["partial_last"]


def test_when_rows_stand_outside_the_hours_or_twice_then_it_is_noted(server: YahooServer, options: Options):
    # Daily: the 9th twice, as a live quote beside the bar. Hourly: a row after the close.
    days = server.listings["AAA"].bars["1d"]
    live = days.iloc[[-1]].set_axis(pd.DatetimeIndex([pd.Timestamp("2024-05-10 20:00:02Z")]))
    server.listings["AAA"].bars = {"1d": pd.concat([days, live]), "60m": hourly(["2024-05-09"], count=8)}
    raw, _ = read(options, server)
    assert dates(raw) == DAYS
    [(_, time, kind, detail, action)] = raw.notes
    assert (time, kind, detail, action) == (
        pd.Timestamp("2024-05-10"),
        "double_row",
        "Yahoo gave the bar twice",
        "one kept",
    )
    raw, _ = read(replace(options, interval="1h", start="2024-05-09"), server)
    assert len(raw.frame) == 7
    [(_, time, kind, _, action)] = raw.notes
    assert (time, kind, action) == (pd.Timestamp("2024-05-09 20:30Z"), "outside_hours", "dropped")
