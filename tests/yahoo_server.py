"""A server on 127.0.0.1 that speaks the format of Yahoo's v8 chart service, and what points yfinance at it."""

import json
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pandas as pd

NOT_FOUND = {"code": "Not Found", "description": "No data found, symbol may be delisted"}
MINOR_PERIODS = ("pre", "post")


@dataclass
class Listing:
    """What the server knows of one symbol.

    bars: by Yahoo's interval, frames with aware UTC stamps and open, high, low, close, volume (None or NaN: null);
    prices carry splits. dividends and splits: by date, as amount and as (numerator, denominator).
    """

    bars: dict[str, pd.DataFrame]
    zone: str = "America/New_York"
    opens: str = "09:30"
    closes: str = "16:00"
    currency: str = "USD"
    kind: str = "EQUITY"
    dividends: dict[str, float] = field(default_factory=dict)
    splits: dict[str, tuple[int, int]] = field(default_factory=dict)
    noise: float = 0.0  # relative, on adjclose
    meta: dict[str, Any] = field(default_factory=dict)  # overrides


@dataclass
class Reply:
    """An answer other than the symbol's bars: given `times` times, None for ever."""

    status: int = 200
    body: str = ""
    times: int | None = None
    delay: float = 0.0  # seconds before it; without a body and with status 200 the bars follow


class YahooServer:
    """listings and replies by symbol; asked: (symbol, query) of every chart request; now: the service's time."""

    def __init__(self, now: str) -> None:
        self.now = pd.Timestamp(now)
        self.listings: dict[str, Listing] = {}
        self.replies: dict[str, Reply] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.url = ""
        self.lock = threading.Lock()

    def requests(self, symbol: str) -> int:
        return sum(asked == symbol for asked, _ in self.asked)

    def answer(self, symbol: str, query: dict[str, str]) -> tuple[int, str]:
        with self.lock:
            self.asked.append((symbol, query))
            reply = self.replies.get(symbol)
            if reply is not None and reply.times is not None:
                reply.times -= 1
                if reply.times <= 0:
                    del self.replies[symbol]
        if reply is not None:
            time.sleep(reply.delay)
            if reply.body or reply.status != 200:
                return reply.status, reply.body
        if symbol not in self.listings:
            return 404, refusal(**NOT_FOUND)
        return self._chart(symbol, self.listings[symbol], query)

    def _chart(self, symbol: str, listing: Listing, query: dict[str, str]) -> tuple[int, str]:
        interval = query["interval"]
        first, last = (pd.Timestamp(int(query[name]), unit="s", tz="UTC") for name in ("period1", "period2"))
        known = listing.bars[interval]
        adjusted = _adjusted(known, listing)
        inside = (known.index >= first) & (known.index < last)
        bars, adjusted = known[inside], adjusted[inside]
        result: dict[str, Any] = {"meta": self._meta(symbol, listing, interval, bars)}
        if bars.empty:
            result["indicators"] = {"quote": [{}]}
            if interval == "1d":
                result["indicators"]["adjclose"] = [{}]
            return 200, answer(result)
        result["timestamp"] = [_epoch(stamp) for stamp in bars.index]
        columns = ("open", "high", "low", "close", "volume")
        result["indicators"] = {"quote": [{name: _nulls(bars[name]) for name in columns}]}
        if interval == "1d":
            result["indicators"]["adjclose"] = [{"adjclose": _nulls(adjusted)}]
        events = self._events(listing, first, last)
        if events:
            result["events"] = events
        return 200, answer(result)

    def _meta(self, symbol: str, listing: Listing, interval: str, bars: pd.DataFrame) -> dict[str, Any]:
        today = self.now.tz_convert(listing.zone).normalize()
        meta: dict[str, Any] = {
            "currency": listing.currency,
            "symbol": symbol,
            "exchangeName": "NMS",
            "instrumentType": listing.kind,
            "firstTradeDate": 0,
            "regularMarketTime": _epoch(self.now),
            "gmtoffset": int(today.utcoffset().total_seconds()),
            "timezone": today.tzname(),
            "exchangeTimezoneName": listing.zone,
            "regularMarketPrice": 1.0,
            "priceHint": 2,
            "currentTradingPeriod": {
                "regular": _period(today, listing.opens, listing.closes),
                **{name: _period(today, listing.opens, listing.closes) for name in MINOR_PERIODS},
            },
            "dataGranularity": interval,
            "range": "",
            "validRanges": ["1d", "5d", "max"],
        }
        if interval != "1d" and not bars.empty:
            days = bars.index.tz_convert(listing.zone).normalize().unique()
            meta["tradingPeriods"] = [[_period(day, listing.opens, listing.closes)] for day in days]
        return meta | listing.meta

    def _events(self, listing: Listing, first: pd.Timestamp, last: pd.Timestamp) -> dict[str, Any]:
        dividends = {str(at): {"amount": amount, "date": at} for at, amount in _dated(listing, listing.dividends)}
        splits = {
            str(at): {"date": at, "numerator": top, "denominator": bottom, "splitRatio": f"{top}:{bottom}"}
            for at, (top, bottom) in _dated(listing, listing.splits)
        }
        inside = range(_epoch(first), _epoch(last))
        events = {
            name: {at: event for at, event in found.items() if int(at) in inside}
            for name, found in (("dividends", dividends), ("splits", splits))
        }
        return {name: found for name, found in events.items() if found}


def daily(closes: dict[str, float] | pd.Series, zone: str = "America/New_York", opens: str = "09:30") -> pd.DataFrame:
    """Daily bars by date: open 1 below the close, high 1 above it, low 2 below it, volume 1000, 1001, ..."""
    close = pd.Series(closes, dtype="float64")
    stamps = [pd.Timestamp(f"{day} {opens}", tz=zone).tz_convert("UTC") for day in close.index]
    return bars(pd.DatetimeIndex(stamps), close.tolist())


def bars(stamps: pd.DatetimeIndex, closes: list[float]) -> pd.DataFrame:
    close = pd.Series(closes, index=stamps, dtype="float64")
    volume = pd.Series(range(1000, 1000 + len(close)), index=stamps, dtype="float64")
    return pd.DataFrame({"open": close - 1, "high": close + 1, "low": close - 2, "close": close, "volume": volume})


def answer(result: dict[str, Any]) -> str:
    return json.dumps({"chart": {"result": [result], "error": None}})


def refusal(code: str, description: str) -> str:
    return json.dumps({"chart": {"result": None, "error": {"code": code, "description": description}}})


def point(url: str, put: Callable[[Any, str, Any], None] = setattr) -> None:
    """Send yfinance's chart requests to the server at `url`, without a cookie or a crumb."""
    import yfinance.base
    import yfinance.data
    import yfinance.scrapers.history

    put(yfinance.scrapers.history, "_BASE_URL_", url)
    put(yfinance.base, "_BASE_URL_", url)
    put(yfinance.data.YfData, "_get_cookie_and_crumb", lambda self, timeout=30: (None, "basic"))


def program(url: str, code: str, *arguments: str) -> list[str]:
    """The command that runs Python code in a process of its own, pointed at the server.

    `program(url, COMMAND, "train", ...)` is forecaster's command line.
    """
    here = __file__.rsplit("/", 1)[0]
    start = f"import sys; sys.path.insert(0, {here!r}); import yahoo_server; yahoo_server.point({url!r})"
    return [sys.executable, "-c", f"{start}\n{code}", *arguments]


COMMAND = "sys.argv[0] = 'forecaster'\nfrom forecaster.cli import main\nmain()"


@contextmanager
def served(now: str) -> Generator[YahooServer]:
    """A server whose clock stands at `now`, until left."""
    yahoo = YahooServer(now)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            symbol = unquote(parts.path.rsplit("/", 1)[1])
            status, body = yahoo.answer(symbol, {name: values[-1] for name, values in parse_qs(parts.query).items()})
            try:
                self.send_response(status)
                self.send_header("Content-Type", "text/html" if body.startswith("<") else "application/json")
                self.end_headers()
                self.wfile.write(body.encode())
            except (BrokenPipeError, ConnectionResetError):
                return  # the client has given up

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    yahoo.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield yahoo
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _adjusted(known: pd.DataFrame, listing: Listing) -> pd.Series:
    """Yahoo's adjclose: every close before an ex-date times 1 - dividend / last close before it."""
    days = known.index.tz_convert(listing.zone).strftime("%Y-%m-%d")
    adjusted = known["close"].copy()
    for day, amount in listing.dividends.items():
        before = days < day
        if before.any() and (days >= day).any():
            adjusted[before] *= 1 - amount / known["close"][before].iloc[-1]
    return adjusted * (1 + listing.noise)


def _dated(listing: Listing, events: dict[str, Any]) -> list[tuple[int, Any]]:
    return [(_epoch(pd.Timestamp(f"{day} {listing.opens}", tz=listing.zone)), event) for day, event in events.items()]


def _period(day: pd.Timestamp, opens: str, closes: str) -> dict[str, Any]:
    start, end = (pd.Timestamp(f"{day.date()} {clock}", tz=day.tz) for clock in (opens, closes))
    offset = int(start.utcoffset().total_seconds())
    return {"timezone": start.tzname(), "start": _epoch(start), "end": _epoch(end), "gmtoffset": offset}


def _epoch(stamp: pd.Timestamp) -> int:
    return int(stamp.timestamp())


def _nulls(values: pd.Series) -> list[float | None]:
    return [None if pd.isna(value) else float(value) for value in values]
