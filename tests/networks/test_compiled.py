"""Attention under torch.compile: one graph, same numbers. Its C++ backend needs a compiler and minutes: not here."""

import importlib.util
from collections.abc import Iterator
from types import ModuleType

import jaxtyping
import pytest
import torch

from forecaster.networks import attention as attention_module
from forecaster.networks.positions import Alibi

B, T, S, D, N = 2, 7, 9, 20, 5


@pytest.fixture
def unchecked() -> Iterator[ModuleType]:
    """The module without the checks of shapes that tests put around it, as users have it: these can't be compiled."""
    spec = importlib.util.spec_from_file_location("unchecked_attention", attention_module.__file__)
    assert spec is not None
    assert spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    jaxtyping.config.update("jaxtyping_disable", True)
    yield copy
    jaxtyping.config.update("jaxtyping_disable", False)
    torch.compiler.reset()


@pytest.mark.parametrize("positions", ["rotary", "alibi"])
def test_it_compiles_whole_and_gives_the_same(positions: str, unchecked: ModuleType) -> None:
    torch.manual_seed(0)
    options = {"rotary": True} if positions == "rotary" else {"relative": Alibi(N)}
    attention, x, cache = (
        unchecked.MultiHeadAttention(D, N, causal=True, **options),
        torch.randn(B, T, D),
        unchecked.Cache(),
    )
    compiled = torch.compile(attention, backend="aot_eager", fullgraph=True)
    present = torch.tensor([[True] * 5 + [False] * 2, [False] * 7])
    for call in ({"present_BS": present, "capture": (6, 3)}, {"memory_BSD": torch.randn(B, S, D), "start": S}):
        outputs = [made(x, **call)[0] for made in (attention, compiled)]
        torch.testing.assert_close(*outputs, atol=1e-6, rtol=0)
        wanted = list(attention.parameters())
        gradients = [torch.autograd.grad(out.square().sum(), wanted) for out in outputs]
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=0)
    with torch.no_grad():
        steps = [compiled(x[:, t : t + 1], cache=cache)[0] for t in range(T)]
        torch.testing.assert_close(torch.cat(steps, 1), attention(x)[0], atol=1e-6, rtol=0)
