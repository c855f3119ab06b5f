"""Multi-head attention by hand, against torch's own, and its masks, edits and captures."""

import math

import pytest
import torch
from torch import Tensor, nn

from forecaster.errors import ConfigError
from forecaster.networks.attention import Edit, MultiHeadAttention, causal_mask, explicit, rotate, weights

B, T, D, N = 2, 7, 20, 5


def module(*, causal: bool = False, rotary: bool = False, dtype: torch.dtype = torch.float32) -> MultiHeadAttention:
    torch.manual_seed(0)
    return MultiHeadAttention(D, N, causal=causal, rotary=rotary).to(dtype).eval()


def bars(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(B, T, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)


def test_softmax_weights_of_two_heads_by_hand() -> None:
    for scores, expected in (
        ((0.2, 0.1, 3.0), (0.0545, 0.0493, 0.8962)),
        ((2.5, 0.3, 0.2), (0.8257, 0.0915, 0.0828)),
    ):
        q = torch.ones(1, 1, 1, 1)
        k = torch.tensor(scores).reshape(1, 1, 3, 1)
        assert weights(q, k).flatten().tolist() == pytest.approx(expected, abs=1e-4)


def test_two_heads_of_width_two_by_hand() -> None:
    q = torch.tensor([[1.0, 0.0]]).reshape(1, 1, 1, 2)
    k = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).reshape(1, 1, 2, 2)
    first, attn = explicit(q, k, torch.tensor([[2.0, 0.0], [0.0, 2.0]]).reshape(1, 1, 2, 2))
    assert attn.flatten().tolist() == pytest.approx([0.670, 0.330], abs=1e-3)
    second, _ = explicit(q, k, torch.ones(1, 1, 2, 2))
    joined = torch.cat((first.flatten(), second.flatten()))
    assert joined.tolist() == pytest.approx([1.340, 0.660, 1, 1], abs=1e-3)
    w_o = torch.tensor([[1.0, 0, 1, 0], [0, 1, 0, 1], [1, 0, 0, 1], [0, 1, 1, 0]])
    assert (joined @ w_o).tolist() == pytest.approx([2.340, 1.660, 2.340, 1.660], abs=1e-3)


@pytest.mark.parametrize("heads", [1, 8, 32, 64])
def test_parameters_do_not_depend_on_the_number_of_heads(heads: int) -> None:
    matrices = [p.numel() for p in MultiHeadAttention(512, heads).parameters() if p.dim() == 2]
    assert sum(matrices) == 1_048_576


def test_heads_that_do_not_divide_the_width_are_refused_by_both_numbers() -> None:
    with pytest.raises(ConfigError, match="3 heads do not divide width 64"):
        MultiHeadAttention(64, 3)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("causal", [False, True])
def test_output_equals_torch_multihead_attention_with_the_same_weights(
    causal: bool, dtype: torch.dtype, tolerance: float
) -> None:
    ours, x = module(causal=causal, dtype=dtype), bars(dtype)
    theirs = nn.MultiheadAttention(D, N, batch_first=True, dtype=dtype).eval()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([m.weight for m in (ours.query, ours.key, ours.value)]))
        theirs.in_proj_bias.copy_(torch.cat([m.bias for m in (ours.query, ours.key, ours.value)]))
        theirs.out_proj.weight.copy_(ours.output.weight)
        theirs.out_proj.bias.copy_(ours.output.bias)
    mask = ~causal_mask(range(T), T) if causal else None  # torch's True means: may not look
    expected, attn = theirs(x, x, x, attn_mask=mask, need_weights=True, average_attn_weights=False)
    out, captured = ours(x, capture=range(T))
    assert captured is not None
    torch.testing.assert_close(out, expected, atol=tolerance, rtol=0)
    torch.testing.assert_close(captured.attn_BNTS, attn, atol=tolerance, rtol=0)


def test_splitting_one_projection_equals_separate_projections_of_each_head() -> None:
    attention, x = module(), bars()
    d = D // N
    heads = []
    for h in range(N):
        rows = slice(h * d, (h + 1) * d)
        q, k, v = (
            nn.functional.linear(x, m.weight[rows], m.bias[rows])
            for m in (attention.query, attention.key, attention.value)
        )
        heads.append((q @ k.mT / math.sqrt(d)).softmax(-1) @ v)
    out, _ = attention(x)
    torch.testing.assert_close(out, attention.output(torch.cat(heads, -1)), atol=1e-6, rtol=0)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rotary", [False, True])
def test_fused_output_equals_captured_weights_times_values(causal: bool, rotary: bool) -> None:
    attention, x = module(causal=causal, rotary=rotary), bars()
    plain, nothing = attention(x)
    out, captured = attention(x, capture=range(T))
    assert nothing is None
    assert captured is not None
    assert torch.equal(plain, out)
    assert captured.attn_BNTS.shape == (B, N, T, T)
    torch.testing.assert_close(captured.attn_BNTS.sum(-1), torch.ones(B, N, T), atol=1e-6, rtol=0)
    torch.testing.assert_close(captured.attn_BNTS @ captured.v_BNSd, captured.z_BNTd, atol=1e-6, rtol=0)
    if causal:
        assert (captured.attn_BNTS.triu(1) == 0).all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rotary", [False, True])
def test_some_queries_alone_equal_those_rows_of_all(causal: bool, rotary: bool) -> None:
    attention, x = module(causal=causal, rotary=rotary), bars()
    full, _ = attention(x)
    part, captured = attention(x, queries=(2, 6), capture=(6,))
    torch.testing.assert_close(part, full[:, [2, 6]], atol=1e-6, rtol=0)
    assert captured is not None
    _, all_rows = attention(x, capture=(6,))
    assert all_rows is not None
    torch.testing.assert_close(captured.attn_BNTS, all_rows.attn_BNTS, atol=1e-6, rtol=0)


@pytest.mark.parametrize("rotary", [False, True])
def test_causal_attention_has_no_gradient_from_the_future(rotary: bool) -> None:
    attention = module(causal=True, rotary=rotary, dtype=torch.float64)
    x = bars(torch.float64)[:1]
    jacobian = torch.autograd.functional.jacobian(lambda x: attention(x)[0].sum(-1), x)
    reach = jacobian[0, :, 0].abs().sum(-1)  # [out bar, in bar]
    assert (reach.triu(1) == 0).all()
    assert (reach.tril() > 0).sum() == T * (T + 1) / 2


def test_output_by_head_adds_up_to_the_output() -> None:
    attention, x = module(), bars()
    out, captured = attention(x, capture=(0,))
    assert captured is not None
    summed = torch.einsum("bntd,ndD->btD", captured.z_BNTd, attention.output_by_head()) + attention.output.bias
    torch.testing.assert_close(out, summed, atol=1e-6, rtol=0)


def test_a_zeroed_head_equals_zeroed_columns_of_the_output_projection() -> None:
    attention, x = module(), bars()

    def zero(z_BNTd: Tensor) -> Tensor:
        z_BNTd = z_BNTd.clone()
        z_BNTd[:, 3] = 0
        return z_BNTd

    edited, _ = attention(x, edit=Edit(z=zero))
    with torch.no_grad():
        attention.output.weight[:, 3 * (D // N) : 4 * (D // N)] = 0
    torch.testing.assert_close(edited, attention(x)[0], atol=1e-6, rtol=0)


def test_an_edit_that_changes_nothing_changes_nothing_at_all() -> None:
    attention, x = module(), bars()
    edited, _ = attention(x, edit=Edit(v=lambda v: v, z=lambda z: z))
    assert torch.equal(edited, attention(x)[0])


def test_edited_values_reach_the_output_through_unchanged_weights() -> None:
    attention, x = module(), bars()
    _, before = attention(x, capture=range(T))
    _, after = attention(x, edit=Edit(v=torch.zeros_like), capture=range(T))
    assert before is not None
    assert after is not None
    assert torch.equal(before.attn_BNTS, after.attn_BNTS)
    assert (after.z_BNTd == 0).all()


def test_attention_dropout_acts_in_training_only() -> None:
    attention = MultiHeadAttention(D, N, dropout=0.5)
    x = bars()
    attention.eval()
    assert torch.equal(attention(x)[0], attention(x)[0])
    attention.train()
    assert not torch.equal(attention(x)[0], attention(x)[0])


def test_rotary_scores_depend_on_the_lag_alone() -> None:
    q, k = (torch.randn(1, 1, 1, 6, dtype=torch.float64) for _ in range(2))
    scores = [float((rotate(q, (t,)) @ rotate(k, (t - 3,)).mT).squeeze()) for t in (3, 10, 50)]
    assert scores == pytest.approx([scores[0]] * 3)
    assert torch.equal(rotate(q[..., :1], (5,)), q[..., :1])
    odd = rotate(q[..., :5], (5,))
    assert torch.equal(odd[..., 4], q[..., 4])
    torch.testing.assert_close(odd.norm(), q[..., :5].norm())
