"""The training step: pieces of a batch, every bar's own unit, several origins of a window."""

from typing import Any

import pytest
import torch

from fabricate import random_bars
from forecaster.networks.choice import Shape, network
from forecaster.training import task as task_module
from forecaster.training.task import Recipe, Task
from forecaster.windows import datamodule, panel, scaling, splits

LENGTH, REACH = 8, 4


def built(*, every: bool, batch_size: int = 7, **changes: Any) -> tuple[Task, datamodule.Bars]:
    windows = panel.build(random_bars({"A": 120, "B": 90}), ("return", "volatility"), 2)
    parts = splits.split(windows, LENGTH, 0.6, 0.8)
    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "features": len(windows.feature_names),
        "length": LENGTH,
        "width": 20,
        "heads": 5,
        "layers": 2,
        "feedforward": 2,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "causal": True,
        "positions": "learned",
        "pooling": "last",
        "skip": True,
        "horizon": 2,
        "targets": 2,
        "future": windows.future_size,
    }
    made = network("attention", Shape(**{**shape, **changes}))
    task = Task(made, scaling.fit(windows, parts, LENGTH), Recipe(1e-3, 0.0, 0.1, 1.0), every=every)
    return task, datamodule.Bars(windows, parts, LENGTH, batch_size, seed=0, every=every)


def gradients(task: Task, batch: datamodule.Batch, piece: int, monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """What a training step would step along, before it is clipped."""
    monkeypatch.setattr(task_module, "PIECE", piece)
    task.zero_grad()
    for part in task_module.pieces(batch):
        (task.losses(part).sum() / int(batch[-1].sum())).backward()
    return [parameter.grad.clone() for parameter in task.network.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("every", [False, True])
def test_when_a_batch_goes_through_in_pieces_then_its_gradient_is_that_of_its_mean(
    every: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, bars = built(every=every)
    task.double()
    x, future, targets, used = next(iter(bars.train_dataloader()))
    batch = x.double(), future.double(), targets.double(), used
    whole, parts = (gradients(task, batch, piece, monkeypatch) for piece in (64, 3))
    expected = torch.autograd.grad(task.losses(batch).mean(), list(task.network.parameters()))
    assert len(list(task_module.pieces(batch))) == -(-len(x) // 3) > 1
    for one, two, three in zip(whole, parts, expected, strict=True):
        torch.testing.assert_close(one, two, atol=1e-12, rtol=0)
        torch.testing.assert_close(one, three, atol=1e-12, rtol=0)


def test_when_every_bar_is_an_origin_then_its_loss_is_the_same_whatever_the_window_holds_after_it() -> None:
    task, bars = built(every=True)
    task.eval()
    x_BLF, future, targets, used = bars.shared[bars.parts.train[[30, 40]], torch.tensor([REACH, REACH - 1]).numpy()]
    before = task.losses((x_BLF, future, targets, used))
    assert len(before) == 2 * REACH - 1
    x_BLF[:, -1] = x_BLF[:, -1] * 3 + 1
    after = task.losses((x_BLF, future, targets, used))
    last = [REACH - 1, 2 * REACH - 2]
    others = [place for place in range(2 * REACH - 1) if place not in last]
    assert torch.equal(before[others], after[others])
    assert (before[last] != after[last]).all()


def test_when_every_bar_is_an_origin_then_relative_numbers_are_in_units_of_their_own_bar() -> None:
    task, bars = built(every=True)
    task.eval()
    x_BLF, future, *_ = next(iter(bars.test_dataloader()))
    names = bars.windows.panel.feature_names
    unit_BL = x_BLF[:, :, names.index("log_sigma")].exp() / task.log_sigma_reference.exp()
    relative = x_BLF.clone()
    for name in ("log_return", "abs_return"):
        relative[..., names.index(name)] /= unit_BL
    scaled = task.network((relative - task.feature_mean) / task.feature_std).mean_BHC
    scaled[..., 0] *= unit_BL[:, -1:]  # return; volatility is not relative
    expected = scaled * task.target_std + task.target_mean
    torch.testing.assert_close(task.forecast(x_BLF, future).mean_BHC, expected)


def test_when_a_target_is_unknown_and_its_origin_not_trained_on_then_no_gradient_is_nan() -> None:
    task, bars = built(every=True)
    row = bars.parts.train[50]
    bars.windows.panel.targets[row - REACH + 1] = torch.nan
    batch = bars.shared[torch.tensor([row]).numpy(), torch.tensor([2]).numpy()]
    task.losses(batch).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in task.network.parameters() if p.grad is not None)
