"""Bars from Yahoo Finance, daily and intraday, behind a cache that asks only for what is new."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from pathlib import Path

import pandas as pd

from forecaster.bars.contract import Row
from forecaster.bars.raw import RAW_COLUMNS, Raw
from forecaster.bars.yahoo import cache
from forecaster.bars.yahoo.chart import INTERVALS, AwayError, NoBarsError, ask, earliest
from forecaster.bars.yahoo.stretch import Aside, Series, Stretch, disagreement, joined, midnight
from forecaster.errors import ConfigError, DataError

PAUSES = (2.0, 8.0, 32.0)  # seconds before each further try
TIMEOUT = 30.0  # seconds for one answer
GIVE_UP = 3  # symbols to which the service did not answer; the others are not asked for any more
DAILY_START = "2000-01-01"
OVERLAP = 5  # bars that are asked for again, and compared
HUNDREDTHS = {"GBp": "GBP", "GBX": "GBP", "ZAc": "ZAR", "ZAC": "ZAR", "ILA": "ILS"}
NOT_IN_SYMBOLS = "/\\?#%\"'"

Say = Callable[[str], None]
# First and last date, both included, to the bars.
Question = Callable[[pd.Timestamp, pd.Timestamp], Stretch]


@dataclass(frozen=True)
class Options:
    """What to read. start, end: ISO dates, both included; end None is today. cache: a folder.

    interval: 1d, 1h, 90min, 30min, 15min, 5min, 2min or 1min. strict: one symbol that fails is an error.
    """

    symbols: tuple[str, ...]
    start: str
    end: str | None
    interval: str
    auto_adjust: bool
    strict: bool
    cache: str


def first_date(interval: str, now: pd.Timestamp) -> str:
    """The start of bars where none is asked for: DAILY_START, or the first date that Yahoo has intraday bars of."""
    oldest = earliest(interval, now)
    return DAILY_START if oldest is None else str(oldest.date())


def read(
    options: Options,
    now: pd.Timestamp | None = None,
    say: Say = lambda text: None,
    pauses: Sequence[float] = PAUSES,
    timeout: float = TIMEOUT,
) -> Raw:
    """The finished bars of every symbol that Yahoo or the cache has.

    now: an aware stamp; the clock unless given. say: told what is going on. pauses, timeout: seconds. Only a rate limit
    and a missing network are tried again. ConfigError: options that can't be met, before anything is asked.
    DataError: no symbol could be read, or one could not and `strict`, or the service does not answer any more.
    """
    now = pd.Timestamp.now("UTC") if now is None else now.tz_convert("UTC")
    start, end = _dates(options, now)
    kept: dict[str, Stretch] = {}
    notes: list[Row] = []
    folder = Path(options.cache).expanduser()
    failed: list[DataError] = []
    away: list[AwayError] = []
    for symbol in _symbols(options):
        series = Series(symbol.upper(), options.interval, options.auto_adjust)
        file = cache.path(folder, series)
        question = _question(series, now, away, pauses, timeout, say)
        try:
            try:
                stretch, told = _read(series, file, start, end, now, question, say)
            except AwayError as reason:
                away.append(reason)
                if options.strict:
                    raise
                stretch, told = _outdated(series, file, start, reason, say)
            kept[symbol] = _asked_for(stretch, start, end)
            notes += [(symbol, *aside) for aside in (*told, *_asides(kept[symbol]))]
        except DataError as reason:
            if options.strict:
                raise
            failed.append(reason)
            notes.append((symbol, pd.NaT, "symbol_failed", str(reason), "symbol left out"))
            say(f"{reason} ({symbol} is left out)")
    _check_any(len(options.symbols), len(kept), failed, away)
    unread = {"row": "int64", "column": "str", "text": "str"}
    return Raw(
        frame=pd.concat([_raw(symbol, stretch) for symbol, stretch in kept.items()], ignore_index=True),
        unread=pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in unread.items()}),
        notes=tuple(notes),
        basis=_basis(options),
        intraday=options.interval != "1d",
        files=tuple(cache.path(folder, stretch.series) for stretch in kept.values()),
    )


def _symbols(options: Options) -> tuple[str, ...]:
    if not options.symbols:
        raise ConfigError("source.symbols: no symbol given: name some, as source.symbols=[AAPL,MSFT]")
    seen: dict[str, str] = {}
    for symbol in options.symbols:
        if not symbol or any(c.isspace() or c in NOT_IN_SYMBOLS for c in symbol):
            raise ConfigError(f"source.symbols: {symbol!r} is no symbol of Yahoo's: look it up on finance.yahoo.com")
        if symbol.upper() in seen:
            twice = f"{seen[symbol.upper()]} and {symbol}"
            raise ConfigError(f"source.symbols: {twice} are one symbol to Yahoo: name it once")
        seen[symbol.upper()] = symbol
    return options.symbols


def _dates(options: Options, now: pd.Timestamp) -> tuple[pd.Timestamp, pd.Timestamp]:
    if options.interval not in INTERVALS:
        raise ConfigError(f"source.interval={options.interval}: Yahoo has {', '.join(INTERVALS)}: choose one of these")
    # Somewhere on earth it may be tomorrow.
    latest = midnight(now + pd.Timedelta(hours=14))
    start = _date("source.start", options.start)
    end = latest if options.end is None else _date("source.end", options.end)
    if start > end or start > latest:
        limit = "today" if options.end is None or start > latest else f"source.end={options.end}"
        raise ConfigError(f"source.start={options.start}: after {limit}: give an earlier date")
    return start, min(end, latest)


def _date(option: str, text: str) -> pd.Timestamp:
    try:
        return pd.Timestamp(date.fromisoformat(text)).as_unit("us")
    except ValueError as reason:
        raise ConfigError(f"{option}={text}: no date: write it as 2020-01-31") from reason


def _question(
    series: Series,
    now: pd.Timestamp,
    away: list[AwayError],
    pauses: Sequence[float],
    timeout: float,
    say: Say,
) -> Question:
    """Asking Yahoo within its limits, again after a pause where it may help; once where the service is known away."""
    oldest = earliest(series.interval, now)

    def asked(first: pd.Timestamp, last: pd.Timestamp) -> Stretch:
        if oldest is not None and first < oldest:
            raise ConfigError(
                f"source.start={first.date()}: Yahoo has bars of {series.interval} for "
                f"{INTERVALS[series.interval][1]} days back only: the first date possible is {oldest.date()}"
            )
        if len(away) >= GIVE_UP:
            missing = f"Yahoo: {series.symbol}: not asked for, as {GIVE_UP} others got no answer"
            raise type(away[-1])(f"{missing}: {away[-1]}")
        for pause in () if away else pauses:
            try:
                return ask(series, first, last, now, timeout)
            except AwayError as reason:
                say(f"{reason} (asking again in {pause:g} s)")
                time.sleep(pause)
        return ask(series, first, last, now, timeout)

    return asked


def _read(
    series: Series, file: Path, start: pd.Timestamp, end: pd.Timestamp, now: pd.Timestamp, question: Question, say: Say
) -> tuple[Stretch, list[Aside]]:
    """The series' bars, of the cache as far as they are there, with the cache brought up to date."""
    with cache.locked(file, say):
        held = cache.read(file, series, say)
        if held is not None and held.covers(start, end, now):
            return held, []
        stretch, why = (question(start, end), "") if held is None else _refreshed(held, start, end, now, question)
        cache.write(stretch, file)
    if not why:
        return stretch, []
    say(f"Yahoo: {series.symbol}: {why}: all its bars were fetched again")
    return stretch, [(stretch.frame["time"].iloc[0], "rewritten", why, "all bars fetched again")]


def _refreshed(
    held: Stretch, start: pd.Timestamp, end: pd.Timestamp, now: pd.Timestamp, question: Question
) -> tuple[Stretch, str]:
    """What is held and what is missing of the dates, and why all was asked for again, where it was."""
    first, last = min(start, held.first), max(end, held.last)
    oldest = earliest(held.series.interval, now)
    older, newer = start < held.first, not held.covers(held.first, end, now)
    if older and newer:
        return question(first, last), ""
    dates = held.dates()
    since, until = dates.iloc[-OVERLAP:].iloc[0], dates.iloc[:OVERLAP].iloc[-1]
    if newer and oldest is not None and since < oldest:
        why = f"the bars held end on {dates.iloc[-1].date()}, before the first that Yahoo still has"
        return question(start, last), why
    part = question(since, last) if newer else question(first, until)
    why = disagreement(held, part)
    if why is None:
        return joined(held, part), ""
    if oldest is None or first >= oldest:
        return question(first, last), why
    # Bars older than Yahoo's limit stand on the former basis, and can't be had on the new one.
    if start < oldest:
        raise ConfigError(
            f"source.start={start.date()}: {held.series.symbol}: {why}, and Yahoo has bars of {held.series.interval} "
            f"from {oldest.date()} on only: start there"
        )
    return question(start, last), why


def _outdated(
    series: Series, file: Path, start: pd.Timestamp, reason: DataError, say: Say
) -> tuple[Stretch, list[Aside]]:
    """The bars held although newer ones were asked for, with a note; the reason itself where none are of use."""
    held = cache.read(file, series, say)
    if held is None or start < held.first or held.dates().iloc[-1] < start:
        raise reason
    until, asked = held.frame["time"].iloc[-1], held.asked.strftime("%Y-%m-%d %H:%M UTC")
    detail = f"bars up to {until:%Y-%m-%d}, fetched on {asked}, no newer ones: {reason}"
    say(f"Yahoo: {series.symbol}: {detail}")
    return held, [(until, "cache_outdated", detail, "cached bars used")]


def _asked_for(stretch: Stretch, start: pd.Timestamp, end: pd.Timestamp) -> Stretch:
    within = stretch.between(start, end)
    if within.frame.empty:
        dates = f"from {start.date()} to {end.date()}"
        raise NoBarsError(f"Yahoo: {stretch.series.symbol}: no bars {dates} (as fetched before): give other dates")
    return within


def _check_any(symbols: int, kept: int, failed: list[DataError], away: list[AwayError]) -> None:
    silent = [reason for reason in failed if isinstance(reason, AwayError)]
    if failed and (not kept or (silent and len(away) >= GIVE_UP)):
        first = silent[0] if kept else failed[0]
        if symbols == 1:
            raise first
        fetched = "; those fetched are in the cache" if kept else ""
        raise type(first)(f"{first} ({kept} of {symbols} symbols could be read{fetched})")


def _asides(stretch: Stretch) -> Iterator[Aside]:
    """One row for each thing left out; of what is common, one for all of a kind."""
    ordered = sorted(stretch.asides, key=lambda aside: (aside[1], aside[0]))
    for kind, found in groupby(ordered, key=lambda aside: aside[1]):
        asides = list(found)
        time, _, detail, action = asides[-1]
        count = "" if len(asides) == 1 else f" ({len(asides)} such rows, the last on {stretch.date(time).date()})"
        yield time, kind, f"{detail}{count}", action
    if stretch.currency in HUNDREDTHS:
        detail = f"prices in {stretch.currency}, hundredths of {HUNDREDTHS[stretch.currency]}"
        yield stretch.frame["time"].iloc[0], "minor_currency", detail, "kept"


def _raw(symbol: str, stretch: Stretch) -> pd.DataFrame:
    return stretch.frame.assign(symbol=symbol, place="Yahoo").loc[:, list(RAW_COLUMNS)]


def _basis(options: Options) -> str:
    asked = f"Yahoo auto_adjust={str(options.auto_adjust).lower()}"
    if options.interval != "1d":
        return f"{asked}: splits only, dividends not (Yahoo has no intraday bars without them)"
    return f"{asked}: splits and dividends" if options.auto_adjust else f"{asked}: splits only, dividends not"
