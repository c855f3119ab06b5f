"""Pictures of the heads: lag profile of each, one map per probe, ablation bars."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

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
    error_bars,
    escape,
    figure,
    panels,
)
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

WEIGHTS = {"raw": "attention weights", "norm": "norm-weighted attention"}
MAP_COLUMNS = 16  # cells in a row before a layer's heads go on in the next one, so that figures stay legible
CELL_PX = 30
UNTRAINED_COLOUR = "rgba(120, 120, 120, 0.18)"
DRAWN_BARS = 24  # heads per target that the ablation picture shows at most


def lag_profiles(profiles: pd.DataFrame, week_bars: int) -> go.Figure | None:
    """Attention by lag (mean, interval) of each head: a panel per head, a view per layer and weighting, else None.

    The dotted line is uniform attention, 1 / number of lags; ticks stand at multiples of the week. Rows without a head
    are the band of untrained networks, drawn behind.
    """
    every = [row for row in records(profiles) if number(row["mean"]) is not None]
    rows = [row for row in every if number(row["head"]) is not None]
    if not rows:
        return None
    heads, last = sorted({whole(row["head"]) for row in rows}), max(whole(row["lag"]) for row in rows)
    columns, panel_px, gap_px, size = (4, 130, 48, 12) if len(heads) <= 16 else (8, 84, 40, 10)
    lines = math.ceil(len(heads) / columns)
    plot_px = lines * panel_px + (lines - 1) * gap_px
    grid = dict(zip(heads, panels(lines, columns, gap_x=0.045, gap_y=gap_px / plot_px), strict=False))
    drawn: Drawn = [(EVERY_VIEW, _uniform(last, panel)) for panel in grid.values()]
    groups: dict[tuple[int, str, int], list[Row]] = {}
    for row in sorted(rows, key=lambda row: whole(row["lag"])):
        groups.setdefault((whole(row["layer"]), str(row["weights"]), whole(row["head"])), []).append(row)
    untrained: dict[tuple[int, str], list[Row]] = {}
    for row in sorted((row for row in every if number(row["head"]) is None), key=lambda row: whole(row["lag"])):
        untrained.setdefault((whole(row["layer"]), str(row["weights"])), []).append(row)
    for layer, weights, head in sorted(groups, key=lambda key: (key[0], list(WEIGHTS).index(key[1]), key[2])):
        view = f"layer {layer} · {WEIGHTS[weights]}"
        if (layer, weights) in untrained:
            drawn += [(view, trace) for trace in _band(untrained[layer, weights], grid[head], UNTRAINED_COLOUR)]
        drawn += [(view, trace) for trace in _profile(groups[layer, weights, head], grid[head])]
    layout: dict[str, object] = {"annotations": [panel.title(f"head {head}", size) for head, panel in grid.items()]}
    small = {"tickfont": {"size": size - 2, "color": MUTED}}
    weeks = week_ticks(last, week_bars, labels=7 if columns == 4 else 3)
    for place, panel in enumerate(grid.values()):
        title = {"title": axis_title("lag in bars")} if place + columns >= len(heads) else {}
        x = {**weeks, "range": [-0.5, last + 0.5], **title, **small}
        layout |= panel.axes(x, {"nticks": 4, "rangemode": "tozero", "tickformat": ".2~g", **small})
    return figure(drawn, plot_px, layout)


def week_ticks(last: int, week_bars: int, labels: int) -> dict[str, list[int] | list[str]]:
    """A tick at every multiple of the week up to the last lag, at most `labels` of them after 0 with its number."""
    ticks = list(range(0, last + 1, week_bars))
    stride = math.ceil(max(1, len(ticks) - 1) / labels)
    return {"tickvals": ticks, "ticktext": [str(tick) if n % stride == 0 else "" for n, tick in enumerate(ticks)]}


def _profile(rows: Sequence[Row], panel: Panel) -> list[go.Scatter]:
    lags, mean = [whole(row["lag"]) for row in rows], [number(row["mean"]) for row in rows]
    line = {"color": TRAINED_COLOUR, "width": 1.6}
    shape = "lag %{x}: %{y:.4~g}<extra></extra>"
    y = np.array(mean, dtype=np.float32)
    return [
        *_band(rows, panel, BAND_COLOUR),
        go.Scatter(x=lags, y=y, mode="lines", line=line, hovertemplate=shape, **panel.place),
    ]


def _band(rows: Sequence[Row], panel: Panel, colour: str) -> list[go.Scatter]:
    lags = [whole(row["lag"]) for row in rows]
    low, high = (np.array([number(row[end]) for row in rows], dtype=np.float32) for end in ("low", "high"))
    edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    return [
        go.Scatter(x=lags, y=low, **edge, **panel.place),
        go.Scatter(x=lags, y=high, fill="tonexty", fillcolor=colour, **edge, **panel.place),
    ]


def _uniform(last: int, panel: Panel) -> go.Scatter:
    line = {"color": ACCENT, "width": 1, "dash": "dot"}
    return go.Scatter(x=[0, last], y=[1 / (last + 1)] * 2, mode="lines", line=line, hoverinfo="skip", **panel.place)


def head_map(heads: pd.DataFrame) -> go.Figure | None:
    """Kappa of every head at the last bar's query: a panel per probe, a view per weighting; None without a number.

    A dot marks a pattern, a dot in a ring a functional head. A layer of more than MAP_COLUMNS heads goes on in the
    next row.
    """
    every = records(heads)
    rows = [row for row in every if str(row["stratum"]) == "last" and number(row["kappa"]) is not None]
    if not rows:
        return None
    both = len({str(row["direction"]) for row in rows}) > 1
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        probe = f"{row['probe']}, {row['direction']}" if both else str(row["probe"])
        groups.setdefault((str(row["weights"]), probe), []).append(row)
    layers, count = sorted({whole(row["layer"]) for row in every}), 1 + max(whole(row["head"]) for row in every)
    width, folds = min(count, MAP_COLUMNS), math.ceil(count / MAP_COLUMNS)
    lanes = {(layer, fold): layers.index(layer) * folds + fold for layer in layers for fold in range(folds)}
    probes = distinct(probe for _, probe in groups)
    columns = 2 if width <= 8 and len(probes) > 1 else 1
    lines = math.ceil(len(probes) / columns)
    panel_px, gap_px = CELL_PX * len(lanes), 58
    plot_px = lines * panel_px + (lines - 1) * gap_px
    grid = dict(zip(probes, panels(lines, columns, gap_x=0.08, gap_y=gap_px / plot_px), strict=False))
    drawn: Drawn = [
        (WEIGHTS[weights], trace)
        for (weights, probe), chosen in sorted(groups.items(), key=lambda group: list(WEIGHTS).index(group[0][0]))
        for trace in _cells(chosen, lanes, grid[probe])
    ]
    layout: dict[str, object] = {"annotations": [panel.title(probe) for probe, panel in grid.items()]}
    title = {"title": axis_title("head" if folds == 1 else "head, counted from the first of its row")}
    for place, panel in enumerate(grid.values()):
        lowest = title if place + columns >= len(probes) else {}
        x = {"tickvals": list(range(width)), "range": [-0.5, width - 0.5], "showgrid": False, **lowest}
        y = {
            "tickvals": list(lanes.values()),
            "ticktext": [_lane_name(layer, fold, folds, count) for layer, fold in lanes],
            "range": [len(lanes) - 0.5, -0.5],
            "showgrid": False,
        }
        layout |= panel.axes(x, y)
    limit = max(0.1, *(abs(number(row["kappa"]) or 0.0) for row in rows))
    ends = {"tickvals": [-limit, 0, limit], "ticktext": [decimals(-limit, 2), "0", decimals(limit, 2)]}
    layout["coloraxis"] = {
        "colorscale": [[0, ACCENT], [0.5, "#f5f6f7"], [1, TRAINED_COLOUR]],
        "cmin": -limit,
        "cmax": limit,
        "colorbar": {"thickness": 10, "len": 120, "lenmode": "pixels", "y": 1, "yanchor": "top", **ends},
    }
    return figure(drawn, plot_px, layout)


def _lane_name(layer: int, fold: int, folds: int, count: int) -> str:
    first, last = fold * MAP_COLUMNS, min(count, (fold + 1) * MAP_COLUMNS) - 1
    return f"layer {layer}" if folds == 1 else f"layer {layer}, heads {first}–{last}"


def _cells(rows: Sequence[Row], lanes: Mapping[tuple[int, int], int], panel: Panel) -> list[go.Heatmap | go.Scatter]:
    spots = [
        (whole(row["head"]) % MAP_COLUMNS, lanes[whole(row["layer"]), whole(row["head"]) // MAP_COLUMNS])
        for row in rows
    ]
    labels = [word(row["label"]) for row in rows]
    dot = {"size": 6, "color": INK, "opacity": 1, "line": {"color": "white", "width": 1}}
    ring = {"size": 14, "color": "white", "opacity": 1, "line": {"color": INK, "width": 1.5}}
    dotted = [spot for spot, label in zip(spots, labels, strict=True) if is_label(label)]
    ringed = [spot for spot, label in zip(spots, labels, strict=True) if "functional" in label]
    cells = go.Heatmap(
        x=[x for x, _ in spots],
        y=[y for _, y in spots],
        z=[number(row["kappa"]) for row in rows],
        text=[decimals(row["kappa"], 2) for row in rows],
        texttemplate="%{text}",
        textfont={"size": 11},
        coloraxis="coloraxis",
        xgap=2,
        ygap=2,
        hovertext=[_head_hover(row) for row in rows],
        hoverinfo="text",
        **panel.place,
    )
    marks = [
        go.Scatter(
            x=[x + 0.36 for x, _ in chosen],
            y=[y - 0.2 for _, y in chosen],
            mode="markers",
            marker=marker,
            hoverinfo="skip",
            **panel.place,
        )
        for chosen, marker in ((ringed, ring), (dotted, dot))
    ]
    return [cells, *marks]


def _head_hover(row: Row) -> str:
    parts = [
        f"layer {row['layer']}, head {row['head']}: {row['probe']}",
        f"kappa {decimals(row['kappa'])} {interval(row['low'], row['high'])}, odds {significant(row['odds'])}",
        f"{word(row['label'])}: {word(row['reason'])}",
    ]
    return "<br>".join(escape(part) for part in parts)


def ablations(knockouts: pd.DataFrame) -> go.Figure | None:
    """Rise in loss when one head's output is replaced by its mean, zero beside it: a panel per target, else None.

    Where there are more than DRAWN_BARS heads, those with the largest rise by mean are shown, in order of rise.
    """
    rows = [r for r in records(knockouts) if r["kind"] in ("mean", "zero") and number(r["rise"]) is not None]
    if not rows:
        return None
    targets = distinct(row["target"] for row in rows)
    panel_px, gap_px = 150, 70
    plot_px = len(targets) * panel_px + (len(targets) - 1) * gap_px
    grid = dict(zip(targets, panels(len(targets), 1, gap_y=gap_px / plot_px), strict=True))
    drawn: Drawn = []
    layout: dict[str, object] = {"annotations": [panel.title(target) for target, panel in grid.items()]}
    for target, panel in grid.items():
        chosen = [row for row in rows if str(row["target"]) == target]
        order = _bar_order(chosen)
        for kind, colour in (("mean", TRAINED_COLOUR), ("zero", BASELINE)):
            bars = [row for row in chosen if row["kind"] == kind and _head_name(row) in order]
            drawn.append((EVERY_VIEW, _bars(bars, order, kind, colour, panel)))
        x = {"tickvals": list(range(len(order))), "ticktext": order, "showgrid": False}
        y = {"nticks": 5, "title": axis_title("rise in loss"), "zeroline": True, "zerolinecolor": MUTED}
        layout |= panel.axes({**x, "range": [-0.6, len(order) - 0.4]}, {**y, "tickformat": ".2~g"})
    return figure(drawn, plot_px, {**layout, "showlegend": True, "barmode": "group", "bargap": 0.3})


def _head_name(row: Row) -> str:
    return f"L{whole(row['layer'])} H{whole(row['head'])}"


def _bar_order(rows: Sequence[Row]) -> list[str]:
    in_tables = sorted(rows, key=lambda row: (whole(row["layer"]), whole(row["head"])))
    order = distinct(map(_head_name, in_tables))
    if len(order) <= DRAWN_BARS:
        return order
    rise = {_head_name(row): number(row["rise"]) or 0.0 for row in in_tables if row["kind"] == "mean"}
    return sorted(order, key=lambda name: -rise.get(name, -math.inf))[:DRAWN_BARS]


def _bars(rows: Sequence[Row], order: Sequence[str], kind: str, colour: str, panel: Panel) -> go.Bar:
    rises = [number(row["rise"]) or 0.0 for row in rows]
    lows, highs = [number(row["low"]) for row in rows], [number(row["high"]) for row in rows]
    return go.Bar(
        x=[order.index(_head_name(row)) for row in rows],
        y=rises,
        error_y=error_bars(rises, lows, highs, INK),
        marker={"color": colour},
        hovertext=[
            f"{_head_name(row)}, {kind}: {significant(row['rise'])} {escape(interval(row['low'], row['high'], None))}"
            for row in rows
        ],
        hoverinfo="text",
        name=f"{kind}-ablation",
        legendgroup=kind,
        showlegend=panel.number == 1,
        offsetgroup=kind,
        **panel.place,
    )
