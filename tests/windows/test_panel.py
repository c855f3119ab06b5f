"""Windows of the panel: counts, contents, and that none crosses two symbols."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricate import random_bars
from forecaster.windows import panel
from forecaster.windows.features import WARMUP, features


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 70), min_size=1, max_size=3), st.integers(1, 12), st.integers(1, 4))
def test_window_counts_follow_the_formula(sizes: list[int], length: int, horizon: int) -> None:
    named = {f"S{i}": size for i, size in enumerate(sizes)}
    built = panel.build(random_bars(named), ("return", "volatility"), horizon)
    expected = [max(0, n - WARMUP - length - horizon + 1) for _, n in sorted(named.items())]
    origins = built.origins(length)
    assert [int((built.symbol_ids[origins] == i).sum()) for i in range(len(sizes))] == expected


def test_no_window_crosses_two_symbols_and_every_value_is_finite() -> None:
    built = panel.build(random_bars({"A": 50, "B": 37, "C": 9}), ("return",), 2)
    origins = built.origins(7)
    rows = built.rows(origins, 7)
    assert (built.symbol_ids[rows] == built.symbol_ids[origins][:, None]).all()
    assert np.isfinite(built.window(origins, 7)).all()
    assert 2 not in built.symbol_ids[origins]


def test_a_window_holds_the_features_of_its_bars_in_order() -> None:
    bars = random_bars({"A": 50, "B": 40})
    built = panel.build(bars, ("return",), 1)
    origin = built.bounds(1)[0] + 35
    own = features(bars.frame[bars.frame["symbol"] == "B"]).astype(np.float32)
    assert np.array_equal(built.window(np.array([origin]), 6)[0], own[30:36])


def test_target_times_are_the_times_of_the_bars_ahead() -> None:
    built = panel.build(random_bars({"A": 30, "B": 25}), ("return",), 2)
    assert built.target_times[10, 1] == built.times[12]
    first, end = built.bounds(0)
    assert np.isnat(built.target_times[end - 1, 0])
    assert np.isnat(built.target_times[end - 2, 1])
    assert first == 0


def test_last_origins_are_the_last_bars_that_end_a_full_window() -> None:
    built = panel.build(random_bars({"A": 50, "B": 26, "C": 24}), ("return",), 1)
    assert [int(row) for row in built.last_origins(6)] == [49, 75]


@pytest.mark.parametrize("length", [1, 5])
def test_panel_dtypes_are_float32_features_and_float64_targets(length: int) -> None:
    built = panel.build(random_bars({"A": 40}), ("return",), 1)
    assert built.window(built.origins(length), length).dtype == np.float32
    assert built.targets.dtype == np.float64
    assert built.times.dtype == np.dtype("datetime64[us]")
