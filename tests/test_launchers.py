"""Sweeps through Ray, submitit and Optuna, with whole runs: what the extras bring (make test-launchers)."""

import csv
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from commands import TRAIN

pytestmark = pytest.mark.launchers
SMALL = ["experiment=smoke", "source.bars=700", "trainer.max_epochs=1", "probes=off"]
SAME = ["scores.csv", "tests.csv", "pit.csv", "history.csv", "forecasts.parquet"]


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def begun(cwd: Path, *arguments: str) -> subprocess.Popen[str]:
    program = [sys.executable, TRAIN, "-m", *arguments]
    return subprocess.Popen(program, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def swept(cwd: Path, *arguments: str) -> Ended:
    process = begun(cwd, *arguments)
    out, err = process.communicate()
    return Ended(process.returncode, out, err)


def rows(directory: Path) -> list[dict[str, str]]:
    with (directory / "jobs.csv").open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serial")
    ended = swept(folder, *SMALL, "seed=0,1,2,3", "hydra.sweep.dir=here")
    assert ended.code == 0, ended.err
    return folder / "here"


def without_seconds(file: Path) -> bytes:
    """A file of a run; history.csv without the time that each epoch took."""
    return (
        re.sub(rb",[^,\n]*$", b"", file.read_bytes(), flags=re.MULTILINE)
        if file.stem == "history"
        else file.read_bytes()
    )


@pytest.mark.parametrize("launcher", ["ray", "submitit_local"])
def test_when_a_sweep_runs_elsewhere_then_its_results_are_those_of_the_serial_one(
    launcher: str, serial: Path, tmp_path: Path
) -> None:
    ended = swept(tmp_path, *SMALL, f"hydra/launcher={launcher}", "seed=0,1,2,3", "hydra.sweep.dir=here")
    assert ended.code == 0, ended.err
    assert ended.err.splitlines()[0].startswith("sweep: 4 jobs, ")
    for seed in range(4):
        for name in SAME:
            found = without_seconds(tmp_path / "here" / str(seed) / name)
            assert found == without_seconds(serial / str(seed) / name), name
    assert [(row["status"], row["result"]) for row in rows(tmp_path / "here")] == [
        (row["status"], row["result"]) for row in rows(serial)
    ]


def test_when_one_of_four_jobs_fails_then_three_are_complete_and_the_exit_code_is_its(tmp_path: Path) -> None:
    given = [*SMALL, "hydra/launcher=ray", "model.optimizer.lr=0.001,1e6,0.002,0.003", "hydra.sweep.dir=here"]
    ended = swept(tmp_path, *given)
    assert ended.code == 4, ended.err
    assert [row["exit_code"] for row in rows(tmp_path / "here")] == ["0", "4", "0", "0"]
    assert sorted(path.parent.name for path in tmp_path.glob("here/*/report.html")) == ["0", "2", "3"]
    assert "training diverged" in ended.err
    assert ended.out.count("complete") == 3


def workers(driver: int) -> list[int]:
    """The processes below a sweep's in which Ray runs jobs."""
    parents = dict(_parent(path) for path in Path("/proc").glob("[0-9]*"))
    names = {number: _read(Path(f"/proc/{number}/cmdline")) for number in parents}
    return [number for number in parents if "ray::_run_job" in names[number] and driver in _above(number, parents)]


def _parent(process: Path) -> tuple[int, int]:
    status = re.search(r"^PPid:\s+(\d+)", _read(process / "status"), re.MULTILINE)
    return int(process.name), int(status[1]) if status else 0


def _above(number: int, parents: dict[int, int]) -> Iterator[int]:
    while number := parents.get(number, 0):
        yield number


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # it has ended
        return ""


def test_when_a_worker_is_killed_then_its_job_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    long = ["experiment=smoke", "source.bars=700", "trainer.max_epochs=40", "trainer.patience=40", "probes=off"]
    process = begun(tmp_path, *long, "hydra/launcher=ray", "seed=5", "hydra.sweep.dir=killed")
    checkpoint = tmp_path / "killed" / "0" / "checkpoints" / "last.ckpt"
    while not checkpoint.exists() and process.poll() is None:
        time.sleep(0.05)
    [worker] = workers(process.pid)
    os.kill(worker, signal.SIGKILL)
    _, err = process.communicate()
    assert process.returncode == 0, err
    ended = swept(tmp_path, *long, "seed=5", "hydra.sweep.dir=whole")
    assert ended.code == 0, ended.err
    for name in ("scores.csv", "forecasts.parquet"):
        assert (tmp_path / "killed" / "0" / name).read_bytes() == (tmp_path / "whole" / "0" / name).read_bytes()


# What SLURM's commands do, with the tasks of an array run here, one after another.
SLURM = {
    "sbatch": """
script="${@: -1}"
cp "$script" submitted.sh
for task in 0 1; do
    export SLURM_JOB_ID=77 SLURM_ARRAY_JOB_ID=77 SLURM_ARRAY_TASK_ID=$task SLURM_JOB_NUM_NODES=1 SLURM_NTASKS=1
    export SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_JOB_NODELIST=here SLURM_STEP_NUM_TASKS=1
    bash "$script"
done > slurm.log 2>&1 &
echo "Submitted batch job 77"
""",
    "srun": """
while [[ "$1" != *python* ]]; do shift; done
exec "$@"
""",
    "sacct": """
echo "JobID|State|NodeList"
for task in 0 1; do
    [ -e here/.submitit/77_$task/77_${task}_0_result.pkl ] && state=COMPLETED || state=RUNNING
    echo "77_$task|$state|here"
done
""",
}


def test_when_slurm_runs_a_sweep_then_its_job_asks_for_the_cores_and_leaves_the_same_results(
    serial: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in SLURM.items():
        (tmp_path / name).write_text(f"#!/bin/bash{text}")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    given = [*SMALL, "hydra/launcher=submitit_slurm", "hydra.launcher.partition=cpu", "seed=0,1"]
    ended = swept(tmp_path, *given, "trainer.threads=1", "hydra.sweep.dir=here")
    assert ended.code == 0, ended.err
    submitted = (tmp_path / "submitted.sh").read_text()
    for line in ("--cpus-per-task=1", "--partition=cpu", "--ntasks-per-node=1", "--nodes=1"):
        assert f"#SBATCH {line}\n" in submitted
    assert ended.err.startswith("sweep: 2 jobs, as many at a time as the cluster has room for")
    for seed in range(2):
        assert (tmp_path / "here" / str(seed) / "scores.csv").read_bytes() == (
            serial / str(seed) / "scores.csv"
        ).read_bytes()


@pytest.fixture
def search() -> list[str]:
    space = ["model.optimizer.lr=tag(log,interval(1e-4,1e-2))", "model.heads=2,4"]
    return [*SMALL, *space, "hydra/sweeper=optuna"]


def test_when_a_search_is_stopped_and_started_again_then_it_continues_its_study(
    search: list[str], tmp_path: Path
) -> None:
    first = swept(tmp_path, *search, "hydra.sweeper.n_trials=2", "hydra.sweep.dir=first")
    assert first.code == 0, first.err
    process = begun(tmp_path, *search, "hydra.sweeper.n_trials=4", "hydra.sweep.dir=stopped")
    while not (tmp_path / "stopped" / "0" / "checkpoints").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 143
    second = swept(tmp_path, *search, "hydra.sweeper.n_trials=4", "hydra.sweep.dir=second")
    assert second.code == 0, second.err
    assert ", 2 of its trials done" in second.err
    assert len(rows(tmp_path / "second")) == 2
    tried = [row["overrides"] for name in ("first", "second") for row in rows(tmp_path / name)]
    assert len(set(tried)) == 4
    losses = {
        row["overrides"]: min(
            float(epoch["validation_loss"])
            for epoch in csv.DictReader((tmp_path / row["directory"] / "history.csv").read_text().splitlines())
        )
        for name in ("first", "second")
        for row in rows(tmp_path / name)
    }
    best = min(losses, key=lambda told: losses[told])
    last = next(line for line in second.out.splitlines() if line.startswith("lowest validation loss"))
    assert f"{losses[best]:.6g} with " in last
    assert set(last.partition(" with ")[2].split()) == set(best.split())
    third = swept(tmp_path, *search, "hydra.sweeper.n_trials=4")
    assert (third.code, third.out.splitlines()) == (0, [last])
    assert "none is left to do: raise hydra.sweeper.n_trials" in third.err


def test_when_another_search_is_typed_then_its_study_is_another(search: list[str], tmp_path: Path) -> None:
    for given in (search, [*search, "data.targets=[volume]"]):
        ended = swept(tmp_path, *given, "hydra.sweeper.n_trials=1")
        assert ended.code == 0, ended.err
        assert ", 0 of its trials done" in ended.err


def test_when_the_search_fails_in_all_its_trials_then_the_table_says_so(tmp_path: Path) -> None:
    given = [*SMALL, "hydra/sweeper=optuna", "model.optimizer.lr=interval(1e6,1e7)", "hydra.sweeper.n_trials=1"]
    ended = swept(tmp_path, *given, "hydra.sweep.dir=here")
    assert ended.code == 4, ended.err
    assert [row["status"] for row in rows(tmp_path / "here")] == ["failed"]
    assert "lowest validation loss" not in ended.out
