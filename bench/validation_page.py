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
OWN_MARKS, UNTRAINED = "own marks", "random initialisation"
EARNS_RECENCY = ("exponential 3", "exponential 8", "power law", "decay by volatility")
Record = dict[str, Any]


def page(kept: Path) -> str:
    """The whole page; a part without results says so."""
    seeds = [json.loads(path.read_text()) for path in sorted(kept.glob("handmade/*.json"))]
    short = [json.loads(path.read_text()) for path in sorted(kept.glob("short/*.json"))]
    heads = [head for seed in seeds for head in seed["heads"]]
    parts = ["# How often the probes are right\n", INTRODUCTION, f"## Heads made by hand ({len(seeds)} seeds)\n"]
    if seeds:
        parts += [BACKGROUNDS, judged_as(heads), false_alarms(heads), RAW_P, raw_p(heads)]
        parts += [POWER.format(count=len(_planted_on(heads))), power(heads), CONDITIONS, conditions(heads)]
        parts += [CROSSED, crossed(heads), POSITIONAL, positional(seeds, short), SHORT]
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


def judged_as(heads: list[Record]) -> str:
    """Which heads of a seed are one model."""
    models = {head["background"]: head["model"] for head in _unplanted(heads)}
    own = "; ".join(f"{count} of {name}" for name, count in models.items() if name.startswith(OWN_MARKS))
    others = {count for name, count in models.items() if not name.startswith(OWN_MARKS)}
    lags = {head["background"] for head in _unplanted(heads) if head["by_lag"]}
    return (
        f"Judged as heads of one model: {own}; the {' or '.join(map(str, sorted(others)))} others. On {len(lags)} "
        "backgrounds attention depends on the lag alone: there a content probe's kappa is 0 by its definition (–), and "
        "only the other backgrounds test it.\n"
    )


def false_alarms(heads: list[Record]) -> str:
    """Labels of each background that has nothing planted, by probe."""
    nulls = _unplanted(heads)
    probes = list(nulls[0]["kappa"])
    rows, tried, total = [], [], Counter[str]()
    for name in dict.fromkeys(head["background"] for head in nulls):
        own = [head for head in nulls if head["background"] == name]
        counts = {probe: sum(probe in head["labels"] for head in own) for probe in probes}
        total.update(counts)
        by_definition = CONTENT if own[0]["by_lag"] else ()
        tried += [(counts[probe], len(own)) for probe in probes[1:] if probe not in by_definition]
        rows.append((name, len(own), *(_count(counts[probe], own[0]["by_lag"], probe) for probe in probes)))
    unearned = [head for head in nulls if head["background"] not in EARNS_RECENCY]
    tested = [head for head in nulls if not head["by_lag"]]
    wrong = sum(bool(set(head["labels"]) - {"recency"}) for head in nulls)
    content = sum(bool(set(head["labels"]) & set(CONTENT)) for head in tested)
    worst = max(tried, key=lambda one: (one[0] / one[1], -one[1]))
    recent = sum("recency" in head["labels"] for head in unearned)
    told = (
        f"\nAny label but recency: {rate(wrong, len(nulls))} of the heads. A content label on the heads that test it: "
        f"{rate(content, len(tested))}. The most of one background and probe: {rate(*worst)}. Recency where the "
        f"profile does not earn it: {rate(recent, len(unearned))}. All heads of a seed look at the same bars: take "
        "every interval here as too narrow.\n"
    )
    return table(("background", "heads", *probes), [*rows, ("all", len(nulls), *total.values())]) + told


def _count(hits: int, by_lag: bool, probe: str) -> str:
    return "–" if by_lag and probe in CONTENT and not hits else str(hits)


def raw_p(heads: list[Record]) -> str:
    """How often the shift null's uncorrected p is at most .05 where nothing is planted."""
    nulls = [head for head in _unplanted(heads) if not head["by_lag"]]
    rows = []
    for name in dict.fromkeys(head["background"] for head in nulls):
        own = [head for head in nulls if head["background"] == name]
        largest = max(abs(head["kappa"][probe]) for head in own for probe in CONTENT)
        rows.append((name, *(" of ".join(map(str, _small(own, probe))) for probe in CONTENT), f"{largest:.3f}"))
    by_name = {row[0]: row for row in rows}
    told = ""
    marks = [head for head in nulls if head["background"].startswith(OWN_MARKS)]
    if marks:
        for name in dict.fromkeys(head["background"] for head in marks):
            own = [head for head in marks if head["background"] == name]
            cells = [f"{probe} {rate(*_small(own, probe))}" for probe in CONTENT]
            told += f"\n{name.capitalize()}, where 5 % are expected: {', '.join(cells)}.\n"
        told += "\nHeads of a seed share the flagged bars: these intervals are too narrow.\n"
    if UNTRAINED in by_name:
        _, *cells, largest = by_name[UNTRAINED]
        words = ", ".join(f"{cell} ({probe})" for probe, cell in zip(CONTENT, cells, strict=True))
        told += (
            f"\nHeads at random initialisation respond to what happened, a little: p ≤ .05 in {words}, kappa up to "
            f"{largest}. There, as where the decay follows volatility, the thresholds on kappa and odds keep the label "
            "away, not p.\n"
        )
    return table(("background", *(f"{name} p ≤ .05" for name in CONTENT), "largest kappa"), rows) + told


def _small(heads: list[Record], probe: str) -> tuple[int, int]:
    """How many of how many p are at most .05."""
    p = [head["p"][probe] for head in heads if not np.isnan(head["p"][probe])]
    return sum(value <= 0.05 for value in p), len(p)


def _unplanted(heads: list[Record]) -> list[Record]:
    return [head for head in heads if not head["share"]]


def _planted_on(heads: list[Record]) -> set[str]:
    return {head["background"] for head in heads if head["share"]}


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
    earned = [head for head in heads if head["target"] == "recency" and head["background"] in EARNS_RECENCY]
    told = (
        f"\nRecency: {sum(head['share'] == shares[0] for head in earned)} of its heads lie on backgrounds that earn it "
        "themselves; up to s = 0.1 its threshold on kappa, .2, is above the share.\n"
    )
    return table(("planted", *(f"s = {share:g}" for share in shares)), rows) + told


def conditions(heads: list[Record]) -> str:
    """AUC at a share of .05 and the distance of kappa from the planted share, beside what is asked of them."""
    rows = []
    nulls, on = _unplanted(heads), _planted_on(heads)
    for probe in dict.fromkeys(head["target"] for head in heads if head["share"]):
        own = [head for head in heads if head["target"] == probe]
        score = "kappa" if probe not in CONTENT else "z"
        few = np.array([head[score][probe] for head in own if head["share"] == 0.05])
        against = [head for head in nulls if (not head["by_lag"] if probe in CONTENT else head["background"] in on)]
        none = np.array([head[score][probe] for head in against])
        none = none[~np.isnan(none)]
        auc = float((few[:, None] > none).mean() + 0.5 * (few[:, None] == none).mean()) if len(none) else np.nan
        # The background's own kappa stays in the share that the target leaves it.
        own_kappa = {(id(head)): head["kappa"][probe] for head in own}
        base = defaultdict(list)
        for head in (one for one in nulls if one["background"] in on):
            base[head["background"]].append(head["kappa"][probe])
        flat = [head for head in own if abs(np.mean(base[head["background"]])) <= 0.02]
        distance = [abs(own_kappa[id(head)] - head["share"]) for head in flat]
        rest = [abs(own_kappa[id(head)] - head["share"]) for head in own]
        within = f"{sum(value <= 0.02 for value in distance)} of {len(distance)}"
        rows.append((probe, f"{auc:.3f}", within, f"{max(distance, default=np.nan):.3f}", f"{max(rest):.3f}"))
    columns = (
        "planted",
        "AUC at s = .05",
        "kappa within .02 of s (heads × shares)",
        "largest",
        "largest, all backgrounds",
    )
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


def positional(seeds: list[Record], short: list[Record]) -> str:
    """Labels of random positional heads by the full weekly rule, in long windows and in short ones."""
    columns = [[set(labels) for seed in some for labels in seed["positional"]] for some in (seeds, short)]
    tests: list[tuple[str, Callable[[set[str]], bool]]] = [
        ("weekly", lambda labels: "weekly" in labels),
        ("weekly_target", lambda labels: "weekly_target" in labels),
        ("either anchor", lambda labels: bool(labels & {"weekly", "weekly_target"})),
        ("monthly", lambda labels: "monthly" in labels),
    ]
    rows = [(name, *(rate(sum(map(test, heads)), len(heads)) for heads in columns)) for name, test in tests]
    content = [sum(bool(labels & set(CONTENT)) for labels in heads) for heads in columns]
    by_definition = "– (0 by definition: these heads don't look at what happened)"
    cells = (rate(hits, len(heads)) if hits else by_definition for hits, heads in zip(content, columns, strict=True))
    return table(("label", "false alarms, windows of 64", "windows of 32"), [*rows, ("any content probe", *cells)])


def planted(kept: Path) -> str:
    """Trained networks: R2 against what the rule itself reaches, and the heads of the planted kinds and of others."""
    rows = []
    for experiment in [*PLANTED, "planted_noise"]:
        runs = [path.parent for path in sorted(kept.glob(f"{experiment}/*/summary.json")) if _complete(path)]
        if not runs:
            continue
        kinds = PLANTED.get(experiment, ())
        summaries = [json.loads((run / "summary.json").read_text()) for run in runs]
        tables = [pd.read_csv(run / "heads.csv", keep_default_na=False) for run in runs]
        functional = [_heads(heads, ("functional",)) for heads in tables]
        patterns = [_heads(heads, ("pattern", "functional")) for heads in tables]
        every = [len(heads[["layer", "head"]].drop_duplicates()) for heads in tables]
        gates = [any(": skill (" in sentence for sentence in one["gates"]) for one in summaries]
        scores = [pd.read_csv(run / "scores.csv") for run in runs]
        r2 = [_r2(score) for score in scores]
        reached = [
            f"{own:.3f} of {one['attainable_r2']:.3f}"
            for own, one in zip(r2, summaries, strict=True)
            if "attainable_r2" in one
        ]
        with_kind = [sum(any(name == kind for _, _, name in found) for found in functional) for kind in kinds]
        all_kinds = sum(all(any(name == kind for _, _, name in found) for kind in kinds) for found in functional)
        told = "; ".join(f"{kind} {rate(count, len(runs))}" for kind, count in zip(kinds, with_kind, strict=True))
        if len(kinds) > 1:
            told += f"; all of them {rate(all_kinds, len(runs))}"
        could = sum(count for count, opened in zip(every, gates, strict=True) if opened)
        false = _strangers(functional, kinds, could) if could else "none could be"
        if not all(gates):
            false += f"; gate open in {rate(sum(gates), len(runs)).replace(' (', ' runs (', 1)}"
        strange = _strangers(patterns, kinds, sum(every))
        rows.append((experiment, len(runs), ", ".join(reached) or "nothing to reach", told or "–", strange, false))
    if not rows:
        return "No run yet: `make validate` trains them.\n"
    columns = (
        "experiment",
        "runs",
        "R² reached of attainable",
        "runs with a functional head of the kind",
        "heads with a pattern of another kind",
        "heads functional for another kind",
    )
    return table(columns, rows) + "\n" + PLANTED_NOTE


def _strangers(runs: Sequence[set[tuple[int, int, str]]], kinds: Sequence[str], of: int) -> str:
    """Heads with a label of a kind that was not planted, and how many of each kind."""
    others = [{place for place in found if place[2] not in kinds} for found in runs]
    which = Counter(name for found in others for *_, name in found)
    told = ", ".join(f"{name} {count}" for name, count in sorted(which.items()))
    return rate(sum(len({place[:2] for place in found}) for found in others), of) + (f": {told}" if told else "")


def _complete(summary: Path) -> bool:
    return json.loads(summary.read_text()).get("status") == "complete"


def _heads(heads: pd.DataFrame, labels: Sequence[str]) -> set[tuple[int, int, str]]:
    rows = heads[heads["label"].isin(labels)]
    return set(zip(rows["layer"].astype(int), rows["head"].astype(int), rows["probe"], strict=True))


def _r2(scores: pd.DataFrame) -> float:
    rows = scores[(scores["symbol"] == "all") & (scores["metric"] == "r2") & (scores["model"] == "attention")]
    return float(rows["value"].iloc[0])


INTRODUCTION = """\
Written by `make validate` from 20 seeds of heads made by hand (ten minutes of processor time) and 50 runs on planted
markets (about an hour and a half). What is done is kept below `build/validate/` and not done again. `VALIDATE=quick`
makes a small set in minutes: from less than the full set the page is written to `build/validate/validation.md`.
Intervals of rates are exact binomial ones of 95 %. Whatever failed stands here as it came.
"""
BACKGROUNDS = """\
Attention made by hand on bars in which nothing is to be found: GARCH(.08, .90) returns with t4 noise, volume coupled
to |r|, real XNYS sessions, 2 symbols of 1,600 bars, windows of 64 bars, every window's last bar. The same weights stand
for both weightings. *Own marks*: each bar of each symbol has a mark g of its own, drawn from N(0, 1), and attention
over the window is proportional to exp(g) (soft) or exp(4 g) (sharp). Such heads follow bars by date, and nothing in
them; the marks of two symbols and of neighbouring bars are independent, so that heads which follow dates common to all,
or stretches of time, are not tested here. Numbers are heads that earned a label where nothing was planted.
"""
RAW_P = """
Before the correction for many heads, and without the thresholds on kappa and odds, of the heads that test it:
"""
POWER = """
A = (1 − s) background + s target on {count} backgrounds (without own marks), each such head judged as one more of their
model. Numbers are heads that earned the label.
"""
CONDITIONS = """
AUC: planted at .05 against nothing planted, for content probes by the shift null's (kappa − mean) / sd and against the
heads that test them (own marks among them), for the others by kappa and against the same backgrounds. Kappa against
the planted share on backgrounds that have no kappa of their own (up to .02), and on all.
"""
CROSSED = "\nLarge moves, volume spikes and pivots fall on the same bars. What is left in the joint fit:\n"
POSITIONAL = "\nThe full rules on random positional heads, weights exp(N(0, 1)) by lag, 100 a seed:\n"
SHORT = """
All planted experiments but the hourly one have windows of 32 bars. There a lag gets twice the share, and more of them
reach a kappa of .05.
"""
PLANTED_NOTE = """\
Labels without the noise null (`probes=default`). Heads of one network are not independent: take the intervals over
heads as too narrow. A pattern says where a head looks, not that the market has such a rule; heads can be functional
only where the network forecasts with skill (its gate is open). The rule of `planted_trend` reads a large move, turns
its sign on two weekdays and takes the move back over five bars: that heads there are functional for large moves or a
week is not all error; how much of it is, is not known.
"""
