import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from forecaster.probes.masks import (
    Mask,
    Probe,
    Queries,
    large_move,
    recency,
    weekly,
    weekly_target,
)
from forecaster.probes.standard import standard
from forecaster.windows.panel import build
from hourly import bars_at, stamps, utc


def last_bars(rows: list[int], length: int, direction: str = "past", reach: int | None = None) -> Queries:
    place = np.array(rows)
    return Queries(
        place, np.full(len(rows), length if reach is None else reach), np.full(len(rows), length), length, direction
    )


@pytest.fixture
def sessions() -> pd.DatetimeIndex:
    """Weekdays of June and July 2024 without Thursday 4 July."""
    days = pd.bdate_range("2024-06-03", "2024-07-31")
    return days[days != pd.Timestamp("2024-07-04")]


def row(sessions: pd.DatetimeIndex, day: str) -> int:
    return int(sessions.get_loc(pd.Timestamp(day)))


def flagged_days(sessions: pd.DatetimeIndex, query: int, flags: np.ndarray) -> list[str]:
    return [str(sessions[query - lag].date()) for lag in np.flatnonzero(flags)]


def test_recency_flags_the_last_bars_when_the_window_is_longer(make_panel, sessions):
    panel = make_panel([sessions], [np.ones(len(sessions))], 5)
    mask = recency(3).at(panel, last_bars([20, 30], 7))
    assert mask.measurable.all()
    np.testing.assert_array_equal(mask.flags, [[1, 1, 1, 0, 0, 0, 0]] * 2)


def test_recency_is_not_measurable_when_the_window_has_no_other_bar(make_panel, sessions):
    panel = make_panel([sessions], [np.ones(len(sessions))], 5)
    assert not recency(3).at(panel, last_bars([20], 3)).measurable.any()


def test_weekly_flags_the_same_weekday_when_a_holiday_makes_the_lag_four(make_panel, sessions):
    panel = make_panel([sessions], [np.ones(len(sessions))], 5)
    before, after = row(sessions, "2024-07-02"), row(sessions, "2024-07-09")
    mask = weekly(5).at(panel, last_bars([before, after], 8))
    assert [flagged_days(sessions, q, f) for q, f in zip((before, after), mask.flags, strict=True)] == [
        ["2024-06-25"],
        ["2024-07-02"],
    ]
    assert [np.flatnonzero(flags).tolist() for flags in mask.flags] == [[5], [4]]


def test_weekly_target_flags_a_week_before_the_next_bar_when_the_step_is_one(make_panel, sessions):
    panel = make_panel([sessions], [np.ones(len(sessions))], 5)
    plain, friday = row(sessions, "2024-06-19"), row(sessions, "2024-06-21")
    mask = weekly_target(5).at(panel, last_bars([plain, friday], 8))
    assert flagged_days(sessions, plain, mask.flags[0]) == ["2024-06-13"]
    assert flagged_days(sessions, friday, mask.flags[1]) == ["2024-06-17"]
    assert [np.flatnonzero(flags).tolist() for flags in mask.flags] == [[4], [4]]


def test_weekly_drops_the_query_when_no_session_was_a_week_before(make_panel, sessions):
    panel = make_panel([sessions], [np.ones(len(sessions))], 5)
    mask = weekly(5).at(panel, last_bars([row(sessions, "2024-07-11"), row(sessions, "2024-07-12")], 8))
    np.testing.assert_array_equal(mask.measurable, [False, True])
    assert not mask.flags[0].any()


def test_weekly_target_drops_the_query_when_the_target_is_not_known_yet(make_panel, sessions):
    panel = make_panel([sessions], [np.ones(len(sessions))], 5)
    assert not weekly_target(5).at(panel, last_bars([len(sessions) - 1], 8)).measurable.any()


def test_weekly_never_flags_another_symbol(make_panel, sessions):
    panel = make_panel([sessions, sessions], [np.ones(len(sessions))] * 2, 5)
    first = len(sessions)
    mask = weekly(5).at(panel, last_bars([first + 3, first + 5], 8, reach=8))
    np.testing.assert_array_equal(mask.measurable, [False, True])


def test_weekly_looks_ahead_when_asked_for_the_future(make_panel, sessions):
    panel = make_panel([sessions], [np.ones(len(sessions))], 5)
    query = row(sessions, "2024-06-10")
    mask = weekly(5).at(panel, last_bars([query], 8, "future"))
    assert np.flatnonzero(mask.flags[0]).tolist() == [4]  # offset 4 ahead is the fifth bar after the query


def test_weekly_follows_the_clock_when_bars_never_stop(make_panel):
    hours = pd.date_range("2024-01-01", periods=400, freq="h")
    panel = make_panel([hours], [np.ones(400)], 168)
    mask = weekly(168).at(panel, last_bars([300], 200))
    assert np.flatnonzero(mask.flags[0]).tolist() == [168]


def test_weekly_is_not_measurable_when_the_window_is_no_longer_than_a_week(make_panel, sessions):
    panel = make_panel([sessions], [np.ones(len(sessions))], 5)
    queries = last_bars([row(sessions, "2024-07-09")], 5)  # after a holiday the weekly bar is four bars back, in reach
    assert not weekly(5).at(panel, queries).measurable.any()
    assert not weekly_target(5).at(panel, queries).measurable.any()


def test_comb_flags_every_week_in_the_window_when_some_are_missing(make_panel, sessions):
    panel = make_panel([sessions], [np.ones(len(sessions))], 5)
    query = row(sessions, "2024-07-18")
    mask = weekly(5, (1, 2, 3)).at(panel, last_bars([query], 20))
    assert flagged_days(sessions, query, mask.flags[0]) == ["2024-07-11", "2024-06-27"]


def test_large_move_flags_the_nearest_when_moves_are_equal(make_panel, sessions):
    shocks = np.ones(len(sessions))
    shocks[[10, 14]] = 2.0, -3.0
    panel = make_panel([sessions], [shocks], 5)
    mask = large_move().at(panel, last_bars([17], 9))
    assert np.flatnonzero(mask.flags[0]).tolist() == [0, 3, 7]


def test_large_move_ignores_moves_out_of_reach(make_panel, sessions):
    shocks = np.arange(len(sessions), dtype=float)
    panel = make_panel([sessions], [shocks], 5)
    queries = Queries(np.array([20]), np.array([6]), np.array([6]), 9)
    ahead = Queries(np.array([20]), np.array([5]), np.array([9]), 9, "future")
    assert np.flatnonzero(large_move().at(panel, queries).flags[0]).tolist() == [0, 1, 2]
    assert np.flatnonzero(large_move().at(panel, ahead).flags[0]).tolist() == [2, 3, 4]


def test_large_move_drops_the_query_when_the_series_is_flat(make_panel, sessions):
    shocks = np.zeros(len(sessions))
    shocks[[20, 21, 22]] = 1.0
    panel = make_panel([sessions], [shocks], 5)
    np.testing.assert_array_equal(large_move().at(panel, last_bars([19, 21, 22], 9)).measurable, [False, False, True])


def test_one_function_makes_a_probe_of_ones_own(make_panel, sessions):
    shocks = np.zeros(len(sessions))
    shocks[::4] = 1.0
    panel = make_panel([sessions], [shocks], 5)

    def moved(panel, queries):
        rows, reached = queries.keys()
        return Mask((panel.features[rows, 0] > 0) & reached, np.ones(len(queries.rows), dtype=bool))

    mask = Probe("moved", "profile", moved).at(panel, last_bars([21], 7))
    assert np.flatnonzero(mask.flags[0]).tolist() == [1, 5]


def test_recency_takes_a_share_of_the_window_when_bars_are_not_daily(make_panel, sessions):
    panel = make_panel([sessions], [np.ones(len(sessions))], 5)
    daily, hourly = (standard(replace(panel, interval=interval), np.arange(40), 40)[0] for interval in ("1d", "1h"))
    queries = last_bars([39], 40)
    assert daily.at(panel, queries).flags.sum() == 3
    assert hourly.at(panel, queries).flags.sum() == 2


@pytest.mark.parametrize("change", ["2024-03-10", "2024-11-03"])
def test_weekly_is_at_the_same_clock_time_when_clocks_change_between(change):
    """In New York a week is an hour less than 7 days in March, an hour more in November."""
    day = pd.Timestamp(change)
    times = stamps("XNYS", day - pd.Timedelta(days=40), day + pd.Timedelta(days=10))
    built = build(bars_at({"A": times}, "XNYS", "1h"), ("return",), 1)
    clock = pd.DatetimeIndex(times).tz_localize("UTC").tz_convert("America/New_York").tz_localize(None)
    for query in range(len(times) - 70, len(times) - 1):
        last = last_bars([query], 40)
        for probe, reference in ((weekly(35), clock[query]), (weekly_target(35), clock[query + 1])):
            mask = probe.at(built, last)
            wanted = np.flatnonzero(clock == reference - pd.Timedelta(days=7))
            found = query - np.flatnonzero(mask.flags[0])
            assert found.tolist() == wanted.tolist()
            assert mask.measurable[0] == (len(wanted) == 1)
    after = int(np.flatnonzero(clock > day + pd.Timedelta(days=1))[0])
    lag = int(np.flatnonzero(weekly(35).at(built, last_bars([after], 40)).flags[0])[0])
    assert lag == 35
    assert abs((times[after] - times[after - lag]) / np.timedelta64(1, "h") - 168) == 1


def test_weekly_looks_ahead_over_a_change_of_clocks():
    times = stamps("XNYS", "2024-02-01", "2024-03-20")
    built = build(bars_at({"A": times}, "XNYS", "1h"), ("return",), 1)
    query = int(np.flatnonzero(times == utc("2024-03-05T14:30"))[0])
    mask = weekly(35).at(built, last_bars([query], 40, "future"))
    assert [times[query + 1 + ahead] for ahead in np.flatnonzero(mask.flags[0])] == [utc("2024-03-12T13:30")]


def test_a_probe_that_is_none_is_refused_in_one_line():
    """In a process of its own: here annotations are checked before the code is."""
    program = """
import numpy as np
from forecaster.errors import ConfigError
from forecaster.probes.masks import Mask, Probe, Queries

queries = Queries(np.array([50, 60, 70]), np.full(3, 4), np.full(3, 4), 4)
for chance, flags, measurable in (
    ("neighbors", np.zeros((3, 4), bool), np.ones(3, bool)),
    ("profile", np.zeros((3, 4), int), np.ones(3, bool)),
    ("profile", np.zeros((3, 5), bool), np.ones(3, bool)),
    ("profile", np.zeros((3, 4), bool), np.ones((3, 1), bool)),
):
    try:
        Probe("mine", chance, lambda panel, queries: Mask(flags, measurable)).at(None, queries)
    except ConfigError as fault:
        print(fault)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "probe mine: chance 'neighbors' is unknown: give one of visible, neighbours, profile",
        "probe mine: its mask's flags are int64 of shape (3, 4): give bool of shape (3, 4)",
        "probe mine: its mask's flags are bool of shape (3, 5): give bool of shape (3, 4)",
        "probe mine: its mask's measurable are bool of shape (3, 1): give bool of shape (3,)",
    ]
