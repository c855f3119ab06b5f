"""Training, validation and test rows, separated by when each target is known."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Final

import numpy as np
import pandas as pd
from jaxtyping import Int

from forecaster.bars.calendar import Calendar
from forecaster.errors import ConfigError, DataError
from forecaster.windows.panel import GAPPED, KEPT, UNDEFINED, Panel

PARTS: Final = ("train", "validation", "test")
YEARS: Final = (1700, 2200)  # stamps in nanoseconds, which zones need, reach no further than 1678 to 2262


@dataclass(frozen=True)
class Count:
    """What became of a part's full windows, by symbol: full = kept + gapped + undefined + purged.

    A window belongs to the part in which its origin falls; full, over all parts, is max(0, n - w - L - H + 1).
    """

    kept: Int[np.ndarray, " S"]
    gapped: Int[np.ndarray, " S"]
    undefined: Int[np.ndarray, " S"]
    purged: Int[np.ndarray, " S"]

    @property
    def full(self) -> Int[np.ndarray, " S"]:
        """All of them."""
        return self.kept + self.gapped + self.undefined + self.purged

    @property
    def lost(self) -> dict[str, int]:
        """Windows left out, of all symbols together, by reason."""
        lost = {"across gaps": self.gapped, "undefined": self.undefined, "purged": self.purged}
        return {name: int(number.sum()) for name, number in lost.items() if number.any()}

    @property
    def told(self) -> str:
        """All symbols together in words: "812 (of 840: 20 across gaps, 8 purged)"."""
        words = [f"{number:,} {name}" for name, number in self.lost.items()]
        return f"{int(self.kept.sum()):,}" + (f" (of {int(self.full.sum()):,}: {', '.join(words)})" if words else "")


@dataclass(frozen=True)
class Split:
    """Origins (panel rows) of the three parts, each sorted by symbol and time, and the two ends between them.

    train_end, validation_end: the last instant of a part (of daily bars its last date), to compare times with;
    train_day, validation_day: its session date. counts: what became of every full window, by part.
    """

    train: Int[np.ndarray, " n"]
    validation: Int[np.ndarray, " m"]
    test: Int[np.ndarray, " k"]
    train_end: np.datetime64
    validation_end: np.datetime64
    train_day: str
    validation_day: str
    counts: Mapping[str, Count] = field(default_factory=dict[str, Count])

    @property
    def purged(self) -> int:
        """Windows without a gap and with known targets that straddle an end."""
        return sum(int(count.purged.sum()) for count in self.counts.values())


def boundary(panel: Panel, end: str | float, key: str) -> np.datetime64:
    """The last instant of a part: of a date's session, or of that up to which a fraction of the panel's sessions lie.

    Of daily bars the date itself; of intraday ones the end of that date in the calendar's zone, in UTC.
    """
    if isinstance(end, str):
        named = date.fromisoformat(end)
        if not YEARS[0] <= named.year <= YEARS[1]:
            raise ConfigError(f"{key}={end}: no date of bars: give one of the years {YEARS[0]} to {YEARS[1]}")
        return _end(panel, np.datetime64(named, "us"))
    if not 0 < end < 1:
        raise ConfigError(f"{key}={end}: a fraction must lie between 0 and 1; or give a date")
    return _end(panel, panel.sessions[max(0, round(end * len(panel.sessions)) - 1)])


def day(panel: Panel, instant: np.datetime64) -> str:
    """The session date of an instant, as text."""
    session = Calendar(panel.calendar).days(np.array([instant], dtype="datetime64[us]"), panel.interval)[0]
    return str(session)[:10]


def split(panel: Panel, length: int, train_end: str | float, validation_end: str | float, embargo: int = 0) -> Split:
    """Purged parts: a row belongs to the part in which its origin falls and its last target is known.

    train: target_time <= train_end. validation: train_end < origin and target_time <= validation_end.
    test: validation_end < origin. Rows that straddle a boundary are purged, and `embargo` sessions before each
    boundary besides. Rewriting every bar after a boundary therefore changes no row, feature or target before it.
    Lopez de Prado (2018), Advances in Financial Machine Learning, ch. 7. Raises DataError where a part is empty.
    """
    first, second = (
        boundary(panel, train_end, "split.train_end"),
        boundary(panel, validation_end, "split.validation_end"),
    )
    if first == second and not isinstance(train_end, str):
        raise DataError(
            f"too few sessions to split: {len(panel.sessions)}, at split.train_end={train_end} and "
            f"split.validation_end={validation_end}; bring more bars"
        )
    if not first < second:
        raise ConfigError(
            f"split.train_end={train_end} is not before split.validation_end={validation_end}: give them in order"
        )
    known_by = _embargoed(panel, first, embargo), _embargoed(panel, second, embargo)
    rows: dict[str, list[np.ndarray]] = {name: [] for name in PARTS}
    counts = np.zeros((len(PARTS), 4, len(panel.symbols)), dtype=np.int64)
    for symbol in range(len(panel.symbols)):
        own, fate = panel.candidates(symbol, length)
        # Within a symbol origins and their target times are in order: parts are stretches.
        cuts = [0, *np.searchsorted(panel.times[own], (first, second), side="right"), len(own)]
        timely = [*np.searchsorted(panel.target_times[own, -1], known_by, side="right"), len(own)]
        for number, (begin, end) in enumerate(itertools.pairwise(cuts)):
            late = min(max(begin, timely[number]), end)
            rows[PARTS[number]].append(own[begin:late][fate[begin:late] == KEPT])
            kept, gapped, undefined = np.bincount(fate[begin:late], minlength=3)
            purged, *others = np.bincount(fate[late:end], minlength=3)
            counts[number, :, symbol] = kept, gapped + others[GAPPED - 1], undefined + others[UNDEFINED - 1], purged
    parts = Split(
        **{name: np.concatenate(found) for name, found in rows.items()},
        train_end=first,
        validation_end=second,
        train_day=day(panel, first),
        validation_day=day(panel, second),
        counts={name: Count(*numbers) for name, numbers in zip(PARTS, counts, strict=True)},
    )
    for name in PARTS:
        if len(getattr(parts, name)) == 0:
            raise DataError(_empty(name, panel, parts, length))
    return parts


def _end(panel: Panel, session: np.datetime64) -> np.datetime64:
    if panel.interval == "1d":
        return session
    end = Calendar(panel.calendar).end(pd.Timestamp(session))
    return np.datetime64(end.tz_localize(None), "us") - np.timedelta64(1, "us")


def _embargoed(panel: Panel, end: np.datetime64, embargo: int) -> np.datetime64:
    if embargo == 0:
        return end
    place = int(np.searchsorted(panel.sessions, np.datetime64(day(panel, end), "us"), side="right"))
    return _end(panel, panel.sessions[max(0, place - 1 - embargo)])


def _empty(name: str, panel: Panel, parts: Split, length: int) -> str:
    count = parts.counts[name]
    lost = int(count.full.sum())
    left_out = f"; {lost} were left out: {count.told}" if lost else ""
    gaps = ", raise data.max_gap" if count.gapped.any() else ""
    return (
        f"the {name} part has no window: bars run {day(panel, panel.times.min())} to {day(panel, panel.times.max())}, "
        f"split.train_end={parts.train_day}, split.validation_end={parts.validation_day}, model.window={length}, "
        f"horizon {panel.horizon}{left_out}; move the dates, shorten the window{gaps} or bring more bars"
    )
