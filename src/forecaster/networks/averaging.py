"""Attention's place taken by a plain average: what is left of a network when its heads can't choose where to look."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from forecaster.networks.attention import Captured, Edit, causal_mask


class Averaging(nn.Module):
    """out[t] = (mean over visible s of x[s] W_V) W_O + b: attention with equal weights, without W_Q and W_K.

    Takes attention's place in a block, with its signature. Lee-Thorp et al. (2022), FNet: Mixing Tokens with Fourier
    Transforms (the question: what does attention add to mixing at all?).
    """

    def __init__(self, width: int, *, causal: bool = False) -> None:
        super().__init__()
        self.width, self.heads, self.causal = width, 0, causal
        self.value, self.output = nn.Linear(width, width), nn.Linear(width, width)

    def forward(
        self,
        x_BSD: Float[Tensor, "B S D"],
        *,
        queries: Sequence[int] | None = None,
        edit: Edit | None = None,
        capture: Sequence[int] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], Captured | None]:
        """Output for the queries; there are no heads to edit or to capture."""
        if edit is not None or capture is not None:
            raise ValueError("an average has no heads")
        bars = torch.arange(x_BSD.shape[1], device=x_BSD.device)
        asked = bars if queries is None else bars[list(queries)]
        value_BSD = self.value(x_BSD)
        if not self.causal:
            mean_BTD = value_BSD.mean(1, keepdim=True).expand(-1, len(asked), -1)
        else:
            visible_TS = causal_mask(asked, bars).to(value_BSD.dtype)
            mean_BTD = (visible_TS / visible_TS.sum(-1, keepdim=True)) @ value_BSD
        return self.output(mean_BTD), None
