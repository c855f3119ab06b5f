"""Training under Hydra: one job in a directory of its own."""

import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import hydra
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from forecaster import launchers
from forecaster.compose import checked, composition, load, typed
from forecaster.config import Config
from forecaster.errors import ConfigError
from forecaster.explain import TYPED, conf_directory, config_file, display, explain, origin, parsed
from forecaster.sources import Real
from forecaster.tally import JOBS
from forecaster.training.place import check_number

HELD = ("config.yaml", "summary.json", JOBS)  # any of them makes a directory somebody's run or sweep

log = logging.getLogger(__name__)


def run(overrides: Sequence[str]) -> tuple[Config, Path, Exception | None]:
    """Trains one configuration; returns it, its run directory, and the error that ended it."""
    composed = composition(overrides)
    config = checked(typed(composed), partial(origin, hydra=composed.hydra))
    _refuse_unswept(composed, parsed(overrides))
    directory = resolved(composed, "hydra.run.dir")
    refuse_held(directory)
    check_number(os.environ, config.trainer.devices, config.trainer.nodes)
    launchers.limit_threads(config.trainer)
    if isinstance(config.source, Real):
        from forecaster import data  # pandas: no other source can be told wrong before it is read

        data.check(config.source)
    errors: list[Exception] = []

    def job(_: DictConfig) -> None:
        try:
            train(config, directory)
        except Exception as error:  # raised in here it would be told by Hydra, in several lines
            log.exception("training failed")
            errors.append(error)

    enter(job, [*overrides, f"hydra.run.dir={quoted_path(directory)}"])
    return config, directory, errors[0] if errors else None


def one_line(error: Exception) -> str:
    """An error's text without its line ends."""
    return " ".join(str(error).splitlines())


def train(config: Config, directory: Path, *, retried: bool = False) -> str:
    """The whole line, into a directory that is nobody's run; its result in a few words.

    retried: a launcher starts a job again whose machine was lost: it goes on where that one was.
    """
    launchers.limit_threads(config.trainer)
    begun = directory / "config.yaml"
    again = retried and begun.is_file() and load(begun) == config
    if not again:
        refuse_held(directory)
    from forecaster import line  # torch: seconds, that nobody with a mistyped key should wait for

    return line.resume(directory) if again else line.train(config, directory)


def enter(job: Callable[[DictConfig], object], arguments: Sequence[str]) -> None:
    """Runs jobs in their directories, each with its train.log; Hydra reads its arguments from sys.argv."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra's own errors are then raised, not printed
    sys.argv[1:] = arguments
    try:
        hydra.main(version_base="1.3", config_path=str(conf_directory()), config_name="train")(job)()
    except (HydraException, OmegaConfBaseException) as error:
        raise explain(error, TYPED) from error
    except OSError as error:  # a job's own errors do not come here
        if error.filename is None:  # a launcher's connection
            raise
        raise ConfigError(
            f"{error.filename} cannot be written ({error.strerror}); choose another with hydra.run.dir=DIR"
        ) from error


def resolved(composed: DictConfig, key: str) -> Path:
    """The absolute path that a key of Hydra's stands for."""
    try:
        return Path(str(OmegaConf.select(composed, key, throw_on_missing=True))).absolute()
    except OmegaConfBaseException as error:
        raise explain(error, TYPED) from error


def quoted_path(directory: Path) -> str:
    """A path as a value in Hydra's grammar."""
    return QuotedString(text=str(directory), quote=Quote.single).with_quotes()


def refuse_held(directory: Path) -> None:
    """Raises ConfigError for a directory in which a run or a sweep stands."""
    for name in HELD:
        if (directory / name).exists():
            raise ConfigError(
                f"{display(directory)} holds a run already ({name} is there); choose another with hydra.run.dir=DIR, "
                "or hydra.sweep.dir=DIR for a sweep: no run is overwritten"
            )


def experiment_sweep(composed: DictConfig) -> list[str]:
    """The values to sweep that an experiment's file gives, as they would be typed."""
    params = cast("dict[str, str]", OmegaConf.select(composed, "hydra.sweeper.params") or {})
    return [f"{key}={values}" for key, values in params.items()]


def _refuse_unswept(composed: DictConfig, lines: Sequence[Override]) -> None:
    """Raises ConfigError where what was chosen is a sweep, and -m is missing."""
    given = {line.key_or_group for line in lines}
    for line in lines:
        if line.key_or_group in ("hydra/launcher", "hydra/sweeper"):
            raise ConfigError(f"{line.input_line} is for a sweep (in {TYPED}); add -m, or leave it out")
    swept = [line.key_or_group for line in parsed(experiment_sweep(composed)) if line.key_or_group not in given]
    if swept:
        experiment = composed.hydra.runtime.choices.get("experiment")
        file = config_file(f"experiment/{experiment}", lines)
        raise ConfigError(
            f"experiment={experiment} is a sweep over {', '.join(swept)} (in {file}); add -m to run it, "
            f"or give one value, {' '.join(f'{key}=VALUE' for key in swept)}"
        )
