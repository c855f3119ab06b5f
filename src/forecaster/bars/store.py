"""Snapshots of bars: one Parquet file that is there whole or not at all, in a run's directory or named by it."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any, Final

import pandas as pd

from forecaster.bars.atomic import whole
from forecaster.bars.contract import Bars, check, quality_report
from forecaster.errors import DataError

SNAPSHOT: Final = "bars.parquet"
REFERENCE: Final = "bars.json"  # path and hash of a snapshot too large for every run to have its own
OWN_BYTES: Final = 64 * 2**20
SHARED: Final = Path("data/cache/bars")  # by hash: the runs of a sweep share one


def keep(bars: Bars, directory: Path, own_bytes: int = OWN_BYTES) -> str:
    """Keeps the bars of a run and returns their SHA-256.

    They lie in its directory or, above own_bytes, by their hash below SHARED, with path and hash in the directory.
    """
    own = directory / SNAPSHOT
    write(bars, own)
    sha256, size = digest(own), own.stat().st_size
    if size <= own_bytes:
        return sha256
    shared = (SHARED / f"{sha256}.parquet").absolute()
    if shared.is_file() and digest(shared) == sha256:
        own.unlink()
    else:
        shared.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(own, shared)
    with whole(directory / REFERENCE) as file:
        file.write(json.dumps({"path": str(shared), "sha256": sha256, "bytes": size}, indent=2).encode())
    return sha256


def fingerprint(directory: Path) -> str | None:
    """The SHA-256 of the bars that `keep` left there, None where it left none; DataError for a spoilt reference."""
    if (directory / SNAPSHOT).is_file():
        return digest(directory / SNAPSHOT)
    return _reference(directory / REFERENCE)[1] if (directory / REFERENCE).is_file() else None


def kept(directory: Path) -> Bars:
    """The bars that `keep` left; DataError where they are gone or others stand in their place."""
    reference = directory / REFERENCE
    if (directory / SNAPSHOT).is_file() or not reference.is_file():
        return read(directory / SNAPSHOT)
    path, sha256 = _reference(reference)
    if not path.is_file():
        raise DataError(f"{path}: the bars of {directory} are gone: put back the file of SHA-256 {sha256}")
    if digest(path) != sha256:
        raise DataError(f"{path}: other bars than those of {directory}: put back the file of SHA-256 {sha256}")
    return read(path)


def _reference(path: Path) -> tuple[Path, str]:
    try:
        named = json.loads(path.read_text(encoding="utf-8"))
        return Path(named["path"]), str(named["sha256"])
    except (ValueError, KeyError, TypeError) as fault:
        raise DataError(f"{path}: no reference to bars: restore the one that the training wrote") from fault


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
