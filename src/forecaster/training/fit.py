"""Training a task to its best epoch on validation."""

import logging
import signal
import sys
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import lightning
from lightning.pytorch.callbacks import Callback, EarlyStopping, RichProgressBar, WeightAveraging
from lightning.pytorch.loggers import Logger
from torch.optim.swa_utils import get_ema_multi_avg_fn

from forecaster.errors import DataError, DivergedError
from forecaster.training import checkpoints
from forecaster.training.devices import CPU, Devices
from forecaster.training.keeping import Keeper, Signals, StepSeeds, Stopped
from forecaster.training.task import Task
from forecaster.windows import splits
from forecaster.windows.datamodule import Bars

# What Lightning says of devices that are not there, of its other products, and of a name that torch 2.13 deprecates.
logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\)", category=FutureWarning)

NAMED = 5  # symbols named of a batch


class Trained(NamedTuple):
    """The epoch that the best weights are from, counted from 1, and the seconds that training took in all."""

    epoch: int
    seconds: float


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
    resume: bool = False,
    devices: Devices = CPU,
) -> Trained:
    """Trains, leaves checkpoints/best.ckpt and last.ckpt and history.csv, and loads the best weights into the task.

    With `resume` it goes on from last.ckpt, where there is one, and ends with the same weights as without the stop.

    Validated and kept is the exponential moving average of the weights over steps, w' = average w' + (1 - average) w
    (0: the weights themselves): one run's noise is a good part of an ensemble's gain.
    Izmailov et al. (2018), Averaging Weights Leads to Wider Optima and Better Generalization.
    Raises DivergedError at the first loss or gradient that is not finite, and then leaves no best.ckpt. SIGTERM raises
    SystemExit and SIGINT KeyboardInterrupt, once the step they came in is kept.
    """
    last = directory / checkpoints.LAST
    content = checkpoints.load(last) if resume and last.is_file() else None
    keeper = Keeper(directory, described, say)
    if content is not None:
        checkpoints.put(content, task, last)
    if content is not None and checkpoints.finished(content):
        with _restoring(last, lambda: False):
            keeper.load_state_dict(checkpoints.states(content)[keeper.state_key])
    else:
        if content is not None:
            bars.begin(*checkpoints.position(content, last))
        callbacks: list[Callback] = [StepSeeds(bars.seed), _stopper(patience)]
        if average:
            callbacks.append(WeightAveraging(use_buffers=False, multi_avg_fn=get_ema_multi_avg_fn(average)))
        signals = Signals(keeper)
        callbacks += [keeper, signals]
        arguments = devices.trainer_arguments()
        arguments["plugins"].append(checkpoints.Whole())
        trainer = lightning.Trainer(
            **arguments,
            max_epochs=max_epochs,
            logger=logger,
            callbacks=[*callbacks, RichProgressBar()] if progress else callbacks,
            enable_checkpointing=False,
            enable_progress_bar=progress,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        _run(trainer, task, bars, signals, None if content is None else last)
    best = checkpoints.load(directory / checkpoints.BEST)
    checkpoints.put(best, task, directory / checkpoints.BEST)
    task.eval()
    return Trained(checkpoints.epoch(best, directory / checkpoints.BEST), keeper.rows[-1][-1])


@contextmanager
def _restoring(path: Path | None, begun: Callable[[], bool]) -> Generator[None]:
    """Until the training has begun, what can't be taken up from the checkpoint is a DataError."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as fault:
        if path is None or begun():
            raise
        told = f"{type(fault).__name__}: {fault}".splitlines()[0]
        raise DataError(f"{path} does not hold all that its training stood at ({told}): train again") from fault


def _stopper(patience: int) -> EarlyStopping:
    # Left to itself it would see an epoch after the keeper had kept it.
    return EarlyStopping("validation_loss", patience=patience, check_finite=False, check_on_train_epoch_end=False)


def _run(trainer: lightning.Trainer, task: Task, bars: Bars, signals: Signals, start: Path | None) -> None:
    keeper = signals.keeper
    try:
        with warnings.catch_warnings():
            # Lightning can't know that `Bars.begin` makes the loader go on where the epoch was left.
            warnings.filterwarnings("ignore", "You're resuming from a checkpoint that ended before the epoch ended")
            with _restoring(start, lambda: signals.begun):
                trainer.fit(task, datamodule=bars, ckpt_path=start, weights_only=True)
        if signals.asked:  # after the last epoch was kept
            raise Stopped(signals.asked)
    except DivergedError as fault:
        (keeper.directory / checkpoints.BEST).unlink(missing_ok=True)
        where = "" if keeper.batch is None else f", {_batch(bars, *keeper.batch)}"
        raise DivergedError(f"{fault}{where}; lower model.optimizer.lr or look at the quality report") from fault
    except Stopped as stop:
        if stop.number == signal.SIGINT:
            raise KeyboardInterrupt from None
        sys.exit(128 + stop.number)
    except SystemExit as stop:
        # Lightning answers Ctrl-C before the first step with exit 1; the command line wants the interrupt itself.
        if trainer.interrupted and stop.code == 1:
            raise KeyboardInterrupt from stop
        raise


def _batch(bars: Bars, epoch: int, batch: int) -> str:
    """The windows of a training batch in words: how many, whose, and between which dates they end."""
    panel, rows = bars.windows.panel, bars.training_rows(epoch, batch)
    symbols = sorted({panel.symbols[int(number)] for number in panel.symbol_ids[rows]})
    more = f" and {len(symbols) - NAMED} more" if len(symbols) > NAMED else ""
    first, end = (splits.day(panel, instant) for instant in (panel.times[rows].min(), panel.times[rows].max()))
    return f"on {len(rows)} windows of {', '.join(symbols[:NAMED])}{more} that end between {first} and {end}"
