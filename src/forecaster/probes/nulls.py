"""The shift null: what a content probe would score if the same bars had been flagged at another time."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from jaxtyping import Complex, Float, Int, Shaped
from numpy.fft import irfft, rfft
from scipy import stats

from forecaster.probes.masks import Mask
from forecaster.probes.statistics import kappa

MOST_SHIFTS: Final = 9_999
FEWEST_WINDOWS: Final = 3  # a symbol takes part from 3 L windows on
TIE: Final = 1e-9  # of kappa: a head without any contrast scores the same at every shift, but for rounding
MOST_PLACES: Final = 20_000
BUFFER: Final = 1 << 21  # numbers held before they are transformed (16 MB)
HELD_SHARE: Final = 1 / 16  # of a circle that is held at least: each transform is as long as all of it


@dataclass(frozen=True)
class ShiftTest:
    """p of each head, the shifts' standard deviation, their number K, whether p is a t tail, symbols left out."""

    p: Float[np.ndarray, " N"]
    deviation: Float[np.ndarray, " N"]
    shifts: int
    tail: bool
    left_out: int


class Shifts:
    """The flags of a content probe at every admissible shift along the union of dates, one shift for all symbols.

    At shift s the query of date d meets the flags of its symbol's query at date (d + s) mod D; pairs without a partner
    are dropped. Only dates with a measurable query count: of a probe that asks few queries, flags are shifted within
    those. Shifts are admissible that bring every query a window away or farther, either way: `length` dates where all
    are measurable. Of more than MOST_SHIFTS, as many evenly spaced ones.
    slots: numbers for the time of the day of intraday queries, whose `times` are then session dates. Shifts are whole
    sessions, as long as `length` bars, and pairs are of one slot: moves have a size of the hour, and at another hour
    any head that follows the clock would score less than where it looks.
    More than MOST_PLACES dates (times slots) are cut into stretches of equal length, each a circle of its own: the
    sums would grow with the number of dates.
    Symbols below FEWEST_WINDOWS x `length` queries are left out and counted.
    Queries come in the order of the arrays given here: sorted by symbol, then time.
    """

    def __init__(
        self,
        mask: Mask,
        symbol_ids: Int[np.ndarray, " n"],
        times: Shaped[np.ndarray, " n"],
        length: int,
        slots: Int[np.ndarray, " n"] | None = None,
    ) -> None:
        ids, counts = np.unique(symbol_ids, return_counts=True)
        kept = np.intersect1d(ids[counts >= FEWEST_WINDOWS * length], symbol_ids[mask.measurable])
        self.left_out = int((counts < FEWEST_WINDOWS * length).sum())
        among = np.isin(symbol_ids, kept)
        self._mask, self.active = mask, mask.measurable & among
        dates, date_n = np.unique(times[self.active], return_inverse=True)
        every = np.unique(times[among])
        step, bars, slot_n = 1, len(every), np.zeros(len(date_n), dtype=np.int64)
        if slots is not None:
            kinds, slot_n = np.unique(slots[self.active], return_inverse=True)
            step = max(1, len(kinds))  # places of a date
            bars = len(np.unique(np.searchsorted(every, times[among]) * (int(slots.max()) + 1) + slots[among]))
        stretches = max(1, -(-len(dates) * step // MOST_PLACES))
        long = max(1, -(-len(dates) // stretches))  # dates of a stretch
        self.places = long * step
        self._place_n = np.zeros(len(times), dtype=np.int64)
        self._place_n[self.active] = (date_n % long) * step + slot_n
        # A circle is a stretch of dates of one symbol. Queries that are not asked stay in that of the one before.
        self.circle_n = symbol_ids.astype(np.int64) * stretches
        stretch_n = np.searchsorted(dates, times, side="right") - 1
        self.circle_n += np.clip(stretch_n // long, 0, stretches - 1)
        self.pairs_D, self.flags_LD = np.zeros(self.places), np.zeros((mask.flags.shape[1], self.places))
        self._held: tuple[int, Complex[np.ndarray, " K"], Complex[np.ndarray, "L K"]] | None = None
        for circle in np.unique(self.circle_n[self.active]):
            valid_K, flags_LK = self.transformed(int(circle))
            self.pairs_D += irfft(valid_K.conj() * valid_K, self.places)
            self.flags_LD += irfft(valid_K.conj() * flags_LK, self.places)
        self.pairs_D, self.flags_LD = np.rint(self.pairs_D), np.rint(self.flags_LD)
        self.complete = bool((self.pairs_D == self.pairs_D[:1]).all())
        apart = -(-length * len(every) // max(1, bars))  # as long as a window, in dates of all queries
        nearest = _nearest(np.searchsorted(every, dates), apart)
        admissible = step * np.arange(nearest, long - nearest + 1) if len(kept) else np.arange(0)
        admissible = admissible[self.pairs_D[admissible] > 0]
        if len(admissible) > MOST_SHIFTS:
            admissible = admissible[np.linspace(0, len(admissible) - 1, MOST_SHIFTS).round().astype(np.int64)]
        self.admissible = admissible
        self.independent = bars // length

    def transformed(self, circle: int) -> tuple[Complex[np.ndarray, " K"], Complex[np.ndarray, "L K"]]:
        """Spectra over dates of where a circle has queries, and of their flags by offset."""
        if self._held is None or self._held[0] != circle:  # every layer asks for the same ones
            rows = np.flatnonzero(self.active & (self.circle_n == circle))
            valid_D = np.zeros(self.places)
            valid_D[self._place_n[rows]] = 1.0
            flags_LD = np.zeros((self._mask.flags.shape[1], self.places))
            flags_LD[:, self._place_n[rows]] = self._mask.flags[rows].T
            self._held = circle, rfft(valid_D), rfft(flags_LD)
        return self._held[1], self._held[2]

    def series(self, rows: Int[np.ndarray, " m"], values_mL: Float[np.ndarray, "m L"]) -> Float[np.ndarray, "L D"]:
        """Values of some queries of one circle at their dates, 0 elsewhere."""
        series_LD = np.zeros((values_mL.shape[1], self.places))
        series_LD[:, self._place_n[rows]] = values_mL.T
        return series_LD


class ShiftNull:
    """Kappa of every head at every admissible shift of a probe's flags.

    With n_s pairs at shift s, over which all means run,
        O_s = sum A[d, j] T[d+s, j] / n_s,   E_s = sum_j mean A(j) mean T(j),   kappa_s = (O_s - E_s) / (1 - E_s),
    so that s = 0 is the observed figure. All sums are circular correlations over dates, taken by FFT for each offset.
    """

    def __init__(self, shifts: Shifts, heads: int) -> None:
        self.shifts, self.heads = shifts, heads
        self._next = 0
        self._held: list[Float[np.ndarray, "n N L"]] = []
        self._room = max(BUFFER, HELD_SHARE * shifts.flags_LD.size * heads)
        self._observed_NK = np.zeros((heads, shifts.places // 2 + 1), dtype=np.complex128)
        self._expected_ND = np.zeros((heads, shifts.places))

    def update(self, attention_nNL: Float[np.ndarray, "n N L"]) -> None:
        """Adds the next n queries."""
        start, self._next = self._next, self._next + len(attention_nNL)
        circle_n = self.shifts.circle_n[start : self._next]
        cuts = np.flatnonzero(np.diff(circle_n)) + 1
        if self._held and self.shifts.circle_n[start - 1] != circle_n[0]:
            self._flush(start)
        for part_nNL, end in zip(np.split(attention_nNL, cuts), (*(start + cuts), self._next), strict=True):
            self._held.append(part_nNL)
            if end < self._next or sum(held.size for held in self._held) > self._room:
                self._flush(int(end))

    def kappas(self) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "N K"]]:
        """Observed kappa of each head, and that at each admissible shift."""
        if self._held:
            self._flush(self._next)
        if not len(self.shifts.admissible):
            return np.full(self.heads, np.nan), np.full((self.heads, 0), np.nan)
        chosen = np.concatenate(([0], self.shifts.admissible))
        pairs = self.shifts.pairs_D[chosen]
        observed = irfft(self._observed_NK, self.shifts.places)[:, chosen] / pairs
        all_kappas = kappa(observed, self._expected_ND[:, chosen] / pairs**2)
        return all_kappas[:, 0], all_kappas[:, 1:]

    def test(self, tests: int) -> ShiftTest:
        """One-sided p of each head, one of `tests` heads x content probes.

        p = (1 + #{kappa_s >= kappa}) / (K + 1) over K shifts. Where even the smallest such p, 1 / (K + 1), is above
        .05 / tests, the upper t tail of (kappa - mean) / sd of the shifts instead, with D // L - 1 degrees of freedom,
        D dates of all queries: as neighbouring shifts share most of their windows, about D / L are independent.
        """
        observed_N, null_NK = self.kappas()
        count, left_out = len(self.shifts.admissible), self.shifts.left_out
        if count == 0:
            nothing = np.full(len(observed_N), np.nan)
            return ShiftTest(nothing, nothing, 0, False, left_out)
        mean, deviation = null_NK.mean(1), null_NK.std(1, ddof=1) if count > 1 else np.zeros(len(observed_N))
        tail = 1.0 / (count + 1) > 0.05 / tests
        if tail:
            varies = deviation > TIE
            z = (observed_N - mean) / np.where(varies, deviation, 1.0)
            p = np.where(varies, stats.t.sf(z, max(1, self.shifts.independent - 1)), 1.0)
        else:
            p = (1 + (null_NK >= observed_N[:, None] - TIE).sum(1)) / (count + 1)
        return ShiftTest(np.where(np.isnan(observed_N), np.nan, p), deviation, count, tail, left_out)

    def _flush(self, end: int) -> None:
        """Transforms and adds the held queries, all of one circle, the last of which is number end - 1."""
        held_nNL = np.concatenate(self._held)
        self._held = []
        shifts, rows = self.shifts, np.arange(end - len(held_nNL), end)
        active = shifts.active[rows]
        if not active.any():
            return
        valid_K, flags_LK = shifts.transformed(int(shifts.circle_n[rows[0]]))
        for head in range(self.heads):
            series_LD = shifts.series(rows[active], held_nNL[active, head])
            attention_LK = rfft(series_LD).conj()
            self._observed_NK[head] += np.einsum("lk,lk->k", attention_LK, flags_LK)
            if shifts.complete:  # no pair lacks a partner at any shift: the sums of A do not depend on it
                self._expected_ND[head] += series_LD.sum(1) @ shifts.flags_LD
            else:
                paired_LD = irfft(attention_LK * valid_K, shifts.places)
                self._expected_ND[head] += np.einsum("ld,ld->d", paired_LD, shifts.flags_LD)


def _nearest(rank_d: Int[np.ndarray, " d"], apart: int) -> int:
    """The fewest places by which a list of dates must be shifted for each to meet one at least `apart` dates away."""
    if not len(rank_d):
        return apart
    return int((np.searchsorted(rank_d, rank_d + apart) - np.arange(len(rank_d))).max())


def benjamini_hochberg(p: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """False discovery rates q_(i) = min over j >= i of n p_(j) / j; a NaN among p is no test and stays NaN.

    Benjamini and Hochberg (1995), Controlling the False Discovery Rate, JRSS B 57.
    """
    q = np.full(p.shape, np.nan)
    tested = ~np.isnan(p)
    if tested.any():
        q[tested] = stats.false_discovery_control(p[tested], method="bh")
    return q
