"""Masks: the bars that a probe says matter to a query.

Everything here is in offsets from the query bar, so that a head that always looks the same way has the same numbers in
every window: past offset j is the bar j before the query (0 = itself), future offset j the bar j + 1 after it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np
from jaxtyping import Bool, Int, Shaped

from forecaster.errors import ConfigError
from forecaster.windows.panel import Panel

Direction = Literal["past", "future"]
Chance = Literal["visible", "neighbours", "profile"]

FEWEST_MONTHS: Final = 30
MONTH_BARS: Final = 25  # the fewest bars of a window that can hold the bar a month before
LARGEST_MOVES: Final = 3
NEIGHBOURS: Final = (-2, -1, 1, 2)  # bars beside the weekly one that say what to expect there
WEEK: Final = np.timedelta64(7, "D")


@dataclass(frozen=True)
class Queries:
    """Query bars: their panel rows, how many offsets each reaches in this direction, how many bars it sees in all."""

    rows: Int[np.ndarray, " n"]
    reach: Int[np.ndarray, " n"]
    visible: Int[np.ndarray, " n"]
    span: int
    direction: Direction = "past"

    def keys(self) -> tuple[Int[np.ndarray, "n L"], Bool[np.ndarray, "n L"]]:
        """Panel row of the bar at each offset, and whether the query reaches it (the query's own row where not)."""
        offsets = np.arange(self.span)
        reached = offsets < self.reach[:, None]
        rows = self.rows[:, None] + (-offsets if self.direction == "past" else offsets + 1)
        return np.where(reached, rows, self.rows[:, None]), reached


@dataclass(frozen=True)
class Mask:
    """Flagged offsets of each query, and the queries at which the probe can be asked at all (no flags elsewhere)."""

    flags: Bool[np.ndarray, "n L"]
    measurable: Bool[np.ndarray, " n"]


@dataclass(frozen=True)
class Probe:
    """A claim: that a head looks at the bars that `mask` flags.

    `chance` says what attention the flagged bars would get by chance: `visible`, as much as any bar in sight;
    `neighbours`, as much as the bars beside them in the same query; `profile`, what the head gives to their offsets
    whatever is there. The last kind is a content probe, the others are positional.
    `window` is the fewest bars of a window at which the probe can be asked. `lacking` says what the bars lack where
    it can't be asked of any of them.

    Raises ConfigError for another chance, and at its first use for a mask that is none.
    """

    name: str
    chance: Chance
    mask: Callable[[Panel, Queries], Mask]
    window: int = 1
    directions: tuple[Direction, ...] = ("past", "future")
    lacking: str = ""

    def __post_init__(self) -> None:
        if self.chance not in get_args(Chance):
            known = ", ".join(get_args(Chance))
            raise ConfigError(f"probe {self.name}: chance {self.chance!r} is unknown: give one of {known}")

    @property
    def content(self) -> bool:
        """Whether the flags depend on what happened at the bars."""
        return self.chance == "profile"

    def at(self, panel: Panel, queries: Queries) -> Mask:
        """The mask for these queries; nothing is measurable in windows shorter than the probe needs.

        Flags where it can't be asked are taken away.
        """
        count = len(queries.rows)
        if queries.span < self.window or self.lacking:
            return Mask(np.zeros((count, queries.span), dtype=np.bool_), np.zeros(count, dtype=np.bool_))
        found = self.mask(panel, queries)
        for name, array, shape in (
            ("flags", found.flags, (count, queries.span)),
            ("measurable", found.measurable, (count,)),
        ):
            if array.dtype != np.bool_ or array.shape != shape:
                raise ConfigError(
                    f"probe {self.name}: its mask's {name} are {array.dtype} of shape {array.shape}: give bool of "
                    f"shape {shape}"
                )
        return _where(found.flags, found.measurable)


def recency(width: int) -> Probe:
    """The last `width` bars, {offset < width}."""

    def mask(panel: Panel, queries: Queries) -> Mask:
        flags = (np.arange(queries.span) < width) & (np.arange(queries.span) < queries.reach[:, None])
        return _where(flags, (queries.reach >= width) & (queries.visible > width))

    return Probe("recency", "visible", mask, window=width + 1)


def weekly(week_bars: int, weeks: tuple[int, ...] = (1,)) -> Probe:
    """The bar a week (or several) from the query bar by the calendar, at the same clock time."""

    def mask(panel: Panel, queries: Queries) -> Mask:
        sign = -1 if queries.direction == "past" else 1
        return _dated(panel, queries, _weeks_from(panel, panel.times[queries.rows], [sign * n for n in weeks]))

    return Probe("weekly", "neighbours", mask, window=max(weeks) * week_bars + 1)


def weekly_target(week_bars: int, weeks: tuple[int, ...] = (1,)) -> Probe:
    """The bar a week (or several) before the query's first target bar: one offset nearer for a one-bar step."""

    def mask(panel: Panel, queries: Queries) -> Mask:
        return _dated(panel, queries, _weeks_from(panel, panel.target_times[queries.rows, 0], [-n for n in weeks]))

    return Probe("weekly_target", "neighbours", mask, window=max(weeks) * week_bars + 1, directions=("past",))


def monthly(months: int) -> Probe:
    """The bar of the same day one month before the query (the month's last day where it has none), same clock time.

    months: how many calendar months the queries come from; of fewer than FEWEST_MONTHS nothing is measurable.
    """

    def mask(panel: Panel, queries: Queries) -> Mask:
        clock = panel.clock(panel.times[queries.rows])
        return _dated(panel, queries, [_at_clock(panel, panel.times[queries.rows], _month_before(clock))])

    lacking = (
        "" if months >= FEWEST_MONTHS else f"{months} months of validation and test, the probe needs {FEWEST_MONTHS}"
    )
    return Probe("monthly", "neighbours", mask, window=MONTH_BARS, directions=("past",), lacking=lacking)


def large_move(largest: int = LARGEST_MOVES) -> Probe:
    """The `largest` moves in sight, by |r| / sigma_EWMA of the bar before; of equal ones the nearest to the query.

    A raw |r| would flag calm and wild stretches, and so any head whose reach follows volatility. A query that sees
    fewer moves than that (a flat series) is not measurable.
    """

    def mask(panel: Panel, queries: Queries) -> Mask:
        rows, reached = queries.keys()
        size = np.abs(panel.features[rows, panel.feature_names.index("shock")]).astype(np.float64)
        size = np.where(reached & np.isfinite(size), size, -1.0)
        order = np.argsort(-size, axis=1, kind="stable")[:, :largest]
        flags = np.zeros(size.shape, dtype=np.bool_)
        np.put_along_axis(flags, order, True, axis=1)
        smallest = np.take_along_axis(size, order[:, -1:], axis=1)[:, 0]
        return _where(flags, (queries.reach > largest) & (smallest > 0))

    return Probe("large_move", "profile", mask, window=largest + 1)


def _dated(panel: Panel, queries: Queries, stamps: Sequence[Shaped[np.ndarray, " n"]]) -> Mask:
    """Flags of the bars that stand at each query's stamps; a query that reaches none of them is not measurable."""
    flags = np.zeros((len(queries.rows), queries.span), dtype=np.bool_)
    measurable = np.zeros(len(queries.rows), dtype=np.bool_)
    for times in stamps:
        found = _bar_at(panel, queries.rows, times)
        offset = queries.rows - found if queries.direction == "past" else found - queries.rows - 1
        inside = (found >= 0) & (offset >= 0) & (offset < queries.reach)
        flags[np.flatnonzero(inside), offset[inside]] = True
        measurable |= inside
    return _where(flags, measurable)


def _weeks_from(panel: Panel, times: Shaped[np.ndarray, " n"], weeks: Sequence[int]) -> list[Shaped[np.ndarray, " n"]]:
    """The instants some weeks later at which the market's clock shows the same weekday and time, for each number."""
    return [_at_clock(panel, times, panel.clock(times) + count * WEEK) for count in weeks]


def _at_clock(
    panel: Panel, times: Shaped[np.ndarray, " n"], wanted: Shaped[np.ndarray, " n"]
) -> Shaped[np.ndarray, " n"]:
    """The instants at which the market's clock shows what is wanted; NaT for none."""
    plain = times + (wanted - panel.clock(times))
    # Over a clock change that is an hour more or less.
    moved = plain + (wanted - panel.clock(plain))
    return np.where(panel.clock(moved) == wanted, moved, np.datetime64("NaT"))


def _month_before(clock: Shaped[np.ndarray, " n"]) -> Shaped[np.ndarray, " n"]:
    """The same day and time of the month before, at most that month's last day."""
    month = clock.astype("datetime64[M]")
    begin, end = (month - 1).astype(clock.dtype), month.astype(clock.dtype)
    day = clock.astype("datetime64[D]").astype(clock.dtype)
    return np.minimum(begin + (day - end), end - np.timedelta64(1, "D")) + (clock - day)


def _bar_at(panel: Panel, rows: Int[np.ndarray, " n"], times: Shaped[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Panel row of the bar of the same symbol at exactly that time, -1 where there is none."""
    found = np.full(len(rows), -1, dtype=np.int64)
    ids = panel.symbol_ids[rows]
    for symbol in np.unique(ids):
        first, end = panel.bounds(int(symbol))
        mine = np.flatnonzero(ids == symbol)
        place = np.minimum(first + np.searchsorted(panel.times[first:end], times[mine]), end - 1)
        found[mine] = np.where(panel.times[place] == times[mine], place, -1)
    return found


def _where(flags: Bool[np.ndarray, "n L"], measurable: Bool[np.ndarray, " n"]) -> Mask:
    return Mask(flags & measurable[:, None], measurable)
