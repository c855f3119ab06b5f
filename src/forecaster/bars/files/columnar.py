"""Parquet and Feather files as tables: cells with types, and an index that may hold stamps and symbols."""

import re
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow.compute
import pyarrow.feather
import pyarrow.parquet

from forecaster.bars.files.layouts import listed, normal, role, short, two_levels
from forecaster.bars.files.tables import Table
from forecaster.errors import DataError

pa = cast(Any, pyarrow)  # without types

# What pyarrow raises, and what pandas does where the description of the columns that it left in the file is damaged.
UNREADABLE: tuple[type[Exception], ...] = (
    *(OSError, ValueError, pa.ArrowException),
    *(LookupError, TypeError, AttributeError, SyntaxError),
)

SUFFIX = re.compile(r"\.(parquet|pq|feather|ftr)$", re.IGNORECASE)


def read(path: Path, name: str) -> Table:
    """The table in a Parquet or Feather file: text as pyarrow strings, numbers as float64, stamps as they are.

    DataError where the file is cut or broken, or holds no rows.
    """
    try:
        if path.suffix.lower() in (".feather", ".ftr"):
            table = cast(Any, pyarrow.feather).read_table(path)
        else:
            table = cast(Any, pyarrow.parquet).ParquetFile(path, page_checksum_verification=True).read()
        frame: pd.DataFrame = table.to_pandas(date_as_object=False)
    except PermissionError as reason:
        raise DataError(f"{name} can't be opened: no permission to read it: change its mode") from reason
    except UNREADABLE as reason:
        text = short(" ".join(str(reason).split()))
        empty = path.stat().st_size == 0
        what = "is empty" if empty else f"is cut or no {path.suffix.lower()[1:].capitalize()} file ({text})"
        raise DataError(f"{name} {what}: fetch it again") from reason
    index = _index(frame)
    prices, tickers = _levels(frame)
    columns = [*index.values(), *(frame.iloc[:, column] for column in range(frame.shape[1]))]
    header = (*index, *prices)
    if not len(frame):
        raise DataError(f"0 rows in {name}: it names {listed(header)} and holds nothing: save it again with its bars")
    split = two_levels(header, (*("" for _ in index), *tickers)) if tickers else None
    if tickers and (split is None or not index):
        raise DataError(
            f"{name}: two lines of column names, {listed(prices)} and {listed(tickers)}: save one symbol a row"
        )
    lines = np.arange(1, len(frame) + 1)
    return Table(
        header=split[0] if split else header,
        tickers=split[1] if split else None,
        columns=[_cells(column) for column in columns],
        lines=lines,
        ragged={},
        notes=(),
        about=name,
        unit="row",
    )


def _index(frame: pd.DataFrame) -> "dict[str, pd.Series[Any]]":
    """The levels of the index that hold something, under a name that tells what."""
    levels: dict[str, pd.Series[Any]] = {}
    several = frame.index.nlevels > 1
    for number in range(frame.index.nlevels):
        level = frame.index.get_level_values(number)
        name = "" if level.name is None else str(level.name)
        stamps = isinstance(level, pd.DatetimeIndex)
        if not name and not stamps and not several and pd.api.types.is_numeric_dtype(level.dtype):
            continue  # row numbers
        if stamps and role(name) not in ("date", "clock", "epoch"):
            name = "Date"
        elif several and not stamps and role(name) is None and not pd.api.types.is_numeric_dtype(level.dtype):
            name = "Symbol"
        levels[name] = pd.Series(level, index=frame.index)
    return levels


def _levels(frame: pd.DataFrame) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the columns; where they have two levels, prices and tickers, in the order of the file."""
    if frame.columns.nlevels == 1:
        return tuple(str(name) for name in frame.columns), ()
    upper, lower = (tuple(str(name) for name in frame.columns.get_level_values(level)) for level in (0, 1))
    if normal(str(frame.columns.names[0])) in ("ticker", "tickers", "symbols"):
        return lower, upper
    return upper, lower


def _cells(column: "pd.Series[Any]") -> Any:
    """Float64 of numbers, stamps as a Series, anything else as pyarrow strings ("" where nothing is)."""
    kind = column.dtype
    if pd.api.types.is_datetime64_any_dtype(kind):
        return column.reset_index(drop=True)
    if pd.api.types.is_bool_dtype(kind):
        return _text(column)
    if pd.api.types.is_numeric_dtype(kind):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    if pd.api.types.infer_dtype(column, skipna=True) in ("decimal", "floating", "integer", "mixed-integer-float"):
        return pd.to_numeric(column).to_numpy(dtype=np.float64, na_value=np.nan)
    return _text(column)


def _text(column: "pd.Series[Any]") -> Any:
    if isinstance(column.dtype, pd.StringDtype):  # at once: through Python's texts it would take ten times as long
        return _whole(cast(Any, pyarrow.compute).fill_null(pa.array(column, pa.string()), ""))
    cells: list[Any] = column.tolist()
    written = [cell.decode(errors="replace") if isinstance(cell, bytes) else str(cell) for cell in cells]
    blank = column.isna().to_numpy()
    return pa.array(["" if nothing else text for text, nothing in zip(written, blank, strict=True)], pa.string())


def _whole(cells: Any) -> Any:
    return cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells
