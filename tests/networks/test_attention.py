"""Multi-head attention against a plain loop and torch's own: masks, cached steps, captures, nothing of the future."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from forecaster.errors import ConfigError
from forecaster.networks.attention import Cache, Edit, MultiHeadAttention, causal_mask, explicit, fused, weights
from forecaster.networks.positions import Alibi, LagBias

B, T, S, D, N = 2, 7, 9, 20, 5
d = D // N
PRECISION = [pytest.param(torch.float32, 1e-5, id="float32"), pytest.param(torch.float64, 1e-10, id="float64")]
ATTEND = [explicit, fused]
INSIDE = ["none", "rotary", "alibi", "lag"]  # positions that act inside attention


def normal(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def mask_of(kind: str) -> Tensor | None:
    """True = may look; row 2 of every `blind` one may look nowhere."""
    if kind == "none":
        return None
    shape = (T, S) if "shared" in kind else (B, T, S)
    mask = torch.rand(*shape, generator=torch.Generator().manual_seed(2)) > 0.5
    mask[..., 0] = True
    if "blind" in kind:
        mask[..., 2, :] = False
    return mask


def module(positions: str = "none", dtype: torch.dtype = torch.float32, **options: Any) -> MultiHeadAttention:
    relative = {"alibi": Alibi(N), "lag": LagBias(N, past=5, ahead=3)}.get(positions)
    torch.manual_seed(0)
    made = MultiHeadAttention(D, N, rotary=positions == "rotary", relative=relative, **options)
    if isinstance(relative, LagBias):
        nn.init.normal_(relative.table_NR)
    return made.to(dtype).eval()


@pytest.mark.parametrize("attend", ATTEND)
@pytest.mark.parametrize("kind", ["none", "shared", "each", "shared blind", "each blind"])
def test_output_equals_a_loop_over_batch_heads_queries_and_allowed_keys(attend: Any, kind: str) -> None:
    q, k, v = (normal(B, N, n, d, seed=n, dtype=torch.float64) for n in (T, S, S + 1))
    v, mask, bias = v[:, :, :S], mask_of(kind), normal(N, T, S, dtype=torch.float64)
    expected = torch.zeros(B, N, T, d, dtype=torch.float64)
    for b, h, t in itertools.product(range(B), range(N), range(T)):
        row = torch.ones(S) if mask is None else mask[t] if mask.dim() == 2 else mask[b, t]
        allowed = [s for s in range(S) if row[s]]
        fits = [math.exp(float(q[b, h, t] @ k[b, h, s]) / math.sqrt(d) + float(bias[h, t, s])) for s in allowed]
        for fit, s in zip(fits, allowed, strict=True):
            expected[b, h, t] += fit / sum(fits) * v[b, h, s]
    torch.testing.assert_close(attend(q, k, v, mask, bias), expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISION)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("kind", ["none", "shared", "each", "shared blind", "each blind"])
def test_fused_equals_explicit_in_values_and_gradients(
    kind: str, biased: bool, dtype: torch.dtype, tolerance: float
) -> None:
    inputs = [normal(B, N, n, d, seed=n, dtype=dtype).requires_grad_() for n in (T, S, S)]
    bias = normal(N, T, S, seed=3, dtype=dtype).requires_grad_() if biased else None
    towards, wanted = normal(B, N, T, d, seed=4, dtype=dtype), [*inputs, *([] if bias is None else [bias])]
    results = [attend(*inputs, mask_of(kind), bias) for attend in ATTEND]
    torch.testing.assert_close(*results, atol=tolerance, rtol=0)
    gradients = [torch.autograd.grad((z * towards).sum(), wanted) for z in results]
    for one, other in zip(*gradients, strict=True):
        assert one.isfinite().all()
        torch.testing.assert_close(one, other, atol=tolerance, rtol=0)
    if "blind" in kind:
        for z, gradient in zip(results, gradients, strict=True):
            assert (z[:, :, 2] == 0).all()
            assert (gradient[0][:, :, 2] == 0).all()
        assert (weights(*inputs[:2], mask_of(kind), bias)[:, :, 2] == 0).all()


@pytest.mark.parametrize("attend", ATTEND)
def test_when_all_bars_of_a_window_are_padding_then_its_output_is_the_bias_of_w_o(attend: Any) -> None:
    attention, x = module("lag", attend=attend), normal(B, T, D).requires_grad_()
    present = torch.tensor([[True] * 4 + [False] * 3, [False] * 7])
    with torch.autograd.set_detect_anomaly(True):  # no NaN on the way back either
        out, captured = attention(x, present_BS=present, capture=range(T))
        (out.square().sum() + captured.attn_BNTS[:, :, 0].square().sum()).backward()
    assert torch.equal(out[1], attention.output.bias.expand(T, D))
    assert (captured.attn_BNTS[1] == 0).all()
    assert (captured.attn_BNTS[0, :, :, 4:] == 0).all()
    assert x.grad is not None
    assert (x.grad[1] == 0).all()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in attention.parameters())


@pytest.mark.parametrize("attend", ATTEND)
@pytest.mark.parametrize("kind", ["shared", "each"])
def test_a_query_looks_where_mask_causality_and_padding_all_let_it(kind: str, attend: Any) -> None:
    attention, x = module(causal=True, attend=attend), normal(B, T, D)
    mask, present = mask_of(kind)[..., :T], torch.rand(B, T, generator=torch.Generator().manual_seed(3)) > 0.3
    _, captured = attention(x, mask=mask, present_BS=present, capture=range(T))
    for b, t, s in itertools.product(range(B), range(T), range(T)):
        allowed = bool(mask.expand(B, T, T)[b, t, s]) and s <= t and bool(present[b, s])
        assert ((captured.attn_BNTS[b, :, t, s] > 0) == allowed).all()
    torch.testing.assert_close(captured.attn_BNTS @ captured.v_BNSd, captured.z_BNTd, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISION)
@pytest.mark.parametrize("attend", ATTEND)
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", ["self", "causal", "cross"])
def test_output_and_weights_equal_torch_multihead_attention_with_the_same_weights(
    kind: str, padded: bool, attend: Any, dtype: torch.dtype, tolerance: float
) -> None:
    ours, x = module(dtype=dtype, causal=kind == "causal", attend=attend), normal(B, T, D, dtype=dtype)
    memory = normal(B, S, D, seed=5, dtype=dtype) if kind == "cross" else None
    theirs = nn.MultiheadAttention(D, N, batch_first=True, dtype=dtype).eval()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([m.weight for m in (ours.query, ours.key, ours.value)]))
        theirs.in_proj_bias.copy_(torch.cat([m.bias for m in (ours.query, ours.key, ours.value)]))
        theirs.out_proj.load_state_dict(ours.output.state_dict())
    keys = x if memory is None else memory
    present = torch.ones(B, keys.shape[1], dtype=torch.bool)
    if padded:
        present[0, -2:] = False
    expected, attn = theirs(
        x,
        keys,
        keys,
        attn_mask=torch.ones(T, T, dtype=torch.bool).triu(1) if kind == "causal" else None,  # their True: may not
        key_padding_mask=~present if padded else None,
        average_attn_weights=False,
    )
    out, captured = ours(x, memory, present_BS=present if padded else None, capture=range(T))
    torch.testing.assert_close(out, expected, atol=tolerance, rtol=0)
    torch.testing.assert_close(captured.attn_BNTS, attn, atol=tolerance, rtol=0)


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISION)
@pytest.mark.parametrize("attend", ATTEND)
@pytest.mark.parametrize("steps", [(1,) * T, (3, 1, 2, 1)])
@pytest.mark.parametrize("positions", INSIDE)
def test_decoding_with_a_cache_equals_the_full_computation(
    positions: str, steps: tuple[int, ...], attend: Any, dtype: torch.dtype, tolerance: float
) -> None:
    attention, x, cache = module(positions, dtype, causal=True, attend=attend), normal(B, T, D, dtype=dtype), Cache()
    slots = normal(T, d, seed=6, dtype=dtype)
    edit = Edit(v=lambda v: v + slots[: v.shape[2]])  # an edit by slot sees all values, the cached ones unedited
    full, whole = attention(x, edit=edit, capture=range(T))
    parts, seen = [], torch.zeros(B, N, T, T, dtype=dtype)
    for rows in torch.arange(T).split(list(steps)):
        out, captured = attention(x[:, rows], cache=cache, edit=edit, capture=range(len(rows)))
        seen[:, :, rows, : cache.length] = captured.attn_BNTS
        parts.append(out)
    torch.testing.assert_close(torch.cat(parts, 1), full, atol=tolerance, rtol=0)
    torch.testing.assert_close(seen, whole.attn_BNTS, atol=tolerance, rtol=0)
    assert cache.length == T


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISION)
@pytest.mark.parametrize("positions", INSIDE)
def test_cached_cross_attention_computes_the_memory_once_and_equals_the_full_computation(
    positions: str, dtype: torch.dtype, tolerance: float
) -> None:
    attention, cache = module(positions, dtype), Cache()
    x, memory, present = normal(B, T, D, dtype=dtype), normal(B, S, D, seed=5, dtype=dtype), torch.rand(B, S) > 0.3
    full, _ = attention(x, memory, start=S, present_BS=present)
    step, _ = attention(x[:, :1], memory, start=S, cache=cache, present_BS=present)
    steps = [step]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention.key, "forward", None)  # not called again
        steps += [
            attention(x[:, t : t + 1], memory, start=S + t, cache=cache, present_BS=present)[0] for t in range(1, T)
        ]
    torch.testing.assert_close(torch.cat(steps, 1), full, atol=tolerance, rtol=0)
    assert cache.length == S


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISION)
@pytest.mark.parametrize("positions", INSIDE)
def test_cross_attention_equals_self_attention_over_both_sequences_that_looks_at_the_first_alone(
    positions: str, dtype: torch.dtype, tolerance: float
) -> None:
    attention, x, memory = module(positions, dtype), normal(B, T, D, dtype=dtype), normal(B, S, D, seed=5, dtype=dtype)
    first = torch.arange(S + T) < S
    both, _ = attention(torch.cat((memory, x), 1), mask=first.expand(S + T, -1), queries=range(S, S + T))
    torch.testing.assert_close(attention(x, memory, start=S)[0], both, atol=tolerance, rtol=0)


@pytest.mark.parametrize("attend", ATTEND)
@pytest.mark.parametrize("capture", [None, range(T)])
@pytest.mark.parametrize("positions", INSIDE)
def test_causal_attention_has_no_gradient_from_the_future(positions: str, capture: range | None, attend: Any) -> None:
    attention, x = module(positions, torch.float64, causal=True, attend=attend), normal(1, T, D, dtype=torch.float64)

    def reach(of: Callable[[Any, Any], Tensor]) -> Tensor:
        jacobian = torch.autograd.functional.jacobian(lambda x: of(*attention(x, capture=capture)), x)
        return jacobian[..., 0, :, :].abs().sum(-1).reshape(T, -1, T).sum(1)  # [out bar, in bar]

    reached = [reach(lambda out, _: out.sum(-1)[0])]
    if capture is not None:
        reached += [
            reach(lambda _, record: record.z_BNTd[0].transpose(0, 1)),
            reach(lambda _, record: record.attn_BNTS[0].transpose(0, 1)),
        ]
    for each in reached:
        assert (each.triu(1) == 0).all()
    assert (reached[0].tril() > 0).sum() == T * (T + 1) / 2


@pytest.mark.parametrize("attend", ATTEND)
@pytest.mark.parametrize("kind", ["self", "causal", "cross"])
@pytest.mark.parametrize("positions", INSIDE)
def test_some_queries_alone_equal_those_rows_of_all(positions: str, kind: str, attend: Any) -> None:
    attention, x = module(positions, causal=kind == "causal", attend=attend), normal(B, T, D)
    memory = normal(B, S, D, seed=5) if kind == "cross" else None
    keys = T if memory is None else S
    mask = torch.rand(B, T, keys, generator=torch.Generator().manual_seed(2)) > 0.4
    full, all_rows = attention(x, memory, mask=mask, start=S, capture=(6, 3))
    part, captured = attention(x, memory, mask=mask, start=S, queries=(3, 2, 6), capture=(6, 3))
    torch.testing.assert_close(part, full[:, [3, 2, 6]], atol=1e-6, rtol=0)
    torch.testing.assert_close(captured.attn_BNTS, all_rows.attn_BNTS, atol=1e-6, rtol=0)
    assert captured.queries == (6, 3)
    with pytest.raises(ValueError, match="not in"):
        attention(x, queries=(3, 2, 6), capture=(4,))


@pytest.mark.parametrize("attend", ATTEND)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("positions", INSIDE)
def test_capturing_changes_no_bit_and_what_is_captured_makes_the_output(
    positions: str, causal: bool, attend: Any
) -> None:
    attention, x = module(positions, causal=causal, attend=attend), normal(B, T, D)
    plain, nothing = attention(x)
    out, captured = attention(x, capture=range(T))
    assert nothing is None
    assert torch.equal(plain, out)
    torch.testing.assert_close(captured.attn_BNTS.sum(-1), torch.ones(B, N, T), atol=1e-6, rtol=0)
    torch.testing.assert_close(captured.attn_BNTS @ captured.v_BNSd, captured.z_BNTd, atol=1e-6, rtol=0)
    summed = torch.einsum("bntd,ndD->btD", captured.z_BNTd, attention.output_by_head()) + attention.output.bias
    torch.testing.assert_close(out, summed, atol=1e-6, rtol=0)
    if causal:
        assert (captured.attn_BNTS.triu(1) == 0).all()


@pytest.mark.parametrize("attend", ATTEND)
def test_dropout_zeroes_weights_and_scales_the_rest_in_training_only(attend: Any) -> None:
    q, k = normal(B, N, T, S), normal(B, N, S, S, seed=2)
    for mask in (None, torch.ones(T, S, dtype=torch.bool)):
        z, attn = attend(q, k, torch.eye(S).expand(B, N, S, S), mask, dropout=0.25), weights(q, k)
        kept = z != 0
        assert 0.6 < kept.double().mean() < 0.9
        torch.testing.assert_close(z[kept], attn[kept] / 0.75)
    attention, x = module(dropout=0.5, attend=attend), normal(B, T, D)
    assert torch.equal(attention(x)[0], module(attend=attend)(x)[0])
    attention.train()
    assert not torch.equal(attention(x)[0], attention(x)[0])


def test_heads_that_do_not_divide_the_width_are_refused_by_both_numbers() -> None:
    with pytest.raises(ConfigError, match="3 heads do not divide width 64"):
        MultiHeadAttention(64, 3)


def test_the_causal_mask_lets_a_query_see_its_own_position_and_those_before() -> None:
    mask = causal_mask(torch.tensor([1, 0, 3]), torch.arange(4))
    assert mask.tolist() == [[True, True, False, False], [True, False, False, False], [True] * 4]
