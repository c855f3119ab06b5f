"""What training minimises."""

import torch
from jaxtyping import Float
from torch import Tensor

from forecaster.networks.quantiles import QUANTILES


def pinball(quantiles_BHCQ: Float[Tensor, "B H C Q"], actual_BHC: Float[Tensor, "B H C"]) -> Float[Tensor, "B H C"]:
    """Mean pinball loss over QUANTILES, rho_q(u) = max(q u, (q - 1) u) with u = actual - forecast, in target units.

    Koenker and Bassett (1978), Regression Quantiles.
    """
    levels_Q = torch.tensor(QUANTILES, dtype=quantiles_BHCQ.dtype, device=quantiles_BHCQ.device)
    error_BHCQ = actual_BHC[..., None] - quantiles_BHCQ
    return torch.maximum(levels_Q * error_BHCQ, (levels_Q - 1) * error_BHCQ).mean(-1)


def loss(
    quantiles_BHCQ: Float[Tensor, "B H C Q"], mean_BHC: Float[Tensor, "B H C"], actual_BHC: Float[Tensor, "B H C"]
) -> Float[Tensor, " B"]:
    """Pinball plus squared error of the mean of each window, mean over steps and sum over targets, in scaled units."""
    return (pinball(quantiles_BHCQ, actual_BHC) + (mean_BHC - actual_BHC) ** 2).mean(1).sum(1)
