"""The probes as a library, and the examples of its page."""

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from fabricate import random_bars
from forecaster.bars import planted
from forecaster.errors import DataError
from forecaster.probing import Probed, Windows, probe_model, windows

PAGE = (Path(__file__).parents[1] / "docs" / "models.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
LENGTH = 7


class Last(nn.Module):
    """One layer without embedding, read at the last bar."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.attention = nn.MultiheadAttention(14, 7, batch_first=True)
        self.readout = nn.Linear(14, 1)

    def forward(self, x_BLF: Tensor) -> Tensor:
        return self.readout(self.attention(x_BLF, x_BLF, x_BLF)[0][:, -1])


def forecast(model: nn.Module, x_BLF: Tensor, future_BHK: Tensor) -> Tensor:
    return model(x_BLF)[:, None]


@pytest.fixture(scope="module")
def data() -> Windows:
    return windows(planted.load("noise", 600, seed=3), LENGTH)


def example(number: int) -> tuple[Probed | None, str]:
    """What an example finds and prints."""
    said = io.StringIO()
    names: dict[str, object] = {}
    with redirect_stdout(said):
        exec(compile(EXAMPLES[number], f"docs/models.md, example {number + 1}", "exec"), names)
    return names.get("found"), said.getvalue()


def test_an_encoder_trained_on_a_weekly_market_has_the_weekly_head_that_the_page_shows():
    """Ten seconds: 18,000 bars twice, as few as find the lag."""
    found, said = example(0)
    heads = found.heads.query("label == 'functional'")
    assert set(heads["probe"]) == {"weekly_target"}
    assert set(heads["targets"]) == {"return"}
    assert (heads["kappa"] > 0.8).all()
    assert said.startswith("return: skill (squared error on test")
    assert "weekly_target" in said


def test_a_patchtst_is_probed_as_the_page_shows():
    found, _ = example(1)
    assert len(found.knockouts.query("kind == 'mean'")) == 8
    assert (found.heads["label"] != "functional").all()


def test_a_time_series_transformer_is_probed_as_the_page_shows():
    found, said = example(2)
    assert found.knockouts.query("kind == 'mean'")["layer"].tolist() == [0] * 4 + [1] * 4
    assert said.count("\n") == 9


def test_a_model_without_attention_is_refused_with_the_line_that_the_page_shows():
    found, said = example(3)
    assert found is None
    assert said.count("\n") == 1
    assert f"```\n{said}```" in PAGE


def test_windows_of_a_frame_are_those_of_its_bars():
    bars = random_bars({"A": 200, "B": 260})
    ours = windows(bars, LENGTH, targets=("return", "volume"), horizon=2)
    theirs = windows(bars.frame, LENGTH, targets=("return", "volume"), horizon=2)
    for name in ("train", "validation", "test"):
        x_BLF, future_BHK, actual_BHC = theirs.part(name)
        for one, other in zip(ours.part(name), theirs.part(name), strict=True):
            np.testing.assert_array_equal(one, other)
        assert x_BLF.shape[1:] == (LENGTH, len(theirs.feature_names))
        assert (future_BHK.shape[1:], actual_BHC.shape[1:]) == ((2, 7), (2, 2))
    assert theirs.target_names == ("return", "volume")


def test_a_frame_that_is_no_bars_is_refused():
    frame = random_bars({"A": 200}).frame
    with pytest.raises(DataError, match="the frame: no column close"):
        windows(frame.drop(columns="close"), LENGTH)
    with pytest.raises(DataError, match=r"the frame: A .*: close .*: not a number"):
        windows(frame.assign(close=[np.nan, *frame["close"][1:]]), LENGTH)


def test_another_loss_is_what_ablations_cost(data):
    model = Last()
    plain, twice, absolute = (
        probe_model(model, data, forecast, **options)
        for options in (
            {},
            {"loss": lambda forecast, actual: 2 * ((forecast - actual) ** 2).mean(1)},
            {"loss": lambda forecast, actual: np.abs(forecast - actual).mean(1)},
        )
    )
    rises = [found.knockouts.query("kind == 'mean'")["rise"].to_numpy() for found in (plain, twice, absolute)]
    np.testing.assert_allclose(rises[1], 2 * rises[0], rtol=1e-9)
    assert not np.allclose(rises[2], rises[0], rtol=0.1)
    assert "squared error on test against the zero return's" in plain.gates[0]
    assert "loss on test against the zero return's" in absolute.gates[0]


def test_nulls_ask_for_networks_of_ones_own(data):
    seeds, targets = list[int](), list[np.ndarray]()

    def untrained(seed: int) -> nn.Module:
        seeds.append(seed)
        return Last(seed)

    def retrained(targets_RHC: np.ndarray, seed: int) -> nn.Module:
        targets.append(targets_RHC)
        return Last(100 + seed)

    found = probe_model(Last(), data, forecast, untrained=untrained, retrained=retrained, causal=False)
    assert len(set(seeds)) == 20
    assert len(targets) == 5
    assert targets[0].shape == data.panel.targets.shape
    rows = found.head_nulls.groupby("null")["seed"].nunique()
    assert rows.to_dict() == {"noise": 5, "random": 20}
    assert found.lag_profiles["head"].isna().any()
    assert not found.heads["reason"].str.contains("no noise null").any()
    assert found.means == {}


def test_heads_are_followed_over_time_where_asked(data):
    found = probe_model(Last(), data, forecast, causal=False, drift=True)
    assert set(found.tables()) - set(probe_model(Last(), data, forecast, causal=False).tables()) == set(found.drift)
    assert len(found.drift["drift"])


def test_two_probings_say_the_same(data):
    first, second = (probe_model(Last(), data, forecast).tables() for _ in range(2))
    for name, table in first.items():
        pd.testing.assert_frame_equal(table, second[name])
