"""One file's rows, as numbers and stamps, before its symbols are judged together with those of other files."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow.compute
from jaxtyping import Float, Int

from forecaster.bars.contract import NUMBERS, PRICES, Row
from forecaster.bars.files import columnar, decorated, numbers, stamps, tables
from forecaster.bars.files.cells import fields_of
from forecaster.bars.files.groups import Unread, bars_of, cell_text, shown
from forecaster.bars.files.layouts import Group, Layout, long, per_ticker, role, short, wide
from forecaster.bars.files.numbers import Numbers, Place
from forecaster.bars.files.paths import stem
from forecaster.bars.files.stamps import Stamps
from forecaster.bars.files.tables import Table
from forecaster.bars.files.unpack import Note
from forecaster.errors import DataError

# Without types.
pa, pc = cast(Any, pyarrow), cast(Any, pyarrow.compute)


@dataclass(frozen=True)
class Reading:
    """How files are to be read: see `files.Options`."""

    wide: bool
    sep: str | None
    decimal: str
    thousands: str | None
    date_format: str | None
    columns: Mapping[str, str]
    symbols: frozenset[str] | None


@dataclass(frozen=True)
class Part:
    """One file's rows.

    symbol: numbers into `symbols`. wall, ahead, aware: as in Stamps. numbers: by our names, NaN where blank or absent.
    seen: symbols of the file, also those not asked for. adjusted: those scaled by Adj Close. time: the name in the file
    of the column of stamps.
    """

    name: str
    unit: str
    symbols: tuple[str, ...]
    seen: tuple[str, ...]
    symbol: Int[np.ndarray, " R"]
    wall: np.ndarray  # datetime64[us]
    ahead: Int[np.ndarray, " R"]
    aware: bool
    numbers: Mapping[str, Float[np.ndarray, " R"]]
    lines: Int[np.ndarray, " R"]
    unread: tuple[Unread, ...]
    notes: tuple[Row, ...]
    adjusted: frozenset[str]
    time: str

    def place(self, row: int) -> str:
        """Where a row stands, as "a.csv line 46"."""
        return f"{self.name} {self.unit} {self.lines[row]}"


def part(path: Path, name: str, reading: Reading) -> Part:
    """The rows of one file for the symbols asked for. DataError where it can't be read in exactly one way."""
    if columnar.SUFFIX.search(path.name):
        table = columnar.read(path, name)
    else:
        table = tables.read(path, name, reading.sep, reading.wide, tuple(reading.columns.values()))

    def place(row: int) -> str:
        return f"{name} {table.unit} {table.lines[row]}"

    layout = _layout(table, stem(name), reading)
    table, foot = _without_footer(table, layout, name)
    names, codes = _symbols(table, layout, name)
    asked = np.array([reading.symbols is None or not one or one in reading.symbols for one in names])
    about = names[0] if len(names) == 1 else ""
    notes: list[Row] = [(about, pd.NaT, *note) for note in (*table.notes, *foot)]
    groups = [group for group in layout.groups if group.symbol is None or asked[names.index(group.symbol)]]
    if not groups or not asked.any():  # nobody asked for this file: nothing in it is judged
        table, codes, groups = _empty(table), codes[:0], []
    time = shown(table, layout.time)
    clock = None if layout.clock is None else table.columns[layout.clock]
    stamped = _stamps(table.columns[layout.time], clock, reading.date_format, time, place)
    read = _numbers(table, groups, reading, place)
    whole = _whole_rows(table, layout, stamped, codes)
    pieces = [bars_of(table, group, read, stamped, names, codes, asked, whole, place) for group in groups]
    starts = np.cumsum([0, *(len(piece.rows) for piece in pieces)])
    rows = np.concatenate([np.zeros(0, dtype=np.int64), *(piece.rows for piece in pieces)])
    used = np.concatenate([np.zeros(0, dtype=np.int64), *(piece.codes for piece in pieces)])
    present, symbol = np.unique(used, return_inverse=True)
    kept = [names[code] for code in cast(list[int], present.tolist())]
    return Part(
        name=name,
        unit=table.unit,
        symbols=tuple(kept),
        seen=names,
        symbol=symbol.astype(np.int32),
        wall=stamped.wall[rows],
        ahead=stamped.ahead[rows].astype(np.int16),
        aware=stamped.aware,
        numbers={
            number: np.concatenate([np.zeros(0), *(piece.numbers[number] for piece in pieces)]) for number in NUMBERS
        },
        lines=table.lines[rows].astype(np.int32),
        unread=tuple(
            (int(start) + row, column, text)
            for start, piece in zip(starts[:-1], pieces, strict=True)
            for row, column, text in piece.unread
        ),
        notes=(*notes, *(note for piece in pieces for note in piece.notes)),
        adjusted=frozenset(
            names[int(code)] for piece in pieces if piece.adjusted for code in set(piece.codes.tolist())
        ),
        time=time,
    )


def _layout(table: Table, symbol: str, reading: Reading) -> Layout:
    if table.tickers is None:
        decorated.check(table.header, reading.columns, reading.wide, table.about)
    if reading.wide:
        if table.tickers is not None:
            raise DataError(f"{table.about}: prices and tickers above each other: leave out source.layout=wide")
        return wide(table.header, reading.columns, table.about)
    if table.tickers is not None:
        if reading.columns:
            raise DataError(f"{table.about}: prices and tickers above each other: leave out source.columns")
        return per_ticker(table.header, table.tickers, table.about)
    codes = [
        cells[0].as_py() for name, cells in zip(table.header, table.columns, strict=True) if _is_symbol(name, cells)
    ]
    pair = codes[0] if codes else symbol
    hint = "name it, as source.columns={close: NAME}"
    if len(table.header) > 2:
        hint += ", or give source.layout=wide if each column holds the closes of one symbol"
    return long(table.header, reading.columns, pair, table.about, hint)


def _is_symbol(name: str, cells: Any) -> bool:
    return role(name) == "symbol" and isinstance(cells, pa.Array)


def _without_footer(table: Table, layout: Layout, name: str) -> tuple[Table, list[Note]]:
    """The table without the lines at its end that have no date and not all prices, and a note of each."""
    if table.unit != "line":
        return table, []
    prices = sorted({column for group in layout.groups for role, column in group.columns.items() if role in PRICES})
    last = len(table.lines)
    notes: list[Note] = []
    while last and (line := _foot(table, layout, prices, last - 1)) is not None:
        last -= 1
        notes.append(("footer", f"{name} line {table.lines[last]}: {short(line)!r}", "left out"))
    if not last:
        raise DataError(f"0 rows in {name}: no line below its header begins with a date: save it again with its bars")
    if not notes:
        return table, []
    cut = replace(
        table,
        columns=[column[:last] for column in table.columns],
        lines=table.lines[:last],
        ragged={row: line for row, line in table.ragged.items() if row < last},
    )
    return cut, notes[::-1]


def _foot(table: Table, layout: Layout, prices: Sequence[int], row: int) -> str | None:
    """The text of a row that is no bar; a date that was cut still begins with a digit."""
    if row in table.ragged:
        cells = fields_of(table.ragged[row], table.sep)
        date = cells[layout.time].strip() if layout.time < len(cells) else ""
        all_prices = sum(map(_is_number, cells)) >= min(len(prices), 4)
        line = table.ragged[row]
    else:
        date = table.columns[layout.time][row].as_py().strip()
        all_prices = all(_is_number(table.columns[column][row].as_py()) for column in prices)
        line = table.sep.join(column[row].as_py() for column in table.columns)
    dated = re.match(r"[-\d]|(?:[A-Za-z]{3,9},? )?(?:[A-Za-z]{3,9}\.? )?\d{1,2},? \d{4}", date)
    return None if dated or all_prices else line


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\s*[-+$€£]?[\d.,]*\d[\d.,]*\s*", text) is not None


def _symbols(table: Table, layout: Layout, name: str) -> tuple[tuple[str, ...], Int[np.ndarray, " R"]]:
    """Names of a file's symbols and the number of each row's; for layouts with columns for each symbol all 0."""
    if layout.symbol is None:
        own = tuple(group.symbol for group in layout.groups if group.symbol is not None)
        return own or (stem(name),), np.zeros(len(table.lines), dtype=np.int64)
    cells = table.columns[layout.symbol]
    if not isinstance(cells, pa.Array):
        raise DataError(
            f"{table.about}: column {shown(table, layout.symbol)} holds numbers, so that zeros in front of symbols are "
            "lost: write symbols as text"
        )
    encoded = pc.utf8_trim_whitespace(cells).dictionary_encode()
    names: tuple[str, ...] = tuple(encoded.dictionary.to_pylist())
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    # A line with too few or too many cells may still tell whose it is.
    known = {symbol: code for code, symbol in enumerate(names)}
    for row, line in table.ragged.items():
        fields = fields_of(line, table.sep)
        told = fields[layout.symbol].strip() if layout.symbol < len(fields) else ""
        codes[row] = known.get(told, codes[row])
    return names, codes


def _empty(table: Table) -> Table:
    return replace(table, columns=[column[:0] for column in table.columns], lines=table.lines[:0], ragged={})


def _stamps(cells: Any, clock: Any | None, date_format: str | None, name: str, place: Place) -> Stamps:
    if isinstance(cells, pd.Series):
        read = stamps.typed(cast("pd.Series[Any]", cells))
        if read.unread.all():
            raise DataError(
                f"{place(0)}: {name} {cells.iloc[0]}: no stamp of the file lies in 1900 to 2100, or all on 1970-01-01: "
                "their unit was taken for another: save them again"
            )
        return read
    text, beside = _as_text(cells), None if clock is None else _as_text(clock)
    return stamps.read(text, beside, date_format, name, place)


def _as_text(cells: Any) -> Any:
    """Text of the cells of a typed column of counts or clock times."""
    if isinstance(cells, pa.Array):
        return cells
    if isinstance(cells, pd.Series):
        return pa.array(cells.dt.strftime("%H:%M:%S").fillna(""), pa.string())
    return pa.array(["" if np.isnan(cell) else f"{cell:.0f}" for cell in cells], pa.string())


def _numbers(table: Table, groups: Sequence[Group], reading: Reading, place: Place) -> dict[int, Numbers]:
    """Every column that some group needs, read once."""
    roles = {column: role for group in groups for role, column in group.columns.items()}
    text = {column: table.columns[column] for column in roles if isinstance(table.columns[column], pa.Array)}
    names = {column: shown(table, column) for column in text}
    read = numbers.read(
        {names[column]: cells for column, cells in text.items()},
        frozenset(names[column] for column in text if roles[column] in ("volume", "ticks")),
        reading.decimal,
        reading.thousands,
        place,
    )
    other = {column: table.columns[column] for column in roles if column not in text}
    for column, cells in other.items():
        if isinstance(cells, pd.Series):
            raise DataError(f"{table.about}: column {shown(table, column)} holds stamps where numbers are meant")
    return {column: read[name] for column, name in names.items()} | {
        column: numbers.typed(cells) for column, cells in other.items()
    }


def _whole_rows(table: Table, layout: Layout, stamped: Stamps, codes: Int[np.ndarray, " R"]) -> dict[int, Unread]:
    """What can't be read of a row apart from its numbers: its line, its stamp, its symbol."""
    found: dict[int, Unread] = {}
    if layout.symbol is not None and len(codes):
        blank = pc.equal(pc.utf8_trim_whitespace(table.columns[layout.symbol]), "").to_numpy(zero_copy_only=False)
        found |= {int(row): (int(row), shown(table, layout.symbol), "") for row in np.flatnonzero(blank)}
    for row in np.flatnonzero(stamped.unread).tolist():
        cells = [table.columns[layout.time], *([] if layout.clock is None else [table.columns[layout.clock]])]
        text = " ".join(cell_text(column, row) for column in cells).strip()
        found[row] = (row, shown(table, layout.time), text)
    return found | {row: (row, "line", line) for row, line in table.ragged.items()}
