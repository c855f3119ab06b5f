"""Splits, units and slips are told from what markets do."""

import numpy as np
import pandas as pd
import pytest

from dirty import daily
from forecaster.bars.cleaning.jumps import levels, runs, slips

PRICES = ["open", "high", "low", "close"]


def split(bars: pd.DataFrame, row: int, ratio: float, shares: bool = True) -> pd.DataFrame:
    """Bars as before a split at `row`: prices before it at 1 / ratio of what they are now."""
    before = bars.copy()
    before.loc[: row - 1, PRICES] /= ratio
    if shares:
        before.loc[: row - 1, "volume"] *= ratio
    return before


@pytest.mark.parametrize("ratio", [1 / 2, 1 / 3, 1 / 4, 2 / 3, 1 / 7, 1 / 10, 1 / 20, 1 / 50, 1 / 100, 2, 8, 10, 25])
@pytest.mark.parametrize("shares", [True, False])
def test_split_is_found_with_its_ratio_and_row(ratio: float, shares: bool) -> None:
    [level] = levels(split(daily(seed=3), 60, ratio, shares), daily=True)
    assert (level.row, level.shares) == (60, shares)
    assert level.ratio == pytest.approx(ratio)
    assert level.kind == ("split" if shares or ratio != 1 / 100 else "unit_switch")


@pytest.mark.parametrize(("ratio", "kind"), [(1 / 2, "possible_split"), (1 / 3, "possible_split"), (1 / 10, "split")])
def test_closes_alone_show_a_large_split_and_leave_a_small_one_open(ratio: float, kind: str) -> None:
    # AAPL lost 52 % on 2000-09-29, AMD gained 52 % on 2016-04-22: with closes alone they look like splits.
    bars = split(daily(seed=4), 30, ratio).assign(open=np.nan, high=np.nan, low=np.nan, volume=np.nan)
    [level] = levels(bars, daily=True)
    assert (level.row, level.kind, level.shares) == (30, kind, False)
    volume = split(daily(seed=4), 30, ratio).assign(open=np.nan, high=np.nan, low=np.nan)
    assert [(level.kind, level.shares) for level in levels(volume, daily=True)] == [("split", True)]


@pytest.mark.parametrize("fall", [0.4, 0.35, 0.45, 0.3, 0.55, 0.62])
@pytest.mark.parametrize("gap", [True, False])
def test_true_fall_is_no_split(fall: float, gap: bool) -> None:
    # The day of the fall as markets have it: a wide bar and many times the usual volume.
    bars = daily(seed=5)
    before = bars.loc[59, "close"]
    bars.loc[60:, PRICES] *= (1 - fall) * before / bars.loc[60, "close"]
    if not gap:
        bars.loc[60, ["open", "high"]] = before
    else:
        bars.loc[60, "low"] *= 0.9
    bars.loc[60, "volume"] *= 12
    assert levels(bars, daily=True) == []


@pytest.mark.parametrize("fall", [0.4, 0.42, 0.38])
def test_fall_of_two_fifths_is_no_split_even_without_a_crowd(fall: float) -> None:
    bars = daily(seed=6)
    bars.loc[60:, PRICES] *= (1 - fall) * bars.loc[59, "close"] / bars.loc[60, "close"]
    assert levels(bars, daily=True) == []


def test_no_level_in_two_hundred_quiet_walks() -> None:
    # Of 200 walks of 500 bars with heavy tails (t, 3 degrees, 2 % a day) none holds a level: false alarms < 1.5 %.
    rng = np.random.default_rng(0)
    for _ in range(200):
        steps = rng.standard_t(3, 500) * 0.02 / np.sqrt(3)
        close = 100 * np.exp(np.cumsum(steps))
        bars = pd.DataFrame(dict.fromkeys(PRICES, close) | {"volume": np.full(500, 1e6)})
        bars["open"] = np.concatenate(([100.0], close[:-1]))
        bars["high"], bars["low"] = bars[["open", "close"]].max(axis=1), bars[["open", "close"]].min(axis=1)
        assert levels(bars, daily=True) == []
        assert slips(bars) == []


def test_unexplained_jump_is_told_as_such() -> None:
    bars = daily(seed=7)
    bars.loc[60:, PRICES] *= 4.6
    [level] = levels(bars, daily=True)
    assert (level.row, level.kind) == (60, "large_jump")


@pytest.mark.parametrize(
    ("first", "end", "factor"), [(20, 21, 100.0), (20, 22, 100.0), (118, 119, 0.01), (50, 58, 10.0)]
)
def test_slip_is_found_with_its_stretch_and_factor(first: int, end: int, factor: float) -> None:
    bars = daily(seed=8)
    bars.loc[first : end - 1, PRICES] *= factor
    [slip] = slips(bars)
    assert (slip.first, slip.end, slip.part) == (first, end, "close")
    assert slip.unit == pytest.approx(factor)


@pytest.mark.parametrize("part", ["open", "high", "low"])
def test_one_price_out_of_a_bar_is_found(part: str) -> None:
    bars = daily(seed=9)
    bars.loc[40, part] *= 0.01 if part == "low" else 100
    [slip] = slips(bars)
    assert (slip.first, slip.end, slip.part) == (40, 41, part)


def test_squeeze_over_days_is_no_slip() -> None:
    # Doubling four days in a row and falling back: no step of a factor of four.
    bars = daily(seed=10)
    for row, factor in zip(range(60, 68), [2, 4, 8, 16, 12, 8, 4, 2], strict=True):
        bars.loc[row, PRICES] *= factor
    assert slips(bars) == []


def test_runs() -> None:
    flags = np.array([1, 1, 0, 1, 0, 1, 1, 1], dtype=bool)
    assert runs(flags, 2).tolist() == [[0, 2], [5, 8]]
    assert runs(flags, 4).tolist() == []
