"""The scaler: means and standard deviations of training rows."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from forecaster.windows.panel import Panel
from forecaster.windows.splits import Split

CALENDAR_FEATURES = "weekday_"  # indicators stay 0 and 1


@dataclass(frozen=True)
class Scaler:
    """x' = (x - mean) / std for features [F] and targets [C]; a column without variance keeps std 1."""

    feature_mean: Float[np.ndarray, " F"]
    feature_std: Float[np.ndarray, " F"]
    target_mean: Float[np.ndarray, " C"]
    target_std: Float[np.ndarray, " C"]
    constant: tuple[str, ...]


def fit(panel: Panel, split: Split, length: int) -> Scaler:
    """Scaler of the bars that training windows read and of the training targets, in float64; names what is constant."""
    rows = np.unique(panel.rows(split.train, length))
    features = panel.features[rows].astype(np.float64)
    targets = panel.targets[split.train].reshape(-1, len(panel.target_names))
    mean, std = features.mean(0), features.std(0)
    indicator = np.array([name.startswith(CALENDAR_FEATURES) for name in panel.feature_names])
    # a sum of equal floats can leave a std of one rounding error: relative to the size of the values that is constant
    flat = std <= 1e-9 * np.maximum(1.0, np.abs(mean))
    target_mean, target_std = targets.mean(0), targets.std(0)
    flat_target = target_std <= 1e-9 * np.maximum(1.0, np.abs(target_mean))
    constant = [name for name, is_flat in zip(panel.feature_names, flat & ~indicator, strict=True) if is_flat]
    constant += [f"target {name}" for name, is_flat in zip(panel.target_names, flat_target, strict=True) if is_flat]
    return Scaler(
        feature_mean=np.where(indicator, 0.0, mean),
        feature_std=np.where(indicator | flat, 1.0, std),
        target_mean=target_mean,
        target_std=np.where(flat_target, 1.0, target_std),
        constant=tuple(constant),
    )
