"""Calendar periods and blocks of dates, and sums over windows that both are made of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Shaped
from scipy.stats import t as student_t

from forecaster.probes.intervals import CONFIDENCE, blocks
from forecaster.probes.statistics import by_block, kappa
from forecaster.probes.survey import session_slots
from forecaster.windows.panel import Panel
from forecaster.windows.splits import PARTS

FEWEST_YEARS: Final = 3  # of bars: below, periods are months


@dataclass(frozen=True)
class Grid:
    """How windows fall into pieces, the stretches of dates that lie in one block and in one cell.

    Blocks, for tests, are stretches of a part (training; validation and test together); cells are the same of a period
    and part, their stretches being what intervals are taken over. window_n: piece of each window.
    """

    window_n: Int[np.ndarray, " n"]
    block_r: Int[np.ndarray, " r"]
    slice_r: Int[np.ndarray, " r"]  # stretch of a cell
    cell_s: Int[np.ndarray, " s"]  # cell of each such stretch
    periods: Sequence[str]  # by cell
    parts: Sequence[str]
    stretches: Sequence[Int[np.ndarray, " _"]]  # blocks of training, blocks of the rest
    begins_b: Shaped[np.ndarray, " b"]  # first date of each block


@dataclass(frozen=True)
class Sums:
    """Of each piece: windows asked, and what is summed over them, one column a head: value = (O - E) / (n - E)."""

    counts_r: Float[np.ndarray, " r"]
    observed_rN: Float[np.ndarray, "r N"]
    expected_rN: Float[np.ndarray, "r N"]

    def over(self, group_r: Int[np.ndarray, " r"]) -> Float[np.ndarray, "g N"]:
        """The value of every group of pieces; NaN without windows."""
        count = int(group_r.max()) + 1
        n_g, o_gN, e_gN = (
            by_block(sums, group_r, count) for sums in (self.counts_r, self.observed_rN, self.expected_rN)
        )
        n_g1 = np.where(n_g > 0, n_g, np.nan)[:, None]
        return kappa(o_gN / n_g1, e_gN / n_g1)


def gridded(panel: Panel, origins: Int[np.ndarray, " n"], part_n: Int[np.ndarray, " n"], length: int) -> Grid:
    """Pieces for windows that end at the origins, of which part_n says the part (by its place in PARTS).

    Periods are calendar years of the session, months where the dates span under FEWEST_YEARS years. Stretches have
    `length` dates at least where there are so many, and 100 of a part are the most.
    """
    dates = session_slots(panel, origins, length)[0].astype("datetime64[D]")
    years = dates.max().astype("datetime64[Y]") - dates.min().astype("datetime64[Y]")
    period_n = dates.astype("datetime64[M]" if years.astype(np.int64) < FEWEST_YEARS else "datetime64[Y]")
    times, ids, first = panel.times[origins], panel.symbol_ids[origins], 0
    block_n = np.zeros(len(origins), dtype=np.int64)
    stretches: list[Int[np.ndarray, " _"]] = []
    for held in (part_n == 0, part_n > 0):
        block_n[held] = first + blocks(times[held], length, ids[held])
        stretches.append(np.unique(block_n[held]))
        first = int(block_n[held].max()) + 1
    cells, cell_n = np.unique(period_n.astype(np.int64) * len(PARTS) + part_n, return_inverse=True)
    slice_n = np.zeros(len(origins), dtype=np.int64)
    cell_s: list[int] = []
    for cell in range(len(cells)):
        inside = cell_n == cell
        own = blocks(times[inside], length, ids[inside])
        slice_n[inside] = len(cell_s) + own
        cell_s += [cell] * (int(own.max()) + 1)
    pieces, window_n = np.unique(np.stack((block_n, slice_n)), axis=1, return_inverse=True)
    begins = pd.Series(dates).groupby(block_n).min().to_numpy(dtype="datetime64[D]")
    periods = (cells // len(PARTS)).astype(period_n.dtype).astype(str)
    parts = [PARTS[int(cell) % len(PARTS)] for cell in cells]
    return Grid(window_n, pieces[0], pieces[1], np.array(cell_s), list(periods), parts, stretches, begins)


def half_widths(
    value_cN: Float[np.ndarray, "c N"], value_sN: Float[np.ndarray, "s N"], cell_s: Int[np.ndarray, " s"]
) -> Float[np.ndarray, "c N"]:
    """Half the 95 % interval of each cell's value, from the deviation of its stretches pooled over all cells.

    A year has too few stretches for a deviation of its own: t(S - C) s / sqrt(m_c), s^2 = the squares of S stretches
    around the values of their C cells over S - C, m_c the stretches of the cell. NaN where no cell has two.
    """
    left_sN = value_sN - value_cN[cell_s]
    known_sN = np.isfinite(left_sN)
    size_cN = by_block(known_sN.astype(np.float64), cell_s, len(value_cN))
    free_N = (np.maximum(size_cN - 1, 0)).sum(axis=0)
    squares_N = (np.where(known_sN, left_sN, 0.0) ** 2).sum(axis=0)
    deviation_N = np.sqrt(np.where(free_N > 0, squares_N / np.maximum(free_N, 1), np.nan))
    quantile_N = student_t.ppf(0.5 + CONFIDENCE / 2, np.maximum(free_N, 1))
    return np.where(size_cN > 0, quantile_N * deviation_N / np.sqrt(np.maximum(size_cN, 1)), np.nan)
