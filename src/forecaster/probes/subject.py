"""What the probes need of a network, ours or another's: a forecast that takes edits, and its attention by layer."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from forecaster.networks.attention import Edit
from forecaster.networks.encoder import Output


@runtime_checkable
class Attention(Protocol):
    """One layer's heads: how many, how wide, whether a query sees no later bar, and their matrices as views."""

    @property
    def heads(self) -> int: ...
    @property
    def head_width(self) -> int: ...
    @property
    def causal(self) -> bool: ...
    def inputs_by_head(self) -> tuple[Float[Tensor, "N D d"], Float[Tensor, "N D d"], Float[Tensor, "N D d"]]:
        """W_Q, W_K, W_V."""
        ...

    def output_by_head(self) -> Float[Tensor, "N d D"]:
        """W_O."""
        ...


@runtime_checkable
class Headed(Protocol):
    """A network's layers of attention, in the order in which a forward pass comes to them."""

    @property
    def layers(self) -> int: ...
    def computed(self, layer: int) -> tuple[int, ...]:
        """Bars of the window that a layer's queries stand at; the last bar is one of them."""
        ...

    def attention(self, layer: int) -> Attention:
        """A layer's heads."""
        ...


@runtime_checkable
class Subject(Protocol):
    """A network with its scaling: what the probes put questions to. `training.task.Task` is one.

    target_std: what losses of targets are measured in.
    """

    target_std: Float[Tensor, " C"]

    @property
    def device(self) -> torch.device: ...
    @property
    def headed(self) -> Headed: ...
    def modules(self) -> Iterator[nn.Module]:
        """Every module, for their training flags."""
        ...

    def eval(self) -> object:
        """Evaluation mode."""
        ...

    def forecast(
        self,
        x_BLF: Float[Tensor, "B L F"],
        future_BHK: Float[Tensor, "B H K"],
        edits: Mapping[int, Edit] | None = None,
        capture: Mapping[int, Sequence[int]] | None = None,
    ) -> Output:
        """Means in target units from raw features and the calendar ahead; edits of v and z, and records, by layer."""
        ...

    def point_losses(
        self, forecast_BHC: Float[np.ndarray, "B H C"], actual_BHC: Float[np.ndarray, "B H C"]
    ) -> Float[np.ndarray, "B C"]:
        """Loss of each window and target, in float64."""
        ...


def with_heads(network: Headed) -> list[int]:
    """Layers that have heads left."""
    return [layer for layer in range(network.layers) if network.attention(layer).heads]
