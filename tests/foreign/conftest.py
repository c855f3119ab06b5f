"""Windows, and small models that forecast from them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from forecaster.bars import planted
from forecaster.foreign.subject import Foreign
from forecaster.probing import Windows, windows
from small_models import HORIZON, LENGTH, TARGETS, Net, encoder, forecast


@pytest.fixture(scope="session")
def data() -> Windows:
    """Windows of 12 bars of two symbols, three steps of two targets ahead."""
    bars = planted.load("noise", 700, seed=5, symbols=2)
    return windows(bars, LENGTH, targets=TARGETS, horizon=HORIZON)


@pytest.fixture
def make(data: Windows) -> Callable[..., Net]:
    """A model with random weights, whose layers are those of the encoder given."""

    def made(inner: Callable[[], nn.Module] = encoder) -> Net:
        torch.manual_seed(0)
        return Net(len(data.feature_names), inner())

    return made


@pytest.fixture
def subject(data: Windows) -> Callable[..., Foreign]:
    """A model as a subject of the probes."""

    def made(model: nn.Module, forecasting: Callable[..., Tensor] = forecast, **options: object) -> Foreign:
        return Foreign(model, data.panel, data.split, data.length, forecasting, **options)

    return made


@pytest.fixture
def batch(data: Windows) -> tuple[Tensor, Tensor]:
    """Seven test windows and the calendar ahead of each."""
    x_BLF, future_BHK, _ = data.part("test")
    return torch.from_numpy(x_BLF[:7]), torch.from_numpy(future_BHK[:7])
