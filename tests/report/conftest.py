"""Small tables with the run directory's columns, made up: no forecast and no attention stands behind them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pytest

BASELINES = ("persistence", "zero", "mean", "seasonal", "ewma", "har")
PROBES = ("recency", "weekly", "weekly_target", "monthly", "large_move", "volume_spike")
HEAD_COLUMNS = (
    *("layer", "head", "probe", "stratum", "direction", "weights", "kappa", "low", "high", "chance", "odds", "p", "q"),
    *("partial_mass", "label", "targets", "reason"),
)
QUANTILES = {"q05": -1.64, "q10": -1.28, "q25": -0.67, "q50": 0.0, "q75": 0.67, "q90": 1.28, "q95": 1.64}


@dataclass
class Fabricated:
    """A run's tables and summary; the sizes can be set, and every table be replaced afterwards."""

    symbols: Sequence[str] = ("SP500", "NASDAQ")
    targets: Sequence[str] = ("return", "volatility", "volume")
    horizon: int = 1
    dates: int = 30
    layers: int = 2
    heads: int = 8
    lags: int = 64
    week_bars: int = 5
    tables: dict[str, pd.DataFrame] = field(init=False)
    summary: dict[str, object] = field(init=False)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(11)
        self.tables = {
            "scores": self._scores(),
            "tests": self._tests(),
            "forecasts": self._forecasts(),
            "history": self._history(),
            "heads": self._heads(),
            "lag_profiles": self._lag_profiles(),
            "knockouts": self._knockouts(),
            "quality": pd.DataFrame(
                [("NASDAQ", pd.Timestamp("2001-09-11"), "zero_volume", "volume 0 on 2 bars", "kept")] * 2,
                columns=["symbol", "time", "kind", "detail", "action"],
            ),
        }
        self.summary = {
            "status": "running",
            "experiment": "sp500",
            "seed": 7,
            "symbols": list(self.symbols),
            "bars": 10_062,
            "first": "1999-01-04",
            "last": "2018-12-31",
            "calendar": "XNYS",
            "week_bars": self.week_bars,
            "basis": "as published, index levels",
            "targets": list(self.targets),
            "horizon": self.horizon,
            "window": self.lags,
            "parameters": 70_485,
            "windows": {"train": 6_342, "validation": 1_386, "test": 1_998},
            "best_epoch": 9,
            "timings": {"training": 41.23, "scores": 8.1},
            "versions": {"python": "3.11.7", "torch": "2.13.0"},
            "headline": [f"{target}: attention is no different from the best baseline" for target in self.targets],
            "gates": ["volatility: the gate is open (p < 0.001)", "return: the gate is closed (p = 0.412)"],
        }

    def _scores(self) -> pd.DataFrame:
        rows: list[tuple[object, ...]] = []
        skill = {"return": 0.0, "volatility": 0.5, "volume": 0.34}
        lag = {
            "attention": 0.0,
            "har": 0.02,
            "ewma": 0.12,
            "seasonal": 0.5,
            "mean": 0.53,
            "zero": 0.55,
            "persistence": 1.3,
        }
        for target in self.targets:
            for step in range(1, self.horizon + 1):
                for model in ("attention", *BASELINES):
                    r2 = skill.get(target, 0.1) - lag[model] - 0.01 * step
                    width = 0.05 if target != "return" else 0.012
                    metrics: dict[str, tuple[object, object, object]] = {
                        "r2": (r2, r2 - width, r2 + width),
                        "r2_historical": (r2 + 0.1, r2 + 0.1 - width, r2 + 0.1 + width),
                        "mse": (0.3 - 0.2 * r2, 0.25 - 0.2 * r2, 0.35 - 0.2 * r2),
                        "mae": (0.41, 0.40, 0.43),
                        "pinball": (0.11 - 0.03 * r2, 0.10 - 0.03 * r2, 0.12 - 0.03 * r2),
                        "crps": (0.21, 0.2, 0.22),
                        "coverage_50": (0.52, 0.49, 0.55),
                        "coverage_80": (0.78 + 0.02 * r2, 0.76, 0.82),
                        "coverage_90": (0.91, 0.89, 0.93),
                        "ic": (0.7 * r2, 0.65 * r2, 0.75 * r2),
                        "mz_slope": (0.97, 0.91, 1.03),
                        "mz_intercept": (-0.02, -0.06, 0.02),
                    }
                    if target == "return":
                        metrics["hit_rate"] = (0.52, 0.49, 0.55) if model != "zero" else ("undefined", "", "")
                    if target == "volatility":
                        metrics["qlike"] = (0.31 - 0.1 * r2, 0.29 - 0.1 * r2, 0.33 - 0.1 * r2)
                    if model in ("zero", "mean"):
                        metrics["ic"] = metrics["mz_slope"] = metrics["mz_intercept"] = ("undefined", "", "")
                    for symbol in ("all", *self.symbols):
                        rows += [(model, target, step, symbol, "0", m, *cells, 1998) for m, cells in metrics.items()]
        columns = ["model", "target", "step", "symbol", "fold", "metric", "value", "low", "high", "n"]
        return pd.DataFrame(rows, columns=columns).astype({"value": object, "low": object, "high": object})

    def _tests(self) -> pd.DataFrame:
        verdicts = {"har": (-1.21, 0.226, "no different"), "persistence": (-9.4, 1.2e-12, "better")}
        verdicts |= {"ewma": (-3.52, 0.00045, "better"), "zero": ("undefined", "undefined", "undefined")}
        verdicts |= {"mean": (2.51, 0.0123, "worse"), "seasonal": (-4.1, 0.00004, "better")}
        rows = [
            (target, step, "attention", baseline, loss, statistic, p, 0.71, verdict)
            for target in self.targets
            for step in range(1, self.horizon + 1)
            for loss in ("squared_error", "pinball", *(("qlike",) if target == "volatility" else ()))
            for baseline, (statistic, p, verdict) in sorted(verdicts.items())
        ]
        columns = ["target", "step", "model", "baseline", "loss", "statistic", "p", "mcs_p", "verdict"]
        return pd.DataFrame(rows, columns=columns)

    def _forecasts(self) -> pd.DataFrame:
        days = pd.bdate_range("2015-01-02", periods=self.dates + self.horizon).astype("datetime64[us]")
        frames: list[pd.DataFrame] = []
        for symbol in self.symbols:
            for target in self.targets:
                level, swing = {"return": (0.0, 0.0), "volatility": (-9.5, 0.6)}.get(target, (0.0, 0.25))
                for step in range(1, self.horizon + 1):
                    mean = level + swing * np.sin(np.arange(self.dates) / 25 + step)
                    scale = 0.009 if target == "return" else 0.45
                    actual = mean + scale * self.random.standard_normal(self.dates)
                    table = {"model": "attention", "fold": 0, "symbol": symbol, "origin": days[: self.dates]}
                    table |= {"target_time": days[step : step + self.dates], "target": target, "step": step}
                    table |= {name: mean + scale * z for name, z in QUANTILES.items()}
                    frames.append(pd.DataFrame({**table, "mean": mean, "actual": actual}))
        attention = pd.concat(frames, ignore_index=True)
        return pd.concat([attention, attention.assign(model="har")], ignore_index=True)

    def _history(self) -> pd.DataFrame:
        epoch = np.arange(12)
        validation = 0.9 + 0.3 * np.exp(-epoch / 2) + 0.002 * epoch
        table = {"epoch": epoch, "step": 50 * (epoch + 1), "train_loss": 0.8 + 0.5 * np.exp(-epoch / 3)}
        return pd.DataFrame({**table, "validation_loss": validation, "learning_rate": 1e-3, "seconds": 4.0 * epoch})

    def _heads(self) -> pd.DataFrame:
        rows: list[tuple[object, ...]] = []
        for layer in range(self.layers):
            for head in range(self.heads):
                for probe in PROBES:
                    kappa = float(self.random.normal(0.0, 0.03))
                    label, targets, reason = "none", "", f"raw: kappa {kappa:.3f} under 0.05"
                    if (layer, head, probe) == (1, 2 % self.heads, "recency"):
                        kappa, label, targets = 0.36, "functional", "volatility"
                        reason = "pattern (no noise null), functional: volatility: mean-ablation +0.02 [+0.01, +0.03]"
                    if (layer, head, probe) == (0, 0, "large_move"):
                        kappa, label, reason = 0.08, "pattern", "pattern (no noise null), not functional: gate closed"
                    for weights in ("raw", "norm"):
                        k, content = kappa * (1.0 if weights == "raw" else 0.9), probe in ("large_move", "volume_spike")
                        numbers = (
                            k,
                            k - 0.02,
                            k + 0.02,
                            0.05,
                            np.exp(8 * k),
                            *((0.01, 0.04) if content else (np.nan,) * 2),
                        )
                        if probe == "monthly":
                            numbers, reason = (np.nan,) * 7, "not measurable: no query has the bars it asks about"
                        place = (layer, head, probe, "last", "past", weights)
                        rows.append((*place, *numbers, np.nan, label, targets, reason))
        return pd.DataFrame(rows, columns=list(HEAD_COLUMNS))

    def _lag_profiles(self) -> pd.DataFrame:
        lag = np.arange(self.lags)
        frames: list[pd.DataFrame] = []
        for layer in range(self.layers):
            for head in range(self.heads):
                raw = np.exp(-lag / (2.0 + 6 * head)) + (0.4 if head % 3 == 1 else 0.0) * (lag == 4)
                for weights in ("raw", "norm"):
                    mean = raw / raw.sum() if weights == "raw" else np.sqrt(raw) / np.sqrt(raw).sum()
                    table = {"layer": layer, "head": head, "weights": weights, "lag": lag}
                    frames.append(pd.DataFrame({**table, "mean": mean, "low": 0.85 * mean, "high": 1.15 * mean}))
        return pd.concat(frames, ignore_index=True)

    def _knockouts(self) -> pd.DataFrame:
        rows: list[tuple[object, ...]] = []
        for target in self.targets:
            for layer in range(self.layers):
                for head in range(self.heads):
                    rise = 0.02 if (layer, head) == (1, 2) and target != "return" else 0.001 * ((head + layer) % 4)
                    for kind, factor in (("mean", 1.0), ("zero", 1.8)):
                        k = rise * factor
                        rows.append((layer, head, target, kind, k, k - 0.002, k + 0.002, np.nan, ""))
            rows.append((pd.NA, pd.NA, target, "group", 0.03, 0.01, 0.05, np.nan, "recency"))
        columns = ["layer", "head", "target", "kind", "rise", "low", "high", "skill_share", "probe"]
        return pd.DataFrame(rows, columns=columns).astype({"layer": "Int64", "head": "Int64"})


@pytest.fixture(scope="session")
def fabricate() -> Callable[..., Fabricated]:
    """Makes a run's tables and summary; see Fabricated for the sizes."""
    return Fabricated
