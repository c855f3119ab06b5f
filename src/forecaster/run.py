"""The run directory: every file appears whole or not at all, and nobody's run is overwritten."""

import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, cast

import pandas as pd
from filelock import FileLock, Timeout

from forecaster.bars.atomic import whole
from forecaster.bars.store import SNAPSHOT
from forecaster.errors import ConfigError, DataError

CONFIG: Final = "config.yaml"
SUMMARY: Final = "summary.json"
FORECASTS: Final = "forecasts.parquet"
REPORT: Final = "report.html"
MEANS: Final = "head_means.pt"  # what ablations put in
LOCK: Final = ".lock"  # held by the one process that works on the run
# Tables with the column that each begins with.
TABLES: Final = {
    "quality": "symbol",
    "history": "epoch",
    "scores": "model",
    "tests": "target",
    "pit": "model",
    "heads": "layer",
    "head_facts": "layer",
    "knockouts": "layer",
    "lag_profiles": "layer",
    "head_nulls": "null",
    "redundancy": "kind",
    "importance": "layer",
    "pruning": "order",
    "drift": "layer",
    "drift_tests": "layer",
    "attention_distance": "time",
}
PRICED: Final = 6  # symbols that the report draws
PRICE_COLUMNS: Final = ("symbol", "time", "close")
UNFINISHED: Final = re.compile(r"\..+\.[a-z0-9_]{8}")  # as atomic.whole names what it has not finished

Summary = dict[str, object]


def check_new(directory: Path) -> None:
    """Raises ConfigError where a run stands already."""
    if (directory / CONFIG).exists() or (directory / SUMMARY).exists():
        raise ConfigError(f"{directory} already holds a run: choose another hydra.run.dir, runs are never overwritten")


def begin(directory: Path, config: str) -> None:
    """Creates the directory with its configuration and status `running`; ConfigError where a run stands already."""
    check_new(directory)
    directory.mkdir(parents=True, exist_ok=True)
    write_text(directory / CONFIG, config)
    update_summary(directory, status="running")


@contextmanager
def held(directory: Path) -> Generator[None]:
    """Keeps other processes from writing to the run; ConfigError where one is at it. It goes with the process."""
    directory.mkdir(parents=True, exist_ok=True)
    lock = FileLock(directory / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout as fault:
        raise ConfigError(
            f"{directory} is being worked on by another process: wait until it ends, or stop it"
        ) from fault
    try:
        yield
    finally:
        lock.release()


def go_on(directory: Path) -> set[str]:
    """Marks a stopped run as running again, without what a killed process left half written.

    Returns the stations that are done. One after the training is so only if the training is: scores in between, by
    `forecaster evaluate`, were those of other weights.
    """
    for leftover in [*directory.glob(".*.*"), *directory.glob("checkpoints/.*.*")]:
        if UNFINISHED.fullmatch(leftover.name) and leftover.is_file():
            leftover.unlink()
    summary = read_summary(directory) if (directory / SUMMARY).exists() else {}
    timings = cast("dict[str, float]", found if isinstance(found := summary.get("timings"), dict) else {})
    done = set(timings) if "training" in timings else set[str]()
    kept = {name: value for name, value in summary.items() if name not in ("error", "exit_code", "timings")}
    told = {name: value for name, value in timings.items() if name in done}
    _write_summary(directory, {**kept, "status": "running", "timings": told})
    return done


def check_run(directory: Path) -> None:
    """Raises ConfigError where the directory holds no run."""
    if not (directory / CONFIG).is_file():
        raise ConfigError(
            f"run={directory} is not a run directory: it has no {CONFIG}; give the path a training printed"
        )


def write_text(path: Path, text: str) -> None:
    """Writes a text file, whole or not at all."""
    with whole(path) as file:
        file.write(text.encode())


def write_table(directory: Path, name: str, table: pd.DataFrame) -> None:
    """Writes NAME.csv with 10 significant digits."""
    # to_csv's float_format passes over columns that mix numbers with words such as "undefined".
    mixed = {str(name): table[name].map(_ten_digits) for name in table.columns if table[name].dtype.kind == "O"}
    write_text(
        directory / f"{name}.csv",
        table.assign(**mixed).to_csv(index=False, float_format="%.10g", lineterminator="\n"),
    )


def read_tables(directory: Path) -> dict[str, pd.DataFrame]:
    """Every table that the run has. Only an empty cell is missing: a symbol NA or NULL stays text."""
    text = {"symbol": str, "label": str, "verdict": str, "targets": str, "reason": str, "stratum": str}
    tables: dict[str, pd.DataFrame] = {}
    for path in (directory / f"{name}.csv" for name in TABLES):
        if path.is_file():
            try:
                table = pd.read_csv(path, keep_default_na=False, na_values=[""], dtype=text)
                if table.columns[0] != TABLES[path.stem]:
                    raise ValueError(f"its first column is {table.columns[0][:40]!r}")
            except ValueError as fault:  # pandas' parser errors and UnicodeDecodeError are ones
                remedy = "evaluate or probe the run again"
                raise DataError(f"{path} is not the table that the run wrote ({_first(fault)}); {remedy}") from fault
            tables[path.stem] = table
    return tables


def read_closes(directory: Path, summary: Summary) -> dict[str, pd.DataFrame]:
    """`closes` of the first symbols where attention is shown under them; none of a run that only refers to its bars."""
    symbols = cast("list[str]", summary.get("symbols", []))[:PRICED]
    if not symbols or not all((directory / name).is_file() for name in (SNAPSHOT, "attention_distance.csv")):
        return {}
    chosen = [("symbol", "in", symbols)]
    return {"closes": pd.read_parquet(directory / SNAPSHOT, columns=[*PRICE_COLUMNS], filters=chosen)}


def read_summary(directory: Path) -> Summary:
    """The run's summary; DataError where it is not one."""
    try:
        content: object = json.loads((directory / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError) as fault:
        raise DataError(f"{directory / SUMMARY} can't be read ({fault}): the run did not start; train again") from fault
    if not isinstance(content, dict):
        raise DataError(f"{directory / SUMMARY} is not a run's summary: train again")
    return cast(Summary, content)


def update_summary(directory: Path, **entries: object) -> Summary:
    """Adds or replaces entries of summary.json."""
    summary = read_summary(directory) if (directory / SUMMARY).exists() else {}
    summary.update(entries)
    _write_summary(directory, summary)
    return summary


def add_timings(directory: Path, **seconds: float) -> Summary:
    """Adds seconds spent to the summary's timings."""
    before = cast("dict[str, float]", read_summary(directory).get("timings", {}))
    return update_summary(directory, timings={**before, **{name: round(value, 2) for name, value in seconds.items()}})


def _write_summary(directory: Path, summary: Summary) -> None:
    write_text(directory / SUMMARY, json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _ten_digits(cell: object) -> object:
    return f"{cell:.10g}" if isinstance(cell, float) and cell == cell else cell


def _first(fault: Exception) -> str:
    return str(fault).splitlines()[0] if str(fault) else type(fault).__name__
