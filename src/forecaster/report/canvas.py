"""The common ground of all pictures: colours, panels, error bars, the switch between views."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
from plotly.basedatatypes import BaseTraceType

INK = "#1f2933"
MUTED = "#5f6b78"
FAINT = "#e4e7eb"
BASELINE = "#98a3af"
TRAINED_COLOUR = "#1d4f91"
BAND_COLOUR = "rgba(29, 79, 145, 0.20)"
ACCENT = "#c2571a"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
TITLE_PX = 26  # room for one line of text above a panel
SWITCH_PX = 44  # room for a dropdown
AXIS_PX = 52  # room for tick labels and the axis title
LEGEND_PX = 34
EVERY_VIEW = ""

Drawn = list[tuple[str, BaseTraceType]]  # each trace with the view it belongs to


@dataclass(frozen=True)
class Panel:
    """One coordinate system of a figure: its number and its place in shares of the plotting area."""

    number: int
    left: float
    right: float
    bottom: float
    top: float

    @property
    def suffix(self) -> str:
        """What follows `x` and `y` in the names of this panel's axes."""
        return "" if self.number == 1 else str(self.number)

    @property
    def place(self) -> dict[str, str]:
        """The arguments that put a trace into this panel."""
        return {"xaxis": f"x{self.suffix}", "yaxis": f"y{self.suffix}"}

    def axes(self, x: Mapping[str, object], y: Mapping[str, object]) -> dict[str, object]:
        """The layout entries of both axes: the house style under the given settings."""
        style = {
            "gridcolor": FAINT,
            "linecolor": BASELINE,
            "zeroline": False,
            "automargin": True,
            "tickfont": {"size": 11, "color": MUTED},
        }
        return {
            f"xaxis{self.suffix}": {**style, "domain": [self.left, self.right], "anchor": f"y{self.suffix}", **x},
            f"yaxis{self.suffix}": {**style, "domain": [self.bottom, self.top], "anchor": f"x{self.suffix}", **y},
        }

    def title(self, text: str, size: int = 13) -> dict[str, object]:
        """The panel's title, an annotation on its upper left corner."""
        return {
            "text": f"<b>{escape(text)}</b>",
            "font": {"size": size, "color": INK},
            "x": self.left,
            "y": self.top,
            "xref": "paper",
            "yref": "paper",
            "xanchor": "left",
            "yanchor": "bottom",
            "showarrow": False,
        }


def panels(rows: int, columns: int, gap_x: float = 0.05, gap_y: float = 0.1) -> list[Panel]:
    """Equal panels in reading order, with gaps in shares of the plotting area."""
    width = (1 - gap_x * (columns - 1)) / columns
    height = (1 - gap_y * (rows - 1)) / rows
    return [
        Panel(
            number=row * columns + column + 1,
            left=column * (width + gap_x),
            right=min(1.0, column * (width + gap_x) + width),
            bottom=max(0.0, 1 - row * (height + gap_y) - height),
            top=1 - row * (height + gap_y),
        )
        for row in range(rows)
        for column in range(columns)
    ]


def escape(text: object) -> str:
    """Text from data for a place where plotly reads markup: titles, ticks, labels, hover texts."""
    return html.escape(str(text), quote=False)


def axis_title(text: str) -> dict[str, object]:
    """An axis title in the house style."""
    return {"text": text, "font": {"size": 11, "color": MUTED}, "standoff": 8}


def error_bars(
    values: Sequence[float], lows: Sequence[float | None], highs: Sequence[float | None], colour: str
) -> dict[str, object]:
    """Interval ends as plotly's distances from the point; an end that is no number draws nothing."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [0 if high is None else high - value for value, high in zip(values, highs, strict=True)],
        "arrayminus": [0 if low is None else value - low for value, low in zip(values, lows, strict=True)],
        "color": colour,
        "thickness": 1.4,
        "width": 3,
    }


def figure(
    drawn: Drawn, plot_px: int, layout: Mapping[str, object], changes: Mapping[str, Mapping[str, object]] | None = None
) -> go.Figure:
    """A figure whose plotting area is plot_px pixels high, with a dropdown where the traces belong to several views.

    `changes` gives the layout entries that a view sets beside the visibility of its traces.
    """
    views = [view for view in dict.fromkeys(view for view, _ in drawn) if view != EVERY_VIEW]
    traces = [trace for _, trace in drawn]
    for view, trace in drawn:
        trace["visible"] = view == EVERY_VIEW or view == views[0]
    buttons = [
        {
            "label": escape(view),
            "method": "update",
            "args": [{"visible": [owner in (view, EVERY_VIEW) for owner, _ in drawn]}, (changes or {}).get(view, {})],
        }
        for view in views
    ]
    dropdown = {
        "buttons": buttons,
        "type": "dropdown",
        "x": 0,
        "xanchor": "left",
        "y": 1 + TITLE_PX / plot_px,
        "yanchor": "bottom",
        "bgcolor": "white",
        "bordercolor": BASELINE,
        "font": {"size": 12, "color": INK},
        "pad": {"b": 6},
    }
    top = TITLE_PX + (SWITCH_PX if len(views) > 1 else 0)
    bottom = AXIS_PX + (LEGEND_PX if layout.get("showlegend") else 0)
    style: dict[str, object] = {
        "template": "none",
        "font": {"family": FONT, "size": 12, "color": INK},
        "height": plot_px + top + bottom,
        "margin": {"t": top, "b": bottom, "l": 56, "r": 18},
        "legend": {"orientation": "h", "x": 0, "y": -AXIS_PX / plot_px, "xanchor": "left", "yanchor": "top"},
        "showlegend": False,
        "updatemenus": [dropdown] if len(views) > 1 else [],
    }
    return go.Figure(data=traces, layout={**style, **layout})
