"""The training loss by hand."""

import pytest
import torch

from forecaster.networks.quantiles import QUANTILES
from forecaster.training.losses import loss, pinball


def test_pinball_by_hand() -> None:
    quantiles = torch.linspace(-1.0, 1.0, 7, dtype=torch.float64).reshape(1, 1, 1, 7)
    actual = torch.full((1, 1, 1), 0.5, dtype=torch.float64)
    by_hand = 0.0
    for level, forecast in zip(QUANTILES, quantiles.flatten().tolist(), strict=True):
        error = 0.5 - forecast
        by_hand += level * error if error >= 0 else (level - 1) * error
    assert pinball(quantiles, actual).item() == pytest.approx(by_hand / 7)


def test_loss_is_averaged_over_steps_and_summed_over_targets() -> None:
    torch.manual_seed(0)
    quantiles, mean, actual = torch.randn(2, 4, 3, 7), torch.randn(2, 4, 3), torch.randn(2, 4, 3)
    each = pinball(quantiles, actual) + (mean - actual) ** 2
    expected = [sum(float(each[b, h, c]) for h in range(4) for c in range(3)) / 4 for b in range(2)]
    assert loss(quantiles, mean, actual).tolist() == pytest.approx(expected)


def test_pinball_is_lowest_at_the_true_quantile() -> None:
    draws = torch.randn(20_000, 1, 1, generator=torch.Generator().manual_seed(0))
    true = torch.distributions.Normal(0.0, 1.0).icdf(torch.tensor(QUANTILES))

    def mean_loss(shift: float) -> float:
        return float(pinball((true + shift).expand(20_000, 1, 1, 7), draws).mean())

    assert mean_loss(0.0) < min(mean_loss(-0.2), mean_loss(0.2))
