"""Run directories from elsewhere: nothing in them is ever executed, and what could be is refused in one line."""

import pickle
import shutil
from collections.abc import Generator
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from commands import Commands, served
from forecaster import compose, line, run, saved
from forecaster.errors import DataError
from forecaster.forecasts import frame

RELEASED = Path(__file__).with_name("released") / "format_1"
CONFIG = (RELEASED / "config.yaml").read_text()
CALL = "_target_: os.system"
# Each with the key that is named.
CALLS = {
    "at the top": (f"{CONFIG}{CALL}\n", "_target_"),
    "in a part": (CONFIG.replace("model:\n", f"model:\n  {CALL}\n"), "model._target_"),
    "deep": (CONFIG.replace("  optimizer:\n", f"  optimizer:\n    {CALL}\n"), "model.optimizer._target_"),
    "in a list": (
        CONFIG.replace("- zero", f"- {{{CALL}, _args_: [touch executed]}}"),
        "baselines.0._target_",
    ),
    "in a map": (f"{CONFIG}hydra: {{launcher: {{{CALL}}}}}\n", "hydra.launcher._target_"),
    "in a column": (CONFIG.replace("market: weekly", f"columns: {{{CALL}}}"), "source.columns._target_"),
}
# 10 ** 12 words in 12 lines.
ALIASES = "\n".join(["a0: &a0 word", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 13))])
VERBS = ("evaluate run=", "probe run=", "predict run=", "report run=", "train resume=")


@pytest.fixture(scope="module")
def command() -> Generator[Commands]:
    with served() as commands:
        yield commands


class Harmful:
    """Pickles to a call."""

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("executed"),)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with every file that a verb reads."""
    directory = tmp_path_factory.mktemp("finished") / "run"
    small = ["experiment=smoke", "source.bars=300", "model.width=4", "model.heads=2", "model.window=6", "probes=off"]
    line.train(compose.configured([*small, "trainer.max_epochs=1", "baselines=[zero]"]), directory)
    return directory


@pytest.fixture
def copy(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, in a folder where a file `executed` would tell."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(finished, "run"))


@pytest.mark.parametrize(
    ("verb", "place"), [*((verb, "deep") for verb in VERBS), *((VERBS[0], place) for place in CALLS if place != "deep")]
)
def test_a_call_by_name_in_a_configuration_is_refused_before_anything_heavy_loads(
    verb: str, place: str, command: Commands, tmp_path: Path
) -> None:
    shutil.copytree(RELEASED, tmp_path / "run")
    text, told = CALLS[place]
    (tmp_path / "run" / "config.yaml").write_text(text)
    name, key = verb.split()
    where = f"{told} would name code to call (in run/config.yaml); no training writes that: don't trust it"
    assert command.refused(tmp_path, "forecaster", name, f"{key}run") == where


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            CONFIG.replace("smoke", '"${oc.env:HOME}"'),
            "experiment_name=${oc.env:HOME} is to be looked up (in run/config",
        ),
        (
            f'{CONFIG}os: !!python/object/apply:os.system ["touch executed"]\n',
            "run/config.yaml, line 51: no configuration; restore",
        ),
        ("[" * 3000, "run/config.yaml: no configuration; restore"),
        (ALIASES, "run/config.yaml: no configuration; restore"),
    ],
)
def test_what_a_configuration_would_look_up_or_build_is_refused(
    text: str, told: str, command: Commands, tmp_path: Path
) -> None:
    shutil.copytree(RELEASED, tmp_path / "run")
    (tmp_path / "run" / "config.yaml").write_text(text)
    assert told in command.refused(tmp_path, "forecaster", "predict", "run=run")


def test_a_call_in_a_pickle_is_refused_where_a_checkpoint_is_read_and_elsewhere_not_read(copy: Path) -> None:
    for name in ("best", "last"):
        torch.save(
            {"state_dict": {}, "forecaster": {"format": 2, "config": Harmful()}}, copy / f"checkpoints/{name}.ckpt"
        )
    torch.save(Harmful(), copy / run.MEANS)
    told = r"checkpoints/{}.ckpt is not a checkpoint of this program, or not a whole one: train again"
    for verb in (saved.load, line.evaluate, line.probe, lambda directory: saved.predict([directory])):
        with pytest.raises(DataError, match=told.format("best")):
            verb(copy)
    run.update_summary(copy, status="interrupted")
    with pytest.raises(DataError, match=told.format("last")):
        line.resume(copy)
    assert not Path("executed").exists()


def test_a_pickle_in_the_schema_of_a_table_is_not_loaded(copy: Path) -> None:
    for name in ("bars.parquet", "forecasts.parquet"):
        table = pq.read_table(copy / name)
        harm = {
            b"ARROW:extension:name": b"arrow.py_extension_type",
            b"ARROW:extension:metadata": pickle.dumps(Harmful()),
        }
        fields = [field.with_metadata(harm) for field in table.schema]
        pq.write_table(table.cast(pa.schema(fields, metadata=table.schema.metadata)), copy / name)
    saved.load(copy)
    frame.read(copy / "forecasts.parquet")
    assert not Path("executed").exists()


def test_a_script_in_a_table_or_the_summary_is_text_in_the_report_and_on_the_terminal(copy: Path) -> None:
    script = "<script>alert(1)</script>"
    for name in ("scores", "tests", "quality"):
        table = run.read_tables(copy)[name]
        table[table.columns[0]] = script
        run.write_table(copy, name, table)
    frames = frame.read(copy / "forecasts.parquet")
    frame.write(frames.assign(symbol=script), copy / "forecasts.parquet")
    run.update_summary(copy, headline=[script, "[/nothing] [link=file:///etc/passwd]here[/link]"], experiment=script)
    assert script not in line.write_report(copy).read_text()
    assert "[/nothing] [link=file:///etc/passwd]here[/link]" in line.shown(copy)


def test_a_run_of_the_first_release_is_still_read_and_forecasts_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = pd.read_csv(RELEASED / "predicted.csv", parse_dates=["origin", "target_time"])
    forecast = saved.predict([RELEASED])
    pd.testing.assert_frame_equal(forecast, expected, check_dtype=False, rtol=1e-5)
    # What it lacks to go on exactly is said.
    shutil.copytree(RELEASED, tmp_path / "run")
    shutil.copy(tmp_path / "run/checkpoints/best.ckpt", tmp_path / "run/checkpoints/last.ckpt")
    with pytest.raises(DataError, match=r"last.ckpt does not say where its training stood, so it can't go on"):
        line.resume(tmp_path / "run")
