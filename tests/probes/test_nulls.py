import time

import numpy as np
import pytest
from scipy.stats import binom
from scipy.stats import t as student_t

from forecaster.probes.masks import Mask, large_move
from forecaster.probes.nulls import MOST_SHIFTS, ShiftNull, Shifts, benjamini_hochberg


def stamps(count: int, start: int = 0) -> np.ndarray:
    return (np.datetime64("2020-01-01", "us") + (start + np.arange(count)) * np.timedelta64(1, "D")).astype(
        "datetime64[us]"
    )


def shift_by_loops(attention, mask, ids, times, length, shift):
    """kappa of each head when flags come from the same symbol's query `shift` dates later, in a circle."""
    kept = [i for i in np.unique(ids) if (mask.measurable & (ids == i)).sum() >= 3 * length]
    active = [n for n in range(len(ids)) if mask.measurable[n] and ids[n] in kept]
    dates = sorted({times[n] for n in active})
    at = {(ids[n], dates.index(times[n])): n for n in active}
    pairs = []
    for (symbol, day), n in at.items():
        partner = at.get((symbol, (day + shift) % len(dates)))
        if partner is not None:
            pairs.append((n, partner))
    first, second = (np.array(side) for side in zip(*pairs, strict=True))
    flags = mask.flags[second].astype(float)
    observed = (attention[first] * flags[:, None]).sum(-1).mean(0)
    expected = attention[first].mean(0) @ flags.mean(0)
    return (observed - expected) / (1 - expected)


def random_case(lengths: list[tuple[int, int]], span: int, seed: int):
    """Symbols of (start, count) dates with random attention, random flags and some queries that ask nothing."""
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(len(lengths)), [count for _, count in lengths])
    times = np.concatenate([stamps(count, start) for start, count in lengths])
    measurable = rng.random(len(ids)) > 0.05
    flags = (rng.random((len(ids), span)) < 0.3) & measurable[:, None]
    return rng.dirichlet(np.ones(span), size=(len(ids), 3)), Mask(flags, measurable), ids, times


@pytest.mark.parametrize(
    "symbols", [[(0, 40)], [(0, 40), (0, 40)], [(0, 40), (11, 23), (5, 35)], [(0, 31), (20, 9)]], ids=str
)
def test_every_shift_equals_loops_over_pairs(symbols):
    length = 5
    attention, mask, ids, times = random_case(symbols, length, seed=len(symbols))
    null = ShiftNull(Shifts(mask, ids, times, length), 3)
    null.update(attention)
    observed, shifted = null.kappas()
    np.testing.assert_allclose(observed, shift_by_loops(attention, mask, ids, times, length, 0), rtol=1e-9)
    assert len(null.shifts.admissible) > 10
    for column, shift in enumerate(null.shifts.admissible):
        by_hand = shift_by_loops(attention, mask, ids, times, length, shift)
        np.testing.assert_allclose(shifted[:, column], by_hand, rtol=1e-8, atol=1e-12)


def test_shifts_are_all_that_lie_a_window_away_either_way():
    mask = Mask(np.eye(40, 5, dtype=bool), np.ones(40, dtype=bool))
    assert Shifts(mask, np.zeros(40, dtype=int), stamps(40), 5).admissible.tolist() == list(range(5, 36))


def test_shifts_are_thinned_when_there_are_too_many(monkeypatch):
    count = MOST_SHIFTS + 5_000
    mask = Mask(np.zeros((count, 2), dtype=bool), np.ones(count, dtype=bool))
    monkeypatch.setattr("forecaster.probes.nulls.MOST_PLACES", count)
    shifts = Shifts(mask, np.zeros(count, dtype=int), stamps(count), 2).admissible
    assert len(np.unique(shifts)) == MOST_SHIFTS
    assert (shifts[0], shifts[-1]) == (2, count - 2)


def test_flags_are_shifted_within_the_queries_asked_so_far_that_each_meets_one_a_window_away():
    """Queries at days 0, 1, 2, 10, 20, 21, 30, 40, 50 and a window of 5: one place brings day 0 to 1 alone, three
    places bring every day 5 days away or more (0 to 10, ..., 10 to 30)."""
    asked = np.zeros(51, dtype=bool)
    asked[[0, 1, 2, 10, 20, 21, 30, 40, 50]] = True
    mask = Mask(np.eye(51, 5, dtype=bool) & asked[:, None], asked)
    assert Shifts(mask, np.zeros(51, dtype=int), stamps(51), 5).admissible.tolist() == [3, 4, 5, 6]


def test_long_series_are_shifted_in_stretches_of_their_own(monkeypatch):
    """61 dates in stretches of 21, 21 and 19: each stretch is a circle, as if it were a symbol of its own."""
    monkeypatch.setattr("forecaster.probes.nulls.MOST_PLACES", 30)
    attention, mask, ids, times = random_case([(0, 61), (0, 61)], 5, seed=4)
    mask = Mask(mask.flags, np.ones(len(ids), dtype=bool))
    whole = ShiftNull(Shifts(mask, ids, times, 5), 3)
    whole.update(attention)
    monkeypatch.undo()
    day = np.tile(np.arange(61), 2)
    apart = ShiftNull(Shifts(mask, 3 * ids + day // 21, stamps(21)[day % 21], 5), 3)
    apart.update(attention)
    np.testing.assert_array_equal(whole.shifts.admissible, apart.shifts.admissible)
    for one, other in zip(whole.kappas(), apart.kappas(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-13)


def test_shifts_that_lose_over_half_of_the_pairs_are_left_out():
    """Two symbols of 40 dates each that share none: at 40 dates either way nearly no query meets another."""
    _, mask, ids, times = random_case([(0, 40), (40, 40)], 5, seed=1)
    shifts = Shifts(mask, ids, times, 5)
    place = np.unique(times[mask.measurable], return_inverse=True)[1]
    asked = int(place.max()) + 1
    at = set(zip(ids[mask.measurable].tolist(), place.tolist(), strict=True))
    near = next(s for s in range(asked) if s in shifts.admissible)
    pairs = {s: sum((i, (d + s) % asked) in at for i, d in at) for s in range(near, asked - near + 1)}
    assert [s for s, count in pairs.items() if count >= max(pairs.values()) / 2] == shifts.admissible.tolist()
    assert near in (5, 6)
    assert 20 < len(shifts.admissible) < 50


def test_attention_is_summed_as_it_came_in_float64():
    attention, mask, ids, times = random_case([(0, 47), (3, 40)], 5, seed=2)
    short, long = (ShiftNull(Shifts(mask, ids, times, 5), 3) for _ in range(2))
    short.update(attention.astype(np.float32))
    long.update(attention.astype(np.float32).astype(np.float64))
    for one, other in zip(short.kappas(), long.kappas(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-13)


def test_short_symbols_are_left_out_and_counted():
    attention, mask, ids, times = random_case([(0, 40), (0, 9)], 5, seed=1)
    null = ShiftNull(Shifts(mask, ids, times, 5), 3)
    null.update(attention)
    alone = ShiftNull(Shifts(Mask(mask.flags[:40], mask.measurable[:40]), ids[:40], times[:40], 5), 3)
    alone.update(attention[:40])
    assert null.test(1).left_out == 1
    np.testing.assert_allclose(null.kappas()[0], alone.kappas()[0])


def test_nothing_is_tested_when_all_symbols_are_too_short():
    attention, mask, ids, times = random_case([(0, 12)], 5, seed=1)
    null = ShiftNull(Shifts(mask, ids, times, 5), 3)
    null.update(attention)
    test = null.test(3)
    assert np.isnan(test.p).all()
    assert (test.shifts, test.left_out) == (0, 1)


@pytest.mark.parametrize("symbols", [[(0, 40), (11, 23), (5, 35)], [(0, 40)], [(0, 47), (0, 47)]], ids=str)
def test_results_are_the_same_whatever_the_chunks(symbols, monkeypatch):
    attention, mask, ids, times = random_case(symbols, 5, seed=7)
    whole = ShiftNull(Shifts(mask, ids, times, 5), 3)
    whole.update(attention)
    monkeypatch.setattr("forecaster.probes.nulls.BUFFER", 60)
    monkeypatch.setattr("forecaster.probes.nulls.HELD_SHARE", 0.0)
    monkeypatch.setattr("forecaster.probes.nulls.AT_ONCE", 2 * whole.shifts.places)
    chunked = ShiftNull(Shifts(mask, ids, times, 5), 3)
    for part in np.split(attention, [1, 7, 40, 41, 80]):
        chunked.update(part)
    for one, other in zip(whole.kappas(), chunked.kappas(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-13)


def test_p_counts_shifts_at_least_as_high():
    attention, mask, ids, times = random_case([(0, 60)], 5, seed=2)
    null = ShiftNull(Shifts(mask, ids, times, 5), 3)
    null.update(attention)
    observed, shifted = null.kappas()
    test = null.test(2)
    assert not test.tail
    np.testing.assert_allclose(test.p, (1 + (shifted >= observed[:, None]).sum(1)) / (len(null.shifts.admissible) + 1))


def test_p_comes_from_the_t_tail_when_there_are_too_few_shifts_for_the_number_of_tests():
    attention, mask, ids, times = random_case([(0, 60)], 5, seed=2)
    null = ShiftNull(Shifts(mask, ids, times, 5), 3)
    null.update(attention)
    observed, shifted = null.kappas()
    test = null.test(3)  # 51 shifts: 1/52 is above .05/3
    dates = len(np.unique(times))
    assert test.tail
    z = (observed - shifted.mean(1)) / shifted.std(1, ddof=1)
    np.testing.assert_allclose(test.p, student_t.sf(z, dates // 5 - 1))


def test_p_is_one_when_a_head_looks_everywhere_alike():
    _, mask, ids, times = random_case([(0, 60)], 5, seed=2)
    mask = Mask(np.tile([True, False, False, True, False], (60, 1)), np.ones(60, dtype=bool))
    for tests in (1, 100):
        null = ShiftNull(Shifts(mask, ids, times, 5), 1)
        null.update(np.full((60, 1, 5), 0.2))
        assert null.test(tests).p[0] == 1.0


def test_false_positives_of_raw_p_stay_within_binomial_error(garch, queries, origins):
    """200 heads that attend by a random function of lag and of a random walk in time, on two GARCH series.

    Nothing is to be found in them: p <= .05 should be seen 10 times, and 18 is the 99 % point of the binomial.
    """
    rng = np.random.default_rng(17)
    heads, length = 200, queries.span
    ids, times = garch.symbol_ids[origins], garch.times[origins]
    dates, place = np.unique(times, return_inverse=True)
    pace = rng.normal(size=(len(dates), heads)).cumsum(0) / 30
    logits = rng.normal(size=(heads, length)) * np.tanh(pace[place])[:, :, None]
    attention = np.exp(logits + 0.3 * rng.normal(size=logits.shape))
    null = ShiftNull(Shifts(large_move().at(garch, queries), ids, times, length), heads)
    null.update(attention / attention.sum(-1, keepdims=True))
    hits = int((null.test(1).p <= 0.05).sum())
    assert hits <= binom.ppf(0.99, heads, 0.05)


def test_planted_heads_are_told_from_noise_when_the_share_is_a_twentieth(garch, queries, origins, plant):
    """AUC of kappa's p over 60 heads with s = .05 and 60 without: at least .95."""
    rng = np.random.default_rng(23)
    mask = large_move().at(garch, queries)
    noise = rng.dirichlet(np.full(queries.span, 2.0), size=(len(origins), 120))
    attention = np.concatenate([plant(noise[:, :60], mask, 0.05), noise[:, 60:]], axis=1)
    null = ShiftNull(Shifts(mask, garch.symbol_ids[origins], garch.times[origins], queries.span), 120)
    null.update(attention)
    z, nulls = null.kappas()
    z = (z - nulls.mean(1)) / nulls.std(1)
    assert (z[:60, None] > z[None, 60:]).mean() >= 0.95


def test_all_shifts_take_seconds_when_there_are_sixteen_heads():
    """2 symbols x 1,500 dates x 16 heads x 2 weightings, every shift; processor time, one thread."""
    rng = np.random.default_rng(0)
    ids, times = np.repeat([0, 1], 1500), np.tile(stamps(1500), 2)
    mask = Mask(rng.random((3000, 32)) < 0.1, np.ones(3000, dtype=bool))
    attention = rng.random((3000, 32, 32))
    start = time.process_time()
    null = ShiftNull(Shifts(mask, ids, times, 32), 32)
    null.update(attention)
    null.test(32)
    assert time.process_time() - start < 5


def test_benjamini_hochberg_by_hand():
    p = np.array([0.01, 0.04, 0.03, np.nan, 0.005])
    np.testing.assert_allclose(benjamini_hochberg(p), [0.02, 0.04, 0.04, np.nan, 0.02])


def test_benjamini_hochberg_of_no_tests_is_empty():
    assert np.isnan(benjamini_hochberg(np.array([np.nan]))).all()
