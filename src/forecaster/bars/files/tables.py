"""A text file as a table: its separator, its header, its cells and where they stand."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from forecaster.bars.files import decorated
from forecaster.bars.files.cells import Text, cells_of, fields_of, lines_of
from forecaster.bars.files.layouts import is_header, is_wide_header, listed, normal, role, short, two_levels
from forecaster.bars.files.unpack import Note, decoded, unpacked
from forecaster.errors import DataError

HEADER_WITHIN = 30  # lines
RECOGNISED = (",", "\t")
REFUSED = (";", "|", " ")
METATRADER = ("Date", "Time", "Open", "High", "Low", "Close", "Volume")
KLINES = [
    "open_time",
    "open",
    "high",
    "low",
    "close",
    "volume",
    "close_time",
    "quote_volume",
    "count",
    "taker_buy_volume",
    "taker_buy_quote_volume",
    "ignore",
]


@dataclass(frozen=True)
class Table:
    """header and, of a header of two lines, the tickers. columns: one array of cells a name, text unless the file has
    types. lines: where rows stand. ragged: text of rows (their cells are blank) whose number of cells is not the
    header's. notes: kind, detail, action.
    """

    header: tuple[str, ...]
    tickers: tuple[str, ...] | None
    columns: list[Any]
    lines: Int[np.ndarray, " R"]
    ragged: dict[int, str]
    notes: tuple[Note, ...]
    about: str
    sep: str = ","
    unit: str = "line"


@dataclass(frozen=True)
class _Head:
    header: tuple[str, ...]
    tickers: tuple[str, ...] | None
    sep: str
    first: int  # line number, from 0, of the header
    body: int  # and of the first row


def read(path: Path, name: str, sep: str | None, is_wide: bool, named: Sequence[str]) -> Table:
    """The table in a text file, also in .gz or .zip. named: columns that the user gave, which a header must have.

    Lines before the header and repetitions of it are notes. DataError where the file can't be read or has no table.
    """
    content, notes = decoded(unpacked(path, name), name)
    text = lines_of(content)
    head = _head(text, name, sep, is_wide, named)
    if head.first:
        _check_preamble(text, name, head)
        skipped = " / ".join(short(line) for number in range(head.first) if (line := text.line(number).strip()))
        notes = [*notes, ("preamble", f"{name} lines 1 to {head.first}: {short(skipped)}", "skipped")]
    try:
        cells = cells_of(text, len(head.header), head.first, head.body, head.sep)
    except ValueError as reason:  # pyarrow's, if it sees other cells than were counted
        told = short(" ".join(str(reason).split()))
        raise DataError(f"{name} can't be split into cells ({told}): save it again as CSV") from reason
    notes += [("header", f"{name} line {line + 1}: the header again", "left out") for line in cells.repeated]
    if not content.endswith(b"\n") and (cell := _cut(cells.columns)):
        detail = (
            f"{name} line {cells.lines[-1] + 1}: the file ends within a line, at {cell!r}, shorter than those above"
        )
        notes.append(("cut", f"{detail}: is it whole?", "kept"))
    if not len(cells.lines):
        raise DataError(f"0 rows in {name}: it holds a header and nothing else: save it again with its bars")
    about = f"{name} line {head.first + 1}"
    return Table(head.header, head.tickers, cells.columns, cells.lines + 1, cells.ragged, tuple(notes), about, head.sep)


def _check_preamble(text: Text, name: str, head: _Head) -> None:
    """DataError where a line before the header looks like a bar: it would be lost among what is skipped."""
    for number in range(head.first):
        cells = [cell.strip() for cell in fields_of(text.line(number), head.sep)]
        numeric = sum(re.fullmatch(r"[-+$]?[\d.,]*\d", cell) is not None for cell in cells[1:])
        if len(cells) + 1 >= len(head.header) and re.match(r"\d", cells[0]) and 2 * numeric >= len(cells) - 1 > 0:
            raise DataError(
                f"{name} line {number + 1} looks like a bar but stands before the header on line {head.first + 1}: "
                "move the header to the top"
            )


def _cut(columns: Sequence[Any]) -> str:
    """The last cell of all, where it is shorter than the 20 above it; else nothing."""
    cells: list[str] = columns[-1][-21:].to_pylist()
    lengths = [len(cell) for cell in cells]
    return cells[-1] if len(cells) > 5 and 0 < lengths[-1] < min(lengths[:-1]) else ""


def _head(text: Text, name: str, sep: str | None, is_wide: bool, named: Sequence[str]) -> _Head:
    lines = [text.line(number) for number in range(min(HEADER_WITHIN + 3, len(text.starts)))]
    seps = (sep,) if sep else RECOGNISED
    found = _find(lines, seps, is_wide, named) or _without_header(lines, seps)
    if found:
        return found
    for other in (*REFUSED, *RECOGNISED):
        would = None if other in seps else _find(lines, (other,), is_wide, named)
        if would and (other != " " or all(role(field) for field in would.header)):  # blanks separate words, too
            following = [line for line in lines[would.body :] if line.strip()]
            commas = bool(following) and re.search(r"\d,\d", following[0]) is not None and other != ","
            more = " source.decimal=',' source.thousands='.'" if commas else ""
            shown = "\\t" if other == "\t" else other
            raise DataError(
                f"{name} line {would.first + 1}: no columns Date, Open, High, Low, Close: its fields are separated by "
                f"{shown!r}: give source.sep='{shown}'{more}"
            )
    raise _no_table(lines, name, seps[0])


def _no_table(lines: list[str], name: str, sep: str) -> DataError:
    number, first = next((number, line.strip()) for number, line in enumerate(lines) if line.strip())
    cells = [cell.strip() for cell in fields_of(first, sep)]
    if len(cells) > 2 and re.match(r"\d", cells[0]) and all(re.fullmatch(r"[-+\d.,:eE]*", cell) for cell in cells[1:]):
        return DataError(
            f"{name} has no header line: line {number + 1} holds {listed(cells)}: "
            "add one on top, such as Date,Open,High,Low,Close,Volume"
        )
    if is_wide_header(cells):
        decorated.check(cells, {}, False, f"{name} line {number + 1}")
        several = "if each column holds the closes of one symbol, give source.layout=wide"
        one = f"name it, as source.columns={{close: {short(cells[-1])}}}, or give source.layout=wide"
        found = f"{name} line {number + 1}: no column Close; found {listed(cells)}"
        return DataError(f"{found}: {several if len(cells) > 2 else one}")
    return DataError(
        f"{name} is not a price table: it begins with {short(first)!r}, and no line among its first {HEADER_WITHIN} "
        "names columns such as Date, Open, High, Low, Close: fetch it again, or name its columns in source.columns"
    )


def _find(lines: Sequence[str], seps: Sequence[str], is_wide: bool, named: Sequence[str]) -> _Head | None:
    """The first line that names columns, by the first separator that lets it."""
    for number, line in enumerate(lines[:HEADER_WITHIN]):
        for sep in seps:
            fields = fields_of(line, sep)
            following = fields_of(lines[number + 1], sep) if number + 1 < len(lines) else []
            levels = two_levels(fields, following)
            if levels:
                return _below_levels(lines, number, sep, *levels)
            trimmed = _trimmed(fields)
            starts = is_wide_header(trimmed) if is_wide else is_header(trimmed)
            if starts or (named and {normal(one) for one in named} <= {normal(field) for field in fields}):
                return _Head(trimmed, None, sep, number, number + 1)
    return None


def _below_levels(
    lines: Sequence[str], number: int, sep: str, prices: tuple[str, ...], tickers: tuple[str, ...]
) -> _Head:
    """Below prices and tickers a third line may name the dates and nothing else."""
    body = number + 2
    third = fields_of(lines[body], sep) if body < len(lines) else []
    if third and not any(cell.strip() for cell in third[1:]) and not re.match(r"\d", third[0].strip() or "0"):
        body += 1
    return _Head(prices, tickers, sep, number, body)


def _without_header(lines: Sequence[str], seps: Sequence[str]) -> _Head | None:
    """Two layouts that come without a header and can't be taken for anything else."""
    number, line = next(((number, line) for number, line in enumerate(lines) if line.strip()), (0, ""))
    for sep in seps:
        fields = [cell.strip() for cell in fields_of(line, sep)]
        numeric = [re.fullmatch(r"-?\d+(\.\d+)?", cell) is not None for cell in fields]
        if len(fields) == 12 and all(numeric) and re.fullmatch(r"\d{10}|\d{13}|\d{16}", fields[0]):
            return _Head(tuple(KLINES), None, sep, number, number)
        date_and_time = len(fields) == 7 and re.fullmatch(r"\d{4}\.\d\d\.\d\d,\d\d:\d\d(:\d\d)?", ",".join(fields[:2]))
        if date_and_time and all(numeric[2:]):
            return _Head(METATRADER, None, sep, number, number)
    return None


def _trimmed(fields: Sequence[str]) -> tuple[str, ...]:
    """A header without the empty cells that separators at the end of its line make."""
    last = max((number for number, cell in enumerate(fields) if cell.strip()), default=-1)
    return tuple(fields[: last + 1])
