"""One question to Yahoo's chart service, asked through yfinance, and what is the matter where bars don't come back."""

import atexit
import json
import logging
import math
import re
import shutil
import tempfile
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import Any, NoReturn, cast

import pandas as pd
import yfinance
import yfinance.cache
from curl_cffi.requests import Response, Session
from curl_cffi.requests.exceptions import RequestException
from curl_cffi.requests.exceptions import Timeout as SlowAnswer
from pandas.errors import Pandas4Warning
from yfinance.data import YfData
from yfinance.exceptions import YFException, YFRateLimitError
from yfinance.scrapers.history import PriceHistory

from forecaster.bars.yahoo.stretch import DAY, Series, Stretch, chained, midnight, taken
from forecaster.errors import DataError

# Our interval: Yahoo's name, the age in days of the oldest bars it gives, the days that one request may span.
INTERVALS: dict[str, tuple[str, int | None, int | None]] = {
    "1min": ("1m", 30, 7),
    "2min": ("2m", 60, None),
    "5min": ("5m", 60, None),
    "15min": ("15m", 60, None),
    "30min": ("30m", 60, None),
    "90min": ("90m", 60, None),
    "1h": ("60m", 730, None),
    "1d": ("1d", None, None),
}

CHART = "/v8/finance/chart/"
COOKIE_TIMEOUT = 5.0  # seconds; yfinance would wait a minute and a half, without a network, before the first question


class AwayError(DataError):
    """The service gives no answer to anybody here, or not now: asking again may help."""


class RateLimitedError(AwayError):
    """Yahoo answers 429."""


class UnreachableError(AwayError):
    """No connection, or no answer in time."""


class NoBarsError(DataError):
    """Yahoo knows the symbol and has no bars in the range."""


def earliest(interval: str, now: pd.Timestamp) -> pd.Timestamp | None:
    """The first date of which Yahoo has every bar of this interval; None where there is no limit."""
    age = INTERVALS[interval][1]
    return None if age is None else midnight(now) - DAY * (age - 1)


def ask(series: Series, first: pd.Timestamp, last: pd.Timestamp, now: pd.Timestamp, timeout: float) -> Stretch:
    """The finished bars of the dates first to last, both included, in one request (for 1min: one a week of bars).

    timeout: seconds. RateLimitedError, UnreachableError and NoBarsError as named; DataError where Yahoo does not know
    the symbol, or where the answer is no chart, or that of another symbol or interval.
    """
    parts: list[Stretch] = []
    said = ""
    for start, end in _spans(series, first, last, now):
        try:
            answer, prices = _fetch(series, start, end, timeout)
            parts.append(taken(series, answer, prices, first, last, now))
        except NoBarsError as reason:
            said = str(reason)
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as reason:
            raise DataError(
                f"Yahoo: {series.symbol}: the answer is a chart with a part missing or odd ({_line(reason)}): run again"
            ) from reason
    if any(len(part.frame) for part in parts):
        return chained(parts)
    asides = [f"only {kind}: {detail}" for part in parts for _, kind, detail, _ in part.asides]
    raise NoBarsError(
        f"Yahoo: {series.symbol}: no bars from {first.date()} to {last.date()} "
        f"({(said or ' '.join(asides[-1:]) or 'the answer has none of these dates')}): give other dates"
    )


def _spans(
    series: Series, first: pd.Timestamp, last: pd.Timestamp, now: pd.Timestamp
) -> list[tuple[pd.Timestamp, pd.Timestamp]]:
    """Moments between which to ask: the dates in every zone of the world, as the exchange's is not yet known."""
    _, age, days = INTERVALS[series.interval]
    start, end = (first - pd.Timedelta(hours=14)).tz_localize("UTC"), (last + DAY * 1.5).tz_localize("UTC")
    if age is not None:
        start, end = max(start, now - DAY * age + pd.Timedelta(hours=1)), min(end, now + DAY)
    pieces = 1 if days is None else max(1, math.ceil((end - start) / (DAY * days)))
    edges = [start + (end - start) / pieces * piece for piece in range(pieces + 1)]
    return [(left.floor("s"), right.floor("s")) for left, right in pairwise(edges)]


def _fetch(
    series: Series, start: pd.Timestamp, end: pd.Timestamp, timeout: float
) -> tuple[dict[str, Any], pd.DataFrame]:
    """Yahoo's own answer beside yfinance's frame of it, which tells neither what it dropped nor what it filled."""
    listener = _listener()
    listener.heard = None
    # A Ticker would spend a request on the exchange's zone first; with moments instead of dates none is needed.
    history = PriceHistory(YfData(session=listener), series.symbol, "UTC", session=listener)
    YfData.cache_get.cache_clear()  # pyright: ignore[reportFunctionMemberAccess]  # it would give a bad answer again
    where = f"Yahoo: {series.symbol}"
    try:
        with _quietly_raising():
            prices = history.history(
                start=start,
                end=end,
                interval=INTERVALS[series.interval][0],
                auto_adjust=series.adjusted,
                timeout=cast("Any", timeout),
            )
    except YFRateLimitError as reason:
        raise RateLimitedError(f"{where}: rate limited (HTTP 429): wait some minutes, then run again") from reason
    except SlowAnswer as reason:
        raise UnreachableError(
            f"{where}: no answer within {timeout:g} s: the network or Yahoo is slow; run again later"
        ) from reason
    except RequestException as reason:
        text = re.sub(
            r"^Failed to perform, curl: \(\d+\) | ?\([^()]*\)\.?$|\.? See https://curl\.se.*$", "", str(reason)
        )
        raise UnreachableError(f"{where}: no network: {text}: check the connection and any proxy") from reason
    except (YFException, ValueError, LookupError, TypeError, AttributeError, OverflowError) as reason:
        _judge(series, listener.heard, reason)
    return _result(series, listener.heard), prices


def _judge(series: Series, heard: Response | None, reason: Exception) -> NoReturn:
    """The DataError for an answer that yfinance could not read."""
    where = f"Yahoo: {series.symbol}"
    if heard is None:
        raise DataError(f"{where}: yfinance asked nothing: {_line(reason)}: run again") from reason
    text = heard.text.strip()
    status = f"HTTP {heard.status_code}"
    if text.startswith("<") or "Will be right back" in text:
        raise DataError(
            f"{where}: the answer ({status}) is a web page, not bars: Yahoo is down or a proxy answers: run again later"
        )
    try:
        chart = json.loads(text)["chart"]
        error = chart["error"]
        found = chart["result"]
    except ValueError as fault:
        raise DataError(f"{where}: the answer ({status}) is broken JSON ({_line(fault)}): run again") from fault
    except (LookupError, TypeError) as fault:
        raise DataError(f"{where}: the answer ({status}) is JSON but no chart: {text[:80]!r}: run again") from fault
    if error:
        told = cast("dict[str, Any]", error) if isinstance(error, dict) else {"description": error}
        code, said = told.get("code"), _line(told.get("description") or told.get("code"))
        if heard.status_code == 404 or code == "Not Found":
            raise DataError(f"{where}: no such symbol (Yahoo: {said}): correct it in source.symbols") from reason
        if "Data doesn't exist" in said:
            raise NoBarsError(f"Yahoo: {said}") from reason
        raise DataError(f"{where}: Yahoo refuses ({status}): {said}") from reason
    if not found or (isinstance(found, list) and isinstance(found[0], dict) and not found[0].get("timestamp")):
        raise NoBarsError("Yahoo's answer is empty") from reason
    raise DataError(
        f"{where}: the answer ({status}) is no chart that yfinance can read ({_line(reason)}): run again"
    ) from reason


def _result(series: Series, heard: Response | None) -> dict[str, Any]:
    """The one result of a chart's JSON, of this symbol and interval."""
    result: dict[str, Any] = json.loads(heard.text)["chart"]["result"][0] if heard else {"meta": {}}
    meta: dict[str, Any] = result["meta"]
    if meta.get("symbol") != series.symbol:
        raise DataError(
            f"Yahoo: {series.symbol}: the answer is of {meta.get('symbol')!r}: "
            "write the symbol as Yahoo does, or run again"
        )
    name = INTERVALS[series.interval][0]
    # yfinance makes 30m out of 15m, and Yahoo calls 60m also 1h.
    allowed = {"30m": ("15m", "30m"), "60m": ("60m", "1h")}.get(name, (name,))
    if meta.get("dataGranularity") not in allowed:
        raise DataError(
            f"Yahoo: {series.symbol}: asked for bars of {name}, the answer has {meta.get('dataGranularity')!r}: "
            "choose another source.interval or fewer dates"
        )
    return result


def _line(text: object) -> str:
    return " ".join(str(text).split()) or type(text).__name__


class _Listener(Session[Response]):
    """A session that keeps the chart service's last answer and hardly waits for a cookie, which charts don't need."""

    heard: Response | None = None

    def request(self, method: Any, url: str, *rest: Any, **options: Any) -> Response:
        if CHART not in url:
            return super().request(method, url, *rest, **{**options, "timeout": COOKIE_TIMEOUT})
        self.heard = super().request(method, url, *rest, **options)
        return self.heard


@cache
def _listener() -> _Listener:
    # yfinance's cookies in a database of this process alone: no lock shared with others, no home folder needed.
    folder = tempfile.mkdtemp(prefix="forecaster-yfinance-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    yfinance.cache.set_cache_location(folder)
    return _Listener(impersonate="chrome")


@contextmanager
def _quietly_raising() -> Generator[None]:
    """Errors of yfinance are raised instead of logged, and the deprecations of pandas that it trips not shown."""
    debug, logger = yfinance.config.debug, logging.getLogger("yfinance")
    hidden, level = cast("bool", debug.hide_exceptions), logger.level
    debug.hide_exceptions = False
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=Pandas4Warning, module=r"yfinance\.")
            yield
    finally:
        debug.hide_exceptions = hidden
        logger.setLevel(level)
