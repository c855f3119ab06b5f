"""Training: one golden step, the best epoch kept, divergence named, checkpoints that are checked."""

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from fabricate import random_bars
from forecaster.errors import DataError, DivergedError
from forecaster.networks.encoder import Encoder
from forecaster.training import checkpoints
from forecaster.training.fit import fit
from forecaster.training.task import Recipe, Task
from forecaster.windows import datamodule, panel, scaling, splits
from forecaster.windows.features import FEATURES

LENGTH = 6


def built(batch_size: int = 16) -> tuple[Task, datamodule.Bars]:
    torch.manual_seed(0)
    windows = panel.build(random_bars({"A": 120, "B": 90}), ("return", "volatility"), 2)
    parts = splits.split(windows, LENGTH, 0.6, 0.8)
    network = Encoder(
        features=len(FEATURES),
        length=LENGTH,
        width=20,
        heads=5,
        layers=2,
        feedforward=40,
        dropout=0.1,
        attention_dropout=0.0,
        causal=False,
        positions="learned",
        skip=True,
        horizon=2,
        targets=2,
    )
    task = Task(network, scaling.fit(windows, parts, LENGTH), Recipe(1e-3, 1e-2, 0.1, 1.0))
    return task, datamodule.Bars(windows, parts, LENGTH, batch_size, seed=0)


def train(directory: Path, task: Task, bars: datamodule.Bars, **changes: Any) -> tuple[int, list[str]]:
    lines: list[str] = []
    directory.mkdir(exist_ok=True)
    options: dict[str, Any] = {
        "max_epochs": 3,
        "patience": 3,
        "average": 0.0,
        "logger": False,
        "say": lines.append,
        "progress": False,
    }
    return fit(task, bars, directory, {"heads": 5}, **{**options, **changes}).epoch, lines


def test_training_leaves_a_history_and_the_weights_of_its_best_epoch(tmp_path: Path) -> None:
    task, bars = built()
    epoch, lines = train(tmp_path, task, bars, max_epochs=4)
    history = pd.read_csv(tmp_path / "history.csv")
    assert list(history["epoch"]) == [1, 2, 3, 4]
    validation = history["validation_loss"]
    assert epoch == int(np.argmin(validation)) + 1
    assert len(lines) == 4
    batches = list(bars.val_dataloader())
    with torch.no_grad():
        total = sum(float(task.losses(batch).double().sum()) for batch in batches)
    count = sum(len(x) for x, *_ in batches)
    assert total / count == pytest.approx(min(validation), rel=1e-6)
    assert (tmp_path / "checkpoints" / "last.ckpt").is_file()


def test_what_is_kept_is_the_moving_average_of_the_weights(tmp_path: Path) -> None:
    task, bars = built()
    steps: list[torch.Tensor] = []
    step = task.training_step

    def recorded(batch: datamodule.Batch, batch_idx: int) -> None:
        steps.append(task.network.embed.weight.detach().clone())  # before the step: those after the one before it
        step(batch, batch_idx)

    task.training_step = recorded  # type: ignore[method-assign]
    train(tmp_path, task, bars, max_epochs=1, average=0.9)
    current = torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)["current_model_state"]
    after = [*steps[1:], current["network.embed.weight"]]
    average = after[0]
    for weights in after[1:]:
        average = 0.9 * average + 0.1 * weights
    torch.testing.assert_close(task.network.embed.weight.detach(), average)


def test_the_same_seed_gives_the_same_weights(tmp_path: Path) -> None:
    first, bars = built()
    train(tmp_path / "first", first, bars)
    second, bars = built()
    train(tmp_path / "second", second, bars)
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name])


def test_validation_loss_does_not_depend_on_the_batch_size(tmp_path: Path) -> None:
    losses = []
    for size in (1, 7, 256):
        task, bars = built(size)
        task.eval()
        with torch.no_grad():
            losses.append(torch.cat([task.losses(batch) for batch in bars.val_dataloader()]).double().mean().item())
    assert losses[1:] == pytest.approx([losses[0]] * 2, rel=1e-6)


def test_a_rate_far_too_high_stops_naming_step_and_rate(tmp_path: Path) -> None:
    task, bars = built()
    task.recipe = Recipe(1e30, 0.0, 0.1, 1e30)
    with pytest.raises(DivergedError, match=r"training diverged: .* at step \d+ \(epoch \d+\), learning rate 1e\+30"):
        train(tmp_path, task, bars)
    assert not (tmp_path / "checkpoints" / "best.ckpt").exists()


def test_a_loss_that_is_not_finite_stops_at_its_step(tmp_path: Path) -> None:
    task, bars = built()
    bars.windows.panel.targets[bars.parts.train[5]] = math.nan
    with pytest.raises(DivergedError, match="the loss is nan at step"):
        train(tmp_path, task, bars)


def test_forecasts_are_the_networks_in_target_units_and_ordered() -> None:
    task, bars = built()
    task.eval()
    x_BLF, future_BHK, *_ = next(iter(bars.test_dataloader()))
    out = task.forecast(x_BLF, future_BHK)
    column = FEATURES.index("log_sigma")
    unit = x_BLF[:, -1, column].exp() / task.log_sigma_reference.exp()
    relative = x_BLF.clone()
    for name in ("log_return", "abs_return"):
        relative[..., FEATURES.index(name)] /= unit[:, None]
    scaled = task.network((relative - task.feature_mean) / task.feature_std).mean_BHC
    scaled[..., 0] *= unit[:, None]  # return; volatility is not relative
    torch.testing.assert_close(out.mean_BHC, scaled * task.target_std + task.target_mean)
    assert (out.quantiles_BHCQ.diff(dim=-1) > 0).all()


def test_a_checkpoint_loads_as_plain_tensors_and_is_compared(tmp_path: Path) -> None:
    task, bars = built()
    train(tmp_path, task, bars, max_epochs=1)
    path = tmp_path / "checkpoints" / "best.ckpt"
    content = checkpoints.load(path)
    checkpoints.verify(content, {"heads": 5}, path)
    with pytest.raises(DataError, match="heads is 5 in the checkpoint and 4 in the run's configuration"):
        checkpoints.verify(content, {"heads": 4}, path)


def test_missing_cut_and_foreign_checkpoints_are_one_line_errors(tmp_path: Path) -> None:
    path = tmp_path / "best.ckpt"
    with pytest.raises(DataError, match="no checkpoint"):
        checkpoints.load(path)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(DataError, match="is not a checkpoint of this program"):
        checkpoints.load(path)
    torch.save({"state_dict": {}}, path)
    with pytest.raises(DataError, match="lacks its description"):
        checkpoints.load(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="is not a checkpoint of this program") as caught:
        checkpoints.load(path)
    assert "\n" not in str(caught.value)


class Harmful:
    """Pickles to a call."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("executed"),))


def test_a_pickled_call_in_a_checkpoint_is_refused_and_not_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": {}, "forecaster": Harmful()}, tmp_path / "best.ckpt")
    assert pickle.dumps(Harmful())
    with pytest.raises(DataError, match="is not a checkpoint of this program"):
        checkpoints.load(tmp_path / "best.ckpt")
    assert not (tmp_path / "executed").exists()


def test_one_training_step_gives_the_golden_numbers(tmp_path: Path) -> None:
    # One step on one thread; the numbers move when the mathematics of the step, the data or the start does.
    task, bars = built()
    task.network.eval()  # without dropout
    batch = next(iter(bars.val_dataloader()))
    optimizer = torch.optim.AdamW(task.network.parameters(), lr=1e-3, weight_decay=1e-2)
    before = task.losses(batch).mean()
    before.backward()  # type: ignore[no-untyped-call]
    norm = torch.nn.utils.clip_grad_norm_(task.network.parameters(), 1.0)
    optimizer.step()
    after = task.losses(batch).mean()
    assert [before.item(), norm.item(), after.item()] == pytest.approx(GOLDEN, rel=1e-5)


GOLDEN = [3.578559, 11.389798, 3.139915]  # loss, gradient norm, loss after the step
