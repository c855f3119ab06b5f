"""All probes at once: what of a head's mass on one probe's bars is left when the others' bars are allowed for.

Large moves, volume spikes and pivots fall on the same bars: a head that finds one of them scores on all three.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from jaxtyping import Float, Int

from forecaster.probes.intervals import Interval, jackknife
from forecaster.probes.masks import Mask
from forecaster.probes.statistics import ProfileSums, by_block

CONSTANT: Final = 1e-6  # variance of a mask, by query and lag: below, its bars are always the same lags


class JointSums:
    """Sums by block, from which the least-squares fit over queries n and lags j follows:

        A[n, j] - mean A(j) = sum_p b_p (T_p[n, j] - mean T_p(j)) + rest.

    A query at which a probe can't be asked has none of its bars. Partial mass of p = b_p x its flagged bars in a query
    that it can be asked at: comparable with its kappa, a share s planted on its bars gives s. NaN for a probe whose
    bars are always the same lags: nothing tells them from what the head does there anyway.
    """

    def __init__(self, names: Sequence[str], block_count: int, heads: int, span: int) -> None:
        count = len(names)
        self.names = tuple(names)
        self.mass_bPN = np.zeros((block_count, count, heads))
        self.cross_bPP = np.zeros((block_count, count, count))
        self.flags_bPL = np.zeros((block_count, count, span))
        self.asked_bP = np.zeros((block_count, count))

    def update(
        self, attention_nNL: Float[np.ndarray, "n N L"], masks: Mapping[str, Mask], block_n: Int[np.ndarray, " n"]
    ) -> None:
        """Adds queries."""
        count, span = len(self.asked_bP), self.flags_bPL.shape[2]
        flags_PnL = [masks[name].flags for name in self.names]
        for place, flags_nL in enumerate(flags_PnL):
            row_m, lag_m = np.nonzero(flags_nL)
            self.mass_bPN[:, place] += by_block(attention_nNL[row_m, :, lag_m], block_n[row_m], count)
            place_m = block_n[row_m] * span + lag_m
            self.flags_bPL[:, place] += np.bincount(place_m, minlength=count * span).reshape(count, span)
            self.asked_bP[:, place] += np.bincount(block_n[masks[self.names[place]].measurable], minlength=count)
            for other in range(place + 1):
                both = np.bincount(block_n, (flags_nL & flags_PnL[other]).sum(1), count)
                self.cross_bPP[:, place, other] += both
                if other < place:
                    self.cross_bPP[:, other, place] += both

    def partial(self, profile: ProfileSums) -> dict[str, Interval]:
        """Partial mass of each probe, one by head; the profile is that of the same queries."""
        sums = (self.mass_bPN, self.cross_bPP, self.flags_bPL, self.asked_bP, profile.attention_bNL)
        fitted = jackknife(_partial, *sums, counts_b=profile.counts_b)
        return {
            name: Interval(fitted.value[place], fitted.low[place], fitted.high[place])
            for place, name in enumerate(self.names)
        }


def _partial(
    n_R: Float[np.ndarray, " R"],
    mass_RPN: Float[np.ndarray, "R P N"],
    cross_RPP: Float[np.ndarray, "R P P"],
    flags_RPL: Float[np.ndarray, "R P L"],
    asked_RP: Float[np.ndarray, "R P"],
    attention_RNL: Float[np.ndarray, "R N L"],
) -> Float[np.ndarray, "R P N"]:
    n_R11 = n_R[:, None, None]
    covariance_RPN = mass_RPN - flags_RPL @ attention_RNL.mT / n_R11
    own_RPP = cross_RPP - flags_RPL @ flags_RPL.mT / n_R11
    scale_RP = np.sqrt(np.diagonal(own_RPP, axis1=1, axis2=2))
    varies_RP = scale_RP**2 > CONSTANT * n_R[:, None]
    scale_RP = np.where(varies_RP, scale_RP, np.inf)
    correlation_RPP = own_RPP / (scale_RP[:, :, None] * scale_RP[:, None, :])
    # Masks that always flag the same bars share the mass evenly.
    fit_RPN = np.linalg.pinv(correlation_RPP, rcond=1e-6, hermitian=True) @ (covariance_RPN / scale_RP[..., None])
    bars_RP = flags_RPL.sum(-1) / np.maximum(asked_RP, 1.0)
    return np.where(varies_RP[..., None], fit_RPN / scale_RP[..., None] * bars_RP[..., None], np.nan)
