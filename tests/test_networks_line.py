"""Every network through the whole line, several steps ahead, and runs side by side."""

import subprocess
import sys
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf

from forecaster import comparison, compose, line, run, saved
from forecaster.config import KINDS, Config
from forecaster.errors import ConfigError, DataError

ROOT = Path(__file__).parents[1]
HEADS, WIDTHS = ("1", "8", "32", "64"), ("512", "64", "16", "8")
SMALL = ["experiment=smoke", "source.bars=700", "trainer.max_epochs=1", "data.batch_size=256"]


def settings(*overrides: str) -> Config:
    return cast(Config, OmegaConf.to_object(compose.compose([*SMALL, *overrides])))


def forecaster(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    program = str(Path(sys.executable).with_name("forecaster"))
    return subprocess.run([program, *arguments], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep's directory: three networks, two seeds, without probes but for the last."""
    directory = tmp_path_factory.mktemp("sweep")
    for number, (kind, seed) in enumerate((kind, seed) for kind in ("attention", "lstm", "dlinear") for seed in (0, 1)):
        probes = "default" if kind == "attention" else "off"
        line.train(settings(f"model={kind}", f"seed={seed}", f"probes={probes}"), directory / str(number))
    return directory


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "attention"])
def test_every_network_is_trained_scored_and_comes_back_from_its_directory(kind: str, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    line.train(settings(f"model={kind}", "data.horizon=3", "data.targets=[return,volume]"), directory)
    tables, summary = run.read_tables(directory), run.read_summary(directory)
    assert (summary["status"], summary["model"]) == ("complete", kind)
    assert set(tables["tests"]["model"]) == {kind}
    assert sorted(set(tables["scores"]["step"])) == [1, 2, 3]
    assert ("heads" in tables) == (kind in ("encoder_decoder", "single_head"))
    before = (directory / "scores.csv").read_bytes()
    line.evaluate(directory)
    assert (directory / "scores.csv").read_bytes() == before
    ahead = saved.predict([directory])
    assert (ahead["step"].nunique(), len(ahead)) == (3, 6)
    assert ahead.groupby("target")["target_time"].apply(lambda times: times.is_monotonic_increasing).all()
    assert f"{kind} is" in line.shown(directory)
    assert f"{kind} is" in (directory / "report.html").read_text()


def test_network_without_heads_says_so_instead_of_being_probed(tmp_path: Path) -> None:
    line.train(settings("model=lstm"), tmp_path / "run")
    assert run.read_summary(tmp_path / "run")["gates"] == ["lstm has no attention heads to probe"]
    assert "lstm has no attention heads to probe" in (tmp_path / "run" / "report.html").read_text()


def test_weights_of_another_kind_are_refused(tmp_path: Path) -> None:
    line.train(settings("model=lstm", "probes=off"), tmp_path / "run")
    path = tmp_path / "run" / "config.yaml"
    path.write_text(path.read_text().replace("kind: lstm", "kind: gru"))
    with pytest.raises(DataError, match="kind"):
        saved.load(tmp_path / "run")


def test_comparison_of_a_sweep_folds_its_seeds(trained: Path) -> None:
    text, page = comparison.compared([str(trained)], None)
    table = pd.read_csv(trained / "compare.csv")
    assert table["group"].drop_duplicates().tolist() == ["attention", "lstm", "dlinear"]
    assert set(table["seeds"]) == {2}
    for group, runs in {"attention": (0, 1), "lstm": (2, 3)}.items():
        scores = [pd.read_csv(trained / str(number) / "scores.csv", dtype=str) for number in runs]
        asked = f"model == '{group}' and target == 'volume' and symbol == 'all' and metric == 'r2'"
        by_hand = [float(one.query(asked)["value"].item()) for one in scores]
        row = table.query("group == @group and target == 'volume'").iloc[0]
        assert row["r2"] == pytest.approx(np.mean(by_hand))
        assert row["r2_sd"] == pytest.approx(np.std(by_hand, ddof=1))
    assert table.query("group == 'attention'")["against"].isna().all()
    assert set(table.query("group != 'attention'")["against"]) == {"attention"}
    assert set(table.query("group != 'attention'")["verdict"]) <= {"better", "worse", "no different"}
    # Only attention was probed: heads of width 8 have an effective rank between 1 and 8.
    assert table.query("group == 'attention'")[["rank_qk", "rank_vo"]].stack().between(1, 8).all()
    assert table.query("group == 'lstm'")[["rank_qk", "rank_vo"]].isna().all(axis=None)
    assert "Parameter counts differ by more than 2%." in text
    assert page.read_text().count("<figure") == 1


def test_heads_of_two_seeds_are_compared_whether_or_not_there_is_another_network(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text, page = comparison.compared([str(trained / "0"), str(trained / "1")], None)
    weeks = pd.read_csv(page.parent / "compare_weeks.csv")
    assert set(weeks["is"]) == {"weekly", "weekly_target", "placebo"}
    assert set(weeks["seeds"]) == {2}
    assert weeks.loc[weeks["is"] == "weekly", "verdict"].tolist() == ["too few seeds: 2 of 5"]
    assert "Heads a seed that peak at a lag" in text
    assert "Effective rank of a head" in page.read_text()
    assert "group" in pd.read_csv(page.parent / "compare_roles.csv")


def test_runs_that_are_not_complete_are_left_out_and_named(trained: Path) -> None:
    run.update_summary(trained / "3", status="failed")
    text, _ = comparison.compared([str(trained)], "lstm")
    run.update_summary(trained / "3", status="complete")
    assert "3 is left out: status failed." in text
    table = pd.read_csv(trained / "compare.csv")
    assert table.query("group == 'lstm'")["seeds"].unique().tolist() == [1]


def test_compare_from_the_command_line(trained: Path, tmp_path: Path) -> None:
    done = forecaster("compare", str(trained / "0"), str(trained / "2"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "return, step 1" in done.stdout
    [page] = (tmp_path / "outputs").glob("compare-*/compare.html")
    assert done.stdout.splitlines()[-1] == str(page.relative_to(tmp_path))
    for arguments, told in {
        ("nowhere",): "nowhere is no run and no sweep",
        (str(trained / "0"),): "runs of one kind",
        (str(trained), "against=gru"): "no run is of group 'gru': choose from attention, lstm, dlinear",
    }.items():
        done = forecaster("compare", *arguments, cwd=tmp_path)
        assert done.returncode in (2, 3)
        assert told in done.stderr
        assert done.stderr.count("\n") == 1


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no run and no sweep"):
        comparison.found([str(tmp_path)])


def test_budget_from_the_command_line(tmp_path: Path) -> None:
    done = forecaster("budget", "--width", "512", "--heads", "1,8,32,64", cwd=tmp_path)
    rows = [row.split() for row in done.stdout.splitlines()[2:]]
    assert [row[:3] for row in rows] == [
        [n, d, "1,048,576"] for n, d in (("1", "512"), ("8", "64"), ("32", "16"), ("64", "8"))
    ]
    assert {row[5] for row in rows} == {"1,024"}
    done = forecaster("budget", "--layers=32", "--heads=32", cwd=tmp_path)
    assert done.stdout.split()[-1] == "1,024"
    done = forecaster("budget", "experiment=sp500", cwd=tmp_path)
    assert "attention *" in done.stdout
    assert "lstm" in done.stdout
    assert list(tmp_path.iterdir()) == []
