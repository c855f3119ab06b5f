"""Single heads of an attention module: their views, edits, gates, order, and what is left when some are removed."""

import copy
import math
import pickle
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from forecaster.errors import ConfigError
from forecaster.networks.attention import Cache, Edit, MultiHeadAttention, explicit, fused
from forecaster.networks.positions import Alibi, LagBias

B, T, S, D, N = 2, 7, 9, 20, 5
d = D // N
PRECISION = [pytest.param(torch.float32, 1e-5, id="float32"), pytest.param(torch.float64, 1e-10, id="float64")]
RELATIVE = ["none", "alibi", "lag"]


def normal(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def module(relative: str = "none", dtype: torch.dtype = torch.float32, seed: int = 0, **options: Any) -> Any:
    bias = {"alibi": Alibi(N), "lag": LagBias(N, past=5, ahead=3)}.get(relative)
    torch.manual_seed(seed)
    made = MultiHeadAttention(D, N, relative=bias, **options)
    if isinstance(bias, LagBias):
        nn.init.normal_(bias.table_NR)
    return made.to(dtype).eval()


def gate(gates: Sequence[float]) -> Edit:
    return Edit(z=lambda z: z * torch.tensor(gates, dtype=z.dtype)[:, None, None])


def test_views_by_head_are_the_parameters_and_make_each_heads_output() -> None:
    attention, x = module(bias=False, dtype=torch.float64), normal(B, T, D, dtype=torch.float64)
    w_q, w_k, w_v = attention.inputs_by_head()
    w_o = attention.output_by_head()
    assert [w.shape for w in (w_q, w_k, w_v, w_o)] == [(N, D, d)] * 3 + [(N, d, D)]
    layers = (attention.query, attention.key, attention.value, attention.output)
    for view, layer in zip((w_q, w_k, w_v, w_o), layers, strict=True):
        assert view.untyped_storage().data_ptr() == layer.weight.untyped_storage().data_ptr()
    out = sum(((x @ w_q[h]) @ (x @ w_k[h]).mT / math.sqrt(d)).softmax(-1) @ (x @ w_v[h]) @ w_o[h] for h in range(N))
    torch.testing.assert_close(attention(x)[0], out, atol=1e-10, rtol=0)


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISION)
@pytest.mark.parametrize("attend", [explicit, fused])
def test_a_gate_of_zero_equals_zeroed_columns_of_the_output_projection(
    attend: Any, dtype: torch.dtype, tolerance: float
) -> None:
    attention, x = module(dtype=dtype, attend=attend), normal(B, T, D, dtype=dtype)
    gated, _ = attention(x, edit=gate([1, 1, 1, 0, 1]))
    half, _ = attention(x, edit=gate([1, 1, 1, 0.5, 1]))
    whole, _ = attention(x)
    with torch.no_grad():
        attention.output.weight[:, 3 * d : 4 * d] = 0
    torch.testing.assert_close(gated, attention(x)[0], atol=tolerance, rtol=0)
    torch.testing.assert_close(half, (gated + whole) / 2, atol=tolerance, rtol=0)


def test_an_edit_that_changes_nothing_changes_nothing_at_all() -> None:
    attention, x = module(), normal(B, T, D)
    edited, _ = attention(x, edit=Edit(v=lambda v: v, z=lambda z: z))
    assert torch.equal(edited, attention(x)[0])


def test_edited_values_reach_the_output_through_unchanged_weights() -> None:
    attention, x = module(), normal(B, T, D)
    _, before = attention(x, capture=range(T))
    _, after = attention(x, edit=Edit(v=torch.zeros_like), capture=range(T))
    assert torch.equal(before.attn_BNTS, after.attn_BNTS)
    assert (after.z_BNTd == 0).all()


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISION)
def test_permuting_heads_with_their_rows_of_w_o_changes_nothing(dtype: torch.dtype, tolerance: float) -> None:
    attention, x, order = module(dtype=dtype), normal(B, T, D, dtype=dtype), [3, 0, 4, 1, 2]
    permuted = copy.deepcopy(attention)
    rows = torch.arange(D).reshape(N, d)[order].flatten()
    with torch.no_grad():
        for name in ("query", "key", "value"):
            for parameter, of in zip(
                getattr(permuted, name).parameters(), getattr(attention, name).parameters(), strict=True
            ):
                parameter.copy_(of[rows])
        permuted.output.weight.copy_(attention.output.weight[:, rows])
    out, captured = permuted(x, capture=range(T))
    expected, before = attention(x, capture=range(T))
    torch.testing.assert_close(out, expected, atol=tolerance, rtol=0)
    torch.testing.assert_close(captured.attn_BNTS, before.attn_BNTS[:, order], atol=tolerance, rtol=0)
    assert not torch.equal(captured.attn_BNTS, before.attn_BNTS)


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISION)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("relative", RELATIVE)
def test_removed_heads_equal_the_same_heads_gated_and_can_be_removed_again(
    relative: str, bias: bool, causal: bool, dtype: torch.dtype, tolerance: float
) -> None:
    attention, x = module(relative, dtype, bias=bias, causal=causal, rotary=True), normal(B, T, D, dtype=dtype)
    pruned = copy.deepcopy(attention)
    for removed, gates, left in (([3, 1], [1, 0, 1, 0, 1], [0, 2, 4]), ([1], [1, 0, 0, 0, 1], [0, 4])):
        pruned.prune(removed)
        expected, before = attention(x, edit=gate(gates), capture=range(T))
        out, captured = pruned(x, capture=range(T))
        torch.testing.assert_close(out, expected, atol=tolerance, rtol=0)
        torch.testing.assert_close(captured.attn_BNTS, before.attn_BNTS[:, left], atol=tolerance, rtol=0)
        torch.testing.assert_close(pruned.output_by_head(), attention.output_by_head()[left])
        n = len(left)
        assert pruned.heads == n
        assert pruned.query.weight.shape == (n * d, D)
        assert pruned.output.weight.shape == (D, n * d)
        cache = Cache()
        pruned(x, cache=cache)
        assert cache.numbers == 2 * n * d * B * T
    out.sum().backward()
    assert all(parameter.grad is not None for parameter in pruned.parameters())


def test_without_any_head_the_output_is_the_bias_of_w_o() -> None:
    attention, x = module("alibi"), normal(B, T, D)
    attention.prune(range(N))
    out, captured = attention(x, capture=(3,))
    assert torch.equal(out, attention.output.bias.expand(B, T, D))
    assert captured.attn_BNTS.shape == (B, 0, 1, T)
    out.sum().backward()


@pytest.mark.parametrize("relative", RELATIVE)
def test_a_pruned_state_shapes_the_module_that_loads_it(relative: str) -> None:
    pruned, x = nn.Sequential(module(relative)), normal(B, T, D)
    pruned[0].prune([0, 3])
    state = pickle.loads(pickle.dumps(pruned.state_dict()))
    fresh = copy.deepcopy(nn.Sequential(module(relative, seed=9)))  # as moving averages copy a network
    fresh.load_state_dict(state)
    assert torch.equal(fresh[0](x)[0], pruned[0](x)[0])
    fresh[0].prune([1])
    pruned[0].prune([1])
    assert torch.equal(fresh[0](x)[0], pruned[0](x)[0])
    with pytest.raises(RuntimeError, match="size mismatch"):
        fresh.load_state_dict(state)  # heads removed do not come back


def test_loading_and_removing_nothing_leave_the_parameters_that_an_optimizer_holds() -> None:
    attention = module()
    held = list(attention.parameters())
    attention.load_state_dict(module(seed=9).state_dict())
    attention.prune([])
    assert all(one is other for one, other in zip(held, attention.parameters(), strict=True))
    for rows, columns in ((12, 12), (10, D)):  # another width, or half a head: an error, not a pruned module
        with pytest.raises(RuntimeError, match="size mismatch"):
            attention.load_state_dict({**attention.state_dict(), "query.weight": torch.zeros(rows, columns)})
    assert attention.heads == N


def test_removing_a_head_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"heads \[-1, 5\] can't be removed: a layer has 5, numbered from 0"):
        module().prune([1, 5, -1])
