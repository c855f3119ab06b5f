"""The training of a prepared line: in one process, or in several that share each batch."""

import logging
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread

from lightning.pytorch.loggers import Logger

from forecaster import compose, run
from forecaster.bars import store
from forecaster.beginning import begin
from forecaster.config import Config, Trainer
from forecaster.errors import DivergedError
from forecaster.prepare import Line, description, prepare, versions
from forecaster.training import checkpoints, devices
from forecaster.training.devices import Devices
from forecaster.training.fit import Trained, fit
from forecaster.windows import datamodule


def fitted(
    line: Line, directory: Path, *, logger: Logger | bool, say: Callable[[str], None], progress: bool, resume: bool
) -> Trained:
    """Trains a line's task with the configuration's recipe, and other processes along with this one if it says so."""
    with devices.together(asked(line.config.trainer), directory):
        return _fitted(line, directory, logger=logger, say=say, progress=progress, resume=resume)


def follow() -> None:
    """Another process of a training: takes part in what the first one begins, and leaves nothing of its own."""
    with devices.following() as (directory, join):
        config = compose.load(directory / run.CONFIG)
        with tempfile.TemporaryDirectory() as folder:
            line = prepare(config, store.kept(directory), Path(folder))
            begin(line, directory)
            join(asked(config.trainer))
            begun = (directory / checkpoints.LAST).is_file()
            # The first process ends in the same way, and tells.
            with suppress(DivergedError, KeyboardInterrupt, SystemExit):
                _fitted(line, directory, logger=False, say=lambda text: None, progress=False, resume=begun)


def asked(trainer: Trainer) -> Devices:
    """The devices that a configuration names."""
    return Devices(trainer.accelerator, trainer.strategy, trainer.devices, trainer.nodes, trainer.precision)


def batches(line: Line) -> datamodule.Bars:
    """The loaders of a line's parts."""
    data = line.config.data
    every = data.origins == "all"
    return datamodule.Bars(line.panel, line.split, line.length, data.batch_size, line.config.seed, every=every)


def _fitted(
    line: Line, directory: Path, *, logger: Logger | bool, say: Callable[[str], None], progress: bool, resume: bool
) -> Trained:
    config: Config = line.config
    return fit(
        line.task,
        batches(line),
        directory,
        {
            **description(config, line.panel, line.length),
            "calendar": line.panel.calendar,
            "config": compose.to_yaml(config),
            "train_end": line.split.train_day,
            "validation_end": line.split.validation_day,
            "versions": versions(),
        },
        max_epochs=config.trainer.max_epochs,
        patience=config.trainer.patience,
        average=config.trainer.average,
        logger=logger,
        say=say,
        progress=progress,
        resume=resume,
        devices=asked(config.trainer),
    )


def _end_with_the_first() -> None:
    # Until both have met, for up to hours, nothing else tells that it was killed.
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    Thread(target=_end_with_the_first, daemon=True).start()
    follow()
    sys.exit()
