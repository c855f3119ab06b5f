"""Features by hand, and that none of them sees the future."""

import math
import tracemalloc

import numpy as np
import pandas as pd
import pytest

from fabricate import random_bars
from forecaster.windows import features as module
from forecaster.windows.features import (
    EWMA_DECAY,
    FEATURES,
    WARMUP,
    ewma_volatility,
    features,
    garman_klass,
    log_return,
    log_volume,
    shock,
    volume_median,
)


def one(size: int, seed: int = 0) -> pd.DataFrame:
    return random_bars({"A": size}, seed).frame


def test_log_return_is_the_difference_of_logs() -> None:
    returns = log_return(np.array([100.0, 110.0, 99.0]))
    assert math.isnan(returns[0])
    assert returns[1:] == pytest.approx([math.log(1.1), math.log(0.9)])


def test_garman_klass_equals_the_formula_by_hand() -> None:
    bar = pd.DataFrame({"open": [100.0], "high": [103.0], "low": [98.0], "close": [101.0]})
    variance = 0.5 * math.log(103 / 98) ** 2 - (2 * math.log(2) - 1) * math.log(101 / 100) ** 2
    assert garman_klass(bar)[0] == pytest.approx(0.5 * math.log(variance))


def test_garman_klass_of_a_bar_without_range_is_the_floor() -> None:
    bar = pd.DataFrame({"open": [25.0], "high": [25.0], "low": [25.0], "close": [25.0]})
    assert garman_klass(bar)[0] == pytest.approx(0.5 * math.log(1e-12))


def test_log_volume_is_against_the_median_of_twenty_bars_with_the_bar_itself() -> None:
    volume = np.arange(1.0, 26.0)
    ratio = log_volume(volume)
    assert np.isnan(ratio[:19]).all()
    assert ratio[19] == pytest.approx(math.log(20 / 10.5))
    assert ratio[24] == pytest.approx(math.log(25 / 15.5))


def test_a_bar_without_volume_reads_as_usual_and_leaves_the_median_alone() -> None:
    volume = np.full(30, 100.0)
    volume[25] = 0.0
    volume[27] = 200.0
    ratio = log_volume(volume)
    assert ratio[25] == 0.0
    assert ratio[27] == pytest.approx(math.log(2))
    assert np.isfinite(ratio[19:]).all()
    assert np.array_equal(log_volume(np.zeros(25))[19:], np.zeros(6))


def test_the_median_volume_does_not_depend_on_how_many_are_sorted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    volume = one(75)["volume"].to_numpy() * (np.arange(75) % 3 > 0)
    whole = volume_median(volume)
    for size in (1, 7, 56, 57):
        monkeypatch.setattr(module, "CHUNK", size)
        assert np.array_equal(volume_median(volume), whole, equal_nan=True)


def test_features_of_a_long_series_take_little_more_than_their_own_room() -> None:
    frame = one(200_000)
    tracemalloc.start()
    table = features(frame)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * table.nbytes


def test_ewma_volatility_equals_a_naive_loop() -> None:
    returns = log_return(one(60)["close"].to_numpy())
    variance = float(np.mean(returns[1:WARMUP] ** 2))
    expected = [variance]
    for value in returns[WARMUP:]:
        variance = EWMA_DECAY * variance + (1 - EWMA_DECAY) * value**2
        expected.append(variance)
    volatility = ewma_volatility(returns)
    assert np.isnan(volatility[: WARMUP - 1]).all()
    assert volatility[WARMUP - 1 :] == pytest.approx(np.sqrt(expected))


def test_shock_divides_by_the_volatility_of_the_bar_before() -> None:
    returns = log_return(one(60)["close"].to_numpy())
    assert shock(returns)[40] == pytest.approx(abs(returns[40]) / ewma_volatility(returns)[39])
    assert np.isnan(shock(returns)[WARMUP - 1])


def test_shock_of_a_price_that_never_moves_is_zero() -> None:
    returns = log_return(np.full(40, 25.0))
    assert np.array_equal(shock(returns)[WARMUP:], np.zeros(40 - WARMUP))


@pytest.mark.parametrize("size", [1, 2, 19, 20, 21])
def test_features_of_very_short_series_have_a_row_a_bar(size: int) -> None:
    assert features(one(size)).shape == (size, len(FEATURES))


def test_all_features_exist_from_the_end_of_the_warm_up_and_not_before() -> None:
    table = features(one(50))
    assert np.isfinite(table[WARMUP:]).all()
    assert not np.isfinite(table[WARMUP - 1]).all()


def test_weekday_and_gap_follow_the_dates() -> None:
    frame = one(30)
    table = features(frame)
    weekday = [FEATURES.index(f"weekday_{day}") for day in range(7)]
    assert np.array_equal(table[:, weekday].argmax(1), frame["time"].dt.day_of_week.to_numpy())
    monday = int(np.flatnonzero(frame["time"].dt.day_of_week.to_numpy()[1:] == 0)[0]) + 1
    assert table[monday, FEATURES.index("gap_days")] == 3.0


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_features_do_not_depend_on_the_unit_of_the_stamps(unit: str) -> None:
    frame = one(40)
    other = frame.assign(time=frame["time"].dt.as_unit(unit))
    assert np.array_equal(features(frame), features(other), equal_nan=True)


@pytest.mark.parametrize("cut", [5, 20, 33, 59])
@pytest.mark.parametrize("feature", FEATURES)
def test_when_later_bars_are_rewritten_no_feature_changes(feature: str, cut: int) -> None:
    frame = one(60)
    changed = frame.copy()
    changed.loc[cut:, ["open", "high", "low", "close", "volume"]] *= 1000.0
    column = FEATURES.index(feature)
    assert np.array_equal(features(frame)[:cut, column], features(changed)[:cut, column], equal_nan=True)
