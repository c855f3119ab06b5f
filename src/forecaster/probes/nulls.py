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
BUFFER: Final = 1 << 23  # numbers held before they are transformed (64 MB)


@dataclass(frozen=True)
class ShiftTest:
    """p of each head, the shifts' standard deviation, their number K, whether p is a t tail, symbols left out."""

    p: Float[np.ndarray, " N"]
    deviation: Float[np.ndarray, " N"]
    shifts: int
    tail: bool
    left_out: int


class ShiftNull:
    """Kappa of every head at every admissible shift of the flags along the union of dates, one shift for all symbols.

    At shift s the query of date d meets the flags of its symbol's query at date (d + s) mod D; pairs without a partner
    are dropped. With n_s pairs, over which all means run,
        O_s = sum A[d, j] T[d+s, j] / n_s,   E_s = sum_j mean A(j) mean T(j),   kappa_s = (O_s - E_s) / (1 - E_s),
    so that s = 0 is the observed figure. All sums are circular correlations over dates, taken by FFT for each offset.
    Shifts are admissible from `length` dates on, either way; of more than MOST_SHIFTS, as many evenly spaced ones.
    slots: numbers for the time of the day of intraday queries, whose `times` are then session dates. Shifts are whole
    sessions, as long as `length` bars, and pairs are of one slot: moves have a size of the hour, and at another hour
    any head that follows the clock would score less than where it looks.
    Symbols below FEWEST_WINDOWS x `length` measurable queries are left out and counted.
    Queries come in the order of the arrays given here: sorted by symbol, then time.
    """

    def __init__(
        self,
        mask: Mask,
        symbol_ids: Int[np.ndarray, " n"],
        times: Shaped[np.ndarray, " n"],
        heads: int,
        length: int,
        slots: Int[np.ndarray, " n"] | None = None,
    ) -> None:
        ids, counts = np.unique(symbol_ids[mask.measurable], return_counts=True)
        kept = ids[counts >= FEWEST_WINDOWS * length]
        self.left_out = len(np.unique(symbol_ids)) - len(kept)
        self._active = mask.measurable & np.isin(symbol_ids, kept)
        dates, places = np.unique(times[self._active], return_inverse=True)
        step = 1  # places of a date
        if slots is not None:
            kinds, slot = np.unique(slots[self._active], return_inverse=True)
            step, places = max(1, len(kinds)), places * len(kinds) + slot
        distinct = len(np.unique(places))
        self._dates, self._date_n = len(dates) * step, np.zeros(len(times), dtype=np.int64)
        self._date_n[self._active] = places
        self._mask, self._symbol_n, self.heads = mask, symbol_ids, heads
        self._next = 0
        self._held: list[Float[np.ndarray, "n N L"]] = []
        span = mask.flags.shape[1]
        frequencies = self._dates // 2 + 1
        self._observed_NK = np.zeros((heads, frequencies), dtype=np.complex128)
        self._expected_ND = np.zeros((heads, self._dates))
        self._pairs_D, self._flags_LD = np.zeros(self._dates), np.zeros((span, self._dates))
        for symbol in kept:
            valid_K, flags_LK = self._transformed(int(symbol))
            self._pairs_D += irfft(valid_K.conj() * valid_K, self._dates)
            self._flags_LD += irfft(valid_K.conj() * flags_LK, self._dates)
        self._pairs_D = np.rint(self._pairs_D)
        self._flags_LD = np.rint(self._flags_LD)
        nearest = -(-length * len(dates) // max(1, distinct))  # in dates
        admissible = step * np.arange(nearest, len(dates) - nearest + 1) if len(kept) else np.arange(0)
        admissible = admissible[self._pairs_D[admissible] > 0]
        if len(admissible) > MOST_SHIFTS:
            admissible = admissible[np.linspace(0, len(admissible) - 1, MOST_SHIFTS).round().astype(np.int64)]
        self.shifts = admissible
        self._independent = distinct // length

    def update(self, attention_nNL: Float[np.ndarray, "n N L"]) -> None:
        """Adds the next n queries."""
        start, self._next = self._next, self._next + len(attention_nNL)
        symbols = self._symbol_n[start : self._next]
        cuts = np.flatnonzero(np.diff(symbols)) + 1
        if self._held and self._symbol_n[start - 1] != symbols[0]:
            self._flush(start)
        for part_nNL, end in zip(np.split(attention_nNL, cuts), (*(start + cuts), self._next), strict=True):
            self._held.append(part_nNL)
            if end < self._next or sum(held.size for held in self._held) > BUFFER:
                self._flush(int(end))

    def kappas(self) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "N K"]]:
        """Observed kappa of each head, and that at each of `shifts`."""
        if self._held:
            self._flush(self._next)
        if not len(self.shifts):
            heads = len(self._observed_NK)
            return np.full(heads, np.nan), np.full((heads, 0), np.nan)
        chosen = np.concatenate(([0], self.shifts))
        pairs = self._pairs_D[chosen]
        observed = irfft(self._observed_NK, self._dates)[:, chosen] / pairs
        all_kappas = kappa(observed, self._expected_ND[:, chosen] / pairs**2)
        return all_kappas[:, 0], all_kappas[:, 1:]

    def test(self, tests: int) -> ShiftTest:
        """One-sided p of each head, one of `tests` heads x content probes.

        p = (1 + #{kappa_s >= kappa}) / (K + 1) over K shifts. Where even the smallest such p, 1 / (K + 1), is above
        .05 / tests, the upper t tail of (kappa - mean) / sd of the shifts instead, with D // L - 1 degrees of freedom:
        as neighbouring shifts share most of their windows, there are about D / L independent ones.
        """
        observed_N, null_NK = self.kappas()
        count = len(self.shifts)
        if count == 0:
            nothing = np.full(len(observed_N), np.nan)
            return ShiftTest(nothing, nothing, 0, False, self.left_out)
        mean, deviation = null_NK.mean(1), null_NK.std(1, ddof=1) if count > 1 else np.zeros(len(observed_N))
        tail = 1.0 / (count + 1) > 0.05 / tests
        if tail:
            varies = deviation > TIE
            z = (observed_N - mean) / np.where(varies, deviation, 1.0)
            p = np.where(varies, stats.t.sf(z, max(1, self._independent - 1)), 1.0)
        else:
            p = (1 + (null_NK >= observed_N[:, None] - TIE).sum(1)) / (count + 1)
        return ShiftTest(np.where(np.isnan(observed_N), np.nan, p), deviation, count, tail, self.left_out)

    def _flush(self, end: int) -> None:
        """Transforms and adds the held queries, all of one symbol, the last of which is number end - 1."""
        held_nNL = np.concatenate(self._held)
        self._held = []
        rows = np.arange(end - len(held_nNL), end)
        active = self._active[rows]
        if not active.any():
            return
        symbol = int(self._symbol_n[rows[0]])
        places = self._date_n[rows[active]]
        valid_K, flags_LK = self._transformed(symbol)
        complete = bool((self._pairs_D == self._pairs_D[0]).all())
        for head in range(held_nNL.shape[1]):
            series_LD = np.zeros((held_nNL.shape[2], self._dates))
            series_LD[:, places] = held_nNL[active, head].T
            attention_LK = rfft(series_LD).conj()
            self._observed_NK[head] += np.einsum("lk,lk->k", attention_LK, flags_LK)
            if complete:  # no pair lacks a partner at any shift: the sums of A do not depend on it
                self._expected_ND[head] += series_LD.sum(1) @ self._flags_LD
            else:
                paired_LD = irfft(attention_LK * valid_K, self._dates)
                self._expected_ND[head] += np.einsum("ld,ld->d", paired_LD, self._flags_LD)

    def _transformed(self, symbol: int) -> tuple[Complex[np.ndarray, " K"], Complex[np.ndarray, "L K"]]:
        """Spectra over dates of where the symbol has queries, and of their flags by offset."""
        rows = np.flatnonzero(self._active & (self._symbol_n == symbol))
        valid_D = np.zeros(self._dates)
        valid_D[self._date_n[rows]] = 1.0
        flags_LD = np.zeros((self._mask.flags.shape[1], self._dates))
        flags_LD[:, self._date_n[rows]] = self._mask.flags[rows].T
        return rfft(valid_D), rfft(flags_LD)


def benjamini_hochberg(p: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """False discovery rates q_(i) = min over j >= i of n p_(j) / j; a NaN among p is no test and stays NaN.

    Benjamini and Hochberg (1995), Controlling the False Discovery Rate, JRSS B 57.
    """
    q = np.full(p.shape, np.nan)
    tested = ~np.isnan(p)
    if tested.any():
        q[tested] = stats.false_discovery_control(p[tested], method="bh")
    return q
