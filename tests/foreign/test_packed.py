"""nn.MultiheadAttention: what is recorded is what need_weights=True gives, whatever the module is asked for."""

import math

import pytest
import torch
from torch import Tensor, nn

from forecaster.errors import ConfigError
from forecaster.foreign.calls import Call, Kernel, attention
from forecaster.foreign.passes import intercepted

B, T, S, D, N = 2, 7, 7, 20, 5
CAUSAL = nn.Transformer.generate_square_subsequent_mask(T)
BLOCKED = torch.rand(T, S, generator=torch.Generator().manual_seed(1)) < 0.3
BLOCKED[:, 2] = False  # a key for each query
PADDED = torch.zeros(B, S, dtype=torch.bool)
PADDED[1, 5:] = True
MASKS = {
    "no mask": {},
    "causal": {"attn_mask": CAUSAL},
    "causal by hint": {"attn_mask": CAUSAL, "is_causal": True},
    "of truth values": {"attn_mask": BLOCKED},
    "by head": {"attn_mask": torch.randn(B * N, T, S, generator=torch.Generator().manual_seed(2))},
    "padding": {"key_padding_mask": PADDED},
    "both": {"attn_mask": BLOCKED, "key_padding_mask": PADDED},
}


class Heads:
    """Keeps each call's A, and edits v and z if asked to."""

    def __init__(self, v=lambda x: x, z=lambda x: x) -> None:
        self.v, self.z, self.calls, self.attention = v, z, list[Call](), list[Tensor]()

    def __call__(self, call: Call, kernel: Kernel) -> Tensor:
        self.calls.append(call)
        self.attention.append(attention(call, list(range(call.q_RNTd.shape[2]))))
        return self.z(kernel(self.v(call.v_RNSd)))


def module(**options: object) -> nn.MultiheadAttention:
    torch.manual_seed(0)
    made = nn.MultiheadAttention(D, N, **options).eval()
    for parameter in made.parameters():  # biases too
        nn.init.normal_(parameter, std=0.2)
    return made


def inputs(batch_first: bool, *widths: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    made = [torch.randn((B, T, width), generator=generator) for width in widths]
    return made if batch_first else [x.transpose(0, 1) for x in made]


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("mask", MASKS)
def test_attention_is_what_need_weights_gives_and_the_output_is_the_same(mask, batch_first, need_weights):
    attend, (x,) = module(batch_first=batch_first), inputs(batch_first, D)
    heads = Heads()
    with torch.no_grad():
        told, weights = attend(x, x, x, need_weights=True, average_attn_weights=False, **MASKS[mask])
        plain, averaged = attend(x, x, x, need_weights=need_weights, **MASKS[mask])
        with intercepted(attend, heads):
            out, given = attend(x, x, x, need_weights=need_weights, **MASKS[mask])
            _, each = attend(x, x, x, average_attn_weights=False, **MASKS[mask])
    torch.testing.assert_close(heads.attention[0], weights, rtol=0, atol=1e-6)
    torch.testing.assert_close(out, told, rtol=0, atol=1e-6)
    torch.testing.assert_close(out, plain, rtol=0, atol=1e-6)
    torch.testing.assert_close(each, weights, rtol=0, atol=1e-6)
    assert (given is None) == (averaged is None)
    if given is not None:
        torch.testing.assert_close(given, averaged, rtol=0, atol=1e-6)


def test_a_hint_that_torch_trusts_is_what_counts_and_one_without_a_mask_is_refused():
    attend, (x,) = module(batch_first=True), inputs(True, D)
    heads, open_mask = Heads(), torch.zeros(T, S)
    with torch.no_grad():
        plain, _ = attend(x, x, x, need_weights=False, attn_mask=open_mask, is_causal=True)
        with intercepted(attend, heads):
            out, _ = attend(x, x, x, need_weights=False, attn_mask=open_mask, is_causal=True)
            attend(x, x, x, attn_mask=open_mask, is_causal=True)
            with pytest.raises(ConfigError, match="is_causal needs its attn_mask too"):
                attend(x, x, x, is_causal=True)
    torch.testing.assert_close(out, plain, rtol=0, atol=1e-6)
    assert not heads.attention[0].triu(1).any()
    assert heads.attention[1].triu(1).any()


@pytest.mark.parametrize("options", [{"kdim": 6, "vdim": 9}, {"bias": False}, {"kdim": D, "vdim": 3, "bias": False}])
def test_keys_and_values_of_other_widths_and_no_bias(options):
    attend = module(batch_first=True, **options)
    query, key, value = inputs(True, D, options.get("kdim", D), options.get("vdim", D))
    heads = Heads()
    with torch.no_grad():
        plain, weights = attend(query, key[:, :4], value[:, :4], average_attn_weights=False)
        with intercepted(attend, heads):
            out, _ = attend(query, key[:, :4], value[:, :4], need_weights=False)
    torch.testing.assert_close(heads.attention[0], weights, rtol=0, atol=1e-6)
    torch.testing.assert_close(out, plain, rtol=0, atol=1e-6)
    found = heads.calls[0].matrices()
    k_NSd = key[:, None, :4] @ found.key_NDd
    bias = 0.0 if attend.in_proj_bias is None else attend.in_proj_bias[D : 2 * D].detach().reshape(N, 1, -1)
    torch.testing.assert_close(k_NSd + bias, heads.calls[0].k_RNSd)
    assert found.value_NDd.shape == (N, options.get("vdim", D), D // N)


def test_edits_of_v_and_z_act_in_the_pass_as_worked_out_by_hand():
    attend, (x,) = module(batch_first=True), inputs(True, D)

    def zeroed(head: int):
        return lambda y: y * (torch.arange(N) != head)[:, None, None]

    with torch.no_grad(), intercepted(attend, Heads(v=zeroed(1), z=zeroed(3))):
        out, _ = attend(x, x, x)
    w_q, w_k, w_v = attend.in_proj_weight.detach().chunk(3)
    b_q, b_k, b_v = attend.in_proj_bias.detach().chunk(3)
    by_hand = attend.out_proj.bias.detach().expand(B, T, D).clone()
    for head in range(N):
        own = slice(4 * head, 4 * head + 4)
        q, k, v = (x @ w[own].T + b[own] for w, b in ((w_q, b_q), (w_k, b_k), (w_v, b_v)))
        z = (q @ k.mT / math.sqrt(4)).softmax(-1) @ (v * (head != 1)) * (head != 3)
        by_hand += z @ attend.out_proj.weight.detach()[:, own].T
    torch.testing.assert_close(out, by_hand, rtol=1e-5, atol=1e-5)


# What the plain pass takes with padding.
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("padding", [None, PADDED])
def test_no_layer_takes_the_fast_path_past_the_record(norm_first, padding):
    layer = nn.TransformerEncoderLayer(D, 4, 24, batch_first=True, norm_first=norm_first)
    encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=not norm_first).eval()
    (x,) = inputs(True, D)
    heads = Heads()
    with torch.no_grad():
        plain = encoder(x, src_key_padding_mask=padding)
        with intercepted(encoder, heads):
            out = encoder(x, src_key_padding_mask=padding)
    assert [call.k_RNSd.shape for call in heads.calls] == [(B, 4, S, 5)] * 3
    seen = torch.ones(B, T, dtype=torch.bool) if padding is None else ~padding  # nested tensors leave 0 elsewhere
    torch.testing.assert_close(out[seen], plain[seen], rtol=0, atol=2e-6)


def test_a_query_that_may_look_nowhere_looks_nowhere():
    attend, (x,) = module(batch_first=True), inputs(True, D)
    mask = torch.zeros(T, S, dtype=torch.bool)
    mask[3] = True
    heads = Heads()
    with torch.no_grad(), intercepted(attend, heads):
        attend(x, x, x, attn_mask=mask, need_weights=False)
    assert not heads.attention[0][:, :, 3].any()
    torch.testing.assert_close(heads.attention[0][:, :, 4].sum(-1), torch.ones(B, N))


def test_keys_that_are_no_bars_and_windows_without_a_batch_are_refused():
    (x,) = inputs(True, D)
    for options in ({"add_bias_kv": True}, {"add_zero_attn": True}):
        attend = nn.MultiheadAttention(D, N, batch_first=True, **options).eval()
        with pytest.raises(ConfigError, match="a key that is no bar"), intercepted(attend, Heads()):
            attend(x, x, x)
    attend = module(batch_first=True)
    with pytest.raises(ConfigError, match="single windows"), intercepted(attend, Heads()):
        attend(x[0], x[0], x[0])


def test_a_kernel_called_by_a_module_unknown_is_refused():
    x = torch.randn(B, N, T, 4)
    with pytest.raises(ConfigError, match="by a module that is not known"), intercepted(nn.Identity(), Heads()):
        nn.functional.scaled_dot_product_attention(x, x, x)
