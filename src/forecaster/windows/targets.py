"""Targets: what is forecast, and the bar at which each value becomes known."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd
from jaxtyping import Float

from forecaster.windows.features import NEEDS, garman_klass, log_return, log_volume, volume_median

TARGETS: Final = ("return", "volatility", "volume")
FEATURE: Final = {"return": "log_return", "volatility": "log_volatility", "volume": "log_volume"}  # its own series


def possible(names: Sequence[str], lacking: Sequence[str]) -> tuple[str, ...]:
    """Those of the targets that bars without some columns allow."""
    return tuple(name for name in names if not set(NEEDS.get(FEATURE[name], ())) & set(lacking))


def past(bars: pd.DataFrame, target: str) -> Float[np.ndarray, " n"]:
    """The target's own series as known at each bar: log return, log Garman-Klass volatility, log volume against its
    trailing median.
    """
    match target:
        case "return":
            return log_return(bars["close"].to_numpy())
        case "volatility":
            return garman_klass(bars)
        case "volume":
            return log_volume(bars["volume"].to_numpy())
        case _:
            raise ValueError(f"unknown target {target!r}: one of {', '.join(TARGETS)}")


def ahead(series: Float[np.ndarray, " n"], horizon: int) -> Float[np.ndarray, "n H"]:
    """The next H values, out[t, h-1] = series[t+h]; NaN beyond the last bar."""
    padded = np.concatenate((series, np.full(horizon, np.nan)))
    return np.lib.stride_tricks.sliding_window_view(padded[1:], horizon)[: len(series)].copy()


def targets(bars: pd.DataFrame, names: tuple[str, ...], horizon: int) -> Float[np.ndarray, "n H C"]:
    """Values of the targets at steps 1..H after each bar; each is known at the close of bar t+h.

    return: r[t+h]. volatility: log Garman-Klass volatility of bar t+h. volume: ln(V[t+h] / median(V[t-19..t])), so that
    the yardstick is known at the origin. NaN beyond the last bar, and for volume where bar t+h has none.
    """
    columns: list[np.ndarray] = []
    for name in names:
        if name == "volume":
            volume = bars["volume"].to_numpy()
            logs = np.log(np.where(volume > 0, volume, np.nan))
            columns.append(ahead(logs, horizon) - np.log(volume_median(volume))[:, None])
        else:
            columns.append(ahead(past(bars, name), horizon))
    return np.stack(columns, axis=-1)
