"""Simple forecasters that a trained one has to beat, fitted on its training rows and run on its test rows."""

import itertools
from collections.abc import Iterator
from typing import Final

import numpy as np
from jaxtyping import Float, Int

from forecaster.errors import ConfigError, DataError
from forecaster.forecasts import har
from forecaster.forecasts.frame import Forecast
from forecaster.networks.quantiles import QUANTILES
from forecaster.windows.panel import Panel
from forecaster.windows.scaling import RELATIVE_TARGETS, sigma

BASELINES: Final = ("persistence", "zero", "mean", "seasonal", "ewma", "har")
EWMA_DECAY: Final = 0.94  # J.P. Morgan (1996), RiskMetrics Technical Document, daily data
Coefficients = list[list[np.ndarray]]  # by target and step, [K] each, K depending on the target
TrainingMeans = dict[tuple[int, str, str, int], float]  # by fold, symbol, target and step

CHUNK: Final = 4096  # origins gathered at once: 6 MB of windows at L = 64, C = 3


def applicable(name: str, target: str) -> bool:
    """Whether a baseline forecasts a target: `zero` says that prices stay and means nothing for other targets."""
    return name != "zero" or target == "return"


def check_window(name: str, length: int, week_bars: int) -> None:
    """Raises ConfigError where the windows are too short for a baseline; to be asked before anything is trained."""
    if name == "seasonal" and length < week_bars:
        raise ConfigError(
            f"baselines: seasonal repeats the last {week_bars} bars, a window of {length} is shorter: set "
            f"model.window={week_bars} or more, or leave seasonal out"
        )


def forecasts(
    name: str, panel: Panel, train_origins: Int[np.ndarray, " N"], origins: Int[np.ndarray, " R"], length: int
) -> Forecast:
    """A baseline's forecasts: its mean, and around it the quantiles of its errors on the training rows.

    persistence: y[t]. zero: 0 (return only). mean: the symbol's training mean, the pooled one for a symbol without
    training rows. seasonal: y of one week before the target bar. ewma: sum of .94^k y[t-k], normalised over the window.
    har: a regression per step (har.py). With y the target's own series; for H > 1 the seasonal week repeats, and
    persistence, mean and ewma are the same at every step.
    quantile[q] = mean + u quantile_q((actual - mean) / u over training rows of all symbols), per target and step, where
    u is the EWMA volatility at the origin for returns, whose spread moves with it, and 1 for other targets.
    NaN for targets to which the baseline does not apply. ConfigError for an unknown name and for `seasonal` on windows
    under a week; DataError where training rows are missing or not finite.
    """
    if name not in BASELINES:
        raise ConfigError(f"baselines: {name!r} is unknown: choose from {', '.join(BASELINES)}")
    check_window(name, length, panel.week_bars)
    actual_NHC = panel.targets[train_origins]
    if len(train_origins) == 0 or not np.isfinite(actual_NHC).all():
        raise DataError(f"baseline {name}: {len(train_origins)} training rows, all of which need known targets")
    fitted_NHC, mean_RHC = _means(name, panel, train_origins, origins, length)
    unit_N1C, unit_R1C = (_units(panel, rows) for rows in (train_origins, origins))
    errors_HCQ = np.moveaxis(np.quantile((actual_NHC - fitted_NHC) / unit_N1C, QUANTILES, axis=0), 0, -1)
    applies_C = np.array([applicable(name, target) for target in panel.target_names])
    mean_RHC = np.where(applies_C, mean_RHC, np.nan)
    return Forecast(quantiles=mean_RHC[..., None] + errors_HCQ * unit_R1C[..., None], mean=mean_RHC)


def coefficients(panel: Panel, train_origins: Int[np.ndarray, " N"], length: int) -> Coefficients:
    """The log-HAR's coefficients by target and step, fitted on the training rows of all symbols together."""
    fitted: Coefficients = []
    for target in range(len(panel.target_names)):
        x_NK = _har_inputs(panel, train_origins, length, target)
        fitted.append([har.fit(x_NK, panel.targets[train_origins, step, target]) for step in range(panel.horizon)])
    return fitted


def _units(panel: Panel, rows: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n 1 C"]:
    relative_C = np.isin(panel.target_names, RELATIVE_TARGETS)
    return np.where(relative_C, sigma(panel, rows)[:, None], 1.0)[:, None]


def _means(
    name: str, panel: Panel, train_origins: np.ndarray, origins: np.ndarray, length: int
) -> tuple[Float[np.ndarray, "N H C"], Float[np.ndarray, "R H C"]]:
    """Mean forecasts for the training rows and for the rows asked for."""
    match name:
        case "har":
            beta = coefficients(panel, train_origins, length)
            return _har(panel, train_origins, length, beta), _har(panel, origins, length, beta)
        case "mean":
            mean_SHC = training_mean(panel, train_origins)
            return mean_SHC[panel.symbol_ids[train_origins]], mean_SHC[panel.symbol_ids[origins]]
        case _:
            return _from_window(name, panel, train_origins, length), _from_window(name, panel, origins, length)


def training_mean(panel: Panel, train_origins: Int[np.ndarray, " N"]) -> Float[np.ndarray, "S H C"]:
    """Mean of each target over the training rows of each symbol; of all rows for a symbol that has none."""
    targets_NHC, ids_N = panel.targets[train_origins], panel.symbol_ids[train_origins]
    pooled_HC = targets_NHC.mean(axis=0)
    order_N = np.argsort(ids_N, kind="stable")
    edges = np.searchsorted(ids_N[order_N], np.arange(len(panel.symbols) + 1))
    by_symbol = [targets_NHC[order_N[first:end]] for first, end in itertools.pairwise(edges)]
    return np.stack([rows.mean(axis=0) if len(rows) else pooled_HC for rows in by_symbol])


def training_means(panel: Panel, train_origins: Int[np.ndarray, " N"], fold: int = 0) -> TrainingMeans:
    """`training_mean` by name, steps from 1; what r2_historical compares with."""
    mean_SHC = training_mean(panel, train_origins)
    return {
        (fold, symbol, target, step + 1): float(mean_SHC[s, step, c])
        for s, symbol in enumerate(panel.symbols)
        for c, target in enumerate(panel.target_names)
        for step in range(panel.horizon)
    }


def _from_window(name: str, panel: Panel, origins: np.ndarray, length: int) -> Float[np.ndarray, "R H C"]:
    """Forecasts that are read off the target's own past alone."""
    mean_RHC = np.zeros((len(origins), panel.horizon, len(panel.target_names)))
    for rows in _chunks(len(origins)):
        past_BLC = panel.past_window(origins[rows], length)
        match name:
            case "persistence":
                mean_RHC[rows] = past_BLC[:, -1:]
            case "seasonal":
                week = panel.week_bars
                mean_RHC[rows] = past_BLC[:, [step % week - week for step in range(panel.horizon)]]
            case "ewma":
                mean_RHC[rows] = _ewma(past_BLC)[:, None]
            case _:
                pass  # zero
    return mean_RHC


def _ewma(past_BLC: Float[np.ndarray, "B L C"]) -> Float[np.ndarray, "B C"]:
    weighted_BC, weight = np.zeros_like(past_BLC[:, 0]), 0.0
    for bar in range(past_BLC.shape[1]):
        weighted_BC = EWMA_DECAY * weighted_BC + past_BLC[:, bar]
        weight = EWMA_DECAY * weight + 1.0
    return weighted_BC / weight


def _har(panel: Panel, origins: np.ndarray, length: int, beta: Coefficients) -> Float[np.ndarray, "R H C"]:
    mean_RHC = np.empty((len(origins), panel.horizon, len(panel.target_names)))
    for target, by_step in enumerate(beta):
        x_RK = _har_inputs(panel, origins, length, target)
        for step, beta_K in enumerate(by_step):
            mean_RHC[:, step, target] = har.predict(x_RK, beta_K)
    return mean_RHC


def _har_inputs(panel: Panel, origins: np.ndarray, length: int, target: int) -> Float[np.ndarray, "R K"]:
    chunks = [
        har.inputs(
            panel.past_window(origins[rows], min(length, har.MONTH))[:, :, target],
            panel.features[origins[rows]],
            panel.feature_names,
            panel.target_names[target],
        )
        for rows in _chunks(len(origins))
    ]
    x_RK = np.concatenate(chunks)
    if not np.isfinite(x_RK).all():
        raise DataError(
            f"baseline har: the {panel.target_names[target]} series holds numbers that are not finite: check the bars"
        )
    return x_RK


def _chunks(count: int) -> Iterator[slice]:
    # An empty count gives one empty slice, so that no origins make an empty forecast.
    return (slice(start, start + CHUNK) for start in range(0, max(count, 1), CHUNK))
