"""Panels and frames small enough to check by hand."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import pytest

from forecaster.forecasts.frame import FRAME_COLUMNS, QUANTILE_COLUMNS
from forecaster.windows.features import FEATURES
from forecaster.windows.panel import Panel
from forecaster.windows.targets import ahead


def build_panel(
    series: Sequence[np.ndarray],
    targets: tuple[str, ...],
    horizon: int = 1,
    returns: Sequence[np.ndarray] | None = None,
) -> Panel:
    """A panel of symbols A, B, ... whose targets [n, C] are the given series and whose bars fall on business days."""
    features, ahead_of, times, target_times = [], [], [], []
    for number, own in enumerate(series):
        stamps = pd.bdate_range("2001-01-01", periods=len(own)).as_unit("us")
        now = np.zeros((len(own), len(FEATURES)))
        now[:, FEATURES.index("log_return")] = returns[number] if returns is not None else 0.0
        now[:, FEATURES.index("abs_return")] = np.abs(now[:, FEATURES.index("log_return")])
        now[:, FEATURES.index("gap_days")] = np.where(stamps.day_of_week == 0, 3.0, 1.0)
        now[np.arange(len(own)), FEATURES.index("weekday_0") + stamps.day_of_week] = 1.0
        features.append(now.astype(np.float32))
        ahead_of.append(np.stack([ahead(column, horizon) for column in own.T], axis=-1))
        times.append(stamps.to_numpy())
        padded = np.concatenate((stamps.to_numpy()[1:], np.full(horizon, np.datetime64("NaT"), dtype="datetime64[us]")))
        target_times.append(np.lib.stride_tricks.sliding_window_view(padded, horizon)[: len(own)].copy())
    return Panel(
        features=np.concatenate(features),
        targets=np.concatenate(ahead_of),
        past=np.concatenate(series),
        times=np.concatenate(times),
        target_times=np.concatenate(target_times),
        symbol_ids=np.repeat(np.arange(len(series)), [len(own) for own in series]),
        symbols=tuple("ABCDE"[: len(series)]),
        feature_names=FEATURES,
        target_names=targets,
        calendar="XNYS",
        week_bars=5,
    )


def build_frame(
    actual_DS: np.ndarray,
    mean_DS: np.ndarray,
    spread: float = 1.0,
    model: str = "attention",
    target: str = "volatility",
) -> pd.DataFrame:
    """A frame of one model with dates in rows and symbols in columns; NaN in `actual` is a row that does not exist."""
    offsets = spread * np.array([-1.6, -1.3, -0.7, 0.0, 0.7, 1.3, 1.6])
    days = pd.bdate_range("2015-01-01", periods=len(actual_DS) + 1).as_unit("us")
    parts = [
        pd.DataFrame(
            {
                "model": model,
                "fold": 0,
                "symbol": "ABCDE"[s],
                "origin": days[:-1],
                "target_time": days[1:],
                "target": target,
                "step": 1,
                **dict(zip(QUANTILE_COLUMNS, (mean_DS[:, s, None] + offsets).T, strict=True)),
                "mean": mean_DS[:, s],
                "actual": actual_DS[:, s],
            }
        )
        for s in range(actual_DS.shape[1])
    ]
    frame = pd.concat(parts, ignore_index=True).astype(dict.fromkeys(("model", "symbol", "target"), "str"))
    return frame.loc[frame["actual"].notna(), list(FRAME_COLUMNS)].reset_index(drop=True)


@pytest.fixture
def make_panel() -> Callable[..., Panel]:
    return build_panel


@pytest.fixture
def make_frame() -> Callable[..., pd.DataFrame]:
    return build_frame


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)
