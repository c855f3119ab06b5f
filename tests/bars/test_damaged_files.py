"""A file damaged at random, all the way: bars that satisfy the contract, or one line; no row lost without a word."""

import random
from pathlib import Path
from typing import cast

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from damage import CASES, SOURCES, damaged
from forecaster.bars.cleaning import PoisonedBarsError, Policy, clean
from forecaster.bars.contract import Bars, check
from forecaster.bars.files import Options, read
from forecaster.bars.raw import Raw
from forecaster.compose import compose
from forecaster.config import Config
from forecaster.data import preview
from forecaster.errors import DataError

NOW = pd.Timestamp("2026-06-01 12:00", tz="UTC")
GONE = ("dropped", "no bar")


@pytest.fixture(scope="module")
def config() -> Config:
    return cast(Config, OmegaConf.to_object(compose(["experiment=smoke", "source=files", "source.path=a.csv"])))


def outcome(path: Path, on_error: str | None) -> tuple[Raw | None, Bars | DataError]:
    """The rows read, and the bars they come to or why there are none."""
    rows = None
    try:
        rows = read(Options(path=(str(path),)))
        return rows, clean(rows, Policy(None, on_error, (), NOW), path.name)
    except DataError as fault:
        return rows, fault


@settings(max_examples=40)
@given(
    st.randoms(use_true_random=False),
    st.sampled_from(SOURCES),
    st.integers(0, 4),
    st.sampled_from([None, "drop", "adjust"]),
)
def test_damaged_file_comes_to_bars_with_every_lost_row_told_or_to_one_line(
    tmp_path_factory: pytest.TempPathFactory,
    config: Config,
    rng: random.Random,
    content: bytes,
    times: int,
    on_error: str | None,
) -> None:
    for _ in range(times):
        content = damaged(content, rng)
    path = tmp_path_factory.getbasetemp() / "whole.csv"
    path.write_bytes(content)
    rows, bars = outcome(path, on_error)
    if isinstance(bars, DataError):
        assert str(bars).isprintable()
        assert not (isinstance(bars, PoisonedBarsError) and on_error)
        return
    assert rows is not None
    check(bars.frame, "whole.csv")
    told = bars.quality.iloc[len(rows.notes) :]  # of rows, after what the file itself has to tell
    assert len(rows.frame) - len(bars.frame) == told["action"].isin(GONE).sum()
    assert "stop" not in set(bars.quality["action"])
    # Nothing is invented: every bar stands at a row's time under its symbol.
    left = set(zip(bars.frame["symbol"], bars.frame["time"], strict=True))
    assert left <= set(zip(rows.frame["symbol"], rows.frame["time"], strict=True))
    quality, text = preview(config, bars)
    assert len(quality) >= len(bars.quality)
    assert text.startswith(("windows of ", "no windows: "))


def test_undamaged_files_are_among_them() -> None:
    assert len(SOURCES) == len(list(CASES.glob("[0-9]*.csv"))) > 20
