"""Dropout by the byte."""

import pytest
import torch

from forecaster.networks.dropout import Dropout


@pytest.mark.parametrize("p", [0.1, 0.5, 0.001, 0.999])
def test_when_training_then_the_share_is_dropped_and_the_mean_stays(p: float) -> None:
    torch.manual_seed(0)
    dropout, shape = Dropout(p), (3, 7, 50_001)  # no multiple of 8
    used, count = dropout.dropped / 256, 3 * 7 * 50_001
    assert abs(used - p) <= 1 / 256
    dropped = (dropout(torch.ones(shape, dtype=torch.float64)) == 0).double().mean().item()
    assert abs(dropped - used) < 4 * (used * (1 - used) / count) ** 0.5  # false alarm: 1 in 16,000
    kept = dropout(torch.full(shape, 2.0)).unique()
    torch.testing.assert_close(kept, torch.tensor([0.0, 2.0 / (1 - used)]))


def test_when_evaluating_or_at_zero_then_nothing_is_touched() -> None:
    x = torch.randn(2, 7)
    assert Dropout(0.0)(x) is x
    assert Dropout(0.3).eval()(x) is x


def test_when_the_seed_is_the_same_then_the_mask_is_and_the_gradient_goes_through_it() -> None:
    x, dropout = torch.randn(5, 33, requires_grad=True), Dropout(0.25)
    torch.manual_seed(3)
    first = dropout(x)
    torch.manual_seed(3)
    assert torch.equal(first, dropout(x))
    assert not torch.equal(first, dropout(x))
    [gradient] = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(gradient, (first != 0) / 0.75)


def test_when_masks_are_compared_then_no_place_follows_another() -> None:
    torch.manual_seed(0)
    mask = (Dropout(0.5)(torch.ones(64, 4096)) == 0).double() - 0.5
    for lag in (1, 2, 7, 8, 9, 16, 64):  # bytes of one draw, and of neighbouring ones
        share = (mask[:, lag:] * mask[:, :-lag]).mean().item() * 4
        assert abs(share) < 4 / (64 * (4096 - lag)) ** 0.5


@pytest.mark.parametrize("p", [-0.1, 1.0, float("nan")])
def test_when_the_share_is_impossible_then_it_is_refused(p: float) -> None:
    with pytest.raises(ValueError, match="must lie in"):
        Dropout(p)
