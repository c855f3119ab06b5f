"""Checkpoints: tensors, numbers and text, with everything a forecast needs beside the weights."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Final, cast

import torch
from lightning.pytorch.plugins.io import CheckpointIO

from forecaster.bars.atomic import whole
from forecaster.errors import DataError

BEST: Final = Path("checkpoints") / "best.ckpt"
LAST: Final = Path("checkpoints") / "last.ckpt"
# 1: release 0.1.0. 2: last.ckpt also says where training stands and holds the history; best.ckpt is for forecasts.
FORMAT: Final = 2
FORECASTING: Final = ("state_dict", "forecaster", "epoch", "global_step")
Described = Mapping[str, object]


class Whole(CheckpointIO):
    """Lightning's checkpoints as files that are there whole or not at all: its own writer renames across folders."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: object = None) -> None:
        """Writes all of it; of the best weights only what a forecast needs."""
        target = Path(path)
        best = target.name == BEST.name
        with whole(target) as file:
            torch.save({name: checkpoint[name] for name in FORECASTING} if best else checkpoint, file)

    def load_checkpoint(
        self, path: str | Path, map_location: object = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """The content, checked; Lightning moves it to the device."""
        return load(Path(path))

    def remove_checkpoint(self, path: str | Path) -> None:
        """Removes the file."""
        Path(path).unlink(missing_ok=True)


def load(path: Path) -> dict[str, object]:
    """The checkpoint's content, read with weights_only=True so that nothing in it is ever executed.

    Raises DataError for a missing, cut or foreign file, and for a format that this program does not know.
    """
    if not path.is_file():
        raise DataError(
            f"no checkpoint {path}: the run has not finished an epoch, or it diverged; resume it, or train again"
        )
    try:
        with warnings.catch_warnings():
            # torch's guesses at what a foreign file may be: the error below says enough.
            warnings.simplefilter("ignore")
            content: object = torch.load(path, map_location="cpu", weights_only=True)
    except (UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, TypeError, AttributeError, OSError) as fault:
        raise DataError(f"{path} is not a checkpoint of this program, or not a whole one: train again") from fault
    if not isinstance(content, dict) or "state_dict" not in content or "forecaster" not in content:
        raise DataError(f"{path} is not a checkpoint of this program: it lacks its description; train again")
    content = cast("dict[str, object]", content)
    told, tensors = content["forecaster"], content["state_dict"]
    if not isinstance(told, dict) or not isinstance(tensors, dict) or not _dense(cast("dict[object, object]", tensors)):
        raise DataError(f"{path} is not a checkpoint of this program: its weights are no tensors by name; train again")
    number = cast("dict[str, object]", told).get("format")
    if number not in range(1, FORMAT + 1):
        raise DataError(
            f"{path} is of format {number!r}, this program reads 1 to {FORMAT}: bring this program up to date"
        )
    return content


def verify(content: Mapping[str, object], expected: Described, path: Path) -> None:
    """Raises DataError listing both values where the checkpoint was trained for something else than `expected`.

    Heads, window or the order of features can change without changing the shape of any weight.
    """
    found = {"origins": "last", **described(content)}  # format 1 knew no others
    wrong = [
        f"{key} is {found.get(key)!r} in the checkpoint and {value!r} in the run's configuration"
        for key, value in expected.items()
        if found.get(key) != value
    ]
    if wrong:
        raise DataError(f"{path} does not fit: {'; '.join(wrong)}; restore the run's own config.yaml")


def weights(content: Mapping[str, object]) -> dict[str, torch.Tensor]:
    """The network's weights and the scaler's numbers, as `Task.load_state_dict` takes them."""
    return cast("dict[str, torch.Tensor]", content["state_dict"])


def put(content: Mapping[str, object], task: torch.nn.Module, path: Path) -> None:
    """Puts the weights into a task; DataError where they are another network's."""
    try:
        task.load_state_dict(weights(content))
    except RuntimeError as fault:
        raise DataError(f"{path} holds weights of another network; restore the run's own config.yaml") from fault


def epoch(content: Mapping[str, object], path: Path) -> int:
    """The epoch that the weights are from, counted from 1."""
    match content.get("epoch"):
        case int(number):
            return number + 1
        case _:
            raise DataError(f"{path} does not say of which epoch its weights are: train again")


def described(content: Mapping[str, object]) -> dict[str, object]:
    """What the weights were trained for."""
    return cast("dict[str, object]", content["forecaster"])


def states(content: Mapping[str, object]) -> dict[str, dict[str, Any]]:
    """The states of Lightning's callbacks, by name."""
    return cast("dict[str, dict[str, Any]]", content["callbacks"])


def finished(content: Mapping[str, object]) -> bool:
    """Whether training ended with this checkpoint."""
    return described(content).get("finished") is True


def position(content: Mapping[str, object], path: Path) -> tuple[int, int]:
    """The epoch to go on with, counted from 0, and how many of its batches are done.

    Raises DataError for a checkpoint that does not say so: of format 1, or of best weights.
    """
    match described(content).get("position"):
        case [int(epoch), int(batch)] if "loops" in content:
            return epoch, batch
        case _:
            raise DataError(f"{path} does not say where its training stood, so it can't go on exactly: train again")


def _dense(tensors: Mapping[object, object]) -> bool:
    return all(
        isinstance(name, str) and isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided
        for name, tensor in tensors.items()
    )
