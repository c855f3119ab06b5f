"""From windows to everything but a trained network, and what a run says of itself."""

import importlib.metadata
import platform
from dataclasses import dataclass
from pathlib import Path

import lightning
import pandas as pd
import torch

from forecaster.bars import planted
from forecaster.bars.contract import Bars
from forecaster.config import Config
from forecaster.data import windowed
from forecaster.networks.choice import Shape, network
from forecaster.sources import Planted
from forecaster.training.task import Recipe, Task
from forecaster.windows import panel, scaling, splits

VERSIONS = ("torch", "lightning", "numpy", "pandas", "scipy", "arch", "hydra-core")


@dataclass(frozen=True)
class Line:
    """Everything up to the network: what training, scores and probes of one run share.

    quality: the bars' own report, and what the windows leave out or cannot scale.
    """

    config: Config
    bars: Bars
    quality: pd.DataFrame
    panel: panel.Panel
    split: splits.Split
    length: int
    baselines: tuple[str, ...]
    task: Task


def prepare(config: Config, bars: Bars, folder: Path) -> Line:
    """Panel, parts, scaler and an untrained network; the seed fixes the weights it starts from.

    folder: where a panel too large for memory lies meanwhile.
    """
    torch.set_num_threads(config.trainer.threads)
    lightning.seed_everything(config.seed, verbose=False)
    ready = windowed(config, bars, folder)
    task = untrained(config, ready.panel, ready.length, ready.scaler)
    return Line(config, ready.bars, ready.quality, ready.panel, ready.split, ready.length, ready.baselines, task)


def untrained(config: Config, built: panel.Panel, length: int, scaler: scaling.Scaler) -> Task:
    """The configuration's network for a panel, with a scaler; its weights are drawn from the seed set before."""
    model = config.model
    shape = shape_of(
        config, len(built.feature_names), length, built.horizon, len(built.target_names), built.future_size
    )
    recipe = Recipe(model.optimizer.lr, model.optimizer.weight_decay, model.optimizer.warmup, config.trainer.clip)
    return Task(network(model.kind, shape), scaler, recipe, every=config.data.origins == "all")


def shape_of(config: Config, features: int, length: int, horizon: int, targets: int, future: int) -> Shape:
    """The configured network's shape on bars with so many features, and a window of this length."""
    model = config.model
    return Shape(
        features=features,
        length=length,
        width=model.width,
        heads=model.heads,
        layers=model.layers,
        feedforward=model.feedforward,
        dropout=model.dropout,
        attention_dropout=model.attention_dropout,
        causal=model.causal,
        positions=model.positions,
        pooling=model.pooling,
        skip=model.skip,
        horizon=horizon,
        targets=targets,
        future=future,
    )


def description(config: Config, built: panel.Panel, length: int) -> dict[str, object]:
    """What weights are good for: loading them for anything else is an error."""
    model = config.model
    return {
        "interval": built.interval,
        "features": list(built.feature_names),
        "targets": list(built.target_names),
        "horizon": built.horizon,
        "window": length,
        "kind": model.kind,
        "width": model.width,
        "heads": model.heads,
        "layers": model.layers,
        "feedforward": model.feedforward,
        "positions": model.positions,
        "pooling": model.pooling,
        "causal": model.causal,
        "skip": model.skip,
        "origins": config.data.origins,
    }


def facts(line: Line) -> dict[str, object]:
    """What the summary says of a run before it has trained."""
    built, parts = line.panel, line.split
    return {
        "experiment": line.config.experiment_name,
        "model": line.config.model.kind,
        "seed": line.config.seed,
        "symbols": list(built.symbols),
        "bars": len(built.times),
        "first": splits.day(built, built.times.min()),
        "last": splits.day(built, built.times.max()),
        "interval": built.interval,
        "calendar": built.calendar,
        "week_bars": built.week_bars,
        "basis": line.bars.basis,
        "targets": list(built.target_names),
        "off": list(built.off),
        "quality": {str(kind): int(count) for kind, count in line.quality["kind"].value_counts(sort=False).items()},
        "horizon": built.horizon,
        "window": line.length,
        "parameters": sum(p.numel() for p in line.task.network.parameters()),
        "windows": {name: len(getattr(parts, name)) for name in splits.PARTS},
        "windows_left_out": {name: count.lost for name, count in parts.counts.items() if count.lost},
        "purged": parts.purged,
        "train_end": parts.train_day,
        "validation_end": parts.validation_day,
        "threads": torch.get_num_threads(),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that figures depend on."""
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in VERSIONS}}


def attainable(line: Line) -> dict[str, float]:
    """Of a planted market with a rule: the R2 that the rule itself reaches on the test part, one step ahead.

    Nothing where that is undefined: of one window, or of returns that are all the same.
    """
    source, built = line.config.source, line.panel
    if not isinstance(source, Planted) or source.market == "noise" or "return" not in built.target_names:
        return {}
    actual = built.targets[line.split.test, 0, built.target_names.index("return")]
    forecast = planted.expected(source.market, source.bars, source.seed, source.phi)[line.split.test + 1]
    errors, spread = float(((actual - forecast) ** 2).sum()), float(((actual - actual.mean()) ** 2).sum())
    return {"attainable_r2": round(1.0 - errors / spread, 4)} if spread > 0 else {}
