"""A run made smaller, and what can be done with it, through the command line where the process matters."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from forecaster import comparison, line, prune, run, saved, verbs
from forecaster.compose import configured, to_yaml
from forecaster.errors import ConfigError, DataError
from forecaster.nulls import networks
from forecaster.probes.capture import forecast
from forecaster.probes.knockout import Gate, training_means
from forecaster.probes.pruning import heads_in_order
from forecaster.probes.removal import Ground, Removals, constants, ground
from forecaster.training import checkpoints, keeping

ROOT = Path(__file__).parents[1]
# Volatility is foretold from the first epoch on, by what goes around the heads: its gate is open.
SMALL = [
    *("experiment=smoke", "source.bars=1400", "model.width=32", "model.layers=2"),
    *("data.targets=[volatility]", "baselines=[mean]", "probes=fast"),
]


class StoppedError(Exception):
    """The training ends here."""


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = f"{Path(sys.executable).parent}/forecaster"
    return subprocess.run([program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "one"
    line.train(configured(SMALL), directory)
    return directory


@pytest.fixture(scope="module")
def pruned(trained: Path) -> tuple[Path, str]:
    """A quarter of the heads gone; the run had no curve before."""
    assert not (trained / "pruning.csv").exists()
    done = command("prune", f"run={trained}", "share=.25")
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.splitlines()[-1]), done.stdout


def test_it_removes_what_it_says_and_the_run_keeps_its_curve(trained: Path, pruned: tuple[Path, str]) -> None:
    directory, told = pruned
    assert directory.parent == trained
    summary, before = run.read_summary(directory), run.read_summary(trained)
    gone = heads_in_order(run.read_tables(trained)["pruning"])[:4]
    names = " ".join(f"L{layer}H{head}" for layer, head in gone)
    assert told.startswith(f"4 of 16 heads removed: {names}; left by layer: ")
    assert summary["heads_kept"] == [[h for h in range(8) if (at, h) not in gone] for at in range(2)]
    assert (summary["of"], summary["pruned"], summary["status"]) == ("one", "share=.25", "complete")
    each = 4 * 32 * 4 + 3 * 4  # rows of three matrices and their biases, columns of W_O
    whole = before["parameters"]
    assert isinstance(whole, int)
    assert (summary["parameters_before"], summary["parameters"]) == (whole, whole - 4 * each)
    assert f"parameters {whole:,} before, {whole - 4 * each:,} after" in told
    assert before["pruning"]
    assert "Pruning curve" in (trained / "report.html").read_text()
    for name in ("config.yaml", "bars.parquet", "scores.csv", "heads.csv", "report.html", "checkpoints/best.ckpt"):
        assert (directory / name).is_file(), name
    assert (directory / "config.yaml").read_bytes() == (trained / "config.yaml").read_bytes()


def test_a_loss_and_a_gain_are_told_as_shares_of_skill() -> None:
    gates = [Gate("return", "zero", 0.4, 0.1), Gate("volume", "mean", 1e-9, 0.2), Gate("volatility", "mean", 1e-9, 0.5)]
    nothing = np.zeros((2, 3))
    test = Ground("test", np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int64), nothing, nothing + 1.0, gates)
    lines = prune.told([(0, 1)], [[0]], (200, 150), test, np.array([1.5, 1.002, 0.93])).splitlines()
    assert lines[2:] == [
        "return: loss on test 1 before, 1.5 after (no skill on test to lose)",
        "volume: loss on test 1 before, 1.002 after (loses 1.0 % of its skill)",
        "volatility: loss on test 1 before, 0.93 after (gains 14.0 % of its skill)",
    ]


def test_the_smaller_network_forecasts_as_the_masked_one_and_loses_what_the_curve_says(
    trained: Path, pruned: tuple[Path, str]
) -> None:
    whole, small = saved.load(trained), saved.load(pruned[0])
    table = run.read_tables(trained)["pruning"]
    gone = frozenset(heads_in_order(table)[:4])
    on = ground(whole.task, whole.panel, whole.split, whole.length, "test")
    outputs = constants(training_means(whole.task, whole.panel, whole.split.train, whole.length))
    trial = Removals(whole.task, whole.panel, whole.length, on, outputs)
    edits = trial._layers(gone)
    masked = forecast(whole.task, whole.panel, on.origins, whole.length, edits)
    found = forecast(small.task, small.panel, on.origins, small.length)
    torch.testing.assert_close(found.mean_BHC, masked.mean_BHC, rtol=0, atol=1e-5)
    torch.testing.assert_close(found.quantiles_BHCQ, masked.quantiles_BHCQ, rtol=0, atol=1e-5)
    told = run.read_summary(pruned[0])["loss_on_test"]
    assert isinstance(told, dict)
    asked = table[(table["order"] == "importance") & (table["part"] == "test")].set_index("removed")["loss"]
    assert told["volatility"]["after"] == pytest.approx(float(asked[4]), rel=1e-5)
    assert told["volatility"]["before"] == pytest.approx(float(asked[0]), rel=1e-6)


def test_every_verb_takes_the_smaller_run(pruned: tuple[Path, str], tmp_path: Path) -> None:
    copy = Path(shutil.copytree(pruned[0], tmp_path / "copy"))  # it needs nothing of the run it came from
    before = {name: (copy / name).read_bytes() for name in ("scores.csv", "heads.csv", "lag_profiles.csv")}
    line.evaluate(copy)
    line.probe(copy)
    line.write_report(copy)
    assert len(saved.predict([copy])) == 1
    assert {name: (copy / name).read_bytes() for name in before} == before
    heads = pd.read_csv(copy / "heads.csv")[["layer", "head"]].drop_duplicates()
    assert len(heads) == 12
    again = prune.prune(copy, prune.Asked("share=.5", share=0.5))[0]
    kept = run.read_summary(again)["heads_kept"]
    assert isinstance(kept, list)
    assert sum(map(len, kept)) == 6


def test_untrained_networks_of_its_nulls_have_as_many_heads(pruned: tuple[Path, str]) -> None:
    small = saved.load(pruned[0])
    fresh = networks(small, pruned[0], lambda _: None).fresh(3)
    shapes = {name: x.shape for name, x in small.task.state_dict().items()}
    assert {name: x.shape for name, x in fresh.state_dict().items()} == shapes


def test_a_loss_lets_as_many_go_as_the_curve_on_validation_does(
    trained: Path, pruned: tuple[Path, str], tmp_path: Path
) -> None:
    table = run.read_tables(trained)["pruning"]
    mine = table[(table["order"] == "importance") & (table["part"] == "validation")].set_index("removed")
    share = pd.to_numeric(mine["skill_share"])
    assert share.notna().all(), "volatility is forecast with skill"
    within = (share <= 0.05).cummin()
    number = int(share.index[within].max())
    assert 0 < number < 16
    directory, told = prune.prune(trained, prune.Asked("loss=5%", loss=0.05))
    assert told.startswith(f"{number} of 16 heads removed")
    left = run.read_summary(directory)["heads_kept"]
    assert isinstance(left, list)
    assert sum(map(len, left)) == 16 - number
    dear = table.assign(skill_share=table["skill_share"].where(table["removed"] == 0, 0.5))
    copy = Path(shutil.copytree(trained, tmp_path / "copy", ignore=shutil.ignore_patterns("prune-*")))
    run.write_table(copy, "pruning", dear)
    with pytest.raises(DataError, match="loss=1%: the first head to go costs some target more on validation"):
        prune.prune(copy, prune.Asked("loss=1%", loss=0.01))


def test_training_on_begins_with_its_weights_and_heads_and_resumes_to_the_same_bits(
    pruned: tuple[Path, str], tmp_path: Path
) -> None:
    typed = [*SMALL, "probes=off", "trainer.max_epochs=2", f"init={pruned[0]}"]
    started = saved.load(pruned[0])
    line.train(configured(typed), tmp_path / "whole")
    ended = saved.load(tmp_path / "whole")
    state = started.task.state_dict()
    assert {name: x.shape for name, x in ended.task.state_dict().items()} == {n: x.shape for n, x in state.items()}
    assert run.read_summary(tmp_path / "whole")["parameters"] == run.read_summary(pruned[0])["parameters"]
    history = pd.read_csv(tmp_path / "whole" / "history.csv")
    anew = pd.read_csv(pruned[0].parent / "history.csv")
    assert history["validation_loss"][0] < anew["validation_loss"][0]
    # Stopped after its first epoch, and the run that it began with gone.
    gone = Path(shutil.copytree(pruned[0], tmp_path / "gone"))
    other = configured([*typed[:-1], f"init={gone}"])

    kept = keeping.Keeper.on_train_epoch_end

    def once(self: keeping.Keeper, trainer: object, module: object) -> None:
        kept(self, trainer, module)  # pyright: ignore[reportArgumentType]
        raise StoppedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keeping.Keeper, "on_train_epoch_end", once)
        with pytest.raises(StoppedError):
            line.train(other, tmp_path / "stopped")
    shutil.rmtree(gone)
    line.resume(tmp_path / "stopped")
    first, second = (checkpoints.load(tmp_path / name / checkpoints.BEST) for name in ("whole", "stopped"))
    for name, x in checkpoints.weights(first).items():
        assert torch.equal(x, checkpoints.weights(second)[name]), name


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["model.width=64"], "width is 32 there and 64 here"),
        (["model.window=20"], "window is 16 there and 20 here"),
        (["split.train_end=.5"], "has seen days that this run is judged on: training ends on "),
    ],
)
def test_what_does_not_fit_is_told_with_both_values(
    pruned: tuple[Path, str], tmp_path: Path, typed: list[str], words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        line.train(configured([*SMALL, *typed, f"init={pruned[0]}"]), tmp_path / "run")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_init_that_is_no_run_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"init=nowhere has no config\.yaml"):
        line.train(configured([*SMALL, "init=nowhere"]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_cannot_be_pruned_is_refused(trained: Path, pruned: tuple[Path, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"share=\.01 of 16 heads leaves all of them or none: give 1/16 at least"):
        prune.prune(trained, prune.Asked("share=.01", share=0.01))
    (tmp_path / "config.yaml").write_text(to_yaml(configured(["experiment=smoke", "model=lstm"])))
    with pytest.raises(ConfigError, match="is of lstm, which has no attention heads to remove"):
        verbs.prune([f"run={tmp_path}", "share=.25"])
    with pytest.raises(ConfigError, match="is no training, but made from one"):
        verbs.resume([f"resume={pruned[0]}"])


def test_a_curve_without_an_open_target_decides_nothing(
    trained: Path, pruned: tuple[Path, str], tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(trained, tmp_path / "copy", ignore=shutil.ignore_patterns("prune-*")))
    table = run.read_tables(copy)["pruning"]
    run.write_table(copy, "pruning", table.assign(skill_share=np.nan))
    with pytest.raises(DataError, match="no target is forecast with skill on validation"):
        prune.prune(copy, prune.Asked("loss=1%", loss=0.01))
    run.write_table(copy, "pruning", table[table["removed"] < 9])
    with pytest.raises(DataError, match="is of another network: remove it"):
        prune.prune(copy, prune.Asked("share=.25", share=0.25))
    run.write_table(copy, "pruning", table.assign(loss=1.001 * table["loss"]))  # another seed's
    with pytest.raises(DataError, match="is of another network: remove it"):
        prune.prune(copy, prune.Asked("share=.25", share=0.25))


def test_compare_holds_it_against_the_whole_run_and_tells_what_is_removable(
    trained: Path, pruned: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Path(shutil.copytree(trained, tmp_path / "copy", ignore=shutil.ignore_patterns("prune-*")))
    table = run.read_tables(copy)["pruning"]
    run.write_table(copy, "pruning", table.assign(skill_share=np.where(table["removed"] <= 4, 0.0, 0.5)))
    monkeypatch.chdir(tmp_path)
    text, page = comparison.compared([str(copy), str(pruned[0])], "pruned=no")
    assert "pruned=share=.25" in text
    words = "Heads removable at 1% of skill, pruned=no: 25% by importance, 25% by lot (1 run)."
    assert words in text
    assert words in page.read_text()
