"""What a training begins with: weights drawn from the seed, or those of another run with the heads it has left."""

from pathlib import Path

from forecaster import run
from forecaster.config import Config
from forecaster.errors import ConfigError
from forecaster.prepare import Line, description
from forecaster.training import checkpoints

PARTS = {"train_end": "training", "validation_end": "validation"}


def check(config: Config) -> None:
    """Raises ConfigError where init names no run with best weights."""
    if config.init is not None:
        for name in (Path(run.CONFIG), checkpoints.BEST):
            if not (Path(config.init) / name).is_file():
                raise ConfigError(
                    f"init={config.init} has no {name}: give the directory of a trained run, or leave init out"
                )


def begin(line: Line, directory: Path) -> None:
    """Puts the weights of the run that init names into the line's task; heads that are gone there are gone here.

    The scaler stays the line's own, of its training rows. A run that was stopped takes up its own weights, so that the
    other run is needed no more. ConfigError where the other network is of another kind or size, reads or forecasts
    something else, or was trained or chosen on days that this run is to be judged on.
    """
    init, last = line.config.init, directory / checkpoints.LAST
    if init is None:
        return
    if last.is_file():
        checkpoints.put(checkpoints.load(last), line.task, last)
        return
    check(line.config)
    path = Path(init) / checkpoints.BEST
    content = checkpoints.load(path)
    told = {"origins": "last", **checkpoints.described(content)}  # runs of 0.1.0 knew no others
    expected = description(line.config, line.panel, line.length)
    if wrong := [
        f"{key} is {told.get(key)!r} there and {own!r} here" for key, own in expected.items() if told.get(key) != own
    ]:
        raise ConfigError(f"init={init} does not fit: {'; '.join(wrong)}; give what it was trained with, or train anew")
    days = {"train_end": line.split.train_day, "validation_end": line.split.validation_day}
    if late := [
        f"{PARTS[key]} ends on {told.get(key)} there and on {own} here"
        for key, own in days.items()
        if str(told.get(key)) > own
    ]:
        raise ConfigError(
            f"init={init} has seen days that this run is judged on: {'; '.join(late)}; end this run's parts as late"
        )
    weights = {name: x for name, x in checkpoints.weights(content).items() if name.startswith("network.")}
    checkpoints.put({"state_dict": {**line.task.state_dict(), **weights}}, line.task, path)
