"""The command line as a user meets it: processes of their own, with nothing but training itself put aside."""

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from yaml import safe_load

from commands import ROOT, Commands, runs, served, started
from forecaster.cli import VERBS
from forecaster.compose import compose, to_yaml
from forecaster.config import Config, keys
from forecaster.explain import conf_directory, groups


@pytest.fixture(scope="module")
def run() -> Iterator[Commands]:
    with served() as commands:
        yield commands


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    directory = tmp_path / "outputs" / "sp500" / "a"
    directory.mkdir(parents=True)
    config = OmegaConf.to_object(compose(["experiment=sp500"]))
    assert isinstance(config, Config)
    (directory / "config.yaml").write_text(to_yaml(config))
    return directory


MESSAGES = safe_load((Path(__file__).parent / "golden" / "messages.yaml").read_text())
NAMES = {
    "TYPED": "(in the command line)",
    "CONF": str(conf_directory()),
    "EXPERIMENTS": ", ".join(groups()["experiment"]),
    "VERBS": ", ".join(VERBS),
    "SOURCE_KEYS": ", ".join(key for key in keys() if key.startswith("source.") and key != "source.kind"),
    "FILE": "own/experiment/mine.yaml",
}


def cases(section: str) -> pytest.MarkDecorator:
    """Each entry of a section of messages.yaml, with the names in its line replaced by what they stand for."""
    rows: list[Any] = []
    for entry in MESSAGES[section]:
        line = re.sub("|".join(NAMES), lambda name: NAMES[name[0]], entry.pop("ends"))
        [typed] = entry.values()
        rows.append(pytest.param(typed, line, id=typed if isinstance(typed, str) else " ".join(typed)))
    return pytest.mark.parametrize(("typed", "line"), rows)


@cases("train")
def test_mistyped_training_ends_in_one_line_before_anything_heavy_loads(
    run: Commands, tmp_path: Path, typed: list[str], line: str
) -> None:
    assert run.refused(tmp_path, *typed) == line


@cases("verbs")
@pytest.mark.usefixtures("saved")
def test_mistyped_verb_ends_in_one_line_before_anything_heavy_loads(
    run: Commands, tmp_path: Path, typed: list[str], line: str
) -> None:
    assert run.refused(tmp_path, "forecaster", *typed) == line


@cases("files")
def test_mistake_in_an_experiment_file_names_the_file(run: Commands, tmp_path: Path, typed: str, line: str) -> None:
    file = tmp_path / NAMES["FILE"]
    file.parent.mkdir(parents=True)
    file.write_text(f"# @package _global_\nexperiment_name: mine\n{typed}\n")
    assert run.refused(tmp_path, "--config-dir=own", "experiment=mine") == line


def test_value_inherited_from_another_experiment_names_that_file(run: Commands, tmp_path: Path) -> None:
    folder = tmp_path / "own" / "experiment"
    folder.mkdir(parents=True)
    (folder / "first.yaml").write_text("# @package _global_\nexperiment_name: first\nmodel: {heads: 3}\n")
    (folder / "second.yaml").write_text("# @package _global_\ndefaults: [first]\n")
    assert "(in own/experiment/first.yaml)" in run.refused(tmp_path, "--config-dir", "own", "experiment=second")


def test_help_lists_experiments_verbs_and_keys(run: Commands, tmp_path: Path) -> None:
    ended = run(tmp_path, "--help")
    assert (ended.code, ended.err, ended.loaded) == (0, "", "")
    for file in (conf_directory() / "experiment").glob("*.yaml"):
        assert f"\n  {file.stem} " in ended.out
        assert file.read_text().splitlines()[1].removeprefix("# ") in ended.out
    for text in ("evaluate", "probe", "predict", "report", "-m, --multirun", "model.heads", "source.symbols"):
        assert text in ended.out
    assert run(tmp_path, "forecaster", "train", "-h") == ended
    assert run(tmp_path, "forecaster", "--help") == ended


def test_training_gets_its_configuration_and_a_new_directory_and_prints_the_report(
    run: Commands, tmp_path: Path
) -> None:
    ended = run(tmp_path, "experiment=smoke", "seed=3", "model.heads=4")
    [directory] = runs(tmp_path)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == f"trained 3 4 True\noutputs/smoke/{directory.name}/report.html\n"
    assert {file.name for file in directory.iterdir()} == {"config.yaml", "train.log"}


def test_forecaster_train_is_train_py(run: Commands, tmp_path: Path) -> None:
    assert run(tmp_path, "forecaster", "train", "experiment=smoke").out.startswith("trained 0 8 True\noutputs/smoke/")


@pytest.mark.parametrize(
    ("seed", "code", "line"),
    [
        (33, 3, "error: a.csv has no bars (line 1); give others\n"),
        (44, 4, "error: loss is not finite (step 7); lower model.optimizer.lr\n"),
        (66, 130, "interrupted\n"),
    ],
)
def test_failed_training_ends_in_one_line_and_the_code_of_its_kind(
    run: Commands, tmp_path: Path, seed: int, code: int, line: str
) -> None:
    ended = run(tmp_path, "experiment=smoke", f"seed={seed}")
    assert (ended.code, ended.out, ended.err) == (code, "", line)


def test_error_of_a_job_is_in_its_log(run: Commands, tmp_path: Path) -> None:
    run(tmp_path, "experiment=smoke", "seed=44")
    [directory] = runs(tmp_path)
    assert "loss is not finite" in (directory / "train.log").read_text()


def test_traceback_is_shown_with_debug_alone(run: Commands, tmp_path: Path) -> None:
    ended = run(tmp_path, "experiment=smoke", "seed=33", "debug=true")
    assert ended.code == 3
    assert ended.err.startswith("Traceback")
    assert ended.err.endswith("error: a.csv has no bars (line 1); give others\n")
    ended = run(tmp_path, "model.hedas=2", "debug=true")
    assert ended.code == 2
    assert ended.err.startswith("Traceback")
    assert ended.err.endswith("; did you mean model.heads?\n")


def test_fault_of_the_program_shows_its_traceback(run: Commands, tmp_path: Path) -> None:
    ended = run(tmp_path, "experiment=smoke", "seed=55")
    assert ended.code == 1
    assert ended.err.startswith("Traceback")
    assert ended.err.endswith("RuntimeError: a fault of the program\n")


def test_termination_ends_with_the_code_of_its_signal(tmp_path: Path) -> None:
    with started(tmp_path, "experiment=smoke", "seed=77") as process:
        while not (tmp_path / "waiting").exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.terminate()
    assert process.returncode == 143


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["evaluate", "run={run}"], "evaluated {run} []"),
        (
            ["evaluate", "run={run}", "source=planted", "source.bars=99"],
            "evaluated {run} ['source=planted', 'source.bars=99']",
        ),
        (["probe", "run={run}"], "probed {run} []"),
        (["predict", "source.symbols=SP500", "run={run}"], "predicted ['{run}'] ['source.symbols=SP500']"),
        (["predict", "run={run},{run}"], "predicted ['{run}', '{run}'] []"),
        (["report", "run={run}"], "reported {run}"),
    ],
)
def test_verbs_hand_the_run_and_the_overrides_to_the_line(
    run: Commands, tmp_path: Path, saved: Path, arguments: list[str], line: str
) -> None:
    name = str(saved.relative_to(tmp_path))
    ended = run(tmp_path, "forecaster", *(argument.format(run=name) for argument in arguments))
    assert (ended.code, ended.out, ended.err) == (0, line.format(run=name) + "\n", "")


def test_installed_package_finds_its_own_conf(tmp_path: Path) -> None:
    package = tmp_path / "site" / "forecaster"
    shutil.copytree(ROOT / "src" / "forecaster", package)
    shutil.copytree(conf_directory(), package / "conf")
    (package / "conf" / "experiment" / "installed.yaml").write_text("# @package _global_\nexperiment_name: installed\n")
    with started(tmp_path, "experiment=installed", PYTHONPATH=str(tmp_path / "site")) as process:
        out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert out.splitlines()[1].startswith("outputs/installed/")
