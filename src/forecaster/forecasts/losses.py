"""Losses of single forecasts: one number per row, which scores average and tests compare."""

from typing import Final

import numpy as np
import pandas as pd
from jaxtyping import Float

from forecaster.errors import DataError
from forecaster.forecasts.frame import QUANTILE_COLUMNS
from forecaster.networks.quantiles import QUANTILES

Factors = dict[tuple[int, str, int], float]  # smearing factors by fold, model and step

_LEVELS: Final = np.array(QUANTILES)
# Length of the stretch of levels for which each quantile stands: halfway to its neighbours, and to 0 and 1 at the ends.
_STRETCH: Final = np.diff(np.concatenate(([0.0], (_LEVELS[1:] + _LEVELS[:-1]) / 2, [1.0])))


def squared_error(rows: pd.DataFrame) -> Float[np.ndarray, " R"]:
    """(y - m)^2, m the mean forecast."""
    return (rows["actual"].to_numpy() - rows["mean"].to_numpy()) ** 2


def quantile_losses(rows: pd.DataFrame) -> Float[np.ndarray, "R Q"]:
    """rho_tau(y - q_tau) = max(tau (y - q_tau), (tau - 1) (y - q_tau)) at each level tau.

    Koenker and Bassett (1978), Regression Quantiles.
    """
    over_RQ = rows["actual"].to_numpy()[:, None] - rows[list(QUANTILE_COLUMNS)].to_numpy()
    return np.maximum(_LEVELS * over_RQ, (_LEVELS - 1.0) * over_RQ)


def pinball(rows: pd.DataFrame) -> Float[np.ndarray, " R"]:
    """Mean of rho_tau over the levels."""
    return quantile_losses(rows).mean(axis=1)


def crps(rows: pd.DataFrame) -> Float[np.ndarray, " R"]:
    """CRPS = 2 integral_0^1 rho_tau(y - q_tau) dtau, approximated by 2 sum_i w_i rho_tau_i(y - q_tau_i).

    w_i is the stretch of levels nearest to tau_i, (tau_{i+1} - tau_{i-1}) / 2, and up to 0 and 1 at the ends; they add
    up to 1. A weighted sum of pinball losses, so proper as they are.
    Gneiting and Ranjan (2011), Comparing Density Forecasts Using Threshold- and Quantile-Weighted Scoring Rules.
    """
    return 2.0 * (quantile_losses(rows) * _STRETCH).sum(axis=1)


def qlike(rows: pd.DataFrame, factors: Factors) -> Float[np.ndarray, " R"]:
    """v/f - ln(v/f) - 1 of variances v = exp(2y) and f = c exp(2m), c the model's smearing factor.

    y and m are log volatilities. exp of a mean of logs falls short of the mean; c corrects every model for it alike.
    Patton (2011), Volatility Forecast Comparison Using Imperfect Volatility Proxies. DataError where c is missing.
    """
    ratio = np.exp(2.0 * (rows["actual"].to_numpy() - rows["mean"].to_numpy())) / _factor_per_row(rows, factors)
    return ratio - np.log(ratio) - 1.0


def _factor_per_row(rows: pd.DataFrame, factors: Factors) -> Float[np.ndarray, " R"]:
    wanted = keys(rows)
    missing = next((key for key in wanted if key not in factors), None)
    if missing is not None:
        raise DataError(
            f"qlike of {missing[1]}, fold {missing[0]}, step {missing[2]}: no volatility forecasts of validation rows "
            "to correct it with: forecast the validation part too"
        )
    return np.array([factors[key] for key in wanted])


def keys(rows: pd.DataFrame) -> list[tuple[int, str, int]]:
    """Fold, model and step of each row, as they name its smearing factor."""
    return list(zip(rows["fold"].to_list(), rows["model"].to_list(), rows["step"].to_list(), strict=True))
