"""Parts are disjoint by the time at which targets are known."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricate import random_bars
from forecaster.bars.calendar import Calendar
from forecaster.errors import ConfigError, DataError
from forecaster.windows import panel, scaling, splits
from forecaster.windows.features import WARMUP
from hourly import bars_at, stamps, utc


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
        ("2020-12-01", "9999-12-31", ConfigError, "split.validation_end=9999-12-31: no date of bars"),
        ("0001-01-01", "2020-12-01", ConfigError, "split.train_end=0001-01-01: no date of bars"),
    ],
)
def test_impossible_parts_are_refused_in_one_line(first: object, second: object, error: type, message: str) -> None:
    built = panel.build(random_bars({"A": 100}), ("return",), 1)
    with pytest.raises(error, match=message) as caught:
        splits.split(built, 5, first, second)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_where_gaps_leave_a_part_without_windows_the_error_names_the_gap() -> None:
    days = Calendar("XNYS").sessions("2023-01-03", "2023-12-29").to_numpy()
    sparse = np.concatenate((days[:150], days[150::4]))
    built = panel.build(bars_at({"A": sparse}, "XNYS", "1d"), ("return",), 1, max_gap=2)
    with pytest.raises(DataError, match=r"the test part has no window: .* across gaps.*, raise data.max_gap or bring"):
        splits.split(built, 5, "2023-06-01", "2023-09-29")


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


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=50), min_size=1, max_size=3),
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(0, 3),
    st.sets(st.integers(0, 150), max_size=4),
)
def test_every_full_window_is_counted_once_by_symbol_and_part(
    missing: list[list[int]], length: int, horizon: int, embargo: int, max_gap: int, silent: set[int]
) -> None:
    """Against a naive loop; in all, max(0, n - w - L - H + 1) a symbol."""
    sessions = Calendar("XNYS").sessions("2020-01-02", "2023-12-29").to_numpy()
    steps = [[*([1 + hole for hole in holes]), *[1] * 80] for holes in missing]
    times = {f"S{number}": sessions[np.cumsum(own)] for number, own in enumerate(steps)}
    bars = bars_at(times, "XNYS", "1d")
    bars.frame.loc[sorted(row for row in silent if row < len(bars.frame)), "volume"] = 0.0
    built = panel.build(bars, ("return", "volume"), horizon, max_gap=max_gap)
    try:
        parts = splits.split(built, length, 0.6, 0.8, embargo)
    except DataError:
        return
    distinct = np.unique(built.times)
    ends = [int(np.searchsorted(distinct, end)) for end in (parts.train_end, parts.validation_end)]
    fates = {"gapped": panel.GAPPED, "undefined": panel.UNDEFINED}
    lost = {name: set(built.origins(length, fate)) for name, fate in fates.items()}
    expected = {name: np.zeros((4, len(times)), dtype=int) for name in splits.PARTS}
    rows: dict[str, list[int]] = {name: [] for name in splits.PARTS}
    for symbol in range(len(times)):
        first, end = built.bounds(symbol)
        for row in range(first + WARMUP + length - 1, end - horizon):
            origin, known = (int(np.searchsorted(distinct, built.times[at])) for at in (row, row + horizon))
            number = sum(origin > place for place in ends)
            name = splits.PARTS[number]
            timely = number == 2 or known <= ends[number] - embargo
            kind = 1 if row in lost["gapped"] else 2 if row in lost["undefined"] else 0 if timely else 3
            expected[name][kind, symbol] += 1
            if kind == 0:
                rows[name].append(row)
    for name, count in parts.counts.items():
        assert np.array_equal([count.kept, count.gapped, count.undefined, count.purged], expected[name])
        assert getattr(parts, name).tolist() == rows[name]
    full = sum(count.full for count in parts.counts.values())
    assert full.tolist() == [max(0, len(own) - WARMUP - length - horizon + 1) for own in times.values()]


def test_counts_are_told_in_words() -> None:
    numbers = [np.array(pair) for pair in ((700, 112), (20, 0), (0, 0), (5, 3))]
    assert splits.Count(*numbers).told == "812 (of 840: 20 across gaps, 8 purged)"
    nothing = np.zeros(2, dtype=np.int64)
    assert splits.Count(numbers[0], nothing, nothing, nothing).told == "812"


@pytest.mark.parametrize(
    ("code", "zone", "shift"), [("XNYS", "America/New_York", 0), ("forex", "America/New_York", 7), ("24/7", "UTC", 0)]
)
@pytest.mark.parametrize(("first", "second"), [("2024-03-08", "2024-04-05"), (0.4, 0.7)])
def test_intraday_parts_end_with_a_session_of_the_market(
    code: str, zone: str, shift: int, first: str | float, second: str | float
) -> None:
    times = stamps(code, "2024-01-29", "2024-05-17")
    built = panel.build(bars_at({"A": times, "B": times[60:]}, code, "1h"), ("return",), 2)
    parts = splits.split(built, 12, first, second)
    # A forex day begins at 17:00, seven hours before midnight.
    clock = pd.DatetimeIndex(built.times).tz_localize("UTC").tz_convert(zone).tz_localize(None)
    days = (clock + pd.Timedelta(hours=shift)).normalize()
    known = {name: built.target_times[getattr(parts, name), -1] for name in splits.PARTS}
    for name, end, begins in (("train", parts.train_day, "validation"), ("validation", parts.validation_day, "test")):
        assert (days[getattr(parts, name)] <= pd.Timestamp(end)).all()
        assert known[name].max() <= getattr(parts, f"{name}_end") < built.times[getattr(parts, begins)].min()
        last = built.bounds(0)[0] + int(np.flatnonzero(days[: built.bounds(0)[1]] <= pd.Timestamp(end)).max())
        # The part's last target is the last bar of that session, the next part's first origin the one after.
        assert known[name].max() == built.times[last]
        assert built.times[getattr(parts, begins)].min() == built.times[last + 1]
    assert parts.purged == 2 * 2 * 2
    if isinstance(first, str):
        assert (parts.train_day, parts.validation_day) == (first, second)
    else:
        distinct = days.unique().sort_values()
        assert parts.train_day == str(distinct[round(0.4 * len(distinct)) - 1].date())


def test_an_embargo_counts_sessions_not_bars() -> None:
    times = stamps("XNYS", "2024-01-29", "2024-05-17")
    built = panel.build(bars_at({"A": times}, "XNYS", "1h"), ("return",), 1)
    plain = splits.split(built, 12, "2024-03-08", "2024-04-05")
    held = splits.split(built, 12, "2024-03-08", "2024-04-05", embargo=2)
    assert held.purged == plain.purged + 2 * 2 * 7
    assert splits.day(built, built.target_times[held.train[-1], 0]) == "2024-03-06"


def test_bars_from_before_and_after_the_open_hours_stay_with_their_session() -> None:
    days = Calendar("XNYS").sessions("2024-01-29", "2024-05-17")
    # 04:00 to 19:00 in New York, past midnight in UTC.
    slots = range(9, 25)
    times = np.array([utc(str(day + pd.Timedelta(hours=hour))) for day in days for hour in slots])
    built = panel.build(bars_at({"A": times}, "XNYS", "1h"), ("return",), 1)
    parts = splits.split(built, 12, "2024-02-16", "2024-03-01")
    assert built.target_times[parts.train, 0].max() == utc("2024-02-17T00:00")
    assert parts.train_day == "2024-02-16"


def test_pieces_change_no_bit_of_the_scaler(monkeypatch: pytest.MonkeyPatch) -> None:
    built = panel.build(random_bars({"A": 160, "B": 120, "C": 15}), ("return", "volatility"), 2)
    parts = splits.split(built, 6, 0.6, 0.8)
    whole = scaling.fit(built, parts, 6)
    rows = np.unique(built.rows(parts.train, 6))
    assert np.array_equal(whole.target_mean, built.targets[parts.train].reshape(-1, 2).mean(0))
    assert np.array_equal(whole.target_std, built.targets[parts.train].reshape(-1, 2).std(0))
    assert whole.feature_std[0] == built.features[rows].astype(np.float64).std(0)[0]
    monkeypatch.setattr(scaling, "CHUNK", 7)
    pieces = scaling.fit(built, parts, 6)
    for name in ("feature_mean", "feature_std", "target_mean", "target_std"):
        assert getattr(pieces, name).tobytes() == getattr(whole, name).tobytes()


def test_pieces_change_no_bit_of_the_scaler_of_a_single_target(monkeypatch: pytest.MonkeyPatch) -> None:
    built = panel.build(random_bars({"A": 1200, "B": 900}), ("return",), 1)
    parts = splits.split(built, 6, 0.6, 0.8)
    whole = scaling.fit(built, parts, 6)
    for size in (7, 100):
        monkeypatch.setattr(scaling, "CHUNK", size)
        pieces = scaling.fit(built, parts, 6)
        assert pieces.target_mean.tobytes() == whole.target_mean.tobytes()
        assert pieces.target_std.tobytes() == whole.target_std.tobytes()
