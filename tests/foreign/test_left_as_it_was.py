"""Whatever state a model is in: a right result or a refusal, and the same state afterwards, bit for bit."""

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
import torch._dynamo  # before the state is looked at
from torch import Tensor, nn

from forecaster.errors import ConfigError
from forecaster.foreign.subject import Foreign
from forecaster.networks.attention import Edit
from forecaster.probes.capture import evaluating
from forecaster.probing import probe_model
from small_models import LENGTH, WIDTH, Net, encoder, forecast

HOOKS = [name for name in vars(nn.Identity()) if name.endswith(("hooks", "hooks_with_kwargs", "hooks_always_called"))]


def state(model: nn.Module) -> dict[str, object]:
    """All of a model, and of torch, that probing might touch."""
    found: dict[str, object] = {
        "fast path": torch.backends.mha.get_fastpath_enabled(),
        "random": torch.get_rng_state().numpy().tobytes(),
        "gradients": torch.is_grad_enabled(),
        "modes": torch.overrides._len_torch_function_stack(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "stance": torch._dynamo.eval_frame._stance.stance,
    }
    for name, module in model.named_modules(remove_duplicate=False):
        own = vars(module)
        found[f"{name}: attributes"] = {key: id(value) for key, value in own.items() if key != "training"}
        found[f"{name}: training"] = module.training
        found[f"{name}: hooks"] = {key: [*map(id, own[key].values())] for key in HOOKS}
        found[f"{name}: forward"] = getattr(module.forward, "__func__", module.forward)
        for key, x in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            bits = x.detach().contiguous().view(torch.uint8).numpy().tobytes() if x.numel() else b""
            found[f"{name}.{key}"] = (id(x), x.requires_grad, x.dtype, x.grad is None, bits)
    return found


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    before = state(model)
    yield
    after = state(model)
    assert after.keys() == before.keys()
    assert [key for key in before if before[key] != after[key]] == []


@pytest.fixture
def plain(batch) -> Callable[[Net], tuple[Tensor, Tensor]]:
    """By torch alone: forecast of a copy of the model, and attention of its first layer from the last bar."""

    def of(model: Net) -> tuple[Tensor, Tensor]:
        own = copy.deepcopy(model).eval()
        with torch.no_grad():
            x_BLD = own.embed(batch[0]) + own.position
            weights = own.encoder.layers[0].self_attn(x_BLD, x_BLD, x_BLD, average_attn_weights=False)[1]
            return own(batch[0]), weights[:, :, -1:]

    return of


def probed(found: Foreign, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    with evaluating(found):
        out = found.forecast(*batch, capture={0: (LENGTH - 1,)})
    return out.mean_BHC, out.captured[0].attn_BNTS


def trained(model: Net) -> Net:
    """Some modules in training mode, some not."""
    model.train()
    model.encoder.layers[1].eval()
    return model


def hooked(model: Net) -> Net:
    """Hooks of every kind, one of which doubles what attention gives."""
    attention = model.encoder.layers[0].self_attn
    attention.register_forward_hook(lambda module, inputs, out: (2 * out[0], out[1]))
    attention.register_forward_pre_hook(lambda module, inputs: None)
    attention.register_full_backward_hook(lambda module, before, after: None)
    model.encoder.layers[1].register_full_backward_pre_hook(lambda module, after: None)
    return model


def mixed(model: Net) -> Net:
    """Frozen in part, with gradients in part, and two layers tied."""
    model.embed.requires_grad_(False)
    forecast(model.eval(), torch.zeros(2, LENGTH, 14), torch.empty(0)).sum().backward()
    model.encoder.layers[1].self_attn.in_proj_weight = model.encoder.layers[0].self_attn.in_proj_weight
    return model


def wrapped(model: Net) -> nn.Module:
    return nn.DataParallel(model)  # without a device of its own it hands on


def counting(model: Net) -> Net:
    """A buffer that each forward pass writes, in place or anew."""
    model.register_buffer("passes", torch.zeros(2))

    def count(module: Net, inputs: object) -> None:
        module.passes[0] += 1
        module.passes = module.passes + 1

    model.register_forward_pre_hook(count)
    return model


SITUATIONS = {
    "train": trained,
    "hooks": hooked,
    "tied, frozen, gradients": mixed,
    "wrapped": wrapped,
    "writes buffers": counting,
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_model_in_any_state_gives_what_it_gives_and_stays_as_it_was(make, subject, batch, plain, situation):
    model = make()
    changed = SITUATIONS[situation](model)
    expected = plain(model)
    with unchanged(changed):
        found = subject(changed)
        for got, wanted in zip(probed(found, batch), expected, strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("in_place", [False, True])
def test_a_compiled_model_runs_as_it_was_written_and_stays_compiled(make, subject, batch, plain, in_place):
    graphs, runs = list[object](), list[object]()

    def backend(graph: nn.Module, inputs: object) -> Callable[..., object]:
        graphs.append(graph)
        return lambda *arguments: runs.append(graph) or graph(*arguments)

    model = make().eval()
    expected = plain(model)
    compiled = model if in_place else torch.compile(model, backend=backend)
    if in_place:
        model.compile(backend=backend)
    with torch.no_grad():
        before = compiled(batch[0])
        made, ran = len(graphs), len(runs)
        with unchanged(compiled):
            found = subject(compiled)
            for got, wanted in zip(probed(found, batch), expected, strict=True):
                torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6)
        assert (len(graphs), len(runs)) == (made, ran)
        assert torch.equal(compiled(batch[0]), before)
    assert (len(graphs), len(runs)) == (made, 2 * ran)
    assert ran > 0
    torch.compiler.reset()


def test_a_model_in_training_mode_is_probed_in_evaluation_mode(make, data):
    model = trained(make())
    with unchanged(model):
        found = probe_model(model, data, forecast)
    again = probe_model(make().eval(), data, forecast)
    for name, table in found.tables().items():
        np.testing.assert_array_equal(table.to_numpy(dtype=str), again.tables()[name].to_numpy(dtype=str), err_msg=name)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_weights_of_another_precision(make, subject, batch, plain, dtype):
    model = make().eval()
    mean, attn = plain(model)
    model.to(dtype)

    def cast(m: nn.Module, x_BLF: Tensor, future_BHK: Tensor) -> Tensor:
        return m(x_BLF.to(dtype))

    near = {torch.bfloat16: 0.05, torch.float16: 0.01, torch.float64: 1e-5}[dtype]
    with unchanged(model):
        found = subject(model, cast)
        got, seen = probed(found, batch)
        same = found.forecast(*batch, {0: Edit(v=lambda v: v.clone(), z=lambda z: z.clone())}).mean_BHC
    assert torch.equal(got, same)
    torch.testing.assert_close(got, mean, rtol=near, atol=near)
    torch.testing.assert_close(seen.float(), attn, rtol=0, atol=near)
    torch.testing.assert_close(seen.sum(-1), torch.ones_like(seen[..., 0]))
    with torch.no_grad():
        torch.testing.assert_close(got, model(batch[0].to(dtype)).float(), rtol=near, atol=near)
    if dtype != torch.float64:
        with pytest.raises(ConfigError, match="let it take x_BLF and future_BHK to what the model reads"):
            subject(model)


def test_autocast_is_the_models_and_attention_is_recorded_in_full(make, subject, batch, plain):
    model = make().eval()
    mean, attn = plain(model)

    def in_half(m: nn.Module, x_BLF: Tensor, future_BHK: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return m(x_BLF)

    with unchanged(model):
        got, seen = probed(subject(model, in_half), batch)
    assert not torch.equal(got, mean)
    torch.testing.assert_close(got, mean, rtol=0.05, atol=0.05)
    torch.testing.assert_close(seen, attn, rtol=0, atol=0.05)
    assert seen.dtype == torch.float32
    torch.testing.assert_close(seen.sum(-1), torch.ones(7, 5, 1), rtol=1e-6, atol=1e-6)
    with unchanged(model), torch.autocast("cpu", torch.bfloat16):
        outside = probed(subject(model), batch)
    torch.testing.assert_close(outside[1], seen, rtol=0, atol=1e-6)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_an_error_half_way_leaves_no_trace(make, subject, batch, situation):
    model = SITUATIONS[situation](make())

    def fail(x: Tensor) -> Tensor:
        torch.rand(3)
        raise ArithmeticError("half-way")

    with unchanged(model):
        found = subject(model)
        with pytest.raises(ArithmeticError, match="half-way"):
            found.forecast(*batch, {1: Edit(z=fail)})
        with pytest.raises(ConfigError, match="forecast fails on windows"):
            subject(model, lambda m, x, f: m(x)[:, :, 7])


def test_random_numbers_drawn_are_given_back_and_refused(make, subject):
    class Drawing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = encoder(1)

        def forward(self, x_BLD: Tensor) -> Tensor:
            return self.inner(x_BLD + torch.randn(len(x_BLD), 1, WIDTH))

    model = make(Drawing)
    with unchanged(model), pytest.raises(ConfigError, match="draws random numbers"):
        subject(model)


def test_a_scripted_model_is_refused_with_what_to_give_instead(make, subject):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch 2.13 deprecates what this is about
        scripted = torch.jit.trace(make().eval(), torch.randn(3, LENGTH, 14), check_trace=False)
    with pytest.raises(
        ConfigError, match="the model is scripted or traced, which hides attention: give the model it was made of"
    ):
        subject(scripted)
