"""Attention of all queries by lag, taken while the network computes: A is made tile by tile and never kept."""

import math
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from forecaster.networks.attention import Mask, MultiHeadAttention

TILE: Final = 1 << 18  # numbers of A at once: 1 MB in float32, which a core's cache holds
TOGETHER: Final = 8  # windows of a tile, before its queries are cut: what their sum by lag costs is shared by them


class LagSums:
    """Takes the place of the kernel of one attention module: the same z, and sums of A by head and lag on the way.

    sums[h, q - k + S - 1] += A[q, k] over all windows, queries and keys: lag 0 stands in the middle, later bars before.
    Every query is taken for the bar of its own number: self-attention of whole windows, in which each sees some bar.
    """

    def __init__(self, heads: int, length: int) -> None:
        self.length, self.queries = length, 0
        self.sums_NL = torch.zeros(heads, 2 * length - 1, dtype=torch.float64)
        position = torch.arange(length)
        self._lag_TS: Int[Tensor, "T S"] = position[:, None] - position + length - 1

    @torch.no_grad()
    def __call__(
        self,
        q_BNTd: Float[Tensor, "B N T d"],
        k_BNSd: Float[Tensor, "B N S d"],
        v_BNSd: Float[Tensor, "B N S d"],
        mask: Mask | None = None,
        bias_NTS: Float[Tensor, "N T S"] | None = None,
        *,
        dropout: float = 0.0,
    ) -> Float[Tensor, "B N T d"]:
        """The output A v of each head, as `attention.explicit` without dropout and without gradients.

        A tile is some windows and queries of one head. It is filled, turned into A and read in the same memory: new
        memory for each would cost as much as its softmax. A^T is the factor on the right, as the product is fast where
        its long side comes last.
        """
        assert dropout == 0.0
        batch, heads, count, width = q_BNTd.shape
        rows = min(count, max(1, TILE // (self.length * min(batch, TOGETHER))))
        windows = min(batch, max(1, TILE // (self.length * rows)))
        k_BNdS, v_BNdS = k_BNSd.mT, v_BNSd.mT
        z_BTNd = q_BNTd.new_empty(batch, count, heads, width)  # as the module reads it on
        tile, output = q_BNTd.new_empty(windows * rows * self.length), q_BNTd.new_empty(windows * rows * width)
        ones_1B = q_BNTd.new_ones(1, windows)
        for head, first in ((head, first) for head in range(heads) for first in range(0, count, rows)):
            asked = slice(first, min(first + rows, count))
            long = asked.stop - first
            seen_1t = q_BNTd.new_zeros(1, long * self.length)
            for start in range(0, batch, windows):
                some = slice(start, min(start + windows, batch))
                a_btS = tile[: (some.stop - start) * long * self.length].view(-1, long, self.length)
                z_bdt = output[: (some.stop - start) * width * long].view(-1, width, long)
                if bias_NTS is not None:
                    a_btS.copy_(bias_NTS[head, asked])
                beta = 0 if bias_NTS is None else 1
                torch.baddbmm(
                    a_btS, q_BNTd[some, head, asked], k_BNdS[some, head], beta=beta, alpha=width**-0.5, out=a_btS
                )
                if mask is not None:
                    a_btS.masked_fill_(~mask[..., asked, :] if mask.dim() == 2 else ~mask[some, asked], -math.inf)
                torch.softmax(a_btS, -1, out=a_btS)
                torch.addmm(seen_1t, ones_1B[:, : len(a_btS)], a_btS.flatten(1), out=seen_1t)
                z_BTNd[some, asked, head] = torch.bmm(v_BNdS[some, head], a_btS.mT, out=z_bdt).mT
            # On the host: not every device has float64.
            self.sums_NL[head].index_add_(0, self._lag_TS[asked].flatten(), seen_1t[0].cpu().double())
        self.queries += batch * count
        return z_BTNd.transpose(1, 2)

    def mean(self) -> Float[Tensor, "N L2"]:
        """Mean attention by lag, over all queries so far."""
        return self.sums_NL / max(1, self.queries)


@contextmanager
def by_lag(attention: MultiHeadAttention, sums: LagSums) -> Generator[None]:
    """Within, the module's attention adds to the sums; the kernel is put back, after an error too."""
    kernel = attention.attend
    attention.attend = sums
    try:
        yield
    finally:
        attention.attend = kernel
