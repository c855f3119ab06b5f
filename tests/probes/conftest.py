"""Hand-made heads on hand-made bars: attention whose right answer is known."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch

from forecaster.bars import planted
from forecaster.networks.encoder import Encoder
from forecaster.probes.masks import Mask, Queries
from forecaster.training.task import Recipe, Task
from forecaster.windows.panel import Panel, build
from forecaster.windows.scaling import fit
from forecaster.windows.splits import split

LENGTH = 32


def _panel(times: list[pd.DatetimeIndex], shocks: list[np.ndarray], week_bars: int) -> Panel:
    """A panel of one symbol per array of shocks; its only feature is the shock, its only target the next shock."""
    target_times = [np.append(stamps[1:].to_numpy(), np.datetime64("NaT")) for stamps in times]
    ahead = [np.append(values[1:], np.nan) for values in shocks]
    return Panel(
        features=np.concatenate(shocks).astype(np.float32)[:, None],
        targets=np.concatenate(ahead)[:, None, None],
        past=np.concatenate(shocks)[:, None],
        times=np.concatenate([stamps.to_numpy() for stamps in times]).astype("datetime64[us]"),
        target_times=np.concatenate(target_times).astype("datetime64[us]")[:, None],
        symbol_ids=np.repeat(np.arange(len(times)), [len(stamps) for stamps in times]),
        symbols=tuple(f"S{i}" for i in range(len(times))),
        feature_names=("shock",),
        target_names=("return",),
        calendar="XNYS",
        week_bars=week_bars,
    )


@pytest.fixture(scope="session")
def make_panel() -> Callable[[list[pd.DatetimeIndex], list[np.ndarray], int], Panel]:
    """Builds small panels from times and shocks."""
    return _panel


@pytest.fixture(scope="session")
def garch() -> Panel:
    """Two symbols of GARCH(.08, .90) with t4 noise on 1,500 real XNYS sessions: nothing to be found in them."""
    return build(planted.load("noise", 1500, seed=5, symbols=2), ("return", "volatility"), 1)


@pytest.fixture(scope="session")
def origins(garch: Panel) -> np.ndarray:
    """Every full window of LENGTH bars."""
    return garch.origins(LENGTH)


@pytest.fixture(scope="session")
def queries(origins: np.ndarray) -> Queries:
    """The last bars of those windows."""
    full = np.full(len(origins), LENGTH)
    return Queries(origins, full, full, LENGTH)


@pytest.fixture(scope="session")
def backgrounds(garch: Panel, origins: np.ndarray) -> dict[str, np.ndarray]:
    """Attention [n, 1, L] of heads that look at nothing in particular."""
    lags = np.arange(LENGTH)
    count = len(origins)
    rng = np.random.default_rng(11)
    volatility = garch.window(origins, LENGTH)[:, :, garch.feature_names.index("log_volatility")].mean(1)
    rank = volatility.argsort().argsort() / count
    shapes = {
        "uniform": np.ones(LENGTH),
        "exponential 3": np.exp(-lags / 3),
        "exponential 8": np.exp(-lags / 8),
        "exponential 25": np.exp(-lags / 25),
        "power law": 1 / (1.0 + lags),
        "bump 5.5": np.exp(-(((lags - 5.5) / 2) ** 2) / 2),
        "bump 7": np.exp(-(((lags - 7) / 2) ** 2) / 2),
        "bump 20": np.exp(-(((lags - 20) / 2) ** 2) / 2),
        "narrow bump 5.5": np.exp(-((lags - 5.5) ** 2) / 2),
        "sink": np.where(lags == LENGTH - 1, 20.0, 1.0),
        "random positional": np.exp(rng.normal(size=LENGTH)),
        "decay by volatility": np.exp(-lags / (2 + 20 * rank[:, None])),
    }
    heads = {name: np.broadcast_to(shape, (count, LENGTH)) for name, shape in shapes.items()}
    heads["noise"] = np.exp(rng.normal(size=(count, LENGTH)))
    return {name: (shape / shape.sum(-1, keepdims=True))[:, None] for name, shape in heads.items()}


def planted_head(background: np.ndarray, mask: Mask, share: float) -> np.ndarray:
    """A = (1 - s) background + s target, the target spread evenly over the flagged bars of each query."""
    flags = mask.flags[:, None].astype(float)
    target = flags / np.maximum(flags.sum(-1, keepdims=True), 1)
    share_n = np.where(mask.measurable, share, 0.0)[:, None, None]
    return (1 - share_n) * background + share_n * target


@pytest.fixture(scope="session")
def plant() -> Callable[[np.ndarray, Mask, float], np.ndarray]:
    """Plants a share of attention on the flagged bars."""
    return planted_head


@pytest.fixture(scope="session")
def small_task() -> Callable[..., Task]:
    """Networks of width 20 with random weights, by default 2 layers x 4 heads."""

    def make(
        panel: Panel,
        length: int,
        *,
        causal: bool = False,
        dropout: float = 0.0,
        layers: int = 2,
        heads: int = 4,
        positions: str = "learned",
    ) -> Task:
        torch.manual_seed(0)
        network = Encoder(
            features=len(panel.feature_names),
            length=length,
            width=20,
            heads=heads,
            layers=layers,
            feedforward=12,
            dropout=dropout,
            attention_dropout=0.0,
            causal=causal,
            positions=positions,
            skip=False,
            horizon=panel.horizon,
            targets=len(panel.target_names),
        )
        with torch.no_grad():
            for block in network.blocks:  # larger than at the start of training, so that heads differ
                block.attention.query.weight.mul_(4.0)
        return Task(network, fit(panel, split(panel, length, 0.7, 0.85), length), Recipe(1e-3, 0.0, 0.0, 1.0))

    return make
