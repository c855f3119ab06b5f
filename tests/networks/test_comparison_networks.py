"""The networks that attention is compared with."""

import pytest
import torch

from forecaster.networks.averaging import Averaging
from forecaster.networks.linear import DLinear, moving_average
from forecaster.networks.recurrent import Recurrent

B, L, F, H, C = 2, 31, 3, 2, 4
SIZES = {"features": F, "length": L, "skip": True, "horizon": H, "targets": C}


@pytest.fixture(params=["lstm", "gru", "dlinear"])
def network(request: pytest.FixtureRequest) -> torch.nn.Module:
    torch.manual_seed(0)
    if request.param == "dlinear":
        return DLinear(**SIZES)
    return Recurrent(cell=request.param, width=10, depth=2, dropout=0.1, **SIZES)


def test_output_has_ordered_quantiles_of_every_target_and_step(network: torch.nn.Module) -> None:
    out = network.eval()(torch.randn(B, L, F))
    assert out.mean_BHC.shape == (B, H, C)
    assert out.quantiles_BHCQ.shape == (B, H, C, 7)
    assert (out.quantiles_BHCQ.diff(dim=-1) > 0).all()
    with pytest.raises(ValueError, match="has no heads"):
        network(torch.randn(B, L, F), capture={0: (L - 1,)})


def test_recurrence_reads_every_bar_in_order() -> None:
    torch.manual_seed(1)
    network = Recurrent(cell="gru", width=8, depth=1, dropout=0.0, **SIZES | {"skip": False}).eval()
    x = torch.randn(B, L, F, requires_grad=True)
    [gradient] = torch.autograd.grad(network(x).mean_BHC.sum(), x)
    assert gradient.abs().sum(dim=(0, 2)).min() > 0
    assert not torch.allclose(network(x).mean_BHC, network(x.flip(1)).mean_BHC)


def test_moving_average_is_centred_and_repeats_the_ends() -> None:
    x = torch.arange(1.0, 8.0)[None, :, None]
    # Of three bars: (1 + 1 + 2) / 3 first, (6 + 7 + 7) / 3 last.
    expected = torch.tensor([4 / 3, 2, 3, 4, 5, 6, 20 / 3])
    torch.testing.assert_close(moving_average(x, 3)[0, :, 0], expected)


def test_dlinear_is_linear_in_the_window() -> None:
    torch.manual_seed(2)
    network = DLinear(**SIZES)
    for part in (network.trend, network.remainder, network.skip):
        torch.nn.init.normal_(part.weight, std=0.1)
    network.double()
    one, other = (torch.randn(1, L, F, dtype=torch.float64) for _ in range(2))
    mean = [network(x).mean_BHC for x in (one, other, 0.3 * one + 0.7 * other)]
    torch.testing.assert_close(mean[2], 0.3 * mean[0] + 0.7 * mean[1], rtol=1e-10, atol=1e-12)


def test_average_is_attention_with_equal_weights() -> None:
    torch.manual_seed(3)
    for causal in (False, True):
        module = Averaging(6, causal=causal)
        x = torch.randn(2, 5, 6)
        out, _ = module(x)
        for t in range(5):
            seen = x[:, : t + 1] if causal else x
            torch.testing.assert_close(out[:, t], module.output(module.value(seen).mean(1)))
        some, _ = module(x, queries=(4, 1))
        torch.testing.assert_close(some, out[:, [4, 1]])
