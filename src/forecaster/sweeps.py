"""Many jobs under Hydra: a grid or a search, in this process, beside it, or on other machines that share the folder."""

import csv
import logging
import os
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import cast

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import IntervalSweep, Override, ValueType
from omegaconf import DictConfig, OmegaConf

from forecaster import launchers
from forecaster.compose import changed, checked, composition, typed
from forecaster.errors import ConfigError, ForecasterError
from forecaster.explain import TYPED, display, groups, origin, parsed, within
from forecaster.jobs import enter, experiment_sweep, one_line, quoted_path, refuse_held, resolved, train
from forecaster.tally import Job, Outlook, collect, followed, record, recorded
from forecaster.training.place import place

STOPPED = "launcher.log"  # in a sweep's directory: the traceback of a launcher that gave up

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sweep:
    """What its jobs share, wherever each runs: called by Hydra with a job's configuration.

    varied: the keys with several values; folder: where train.py was started; driver: the process that started it.
    """

    directory: Path
    varied: frozenset[str]
    folder: Path
    driver: int
    outlook: Outlook

    def __call__(self, cfg: DictConfig) -> float | None:
        """Trains one job and keeps its row; the validation loss, or None where the job failed."""
        here = os.getpid() == self.driver
        if not here:
            os.chdir(self.folder)  # a worker starts where it likes
            if place(os.environ)[0]:  # of the tasks that SLURM runs for one job
                from forecaster import fitting  # torch

                fitting.follow()
                return None
        node = cast(DictConfig, HydraConfig.get())
        task = cast("list[str]", OmegaConf.to_container(node.overrides.task))
        told = " ".join(line for line in task if line.partition("=")[0] in self.varied)
        target, started = Path(node.runtime.output_dir), time.monotonic()
        if here:
            sys.stderr.write(f"{named(node.job.num, told)}\n")
        status, code, text, result = "complete", 0, "", ""
        try:
            result = train(checked(typed(cfg), partial(origin, hydra=node)), target, retried=not here)
        except Exception as error:
            log.exception("training failed")
            known = isinstance(error, ForecasterError)
            status, code = "failed", error.exit_code if known else 1
            text = one_line(error) if known else f"{type(error).__name__}: {one_line(error)}"
            if here:
                sys.stderr.write(f"error: {text}\n")
        seconds = time.monotonic() - started
        row = Job(node.job.num, told, status, code, text, display(target), result, seconds)
        record(self.directory, row)
        if here:
            sys.stderr.write(self.outlook.after(row, target))
        return None if code else _validation_loss(target)

    def tell(self, row: Job) -> None:
        """One line on stderr of a job that ended elsewhere."""
        fault = f" ({row.exit_code}): {row.error}" if row.exit_code else f", {row.result}"
        told = self.outlook.after(row, self.directory / str(row.job))
        sys.stderr.write(f"{named(row.job, row.overrides)}: {row.status}{fault}\n{told}")


def named(job: int, overrides: str) -> str:
    """A job, by its number and by what sets it apart."""
    return f"job {job}: {overrides}" if overrides else f"job {job}"


def sweep(overrides: Sequence[str]) -> list[Job]:
    """Trains every combination of the values given, or those that a search chooses; returns how each ended, in order.

    Raises ConfigError before the first job for a key, a type or a choice that is wrong in any of them; a combination
    whose values can't be fails its own job alone.
    """
    given = parsed(overrides)
    if place(os.environ)[1] > 1:
        raise ConfigError(
            f"-m starts its jobs itself, and torchrun or srun started several of it (in {TYPED}); start one, with "
            "trainer=ddp_cpu or trainer=ddp for jobs of several processes"
        )
    several = any(line.key_or_group == "experiment" and line.is_sweep_override() for line in given)
    listed = [line for line in given if not isinstance(line.value(), IntervalSweep)]
    composed = composition([*(["experiment_name=sweep"] if several else []), *_first(listed)])
    search = launchers.is_search(composed.hydra)
    # In Hydra's order: an experiment's own come first, with the values typed in place of its.
    lines = list(
        (
            {line.key_or_group: line for line in parsed(experiment_sweep(composed))}
            | {line.key_or_group: line for line in given}
        ).values()
    )
    if not search:
        _refuse_intervals(given)
    first = _check_each_value(lines)
    directory = resolved(composed, "hydra.sweep.dir")
    for held in [directory, *directory.glob("*/")]:
        refuse_held(held)
    plan = launchers.plan(composed.hydra, first.trainer, given)
    grid, settings = [] if search else _grid(lines), plan.settings
    count = len(grid) or None
    study = launchers.study(composed, given) if search else None
    if study:
        count, settings = study.left, [*settings, *study.settings]
        sys.stderr.write(f"{study.told}\n")
        if not count:
            sys.stdout.write(launchers.best(study))
            return []
    outlook = Outlook(count, plan.at_once, Path("outputs") / first.experiment_name)
    sys.stderr.write(outlook.opening())
    varied = frozenset(line.key_or_group for line in lines if line.is_sweep_override())
    job = Sweep(directory, varied, Path.cwd(), os.getpid(), outlook)
    stopped = ""
    with followed(directory, job.tell) if launchers.elsewhere(composed.hydra) else nullcontext():
        try:
            enter(job, ["-m", *overrides, *settings, f"hydra.sweep.dir={quoted_path(directory)}"])
        except ForecasterError:
            raise
        except Exception as error:  # of a launcher or a search: a worker killed, a cluster gone
            stopped = _stopped(error, directory)
            if not recorded(directory):
                raise ConfigError(stopped) from error
    jobs = collect(directory, _lost(grid, directory, stopped) if stopped else [])
    if stopped:
        sys.stderr.write(f"error: {stopped}\n")
    if study:
        sys.stdout.write(launchers.best(study))
    return jobs


def _stopped(error: Exception, directory: Path) -> str:
    """Keeps a launcher's traceback; what it said, in one line."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / STOPPED).write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    first = next(iter(str(error).strip().splitlines()), "")
    log_file = display(directory / STOPPED)
    return f"the sweep stopped ({type(error).__name__}: {first[:200]}); what it has started may go on, see {log_file}"


def _lost(grid: Sequence[str], directory: Path, reason: str) -> list[Job]:
    """A row for every job of a grid: what stands of those that left none."""
    return [
        Job(number, told, "lost", 1, reason, display(directory / str(number)), "", 0.0)
        for number, told in enumerate(grid)
    ]


def _validation_loss(target: Path) -> float | None:
    """The loss of the epoch whose weights were kept."""
    history = target / "history.csv"
    if not history.is_file():
        return None
    with history.open(newline="", encoding="utf-8") as rows:
        return min(float(row["validation_loss"]) for row in csv.DictReader(rows))


def _values(line: Override) -> list[str]:
    """The overrides that a sweep's line stands for, of an interval its ends; none where only Hydra can tell."""
    if not line.is_sweep_override():
        return [str(line.input_line)]
    key, value = line.get_key_element(), line.value()
    if isinstance(value, IntervalSweep):
        return [f"{key}={value.start}", f"{key}={value.end}"]
    if not line.is_discrete_sweep() or line.value_type == ValueType.GLOB_CHOICE_SWEEP:
        return []
    return [f"{key}={text}" for text in line.sweep_string_iterator()]


def _first(lines: Sequence[Override]) -> list[str]:
    return [value for line in lines for value in _values(line)[:1]]


def _grid(lines: Sequence[Override]) -> list[str]:
    """What sets each job apart, in the order in which Hydra runs them; nothing where only Hydra can tell."""
    return [" ".join(told) for told in product(*(_values(line) for line in lines if line.is_sweep_override()))]


def _refuse_intervals(lines: Sequence[Override]) -> None:
    for line in lines:
        if isinstance(line.value(), IntervalSweep):
            raise ConfigError(
                f"{line.input_line} is no list of values (in {TYPED}); give values, or add hydra/sweeper=optuna"
            )


def _check_each_value(lines: Sequence[Override]) -> DictConfig:
    """Each value of each sweep beside the first ones of the others: a type or a choice does not depend on others.

    Returns the configuration of the first ones.
    """
    first = config = typed(composition(_first(lines)))
    for number, line in enumerate(lines):
        for value in _values(line)[1:] if not within(line.key_or_group, "hydra") else []:
            if line.key_or_group in groups():
                composition([*_first(lines[:number]), value, *_first(lines[number + 1 :])])
            else:
                config = changed(config, parsed([value])[0])
    return first
