"""A call of an attention module, whatever library it is from: what the adapters hand over."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from forecaster.foreign.tokens import Tokens


@dataclass(frozen=True)
class Matrices:
    """W_Q, W_K, W_V and W_O by head."""

    query_NDd: Float[Tensor, "N _ d"]
    key_NDd: Float[Tensor, "N _ d"]
    value_NDd: Float[Tensor, "N _ d"]
    output_NdD: Float[Tensor, "N d _"]


@dataclass(frozen=True)
class Call:
    """One call in a forward pass: R sequences, one or more for each window.

    z = softmax(scale q k^T + bias) v; a bias of truth values says where a query may look. own_queries: the queries are
    the tokens themselves. tokens: which bars of a window of L the keys have, where the model says; aside: no key is a
    bar of the window.
    """

    q_RNTd: Float[Tensor, "R N T d"]
    k_RNSd: Float[Tensor, "R N S d"]
    v_RNSd: Float[Tensor, "R N S d"]
    bias: Tensor | None
    scale: float
    own_queries: bool
    matrices: Callable[[], Matrices]
    tokens: Callable[[int], Tokens] | None = None
    aside: bool = False


Kernel = Callable[[Tensor], Tensor]  # the model's own: v [R, N, S, d] -> z [R, N, T, d]
Take = Callable[[Call, Kernel], Tensor]  # what is done with a call: z, which the model goes on with


def by_head(weight: Float[Tensor, "E D"], heads: int) -> Float[Tensor, "N D d"]:
    """A projection's matrix as each head sees it."""
    return weight.detach().reshape(heads, -1, weight.shape[1]).mT


def output_by_head(weight: Float[Tensor, "D E"], heads: int) -> Float[Tensor, "N d D"]:
    """W_O as each head sees it."""
    return weight.detach().T.reshape(heads, -1, weight.shape[0])


def attention(call: Call, rows: list[int]) -> Float[Tensor, "R N Q S"]:
    """A of some queries, in float32 at least, also where the model computes in half precision.

    0 everywhere for a query that may look at no key.
    """
    full = torch.promote_types(call.q_RNTd.dtype, torch.float32)
    with torch.autocast(call.q_RNTd.device.type, enabled=False):
        scores = call.q_RNTd[:, :, rows].to(full) @ call.k_RNSd.to(full).mT * call.scale
        if call.bias is not None:
            bias = call.bias if call.bias.shape[-2] == 1 else call.bias[..., rows, :]
            scores = scores.masked_fill(~bias, -torch.inf) if bias.dtype == torch.bool else scores + bias.to(full)
        return scores.softmax(-1).masked_fill((scores == -torch.inf).all(-1, keepdim=True), 0.0)


def norm_weighted(
    attn_RNQS: Float[Tensor, "R N Q S"], v_RNSd: Float[Tensor, "R N S d"], output_NdD: Float[Tensor, "N d D"]
) -> Float[Tensor, "R N Q S"]:
    """A ||v W_O^(h)||, each row divided by its sum. Kobayashi et al. (2020), Attention is Not Only a Weight."""
    norm_RNS = (v_RNSd @ output_NdD.to(attn_RNQS)).square().sum(-1).sqrt()
    weighted = attn_RNQS * norm_RNS[:, :, None]
    return weighted / weighted.sum(-1, keepdim=True)
