"""From a vector to a forecast: a mean, and quantiles that cannot cross."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from forecaster.networks.quantiles import MEDIAN, QUANTILES


def ordered(raw_Q: Float[Tensor, "*B Q"]) -> Float[Tensor, "*B Q"]:
    """Quantiles from free numbers: the median as it stands, the others by positive steps (softplus) away from it."""
    median, up, down = raw_Q[..., MEDIAN : MEDIAN + 1], raw_Q[..., MEDIAN + 1 :], raw_Q[..., :MEDIAN]
    above = median + softplus(up).cumsum(-1)
    below = median - softplus(down).flip(-1).cumsum(-1).flip(-1)
    return torch.cat((below, median, above), dim=-1)


class Readout(nn.Module):
    """Linear map from the encoder's vector to mean and quantiles of C targets at H steps, plus a linear skip.

    The skip adds to the mean and to all quantiles alike what is linear in the window's last values and weekly and
    monthly means (the inputs of a log-HAR), so that attention has only to add to it.
    Corsi (2009), A Simple Approximate Long-Memory Model of Realized Volatility.
    """

    def __init__(self, width: int, skip: int, horizon: int, targets: int) -> None:
        super().__init__()
        self.horizon, self.targets = horizon, targets
        self.linear = nn.Linear(width, horizon * targets * (1 + len(QUANTILES)))
        self.skip = nn.Linear(skip, horizon * targets, bias=False) if skip else None
        if self.skip is not None:
            nn.init.zeros_(self.skip.weight)

    def forward(
        self, last_BD: Float[Tensor, "B D"], linear_BK: Float[Tensor, "B K"]
    ) -> tuple[Float[Tensor, "B H C Q"], Float[Tensor, "B H C"]]:
        """Quantiles and mean in scaled target units."""
        raw = self.linear(last_BD).unflatten(-1, (self.horizon, self.targets, 1 + len(QUANTILES)))
        quantiles_BHCQ, mean_BHC = ordered(raw[..., 1:]), raw[..., 0]
        if self.skip is None:
            return quantiles_BHCQ, mean_BHC
        base_BHC = self.skip(linear_BK).unflatten(-1, (self.horizon, self.targets))
        return quantiles_BHCQ + base_BHC[..., None], mean_BHC + base_BHC
