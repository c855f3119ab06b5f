"""Files that are there whole or not at all."""

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole(path: Path) -> Generator[BinaryIO]:
    """A binary file that takes the path's place when the block ends, flushed to disk, and vanishes if it raises."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)  # mkstemp's file is its owner's alone
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
