"""Masks of what happened at a bar: a spike of volume like the query's own, the bar at which the trend began."""

from collections.abc import Callable
from typing import Final, TypeVar

import numpy as np
from jaxtyping import Float, Int

from forecaster.probes.masks import Mask, Probe, Queries
from forecaster.windows.panel import Panel

SPIKE: Final = 1.5  # z of a volume spike
ALIKE: Final = 0.5  # difference of z between spikes of like size
SCALE_BARS: Final = 250  # a year of sessions, over which the usual size of volume's surprises is taken
FEWEST_BARS: Final = 20
FLAT: Final = 1e-6  # a sum of squares less another keeps a rounding error
REVERSAL: Final = 3.0  # EWMA volatilities by which the price has turned when a pivot is confirmed
NOTHING: Final = -1

T = TypeVar("T")


def volume_spike() -> Probe:
    """The most recent earlier volume spike of like size, asked of queries that are spikes themselves.

    z = log volume against its trailing median, in units of volume_scale at the query: a spike has z > SPIKE, like size
    is |dz| <= ALIKE. A query that is no spike, or sees no earlier one like it, is not measurable.
    """
    scale = _once(volume_scale)

    def mask(panel: Panel, queries: Queries) -> Mask:
        unit_n = scale(panel)[queries.rows]
        rows, reached = queries.keys()
        if "log_volume" not in panel.feature_names:
            return Mask(np.zeros_like(reached), np.zeros(len(rows), dtype=np.bool_))
        z = panel.features[rows, panel.feature_names.index("log_volume")] / unit_n[:, None]
        alike = reached & (z > SPIKE) & (np.abs(z - z[:, :1]) <= ALIKE) & (z[:, :1] > SPIKE)
        alike[:, 0] = False
        flags = alike & (alike.cumsum(1) == 1)
        return Mask(flags, flags.any(1))

    return Probe("volume_spike", "profile", mask, window=2, directions=("past",))


def trend_origin() -> Probe:
    """The bar of the last pivot of price that was confirmed when the query was the newest bar.

    A query whose window does not hold it is not measurable.
    """
    origin = _once(pivots)

    def mask(panel: Panel, queries: Queries) -> Mask:
        found = origin(panel)[queries.rows]
        lag = queries.rows - found
        inside = (found != NOTHING) & (lag < queries.reach)
        flags = (np.arange(queries.span) == lag[:, None]) & inside[:, None]
        return Mask(flags, inside)

    return Probe("trend_origin", "profile", mask, window=2, directions=("past",))


def volume_scale(panel: Panel) -> Float[np.ndarray, " R"]:
    """Root mean square of log volume against its trailing median, over the last SCALE_BARS bars.

    Each symbol alone, known at the bar; NaN before FEWEST_BARS bars, where nothing varies and without volumes.
    """
    scale = np.full(len(panel.times), np.nan)
    if "log_volume" not in panel.feature_names:
        return scale
    column = panel.feature_names.index("log_volume")
    for symbol in range(len(panel.symbols)):
        first, end = panel.bounds(symbol)
        surprise = panel.features[first:end, column].astype(np.float64)
        known = np.isfinite(surprise)
        squares = np.concatenate(([0.0], np.where(known, surprise, 0.0) ** 2)).cumsum()
        counts = np.concatenate(([0], known)).cumsum()
        now = np.arange(1, end - first + 1)
        before = np.maximum(now - SCALE_BARS, 0)
        count = counts[now] - counts[before]
        size = np.sqrt(np.maximum(squares[now] - squares[before], 0.0) / np.maximum(count, 1))
        varies = known & (count >= FEWEST_BARS) & (size > FLAT)
        scale[first:end][varies] = size[varies]
    return scale


def pivots(panel: Panel) -> Int[np.ndarray, " R"]:
    """Row of the last zigzag pivot confirmed at each bar; NOTHING before the first.

    The highest close since the last low becomes a pivot at the first bar whose log close lies REVERSAL EWMA
    volatilities (of that bar) below it, and the lowest likewise above: nothing is known before it is confirmed.
    """
    found = np.full(len(panel.times), NOTHING, dtype=np.int64)
    if not {"log_return", "log_sigma"} <= set(panel.feature_names):
        return found
    returns, log_sigma = (panel.feature_names.index(name) for name in ("log_return", "log_sigma"))
    for symbol in range(len(panel.symbols)):
        first, end = panel.bounds(symbol)
        rows = panel.features[first:end]
        known = np.isfinite(rows[:, log_sigma])
        if known.any():
            start = first + int(known.argmax())
            steps = rows[start - first :, returns].astype(np.float64)
            turns = REVERSAL * np.exp(rows[start - first :, log_sigma].astype(np.float64))
            found[start:end] = _zigzag(steps.cumsum(), turns, start)
    return found


def _zigzag(price_n: Float[np.ndarray, " n"], turn_n: Float[np.ndarray, " n"], start: int) -> Int[np.ndarray, " n"]:
    """Row, counted from `start`, of the last pivot confirmed at each bar. The first leg may go either way."""
    found = np.full(len(price_n), NOTHING, dtype=np.int64)
    prices = price_n.tolist()
    top = bottom = 0
    rising = falling = True
    for bar, (price, turn) in enumerate(zip(prices, turn_n.tolist(), strict=True)):
        if price > prices[top]:
            top = bar
        if price < prices[bottom]:
            bottom = bar
        if rising and prices[top] - price >= turn:
            pivot, rising, falling = top, False, True
            bottom = min(range(top, bar + 1), key=prices.__getitem__)
        elif falling and price - prices[bottom] >= turn:
            pivot, rising, falling = bottom, True, False
            top = max(range(bottom, bar + 1), key=prices.__getitem__)
        else:
            continue
        found[bar] = start + pivot
    return _carried(found)


def _carried(found: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Each bar's value, or where it has none the last one before."""
    last = np.maximum.accumulate(np.where(found != NOTHING, np.arange(len(found)), 0))
    return found[last]


def _once(compute: Callable[[Panel], T]) -> Callable[[Panel], T]:
    """Keeps the result for the last panel asked: masks are made batch by batch, of whole series."""
    held: list[tuple[Panel, T]] = []

    def result(panel: Panel) -> T:
        if not held or held[0][0] is not panel:
            held[:] = [(panel, compute(panel))]
        return held[0][1]

    return result
