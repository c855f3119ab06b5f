"""Runs that are stopped at any moment, and go on to the same weights and the same files."""

import json
import random
import shutil
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from filelock import FileLock

from commands import Commands
from commands import served as commands_served
from forecaster import compose, line, run
from forecaster.errors import DataError
from forecaster.training import checkpoints
from killed import Trainings, served

TINY = (
    "experiment=smoke", "source.bars=300", "model.width=4", "model.heads=2", "model.window=6", "trainer.max_epochs=3",
    "data.batch_size=64", "baselines=[zero]", "data.targets=[return]",
)  # fmt: skip
STEPS = 3  # of an epoch
SAME = ("forecasts.parquet", "scores.csv", "tests.csv", "pit.csv", "quality.csv", "heads.csv", "knockouts.csv")


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Generator[Trainings]:
    with served(tmp_path_factory.mktemp("server")) as trainings:
        yield trainings


@pytest.fixture(scope="module")
def command() -> Generator[Commands]:
    with commands_served() as commands:
        yield commands


@pytest.fixture(scope="module")
def whole(train: Trainings, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A run that was never stopped, and how many events it has."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    ended = train(*TINY, f"hydra.run.dir={directory}")
    assert ended.code == 0, ended.err
    return directory, ended.events


@pytest.fixture
def copy(whole: tuple[Path, int], tmp_path: Path) -> Path:
    """That run, as if it had been stopped after its training."""
    directory = Path(shutil.copytree(whole[0], tmp_path / "copy"))
    summary = run.read_summary(directory)
    timings = {"training": summary["timings"]["training"]}  # type: ignore[index]
    run.update_summary(directory, status="interrupted", timings=timings)
    return directory


def history(directory: Path) -> pd.DataFrame:
    return pd.read_csv(directory / "history.csv").drop(columns="seconds")


def assert_same(directory: Path, other: Path) -> None:
    """Weights bit for bit, forecasts and tables byte for byte, the history but for its seconds; nothing left over."""
    for name in ("best", "last"):
        weights, others = (
            torch.load(run / "checkpoints" / f"{name}.ckpt", weights_only=True)["state_dict"]
            for run in (directory, other)
        )
        assert weights.keys() == others.keys()
        assert all(torch.equal(weights[key], others[key]) for key in weights)
    for name in SAME:
        assert (directory / name).read_bytes() == (other / name).read_bytes(), name
    pd.testing.assert_frame_equal(history(directory), history(other), check_exact=True)
    assert {path.relative_to(directory) for path in directory.rglob("*")} == {
        path.relative_to(other) for path in other.rglob("*")
    }
    summary, expected = run.read_summary(directory), run.read_summary(other)
    assert {name: value for name, value in summary.items() if name != "timings"} == {
        name: value for name, value in expected.items() if name != "timings"
    }


def test_when_killed_at_five_moments_and_resumed_each_time_then_the_run_is_as_if_never_stopped(
    train: Trainings, whole: tuple[Path, int], tmp_path: Path
) -> None:
    # A moment is a step taken, or a file before or after it is renamed; bench/kills.py tries every one of them. Drawn
    # from the first third of all, since a run that was resumed has fewer left.
    never_stopped, events = whole
    draw = random.Random(5)
    typed = [*TINY, f"hydra.run.dir={tmp_path / 'run'}"]
    for _ in range(5):
        killed = train(*typed, event=draw.randrange(3, events // 3), signal=signal.SIGKILL)
        assert killed.code == -signal.SIGKILL
        typed = [f"resume={tmp_path / 'run'}"]
    ended = train(*typed)
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[-1].endswith("run/report.html")
    assert_same(tmp_path / "run", never_stopped)


@pytest.mark.parametrize(("number", "code", "told"), [(signal.SIGTERM, 143, ""), (signal.SIGINT, 130, "interrupted\n")])
def test_when_asked_to_stop_then_the_step_is_kept_and_the_exit_code_is_that_of_the_signal(
    number: int, code: int, told: str, train: Trainings, whole: tuple[Path, int], tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    stopped = train(*TINY, f"hydra.run.dir={directory}", step=STEPS + 2, signal=number)
    assert stopped.code == code
    assert stopped.err.endswith(f"s\n{told}")
    assert run.read_summary(directory)["status"] == "interrupted"
    path = directory / checkpoints.LAST
    assert checkpoints.position(checkpoints.load(path), path) == (1, 2)
    # Scores of weights in between are none of the finished run's.
    line.evaluate(directory)
    assert run.read_summary(directory)["status"] == "interrupted"
    ended = train(f"resume={directory}")
    assert ended.code == 0, ended.err
    assert_same(directory, whole[0])


@pytest.mark.parametrize("event", [2, 4])
def test_when_asked_to_stop_before_there_is_anything_to_keep_then_the_summary_says_so(
    event: int, train: Trainings, tmp_path: Path
) -> None:
    stopped = train(*TINY, f"hydra.run.dir={tmp_path / 'run'}", event=event, signal=signal.SIGTERM)
    assert stopped.code == 143
    assert run.read_summary(tmp_path / "run")["status"] == "interrupted"


def test_when_stopped_outside_the_training_then_it_goes_on_at_that_station(
    copy: Path, whole: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("done twice")

    monkeypatch.setattr(line, "load_bars", never)
    monkeypatch.setattr(checkpoints.Whole, "save_checkpoint", never)
    for station, done in (("score", "training"), ("look", "scores"), ("write_report", "probes")):
        with monkeypatch.context() as patched:
            patched.setattr(line, station, stop)
            with pytest.raises(KeyboardInterrupt):
                line.resume(copy)
        summary = run.read_summary(copy)
        assert summary["status"] == "interrupted"
        assert list(summary["timings"])[-1] == done  # type: ignore[call-overload]
        if station == "look":
            monkeypatch.setattr(line, "score", never)
    monkeypatch.setattr(line, "look", never)
    line.resume(copy)
    assert_same(copy, whole[0])


def test_when_a_run_is_complete_then_resuming_says_so_and_does_nothing(
    command: Commands, whole: tuple[Path, int], tmp_path: Path
) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole[0].rglob("*")}
    ended = command(tmp_path, f"resume={whole[0]}", "debug=true")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == f"{whole[0]} is complete: there is nothing to resume\n"
    assert "torch" not in ended.loaded
    assert {path: path.stat().st_mtime_ns for path in whole[0].rglob("*")} == before


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (["resume=away"], "resume=away is not a run directory: it has no config.yaml (in the command line); give the"),
        (
            ["resume=sweep"],
            "resume=sweep is not a run directory: it has no config.yaml (in the command line); give one",
        ),
        (["resume="], "resume= takes one run, without -m (in the command line); write train.py resume=DIR"),
        (["resume=run", "resume=run"], "resume= takes one run, without -m"),
        (["-m", "resume=run"], "resume= takes one run, without -m"),
        (["resume=run", "seed=1"], "seed=1 cannot change a run that was begun (in the command line); resume it as it"),
        (["resume=run", "experiment=smoke"], "experiment=smoke cannot change a run that was begun"),
        (["resume=run", "hydra.run.dir=other"], "hydra.run.dir=other cannot change a run that was begun"),
        (["resume=run", "--config-dir", "run"], "hydra.searchpath="),
        (["resume=run/evaluate-1"], "run/evaluate-1 is no training, but made from one (in the command line); evaluate"),
    ],
)
def test_what_cannot_be_resumed_is_told_in_one_line_before_anything_heavy_loads(
    typed: list[str], told: str, command: Commands, tmp_path: Path
) -> None:
    for name in ("run", "run/evaluate-1", "sweep/0"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.yaml").write_text("seed: 0\n")
    assert command.refused(tmp_path, *typed).startswith(told)


def test_when_another_process_is_at_the_run_then_resuming_is_refused(train: Trainings, copy: Path) -> None:
    with FileLock(copy / run.LOCK):
        ended = train(f"resume={copy}")
    assert ended.code == 2
    assert ended.err == f"error: {copy} is being worked on by another process: wait until it ends, or stop it\n"
    assert run.read_summary(copy)["status"] == "interrupted"


def test_when_the_rate_is_far_too_high_then_the_run_ends_with_4_naming_the_step_and_is_not_resumed(
    train: Trainings, tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    typed = [*TINY, "trainer.max_epochs=50", "probes=off", "trainer.clip=1e30", f"hydra.run.dir={directory}"]
    ended = train(*typed, "model.optimizer.lr=1e6")
    assert ended.code == 4
    told = ended.err.splitlines()[-1]
    assert told.startswith("error: training diverged: the ")
    assert " at step " in told
    assert "windows of WEEKLY_0 that end between 20" in told
    assert ended.err.count("error") == 1
    assert not (directory / checkpoints.BEST).exists()
    assert run.read_summary(directory)["status"] == "failed"
    again = train(f"resume={directory}")
    assert again.code == 4
    assert again.err == f"error: {directory} can't go on: {told.removeprefix('error: ')}\n"


@pytest.mark.parametrize(
    ("typed", "code", "told"),
    [
        (
            "data.batch_size=1000000",
            2,
            "error: data.batch_size=1000000 is larger than the training part, of 184 windows; give 184 at most",
        ),
        ("split.validation_end=0.701", 3, "error: too few sessions to split: 300, at split.train_end=0.7 and"),
        ("split.validation_end=0.704", 3, "error: the validation part has no window: bars run 2024-10-21 to"),
    ],
)
def test_a_part_without_a_batch_is_told_in_one_line_before_the_first_step(
    typed: str, code: int, told: str, train: Trainings, tmp_path: Path
) -> None:
    ended = train(*TINY, typed, f"hydra.run.dir={tmp_path / 'run'}")
    assert ended.code == code
    assert ended.err.startswith(told)
    assert ended.err.count("\n") == 1
    assert not (tmp_path / "run" / "history.csv").exists()


def test_what_was_not_what_the_run_began_with_is_an_error_with_both_values(copy: Path) -> None:
    text = (copy / "config.yaml").read_text()
    (copy / "config.yaml").write_text(text.replace("dropout: 0.1", "dropout: 0.2").replace("seed: 0\ne", "seed: 7\ne"))
    told = (
        "last.ckpt does not fit: seed is 0 in the checkpoint and 7 in the run's configuration; model.dropout is 0.1 in"
    )
    with pytest.raises(DataError, match=told):
        line.resume(copy)
    (copy / "config.yaml").write_text(text)
    sha256 = run.read_summary(copy)["bars_sha256"]
    bars = line.load_bars(compose.load(copy / "config.yaml", ["source.seed=5"]).source)
    line.store.write(bars, copy / "bars.parquet")
    with pytest.raises(DataError, match=rf"have SHA-256 \w+, the run began with {sha256}"):
        line.resume(copy)
    assert run.read_summary(copy)["status"] == "failed"


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ("callbacks", "last.ckpt does not hold all that its training stood at (KeyError: 'callbacks'): train again"),
        ("optimizer_states", "last.ckpt does not hold all that its training stood at (KeyError: "),
        ("train_sums", "last.ckpt does not hold all that its training stood at (KeyError: 'train_sums')"),
        ("state_dict", "last.ckpt holds weights of another network; restore the run's own config.yaml"),
    ],
)
def test_when_a_part_of_the_last_checkpoint_is_gone_then_one_line_says_so(part: str, told: str, copy: Path) -> None:
    content = checkpoints.load(copy / checkpoints.LAST)
    checkpoints.described(content).update(finished=part == "callbacks", position=[1, 0])
    content[part] = {}
    if part != "state_dict":
        del content[part]
    torch.save(content, copy / checkpoints.LAST)
    with pytest.raises(DataError) as caught:
        line.resume(copy)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_when_the_program_is_of_another_release_then_going_on_says_that_weights_may_differ(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = checkpoints.load(copy / checkpoints.LAST)
    versions = checkpoints.described(content)["versions"]
    versions["torch"] = "2.0.1"  # type: ignore[index]
    torch.save(content, copy / checkpoints.LAST)
    line.resume(copy)
    told = f"warning: the run began under torch 2.0.1, now {torch.__version__}: its weights may end otherwise"
    assert told in capsys.readouterr().err
    assert json.loads((copy / "summary.json").read_text())["status"] == "complete"


def test_when_a_run_goes_on_then_only_what_was_left_half_written_goes(tmp_path: Path) -> None:
    run.begin(tmp_path / "run", "seed: 0\n")
    (tmp_path / "run" / "checkpoints").mkdir()
    half = [tmp_path / "run" / name for name in (".scores.csv.ab_12xyz", "checkpoints/.last.ckpt.zzzzzz00")]
    own = [tmp_path / "run" / name for name in (".notes.txt", ".my.history.csv", "scores.csv")]
    for path in (*half, *own):
        path.touch()
    (tmp_path / "run" / ".idea.folder12").mkdir()
    run.go_on(tmp_path / "run")
    assert not any(path.exists() for path in half)
    assert all(path.exists() for path in own)
    assert (tmp_path / "run" / ".idea.folder12").is_dir()


STRICT = (*TINY, "probes=strict", "probes.noise_seeds=2", "probes.random_inits=1")
PROBED = ("head_facts", "lag_profiles", "head_nulls", "redundancy", "importance", "pruning", "drift", "drift_tests")


@pytest.fixture(scope="module")
def strict(train: Trainings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with strict probes that was never stopped."""
    directory = tmp_path_factory.mktemp("strict") / "run"
    ended = train(*STRICT, f"hydra.run.dir={directory}")
    assert ended.code == 0, ended.err
    return directory


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_when_asked_to_stop_while_a_null_trains_then_the_run_stops_and_not_that_training_alone(
    number: int, code: int, train: Trainings, strict: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    stopped = train(*STRICT, f"hydra.run.dir={directory}", step=3 * STEPS + 2, signal=number)
    assert stopped.code == code, stopped.err
    assert "shuffled targets 1 of 2" in stopped.err
    assert "shuffled targets 2 of 2" not in stopped.err
    assert run.read_summary(directory)["status"] == "interrupted"
    assert not (directory / "heads.csv").exists()
    resumed = train(f"resume={directory}")
    assert resumed.code == 0, resumed.err
    assert_same(directory, strict)
    for name in PROBED:
        assert (directory / f"{name}.csv").read_bytes() == (strict / f"{name}.csv").read_bytes(), name
