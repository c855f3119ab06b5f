"""Resampling of dates in blocks, so that intervals survive dependence in time and between symbols."""

from typing import Final

import numpy as np
from arch.bootstrap import StationaryBootstrap, optimal_block_length
from jaxtyping import Float

SEED: Final = 0
REPLICATIONS: Final = 499
MIN_BLOCKS: Final = 10
_MIN_DATES: Final = 20  # optimal_block_length looks at sqrt(n) + 5 autocorrelations


def block_length(series_D: Float[np.ndarray, " D"]) -> int:
    """Mean block length that suits a series, rounded up; 1 for a constant one, all of it where it is too short to tell.

    Politis and White (2004), Automatic Block-Length Selection for the Dependent Bootstrap, corrected by Patton,
    Politis and White (2009); arch's implementation.
    """
    dates = len(series_D)
    if dates < _MIN_DATES:
        return max(1, dates)
    if np.ptp(series_D) == 0:
        return 1
    with np.errstate(divide="ignore", invalid="ignore"):  # a series that stands still at one end has no autocorrelation
        length = float(optimal_block_length(series_D)["stationary"].iloc[0])
    return max(1, int(np.ceil(length))) if np.isfinite(length) else dates


def enough(dates: int, length: int) -> bool:
    """Whether there are blocks enough for an interval to mean something."""
    return dates >= MIN_BLOCKS * length


def multiplicities(dates: int, length: int) -> Float[np.ndarray, "B D"]:
    """How often each date occurs in each of REPLICATIONS samples of the stationary bootstrap.

    Equal arguments give equal samples. Any metric of sums over dates is thus `metric(W @ sums)`.
    Politis and Romano (1994), The Stationary Bootstrap.
    """
    bootstrap = StationaryBootstrap(length, np.arange(dates), seed=SEED)
    counts_BD = np.empty((REPLICATIONS, dates))
    for sample, (positional, _) in enumerate(bootstrap.bootstrap(REPLICATIONS)):
        counts_BD[sample] = np.bincount(positional[0], minlength=dates)
    return counts_BD
