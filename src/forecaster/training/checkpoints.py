"""Checkpoints: tensors, numbers and text, with everything a forecast needs beside the weights."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import cast

import torch

from forecaster.errors import DataError

FORMAT = 1
Described = Mapping[str, object]


def load(path: Path) -> dict[str, object]:
    """The checkpoint's content, read with weights_only=True so that nothing in it is ever executed.

    Raises DataError for a missing, cut or foreign file.
    """
    if not path.is_file():
        raise DataError(f"no checkpoint {path}: the run has not finished an epoch; train again")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # torch's guesses at what a foreign file may be: the error below says enough
            content: object = torch.load(path, map_location="cpu", weights_only=True)
    except (UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, OSError) as fault:
        raise DataError(f"{path} is not a checkpoint of this program, or not a whole one: train again") from fault
    if not isinstance(content, dict) or "state_dict" not in content or "forecaster" not in content:
        raise DataError(f"{path} is not a checkpoint of this program: it lacks its description; train again")
    return cast("dict[str, object]", content)


def verify(content: Mapping[str, object], expected: Described, path: Path) -> None:
    """Raises DataError listing both values where the checkpoint was trained for something else than `expected`.

    Heads, window or the order of features can change without changing the shape of any weight.
    """
    found = described(content)
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


def described(content: Mapping[str, object]) -> dict[str, object]:
    """What the weights were trained for."""
    return cast("dict[str, object]", content["forecaster"])
