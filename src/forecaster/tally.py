"""What the jobs of a sweep will take, from jobs measured; and how each ended, wherever it ran."""

import csv
import json
import statistics
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

from forecaster.bars.atomic import whole

JOBS = "jobs.csv"  # in a sweep's directory: how each job ended
ROWS = ".jobs"  # beside it: each job's row in a file of its own
RECENT = 20  # earlier runs that say what a job takes
POLL = 0.5  # seconds
FIRST = "time and disk are told once the first is complete"


class Job(NamedTuple):
    """A row of jobs.csv."""

    job: int
    overrides: str
    status: str
    exit_code: int
    error: str
    directory: str
    result: str
    seconds: float


class Cost(NamedTuple):
    """What one job took."""

    seconds: float
    size: float  # bytes


def record(directory: Path, job: Job) -> None:
    """Keeps a job's row. Jobs on other machines share the folder but no lock, so each has a file of its own."""
    with whole(directory / ROWS / f"{job.job}.csv") as file:
        file.write(_text([job]).encode())
    collect(directory)


def collect(directory: Path, expected: Sequence[Job] = ()) -> list[Job]:
    """Writes jobs.csv from the rows that are there so far, and those expected of the rest; returns them in order."""
    jobs = list(({job.job: job for job in expected} | {job.job: job for job in recorded(directory)}).values())
    if jobs:
        with whole(directory / JOBS) as file:
            file.write((",".join(Job._fields) + "\n" + _text(jobs)).encode())
    return jobs


def recorded(directory: Path) -> list[Job]:
    """How the jobs ended that have ended so far."""
    jobs: list[Job] = []
    for file in (directory / ROWS).glob("[0-9]*.csv"):
        with file.open(newline="", encoding="utf-8") as rows:
            [(job, told, status, code, error, place, result, seconds)] = csv.reader(rows)
        jobs.append(Job(int(job), told, status, int(code), error, place, result, float(seconds)))
    return sorted(jobs)


def earlier(folder: Path) -> list[Cost]:
    """What the latest complete runs of an experiment's folder took, those of sweeps among them."""
    summaries = [*folder.glob("*/summary.json"), *folder.glob("*/*/summary.json")]
    recent = sorted(summaries, key=lambda path: path.stat().st_mtime)[-RECENT:]
    return [cost for path in recent if (cost := _measured(path.parent))]


@dataclass
class Outlook:
    """What a sweep will take: at its start by earlier runs of the experiment, or else by its first complete job.

    count: jobs in all (None: patterns that Hydra alone can read); at_once: how many at a time (None: a cluster knows);
    folder: where the experiment's runs are.
    """

    count: int | None
    at_once: int | None
    folder: Path
    ended: int = 0
    known: bool = False

    def opening(self) -> str:
        """A line before the first job."""
        told = "as many jobs as its patterns find" if self.count is None else _counted(self.count, "job")
        if self.count == 1:
            pass
        elif self.at_once is None:
            told += ", as many at a time as the cluster has room for"
        elif self.at_once > 1:
            told += f", {self.at_once} at a time"
        costs = earlier(self.folder)
        if not costs or self.count is None:
            when = "no earlier run tells time and disk" if self.count == 1 else FIRST
            return f"sweep: {told}; {when}\n"
        self.known = True
        cost = Cost(statistics.median(c.seconds for c in costs), statistics.median(c.size for c in costs))
        source = f"the median of {_counted(len(costs), 'earlier run')} in {self.folder}"
        return f"sweep: {told}; {self._expected(self.count, cost, source)}\n"

    def after(self, job: Job, run: Path) -> str:
        """A line after the first complete job, where earlier runs could not tell; nothing else."""
        self.ended += 1
        left = (self.count or self.ended) - self.ended
        if self.known or job.exit_code or not left:
            return ""
        self.known = True
        cost = Cost(job.seconds, _size(run))
        return f"{_counted(left, 'job')} left: {self._expected(left, cost, 'as the first that is complete')}\n"

    def _expected(self, count: int, cost: Cost, source: str) -> str:
        rounds = count if self.at_once is None else -(-count // self.at_once)
        time = f"about {duration(rounds * cost.seconds)}{' of computing' if self.at_once is None else ''}"
        each = f"{duration(cost.seconds)} and {_megabytes(cost.size)} each, {source}"
        return f"{time} and {_megabytes(count * cost.size)} ({each})"


@contextmanager
def followed(directory: Path, say: Callable[[Job], None]) -> Generator[None]:
    """Meanwhile tells of each job as it ends, wherever it runs."""
    stop, told = Event(), set[int]()

    def follow() -> None:
        last = False
        while not last:
            last = stop.wait(POLL)
            for job in recorded(directory):
                if job.job not in told:
                    told.add(job.job)
                    say(job)

    thread = Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def duration(seconds: float) -> str:
    """Seconds as one reads them: 12 s, 3 min, 2.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _measured(run: Path) -> Cost | None:
    """Seconds of a complete run's stations and the bytes of its files; None of one that is not complete, or that was
    made from another run.
    """
    try:
        summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
        counts = summary["status"] == "complete" and "of" not in summary
        return Cost(float(sum(summary["timings"].values())), _size(run)) if counts else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # no run of ours: it measures nothing
        return None


def _size(run: Path) -> int:
    return sum(file.stat().st_size for file in run.rglob("*") if file.is_file())


def _megabytes(size: float) -> str:
    return f"{size / 1e6:.1f} MB" if size < 1e9 else f"{size / 1e9:.1f} GB"


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _text(jobs: Sequence[Job]) -> str:
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(job._replace(seconds=round(job.seconds, 1)) for job in jobs)
    return text.getvalue()
