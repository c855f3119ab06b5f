"""Intraday bars through the line: windows, parts, training, baselines, masks."""

from pathlib import Path

import numpy as np
import pytest
import torch

from forecaster.forecasts import baselines, frame, network
from forecaster.forecasts.baselines import BASELINES
from forecaster.networks.encoder import Encoder
from forecaster.probes import masks, standard
from forecaster.training.fit import fit
from forecaster.training.task import Recipe, Task
from forecaster.windows import datamodule, panel, scaling, splits
from hourly import bars_at, stamps

LENGTH = 45
WEEKS = {"XNYS": 35, "forex": 120, "24/7": 42}


@pytest.mark.parametrize(
    ("code", "interval", "lacking"), [("XNYS", "1h", ""), ("forex", "1h", "volume"), ("24/7", "4h", "both")]
)
def test_when_bars_are_intraday_then_the_whole_line_runs(
    code: str, interval: str, lacking: str, tmp_path: Path
) -> None:
    times = stamps(code, "2024-02-01", "2024-05-31", interval)
    bars = bars_at({"A": times, "B": np.delete(times, [300, 301])}, code, interval, lacking=lacking)
    built = panel.build(bars, ("return", "volatility", "volume"), 2, max_gap=1)
    assert built.week_bars == WEEKS[code]
    parts = splits.split(built, LENGTH, "2024-04-12", "2024-05-03", embargo=1)
    assert sum(int(count.gapped.sum()) for count in parts.counts.values()) == LENGTH + 2 - 1
    torch.manual_seed(0)
    encoder = Encoder(
        features=len(built.feature_names),
        length=LENGTH,
        width=12,
        heads=3,
        layers=1,
        feedforward=20,
        dropout=0.0,
        attention_dropout=0.0,
        causal=False,
        positions="learned",
        skip=False,
        horizon=2,
        targets=len(built.target_names),
    )
    task = Task(encoder, scaling.fit(built, parts, LENGTH), Recipe(1e-3, 1e-2, 0.1, 1.0))
    loaders = datamodule.Bars(built, parts, LENGTH, 256, seed=0)
    options = {"max_epochs": 2, "patience": 2, "average": 0.0, "logger": False, "say": print, "progress": False}
    assert fit(task, loaders, tmp_path, {"heads": 3}, **options).epoch in (1, 2)

    forecasts = {"attention": network.forecast(task, built, parts.test, LENGTH)}
    for name in BASELINES:
        if name != "seasonal" or built.week_bars <= LENGTH:
            forecasts[name] = baselines.forecasts(name, built, parts.train, parts.test, LENGTH)
    for name, forecast in forecasts.items():
        table = frame.tidy(name, forecast, built, parts.test)
        assert np.isfinite(table[["mean", "q50", "actual"]]).all(axis=None)
        assert set(table["target"]) == ({"return"} if name == "zero" else set(built.target_names))

    full = np.full(len(parts.test), LENGTH)
    queries = masks.Queries(parts.test, full, full, LENGTH)
    probes = standard.standard(built, parts.test, LENGTH)
    measurable = {probe.name: probe.at(built, queries).measurable for probe in probes}
    assert measurable["recency"].all()
    assert measurable["large_move"].all()
    # A week of hours around the clock is longer than the window.
    assert measurable["weekly"].any() == measurable["weekly_target"].any() == (built.week_bars < LENGTH)
