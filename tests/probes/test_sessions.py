"""Intraday queries: the shift null and the matched bars keep to the time of the day."""

import numpy as np
import pandas as pd
import pytest

from forecaster.bars.calendar import clocks
from forecaster.bars.contract import Bars, check, quality_report
from forecaster.probes.knockout import same_offsets
from forecaster.probes.masks import Mask, Queries, large_move
from forecaster.probes.nulls import ShiftNull, Shifts
from forecaster.probes.survey import session_slots
from forecaster.windows import panel
from hourly import bars_at, stamps, utc

LENGTH = 48


def loops(attention: np.ndarray, flags: np.ndarray, dates: np.ndarray, slots: np.ndarray, shift: int) -> float:
    """kappa of flags that come from the query of the same slot `shift` dates later, in a circle."""
    days = sorted(set(dates))
    at = {(days.index(date), slot): n for n, (date, slot) in enumerate(zip(dates, slots, strict=True))}
    pairs = [
        (n, at[(day + shift) % len(days), slot])
        for (day, slot), n in at.items()
        if ((day + shift) % len(days), slot) in at
    ]
    first, second = (np.array(side) for side in zip(*pairs, strict=True))
    observed = (attention[first] * flags[second]).sum(1).mean()
    expected = attention[first].mean(0) @ flags[second].mean(0)
    return (observed - expected) / (1 - expected)


def test_shifts_are_whole_sessions_and_pairs_of_one_slot():
    rng = np.random.default_rng(0)
    dates, slots = np.repeat(np.arange(30), 4), np.tile(np.arange(4), 30)
    there = rng.random(120) > 0.1
    dates, slots = dates[there], slots[there]
    count = len(dates)
    flags, attention = rng.random((count, 6)) < 0.3, rng.dirichlet(np.ones(6), size=(count, 1))
    times = np.datetime64("2024-01-01", "us") + dates * np.timedelta64(1, "D")
    null = ShiftNull(Shifts(Mask(flags, np.ones(count, dtype=bool)), np.zeros(count, dtype=int), times, 6, slots), 1)
    null.update(attention)
    observed, shifted = null.kappas()
    # 3.6 bars a session: six bars are two sessions.
    assert (null.shifts.admissible // 4).tolist() == list(range(2, 29))
    assert observed[0] == pytest.approx(loops(attention[:, 0], flags, dates, slots, 0))
    for column, shift in enumerate(range(2, 29)):
        assert shifted[0, column] == pytest.approx(loops(attention[:, 0], flags, dates, slots, shift))


def test_shifts_are_as_long_as_a_window_of_the_symbol_with_the_fewest_bars_a_session():
    dates = np.concatenate([np.repeat(np.arange(60), 24), np.repeat(np.arange(60), 4)])
    slots = np.concatenate([np.tile(np.arange(24), 60), np.tile(np.arange(4), 60)])
    symbols = np.repeat([0, 1], [60 * 24, 60 * 4])
    flags = np.random.default_rng(0).random((len(dates), 10)) < 0.3
    times = np.datetime64("2024-01-01", "us") + dates * np.timedelta64(1, "D")
    shifts = Shifts(Mask(flags, np.ones(len(dates), dtype=bool)), symbols, times, 10, slots)
    assert (shifts.admissible // 24).tolist() == list(range(3, 58))  # ten bars of the second are three sessions


def market_with_an_hour() -> tuple[panel.Panel, np.ndarray]:
    """Hours of a currency that moves four times as much at 8:00 in New York, and whether a bar is of that hour."""
    times = stamps("forex", "2023-01-02", "2023-12-29")
    clock = clocks(times, "America/New_York")
    hot = clock - clock.astype("datetime64[D]") == np.timedelta64(8, "h")
    rng = np.random.default_rng(0)
    close = 100 * np.exp(np.cumsum(rng.standard_t(4, len(times)) * np.where(hot, 0.004, 0.001)))
    opening = np.concatenate(([100.0], close[:-1]))
    prices = {"open": opening, "high": np.maximum(opening, close), "low": np.minimum(opening, close), "close": close}
    frame = pd.DataFrame({"symbol": "A", "time": pd.DatetimeIndex(times).tz_localize("UTC"), **prices, "volume": 1.0})
    bars = Bars(check(frame, "made"), quality_report([]), "forex", "1h", "as made")
    return panel.build(bars, ("return",), 1), hot


def test_a_head_that_follows_the_clock_has_no_large_move_pattern_and_one_that_finds_moves_has():
    """The first has p under .05 by chance in 5 % of seeds; with shifts of any number of bars it had the least p."""
    built, hot = market_with_an_hour()
    origins = built.origins(LENGTH)[4000:]
    full = np.full(len(origins), LENGTH)
    mask = large_move().at(built, Queries(origins, full, full, LENGTH))
    rng = np.random.default_rng(3)
    noise = rng.dirichlet(np.ones(LENGTH), size=len(origins))
    shown = hot[built.rows(origins, LENGTH)[:, ::-1]]
    clock = 0.7 * noise + 0.3 * shown / shown.sum(1, keepdims=True)
    finder = 0.95 * clock + 0.05 * mask.flags / mask.flags.sum(1, keepdims=True)
    heads = np.stack((clock, finder), axis=1)
    symbols = built.symbol_ids[origins]
    dates, slots = session_slots(built, origins, LENGTH)
    null = ShiftNull(Shifts(mask, symbols, dates, LENGTH, slots), 2)
    null.update(heads)
    test = null.test(16)
    assert null.kappas()[0][0] > 0.05
    assert test.p[0] > 0.05
    assert test.p[1] < 0.001
    careless = ShiftNull(Shifts(mask, symbols, built.times[origins], LENGTH), 2)
    careless.update(heads)
    assert careless.test(16).p[0] < 0.001


def test_windows_over_an_early_close_lie_otherwise_on_the_clock():
    times = stamps("XNYS", "2024-05-01", "2024-07-31")
    built = panel.build(bars_at({"A": times}, "XNYS", "1h"), ("return",), 1)
    origins = built.origins(14)
    dates, slots = session_slots(built, origins, 14)
    assert slots is not None
    odd = slots % 2 == 1
    # The 3rd of July has four bars: so have windows of 14 that begin before its close and end after it.
    early = int(np.flatnonzero(times == utc("2024-07-03T16:30"))[0])
    assert origins[odd].tolist() == list(range(early + 1, early + 14))
    assert len(np.unique(slots[~odd])) == 7
    assert dates[0] == np.datetime64(str(times[origins[0]])[:10], "us")


def test_daily_bars_have_dates_alone(garch, origins):
    dates, slots = session_slots(garch, origins, 12)
    assert np.array_equal(dates, garch.times[origins])
    assert slots is None


def test_matched_bars_are_of_the_same_slot_and_far_enough():
    flags = np.random.default_rng(0).random((24, 5)) < 0.4
    slots = np.tile([0, 1, 2], 8)
    slots[[4, 5]] = 9  # nearer to one another than a window
    matched, used = same_offsets(Mask(flags, np.ones(24, dtype=bool)), np.zeros(24, dtype=int), 5, slots)
    assert used.tolist() == [row not in (4, 5) for row in range(24)]
    for slot in range(3):
        rows = np.flatnonzero(slots == slot)
        assert np.array_equal(matched[rows], flags[np.roll(rows, -(len(rows) // 2))])
