"""Training under Hydra: one job, or a sweep of them in which a job that fails does not stop the others."""

import csv
import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override, Quote, QuotedString, ValueType
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from forecaster.compose import changed, checked, composition, typed
from forecaster.config import Config
from forecaster.errors import ConfigError, ForecasterError
from forecaster.explain import TYPED, conf_directory, config_file, display, explain, groups, origin, parsed, within
from forecaster.sources import Real

JOBS = "jobs.csv"  # in a sweep's directory: how each job ended
HELD = ("config.yaml", "summary.json", JOBS)  # any of them makes a directory somebody's run or sweep

log = logging.getLogger(__name__)


class Job(NamedTuple):
    """A row of jobs.csv."""

    job: int
    overrides: str
    status: str
    exit_code: int
    error: str
    directory: str
    result: str


def run(overrides: Sequence[str]) -> tuple[Config, Path, Exception | None]:
    """Trains one configuration; returns it, its run directory, and the error that ended it."""
    composed = composition(overrides)
    config = checked(typed(composed), partial(origin, hydra=composed.hydra))
    _refuse_missing_sweep(composed, parsed(overrides))
    directory = _resolved(composed, "hydra.run.dir")
    _refuse_held(directory)
    if isinstance(config.source, Real):
        from forecaster import data  # pandas: no other source can be told wrong before it is read

        data.check(config.source)
    errors: list[Exception] = []

    def job(_: DictConfig) -> None:
        try:
            _train(config, directory)
        except Exception as error:  # raised in here it would be told by Hydra, in several lines
            log.exception("training failed")
            errors.append(error)

    _enter(job, [*overrides, f"hydra.run.dir={_quoted(directory)}"])
    return config, directory, errors[0] if errors else None


def sweep(overrides: Sequence[str]) -> list[Job]:
    """Trains every combination of the values given; returns how each job ended, in order.

    Raises ConfigError before the first job for a key, a type or a choice that is wrong in any of them; a combination
    whose values can't be fails its own job alone.
    """
    lines = parsed(overrides)
    given = {line.key_or_group for line in lines}
    several = any(line.key_or_group == "experiment" and line.is_sweep_override() for line in lines)
    composed = composition([*(["experiment_name=sweep"] if several else []), *_first(lines)])
    lines += [line for line in parsed(_experiment_sweep(composed)) if line.key_or_group not in given]
    _check_each_value(lines)
    directory = _resolved(composed, "hydra.sweep.dir")
    for held in [directory, *directory.glob("*/")]:
        _refuse_held(held)
    varied = {line.key_or_group for line in lines if line.is_sweep_override()}

    def job(cfg: DictConfig) -> None:
        node = cast(DictConfig, HydraConfig.get())
        task = cast("list[str]", OmegaConf.to_container(node.overrides.task))
        told = " ".join(line for line in task if line.partition("=")[0] in varied)
        target = Path(node.runtime.output_dir)
        sys.stderr.write(f"job {node.job.num}: {told}\n")
        status, code, text, result = "complete", 0, "", ""
        try:
            _refuse_held(target)
            result = _train(checked(typed(cfg), partial(origin, hydra=node)), target)
        except Exception as error:
            log.exception("training failed")
            known = isinstance(error, ForecasterError)
            status, code = "failed", error.exit_code if known else 1
            text = one_line(error) if known else f"{type(error).__name__}: {one_line(error)}"
            sys.stderr.write(f"error: {text}\n")
        _record(directory, Job(node.job.num, told, status, code, text, display(target), result))

    _enter(job, ["-m", *overrides, f"hydra.sweep.dir={_quoted(directory)}"])
    return _recorded(directory)


def one_line(error: Exception) -> str:
    """An error's text without its line ends."""
    return " ".join(str(error).splitlines())


def _train(config: Config, directory: Path) -> str:
    from forecaster import line  # torch: seconds, that nobody with a mistyped key should wait for

    return line.train(config, directory)


def _enter(job: Callable[[DictConfig], None], arguments: Sequence[str]) -> None:
    """Runs jobs in their directories, each with its train.log; Hydra reads its arguments from sys.argv."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra's own errors are then raised, not printed
    sys.argv[1:] = arguments
    try:
        hydra.main(version_base="1.3", config_path=str(conf_directory()), config_name="train")(job)()
    except (HydraException, OmegaConfBaseException) as error:
        raise explain(error, TYPED) from error
    except OSError as error:  # a job's own errors do not come here
        raise ConfigError(
            f"{error.filename} cannot be written ({error.strerror}); choose another with hydra.run.dir=DIR"
        ) from error


def _resolved(composed: DictConfig, key: str) -> Path:
    try:
        return Path(str(OmegaConf.select(composed, key, throw_on_missing=True))).absolute()
    except OmegaConfBaseException as error:
        raise explain(error, TYPED) from error


def _quoted(directory: Path) -> str:
    return QuotedString(text=str(directory), quote=Quote.single).with_quotes()


def _refuse_held(directory: Path) -> None:
    for name in HELD:
        if (directory / name).exists():
            raise ConfigError(
                f"{display(directory)} holds a run already ({name} is there); choose another with hydra.run.dir=DIR, "
                "or hydra.sweep.dir=DIR for a sweep: no run is overwritten"
            )


def _experiment_sweep(composed: DictConfig) -> list[str]:
    params = cast("dict[str, str]", OmegaConf.select(composed, "hydra.sweeper.params") or {})
    return [f"{key}={values}" for key, values in params.items()]


def _refuse_missing_sweep(composed: DictConfig, lines: Sequence[Override]) -> None:
    given = {line.key_or_group for line in lines}
    swept = [line.key_or_group for line in parsed(_experiment_sweep(composed)) if line.key_or_group not in given]
    if swept:
        experiment = composed.hydra.runtime.choices.get("experiment")
        file = config_file(f"experiment/{experiment}", lines)
        raise ConfigError(
            f"experiment={experiment} is a sweep over {', '.join(swept)} (in {file}); add -m to run it, "
            f"or give one value, {' '.join(f'{key}=VALUE' for key in swept)}"
        )


def _values(line: Override) -> list[str]:
    """The overrides that a sweep's line stands for; itself where it is none; none where only Hydra can tell."""
    if not line.is_sweep_override():
        return [str(line.input_line)]
    if not line.is_discrete_sweep() or line.value_type == ValueType.GLOB_CHOICE_SWEEP:
        return []
    return [f"{line.get_key_element()}={value}" for value in line.sweep_string_iterator()]


def _first(lines: Sequence[Override]) -> list[str]:
    return [value for line in lines for value in _values(line)[:1]]


def _check_each_value(lines: Sequence[Override]) -> None:
    """Each value of each sweep beside the first ones of the others: a type or a choice does not depend on others."""
    config = typed(composition(_first(lines)))
    for number, line in enumerate(lines):
        for value in _values(line)[1:] if not within(line.key_or_group, "hydra") else []:
            if line.key_or_group in groups():
                composition([*_first(lines[:number]), value, *_first(lines[number + 1 :])])
            else:
                config = changed(config, parsed([value])[0])


def _record(directory: Path, job: Job) -> None:
    """Appends a row in one write: jobs that a launcher runs side by side share the file."""
    file = directory / JOBS
    with file.open("a", newline="", encoding="utf-8") as rows:
        csv.writer(rows, lineterminator="\n").writerows([job] if file.stat().st_size else [Job._fields, job])


def _recorded(directory: Path) -> list[Job]:
    with (directory / JOBS).open(newline="", encoding="utf-8") as rows:
        _, *jobs = csv.reader(rows)
    return sorted(Job(int(job), told, status, int(code), *rest) for job, told, status, code, *rest in jobs)
