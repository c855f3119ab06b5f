"""Bars of one's own through the whole line, in the layouts that people have."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf

from forecaster import compose, line, run, saved
from forecaster.bars import store
from forecaster.bars.calendar import Calendar
from forecaster.bars.cleaning import PoisonedBarsError
from forecaster.config import Config
from forecaster.errors import DataError

ROOT = Path(__file__).parents[1]
CASES = ROOT / "tests" / "cases"


def walk(times: pd.DatetimeIndex, seed: int, start: float = 50.0) -> pd.DataFrame:
    """A random walk, named as most files name it."""
    rng = np.random.default_rng(seed)
    close = start * np.exp(np.cumsum(rng.normal(0, 0.01, len(times))))
    opened = close * np.exp(rng.normal(0, 0.003, len(times)))
    high = np.maximum(opened, close) * np.exp(np.abs(rng.normal(0, 0.004, len(times))))
    low = np.minimum(opened, close) * np.exp(-np.abs(rng.normal(0, 0.004, len(times))))
    prices = {"Open": opened, "High": high, "Low": low, "Close": close}
    return pd.DataFrame(prices, index=times).round(4).assign(Volume=rng.lognormal(12, 0.4, len(times)).round(1))


def sessions(first: str, last: str) -> pd.DatetimeIndex:
    return Calendar("XNYS").sessions(first, last)


def four_stocks(folder: Path) -> list[str]:
    for seed, symbol in enumerate(("AAA", "BBB", "CCC", "DDD")):
        table = walk(sessions("2009-01-02" if seed < 3 else "2011-05-02", "2013-12-31"), seed)
        table.to_csv(folder / f"{symbol}.csv", index_label="Date")
    return [f"source.path={folder}"]


def hours_of_a_currency(folder: Path) -> list[str]:
    times = pd.date_range("2017-01-01 22:00", "2017-06-30 20:00", freq="1h")
    local = times.tz_localize("UTC").tz_convert("America/New_York")
    week = local.day_of_week * 24 + local.hour
    table = walk(times[(week < 4 * 24 + 17) | (week >= 6 * 24 + 17)], 5, 1.05)
    table.index = table.index.strftime("%d.%m.%Y %H:%M:%S.000")
    table.to_csv(folder / "EURUSD.csv", index_label="Time")
    return [f"source.path={folder / 'EURUSD.csv'}"]


def closes_side_by_side(folder: Path) -> list[str]:
    times = sessions("2016-01-04", "2019-12-31")
    closes = pd.DataFrame({f"S{number}": walk(times, number)["Close"] for number in range(20)})
    closes.to_csv(folder / "closes.csv", index_label="Date")
    return [f"source.path={folder / 'closes.csv'}", "source.layout=wide"]


def zoned_parquet(folder: Path) -> list[str]:
    table = walk(sessions("2016-01-04", "2018-12-31"), 8)
    table.tz_localize("America/New_York").to_parquet(folder / "ZZZ.parquet")
    return [f"source.path={folder / 'ZZZ.parquet'}"]


def clean_file(_: Path) -> list[str]:
    return [f"source.path={CASES / '01_control_clean.csv'}"]


def settings(*overrides: str) -> Config:
    given = ["experiment=smoke", "source=files", "trainer.max_epochs=1", "data.batch_size=512", *overrides]
    return cast(Config, OmegaConf.to_object(compose.compose(given)))


LAYOUTS: dict[str, tuple[Callable[[Path], list[str]], dict[str, object]]] = {
    "one clean file": (clean_file, {"bars": 160, "calendar": "XNYS", "week_bars": 5}),
    "a folder of four stocks": (four_stocks, {"calendar": "XNYS", "symbols": ["AAA", "BBB", "CCC", "DDD"]}),
    "hours of a currency": (hours_of_a_currency, {"calendar": "forex", "interval": "1h", "week_bars": 120}),
    "closes side by side": (closes_side_by_side, {"targets": ["return"], "calendar": "XNYS"}),
    "zoned parquet": (zoned_parquet, {"symbols": ["ZZZ"], "first": "2016-01-04", "last": "2018-12-31"}),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_goes_from_bars_to_report_and_on_from_its_snapshot(name: str, tmp_path: Path) -> None:
    make, expected = LAYOUTS[name]
    directory = tmp_path / "run"
    line.train(settings(*make(tmp_path)), directory)
    summary = run.read_summary(directory)
    assert summary["status"] == "complete"
    assert {key: summary[key] for key in expected} == expected
    for file in [*tmp_path.glob("*.csv"), *tmp_path.glob("*.parquet")]:
        file.unlink()  # the run has bars of its own
    before = (directory / "scores.csv").read_bytes()
    line.evaluate(directory)
    assert (directory / "scores.csv").read_bytes() == before
    ahead = saved.predict([directory])
    assert set(ahead["symbol"]) == set(cast("list[str]", summary["symbols"]))
    assert (ahead["target_time"] > ahead["origin"]).all()


def test_hours_to_come_follow_the_market_over_its_weekend(tmp_path: Path) -> None:
    given = hours_of_a_currency(tmp_path)
    table = pd.read_csv(tmp_path / "EURUSD.csv")
    friday = table["Time"].str.startswith("23.06.2017 20:")
    table.iloc[: int(np.flatnonzero(friday)[0]) + 1].to_csv(tmp_path / "EURUSD.csv", index=False)
    line.train(settings("probes=off", *given), tmp_path / "run")
    [hour] = saved.predict([tmp_path / "run"])["target_time"].unique()
    # Sunday 17:00 in New York.
    assert pd.Timestamp(hour) == pd.Timestamp("2017-06-25 21:00", tz="UTC")


def test_poisoned_bars_stop_the_run_which_keeps_their_report(tmp_path: Path) -> None:
    with pytest.raises(PoisonedBarsError):
        line.train(settings(f"source.path={CASES / '21_split_10_to_1_raw.csv'}"), tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["status"] == "failed"
    assert "2023-09-26" in summary["error"]
    assert pd.read_csv(tmp_path / "run" / "quality.csv")["action"].tolist() == ["stop"]
    line.train(
        settings(f"source.path={CASES / '21_split_10_to_1_raw.csv'}", "source.on_error=adjust"), tmp_path / "again"
    )
    assert run.read_summary(tmp_path / "again")["quality"] == {"split": 1}


def test_constant_prices_end_in_scores_that_say_undefined(tmp_path: Path) -> None:
    line.train(settings(f"source.path={CASES / '41_constant_price.csv'}"), tmp_path / "run")
    scores = pd.read_csv(tmp_path / "run" / "scores.csv")
    for metric in ("r2", "ic", "rank_ic", "hit_rate"):
        values = scores.query("target == 'return' and metric == @metric")["value"]
        assert set(values.astype(str)) <= {"undefined", "nan"}, metric
    history = pd.read_csv(tmp_path / "run" / "history.csv")
    assert np.isfinite(history[["train_loss", "validation_loss"]]).all(axis=None)


def test_windows_over_a_gap_are_left_out_and_counted(tmp_path: Path) -> None:
    table = walk(sessions("2016-01-04", "2018-12-31"), 8)
    pd.concat([table.iloc[:200], table.iloc[230:]]).to_csv(tmp_path / "A.csv", index_label="Date")
    kept = line.prepare(settings(f"source.path={tmp_path / 'A.csv'}", "data.max_gap=30"), bars(tmp_path), tmp_path)
    cut = line.prepare(settings(f"source.path={tmp_path / 'A.csv'}", "data.max_gap=29"), bars(tmp_path), tmp_path)
    assert kept.split.counts["train"].gapped.sum() == 0
    # Of the windows of 16 bars and one target, those that hold bars of both sides.
    assert cut.split.counts["train"].gapped.sum() == 16
    assert len(kept.split.train) - len(cut.split.train) == 16
    assert "across_gap" in set(cut.quality["kind"])


def bars(folder: Path) -> line.Bars:
    return line.load_bars(settings(f"source.path={folder / 'A.csv'}").source)


def test_panel_in_a_file_trains_to_the_same_scores(tmp_path: Path) -> None:
    given = four_stocks(tmp_path)
    for name, size in (("memory", "4.0"), ("file", "0.0")):
        line.train(settings("probes=off", f"data.in_memory_gb={size}", *given), tmp_path / name)
    for table in ("scores.csv", "tests.csv", "forecasts.parquet"):
        assert (tmp_path / "memory" / table).read_bytes() == (tmp_path / "file" / table).read_bytes()


def test_large_snapshots_are_shared_by_hash_and_missed_when_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = line.load_bars(settings(*clean_file(tmp_path)).source)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        store.keep(loaded, tmp_path / name, own_bytes=0)
        assert not (tmp_path / name / "bars.parquet").exists()
        pd.testing.assert_frame_equal(store.kept(tmp_path / name).frame, loaded.frame)
    [shared] = (tmp_path / "data" / "cache" / "bars").iterdir()
    shared.write_bytes(shared.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match=r"other bars than those of .*one: put back the file of SHA-256 [0-9a-f]{64}"):
        store.kept(tmp_path / "one")
    shared.unlink()
    with pytest.raises(DataError, match=r"the bars of .*two are gone"):
        store.kept(tmp_path / "two")


def test_command_line_trains_on_a_file_and_says_what_it_found(tmp_path: Path) -> None:
    path = CASES / "39_weekend_rows.csv"
    given = ["experiment=smoke", "source=files", f"source.path={path}", "trainer.max_epochs=1"]
    program = [sys.executable, str(ROOT / "train.py"), *given]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "quality: 6 weekend" in done.stderr
    assert "windows train 76 (of 77: 1 purged), validation 23 (of 24: 1 purged), test 23" in done.stderr
    [report] = tmp_path.glob("outputs/smoke/*/report.html")
    assert "weekend" in report.read_text()
