"""Lines of text as cells, each row with the line on which it stands in the file."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow.compute
import pyarrow.csv
from jaxtyping import Bool, Int

# Without types.
pa, pc, arrow_csv = cast(Any, pyarrow), cast(Any, pyarrow.compute), cast(Any, pyarrow.csv)

# Lines that one quoted cell may reach over; beyond, a lone quote is a fault of its line.
QUOTED_LINES = 20


@dataclass(frozen=True)
class Text:
    """UTF-8 with LF only. starts, ends: of the lines, in bytes."""

    content: bytes
    starts: Int[np.ndarray, " N"]
    ends: Int[np.ndarray, " N"]

    def line(self, number: int) -> str:
        """A line without its end."""
        return self.content[self.starts[number] : self.ends[number]].decode()


def lines_of(content: bytes) -> Text:
    """Text as lines."""
    breaks = np.flatnonzero(np.frombuffer(content, dtype=np.uint8) == ord("\n"))
    starts, ends = np.concatenate([[0], breaks + 1]), np.concatenate([breaks, [len(content)]])
    if starts[-1] == len(content):  # the last line ends the file
        starts, ends = starts[:-1], ends[:-1]
    return Text(content, starts.astype(np.int64), ends.astype(np.int64))


def fields_of(line: str, mark: str, strict: bool = False) -> list[str]:
    """The cells of one record; none where its quotes leave no single record, or (strict) don't close."""
    try:
        records = list(csv.reader(io.StringIO(line), delimiter=mark, skipinitialspace=mark != " ", strict=strict))
    except csv.Error:  # strict, or a cell of more than 128 KiB
        return []
    return records[0] if len(records) == 1 else []


@dataclass(frozen=True)
class Cells:
    """columns: pyarrow strings. lines: of each row, from 0. ragged: text of the rows, all blank in columns, that have
    not the header's number of cells. repeated: lines that hold the header once more, left out.
    """

    columns: list[Any]
    lines: Int[np.ndarray, " R"]
    ragged: dict[int, str]
    repeated: list[int]


def cells_of(text: Text, width: int, first: int, body: int, mark: str) -> Cells:
    """The cells of all lines from `body` on but empty ones. width: of the header, which stands on line `first`."""
    quoting = _quoting(text, body, mark, width)
    rows, ends = quoting.rows, quoting.ends
    usual = max(width, int(np.bincount(quoting.cells).argmax()) if len(rows) else width)
    repeated = _repeated(text, first, body)
    # Lines that are not simply cells: left out where None, else written anew.
    anew: dict[int, str | None] = dict.fromkeys(repeated)
    ragged_lines: dict[int, str] = {}
    for row in rows[(quoting.cells != usual) | quoting.strange].tolist():
        line = text.content[text.starts[row] : ends[row]].decode()
        if not line.strip() or row in anew:
            anew[row] = None
            continue
        cells = fields_of(line, mark, strict=row in quoting.lonely)
        if len(cells) < width or any(cell.strip() for cell in cells[width:]):
            ragged_lines[row], cells = line, []
        anew[row] = _written((cells + [""] * usual)[:usual], mark)
    columns = _parsed(_body(text, ends, rows, anew), usual, mark)
    rows = rows[~np.isin(rows, [row for row, line in anew.items() if line is None])]
    ragged = {int(np.searchsorted(rows, row)): line for row, line in ragged_lines.items()}
    beyond = _filled(columns[width:])
    ragged |= {row: text.content[text.starts[rows[row]] : ends[rows[row]]].decode() for row in beyond}
    columns = columns[:width]
    if beyond:
        blank = pa.array(np.isin(np.arange(len(rows)), beyond))
        columns = [pc.if_else(blank, "", column) for column in columns]
    return Cells(columns, rows, ragged, repeated)


@dataclass(frozen=True)
class _Quoting:
    """rows: lines that start a record. ends: where records end. cells: how many each row has. strange: rows whose
    quotes stand elsewhere than around a cell. lonely: those with a quote that nothing closes.
    """

    rows: Int[np.ndarray, " R"]
    ends: Int[np.ndarray, " N"]
    cells: Int[np.ndarray, " R"]
    strange: Bool[np.ndarray, " R"]
    lonely: frozenset[int]


def _quoting(text: Text, body: int, mark: str, width: int) -> _Quoting:
    content = np.frombuffer(text.content, dtype=np.uint8)
    seps, quotes = np.flatnonzero(content == ord(mark)), np.flatnonzero(content == ord('"'))
    rows, ends = np.arange(body, len(text.starts)), text.ends
    strange, lonely = np.zeros(len(rows), dtype=bool), frozenset[int]()
    if len(quotes) and len(rows):
        joined, lonely = _joined(text, quotes, body, mark, width)
        inner = [line for row, last in joined.items() for line in range(row + 1, last + 1)]
        rows, ends = rows[~np.isin(rows, inner)], ends.copy()
        ends[list(joined)] = text.ends[list(joined.values())]
        begin = text.starts[rows]
        seps, quotes = seps[seps >= begin[0]], quotes[quotes >= begin[0]]
        before = np.searchsorted(quotes, begin)
        of_sep = np.searchsorted(begin, seps, side="right") - 1
        seps = seps[(np.searchsorted(quotes, seps) - before[of_sep]) % 2 == 0]
        of_quote = np.searchsorted(begin, quotes, side="right") - 1
        opening = (np.arange(len(quotes)) - before[of_quote]) % 2 == 0
        # Around a cell: after a separator or a line's start, before a separator or a line's end; or one of a pair.
        padded = np.concatenate([content, np.array([ord("\n")], dtype=np.uint8)])
        beside = np.where(opening, padded[quotes - 1], padded[quotes + 1])
        fine = np.isin(beside, [ord(mark), ord("\n"), ord('"')])
        strange = np.isin(np.arange(len(rows)), of_quote[~fine]) | np.isin(rows, list(lonely))
    cells = np.searchsorted(seps, ends[rows]) - np.searchsorted(seps, text.starts[rows]) + 1
    return _Quoting(rows, ends, cells, strange, lonely)


def _joined(
    text: Text, quotes: Int[np.ndarray, " N"], body: int, mark: str, width: int
) -> tuple[dict[int, int], frozenset[int]]:
    """Lines that a quoted cell joins, first to last, and those with a quote that nothing closes."""
    odd = np.flatnonzero((np.searchsorted(quotes, text.ends) - np.searchsorted(quotes, text.starts)) % 2)
    waiting = [row for row in odd.tolist() if row >= body]
    joined: dict[int, int] = {}
    lonely: set[int] = set()
    position = 0
    while position < len(waiting):
        row, last = waiting[position], waiting[min(position + 1, len(waiting) - 1)]
        record = text.content[text.starts[row] : text.ends[last]].decode()
        # A later line that looks like a row is one: the quote before it is a stray one.
        rows = any(
            line.count(mark) + 1 >= (width if line.lstrip(' "')[:1].isdigit() else max(width, 5))
            for line in record.split("\n")[1:]
        )
        near = 0 < last - row <= QUOTED_LINES and not rows
        cells = fields_of(record, mark) if near else []
        if len(cells) >= width and not any(cell.strip() for cell in cells[width:]):
            joined[row] = last
            position += 2
        else:
            lonely.add(row)
            position += 1
    return joined, frozenset(lonely)


def _repeated(text: Text, first: int, body: int) -> list[int]:
    """Lines below the header that hold it once more: files that were put together."""
    if body == first:
        return []
    wanted = text.content[text.starts[first] : text.ends[first]]
    found: list[int] = []
    at = text.content.find(b"\n" + wanted + b"\n", int(text.ends[body - 1]))
    while at >= 0:
        found.append(int(np.searchsorted(text.starts, at + 1)))
        at = text.content.find(b"\n" + wanted + b"\n", at + 1)
    return found


def _body(text: Text, ends: Int[np.ndarray, " N"], rows: Int[np.ndarray, " R"], anew: dict[int, str | None]) -> bytes:
    """The rows as one piece, those in `anew` as written there."""
    pieces: list[bytes] = []
    start = 0
    for position in [*np.flatnonzero(np.isin(rows, list(anew))).tolist(), len(rows)]:
        if position > start:
            pieces.append(text.content[text.starts[rows[start]] : ends[rows[position - 1]]])
        if position < len(rows) and (line := anew[int(rows[position])]) is not None:
            pieces.append(line.encode())
        start = position + 1
    return b"\n".join(pieces)


def _written(cells: Sequence[str], mark: str) -> str:
    line = io.StringIO()
    csv.writer(line, delimiter=mark, lineterminator="\n").writerow(cells)  # a cell is quoted where it holds this end
    return line.getvalue()[:-1]


def _parsed(body: bytes, width: int, mark: str) -> list[Any]:
    names = [str(column) for column in range(width)]
    if not body:
        return [pa.array([], pa.string()) for _ in names]
    # One block: a cell or a line never straddles two.
    table = arrow_csv.read_csv(
        pa.BufferReader(body),
        read_options=arrow_csv.ReadOptions(column_names=names, use_threads=False, block_size=len(body) + 1),
        parse_options=arrow_csv.ParseOptions(delimiter=mark, newlines_in_values=True, ignore_empty_lines=False),
        convert_options=arrow_csv.ConvertOptions(
            column_types={name: pa.string() for name in names}, strings_can_be_null=False, null_values=[]
        ),
    )
    return [table.column(name).combine_chunks() for name in names]


def _filled(columns: Sequence[Any]) -> list[int]:
    """Rows with text in one of these columns."""
    rows = [np.flatnonzero(pc.not_equal(pc.utf8_trim_whitespace(column), "")) for column in columns]
    return sorted({int(row) for found in rows for row in found})
