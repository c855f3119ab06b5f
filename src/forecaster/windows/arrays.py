"""Room for large arrays: in memory, or in a file that the operating system pages in and out."""

import mmap
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import DTypeLike

from forecaster.errors import DataError

ALIGNED: Final = 64  # bytes: a cache line
GB: Final = 1e9

Shapes = Mapping[str, tuple[tuple[int, ...], DTypeLike]]


def allocate(shapes: Shapes, in_memory_gb: float, folder: Path | None) -> dict[str, np.ndarray]:
    """Empty arrays of these shapes and types; beyond in_memory_gb (1e9 bytes) in all, in one file in the folder.

    The file has no name: it goes when the process ends, however that ends. DataError where it finds no room.
    """
    sizes = {name: int(np.prod(shape)) * np.dtype(kind).itemsize for name, (shape, kind) in shapes.items()}
    total = sum(-(-size // ALIGNED) * ALIGNED for size in sizes.values())
    if total <= in_memory_gb * GB:
        return {name: np.empty(shape, dtype=kind) for name, (shape, kind) in shapes.items()}
    room = _file(total, folder)
    arrays: dict[str, np.ndarray] = {}
    start = 0
    for name, (shape, kind) in shapes.items():
        flat = np.frombuffer(room, dtype=kind, count=int(np.prod(shape)), offset=start)
        arrays[name] = flat.reshape(shape)
        start += -(-sizes[name] // ALIGNED) * ALIGNED
    return arrays


def _file(size: int, folder: Path | None) -> mmap.mmap:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            # Reserved at once: a disk that fills up later would end the process without a word.
            os.posix_fallocate(file.fileno(), 0, size)
            return mmap.mmap(file.fileno(), size)
    except OSError as reason:
        raise DataError(
            f"{folder or tempfile.gettempdir()}: no room for a panel of {size / GB:.1f} GB ({reason.strerror}): free "
            "the disk, name fewer symbols or raise data.in_memory_gb"
        ) from reason
