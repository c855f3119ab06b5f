"""A training that is stopped and goes on: the same weights, states and history as of one that never stopped."""

import os
import pickle
import signal
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fabricate import random_bars
from forecaster import compose
from forecaster.config import Config
from forecaster.data import windowed
from forecaster.errors import DataError, DivergedError
from forecaster.prepare import untrained
from forecaster.training import checkpoints, keeping
from forecaster.training.fit import Trained, fit
from forecaster.training.task import Task
from forecaster.windows import datamodule

EPOCHS, STEPS = 3, 5  # of an epoch, of 68 windows, the last batch with 4


def configured(*overrides: str) -> Config:
    small = ["experiment=smoke", "model.width=8", "model.heads=2", "model.window=6", "data.targets=[return,volume]"]
    return compose.configured([*small, "data.batch_size=16", *overrides])


CONFIG = configured()
BARS = random_bars({"A": 100, "B": 80})
BARS = replace(BARS, basis="as made")


def built(config: Config = CONFIG) -> tuple[Task, datamodule.Bars]:
    ready = windowed(config, BARS, Path.cwd())
    torch.manual_seed(0)
    task = untrained(config, ready.panel, ready.length, ready.scaler)
    every = config.data.origins == "all"
    return task, datamodule.Bars(ready.panel, ready.split, ready.length, config.data.batch_size, 0, every=every)


def train(
    directory: Path, *, resume: bool = False, config: Config = CONFIG, at_step: Any = None, **changes: Any
) -> Any:
    """The task, what fit returned, and what was said."""
    task, bars = built(config)
    said: list[str] = []
    if at_step:
        inner = task.training_step

        def step(batch: datamodule.Batch, batch_idx: int) -> None:
            at_step(task.global_step)
            inner(batch, batch_idx)

        task.training_step = step  # type: ignore[method-assign]
    options = {"max_epochs": EPOCHS, "patience": 3, "average": 0.9} | changes
    done = fit(
        task, bars, directory, {"heads": 2}, logger=False, say=said.append, progress=False, resume=resume, **options
    )
    return task, done, said


def ask(step: int, *numbers: int) -> Callable[[int], None]:
    """Sends itself signals in a step."""
    return lambda now: [os.kill(os.getpid(), number) for number in numbers if now == step] and None


def last(directory: Path) -> dict[str, Any]:
    """All that last.ckpt holds but the seconds."""
    content: dict[str, Any] = checkpoints.load(directory / checkpoints.LAST)
    state = content["callbacks"]["Keeper"]
    del state["seconds"]
    state["rows"] = [row[:-1] for row in state["rows"]]
    return content


def history(directory: Path) -> list[str]:
    """The rows of history.csv but for their seconds."""
    return [line.rpartition(",")[0] for line in (directory / "history.csv").read_text().splitlines()]


def assert_equal(one: Any, other: Any, path: str = "") -> None:
    """The same bits in the same places."""
    assert type(one) is type(other), path
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other), path
    elif isinstance(one, dict):
        assert list(one) == list(other), path
        for key in one:
            assert_equal(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), path
        for number, (first, second) in enumerate(zip(one, other, strict=True)):
            assert_equal(first, second, f"{path}.{number}")
    else:
        assert one == other, path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Task, Trained]:
    """A training that was never stopped."""
    directory = tmp_path_factory.mktemp("whole")
    task, done, _ = train(directory)
    assert last(directory)["global_step"] == EPOCHS * STEPS
    return directory, task, done


# In the first step, the last of an epoch, the middle of one, and the last of all.
@pytest.mark.parametrize(
    ("step", "position"), [(0, (0, 1)), (STEPS - 1, (1, 0)), (STEPS + 2, (1, 3)), (EPOCHS * STEPS - 1, (3, 0))]
)
def test_when_stopped_in_a_step_then_resuming_ends_with_the_same_bits(
    step: int, position: tuple[int, int], whole: tuple[Path, Task, Trained], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as ended:
        train(tmp_path, at_step=ask(step, signal.SIGTERM))
    assert ended.value.code == 143
    path = tmp_path / checkpoints.LAST
    assert checkpoints.position(checkpoints.load(path), path) == position
    task, done, said = train(tmp_path, resume=True)
    directory, never_stopped, expected = whole
    assert done.epoch == expected.epoch
    assert_equal(task.state_dict(), never_stopped.state_dict())
    assert_equal(last(tmp_path), last(directory))
    assert history(tmp_path) == history(directory)
    assert len(said) == EPOCHS - position[0]


def test_when_stopped_twice_in_one_epoch_of_every_origin_then_the_bits_are_the_same(tmp_path: Path) -> None:
    config = configured("data.origins=all", "model.causal=true", "data.batch_size=8")
    never_stopped, _, _ = train(tmp_path / "whole", config=config)
    for step in (4, 5):
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "parts", config=config, resume=step > 4, at_step=ask(step, signal.SIGINT))
    task, _, _ = train(tmp_path / "parts", config=config, resume=True)
    assert_equal(task.state_dict(), never_stopped.state_dict())
    assert_equal(last(tmp_path / "parts"), last(tmp_path / "whole"))


def test_when_early_stopping_ends_a_training_that_was_stopped_then_it_ends_in_the_same_epoch(
    tmp_path: Path,
) -> None:
    # A rate that makes the second epoch worse than the first.
    config = configured("model.optimizer.lr=0.3")
    options = {"config": config, "max_epochs": 6, "patience": 1, "average": 0.0}
    train(tmp_path / "whole", **options)
    rows = len(history(tmp_path / "whole")) - 1
    assert rows < 6
    with pytest.raises(SystemExit):
        train(tmp_path / "parts", at_step=ask((rows - 1) * STEPS - 1, signal.SIGTERM), **options)
    train(tmp_path / "parts", resume=True, **options)
    assert_equal(last(tmp_path / "parts"), last(tmp_path / "whole"))
    assert checkpoints.finished(last(tmp_path / "whole"))
    _, done, said = train(tmp_path / "parts", resume=True, **options)
    assert said == []
    assert history(tmp_path / "parts") == history(tmp_path / "whole")
    assert done.epoch < rows


def test_when_killed_after_the_row_of_an_epoch_and_before_its_checkpoint_then_no_row_is_lost_or_doubled(
    whole: tuple[Path, Task, Trained], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = keeping.Keeper.on_save_checkpoint

    def killed(self: keeping.Keeper, trainer: Any, module: Any, checkpoint: dict[str, object]) -> None:
        keep(self, trainer, module, checkpoint)
        if trainer.current_epoch == 1:
            raise OSError("the disk is gone")

    monkeypatch.setattr(keeping.Keeper, "on_save_checkpoint", killed)
    with pytest.raises(OSError, match="the disk is gone"):
        train(tmp_path)
    assert history(tmp_path) == history(whole[0])[:3]
    monkeypatch.undo()
    train(tmp_path, resume=True)
    assert history(tmp_path) == history(whole[0])
    assert_equal(last(tmp_path), last(whole[0]))


def test_when_ctrl_c_comes_twice_then_training_ends_at_once_with_what_was_kept_before(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, at_step=ask(STEPS + 1, signal.SIGINT, signal.SIGINT))
    path = tmp_path / checkpoints.LAST
    assert checkpoints.position(checkpoints.load(path), path) == (1, 0)


def test_when_asked_to_stop_after_the_last_epoch_then_that_is_not_forgotten(
    whole: tuple[Path, Task, Trained], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Task, "on_train_end", lambda self: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit):
        train(tmp_path)
    assert_equal(last(tmp_path), last(whole[0]))


def test_when_training_has_ended_then_the_signals_are_handled_as_before(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    train(tmp_path, max_epochs=1)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_when_a_run_is_trained_anew_then_a_checkpoint_in_its_folder_is_not_gone_on_with(
    whole: tuple[Path, Task, Trained], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit):
        train(tmp_path, at_step=ask(STEPS, signal.SIGTERM), config=configured("model.optimizer.lr=0.1"))
    train(tmp_path)
    assert_equal(last(tmp_path), last(whole[0]))


def test_when_a_loss_is_not_finite_then_its_batch_is_named_and_no_best_checkpoint_left(tmp_path: Path) -> None:
    task, bars = built()
    rows = bars.training_rows(1, 3)
    panel = bars.windows.panel
    assert {panel.symbols[number] for number in panel.symbol_ids[rows]} == {"A", "B"}
    days = sorted(str(time)[:10] for time in panel.times[rows])
    inner = task.training_step

    def step(batch: datamodule.Batch, batch_idx: int) -> None:
        spoilt = task.global_step == STEPS + 3
        inner((batch[0], batch[1], batch[2] * float("nan") if spoilt else batch[2], *batch[3:]), batch_idx)

    task.training_step = step  # type: ignore[method-assign]
    with pytest.raises(DivergedError) as caught:
        fit(task, bars, tmp_path, {}, max_epochs=3, patience=3, average=0.9, logger=False, say=print, progress=False)
    assert str(caught.value) == (
        # Warm-up takes 2 of 15 steps: half of 1 + cos(pi 6 / 13) is left of the rate.
        "training diverged: the loss is nan at step 8 (epoch 2), learning rate 0.00056, on 16 windows of A, B that end "
        f"between {days[0]} and {days[-1]}; lower model.optimizer.lr or look at the quality report"
    )
    assert not (tmp_path / checkpoints.BEST).exists()
    assert (tmp_path / checkpoints.LAST).is_file()


def test_what_is_kept_are_tensors_numbers_and_text_and_for_forecasts_only_what_they_need(
    whole: tuple[Path, Task, Trained],
) -> None:
    def kinds(node: Any) -> set[type]:
        if isinstance(node, dict):
            return {type(node)}.union(*map(kinds, [*node.keys(), *node.values()]))
        return {type(node)}.union(*map(kinds, node)) if isinstance(node, list | tuple) else {type(node)}

    allowed = {dict, OrderedDict, list, tuple, torch.Tensor, int, float, str, bool, type(None)}
    assert kinds(checkpoints.load(whole[0] / checkpoints.LAST)) <= allowed
    assert set(checkpoints.load(whole[0] / checkpoints.BEST)) == set(checkpoints.FORECASTING)


def test_a_checkpoint_that_does_not_say_where_training_stood_is_not_resumed(
    whole: tuple[Path, Task, Trained], tmp_path: Path
) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / checkpoints.LAST).write_bytes((whole[0] / checkpoints.BEST).read_bytes())
    content = checkpoints.load(tmp_path / checkpoints.LAST)
    checkpoints.described(content)["finished"] = False
    torch.save(content, tmp_path / checkpoints.LAST)
    with pytest.raises(DataError, match="does not say where its training stood, so it can't go on exactly"):
        train(tmp_path, resume=True)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"state_dict": {}, "forecaster": {"format": 3}}, "is of format 3, this program reads 1 to 2"),
        ({"state_dict": {}, "forecaster": {}}, "is of format None"),
        ({"state_dict": {}, "forecaster": "a text"}, "its weights are no tensors by name"),
        ({"state_dict": {"network.embed.weight": 1.0}, "forecaster": {"format": 1}}, "its weights are no tensors"),
        ({"state_dict": {"w": torch.eye(2).to_sparse()}, "forecaster": {"format": 1}}, "its weights are no tensors"),
        ([1, 2], "it lacks its description"),
    ],
)
def test_a_checkpoint_of_another_shape_is_refused(content: object, told: str, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "best.ckpt")
    with pytest.raises(DataError, match=told) as caught:
        checkpoints.load(tmp_path / "best.ckpt")
    assert "\n" not in str(caught.value)


def executed() -> None:
    Path("executed").touch()


@pytest.mark.parametrize("plain", [False, True])
def test_a_pickled_function_in_a_checkpoint_is_refused_and_not_loaded(
    plain: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    content = {"state_dict": {}, "forecaster": {"format": 1, "versions": executed}}
    if plain:
        Path("best.ckpt").write_bytes(pickle.dumps(content))
    else:
        torch.save(content, "best.ckpt")
    with pytest.raises(DataError, match=r"best.ckpt is not a checkpoint of this program"):
        checkpoints.load(Path("best.ckpt"))
    assert not Path("executed").exists()
