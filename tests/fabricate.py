"""Small bars for tests."""

import numpy as np
import pandas as pd

from forecaster.bars.contract import Bars, check, quality_report


def random_bars(sizes: dict[str, int], seed: int = 0) -> Bars:
    """A random walk for each symbol; all series end on the same business day."""
    rng = np.random.default_rng(seed)
    frames = []
    for symbol, size in sorted(sizes.items()):
        close = 100 * np.exp(np.cumsum(rng.normal(0, 0.01, size)))
        start = close * np.exp(rng.normal(0, 0.003, size))
        high = np.maximum(start, close) * np.exp(np.abs(rng.normal(0, 0.004, size)))
        low = np.minimum(start, close) * np.exp(-np.abs(rng.normal(0, 0.004, size)))
        times = pd.bdate_range(end="2020-12-31", periods=size).as_unit("us")
        volume = np.round(np.exp(rng.normal(12, 0.3, size)))
        frames.append(
            pd.DataFrame(
                {
                    "symbol": symbol,
                    "time": times,
                    "open": start,
                    "high": high,
                    "low": low,
                    "close": close,
                    "volume": volume,
                }
            )
        )
    frame = check(pd.concat(frames), "random bars")
    return Bars(frame, quality_report([]), "XNYS", "1d", "as made")
