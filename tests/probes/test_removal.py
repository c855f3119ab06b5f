from dataclasses import replace

import numpy as np
import pytest
import torch

from forecaster.networks.pruning import remove
from forecaster.probes.knockout import Gate, losses, point_forecasts, training_means
from forecaster.probes.pruning import by_importance, heads_in_order, prune_curve, removable, sentences, steps
from forecaster.probes.removal import Removals, constants, ground
from forecaster.windows.splits import split

LENGTH = 12
SETS = [
    frozenset[tuple[int, int]](),
    frozenset({(0, 1)}),
    frozenset({(1, 3)}),
    frozenset({(0, 1), (1, 3)}),
    frozenset({(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)}),
]


@pytest.fixture(scope="module")
def parts(garch):
    return split(garch, LENGTH, 0.7, 0.85)


@pytest.fixture(scope="module")
def trial(small_task, garch, parts):
    task = small_task(garch, LENGTH)
    means = training_means(task, garch, parts.train, LENGTH)
    return Removals(task, garch, LENGTH, ground(task, garch, parts, LENGTH, "validation"), constants(means))


def test_the_constant_is_the_mean_output_over_windows_and_computed_queries(small_task, garch, parts):
    task = small_task(garch, LENGTH)
    means = training_means(task, garch, parts.train, LENGTH)
    found = constants(means)
    assert [tuple(of.shape) for of in found] == [(4, 5), (4, 5)]
    torch.testing.assert_close(found[0], torch.stack([means.z_NTd[0][:, t] for t in range(LENGTH)]).mean(0))
    torch.testing.assert_close(found[1], means.z_NTd[1][:, 0])


def test_changes_of_sets_are_losses_of_the_pruned_networks(trial, small_task, garch):
    """Whatever the order in which they are asked, and although layers are computed once for several sets."""
    on = trial.ground
    for asked in (SETS, SETS[::-1]):
        found = trial.changes(asked)
        assert set(found) == set(asked)
        for removed in asked:
            task = small_task(garch, LENGTH)
            remove(task.headed, sorted(removed), [values[:, 0] for values in trial.values])
            mean_nHC = point_forecasts(task, garch, on.origins, LENGTH)
            pruned_nC = losses(task, garch, on.origins, mean_nHC, on.units_nC)
            np.testing.assert_allclose(found[removed], pruned_nC - on.loss_nC, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(trial.changes(SETS)[SETS[0]], 0.0)


def test_a_step_takes_five_to_ten_percent_and_one_head_at_least():
    assert steps(3) == [0, 1, 2, 3]
    assert steps(24) == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24]
    assert steps(25)[-2:] == [24, 25]
    for count in range(20, 300):
        assert all(0.05 <= gone / count <= 0.1 for gone in np.diff(steps(count)[:-1]))


def test_heads_are_ranked_anew_after_each_step(trial):
    heads = [(layer, head) for layer in range(2) for head in range(4)]
    order = by_importance(trial, heads)
    assert sorted(order) == heads
    gone = []
    for head in order:  # eight heads go one by one
        left = [one for one in heads if one not in gone]
        cost = dict(zip(left, trial.costs([frozenset([*gone, one]) for one in left]), strict=True))
        assert cost[head] == min(cost.values())
        gone.append(head)


def test_costs_are_shares_of_skill_of_open_targets_or_else_of_the_loss(trial):
    on, by_target = trial.ground, np.array([0.2, -0.1])
    assert on.open == []  # noise
    assert on.cost(by_target) == pytest.approx(np.mean(by_target / on.loss_nC.mean(0)))
    skilled = [Gate("return", "zero return", 0.5, 0.4), Gate("volatility", "historical mean", 0.001, 0.5)]
    assert replace(on, gates=skilled).open == [1]
    assert replace(on, gates=skilled).cost(by_target) == pytest.approx(-0.1 / 0.5)
    skilled[0] = Gate("return", "zero return", 0.002, 0.4)
    assert replace(on, gates=skilled).cost(by_target) == pytest.approx(0.2 / 0.4)


@pytest.fixture(scope="module")
def curve(small_task, garch, parts):
    return prune_curve(small_task(garch, LENGTH), garch, parts, LENGTH)


def test_the_curve_holds_every_order_and_ends_without_heads(curve):
    table = curve.pruning
    assert set(zip(table["order"], table["seed"].fillna(-1), strict=True)) == {
        *((order, -1) for order in ("importance", "gradient", "stable_rank")),
        *(("random", seed) for seed in range(10)),
    }
    assert set(table[table["order"] == "random"]["part"]) == {"test"}
    last = table[(table["removed"] == 8) & (table["part"] == "test")]
    assert last.groupby("target")["rise"].nunique().tolist() == [1, 1]
    none = table[table["removed"] == 0]
    assert (none["rise"] == 0).all()
    assert none["heads"].isna().all()
    np.testing.assert_allclose(
        table["loss"] - table["rise"], table.groupby(["part", "target"])["loss"].transform("first")
    )
    for order in ("importance", "gradient", "stable_rank"):
        assert sorted(heads_in_order(table, order)) == [(layer, head) for layer in range(2) for head in range(4)]


def test_a_network_without_skill_has_no_headline(curve):
    assert removable(curve.pruning, "importance", "test") is None
    assert curve.sentences == [
        "No share of heads can be named: no target (return, volatility) is forecast with skill on test"
    ]


def test_as_many_can_go_as_cost_no_open_target_more_than_the_bound_on_the_way(curve):
    table = curve.pruning.assign(skill_share=np.nan)
    share = {0: 0.0, 1: 0.004, 2: -0.01, 3: 0.02, 4: 0.009, 5: 0.3, 6: 0.4, 7: 0.5, 8: 1.0}
    mine = table["target"] == "volatility"
    table.loc[mine, "skill_share"] = table.loc[mine, "removed"].map(share)
    assert removable(table, "importance", "test") == {None: 2}
    assert removable(table, "importance", "test", 0.02) == {None: 4}
    assert removable(table, "random", "test", 0.35) == dict.fromkeys(range(10), 5)
    other = (table["target"] == "return") & (table["removed"] == 2)
    table.loc[other, "skill_share"] = 0.05  # a second open target
    assert removable(table, "importance", "test") == {None: 1}
    assert sentences(table)[0].startswith("1 of 8 heads (12%) can go while no target")
    assert sentences(table)[1].endswith("removed by lot 12% (12% to 12%, 10 orders)")
