"""Runs with the probes' nulls: from the configuration to the tables."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from forecaster import line, nulls, run
from forecaster.bars import planted
from forecaster.compose import configured
from forecaster.prepare import prepare
from forecaster.probes.noise import shuffled
from forecaster.training import checkpoints
from forecaster.training.task import Task
from forecaster.windows import datamodule

SMALL = ["experiment=smoke", "trainer.max_epochs=1", "source.bars=700", "model.width=8", "model.heads=2"]


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose heads are held against untrained networks and against two trained on shuffled targets."""
    directory = tmp_path_factory.mktemp("nulls") / "run"
    line.train(configured([*SMALL, "probes=strict", "probes.random_inits=2", "probes.noise_seeds=2"]), directory)
    return directory


def test_when_strict_then_every_label_is_held_against_noise(probed: Path):
    tables = run.read_tables(probed)
    assert tables["head_nulls"].groupby("null")["seed"].nunique().to_dict() == {"noise": 2, "random": 2}
    assert not tables["heads"]["reason"].str.contains("no noise null").any()
    assert tables["lag_profiles"]["head"].isna().any()
    assert "untrained networks" in (probed / "report.html").read_text()


def test_when_a_run_is_probed_again_as_strict_then_noise_is_trained_as_long_as_the_run(probed: Path):
    done = line.probe(probed, ["probes=strict", "probes.random_inits=1", "probes.noise_seeds=2"])
    assert done.parent == probed
    first, second = (pd.read_csv(place / "head_nulls.csv").query("null == 'noise'") for place in (probed, done))
    pd.testing.assert_frame_equal(first.reset_index(drop=True), second.reset_index(drop=True))


def test_when_the_bars_are_others_then_no_noise_is_trained(probed: Path):
    again = ["source.seed=5", "probes=strict", "probes.random_inits=1", "probes.noise_seeds=2"]
    nulls = run.read_tables(line.probe(probed, again))["head_nulls"]
    assert set(nulls["null"]) == {"random"}


@pytest.mark.parametrize("origins", ["last", "all"])
def test_when_noise_is_trained_then_on_every_shuffled_target_once_and_on_no_other(
    origins: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = configured([*SMALL, "probes=strict", f"data.origins={origins}", "model.causal=true"])
    bars = planted.load("noise", 500, 1, symbols=2)
    second = bars.frame.index[bars.frame["symbol"] == bars.frame["symbol"].iloc[-1]]
    late = replace(bars, frame=bars.frame.drop(second[:200]).reset_index(drop=True))  # some dates have one symbol only
    made = prepare(config, late, tmp_path)
    run.begin(tmp_path / "run", "")
    run.update_summary(tmp_path / "run", best_epoch=1)
    seen: list[np.ndarray] = []

    def fit(task: Task, bars: datamodule.Bars, folder: Path, *_: Any, **__: Any) -> None:
        seen.extend(targets[used].flatten().numpy() for _, _, targets, used in bars.train_dataloader())
        (folder / "checkpoints").mkdir()
        torch.save({"state_dict": task.state_dict()}, folder / checkpoints.LAST)

    monkeypatch.setattr(nulls, "fit", fit)
    monkeypatch.setattr(checkpoints, "load", lambda path: torch.load(path))
    targets = shuffled(made.panel, made.split.train, made.length, 3)
    nulls.networks(made, tmp_path / "run", print).fit(targets, 3)
    expected = targets[made.split.train].astype(np.float32).reshape(len(made.split.train), -1)
    expected = expected[np.isfinite(expected).all(axis=1)]
    assert 0 < len(expected) < len(made.split.train)
    np.testing.assert_array_equal(np.sort(np.concatenate(seen)), np.sort(expected.flatten()))


def test_when_fast_then_there_are_patterns_and_no_causal_tests(probed: Path):
    tables = run.read_tables(line.probe(probed, ["probes=fast"]))
    assert set(tables["heads"]["label"]) <= {"none", "pattern"}
    assert tables["knockouts"].empty
    assert tables["head_nulls"].empty


def test_when_the_documented_probe_is_asked_then_it_is_judged_like_the_others(
    probed: Path, capsys: pytest.CaptureFixture[str]
):
    text = (Path(__file__).parents[1] / "docs" / "probes.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code.replace("outputs/sp500/RUN", str(probed)), names)
    rows = names["found"].heads.query("probe == 'mondays' and stratum == 'last'")
    assert len(rows) == 2 * 2  # heads, weightings
    assert rows["kappa"].notna().all()
    assert "mondays" in capsys.readouterr().out
