from dataclasses import replace

import pytest
import torch

from forecaster.networks.attention import Edit
from forecaster.networks.choice import Shape, network
from forecaster.networks.encoder import Encoder
from forecaster.networks.encoder_decoder import EncoderDecoder
from forecaster.networks.positions import Alibi
from forecaster.networks.pruning import heads_by_layer, remove, shape_like

L, F, H, C, K = 7, 3, 2, 2, 4
SHAPE = Shape(
    features=F,
    length=L,
    width=20,
    heads=5,
    layers=2,
    feedforward=2,
    dropout=0.2,
    attention_dropout=0.1,
    causal=False,
    positions="learned",
    pooling="last",
    skip=True,
    horizon=H,
    targets=C,
    future=K,
)
WAYS = {
    "learned": SHAPE,
    "sinusoidal": replace(SHAPE, positions="sinusoidal"),
    "none": replace(SHAPE, positions="none"),
    "rotary": replace(SHAPE, positions="rotary", causal=True),
    "alibi": replace(SHAPE, positions="alibi"),
    "lag": replace(SHAPE, positions="lag", causal=True),
    "pooled by mean": replace(SHAPE, pooling="mean"),
    "pooled by attention": replace(SHAPE, pooling="attention", positions="lag"),
}
SETS = {
    "some of both layers": [(0, 1), (0, 4), (1, 0)],
    "all of the first layer": [(0, h) for h in range(5)],
    "all of the last layer, one of the first": [(0, 2), *((1, h) for h in range(5))],
    "every head": [(layer, h) for layer in range(2) for h in range(5)],
}


def made(kind: str, shape: Shape) -> Encoder | EncoderDecoder:
    torch.manual_seed(1)
    whole = network(kind, shape)
    assert isinstance(whole, Encoder | EncoderDecoder)
    with torch.no_grad():
        for name, parameter in whole.named_parameters():  # tables and biases begin at 0
            if "table" in name or "bias" in name or "pool" in name or "skip" in name:
                parameter.normal_(std=0.3)
    return whole.eval()


def masked(heads, outputs_Nd):
    def edit(layer):
        out = [h for at, h in heads if at == layer]

        def replaced(z_BNTd):
            z_BNTd = z_BNTd.clone()
            z_BNTd[:, out] = outputs_Nd[layer][out, None]
            return z_BNTd

        return Edit(z=replaced)

    return {layer: edit(layer) for layer in range(2)}


@pytest.mark.parametrize("heads", SETS.values(), ids=SETS)
@pytest.mark.parametrize(
    ("kind", "shape"),
    [*(("attention", shape) for shape in WAYS.values()), ("encoder_decoder", SHAPE)],
    ids=[*WAYS, "encoder and decoder"],
)
def test_a_pruned_network_gives_what_the_masked_one_gives(kind, shape, heads):
    whole = made(kind, shape)
    x_BLF = torch.randn(2, L, F)
    told = {"future_BHK": torch.randn(2, H, K)} if kind == "encoder_decoder" else {}
    outputs_Nd = [torch.randn(5, 4) for _ in range(2)]
    expected = whole(x_BLF, masked(heads, outputs_Nd), **told)
    before = sum(parameter.numel() for parameter in whole.parameters())
    remove(whole, heads, outputs_Nd)
    capture = dict.fromkeys(range(2), (L - 1,))
    found = whole(x_BLF, None, capture, **told)
    torch.testing.assert_close(found.mean_BHC, expected.mean_BHC, rtol=0, atol=1e-5)
    torch.testing.assert_close(found.quantiles_BHCQ, expected.quantiles_BHCQ, rtol=0, atol=1e-5)
    left = [5 - sum(at == layer for at, _ in heads) for layer in range(2)]
    assert heads_by_layer(whole) == left
    assert [found.captured[layer].attn_BNTS.shape[1] for layer in range(2)] == left
    each = 4 * 20 * 4 + 3 * 4  # four matrices of a head, three biases
    if "lag" in shape.positions:
        each += whole.attention(0).relative.table_NR.shape[1]
    assert sum(parameter.numel() for parameter in whole.parameters()) == before - each * len(heads)


@pytest.mark.parametrize("shape", WAYS.values(), ids=WAYS)
def test_a_whole_network_takes_a_pruned_ones_state_and_can_be_trained_on(shape):
    pruned = made("attention", shape)
    remove(pruned, SETS["all of the first layer"], [torch.randn(5, 4) for _ in range(2)])
    other = made("attention", shape)
    other.load_state_dict(pruned.state_dict())
    x_BLF = torch.randn(2, L, F)
    torch.testing.assert_close(other(x_BLF).mean_BHC, pruned(x_BLF).mean_BHC, rtol=0, atol=0)
    other.train()
    other(x_BLF).mean_BHC.square().sum().backward()
    assert other.attention(1).query.weight.grad.abs().sum() > 0
    assert other.attention(0).output.bias.grad.abs().sum() > 0


def test_constants_need_not_be_those_of_the_removed_heads_alone_and_the_rest_is_not_touched():
    whole, other = made("attention", SHAPE), made("attention", SHAPE)
    outputs_Nd = [torch.randn(5, 4) for _ in range(2)]
    remove(whole, [(0, 3)], outputs_Nd)
    kept = [0, 1, 2, 4]
    torch.testing.assert_close(whole.attention(0).output_by_head(), other.attention(0).output_by_head()[kept])
    torch.testing.assert_close(
        whole.attention(0).output.bias,
        other.attention(0).output.bias + outputs_Nd[0][3] @ other.attention(0).output_by_head()[3],
    )
    for name, parameter in whole.blocks[1].named_parameters():
        torch.testing.assert_close(parameter, dict(other.blocks[1].named_parameters())[name])


def test_an_untrained_network_takes_the_shape_and_the_slopes_of_what_is_left():
    pruned = made("attention", WAYS["alibi"])
    slopes = pruned.attention(0).relative.slope_N.clone()
    remove(pruned, [(0, 0), (0, 2), *((1, h) for h in range(5))], [torch.zeros(5, 4)] * 2)
    fresh = made("attention", WAYS["alibi"])
    shape_like(fresh, pruned)
    assert heads_by_layer(fresh) == [3, 0]
    bias = fresh.attention(0).relative
    assert isinstance(bias, Alibi)
    torch.testing.assert_close(bias.slope_N, slopes[[1, 3, 4]])
    fresh(torch.randn(2, L, F))
