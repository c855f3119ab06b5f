"""Snapshots of bars: one Parquet file that is there whole or not at all."""

import hashlib
from pathlib import Path
from typing import Any

import pandas as pd

from forecaster.bars.atomic import whole
from forecaster.bars.contract import Bars, check, quality_report
from forecaster.errors import DataError


def write(bars: Bars, path: Path) -> None:
    """Write bars to a Parquet file, atomically: into a temporary file beside it, flushed to disk, then renamed."""
    noticed = [[symbol, time.isoformat(), *words] for symbol, time, *words in bars.quality.itertuples(index=False)]
    frame = bars.frame.copy(deep=False)
    # pandas keeps attrs as JSON in the Parquet schema's metadata.
    frame.attrs = {"calendar": bars.calendar, "interval": bars.interval, "basis": bars.basis, "quality": noticed}
    with whole(path) as file:
        frame.to_parquet(file, engine="pyarrow", compression="zstd", index=False)


def read(path: Path) -> Bars:
    """The bars that `write` left there, checked again; DataError where there are none."""
    if not path.is_file():
        raise DataError(f"{path}: no such file: the run has no bars of its own; train again")
    try:
        frame = pd.read_parquet(path, engine="pyarrow")
    except (OSError, ValueError) as reason:  # pyarrow's errors are one or the other
        raise DataError(f"{path}: no Parquet file: load the bars from their source again") from reason
    described: dict[Any, Any] = frame.attrs
    if not {"calendar", "interval", "basis", "quality"} <= described.keys():
        raise DataError(f"{path}: a Parquet file, but no snapshot of bars: restore the one that the training wrote")
    frame.attrs = {}
    return Bars(
        frame=check(frame, str(path)),
        quality=quality_report((symbol, pd.Timestamp(time), *words) for symbol, time, *words in described["quality"]),
        calendar=described["calendar"],
        interval=described["interval"],
        basis=described["basis"],
    )


def digest(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex: equal bars give equal bytes under one pandas and pyarrow release."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
