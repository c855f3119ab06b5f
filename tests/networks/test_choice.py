"""Networks to compare with have the size of the attention network."""

from dataclasses import replace

import pytest
import torch

from forecaster.config import KINDS as CONFIG_KINDS
from forecaster.errors import ConfigError
from forecaster.networks.choice import KINDS, SIZED, Shape, matched_width, network, parameters

SHAPE = Shape(
    features=14,
    length=32,
    width=64,
    heads=8,
    layers=2,
    feedforward=2,
    dropout=0.1,
    attention_dropout=0.0,
    causal=False,
    positions="learned",
    pooling="last",
    skip=True,
    horizon=1,
    targets=3,
    future=7,
)


def test_configuration_knows_the_same_kinds() -> None:
    assert CONFIG_KINDS == KINDS


@pytest.mark.parametrize("kind", [*SIZED, "single_head"])
@pytest.mark.parametrize("changes", [{}, {"width": 32, "layers": 1}, {"width": 128, "horizon": 5}, {"skip": False}])
def test_sizes_are_equal_within_two_percent(kind: str, changes: dict[str, object]) -> None:
    shape = replace(SHAPE, **changes)
    wanted = sum(p.numel() for p in network("attention", shape).parameters())
    found = sum(p.numel() for p in network(kind, shape).parameters())
    assert abs(found / wanted - 1) <= 0.02
    if kind == "single_head":
        assert found == wanted


def test_counting_draws_no_random_number() -> None:
    torch.manual_seed(5)
    expected = torch.randn(3)
    torch.manual_seed(5)
    matched_width("lstm", SHAPE)
    assert torch.equal(torch.randn(3), expected)


def test_counts_are_those_of_the_real_networks() -> None:
    for kind in KINDS:
        if kind not in SIZED:
            assert parameters(kind, SHAPE) == sum(p.numel() for p in network(kind, SHAPE).parameters())


def test_size_that_cannot_be_met_is_refused() -> None:
    tiny = replace(SHAPE, width=2, heads=1, layers=1, skip=False, features=1, targets=1, length=2)
    with pytest.raises(ConfigError, match=r"lstm: no width has \d+ parameters within 2%"):
        matched_width("lstm", tiny)
    with pytest.raises(ConfigError, match="no such network: choose from attention"):
        network("mamba", SHAPE)
