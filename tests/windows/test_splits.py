"""Parts are disjoint by the time at which targets are known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricate import random_bars
from forecaster.errors import ConfigError, DataError
from forecaster.windows import panel, scaling, splits


@settings(max_examples=25, deadline=None)
@given(st.integers(80, 120), st.integers(1, 8), st.integers(1, 5), st.floats(0.5, 0.7), st.integers(0, 4))
def test_every_target_of_a_part_is_known_before_the_next_part_begins(
    size: int, length: int, horizon: int, end: float, embargo: int
) -> None:
    built = panel.build(random_bars({"A": size, "B": size - 9}), ("return",), horizon)
    parts = splits.split(built, length, end, 0.85, embargo)
    times, known = built.times, built.target_times[:, -1]
    assert known[parts.train].max() <= parts.train_end < times[parts.validation].min()
    assert known[parts.validation].max() <= parts.validation_end < times[parts.test].min()
    sessions = np.unique(times)
    gap = np.searchsorted(sessions, parts.train_end) - np.searchsorted(sessions, known[parts.train].max())
    assert gap >= embargo
    total = len(parts.train) + len(parts.validation) + len(parts.test) + parts.purged
    assert total == len(built.origins(length))


def test_exactly_the_straddling_rows_are_purged() -> None:
    built = panel.build(random_bars({"A": 100}), ("return",), 3)
    parts = splits.split(built, 5, 0.6, 0.8)
    assert parts.purged == 2 * 3
    assert splits.split(built, 5, 0.6, 0.8, embargo=4).purged == 2 * (3 + 4)


def test_a_date_and_the_fraction_that_falls_on_it_give_the_same_parts() -> None:
    built = panel.build(random_bars({"A": 100}), ("return",), 1)
    by_fraction = splits.split(built, 5, 0.6, 0.8)
    dates = [str(d)[:10] for d in (by_fraction.train_end, by_fraction.validation_end)]
    by_date = splits.split(built, 5, dates[0], dates[1])
    for name in ("train", "validation", "test"):
        assert np.array_equal(getattr(by_fraction, name), getattr(by_date, name))


@pytest.mark.parametrize(
    ("first", "second", "error", "message"),
    [
        (0.8, 0.6, ConfigError, "is not before split.validation_end"),
        (1.5, 0.6, ConfigError, "split.train_end=1.5: a fraction must lie between 0 and 1"),
        ("2030-01-01", "2031-01-01", DataError, "the validation part has no window"),
        ("1999-01-01", "2031-01-01", DataError, "the train part has no window"),
    ],
)
def test_impossible_parts_are_refused_in_one_line(first: object, second: object, error: type, message: str) -> None:
    built = panel.build(random_bars({"A": 100}), ("return",), 1)
    with pytest.raises(error, match=message) as caught:
        splits.split(built, 5, first, second)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_when_bars_after_training_are_rewritten_split_and_scaler_stay() -> None:
    bars, changed = random_bars({"A": 120, "B": 90}), random_bars({"A": 120, "B": 90})
    built = panel.build(bars, ("return", "volume"), 2)
    parts = splits.split(built, 8, 0.6, 0.8)
    later = changed.frame["time"] > parts.train_end
    changed.frame.loc[later, ["open", "high", "low", "close", "volume"]] *= 1000.0
    rebuilt = panel.build(changed, ("return", "volume"), 2)
    reparts = splits.split(rebuilt, 8, 0.6, 0.8)
    assert np.array_equal(parts.train, reparts.train)
    assert np.array_equal(parts.test, reparts.test)
    before, after = scaling.fit(built, parts, 8), scaling.fit(rebuilt, reparts, 8)
    for name in ("feature_mean", "feature_std", "target_mean", "target_std"):
        assert np.array_equal(getattr(before, name), getattr(after, name))


def test_scaler_is_the_mean_and_std_of_the_bars_that_training_windows_read() -> None:
    built = panel.build(random_bars({"A": 100, "B": 80}), ("return", "volatility"), 1)
    parts = splits.split(built, 6, 0.6, 0.8)
    scaler = scaling.fit(built, parts, 6)
    read = sorted({row - lag for row in parts.train for lag in range(6)})
    assert scaler.feature_mean[0] == pytest.approx(built.features[read, 0].astype(float).mean())
    assert scaler.feature_std[2] == pytest.approx(built.features[read, 2].astype(float).std())
    assert scaler.target_std[1] == pytest.approx(built.targets[parts.train, 0, 1].std())
    assert scaler.feature_mean[-1] == 0.0
    assert scaler.feature_std[-1] == 1.0
    assert scaler.constant == ()


def test_constant_columns_are_named_and_keep_std_one() -> None:
    bars = random_bars({"A": 100})
    bars.frame[["open", "high", "low", "close"]] = 25.0
    built = panel.build(bars, ("return",), 1)
    scaler = scaling.fit(built, splits.split(built, 6, 0.6, 0.8), 6)
    assert scaler.constant == ("log_return", "abs_return", "log_volatility", "shock", "log_sigma", "target return")
    assert (scaler.feature_std > 0).all()
    assert scaler.target_std[0] == 1.0
