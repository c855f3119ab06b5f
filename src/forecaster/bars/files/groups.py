"""The bars in one symbol's columns of a file, or in those of the whole table."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import pandas as pd
import pyarrow
from jaxtyping import Bool, Float, Int

from forecaster.bars.contract import NUMBERS, PRICES, Row
from forecaster.bars.files.layouts import Group, short
from forecaster.bars.files.numbers import Numbers, Place
from forecaster.bars.files.stamps import Stamps
from forecaster.bars.files.tables import Table

pa = cast(Any, pyarrow)  # without types

Unread = tuple[int, str, str]  # row, column, text
# From one bar to the next Adj Close over Close changes by a dividend's share of the price; above 3:2 it is a split.
STEP: Final = np.log(1.4)


@dataclass(frozen=True)
class GroupBars:
    """Rows of one symbol's columns (or of the whole table): at `rows` of the table, of the symbols `codes`."""

    rows: Int[np.ndarray, " N"]
    codes: Int[np.ndarray, " N"]
    numbers: dict[str, Float[np.ndarray, " N"]]
    unread: list[Unread]
    notes: list[Row]
    adjusted: bool


def bars_of(
    table: Table,
    group: Group,
    read: Mapping[int, Numbers],
    stamped: Stamps,
    names: tuple[str, ...],
    codes: Int[np.ndarray, " R"],
    asked: Bool[np.ndarray, " S"],
    whole: Mapping[int, Unread],
    place: Place,
) -> GroupBars:
    """The rows of one group, for the symbols asked for, with all prices on one basis.

    read, stamped, codes and whole are the table's: numbers by column, stamps, symbols, what of a row can't be read.
    """
    size = len(table.lines)
    symbol = names[0] if len(names) == 1 else group.symbol or ""
    notes: list[Row] = []
    columns = _one_volume(table, group, read, symbol, notes)
    values = {role: read[column].values for role, column in columns.items()}
    keep = np.ones(size, dtype=bool)
    if group.symbol is not None:
        codes = np.full(size, names.index(group.symbol))
        empty = np.logical_and.reduce([np.isnan(one) & ~read[columns[role]].unread for role, one in values.items()])
        empty[list(whole)] = False
        keep = ~empty
        if empty.any():
            first = place(int(empty.argmax()))
            detail = f"blank on {int(empty.sum())} of {size} dates, first {first}"
            notes.append((symbol, pd.NaT, "absent", detail, "no bar made"))
    else:
        keep = asked[codes]
    rows = np.flatnonzero(keep)
    values, adjusted, factor = _on_one_basis(values, rows, symbol, notes, place)
    if adjusted and "volume" in columns:
        notes += _splits_taken_out(factor, rows, codes, names, place)
    unread = [whole[row] for row in whole if keep[row]]
    for column in columns.values():
        name = shown(table, column)
        unread += [
            (row, name, cell_text(table.columns[column], row))
            for row in np.flatnonzero(read[column].unread & keep).tolist()
        ]
        if read[column].dashes:
            detail = f"{name} holds only '-' on {read[column].dashes} of {size} rows"
            notes.append((symbol, pd.NaT, "volume", detail, "read as blank"))
    position = np.cumsum(keep) - 1
    return GroupBars(
        rows=rows,
        codes=codes[rows].astype(np.int64),
        numbers={name: values[name][rows] if name in values else np.full(len(rows), np.nan) for name in NUMBERS},
        unread=[(int(position[row]), column, text) for row, column, text in unread],
        notes=notes,
        adjusted=adjusted,
    )


def _one_volume(
    table: Table, group: Group, read: Mapping[int, Numbers], symbol: str, notes: list[Row]
) -> dict[str, int]:
    """The columns with `volume` only: that of ticks where there is no other, or the other is 0 throughout."""
    columns = dict(group.columns)
    ticks = columns.pop("ticks", None)
    if ticks is None:
        return columns
    if "volume" in columns and (read[columns["volume"]].values > 0).any():
        return columns
    other = f"; {shown(table, columns['volume'])} is 0 throughout" if "volume" in columns else ""
    notes.append((symbol, pd.NaT, "volume", f"volume is {shown(table, ticks)}, a count of ticks{other}", "used"))
    return {**columns, "volume": ticks}


def _on_one_basis(
    values: dict[str, Float[np.ndarray, " R"]], rows: Int[np.ndarray, " N"], symbol: str, notes: list[Row], place: Place
) -> tuple[dict[str, Float[np.ndarray, " R"]], bool, Float[np.ndarray, " R"]]:
    """All prices scaled by Adj Close over Close, if there is one wherever there is a close; else as given.

    Whether they were, and the factors.
    """
    given = (values, False, np.ones(len(values["close"])))
    if "adjusted" not in values:
        return given
    close, adjusted = values["close"], values["adjusted"]
    needed = np.zeros(len(close), dtype=bool)
    needed[rows] = close[rows] > 0
    missing = needed & ~(adjusted > 0)
    if missing.any():
        where = f"{int(missing.sum())} of {len(rows)} rows, first {place(int(missing.argmax()))}"
        notes.append((symbol, pd.NaT, "adj_close", f"no usable Adj Close on {where}", "left out: prices as given"))
        return given
    # A close that is no price scales nothing: the row is reported as it stands.
    factor = np.divide(adjusted, close, out=np.ones(len(close)), where=needed)
    scaled = {price: values[price] * factor for price in PRICES if price in values}
    # Exactly the file's number, not Close times a rounded quotient.
    scaled["close"] = np.where(needed, adjusted, close)
    return {**values, **scaled}, True, factor


def _splits_taken_out(
    factor: Float[np.ndarray, " R"],
    rows: Int[np.ndarray, " N"],
    codes: Int[np.ndarray, " R"],
    names: tuple[str, ...],
    place: Place,
) -> Iterator[Row]:
    """A note for each symbol whose factor steps by more than a dividend: volumes are of the shares of their day."""
    ordered = rows[np.argsort(codes[rows], kind="stable")]
    steps = np.abs(np.diff(np.log(factor[ordered]))) >= STEP
    of = codes[ordered[1:]]
    steps &= of == codes[ordered[:-1]]
    for code in np.unique(of[steps]).tolist():
        found = ordered[1:][steps & (of == code)]
        detail = f"splits in Close that Adj Close takes out: {len(found)}, first {place(int(found[0]))}"
        yield names[code], pd.NaT, "adj_close", f"{detail}: volumes may count the shares of their day", "told"


def shown(table: Table, column: int) -> str:
    """A column's name for people."""
    ticker = "" if table.tickers is None or not column else f" of {short(table.tickers[column].strip())}"
    return (short(table.header[column].strip()) or f"column {column + 1}") + ticker


def cell_text(column: Any, row: int) -> str:
    """A cell as the file has it."""
    return column[row].as_py() if isinstance(column, pa.Array) else str(column[row])
