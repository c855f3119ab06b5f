"""Heads of several seeds: which of one training is which of another, and what may be said of the recipe.

Numbers of heads mean nothing between trainings: head 3 of one seed may do what head 6 does in another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Final, cast

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy import optimize

from forecaster.probes.intervals import mean
from forecaster.probes.labels import PATTERN_KAPPA, placebo_lags, placebos

ENOUGH_SEEDS: Final = 5
ROLE_COLUMNS: Final = ("probe", "label", "seeds", "with", "heads", "again", "by_chance")
WEEK_COLUMNS: Final = ("lag", "is", "heads", "difference", "low", "high", "seeds", "verdict")
assign = cast(Any, optimize).linear_sum_assignment  # without types
LABELS: Final = ("pattern", "functional")


@dataclass(frozen=True)
class Heads:
    """One run's heads at the last bar's query, raw weights: arrays over all heads H, layer by layer.

    labels: of each head the label by probe, where it has one.
    """

    layer_H: Int[np.ndarray, " H"]
    profile_HL: Float[np.ndarray, "H L"]
    kappa_HP: Float[np.ndarray, "H P"]
    labels: tuple[Mapping[str, str], ...]
    week_bars: int


def read(heads: pd.DataFrame, profiles: pd.DataFrame, week_bars: int) -> Heads:
    """From a run's heads.csv and lag_profiles.csv; a kappa that is not measurable counts as none."""
    last = heads[(heads["stratum"] == "last") & (heads["weights"] == "raw") & (heads["direction"] == "past")]
    kappa = last.assign(kappa=pd.to_numeric(last["kappa"], errors="coerce")).pivot_table(
        index=["layer", "head"], columns="probe", values="kappa", sort=False, dropna=False
    )
    own = profiles[(profiles["weights"] == "raw") & profiles["head"].notna()]
    wide = own.assign(mean=pd.to_numeric(own["mean"], errors="coerce")).pivot_table(
        index=["layer", "head"], columns="lag", values="mean"
    )
    places = list(wide.index)
    labelled = last[last["label"].isin(LABELS)]
    named: dict[tuple[int, int], dict[str, str]] = {}
    for row in labelled[["layer", "head", "probe", "label"]].itertuples(index=False):
        named.setdefault((int(row[0]), int(row[1])), {})[str(row[2])] = str(row[3])
    return Heads(
        layer_H=np.array([int(layer) for layer, _ in places]),
        profile_HL=wide.to_numpy(dtype=np.float64),
        kappa_HP=kappa.reindex(wide.index).fillna(0.0).to_numpy(dtype=np.float64),
        labels=tuple(named.get((int(layer), int(head)), {}) for layer, head in places),
        week_bars=week_bars,
    )


def matched(one: Heads, other: Heads) -> Int[np.ndarray, " H"]:
    """For each head of one run the head of the other that it is, within its layer, so that the distances sum to least.

    Distance: the Jensen-Shannon divergence of the lag profiles (base 2, 0 to 1) plus the mean difference of kappas.
    Kuhn (1955), The Hungarian Method for the Assignment Problem.
    """
    partner = np.full(len(one.layer_H), -1, dtype=np.int64)
    for layer in np.unique(one.layer_H):
        mine, theirs = np.flatnonzero(one.layer_H == layer), np.flatnonzero(other.layer_H == layer)
        distance = np.array([[_distance(one, int(a), other, int(b)) for b in theirs] for a in mine])
        rows, columns = cast("tuple[np.ndarray, np.ndarray]", assign(distance))
        partner[mine[rows]] = theirs[columns]
    return partner


def roles(runs: Sequence[Heads]) -> pd.DataFrame:
    """ROLE_COLUMNS: of each probe and label (functional ones are patterns too), how stable it is over seeds.

    with: seeds in which some head has it. heads: mean number of heads a seed. again: of the heads that have it, the
    share whose match in another seed has it too, over all ordered pairs of seeds; by_chance: the same share if heads
    were matched by lot within their layer.
    """
    pairs = [(a, b, matched(runs[a], runs[b])) for a, b in permutations(range(len(runs)), 2)]
    rows: list[tuple[object, ...]] = []
    for probe in dict.fromkeys(name for run in runs for labels in run.labels for name in labels):
        for label in LABELS:
            has = [np.array([_has(labels, probe, label) for labels in run.labels]) for run in runs]
            if not any(role.any() for role in has):
                continue
            again, lot, count = 0.0, 0.0, 0
            for a, b, partner in pairs:
                for head in np.flatnonzero(has[a]):
                    beside = has[b][runs[b].layer_H == runs[a].layer_H[head]]
                    again += float(partner[head] >= 0 and has[b][partner[head]])
                    lot += float(beside.mean()) if len(beside) else 0.0
                    count += 1
            numbers = [int(role.sum()) for role in has]
            shares = (again / count, lot / count) if count else (np.nan, np.nan)
            rows.append((probe, label, len(runs), sum(map(bool, numbers)), float(np.mean(numbers)), *shares))
    return pd.DataFrame(rows, columns=list(ROLE_COLUMNS))


def weeks(runs: Sequence[Heads]) -> pd.DataFrame:
    """WEEK_COLUMNS: how many heads a seed peak at each lag: a week before the query, before the target, placebos.

    A head peaks where its mean attention stands out of the bars at +-1, +-2 by kappa >= PATTERN_KAPPA. difference:
    heads at the weekly lag less the mean number at a placebo lag, with its t interval over seeds. verdict: the weekly
    probe's name where at least ENOUGH_SEEDS seeds were run, the interval is above 0, and no placebo lag has as many.
    """
    week, span = runs[0].week_bars, runs[0].profile_HL.shape[1]
    lags = placebo_lags(week, span)
    weekly = {"weekly": week, "weekly_target": week - 1}
    if not lags or week >= span - 1:
        return pd.DataFrame(columns=list(WEEK_COLUMNS))
    peaks = np.array(
        [(placebos(run.profile_HL, [*weekly.values(), *lags]) >= PATTERN_KAPPA).sum(0) for run in runs],
        dtype=np.float64,
    )
    beside_SP = peaks[:, len(weekly) :]
    gap = mean(np.ones(len(runs)), peaks[:, : len(weekly)] - beside_SP.mean(1, keepdims=True), fewest=2)
    rows: list[tuple[object, ...]] = []
    for place, (name, lag) in enumerate(weekly.items()):
        above = gap.low[place] > 0 and peaks[:, place].sum() > beside_SP.sum(0).max()
        verdict = f"too few seeds: {len(runs)} of {ENOUGH_SEEDS}"
        if len(runs) >= ENOUGH_SEEDS:
            verdict = name if above else "none"
        told = float(gap.value[place]), float(gap.low[place]), float(gap.high[place]), len(runs), verdict
        rows.append((lag, name, float(peaks[:, place].mean()), *told))
    nothing = (np.nan, np.nan, np.nan, len(runs), "")
    rows += [(lag, "placebo", float(beside_SP[:, n].mean()), *nothing) for n, lag in enumerate(lags)]
    return pd.DataFrame(rows, columns=list(WEEK_COLUMNS))


def _has(labels: Mapping[str, str], probe: str, label: str) -> bool:
    found = labels.get(probe)
    return found == label or (label == "pattern" and found == "functional")


def _distance(one: Heads, a: int, other: Heads, b: int) -> float:
    p, q = one.profile_HL[a], other.profile_HL[b]
    if len(p) != len(q):
        return 1.0
    middle = (p + q) / 2
    divergence = 0.5 * (_relative_entropy(p, middle) + _relative_entropy(q, middle))
    return divergence + float(np.abs(one.kappa_HP[a] - other.kappa_HP[b]).mean())


def _relative_entropy(p: Float[np.ndarray, " L"], q: Float[np.ndarray, " L"]) -> float:
    seen = p > 0
    return float((p[seen] * np.log2(p[seen] / q[seen])).sum())
