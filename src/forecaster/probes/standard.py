"""The probes that every run asks."""

from typing import Final

import numpy as np
from jaxtyping import Int

from forecaster.probes.content import trend_origin, volume_spike
from forecaster.probes.masks import Probe, large_move, monthly, recency, weekly, weekly_target
from forecaster.windows.panel import Panel

RECENT_BARS: Final = 3  # of daily bars
RECENT_SHARE: Final = 0.05  # of the window for any other interval


def standard(panel: Panel, origins: Int[np.ndarray, " n"], length: int) -> tuple[Probe, ...]:
    """In the order of the run's tables, for queries at these origins of windows of L bars."""
    width = RECENT_BARS if panel.interval == "1d" else max(1, round(RECENT_SHARE * length))
    months = len(np.unique(panel.clock(panel.times[origins]).astype("datetime64[M]")))
    return (
        recency(width),
        weekly(panel.week_bars),
        weekly_target(panel.week_bars),
        monthly(months),
        large_move(),
        volume_spike(),
        trend_origin(),
    )
