"""The log-HAR regression: yesterday, last week and last month of the target's own series, leverage and weekday."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from jaxtyping import Bool, Float

WEEK: Final = 5  # bars
MONTH: Final = 22  # bars
DEPENDENT: Final = 1e-8  # a column whose part outside the span of those before it is smaller than this share of it


def inputs(
    past_BL: Float[np.ndarray, "B L"], now_BF: Float[np.ndarray, "B F"], feature_names: Sequence[str], target: str
) -> Float[np.ndarray, "B K"]:
    """The regressors of one target, from its own series over the window and the features of the origin's bar.

    x = [1, y_t, mean(y_{t-4..t}), mean(y_{t-21..t}), min(r_t, 0), |r_t|, gap_days_t, weekday_t]; for returns without
    leverage, size and gap, which are about how much moves and not where to. A window under 22 bars gives the mean of
    what it holds. Weekdays, and of intraday bars the time of day as sine and cosine, are the origin's: the target
    bar's follow from them. float64.
    Corsi (2009), A Simple Approximate Long-Memory Model of Realized Volatility; leverage: Corsi and Reno (2012).
    """
    feature = {name: now_BF[:, column].astype(np.float64) for column, name in enumerate(feature_names)}
    columns = [np.ones(len(past_BL)), past_BL[:, -1], _last_mean(past_BL, WEEK), _last_mean(past_BL, MONTH)]
    if target != "return":
        columns += [np.minimum(feature["log_return"], 0.0), feature["abs_return"], feature["gap_days"]]
    columns += [values for name, values in feature.items() if name.startswith(("weekday_", "clock_"))]
    return np.column_stack(columns)


def fit(x_RK: Float[np.ndarray, "R K"], y_R: Float[np.ndarray, " R"]) -> Float[np.ndarray, " K"]:
    """Least-squares coefficients, exactly 0 for columns that say nothing new (`independent`)."""
    kept = independent(x_RK)
    beta_K = np.zeros(x_RK.shape[1])
    beta_K[kept] = np.linalg.lstsq(x_RK[:, kept], y_R, rcond=None)[0]
    return beta_K


def predict(x_BK: Float[np.ndarray, "B K"], beta_K: Float[np.ndarray, " K"]) -> Float[np.ndarray, " B"]:
    """Sum of x beta, row by row: a matrix product may round a row differently in batches of different size."""
    return (x_BK * beta_K).sum(axis=1)


def independent(x_RK: Float[np.ndarray, "R K"]) -> Bool[np.ndarray, " K"]:
    """Which columns are not linear combinations of those to their left (modified Gram-Schmidt, done twice).

    Drops weekdays that never occur, one weekday of those that do (they add up to the intercept), and a gap that is
    always the same or is told by the weekday.
    """
    basis: list[np.ndarray] = []
    kept = np.zeros(x_RK.shape[1], dtype=bool)
    for column, x_R in enumerate(x_RK.T):
        rest_R = x_R.copy()
        for unit_R in basis * 2:
            rest_R -= unit_R * (unit_R @ rest_R)
        size = float(np.linalg.norm(rest_R))
        if size > DEPENDENT * float(np.linalg.norm(x_R)):
            kept[column] = True
            basis.append(rest_R / size)
    return kept


def _last_mean(past_BL: Float[np.ndarray, "B L"], bars: int) -> Float[np.ndarray, " B"]:
    # Added up bar by bar: numpy's own sums may round a row differently in batches of different size.
    count = min(bars, past_BL.shape[1])
    return sum((past_BL[:, -lag] for lag in range(1, count + 1)), np.zeros(len(past_BL))) / count
