import numpy as np
import pytest
import torch

from forecaster.networks.attention import Edit, MultiHeadAttention
from forecaster.probes import capture
from forecaster.probes.capture import forecast
from forecaster.probes.importance import gradient_scores, rows, stable_ranks
from forecaster.probes.knockout import training_means
from forecaster.probes.removal import Removals, constants, ground
from forecaster.windows.splits import split

LENGTH = 12


@pytest.fixture(scope="module")
def parts(garch):
    return split(garch, LENGTH, 0.7, 0.85)


@pytest.fixture(scope="module")
def on(small_task, garch, parts):
    return ground(small_task(garch, LENGTH), garch, parts, LENGTH, "validation")


def test_the_gradient_score_is_the_slope_of_each_windows_loss_in_the_heads_gate(small_task, garch, on):
    """Against a central difference of a gate at 1, window by window, in float64."""
    task = small_task(garch, LENGTH).double()
    task.target_relative, task.feature_relative = task.target_relative.bool(), task.feature_relative.bool()
    rows_n = on.origins[:9]

    def losses(layer, head, gate):
        def edit(z):
            z = z.clone()
            z[:, head] = gate * z[:, head]
            return z

        x = torch.from_numpy(garch.window(rows_n, LENGTH)).double()
        with torch.no_grad():
            mean = task.forecast(x, torch.from_numpy(garch.future(rows_n)), {layer: Edit(z=edit)}).mean_BHC.numpy()
        return (((mean - garch.targets[rows_n]) / on.units_nC[:9, None]) ** 2).mean(1)

    few = type(on)(on.part, rows_n, on.block_n[:9], on.units_nC[:9], on.loss_nC[:9], on.gates)
    found = gradient_scores(small_task(garch, LENGTH), garch, LENGTH, few)
    assert len(found) == 8
    for (layer, head), score_C in found.items():
        slope_nC = (losses(layer, head, 1 + 1e-4) - losses(layer, head, 1 - 1e-4)) / 2e-4
        np.testing.assert_allclose(score_C, np.abs(slope_nC).mean(0), rtol=2e-3, atol=1e-6)


def test_gradient_scores_leave_no_gradient_and_no_mode_behind_and_need_no_trainable_parameters(
    small_task, garch, on, monkeypatch
):
    monkeypatch.setattr(capture, "BARS", 100 * LENGTH)
    assert len(on.origins) > 100
    task = small_task(garch, LENGTH, dropout=0.5)
    task.train()
    found = gradient_scores(task, garch, LENGTH, on)
    assert task.training
    assert all(parameter.grad is None for parameter in task.parameters())
    again = gradient_scores(task.requires_grad_(False), garch, LENGTH, on)
    for head, score_C in found.items():
        np.testing.assert_allclose(again[head], score_C, rtol=1e-6)
    forecast(task, garch, on.origins[:3], LENGTH)


def test_the_stable_rank_is_that_of_the_whole_matrices():
    torch.manual_seed(0)
    attention = MultiHeadAttention(20, 5)
    found = stable_ranks(attention)
    query, key, value = attention.inputs_by_head()
    for head in range(5):
        for name, matrix in (
            ("qk", query[head] @ key[head].mT),
            ("vo", value[head] @ attention.output_by_head()[head]),
        ):
            singular = torch.linalg.svdvals(matrix.detach().double())
            expected = float((singular**2).sum() / singular[0] ** 2)
            assert found[name][head] == pytest.approx(expected, rel=1e-5)
            assert 1 <= found[name][head] <= 4
    with torch.no_grad():
        attention.value.weight[:4] = 0.0
        attention.query.weight[4:8] = torch.outer(torch.tensor([1.0, 2.0, 0.0, -1.0]), torch.ones(20))
    assert np.isnan(stable_ranks(attention)["vo"][0])
    assert stable_ranks(attention)["qk"][1] == pytest.approx(1.0)


def test_each_head_has_a_row_of_every_measure(small_task, garch, parts, on):
    task = small_task(garch, LENGTH)
    outputs = constants(training_means(task, garch, parts.train, LENGTH))
    trial = Removals(task, garch, LENGTH, on, outputs)
    heads = [(0, 2), (1, 1)]
    gradients = {head: np.array([0.1, 0.2]) for head in heads}
    ranks = {head: {"qk": 1.5, "vo": 2.5} for head in heads}
    found = list(rows(heads, trial, gradients, ranks))
    measures = ["rise", "rise", "importance", "gradient", "gradient", "stable rank qk", "stable rank vo"]
    assert [row[:3] for row in found] == [(*head, name) for head in heads for name in measures]
    change_nC = trial.changes([frozenset({(0, 2)})])[frozenset({(0, 2)})]
    assert [row[4] for row in found[:2]] == pytest.approx(change_nC.mean(0))
    assert found[2][4] == pytest.approx(on.cost(change_nC.mean(0)))
    assert np.isnan(found[2][7])  # no target is open: it is no share of skill
