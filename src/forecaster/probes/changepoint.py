"""Whether a series of blocks changes its level, and where: a rank test whose null keeps neighbours together."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from forecaster.probes.intervals import FEWEST_BLOCKS

TRIM: Final = 0.15  # of a stretch at either end, where no change is looked for
PERMUTATIONS: Final = 9_999
SHORTEST_RUN: Final = 4  # blocks that stay together
FEWEST_RUNS: Final = 6  # that a stretch is cut into
MOST_ALIKE: Final = 0.35  # correlation of neighbouring blocks above which no permutation is a fair null
BAI: Final = 11.0  # quantile of the 95 % interval
TIE: Final = 1e-9  # of the statistic: sums of the same ranks in another order
SEED: Final = 0


@dataclass(frozen=True)
class Change:
    """The likeliest change of a series, and how often one so large comes by chance.

    at: number of the first block after it; first, last: those of its 95 % interval. alike: correlation of neighbouring
    blocks. Where nothing can be tested p is NaN, and the reason is told.
    """

    at: int
    first: int
    last: int
    statistic: float
    p: float
    alike: float
    reason: str = ""


def change(values_b: Float[np.ndarray, " b"], stretches: Sequence[Int[np.ndarray, " _"]]) -> Change:
    """Tests for one change of level inside any of the stretches of blocks, which may differ in level themselves.

    With the ranks R of a stretch's n blocks and their deviation s,
        Z = max over stretches and splits k of |sum_{i <= k} (R_i - mean R)| / (s sqrt(k (n - k) / n)),
    k from .15 n to .85 n. p: the share of permutations whose Z is at least as large. They move runs of neighbouring
    blocks of a stretch, cut anywhere on the circle; a run has n^(1/3) (2 r / (1 - r^2))^(2/3) blocks and SHORTEST_RUN
    at least, r the correlation of neighbours once the likeliest change is taken out.
    The interval of the place is Bai's, [11 sigma^2 / delta^2] + 1 blocks either way, delta the change of the mean rank,
    sigma^2 the long-run variance around it. Blocks without a value are left out, and stretches of fewer than
    FEWEST_BLOCKS others.
    Pettitt (1979), A Non-Parametric Approach to the Change-Point Problem, Applied Statistics 28; Carlstein (1986), The
    Use of Subseries Values, Annals of Statistics 14; Bai (1997), Estimation of a Change Point in Multiple Regression
    Models, Review of Economics and Statistics 79.
    """
    known = [place[np.isfinite(values_b[place])] for place in stretches]
    tested = [place for place in known if len(place) >= FEWEST_BLOCKS]
    if not tested:
        most = max(map(len, known), default=0)
        return Change(-1, -1, -1, np.nan, np.nan, np.nan, f"too few blocks, {most} of at least {FEWEST_BLOCKS}")
    ranks = [pd.Series(values_b[place]).rank().to_numpy(dtype=np.float64) for place in tested]
    scores = [_scores(rank_n[None])[0] for rank_n in ranks]
    found = [int(_splits(len(rank_n))[score.argmax()]) for rank_n, score in zip(ranks, scores, strict=True)]
    alike = _alike(ranks, found)
    best = int(np.argmax([score.max() for score in scores]))
    statistic, split, place = float(scores[best].max()), found[best], tested[best]
    reach = _reach(ranks[best], split, alike)
    at, first, last = (int(place[np.clip(end, 0, len(place) - 1)]) for end in (split, split - reach, split + reach))
    if alike > MOST_ALIKE:
        words = f"neighbouring blocks too alike, correlation {alike:.2f}"
        return Change(at, first, last, statistic, np.nan, alike, words)
    null_K = np.max([_scores(rank_n[_order(len(rank_n), run_of(len(rank_n), alike))]).max(1) for rank_n in ranks], 0)
    p = float((1 + (null_K >= statistic - TIE).sum()) / (PERMUTATIONS + 1))
    return Change(at, first, last, statistic, p, alike)


def run_of(count: int, alike: float) -> int:
    """Blocks that stay together when `count` blocks are permuted whose neighbours correlate so much."""
    suited = count ** (1 / 3) * (2 * max(0.0, alike) / (1 - alike**2)) ** (2 / 3)
    return max(1, min(max(SHORTEST_RUN, round(suited)), count // FEWEST_RUNS))


def _splits(count: int) -> Int[np.ndarray, " k"]:
    """Numbers of blocks before a change that is looked for."""
    least = max(1, int(np.ceil(TRIM * count)))
    return np.arange(least, count - least + 1)


def _scores(rank_Kn: Float[np.ndarray, "K n"]) -> Float[np.ndarray, "K k"]:
    """Standardised rank sums at every split; 0 where all ranks are tied."""
    count = rank_Kn.shape[1]
    splits = _splits(count)
    deviation = float(rank_Kn[0].std(ddof=1))  # the same of every permutation
    if deviation == 0:
        return np.zeros((len(rank_Kn), len(splits)))
    sums_Kk = (rank_Kn - (count + 1) / 2).cumsum(axis=1)[:, splits - 1]
    return np.abs(sums_Kk) / (deviation * np.sqrt(splits * (count - splits) / count))


def _alike(ranks: Sequence[Float[np.ndarray, " _"]], splits: Sequence[int]) -> float:
    """Correlation of neighbours around the levels before and after each split, with what two fitted means take off it
    added again.
    """
    products, squares = 0.0, 0.0
    for rank_n, split in zip(ranks, splits, strict=True):
        left_n = np.concatenate((rank_n[:split] - rank_n[:split].mean(), rank_n[split:] - rank_n[split:].mean()))
        products += float(left_n[1:] @ left_n[:-1])
        squares += float(left_n @ left_n)
    raw = products / squares if squares > 0 else 0.0
    return float(np.clip(raw + (2 + 4 * raw) * len(ranks) / sum(map(len, ranks)), -0.95, 0.95))


def _reach(rank_n: Float[np.ndarray, " n"], split: int, alike: float) -> int:
    before, after = rank_n[:split], rank_n[split:]
    variance = (before.var() * len(before) + after.var() * len(after)) / len(rank_n)
    delta, long_run = float(after.mean() - before.mean()), variance * (1 + max(0.0, alike)) / (1 - max(0.0, alike))
    return len(rank_n) if delta == 0 else int(BAI * long_run / delta**2) + 1


@cache
def _order(count: int, run: int) -> Int[np.ndarray, "K n"]:
    """Orders in which the blocks are put: a circle cut anywhere into runs, these drawn in any order."""
    rng = np.random.default_rng(SEED)
    starts = rng.integers(count, size=(PERMUTATIONS, 1))
    run_n = np.arange(count) * max(1, count // run) // count
    drawn_Kr = rng.random((PERMUTATIONS, int(run_n[-1]) + 1))
    return (np.argsort(drawn_Kr[:, run_n], axis=1, kind="stable") + starts) % count
