"""The whole line on a short planted market, through the command line where the process matters."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
import pytest
import torch
from omegaconf import OmegaConf

from forecaster import compose, line, run, saved
from forecaster.bars import store
from forecaster.bars.calendar import Calendar
from forecaster.bars.contract import Bars
from forecaster.config import Config
from forecaster.errors import ConfigError, DataError, ForecasterError
from forecaster.forecasts import frame

ROOT = Path(__file__).parents[1]
SMALL = ["experiment=smoke", "source.bars=700", "trainer.max_epochs=1"]
DRIFT = ("drift", "drift_tests", "attention_distance")
RESULTS = ("scores.csv", "tests.csv", "heads.csv", "head_facts.csv", "knockouts.csv", "lag_profiles.csv")


def command(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """`python train.py ...` or `forecaster VERB ...`, as a user starts them."""
    program = sys.executable if arguments[0].endswith(".py") else str(Path(sys.executable).with_name("forecaster"))
    return subprocess.run([program, *arguments], cwd=cwd, capture_output=True, text=True, check=False)


def config(*overrides: str) -> Config:
    return cast(Config, OmegaConf.to_object(compose.compose([*SMALL, *overrides])))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that the command line made."""
    directory = tmp_path_factory.mktemp("runs") / "one"
    done = command("train.py", *SMALL, f"hydra.run.dir={directory}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith("report.html")
    return directory


@pytest.fixture
def copy(trained: Path, tmp_path: Path) -> Path:
    """A copy of that run, to work on."""
    return Path(shutil.copytree(trained, tmp_path / "copy"))


def test_every_file_of_a_run_is_there_and_parses(trained: Path) -> None:
    summary = json.loads((trained / "summary.json").read_text())
    assert summary["status"] == "complete"
    assert len(summary["headline"]) == len(summary["targets"]) == 3
    assert set(summary["timings"]) >= {"training", "scores", "probes", "report"}
    assert 0.3 < summary["attainable_r2"] < 0.6  # .49 in the long run
    tables = run.read_tables(trained)
    assert set(tables) == set(run.TABLES) - {*DRIFT, "importance", "pruning"}  # what the default probes leave out
    forecasts = frame.read(trained / "forecasts.parquet")
    assert tuple(forecasts.columns) == frame.FRAME_COLUMNS
    assert forecasts["origin"].min() > pd.Timestamp(summary["validation_end"])
    assert compose.load(trained / "config.yaml").seed == 0
    for name in ("best", "last"):
        content = torch.load(trained / "checkpoints" / f"{name}.ckpt", weights_only=True)
        assert content["forecaster"]["heads"] == 8
    page = (trained / "report.html").read_text()
    assert page.startswith("<!DOCTYPE html>")


def test_one_window_of_each_held_out_part_is_scored_and_probed_in_words(tmp_path: Path) -> None:
    days = ("split.train_end=2025-12-24", "split.validation_end=2025-12-29")
    done = command("train.py", *SMALL, *days, f"hydra.run.dir={tmp_path / 'run'}")
    assert (done.returncode, "Warning" in done.stderr, "Traceback" in done.stderr) == (0, False, False), done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["windows"]["test"], "attainable_r2" in summary) == (1, False)
    reasons = pd.read_csv(tmp_path / "run" / "heads.csv")["reason"]
    assert reasons.str.contains("too few|not measurable").all()
    for table in (tmp_path / "run").glob("*.csv"):
        assert "nan" not in re.split("[,\n]", table.read_text().lower()), table.name


def test_windows_of_the_parts_are_those_of_the_formula(trained: Path) -> None:
    summary = json.loads((trained / "summary.json").read_text())
    counted = sum(summary["windows"].values()) + summary["purged"]
    assert counted == 700 - 20 - summary["window"] - summary["horizon"] + 1


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(trained: Path, tmp_path: Path) -> None:
    line.train(config(), tmp_path / "again")
    line.train(config("seed=1"), tmp_path / "other")
    for name in (*RESULTS, "forecasts.parquet"):
        assert (tmp_path / "again" / name).read_bytes() == (trained / name).read_bytes(), name
    for name in ("scores.csv", "heads.csv", "forecasts.parquet"):
        assert (tmp_path / "other" / name).read_bytes() != (trained / name).read_bytes(), name


def test_probe_and_evaluate_in_a_new_process_reproduce_the_runs_own_tables(copy: Path) -> None:
    before = {name: (copy / name).read_bytes() for name in (*RESULTS, "forecasts.parquet")}
    for name in before:
        (copy / name).unlink()
    for verb in ("probe", "evaluate"):
        done = command(verb, f"run={copy}")
        assert done.returncode == 0, done.stderr
    assert {name: (copy / name).read_bytes() for name in before} == before


def test_heads_of_a_run_are_told_in_words_without_torch(trained: Path) -> None:
    program = (
        "import sys; from forecaster.cli import main\ntry:\n    main()\nfinally:\n    assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "heads", f"run={trained}"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    general, *heads = done.stdout.strip().split("\n\n")
    assert general.startswith("smoke: 8 heads, ")
    assert len(heads) == 8
    assert all("By lag: most at" in head.replace("\n", " ") for head in heads)
    assert "Whether they change over the years was not tested" in general.replace("\n", " ")


def test_a_run_that_was_not_probed_has_no_heads_to_tell_of(copy: Path) -> None:
    (copy / "heads.csv").unlink()
    summary = json.loads((copy / "summary.json").read_text())
    del summary["gates"]
    (copy / "summary.json").write_text(json.dumps(summary))
    done = command("heads", "run=copy", cwd=copy.parent)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == ("error: copy has not been probed (in the command line); forecaster probe run=DIR does it\n")
    (copy / "summary.json").write_text(json.dumps({**summary, "gates": ["gru has no attention heads to probe"]}))
    done = command("heads", "run=copy", cwd=copy.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "copy: gru has no attention heads to probe\n"


def test_a_probing_that_asks_for_nothing_is_refused(copy: Path) -> None:
    done = command("probe", "run=copy", "probes=off", cwd=copy.parent)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: probes=off asks for nothing (in the command line); write probes=fast, default or strict\n"
    )


def test_heads_are_followed_over_the_years_where_asked(copy: Path) -> None:
    done = line.probe(copy, ["probes.drift=true"])
    assert done.parent == copy
    tables = run.read_tables(done)
    assert set(DRIFT) <= set(tables)
    assert set(tables["drift"]["part"]) == {"train", "validation", "test"}
    assert tables["drift"]["period"].astype(str).str.fullmatch(r"\d{4}-\d{2}").all()  # 700 sessions: by month
    page = (done / "report.html").read_text()
    assert "A day&#39;s attention" in page
    assert "A day&#39;s attention" not in (copy / "report.html").read_text()
    again = line.probe(copy, ["probes.drift=true"])
    for name in DRIFT:
        assert (again / f"{name}.csv").read_bytes() == (done / f"{name}.csv").read_bytes()


def test_evaluate_on_other_bars_leaves_the_run_alone(copy: Path) -> None:
    before = {file: file.read_bytes() for file in copy.rglob("*") if file.is_file()}
    target = line.evaluate(copy, ["source.seed=5"])
    assert target.parent == copy
    assert run.read_summary(target)["status"] == "complete"
    assert (target / "report.html").is_file()
    assert (target / "scores.csv").read_bytes() != before[copy / "scores.csv"]
    assert all(file.read_bytes() == content for file, content in before.items())


def test_predict_dates_the_next_session_and_an_ensemble_averages(trained: Path, copy: Path) -> None:
    done = command("predict", f"run={trained}")
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(pd.io.common.StringIO(done.stdout), parse_dates=["origin", "target_time"])
    last = run.read_summary(trained)["last"]
    assert (table["origin"] == pd.Timestamp(str(last))).all()
    assert (table["target_time"] == Calendar("XNYS").after(pd.Timestamp(str(last)), 1)[0]).all()
    quantiles = table[[name for name in table if name.startswith("q")]].to_numpy()
    assert (np.diff(quantiles, axis=1) >= 0).all()
    state = torch.load(copy / "checkpoints" / "best.ckpt", weights_only=True)
    state["state_dict"]["network.readout.linear.bias"] += 1.0
    torch.save(state, copy / "checkpoints" / "best.ckpt")
    one, other, both = (saved.predict(runs) for runs in ([trained], [copy], [trained, copy]))
    assert set(both["model"]) == {"ensemble"}
    assert both["mean"].to_numpy() == pytest.approx((one["mean"].to_numpy() + other["mean"].to_numpy()) / 2)


def test_rewriting_every_bar_after_a_date_changes_no_forecast_up_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config("probes=off")
    line.train(settings, tmp_path / "as it was")
    loaded = line.load_bars(settings.source)
    cut = pd.Timestamp(loaded.frame["time"].iloc[-60])

    def rewritten(_: object) -> Bars:
        changed = loaded.frame.copy()
        changed.loc[changed["time"] > cut, ["open", "high", "low", "close", "volume"]] *= 1000.0
        return replace(loaded, frame=changed)

    monkeypatch.setattr(line, "load_bars", rewritten)
    line.train(settings, tmp_path / "rewritten")
    first, second = (frame.read(tmp_path / name / "forecasts.parquet") for name in ("as it was", "rewritten"))
    until = first["origin"] <= cut
    assert until.any()
    assert not until.all()
    columns = [name for name in frame.FRAME_COLUMNS if name != "actual"]
    pd.testing.assert_frame_equal(first.loc[until, columns], second.loc[until, columns], check_exact=True)
    assert not first.loc[~until, columns].equals(second.loc[~until, columns])
    weights = [
        torch.load(tmp_path / name / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
        for name in ("as it was", "rewritten")
    ]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_rewriting_the_test_years_changes_neither_training_nor_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config("probes=off")
    loaded = line.load_bars(settings.source)
    before = line.prepare(settings, loaded, tmp_path)
    changed = loaded.frame.copy()
    later = changed["time"] > pd.Timestamp(before.split.validation_end)
    changed.loc[later, ["open", "high", "low", "close", "volume"]] *= 1000.0
    after = line.prepare(settings, replace(loaded, frame=changed), tmp_path)
    for part in ("train", "validation"):
        rows = getattr(before.split, part)
        assert np.array_equal(rows, getattr(after.split, part))
        assert np.array_equal(before.panel.targets[rows], after.panel.targets[rows])
        assert np.array_equal(before.panel.window(rows, before.length), after.panel.window(rows, after.length))
    for name, buffer in before.task.named_buffers():
        assert torch.equal(buffer, dict(after.task.named_buffers())[name])


def test_a_run_is_never_overwritten(trained: Path) -> None:
    with pytest.raises(ConfigError, match="already holds a run"):
        line.train(config(), trained)


def test_a_configuration_that_no_longer_fits_the_weights_is_an_error_with_both_values(copy: Path) -> None:
    text = (copy / "config.yaml").read_text()
    (copy / "config.yaml").write_text(text.replace("heads: 8", "heads: 4"))
    with pytest.raises(DataError, match="heads is 8 in the checkpoint and 4 in the run's configuration"):
        saved.load(copy)


def test_trained_weights_are_never_scored_on_a_split_moved_into_their_training_rows(trained: Path) -> None:
    done = command("evaluate", f"run={trained}", "split.train_end=0.1", "split.validation_end=0.2")
    assert done.returncode == 2
    assert done.stderr.startswith("error: split.train_end=0.1 cannot change a run that was trained")


@pytest.mark.parametrize("overrides", [["source.bars=5000"], ["source.bars=650"], ["source.seed=3"]])
def test_other_bars_are_tested_after_the_days_that_weights_were_chosen_on(trained: Path, overrides: list[str]) -> None:
    # Fractions of more bars would reach back into the training, of fewer into later days.
    target = line.evaluate(trained, overrides)
    own, other = run.read_summary(trained), run.read_summary(target)
    assert (other["train_end"], other["validation_end"]) == (own["train_end"], own["validation_end"])
    assert frame.read(target / "forecasts.parquet")["origin"].min() > pd.Timestamp(str(own["validation_end"]))


def test_prediction_needs_one_window_of_each_symbol_and_no_parts(trained: Path, tmp_path: Path) -> None:
    window = cast(int, run.read_summary(trained)["window"])
    whole = saved.predict([trained])
    few = saved.predict([trained], [f"source.bars={20 + window}"])
    # Volatility's average started later: near, not equal.
    columns = ["symbol", "origin", "target_time", "target", "step"]
    pd.testing.assert_frame_equal(few[columns], whole[columns])
    assert np.isfinite(few["mean"]).all()
    with pytest.raises(DataError, match=f"no symbol has the {20 + window} bars that one window needs"):
        saved.predict([trained], [f"source.bars={19 + window}"])


def test_scoring_an_interrupted_run_again_leaves_it_interrupted(copy: Path) -> None:
    run.update_summary(copy, status="interrupted")
    line.evaluate(copy)
    assert run.read_summary(copy)["status"] == "interrupted"


def test_bars_kept_beside_new_scores_report_nothing_twice(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bars = line.load_bars(config("source.seed=5").source)
    bars.frame.loc[600, "volume"] = 0.0
    monkeypatch.setattr(saved, "load_bars", lambda _: bars)
    target = line.evaluate(copy, ["source.seed=5"])
    assert list(run.read_tables(target)["quality"]["kind"]) == ["undefined_target"]
    again = line.prepare(config(), store.read(target / "bars.parquet"), target)
    assert list(again.quality["kind"]) == ["undefined_target"]


@pytest.mark.parametrize("name", ["config.yaml", "bars.parquet", "checkpoints/best.ckpt", "scores.csv", "summary.json"])
@pytest.mark.parametrize("content", [b"", b"\x80\x04\x95\xff\x00binary", b"<html><body>404</body></html>"])
def test_a_spoilt_file_of_a_run_ends_in_one_line(name: str, content: bytes, copy: Path) -> None:
    (copy / name).write_bytes(content)
    # In this process, so that the many cases cost no start of torch each.
    read = line.write_report if name in ("scores.csv", "summary.json") else saved.load
    with pytest.raises(ForecasterError) as caught:
        read(copy)
    assert "\n" not in str(caught.value)


def test_a_window_too_short_for_a_baseline_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"seasonal repeats the last 5 bars, a window of 4 is shorter"):
        line.train(config("model.window=4", "baselines=[seasonal]"), tmp_path / "run")
    assert not (tmp_path / "run" / "history.csv").exists()


def test_runs_that_forecast_different_rows_are_not_averaged(trained: Path, tmp_path: Path) -> None:
    line.train(config("probes=off", "data.targets=[volume]"), tmp_path / "other")
    with pytest.raises(DataError, match=r"can't be averaged: they differ in symbols, last bars, targets or horizon"):
        saved.predict([trained, tmp_path / "other"])


def test_a_reader_that_leaves_early_is_no_fault(trained: Path) -> None:
    program = str(Path(sys.executable).with_name("forecaster"))
    with subprocess.Popen(
        [program, "predict", f"run={trained}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        told = process.stderr.read()
    assert process.returncode == 141
    assert told == ""


def test_an_interrupted_run_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(line, "fitted", stop)
    with pytest.raises(KeyboardInterrupt):
        line.train(config(), tmp_path / "run")
    assert run.read_summary(tmp_path / "run")["status"] == "interrupted"


def test_divergence_ends_with_exit_code_four_and_a_failed_run(tmp_path: Path) -> None:
    done = command("train.py", *SMALL, "model.optimizer.lr=1e6", f"hydra.run.dir={tmp_path / 'run'}")
    assert done.returncode == 4, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: training diverged: ")
    assert run.read_summary(tmp_path / "run")["status"] == "failed"


def test_too_few_bars_end_with_exit_code_three_in_one_line(tmp_path: Path) -> None:
    done = command("train.py", "experiment=smoke", "source.bars=21", f"hydra.run.dir={tmp_path / 'run'}")
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith("error: the train part has no window: bars run ")
    assert done.stderr.count("\n") == 1


def test_a_sweep_over_heads_trains_equal_parameter_counts(tmp_path: Path) -> None:
    done = command("train.py", "-m", *SMALL, "probes=off", "model.heads=1,2,4", f"hydra.sweep.dir={tmp_path / 'sweep'}")
    assert done.returncode == 0, done.stderr
    summaries = [json.loads(path.read_text()) for path in sorted((tmp_path / "sweep").glob("*/summary.json"))]
    assert len(summaries) == 3
    assert len({summary["parameters"] for summary in summaries}) == 1
    assert {summary["status"] for summary in summaries} == {"complete"}
    jobs = pd.read_csv(tmp_path / "sweep" / "jobs.csv")
    for number, told in enumerate(jobs["result"]):
        scores = pd.read_csv(tmp_path / "sweep" / str(number) / "scores.csv", dtype=str)
        row = scores.query("model == 'attention' and target == 'volume' and symbol == 'all' and metric == 'r2'")
        assert f"volume {row['value'].item()[:6]}" in told


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml")))
def test_every_experiment_runs_from_bars_to_report(name: str, tmp_path: Path) -> None:
    short = ["trainer.max_epochs=1", "probes=off", "data.batch_size=512", "model.window=8", "model.layers=1"]
    own = [f"source.path={ROOT / 'tests' / 'cases' / '01_control_clean.csv'}"] if name == "own" else []
    settings = compose.compose([f"experiment={name}", *short, *own])
    if settings.source.kind == "planted":
        settings.source.bars = 900
    told = line.train(cast(Config, OmegaConf.to_object(settings)), tmp_path / "run")
    summary = run.read_summary(tmp_path / "run")
    assert summary["status"] == "complete"
    assert summary["experiment"] == name
    assert told.startswith(str(settings.data.targets[0]))


def test_the_program_runs_from_another_folder(tmp_path: Path) -> None:
    done = command(str(ROOT / "train.py"), "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "experiment=NAME" in done.stdout
    assert list(tmp_path.iterdir()) == []
