"""Streaming sums over captured attention, and what they say: mass, chance, kappa, odds, intervals.

    O = mean attention mass on the flagged bars          E = the mass expected there by chance
    kappa = (O - E) / (1 - E)                            odds = O (1 - E) / (E (1 - O))

Sums are kept by block of dates, in float64; nothing grows with the number of windows.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from jaxtyping import Float, Int, Shaped
from scipy.stats import t as student_t

from forecaster.probes.masks import Mask, Probe, Queries, beside, shifted

FEWEST_BLOCKS: Final = 10
CONFIDENCE: Final = 0.95
SIDES: Final = (-1, 1)


def blocks(times: Shaped[np.ndarray, " n"], length: int) -> Int[np.ndarray, " n"]:
    """Block of each query: consecutive stretches of at least `length` distinct times, all symbols together.

    D times make max(1, D // length) blocks whose sizes differ by one time at most.
    """
    distinct, rank = np.unique(times, return_inverse=True)
    return rank * max(1, len(distinct) // length) // len(distinct)


def kappa(observed: Float[np.ndarray, "*s"], expected: Float[np.ndarray, "*s"]) -> Float[np.ndarray, "*s"]:
    """(O - E) / (1 - E): 0 is chance, 1 all the mass; NaN where chance already is everything (E = 1)."""
    room = 1.0 - expected
    return np.where(room > 0, (observed - expected) / np.where(room > 0, room, 1.0), np.nan)


def odds(observed: Float[np.ndarray, "*s"], expected: Float[np.ndarray, "*s"]) -> Float[np.ndarray, "*s"]:
    """O (1 - E) / (E (1 - O)): infinite where the divisor alone is 0, NaN where both are."""
    above, below = observed * (1.0 - expected), expected * (1.0 - observed)
    ratio = np.where(below > 0, above / np.where(below > 0, below, 1.0), np.where(above > 0, np.inf, np.nan))
    return np.where(np.isnan(above + below), np.nan, ratio)


@dataclass(frozen=True)
class Interval:
    """Estimates and their 95 % intervals, one each by head (or target, or lag); NaN where there are too few blocks."""

    value: Float[np.ndarray, "*s"]
    low: Float[np.ndarray, "*s"]
    high: Float[np.ndarray, "*s"]


def jackknife(
    statistic: Callable[..., Float[np.ndarray, "R *s"]],
    *sums_b: Float[np.ndarray, "b ..."],
    counts_b: Float[np.ndarray, " b"],
) -> Interval:
    """Student's t interval of a function of sums, from the sums without each block in turn.

    p_b = B f(all) - (B - 1) f(all but b);  f(all) +- t(B - 1) sd(p) / sqrt(B). For a mean over blocks of equal size
    the p_b are the block means, and this is their t interval; for ratios it is the same to first order.
    `statistic` takes the counts, then the sums, each with a leading axis of repetitions. Blocks without queries do
    not count; below FEWEST_BLOCKS low and high are NaN.
    Kuensch (1989), The Jackknife and the Bootstrap for General Stationary Observations, Annals of Statistics 17.
    """
    kept = [sums[counts_b > 0] for sums in (counts_b, *sums_b)]
    count = len(kept[0])
    totals = [sums.sum(0, keepdims=True) for sums in kept]
    value = statistic(*(totals if count else [np.full(total.shape, np.nan) for total in totals]))[0]
    if count < FEWEST_BLOCKS:
        nothing = np.full(value.shape, np.nan)
        return Interval(value, nothing, nothing)
    pseudo = count * value - (count - 1) * statistic(*(total - sums for total, sums in zip(totals, kept, strict=True)))
    half = float(student_t.ppf(0.5 + CONFIDENCE / 2, count - 1)) * pseudo.std(0, ddof=1) / np.sqrt(count)
    return Interval(value, value - half, value + half)


def mean(counts_b: Float[np.ndarray, " b"], sums_b: Float[np.ndarray, "b *s"]) -> Interval:
    """Interval of the mean over all queries, from sums by block."""
    return jackknife(_ratio, sums_b, counts_b=counts_b)


def _ratio(n_R: Float[np.ndarray, " R"], sums_R: Float[np.ndarray, "R *s"]) -> Float[np.ndarray, "R *s"]:
    return sums_R / n_R.reshape(-1, *(1 for _ in sums_R.shape[1:]))


class ProfileSums:
    """Attention by block and offset: where a head looks, whatever is there."""

    def __init__(self, block_count: int, heads: int, span: int) -> None:
        self.heads, self.span = heads, span
        self.counts_b = np.zeros(block_count)
        self.attention_bNL = np.zeros((block_count, heads, span))

    def update(self, attention_nNL: Float[np.ndarray, "n N L"], block_n: Int[np.ndarray, " n"]) -> None:
        """Adds queries."""
        count = len(self.counts_b)
        self.counts_b += np.bincount(block_n, minlength=count)
        self.attention_bNL += by_block(attention_nNL, block_n, count)

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
        if probe.content:
            self.attention_bNL = np.zeros((block_count, heads, span))
            self.flagged_bNL = np.zeros((block_count, heads, span))
            self.flags_bL = np.zeros((block_count, span))

    def update(
        self,
        attention_nNL: Float[np.ndarray, "n N L"],
        mask: Mask,
        queries: Queries,
        block_n: Int[np.ndarray, " n"],
    ) -> None:
        """Adds the measurable ones of n queries; the others are counted as dropped."""
        asked = mask.measurable
        if not asked.all():
            self.dropped += int((~asked).sum())
            queries = replace(
                queries, rows=queries.rows[asked], reach=queries.reach[asked], visible=queries.visible[asked]
            )
            attention_nNL, mask, block_n = attention_nNL[asked], Mask(mask.flags[asked], asked[asked]), block_n[asked]
        count = len(self.counts_b)
        flags_nL = mask.flags.astype(np.float64)
        self.counts_b += np.bincount(block_n, minlength=count)
        self.observed_bN += by_block(_mass(attention_nNL, flags_nL), block_n, count)
        match self.probe.chance:
            case "visible":
                self.chance_bN += by_block(flags_nL.sum(1) / queries.visible, block_n, count)[:, None]
            case "neighbours":
                self.chance_bN += by_block(_mass(attention_nNL, beside(mask.flags, queries)), block_n, count)
                sides = [_mass(attention_nNL, shifted(flags_nL, side)) for side in SIDES]
                self.sides_bNk += by_block(np.stack(sides, axis=-1), block_n, count)
            case "profile":
                self.attention_bNL += by_block(attention_nNL, block_n, count)
                self.flagged_bNL += by_block(attention_nNL * flags_nL[:, None], block_n, count)
                self.flags_bL += by_block(flags_nL, block_n, count)

    def score(self) -> Score:
        """Figures of all queries so far."""
        if self.probe.content:
            chances = (self.attention_bNL, self.flags_bL)
        else:
            chances = (self.chance_bN,)

        def statistic(
            n_R: Float[np.ndarray, " R"], observed_RN: Float[np.ndarray, "R N"], *chances_R: Float[np.ndarray, "R ..."]
        ) -> Float[np.ndarray, "R N"]:
            return kappa(_ratio(n_R, observed_RN), _expected(n_R, *chances_R))

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
            share = _ratio(n_R, t_RL[:, None, side])
            covariance = _ratio(n_R, x_RNL[..., side] - share * a_RNL[..., side]).sum(-1)
            weight = (share * (1.0 - share)).sum(-1)
            return np.where(weight > 0, covariance / np.where(weight > 0, weight, 1.0), np.nan)

        def near(*all_sums: np.ndarray) -> np.ndarray:
            return beta(slice(0, half), *all_sums)

        def ratio(*all_sums: np.ndarray) -> np.ndarray:
            divisor, far = near(*all_sums), beta(slice(half, None), *all_sums)
            return np.where(divisor != 0, far / np.where(divisor != 0, divisor, 1.0), np.nan)

        return jackknife(near, *sums, counts_b=self.counts_b), jackknife(ratio, *sums, counts_b=self.counts_b)

    def _stands_out(self) -> Float[np.ndarray, " N"]:
        if self.probe.chance != "neighbours":
            return np.full(self.observed_bN.shape[1], np.nan)
        return mean(self.counts_b, self.observed_bN[..., None] - self.sides_bNk).low.min(-1)


def _expected(
    n_R: Float[np.ndarray, " R"], sums_R: Float[np.ndarray, "R *s"], flags_RL: Float[np.ndarray, "R L"] | None = None
) -> Float[np.ndarray, "R N"]:
    """E: the mean of chances summed as they came, or sum_j mean A(j) mean T(j) of a content probe."""
    if flags_RL is None:
        return _ratio(n_R, sums_R)
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


def _mass(attention_nNL: Float[np.ndarray, "n N L"], weights_nL: Float[np.ndarray, "n L"]) -> Float[np.ndarray, "n N"]:
    return (attention_nNL @ weights_nL[..., None])[..., 0]


def hits(attention_nNL: Float[np.ndarray, "n N L"]) -> Float[np.ndarray, "n N L"]:
    """All mass on each query's most attended bar (the nearest of equals), so that O becomes a hit rate."""
    best = attention_nNL.argmax(-1)
    return (np.arange(int(attention_nNL.shape[-1])) == best[..., None]).astype(np.float64)
