"""Pictures of what heads are worth together: the pruning curve, and which heads do the same."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from scipy.cluster import hierarchy
from scipy.spatial import distance

from forecaster.report.canvas import (
    ACCENT,
    BAND_COLOUR,
    BASELINE,
    EVERY_VIEW,
    INK,
    MUTED,
    TRAINED_COLOUR,
    Drawn,
    Panel,
    axis_title,
    figure,
    panels,
)
from forecaster.report.values import Row, decimals, distinct, interval, number, records, significant, whole

# hierarchy and distance come without types.
linkage, dendrogram = cast(Any, hierarchy).linkage, cast(Any, hierarchy).dendrogram
squareform = cast(Any, distance).squareform
ORDERS: Final[Mapping[str, tuple[str, str, str]]] = {  # name, colour, dash
    "importance": ("by importance", TRAINED_COLOUR, "solid"),
    "gradient": ("by gradient", ACCENT, "dash"),
    "stable_rank": ("by stable rank", MUTED, "dot"),
}
BOUND: Final = 0.01
KINDS: Final = {"js": "where they look: Jensen-Shannon distance", "cka": "what they write: CKA"}
CELLS_PX, TREE_PX = 420, 110
LEGIBLE: Final = 32  # heads; beyond, names and numbers are in the hover text alone


def pruning_curve(curve: pd.DataFrame) -> go.Figure | None:
    """Loss on test as heads go, a panel per target: three orders and the band of random ones; None without a row.

    In shares of skill where a target has skill, and the dotted line is one hundredth of it; else the rise itself.
    """
    rows = [row for row in records(curve) if str(row["part"]) == "test" and number(row["rise"]) is not None]
    if not rows:
        return None
    targets = distinct(row["target"] for row in rows)
    panel_px, gap_px = 190, 70
    plot_px = len(targets) * panel_px + (len(targets) - 1) * gap_px
    grid = dict(zip(targets, panels(len(targets), 1, gap_y=gap_px / plot_px), strict=True))
    drawn: Drawn = []
    layout: dict[str, object] = {"annotations": [panel.title(target) for target, panel in grid.items()]}
    for target, panel in grid.items():
        chosen = [row for row in rows if str(row["target"]) == target]
        skilled = all(number(row["skill_share"]) is not None for row in chosen)
        value = "skill_share" if skilled else "rise"
        drawn += [(EVERY_VIEW, trace) for trace in _random_band(chosen, value, panel)]
        for order in ORDERS:
            mine = [row for row in chosen if str(row["order"]) == order]
            if mine:
                drawn.append((EVERY_VIEW, _line(mine, order, value, panel)))
        if skilled:
            line = {"color": INK, "width": 1, "dash": "dot"}
            place = {"mode": "lines", "line": line, "hoverinfo": "skip", "showlegend": False, **panel.place}
            drawn.append((EVERY_VIEW, go.Scatter(x=[0, 1], y=[BOUND] * 2, **place)))
        name, form = ("share of skill lost", ".0%") if skilled else ("rise in loss (no skill)", ".2~g")
        x = {"range": [-0.01, 1.01], "tickformat": ".0%"}
        x |= {"title": axis_title("share of heads removed")} if target == targets[-1] else {}
        y = {"nticks": 5, "title": axis_title(name), "tickformat": form, "zeroline": True, "zerolinecolor": MUTED}
        layout |= panel.axes(x, y)
    return figure(drawn, plot_px, {**layout, "showlegend": True})


def redundancy_matrix(redundancy: pd.DataFrame) -> go.Figure | None:
    """Every pair of heads, those alike beside each other, with the tree that orders them; None with fewer than three.

    A view for where heads look and one for what they write. Tree: average linkage of the distance, 1 - CKA for the
    latter; where a pair has no number it counts as not alike.
    """
    drawn: Drawn = []
    changes: dict[str, dict[str, object]] = {}
    size = 0
    share = TREE_PX / (TREE_PX + CELLS_PX)
    tree, cells = Panel(1, 0.0, 1.0, 1 - share + 0.01, 1.0), Panel(2, 0.0, 1.0, 0.0, 1 - share)
    for kind, view in KINDS.items():
        rows = [row for row in records(redundancy) if str(row["kind"]) == kind]
        heads = sorted({end for row in rows for end in _pair(row)})
        if len(heads) < 3:
            continue
        found = {_pair(row): row for row in rows}
        order, links = _tree(heads, found, kind)
        names = [f"L{layer} H{head}" for layer, head in order]
        drawn += [(view, _cells(order, names, found, kind, cells)), (view, _links(links, tree))]
        labelled = list(range(len(order))) if len(order) <= LEGIBLE else []
        ticks = {"tickvals": labelled, "ticktext": [names[place] for place in labelled]}
        # An order of its own for each view: the dropdown changes the names too.
        changes[view] = {f"{axis}2.{key}": value for axis in ("xaxis", "yaxis") for key, value in ticks.items()}
        size = len(order)
    if not drawn:
        return None
    span = {"range": [-0.5, size - 0.5], "showgrid": False}
    first = next(iter(changes.values()))
    ticks = {name: first[f"xaxis2.{name}"] for name in ("tickvals", "ticktext")}
    layout = tree.axes({**span, "showticklabels": False, "showline": False}, {"nticks": 3, "showgrid": False})
    layout |= cells.axes({**span, **ticks}, {**span, **ticks, "autorange": "reversed"})
    layout["coloraxis"] = {
        "colorscale": [[0, "#f5f6f7"], [1, TRAINED_COLOUR]],
        "cmin": 0,
        "cmax": 1,
        "colorbar": {"thickness": 10, "len": 120, "lenmode": "pixels", "y": 0, "yanchor": "bottom"},
    }
    return figure(drawn, TREE_PX + CELLS_PX, layout, changes)


def _line(rows: Sequence[Row], order: str, value: str, panel: Panel) -> go.Scatter:
    name, colour, dash = ORDERS[order]
    told = [
        f"{name}: {whole(row['removed'])} removed, loss {significant(row['loss'])}, rise {significant(row['rise'])} "
        f"{interval(row['low'], row['high'], None)}"
        for row in rows
    ]
    return go.Scatter(
        x=[number(row["share"]) for row in rows],
        y=[number(row[value]) for row in rows],
        mode="lines+markers",
        marker={"size": 5, "color": colour},
        line={"color": colour, "width": 1.8, "dash": dash},
        hovertext=told,
        hoverinfo="text",
        name=name,
        legendgroup=order,
        showlegend=panel.number == 1,
        **panel.place,
    )


def _random_band(rows: Sequence[Row], value: str, panel: Panel) -> list[go.Scatter]:
    """Least, median and most over the random orders at each share."""
    by_share: dict[float, list[float]] = {}
    for row in rows:
        if str(row["order"]) == "random":
            by_share.setdefault(number(row["share"]) or 0.0, []).append(number(row[value]) or 0.0)
    if not by_share:
        return []
    shares = sorted(by_share)
    edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False, **panel.place}
    line = {"mode": "lines", "line": {"color": BASELINE, "width": 1.5}, "legendgroup": "random", **panel.place}
    return [
        go.Scatter(x=shares, y=[min(by_share[share]) for share in shares], **edge),
        go.Scatter(
            x=shares, y=[max(by_share[share]) for share in shares], fill="tonexty", fillcolor=BAND_COLOUR, **edge
        ),
        go.Scatter(
            x=shares,
            y=[float(np.median(by_share[share])) for share in shares],
            name="random orders: median, and all of them",
            showlegend=panel.number == 1,
            **line,
        ),
    ]


def _pair(row: Row) -> tuple[tuple[int, int], tuple[int, int]]:
    return (whole(row["layer"]), whole(row["head"])), (whole(row["other_layer"]), whole(row["other_head"]))


Head = tuple[int, int]


def _tree(
    heads: Sequence[Head], found: Mapping[tuple[Head, Head], Row], kind: str
) -> tuple[list[Head], tuple[list[list[float]], list[list[float]]]]:
    """The heads in the order of the tree's leaves, and its links as x and y of four corners each."""
    apart = np.zeros((len(heads), len(heads)))
    for (one, other), row in found.items():
        value = number(row["value"])
        far = 1.0 if value is None else min(1.0, max(0.0, value if kind == "js" else 1.0 - value))
        i, j = heads.index(one), heads.index(other)
        apart[i, j] = apart[j, i] = far
    drawn = cast("dict[str, Any]", dendrogram(linkage(squareform(apart), method="average"), no_plot=True))
    # scipy puts its leaves at 5, 15, 25, ...
    x = [[(corner - 5.0) / 10.0 for corner in link] for link in drawn["icoord"]]
    return [heads[place] for place in drawn["leaves"]], (x, [list(map(float, link)) for link in drawn["dcoord"]])


def _cells(
    order: Sequence[Head], names: Sequence[str], found: Mapping[tuple[Head, Head], Row], kind: str, panel: Panel
) -> go.Heatmap:
    values: list[list[float | None]] = []
    told: list[list[str]] = []
    for y, one in enumerate(order):
        cells = [found.get((one, other)) or found.get((other, one)) for other in order]
        itself = 0.0 if kind == "js" else 1.0
        values.append([itself if row is None else number(row["value"]) for row in cells])
        told.append(
            [
                f"{names[y]} and {names[x]}: {decimals(row['value'])} {interval(row['low'], row['high'])}"
                if row
                else names[y]
                for x, row in enumerate(cells)
            ]
        )
    legible = len(order) <= LEGIBLE // 2
    return go.Heatmap(
        x=list(range(len(order))),
        y=list(range(len(order))),
        z=values,
        text=[[decimals(value, 2) for value in line] for line in values],
        texttemplate="%{text}" if legible else "",
        textfont={"size": 9},
        coloraxis="coloraxis",
        xgap=1,
        ygap=1,
        hovertext=told,
        hoverinfo="text",
        **panel.place,
    )


def _links(links: tuple[list[list[float]], list[list[float]]], panel: Panel) -> go.Scatter:
    x, y = ([end for link in ends for end in (*link, math.nan)] for ends in links)
    line = {"color": MUTED, "width": 1.2}
    return go.Scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip", connectgaps=False, **panel.place)
