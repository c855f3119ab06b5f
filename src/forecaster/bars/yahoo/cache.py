"""Bars fetched from Yahoo, kept in Parquet: one file a series, whole or absent, hashed, locked between processes."""

import hashlib
import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from filelock import FileLock, Timeout

from forecaster.bars.atomic import whole
from forecaster.bars.contract import NUMBERS
from forecaster.bars.yahoo.stretch import Series, Stretch
from forecaster.errors import DataError

FORM = 1  # raise it where older files can't be understood any more
SHORT_WAIT = 1.0  # seconds before a wait for another process is told
COLUMNS = ("time", *NUMBERS)
PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")


def path(folder: Path, series: Series) -> Path:
    """The series' file: no two series share one, also where names ignore case or `CON.parquet` is a device."""
    symbol = "".join(c if c in PLAIN else f"%{ord(c):x}%" for c in series.symbol)
    adjustment = "adjusted" if series.adjusted else "unadjusted"
    return folder / f"{symbol}_{series.interval}_{adjustment}.parquet"


@contextmanager
def locked(file: Path, say: Callable[[str], None]) -> Generator[None]:
    """The file is this process's alone until left; a killed owner's lock falls with it. DataError: no such folder."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(file.with_name(f"{file.name}.lock"))
        try:
            held = lock.acquire(timeout=SHORT_WAIT)
        except Timeout:
            say(f"{file.name}: waiting for another process that is fetching it")
            held = lock.acquire()
    except OSError as reason:
        raise DataError(
            f"{file.parent}: can't keep bars there ({reason.strerror or reason}): give a folder in source.cache"
        ) from reason
    with held:
        yield


def write(stretch: Stretch, file: Path) -> None:
    """Put the bars in the file's place, atomically. The caller holds the lock. DataError where the disk refuses."""
    frame = stretch.frame.copy(deep=False)
    described = _described(stretch)
    # pandas keeps attrs as JSON in the Parquet schema's metadata.
    frame.attrs = {**described, "sha256": _digest(stretch.frame, described)}
    try:
        for left_by_the_killed in file.parent.glob(f".{file.name}.*"):
            left_by_the_killed.unlink()
        with whole(file) as target:
            frame.to_parquet(target, engine="pyarrow", compression="zstd", index=False)
    except OSError as reason:
        raise DataError(
            f"{file}: can't be written ({reason.strerror or reason}): make room, or give a folder in source.cache"
        ) from reason


def read(file: Path, series: Series, say: Callable[[str], None]) -> Stretch | None:
    """The bars that `write` left there; None where there is no file, or, told through `say`, no good one."""
    if not file.exists():
        return None
    try:
        return _read(file, series)
    # What pyarrow and the parsing of a damaged file raise.
    except (OSError, ValueError, LookupError, TypeError, AttributeError, NotImplementedError) as reason:
        say(f"{file}: no good cache of {series.symbol} ({' '.join(str(reason).split())[:120]}): fetching it again")
        return None


def _read(file: Path, series: Series) -> Stretch:
    frame = pd.read_parquet(file, engine="pyarrow")
    attrs: dict[Any, Any] = frame.attrs
    described = {name: attrs[name] for name in attrs if name != "sha256"}
    frame.attrs = {}
    if described["form"] != FORM or tuple(frame.columns) != COLUMNS or frame.empty:
        raise ValueError("not a cache of this version")
    if attrs["sha256"] != _digest(frame, described):
        raise ValueError("the bars don't have the hash that was written with them")
    held = Series(described["symbol"], described["interval"], described["adjusted"])
    if held != series:
        raise ValueError(f"it holds {held.symbol} {held.interval}")
    return Stretch(
        series=held,
        frame=frame,
        first=pd.Timestamp(described["first"]),
        last=pd.Timestamp(described["last"]),
        asked=pd.Timestamp(described["asked"]),
        renew=pd.Timestamp(described["renew"]),
        zone=described["zone"],
        currency=described["currency"],
        scaled=tuple(pd.Timestamp(day) for day in described["scaled"]),
        asides=tuple((pd.Timestamp(time), *words) for time, *words in described["asides"]),
    )


def _described(stretch: Stretch) -> dict[str, Any]:
    return {
        "form": FORM,
        "symbol": stretch.series.symbol,
        "interval": stretch.series.interval,
        "adjusted": stretch.series.adjusted,
        "first": stretch.first.isoformat(),
        "last": stretch.last.isoformat(),
        "asked": stretch.asked.tz_convert("UTC").isoformat(),
        "renew": stretch.renew.tz_convert("UTC").isoformat(),
        "zone": stretch.zone,
        "currency": stretch.currency,
        "scaled": [day.isoformat() for day in stretch.scaled],
        "asides": [[time.isoformat(), *words] for time, *words in stretch.asides],
    }


def _digest(frame: pd.DataFrame, described: dict[str, Any]) -> str:
    """SHA-256 of the numbers, the stamps in microseconds, and what is said of them."""
    found = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    found.update(frame["time"].to_numpy(dtype="datetime64[us]").astype("<i8").tobytes())
    for name in NUMBERS:
        found.update(frame[name].to_numpy(dtype=np.float64).astype("<f8").tobytes())
    return found.hexdigest()
