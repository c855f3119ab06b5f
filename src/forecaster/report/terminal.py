"""The end of a run on the terminal: scores beside their baselines, and the labelled heads."""

import pandas as pd
from rich.table import Table
from rich.text import Text

from forecaster.report.head_tables import without_label
from forecaster.report.values import (
    Row,
    decimals,
    distinct,
    interval,
    is_label,
    is_trained,
    p_value,
    pooled,
    probability,
    records,
    significant,
    trained_name,
    whole,
    word,
)

STYLES = {"better": "green", "worse": "red"}


def scores_table(scores: pd.DataFrame, tests: pd.DataFrame) -> Table:
    """One step ahead, per target and model: r2 [95 % interval], pinball loss, QLIKE, coverage of the 80 % band, and the
    verdict of the trained network against that baseline on squared error.
    """
    every = pooled(scores)
    rows = [row for row in every if whole(row["step"]) == 1]
    cells = {(str(row["target"]), str(row["model"]), str(row["metric"])): row for row in rows}
    tested = {
        (str(row["target"]), str(row["baseline"])): row
        for row in records(tests)
        if whole(row["step"]) == 1 and row["loss"] == "squared_error" and is_trained(row["model"])
    }
    further = "further steps stand in scores.csv" if len(rows) < len(every) else None
    table = Table(box=None, padding=(0, 1, 0, 0), caption=further, caption_justify="left")
    for name in ("", "r2"):
        table.add_column(name, no_wrap=True)
    for name in ("pinball", "qlike", "in 80 %"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(f"{trained_name(row['model'] for row in every)} is")
    for target in distinct(row["target"] for row in rows):
        table.add_row(Text(target, style="bold"))
        for model in distinct(row["model"] for row in rows if str(row["target"]) == target):
            r2 = cells.get((target, model, "r2"))
            table.add_row(
                Text(f"  {model}", style="bold blue" if is_trained(model) else ""),
                Text(f"{decimals(r2['value'])} {interval(r2['low'], r2['high'])}" if r2 else ""),
                *(_value(cells.get((target, model, metric))) for metric in ("pinball", "qlike", "coverage_80")),
                _verdict(tested.get((target, model))),
            )
    return table


def _value(row: Row | None) -> Text:
    if row is None:
        return Text("")
    return Text(decimals(row["value"]) if row["metric"] == "coverage_80" else significant(row["value"]))


def _verdict(row: Row | None) -> Text:
    if row is None:
        return Text("")
    verdict = word(row["verdict"])
    p = "" if verdict == word(row["p"]) else f", {p_value(row['p'])}"
    return Text(f"{verdict}{p}", style=STYLES.get(verdict, ""))


def heads_table(heads: pd.DataFrame) -> Table | Text:
    """The heads that carry a label, by their attention weights; a line of text where none does."""
    rows = records(heads)
    labelled = [row for row in rows if is_label(row["label"]) and row["weights"] == "raw"]
    if not labelled:
        return Text(without_label(rows) if rows else "No head was probed.")
    table = Table(box=None, padding=(0, 1, 0, 0))
    for name in ("layer", "head"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("probe", "kappa"):
        table.add_column(name, no_wrap=True)
    for name in ("odds", "q"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("label")
    table.add_column("targets")
    for row in labelled:
        texts = (
            str(whole(row["layer"])),
            str(whole(row["head"])),
            word(row["probe"]),
            f"{decimals(row['kappa'])} {interval(row['low'], row['high'])}",
            significant(row["odds"]),
            probability(row["q"]),
            word(row["label"]),
            word(row["targets"]),
        )
        table.add_row(*map(Text, texts))
    return table
