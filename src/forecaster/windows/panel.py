"""The panel: every symbol's features and targets in contiguous arrays, in which a window is a row number."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Shaped

from forecaster.bars.calendar import Calendar
from forecaster.bars.contract import Bars
from forecaster.windows.features import FEATURES, WARMUP, features
from forecaster.windows.targets import past, targets


@dataclass(frozen=True)
class Panel:
    """Rows of all symbols one after the other, row r being one bar.

    features float32 [R, F], raw; targets float64 [R, H, C], value at step h for origin r, NaN where unknown;
    past float64 [R, C], each target's own series at its own bar; times [R] and target_times [R, H], datetime64[us].
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

    def time(self, row: int) -> pd.Timestamp:
        """When a row's bar is."""
        return pd.Timestamp(str(self.times[row]))

    def bounds(self, symbol: int) -> tuple[int, int]:
        """First row and one past the last row of a symbol."""
        first, end = np.searchsorted(self.symbol_ids, np.array((symbol, symbol + 1)))
        return int(first), int(end)

    def origins(self, length: int) -> Int[np.ndarray, " n"]:
        """Every row that ends a full window with known targets: max(0, n - w - L - H + 1) a symbol, w = WARMUP, less
        those whose targets are undefined (a target bar without volume).
        """
        candidates = np.concatenate([self._full(symbol, length, self.horizon) for symbol in range(len(self.symbols))])
        return candidates[np.isfinite(self.targets[candidates]).all(axis=(1, 2))]

    def last_origins(self, length: int) -> Int[np.ndarray, " n"]:
        """The last bar of each symbol that has a full window: where the next forecast is made."""
        last = [self._full(symbol, length, 0)[-1:] for symbol in range(len(self.symbols))]
        return np.concatenate(last)

    def undefined(self, length: int) -> Int[np.ndarray, " n"]:
        """Rows that end a full window but have an undefined target, which `origins` leaves out."""
        candidates = np.concatenate([self._full(symbol, length, self.horizon) for symbol in range(len(self.symbols))])
        return candidates[~np.isfinite(self.targets[candidates]).all(axis=(1, 2))]

    def _full(self, symbol: int, length: int, horizon: int) -> Int[np.ndarray, " n"]:
        first, end = self.bounds(symbol)
        return np.arange(first + WARMUP + length - 1, max(first + WARMUP + length - 1, end - horizon), dtype=np.int64)


def build(bars: Bars, target_names: tuple[str, ...], horizon: int) -> Panel:
    """Features and targets of all symbols of the bars, computed once per symbol."""
    groups = [(str(symbol), group) for symbol, group in bars.frame.groupby("symbol", sort=True)]
    times = [group["time"].to_numpy().astype("datetime64[us]") for _, group in groups]
    return Panel(
        features=np.concatenate([features(group).astype(np.float32) for _, group in groups]),
        targets=np.concatenate([targets(group, target_names, horizon) for _, group in groups]),
        past=np.concatenate([np.column_stack([past(group, name) for name in target_names]) for _, group in groups]),
        times=np.concatenate(times),
        target_times=np.concatenate([_times_ahead(stamps, horizon) for stamps in times]),
        symbol_ids=np.repeat(np.arange(len(groups)), [len(group) for _, group in groups]),
        symbols=tuple(symbol for symbol, _ in groups),
        feature_names=FEATURES,
        target_names=target_names,
        calendar=bars.calendar,
        week_bars=Calendar(bars.calendar).week_bars,
    )


def _times_ahead(stamps: Shaped[np.ndarray, " n"], horizon: int) -> Shaped[np.ndarray, "n H"]:
    padded = np.concatenate((stamps, np.full(horizon, np.datetime64("NaT"), dtype=stamps.dtype)))
    return np.lib.stride_tricks.sliding_window_view(padded[1:], horizon)[: len(stamps)].copy()
