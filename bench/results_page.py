"""docs/results.md from the runs that `bench/results.py` has kept: what survives which test, with intervals."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from scipy import stats
from validation_page import rate, table

from forecaster.probes.drift import ALPHA
from forecaster.probes.pruning import removable

TITLES = {
    "sp500": "S&P 500 and NASDAQ, daily",
    "planted_hourly": "A planted market of hourly bars: r[t+1] = .7 r[t-34] + e, a week of 35 bars",
}
ORDERS = ("importance", "gradient", "stable_rank", "random")
MANY = 1000  # times chance, from where on odds say no more
COSTLY = 5  # heads shown of those that cost most to lose
FEWEST = 2  # seeds that have a spread
FURTHER = {"pruning", "redundancy", "drift_tests"}
Run = dict[str, Any]


def page(kept: Path) -> str:
    """The whole page; an experiment without runs says so."""
    parts = ["# What the heads were found to do\n", INTRODUCTION]
    for experiment, title in TITLES.items():
        runs = [read(path.parent) for path in sorted(kept.glob(f"{experiment}/*/summary.json"))]
        runs = [run for run in runs if run["summary"].get("status") == "complete"]
        parts.append(f"## {title} (`experiment={experiment}`, {len(runs)} seeds)\n")
        parts += [scores(runs), LABELS, labels(runs), *told(runs), COSTS, costs(runs)] if runs else ["No run yet.\n"]
        if runs and all(run.keys() >= FURTHER for run in runs):
            parts += [PRUNING, removed(runs), ANCHORS, REDUNDANCY, pairs(runs), groups(runs), DRIFT, changed(runs)]
        elif runs:
            parts.append("The tables of pruning, redundancy and drift are left out here: not every run has them.\n")
    return "\n".join(parts)


def read(folder: Path) -> Run:
    """Summary and tables of a run."""
    names = ("scores", "heads", "knockouts", "head_nulls", "pruning", "redundancy", "drift_tests")
    paths = {name: folder / f"{name}.csv" for name in names}
    tables = {name: pd.read_csv(path, keep_default_na=False) for name, path in paths.items() if path.is_file()}
    return {"summary": json.loads((folder / "summary.json").read_text()), **tables}


def scores(runs: Sequence[Run]) -> str:
    """R2 of the network by target and seed, and on a planted market what its rule reaches."""
    targets = runs[0]["summary"]["targets"]
    planted = all("attainable_r2" in run["summary"] for run in runs)
    rows = []
    for run in runs:
        asked = run["scores"].query("symbol == 'all' and metric == 'r2' and model == 'attention'").set_index("target")
        cells = [_interval(asked.loc[target]) for target in targets]
        gates = [sentence.split(":")[0] for sentence in run["summary"]["gates"] if ": skill (" in sentence]
        cells += [f"{run['summary']['attainable_r2']:.3f}"] if planted else []
        rows.append((run["summary"]["seed"], *cells, ", ".join(gates) or "none"))
    columns = (*(f"R² {target}" for target in targets), *(["attainable"] if planted else []))
    return table(("seed", *columns, "skill gates open"), rows)


def labels(runs: Sequence[Run]) -> str:
    """By probe: heads that pass everything but the noise null, that pass it too, that are functional."""
    rows = []
    for probe in dict.fromkeys(runs[0]["heads"]["probe"]):
        counts = [_counts(run, probe) for run in runs]
        every = sum(len(_last(run, probe)) for run in runs)
        shifted, pattern, functional = (sum(column) for column in zip(*counts, strict=True))
        if not shifted and not pattern:
            continue
        noise = [_threshold(run, probe) for run in runs]
        kappas = [float(row["kappa"]) for run in runs for _, row in _passing(run, probe).iterrows()]
        seeds = sum(bool(count[2]) for count in counts)
        rows.append(
            (
                probe,
                rate(shifted, every),
                f"{min(kappas):.3f} to {max(kappas):.3f}",
                f"{min(noise):.3f} to {max(noise):.3f}",
                rate(pattern, every),
                f"{functional} in {seeds} of {len(runs)} seeds",
            )
        )
    columns = (
        "probe",
        "pattern but for the noise null",
        "their kappa",
        "noise null",
        "pattern above it",
        "functional",
    )
    return table(columns, rows) + "\n" + in_words(runs) if rows else "No head of any seed has a pattern.\n"


def in_words(runs: Sequence[Run]) -> str:
    """What the labels come to."""
    probes = dict.fromkeys(runs[0]["heads"]["probe"])
    by_run = [[_counts(run, probe) for probe in probes] for run in runs]
    shifted, pattern, functional = (
        sum(column) for column in zip(*(count for counts in by_run for count in counts), strict=True)
    )
    heads = sum(len(_last(run, next(iter(probes)))) for run in runs)
    some = sum(any(passed for _, passed, _ in counts) for counts in by_run)
    return (
        f"Of {heads} heads in {len(runs)} networks, {shifted} patterns pass every test but the noise null, {pattern} "
        f"of them that too (some pattern in {some} of {len(runs)} runs), and {functional} are functional. The noise "
        "null is loose: of one probe, the best head of a network that learned nothing is above it in up to one run of "
        "five (a sixth value exceeds the 95th percentile of five exchangeable ones in about 19 % of cases).\n"
    )


def told(runs: Sequence[Run]) -> Iterator[str]:
    """Every functional head with its figures."""
    rows = []
    for run in runs:
        for _, row in run["heads"].query("label == 'functional' and weights == 'raw'").iterrows():
            rows.append(
                (
                    run["summary"]["seed"],
                    _name(row),
                    row["probe"],
                    f"{float(row['kappa']):.3f} [{float(row['low']):.3f}, {float(row['high']):.3f}]",
                    _odds(row["odds"]),
                    row["targets"],
                    ", ".join(_costs_of(run, row)),
                )
            )
    if not rows:
        yield NOT_FUNCTIONAL
        return
    columns = ("seed", "head", "probe", "kappa", "odds", "functional for", "mean-ablation, share of skill")
    yield FUNCTIONAL
    yield table(columns, rows)


def costs(runs: Sequence[Run]) -> str:
    """The heads that cost most to lose, of all seeds, by target with an open gate."""
    rows = []
    for run in runs:
        alone = run["knockouts"].query("kind == 'mean' and skill_share != ''")
        for target, of in alone.groupby("target", sort=False):
            share, low = pd.to_numeric(of["skill_share"]), pd.to_numeric(of["low"])
            best = share.sort_values(ascending=False).index[:COSTLY]
            shown = [f"{_name(of.loc[at])} {share[at]:.1%}{'' if low[at] > 0 else '*'}" for at in best]
            some = int((low > 0).sum())
            rows.append((run["summary"]["seed"], target, ", ".join(shown), f"{some} of {len(of)}"))
    columns = ("seed", "target", f"the {COSTLY} heads that cost most, share of skill", "heads whose loss shows")
    return table(columns, rows) if rows else "No skill gate is open: nothing can be lost.\n"


def removed(runs: Sequence[Run]) -> str:
    """How many heads each order can remove on test, by seed, and over seeds; what validation would choose, its cost."""
    rows, ours, medians = [], [], []
    for run in runs:
        curve = run["pruning"].replace({"seed": {"": None}})
        count = int(curve["removed"].max())
        share = {}
        for order in ORDERS:
            found = removable(curve, order, "test") or {}
            share[order] = [of / count for of in found.values()]
        if not all(share.values()):
            rows.append((run["summary"]["seed"], *["no open gate"] * 4, *["–"] * 2))
            continue
        ours += share["importance"]
        lot = pd.Series(share["random"])
        medians.append(float(lot.median()))
        cells = [f"{share[order][0]:.0%}" for order in ORDERS[:-1]]
        cells.append(f"{lot.median():.0%} ({lot.min():.0%} to {lot.max():.0%})")
        rows.append((run["summary"]["seed"], *cells, _chosen(curve, count), _lost(curve, count)))
    columns = (
        *("seed", "importance", "gradient", "stable rank", "by lot, median of 10 (range)"),
        *("chosen on validation: what it costs on test", "lost without any head"),
    )
    if len(ours) < FEWEST:
        return table(columns, rows)
    mean = pd.Series(ours)
    told = f"Over seeds, by importance: mean {mean.mean():.0%}, standard deviation {mean.std():.0%}, "
    told += f"{mean.min():.0%} to {mean.max():.0%}; by lot the median's mean is {pd.Series(medians).mean():.0%}. "
    more = mean - pd.Series(medians)
    half = float(stats.t.ppf(0.975, len(more) - 1)) * more.std() / len(more) ** 0.5
    low, high = more.mean() - half, more.mean() + half
    words = (
        "better than by lot" if low > 0 else "worse than by lot" if high < 0 else "not seen to be better than by lot"
    )
    told += f"The difference by seed is {more.mean():+.0%} [{low:+.0%}, {high:+.0%}] over trainings, on "
    told += f"these test bars: importance is {words}.\n"
    return table(columns, rows) + "\n" + told


def _chosen(curve: pd.DataFrame, count: int) -> str:
    """What `forecaster prune loss=1%` would remove, and what that costs on test."""
    found = removable(curve[curve["removed"] < count], "importance", "validation")
    if found is None:
        return "no open gate on validation"
    [number] = found.values()
    return f"{number / count:.0%}: {_lost(curve, number)}" if number else "none"


def _lost(curve: pd.DataFrame, number: int) -> str:
    """The share of each target's skill that is gone on test with so many heads, by importance."""
    ends = curve.query("order == 'importance' and part == 'test' and skill_share != ''")
    ends = ends[ends["removed"] == number]
    return ", ".join(f"{row['target']} {float(row['skill_share']):.1%}" for _, row in ends.iterrows())


def pairs(runs: Sequence[Run]) -> str:
    """How alike heads of one layer are, by layer."""
    rows = []
    for run in runs:
        both = run["redundancy"].query("kind != 'group'")
        both = both[both["layer"].astype(str) == both["other_layer"].astype(str)].astype({"value": float})
        for layer, of in both.groupby("layer"):
            cells = []
            for kind in ("js", "cka"):
                values = of.loc[of["kind"] == kind, "value"]
                cells.append(f"{values.mean():.2f} ({values.min():.2f} to {values.max():.2f})")
            rows.append((run["summary"]["seed"], layer, *cells))
    return table(("seed", "layer", "Jensen-Shannon distance", "CKA"), rows)


def groups(runs: Sequence[Run]) -> str:
    """Group redundancy of every label and layer, where the joint rise is seen."""
    rows = []
    for run in runs:
        for _, row in run["redundancy"].query("kind == 'group' and value != ''").iterrows():
            group = row["probe"] or f"layer {row['layer']}"
            low, high = (f"{float(row[end]):.2f}" if row[end] != "" else "–" for end in ("low", "high"))
            rows.append((group, run["summary"]["seed"], row["target"], f"{float(row['value']):.2f} [{low}, {high}]"))
    if not rows:
        return "No group's joint rise has an interval above 0: no group redundancy can be given.\n"
    return table(("group", "seed", "target", "group redundancy"), sorted(rows))


def changed(runs: Sequence[Run]) -> str:
    """How many claims were tested for a change over the years, and those that changed."""
    tests = [(run["summary"]["seed"], row) for run in runs for _, row in run["drift_tests"].iterrows()]
    tested = [(seed, row) for seed, row in tests if row["p"] != ""]
    found = [(seed, row) for seed, row in tested if float(row["q"]) <= ALPHA]
    lines = [f"Changed: {len(found)} of {len(tested)} claims tested; {len(tests) - len(tested)} could not be tested.\n"]
    lines += [f"- seed {seed}, {_name(row)}: {row['words']}\n" for seed, row in found]
    return "\n".join(lines)


def _name(row: "pd.Series[Any]") -> str:
    return f"L{row['layer']}H{row['head']}"


def _odds(odds: str | float) -> str:
    if odds == "":
        return "without bound"
    return f"over {MANY:,}" if float(odds) > MANY else f"{float(odds):.1f}"


def _costs_of(run: Run, head: "pd.Series[Any]") -> Iterator[str]:
    alone = run["knockouts"].query("kind == 'mean' and skill_share != ''")
    alone = alone.assign(place=alone["layer"].astype(str) + "." + alone["head"].astype(str))
    for _, row in alone[alone["place"] == f"{head['layer']}.{head['head']}"].iterrows():
        scale = float(row["skill_share"]) / float(row["rise"])
        low, high = float(row["low"]) * scale, float(row["high"]) * scale
        yield f"{row['target']} {float(row['skill_share']):.1%} [{low:.1%}, {high:.1%}]"


def _interval(row: "pd.Series[Any]") -> str:
    ends = [row["low"], row["high"]]
    try:
        return f"{float(row['value']):.3f} [{', '.join(f'{float(end):.3f}' for end in ends)}]"
    except ValueError:
        return f"{row['value']} ({row['low']})"


def _last(run: Run, probe: str) -> pd.DataFrame:
    heads = run["heads"]
    return heads[(heads["probe"] == probe) & (heads["stratum"] == "last") & (heads["weights"] == "raw")]


def _passing(run: Run, probe: str) -> pd.DataFrame:
    """Heads with a label, or that lack nothing for one but a kappa above the noise null's."""
    rows = _last(run, probe)
    return rows[[row["label"] != "none" or _only_noise(row["reason"]) for _, row in rows.iterrows()]]


def _only_noise(reason: str) -> bool:
    """Whether every condition that failed is the noise null's."""
    failed = [part for part in reason.split("; ") if part.startswith(("raw: ", "norm: "))]
    conditions = [text for part in failed for text in part.split(": ", 1)[1].split(", ")]
    return bool(conditions) and all(text.startswith("not above heads trained on noise") for text in conditions)


def _counts(run: Run, probe: str) -> tuple[int, int, int]:
    labelled = _last(run, probe)["label"]
    return len(_passing(run, probe)), int((labelled != "none").sum()), int((labelled == "functional").sum())


def _threshold(run: Run, probe: str) -> float:
    nulls = run["head_nulls"].query("null == 'noise' and weights == 'raw'")
    return float(nulls.loc[nulls["probe"] == probe, "kappa"].astype(float).quantile(0.95))


INTRODUCTION = """\
Written by `python bench/results.py` from ten strict runs, one training a seed and five more on shuffled targets each:
about an hour and a half of processor time. What is done is kept below `build/results/` and not done again; from fewer
runs the page is written to `build/results/results.md`. What the words mean is in [probes.md](probes.md); how often the
probes are wrong, in [validation.md](validation.md).
"""
LABELS = """\
Heads by what they pass, over all seeds, with exact binomial intervals of 95 % (heads of one network are not
independent: take them as too narrow). *Noise null*: lowest and highest 95th percentile, over a run's five trainings on
shuffled targets, of the largest kappa of any head. Probes that are not listed: no head.
"""
FUNCTIONAL = """\
Functional heads. Intervals of shares take the skill itself as exact; over 100 % the forecast without the head is worse
than the naive one:
"""
NOT_FUNCTIONAL = """\
No head of any seed is functional. *Functional* asks for a pattern first: where the table below shows a loss, no probe
says what the head is needed for.
"""
COSTS = """\
What it costs to lose a single head (mean-ablation on test; share of the skill over the naive forecast; `*`: the
interval includes 0), where the skill gate is open. Not corrected for the number of heads: of 16 useless ones .4 would
show by chance, and the largest of 16 shares are somewhat too large:
"""
PRUNING = """\
Share of the heads that can go while no target with an open gate loses more than 1 % of its skill on test, at that step
and at each before. Heads are ranked on validation, but where removal stops is read off the test curve itself. Beside
it what `forecaster prune loss=1%` would take, which stops by validation ([pruning.md](pruning.md)):
"""
ANCHORS = """\
Beside it: Michel et al. (2019) removed 20 % (translation) to 40 % (BERT) of heads at little loss; Voita et al. (2019)
kept 10 of 48 encoder heads for .15 BLEU, fine-tuned with a penalty on heads. These are other tasks, sizes and bounds.
"""
REDUNDANCY = """\
How alike the heads of one layer are: mean and range over its pairs of the distance of where they look (0 alike, 1
disjoint) and of CKA of what they write (1 alike). Group redundancy is 1 - sum of single rises / joint rise, of the
heads of a label or a layer, where the joint rise's interval is above 0:
"""
DRIFT = """\
Over the years ([drift.md](drift.md)), Benjamini-Hochberg at 5 % within each seed. Kappas are tested of labelled heads
alone. In 53 + 23 blocks, as the daily bars have, a change of one deviation is found in 72 % of cases before correction:
"""
