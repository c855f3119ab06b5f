"""Heads over time, against naive computations, and on markets that change or don't under a network set by hand."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import jensenshannon

from forecaster.bars import planted
from forecaster.probes import drift
from forecaster.probes.capture import looks
from forecaster.probes.changepoint import Change
from forecaster.probes.drift import distance, over_time, sentence
from forecaster.probes.heads import probe
from forecaster.probes.knockout import Gate, ablation, changes, training_means, units
from forecaster.probes.masks import large_move, recency, weekly_target
from forecaster.probes.periods import gridded, half_widths
from forecaster.windows.panel import build
from forecaster.windows.splits import split
from weekly_reader import reader

LENGTH, WEEK = 12, 5
OPEN = Gate("return", "zero return", 1e-6, 1.0)
SHUT = Gate("volatility", "historical mean", 0.5, 1.0)
PROBES = (recency(3), weekly_target(WEEK), large_move())


@pytest.fixture(scope="module")
def parts(garch):
    return split(garch, LENGTH, 0.7, 0.85)


@pytest.fixture(scope="module")
def task(small_task, garch):
    return small_task(garch, LENGTH)


@pytest.fixture(scope="module")
def tables(task, garch, parts):
    means = training_means(task, garch, parts.train, LENGTH)
    return over_time(task, garch, parts, LENGTH, PROBES, [((0, 1), "large_move")], [OPEN, SHUT], means)


@pytest.fixture(scope="module")
def seen(task, garch, parts):
    """Origins, their part and year, the last bar's queries and attention by layer."""
    origins = np.sort(np.concatenate((parts.train, parts.validation, parts.test)))
    found = list(looks(task, garch, origins, LENGTH, last_only=True))
    attention = {
        layer: np.concatenate([look.raw_nNL for look in found if look.layer == layer]).astype(float) for layer in (0, 1)
    }
    kind = np.where(
        np.isin(origins, parts.train), "train", np.where(np.isin(origins, parts.test), "test", "validation")
    )
    queries = [look.queries for look in found if look.layer == 0]
    return origins, kind, garch.times[origins].astype("datetime64[Y]").astype(str), attention, queries


def of(tables, kind, name, layer, head):
    rows = tables["drift"]
    chosen = (rows["kind"] == kind) & (rows["of"] == name) & (rows["layer"] == layer) & (rows["head"] == head)
    return rows[chosen].set_index(["period", "part"])


def flags_of(one, garch, queries):
    masks = [one.at(garch, part) for part in queries]
    return np.concatenate([mask.flags for mask in masks]), np.concatenate([mask.measurable for mask in masks])


def test_kappa_of_a_year_is_that_of_its_windows_with_the_mean_profile_as_chance(tables, garch, seen):
    _, kind, year, attention, queries = seen
    flags, asked = flags_of(large_move(), garch, queries)
    found = of(tables, "kappa", "large_move", 1, 2)
    profile = attention[1][:, 2].mean(0)
    for (period, part), row in found.iterrows():
        inside = (year == period) & (kind == part) & asked
        observed = (attention[1][inside, 2] * flags[inside]).sum(1).mean()
        expected = (profile * flags[inside]).sum(1).mean()
        assert row["windows"] == inside.sum()
        assert row["value"] == pytest.approx((observed - expected) / (1 - expected), rel=1e-9)
    assert set(found.index) == set(zip(year, kind, strict=True))


def test_of_a_probe_of_one_bar_only_its_usual_lag_counts(tables, garch, seen):
    _, kind, year, attention, queries = seen
    flags, _ = flags_of(weekly_target(WEEK), garch, queries)
    usual = flags[:, WEEK - 1]
    assert usual.sum() < flags.any(1).sum()  # weeks with a holiday are left out
    for (period, part), row in of(tables, "kappa", "weekly_target", 0, 3).iterrows():
        inside = (year == period) & (kind == part) & usual
        mass = attention[0][inside, 3]
        expected = mass[:, [WEEK - 3, WEEK - 2, WEEK, WEEK + 1]].mean()
        observed = mass[:, WEEK - 1].mean()
        assert row["windows"] == inside.sum()
        assert row["value"] == pytest.approx((observed - expected) / (1 - expected), rel=1e-9)


def test_recency_has_its_share_of_the_window_as_chance(tables, seen):
    _, kind, year, attention, _ = seen
    row = of(tables, "kappa", "recency", 0, 0).loc[("2021", "train")]
    observed = attention[0][(year == "2021") & (kind == "train"), 0, :3].sum(1).mean()
    assert row["value"] == pytest.approx((observed - 3 / LENGTH) / (1 - 3 / LENGTH), rel=1e-9)


def test_rise_of_a_year_is_the_mean_change_of_loss_of_its_windows(tables, task, garch, parts, seen):
    origins, kind, year, *_ = seen
    means = training_means(task, garch, parts.train, LENGTH)
    units_nC = units(task, garch, parts.train, origins)
    (change_nC,) = changes(task, garch, origins, LENGTH, units_nC, [ablation([(0, 2)], means.z_NTd)])
    for c, target in enumerate(garch.target_names):
        for (period, part), row in of(tables, "rise", target, 0, 2).iterrows():
            inside = (year == period) & (kind == part)
            assert row["value"] == pytest.approx(change_nC[inside, c].mean(), rel=1e-6, abs=1e-12)


def test_tested_are_labelled_kappas_and_rises_of_targets_with_skill(tables):
    rows = tables["drift_tests"]
    claims = {tuple(claim) for claim in rows[["layer", "head", "kind", "of"]].itertuples(index=False)}
    assert claims == {(0, 1, "kappa", "large_move"), *((n, h, "rise", "return") for n in (0, 1) for h in range(4))}
    assert tuple(rows.columns) == drift.TEST_COLUMNS
    assert rows["q"].ge(rows["p"]).all()
    assert set(tables["drift"].query("kind == 'rise'")["of"]) == {"return", "volatility"}  # shown all the same


def test_without_causal_tests_there_are_kappas_alone(task, garch, parts):
    found = over_time(task, garch, parts, LENGTH, PROBES, [], [], None)
    assert set(found["drift"]["kind"]) == {"kappa"}
    assert tuple(found["drift_tests"].columns) == drift.TEST_COLUMNS
    assert found["drift_tests"].empty


def test_distance_is_scipy_s():
    rng = np.random.default_rng(0)
    attention, profile = rng.dirichlet(np.ones(7), size=(20, 3)), rng.dirichlet(np.ones(7), size=3)
    attention[0, 0], profile[0] = np.eye(7)[0], np.eye(7)[1]
    found = distance(attention, profile)
    np.testing.assert_allclose(found, jensenshannon(attention, profile[None], base=2, axis=-1), rtol=1e-10)
    assert found[0, 0] == pytest.approx(1.0)
    np.testing.assert_array_equal(distance(attention[:1], attention[0]), 0.0)


def test_a_day_s_distance_is_the_mean_over_symbols(tables, garch, seen):
    origins, _, _, attention, _ = seen
    table = tables["attention_distance"]
    apart = distance(attention[1], attention[1].mean(0))
    days = garch.times[origins]
    own = table[(table["layer"] == 1) & (table["head"] == 3)].set_index("time")["value"]
    assert len(own) == len(np.unique(days))
    for day in (days[0], days[500], days[-1]):
        assert own[day] == pytest.approx(apart[days == day, 3].mean(), rel=1e-9)
    every = table[table["head"].isna()].set_index("time")["value"]
    mean = table[table["head"].notna()].groupby("time")["value"].mean()
    np.testing.assert_allclose(every, mean, rtol=1e-12)


def test_distances_are_kept_by_stretches_where_days_are_too_many(task, garch, parts, tables, monkeypatch):
    monkeypatch.setattr(drift, "MOST_ROWS", 90)  # 9 lines: ten stretches
    short = over_time(task, garch, parts, LENGTH, PROBES, [], [], None)["attention_distance"]
    whole = tables["attention_distance"]
    assert len(short) == 90
    days = np.unique(whole["time"])
    group = np.arange(len(days)) * 10 // len(days)
    own = whole[(whole["layer"] == 0) & (whole["head"] == 1)]
    dates = np.bincount(group, own["value"]) / np.bincount(group)  # both symbols have every day
    np.testing.assert_allclose(short[(short["layer"] == 0) & (short["head"] == 1)]["value"], dates, rtol=1e-9)
    assert short["time"].iloc[:10].tolist() == [days[np.flatnonzero(group == n)[0]] for n in range(10)]


def test_figures_are_the_same_whatever_the_batch(task, garch, parts, tables, monkeypatch):
    monkeypatch.setattr("forecaster.probes.capture.batches.__defaults__", (100,))
    monkeypatch.setattr("forecaster.probes.capture.looks.__defaults__", (100,))
    monkeypatch.setattr(drift, "CHUNK", 301)
    means = training_means(task, garch, parts.train, LENGTH)
    parted = over_time(task, garch, parts, LENGTH, PROBES, [((0, 1), "large_move")], [OPEN, SHUT], means)
    for name in ("drift", "attention_distance"):
        np.testing.assert_allclose(parted[name]["value"], tables[name]["value"], rtol=1e-5, atol=1e-6)
    assert parted["drift_tests"]["change"].tolist() == tables["drift_tests"]["change"].tolist()


def test_blocks_and_periods_lie_within_parts(garch, parts, seen):
    origins, kind, year, *_ = seen
    number = np.select([kind == "train", kind == "validation"], [0, 1], 2)
    grid = gridded(garch, origins, number, LENGTH)
    block, cell = grid.block_r[grid.window_n], grid.cell_s[grid.slice_r][grid.window_n]
    assert np.array_equal(np.isin(block, grid.stretches[0]), kind == "train")
    for of_cell, (period, part) in enumerate(zip(grid.periods, grid.parts, strict=True)):
        assert set(year[cell == of_cell]) == {period}
        assert set(kind[cell == of_cell]) == {part}
    stretch = grid.slice_r[grid.window_n]
    dates = [len(np.unique(garch.times[origins[stretch == one]])) for one in range(len(grid.cell_s))]
    whole = [count for count, of_cell in zip(dates, grid.cell_s, strict=True) if (grid.cell_s == of_cell).sum() > 1]
    assert min(whole) >= LENGTH
    for number_, begin in enumerate(grid.begins_b):
        assert begin == garch.times[origins[block == number_]].min()


def test_periods_are_months_where_bars_span_less_than_three_years(garch):
    origins = garch.origins(LENGTH)
    late = origins[garch.times[origins] >= np.datetime64("2024-01-01")]
    number = np.where(garch.times[late] < np.datetime64("2025-01-01"), 0, 2)
    periods = gridded(garch, late, number, LENGTH).periods
    assert periods[0] == "2024-01"
    assert len(periods) == 24


def test_intervals_pool_the_deviation_of_stretches_within_periods():
    value_s = np.array([[1.0], [3.0], [10.0], [14.0], [np.nan]])
    cell_s = np.array([0, 0, 1, 1, 2])
    found = half_widths(np.array([[2.0], [12.0], [np.nan]]), value_s, cell_s)
    # squares 1 + 1 + 4 + 4 over 4 - 2; t(2) = 4.3027; two stretches a period.
    np.testing.assert_allclose(found[:2, 0], 4.302653 * np.sqrt(5) / np.sqrt(2), rtol=1e-6)
    assert np.isnan(found[2, 0])
    assert np.isnan(half_widths(value_s[:1], value_s[:1], np.array([0]))).all()


@pytest.mark.parametrize("kind", ["changing", "weekly"])
def test_a_change_of_the_market_shows_in_what_the_head_is_worth_and_in_nothing_else(kind: str, monkeypatch):
    """The weekly rule ends in 2019; the head looks on. On the unchanging market no claim changes at 5 %.

    Of seeds 0 to 19 it was placed between October 2018 and April 2019 on all, and the unchanging market had none.
    """
    monkeypatch.setattr(planted, "TURN", "2019-01-02")
    panel = build(planted.load(kind, 2500, seed=1), ("return",), 1)
    parts = split(panel, 32, 0.7, 0.85)
    task = reader(panel, parts)
    means = training_means(task, panel, parts.train, 32)
    claims = [((0, 0), "weekly_target")]
    rows = over_time(task, panel, parts, 32, (weekly_target(WEEK),), claims, [OPEN], means)["drift_tests"]
    changed = rows[rows["q"] <= 0.05]
    if kind == "weekly":
        assert changed.empty
        return
    assert changed[["layer", "head", "kind", "of"]].to_numpy().tolist() == [[0, 0, "rise", "return"]]  # on 17 of 20
    row = changed.iloc[0]
    assert "2018-06" < row["change"] < "2019-08"
    assert row["earliest"] <= "2019-01-02" <= row["latest"]
    assert row["before"] > 0 > row["after"]
    assert row["part"] == "train"
    assert row["words"].startswith("what return loses without the head: 0.")


def test_the_tables_come_with_the_others_where_asked(small_task, garch):
    parts = split(garch, LENGTH, 0.7, 0.85)
    task = small_task(garch, LENGTH, layers=1)
    assert "drift" not in probe(task, garch, parts, LENGTH, causal=False).tables()
    found = probe(task, garch, parts, LENGTH, causal=False, drift=True).tables()
    assert {"drift", "drift_tests", "attention_distance"} <= set(found)
    assert isinstance(found["drift"], pd.DataFrame)
    assert found["drift"]["of"].nunique() == 7


def test_sentences_say_what_a_test_came_to():
    one = Change(5, 4, 7, 4.2, 0.001, 0.1)
    days = ("1990-01-22", "1988-12-01", "1991-03-12")
    assert sentence("rise", "return", one, 0.004, 0.116, -0.0354, days) == (
        "what return loses without the head: 0.116 before 1990-01, -0.0354 from then on "
        "(between 1988-12 and 1991-03; q 0.004)"
    )
    assert sentence("kappa", "large_move", one, 0.3, 0.1, 0.2, days) == "kappa of large_move: no change shown (q 0.3)"
    untested = replace(one, p=np.nan, reason="neighbouring blocks too alike, correlation 0.61")
    assert sentence("kappa", "large_move", untested, np.nan, 0.1, 0.2, days) == (
        "kappa of large_move: not tested, neighbouring blocks too alike, correlation 0.61"
    )
