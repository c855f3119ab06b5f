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


@pytest.mark.parametrize(
    "ratio", [1 / 2, 1 / 3, 1 / 4, 2 / 3, 2 / 5, 1 / 7, 1 / 10, 1 / 20, 1 / 50, 1 / 100, 2, 2.5, 8, 10, 25, 60, 80, 250]
)
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
        bars["time"] = pd.date_range("2020-01-01", periods=500)
        bars["open"] = np.concatenate(([100.0], close[:-1]))
        bars["high"], bars["low"] = bars[["open", "close"]].max(axis=1), bars[["open", "close"]].min(axis=1)
        assert levels(bars, daily=True) == []
        assert slips(bars) == []


def test_jump_between_two_quiet_bars_is_a_shift_and_one_with_a_crowd_is_kept() -> None:
    bars = daily(seed=7)
    bars.loc[60:, PRICES] *= 4.6
    [level] = levels(bars, daily=True)
    assert (level.row, level.kind) == (60, "level_shift")
    crowd = bars.assign(volume=bars["volume"].where(bars.index != 60, bars["volume"] * 20))
    [level] = levels(crowd, daily=True)
    assert (level.row, level.kind) == (60, "large_jump")
    # Where trading led there, in the bar itself, it is a move.
    bars.loc[60, ["open", "low"]] = bars.loc[59, "close"]
    assert [level.kind for level in levels(bars, daily=True)] == ["large_jump"]


@pytest.mark.parametrize("ratio", [1 / 2, 1 / 3, 1 / 4, 1 / 10, 2, 20])
@pytest.mark.parametrize("seed", range(5))
def test_split_of_a_volatile_stock_is_found(ratio: float, seed: int) -> None:
    bars = wild(seed)
    [level] = levels(split(bars, 60, ratio), daily=True)
    assert (level.row, level.kind) == (60, "split")
    assert level.ratio == pytest.approx(ratio)


def wild(seed: int) -> pd.DataFrame:
    """A walk of 5 % a day that opens within 1 % of where it closed."""
    rng = np.random.default_rng(seed)
    bars = daily()
    close = 100 * np.exp(np.cumsum(rng.normal(0, 0.05, len(bars))))
    bars["open"] = np.concatenate(([100.0], close[:-1])) * np.exp(rng.normal(0, 0.01, len(bars)))
    bars["close"] = close
    bars["high"] = bars[["open", "close"]].max(axis=1) * 1.01
    bars["low"] = bars[["open", "close"]].min(axis=1) / 1.01
    return bars


def test_split_is_found_on_a_day_that_ends_far_from_where_it_opened() -> None:
    # AAPL, split 2:1 on 2000-06-21, opened at 50.50 after 101.25 and closed at 55.63.
    bars = wild(3)
    opened = bars.loc[60, "open"]
    bars.loc[60:, PRICES] *= opened * 1.1 / bars.loc[60, "close"]
    bars.loc[60, ["open", "low", "high"]] = [opened, opened * 0.99, opened * 1.11]
    [level] = levels(split(bars, 60, 1 / 2), daily=True)
    assert (level.row, level.kind, level.ratio) == (60, "split", 0.5)


def swinging(seed: int) -> pd.DataFrame:
    """A walk of 3 % a day, half of its variance over the night."""
    rng = np.random.default_rng(seed)
    bars = daily()
    night, day = (rng.normal(0, 0.03 / np.sqrt(2), len(bars)) for _ in range(2))
    close = 80 * np.exp(np.cumsum(night + day))
    bars = bars.assign(open=close / np.exp(day), close=close)
    bars["high"] = bars[["open", "close"]].max(axis=1) * 1.01
    bars["low"] = bars[["open", "close"]].min(axis=1) / 1.01
    return bars


@pytest.mark.parametrize("ratio", [2 / 3, 3 / 2, 1 / 2])
def test_no_split_of_a_swinging_stock_is_passed_over_in_silence(ratio: float) -> None:
    # Over a night of 2.1 % one open in six lies more than 3 % from the ratio: below 2:1 such a split is only told.
    kinds = [
        [level.kind for level in levels(split(swinging(seed), 60, ratio), daily=True) if level.row == 60]
        for seed in range(60)
    ]
    assert [] not in kinds
    assert sum(kind == ["split"] for kind in kinds) >= (60 if ratio == 1 / 2 else 45)


@pytest.mark.parametrize("ratio", [3 / 4, 4 / 5, 5 / 4])
def test_small_split_is_possible_and_told(ratio: float) -> None:
    assert [level.kind for level in levels(split(daily(seed=3), 60, ratio), daily=True)] == ["possible_split"]


def hours(seed: int) -> pd.DataFrame:
    """Seven bars a session, of .4 % each, with 2.5 % over each night."""
    rng = np.random.default_rng(seed)
    days = daily(60)
    stamps = [day + pd.Timedelta(hours=14 + hour) for day in days["time"] for hour in range(7)]
    first = np.arange(len(stamps)) % 7 == 0
    gaps = np.where(first, rng.choice([-0.025, 0.025], len(stamps)), 0.0)
    steps = rng.normal(0, 0.004, len(stamps))
    close = 100 * np.exp(np.cumsum(gaps + steps))
    opens = close / np.exp(steps)
    bars = pd.DataFrame({"time": pd.DatetimeIndex(stamps, tz="UTC"), "open": opens, "close": close})
    bars["high"], bars["low"] = bars[["open", "close"]].max(axis=1) * 1.001, bars[["open", "close"]].min(axis=1) / 1.001
    bars["volume"] = np.where(first, 5e6, 1e6)
    return bars


@pytest.mark.parametrize("seed", range(4))
def test_split_over_a_night_is_found_in_hours_and_a_crash_is_not_one(seed: int) -> None:
    bars = hours(seed)
    [level] = levels(split(bars, 210, 1 / 2), daily=False)
    assert (level.row, level.kind, level.ratio) == (210, "split", 0.5)
    crash = split(bars, 210, 1 / 2, shares=False)
    crash.loc[210, "volume"] *= 12
    assert levels(crash, daily=False) == []


def test_split_behind_a_gap_in_the_bars_is_found() -> None:
    bars = split(daily(seed=3), 60, 1 / 2)
    bars.loc[60:, PRICES] *= 1.05
    [level] = levels(bars.drop(index=range(55, 60)).reset_index(drop=True), daily=True)
    assert (level.row, level.kind, level.ratio) == (55, "split", 0.5)


def test_price_that_mostly_stands_still_is_no_split_where_it_doubles_by_a_tick() -> None:
    ticks = np.where(np.arange(120) // 9 % 2, 0.0002, 0.0001)
    bars = daily().assign(**dict.fromkeys(PRICES, ticks))
    assert levels(bars, daily=True) == []


@pytest.mark.parametrize("factor", [100.0, 0.1, 5.3])
def test_last_bar_far_off_is_a_slip_whatever_its_factor(factor: float) -> None:
    bars = daily(seed=8)
    bars.loc[119, PRICES] *= factor
    [slip] = slips(bars)
    assert (slip.first, slip.end) == (119, 120)
    assert slip.factor == pytest.approx(factor, rel=0.05)


@pytest.mark.parametrize(
    ("first", "end", "factor"), [(20, 21, 100.0), (20, 22, 100.0), (118, 119, 0.01), (50, 58, 10.0)]
)
def test_slip_is_found_with_its_stretch_and_factor(first: int, end: int, factor: float) -> None:
    bars = daily(seed=8)
    bars.loc[first : end - 1, PRICES] *= factor
    [slip] = slips(bars)
    assert (slip.first, slip.end, slip.part) == (first, end, "close")
    assert slip.unit == pytest.approx(factor)


@pytest.mark.parametrize("factor", [1.5, 2.2, 3.0, 0.5, 0.6])
@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("count", [1, 3])
def test_smaller_slip_that_is_undone_at_once_is_found_and_is_no_split(factor: float, alone: bool, count: int) -> None:
    bars = daily(seed=8)
    bars.loc[50 : 49 + count, PRICES] *= factor
    if alone:
        bars = bars.assign(open=np.nan, high=np.nan, low=np.nan, volume=np.nan)
    [slip] = slips(bars)
    assert (slip.first, slip.end, slip.part) == (50, 50 + count, "close")
    assert slip.factor == pytest.approx(factor, rel=0.03)


def test_move_that_trading_led_to_and_undid_is_no_slip() -> None:
    bars = daily(seed=8)
    bars.loc[50, PRICES] *= 1.6
    bars.loc[50, ["open", "low"]] = bars.loc[49, "close"]
    bars.loc[51, ["open", "high"]] = bars.loc[50, "close"]
    assert slips(bars) == []


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
