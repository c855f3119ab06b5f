"""Costs are counted off real modules."""

import pytest
import torch

from forecaster.networks.budget import by_part, costs, multiply_adds
from forecaster.networks.choice import KINDS, Shape, network

SHAPE = Shape(
    features=3,
    length=7,
    width=40,
    heads=5,
    layers=2,
    feedforward=2,
    dropout=0.0,
    attention_dropout=0.0,
    causal=False,
    positions="learned",
    pooling="last",
    skip=False,
    horizon=2,
    targets=1,
    future=7,
)


def test_heads_cost_width_alone() -> None:
    found = list(costs(512, [1, 8, 32, 64], layers=32))
    assert [cost.parameters for cost in found] == [1_048_576] * 4
    assert [cost.inputs for cost in found] == [786_432] * 4
    assert [cost.cache for cost in found] == [1024] * 4
    assert [cost.head_width for cost in found] == [512, 64, 16, 8]
    assert [cost.operations for cost in found] == [32, 256, 1024, 2048]
    assert found[1].head == 98_304


@pytest.mark.parametrize("kind", KINDS)
def test_parts_add_up_to_all_parameters(kind: str) -> None:
    made = network(kind, SHAPE)
    parts = by_part(made)
    assert sum(parts.values()) == sum(parameter.numel() for parameter in made.parameters())
    assert list(parts.values()) == sorted(parts.values(), reverse=True)


def test_multiply_adds_of_the_encoder_agree_with_the_hand() -> None:
    made = network("attention", SHAPE)
    bars, width, wide = 7, 40, 80
    embed = bars * 3 * width
    mlp = 2 * width * wide
    # Layer 1 asks for every bar, layer 2 for the last alone; keys and values are those of all bars.
    first = bars * 4 * width**2 + 2 * bars * bars * width + bars * mlp
    last = (2 * bars + 2) * width**2 + 2 * bars * width + mlp
    readout = width * 2 * 1 * 8
    assert multiply_adds(made, 3, 2, 7) == embed + first + last + readout


@pytest.mark.parametrize(("kind", "gates"), [("lstm", 4), ("gru", 3)])
def test_multiply_adds_of_cells_agree_with_the_hand(kind: str, gates: int) -> None:
    made = network(kind, SHAPE)
    width = made.embed.out_features
    cells = 7 * 2 * 2 * gates * width**2
    assert multiply_adds(made, 3, 2, 7) == 7 * 3 * width + cells + width * 2 * 8


def test_counting_leaves_the_weights_alone() -> None:
    made = network("attention", SHAPE)
    before = {name: value.clone() for name, value in made.state_dict().items()}
    multiply_adds(made, 3, 2, 7)
    assert all(torch.equal(before[name], value) for name, value in made.state_dict().items())
