import numpy as np
import pytest
import torch
from torch import Tensor

from forecaster.networks.attention import Edit
from forecaster.networks.choice import Shape, network
from forecaster.probes.capture import forecast
from forecaster.probes.knockout import changes, losses, point_forecasts
from forecaster.probes.replay import Replay
from forecaster.training.task import Recipe, Task
from forecaster.windows.panel import Panel
from forecaster.windows.scaling import fit
from forecaster.windows.splits import split

L = 12


def task_of(panel: Panel, kind: str, pooling: str, layers: int = 3) -> Task:
    torch.manual_seed(0)
    shape = Shape(
        features=len(panel.feature_names),
        length=L,
        width=20,
        heads=4,
        layers=layers,
        feedforward=2,
        dropout=0.3,
        attention_dropout=0.3,
        causal=False,
        positions="learned",
        pooling=pooling,
        skip=True,
        horizon=panel.horizon,
        targets=len(panel.target_names),
        future=panel.future_size,
    )
    scaler = fit(panel, split(panel, L, 0.7, 0.85), L)
    return Task(network(kind, shape), scaler, Recipe(1e-3, 0.0, 0.0, 1.0))


def zeroed(head: int):
    def edit(x: Tensor) -> Tensor:
        changed = x.clone()
        changed[:, head] = 0.0
        return changed

    return edit


EDITS = {
    "first z": {0: Edit(z=zeroed(1))},
    "last z": {2: Edit(z=zeroed(0))},
    "middle v": {1: Edit(v=zeroed(2))},
    "v and z": {1: Edit(v=zeroed(2), z=zeroed(0))},
    "two layers": {0: Edit(z=zeroed(3)), 2: Edit(z=zeroed(3))},
    "z before v": {1: Edit(z=zeroed(3)), 2: Edit(v=zeroed(3))},
    "nothing at all": {},
}


@pytest.mark.parametrize(
    ("kind", "pooling"), [("attention", "last"), ("attention", "mean"), ("encoder_decoder", "last")]
)
def test_an_edited_pass_has_the_same_bits_as_one_computed_anew(garch, kind, pooling):
    task, origins = task_of(garch, kind, pooling), garch.origins(L)[:9]
    task.train()
    replay = Replay(task, garch, origins, L)
    np.testing.assert_array_equal(replay.unedited.mean_BHC, forecast(task, garch, origins, L).mean_BHC)
    for name, edits in EDITS.items():
        anew = forecast(task, garch, origins, L, edits)
        again = replay.edited(edits)
        np.testing.assert_array_equal(again.mean_BHC, anew.mean_BHC, err_msg=name)
        if edits:
            assert not np.array_equal(again.mean_BHC, replay.unedited.mean_BHC)
    assert task.training


def test_nothing_of_the_network_is_changed_when_an_edit_fails(garch):
    task, origins = task_of(garch, "attention", "last"), garch.origins(L)[:9]
    before = forecast(task, garch, origins, L).mean_BHC
    blocks, kernel = list(task.network.blocks), task.headed.attention(2).attend
    replay = Replay(task, garch, origins, L)

    def fail(x: Tensor) -> Tensor:
        raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half-way"):
        replay.edited({2: Edit(z=fail)})
    assert list(task.network.blocks) == blocks
    assert task.headed.attention(2).attend is kernel
    assert not any(block._forward_pre_hooks for block in blocks)
    np.testing.assert_array_equal(forecast(task, garch, origins, L).mean_BHC, before)


def test_changes_are_losses_less_the_unedited_ones(garch):
    task, origins = task_of(garch, "attention", "last"), garch.origins(L)[:30]
    units = np.random.default_rng(0).uniform(0.5, 2, (30, 2))
    asked = [lambda part, edits=edits: edits for edits in EDITS.values()]
    found = changes(task, garch, origins, L, units, asked)
    whole = losses(task, garch, origins, point_forecasts(task, garch, origins, L), units)
    for edits, change in zip(asked, found, strict=True):
        edited = losses(task, garch, origins, point_forecasts(task, garch, origins, L, edits), units)
        np.testing.assert_array_equal(change, edited - whole)
    np.testing.assert_array_equal(found[-1], 0.0)
    assert changes(task, garch, origins, L, units, []) == []


@pytest.mark.parametrize(("kind", "pooling"), [("attention", "last"), ("encoder_decoder", "last")])
def test_a_pass_computed_from_the_one_followed_before_has_the_same_bits(garch, kind, pooling):
    """Whichever edits went before, of v or of z, shared or not; an edited pass in between is not followed."""
    task, origins = task_of(garch, kind, pooling), garch.origins(L)[:9]
    replay = Replay(task, garch, origins, L)
    first = EDITS["two layers"][0]
    walk = [*EDITS.values(), {0: first}, {0: first, 1: Edit(z=zeroed(1))}, {0: first, 1: Edit(v=zeroed(1))}, {0: first}]
    for number in np.random.default_rng(0).permutation(2 * len(walk)) % len(walk):
        edits = walk[number]
        np.testing.assert_array_equal(
            replay.followed(edits).mean_BHC, forecast(task, garch, origins, L, edits).mean_BHC
        )
        between = walk[number - 1]
        expected = forecast(task, garch, origins, L, between).mean_BHC
        np.testing.assert_array_equal(replay.edited(between).mean_BHC, expected)
