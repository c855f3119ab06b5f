"""Multi-head attention: the mechanism that the probes look into.

A query asks, keys answer how well they fit, and the output is the values' average, weighted by the fit. N heads do it
side by side, each in its own d = D / N of D coordinates: N things are looked at at once for the price of one.

    Q_h = X W_Q^h    K_h = M W_K^h    V_h = M W_V^h            X [T, D] asks, M [S, D] is looked at; W^h [D, d]
    A_h = softmax(Q_h K_h^T / sqrt(d) + bias_h)                [T, S]: each row sums to 1 over the keys it may look at
    z_h = A_h V_h                                              [T, d]
    out = concat(z_1 .. z_N) W_O + b  =  sum_h z_h W_O^h + b   [T, D]; W_O [D, D], its rows W_O^h [d, D] read z_h

Self-attention: M = X. Causal: M = X and a bar looks at itself and at what came before. Cross-attention: M is another
sequence, the encoder's. 1 / sqrt(d) keeps the scores' variance near 1 where q and k have it, so that the softmax is not
saturated from the start. The four W hold 4 D^2 numbers whatever N is: what more heads cost is width.

Vaswani et al. (2017), Attention Is All You Need, section 3.2.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from forecaster.errors import ConfigError
from forecaster.networks.positions import Alibi, LagBias, rotate

Mask = Bool[Tensor, "T S"] | Bool[Tensor, "B T S"]  # True = this query may look at this key
FEW_QUERIES: Final = 16


@dataclass(frozen=True)
class Edit:
    """A change to one layer's heads: of the values before they are summed (the weights are kept), or of each head's
    output z before W_O. Gates, ablations and knockouts are all one of these.
    """

    v: Callable[[Float[Tensor, "B N S d"]], Float[Tensor, "B N S d"]] | None = None
    z: Callable[[Float[Tensor, "B N T d"]], Float[Tensor, "B N T d"]] | None = None


@dataclass(frozen=True)
class Captured:
    """What one layer did in one forward pass: attention of the recorded queries, all v and z, both after edits.

    norm: A ||v W_O^(h)|| by bar, rows divided by their sums, where a key is not one bar; else it follows from A and v.
    """

    attn_BNTS: Float[Tensor, "B N T S"]
    v_BNSd: Float[Tensor, "B N S d"]
    z_BNTd: Float[Tensor, "B N U d"]
    queries: tuple[int, ...]
    norm_BNTS: Float[Tensor, "B N T S"] | None = None


@dataclass
class Cache:
    """Keys and values that one layer has computed so far, so that a step of decoding computes only its own.

    Self-attention appends to it; cross-attention fills it in its first call and only reads it afterwards. Keys are
    kept after rotation, values before edits.
    """

    k_BNSd: Float[Tensor, "B N S d"] | None = None
    v_BNSd: Float[Tensor, "B N S d"] | None = None

    @property
    def length(self) -> int:
        """Bars held."""
        return 0 if self.k_BNSd is None else self.k_BNSd.shape[2]

    @property
    def numbers(self) -> int:
        """Numbers held, counted off the tensors: 2 N d = 2 D for each bar of each sequence."""
        return sum(x.numel() for x in (self.k_BNSd, self.v_BNSd) if x is not None)

    def append(
        self, k_BNSd: Float[Tensor, "B N _ d"], v_BNSd: Float[Tensor, "B N _ d"]
    ) -> tuple[Float[Tensor, "B N S d"], Float[Tensor, "B N S d"]]:
        """Adds bars at the end; all keys and values now held."""
        self.k_BNSd = k_BNSd if self.k_BNSd is None else torch.cat((self.k_BNSd, k_BNSd), dim=2)
        self.v_BNSd = v_BNSd if self.v_BNSd is None else torch.cat((self.v_BNSd, v_BNSd), dim=2)
        return self.k_BNSd, self.v_BNSd


def weights(
    q_BNTd: Float[Tensor, "B N T d"],
    k_BNSd: Float[Tensor, "B N S d"],
    mask: Mask | None = None,
    bias_NTS: Float[Tensor, "N T S"] | None = None,
) -> Float[Tensor, "B N T S"]:
    """A = softmax(q k^T / sqrt(d) + bias) over the keys that the mask lets a query look at (True = may).

    A query that may look at no key has weight 0 everywhere. Vaswani et al. (2017), equation 1.
    """
    # With many queries the copy of all heads' keys that one product makes first pays; with few it is most of the work.
    if q_BNTd.shape[1] and q_BNTd.shape[2] < FEW_QUERIES:
        by_head = zip(q_BNTd.unbind(1), k_BNSd.unbind(1), strict=True)
        scores_BNTS = torch.stack([q_BTd @ k_BSd.mT for q_BTd, k_BSd in by_head], dim=1)
    else:
        scores_BNTS = q_BNTd @ k_BNSd.mT
    scores_BNTS = scores_BNTS / math.sqrt(q_BNTd.shape[-1])
    if bias_NTS is not None:
        scores_BNTS = scores_BNTS + bias_NTS.to(scores_BNTS.dtype)
    if mask is None:
        return scores_BNTS.softmax(-1)
    open_TS, blind_T1 = _opened(mask)
    return scores_BNTS.masked_fill(~open_TS, -math.inf).softmax(-1).masked_fill(blind_T1, 0.0)


def explicit(
    q_BNTd: Float[Tensor, "B N T d"],
    k_BNSd: Float[Tensor, "B N S d"],
    v_BNSd: Float[Tensor, "B N S d"],
    mask: Mask | None = None,
    bias_NTS: Float[Tensor, "N T S"] | None = None,
    *,
    dropout: float = 0.0,
) -> Float[Tensor, "B N T d"]:
    """Output z = A v of each head, the weights A [B, N, T, S] held in memory; dropout zeroes that share of them."""
    return nn.functional.dropout(weights(q_BNTd, k_BNSd, mask, bias_NTS), dropout) @ v_BNSd


def fused(
    q_BNTd: Float[Tensor, "B N T d"],
    k_BNSd: Float[Tensor, "B N S d"],
    v_BNSd: Float[Tensor, "B N S d"],
    mask: Mask | None = None,
    bias_NTS: Float[Tensor, "N T S"] | None = None,
    *,
    dropout: float = 0.0,
) -> Float[Tensor, "B N T d"]:
    """The same z by PyTorch's kernel, which never holds A where it need not.

    Dao et al. (2022), FlashAttention: Fast and Memory-Efficient Exact Attention.
    """
    scores = None if bias_NTS is None else bias_NTS.to(q_BNTd.dtype)[None]  # what the kernel adds to the scores, or ...
    if mask is None:
        return scaled_dot_product_attention(q_BNTd, k_BNSd, v_BNSd, attn_mask=scores, dropout_p=dropout)
    open_TS, blind_T1 = _opened(mask)
    allowed = open_TS if scores is None else scores.masked_fill(~open_TS, -math.inf)  # ... where it may look
    z_BNTd = scaled_dot_product_attention(q_BNTd, k_BNSd, v_BNSd, attn_mask=allowed, dropout_p=dropout)
    return z_BNTd.masked_fill(blind_T1, 0.0)


def causal_mask(query_T: Int[Tensor, " T"], key_S: Int[Tensor, " S"]) -> Bool[Tensor, "T S"]:
    """True where the key's position is not after the query's: a bar sees itself and what came before."""
    return key_S <= query_T[:, None]


class MultiHeadAttention(nn.Module):
    """Self-, causal and cross-attention with N heads of width d = D / N; the equations stand above.

    Each projection is one matrix seen as N blocks: splitting it is a reshape, so that parameters and cost do not depend
    on N. causal: no key after the query's position. rotary, relative: positions inside attention (`positions.py`), both
    by the difference of positions alone. dropout acts on the weights, in training only. attend: `fused` or `explicit`.
    Raises ConfigError where N does not divide D.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        bias: bool = True,
        dropout: float = 0.0,
        causal: bool = False,
        rotary: bool = False,
        relative: Alibi | LagBias | None = None,
        attend: Callable[..., Tensor] = fused,
    ) -> None:
        super().__init__()
        if width % heads:
            raise ConfigError(f"{heads} heads do not divide width {width}: choose a divisor of the width")
        self.width, self.heads, self.head_width = width, heads, width // heads
        self.dropout, self.causal, self.rotary, self.relative, self.attend = dropout, causal, rotary, relative, attend
        self.query, self.key, self.value, self.output = (nn.Linear(width, width, bias=bias) for _ in range(4))
        self.register_load_state_dict_pre_hook(_prune_like)

    def forward(
        self,
        x_BTD: Float[Tensor, "B T D"],
        memory_BSD: Float[Tensor, "B S D"] | None = None,
        *,
        mask: Mask | None = None,
        present_BS: Bool[Tensor, "B S"] | None = None,
        start: int = 0,
        cache: Cache | None = None,
        queries: Sequence[int] | None = None,
        edit: Edit | None = None,
        capture: Sequence[int] | None = None,
    ) -> tuple[Float[Tensor, "B U D"], Captured | None]:
        """Output for the rows `queries` of x (all by default), and what `capture` asks to record of some of these.

        Keys and values come from x, after those in the cache, or else from the memory (which with a cache is read in
        the first call only). mask: True = this row of x may look at this key. present: True = a bar, False = padding,
        which nobody may look at. A query looks where both, and causality, let it; where none does, its z is 0.

        Keys stand at positions 0 .. S - 1. Rows of x follow the cached ones in self-attention; in cross-attention the
        first stands at `start`: S for a decoder whose first bar is the one after the memory.
        """
        first = start if memory_BSD is not None else 0 if cache is None else cache.length
        position_T = torch.arange(first, first + x_BTD.shape[1], device=x_BTD.device)
        computed = range(x_BTD.shape[1]) if queries is None else tuple(queries)
        asking_BUD, position_U = x_BTD, position_T
        if queries is not None:
            asking_BUD, position_U = x_BTD[:, list(computed)], position_T[list(computed)]
            mask = None if mask is None else mask[..., list(computed), :]
        q_BNUd = self._split(self.query(asking_BUD))  # before k and v: gradients add up in this order, bit for bit
        if self.rotary:
            q_BNUd = rotate(q_BNUd, position_U)
        k_BNSd, v_BNSd = self._keys_and_values(x_BTD, memory_BSD, cache, position_T)
        key_S = torch.arange(k_BNSd.shape[2], device=x_BTD.device)
        mask = self._allowed(mask, present_BS, position_U, key_S)
        bias_NUS = None if self.relative is None else self.relative(position_U, key_S)
        if edit is not None and edit.v is not None:
            v_BNSd = edit.v(v_BNSd)
        share = self.dropout if self.training else 0.0
        z_BNUd = self.attend(q_BNUd, k_BNSd, v_BNSd, mask, bias_NUS, dropout=share)
        if edit is not None and edit.z is not None:
            z_BNUd = edit.z(z_BNUd)
        captured = None
        if capture is not None:
            rows = [computed.index(row) for row in capture]
            seen = None if mask is None else mask[..., rows, :]
            attn_BNRS = weights(q_BNUd[:, :, rows], k_BNSd, seen, None if bias_NUS is None else bias_NUS[:, rows])
            captured = Captured(attn_BNRS, v_BNSd, z_BNUd, tuple(capture))
        return self.output(z_BNUd.transpose(1, 2).flatten(2)), captured

    def inputs_by_head(self) -> tuple[Float[Tensor, "N D d"], Float[Tensor, "N D d"], Float[Tensor, "N D d"]]:
        """W_Q, W_K and W_V as each head sees them, views: Q_h = X W_Q[h] + its d numbers of the bias."""
        shape = (self.heads, self.head_width, self.width)
        return self.query.weight.view(shape).mT, self.key.weight.view(shape).mT, self.value.weight.view(shape).mT

    def output_by_head(self) -> Float[Tensor, "N d D"]:
        """W_O as each head sees it, a view: out = sum_h z_h W_O[h] + b."""
        return self.output.weight.T.view(self.heads, self.head_width, self.width)

    def prune(self, heads: Iterable[int]) -> None:
        """Takes heads out for good, with their rows of W_Q, W_K, W_V and W_O; those left are numbered anew from 0.

        The output is exactly that of the same heads gated to zero; d and D stay. The parameters are new ones, which an
        optimizer made before doesn't know. A whole module takes a pruned one's shape as it loads its state.
        Raises ConfigError for a head that is not there. Michel et al. (2019), Are Sixteen Heads Really Better than One?
        """
        removed = set(heads)
        if absent := sorted(removed - set(range(self.heads))):
            raise ConfigError(f"heads {absent} can't be removed: a layer has {self.heads}, numbered from 0")
        if not removed:
            return
        kept = [head for head in range(self.heads) if head not in removed]
        rows = [head * self.head_width + i for head in kept for i in range(self.head_width)]
        for layer in (self.query, self.key, self.value):
            for name, parameter in list(layer.named_parameters()):
                setattr(layer, name, _part(parameter, rows))
            layer.out_features = len(rows)
        self.output.weight, self.output.in_features = _part(self.output.weight, rows, dim=1), len(rows)
        if self.relative is not None:
            self.relative.keep(kept)
        self.heads = len(kept)

    def _keys_and_values(
        self, x_BTD: Tensor, memory_BSD: Tensor | None, cache: Cache | None, position_T: Tensor
    ) -> tuple[Float[Tensor, "B N S d"], Float[Tensor, "B N S d"]]:
        if memory_BSD is not None:
            if cache is not None and cache.k_BNSd is not None and cache.v_BNSd is not None:
                return cache.k_BNSd, cache.v_BNSd
            x_BTD, position_T = memory_BSD, torch.arange(memory_BSD.shape[1], device=memory_BSD.device)
        k_BNTd, v_BNTd = self._split(self.key(x_BTD)), self._split(self.value(x_BTD))
        if self.rotary:
            k_BNTd = rotate(k_BNTd, position_T)
        return (k_BNTd, v_BNTd) if cache is None else cache.append(k_BNTd, v_BNTd)

    def _allowed(self, mask: Mask | None, present_BS: Tensor | None, position_T: Tensor, key_S: Tensor) -> Mask | None:
        """Where the mask, causality and padding all let a query look; None where none of them is at work."""
        if self.causal:
            causal_TS = causal_mask(position_T, key_S)
            mask = causal_TS if mask is None else mask & causal_TS
        if present_BS is not None:
            present_BTS = present_BS[:, None].expand(-1, len(position_T), -1)
            mask = present_BTS if mask is None else mask & present_BTS
        return mask

    def _split(self, x_BTD: Float[Tensor, "B T _"]) -> Float[Tensor, "B N T d"]:
        return x_BTD.reshape(*x_BTD.shape[:2], self.heads, self.head_width).transpose(1, 2)


def _opened(mask: Mask) -> tuple[Bool[Tensor, "*B1 T S"], Bool[Tensor, "*B1 T 1"]]:
    """The mask over all heads, with blind rows (no key allowed) opened so that no gradient is NaN; which those are."""
    over_heads = mask[:, None] if mask.dim() == 3 else mask
    blind = ~over_heads.any(-1, keepdim=True)
    return over_heads | blind, blind


def _part(x: Tensor, rows: list[int], dim: int = 0) -> nn.Parameter:
    """A parameter of its own with these rows (or columns) of another."""
    index = torch.tensor(rows, dtype=torch.int64, device=x.device)
    return nn.Parameter(x.detach().index_select(dim, index), x.requires_grad)


def _prune_like(module: nn.Module, state: Mapping[str, Any], prefix: str, *rest: object) -> None:
    """Before a state is loaded: leaves as many heads as it has; which ones is all the same, the state replaces them."""
    assert isinstance(module, MultiHeadAttention)
    weight = state.get(f"{prefix}query.weight")
    if weight is not None and weight.shape[1:] == (module.width,) and weight.shape[0] % module.head_width == 0:
        module.prune(range(weight.shape[0] // module.head_width, module.heads))
