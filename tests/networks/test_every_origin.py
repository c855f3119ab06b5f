"""Forecasts from several bars of a window in one pass."""

import pytest
import torch

from forecaster.config import POSITIONS
from forecaster.networks.choice import Shape, network
from forecaster.networks.encoder import Encoder, linear_inputs

B, L, T, F, D, N, H, C = 2, 29, 5, 3, 20, 5, 4, 2


def encoder(
    kind: str = "attention", positions: str = "learned", *, causal: bool = True, pooling: str = "last"
) -> Encoder:
    torch.manual_seed(0)
    made = network(
        kind,
        Shape(
            features=F,
            length=L,
            width=D,
            heads=N,
            layers=3,
            feedforward=2,
            dropout=0.1,
            attention_dropout=0.0,
            causal=causal,
            positions=positions,
            pooling=pooling,
            skip=True,
            horizon=H,
            targets=C,
            future=5,
        ),
    )
    assert isinstance(made, Encoder)
    return made.eval()


def window() -> torch.Tensor:
    return torch.randn(B, L, F, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("kind", "positions"),
    [*(("attention", name) for name in POSITIONS), ("single_head", "learned"), ("attention_free", "learned")],
)
def test_when_all_bars_are_origins_then_the_last_one_forecasts_as_it_does_alone(kind: str, positions: str) -> None:
    made, x_BLF = encoder(kind, positions), window()
    alone, several = made(x_BLF), made(x_BLF, origins=T)
    assert several.mean_BHC.shape == (B * T, H, C)
    torch.testing.assert_close(several.mean_BHC[T - 1 :: T], alone.mean_BHC, atol=1e-6, rtol=0)
    torch.testing.assert_close(several.quantiles_BHCQ[T - 1 :: T], alone.quantiles_BHCQ, atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", ["attention", "single_head", "attention_free"])
def test_when_an_origin_forecasts_then_the_gradient_by_every_later_bar_is_exactly_zero(kind: str) -> None:
    made, x_BLF = encoder(kind), window().requires_grad_()
    mean_BTHC = made(x_BLF, origins=T).mean_BHC.unflatten(0, (B, T))
    for place in range(T):
        [gradient_BLF] = torch.autograd.grad(mean_BTHC[:, place].sum(), x_BLF, retain_graph=True)
        assert (gradient_BLF[:, L - T + place + 1 :] == 0).all()
        assert (gradient_BLF[:, : L - T + place + 1].abs().sum((0, 2)) > 0).all()


def test_when_the_future_is_rewritten_then_no_earlier_origins_forecast_changes() -> None:
    made, x_BLF = encoder(), window()
    before = made(x_BLF, origins=T).mean_BHC.unflatten(0, (B, T))
    x_BLF[:, L - 2 :] = 1e3
    after = made(x_BLF, origins=T).mean_BHC.unflatten(0, (B, T))
    assert torch.equal(before[:, : T - 2], after[:, : T - 2])
    assert not torch.equal(before[:, T - 2 :], after[:, T - 2 :])


@pytest.mark.parametrize("length", [7, 23, 40])
def test_when_linear_inputs_are_read_at_several_bars_then_each_is_what_its_own_window_gives(length: int) -> None:
    x_BLF = torch.randn(B, length, F, dtype=torch.float64)
    found = linear_inputs(x_BLF, 4).unflatten(0, (B, 4))
    for place in range(4):
        alone = linear_inputs(x_BLF[:, : length - 3 + place])
        torch.testing.assert_close(found[:, place], alone, atol=1e-12, rtol=0)


@pytest.mark.parametrize("options", [{"causal": False}, {"pooling": "mean"}])
def test_when_a_bar_may_see_later_ones_then_several_origins_are_refused(options: dict[str, bool]) -> None:
    with pytest.raises(ValueError, match="only a causal network"):
        encoder(**options)(window(), origins=2)
