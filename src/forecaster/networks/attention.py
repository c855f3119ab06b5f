"""Multi-head attention: the mechanism that the probes look into.

    head_h = softmax(Q_h K_h^T / sqrt(d)) V_h    Q_h = X W_Q^h, K_h = X W_K^h, V_h = X W_V^h, each of width d = D / N
    out    = concat(head_1 .. head_N) W_O + b

Vaswani et al. (2017), Attention Is All You Need, section 3.2.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from forecaster.errors import ConfigError


@dataclass(frozen=True)
class Edit:
    """A change to one layer's heads: of the values before they are summed (the weights are kept), or of each head's
    output z before W_O. Gates, ablations and knockouts are all one of these.
    """

    v: Callable[[Float[Tensor, "B N S d"]], Float[Tensor, "B N S d"]] | None = None
    z: Callable[[Float[Tensor, "B N T d"]], Float[Tensor, "B N T d"]] | None = None


@dataclass(frozen=True)
class Captured:
    """What one layer did in one forward pass: attention of the recorded queries, all values and all head outputs (both
    after edits).
    """

    attn_BNTS: Float[Tensor, "B N T S"]
    v_BNSd: Float[Tensor, "B N S d"]
    z_BNTd: Float[Tensor, "B N U d"]
    queries: tuple[int, ...]


def weights(
    q_BNTd: Float[Tensor, "B N T d"], k_BNSd: Float[Tensor, "B N S d"], mask_TS: Bool[Tensor, "T S"] | None = None
) -> Float[Tensor, "B N T S"]:
    """Attention weights A = softmax(q k^T / sqrt(d)) over keys; the mask says where a query may look (True = may)."""
    scores_BNTS = q_BNTd @ k_BNSd.mT / math.sqrt(q_BNTd.shape[-1])
    if mask_TS is not None:
        scores_BNTS = scores_BNTS.masked_fill(~mask_TS, -math.inf)
    return scores_BNTS.softmax(-1)


def explicit(
    q_BNTd: Float[Tensor, "B N T d"],
    k_BNSd: Float[Tensor, "B N S d"],
    v_BNSd: Float[Tensor, "B N S d"],
    mask_TS: Bool[Tensor, "T S"] | None = None,
) -> tuple[Float[Tensor, "B N T d"], Float[Tensor, "B N T S"]]:
    """Attention output z = A v together with A."""
    attn_BNTS = weights(q_BNTd, k_BNSd, mask_TS)
    return attn_BNTS @ v_BNSd, attn_BNTS


def causal_mask(queries: Sequence[int], keys: int) -> Bool[Tensor, "T S"]:
    """True where key <= query: a bar sees itself and what came before."""
    return torch.arange(keys) <= torch.tensor(queries)[:, None]


class MultiHeadAttention(nn.Module):
    """Self-attention with N heads of width d = D / N.

    Each projection is one D x D matrix seen as N blocks; splitting it is a reshape, so parameters and cost do not
    depend on N, only the width of a head does. `queries` restricts the computation to those bar positions: their
    outputs are the same as in the full computation.
    """

    def __init__(
        self, width: int, heads: int, *, dropout: float = 0.0, causal: bool = False, rotary: bool = False
    ) -> None:
        super().__init__()
        if width % heads:
            raise ConfigError(f"{heads} heads do not divide width {width}: choose a divisor of the width")
        self.width, self.heads, self.dropout, self.causal, self.rotary = width, heads, dropout, causal, rotary
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))

    def forward(
        self,
        x_BSD: Float[Tensor, "B S D"],
        *,
        queries: Sequence[int] | None = None,
        edit: Edit | None = None,
        capture: Sequence[int] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], Captured | None]:
        """Output for the `queries` (all bars by default), and what `capture` asks to record."""
        bars = x_BSD.shape[1]
        positions = tuple(range(bars)) if queries is None else tuple(queries)
        q_BNTd = self._split(self.query(x_BSD if queries is None else x_BSD[:, list(positions)]))
        k_BNSd, v_BNSd = self._split(self.key(x_BSD)), self._split(self.value(x_BSD))
        if self.rotary:
            q_BNTd, k_BNSd = rotate(q_BNTd, positions), rotate(k_BNSd, range(bars))
        if edit is not None and edit.v is not None:
            v_BNSd = edit.v(v_BNSd)
        mask_TS = causal_mask(positions, bars).to(x_BSD.device) if self.causal else None
        z_BNTd = scaled_dot_product_attention(
            q_BNTd, k_BNSd, v_BNSd, attn_mask=mask_TS, dropout_p=self.dropout if self.training else 0.0
        )
        if edit is not None and edit.z is not None:
            z_BNTd = edit.z(z_BNTd)
        captured = None
        if capture is not None:
            rows = [positions.index(position) for position in capture]
            attn_BNTS = weights(q_BNTd[:, :, rows], k_BNSd, None if mask_TS is None else mask_TS[rows])
            captured = Captured(attn_BNTS, v_BNSd, z_BNTd, tuple(capture))
        return self.output(z_BNTd.transpose(1, 2).flatten(2)), captured

    def output_by_head(self) -> Float[Tensor, "N d D"]:
        """W_O as each head sees it: out = sum_h z_h W_O[h] + b."""
        return self.output.weight.T.reshape(self.heads, self.width // self.heads, self.width)

    def _split(self, x_BTD: Float[Tensor, "B T D"]) -> Float[Tensor, "B N T d"]:
        return x_BTD.reshape(*x_BTD.shape[:2], self.heads, self.width // self.heads).transpose(1, 2)


def rotate(x_BNTd: Float[Tensor, "B N T d"], positions: Sequence[int]) -> Float[Tensor, "B N T d"]:
    """Rotary positions: pairs of coordinates turn by position x 10000^(-2i/d), so that q.k depends on the lag alone.

    An odd last coordinate (and the only one of a head of width 1) is left as it is.
    Su et al. (2021), RoFormer, section 3.
    """
    pairs = x_BNTd.shape[-1] // 2
    frequency = 10000.0 ** (-torch.arange(pairs, device=x_BNTd.device, dtype=torch.float64) / max(pairs, 1))
    angle_Tp = torch.tensor(positions, device=x_BNTd.device, dtype=torch.float64)[:, None] * frequency
    cos, sin = angle_Tp.cos().to(x_BNTd.dtype), angle_Tp.sin().to(x_BNTd.dtype)
    a, b, rest = x_BNTd[..., :pairs], x_BNTd[..., pairs : 2 * pairs], x_BNTd[..., 2 * pairs :]
    return torch.cat((a * cos - b * sin, a * sin + b * cos, rest), dim=-1)
