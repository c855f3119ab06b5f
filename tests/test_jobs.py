"""Run directories and sweeps, from the command line."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import Commands, runs, served, started


@pytest.fixture(scope="module")
def run() -> Iterator[Commands]:
    with served() as commands:
        yield commands


def test_directories_of_runs_started_in_the_same_second_differ(tmp_path: Path) -> None:
    both = [started(tmp_path, "experiment=smoke") for _ in range(2)]
    assert [process.communicate()[1] for process in both] == ["", ""]
    assert [process.returncode for process in both] == [0, 0]
    assert len(runs(tmp_path)) == 2


def test_run_is_never_overwritten(run: Commands, tmp_path: Path) -> None:
    assert run(tmp_path, "experiment=smoke", "hydra.run.dir=here").code == 0
    before = {file: file.read_bytes() for file in (tmp_path / "here").iterdir()}
    expected = (
        "here holds a run already (config.yaml is there); choose another with hydra.run.dir=DIR, or "
        "hydra.sweep.dir=DIR for a sweep: no run is overwritten"
    )
    assert run.refused(tmp_path, "experiment=smoke", "hydra.run.dir=here") == expected
    assert run.refused(tmp_path, "-m", "experiment=smoke", "seed=1,2", "hydra.sweep.dir=here") == expected
    assert {file: file.read_bytes() for file in (tmp_path / "here").iterdir()} == before


def test_summary_alone_makes_a_directory_a_run(run: Commands, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "summary.json").touch()
    assert "(summary.json is there)" in run.refused(tmp_path, "experiment=smoke", "hydra.run.dir=here")


def test_file_where_the_directory_should_be_is_refused(run: Commands, tmp_path: Path) -> None:
    (tmp_path / "here").touch()
    expected = f"{tmp_path}/here cannot be written (File exists); choose another with hydra.run.dir=DIR"
    assert run.refused(tmp_path, "experiment=smoke", "hydra.run.dir=here") == expected


def test_directory_with_signs_in_its_name_is_taken_when_quoted(run: Commands, tmp_path: Path) -> None:
    ended = run(tmp_path, "experiment=smoke", 'hydra.run.dir="it\'s, lr=1 {here}"')
    assert ended.code == 0, ended.err
    assert (tmp_path / "it's, lr=1 {here}" / "config.yaml").exists()


def rows(directory: Path) -> list[str]:
    return (directory / "jobs.csv").read_text().splitlines()


def test_sweep_keeps_going_past_jobs_that_fail_and_ends_with_the_first_ones_code(run: Commands, tmp_path: Path) -> None:
    ended = run(tmp_path, "-m", "experiment=smoke", "seed=1,44,55,33,2", "model.heads=2")
    [directory] = runs(tmp_path)
    where = f"outputs/smoke/{directory.name}"
    assert ended.code == 4
    assert rows(directory) == [
        "job,overrides,status,exit_code,error,directory,result",
        f"0,seed=1,complete,0,,{where}/0,r2 of 2",
        f"1,seed=44,failed,4,loss is not finite (step 7); lower model.optimizer.lr,{where}/1,",
        f"2,seed=55,failed,1,RuntimeError: a fault of the program,{where}/2,",
        f"3,seed=33,failed,3,a.csv has no bars (line 1); give others,{where}/3,",
        f"4,seed=2,complete,0,,{where}/4,r2 of 2",
    ]
    assert [line for line in ended.out.splitlines() if line.startswith("trained")] == [
        "trained 1 2 True",
        "trained 2 2 True",
    ]
    for number, status in enumerate(["complete", "failed (4)", "failed (1)", "failed (3)", "complete"]):
        assert any(status in line and f"{where}/{number}" in line for line in ended.out.splitlines())
    assert ended.err.splitlines() == [
        "job 0: seed=1",
        "job 1: seed=44",
        "error: loss is not finite (step 7); lower model.optimizer.lr",
        "job 2: seed=55",
        "error: RuntimeError: a fault of the program",
        "job 3: seed=33",
        "error: a.csv has no bars (line 1); give others",
        "job 4: seed=2",
    ]
    assert "a fault of the program" in (directory / "2" / "train.log").read_text()


def test_combination_whose_values_are_wrong_fails_its_own_job_alone(run: Commands, tmp_path: Path) -> None:
    ended = run(tmp_path, "-m", "experiment=smoke", "model.optimizer.lr=-1,0.001", "model.heads=3,8")
    [directory] = runs(tmp_path)
    assert ended.code == 2
    assert [row.split(",")[1:4] for row in rows(directory)[1:]] == [
        ["model.optimizer.lr=-1 model.heads=3", "failed", "2"],
        ["model.optimizer.lr=-1 model.heads=8", "failed", "2"],
        ["model.optimizer.lr=0.001 model.heads=3", "failed", "2"],
        ["model.optimizer.lr=0.001 model.heads=8", "complete", "0"],
    ]


def test_experiment_that_is_a_sweep_runs_its_grid(run: Commands, tmp_path: Path) -> None:
    ended = run(tmp_path, "-m", "experiment=head_count")
    assert ended.code == 0, ended.err
    trained = [line.split()[2] for line in ended.out.splitlines() if line.startswith("trained")]
    assert trained == [heads for heads in ("1", "2", "4", "8", "16", "32", "64") for _ in range(3)]


def test_values_typed_replace_those_of_an_experiments_grid(run: Commands, tmp_path: Path) -> None:
    ended = run(tmp_path, "-m", "experiment=head_count", "model.heads=2,4", "seed=1,2")
    trained = [line for line in ended.out.splitlines() if line.startswith("trained")]
    assert sorted(trained) == ["trained 1 2 True", "trained 1 4 True", "trained 2 2 True", "trained 2 4 True"]
    ended = run(tmp_path, "experiment=head_count", "model.heads=2", "seed=0")
    assert (ended.code, ended.out.splitlines()[0]) == (0, "trained 0 2 True")


def test_sweep_over_experiments_and_ranges_has_a_directory_of_its_own_name(run: Commands, tmp_path: Path) -> None:
    ended = run(tmp_path, "-m", "experiment=smoke,planted_noise", "seed=range(1,3)")
    assert ended.code == 0, ended.err
    [directory] = runs(tmp_path)
    assert directory.parent.name == "sweep"
    assert [row.split(",")[1] for row in rows(directory)[1:]] == [
        "experiment=smoke seed=1",
        "experiment=smoke seed=2",
        "experiment=planted_noise seed=1",
        "experiment=planted_noise seed=2",
    ]


def test_sweep_interrupted_stops_with_the_code_of_the_interrupt(run: Commands, tmp_path: Path) -> None:
    ended = run(tmp_path, "-m", "experiment=smoke", "seed=1,66,2")
    assert (ended.code, ended.err) == (130, "job 0: seed=1\njob 1: seed=66\ninterrupted\n")
    [directory] = runs(tmp_path)
    assert len(rows(directory)) == 2
