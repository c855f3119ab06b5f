"""Devices and processes of one training: what is asked of Lightning, what is refused, and two processes against one."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import pandas as pd
import pytest
from lightning.pytorch.plugins import MixedPrecision

from commands import TRAIN
from fabricate import random_bars
from forecaster import data, line
from forecaster.bars.contract import Bars
from forecaster.compose import composition, configured
from forecaster.config import KINDS, POOLINGS, POSITIONS, Config
from forecaster.errors import ConfigError
from forecaster.fitting import asked, batches
from forecaster.launchers import plan
from forecaster.prepare import prepare
from forecaster.training import devices
from forecaster.training.devices import CPU
from forecaster.training.place import check_number, place
from forecaster.windows import datamodule, panel, splits

# 202 steps; the last batch of an epoch is smaller, and no batch can be halved.
STEPS = ["experiment=smoke", "model.dropout=0", "source.bars=7100", "data.batch_size=49", "trainer.max_epochs=2"]
SHORT = ["experiment=smoke", "source.bars=3000", "trainer.max_epochs=12", "trainer.patience=50", "probes=off"]


def test_when_nothing_started_processes_then_this_is_the_only_one() -> None:
    assert place({"SLURM_PROCID": "3", "SLURM_NTASKS": "4"}) == (0, 1)
    assert place({"RANK": "2", "WORLD_SIZE": "3"}) == (2, 3)
    assert place({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "8"}) == (1, 4)


@pytest.mark.parametrize(
    ("started", "numbers", "told"),
    [
        (1, (2, 2), "trainer.devices=2 on trainer.nodes=2 needs 4 processes, and there is 1"),
        (2, (1, 1), "trainer.devices=1 on trainer.nodes=1 needs 1 processes, and there are 2"),
        (3, (2, 1), "trainer.devices=2 on trainer.nodes=1 needs 2 processes, and there are 3"),
    ],
)
def test_when_another_number_of_processes_was_started_then_it_is_refused(
    started: int, numbers: tuple[int, int], told: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        check_number({"RANK": "0", "WORLD_SIZE": str(started)}, *numbers)
    assert str(refused.value) == f"{told}; start so many with torchrun or srun, or choose other devices"


def test_when_the_number_of_processes_agrees_or_they_are_to_be_started_then_nothing_is_refused() -> None:
    check_number({}, 4, 1)
    check_number({"RANK": "1", "WORLD_SIZE": "4"}, 2, 2)


@pytest.mark.parametrize(
    ("given", "found", "told"),
    [
        ("gpu", 0, "trainer.devices=1 with trainer.accelerator=gpu: CUDA finds 0 devices here"),
        ("ddp", 1, "trainer.devices=2 with trainer.accelerator=gpu: CUDA finds 1 devices here"),
    ],
)
def test_when_a_device_is_not_there_then_one_line_says_so_before_there_is_a_run(
    given: str, found: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices.CUDAAccelerator, "auto_device_count", lambda: found)
    with pytest.raises(ConfigError) as refused:
        line.train(configured(["experiment=smoke", f"trainer={given}"]), tmp_path / "run")
    assert str(refused.value) == f"{told}; choose fewer, or trainer=cpu"
    assert not (tmp_path / "run").exists()


def test_when_the_processor_has_no_bfloat16_then_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bf16 = replace(CPU, precision="bf16-mixed")
    monkeypatch.setattr(devices, "flags", lambda: {"avx2", "avx512f"})
    with pytest.raises(ConfigError, match=r"^trainer.precision=bf16-mixed: this cpu computes no bfloat16"):
        bf16.check()
    monkeypatch.setattr(devices, "flags", lambda: {"avx2", "amx_bf16"})
    bf16.check()


def test_when_processes_are_far_more_than_cores_then_they_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"trainer.devices=1024 are that many processes on \d+ cores; choose fewer"):
        replace(CPU, strategy="ddp", devices=1024).check()


def test_when_a_strategy_is_not_lightnings_then_its_names_are_told() -> None:
    with pytest.raises(ConfigError, match=r"^trainer.strategy=dpp is not known; choose one of auto, .*\bddp\b"):
        replace(CPU, strategy="dpp").check()


@pytest.mark.parametrize(("given", "world"), [("cpu", 1), ("ddp_cpu", 2)])
def test_when_lightning_is_asked_for_devices_then_its_trainer_has_them(
    given: str, world: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = asked(configured(["experiment=smoke", f"trainer={given}", "trainer.precision=bf16-mixed"]).trainer)
    for name, value in {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": str(world)}.items() if world > 1 else []:
        monkeypatch.setenv(name, value)
    built: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(**wanted.trainer_arguments(), **built)
    assert (trainer.world_size, trainer.num_devices, trainer.num_nodes) == (world, world, 1)
    assert isinstance(trainer.precision_plugin, MixedPrecision)
    assert type(trainer.strategy).__name__ == ("DDPStrategy" if world > 1 else "SingleDeviceStrategy")


@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("batch_size", [3, 7])
def test_when_processes_share_batches_then_each_window_is_one_ones_and_the_steps_are_the_same(
    every: bool, batch_size: int
) -> None:
    windows = panel.build(random_bars({"A": 120, "B": 90}), ("return",), 2)
    parts = splits.split(windows, 6, 0.6, 0.8)
    bars = datamodule.Bars(windows, parts, 6, batch_size, seed=0, every=every)

    def batches(part: int, of: int) -> list[tuple[list[int], list[int]]]:
        order = datamodule.Order(parts.train, batch_size, 0, bars.shared.reach)
        order.share = part, of
        return [(rows.tolist(), counts.tolist()) for rows, counts in order]

    whole, shares = batches(0, 1), [batches(part, 4) for part in range(4)]
    assert {len(share) for share in shares} == {len(whole)}
    for step, (rows, counts) in enumerate(whole):
        given = [pair for share in shares for pair in zip(*share[step], strict=True) if pair[1]]
        assert given == list(zip(rows, counts, strict=True))
    assert all(len(rows) for share in shares for rows, _ in share)
    assert any(sum(counts) == 0 for share in shares for _, counts in share) == (batch_size == 3)


@pytest.fixture(scope="module")
def market() -> Bars:
    return data.load_bars(configured(["experiment=smoke", "source.bars=700"]).source)


@pytest.mark.parametrize(
    "given",
    [
        *(f"model={kind}" for kind in KINDS),
        *(f"model.positions={name}" for name in POSITIONS),
        *(f"model.pooling={name}" for name in POOLINGS),
        *("model.skip=false", "model.causal=true data.origins=all", "model=encoder_decoder data.horizon=3"),
    ],
)
def test_when_any_network_takes_a_step_then_each_parameter_has_the_gradient_that_processes_wait_for(
    given: str, market: Bars, tmp_path: Path
) -> None:
    prepared = prepare(configured(["experiment=smoke", "source.bars=700", *given.split()]), market, tmp_path)
    prepared.task.train()
    prepared.task.losses(next(iter(batches(prepared).train_dataloader()))).sum().backward()
    assert [name for name, weight in prepared.task.named_parameters() if weight.grad is None] == []


def test_when_a_job_is_of_several_processes_then_its_launcher_reserves_their_cores() -> None:
    composed = composition(["experiment=smoke", "trainer=ddp_cpu", "trainer.threads=3"])
    composed.hydra.runtime.choices["hydra/launcher"] = "submitit_slurm"
    trainer = configured(["experiment=smoke", "trainer=ddp_cpu", "trainer.threads=3"]).trainer
    assert plan(composed.hydra, trainer, []) == (["++hydra.launcher.cpus_per_task=6"], None)
    far = replace(trainer, nodes=4, accelerator="gpu")
    assert plan(composed.hydra, far, []).settings == [
        "++hydra.launcher.cpus_per_task=3",
        "++hydra.launcher.nodes=4",
        "++hydra.launcher.tasks_per_node=2",
        "++hydra.launcher.gpus_per_node=2",
    ]


def scores(directory: Path) -> pd.DataFrame:
    table = pd.read_csv(directory / "scores.csv", dtype={"value": str})
    return table.assign(value=pd.to_numeric(table["value"], errors="coerce"))


def test_when_two_processes_share_each_batch_then_scores_and_losses_are_those_of_one(tmp_path: Path) -> None:
    for name, given in {"one": [], "two": ["trainer=ddp_cpu", "trainer.max_epochs=2"]}.items():
        config = configured([*STEPS, "probes=off", *given])
        assert isinstance(config, Config)
        line.train(config, tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]
    files = {name: sorted(path.name for path in (tmp_path / name).rglob("*")) for name in ("one", "two")}
    assert set(files["two"]) - set(files["one"]) == {"train.log"}
    histories = [pd.read_csv(tmp_path / name / "history.csv").drop(columns="seconds") for name in ("one", "two")]
    assert list(histories[0]["step"]) == [101, 202]
    pd.testing.assert_frame_equal(*histories, rtol=0, atol=1e-6)
    one, two = scores(tmp_path / "one"), scores(tmp_path / "two")
    pd.testing.assert_frame_equal(
        one.drop(columns=["value", "low", "high"]), two.drop(columns=["value", "low", "high"])
    )
    np.testing.assert_allclose(two["value"], one["value"], rtol=0, atol=1e-6)
    assert "RANK" not in os.environ
    summary = json.loads((tmp_path / "two" / "summary.json").read_text())
    assert summary["status"] == "complete"


def begun(cwd: Path, *arguments: str, torchrun: bool = False) -> subprocess.Popen[str]:
    started = ["-m", "torch.distributed.run", "--nproc_per_node", "2"] if torchrun else []
    program = [sys.executable, *started, TRAIN, *arguments]
    return subprocess.Popen(program, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.launchers
def test_when_torchrun_starts_the_processes_then_the_scores_are_the_same(tmp_path: Path) -> None:
    given = [*STEPS, "probes=off", "trainer=ddp_cpu", "trainer.max_epochs=2"]
    process = begun(tmp_path, *given, "hydra.run.dir=there", torchrun=True)
    _, err = process.communicate()
    assert process.returncode == 0, err
    line.train(configured(given), tmp_path / "here")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "there"]
    pd.testing.assert_frame_equal(scores(tmp_path / "there"), scores(tmp_path / "here"), rtol=0, atol=1e-6)


@pytest.mark.launchers
def test_when_torchrun_starts_what_it_cannot_then_one_line_says_so(tmp_path: Path) -> None:
    for given, told in [(["-m", "seed=1,2"], "-m starts its jobs itself"), (["seed=1"], "needs 1 processes")]:
        process = begun(tmp_path, "experiment=smoke", *given, torchrun=True)
        _, err = process.communicate()
        assert process.returncode == 1
        assert [told in text for text in err.splitlines() if text.startswith("error: ")] == [True]
        assert not (tmp_path / "outputs").exists()


@pytest.mark.launchers
def test_when_jobs_of_a_sweep_have_two_processes_then_each_has_one_directory(tmp_path: Path) -> None:
    given = ["-m", *SHORT, "trainer=ddp_cpu", "trainer.max_epochs=1", "model.optimizer.lr=0.001,1e6,0.002"]
    process = begun(tmp_path, *given, "hydra.sweep.dir=here")
    _, err = process.communicate()
    assert process.returncode == 4, err
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == [
        *(".jobs", "0", "1", "2"),
        *("jobs.csv", "multirun.yaml"),
    ]
    statuses = [json.loads((tmp_path / "here" / str(job) / "summary.json").read_text())["status"] for job in range(3)]
    assert statuses == ["complete", "failed", "complete"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here"]


@pytest.mark.launchers
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_when_the_first_of_two_processes_is_stopped_then_resuming_ends_with_the_same_weights(
    number: signal.Signals, tmp_path: Path
) -> None:
    process = begun(tmp_path, *SHORT, "trainer=ddp_cpu", "trainer.max_epochs=12", "hydra.run.dir=stopped")
    while not (tmp_path / "stopped" / "checkpoints" / "last.ckpt").exists() and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(number)
    process.communicate()
    codes = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGKILL: -9}
    assert process.returncode == codes[number]
    again = begun(tmp_path, "resume=stopped")
    _, err = again.communicate()
    assert again.returncode == 0, err
    line.train(configured([*SHORT, "trainer=ddp_cpu", "trainer.max_epochs=12"]), tmp_path / "whole")
    for name in ("forecasts.parquet", "scores.csv"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.launchers
def test_when_the_first_process_is_killed_before_the_other_has_found_it_then_that_one_ends_too(tmp_path: Path) -> None:
    process = begun(tmp_path, *SHORT, "trainer=ddp_cpu", "hydra.run.dir=run")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not (others := children.read_text().split()):
        time.sleep(0.01)
    process.kill()
    process.communicate()
    state, until = Path(f"/proc/{others[0]}/stat"), time.monotonic() + 60
    while state.exists() and " Z " not in state.read_text():  # a zombie where nobody takes in orphans
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.launchers
def test_when_validation_gets_no_better_then_both_processes_end(tmp_path: Path) -> None:
    given = [*SHORT, "trainer=ddp_cpu", "trainer.max_epochs=50", "trainer.patience=1", "model.optimizer.lr=0.3"]
    line.train(configured(given), tmp_path / "run")
    assert len((tmp_path / "run" / "history.csv").read_text().splitlines()) < 51
