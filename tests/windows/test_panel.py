"""Windows of the panel: counts, contents, and that none crosses two symbols."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricate import random_bars
from forecaster.bars.calendar import Calendar
from forecaster.errors import DataError
from forecaster.windows import panel
from forecaster.windows.features import FEATURES, WARMUP, features
from forecaster.windows.targets import TARGETS, past, targets
from hourly import bars_at, stamps, utc


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


def test_a_panel_in_a_file_is_the_panel_in_memory_and_that_of_each_symbol_by_itself(tmp_path: Path) -> None:
    bars = random_bars({"A": 60, "B": 45, "C": 21})
    whole = panel.build(bars, TARGETS, 2)
    mapped = panel.build(bars, TARGETS, 2, in_memory_gb=0.0, folder=tmp_path)
    frames = [bars.frame[bars.frame["symbol"] == symbol].reset_index(drop=True) for symbol in "ABC"]
    single = [panel.build(replace(bars, frame=frame), TARGETS, 2) for frame in frames]
    for name in ("features", "targets", "past", "times", "target_times"):
        expected = getattr(whole, name).tobytes()
        assert getattr(mapped, name).tobytes() == expected
        assert b"".join(getattr(one, name).tobytes() for one in single) == expected


def test_features_targets_and_past_are_those_of_the_formulas() -> None:
    bars = random_bars({"A": 60, "B": 45})
    built = panel.build(bars, TARGETS, 2)
    for number, symbol in enumerate("AB"):
        frame = bars.frame[bars.frame["symbol"] == symbol]
        rows = slice(*built.bounds(number))
        assert np.array_equal(built.features[rows], features(frame).astype(np.float32), equal_nan=True)
        assert np.array_equal(built.targets[rows], targets(frame, TARGETS, 2), equal_nan=True)
        own = np.column_stack([past(frame, name) for name in TARGETS])
        assert np.array_equal(built.past[rows], own, equal_nan=True)
    assert built.feature_names == FEATURES
    assert built.off == ()


@pytest.mark.parametrize(
    ("lacking", "without", "left"),
    [
        ("ohl", {"log_volatility"}, ("return", "volume")),
        ("volume", {"log_volume"}, ("return", "volatility")),
        ("both", {"log_volatility", "log_volume"}, ("return",)),
    ],
)
def test_what_bars_lack_is_off_and_named(lacking: str, without: set[str], left: tuple[str, ...]) -> None:
    days = Calendar("XNYS").sessions("2024-01-02", "2024-06-28").to_numpy()
    built = panel.build(bars_at({"A": days}, "XNYS", "1d", lacking=lacking), TARGETS, 1)
    assert built.target_names == left
    assert built.feature_names == tuple(name for name in FEATURES if name not in without)
    assert np.isfinite(built.window(built.origins(5), 5)).all()
    assert len(built.off) == 2 * len(without)
    if lacking == "ohl":
        assert built.off == (
            "feature log_volatility: the bars have no open, high, low",
            "target volatility: the bars have no open, high, low",
        )


def test_where_no_target_is_left_the_error_says_what_the_bars_lack() -> None:
    days = Calendar("XNYS").sessions("2024-01-02", "2024-06-28").to_numpy()
    with pytest.raises(DataError) as error:
        panel.build(bars_at({"A": days}, "XNYS", "1d", lacking="both"), ("volatility", "volume"), 1)
    assert str(error.value) == (
        "target volatility, volume: the bars have no open, high, low, volume: bring bars that have what it needs, or "
        "forecast what needs the close alone: data.targets=[return]"
    )


def test_a_volume_of_0_in_every_bar_is_no_volume() -> None:
    bars = random_bars({"A": 60})
    bars.frame["volume"] = 0.0
    built = panel.build(bars, TARGETS, 1)
    assert built.target_names == ("return", "volatility")
    assert "feature log_volume: the bars have no volume" in built.off


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=60), min_size=1, max_size=3),
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(0, 3),
    st.sets(st.integers(0, 150), max_size=4),
)
def test_no_window_spans_a_gap_and_every_other_is_there(
    missing: list[list[int]], length: int, horizon: int, max_gap: int, silent: set[int]
) -> None:
    """Against a naive loop over bars with holes and bars without volume."""
    sessions = Calendar("XNYS").sessions("2020-01-02", "2023-12-29").to_numpy()
    steps = [[1 + hole for hole in holes] + [1] * 25 for holes in missing]
    times = {f"S{number}": sessions[np.cumsum(own)] for number, own in enumerate(steps)}
    bars = bars_at(times, "XNYS", "1d")
    count = len(bars.frame)
    bars.frame.loc[sorted(row for row in silent if row < count), "volume"] = 0.0
    built = panel.build(bars, ("return", "volume"), horizon, max_gap=max_gap)
    kept, gapped, undefined = [], [], []
    start = 0
    for own in times.values():
        place = np.searchsorted(sessions, own)
        for origin in range(len(own)):
            if origin - length + 1 < WARMUP or origin + horizon >= len(own):
                continue
            steps = [place[i + 1] - place[i] for i in range(origin - length + 1, origin + horizon)]
            ahead = bars.frame["volume"].to_numpy()[start + origin + 1 : start + origin + horizon + 1]
            where = gapped if max(steps) > max_gap + 1 else undefined if (ahead == 0).any() else kept
            where.append(start + origin)
        start += len(own)
    assert built.origins(length).tolist() == kept
    assert built.origins(length, panel.GAPPED).tolist() == gapped
    assert built.origins(length, panel.UNDEFINED).tolist() == undefined


def test_a_night_a_half_day_a_holiday_and_a_weekend_are_no_gap_but_a_missing_hour_is() -> None:
    times = stamps("XNYS", "2024-06-03", "2024-07-12")
    bars = bars_at({"A": times}, "XNYS", "1h")
    full = panel.build(bars, ("return",), 1, max_gap=0)
    assert len(full.gaps) == 0
    assert len(full.origins(8)) == len(times) - WARMUP - 8 - 1 + 1
    holed = bars_at({"A": np.delete(times, 100)}, "XNYS", "1h")
    built = panel.build(holed, ("return",), 1, max_gap=0)
    assert built.gaps.tolist() == [100]
    # The gap lies between two of a window's 8 bars or before its target for 8 origins, rows 99 to 106.
    assert built.origins(8, panel.GAPPED).tolist() == list(range(99, 107))
    assert len(panel.build(holed, ("return",), 1, max_gap=1).origins(8, panel.GAPPED)) == 0


def test_the_next_bar_is_not_forecast_from_a_window_across_a_gap() -> None:
    times = stamps("XNYS", "2024-06-03", "2024-07-12")
    bars = bars_at({"A": np.delete(times, -4), "B": times[:-1]}, "XNYS", "1h")
    built = panel.build(bars, ("return",), 1, max_gap=0)
    assert [int(row) for row in built.last_origins(3)] == [len(times) - 2, 2 * len(times) - 3]
    assert [int(row) for row in built.last_origins(5)] == [2 * len(times) - 3]


def test_the_next_bars_are_due_at_the_symbols_own_hours() -> None:
    times = stamps("XNYS", "2024-06-03", "2024-07-08")
    bars = bars_at({"A": times[:-30], "B": times[:-16]}, "XNYS", "1h")
    built = panel.build(bars, ("return",), 9)
    due = built.times_after(built.last_origins(5))
    assert due.tolist() == [times[-30:-21].tolist(), times[-16:-7].tolist()]


def test_intraday_features_know_the_markets_clock_over_a_change_of_clocks() -> None:
    # 09:30 in New York is 14:30 UTC before 10 March 2024 and 13:30 after.
    times = stamps("XNYS", "2024-02-26", "2024-03-22")
    built = panel.build(bars_at({"A": times}, "XNYS", "1h"), ("return",), 1)
    assert built.feature_names == (*FEATURES, "clock_sin", "clock_cos")
    angle = 2 * np.pi * 9.5 / 24
    opens = [np.flatnonzero(times == utc(stamp))[0] for stamp in ("2024-03-07T14:30", "2024-03-14T13:30")]
    for row in opens:
        assert built.features[row, -2:] == pytest.approx([np.sin(angle), np.cos(angle)], abs=1e-6)
        assert built.features[row, FEATURES.index("weekday_3")] == 1.0
    assert built.features[opens[0], FEATURES.index("gap_days")] == pytest.approx(18 / 24)


def test_weekdays_of_intraday_bars_are_the_markets() -> None:
    # Sunday evening in New York is Monday in UTC.
    times = stamps("forex", "2024-07-01", "2024-07-12")
    built = panel.build(bars_at({"A": times}, "forex", "1h"), ("return",), 1)
    row = int(np.flatnonzero(times == utc("2024-07-08T01:00"))[0])
    assert built.features[row, FEATURES.index("weekday_6")] == 1.0


def sessions() -> np.ndarray:
    return Calendar("XNYS").sessions("2024-03-01", "2024-07-01").to_numpy()


def test_calendar_ahead_is_that_of_the_sessions_to_come() -> None:
    built = panel.build(bars_at({"A": sessions()}, "XNYS", "1d"), ("return",), 3)
    ahead = built.future(np.array([21, 22, 40]))
    assert ahead.shape == (3, 3, built.future_size) == (3, 3, 7)
    for number, origin in enumerate((21, 22, 40)):
        for step in range(3):
            weekday = pd.Timestamp(built.times[origin + step + 1]).day_of_week
            assert ahead[number, step].tolist() == [float(k == weekday) for k in range(7)]


def test_calendar_ahead_does_not_foretell_a_halt_and_reaches_beyond_the_last_bar() -> None:
    days = sessions()
    whole = panel.build(bars_at({"A": days}, "XNYS", "1d"), ("return",), 2)
    halted = panel.build(bars_at({"A": np.delete(days, [41, 42])}, "XNYS", "1d"), ("return",), 2)
    rows = np.arange(20, 41)
    assert np.array_equal(whole.future(rows), halted.future(rows))
    # The Monday after is followed by Tuesday and Wednesday: the Fourth of July is a Thursday.
    assert whole.future(np.array([len(days) - 1]))[0].argmax(-1).tolist() == [1, 2]


def test_hours_ahead_are_those_of_the_market() -> None:
    built = panel.build(bars_at({"A": stamps("XNYS", "2024-03-01", "2024-03-28")}, "XNYS", "1h"), ("return",), 2)
    clock = built.clock(built.times)
    for row in (30, 35, 60, 69):
        due = Calendar("XNYS").due(built.times[[row]], 2, "1h")[0]
        assert (due > built.times[row]).all()
        if str(clock[row])[11:16] in ("09:30", "10:30"):
            assert due.tolist() == built.target_times[row].tolist()
