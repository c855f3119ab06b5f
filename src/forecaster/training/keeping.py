"""What a training keeps as it goes, so that one that is stopped, however that happens, ends with the same weights."""

import csv
import signal
import threading
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any

import lightning
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback

from forecaster.bars.atomic import whole
from forecaster.training import checkpoints

COLUMNS = ("epoch", "step", "train_loss", "validation_loss", "learning_rate", "seconds")
Row = list[int | float]


class Stopped(BaseException):
    """A signal asked the training to stop, and the step it was in is kept."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class StepSeeds(Callback):
    """Sets torch's random state before step k from (seed, k), so that it does not depend on what ran before."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_batch_start(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, batch: object, batch_idx: int
    ) -> None:
        """Each process of several has masks of its own."""
        entropy = (self.seed, trainer.global_step, trainer.global_rank)
        torch.manual_seed(int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0]))


class Keeper(Callback):
    """After every epoch a row of history.csv and a line to read, then best.ckpt where it was the best, then last.ckpt.

    In this order a process killed at any moment leaves a last.ckpt that knows everything before it; what is newer than
    it is written again, and the same.
    """

    def __init__(self, directory: Path, described: checkpoints.Described, say: Callable[[str], None]) -> None:
        self.directory, self.described, self.say = directory, dict(described), say
        self.rows: list[Row] = []
        self.best = float("inf")
        self.batch: tuple[int, int] | None = None
        self._before, self._started, self._finished = 0.0, time.monotonic(), False

    def on_train_batch_start(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, batch: object, batch_idx: int
    ) -> None:
        """Remembers which batch the step is on."""
        self.batch = trainer.current_epoch, batch_idx

    def on_validation_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """No batch of the training is to blame from here."""
        self.batch = None

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Keeps the epoch, once early stopping has seen it."""
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        train, validation = metrics["train_loss"], metrics["validation_loss"]
        rate = float(trainer.optimizers[0].param_groups[0]["lr"])
        epoch, seconds = trainer.current_epoch + 1, self._seconds()
        self.rows.append([epoch, trainer.global_step, train, validation, rate, seconds])
        self._finished = trainer.should_stop or epoch == trainer.max_epochs
        best = validation < self.best
        self.best = min(validation, self.best)
        if trainer.is_global_zero:
            write_history(self.directory, self.rows)
            self.say(
                f"epoch {epoch}/{trainer.max_epochs}  train {train:.4f}  validation {validation:.4f}  {seconds:.0f} s"
            )
        self._position = [epoch, 0]
        if best:
            trainer.save_checkpoint(self.directory / checkpoints.BEST)
        trainer.save_checkpoint(self.directory / checkpoints.LAST)

    def keep_step(self, trainer: lightning.Trainer, batches: int) -> None:
        """Keeps last.ckpt inside an epoch, after so many of its batches."""
        self._position = [trainer.current_epoch, batches]
        trainer.save_checkpoint(self.directory / checkpoints.LAST)

    def state_dict(self) -> dict[str, Any]:
        """The epochs so far, and the seconds they took."""
        return {"rows": self.rows, "best": self.best, "seconds": self._seconds()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes up what `state_dict` gave; rows that history.csv has beyond it are written again when they come."""
        self.rows, self.best, self._before = state_dict["rows"], state_dict["best"], state_dict["seconds"]
        self._started = time.monotonic()

    def on_save_checkpoint(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, checkpoint: dict[str, object]
    ) -> None:
        """Adds what the weights were trained for and where training stands; plain numbers, text and lists."""
        stands = {"finished": self._finished, "position": self._position}
        checkpoint["forecaster"] = {"format": checkpoints.FORMAT, **self.described, **stands}

    def _seconds(self) -> float:
        return self._before + time.monotonic() - self._started


class Signals(Callback):
    """SIGTERM and SIGINT end the training after the step they come in, or after the validation, once it is kept.

    A second Ctrl-C ends it at once, with what was kept before. One process of several that is asked asks all.
    """

    def __init__(self, keeper: Keeper) -> None:
        self.keeper = keeper
        self.asked = 0
        self.begun = False

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Takes the place of Lightning's handlers, which lose the step; Lightning puts back those before its own."""
        self.begun = True
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._ask)
            signal.signal(signal.SIGINT, self._ask)

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        outputs: object,
        batch: object,
        batch_idx: int,
    ) -> None:
        """Stops inside the epoch; after its last batch the validation comes first."""
        if batch_idx + 1 < trainer.num_training_batches and (number := self._number(trainer)):
            self.keeper.keep_step(trainer, batch_idx + 1)
            raise Stopped(number)

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Stops between epochs."""
        if number := self._number(trainer):
            raise Stopped(number)

    def _ask(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT and self.asked == signal.SIGINT:
            raise Stopped(number)
        self.asked = number

    def _number(self, trainer: lightning.Trainer) -> int:
        asked = self.asked
        if trainer.world_size > 1 and trainer.strategy.reduce_boolean_decision(bool(asked), all=False):
            return asked or signal.SIGTERM
        return asked


def write_history(directory: Path, rows: list[Row]) -> None:
    """Writes history.csv with all epochs so far."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for epoch, step, *numbers, seconds in rows:
        writer.writerow((epoch, step, *(f"{number:.10g}" for number in numbers), f"{seconds:.3f}"))
    with whole(directory / "history.csv") as file:
        file.write(text.getvalue().encode())
