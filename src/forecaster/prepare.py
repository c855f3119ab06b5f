"""From a configuration to everything but a trained network, and what a run says of itself."""

import importlib.metadata
import platform
from dataclasses import dataclass

import lightning
import numpy as np
import pandas as pd
import torch

from forecaster.bars import bundled, planted
from forecaster.bars.contract import Bars, quality_report
from forecaster.config import Bundled, Config, Planted, Source
from forecaster.errors import DataError
from forecaster.forecasts import baselines
from forecaster.networks.encoder import Encoder
from forecaster.training.task import Recipe, Task
from forecaster.windows import panel, scaling, splits
from forecaster.windows.features import WARMUP

DEFAULT_WINDOW = 64
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
    task: Task


def load_bars(source: Source) -> Bars:
    """Bars of a source."""
    match source:
        case Bundled(symbols=symbols):
            return bundled.load(symbols)
        case Planted(market=market, bars=bars, seed=seed, phi=phi):
            return planted.load(market, bars, seed, phi=phi)
        case _:
            raise TypeError(f"no loader for {type(source).__name__}")


def prepare(config: Config, bars: Bars) -> Line:
    """Panel, parts, scaler and an untrained network; the seed fixes the weights it starts from."""
    torch.set_num_threads(config.trainer.threads)
    lightning.seed_everything(config.seed, verbose=False)
    built = panel.build(bars, tuple(config.data.targets), config.data.horizon)
    length = config.model.window or fitting_window(built, config.split.train_end)
    for name in config.baselines:
        baselines.check_window(name, length, built.week_bars)
    parts = splits.split(built, length, config.split.train_end, config.split.validation_end, config.split.embargo)
    scaler = scaling.fit(built, parts, length)
    quality = pd.concat([bars.quality, left_out(built, length, scaler)], ignore_index=True)
    model = config.model
    encoder = Encoder(
        features=len(built.feature_names),
        length=length,
        width=model.width,
        heads=model.heads,
        layers=model.layers,
        feedforward=model.feedforward * model.width,
        dropout=model.dropout,
        attention_dropout=model.attention_dropout,
        causal=model.causal,
        positions=model.positions,
        skip=model.skip,
        horizon=built.horizon,
        targets=len(built.target_names),
    )
    recipe = Recipe(model.optimizer.lr, model.optimizer.weight_decay, model.optimizer.warmup, config.trainer.clip)
    return Line(config, bars, quality, built, parts, length, Task(encoder, scaler, recipe))


def fitting_window(built: panel.Panel, train_end: str | float) -> int:
    """The default window: 64 bars, or what leaves half of the longest symbol's training bars as origins."""
    end = splits.boundary(built, train_end, "split.train_end")
    bars = max(int((built.times[slice(*built.bounds(i))] <= end).sum()) for i in range(len(built.symbols)))
    length = min(DEFAULT_WINDOW, (bars - WARMUP) // 2)
    if length < 1:
        raise DataError(
            f"too few bars to train on: the longest symbol has {bars} up to {np.datetime_as_string(end, unit='D')}, "
            f"of which {WARMUP} warm the features up; bring more bars or move split.train_end"
        )
    return length


def left_out(built: panel.Panel, length: int, scaler: scaling.Scaler) -> pd.DataFrame:
    """Quality rows for what the windows leave out or cannot scale."""
    rows: list[tuple[str, pd.Timestamp, str, str, str]] = []
    for origin in map(int, built.undefined(length)):
        symbol, stamp = built.symbols[int(built.symbol_ids[origin])], built.time(origin)
        unknown = [n for c, n in enumerate(built.target_names) if not np.isfinite(built.targets[origin, :, c]).all()]
        rows.append((symbol, stamp, "undefined_target", f"{', '.join(unknown)} after this bar", "origin left out"))
    for number, symbol in enumerate(built.symbols):
        first, end = built.bounds(number)
        needed = WARMUP + length + built.horizon
        if end - first < needed:
            stamp = built.time(end - 1)
            detail = f"{end - first} bars < {needed} (warm-up {WARMUP} + window {length} + horizon {built.horizon})"
            rows.append((symbol, stamp, "too_short", detail, "symbol left out"))
    first_time = built.time(0)
    rows.extend(("all", first_time, "constant", f"{name} never changes", "std taken as 1") for name in scaler.constant)
    return quality_report(rows)


def description(line: Line) -> dict[str, object]:
    """What weights are good for: loading them for anything else is an error."""
    model = line.config.model
    return {
        "features": list(line.panel.feature_names),
        "targets": list(line.panel.target_names),
        "horizon": line.panel.horizon,
        "window": line.length,
        "width": model.width,
        "heads": model.heads,
        "layers": model.layers,
        "feedforward": model.feedforward,
        "positions": model.positions,
        "causal": model.causal,
        "skip": model.skip,
    }


def facts(line: Line) -> dict[str, object]:
    """What the summary says of a run before it has trained."""
    built, parts = line.panel, line.split
    return {
        "experiment": line.config.experiment_name,
        "seed": line.config.seed,
        "symbols": list(built.symbols),
        "bars": len(built.times),
        "first": str(built.times.min())[:10],
        "last": str(built.times.max())[:10],
        "calendar": built.calendar,
        "week_bars": built.week_bars,
        "basis": line.bars.basis,
        "targets": list(built.target_names),
        "horizon": built.horizon,
        "window": line.length,
        "parameters": sum(p.numel() for p in line.task.network.parameters()),
        "windows": {name: len(getattr(parts, name)) for name in ("train", "validation", "test")},
        "purged": parts.purged,
        "train_end": str(parts.train_end)[:10],
        "validation_end": str(parts.validation_end)[:10],
        "threads": torch.get_num_threads(),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that figures depend on."""
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in VERSIONS}}


def attainable(line: Line) -> dict[str, float]:
    """Of a planted weekly market: the R2 that its rule itself reaches on the test part, one step ahead."""
    source, built = line.config.source, line.panel
    if not isinstance(source, Planted) or source.market != "weekly" or "return" not in built.target_names:
        return {}
    c, test = built.target_names.index("return"), line.split.test
    actual = built.targets[test, 0, c]
    forecast = source.phi * built.past[test - (planted.WEEK - 1), c]
    errors = float(((actual - forecast) ** 2).sum())
    return {"attainable_r2": round(1.0 - errors / float(((actual - actual.mean()) ** 2).sum()), 4)}
