"""The network's forecasts and what is scored of them, whatever the number of windows in a forward pass."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forecaster import line, run, saved
from forecaster.forecasts import network

RELEASED = Path(__file__).parents[1] / "released" / "format_1"


def test_test_metrics_are_the_same_for_every_batch_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = shutil.copytree(RELEASED, tmp_path / "run")
    run.update_summary(directory, status="complete")
    loaded = saved.load(directory)
    values: list[np.ndarray] = []
    for size in (1, 7, 32, 256):  # of 70 windows
        monkeypatch.setattr(network, "CHUNK", size)
        line.score(loaded, directory)
        table = run.read_tables(directory)["scores"].query("model == 'attention'")
        values.append(pd.to_numeric(table["value"], errors="coerce").to_numpy())
    assert np.isfinite(values[0]).sum() > 30
    for other in values[1:]:
        np.testing.assert_allclose(other, values[0], rtol=1e-6)
