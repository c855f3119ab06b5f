"""Source `files`: bars from files that a user has, in any layout that can be recognised."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow.compute

from forecaster.bars.contract import NUMBERS, Row
from forecaster.bars.files.clocks import Clocks, settle
from forecaster.bars.files.layouts import OURS, listed, short
from forecaster.bars.files.parts import Part, Reading, part
from forecaster.bars.files.paths import found
from forecaster.bars.raw import Raw
from forecaster.errors import ConfigError, DataError

# Without types.
pa, pc = cast(Any, pyarrow), cast(Any, pyarrow.compute)


@dataclass(frozen=True)
class Options:
    """What a user may say about files of bars.

    path: files, folders and globs. layout: None (recognised) or "wide" (one column of closes a symbol). sep: None is a
    comma or a tab. columns: our names (time date clock symbol open high low close volume) -> the files'. symbols: only
    these; None is all.
    """

    path: tuple[str, ...]
    layout: str | None = None
    sep: str | None = None
    decimal: str = "."
    thousands: str | None = None
    date_format: str | None = None
    timezone: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict[str, str])
    symbols: tuple[str, ...] | None = None


def read(options: Options) -> Raw:
    """The rows of all files, in the order of the paths, then as found, stamps as session dates or UTC.

    DataError, in one line, where a file can't be read in exactly one way; ConfigError for an option that says nothing.
    """
    _check(options)
    paths, notes = found(options.path)
    reading = Reading(
        wide=options.layout == "wide",
        sep="\t" if options.sep == "\\t" else options.sep,
        decimal=options.decimal,
        thousands=options.thousands,
        date_format=options.date_format,
        columns=options.columns,
        symbols=None if options.symbols is None else frozenset(options.symbols),
    )
    parts = [part(path, name, reading) for name, path in paths.items()]
    if options.symbols is not None:
        _check_found(options.symbols, parts, options.path)
    return _together([one for one in parts if len(one.lines)], parts, notes, options.timezone, tuple(paths.values()))


def _check(options: Options) -> None:
    if options.layout not in (None, "wide"):
        raise ConfigError(f"source.layout={options.layout}: choose wide, or leave it out")
    if options.sep is not None and (len(options.sep) != 1 or not options.sep.isascii()) and options.sep != "\\t":
        raise ConfigError(f"source.sep={options.sep!r}: give one character, such as ';' or '\\t'")
    if options.sep in ('"', "\n", "\r") or (options.sep == options.decimal == "."):
        raise ConfigError(f"source.sep={options.sep!r}: it can't separate fields: give one such as ';' or '\\t'")
    if options.decimal not in (".", ","):
        raise ConfigError(f"source.decimal={options.decimal!r}: choose '.' or ','")
    if options.thousands is not None and options.thousands not in (".", ",", "'", " ", "_", "’"):
        raise ConfigError(f"source.thousands={options.thousands!r}: choose '.', ',', \"'\" or ' '")
    if options.thousands == options.decimal:
        raise ConfigError(f"source.thousands={options.thousands!r} is source.decimal too: give two characters")
    unknown = [name for name in options.columns if name not in OURS]
    if unknown:
        raise ConfigError(f"source.columns={{{unknown[0]}: ...}}: name ours first: choose from {', '.join(OURS)}")
    if not options.path:
        raise ConfigError("source.path: no path given: name files, folders or globs")


def _check_found(wanted: Sequence[str], parts: Sequence[Part], path: Sequence[str]) -> None:
    known = list(dict.fromkeys(symbol for one in parts for symbol in one.seen))
    present = {symbol for one in parts for symbol in one.symbols}
    for symbol in wanted:
        if symbol in known and symbol not in present:
            raise DataError(
                f"{', '.join(path)}: {symbol!r} has no bar, its cells are blank: leave it out of the symbols"
            )
        if symbol not in known:
            near = difflib.get_close_matches(symbol, known, n=3, cutoff=0.5)
            raise DataError(f"{', '.join(path)}: no symbol {symbol!r}: choose from {listed(near or known)}")


def _together(
    parts: Sequence[Part],
    all_parts: Sequence[Part],
    notes: Sequence[Row],
    timezone: str | None,
    files: tuple[Path, ...],
) -> Raw:
    notes = [*notes, *(note for one in all_parts for note in one.notes)]
    if not parts:
        raise DataError(f"0 rows in {', '.join(map(str, files[:3]))}: nothing is left to read: choose other files")
    symbols = list(dict.fromkeys(symbol for one in parts for symbol in one.symbols))
    number = {symbol: code for code, symbol in enumerate(symbols)}
    codes = np.concatenate([np.array([number[s] for s in one.symbols], dtype=np.int64)[one.symbol] for one in parts])
    starts = np.cumsum([0, *(len(one.lines) for one in parts)])

    def place(row: int) -> str:
        which = int(np.searchsorted(starts, row, side="right")) - 1
        return parts[which].place(row - int(starts[which]))

    wall = np.concatenate([one.wall for one in parts])
    settled = settle(
        Clocks(
            wall=wall,
            ahead=np.concatenate([one.ahead for one in parts]),
            aware=np.concatenate([np.full(len(one.lines), one.aware) for one in parts]),
            symbol=codes,
            symbols=symbols,
            place=place,
        ),
        timezone,
    )
    times = cast(Any, pd.Series(settled.times))
    frame = pd.DataFrame(
        {
            "symbol": _text(pa.array(symbols, pa.large_string()).take(pa.array(codes))),
            "time": times.dt.tz_localize("UTC") if settled.intraday else times,
            **{name: np.concatenate([one.numbers[name] for one in parts]) for name in NUMBERS},
            "place": _text(pa.chunked_array([_places(one) for one in parts])),
        }
    )
    unread = [
        (int(start) + row, column, text)
        for start, one in zip(starts[:-1], parts, strict=True)
        for row, column, text in one.unread
    ]
    for row in cast(list[int], settled.skipped.tolist()):
        which = int(np.searchsorted(starts, row, side="right")) - 1
        unread.append((row, parts[which].time, str(np.datetime_as_string(wall[[row]], unit="s")[0]).replace("T", " ")))
    return Raw(
        frame=frame,
        unread=_unread(unread),
        notes=(*notes, *settled.notes),
        basis=_basis(parts),
        intraday=settled.intraday,
        files=files,
    )


def _places(one: Part) -> Any:
    prefix, nothing = pa.scalar(f"{one.name} {one.unit} ", pa.large_string()), pa.scalar("", pa.large_string())
    return pc.binary_join_element_wise(prefix, pc.cast(pa.array(one.lines), pa.large_string()), nothing)


def _text(cells: Any) -> "pd.Series[str]":
    # Straight from pyarrow: through Python's texts it would take ten times as long.
    return pd.Series(pd.array(cells, dtype="str"))


def _unread(cells: Sequence[tuple[int, str, str]]) -> pd.DataFrame:
    ordered = sorted(cells, key=lambda cell: cell[0])
    return pd.DataFrame(
        {
            "row": np.array([row for row, _, _ in ordered], dtype=np.int64),
            "column": pd.Series([column for _, column, _ in ordered], dtype="str"),
            "text": pd.Series([text for _, _, text in ordered], dtype="str"),
        }
    )


def _basis(parts: Sequence[Part]) -> str:
    """How prices were adjusted, and of which symbols where not all were. DataError for a symbol that is both."""
    adjusted: dict[str, str] = {}
    given: dict[str, str] = {}
    for one in parts:
        for symbol in one.symbols:
            (adjusted if symbol in one.adjusted else given).setdefault(symbol, one.name)
    both = [symbol for symbol in adjusted if symbol in given]
    if both:
        raise DataError(
            f"{short(both[0])}: prices on two bases: Adj Close in {adjusted[both[0]]}, as given in {given[both[0]]}: "
            "keep the files of one"
        )
    if not adjusted:
        return "as given"
    text = "Adj Close; open, high and low scaled with it"
    return text if not given else f"{text}, for {listed(list(adjusted))}; as given for {listed(list(given))}"
