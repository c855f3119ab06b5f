"""Sets of heads, each replaced by one constant, on the windows of one part: what the loss rises by.

The constant is the head's mean output over the training windows and over the queries that its layer computes. It can be
folded into W_O's bias, so that a network from which these heads were cut out has exactly these losses; the causal tests
put in a mean for each slot, which can't.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from forecaster.networks.attention import Edit
from forecaster.probes.capture import batches
from forecaster.probes.intervals import Interval, blocks
from forecaster.probes.knockout import (
    Gate,
    Head,
    Means,
    ablation,
    gates,
    losses,
    point_forecasts,
    rise,
    units,
)
from forecaster.probes.replay import replay
from forecaster.probes.subject import Subject
from forecaster.windows.panel import Panel
from forecaster.windows.splits import Split

Part = Literal["validation", "test"]
PARTS: Final[tuple[Part, ...]] = ("validation", "test")


@dataclass(frozen=True)
class Ground:
    """One part's windows, the whole network's losses there, and each target's gate: what shares of skill are of."""

    part: Part
    origins: Int[np.ndarray, " n"]
    block_n: Int[np.ndarray, " n"]
    units_nC: Float[np.ndarray, "n C"]
    loss_nC: Float[np.ndarray, "n C"]
    gates: Sequence[Gate]

    @property
    def open(self) -> list[int]:
        """Targets that are forecast with skill here."""
        return [c for c, gate in enumerate(self.gates) if gate.open and gate.skill > 0]

    def cost(self, by_target_C: Float[np.ndarray, " C"]) -> float:
        """One figure for what all targets lose: the share of skill of the open one that loses most.

        No target may lose more than the bound, so that a gain for one, by chance or not, pays for nothing.

        Where none is open: the mean over all of the share of the network's own loss, so that heads still have an order.
        """
        if self.open:
            return float(np.max([by_target_C[c] / self.gates[c].skill for c in self.open]))
        return float((by_target_C / self.loss_nC.mean(0)).mean())


def ground(subject: Subject, panel: Panel, split: Split, length: int, part: Part) -> Ground:
    """The windows of a part; gates as in the causal tests, of this part."""
    origins = split.validation if part == "validation" else split.test
    units_nC = units(subject, panel, split.train, origins)
    mean_nHC = point_forecasts(subject, panel, origins, length)
    loss_nC = losses(subject, panel, origins, mean_nHC, units_nC)
    tested = gates(subject, panel, split.train, origins, mean_nHC, units_nC)
    block_n = blocks(panel.times[origins], length, panel.symbol_ids[origins])
    return Ground(part, origins, block_n, units_nC, loss_nC, tested)


def constants(means: Means) -> list[Float[Tensor, "_ d"]]:
    """Of each layer's heads the mean output over the queries that it computes."""
    return [z_NTd.double().mean(1).to(z_NTd.dtype) for z_NTd in means.z_NTd]


class Removals:
    """The network with heads removed, as edits of z, on one part."""

    def __init__(
        self, subject: Subject, panel: Panel, length: int, ground: Ground, outputs_Nd: Sequence[Float[Tensor, "_ d"]]
    ) -> None:
        self.subject, self.panel, self.length, self.ground = subject, panel, length, ground
        self.values = [outputs[:, None] for outputs in outputs_Nd]
        self._edits: dict[tuple[Head, ...], Edit] = {}

    def changes(self, sets: Iterable[frozenset[Head]]) -> dict[frozenset[Head], Float[np.ndarray, "n C"]]:
        """Of each set, loss without its heads less the whole network's, by window and target.

        Sets that agree in the first layers follow each other, so that those layers are computed once for all of them.
        """
        by_layer = {removed: self._layers(removed) for removed in sets}
        order = sorted(by_layer, key=lambda removed: sorted(removed))
        order.sort(key=lambda removed: [sorted(h for at, h in removed if at == layer) for layer in self._all_layers])
        ground, parts = self.ground, {removed: list[np.ndarray]() for removed in order}
        for part in batches(len(ground.origins) if order else 0, self.length):
            rows, units_BC = ground.origins[part], ground.units_nC[part]
            again = replay(self.subject, self.panel, rows, self.length)
            for removed in order:
                mean_BHC = again.followed(by_layer[removed]).mean_BHC.cpu().double().numpy()
                loss_BC = losses(self.subject, self.panel, rows, mean_BHC, units_BC)
                parts[removed].append(loss_BC - ground.loss_nC[part])
        return {removed: np.concatenate(of) for removed, of in parts.items()}

    def costs(self, sets: Sequence[frozenset[Head]]) -> list[float]:
        """Of each set, the one figure for what all targets lose."""
        found = self.changes(sets)
        return [self.ground.cost(found[removed].mean(0)) for removed in sets]

    def rises(self, sets: Iterable[frozenset[Head]]) -> dict[frozenset[Head], Interval]:
        """Of each set, the rise of each target's mean loss with its interval."""
        return {removed: rise(change, self.ground.block_n) for removed, change in self.changes(sets).items()}

    @property
    def _all_layers(self) -> range:
        return range(len(self.values))

    def _layers(self, removed: frozenset[Head]) -> dict[int, Edit]:
        """Edits by layer; the same heads of a layer are always the same edit."""
        edits: dict[int, Edit] = {}
        for layer in self._all_layers:
            if heads := tuple(sorted(head for head in removed if head[0] == layer)):
                if heads not in self._edits:
                    self._edits[heads] = ablation(heads, self.values)(slice(0))[layer]
                edits[layer] = self._edits[heads]
        return edits
