"""The pruning curve: what each target loses as more and more heads are removed, by several orders.

Heads are ranked on validation; what counts is read on test. A share of skill is rise / (naive loss - whole network's).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pandas as pd

from forecaster.probes.causal import skill_share
from forecaster.probes.importance import IMPORTANCE_COLUMNS, every_head, gradient_scores, rows, stable_ranks
from forecaster.probes.knockout import Head, training_means
from forecaster.probes.removal import PARTS, Ground, Removals, constants, ground
from forecaster.probes.subject import Subject
from forecaster.windows.panel import Panel
from forecaster.windows.splits import Split

BOUND: Final = 0.01  # of skill, of the headline
STEPS: Final = 10  # at least: a step takes out a tenth of the heads at most
RANDOM_ORDERS: Final = 10
# heads: those that this step took out, in order. seed: of random orders. removed 0: the whole network.
PRUNING_COLUMNS: Final = (
    *("order", "seed", "removed", "share", "part", "target", "loss", "rise", "low", "high", "skill_share", "heads"),
)

Order = Literal["importance", "gradient", "stable_rank", "random"]
WORDS: Final[Mapping[str, str]] = {
    "importance": "ranked by importance",
    "gradient": "ranked by gradient",
    "stable_rank": "ranked by stable rank",
}


@dataclass(frozen=True)
class Pruning:
    """The curve and the heads' importance as tables, and the headline in sentences."""

    pruning: pd.DataFrame
    importance: pd.DataFrame
    sentences: list[str]

    def tables(self) -> dict[str, pd.DataFrame]:
        """Each under the name that the run keeps it by."""
        return {"pruning": self.pruning, "importance": self.importance}


def prune_curve(
    subject: Subject, panel: Panel, split: Split, length: int, progress: Callable[[str], None] = lambda _: None
) -> Pruning:
    """Importance of every head on validation, and the curve of every order."""
    heads = every_head(subject)
    progress(f"importance of {len(heads)} heads")
    outputs = constants(training_means(subject, panel, split.train, length))
    trials = {
        part: Removals(subject, panel, length, ground(subject, panel, split, length, part), outputs) for part in PARTS
    }
    choosing = trials["validation"]
    gradients = gradient_scores(subject, panel, length, choosing.ground)
    ranks = _ranks(subject)
    importance = list(rows(heads, choosing, gradients, ranks))
    progress("order of the heads by importance, ranked anew after each step")
    orders: dict[tuple[Order, int | None], list[Head]] = {
        ("importance", None): by_importance(choosing, heads),
        ("gradient", None): _lowest_first({head: choosing.ground.cost(gradients[head]) for head in heads}),
        ("stable_rank", None): _lowest_first({head: float(np.mean(list(ranks[head].values()))) for head in heads}),
    }
    for seed in range(RANDOM_ORDERS):
        drawn = np.random.default_rng(seed).permutation(len(heads))
        orders["random", seed] = [heads[place] for place in drawn]
    found: list[tuple[object, ...]] = []
    for part, trial in trials.items():
        # Random orders were ranked on nothing: the part that is reported is enough.
        asked = {key: order for key, order in orders.items() if part == "test" or key[0] != "random"}
        progress(f"loss on {part} as heads go, {len(asked)} orders")
        found += _rows(trial, asked)
    curve = pd.DataFrame(found, columns=list(PRUNING_COLUMNS)).astype({"seed": "Int64"})
    columns = list(IMPORTANCE_COLUMNS)
    return Pruning(curve, pd.DataFrame(importance, columns=columns), sentences(curve, trials["test"].ground))


def steps(count: int) -> list[int]:
    """How many heads are gone after each step: none, then a tenth at most, one at least, at a time, up to all."""
    return [*range(0, count, max(1, count // STEPS)), count]


def by_importance(trial: Removals, heads: Sequence[Head]) -> list[Head]:
    """The heads in the order in which they are removed: those first without which the trial's part loses least.

    After each step those left are ranked anew, each by what the network would lose without it and all removed before.
    """
    removed: list[Head] = []
    for upto in steps(len(heads))[1:]:
        gone = frozenset(removed)
        left = [head for head in heads if head not in gone]
        cost = dict(zip(left, trial.costs([gone | {head} for head in left]), strict=True))
        removed += _lowest_first(cost)[: upto - len(removed)]
    return removed


def removable(curve: pd.DataFrame, order: str, part: str, bound: float = BOUND) -> dict[int | None, int] | None:
    """By seed, how many heads can go while every open target loses at most `bound` of its skill, at no step more.

    None where no target is forecast with skill on that part.
    """
    asked = curve[(curve["order"] == order) & (curve["part"] == part)]
    found: dict[int | None, int] = {}
    for seed, of_seed in asked.groupby("seed", dropna=False):
        lost = of_seed.assign(skill_share=pd.to_numeric(of_seed["skill_share"], errors="coerce"))
        most = lost.groupby("removed")["skill_share"].max().sort_index()  # a closed target's NaN does not count
        if most.isna().all():
            return None
        within = (most <= bound).cummin()
        found[None if pd.isna(seed) else int(str(seed).removesuffix(".0"))] = int(most.index[within].max())
    return found


def heads_in_order(curve: pd.DataFrame, order: str = "importance") -> list[Head]:
    """The heads as an order removed them, read from its curve."""
    asked = curve[(curve["order"] == order) & (curve["part"] == "validation")].sort_values("removed")
    named = asked.drop_duplicates("removed")["heads"].dropna().astype(str)
    pairs = (name[1:].split("H") for cell in named for name in cell.split())
    return [(int(layer), int(head)) for layer, head in pairs]


def sentences(curve: pd.DataFrame, judged: Ground | None = None) -> list[str]:
    """The headline: how many heads can go, by each order, and what random orders reach."""
    count = int(curve["removed"].max())
    reached = {order: removable(curve, order, "test") for order in (*WORDS, "random")}
    if any(by_seed is None for by_seed in reached.values()):
        why = "" if judged is None else f" ({', '.join(gate.target for gate in judged.gates)})"
        return [f"No share of heads can be named: no target{why} is forecast with skill on test"]
    number = {order: [of / count for of in (by_seed or {}).values()] for order, by_seed in reached.items()}
    [ours] = number["importance"]
    others = ", ".join(f"{WORDS[order]} {number[order][0]:.0%}" for order in WORDS if order != "importance")
    lot = np.array(number["random"])
    first = (
        f"{round(ours * count)} of {count} heads ({ours:.0%}) can go while no target that is forecast with skill loses "
        f"more than {BOUND:.0%} of its skill on test ({WORDS['importance']} on validation)"
    )
    band = f"{np.median(lot):.0%} ({lot.min():.0%} to {lot.max():.0%}, {len(lot)} orders)"
    return [first, f"The same, {others}; removed by lot {band}"]


def _ranks(subject: Subject) -> dict[Head, dict[str, float]]:
    by_layer = {layer: stable_ranks(subject.headed.attention(layer)) for layer in {at for at, _ in every_head(subject)}}
    return {
        (layer, head): {name: float(ranks_N[head]) for name, ranks_N in by_layer[layer].items()}
        for layer, head in every_head(subject)
    }


def _lowest_first(score: Mapping[Head, float]) -> list[Head]:
    """NaN last; equal ones in the order of the heads."""
    return sorted(score, key=lambda head: (np.isnan(score[head]), score[head], head))


def _rows(trial: Removals, orders: Mapping[tuple[Order, int | None], Sequence[Head]]) -> Iterator[tuple[object, ...]]:
    ground, count = trial.ground, len(next(iter(orders.values())))
    loss_C = ground.loss_nC.mean(0)
    rises = trial.rises({frozenset(order[:gone]) for order in orders.values() for gone in steps(count)})
    for (name, seed), order in orders.items():
        before = 0
        for gone in steps(count):
            rise_C = rises[frozenset(order[:gone])]
            shares, taken = (
                skill_share(rise_C, ground.gates),
                " ".join(f"L{at}H{head}" for at, head in order[before:gone]),
            )
            before = gone
            for c, gate in enumerate(ground.gates):
                value, low, high = (float(end[c]) for end in (rise_C.value, rise_C.low, rise_C.high))
                told = float(loss_C[c]) + value, value, low, high, shares[c], taken or None
                yield name, seed, gone, gone / count, ground.part, gate.target, *told
