"""A batch of windows computed once, and again from where an edit begins to matter."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from forecaster.networks.attention import Edit, MultiHeadAttention
from forecaster.networks.encoder import Output
from forecaster.probes.capture import evaluating
from forecaster.probes.subject import Subject
from forecaster.training.task import Task
from forecaster.windows.panel import Panel


def replay(subject: Subject, panel: Panel, origins: Int[np.ndarray, " B"], length: int) -> "Replay | Anew":
    """What of our own networks needn't be computed again for every edit; others are computed anew."""
    return (
        Replay(subject, panel, origins, length) if isinstance(subject, Task) else Anew(subject, panel, origins, length)
    )


class Anew:
    """The forecast of some windows, unedited and edited, each from a forward pass of its own."""

    def __init__(self, subject: Subject, panel: Panel, origins: Int[np.ndarray, " B"], length: int) -> None:
        self.subject = subject
        self.x_BLF = torch.from_numpy(panel.window(origins, length)).to(subject.device)
        self.future_BHK = torch.from_numpy(panel.future(origins)).to(subject.device)
        self.unedited = self.edited({})

    def edited(self, edits: Mapping[int, Edit]) -> Output:
        """The forecast with edits by layer."""
        with evaluating(self.subject):
            return self.subject.forecast(self.x_BLF, self.future_BHK, edits)

    def followed(self, edits: Mapping[int, Edit]) -> Output:
        """The same."""
        return self.edited(edits)


class Replay:
    """A forecast of some windows, with what went into each layer's block and came out of its attention.

    An edit changes nothing before its layer, and one of head outputs z nothing before z: both are taken from a pass
    that is known, so that the edited one gives the same bits as if all had been computed anew. The pass known is the
    unedited one, until another is followed.
    """

    def __init__(self, task: Task, panel: Panel, origins: Int[np.ndarray, " B"], length: int) -> None:
        self.task = task
        self.x_BLF = torch.from_numpy(panel.window(origins, length)).to(task.device)
        self.future_BHK = torch.from_numpy(panel.future(origins)).to(task.device)
        self._inputs: dict[int, Tensor] = {}
        self._outputs: dict[int, Tensor] = {}
        self._known: dict[int, Edit] = {}
        self.unedited = self._forecast({}, keep=True)

    def edited(self, edits: Mapping[int, Edit]) -> Output:
        """The forecast with edits by layer."""
        return self._forecast(edits, keep=False) if edits else self.unedited

    def followed(self, edits: Mapping[int, Edit]) -> Output:
        """The same, and later ones that begin with the very same edits are computed from where they differ."""
        out = self._forecast(edits, keep=True)
        self._known = dict(edits)
        return out

    def _forecast(self, edits: Mapping[int, Edit], *, keep: bool) -> Output:
        network = self.task.headed
        first = self._first_difference(edits) if self._inputs else 0
        again = bool(self._inputs) and all(edit is None or edit.v is None for edit in self._both(first, edits))
        with ExitStack() as stack:
            for layer in range(first):
                stack.enter_context(_standing_in(network.blocks, layer, _Given(self._inputs[first])))
            if again:
                output = self._outputs[first]
                stack.enter_context(_attending(network.attention(first), lambda *_, **__: output))
            for layer in range(first + again, network.layers) if keep else ():
                stack.callback(network.blocks[layer].register_forward_pre_hook(_keeping(self._inputs, layer)).remove)
                stack.enter_context(_attending(network.attention(layer), self._kept(layer)))
            with evaluating(self.task):
                return self.task.forecast(self.x_BLF, self.future_BHK, edits=edits)

    def _first_difference(self, edits: Mapping[int, Edit]) -> int:
        """The first layer whose edit is not the one of the pass that is known, or the last layer."""
        layers = self.task.headed.layers
        differing = (layer for layer in range(layers) if len({id(edit) for edit in self._both(layer, edits)}) > 1)
        return next(differing, layers - 1)

    def _both(self, layer: int, edits: Mapping[int, Edit]) -> tuple[Edit | None, Edit | None]:
        return self._known.get(layer), edits.get(layer)

    def _kept(self, layer: int) -> Callable[..., Tensor]:
        attend = self.task.headed.attention(layer).attend

        def kept(*arguments: Tensor | None, **options: float) -> Float[Tensor, "B N T d"]:
            self._outputs[layer] = attend(*arguments, **options)
            return self._outputs[layer]

        return kept


class _Given(nn.Module):
    """In a block's place: hands on what is known already."""

    def __init__(self, x_BSD: Float[Tensor, "B S D"]) -> None:
        super().__init__()
        self.x_BSD = x_BSD

    def forward(self, x_BSD: Tensor, queries: Sequence[int] | None, edit: Edit | None, capture: object) -> object:
        """No attention, nothing captured."""
        return self.x_BSD, None


def _keeping(kept: dict[int, Tensor], layer: int) -> Callable[[nn.Module, tuple[Any, ...]], None]:
    def keep(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        kept[layer] = inputs[0]

    return keep


@contextmanager
def _standing_in(blocks: nn.ModuleList, layer: int, other: nn.Module) -> Generator[None]:
    own = blocks[layer]
    blocks[layer] = other
    try:
        yield
    finally:
        blocks[layer] = own


@contextmanager
def _attending(attention: MultiHeadAttention, attend: Callable[..., Tensor]) -> Generator[None]:
    own = attention.attend
    attention.attend = attend
    try:
        yield
    finally:
        attention.attend = own
