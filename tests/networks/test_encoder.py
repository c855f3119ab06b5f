"""The encoder: shapes, ordered quantiles, capture and edits by layer, what the last layer leaves out."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from forecaster.config import POSITIONS
from forecaster.networks.attention import Edit
from forecaster.networks.encoder import Encoder, linear_inputs
from forecaster.networks.quantiles import MEDIAN, QUANTILES
from forecaster.networks.readout import Readout, ordered

B, L, F, D, N, H, C = 2, 7, 3, 20, 5, 4, 2


def encoder(**changes: Any) -> Encoder:
    torch.manual_seed(0)
    settings: dict[str, Any] = {
        "features": F,
        "length": L,
        "width": D,
        "heads": N,
        "layers": 3,
        "feedforward": 11,
        "dropout": 0.1,
        "attention_dropout": 0.0,
        "causal": False,
        "positions": "learned",
        "skip": True,
        "horizon": H,
        "targets": C,
    }
    return Encoder(**{**settings, **changes}).eval()


def window() -> Tensor:
    return torch.randn(B, L, F, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("skip", [False, True])
def test_forecast_has_its_shape_and_ordered_quantiles(positions: str, causal: bool, skip: bool) -> None:
    out = encoder(positions=positions, causal=causal, skip=skip)(window())
    assert out.quantiles_BHCQ.shape == (B, H, C, len(QUANTILES))
    assert out.mean_BHC.shape == (B, H, C)
    assert (out.quantiles_BHCQ.diff(dim=-1) > 0).all()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-50, 50, width=32), min_size=7, max_size=7))
def test_quantiles_never_cross_whatever_the_raw_numbers(raw: list[float]) -> None:
    quantiles = ordered(torch.tensor(raw))
    assert (quantiles.diff() >= 0).all()
    assert quantiles[MEDIAN] == raw[MEDIAN]


def test_the_skip_moves_mean_and_quantiles_by_the_same_linear_amount() -> None:
    torch.manual_seed(0)
    readout = Readout(D, 3 * F, H, C)
    assert readout.skip is not None
    torch.nn.init.normal_(readout.skip.weight)
    last, first, second = torch.randn(B, D), torch.randn(B, 3 * F), torch.randn(B, 3 * F)
    q1, m1 = readout(last, first)
    q2, m2 = readout(last, second)
    moved = readout.skip(second - first).reshape(B, H, C)
    torch.testing.assert_close(m2 - m1, moved)
    torch.testing.assert_close(q2 - q1, moved[..., None].expand_as(q1))


def test_linear_inputs_are_last_value_week_and_month_means() -> None:
    x = torch.randn(B, 30, F)
    expected = torch.cat((x[:, 29], x[:, 25:].mean(1), x[:, 8:].mean(1)), -1)
    torch.testing.assert_close(linear_inputs(x), expected)
    short = x[:, :3]
    torch.testing.assert_close(linear_inputs(short)[:, -F:], short.mean(1))


def test_the_last_layers_single_query_equals_the_full_computation() -> None:
    network, x = encoder(), window()
    out = network(x, capture={2: (L - 1,)})
    everything = network.dropout(network.embed(x) + network.position)
    for block in network.blocks:
        everything, _ = block(everything, None, None, None)
    quantiles, mean = network.readout(network.norm(everything[:, -1]), linear_inputs(x))
    torch.testing.assert_close(out.mean_BHC, mean)
    torch.testing.assert_close(out.quantiles_BHCQ, quantiles)
    assert network.computed(2) == (L - 1,)
    assert network.computed(1) == tuple(range(L))


def test_capture_records_the_layers_asked_for_and_changes_nothing() -> None:
    network, x = encoder(), window()
    plain = network(x)
    out = network(x, capture={0: (3, L - 1), 2: (L - 1,)})
    assert torch.equal(plain.mean_BHC, out.mean_BHC)
    assert set(out.captured) == {0, 2}
    assert out.captured[0].attn_BNTS.shape == (B, N, 2, L)
    assert out.captured[0].z_BNTd.shape == (B, N, L, D // N)
    assert out.captured[2].z_BNTd.shape == (B, N, 1, D // N)


def test_edits_act_on_their_layer_alone_and_identity_is_exactly_nothing() -> None:
    network, x = encoder(), window()
    plain = network(x, capture={0: (L - 1,), 1: (L - 1,)})
    same = network(x, edits={layer: Edit(z=lambda z: z) for layer in range(3)})
    assert torch.equal(plain.quantiles_BHCQ, same.quantiles_BHCQ)
    cut = network(x, edits={1: Edit(z=torch.zeros_like)}, capture={0: (L - 1,), 1: (L - 1,)})
    assert torch.equal(plain.captured[0].z_BNTd, cut.captured[0].z_BNTd)
    assert (cut.captured[1].z_BNTd == 0).all()
    assert not torch.equal(plain.mean_BHC, cut.mean_BHC)


@pytest.mark.parametrize("heads", [1, 2, 4, 5, 10, 20])
def test_parameters_are_equal_whatever_the_number_of_heads(heads: int) -> None:
    assert sum(p.numel() for p in encoder(heads=heads).parameters()) == sum(p.numel() for p in encoder().parameters())
    assert encoder(heads=heads)(window()).mean_BHC.shape == (B, H, C)


def test_a_causal_bar_does_not_see_what_follows_it() -> None:
    network, x = encoder(causal=True), window()
    changed = x.clone()
    changed[:, 4:] += 10.0
    before = network(x, capture={1: range(L)}).captured[1]
    after = network(changed, capture={1: range(L)}).captured[1]
    assert torch.equal(before.z_BNTd[:, :, :4], after.z_BNTd[:, :, :4])


@pytest.mark.parametrize("positions", POSITIONS)
def test_order_of_the_bars_matters_but_without_positions(positions: str) -> None:
    network = encoder(positions=positions, skip=False)
    if positions == "lag":  # it starts as no position at all
        for block in network.blocks:
            torch.nn.init.normal_(block.attention.relative.table_NR)
    x = window()
    swapped = x[:, [2, 0, 1, 3, 4, 5, 6]]
    same = torch.allclose(network(x).mean_BHC, network(swapped).mean_BHC, atol=1e-5)
    assert same == (positions == "none")


@pytest.mark.parametrize("pooling", ["mean", "attention"])
def test_pooled_readout_reads_every_bar_and_computes_every_query(pooling: str) -> None:
    network = encoder(pooling=pooling, skip=False, positions="none", layers=1)
    assert network.computed(0) == tuple(range(L))
    assert encoder(layers=1).computed(0) == (L - 1,)
    x = window()
    # Without positions a pool of all bars does not see their order at all.
    torch.testing.assert_close(network(x).mean_BHC, network(x.flip(1)).mean_BHC, atol=1e-5, rtol=0)
    if pooling == "attention":  # its query starts at zero: the mean
        plain = encoder(pooling="mean", skip=False, positions="none", layers=1)
        torch.testing.assert_close(network(x).mean_BHC, plain(x).mean_BHC)
        torch.nn.init.normal_(network.pool, std=3.0)
        assert not torch.allclose(network(x).mean_BHC, plain(x).mean_BHC, atol=1e-3)


def test_layers_have_biases_of_their_own() -> None:
    network = encoder(positions="lag")
    tables = {id(block.attention.relative.table_NR) for block in network.blocks}
    assert len(tables) == 3
