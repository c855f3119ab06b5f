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
from forecaster.report.values import (
    Row,
    decimals,
    distinct,
    interval,
    number,
    p_value,
    records,
    significant,
    whole,
    word,
)

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
RANKS = {"rank_qk": "of W_Q W_K^T, what it compares", "rank_vo": "of W_V W_O, what it writes"}
ROLE_NAMES = ("group", "probe", "label", "seeds with it", "heads a seed", "again in another seed", "by chance")
WEEK_NAMES = ("group", "is", "lag", "heads a seed", "more than a placebo lag", "verdict")
RANK_WORDS = (
    "The width that heads share: d = width / heads is the most that a head's effective rank can be. exp of the entropy "
    "of its singular values' shares."
)
ROLE_WORDS = (
    "Heads of two seeds are matched within their layer by lag profile and kappas. Again: share of the heads with a "
    "label whose match in another seed has it too; by chance: the same if heads were matched by lot. A peak is a kappa "
    "of .05 against the bars beside; the weekly claim needs five seeds, more heads than at any placebo lag, and an "
    "interval over seeds above 0."
)
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


def comparison_text(table: pd.DataFrame, unequal: str, roles: pd.DataFrame, weeks: pd.DataFrame) -> str:
    """The comparison as text: a table for each target and step, then what heads do over seeds."""
    text = StringIO()
    console = Console(file=text, width=WIDTH)
    tables = [Table(title, COLUMNS, [_cells(row) for row in rows]) for title, rows in _by_target(table)]
    for one in [*tables, *over_seeds(roles, weeks)]:
        shown = RichTable(box=None, padding=(0, 1, 0, 0), title=one.title, title_justify="left")
        for name in one.columns:
            shown.add_column(name, no_wrap=True)
        for line in one.rows:
            shown.add_row(*(Text(cell.text + (f" {cell.note}" if cell.note else "")) for cell in line))
        console.print(shown)
    lines = "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())
    return f"{lines}{unequal}\n" if unequal else lines


def comparison_page(
    table: pd.DataFrame, seeds: pd.DataFrame, unequal: str, roles: pd.DataFrame, weeks: pd.DataFrame
) -> str:
    """The comparison as one HTML page. seeds: group, seed, target, step, r2 of every run; roles, weeks: of heads."""
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
        Section("heads", "Heads over seeds", _heads(table, roles, weeks)),
    ]
    groups = distinct(table["group"])
    return render("comparison", ", ".join(groups), "", _sentences(table), sections)


def _heads(table: pd.DataFrame, roles: pd.DataFrame, weeks: pd.DataFrame) -> list[str | Table]:
    ranks = [row for row in records(table.drop_duplicates("group")) if number(row.get("rank_qk")) is not None]
    parts: list[str | Table] = []
    if ranks:
        lines = [[Cell(word(row["group"])), *(Cell(decimals(row[name], 2)) for name in RANKS)] for row in ranks]
        parts += [
            RANK_WORDS,
            Table("Effective rank of a head, mean over heads and seeds", ("group", *RANKS.values()), lines),
        ]
    tables = over_seeds(roles, weeks)
    return [*parts, ROLE_WORDS, *tables] if tables else [*parts, "Absent: no group has two runs that were probed."]


def over_seeds(roles: pd.DataFrame, weeks: pd.DataFrame) -> list[Table]:
    """What heads do over seeds, as tables; none where no group has two probed runs."""
    role_lines = [
        [
            *(Cell(word(row[name])) for name in ("group", "probe", "label")),
            Cell(f"{whole(row['with'])} of {whole(row['seeds'])}"),
            Cell(decimals(row["heads"], 1)),
            Cell(decimals(row["again"], 2)),
            Cell(decimals(row["by_chance"], 2)),
        ]
        for row in records(roles)
    ]
    week_lines = [
        [
            *(Cell(word(row[name])) for name in ("group", "is")),
            Cell(str(whole(row["lag"]))),
            Cell(decimals(row["heads"], 2)),
            Cell(decimals(row["difference"], 2), interval(row["low"], row["high"]))
            if number(row["difference"]) is not None
            else Cell(""),
            Cell(word(row["verdict"])),
        ]
        for row in records(weeks)
    ]
    made: list[Table] = []
    if role_lines:
        made.append(Table("Roles of heads over seeds", ROLE_NAMES, role_lines))
    if week_lines:
        made.append(Table("Heads a seed that peak at a lag", WEEK_NAMES, week_lines))
    return made


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
