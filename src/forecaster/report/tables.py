"""Scores and tests as the tables of the page, losses beside wins."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from forecaster.report.values import (
    MISSING,
    Row,
    decimals,
    distinct,
    interval,
    is_trained,
    number,
    p_value,
    place,
    pooled,
    records,
    significant,
    trained_name,
    whole,
    word,
)

HIGHER = ("r2", "r2_historical", "ic", "rank_ic", "icir", "hit_rate")
LOWER = ("mse", "mae", "pinball", "crps", "qlike")
LOSSES = {"squared_error": "squared error", "pinball": "pinball loss", "qlike": "QLIKE"}
MAIN = ("r2", "r2_historical", "mse", "qlike", "pinball", "coverage_80", "ic", "hit_rate")
OTHER = ("mae", "crps", "coverage_50", "coverage_90", "rank_ic", "icir", "mz_slope", "mz_intercept")
TONES = {"better": "good", "worse": "bad", "no different": "even"}


@dataclass(frozen=True)
class Cell:
    """One cell: its text, a smaller note under it, a tone that the style sheet knows."""

    text: str
    note: str = ""
    tone: str = ""


@dataclass(frozen=True)
class Table:
    """A table with its title and the sentences that go before it."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    words: Sequence[str] = ()


@dataclass(frozen=True)
class Fold:
    """Tables that open on a click."""

    title: str
    tables: Sequence[Table]


def score_tables(scores: pd.DataFrame, tests: pd.DataFrame | None) -> list[Table | Fold]:
    """Per target the main metrics one step ahead with the verdict against each baseline; the rest folded.

    The best value of each metric that has a better end is marked, whoever holds it.
    """
    verdicts: dict[tuple[str, int, str], Cell] = {}
    for row in [] if tests is None else records(tests):
        if row["loss"] == "squared_error" and is_trained(row["model"]):
            verdicts[str(row["target"]), whole(row["step"]), str(row["baseline"])] = _verdict(row, p_value(row["p"]))
    made: list[Table | Fold] = []
    for target, by_step in _by_target_and_step(pooled(scores)).items():
        shown: list[Table] = []
        for step, rows in by_step.items():
            counts = [whole(row["n"]) for row in rows if row["metric"] == "r2"]
            title = f"{target}, step {step}" + (f", {max(counts):,} test forecasts" if counts else "")
            models = distinct(row["model"] for row in rows)
            columns, lines = _metrics(rows, models, MAIN)
            if verdicts:
                against = [verdicts.get((target, step, model), Cell("")) for model in models]
                columns = [f"{trained_name(models)} is", *columns]
                lines = [[line[0], cell, *line[1:]] for line, cell in zip(lines, against, strict=True)]
            shown.append(Table(title, ["model", *columns], lines))
            columns, lines = _metrics(rows, models, OTHER)
            if columns:
                shown.append(Table(f"{target}, step {step}: further metrics", ["model", *columns], lines))
        further = " and steps" if len(by_step) > 1 else ""
        made.append(shown[0])
        made += [Fold(f"{target}: further metrics{further}", shown[1:])] if shown[1:] else []
    return made


def _by_target_and_step(rows: Sequence[Row]) -> dict[str, dict[int, list[Row]]]:
    groups: dict[str, dict[int, list[Row]]] = {}
    for row in sorted(rows, key=lambda row: whole(row["step"])):
        groups.setdefault(str(row["target"]), {}).setdefault(whole(row["step"]), []).append(row)
    return groups


def _metrics(rows: Sequence[Row], models: Sequence[str], metrics: Sequence[str]) -> tuple[list[str], list[list[Cell]]]:
    cells = {(str(row["model"]), str(row["metric"])): row for row in rows}
    present = [metric for metric in metrics if any(name == metric for _, name in cells)]
    best = {metric: _best(rows, metric) for metric in present}
    lines = [
        [
            Cell(model, tone="trained" if is_trained(model) else ""),
            *(_score(cells.get((model, metric)), best[metric]) for metric in present),
        ]
        for model in models
    ]
    arrows = {**dict.fromkeys(HIGHER, " ↑"), **dict.fromkeys(LOWER, " ↓")}
    return [metric.replace("_", " ") + arrows.get(metric, "") for metric in present], lines


def _best(rows: Sequence[Row], metric: str) -> float | None:
    values = [value for row in rows if row["metric"] == metric and (value := number(row["value"])) is not None]
    if len(set(values)) < 2 or metric not in (*HIGHER, *LOWER):
        return None
    return max(values) if metric in HIGHER else min(values)


def _score(row: Row | None, best: float | None) -> Cell:
    if row is None:
        return Cell(MISSING)
    value = number(row["value"])
    tone = "best" if value is not None and value == best else ""
    if row["metric"] in LOWER:
        return Cell(significant(row["value"]), interval(row["low"], row["high"], places=None), tone)
    return Cell(decimals(row["value"]), interval(row["low"], row["high"]), tone)


def verdict_tables(tests: pd.DataFrame) -> list[Table | Fold]:
    """Per target the verdicts one step ahead in words, one sentence per loss; every single test folded."""
    made: list[Table | Fold] = []
    for target, by_step in _by_target_and_step([r for r in records(tests) if is_trained(r["model"])]).items():
        full: list[Table] = []
        for step, rows in by_step.items():
            cells = {(str(row["baseline"]), str(row["loss"])): row for row in rows}
            losses = distinct(row["loss"] for row in rows)
            baselines = sorted(distinct(row["baseline"] for row in rows), key=place)
            lines = [[Cell(name), *(_test(cells.get((name, loss))) for loss in losses)] for name in baselines]
            words = [_counted(loss, [row for row in rows if row["loss"] == loss]) for loss in losses]
            columns = ["baseline", *(LOSSES.get(loss, loss) for loss in losses)]
            full.append(Table(f"{target}, step {step}", columns, lines, words))
        further = " and step" if len(by_step) > 1 else ""
        made.append(Table(full[0].title, (), (), full[0].words))
        made.append(Fold(f"{target}: every test{further}", [replace(full[0], words=()), *full[1:]]))
    return made


def _test(row: Row | None) -> Cell:
    return Cell(MISSING) if row is None else _verdict(row, f"{p_value(row['p'])}, DM {decimals(row['statistic'], 2)}")


def _verdict(row: Row, note: str) -> Cell:
    verdict = word(row["verdict"])
    return Cell(verdict, note, TONES[verdict]) if verdict in TONES else Cell(verdict)


def _counted(loss: str, rows: Sequence[Row]) -> str:
    ranked = sorted(rows, key=lambda row: place(row["baseline"]))
    groups = {"better than": "better", "no different from": "no different", "worse than": "worse"}
    parts = [
        f"{words} {', '.join(found) if found else 'none'}"
        for words, verdict in groups.items()
        for found in [[str(row["baseline"]) for row in ranked if word(row["verdict"]) == verdict]]
    ]
    undecided = [str(row["baseline"]) for row in ranked if word(row["verdict"]) not in TONES]
    parts += [f"undefined against {', '.join(undecided)}"] if undecided else []
    p = number(rows[0]["mcs_p"])
    among = "" if p is None else f", {'among' if p >= 0.05 else 'not among'} the best"
    confidence = f"Model confidence set: {p_value(rows[0]['mcs_p'])}{among}."
    return f"{LOSSES.get(loss, loss)}: {rows[0]['model']} is {'; '.join(parts)}. {confidence}"
