"""Features of a bar: numbers that use that bar and earlier ones only."""

from typing import Final

import numpy as np
import pandas as pd
from jaxtyping import Float

MEDIAN_BARS: Final = 20
WARMUP: Final = 20  # the first row at which every feature exists
EWMA_DECAY: Final = 0.94  # RiskMetrics Technical Document (J.P. Morgan, 1996), daily data
VARIANCE_FLOOR: Final = 1e-12  # a bar without any range has variance 0; 1e-12 is a daily volatility of 0.0001 %

WEEKDAYS: Final = tuple(f"weekday_{day}" for day in range(7))
FEATURES: Final = (
    *("log_return", "abs_return", "log_volatility", "log_volume", "shock", "log_sigma", "gap_days"),
    *WEEKDAYS,
)


def log_return(close: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Log return r[t] = ln(C[t] / C[t-1]); the first is NaN."""
    return np.diff(np.log(close), prepend=np.nan)


def garman_klass(bars: pd.DataFrame) -> Float[np.ndarray, " n"]:
    """Log of the Garman-Klass volatility of each bar.

    s2 = ln(H/L)^2 / 2 - (2 ln 2 - 1) ln(C/O)^2, returned as ln(s2) / 2 in log units per bar. s2 >= 0 for every
    possible bar and 0 only for one without range, which is held at VARIANCE_FLOOR.
    Garman and Klass (1980), On the Estimation of Security Price Volatilities from Historical Data, eq. 20.
    """
    high, low = bars["high"].to_numpy(), bars["low"].to_numpy()
    body = np.log(bars["close"].to_numpy() / bars["open"].to_numpy())
    variance = 0.5 * np.log(high / low) ** 2 - (2.0 * np.log(2.0) - 1.0) * body**2
    return 0.5 * np.log(np.maximum(variance, VARIANCE_FLOOR))


def volume_median(volume: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Median of the positive volumes among the last MEDIAN_BARS bars; NaN before so many bars or where none traded."""
    traded = pd.Series(np.where(volume > 0, volume, np.nan))
    median = traded.rolling(MEDIAN_BARS, min_periods=1).median().to_numpy(copy=True)
    median[: MEDIAN_BARS - 1] = np.nan
    return median


def log_volume(volume: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Log volume against its trailing median, ln(V[t] / median(V[t-19..t])).

    A bar without volume says nothing about it and gets 0, "as usual"; the quality report names every such bar.
    """
    median = volume_median(volume)
    with np.errstate(divide="ignore"):
        ratio = np.log(volume) - np.log(median)
    missing = ~(volume > 0) | np.isnan(median)
    ratio[missing] = 0.0
    ratio[: MEDIAN_BARS - 1] = np.nan
    return ratio


def ewma_volatility(returns: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Exponentially weighted volatility, s2[t] = .94 s2[t-1] + .06 r[t]^2, started at the mean square of the first
    WARMUP - 1 returns and therefore NaN before row WARMUP - 1.

    J.P. Morgan (1996), RiskMetrics Technical Document.
    """
    variance = np.full(len(returns), np.nan)
    if len(returns) < WARMUP:
        return variance
    start = float(np.mean(returns[1:WARMUP] ** 2))
    squares = np.concatenate(([start], returns[WARMUP:] ** 2))
    variance[WARMUP - 1 :] = pd.Series(squares).ewm(alpha=1.0 - EWMA_DECAY, adjust=False).mean().to_numpy()
    return np.sqrt(variance)


def shock(returns: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Size of a move in units of what was to be expected, |r[t]| / s_EWMA[t-1]; 0 where nothing has moved yet."""
    expected = np.concatenate(([np.nan], ewma_volatility(returns)[:-1])) if len(returns) else returns
    size = np.abs(returns)
    return np.where(
        expected > 0, size / np.where(expected > 0, expected, 1.0), np.where(np.isnan(expected), np.nan, 0.0)
    )


def features(bars: pd.DataFrame) -> Float[np.ndarray, "n F"]:
    """All FEATURES of one symbol's bars, in that order; NaN in rows before WARMUP where one does not exist yet."""
    times = pd.DatetimeIndex(bars["time"])
    returns = log_return(bars["close"].to_numpy())
    gaps = (times[1:] - times[:-1]) / pd.Timedelta(days=1)
    with np.errstate(invalid="ignore"):
        sigma = np.maximum(ewma_volatility(returns), np.sqrt(VARIANCE_FLOOR))
    columns = [
        returns,
        np.abs(returns),
        garman_klass(bars),
        log_volume(bars["volume"].to_numpy()),
        shock(returns),
        np.log(sigma),
        np.concatenate(([np.nan], np.asarray(gaps, dtype=np.float64))),
        *(np.asarray(times.day_of_week == day, dtype=np.float64) for day in range(7)),
    ]
    return np.column_stack(columns)
