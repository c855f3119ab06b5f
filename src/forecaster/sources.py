"""The schema of each kind of source, and what its values must satisfy."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, cast
from zoneinfo import available_timezones

MARKETS = (
    *("noise", "recency", "weekly", "large_move", "volume", "trend", "several", "together", "changing"),
    "weekly_hourly",
)
ON_ERROR = ("drop", "adjust")
LAYOUTS = ("wide",)
NAMES = ("time", "date", "clock", "symbol", "open", "high", "low", "close", "volume")
# Our name for each and Yahoo's; it has other intervals too, but no bar of 90 minutes fits a session.
INTERVALS = ("1min", "2min", "5min", "15min", "30min", "1h", "1d")


@dataclass(kw_only=True)
class Source:
    """Where the bars come from; the fields beside `kind` belong to each kind."""

    kind: str


@dataclass(kw_only=True)
class Bundled(Source):
    """The daily bars that ship with the library arch."""

    kind: str = "bundled"
    # Text, a list of text once composed. Any: list[str] would turn 1E5 into "100000.0" and refuse a single text.
    symbols: Any


@dataclass(kw_only=True)
class Planted(Source):
    """A synthetic market whose rule is known (bars/planted.py has them), phi its strength; `noise` has none."""

    kind: str = "planted"
    market: str
    bars: int
    seed: int
    phi: float


@dataclass(kw_only=True)
class Real(Source):
    """Bars that may be dirty: which symbols, the sessions they keep, and what is done about bars that poison training.

    symbols: null takes all that a file has. symbols_file: a text file with one on each line. calendar: null is found
    from the bars. on_error: null stops, drop leaves such bars out, adjust scales splits and units. accept: moves that
    are true, as "ACME 2023-09-26".
    """

    symbols: Any
    symbols_file: str | None
    calendar: str | None
    on_error: str | None
    accept: list[str]


@dataclass(kw_only=True)
class Files(Real):
    """Files of one's own: CSV (also .gz, .zip), Parquet, Feather; one path, a folder, a glob, or a list of them.

    layout: null is recognised, wide has one column of closes for each symbol. columns: from open, high, low, close,
    volume, time, symbol to the file's names.
    """

    kind: str = "files"
    path: Any
    layout: str | None
    sep: str | None
    decimal: str
    thousands: str | None
    date_format: str | None
    timezone: str | None
    columns: Any  # a map: a typed one would refuse every key that conf/ does not name


@dataclass(kw_only=True)
class Yahoo(Real):
    """Yahoo Finance through yfinance, kept in a cache; start and end are dates, both included.

    start null: 2000 for daily bars, as far back as there is for intraday ones. end null: today. strict: one symbol of
    several that can't be had stops the run.
    """

    kind: str = "yahoo"
    start: str | None
    end: str | None
    interval: str
    auto_adjust: bool
    strict: bool
    cache: str


SOURCES: Mapping[str, type[Source]] = {"bundled": Bundled, "files": Files, "planted": Planted, "yahoo": Yahoo}


def shown(value: Any) -> str:
    """A value as it is typed on the command line."""
    if isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value).items()
        return "{" + ", ".join(f"{name}: {shown(item)}" for name, item in pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(shown(item) for item in cast("list[Any]", value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def source_faults(source: Source) -> Iterator[tuple[str, str, str]]:
    """Yield each key of a source whose value is wrong, with what is wrong and what to do."""
    if isinstance(source, Planted) and source.market not in MARKETS:
        yield "source.market", "is not known", f"choose one of {', '.join(MARKETS)}"
    if isinstance(source, Bundled):
        yield from _symbol_faults([None] if source.symbols is None else source.symbols)
    if isinstance(source, Real):
        if source.symbols is not None and source.symbols_file is not None:
            yield "source.symbols_file", "is given beside source.symbols", "give one of the two"
        if source.symbols is not None:
            yield from _symbol_faults(source.symbols)
        if source.on_error not in (None, *ON_ERROR):
            yield "source.on_error", "is not known", f"choose {' or '.join(ON_ERROR)}, or null to stop"
    if isinstance(source, Files):
        yield from _file_faults(source)
    if isinstance(source, Yahoo):
        yield from _yahoo_faults(source)


def _symbol_faults(symbols: list[Any]) -> Iterator[tuple[str, str, str]]:
    wrong = [symbol for symbol in symbols if not isinstance(symbol, str)]
    if wrong:
        yield "source.symbols", f"holds {shown(wrong[0])}, a value where text is meant", 'quote it: ["NA", "7203"]'
    elif not symbols or not all(symbols):
        yield "source.symbols", "names no symbol", "name one, or give null for all of a file"
    elif len(set(symbols)) < len(symbols):
        yield "source.symbols", "names a symbol twice", "name each symbol once"


def _file_faults(source: Files) -> Iterator[tuple[str, str, str]]:
    paths = cast("list[Any]", source.path if isinstance(source.path, list) else [source.path])
    if not paths or not all(isinstance(path, str) and path for path in paths):
        yield "source.path", "is no path", 'give a file, a folder, a glob or a list of them, quoted: ["2023.csv"]'
    if source.layout not in (None, *LAYOUTS):
        yield "source.layout", "is not known", f"choose {' or '.join(LAYOUTS)}, or null to recognise it"
    if source.columns is not None and not (
        isinstance(source.columns, dict)
        and all(isinstance(name, str) for pair in cast("dict[Any, Any]", source.columns).items() for name in pair)
    ):
        yield "source.columns", "is no map from our names to the file's", "write it as 'source.columns={close: Kurs}'"
    elif unknown := [name for name in cast("dict[str, str]", source.columns or {}) if name not in NAMES]:
        yield "source.columns", f"names {unknown[0]}, which is none of ours", f"choose from {', '.join(NAMES)}"
    for key in ("sep", "decimal", "thousands"):
        value = getattr(source, key)
        if value is not None and len(value) != 1:
            yield f"source.{key}", "is not one sign", f"give one, as 'source.{key}=\",\"'"
    if source.decimal == source.thousands:
        yield "source.thousands", "is the decimal sign as well", "give two different signs"
    if source.timezone is not None and source.timezone not in available_timezones():
        yield "source.timezone", "is not known", "give a name such as UTC or America/New_York"


def _yahoo_faults(source: Yahoo) -> Iterator[tuple[str, str, str]]:
    if source.symbols is None and source.symbols_file is None:
        yield "source.symbols", "names nothing to ask for", 'give symbols: [AAPL, "^GSPC"], or source.symbols_file'
    if source.interval not in INTERVALS:
        yield "source.interval", "is not known", f"choose one of {', '.join(INTERVALS)}"
    start, end = day_or_share(source.start), day_or_share(source.end)
    for key, day in (("start", start), ("end", end)):
        if not isinstance(day, date) and getattr(source, key) is not None:
            yield f"source.{key}", "is not a date", "write it as 2015-01-31"
    if isinstance(start, date) and isinstance(end, date) and start > end:
        yield "source.end", f"is before source.start={source.start}", "give a later one"


def day_or_share(value: Any) -> date | float | None:
    """A date, or a fraction between 0 and 1; None for anything else."""
    if isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError:
            return None
    return value if isinstance(value, float) and 0 < value < 1 else None
