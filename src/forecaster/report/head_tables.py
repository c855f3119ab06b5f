"""The labelled heads as a table of the page, and what came closest where there is no label."""

import re
from collections.abc import Mapping, Sequence

import pandas as pd

from forecaster.report.tables import Cell, Fold, Table
from forecaster.report.values import (
    Row,
    decimals,
    distinct,
    interval,
    is_label,
    number,
    probability,
    records,
    significant,
    whole,
    word,
)

COLUMNS = ("head", "probe", "kappa", "norm-weighted kappa", "chance", "odds", "q", "label", "targets", "reason")

CHANGED = 0.05
NOT_JUDGED = ("too few to say", "not measurable")
FEW = re.compile(r"too few to say: (\d+) blocks? of dates of at least (\d+)")

ByWeights = dict[str, Row]  # the raw and the norm-weighted row of one head, probe, stratum and direction


def labelled_heads(heads: pd.DataFrame) -> Table | None:
    """Every head that carries a label, with its reason; None where none does."""
    labelled = [pair for pair in _pairs(heads) if any(is_label(row["label"]) for row in pair.values())]
    if not labelled:
        return None
    return Table("Labelled heads", COLUMNS, [_line(pair) for pair in labelled])


def closest_heads(heads: pd.DataFrame) -> Fold | None:
    """For each probe that labelled no head, the head with the largest kappa at the last bar and what it failed."""
    pairs = [pair for pair in _pairs(heads) if str(_any(pair)["stratum"]) == "last"]
    lines: list[list[Cell]] = []
    for probe in distinct(_any(pair)["probe"] for pair in pairs):
        of_probe = [pair for pair in pairs if str(_any(pair)["probe"]) == probe]
        measured = [pair for pair in of_probe if number(_any(pair)["kappa"]) is not None]
        if measured and not any(is_label(row["label"]) for pair in of_probe for row in pair.values()):
            lines.append(_line(max(measured, key=_kappa)))
    table = Table("The head with the largest kappa of each probe that labelled none", COLUMNS, lines)
    return Fold("Closest to a label, probe by probe", [table]) if lines else None


def without_label(rows: Sequence[Row]) -> str:
    """That no head has a label; where nothing could be judged, that and why."""
    reasons = [word(row["reason"]) for row in rows if str(row["stratum"]) == "last"]
    if reasons and all(reason.startswith(NOT_JUDGED) for reason in reasons):
        few = [(int(found[1]), found[2]) for reason in reasons if (found := FEW.match(reason))]
        why = "{} blocks of dates, {} are needed".format(*max(few)) if few else "no probe is measurable"
        return f"No head could be judged: {why}."
    return f"None of the {len({(whole(row['layer']), whole(row['head'])) for row in rows})} heads earned a label."


def label_counts(heads: pd.DataFrame) -> str:
    """How many heads carry which label, in words."""
    rows = records(heads)
    every = {(whole(row["layer"]), whole(row["head"])) for row in rows}
    found = {(whole(r["layer"]), whole(r["head"])): word(r["label"]) for r in rows if is_label(r["label"])}
    functional = {
        (whole(row["layer"]), whole(row["head"])) for row in rows if word(row["label"]).startswith("functional")
    }
    if not found:
        return without_label(rows)
    rest = len(found) - len(functional)
    return (
        f"{len(found)} of {len(every)} heads carry a label: {len(functional)} functional (the forecast needs what they "
        f"look at), {rest} pattern only (they look there; that the forecast needs it was not shown)."
    )


def unmeasured(heads: pd.DataFrame) -> list[str]:
    """A sentence for each probe that has no number for any head at the last bar."""
    sentences: list[str] = []
    rows = [row for row in records(heads) if str(row["stratum"]) == "last"]
    for probe in distinct(row["probe"] for row in rows):
        of_probe = [row for row in rows if str(row["probe"]) == probe]
        if all(number(row["kappa"]) is None for row in of_probe):
            why = " ".join(dict.fromkeys((word(of_probe[0]["kappa"]), word(of_probe[0]["reason"]))))
            sentences.append(f"{probe} has no score: {why.strip() or 'not measurable'}.")
    return sentences


def changes_table(tests: pd.DataFrame) -> list[str | Fold]:
    """How many of the claims tested for a change changed, how many could not be, and every test, folded."""
    rows = sorted(records(tests), key=lambda row: 2.0 if (p := number(row["p"])) is None else p)
    if not rows:
        return []
    changed = [row for row in rows if (q := number(row["q"])) is not None and q <= CHANGED]
    columns = ("head", "of", "change", "before", "after", "p", "q", "in words")
    lines = [
        [
            Cell(f"layer {whole(row['layer'])}, head {whole(row['head'])}"),
            Cell(word(row["of"]), word(row["kind"])),
            Cell(
                word(row["change"]), f"{word(row['earliest'])} to {word(row['latest'])}" if word(row["change"]) else ""
            ),
            *(Cell(significant(row[name])) for name in ("before", "after", "p", "q")),
            Cell(word(row["words"]), tone="prose"),
        ]
        for row in rows
    ]
    tested = sum(number(row["p"]) is not None for row in rows)
    told = [f"{len(changed)} of {tested} claims tested changed at 5 % false discoveries"] if tested else []
    told += [f"{len(rows) - tested} could not be tested"] if tested < len(rows) else []
    return [f"{'; '.join(told)}.", Fold("Every test for a change", [Table("Smallest p first", columns, lines)])]


def _pairs(heads: pd.DataFrame) -> list[ByWeights]:
    pairs: dict[tuple[str, ...], ByWeights] = {}
    for row in records(heads):
        key = tuple(str(row[name]) for name in ("layer", "head", "probe", "stratum", "direction"))
        pairs.setdefault(key, {})[str(row["weights"])] = row
    return list(pairs.values())


def _any(pair: ByWeights) -> Row:
    return pair.get("raw") or next(iter(pair.values()))


def _kappa(pair: ByWeights) -> float:
    return number(_any(pair)["kappa"]) or 0.0


def _line(pair: ByWeights) -> list[Cell]:
    row = _any(pair)
    label = next((word(one["label"]) for one in pair.values() if is_label(one["label"])), "none")
    where = [word(row["stratum"])] if row["stratum"] != "last" else []
    where += [word(row["direction"])] if row["direction"] != "past" else []
    return [
        Cell(f"layer {whole(row['layer'])}, head {whole(row['head'])}"),
        Cell(word(row["probe"]), ", ".join(where)),
        _kappa_cell(pair.get("raw")),
        _kappa_cell(pair.get("norm")),
        Cell(decimals(row["chance"])),
        Cell(significant(row["odds"])),
        Cell(probability(row["q"])),
        Cell(label, tone="functional" if label.startswith("functional") else "pattern" if label != "none" else ""),
        Cell(word(row["targets"])),
        Cell(word(row["reason"]), tone="prose"),
    ]


def _kappa_cell(row: Mapping[str, object] | None) -> Cell:
    return Cell("–") if row is None else Cell(decimals(row["kappa"]), interval(row["low"], row["high"]))
