"""Dropout that spends one random byte on a number: drawing them one by one takes a sixth of a training step."""

from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor, nn

LEVELS: Final = 256  # what a byte tells apart


class Dropout(nn.Module):
    """y = x m / (1 - p'), m = 0 with probability p' and else 1, in training only; E[y] = x.

    p' is the multiple of 1/256 nearest to the p asked for (.1: .1016), never 0 or 1 unless p is. On a GPU, whose kernel
    draws as it multiplies, p' = p. Raises ValueError for a p outside [0, 1).
    Srivastava et al. (2014), Dropout: A Simple Way to Prevent Neural Networks from Overfitting, JMLR 15.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"a share of {p} can't be dropped: it must lie in [0, 1)")
        self.p = p
        self.dropped = min(max(round(LEVELS * p), 1), LEVELS - 1) if p else 0

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Some numbers of x zeroed and the others enlarged, in training; else x itself."""
        if not self.training or not self.p:
            return x
        if x.is_cuda:
            return nn.functional.dropout(x, self.p)
        eights = torch.empty(-(-x.numel() // 8), dtype=torch.int64, device=x.device).random_(-(2**63), None)
        kept = eights.view(torch.uint8)[: x.numel()].view(x.shape) >= self.dropped
        return x * kept.to(x.dtype).mul_(LEVELS / (LEVELS - self.dropped))

    def extra_repr(self) -> str:
        """The share asked for, and the one used."""
        return f"p={self.p}, used {self.dropped}/{LEVELS}"
