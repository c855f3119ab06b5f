"""A linear network to compare with: many published transformers for time series did not beat it."""

from collections.abc import Mapping, Sequence
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import avg_pool1d, pad

from forecaster.networks.attention import Edit
from forecaster.networks.encoder import Output, linear_inputs
from forecaster.networks.quantiles import QUANTILES
from forecaster.networks.readout import ordered

TREND_BARS: Final = 25  # of the moving average, as published


class DLinear(nn.Module):
    """Trend (a centred moving average within the window) and remainder of every feature, each through a linear map
    from its L bars to the forecast, summed.

    Zeng et al. (2023), Are Transformers Effective for Time Series Forecasting?
    """

    layers: Final = 0  # of attention
    heads: Final = 0

    def __init__(self, *, features: int, length: int, skip: bool, horizon: int, targets: int) -> None:
        super().__init__()
        self.length, self.horizon, self.targets = length, horizon, targets
        outputs = horizon * targets * (1 + len(QUANTILES))
        self.trend = nn.Linear(length * features, outputs)
        self.remainder = nn.Linear(length * features, outputs)
        self.skip = nn.Linear(3 * features, horizon * targets, bias=False) if skip else None
        for part in (self.trend, self.remainder):
            nn.init.zeros_(part.weight)  # a linear map has no symmetry to break, and noise is what it starts from
        if self.skip is not None:
            nn.init.zeros_(self.skip.weight)

    def forward(
        self,
        x_BLF: Float[Tensor, "B L F"],
        edits: Mapping[int, Edit] | None = None,
        capture: Mapping[int, Sequence[int]] | None = None,
    ) -> Output:
        """Forecast in scaled target units; there are no heads to edit or to capture."""
        if edits or capture:
            raise ValueError("a linear network has no heads")
        trend_BLF = moving_average(x_BLF)
        raw = self.trend(trend_BLF.flatten(1)) + self.remainder((x_BLF - trend_BLF).flatten(1))
        raw = raw.unflatten(-1, (self.horizon, self.targets, 1 + len(QUANTILES)))
        quantiles_BHCQ, mean_BHC = ordered(raw[..., 1:]), raw[..., 0]
        if self.skip is not None:
            base_BHC = self.skip(linear_inputs(x_BLF)).unflatten(-1, (self.horizon, self.targets))
            quantiles_BHCQ, mean_BHC = quantiles_BHCQ + base_BHC[..., None], mean_BHC + base_BHC
        return Output(quantiles_BHCQ, mean_BHC, {})


def moving_average(x_BLF: Float[Tensor, "B L F"], bars: int = TREND_BARS) -> Float[Tensor, "B L F"]:
    """Centred mean of an odd number of bars; the first and last bar are repeated beyond the window's ends."""
    half = bars // 2
    padded = pad(x_BLF.transpose(1, 2), (half, half), mode="replicate")
    return torch.as_tensor(avg_pool1d(padded, bars, stride=1)).transpose(1, 2)
