"""Streaming sums over captured attention, and what they say: mass, chance, kappa, odds, intervals.

    O = mean attention mass on the flagged bars          E = the mass expected there by chance
    kappa = (O - E) / (1 - E)                            odds = O (1 - E) / (E (1 - O))

Sums are kept by block of dates, in float64; nothing grows with the number of windows.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Int

from forecaster.probes.intervals import Interval, jackknife, mean, ratio
from forecaster.probes.masks import NEIGHBOURS, Mask, Probe, Queries

SIDES: Final = (-1, 1)


def kappa(observed: Float[np.ndarray, "*s"], expected: Float[np.ndarray, "*s"]) -> Float[np.ndarray, "*s"]:
    """(O - E) / (1 - E): 0 is chance, 1 all the mass; NaN where chance already is everything (E = 1)."""
    room = 1.0 - expected
    return np.where(room > 0, (observed - expected) / np.where(room > 0, room, 1.0), np.nan)


def odds(observed: Float[np.ndarray, "*s"], expected: Float[np.ndarray, "*s"]) -> Float[np.ndarray, "*s"]:
    """O (1 - E) / (E (1 - O)): infinite where the divisor alone is 0, NaN where both are."""
    above, below = observed * (1.0 - expected), expected * (1.0 - observed)
    ratio = np.where(below > 0, above / np.where(below > 0, below, 1.0), np.where(above > 0, np.inf, np.nan))
    return np.where(np.isnan(above + below), np.nan, ratio)


class ProfileSums:
    """Attention by block and offset: where a head looks, whatever is there."""

    def __init__(self, block_count: int, heads: int, span: int) -> None:
        self.heads, self.span = heads, span
        self.counts_b = np.zeros(block_count)
        self.attention_bNL = np.zeros((block_count, heads, span))

    def update(
        self, attention_nNL: Float[np.ndarray, "n N L"], block_n: Int[np.ndarray, " n"]
    ) -> Float[np.ndarray, "b N L"]:
        """Adds queries; returns what it added to the sums."""
        count = len(self.counts_b)
        added_bNL = by_block(attention_nNL, block_n, count)
        self.counts_b += np.bincount(block_n, minlength=count)
        self.attention_bNL += added_bNL
        return added_bNL

    def mean(self) -> Float[np.ndarray, "N L"]:
        """Mean attention by offset."""
        return self.attention_bNL.sum(0) / self.counts_b.sum()

    def profile(self) -> Interval:
        """Mean attention by offset with its interval, [N, L]."""
        return mean(self.counts_b, self.attention_bNL)

    def weighted(self, weights_L: Float[np.ndarray, " L"]) -> Interval:
        """Mean of sum_j weights[j] A[j]: with weights j the mean age in bars."""
        return mean(self.counts_b, self.attention_bNL @ weights_L)


@dataclass(frozen=True)
class Score:
    """A probe's figures for each head: kappa with its interval, mass by chance, odds.

    beside, of a weekly probe: low end of the interval of O - A(bar on one side), the smaller of the two sides.
    """

    kappa: Interval
    chance: Float[np.ndarray, " N"]
    odds: Float[np.ndarray, " N"]
    beside: Float[np.ndarray, " N"]
    queries: int
    dropped: int
    blocks: int


class ProbeSums:
    """One probe's sums by block: the mass on the flagged bars and what chance gives it."""

    def __init__(self, probe: Probe, block_count: int, heads: int, span: int) -> None:
        self.probe = probe
        self.dropped = 0
        self.counts_b = np.zeros(block_count)
        self.observed_bN = np.zeros((block_count, heads))
        self.chance_bN = np.zeros((block_count, heads))
        self.sides_bNk = np.zeros((block_count, heads, len(SIDES)))
        self.flags_bL = np.zeros((block_count, span))
        if probe.content:
            self.attention_bNL = np.zeros((block_count, heads, span))
            self.flagged_bNL = np.zeros((block_count, heads, span))

    def update(
        self,
        attention_nNL: Float[np.ndarray, "n N L"],
        mask: Mask,
        queries: Queries,
        block_n: Int[np.ndarray, " n"],
        whole_bNL: Float[np.ndarray, "b N L"] | None = None,
    ) -> None:
        """Adds the measurable ones of n queries; the others, at which nothing is flagged, are counted as dropped.

        whole: the sums by block of the attention of all n, where they are at hand.
        """
        count, span, asked = len(self.counts_b), self.flags_bL.shape[1], mask.measurable
        row_m, lag_m = np.nonzero(mask.flags)  # a few bars of a query
        block_m, mass_mN = block_n[row_m], attention_nNL[row_m, :, lag_m]
        self.dropped += int((~asked).sum())
        self.counts_b += np.bincount(block_n[asked], minlength=count)
        self.observed_bN += by_block(mass_mN, block_m, count)
        self.flags_bL += np.bincount(block_m * span + lag_m, minlength=count * span).reshape(count, span)
        match self.probe.chance:
            case "visible":
                share_n = mask.flags.sum(1) / queries.visible
                self.chance_bN += by_block(share_n, block_n, count)[:, None]
            case "neighbours":
                chance_mN, sides_mNk = beside(attention_nNL, row_m, lag_m, queries.reach)
                self.chance_bN += by_block(chance_mN, block_m, count)
                self.sides_bNk += by_block(sides_mNk, block_m, count)
            case "profile":
                self.attention_bNL += _over(asked, attention_nNL, block_n, count, whole_bNL)
                for head, mass_m in enumerate(mass_mN.T):
                    sums = np.bincount(block_m * span + lag_m, mass_m, count * span)
                    self.flagged_bNL[:, head] += sums.reshape(count, span)

    def score(self) -> Score:
        """Figures of all queries so far."""
        if self.probe.content:
            chances = (self.attention_bNL, self.flags_bL)
        else:
            chances = (self.chance_bN,)

        def statistic(
            n_R: Float[np.ndarray, " R"], observed_RN: Float[np.ndarray, "R N"], *chances_R: Float[np.ndarray, "R ..."]
        ) -> Float[np.ndarray, "R N"]:
            return kappa(ratio(n_R, observed_RN), _expected(n_R, *chances_R))

        interval = jackknife(statistic, self.observed_bN, *chances, counts_b=self.counts_b)
        total = np.array([self.counts_b.sum()])
        if total[0] == 0:
            observed = expected = np.full(self.observed_bN.shape[1], np.nan)
        else:
            observed = self.observed_bN.sum(0) / total[0]
            expected = _expected(total, *(sums.sum(0, keepdims=True) for sums in chances))[0]
        return Score(
            kappa=interval,
            chance=expected,
            odds=odds(observed, expected),
            beside=self._stands_out(),
            queries=int(total[0]),
            dropped=self.dropped,
            blocks=int((self.counts_b > 0).sum()),
        )

    def rate(self) -> Interval:
        """O with its interval: of `hits`, a hit rate."""
        return mean(self.counts_b, self.observed_bN)

    def far_back(self) -> tuple[Interval, Interval]:
        """Near half's beta, and the far-back ratio G = beta_far / beta_near of a content probe.

        beta = sum_j w_j (E[A | flagged, j] - E[A | not flagged, j]) / sum_j w_j over the offsets j of a half, cut at
        L/2, with w_j = t_j (1 - t_j), t_j the share of queries whose offset j is flagged: the coefficient of T in a
        regression of A on T and offsets. G is 1 for a head that finds flagged bars alike at any distance.
        """
        half = self.flags_bL.shape[1] // 2
        sums = (self.flagged_bNL, self.attention_bNL, self.flags_bL)

        def beta(side: slice, n_R: np.ndarray, x_RNL: np.ndarray, a_RNL: np.ndarray, t_RL: np.ndarray) -> np.ndarray:
            share = ratio(n_R, t_RL[:, None, side])
            covariance = ratio(n_R, x_RNL[..., side] - share * a_RNL[..., side]).sum(-1)
            weight = (share * (1.0 - share)).sum(-1)
            return np.where(weight > 0, covariance / np.where(weight > 0, weight, 1.0), np.nan)

        def near(*all_sums: np.ndarray) -> np.ndarray:
            return beta(slice(0, half), *all_sums)

        def far_by_near(*all_sums: np.ndarray) -> np.ndarray:
            divisor, far = near(*all_sums), beta(slice(half, None), *all_sums)
            return np.where(divisor != 0, far / np.where(divisor != 0, divisor, 1.0), np.nan)

        return jackknife(near, *sums, counts_b=self.counts_b), jackknife(far_by_near, *sums, counts_b=self.counts_b)

    def _stands_out(self) -> Float[np.ndarray, " N"]:
        if self.probe.chance != "neighbours":
            return np.full(self.observed_bN.shape[1], np.nan)
        return mean(self.counts_b, self.observed_bN[..., None] - self.sides_bNk).low.min(-1)


def _expected(
    n_R: Float[np.ndarray, " R"], sums_R: Float[np.ndarray, "R *s"], flags_RL: Float[np.ndarray, "R L"] | None = None
) -> Float[np.ndarray, "R N"]:
    """E: the mean of chances summed as they came, or sum_j mean A(j) mean T(j) of a content probe."""
    if flags_RL is None:
        return ratio(n_R, sums_R)
    return (sums_R @ flags_RL[..., None])[..., 0] / n_R[:, None] ** 2


def by_block(
    values_n: Float[np.ndarray, "n *s"], block_n: Int[np.ndarray, " n"], count: int
) -> Float[np.ndarray, "b *s"]:
    """Sums of the values of each block; quick where queries of a block follow one another."""
    sums = np.zeros((count, *values_n.shape[1:]))
    if len(block_n):
        starts = np.concatenate(([0], np.flatnonzero(np.diff(block_n)) + 1))
        np.add.at(sums, block_n[starts], np.add.reduceat(values_n, starts, axis=0, dtype=np.float64))
    return sums


def beside(
    attention_nNL: Float[np.ndarray, "n N L"],
    row_m: Int[np.ndarray, " m"],
    lag_m: Int[np.ndarray, " m"],
    reach_n: Int[np.ndarray, " n"],
) -> tuple[Float[np.ndarray, "m N"], Float[np.ndarray, "m N k"]]:
    """Mean attention at +-1, +-2 of each flagged bar, where in reach, and the attention of the bar on either side."""
    span = attention_nNL.shape[2]
    around = {step: lag_m + step for step in NEIGHBOURS}
    inside = {step: (lag >= 0) & (lag < reach_n[row_m]) for step, lag in around.items()}
    seen = {
        step: np.where(inside[step][:, None], attention_nNL[row_m, :, np.clip(lag, 0, span - 1)], 0.0)
        for step, lag in around.items()
    }
    counts_m = np.maximum(np.sum(list(inside.values()), axis=0), 1)
    return np.sum(list(seen.values()), axis=0) / counts_m[:, None], np.stack([seen[side] for side in SIDES], axis=-1)


def _over(
    asked_n: Bool[np.ndarray, " n"],
    attention_nNL: Float[np.ndarray, "n N L"],
    block_n: Int[np.ndarray, " n"],
    count: int,
    whole_bNL: Float[np.ndarray, "b N L"] | None,
) -> Float[np.ndarray, "b N L"]:
    """Sums by block over the queries asked, by way of the sums over all where those left out are fewer."""
    if whole_bNL is None or 2 * asked_n.sum() < len(asked_n):
        return by_block(attention_nNL[asked_n], block_n[asked_n], count)
    left_out = ~asked_n
    return whole_bNL - by_block(attention_nNL[left_out], block_n[left_out], count)


def hits(attention_nNL: Float[np.ndarray, "n N L"]) -> Float[np.ndarray, "n N L"]:
    """All mass on each query's most attended bar (the nearest of equals), so that O becomes a hit rate."""
    best = attention_nNL.argmax(-1)
    return (np.arange(int(attention_nNL.shape[-1])) == best[..., None]).astype(np.float64)
