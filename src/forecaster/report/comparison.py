"""Runs side by side, as text for the terminal and as a page with a picture."""

from collections.abc import Sequence
from io import StringIO

import pandas as pd
import plotly.graph_objects as go
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from forecaster.report.canvas import ACCENT, MUTED, TRAINED_COLOUR, Drawn, axis_title, escape, figure, panels
from forecaster.report.page import Picture, Section, drawn_picture, render
from forecaster.report.tables import TONES, Cell, Table
from forecaster.report.values import Row, decimals, distinct, number, p_value, records, significant, whole, word

ROW_PX = 30
COLUMNS = (
    "group",
    "parameters",
    "seeds",
    "validation loss",
    "r2",
    "pinball",
    "mse ratio",
    "against",
    "Diebold-Mariano",
    "over seeds",
)
WIDTH = 160
WORD = {
    "better": "better than",
    "worse": "worse than",
    "no different": "no different from",
    "undefined": "not to be told from",
}
WORDS = (
    "Validation loss (all targets together, what a choice between groups should go by), r2 and pinball loss: mean over "
    "seeds, and their standard deviation over seeds where there are several. mse ratio: "
    "mean squared error over that of the reference, mean over seeds. Diebold-Mariano: on losses averaged over seeds, "
    "where all were tested on the same days. Over seeds: paired t test of the log ratios."
)


def comparison_text(table: pd.DataFrame, unequal: str) -> str:
    """The comparison as text: a table for each target and step."""
    text = StringIO()
    console = Console(file=text, width=WIDTH)
    for title, rows in _by_target(table):
        shown = RichTable(box=None, padding=(0, 1, 0, 0), title=title, title_justify="left")
        for name in COLUMNS:
            shown.add_column(name, no_wrap=True)
        for row in rows:
            shown.add_row(*(Text(cell.text + (f" {cell.note}" if cell.note else "")) for cell in _cells(row)))
        console.print(shown)
    lines = "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())
    return f"{lines}{unequal}\n" if unequal else lines


def comparison_page(table: pd.DataFrame, seeds: pd.DataFrame, unequal: str) -> str:
    """The comparison as one HTML page. seeds: group, seed, target, step, r2 of every run."""
    tables = [Table(title, COLUMNS, [_cells(row) for row in rows]) for title, rows in _by_target(table)]
    picture: Picture = drawn_picture(
        "runs",
        "r2 of every run",
        "A dot is one run on the test part, the line its group's mean; right is better. Where every seed "
        "has bars of its own, groups are compared seed by seed, as in the table.",
        _dots(seeds),
    )
    sections = [
        Section("compare", "Groups against the reference", [WORDS, *([unequal] if unequal else []), *tables]),
        Section("seeds", "Seeds", [picture]),
    ]
    groups = distinct(table["group"])
    return render("comparison", ", ".join(groups), "", _sentences(table), sections)


def _by_target(table: pd.DataFrame) -> list[tuple[str, list[dict[str, object]]]]:
    found: dict[str, list[dict[str, object]]] = {}
    for row in records(table):
        found.setdefault(f"{row['target']}, step {whole(row['step'])}", []).append(dict(row))
    return list(found.items())


def _cells(row: dict[str, object]) -> list[Cell]:
    verdict = word(row["verdict"])
    by_days = number(row["p"]) is not None
    days = Cell(verdict, p_value(row["p"]), TONES.get(verdict, "")) if by_days else Cell("")
    p = p_value(row["seeds_p"])
    alone = Cell(verdict, p, TONES.get(verdict, ""))
    seeds = Cell("") if number(row["seeds_p"]) is None else Cell(p) if by_days else alone
    return [
        Cell(word(row["group"])),
        Cell(f"{whole(row['parameters']):,}"),
        Cell(str(whole(row["seeds"]))),
        Cell(decimals(row["validation_loss"], 4), _spread(decimals(row["validation_loss_sd"], 4))),
        Cell(decimals(row["r2"]), _spread(decimals(row["r2_sd"]))),
        Cell(significant(row["pinball"]), _spread(significant(row["pinball_sd"]))),
        Cell(decimals(row["loss_ratio"]) if number(row["loss_ratio"]) is not None else ""),
        Cell(word(row["against"])),
        days,
        seeds,
    ]


def _spread(text: str) -> str:
    return f"± {text}" if text and text != "–" else ""


def _sentences(table: pd.DataFrame) -> list[str]:
    told: list[str] = []
    for row in records(table):
        if word(row["verdict"]):
            p = row["p"] if number(row["p"]) is not None else row["seeds_p"]
            told.append(
                f"{row['target']}, step {whole(row['step'])}: {row['group']} is {WORD[word(row['verdict'])]} "
                f"{row['against']} (r2 {decimals(row['r2'])}, mse ratio {decimals(row['loss_ratio'])}, {p_value(p)})"
            )
    return told


def _dots(seeds: pd.DataFrame) -> go.Figure | None:
    rows = records(seeds)
    if not rows:
        return None
    groups, targets = distinct(row["group"] for row in rows), distinct(row["target"] for row in rows)
    steps = sorted({whole(row["step"]) for row in rows})
    heights = {group: len(groups) - 1 - place for place, group in enumerate(groups)}
    grid = dict(zip(targets, panels(1, len(targets), gap_x=0.05), strict=True))
    drawn: Drawn = []
    for step in steps:
        for target, panel in grid.items():
            chosen = [row for row in rows if row["target"] == target and whole(row["step"]) == step]
            drawn += [(f"step {step}", trace) for trace in _group_traces(chosen, heights, panel.place)]
    layout: dict[str, object] = {"annotations": [panel.title(target) for target, panel in grid.items()]}
    for panel in grid.values():
        y = {
            "tickvals": list(heights.values()),
            "ticktext": [escape(group) for group in heights],
            "range": [-0.7, len(groups) - 0.3],
            "showgrid": False,
            "showticklabels": panel.number == 1,
        }
        layout |= panel.axes({"title": axis_title("r2"), "nticks": 6}, y)
    return figure(drawn, ROW_PX * len(groups) + 20, layout)


def _group_traces(rows: Sequence[Row], heights: dict[str, int], place: dict[str, str]) -> list[go.Scatter]:
    traces: list[go.Scatter] = []
    for group, height in heights.items():
        values = [value for row in rows if row["group"] == group and (value := number(row["r2"])) is not None]
        if not values:
            continue
        mean = sum(values) / len(values)
        line = {"mode": "lines", "line": {"color": ACCENT, "width": 2}, "hoverinfo": "skip"}
        traces.append(go.Scatter(x=[mean] * 2, y=[height - 0.3, height + 0.3], **line, **place))
        marker = {"size": 8, "color": TRAINED_COLOUR, "opacity": 0.75, "line": {"width": 1, "color": MUTED}}
        dots = {"mode": "markers", "marker": marker, "hoverinfo": "text"}
        texts = [escape(f"{group}: {decimals(value)}") for value in values]
        traces.append(go.Scatter(x=values, y=[height] * len(values), hovertext=texts, **dots, **place))
    return traces
