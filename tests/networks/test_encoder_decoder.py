"""Encoder-decoder: step by step with caches equals one pass, and no step sees a later one."""

import pytest
import torch

from forecaster.networks.encoder_decoder import EncoderDecoder

B, L, F, H, C, K = 2, 9, 3, 5, 4, 7


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def network(request: pytest.FixtureRequest) -> EncoderDecoder:
    torch.manual_seed(0)
    made = EncoderDecoder(
        features=F, length=L, width=20, heads=5, layers=2, feedforward=24, dropout=0.1, attention_dropout=0.1,
        skip=True, horizon=H, targets=C, future=K,
    )  # fmt: skip
    torch.nn.init.normal_(made.skip.weight, std=0.1)  # it starts from zero
    return made.to(request.param).eval()


def inputs(network: EncoderDecoder) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    kind = network.embed.weight.dtype
    return tuple(torch.randn(B, *shape, generator=generator, dtype=kind) for shape in ((L, F), (H, K), (H, C)))


def test_rolling_with_caches_equals_one_pass_over_its_own_means(network: EncoderDecoder) -> None:
    x, future, _ = inputs(network)
    with torch.no_grad():
        rolled = network(x, future_BHK=future)
        at_once = network(x, future_BHK=future, teacher_BHC=rolled.mean_BHC)
    tolerance = {"atol": 1e-5, "rtol": 0} if x.dtype == torch.float32 else {"atol": 1e-10, "rtol": 0}
    torch.testing.assert_close(rolled.mean_BHC, at_once.mean_BHC, **tolerance)
    torch.testing.assert_close(rolled.quantiles_BHCQ, at_once.quantiles_BHCQ, **tolerance)
    assert rolled.quantiles_BHCQ.shape == (B, H, C, 7)
    assert (rolled.quantiles_BHCQ.diff(dim=-1) > 0).all()


def test_no_step_depends_on_its_own_target_or_a_later_one(network: EncoderDecoder) -> None:
    x, future, teacher = inputs(network)
    teacher.requires_grad_()
    future.requires_grad_()
    mean = network(x, future_BHK=future, teacher_BHC=teacher).mean_BHC
    for step in range(H):
        by_teacher, by_future = torch.autograd.grad(mean[:, step].sum(), (teacher, future), retain_graph=True)
        assert not by_teacher[:, step:].any()
        assert not by_future[:, step + 1 :].any()
        assert by_future[:, step].any()
        if step:
            assert by_teacher[:, step - 1].any()


def test_every_step_reads_the_window(network: EncoderDecoder) -> None:
    x, future, teacher = inputs(network)
    x.requires_grad_()
    mean = network(x, future_BHK=future, teacher_BHC=teacher).mean_BHC
    for step in range(H):
        [by_bar] = torch.autograd.grad(mean[:, step].sum(), x, retain_graph=True)
        assert by_bar.abs().sum(dim=(0, 2)).min() > 0


def test_dropout_is_for_training_alone(network: EncoderDecoder) -> None:
    x, future, teacher = inputs(network)
    assert torch.equal(
        network(x, future_BHK=future, teacher_BHC=teacher).mean_BHC,
        network(x, future_BHK=future, teacher_BHC=teacher).mean_BHC,
    )
    network.train()
    assert not torch.equal(
        network(x, future_BHK=future, teacher_BHC=teacher).mean_BHC,
        network(x, future_BHK=future, teacher_BHC=teacher).mean_BHC,
    )


def test_capture_records_the_encoders_layers(network: EncoderDecoder) -> None:
    x, future, _ = inputs(network)
    with torch.no_grad():
        out = network(x, capture={1: (L - 1,)}, future_BHK=future)
    assert out.captured[1].attn_BNTS.shape == (B, 5, 1, L)
    assert network.computed(1) == tuple(range(L))
