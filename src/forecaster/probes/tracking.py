"""What a head follows as time goes on: dates or lags, the calendar or a number of bars."""

import numpy as np
from jaxtyping import Float, Int

from forecaster.probes.intervals import Interval, jackknife, mean
from forecaster.probes.masks import Mask
from forecaster.probes.statistics import by_block


class DateTracking:
    """Whether attention stays on a bar as it grows older, from consecutive windows of a symbol.

    sum_j min(A[d, j + 1], A[d - 1, j]) - sum_j min(A[d, j], A[d - 1, j]): overlap by date less overlap by lag. Above 0
    for heads that follow what happened, below for those that follow positions.
    """

    def __init__(self, block_count: int, heads: int) -> None:
        self.counts_b, self.sums_bN = np.zeros(block_count), np.zeros((block_count, heads))
        self._row = -1
        self._before_1NL: Float[np.ndarray, "1 N L"] | None = None

    def update(
        self, attention_nNL: Float[np.ndarray, "n N L"], rows: Int[np.ndarray, " n"], block_n: Int[np.ndarray, " n"]
    ) -> None:
        """Adds queries, in the order of the panel's rows."""
        before_1NL = attention_nNL[:1] if self._before_1NL is None else self._before_1NL
        before_nNL = np.concatenate((before_1NL, attention_nNL[:-1]))
        follows = rows == np.concatenate(([self._row], rows[:-1])) + 1
        by_lag = np.minimum(attention_nNL, before_nNL).sum(-1)
        by_date = np.minimum(attention_nNL[..., 1:], before_nNL[..., :-1]).sum(-1)
        self.counts_b += by_block(follows.astype(np.float64), block_n, len(self.counts_b))
        self.sums_bN += by_block((by_date - by_lag) * follows[:, None], block_n, len(self.counts_b))
        self._row, self._before_1NL = int(rows[-1]), attention_nNL[-1:].copy()

    def overlap(self) -> Interval:
        """Mean of the difference, by head."""
        return mean(self.counts_b, self.sums_bN)


class CalendarOrLag:
    """Whether a weekly head counts days or bars: D = (A_calendar - A_lag) / (A_calendar + A_lag) in odd weeks.

    A_calendar: attention on the bar of the same weekday and time, A_lag: on the bar `usual` bars back, over the queries
    where these are two (a holiday or an early close lies between). 1: the calendar; -1: the number of bars.
    """

    def __init__(self, usual: int, block_count: int, heads: int) -> None:
        self.usual, self.counts_b = usual, np.zeros(block_count)
        self.calendar_bN, self.lag_bN = np.zeros((2, block_count, heads))

    def update(self, attention_nNL: Float[np.ndarray, "n N L"], mask: Mask, block_n: Int[np.ndarray, " n"]) -> None:
        """Adds queries; the mask flags one bar of each that is measurable."""
        odd = np.flatnonzero(mask.measurable & ~mask.flags[:, self.usual])
        count, block_o = len(self.counts_b), block_n[odd]
        self.counts_b += np.bincount(block_o, minlength=count)
        self.calendar_bN += by_block(attention_nNL[odd, :, mask.flags[odd].argmax(1)], block_o, count)
        self.lag_bN += by_block(attention_nNL[odd, :, self.usual], block_o, count)

    def share(self) -> Float[np.ndarray, " N"]:
        """Mean attention on the two bars together, by head."""
        return (self.calendar_bN + self.lag_bN).sum(0) / max(1.0, self.counts_b.sum())

    def difference(self) -> Interval:
        """D with its interval, by head."""

        def ratio(
            _: Float[np.ndarray, " R"], calendar_RN: Float[np.ndarray, "R N"], lag_RN: Float[np.ndarray, "R N"]
        ) -> Float[np.ndarray, "R N"]:
            both = calendar_RN + lag_RN
            return np.where(both > 0, (calendar_RN - lag_RN) / np.where(both > 0, both, 1.0), np.nan)

        return jackknife(ratio, self.calendar_bN, self.lag_bN, counts_b=self.counts_b)
