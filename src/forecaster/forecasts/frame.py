"""The forecast frame: what every model forecast for every origin, in one tidy table beside what happened."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from forecaster.bars.atomic import whole
from forecaster.errors import DataError
from forecaster.networks.quantiles import QUANTILES
from forecaster.windows.panel import Panel

QUANTILE_COLUMNS: Final = tuple(f"q{round(100 * level):02d}" for level in QUANTILES)
FRAME_COLUMNS: Final = (
    *("model", "fold", "symbol", "origin", "target_time", "target", "step"),
    *QUANTILE_COLUMNS,
    *("mean", "actual"),
)
ROW: Final = ["fold", "target", "step", "symbol", "origin"]  # names one row of one model


@dataclass(frozen=True)
class Forecast:
    """What one model forecasts for R origins, in raw target units; NaN where it has nothing to say about a target.

    quantiles float64 [R, H, C, Q] at the levels QUANTILES; mean float64 [R, H, C].
    """

    quantiles: Float[np.ndarray, "R H C Q"]
    mean: Float[np.ndarray, "R H C"]


def tidy(model: str, forecast: Forecast, panel: Panel, origins: Int[np.ndarray, " R"], fold: int = 0) -> pd.DataFrame:
    """One row per target, step, symbol and origin, sorted in that order, with FRAME_COLUMNS.

    `actual` is NaN and `target_time` NaT where the future is not known yet. A target of which the forecast holds only
    NaN is left out: the model does not forecast it. DataError where it holds some.
    """
    symbols = np.array(panel.symbols, dtype=object)[panel.symbol_ids[origins]]
    parts = [
        pd.DataFrame(
            {
                "model": model,
                "fold": fold,
                "symbol": symbols,
                "origin": panel.times[origins],
                "target_time": panel.target_times[origins, step],
                "target": target,
                "step": step + 1,
                **dict(zip(QUANTILE_COLUMNS, forecast.quantiles[:, step, c].T, strict=True)),
                "mean": forecast.mean[:, step, c],
                "actual": panel.targets[origins, step, c],
            }
        )
        for c, target in enumerate(panel.target_names)
        if _says_something(model, target, forecast.mean[:, :, c], forecast.quantiles[:, :, c])
        for step in range(panel.horizon)
    ]
    if not parts:
        raise DataError(f"model {model}: it forecasts none of {', '.join(panel.target_names)}: choose another one")
    frame = pd.concat(parts, ignore_index=True).astype(dict.fromkeys(("model", "symbol", "target"), "str"))
    return frame.sort_values(ROW, ignore_index=True, kind="stable")


def _says_something(model: str, target: str, mean: np.ndarray, quantiles: np.ndarray) -> bool:
    numbers = np.concatenate((mean[..., None], quantiles), axis=-1)
    if np.isfinite(numbers).all():
        return True
    if np.isnan(numbers).all():
        return False
    raise DataError(f"model {model}: its {target} forecasts hold numbers that are not finite: look into its training")


def same_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame sorted by model and row; DataError unless all models of a target forecast the same rows, each once.

    Folds are joined later on, so that no origin may occur in two of them.
    """
    ordered = frame.sort_values(["model", *ROW], ignore_index=True, kind="stable")
    for target, rows in ordered.groupby("target"):
        first: tuple[str, pd.DataFrame] | None = None
        for model, one in rows.groupby("model"):
            keys = one[[*ROW, "actual"]].reset_index(drop=True)
            if keys.duplicated(ROW[1:]).any():
                raise DataError(
                    f"forecasts of {target} by {model}: an origin occurs twice: give each run once, folds apart"
                )
            if first is None:
                first = (str(model), keys)
            elif not keys.equals(first[1]):
                raise DataError(
                    f"forecasts of {target} by {first[0]} and {model}: not on the same rows ({len(first[1])} and "
                    f"{len(keys)}): forecast both from the same origins"
                )
    return ordered


def average(frames: Sequence[pd.DataFrame], name: str) -> pd.DataFrame:
    """The ensemble of several runs of one model each: means of their quantiles and of their means, row by row.

    Averaging quantiles (Vincent) keeps them in order. DataError where the runs are not on identical rows.
    Lichtendahl, Grushka-Cockayne and Winkler (2013), Is It Better to Average Probabilities or Quantiles?
    """
    if not frames:
        raise DataError(f"model {name}: no forecasts to average: name at least one run")
    numbered = [frame.assign(model=f"run {number:04d}") for number, frame in enumerate(frames, start=1)]
    ordered = same_rows(pd.concat(numbered, ignore_index=True))
    runs = [run.reset_index(drop=True) for _, run in ordered.groupby("model")]
    if len(runs) != len(frames) or any(not run[ROW].equals(runs[0][ROW]) for run in runs):
        raise DataError(f"model {name}: the runs to average forecast different targets: average like with like")
    columns = [*QUANTILE_COLUMNS, "mean"]
    mean = np.mean([run[columns].to_numpy() for run in runs], axis=0)
    averaged = runs[0].assign(**dict(zip(columns, mean.T, strict=True)), model=name)
    return averaged.astype({"model": "str"})


def write(frame: pd.DataFrame, path: Path) -> None:
    """The frame as Parquet, complete or not at all."""
    with whole(path) as file:
        frame.loc[:, list(FRAME_COLUMNS)].to_parquet(file, index=False)


def read(path: Path) -> pd.DataFrame:
    """A frame that `write` left, with the same types; DataError where the file is missing or is something else."""
    try:
        frame = pd.read_parquet(path)
    except (OSError, ValueError) as reason:
        raise DataError(
            f"{path}: no forecasts to read ({str(reason).splitlines()[0]}): evaluate the run first"
        ) from reason
    missing = [column for column in FRAME_COLUMNS if column not in frame.columns]
    if missing:
        raise DataError(f"{path}: no column {', '.join(missing)}: give the forecasts.parquet of a run")
    return frame.loc[:, list(FRAME_COLUMNS)]
