"""Whatever the market: rewriting the future changes nothing before it, and every full window is counted."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from forecaster.bars.calendar import Calendar
from forecaster.bars.contract import Bars
from forecaster.forecasts import baselines
from forecaster.windows import panel, scaling, splits
from forecaster.windows.features import WARMUP
from forecaster.windows.targets import TARGETS
from hourly import bars_at, stamps

LENGTH, HORIZON, GAP = 9, 2, 10
ORDER = ("persistence", "zero", "mean", "ewma", "har")


def market(name: str) -> Bars:
    """Four symbols: one whole, one with a gap, one delisted in the training part, one that starts in the test part."""
    code, interval, first, last, lacking = {
        "daily": ("XNYS", "1d", "2022-01-03", "2023-12-29", ""),
        "closes": ("XNYS", "1d", "2022-01-03", "2023-12-29", "both"),
        "hours": ("XNYS", "1h", "2024-02-01", "2024-06-28", ""),
        "currency": ("forex", "1h", "2024-02-20", "2024-04-12", "volume"),
        "around the clock": ("24/7", "4h", "2024-02-01", "2024-06-30", "ohl"),
    }[name]
    if interval == "1d":
        times = Calendar(code).sessions(first, last).to_numpy()
    else:
        times = stamps(code, first, last, interval)
    spans = {"A": times, "B": np.delete(times, range(200, 212)), "C": times[:150], "D": times[-60:]}
    return bars_at(spans, code, interval, lacking=lacking)


def after(bars: Bars, time: np.datetime64) -> np.ndarray:
    stamp = pd.Timestamp(time)
    return (bars.frame["time"] > (stamp if bars.interval == "1d" else stamp.tz_localize("UTC"))).to_numpy()


def rewritten(bars: Bars, time: np.datetime64) -> Bars:
    """Every number after the time about a thousand times as large."""
    later = after(bars, time)
    factor = np.where(later, 1000.0 * np.exp(np.random.default_rng(1).normal(0, 0.5, len(later))), 1.0)
    columns = ["open", "high", "low", "close", "volume"]
    return replace(bars, frame=bars.frame.assign(**{name: bars.frame[name] * factor for name in columns}))


def built(bars: Bars) -> panel.Panel:
    return panel.build(bars, TARGETS, HORIZON, max_gap=GAP)


MARKETS = ("daily", "closes", "hours", "currency", "around the clock")


@pytest.mark.parametrize("name", MARKETS)
def test_rewriting_later_bars_changes_nothing_up_to_them(name: str) -> None:
    bars = market(name)
    before = built(bars)
    parts = splits.split(before, LENGTH, 0.6, 0.8)
    for time in (parts.train_end, parts.validation_end):
        again = built(rewritten(bars, time))
        assert (again.feature_names, again.week_bars) == (before.feature_names, before.week_bars)
        past, known = before.times <= time, before.target_times[:, -1] <= time
        assert np.array_equal(before.features[past], again.features[past], equal_nan=True)
        assert np.array_equal(before.past[past], again.past[past], equal_nan=True)
        assert np.array_equal(before.targets[known], again.targets[known], equal_nan=True)
        reparts = splits.split(again, LENGTH, 0.6, 0.8)
        for part in splits.PARTS:
            assert np.array_equal(getattr(parts, part), getattr(reparts, part))
        one, other = (scaling.fit(a, b, LENGTH) for a, b in ((before, parts), (again, reparts)))
        for field in ("feature_mean", "feature_std", "target_mean", "target_std", "log_sigma_reference"):
            assert np.array_equal(getattr(one, field), getattr(other, field))
        origins = before.origins(LENGTH)
        origins = origins[before.times[origins] <= time]
        for baseline in ORDER:
            mine, theirs = (baselines.forecasts(baseline, p, parts.train, origins, LENGTH) for p in (before, again))
            assert np.array_equal(mine.mean, theirs.mean, equal_nan=True)
            assert np.array_equal(mine.quantiles, theirs.quantiles, equal_nan=True)


@pytest.mark.parametrize("name", MARKETS)
def test_bars_that_are_not_there_yet_have_left_no_trace(name: str) -> None:
    bars = market(name)
    time = splits.split(built(bars), LENGTH, 0.6, 0.8).validation_end
    whole, early = built(bars), built(replace(bars, frame=bars.frame[~after(bars, time)].reset_index(drop=True)))
    kept = (whole.times <= time) & np.isin(np.array(whole.symbols)[whole.symbol_ids], early.symbols)
    assert np.array_equal(whole.features[kept], early.features, equal_nan=True)
    assert (whole.feature_names, whole.week_bars) == (early.feature_names, early.week_bars)


@pytest.mark.parametrize("name", MARKETS)
def test_every_full_window_has_one_fate(name: str) -> None:
    whole = built(market(name))
    counts = splits.split(whole, LENGTH, 0.6, 0.8, embargo=2).counts
    full = sum(count.full for count in counts.values())
    sizes = [np.subtract(*whole.bounds(symbol)[::-1]) for symbol in range(4)]
    assert full.tolist() == [max(0, size - WARMUP - LENGTH - HORIZON + 1) for size in sizes]
    gapped = sum(count.gapped for count in counts.values())
    assert gapped.tolist() == [0, LENGTH + HORIZON - 1, 0, 0]
    # Delisted in the training part, listed in the test part: no other part has a window of theirs.
    assert [counts[part].full[2] for part in splits.PARTS] == [full[2], 0, 0]
    assert [counts[part].full[3] for part in splits.PARTS] == [0, 0, full[3]]
