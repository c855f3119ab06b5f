import numpy as np
import pytest
from scipy.stats import t as student_t

from forecaster.probes.intervals import FEWEST_BLOCKS, blocks, jackknife, mean
from forecaster.probes.masks import Mask, Probe, Queries, large_move, recency, weekly, weekly_target
from forecaster.probes.statistics import ProbeSums, ProfileSums, by_block, hits, kappa, odds

LENGTH = 32
SHARES = (0.02, 0.05, 0.1, 0.2, 0.5, 0.9)


@pytest.fixture(scope="module")
def block_n(garch, origins):
    return blocks(garch.times[origins], LENGTH)


def summed(probe: Probe, attention: np.ndarray, mask: Mask, queries: Queries, block_n: np.ndarray) -> ProbeSums:
    sums = ProbeSums(probe, int(block_n.max()) + 1, attention.shape[1], attention.shape[2])
    sums.update(attention, mask, queries, block_n)
    return sums


def test_blocks_hold_at_least_the_window_when_dates_do_not_divide():
    days = np.datetime64("2024-01-01", "us") + np.arange(23) * np.timedelta64(1, "D")
    block = blocks(np.concatenate([days, days[3:]]), 5)
    assert np.bincount(block[:23]).tolist() == [6, 6, 6, 5]
    np.testing.assert_array_equal(block[23:], block[3:23])


def test_blocks_are_one_when_there_are_fewer_dates_than_a_window():
    assert set(blocks(np.arange(4).astype("datetime64[D]").astype("datetime64[us]"), 9)) == {0}


def test_blocks_hold_a_window_of_the_symbol_that_keeps_the_shortest_hours():
    """Bars of every hour, and of seven of the 24: 48 of the latter are seven days."""
    hours = np.datetime64("2024-01-01", "us") + np.arange(24 * 70) * np.timedelta64(1, "h")
    few = hours[(np.arange(len(hours)) % 24 >= 9) & (np.arange(len(hours)) % 24 < 16)]
    times, ids = np.concatenate([hours, few]), np.repeat([0, 1], [len(hours), len(few)])
    block = blocks(times, 48, ids)
    assert block.max() + 1 == len(few) * len(hours) // (len(hours) - 24 + 7) // 48
    assert np.bincount(block[ids == 1]).min() >= 48
    assert np.array_equal(blocks(hours, 48, np.zeros(len(hours), dtype=int)), blocks(hours, 48))


def test_a_symbol_with_a_few_bars_does_not_make_all_blocks_one():
    days = np.datetime64("2020-01-01", "us") + np.arange(1300) * np.timedelta64(1, "D")
    times, ids = np.concatenate([days, days[[100, 1200]]]), np.repeat([0, 7], [1300, 2])
    assert blocks(times, 64, ids).max() + 1 == 20
    assert len(blocks(times[:0], 64, ids[:0])) == 0


def test_blocks_hold_on_average_a_window_of_a_symbol_with_holes():
    days = np.datetime64("2020-01-01", "us") + np.arange(1300) * np.timedelta64(1, "D")
    kept = np.arange(1300) % 10 == 0
    kept[650:] = True
    times, ids = np.concatenate([days, days[kept]]), np.repeat([0, 1], [1300, kept.sum()])
    block = blocks(times, 64, ids)
    assert block.max() + 1 == 1300 * int(kept.sum()) // (1300 * 64)
    assert np.bincount(block[ids == 1]).mean() >= 64


def test_kappa_is_the_share_between_chance_and_everything():
    np.testing.assert_allclose(kappa(np.array([0.1, 0.55, 1.0]), np.array([0.1, 0.1, 0.1])), [0, 0.5, 1])
    assert np.isnan(kappa(np.array([1.0]), np.array([1.0])))[0]


def test_odds_say_how_much_likelier_than_chance():
    np.testing.assert_allclose(odds(np.array([0.2]), np.array([0.1])), [0.2 * 0.9 / (0.1 * 0.8)])


@pytest.mark.parametrize(
    ("observed", "expected", "ratio"), [(0.5, 0.0, np.inf), (1.0, 0.5, np.inf), (0.0, 0.0, np.nan), (0.0, 0.5, 0.0)]
)
def test_odds_are_infinite_or_undefined_when_a_share_is_nothing_or_all(observed, expected, ratio):
    np.testing.assert_array_equal(odds(np.array([observed]), np.array([expected])), [ratio])


def test_jackknife_is_the_t_interval_of_block_means_when_blocks_are_equal():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(12, 6))
    interval = mean(np.full(12, 6.0), values.sum(1, keepdims=True))
    means = values.mean(1)
    half = student_t.ppf(0.975, 11) * means.std(ddof=1) / np.sqrt(12)
    np.testing.assert_allclose(
        [interval.value[0], interval.low[0], interval.high[0]], [means.mean(), means.mean() - half, means.mean() + half]
    )


def test_jackknife_leaves_out_blocks_without_queries():
    sums = np.arange(11, dtype=float)[:, None]
    with_empty = mean(np.append(np.ones(11), 0.0), np.append(sums, [[0.0]], axis=0))
    without = mean(np.ones(11), sums)
    np.testing.assert_array_equal(with_empty.low, without.low)


@pytest.mark.parametrize("count", [1, FEWEST_BLOCKS - 1])
def test_intervals_are_empty_when_there_are_too_few_blocks(count):
    interval = mean(np.ones(count), np.arange(count, dtype=float)[:, None])
    assert interval.value[0] == pytest.approx((count - 1) / 2)
    assert np.isnan(interval.low[0])
    assert np.isnan(interval.high[0])


def test_everything_is_empty_when_there_are_no_queries():
    interval = jackknife(lambda n, sums: sums / n[:, None], np.zeros((12, 2)), counts_b=np.zeros(12))
    assert np.isnan([interval.value, interval.low, interval.high]).all()


def test_t_intervals_cover_the_truth_about_as_often_as_they_say():
    """400 AR(1) (.5) series in 15 blocks of 40, 95 % nominal; 91 to 98 % allows three standard errors of 400 draws."""
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(400):
        noise = rng.normal(size=640)
        series = np.empty(640)
        series[0] = noise[0]
        for bar in range(1, 640):
            series[bar] = 0.5 * series[bar - 1] + noise[bar]
        interval = mean(np.full(15, 40.0), series[40:].reshape(15, 40).sum(1, keepdims=True))
        covered += bool(interval.low[0] <= 0 <= interval.high[0])
    assert 0.91 <= covered / 400 <= 0.98


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("probe", [recency(3), weekly(5), weekly_target(5), large_move()], ids=lambda probe: probe.name)
def test_kappa_is_the_planted_share_when_the_background_is_uniform(
    probe, share, garch, queries, backgrounds, plant, block_n
):
    mask = probe.at(garch, queries)
    attention = plant(backgrounds["uniform"], mask, share)
    score = summed(probe, attention, mask, queries, block_n).score()
    assert score.kappa.value[0] == pytest.approx(share, abs=0.02)
    assert score.kappa.low[0] <= score.kappa.value[0] <= score.kappa.high[0]


@pytest.mark.parametrize(
    "background", ["exponential 8", "power law", "bump 20", "sink", "decay by volatility", "noise"]
)
@pytest.mark.parametrize("share", [0.05, 0.2])
def test_large_move_kappa_is_the_planted_share_whatever_the_background(
    background, share, garch, queries, backgrounds, plant, block_n
):
    mask = large_move().at(garch, queries)
    score = summed(large_move(), plant(backgrounds[background], mask, share), mask, queries, block_n).score()
    assert score.kappa.value[0] == pytest.approx(share, abs=0.02)


def naive(probe: Probe, attention: np.ndarray, mask: Mask, queries: Queries) -> tuple[float, float, float]:
    """O, E and kappa of one head by loops over queries and offsets."""
    mass, chance, count = 0.0, 0.0, 0
    mean_a, mean_t = np.zeros(attention.shape[1]), np.zeros(attention.shape[1])
    for n in range(len(attention)):
        if not mask.measurable[n]:
            continue
        count += 1
        flagged = [j for j in range(attention.shape[1]) if mask.flags[n, j]]
        mass += sum(attention[n, j] for j in flagged)
        if probe.chance == "visible":
            chance += len(flagged) / queries.visible[n]
        elif probe.chance == "neighbours":
            for j in flagged:
                around = [j + d for d in (-2, -1, 1, 2) if 0 <= j + d < queries.reach[n]]
                chance += sum(attention[n, a] for a in around) / len(around)
        mean_a += attention[n]
        mean_t += mask.flags[n]
    if probe.content:
        expected = sum(mean_a[j] / count * mean_t[j] / count for j in range(attention.shape[1]))
    else:
        expected = chance / count
    observed = mass / count
    return observed, expected, (observed - expected) / (1 - expected)


@pytest.mark.parametrize("probe", [recency(3), weekly(5), weekly_target(5), large_move()], ids=lambda probe: probe.name)
def test_scores_equal_loops_over_queries_and_bars(probe, garch, queries, block_n):
    rng = np.random.default_rng(3)
    mask = probe.at(garch, queries)
    attention = rng.dirichlet(np.full(LENGTH, 0.3), size=(len(queries.rows), 2))
    score = summed(probe, attention, mask, queries, block_n).score()
    for head in range(2):
        observed, expected, value = naive(probe, attention[:, head], mask, queries)
        assert score.kappa.value[head] == pytest.approx(value, rel=1e-9)
        assert score.chance[head] == pytest.approx(expected, rel=1e-9)
        assert score.odds[head] == pytest.approx(observed * (1 - expected) / (expected * (1 - observed)), rel=1e-9)
    assert score.queries + score.dropped == len(queries.rows)


@pytest.mark.parametrize(
    ("flag", "reach", "chance", "sides"),
    [
        (3, 7, (2 + 3 + 5 + 6) / 4, (3, 5)),
        (5, 7, (4 + 5 + 7) / 3, (5, 7)),  # the bar at +2 lies beyond the window
        (0, 7, (2 + 3) / 2, (0, 2)),
        (3, 5, (2 + 3 + 5) / 3, (3, 5)),  # the bar at +2 is out of the query's reach
    ],
)
def test_neighbours_are_those_in_reach_when_the_bar_is_at_the_edge(flag, reach, chance, sides):
    """Attention 1 .. 7 by offset (no shares, so that each is told from the others)."""
    queries = Queries(np.array([50]), np.array([reach]), np.array([7]), 7)
    mask = Mask(np.arange(7)[None] == flag, np.array([True]))
    sums = ProbeSums(weekly(5), 1, 1, 7)
    sums.update(np.arange(1.0, 8.0)[None, None], mask, queries, np.array([0]))
    assert sums.chance_bN[0, 0] == pytest.approx(chance)
    assert tuple(sums.sides_bNk[0, 0]) == sides


@pytest.mark.parametrize("probe", [recency(3), weekly(5), large_move()], ids=lambda probe: probe.name)
def test_scores_are_the_same_whatever_the_chunks(probe, garch, queries, block_n):
    rng = np.random.default_rng(4)
    mask = probe.at(garch, queries)
    attention = rng.dirichlet(np.full(LENGTH, 0.3), size=(len(queries.rows), 3))
    whole = summed(probe, attention, mask, queries, block_n).score()
    sums = ProbeSums(probe, int(block_n.max()) + 1, 3, LENGTH)
    for chunk in np.split(np.arange(len(attention)), [1, 2, 700, 701, 1999]):
        part = Queries(queries.rows[chunk], queries.reach[chunk], queries.visible[chunk], LENGTH)
        sums.update(attention[chunk], Mask(mask.flags[chunk], mask.measurable[chunk]), part, block_n[chunk])
    chunked = sums.score()
    for name in ("value", "low", "high"):
        np.testing.assert_allclose(getattr(chunked.kappa, name), getattr(whole.kappa, name), rtol=1e-9)
    np.testing.assert_allclose(chunked.odds, whole.odds, rtol=1e-9)
    assert chunked.dropped == whole.dropped


def test_one_head_scores_the_same_alone_as_among_others(garch, queries, block_n):
    rng = np.random.default_rng(6)
    mask = large_move().at(garch, queries)
    attention = rng.dirichlet(np.full(LENGTH, 0.3), size=(len(queries.rows), 3))
    together = summed(large_move(), attention, mask, queries, block_n).score()
    alone = summed(large_move(), attention[:, 1:2].copy(), mask, queries, block_n).score()
    np.testing.assert_allclose(alone.kappa.low, together.kappa.low[1:2], rtol=1e-12)


def test_weekly_bar_stands_out_when_it_is_above_both_sides(garch, queries, backgrounds, plant, block_n):
    mask = weekly(5).at(garch, queries)
    planted = summed(weekly(5), plant(backgrounds["uniform"], mask, 0.2), mask, queries, block_n).score()
    slope = summed(weekly(5), backgrounds["exponential 3"], mask, queries, block_n).score()
    assert planted.beside[0] == pytest.approx(0.2, abs=0.01)
    assert slope.beside[0] < 0


def test_sums_by_block_equal_a_loop_when_blocks_come_back():
    rng = np.random.default_rng(2)
    values, block = rng.normal(size=(9, 2, 3)), np.array([0, 0, 1, 3, 3, 0, 1, 1, 3])
    expected = np.stack([values[block == b].sum(0) for b in range(4)])
    np.testing.assert_allclose(by_block(values, block, 4), expected)


def test_profile_is_the_mean_attention_by_lag(garch, queries, block_n):
    rng = np.random.default_rng(8)
    attention = rng.dirichlet(np.ones(LENGTH), size=(len(queries.rows), 2))
    profile = ProfileSums(int(block_n.max()) + 1, 2, LENGTH)
    profile.update(attention[:500], block_n[:500])
    profile.update(attention[500:], block_n[500:])
    interval = profile.profile()
    np.testing.assert_allclose(interval.value, attention.mean(0))
    assert (interval.low < interval.value).all()
    ages = profile.weighted(np.arange(LENGTH, dtype=float))
    np.testing.assert_allclose(ages.value, (attention.mean(0) * np.arange(LENGTH)).sum(-1))


def test_hits_give_all_mass_to_the_most_attended_bar():
    np.testing.assert_array_equal(hits(np.array([[[0.2, 0.5, 0.3], [0.4, 0.2, 0.4]]])), [[[0, 1, 0], [1, 0, 0]]])


@pytest.mark.parametrize(("reach", "ratio"), [(None, 1.0), (8.0, 0.26)])
def test_far_back_ratio_is_one_when_a_head_finds_moves_at_any_distance(
    reach, ratio, garch, queries, backgrounds, block_n
):
    """A constant head has ratio 1; one whose gain falls with exp(-lag / 8) finds a quarter or less in the far half."""
    mask = large_move().at(garch, queries)
    gain = np.ones(LENGTH) if reach is None else np.exp(-np.arange(LENGTH) / reach)
    attention = backgrounds["uniform"] + 0.1 * gain * mask.flags[:, None]
    near, far = summed(large_move(), attention, mask, queries, block_n).far_back()
    assert near.low[0] > 0
    if reach is None:
        assert far.value[0] == pytest.approx(1.0)
    else:
        assert far.high[0] < ratio
