"""Pictures of heads over time: roles by period, and a strip of each day's attention over price."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from forecaster.report.canvas import (
    ACCENT,
    EVERY_VIEW,
    INK,
    MUTED,
    TRAINED_COLOUR,
    Drawn,
    Panel,
    axis_title,
    escape,
    figure,
)
from forecaster.report.values import Row, distinct, interval, number, records, significant, whole, word

HEAD_PX: Final = 17
PRICE_PX: Final = 130
GAP_PX: Final = 40
DRAWN_HEADS: Final = 24
STRIP_COLUMNS: Final = 400  # a screen has not many more
PRICE_POINTS: Final = 1500
LONGEST: Final = 12  # labels on an axis of periods
SCALE: Final = [[0.0, ACCENT], [0.5, "#f5f6f7"], [1.0, TRAINED_COLOUR]]
CHANGED: Final = 0.05
PART_ORDER: Final = ("train", "validation", "test")
PRICES: Final = (INK, TRAINED_COLOUR, ACCENT, MUTED, "#7a9cc6", "#dba17f")


def roles(drift: pd.DataFrame, tests: pd.DataFrame) -> go.Figure | None:
    """Heads by periods, a view for each probe or target that was tested for changes; None where none was.

    A dotted line parts training, validation and test; a ring marks the period in which a change (q <= .05) is placed.
    Of more than DRAWN_HEADS heads those with the smallest p are drawn.
    """
    tested = {(str(row["kind"]), str(row["of"])): None for row in records(tests)}
    if not tested:
        return None
    wanted = pd.MultiIndex.from_frame(drift[["kind", "of"]].astype(str)).isin(list(tested))
    rows = records(drift[wanted])
    columns = sorted({(str(row["period"]), PART_ORDER.index(str(row["part"]))) for row in rows})
    places = {cell: place for place, cell in enumerate(columns)}
    panel = Panel(1, 0.0, 1.0, 0.0, 1.0)
    drawn: Drawn = []
    lines = 1
    ticks: dict[str, dict[str, object]] = {}
    for kind, of in tested:
        own = [row for row in rows if (str(row["kind"]), str(row["of"])) == (kind, of)]
        claims = [row for row in records(tests) if (str(row["kind"]), str(row["of"])) == (kind, of)]
        order = _order(own, claims)
        lines = max(lines, len(order))
        view = f"kappa of {of}" if kind == "kappa" else f"{of}: rise of the loss without the head"
        drawn += [(view, _map(own, order, places)), (view, _changes(claims, order, columns))]
        ticks[view] = {"yaxis.tickvals": list(range(len(order))), "yaxis.ticktext": order}
        ticks[view] |= {"yaxis.range": [len(order) - 0.5, -0.5]}
    plot_px = HEAD_PX * max(lines, 6)
    first = next(iter(ticks.values()))
    labels = _period_ticks(columns)
    x = {**labels, "range": [-0.5, len(columns) - 0.5], "showgrid": False}
    y = {name.removeprefix("yaxis."): value for name, value in first.items()} | {"showgrid": False}
    borders = [place for place in range(1, len(columns)) if columns[place][1] != columns[place - 1][1]]
    layout: dict[str, object] = {**panel.axes(x, y), "shapes": [_border(place - 0.5) for place in borders]}
    return figure(drawn, plot_px, layout, ticks)


def _order(rows: Sequence[Row], claims: Sequence[Row]) -> list[str]:
    """The heads drawn, from the top."""
    p = {_name(row): number(row["p"]) for row in claims}
    names = distinct(map(_name, sorted(rows, key=lambda row: (whole(row["layer"]), whole(row["head"])))))
    chosen = sorted(names, key=lambda name: 2.0 if (found := p.get(name)) is None else found)[:DRAWN_HEADS]
    return [name for name in names if name in chosen]


def _name(row: Row) -> str:
    return f"L{whole(row['layer'])} H{whole(row['head'])}"


def _map(rows: Sequence[Row], order: Sequence[str], places: Mapping[tuple[str, int], int]) -> go.Heatmap:
    shown = [row for row in rows if _name(row) in order and number(row["value"]) is not None]
    limit = max([abs(number(row["value"]) or 0.0) for row in shown], default=0.0) or 1.0
    return go.Heatmap(
        x=[places[str(row["period"]), PART_ORDER.index(str(row["part"]))] for row in shown],
        y=[order.index(_name(row)) for row in shown],
        z=np.array([number(row["value"]) for row in shown], dtype=np.float32),
        zmin=-limit,
        zmax=limit,
        colorscale=SCALE,
        colorbar={"thickness": 10, "len": 110, "lenmode": "pixels", "y": 1, "yanchor": "top", "nticks": 5},
        hovertext=[
            escape(
                f"{_name(row)}, {row['period']} ({row['part']}): {significant(row['value'])} "
                f"{interval(row['low'], row['high'], None)}"
            )
            for row in shown
        ],
        hoverinfo="text",
        xgap=1,
        ygap=1,
    )


def _changes(claims: Sequence[Row], order: Sequence[str], columns: Sequence[tuple[str, int]]) -> go.Scatter:
    found = [row for row in claims if (q := number(row["q"])) is not None and q <= CHANGED and _name(row) in order]
    ring = {"size": 11, "color": "rgba(0, 0, 0, 0)", "line": {"color": INK, "width": 1.6}}
    return go.Scatter(
        x=[_place(word(row["change"]), word(row["part"]) == "train", columns) for row in found],
        y=[order.index(_name(row)) for row in found],
        mode="markers",
        marker=ring,
        hovertext=[escape(f"{_name(row)}, {word(row['words'])}") for row in found],
        hoverinfo="text",
    )


def _place(day: str, trained: bool, columns: Sequence[tuple[str, int]]) -> int:
    """The column of the period in which a day lies, in its part."""
    inside = [place for place, (period, part) in enumerate(columns) if (part == 0) == trained and period <= day]
    return inside[-1] if inside else 0


def _period_ticks(columns: Sequence[tuple[str, int]]) -> dict[str, object]:
    stride = -(-len(columns) // LONGEST)
    shown = list(range(0, len(columns), stride))
    return {"tickvals": shown, "ticktext": [columns[place][0] for place in shown]}


def _border(place: float) -> dict[str, object]:
    line = {"color": MUTED, "width": 1, "dash": "dot"}
    return {"type": "line", "x0": place, "x1": place, "y0": 0, "y1": 1, "yref": "paper", "line": line}


def strip(distances: pd.DataFrame, closes: pd.DataFrame | None) -> go.Figure | None:
    """Each head's distance from its own average less its usual one, heads by dates, below the price; else None.

    The first line is the mean of all heads. Of more than DRAWN_HEADS those that vary most; dates are averaged so that
    there are STRIP_COLUMNS columns at most. closes: symbol, time and close, drawn as shares of each one's first.
    """
    if distances.empty:
        return None
    named = distances.assign(
        name=["all heads" if number(head) is None else f"L{layer} H{head}" for layer, head in _pairs(distances)]
    )
    thin = _thinned(named.pivot(index="time", columns="name", values="value"), STRIP_COLUMNS)
    vary = thin.std().drop("all heads").nlargest(DRAWN_HEADS)
    order = [name for name in distinct(named["name"]) if name in ("all heads", *map(str, vary.index))]
    usual_N = thin[order].mean().to_numpy(dtype=np.float32)
    apart = thin[order] - usual_N
    limit = float(np.nanquantile(apart.abs().to_numpy(), 0.99)) or 1.0
    strip_px = HEAD_PX * apart.shape[1]
    plot_px = strip_px + (0 if closes is None else PRICE_PX + GAP_PX)
    below = Panel(1, 0.0, 1.0, 0.0, strip_px / plot_px)
    days = [str(day)[:10] for day in apart.index]
    cells = go.Heatmap(
        x=days,
        y=order,
        z=apart.T.to_numpy(dtype=np.float32),
        customdata=np.broadcast_to(usual_N[:, None], apart.T.shape).tolist(),
        zmin=-limit,
        zmax=limit,
        colorscale=SCALE,
        colorbar={"thickness": 10, "len": 110, "lenmode": "pixels", "y": below.top, "yanchor": "top", "nticks": 5},
        hovertemplate="%{y}, from %{x}: %{z:+.3f} to its usual %{customdata:.3f}<extra></extra>",
        **below.place,
    )
    drawn: Drawn = [(EVERY_VIEW, cells)]
    x = {"showgrid": False, "range": [days[0], days[-1]], "type": "date"}
    layout: dict[str, object] = below.axes(x, {"autorange": "reversed", "showgrid": False})
    if closes is not None:
        above = Panel(2, 0.0, 1.0, 1 - PRICE_PX / plot_px, 1.0)
        drawn += [(EVERY_VIEW, line) for line in _price_lines(closes, days, above)]
        layout |= above.axes(
            {**x, "showticklabels": False}, {"type": "log", "nticks": 4, "title": axis_title("price, first = 1")}
        )
        layout["showlegend"] = closes["symbol"].nunique() > 1
    return figure(drawn, plot_px, layout)


def _pairs(distances: pd.DataFrame) -> list[tuple[object, object]]:
    return [
        (None, None) if number(head) is None else (whole(layer), whole(head))
        for layer, head in zip(distances["layer"], distances["head"], strict=True)
    ]


def _thinned(table: pd.DataFrame, most: int) -> pd.DataFrame:
    """Means of stretches of consecutive rows under the first one's index, `most` at most."""
    group = np.arange(len(table)) * min(most, len(table)) // len(table)
    first = np.flatnonzero(np.diff(group, prepend=-1))
    return table.groupby(group).mean().set_axis(table.index[first])


def _price_lines(closes: pd.DataFrame, days: Sequence[str], panel: Panel) -> list[go.Scatter]:
    lines: list[go.Scatter] = []
    for colour, (symbol, own) in zip(PRICES, closes.groupby("symbol", sort=True), strict=False):
        inside = own[own["time"].astype(str).str[:10].between(days[0], "9999")]
        thin = inside.iloc[:: max(1, len(inside) // PRICE_POINTS)]
        lines.append(
            go.Scatter(
                x=[str(time)[:10] for time in thin["time"]],
                y=(thin["close"] / own["close"].iloc[0]).to_numpy(dtype=np.float32),
                mode="lines",
                line={"color": colour, "width": 1.2},
                name=escape(symbol),
                **panel.place,
            )
        )
    return lines
