"""The panel: every symbol's features and targets in contiguous arrays, in which a window is a row number."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Shaped

from forecaster.bars.calendar import Calendar, clocks
from forecaster.bars.contract import Bars, symbol_bounds
from forecaster.errors import DataError
from forecaster.windows.arrays import allocate
from forecaster.windows.features import CLOCK, FEATURES, NEEDS, WARMUP, WEEKDAYS, ahead, available, features
from forecaster.windows.targets import FEATURE, possible, targets
from forecaster.windows.week import week_bars

KEPT: Final = 0
GAPPED: Final = 1
UNDEFINED: Final = 2
SEEN: Final = 30_000  # bars in which a symbol shows its hours: 20 sessions of minutes around the clock


def _no_rows() -> Int[np.ndarray, " G"]:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Panel:
    """Rows of all symbols one after the other, row r being one bar.

    features float32 [R, F], raw; targets float64 [R, H, C], value at step h for origin r, NaN where unknown;
    past float64 [R, C], each target's own series at its own bar; times [R] and target_times [R, H], datetime64[us],
    session dates or (intraday) instants in UTC. gaps: rows before which more bars are missing than a window may span.
    off: features and targets that the bars don't allow, in words.
    """

    features: Float[np.ndarray, "R F"]
    targets: Float[np.ndarray, "R H C"]
    past: Float[np.ndarray, "R C"]
    times: Shaped[np.ndarray, " R"]
    target_times: Shaped[np.ndarray, "R H"]
    symbol_ids: Int[np.ndarray, " R"]
    symbols: tuple[str, ...]
    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    calendar: str
    week_bars: int
    interval: str = "1d"
    gaps: Int[np.ndarray, " G"] = field(default_factory=_no_rows)
    off: tuple[str, ...] = ()

    @property
    def horizon(self) -> int:
        """Steps forecast, H."""
        return self.targets.shape[1]

    def rows(self, origins: Int[np.ndarray, " B"], length: int) -> Int[np.ndarray, "B L"]:
        """Row numbers of the windows of L bars that end at the origins."""
        return origins[:, None] + np.arange(1 - length, 1)

    def window(self, origins: Int[np.ndarray, " B"], length: int) -> Float[np.ndarray, "B L F"]:
        """Features of the windows that end at the origins: one gather."""
        return self.features[self.rows(origins, length)]

    def past_window(self, origins: Int[np.ndarray, " B"], length: int) -> Float[np.ndarray, "B L C"]:
        """The targets' own series over the windows that end at the origins."""
        return self.past[self.rows(origins, length)]

    def future(self, origins: Int[np.ndarray, " B"]) -> Float[np.ndarray, "B H K"]:
        """What is known at the origins of the calendar of the H bars to come: of when they are due, not of when they
        came, which would foretell a halt.
        """
        times_BH = Calendar(self.calendar).due(self.times[origins], self.horizon, self.interval)
        clock_BH = self.clock(times_BH.reshape(-1)).reshape(times_BH.shape)
        return ahead(clock_BH, self.interval != "1d").astype(np.float32)

    @property
    def future_size(self) -> int:
        """Numbers K that `future` gives for a bar."""
        return len(WEEKDAYS) + (len(CLOCK) if self.interval != "1d" else 0)

    def time(self, row: int) -> pd.Timestamp:
        """When a row's bar is: its date, or (intraday) its instant, aware."""
        stamp = pd.Timestamp(self.times[row])
        return stamp if self.interval == "1d" else stamp.tz_localize("UTC")

    def times_after(self, origins: Int[np.ndarray, " B"]) -> Shaped[np.ndarray, "B H"]:
        """When the next H bars of each origin's symbol are due, by its calendar and the hours it has had bars at."""
        calendar = Calendar(self.calendar)
        due = np.empty((len(origins), self.horizon), dtype="datetime64[us]")
        for number, origin in enumerate(map(int, origins)):
            first, _ = self.bounds(int(self.symbol_ids[origin]))
            seen = self.times[max(first, origin + 1 - SEEN) : origin + 1]
            ahead = calendar.after(self.time(origin), self.horizon, self.interval, seen)
            due[number] = pd.DatetimeIndex(ahead).tz_localize(None).to_numpy(dtype="datetime64[us]")
        return due

    def clock(self, times: Shaped[np.ndarray, " n"]) -> Shaped[np.ndarray, " n"]:
        """What a clock in the market's zone shows at these times; dates as they stand."""
        return times if self.interval == "1d" else clocks(times, Calendar(self.calendar).zone)

    @cached_property
    def _edges(self) -> Int[np.ndarray, " S1"]:
        return np.searchsorted(self.symbol_ids, np.arange(len(self.symbols) + 1, dtype=self.symbol_ids.dtype))

    def bounds(self, symbol: int) -> tuple[int, int]:
        """First row and one past the last row of a symbol."""
        return int(self._edges[symbol]), int(self._edges[symbol + 1])

    @cached_property
    def sessions(self) -> Shaped[np.ndarray, " D"]:
        """Every session date on which some symbol has a bar, in order."""
        calendar = Calendar(self.calendar)
        found = np.empty(0, dtype="datetime64[D]")
        for symbol in range(len(self.symbols)):
            days = calendar.days(self.times[slice(*self.bounds(symbol))], self.interval).astype("datetime64[D]")
            # Sorted: most symbols share most sessions, and a look is cheaper than a union.
            places = np.minimum(np.searchsorted(found, days), len(found) - 1)
            if not len(found) or not np.array_equal(found[places], days):
                found = np.union1d(found, days)
        return found.astype("datetime64[us]")

    def candidates(self, symbol: int, length: int) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
        """Rows that end a full window before H bars, max(0, n - w - L - H + 1) with w = WARMUP, and what each is:
        KEPT, GAPPED where a gap lies between two of its L + H bars, else UNDEFINED where a target is.
        """
        rows = self._full(symbol, length, self.horizon)
        fate = np.zeros(len(rows), dtype=np.int8)
        if len(rows):
            known = np.isfinite(self.targets[rows[0] : rows[-1] + 1])
            fate[~known.reshape(len(rows), -1).all(axis=1)] = UNDEFINED
            fate[self._spans_gap(rows, length, self.horizon)] = GAPPED
        return rows, fate

    def origins(self, length: int, fate: int = KEPT) -> Int[np.ndarray, " n"]:
        """Every row that ends a full window without a gap and with known targets, or those of another fate (see
        `candidates`).
        """
        each = (self.candidates(symbol, length) for symbol in range(len(self.symbols)))
        return np.concatenate([rows[fates == fate] for rows, fates in each])

    def last_origins(self, length: int) -> Int[np.ndarray, " n"]:
        """The last bar of each symbol that has a full window, without a gap, before it: where the next forecast is
        made.
        """
        last = np.concatenate([self._full(symbol, length, 0)[-1:] for symbol in range(len(self.symbols))])
        return last[~self._spans_gap(last, length, 0)]

    def _full(self, symbol: int, length: int, horizon: int) -> Int[np.ndarray, " n"]:
        first, end = self.bounds(symbol)
        return np.arange(first + WARMUP + length - 1, max(first + WARMUP + length - 1, end - horizon), dtype=np.int64)

    def _spans_gap(self, rows: Int[np.ndarray, " n"], length: int, horizon: int) -> Shaped[np.ndarray, " n"]:
        # A gap stands before its row: the first bar of a window may have one, its last target may not.
        before = np.searchsorted(self.gaps, rows - length + 2)
        return np.searchsorted(self.gaps, rows + horizon, side="right") > before


def build(
    bars: Bars,
    target_names: tuple[str, ...],
    horizon: int,
    *,
    max_gap: int | None = None,
    in_memory_gb: float = float("inf"),
    folder: Path | None = None,
) -> Panel:
    """Features and targets of all symbols of the bars, symbol by symbol: nothing as large as the panel is held beside.

    max_gap: bars that may be missing between two of a window's, or its targets', bars; None for any number.
    A panel of more than in_memory_gb (1e9 bytes) lies in a file in the folder that goes with the process.
    Features and targets whose columns the bars lack are off; DataError where no target is left.
    """
    lacking = _lacking(bars)
    names = available(lacking, bars.interval != "1d")
    wanted = possible(target_names, lacking)
    if not wanted:
        raise DataError(
            f"target {', '.join(target_names)}: the bars have no {', '.join(lacking)}: bring bars that have what it "
            "needs, or forecast what needs the close alone: data.targets=[return]"
        )
    calendar = Calendar(bars.calendar)
    symbols = list(symbol_bounds(bars.frame["symbol"]))
    count, width = len(bars.frame), len(wanted)
    arrays = allocate(
        {
            "features": ((count, len(names)), np.float32),
            "targets": ((count, horizon, width), np.float64),
            "past": ((count, width), np.float64),
            "times": ((count,), "datetime64[us]"),
            "target_times": ((count, horizon), "datetime64[us]"),
            "symbol_ids": ((count,), np.int32),
        },
        in_memory_gb,
        folder,
    )
    own = [names.index(FEATURE[target]) for target in wanted]
    gaps: list[np.ndarray] = [_no_rows()]
    for number, (_, first, end) in enumerate(symbols):
        rows, group = slice(first, end), bars.frame.iloc[first:end]
        times = group["time"].to_numpy(dtype="datetime64[us]")
        table = features(group, names, times if bars.interval == "1d" else clocks(times, calendar.zone))
        arrays["features"][rows] = table
        arrays["targets"][rows] = targets(group, wanted, horizon)
        arrays["past"][rows] = table[:, own]
        arrays["times"][rows] = times
        arrays["target_times"][rows] = _times_ahead(times, horizon)
        arrays["symbol_ids"][rows] = number
        if max_gap is not None:
            gaps.append(first + 1 + np.flatnonzero(calendar.missing(times, bars.interval) > max_gap))
    return Panel(
        **arrays,
        symbols=tuple(symbol for symbol, _, _ in symbols),
        feature_names=names,
        target_names=wanted,
        calendar=bars.calendar,
        week_bars=week_bars(bars.frame, bars.calendar, bars.interval),
        interval=bars.interval,
        gaps=np.concatenate(gaps),
        off=tuple(_off(target_names, lacking)),
    )


def _lacking(bars: Bars) -> tuple[str, ...]:
    """Columns without anything to say: those that are absent, and a volume that is 0 in every bar."""
    silent = "volume" not in bars.absent and not bool((bars.frame["volume"] > 0).any())
    return (*bars.absent, "volume") if silent else bars.absent


def _off(target_names: tuple[str, ...], lacking: tuple[str, ...]) -> Iterator[str]:
    of_target = [("target", name, FEATURE[name]) for name in target_names]
    for kind, name, feature in [*(("feature", name, name) for name in FEATURES), *of_target]:
        missing = [column for column in NEEDS.get(feature, ()) if column in lacking]
        if missing:
            yield f"{kind} {name}: the bars have no {', '.join(missing)}"


def _times_ahead(stamps: Shaped[np.ndarray, " n"], horizon: int) -> Shaped[np.ndarray, "n H"]:
    padded = np.concatenate((stamps, np.full(horizon, np.datetime64("NaT"), dtype=stamps.dtype)))
    return np.lib.stride_tricks.sliding_window_view(padded[1:], horizon)[: len(stamps)]
