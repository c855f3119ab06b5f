"""The shift null: what a content probe would score if the same bars had been flagged at another time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
from jaxtyping import Bool, Complex, Float, Int, Shaped
from numpy.fft import irfft, rfft
from scipy import fft, stats

from forecaster.probes.intervals import pace
from forecaster.probes.masks import Mask
from forecaster.probes.statistics import kappa

MOST_SHIFTS: Final = 9_999
FEWEST_WINDOWS: Final = 3  # a symbol takes part from 3 L windows on
TIE: Final = 1e-9  # of kappa: a head without any contrast scores the same at every shift, but for rounding
MOST_PLACES: Final = 20_000
# Of the pairs of the fullest shift. Of a probe that asks few queries of several symbols that one has fewer than the
# observed figure, whose spread is then smaller than that of the shifts: p is too large.
FEWEST_PAIRS: Final = 0.5
BUFFER: Final = 1 << 20  # weights held before they are transformed (4 MB)
HELD_SHARE: Final = 1 / 16  # of a circle that is held at least: each transform is as long as all of it
AT_ONCE: Final = 1 << 17  # numbers transformed at a time (1 MB): it stays in the cache, and makes room for the next


@dataclass(frozen=True)
class ShiftTest:
    """p of each head, the shifts' standard deviation, their number K, whether p is a t tail, symbols left out."""

    p: Float[np.ndarray, " N"]
    deviation: Float[np.ndarray, " N"]
    shifts: int
    tail: bool
    left_out: int


@dataclass(frozen=True)
class Frame:
    """`width` places of a circle of D from `start` on, and the length of the transforms by which they meet it.

    sum_u a[u] t[(start + u + s) mod D] for all s at once. D itself where it is quick to transform: a prime near 20,000
    takes six times as long. Else zeros fill a length that is, and the circle goes on behind its end.
    """

    start: int
    width: int
    size: int

    @classmethod
    def of(cls, places: Int[np.ndarray, " m"], circle: int) -> "Frame":
        """The narrowest one that holds the places."""
        if _quick(circle) == circle:
            return cls(0, circle, circle)
        start, width = int(places.min()), int(np.ptp(places)) + 1
        return cls(start, width, _quick(circle + width - 1))

    def around(self, circle_lD: Shaped[np.ndarray, "l D"]) -> Complex[np.ndarray, "l K"]:
        """Spectra of the circle, from the frame's start on."""
        behind = min(self.width - 1, self.size - circle_lD.shape[1])
        around = np.concatenate((circle_lD[:, self.start :], circle_lD[:, : self.start + behind]), axis=1)
        return rfft(around, self.size)


class Shifts:
    """The flags of a content probe at every admissible shift along the union of dates, one shift for all symbols.

    At shift s the query of date d meets the flags of its symbol's query at date (d + s) mod D; pairs without a partner
    are dropped. Only dates with a measurable query count: of a probe that asks few queries, flags are shifted within
    those. Shifts are admissible that bring every query a window away or farther, either way (a window as long as the
    slowest symbol's is on average): `length` dates where all are measurable, and that have FEWEST_PAIRS of the pairs of
    the fullest one at least. Of more than MOST_SHIFTS, as many
    evenly spaced ones.
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
        self.active, self.span = mask.measurable & among, int(mask.flags.shape[1])
        dates, date_n = np.unique(times[self.active], return_inverse=True)
        every = np.unique(times[among])
        step, slot_n = 1, np.zeros(len(date_n), dtype=np.int64)
        if slots is not None:
            kinds, slot_n = np.unique(slots[self.active], return_inverse=True)
            step = max(1, len(kinds))  # places of a date
        stretches = max(1, -(-len(dates) * step // MOST_PLACES))
        long = max(1, -(-len(dates) // stretches))  # dates of a stretch
        self.places = long * step
        self._place_n = np.zeros(len(times), dtype=np.int64)
        self._place_n[self.active] = (date_n % long) * step + slot_n
        # A circle is a stretch of dates of one symbol. Queries that are not asked stay in that of the one before.
        self.circle_n = symbol_ids.astype(np.int64) * stretches
        stretch_n = np.searchsorted(dates, times, side="right") - 1
        self.circle_n += np.clip(stretch_n // long, 0, stretches - 1)
        self._packed = np.packbits(mask.flags, axis=1)
        self._held: tuple[int, Bool[np.ndarray, "L D"]] | None = None
        self.pairs_D, self.flags_LD = np.zeros(self.places), np.zeros((self.span, self.places), dtype=np.int32)
        for circle in np.unique(self.circle_n[self.active]).tolist():
            asked_1D = self.asked(circle)
            frame = Frame.of(np.flatnonzero(asked_1D[0]), self.places)
            asked_1K = rfft(asked_1D[:, frame.start : frame.start + frame.width], frame.size).conj()
            self.pairs_D += irfft(asked_1K * frame.around(asked_1D), frame.size)[0, : self.places]
            for lags in self.lags:
                paired_lD = irfft(asked_1K * frame.around(self.flags(circle)[lags]), frame.size)[:, : self.places]
                self.flags_LD[lags] += np.rint(paired_lD).astype(np.int32)
        self.pairs_D = np.rint(self.pairs_D)
        self.complete = bool((self.pairs_D == self.pairs_D[:1]).all())
        asked, over = pace(np.searchsorted(every, times[among]), symbol_ids[among], length)
        apart = -(-length * over // asked)  # a window of the slowest symbol, in dates of all queries
        nearest = _nearest(np.searchsorted(every, dates), apart)
        admissible = step * np.arange(nearest, long - nearest + 1) if len(kept) else np.arange(0)
        pairs = self.pairs_D[admissible]
        admissible = admissible[pairs >= max(1.0, FEWEST_PAIRS * pairs.max(initial=0.0))]
        if len(admissible) > MOST_SHIFTS:
            admissible = admissible[np.linspace(0, len(admissible) - 1, MOST_SHIFTS).round().astype(np.int64)]
        self.admissible = admissible
        self.independent = len(every) * asked // (over * length)

    @property
    def lags(self) -> list[slice]:
        """All offsets, as many at a time as are transformed at once."""
        count = max(1, AT_ONCE // max(1, self.places))
        return [slice(first, min(first + count, self.span)) for first in range(0, self.span, count)]

    def asked(self, circle: int) -> Bool[np.ndarray, "1 D"]:
        """Where a circle has queries that count."""
        asked_1D = np.zeros((1, self.places), dtype=np.bool_)
        asked_1D[0, self._place_n[self._rows(circle)]] = True
        return asked_1D

    def flags(self, circle: int) -> Bool[np.ndarray, "L D"]:
        """A circle's flags by offset."""
        if self._held is None or self._held[0] != circle:  # every layer asks for the same ones
            rows = self._rows(circle)
            flags_LD = np.zeros((self.span, self.places), dtype=np.bool_)
            flags_LD[:, self._place_n[rows]] = np.unpackbits(self._packed[rows], axis=1, count=self.span).T
            self._held = circle, flags_LD
        return self._held[1]

    def asked_of(self, start: int, end: int) -> Iterator[tuple[int, Int[np.ndarray, " m"], Int[np.ndarray, " m"]]]:
        """Of queries start to end - 1 those that count, by circle: the circle, their rows, their places."""
        row_m = np.flatnonzero(self.active[start:end])
        circle_m, place_m = self.circle_n[start + row_m], self._place_n[start + row_m]
        cuts = np.flatnonzero(np.diff(circle_m)) + 1
        for part in np.split(np.arange(len(row_m)), cuts):
            if len(part):
                yield int(circle_m[part[0]]), row_m[part], place_m[part]

    def _rows(self, circle: int) -> Int[np.ndarray, " m"]:
        start, end = np.searchsorted(self.circle_n, [circle, circle + 1])
        return start + np.flatnonzero(self.active[start:end])


class ShiftNull:
    """Kappa of every head at every admissible shift of a probe's flags.

    With n_s pairs at shift s, over which all means run,
        O_s = sum A[d, j] T[d+s, j] / n_s,   E_s = sum_j mean A(j) mean T(j),   kappa_s = (O_s - E_s) / (1 - E_s),
    so that s = 0 is the observed figure. All sums are circular correlations over dates, taken by FFT for each offset.
    """

    def __init__(self, shifts: Shifts, heads: int) -> None:
        self.shifts, self.heads = shifts, heads
        self._next = self._count = 0
        self._room = -(-max(BUFFER, int(HELD_SHARE * shifts.flags_LD.size * heads)) // (heads * shifts.span))
        self._held_mNL = np.empty((0, heads, shifts.span))
        self._place_m, self._circle = np.empty(self._room, dtype=np.int64), -1
        self._observed_ND = np.zeros((heads, shifts.places))
        self._expected_ND = np.zeros((heads, 0 if shifts.complete else shifts.places))
        self._mass_NL = np.zeros((heads, shifts.span))

    def update(self, attention_nNL: Float[np.ndarray, "n N L"]) -> None:
        """Adds the next n queries; those that count wait in a copy for the others of their circle.

        One piece of memory for all that wait: arrays of the caller's, held here and there, would keep apart what is
        free between them.
        """
        start, self._next = self._next, self._next + len(attention_nNL)
        if not len(self._held_mNL):
            self._held_mNL = np.empty((self._room, self.heads, self.shifts.span), dtype=attention_nNL.dtype)
        for circle, row_m, place_m in self.shifts.asked_of(start, self._next):
            if circle != self._circle:
                self._flush()
                self._circle = circle
            while len(row_m):
                free = slice(self._count, min(self._count + len(row_m), self._room))
                taken = free.stop - free.start
                self._held_mNL[free], self._place_m[free] = attention_nNL[row_m[:taken]], place_m[:taken]
                row_m, place_m, self._count = row_m[taken:], place_m[taken:], free.stop
                if self._count == self._room:
                    self._flush()

    def kappas(self) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "N K"]]:
        """Observed kappa of each head, and that at each admissible shift."""
        self._flush()
        self._held_mNL = np.empty((0, self.heads, self.shifts.span), dtype=self._held_mNL.dtype)
        if not len(self.shifts.admissible):
            return np.full(self.heads, np.nan), np.full((self.heads, 0), np.nan)
        chosen = np.concatenate(([0], self.shifts.admissible))
        pairs = self.shifts.pairs_D[chosen]
        observed = self._observed_ND[:, chosen] / pairs
        if self.shifts.complete:
            expected = self._mass_NL @ self.shifts.flags_LD[:, chosen].astype(np.float64)
        else:
            expected = self._expected_ND[:, chosen]
        all_kappas = kappa(observed, expected / pairs**2)
        return all_kappas[:, 0], all_kappas[:, 1:]

    def test(self, tests: int) -> ShiftTest:
        """One-sided p of each head, one of `tests` heads x content probes.

        p = (1 + #{kappa_s >= kappa}) / (K + 1) over K shifts. Where even the smallest such p, 1 / (K + 1), is above
        .05 / tests, the upper t tail of (kappa - mean) / sd of the shifts instead, with D pace // L - 1 degrees of
        freedom, D dates of all queries and the pace of the slowest symbol: as neighbouring shifts share most of their
        windows, about as many are independent.
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

    def _flush(self) -> None:
        """Transforms and adds the queries that wait, all of one circle."""
        if not self._count:
            return
        shifts, circle, places = self.shifts, self._circle, self.shifts.places
        held_mNL, place_m = self._held_mNL[: self._count], self._place_m[: self._count]
        self._count = 0
        frame = Frame.of(place_m, places)
        asked_1K = None if shifts.complete else frame.around(shifts.asked(circle))
        observed_NK = np.zeros((self.heads, frame.size // 2 + 1), dtype=np.complex128)
        for lags in shifts.lags:
            flags_lK = frame.around(shifts.flags(circle)[lags])
            series_lD = np.zeros((lags.stop - lags.start, frame.width))  # 0 at every other date
            for head in range(self.heads):
                series_lD[:, place_m - frame.start] = held_mNL[:, head, lags].T
                attention_lK = rfft(series_lD, frame.size)
                np.conj(attention_lK, out=attention_lK)
                observed_NK[head] += np.einsum("lk,lk->k", attention_lK, flags_lK)
                if asked_1K is None:  # no pair lacks a partner at any shift: the sums of A do not depend on it
                    self._mass_NL[head, lags] += series_lD.sum(1)
                else:
                    attention_lK *= asked_1K
                    paired_lD = irfft(attention_lK, frame.size)[:, :places]
                    self._expected_ND[head] += np.einsum("ld,ld->d", paired_lD, shifts.flags_LD[lags])
        self._observed_ND += irfft(observed_NK, frame.size)[:, :places]


def _quick(length: int) -> int:
    """The next length that has small factors only."""
    return cast(Callable[..., int], fft.next_fast_len)(length, real=True)


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
