"""Training, validation and test rows, separated by when each target is known."""

from dataclasses import dataclass
from datetime import date

import numpy as np
from jaxtyping import Int

from forecaster.errors import ConfigError, DataError
from forecaster.windows.panel import Panel


@dataclass(frozen=True)
class Split:
    """Origins (panel rows) of the three parts, each sorted by symbol and time, and the two dates between them."""

    train: Int[np.ndarray, " n"]
    validation: Int[np.ndarray, " m"]
    test: Int[np.ndarray, " k"]
    train_end: np.datetime64
    validation_end: np.datetime64
    purged: int


def boundary(panel: Panel, end: str | float, key: str) -> np.datetime64:
    """The last session of a part: a date as it stands, or a fraction of the distinct sessions of the panel."""
    if isinstance(end, str):
        return np.datetime64(date.fromisoformat(end), "us")
    sessions = np.unique(panel.times)
    if not 0 < end < 1:
        raise ConfigError(f"{key}={end}: a fraction must lie between 0 and 1; or give a date")
    return sessions[max(0, round(end * len(sessions)) - 1)]


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
            f"too few sessions to split: {len(np.unique(panel.times))}, at split.train_end={train_end} and "
            f"split.validation_end={validation_end}; bring more bars"
        )
    if not first < second:
        raise ConfigError(
            f"split.train_end={train_end} is not before split.validation_end={validation_end}: give them in order"
        )
    rows = panel.origins(length)
    origin, known = panel.times[rows], panel.target_times[rows, -1]
    train = known <= _embargoed(panel, first, embargo)
    validation = (origin > first) & (known <= _embargoed(panel, second, embargo))
    test = origin > second
    parts = Split(rows[train], rows[validation], rows[test], first, second, int((~(train | validation | test)).sum()))
    for name in ("train", "validation", "test"):
        if len(getattr(parts, name)) == 0:
            raise DataError(_empty(name, panel, first, second, length))
    return parts


def _embargoed(panel: Panel, end: np.datetime64, embargo: int) -> np.datetime64:
    if embargo == 0:
        return end
    sessions = np.unique(panel.times)
    return sessions[max(0, int(np.searchsorted(sessions, end, side="right")) - 1 - embargo)]


def _empty(name: str, panel: Panel, first: np.datetime64, second: np.datetime64, length: int) -> str:
    day = {
        key: str(np.datetime_as_string(value, unit="D"))
        for key, value in {"from": panel.times.min(), "to": panel.times.max(), "first": first, "second": second}.items()
    }
    return (
        f"the {name} part has no window: bars run {day['from']} to {day['to']}, split.train_end={day['first']}, "
        f"split.validation_end={day['second']}, model.window={length}, horizon {panel.horizon}; "
        "move the dates, shorten the window or bring more bars"
    )
