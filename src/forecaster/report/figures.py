"""Pictures of the forecasts: scores against baselines, coverage, forecast against actual, training history."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from forecaster.report.canvas import (
    ACCENT,
    BAND_COLOUR,
    BASELINE,
    EVERY_VIEW,
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
    is_trained,
    number,
    pooled,
    records,
    whole,
)

ROW_PX = 26  # height of one model's row
SYMBOLS = ("circle", "square", "diamond")
COVERAGES = {"coverage_50": 0.5, "coverage_80": 0.8, "coverage_90": 0.9}
DRAWN_SYMBOLS = 6  # a panel of hundreds of symbols would make the page too heavy to open


def r2_against_baselines(scores: pd.DataFrame) -> go.Figure | None:
    """r2 of every model with its 95 % interval: a panel per target, a view per step; None without a number."""
    return _forest(scores, {"r2": 0.0}, {"title": axis_title("r2")}, endless=True)


def coverage(scores: pd.DataFrame) -> go.Figure | None:
    """Measured coverage of the 50, 80 and 90 % bands with intervals, beside lines at the nominal values; else None."""
    x = {"title": axis_title("share of outcomes inside the band"), "tickformat": ".0%"}
    return _forest(scores, COVERAGES, x, endless=False)


def _forest(
    scores: pd.DataFrame, references: Mapping[str, float], x: Mapping[str, object], endless: bool
) -> go.Figure | None:
    rows = [row for row in pooled(scores) if row["metric"] in references]
    if all(number(row["value"]) is None for row in rows):
        return None
    models = distinct(row["model"] for row in rows)
    steps = sorted({whole(row["step"]) for row in rows})
    targets = distinct(row["target"] for row in rows)
    heights = {model: len(models) - 1 - place for place, model in enumerate(models)}
    grid = dict(zip(targets, panels(1, len(targets), gap_x=0.04), strict=True))
    drawn: Drawn = []
    spans: dict[str, dict[str, object]] = {f"step {step}": {} for step in steps}
    for step in steps:
        for target, panel in grid.items():
            chosen = [row for row in rows if str(row["target"]) == target and whole(row["step"]) == step]
            traces, span = _forest_panel(chosen, references, heights, panel, _floor(chosen) if endless else -np.inf)
            drawn += [(f"step {step}", trace) for trace in traces]
            spans[f"step {step}"][f"xaxis{panel.suffix}.range"] = span
    layout: dict[str, object] = {"annotations": [panel.title(target) for target, panel in grid.items()]}
    ticks = {"tickvals": list(heights.values()), "ticktext": [escape(model) for model in heights]}
    for panel in grid.values():
        span = spans[f"step {steps[0]}"][f"xaxis{panel.suffix}.range"]
        y = {**ticks, "range": _edges(heights), "showgrid": False, "showticklabels": panel.number == 1}
        layout |= panel.axes({"nticks": 6, "range": span, **x}, y)
    row_px = ROW_PX if len(references) == 1 else 1.5 * ROW_PX
    return figure(drawn, round(row_px * len(models) + 20), layout, spans)


def _floor(rows: Sequence[Row]) -> float:
    """Below it a model would squeeze the others: min(0, low) - 3 (high - low) of the trained network."""
    for row in rows:
        low, high = number(row["low"]), number(row["high"])
        if is_trained(row["model"]) and low is not None and high is not None:
            return min(0.0, low) - 3 * (high - low)
    return -np.inf


def _forest_panel(
    rows: Sequence[Row], references: Mapping[str, float], heights: Mapping[str, int], panel: Panel, floor: float
) -> tuple[list[go.Scatter], tuple[float, float]]:
    """The traces and the x range; a model below the floor, or whose value is a word, is named at the left edge."""
    shown = [row for row in rows if (value := number(row["value"])) is not None and value >= floor]
    cells = [number(row[end]) for row in shown for end in ("value", "low", "high")]
    ends = [*references.values(), *(cell for cell in cells if cell is not None)]
    pad = 0.06 * ((max(ends) - min(ends)) or 1.0)
    span = (min(ends) - pad, max(ends) + pad)
    drawn = {str(row["model"]) for row in shown}
    apart = {str(row["model"]): row["value"] for row in rows if str(row["model"]) not in drawn}
    line = {"mode": "lines", "line": {"color": ACCENT, "width": 1.2, "dash": "dot"}, "hoverinfo": "skip"}
    traces = [go.Scatter(x=[x] * 2, y=_edges(heights), **line, **panel.place) for x in references.values()]
    for lane, (metric, symbol) in enumerate(zip(references, SYMBOLS, strict=False)):
        raised = 0.24 * ((len(references) - 1) / 2 - lane)
        traces.append(_marks([row for row in shown if row["metric"] == metric], heights, raised, symbol, panel))
    names = go.Scatter(
        x=[span[0]] * len(apart),
        y=[heights[model] for model in apart],
        text=[decimals(x) if number(x) is None else f"◂ {decimals(x)}" for x in apart.values()],
        mode="text",
        textposition="middle right",
        textfont={"size": 11, "color": MUTED},
        hoverinfo="skip",
        **panel.place,
    )
    return [*traces, names], span


def _marks(rows: Sequence[Row], heights: Mapping[str, int], raised: float, symbol: str, panel: Panel) -> go.Scatter:
    values = [number(row["value"]) or 0.0 for row in rows]
    lows, highs = [number(row["low"]) for row in rows], [number(row["high"]) for row in rows]
    trained = [is_trained(row["model"]) for row in rows]
    return go.Scatter(
        x=values,
        y=[heights[str(row["model"])] + raised for row in rows],
        error_x=error_bars(values, lows, highs, MUTED),
        mode="markers",
        marker={
            "symbol": symbol,
            "size": [11 if ours else 8 for ours in trained],
            "color": [TRAINED_COLOUR if ours else BASELINE for ours in trained],
            "opacity": 1,
        },
        hovertext=[
            escape(f"{row['model']}, {row['metric']}: {decimals(row['value'])} {interval(row['low'], row['high'])}")
            for row in rows
        ],
        hoverinfo="text",
        **panel.place,
    )


def _edges(heights: Mapping[str, int]) -> list[float]:
    return [-0.7, len(heights) - 0.3]


def forecast_against_actual(forecasts: pd.DataFrame) -> go.Figure | None:
    """The trained network's mean and 10-90 % band one step ahead beside what came: a view per target and symbol.

    Drawn for the first DRAWN_SYMBOLS symbols; None where the table holds no forecast of the trained network.
    """
    rows = forecasts[(forecasts["model"].map(is_trained)) & (forecasts["step"] == 1)].sort_values("target_time")
    if rows.empty:
        return None
    drawn: Drawn = []
    for target in distinct(rows["target"]):
        for symbol in sorted(distinct(rows["symbol"]))[:DRAWN_SYMBOLS]:
            one = rows[(rows["target"] == target) & (rows["symbol"] == symbol)]
            drawn += [(f"{target} · {symbol}", trace) for trace in _forecast_traces(one)]
    (panel,) = panels(1, 1)
    layout = panel.axes({"type": "date"}, {"nticks": 6})
    return figure(drawn, 340, {**layout, "showlegend": True, "hovermode": "x unified"})


def _forecast_traces(one: pd.DataFrame) -> list[go.Scatter]:
    times = pd.to_datetime(one["target_time"])
    daily = bool((times == times.dt.normalize()).all())
    x = times.dt.strftime("%Y-%m-%d" if daily else "%Y-%m-%d %H:%M").tolist()
    low, high, mean, actual = (one[column].to_numpy(np.float32) for column in ("q10", "q90", "mean", "actual"))
    edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    seen, forecast = {"color": MUTED, "width": 1}, {"color": TRAINED_COLOUR, "width": 1.8}
    shape = "%{y:.4~g}"
    return [
        go.Scatter(x=x, y=low, showlegend=False, **edge),
        go.Scatter(x=x, y=high, fill="tonexty", fillcolor=BAND_COLOUR, name="10–90 % band", **edge),
        go.Scatter(x=x, y=actual, mode="lines", line=seen, name="actual", hovertemplate=shape),
        go.Scatter(x=x, y=mean, mode="lines", line=forecast, name="forecast (mean)", hovertemplate=shape),
    ]


def training_history(history: pd.DataFrame) -> go.Figure | None:
    """Training and validation loss by epoch, the epoch of least validation loss ringed; None without a number."""
    looks = {"train_loss": ("training", BASELINE), "validation_loss": ("validation", TRAINED_COLOUR)}
    drawn: Drawn = []
    for column, (label, colour) in looks.items():
        cells = [(whole(row["epoch"]), number(row[column])) for row in records(history)]
        points = {epoch: loss for epoch, loss in cells if loss is not None}
        x, y = list(points), list(points.values())
        line = go.Scatter(x=x, y=y, mode="lines+markers", line={"color": colour, "width": 2}, name=label)
        drawn += [(EVERY_VIEW, line)] if points else []
        if points and column == "validation_loss":
            best = min(points, key=points.__getitem__)
            ring = {"symbol": "circle-open", "size": 14, "color": ACCENT, "line": {"width": 2}}
            mark = go.Scatter(x=[best], y=[points[best]], mode="markers", marker=ring, name="least validation loss")
            drawn.append((EVERY_VIEW, mark))
    if not drawn:
        return None
    (panel,) = panels(1, 1)
    layout = panel.axes({"title": axis_title("epoch"), "nticks": 10}, {"title": axis_title("loss"), "nticks": 6})
    return figure(drawn, 240, {**layout, "showlegend": True})
