"""Stretches of dates, and the intervals over them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from jaxtyping import Float, Int, Shaped
from scipy.stats import t as student_t

FEWEST_BLOCKS: Final = 10
MOST_BLOCKS: Final = 100  # sums are kept by block: memory does not grow with the number of dates
CONFIDENCE: Final = 0.95


def blocks(
    times: Shaped[np.ndarray, " n"], length: int, symbol_ids: Int[np.ndarray, " n"] | None = None
) -> Int[np.ndarray, " n"]:
    """Block of each query: consecutive stretches of distinct times, all symbols together.

    On the average over its time a stretch holds `length` queries of the symbol with the fewest by time. D times make
    max(1, min(D pace // length, MOST_BLOCKS)) blocks whose sizes differ by one time at most.
    """
    distinct, rank = np.unique(times, return_inverse=True)
    among, of = (1, 1) if symbol_ids is None else pace(rank, symbol_ids, length)
    return rank * max(1, min(len(distinct) * among // (of * length), MOST_BLOCKS)) // len(distinct)


def pace(rank_n: Int[np.ndarray, " n"], symbol_ids: Int[np.ndarray, " n"], length: int) -> tuple[int, int]:
    """Of the symbol with the fewest queries by time: how many it has, and the times from its first to its last one.

    Symbols of fewer than `length` queries are passed over where another has more: they fill no block. rank: of each
    query's time among those of all symbols.
    """
    if not len(rank_n):
        return 1, 1
    _, of_n, count_s = np.unique(symbol_ids, return_inverse=True, return_counts=True)
    first_s, last_s = np.full(len(count_s), rank_n.max()), np.zeros(len(count_s), dtype=np.int64)
    np.minimum.at(first_s, of_n, rank_n)
    np.maximum.at(last_s, of_n, rank_n)
    over_s = last_s - first_s + 1
    fills_s = count_s >= min(length, count_s.max())
    slowest = int(np.where(fills_s, count_s / over_s, np.inf).argmin())
    return int(count_s[slowest]), int(over_s[slowest])


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
    fewest: int = FEWEST_BLOCKS,
) -> Interval:
    """Student's t interval of a function of sums, from the sums without each block in turn.

    p_b = B f(all) - (B - 1) f(all but b);  f(all) +- t(B - 1) sd(p) / sqrt(B). For a mean over blocks of equal size
    the p_b are the block means, and this is their t interval; for ratios it is the same to first order.
    `statistic` takes the counts, then the sums, each with a leading axis of repetitions. Blocks without queries do
    not count; below `fewest` blocks low and high are NaN.
    Kuensch (1989), The Jackknife and the Bootstrap for General Stationary Observations, Annals of Statistics 17.
    """
    kept = [sums[counts_b > 0] for sums in (counts_b, *sums_b)]
    count = len(kept[0])
    totals = [sums.sum(0, keepdims=True) for sums in kept]
    value = statistic(*(totals if count else [np.full(total.shape, np.nan) for total in totals]))[0]
    if count < fewest:
        nothing = np.full(value.shape, np.nan)
        return Interval(value, nothing, nothing)
    pseudo = count * value - (count - 1) * statistic(*(total - sums for total, sums in zip(totals, kept, strict=True)))
    half = float(student_t.ppf(0.5 + CONFIDENCE / 2, count - 1)) * pseudo.std(0, ddof=1) / np.sqrt(count)
    return Interval(value, value - half, value + half)


def mean(counts_b: Float[np.ndarray, " b"], sums_b: Float[np.ndarray, "b *s"], fewest: int = FEWEST_BLOCKS) -> Interval:
    """Interval of the mean over all queries, from sums by block."""
    return jackknife(ratio, sums_b, counts_b=counts_b, fewest=fewest)


def ratio(n_R: Float[np.ndarray, " R"], sums_R: Float[np.ndarray, "R *s"]) -> Float[np.ndarray, "R *s"]:
    """Sums over counts, of each repetition."""
    return sums_R / n_R.reshape(-1, *(1 for _ in sums_R.shape[1:]))
