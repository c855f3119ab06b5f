from dataclasses import replace

import numpy as np
import pytest

from forecaster.bars import planted
from forecaster.probes.heads import NULL_COLUMNS, probe
from forecaster.probes.noise import Networks, Nulls, shuffled
from forecaster.windows.panel import build
from forecaster.windows.splits import split

LENGTH = 12


def test_targets_are_exchanged_in_whole_blocks_of_dates_all_symbols_together(garch):
    train = split(garch, LENGTH, 0.7, 0.85).train
    targets = shuffled(garch, train, LENGTH, 3)
    rest = np.setdiff1d(np.arange(len(targets)), train)
    np.testing.assert_array_equal(targets[rest], garch.targets[rest])
    for symbol in range(2):
        mine = train[garch.symbol_ids[train] == symbol]
        np.testing.assert_array_equal(np.sort(targets[mine, 0, 0]), np.sort(garch.targets[mine, 0, 0]))
    # Which row each target came from, by its value; the same dates for both symbols.
    came = []
    for symbol in range(2):
        mine = train[garch.symbol_ids[train] == symbol]
        place = {value: number for number, value in enumerate(garch.targets[mine, 0, 0])}
        came.append(np.array([place[value] for value in targets[mine, 0, 0]]))
    np.testing.assert_array_equal(came[0], came[1])
    steps = np.diff(came[0])
    assert (steps != 1).sum() <= len(came[0]) // LENGTH
    assert (came[0] == np.arange(len(came[0]))).mean() < 0.2


@pytest.mark.parametrize("seed", range(30))
def test_no_block_of_targets_stays_in_its_place(garch, seed):
    train = split(garch, LENGTH, 0.7, 0.85).train[:40]
    targets = shuffled(garch, train, LENGTH, seed)
    assert (targets[train] != garch.targets[train]).all(axis=(1, 2)).all()


def test_no_network_learns_noise_from_too_few_blocks(small_task, garch):
    parts = split(garch, LENGTH, 0.7, 0.85)
    few = parts.train[np.isin(garch.times[parts.train], np.unique(garch.times[parts.train])[: 9 * LENGTH + 5])]
    task = small_task(garch, LENGTH)

    def fit(targets: np.ndarray, seed: int):
        raise AssertionError("trained")

    networks = Networks(lambda seed: task, fit, 0, 3)
    found = probe(task, garch, replace(parts, train=few), LENGTH, networks=networks, causal=False)
    _, limit = found.gates
    assert limit == (
        "Not held against networks trained on shuffled targets: blocks of 12 training dates to exchange: 9, needed: 10"
    )
    assert set(found.head_nulls["null"]) == set()


def test_an_origin_without_a_partner_has_no_target():
    bars = planted.load("noise", 300, 1, symbols=2)
    second = bars.frame.index[bars.frame["symbol"] == "NOISE_1"]
    kept = bars.frame.drop(second[:100])
    panel = build(replace(bars, frame=kept.reset_index(drop=True)), ("return",), 1)
    train = split(panel, LENGTH, 0.7, 0.85).train
    targets = shuffled(panel, train, LENGTH, 0)
    lost = np.isnan(targets[train, 0, 0])
    assert set(panel.symbol_ids[train][lost]) == {1}
    assert 0 < lost.sum() < (panel.symbol_ids[train] == 1).sum()


def test_the_threshold_is_the_95th_percentile_over_seeds_of_the_largest_kappa():
    nulls = Nulls({("noise", seed, ("large_move", "raw")): seed / 10 for seed in range(5)})
    assert nulls.threshold("noise", ("large_move", "raw")) == pytest.approx(0.38)  # 3.8 of the way from 0 to .4
    assert np.isnan(nulls.threshold("random", ("large_move", "raw")))


def test_labels_are_held_against_networks_trained_on_noise(small_task, garch):
    """A threshold below every pattern leaves it one without the words; one above all takes every pattern away."""
    parts = split(garch, LENGTH, 0.7, 0.85)
    task = small_task(garch, LENGTH)
    asked: list[tuple[int, bool]] = []

    def fit(targets: np.ndarray, seed: int):
        asked.append((seed, bool(np.isfinite(targets[parts.train]).all())))
        return task

    found = probe(
        task, garch, parts, LENGTH, networks=Networks(lambda seed: small_task(garch, LENGTH), fit, 2, 3), causal=False
    )
    drawn = [Networks(fit, fit, seed=0).drawn("noise", number) for number in range(3)]
    assert asked == [(seed, True) for seed in drawn]
    others = {
        Networks(fit, fit, seed=seed).drawn(kind, n)
        for seed in (0, 1)
        for kind in ("noise", "random")
        for n in (0, 1, 2)
    }
    assert len(others) == 12  # another run's networks, and the other null's, are others
    nulls = found.head_nulls
    assert tuple(nulls.columns) == NULL_COLUMNS
    assert nulls.groupby("null")["seed"].nunique().to_dict() == {"noise": 3, "random": 2}
    # The "noise" networks are the network itself: its largest kappa is never above theirs.
    raw = found.heads.query("stratum == 'last' and weights == 'raw'")
    largest = raw.groupby("probe")["kappa"].max()
    own = nulls.query("null == 'noise' and weights == 'raw' and seed == 0").set_index("probe")["kappa"]
    np.testing.assert_allclose(own, largest[own.index], rtol=1e-6)
    assert set(found.heads["label"]) == {"none"}
    assert raw["reason"].str.contains("not above heads trained on noise").any()
    band = found.lag_profiles[found.lag_profiles["head"].isna()]
    assert len(band) == 2 * 2 * LENGTH  # layers, weightings
    assert (band["low"] <= band["mean"]).all()
    assert found.gates == ["The causal tests were not run: no head can be called functional"]
    assert found.knockouts.empty
