"""Run directories and sweeps, from the command line."""

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hydra.errors import MissingConfigException

from commands import ROOT, Commands, runs, served, started
from forecaster import jobs, tally
from forecaster.compose import configured, to_yaml
from forecaster.errors import ConfigError
from forecaster.explain import EXTRAS, TYPED, explain

PLUGINS = str(ROOT / "tests" / "plugins")


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
    """The rows of jobs.csv without the seconds that each job took."""
    lines = (directory / "jobs.csv").read_text().splitlines()
    assert all(re.fullmatch(r"seconds|\d+\.\d", line.rpartition(",")[2]) for line in lines)
    return [line.rpartition(",")[0] for line in lines]


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
    assert ended.err.splitlines()[0] == "sweep: 5 jobs; time and disk are told once the first is complete"
    left = r"4 jobs left: about \d+ s and 0\.0 MB \(\d+ s and 0\.0 MB each, as the first that is complete\)"
    assert re.fullmatch(left, ended.err.splitlines()[2])
    assert [*ended.err.splitlines()[1:2], *ended.err.splitlines()[3:]] == [
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
    assert ended.code == 130
    assert ended.err.splitlines()[3:] == ["job 1: seed=66", "interrupted"]
    [directory] = runs(tmp_path)
    assert len(rows(directory)) == 2


def finished(directory: Path, seconds: float, size: int, status: str = "complete") -> None:
    """A run that took so long, and so many bytes in all."""
    directory.mkdir(parents=True)
    summary = json.dumps({"status": status, "timings": {"training": seconds - 1, "scores": 1.0}})
    (directory / "summary.json").write_text(summary)
    (directory / "forecasts.parquet").write_bytes(bytes(size - len(summary)))


def test_when_the_experiment_was_run_before_then_the_sweep_begins_with_the_median_of_what_it_took(
    run: Commands, tmp_path: Path
) -> None:
    for name, seconds, size in [("a", 10, 2_000_000), ("b", 700, 3_000_000), ("c/0", 30, 9_000_000)]:
        finished(tmp_path / "outputs" / "smoke" / name, seconds, size)
    finished(tmp_path / "outputs" / "smoke" / "d", 1, 1000, status="failed")
    (tmp_path / "outputs" / "smoke" / "e").mkdir()
    (tmp_path / "outputs" / "smoke" / "e" / "summary.json").write_text("[1]")
    ended = run(tmp_path, "-m", "experiment=smoke", "seed=1,2", "model.heads=2,4", "hydra.sweep.dir=here")
    each = "30 s and 3.0 MB each, the median of 3 earlier runs in outputs/smoke"
    assert ended.err.splitlines()[0] == f"sweep: 4 jobs; about 2 min and 12.0 MB ({each})"
    assert len(ended.err.splitlines()) == 5


def test_when_twenty_jobs_run_at_once_then_each_has_a_directory_and_a_row_of_its_own(tmp_path: Path) -> None:
    ended = started(tmp_path, "-m", "experiment=smoke", "hydra/launcher=forks", "seed=range(0,20)", PYTHONPATH=PLUGINS)
    out, err = ended.communicate()
    assert ended.returncode == 0, err
    [directory] = runs(tmp_path)
    where = f"outputs/smoke/{directory.name}"
    assert rows(directory)[1:] == [f"{n},seed={n},complete,0,,{where}/{n},r2 of 8" for n in range(20)]
    assert sorted(path.parent.name for path in directory.glob("*/config.yaml")) == sorted(map(str, range(20)))
    assert sorted(path.name for path in (directory / ".jobs").iterdir()) == sorted(f"{n}.csv" for n in range(20))
    assert out.count("trained") == 20
    assert sum(line.startswith("job ") and "complete, r2 of 8" in line for line in err.splitlines()) == 20


def test_when_a_launcher_loses_a_job_then_the_others_keep_theirs_and_the_table_says_which_is_lost(
    tmp_path: Path,
) -> None:
    given = ["-m", "experiment=smoke", "hydra/launcher=forks", "seed=1,88,44,2", "hydra.sweep.dir=here"]
    ended = started(tmp_path, *given, PYTHONPATH=PLUGINS)
    out, err = ended.communicate()
    reason = "the sweep stopped (RuntimeError: a worker died); what it has started may go on, see here/launcher.log"
    assert ended.returncode == 1
    assert err.splitlines()[-1] == f"error: {reason}"
    assert rows(tmp_path / "here")[1:] == [
        "0,seed=1,complete,0,,here/0,r2 of 8",
        f'1,seed=88,lost,1,"{reason}",here/1,',
        "2,seed=44,failed,4,loss is not finite (step 7); lower model.optimizer.lr,here/2,",
        "3,seed=2,complete,0,,here/3,r2 of 8",
    ]
    assert "lost (1)" in out
    assert "of its own" in (tmp_path / "here" / "launcher.log").read_text()
    assert "job 2: seed=44: failed (4): loss is not finite (step 7); lower model.optimizer.lr" in err


def test_when_a_launcher_does_not_start_then_one_line_says_so(tmp_path: Path) -> None:
    given = ["-m", "experiment=smoke", "hydra/launcher=forks", "seed=88,88", "hydra.sweep.dir=here"]
    ended = started(tmp_path, *given, PYTHONPATH=PLUGINS)
    _, err = ended.communicate()
    reason = "the sweep stopped (RuntimeError: a worker died); what it has started may go on, see here/launcher.log"
    assert (ended.returncode, err.splitlines()[1:]) == (2, [f"error: {reason}"])


def test_when_a_launcher_starts_a_job_again_then_it_goes_on_with_its_own_run_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def did(what: str) -> str:
        done.append(what)
        return what

    line = SimpleNamespace(train=lambda config, directory: did("trained"), resume=lambda directory: did("resumed"))
    monkeypatch.setitem(sys.modules, "forecaster.line", line)
    monkeypatch.setattr("forecaster.line", line, raising=False)
    config, other = configured(["experiment=smoke"]), configured(["experiment=smoke", "seed=1"])
    jobs.train(config, tmp_path / "new", retried=True)
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "config.yaml").write_text(to_yaml(config))
    jobs.train(config, tmp_path / "begun", retried=True)
    assert done == ["trained", "resumed"]
    for asked, retried in [(other, True), (config, False)]:
        with pytest.raises(ConfigError, match="holds a run already"):
            jobs.train(asked, tmp_path / "begun", retried=retried)


@pytest.mark.parametrize(("choice", "extra"), EXTRAS.items())
def test_when_a_launcher_or_a_search_is_not_installed_then_its_extra_is_named(choice: str, extra: str) -> None:
    group, _, name = choice.partition("=")
    missing = MissingConfigException(f"Could not find '{group}/{name}'\n\nAvailable options in '{group}':\n\tbasic")
    install = f"pip install -e '.[{extra}]' in the project's folder"
    assert str(explain(missing, TYPED)) == f"{choice} needs a package that is missing: {install}"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert any("hydra" in package for package in extras[extra])


def test_when_a_launcher_or_an_interval_is_given_where_none_can_be_then_one_line_says_so(
    run: Commands, tmp_path: Path
) -> None:
    launcher = "hydra/launcher=basic is for a sweep (in the command line); add -m, or leave it out"
    assert run.refused(tmp_path, "experiment=smoke", "hydra/launcher=basic") == launcher
    interval = "seed=interval(0,9) is no list of values (in the command line); give values, or add hydra/sweeper=optuna"
    assert run.refused(tmp_path, "-m", "experiment=smoke", "seed=interval(0,9)") == interval


@pytest.mark.parametrize(
    "line",
    ["hydra.sweeper.custom_search_space=os.system", "hydra.launcher.ray.init.runtime_env.py_executable=sh"],
)
def test_when_a_setting_of_a_launcher_names_code_then_it_is_refused(run: Commands, tmp_path: Path, line: str) -> None:
    told = run.refused(tmp_path, "-m", "experiment=smoke", "seed=1,2", f"++{line}")
    assert told == f"{line} is code called by name (in the command line or a file); remove it"


def test_what_a_run_takes_is_read_off_whole_trainings_not_off_what_was_made_from_one(tmp_path):
    for name, summary in {
        "1": {"status": "complete", "timings": {"training": 3.0, "scores": 1.0}},
        "1/prune-x": {"status": "complete", "timings": {"scores": 9.0}, "of": "1"},
        "2": {"status": "interrupted", "timings": {"training": 7.0}},
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text(json.dumps(summary))
    assert [cost.seconds for cost in tally.earlier(tmp_path)] == [4.0]
