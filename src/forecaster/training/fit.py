"""Training a task to its best epoch on validation."""

import csv
import logging
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import lightning
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint, RichProgressBar, WeightAveraging
from lightning.pytorch.loggers import Logger
from torch.optim.swa_utils import get_ema_multi_avg_fn

from forecaster.training import checkpoints
from forecaster.training.task import Task
from forecaster.windows.datamodule import Bars

# What Lightning says of devices that are not there, of its other products, and of a name that torch 2.13 deprecates.
logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\)", category=FutureWarning)

COLUMNS = ("epoch", "step", "train_loss", "validation_loss", "learning_rate", "seconds")


class History(Callback):
    """A row of history.csv after every epoch, and a line to read."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self.path, self.say, self.started = path, say, time.monotonic()

    def on_validation_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Appends the epoch's losses."""
        if trainer.sanity_checking:
            return
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        seconds = time.monotonic() - self.started
        rate = trainer.optimizers[0].param_groups[0]["lr"]
        row = (trainer.current_epoch + 1, trainer.global_step, metrics["train_loss"], metrics["validation_loss"], rate)
        new = not self.path.exists()
        with self.path.open("a", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if new:
                writer.writerow(COLUMNS)
            writer.writerow((*row[:2], *(f"{value:.10g}" for value in row[2:]), f"{seconds:.3f}"))
        self.say(f"epoch {row[0]}/{trainer.max_epochs}  train {row[2]:.4f}  validation {row[3]:.4f}  {seconds:.0f} s")


class Description(Callback):
    """Puts what the weights were trained for into every checkpoint."""

    def __init__(self, described: checkpoints.Described) -> None:
        self.described = dict(described)

    def on_save_checkpoint(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, checkpoint: dict[str, object]
    ) -> None:
        """Adds the description; plain numbers, text and lists."""
        checkpoint["forecaster"] = {"format": checkpoints.FORMAT, **self.described}


def fit(
    task: Task,
    bars: Bars,
    directory: Path,
    described: Mapping[str, object],
    *,
    max_epochs: int,
    patience: int,
    average: float,
    logger: Logger | bool,
    say: Callable[[str], None],
    progress: bool,
) -> int:
    """Trains, leaves checkpoints/best.ckpt and last.ckpt and history.csv, loads the best weights into the task and
    returns the epoch they are from, counted from 1.

    Validated and kept is the exponential moving average of the weights over steps, w' = average w' + (1 - average) w
    (0: the weights themselves): one run's noise is a good part of an ensemble's gain.
    Izmailov et al. (2018), Averaging Weights Leads to Wider Optima and Better Generalization.
    Raises DivergedError at the first loss or gradient that is not finite.
    """
    best = ModelCheckpoint(
        directory / "checkpoints",
        filename="best",
        monitor="validation_loss",
        save_last=True,
        enable_version_counter=False,
    )
    callbacks: list[Callback] = [
        Description(described),
        History(directory / "history.csv", say),
        EarlyStopping("validation_loss", patience=patience, check_finite=False),
        best,
    ]
    if average:
        callbacks.append(WeightAveraging(use_buffers=False, multi_avg_fn=get_ema_multi_avg_fn(average)))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=max_epochs,
        logger=logger,
        callbacks=[*callbacks, RichProgressBar()] if progress else callbacks,
        enable_progress_bar=progress,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    try:
        trainer.fit(task, datamodule=bars)
    except SystemExit as stop:
        # Lightning answers Ctrl-C with exit 1; the command line wants the interrupt itself, to end with 130.
        if trainer.interrupted and stop.code == 1:
            raise KeyboardInterrupt from stop
        raise
    path = directory / "checkpoints" / "best.ckpt"
    content = checkpoints.load(path)
    task.load_state_dict(checkpoints.weights(content))
    task.eval()
    return cast(int, content["epoch"]) + 1
