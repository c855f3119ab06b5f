"""Attention of all queries by lag, taken while the network computes: A is made tile by tile and never kept."""

import math
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from forecaster.networks.attention import Mask, MultiHeadAttention

TILE: Final = 1 << 19  # numbers of A at once: 2 MB in float32, which a processor's cache holds


class LagSums:
    """Takes the place of the kernel of one attention module: the same z, and sums of A by head and lag on the way.

    sums[h, q - k + S - 1] += A[q, k] over all windows, queries and keys: lag 0 stands in the middle, later bars before.
    Every query is taken for the bar of its own number: self-attention of whole windows.
    """

    def __init__(self, heads: int, length: int) -> None:
        self.length, self.queries = length, 0
        self.sums_NL = torch.zeros(heads, 2 * length - 1, dtype=torch.float64)
        position = torch.arange(length)
        self._lag_TS: Int[Tensor, "T S"] = position[:, None] - position + length - 1

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
        """The output A v of each head, as `attention.explicit` without dropout."""
        assert dropout == 0.0
        batch, heads, count, width = q_BNTd.shape
        z_BNTd = torch.empty_like(q_BNTd)
        rows = min(count, max(1, TILE // (heads * self.length)))
        windows = max(1, TILE // (heads * rows * self.length))
        scaled_BNTd, keys_BNdS = q_BNTd / math.sqrt(width), k_BNSd.mT
        for first in range(0, count, rows):
            asked = slice(first, min(first + rows, count))
            seen_NtS = torch.zeros(heads, asked.stop - first, self.length, device=q_BNTd.device)
            for start in range(0, batch, windows):
                some = slice(start, min(start + windows, batch))
                scores_bNtS = scaled_BNTd[some, :, asked] @ keys_BNdS[some]
                if bias_NTS is not None:
                    scores_bNtS += bias_NTS[:, asked]
                if mask is not None:
                    scores_bNtS.masked_fill_(~mask[..., asked, :], -math.inf)
                a_bNtS = scores_bNtS.softmax(-1)
                seen_NtS += a_bNtS.sum(0)
                z_BNTd[some, :, asked] = a_bNtS @ v_BNSd[some]
            # On the host: not every device has float64.
            self.sums_NL.index_add_(1, self._lag_TS[asked].reshape(-1), seen_NtS.flatten(1).cpu().double())
        self.queries += batch * count
        return z_BNTd

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
