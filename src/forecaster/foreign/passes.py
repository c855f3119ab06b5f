"""A forward pass of somebody else's model with its attention in hand, and nothing of the model changed by it."""

import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor, nn

from forecaster.errors import ConfigError
from forecaster.foreign.calls import Call, Kernel, Matrices, Take, attention, norm_weighted
from forecaster.foreign.hugging_face import dispatched
from forecaster.foreign.packed import Intercepted
from forecaster.foreign.tokens import Tokens
from forecaster.networks.attention import Captured, Edit


@contextmanager
def intercepted(model: nn.Module, take: Take) -> Generator[None]:
    """Every call of attention goes to `take`; compiled code runs as it was written. Afterwards all is as before: what
    stands in transformers' mapping, torch's random state, and buffers that a forward pass writes.
    """
    with ExitStack() as stack:
        stack.enter_context(_unchanged(model))
        if "torch._dynamo" in sys.modules:  # else nothing is compiled
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        mode = Intercepted(take)
        stack.enter_context(dispatched(mode))
        stack.enter_context(mode)
        yield


@contextmanager
def _unchanged(model: nn.Module) -> Generator[None]:
    held = [(module, dict(module._buffers)) for module in model.modules()]  # pyright: ignore[reportPrivateUsage]
    values = {id(x): x.clone() for _, buffers in held for x in buffers.values() if x is not None}
    devices = {x.device for x in model.parameters() if x.device.type == "cuda"}
    try:
        with torch.random.fork_rng(devices=list(devices)):
            yield
    finally:
        for module, buffers in held:
            module._buffers.clear()  # pyright: ignore[reportPrivateUsage]
            module._buffers.update(buffers)  # pyright: ignore[reportPrivateUsage]
            for x in buffers.values():
                if x is not None and not torch.equal(x, values[id(x)]):
                    x.copy_(values[id(x)])


@dataclass(frozen=True)
class Layer:
    """Heads of one call of attention, the same in every pass.

    place: the call's number in the pass. rows: the row of the query that stands at each bar.
    """

    place: int
    heads: int
    head_width: int
    width: int
    causal: bool
    matrices: Matrices
    tokens: Tokens
    rows: Mapping[int, int]

    def inputs_by_head(self) -> tuple[Float[Tensor, "N _ d"], Float[Tensor, "N _ d"], Float[Tensor, "N _ d"]]:
        """W_Q, W_K, W_V."""
        return self.matrices.query_NDd, self.matrices.key_NDd, self.matrices.value_NDd

    def output_by_head(self) -> Float[Tensor, "N d D"]:
        """W_O."""
        return self.matrices.output_NdD


@dataclass
class Edited:
    """What is done with each call of a pass over B windows: edits of v and z by layer, and records.

    channel: which of a window's sequences is meant, where it has several. calls: how many the model makes.
    """

    layers: Sequence[Layer]
    calls: int
    windows: int
    channel: int
    edits: Mapping[int, Edit]
    capture: Mapping[int, Sequence[int]]
    captured: dict[int, Captured] = field(default_factory=dict[int, Captured])
    count: int = 0

    def __call__(self, call: Call, kernel: Kernel) -> Tensor:
        """The call's z, by the model's own kernel."""
        number, self.count = self.count, self.count + 1
        layer = next((i for i, layer in enumerate(self.layers) if layer.place == number), None)
        if layer is None:
            return kernel(call.v_RNSd)
        meant, edit = self.layers[layer], self.edits.get(layer, Edit())
        v_RNSd = call.v_RNSd
        if edit.v is not None:
            v_RNSd = self._put(v_RNSd, meant.tokens.edited(self._of(v_RNSd), edit.v))
        z_RNTd = kernel(v_RNSd)
        if edit.z is not None:
            z_RNTd = self._put(z_RNTd, edit.z(self._of(z_RNTd)))
        if layer in self.capture:
            self.captured[layer] = self._record(meant, call, v_RNSd, z_RNTd, self.capture[layer])
        return z_RNTd

    def check(self) -> None:
        """ConfigError where the pass made another number of calls than it used to."""
        if self.count != self.calls:
            raise ConfigError(
                f"the model made {self.count} calls of attention where it had made {self.calls}: probes need the same "
                "layers for every batch of windows; forecast all windows that are given at once"
            )

    def _record(self, layer: Layer, call: Call, v_RNSd: Tensor, z_RNTd: Tensor, queries: Sequence[int]) -> Captured:
        attn_BNQS = self._of(attention(call, [layer.rows[bar] for bar in queries]))
        v_BNSd = self._of(v_RNSd).to(attn_BNQS.dtype)
        z_BNUd = self._of(z_RNTd)[:, :, [layer.rows[bar] for bar in sorted(layer.rows)]].to(attn_BNQS.dtype)
        with torch.autocast(attn_BNQS.device.type, enabled=False):  # the model's may be on
            norm_BNQS = norm_weighted(attn_BNQS, v_BNSd, layer.matrices.output_NdD)
            spread, values = layer.tokens.spread, layer.tokens.mean_values(v_BNSd)
            return Captured(spread(attn_BNQS), values, z_BNUd, tuple(queries), spread(norm_BNQS))

    def _of(self, x_R: Tensor) -> Tensor:
        """The meant sequence of each window."""
        return x_R if len(x_R) == self.windows else x_R.reshape(self.windows, -1, *x_R.shape[1:])[:, self.channel]

    def _put(self, x_R: Tensor, changed_B: Tensor) -> Tensor:
        """The sequences with the meant ones replaced."""
        if len(x_R) == self.windows:
            return changed_B.to(x_R.dtype)
        edited = x_R.reshape(self.windows, -1, *x_R.shape[1:]).clone()
        edited[:, self.channel] = changed_B.to(x_R.dtype)
        return edited.flatten(0, 1)
