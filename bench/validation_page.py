"""docs/validation.md from what `bench/validate.py` has kept: every rate with its counts, failures left in."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

CONTENT = ("large_move", "volume_spike", "trend_origin")
PLANTED = {
    "planted_recency": ("recency",),
    "planted_weekly": ("weekly_target",),
    "planted_large_move": ("large_move",),
    "planted_volume": ("volume_spike",),
    "planted_trend": ("trend_origin",),
    "planted_several": ("recency", "weekly_target", "large_move"),
}
EARNS_RECENCY = ("exponential 3", "exponential 8", "power law", "decay by volatility")
Record = dict[str, Any]


def page(kept: Path) -> str:
    """The whole page; a part without results says so."""
    seeds = [json.loads(path.read_text()) for path in sorted(kept.glob("handmade/*.json"))]
    heads = [head for seed in seeds for head in seed["heads"]]
    parts = ["# How often the probes are right\n", INTRODUCTION, f"## Heads made by hand ({len(seeds)} seeds)\n"]
    if seeds:
        parts += [BACKGROUNDS, false_alarms(heads), RAW_P, raw_p(heads), POWER, power(heads), CONDITIONS]
        parts += [conditions(heads), CROSSED, crossed(heads), POSITIONAL, positional(seeds)]
    parts += ["## Planted markets, trained\n", planted(kept)]
    return "\n".join(parts)


def rate(hits: int, of: int) -> str:
    """3 of 40 (8 %, 2 to 20 %): the exact binomial interval of Clopper and Pearson (1934)."""
    if not of:
        return "–"
    low = stats.beta.ppf(0.025, hits, of - hits + 1) if hits else 0.0
    high = stats.beta.ppf(0.975, hits + 1, of - hits) if hits < of else 1.0
    return f"{hits} of {of} ({hits / of:.1%}, {low:.1%} to {high:.1%})"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of the page."""
    lines = [" | ".join(columns), " | ".join("---" for _ in columns)]
    lines += [" | ".join(str(cell) for cell in row) for row in rows]
    return "".join(f"| {line} |\n" for line in lines)


def false_alarms(heads: list[Record]) -> str:
    """Labels of each background that has nothing planted, by probe."""
    nulls = [head for head in heads if not head["share"]]
    probes = list(nulls[0]["kappa"])
    rows = []
    for name in dict.fromkeys(head["background"] for head in nulls):
        own = [head for head in nulls if head["background"] == name]
        counts = [sum(probe in head["labels"] for head in own) for probe in probes]
        rows.append((name, len(own), *counts))
    totals = [sum(row[column + 2] for row in rows) for column in range(len(probes))]
    unearned = [head for head in nulls if head["background"] not in EARNS_RECENCY]
    worst = max((row[column + 2] for row in rows for column in range(1, len(probes))), default=0)
    wrong = sum(bool(set(head["labels"]) - {"recency"}) for head in nulls)
    told = (
        f"\nAny label but recency: {rate(wrong, len(nulls))} of the heads; the most of one background and probe: "
        f"{rate(worst, rows[0][1])}. Recency where the profile does not earn it: "
        f"{rate(sum('recency' in head['labels'] for head in unearned), len(unearned))}.\n"
    )
    return table(("background", "heads", *probes), [*rows, ("all", len(nulls), *totals)]) + told


def raw_p(heads: list[Record]) -> str:
    """How often the shift null's uncorrected p is at most .05 where nothing is planted."""
    nulls = [head for head in heads if not head["share"]]
    names = list(dict.fromkeys(head["background"] for head in nulls))
    rows = []
    for name in names:
        own = [head for head in nulls if head["background"] == name]
        cells = []
        for probe in CONTENT:
            p = [head["p"][probe] for head in own if not np.isnan(head["p"][probe])]
            cells.append(f"{sum(value <= 0.05 for value in p)} of {len(p)}")
        largest = max(abs(head["kappa"][probe]) for head in own for probe in CONTENT)
        rows.append((name, *cells, f"{largest:.3f}"))
    return table(("background", *(f"{name} p ≤ .05" for name in CONTENT), "largest kappa"), rows)


def power(heads: list[Record]) -> str:
    """Labels of planted heads, by share."""
    shares = sorted({head["share"] for head in heads if head["share"]})
    rows = []
    for probe in dict.fromkeys(head["target"] for head in heads if head["share"]):
        own = [head for head in heads if head["target"] == probe]
        cells = []
        for share in shares:
            of = [head for head in own if head["share"] == share]
            cells.append(f"{sum(probe in head['labels'] for head in of)} of {len(of)}")
        rows.append((probe, *cells))
    return table(("planted", *(f"s = {share:g}" for share in shares)), rows)


def conditions(heads: list[Record]) -> str:
    """AUC at a share of .05 and the distance of kappa from the planted share, beside what is asked of them."""
    rows = []
    nulls = [head for head in heads if not head["share"]]
    for probe in dict.fromkeys(head["target"] for head in heads if head["share"]):
        own = [head for head in heads if head["target"] == probe]
        score = "kappa" if probe not in CONTENT else "z"
        few = np.array([head[score][probe] for head in own if head["share"] == 0.05])
        none = np.array([head[score][probe] for head in nulls])
        none = none[~np.isnan(none)]
        auc = float((few[:, None] > none).mean() + 0.5 * (few[:, None] == none).mean()) if len(none) else np.nan
        # The background's own kappa stays in the share that the target leaves it.
        own_kappa = {(id(head)): head["kappa"][probe] for head in own}
        base = defaultdict(list)
        for head in nulls:
            base[head["background"]].append(head["kappa"][probe])
        flat = [head for head in own if abs(np.mean(base[head["background"]])) <= 0.02]
        distance = [abs(own_kappa[id(head)] - head["share"]) for head in flat]
        rest = [abs(own_kappa[id(head)] - head["share"]) for head in own]
        within = f"{sum(value <= 0.02 for value in distance)} of {len(distance)}"
        rows.append((probe, f"{auc:.3f}", within, f"{max(distance, default=np.nan):.3f}", f"{max(rest):.3f}"))
    columns = ("planted", "AUC at s = .05", "kappa within .02 of s", "largest", "largest, all backgrounds")
    return table(columns, rows)


def crossed(heads: list[Record]) -> str:
    """What a head planted at a share of .2 scores on the other content probes, marginally and in the joint fit."""
    rows = []
    for target in CONTENT:
        own = [head for head in heads if head["target"] == target and head["share"] == 0.2]
        for probe in CONTENT:
            kappa = np.mean([head["kappa"][probe] for head in own])
            partial = [head["partial"][probe] for head in own]
            labelled = sum(probe in head["labels"] for head in own)
            rows.append(
                (
                    target,
                    probe,
                    f"{kappa:.3f}",
                    f"{np.mean(partial):.3f}",
                    f"{np.std(partial):.3f}",
                    f"{labelled} of {len(own)}",
                )
            )
    return table(("planted, s = .2", "probe", "kappa", "partial mass", "its sd", "labelled"), rows)


def positional(seeds: list[Record]) -> str:
    """Labels of random positional heads by the full weekly rule."""
    heads = [set(labels) for seed in seeds for labels in seed["positional"]]
    rows: list[tuple[str, Callable[[set[str]], bool]]] = [
        ("weekly", lambda labels: "weekly" in labels),
        ("weekly_target", lambda labels: "weekly_target" in labels),
        ("either anchor", lambda labels: bool(labels & {"weekly", "weekly_target"})),
        ("monthly", lambda labels: "monthly" in labels),
        ("any content probe", lambda labels: bool(labels & set(CONTENT))),
    ]
    return table(("label", "false alarms"), [(name, rate(sum(map(test, heads)), len(heads))) for name, test in rows])


def planted(kept: Path) -> str:
    """Trained networks: R2 against what the rule itself reaches, and the functional heads of the planted kinds."""
    rows = []
    for experiment in [*PLANTED, "planted_noise"]:
        runs = [path.parent for path in sorted(kept.glob(f"{experiment}/*/summary.json")) if _complete(path)]
        if not runs:
            continue
        kinds = PLANTED.get(experiment, ())
        summaries = [json.loads((run / "summary.json").read_text()) for run in runs]
        tables = [pd.read_csv(run / "heads.csv", keep_default_na=False) for run in runs]
        functional = [_heads(heads, "functional") for heads in tables]
        every = [len(heads[["layer", "head"]].drop_duplicates()) for heads in tables]
        scores = [pd.read_csv(run / "scores.csv") for run in runs]
        r2 = [_r2(score) for score in scores]
        reached = [
            f"{own:.3f} of {one['attainable_r2']:.3f}"
            for own, one in zip(r2, summaries, strict=True)
            if "attainable_r2" in one
        ]
        with_kind = [sum(any(name == kind for _, _, name in found) for found in functional) for kind in kinds]
        all_kinds = sum(all(any(name == kind for _, _, name in found) for kind in kinds) for found in functional)
        others = [{place for place in found if place[2] not in kinds} for found in functional]
        other = sum(len({place[:2] for place in found}) for found in others)
        which = Counter(name for found in others for *_, name in found)
        told = "; ".join(f"{kind} {rate(count, len(runs))}" for kind, count in zip(kinds, with_kind, strict=True))
        if len(kinds) > 1:
            told += f"; all of them {rate(all_kinds, len(runs))}"
        strangers = ", ".join(f"{name} {count}" for name, count in which.items())
        false = rate(other, sum(every)) + (f": {strangers}" if strangers else "")
        rows.append((experiment, len(runs), ", ".join(reached) or "nothing to reach", told or "–", false))
    if not rows:
        return "No run yet: `make validate` trains them.\n"
    columns = (
        "experiment",
        "runs",
        "R² reached of attainable",
        "runs with a functional head of the kind",
        "heads functional for another kind",
    )
    return table(columns, rows) + "\n" + PLANTED_NOTE


def _complete(summary: Path) -> bool:
    return json.loads(summary.read_text()).get("status") == "complete"


def _heads(heads: pd.DataFrame, label: str) -> set[tuple[int, int, str]]:
    rows = heads[heads["label"] == label]
    return set(zip(rows["layer"].astype(int), rows["head"].astype(int), rows["probe"], strict=True))


def _r2(scores: pd.DataFrame) -> float:
    rows = scores[(scores["symbol"] == "all") & (scores["metric"] == "r2") & (scores["model"] == "attention")]
    return float(rows["value"].iloc[0])


INTRODUCTION = """\
Written by `make validate` (`VALIDATE=quick` for a small set; what is done is kept below `build/validate/` and not done
again). Intervals of rates are exact binomial ones of 95 %. Whatever failed stands here as it came.
"""
BACKGROUNDS = """\
Attention made by hand on bars in which nothing is to be found: GARCH(.08, .90) returns with t4 noise, volume coupled to
|r|, real XNYS sessions, 2 symbols of 1,600 bars, windows of 64 bars, every window's last bar. The same weights stand
for both weightings. Numbers are heads that earned a label where nothing was planted, judged as 13 heads of one model.
"""
RAW_P = "\nBefore the correction for many heads, and without the thresholds on kappa and odds:\n"
POWER = """
A = (1 − s) background + s target on all 13 backgrounds, each such head judged as the fourteenth of its model. Numbers
are heads that earned the label.
"""
CONDITIONS = """
AUC: planted at .05 against nothing planted, by the shift null's (kappa − mean) / sd for content probes and by kappa for
the others. Kappa against the planted share on backgrounds that have no kappa of their own (up to .02), and on all.
"""
CROSSED = "\nLarge moves, volume spikes and pivots fall on the same bars. What is left in the joint fit:\n"
POSITIONAL = "\nThe full rules on random positional heads, weights exp(N(0, 1)) by lag, 100 a seed:\n"
PLANTED_NOTE = """\
Labels without the noise null (`probes=default`). The rule of `planted_trend` reads a large move, turns its sign on two
weekdays and takes the move back over five bars: that heads there are functional for large moves or a week is not all
error; how much of it is, is not known.
"""
