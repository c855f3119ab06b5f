"""Targets by hand and their times."""

import math

import numpy as np
import pytest

from fabricate import random_bars
from forecaster.windows import panel
from forecaster.windows.features import garman_klass, log_return
from forecaster.windows.targets import TARGETS, ahead, past, targets


def test_ahead_takes_the_next_values_and_ends_in_nan() -> None:
    table = ahead(np.array([1.0, 2.0, 3.0, 4.0]), 2)
    assert np.array_equal(table, [[2, 3], [3, 4], [4, np.nan], [np.nan, np.nan]], equal_nan=True)


def test_targets_are_the_next_bars_values() -> None:
    frame = random_bars({"A": 40}).frame
    table = targets(frame, TARGETS, 3)
    assert table.shape == (40, 3, 3)
    close, volume = frame["close"].to_numpy(), frame["volume"].to_numpy()
    assert table[25, 1, 0] == pytest.approx(math.log(close[27] / close[26]))
    assert table[25, 2, 1] == pytest.approx(garman_klass(frame)[28])
    assert table[25, 1, 2] == pytest.approx(math.log(volume[27] / np.median(volume[6:26])))


def test_the_volume_target_of_a_bar_without_volume_is_undefined_and_its_origins_are_left_out() -> None:
    bars = random_bars({"A": 60})
    bars.frame.loc[50, "volume"] = 0.0
    built = panel.build(bars, TARGETS, 2)
    assert np.isnan(built.targets[49, 0, 2])
    assert np.isnan(built.targets[48, 1, 2])
    assert list(built.origins(5, panel.UNDEFINED)) == [48, 49]
    assert not set(built.origins(5)) & {48, 49}
    assert len(built.origins(5)) == 60 - 20 - 5 - 2 + 1 - 2


def test_past_is_what_is_known_at_the_bar() -> None:
    frame = random_bars({"A": 40}).frame
    assert np.array_equal(past(frame, "return"), log_return(frame["close"].to_numpy()), equal_nan=True)
    with pytest.raises(ValueError, match="unknown target 'price'"):
        past(frame, "price")


def test_when_bars_after_a_targets_time_are_rewritten_the_target_stays() -> None:
    frame = random_bars({"A": 60}).frame
    changed = frame.copy()
    changed.loc[45:, ["open", "high", "low", "close", "volume"]] *= 1000.0
    before, after = targets(frame, TARGETS, 2), targets(changed, TARGETS, 2)
    assert np.array_equal(before[20:43], after[20:43])
    assert not np.array_equal(before[43], after[43])
