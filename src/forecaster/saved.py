"""A trained run as its directory holds it: taken up again, and asked for the bars to come."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pandas as pd

from forecaster import compose, run
from forecaster.bars import store
from forecaster.bars.contract import Bars
from forecaster.config import Config
from forecaster.data import build_panel, load_bars, say
from forecaster.errors import DataError
from forecaster.forecasts import frame, network
from forecaster.prepare import Line, description, prepare, untrained
from forecaster.training import checkpoints
from forecaster.training.task import Task
from forecaster.windows import panel, scaling
from forecaster.windows.features import WARMUP


@dataclass(frozen=True)
class Saved:
    """A trained run as its directory holds it, with its own bars or those of an overriding source."""

    directory: Path
    config: Config
    content: Mapping[str, object]
    bars: Bars

    @property
    def path(self) -> Path:
        """The checkpoint."""
        return self.directory / checkpoints.BEST

    def trained(self) -> dict[str, object]:
        """What the weights were trained for, and on which days."""
        return checkpoints.described(self.content)


def saved(directory: Path, overrides: Sequence[str] = ()) -> Saved:
    """The run's configuration and weights, with the parts of its own days also where the bars are others."""
    run.check_run(directory)
    config = compose.load(directory / run.CONFIG, overrides)
    content = checkpoints.load(directory / checkpoints.BEST)
    check_trained(compose.load(directory / run.CONFIG), content, directory / checkpoints.BEST)
    trained = checkpoints.described(content)
    if config.model.window is None:
        # The window that a run chose for its own bars holds on others too.
        config = replace(config, model=replace(config.model, window=cast("int | None", trained.get("window"))))
    if not any(override.startswith("source") for override in overrides):
        return Saved(directory, config, content, store.kept(directory))
    # Fractions of other bars would be other days: weights may have been chosen on them.
    ends = {name: trained[name] for name in ("train_end", "validation_end") if name in trained}
    return Saved(directory, replace(config, split=replace(config.split, **ends)), content, load_bars(config.source))


def check_trained(config: Config, content: Mapping[str, object], path: Path) -> None:
    """Raises DataError with both values where the checkpoint was trained with another configuration."""
    text = checkpoints.described(content).get("config")
    if not isinstance(text, str):
        raise DataError(f"{path} does not say with what configuration it was trained: train again")
    if wrong := compose.differences(config, text, str(path)):
        raise DataError(f"{path} does not fit: {'; '.join(wrong)}; restore the run's own {run.CONFIG}")


def load(directory: Path, overrides: Sequence[str] = ()) -> Line:
    """The line of a run, from its directory alone, with its best weights and their scaler."""
    found = saved(directory, overrides)
    line = prepare(found.config, found.bars, directory)
    _take(found, line.panel, line.length, line.task)
    return line


def _take(found: Saved, built: panel.Panel, length: int, task: Task) -> None:
    """Puts the run's weights into the task; DataError where bars or configuration are not what they were trained on."""
    trained = found.trained()
    interval, features = trained.get("interval"), cast("list[str]", trained.get("features", []))
    if interval != built.interval:
        raise DataError(
            f"these bars are of {built.interval}, {found.directory} was trained on bars of {interval}: bring such bars"
        )
    if lacking := [name for name in features if name not in built.feature_names]:
        off = "; ".join(reason for reason in built.off if reason.removeprefix("feature ").startswith(tuple(lacking)))
        raise DataError(
            f"{found.directory} reads {', '.join(lacking)}, which these bars don't give ({off}): bring others"
        )
    if further := [name for name in built.feature_names if name not in features]:
        raise DataError(
            f"{found.directory} was trained on bars without {', '.join(further)}, these have it: bring bars of the "
            "same columns"
        )
    checkpoints.verify(found.content, description(found.config, built, length), found.path)
    checkpoints.put(found.content, task, found.path)
    task.eval()


def predict(directories: Sequence[Path], overrides: Sequence[str] = ()) -> pd.DataFrame:
    """The next H bars of every symbol, with origin and target dates; several runs are averaged.

    Symbols whose last bars are too few for a window are told on stderr and left out.
    """
    frames = [_next_bars(saved(directory, overrides)) for directory in directories]
    for directory, other in zip(directories[1:], frames[1:], strict=True):
        if not other[frame.ROW].equals(frames[0][frame.ROW]):
            raise DataError(
                f"{directories[0]} and {directory} can't be averaged: they differ in symbols, last bars, targets or "
                "horizon; name runs of one experiment and one set of bars"
            )
    together = frames[0] if len(frames) == 1 else frame.average(frames, "ensemble")
    return together.drop(columns=["fold", "actual"])


def _next_bars(found: Saved) -> pd.DataFrame:
    config, length = found.config, cast(int, found.trained().get("window"))
    built = build_panel(config, found.bars, found.directory)
    task = untrained(config, built, length, scaling.unfitted(built))
    _take(found, built, length, task)
    origins = built.last_origins(length)
    for symbol in sorted(set(range(len(built.symbols))) - set(map(int, built.symbol_ids[origins]))):
        first, end = built.bounds(symbol)
        why = f"{end - first} bars, one window needs {WARMUP + length} without a gap of over {config.data.max_gap}"
        say(f"{built.symbols[symbol]}: no forecast: {why}")
    if len(origins) == 0:
        raise DataError(f"no symbol has the {WARMUP + length} bars that one window needs: bring more bars")
    times = built.target_times.copy()
    times[origins] = built.times_after(origins)
    known = replace(built, target_times=times)
    tidy = frame.tidy(config.model.kind, network.forecast(task, known, origins, length), known, origins)
    if built.interval == "1d":
        return tidy
    return tidy.assign(**{name: tidy[name].dt.tz_localize("UTC") for name in ("origin", "target_time")})
