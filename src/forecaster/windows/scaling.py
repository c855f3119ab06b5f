"""The scaler: what makes the numbers of a window of the size that a network likes, from training rows alone."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Int

from forecaster.windows.panel import Panel
from forecaster.windows.splits import Split

SIGMA: Final = "log_sigma"
RELATIVE_FEATURES: Final = ("log_return", "abs_return")
RELATIVE_TARGETS: Final = ("return",)
CALENDAR_FEATURES: Final = "weekday_"  # indicators stay 0 and 1
CHUNK: Final = 1 << 14  # rows gathered at once: 2 MB of features, which stay in the processor's cache


def sigma(panel: Panel, rows: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """EWMA volatility of the return at each row, known there."""
    return np.exp(panel.features[rows, panel.feature_names.index(SIGMA)].astype(np.float64))


@dataclass(frozen=True)
class Scaler:
    """x' = (x - mean) / std for features [F] and targets [C]; a column without variance keeps std 1.

    Returns are read and forecast relative to the volatility of their time: with the unit u = sigma / sigma_reference,
    sigma the EWMA volatility at the window's last bar, relative features are divided by u and forecasts of relative
    targets multiplied by it. An outburst larger than any in training so stays in the range that the network knows. The
    loss stays in units of the target itself.
    Kim et al. (2022), Reversible Instance Normalization (whose scale is the window's own standard deviation).
    """

    feature_mean: Float[np.ndarray, " F"]
    feature_std: Float[np.ndarray, " F"]
    target_mean: Float[np.ndarray, " C"]
    target_std: Float[np.ndarray, " C"]
    feature_relative: Bool[np.ndarray, " F"]
    target_relative: Bool[np.ndarray, " C"]
    log_sigma_reference: float
    log_sigma_column: int
    constant: tuple[str, ...] = ()


def unfitted(panel: Panel) -> Scaler:
    """A scaler that leaves numbers as they are, for a task whose own comes with its weights."""
    features, targets = len(panel.feature_names), len(panel.target_names)
    return Scaler(
        feature_mean=np.zeros(features),
        feature_std=np.ones(features),
        target_mean=np.zeros(targets),
        target_std=np.ones(targets),
        feature_relative=np.isin(panel.feature_names, RELATIVE_FEATURES),
        target_relative=np.isin(panel.target_names, RELATIVE_TARGETS),
        log_sigma_reference=0.0,
        log_sigma_column=panel.feature_names.index(SIGMA),
    )


def fit(panel: Panel, split: Split, length: int) -> Scaler:
    """Scaler of the bars that training windows read and of the training targets, in float64; names what is constant."""
    rows = _read_rows(panel, split.train, length)
    mean, std = _moments(rows, lambda chunk: panel.features[chunk].astype(np.float64))
    indicator = np.array([name.startswith(CALENDAR_FEATURES) for name in panel.feature_names])
    # a sum of equal floats can leave a std of one rounding error: relative to the size of the values that is constant
    flat = std <= 1e-9 * np.maximum(1.0, np.abs(mean))
    target_mean, target_std = _moments(
        split.train, lambda chunk: panel.targets[chunk].reshape(-1, len(panel.target_names))
    )
    flat_target = target_std <= 1e-9 * np.maximum(1.0, np.abs(target_mean))
    constant = [name for name, is_flat in zip(panel.feature_names, flat & ~indicator, strict=True) if is_flat]
    constant += [f"target {name}" for name, is_flat in zip(panel.target_names, flat_target, strict=True) if is_flat]
    sigma = panel.feature_names.index(SIGMA)
    return Scaler(
        feature_mean=np.where(indicator, 0.0, mean),
        feature_std=np.where(indicator | flat, 1.0, std),
        target_mean=target_mean,
        target_std=np.where(flat_target, 1.0, target_std),
        feature_relative=np.isin(panel.feature_names, RELATIVE_FEATURES),
        target_relative=np.isin(panel.target_names, RELATIVE_TARGETS),
        log_sigma_reference=float(mean[sigma]),
        log_sigma_column=sigma,
        constant=tuple(constant),
    )


def _read_rows(panel: Panel, origins: Int[np.ndarray, " n"], length: int) -> Int[np.ndarray, " m"]:
    """Every row that a window of some origin reads, once and in order, symbol by symbol."""
    origins = np.sort(origins)
    found: list[np.ndarray] = []
    for symbol in range(len(panel.symbols)):
        first, end = panel.bounds(symbol)
        own = origins[slice(*np.searchsorted(origins, (first, end)))] - first
        windows = np.zeros(end - first + 1, dtype=np.int32)  # how many more windows begin than end at each bar
        windows[own - length + 1] += 1
        windows[own + 1] -= 1
        found.append(first + np.flatnonzero(np.cumsum(windows)))
    return np.concatenate(found)


def _moments(
    rows: Int[np.ndarray, " n"], numbers: Callable[[Int[np.ndarray, " m"]], Float[np.ndarray, "k K"]]
) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
    """Mean and standard deviation of each column of the numbers at the rows, piece by piece.

    Each piece is added to the sum so far as its first row: numpy adds rows in order, so that pieces change no bit.
    """
    chunks = [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]

    def total(of: Callable[[np.ndarray], np.ndarray]) -> tuple[Float[np.ndarray, " K"], int]:
        count, so_far = 0, None
        for chunk in chunks:
            values = of(numbers(chunk))
            count += len(values)
            values = values if so_far is None else np.vstack((so_far, values))
            # A single column numpy would add in pairs.
            so_far = values.sum(0) if values.shape[1] > 1 else values.cumsum(0)[-1]
        return (np.empty(0) if so_far is None else so_far), count

    summed, count = total(lambda values: values)
    mean = summed / count
    squares, _ = total(lambda values: (values - mean) ** 2)
    return mean, np.sqrt(squares / count)
