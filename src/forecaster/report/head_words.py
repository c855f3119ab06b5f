"""Each head in words, from a run's tables: what it looks at, how sure, what it costs to lose, what can't be said."""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

import pandas as pd

from forecaster.report.values import (
    Row,
    decimals,
    distinct,
    interval,
    is_label,
    number,
    records,
    significant,
    whole,
    word,
)

WIDTH: Final = 100
CHANGED: Final = 0.05  # q of a change that is told as one
LOOKS_AT: Final = {
    "recency": "the last bars",
    "weekly": "the bar a week before the last one",
    "weekly_target": "the bar a week before the one that is forecast",
    "monthly": "the bar a month before the last one",
    "large_move": "the largest moves of the window",
    "volume_spike": "the last volume spike like the one at the last bar",
    "trend_origin": "the last pivot of price",
}
MEASURED: Final = re.compile(r" [+-][\d.e+-]+ \[[+-][^\]]*\]")  # a test's figures in a reason
BY_HEAD: Final = ("head_facts", "lag_profiles", "knockouts", "drift_tests")

Head = tuple[int, int]
Tables = Mapping[str, pd.DataFrame]
Own = Mapping[str, Mapping[Head, list[Row]]]  # rows by table and head
Twin = tuple[float, Head]


def head_words(tables: Tables, summary: Mapping[str, object]) -> str:
    """A few sentences on what holds for all heads, then a paragraph a head: functional ones first, then patterns.

    `tables` holds heads and, where the run has them, head_facts, lag_profiles, knockouts, head_nulls, drift_tests and
    redundancy.
    """
    rows = [row for row in records(tables["heads"]) if row["stratum"] == "last" and row["direction"] == "past"]
    by_head = _by_head(rows)
    own = {name: _by_head(_rows(tables, name)) for name in BY_HEAD}
    facts = _of_no_head(tables)
    twins, gates = _twins(tables), _gates(summary)
    ordered = sorted(by_head, key=lambda head: (_rank(by_head[head]), head))
    paragraphs = [_general(rows, tables, summary)]
    for head in ordered:
        said = [*_roles(head, by_head[head], facts), *_lags(head, own), *_worth(head, own, gates)]
        said += [*twins.get(head, []), *_over_time(own["drift_tests"].get(head, []))]
        paragraphs.append(" ".join(said))
    return "\n\n".join(textwrap.fill(text, WIDTH) for text in paragraphs) + "\n"


def _head(row: Row) -> Head:
    return whole(row["layer"]), whole(row["head"])


def _by_head(rows: Iterable[Row]) -> dict[Head, list[Row]]:
    """Rows of each head; those that belong to none are left out."""
    grouped: dict[Head, list[Row]] = {}
    for row in rows:
        if number(row["head"]) is not None:
            grouped.setdefault(_head(row), []).append(row)
    return grouped


def _of_no_head(tables: Tables) -> dict[str, int]:
    """Facts about the probes' queries: counts."""
    rows = [row for row in _rows(tables, "head_facts") if number(row["head"]) is None]
    return {str(row["fact"]): int(number(row["value"]) or 0) for row in rows}


def _rank(rows: Iterable[Row]) -> int:
    labels = {word(row["label"]) for row in rows}
    return 0 if "functional" in labels else 1 if "pattern" in labels else 2


def _general(rows: Sequence[Row], tables: Tables, summary: Mapping[str, object]) -> str:
    """What holds for every head of the run, and what can't be said of any."""
    counts = [[_rank(of_head) for of_head in _by_head(rows).values()].count(rank) for rank in range(3)]
    named = word(summary.get("experiment")) or "This run"
    labels = f"{counts[0]} functional (the forecast needs what they look at), {counts[1]} with a pattern only"
    said = [
        f"{named}: {sum(counts)} heads, {labels}, {counts[2]} without a label.",
        "Kappa is 0 for chance and 1 for all of the attention; brackets are 95 % intervals over blocks of dates.",
    ]
    if counts[0]:
        said.append("Functional is not corrected for the number of heads and targets.")
    if blocks := [count for name, count in _of_no_head(tables).items() if name.endswith(" blocks of dates")]:
        said.append(f"There are {max(blocks)} blocks.")
    said += [sentence if sentence.endswith(".") else f"{sentence}." for sentence in _gates(summary)]
    nulls = _rows(tables, "head_nulls")
    untrained = len({str(row["seed"]) for row in nulls if row["null"] == "random"})
    noise = len({str(row["seed"]) for row in nulls if row["null"] == "noise"})
    said.append(
        f"Compared with {untrained} untrained networks." if untrained else "Not compared with untrained networks."
    )
    if noise:
        networks = "1 network" if noise == 1 else f"{noise} networks"
        largest = f"the 95th percentile of the largest kappas of {networks} trained on shuffled targets"
        said.append(f"A pattern had to be above {largest}.")
    elif not any(sentence.startswith("Not held against") for sentence in _gates(summary)):
        said.append(
            "Not held against networks trained on shuffled targets (probes=strict): those may have such patterns too."
        )
    for probe in distinct(row["probe"] for row in rows):
        own = [row for row in rows if row["probe"] == probe and row["weights"] == "raw"]
        reasons = {word(row["reason"]).split(";")[0] for row in own}
        if all(reason.startswith(("not measurable", "too few to say")) for reason in reasons):
            said.append(f"{probe} can't be judged: {min(reasons)}.")
    if "knockouts" not in tables or tables["knockouts"].empty:
        said.append("What heads cost to lose was not tested.")
    if "drift_tests" not in tables:
        said.append("Whether they change over the years was not tested (probes.drift=true).")
    if "redundancy" not in tables:
        said.append("Whether one does what another does was not measured.")
    return " ".join(said)


def _roles(head: Head, rows: Sequence[Row], facts: Mapping[str, int]) -> list[str]:
    """Its labels and what stands behind them, or what came closest."""
    raw = [row for row in rows if row["weights"] == "raw"]
    norm = {str(row["probe"]): row for row in rows if row["weights"] == "norm"}
    labelled = [row for row in raw if is_label(row["label"])]
    labelled.sort(key=lambda row: word(row["label"]) != "functional")
    names = ", ".join(f"{row['probe']} ({word(row['label'])}{_for(row)})" for row in labelled)
    told = [_look(row, norm.get(str(row["probe"])), facts) for row in labelled] or _closest(raw)
    return [f"Layer {head[0]}, head {head[1]}: {names or 'no label'}.", *told]


def _for(row: Row) -> str:
    return f" for {' and '.join(word(row['targets']).split())}" if word(row["targets"]) else ""


def _look(row: Row, norm: Row | None, facts: Mapping[str, int]) -> str:
    """What a labelled head gives to the probe's bars, by either weighting, and on what evidence."""
    probe = str(row["probe"])
    text = f"It looks at {LOOKS_AT.get(probe, f'the bars of {probe}')}: kappa {_told(row)}"
    if norm is not None:
        text += f", weighted by what it writes {_told(norm)}"
    if number(row["odds"]) is not None:
        text += f", {significant(row['odds'])} times the odds of chance"
    reason = word(row["reason"])
    if number(row["q"]) is not None:
        count = facts.get(f"{probe} shifts")
        text += (
            f"; q {significant(row['q'])} against {'' if count is None else f'{count} '}shifts of those bars in time"
        )
    found, _, failed = re.split(r", functional: ", reason)[0].partition(", not functional: ")
    text += "".join(f"; {note}" for note in found.split("; ")[1:])
    if failed:
        tests, _, matched = MEASURED.sub("", failed).rpartition("; ")
        text += f". That the forecast needs these bars is not shown: {tests}. {matched[:1].upper()}{matched[1:]}"
    return f"{text}."


def _closest(raw: Sequence[Row]) -> list[str]:
    """The probe in which a head without a label has its largest kappa, and what was missing."""
    asked = [row for row in raw if not word(row["reason"]).startswith("not measurable")]
    measured = [row for row in asked if number(row["kappa"]) is not None]
    if not measured:
        return ["No probe could be asked."]
    row = max(measured, key=lambda row: number(row["kappa"]) or 0.0)
    missing = word(row["reason"]).removeprefix("raw: ").split("; ")[0].replace("norm: ", "norm-weighted ")
    return [f"Largest kappa: {row['probe']}, {_told(row)}; no label: {missing}."]


def _told(row: Row) -> str:
    return " ".join((decimals(row["kappa"]), interval(row["low"], row["high"]))).strip()


def _lags(head: Head, own: Own) -> list[str]:
    """Where its attention lies, whatever is there."""
    profile = [row for row in own["lag_profiles"].get(head, []) if row["weights"] == "raw"]
    facts = {str(row["fact"]): row for row in own["head_facts"].get(head, [])}
    parts: list[str] = []
    if profile:
        peak = max(profile, key=lambda row: number(row["mean"]) or 0.0)
        told = f"{decimals(peak['mean'])} {interval(peak['low'], peak['high'])}".strip()
        parts.append(f"most at lag {whole(peak['lag'])} ({told}; {1 / len(profile):.3f} if it were spread evenly)")
    if "mean age" in facts:
        age = facts["mean age"]
        parts.append(f"mean age {decimals(age['value'], 1)} bars {interval(age['low'], age['high'], 1)}".strip())
    if "half-mass lag" in facts:
        parts.append(f"half of it within lag {whole(facts['half-mass lag']['value'])}")
    return [f"By lag: {', '.join(parts)}."] if parts else []


def _worth(head: Head, own: Own, gates: Sequence[str]) -> list[str]:
    """What each target's forecast loses without it."""
    rows = own["knockouts"].get(head, [])
    shut = [gate.split(":")[0] for gate in gates if re.match(r"\w+: (no skill|skill undefined)", gate)]
    said: list[str] = []
    for target in distinct(row["target"] for row in rows):
        by_kind = {str(row["kind"]): row for row in rows if row["target"] == target}
        if target in shut or "mean" not in by_kind:
            continue
        mean, zero = by_kind["mean"], by_kind.get("zero")
        low, high, rise = number(mean["low"]), number(mean["high"]), significant(mean["rise"])
        if low is None or high is None:
            said.append(f"Without it the loss of {target} changes by {rise}: too few blocks to say more.")
            continue
        ends = interval(low, high, None)
        share = number(mean["skill_share"])
        of_skill = f", {100 * share:.2g} % of the skill" if share is not None else ""
        beside = f"; with zero in its place {significant(zero['rise'])}" if zero is not None else ""
        if low > 0:
            said.append(f"Without it the loss of {target} rises by {rise} {ends}{of_skill}{beside}.")
        elif high < 0:
            said.append(f"Without it the loss of {target} falls, by {rise} {ends}{beside}.")
        else:
            said.append(f"That {target} loses anything without it is not shown ({rise} {ends}{beside}).")
    told = [target for target in distinct(row["target"] for row in rows) if target in shut]
    if told:
        said.append(f"What it is worth for {' and '.join(told)} can't be said: no skill there.")
    return said


def _twins(tables: Tables) -> dict[Head, list[str]]:
    """Of every head the one that looks most like it, and the one that writes most like it."""
    said: dict[Head, list[str]] = {}
    for kind, text, scale, sign in (("js", "Looks", "distance", 1), ("cka", "Writes", "CKA", -1)):
        nearest: dict[Head, Twin] = {}
        for row in _rows(tables, "redundancy"):
            value = number(row["value"])
            if row["kind"] == kind and value is not None:
                pair = _head(row), (whole(row["other_layer"]), whole(row["other_head"]))
                for one, other in (pair, pair[::-1]):
                    nearest[one] = min(nearest.get(one, (sign * value, other)), (sign * value, other))
        for one, (value, (layer, head)) in nearest.items():
            told = f"{text} most like layer {layer}, head {head} ({scale} {decimals(sign * value)})."
            said.setdefault(one, []).append(told)
    return said


def _over_time(rows: Sequence[Row]) -> list[str]:
    """Changes that were found, what could not be tested, and what was tested and stayed."""
    tested = [row for row in rows if number(row["p"]) is not None]
    changed = [row for row in tested if (number(row["q"]) or 0.0) <= CHANGED]
    told = [row for row in rows if row in changed or row not in tested]
    stayed = distinct(f"{row['kind']} of {row['of']}" for row in tested if row not in changed)
    said = [f"Over the years: {word(row['words'])}." for row in told]
    return [*said, f"No change over the years is shown in {', '.join(stayed)}."] if stayed else said


def _gates(summary: Mapping[str, object]) -> list[str]:
    found = summary.get("gates")
    return [str(sentence) for sentence in cast("list[object]", found)] if isinstance(found, list) else []


def _rows(tables: Tables, name: str) -> list[Row]:
    return records(tables[name]) if name in tables else []
