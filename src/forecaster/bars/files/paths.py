"""Which files a user's paths mean."""

import difflib
import glob
import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from forecaster.bars.contract import Row
from forecaster.bars.files.layouts import listed
from forecaster.errors import DataError

SUFFIX = re.compile(r"\.(?:(?:csv|txt|tsv)(?:\.gz|\.zip)?|zip|parquet|pq|feather|ftr)$", re.IGNORECASE)
KNOWN = ".csv .txt .tsv (also with .gz or .zip) .zip .parquet .feather"


def found(path: Sequence[str]) -> tuple[dict[str, Path], list[Row]]:
    """Files by name, as the user gave it: those named, those of known suffixes in a folder, those that fit a glob.

    A note names the files of a folder that are left out. DataError where there is nothing.
    """
    files: dict[str, Path] = {}
    notes: list[Row] = []
    for text in path:
        one = Path(text).expanduser()
        if one.is_dir():
            inside = _in_folder(one)
            fitting = [file for file in inside if _fits(file)]
            files |= {str(file): file for file in fitting}
            other = [f"{file.name}/" if file.is_dir() else file.name for file in inside if file not in fitting]
            if len(other) == len(inside):
                held = f"only {listed(other)}" if other else "no files"
                raise DataError(f"{text} holds {held}: name a folder with files of prices ({KNOWN})")
            if other:
                notes.append(("", pd.NaT, "file", f"{text}: {listed(other)}", "left out"))
        elif one.is_symlink() and not one.exists():
            raise DataError(f"{text} is a link to a file that is not there: mend the link")
        elif one.exists():
            files[text] = _file(one, text)
        elif glob.has_magic(text):
            fitting = [file for file in sorted(glob.glob(str(one))) if Path(file).is_file()]  # noqa: PTH207 absolute globs
            if not fitting:
                raise DataError(f"{text} fits no file: check the pattern{_near(one)}")
            files |= {file: _file(Path(file), file) for file in fitting}
        else:
            raise DataError(f"{text}: no such file or folder{_near(one)}")
    resolved: dict[Path, str] = {}
    for name, file in files.items():
        resolved.setdefault(file.resolve(), name)  # two globs may name one file
    return {name: files[name] for name in resolved.values()}, notes


def stem(name: str) -> str:
    """A file's name without folder and suffixes: the symbol where the file has no column for it."""
    return SUFFIX.sub("", Path(name).name)


def _fits(file: Path) -> bool:
    # Hidden files beside others are a system's own ("._A.csv").
    return file.is_file() and SUFFIX.search(file.name) is not None and not file.name.startswith(".")


def _in_folder(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except PermissionError as reason:
        raise DataError(f"{folder} can't be opened: no permission to list it: change its mode") from reason


def _file(file: Path, name: str) -> Path:
    if not file.is_file():
        raise DataError(f"{name} is no regular file: name a file, a folder or a glob")
    if not SUFFIX.search(file.name):
        raise DataError(f"{name}: unknown suffix {file.suffix!r}: save it as one of {KNOWN}")
    return file


def _near(path: Path) -> str:
    """The names in the folder that a path may have meant."""
    folder = path.parent
    if not folder.is_dir():
        return f": there is no folder {folder}"
    try:
        names = [file.name for file in folder.iterdir()]
    except PermissionError:
        return f": no permission to list {folder}"
    near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.4)
    return f": did you mean {listed(near)}?" if near else f": check the name; {folder} holds {len(names)} others"
