"""What multi-head attention is said to be, in figures, each read off real modules, weights and caches."""

import math

import pytest
import torch
from torch import Tensor, nn

from forecaster.errors import ConfigError
from forecaster.networks.attention import Cache, MultiHeadAttention, explicit, fused, weights
from forecaster.networks.encoder import Encoder

HEADS = [1, 8, 32, 64]


def unbiased(width: int, heads: int) -> MultiHeadAttention:
    with torch.device("meta"):  # shapes without memory
        return MultiHeadAttention(width, heads, bias=False)


def numbers(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("scores", "expected"),
    [((0.2, 0.1, 3.0), (0.0545, 0.0493, 0.8962)), ((2.5, 0.3, 0.2), (0.8257, 0.0915, 0.0828))],
)
def test_example_a_softmax_of_three_scores(scores: tuple[float, ...], expected: tuple[float, ...]) -> None:
    q, k = torch.ones(1, 1, 1, 1), torch.tensor(scores).reshape(1, 1, 3, 1)  # d = 1: the scores are not scaled
    assert weights(q, k).flatten().tolist() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("attend", [explicit, fused])
def test_example_b_two_heads_of_width_two_mixed_by_w_o(attend: object) -> None:
    attention = MultiHeadAttention(4, 2, bias=False, attend=attend)  # type: ignore[arg-type]
    w_o = torch.tensor([[1.0, 0, 1, 0], [0, 1, 0, 1], [1, 0, 0, 1], [0, 1, 1, 0]])
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.zero_()
        attention.query.weight[0, 0] = 1.0  # head 1: token 1, the first unit vector, asks [1, 0]
        attention.key.weight[:2, :2] = torch.eye(2)  # keys [1, 0] and [0, 1]
        attention.value.weight[:2, :2] = 2 * torch.eye(2)  # values [2, 0] and [0, 2]
        attention.value.weight[2:, :2] = 1.0  # head 2: both values [1, 1]
        attention.output.weight.copy_(w_o.T)
    out, captured = attention(torch.eye(4)[None, :2], capture=(0,))
    assert captured is not None
    first = math.exp(1 / math.sqrt(2)) / (math.exp(1 / math.sqrt(2)) + 1)  # 0.670
    assert captured.attn_BNTS[0, 0, 0].tolist() == pytest.approx([first, 1 - first], abs=1e-4)
    assert [first, 1 - first] == pytest.approx([0.670, 0.330], abs=5e-4)
    joined = captured.z_BNTd[0, :, 0].flatten().tolist()
    assert joined == pytest.approx([2 * first, 2 - 2 * first, 1, 1], abs=1e-4)
    assert joined == pytest.approx([1.340, 0.660, 1, 1], abs=5e-4)
    a, b = 2 * first, 2 - 2 * first
    assert out[0, 0].tolist() == pytest.approx([a + 1, b + 1, a + 1, b + 1], abs=1e-4)
    assert out[0, 0].tolist() == pytest.approx([2.340, 1.660, 2.340, 1.660], abs=5e-4)


@pytest.mark.parametrize("heads", HEADS)
def test_parameters_are_four_times_the_width_squared_whatever_the_number_of_heads(heads: int) -> None:
    attention = unbiased(512, heads)
    assert numbers(attention) == 1_048_576
    assert numbers(attention.query) + numbers(attention.key) + numbers(attention.value) == 786_432


def test_one_head_of_eight_has_98304_parameters_in_three_projections_and_four_wide_attention_64_in_all() -> None:
    projections = unbiased(512, 8).inputs_by_head()
    assert [w[0].numel() for w in projections] == [32_768] * 3
    assert sum(w[0].numel() for w in projections) == 98_304
    assert [numbers(unbiased(4, heads)) for heads in (1, 2, 4)] == [64] * 3


@pytest.mark.parametrize("heads", HEADS)
def test_the_cache_holds_1024_numbers_a_token_and_layer_whatever_the_number_of_heads(heads: int) -> None:
    attention, cache = MultiHeadAttention(512, heads), Cache()
    sizes = []
    with torch.no_grad():
        for _ in range(3):
            attention(torch.zeros(2, 1, 512), cache=cache)
            sizes.append(cache.numbers)
    assert sizes == [2 * tokens * 1_024 for tokens in (1, 2, 3)]
    assert cache.k_BNSd is not None
    assert cache.k_BNSd.shape == (2, heads, 3, 512 // heads)


@pytest.mark.parametrize(
    ("width", "heads", "each"), [(512, 1, 512), (512, 8, 64), (512, 32, 16), (512, 64, 8), (4096, 64, 64)]
)
def test_the_width_of_a_head_is_the_width_divided_by_the_heads(width: int, heads: int, each: int) -> None:
    attention = unbiased(width, heads)
    assert [w.shape for w in attention.inputs_by_head()] == [(heads, width, each)] * 3
    assert attention.output_by_head().shape == (heads, each, width)


@pytest.mark.parametrize(("layers", "heads"), [(32, 32), (3, 8)])
def test_attention_operations_are_layers_times_heads(layers: int, heads: int) -> None:
    network = Encoder(
        features=1,
        length=2,
        width=32,
        heads=heads,
        layers=layers,
        feedforward=1,
        dropout=0.0,
        attention_dropout=0.0,
        causal=False,
        positions="learned",
        skip=False,
        horizon=1,
        targets=1,
    )
    captured = network(torch.zeros(1, 2, 1), capture=dict.fromkeys(range(layers), (1,))).captured
    assert sum(record.attn_BNTS.shape[1] for record in captured.values()) == layers * heads


def heads_apart(x: Tensor, w_q: list[Tensor], w_k: list[Tensor], w_v: list[Tensor], w_o: Tensor) -> Tensor:
    """As the equations have it: a projection of its own for each head, outputs side by side, times W_O."""
    z = []
    for q, k, v in zip(w_q, w_k, w_v, strict=True):
        scores = (x @ q) @ (x @ k).mT / math.sqrt(q.shape[1])
        z.append(scores.softmax(-1) @ (x @ v))
    return torch.cat(z, -1) @ w_o


def test_one_split_projection_equals_a_projection_for_each_head_both_ways() -> None:
    torch.manual_seed(0)
    x, width, heads = torch.randn(2, 7, 20), 20, 5
    attention = MultiHeadAttention(width, heads, bias=False)
    apart = [list(w) for w in attention.inputs_by_head()]
    expected = heads_apart(x, *apart, attention.output.weight.T)
    torch.testing.assert_close(attention(x)[0], expected, atol=1e-6, rtol=0)

    separate = [[torch.randn(width, width // heads) / math.sqrt(width) for _ in range(heads)] for _ in range(3)]
    w_o = torch.randn(width, width) / math.sqrt(width)
    with torch.no_grad():
        for layer, each in zip((attention.query, attention.key, attention.value), separate, strict=True):
            layer.weight.copy_(torch.cat(each, dim=1).T)
        attention.output.weight.copy_(w_o.T)
    torch.testing.assert_close(attention(x)[0], heads_apart(x, *separate, w_o), atol=1e-6, rtol=0)


def test_a_width_that_is_no_multiple_of_the_heads_is_an_error_that_names_both() -> None:
    with pytest.raises(ConfigError, match="7 heads do not divide width 512"):
        MultiHeadAttention(512, 7)


def test_where_it_sits_the_whole_window_no_future_or_another_sequence() -> None:
    torch.manual_seed(0)
    bars, horizon = torch.randn(1, 7, 20), torch.randn(1, 3, 20)
    whole, masked, cross = MultiHeadAttention(20, 5), MultiHeadAttention(20, 5, causal=True), MultiHeadAttention(20, 5)
    seen = [
        record.attn_BNTS[0, 0] > 0
        for _, record in (
            whole(bars, capture=range(7)),
            masked(horizon, capture=range(3)),
            cross(horizon, bars, start=7, capture=range(3)),
        )
    ]
    assert seen[0].shape == (7, 7)
    assert seen[0].all()
    assert torch.equal(seen[1], torch.ones(3, 3, dtype=torch.bool).tril())
    assert seen[2].shape == (3, 7)
    assert seen[2].all()
