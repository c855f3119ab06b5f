"""The causal tests of one network on its test windows: every head ablated, and the flagged bars of every pattern."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from jaxtyping import Bool, Float

from forecaster.probes.capture import batches, forecast
from forecaster.probes.intervals import Interval, blocks
from forecaster.probes.knockout import (
    Edits,
    Gate,
    Head,
    ablation,
    changes,
    gates,
    point_forecasts,
    rise,
    same_mass,
    same_offsets,
    training_means,
    units,
    value_knockout,
)
from forecaster.probes.masks import Mask, Probe
from forecaster.probes.statistics import by_block
from forecaster.probes.subject import Subject
from forecaster.probes.survey import last_mask, session_slots
from forecaster.windows.panel import Panel
from forecaster.windows.splits import Split

MATCHED_LAG: Final = "matched_lag"
MATCHED_MASS: Final = "matched_mass"

Claim = tuple[Head, Probe]


@dataclass(frozen=True)
class Knockout:
    """What knocking out the values of a head's flagged bars did, arrays over targets.

    flagged: rise. matched: rise by kind of matched bars. specificity: the former less each of the latter, over the
    windows that have both. mass_matched: share of the flagged mass that the matched bars of `matched_mass` carry.
    """

    flagged: Interval
    matched: Mapping[str, Interval]
    specificity: Mapping[str, Interval]
    mass_matched: float


class Trials:
    """Edited passes over the test windows, all against the same unedited one."""

    def __init__(self, task: Subject, panel: Panel, split: Split, length: int) -> None:
        self.task, self.panel, self.origins, self.length = task, panel, split.test, length
        self.means = training_means(task, panel, split.train, length)
        self.block_n = blocks(panel.times[split.test], length, panel.symbol_ids[split.test])
        self.units_nC = units(task, panel, split.train, split.test)
        mean_nHC = point_forecasts(task, panel, split.test, length)
        self.gates: list[Gate] = gates(task, panel, split.train, split.test, mean_nHC, self.units_nC)
        self.counts_b = np.bincount(self.block_n).astype(np.float64)
        # Of every set of heads that was ablated by its means, the rises summed by block.
        self.summed: dict[frozenset[Head], Float[np.ndarray, "b C"]] = {}

    def changes(self, asked: Sequence[Edits]) -> list[Float[np.ndarray, "n C"]]:
        """Of each edit, loss with it less loss without, by window and target."""
        return changes(self.task, self.panel, self.origins, self.length, self.units_nC, asked)

    def alone(self, heads: Sequence[Head]) -> dict[Head, dict[str, Interval]]:
        """Rise of each target's loss when one head puts out its training mean, or ("zero") nothing, for each head.

        Zero overstates heads whose mean others rely on.
        """
        kinds = {"mean": self.means.z_NTd, "zero": None}
        found = self.changes([ablation([head], values) for values in kinds.values() for head in heads])
        self._sum(({head} for head in heads), found)
        every = iter(found)
        rises = {kind: {head: rise(next(every), self.block_n) for head in heads} for kind in kinds}
        return {head: {kind: rises[kind][head] for kind in kinds} for head in heads}

    def together(self, groups: Sequence[Sequence[Head]]) -> list[Interval]:
        """Rise of each target's loss when all heads of a group put out their training means, for each group."""
        found = self.changes([ablation(group, self.means.z_NTd) for group in groups])
        self._sum(groups, found)
        return [rise(change, self.block_n) for change in found]

    def _sum(self, groups: Iterable[Iterable[Head]], found: Sequence[Float[np.ndarray, "n C"]]) -> None:
        for group, change_nC in zip(groups, found, strict=False):
            self.summed[frozenset(group)] = by_block(change_nC, self.block_n, len(self.counts_b))

    def knockouts(self, claims: Sequence[Claim]) -> list[Knockout]:
        """Flagged bars of each claim against bars of another time (content probes) and against bars of equal mass."""
        masks = {probe.name: last_mask(probe, self.panel, self.origins, self.length) for _, probe in claims}
        same = self._same_mass([(head, masks[probe.name]) for head, probe in claims])
        return [
            self._knockout(head, probe, masks[probe.name], *matched)
            for (head, probe), matched in zip(claims, same, strict=True)
        ]

    def _knockout(
        self, head: Head, probe: Probe, mask: Mask, mass_flags_nL: Bool[np.ndarray, "n L"], mass_matched: float
    ) -> Knockout:
        comparisons = {MATCHED_MASS: (mass_flags_nL, mask.measurable)}
        if probe.content:
            _, slots = session_slots(self.panel, self.origins, self.length)
            offsets = same_offsets(mask, self.panel.symbol_ids[self.origins], self.length, slots)
            comparisons = {MATCHED_LAG: offsets, **comparisons}
        flags = [mask.flags, *(flags_nL for flags_nL, _ in comparisons.values())]
        flagged_nC, *others = self.changes([value_knockout(head, flags_nL, self.means) for flags_nL in flags])
        matched: dict[str, Interval] = {}
        specificity: dict[str, Interval] = {}
        for (kind, (_, used_n)), change_nC in zip(comparisons.items(), others, strict=True):
            matched[kind] = rise(change_nC, self.block_n, used_n)
            specificity[kind] = rise(flagged_nC - change_nC, self.block_n, used_n)
        return Knockout(rise(flagged_nC, self.block_n, mask.measurable), matched, specificity, mass_matched)

    def _same_mass(self, wanted: Sequence[tuple[Head, Mask]]) -> list[tuple[Bool[np.ndarray, "n L"], float]]:
        """For each head and mask: unflagged bars of about the flagged mass, and the share of it that they carry."""
        flags = [np.zeros_like(mask.flags) for _, mask in wanted]
        carried = np.zeros((len(wanted), 2))
        capture = dict.fromkeys({head[0] for head, _ in wanted}, (self.length - 1,))
        for part in batches(len(self.origins), self.length) if wanted else ():
            captured = forecast(self.task, self.panel, self.origins[part], self.length, capture=capture).captured
            attention = {
                layer: np.ascontiguousarray(record.attn_BNTS[:, :, 0].cpu().numpy()[..., ::-1])
                for layer, record in captured.items()
            }
            for number, ((layer, head), mask) in enumerate(wanted):
                attention_nL = attention[layer][:, head].astype(np.float64)
                flags[number][part] = same_mass(attention_nL, mask.flags[part])
                carried[number] += [(attention_nL * which).sum() for which in (flags[number][part], mask.flags[part])]
        return [(chosen, float(mass / of) if of else np.nan) for chosen, (mass, of) in zip(flags, carried, strict=True)]


def skill_share(rise_C: Interval, tested: Sequence[Gate]) -> list[float]:
    """Rise / (naive loss - model loss) of each target; NaN where the gate is closed or that difference not above 0."""
    return [
        float(rise_C.value[c]) / gate.skill if gate.open and gate.skill > 0 else np.nan for c, gate in enumerate(tested)
    ]
