"""One self-contained page from what a run directory holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import jinja2
import pandas as pd
import plotly.graph_objects as go
from markupsafe import Markup
from plotly.io import to_json  # pyright: ignore[reportUnknownVariableType]
from plotly.offline import get_plotlyjs

from forecaster.report import drift_figures, figures, head_figures, pruning_figures
from forecaster.report.head_tables import changes_table, closest_heads, label_counts, labelled_heads, unmeasured
from forecaster.report.pruning_tables import group_redundancy
from forecaster.report.quality import kinds
from forecaster.report.readings import READINGS, SCORES, TESTS
from forecaster.report.tables import Cell, Fold, Table, score_tables, verdict_tables
from forecaster.report.values import distinct, records, significant, word

WEEK_BARS = 5  # of a run whose summary does not say
LISTED_FAULTS = 20  # of each kind
NOT_SCORED = "Absent: this run has not been scored (forecaster evaluate run=DIR does it)."
NOT_PROBED = "Absent: this run has not been probed (forecaster probe run=DIR does it)."
FACTS = {
    "model": "network",
    "symbols": "symbols",
    "bars": "bars",
    "interval": "interval",
    "calendar": "calendar",
    "basis": "prices",
    "targets": "targets",
    "off": "what the bars don't allow",
    "horizon": "horizon H, bars",
    "window": "window L, bars",
    "windows": "windows per part",
    "windows_left_out": "windows left out",
    "train_end": "training ends",
    "validation_end": "validation ends",
    "seed": "seed",
    "parameters": "parameters",
    "best_epoch": "epoch kept",
    "timings": "seconds spent",
    "threads": "threads",
    "versions": "versions",
}


@dataclass(frozen=True)
class Picture:
    """A figure with how to read it, or the sentence that says why there is none (empty data)."""

    name: str
    title: str
    words: str
    data: Markup
    height: int
    wide: bool


Part = str | Table | Fold | Picture


@dataclass(frozen=True)
class Section:
    """A part of the page under one heading: sentences, tables and pictures in reading order."""

    name: str
    title: str
    parts: Sequence[Part]


def page(tables: Mapping[str, pd.DataFrame], summary: Mapping[str, object]) -> str:
    """The report as one HTML text: styles, figures and plotly.js inside, nothing loaded from elsewhere.

    `tables` holds the run directory's tables by file name without ending (scores, tests, forecasts, history, heads,
    knockouts, lag_profiles, quality); a section whose table is missing says so. The same input gives the same bytes.
    """
    history = [_picture("history", figures.training_history(tables["history"]))] if "history" in tables else []
    sections = [
        Section("scores", "Scores against baselines", _scores(tables)),
        Section("tests", "Tests", [TESTS, *verdict_tables(tables["tests"])] if "tests" in tables else [NOT_SCORED]),
        Section("forecasts", "Forecasts", _forecasts(tables)),
        Section("heads", "What the heads look at", _heads(tables, summary)),
        Section("training", "Training", history or ["Absent: this run holds no history.csv."]),
        Section("run", "The run", [*_facts(summary), *_quality(tables)]),
    ]
    return render(
        word(summary.get("experiment")) or "run",
        _subtitle(tables, summary),
        _fault(summary),
        _texts(summary.get("headline")) or ["No headline: this run has not been scored."],
        sections,
    )


def render(title: str, subtitle: str, fault: str, headline: Sequence[str], sections: Sequence[Section]) -> str:
    """A page of these sections, with everything it needs inside."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("forecaster.report", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2").render(
        experiment=title,
        subtitle=subtitle,
        fault=fault,
        headline=headline,
        sections=sections,
        pictures=[part for section in sections for part in section.parts if isinstance(part, Picture) and part.data],
        plotly=Markup(get_plotlyjs()),
    )


def _scores(tables: Mapping[str, pd.DataFrame]) -> list[Part]:
    scores, tests = tables.get("scores"), tables.get("tests")
    if scores is None:
        return [NOT_SCORED]
    return [_picture("r2", figures.r2_against_baselines(scores)), SCORES, *score_tables(scores, tests)]


def _forecasts(tables: Mapping[str, pd.DataFrame]) -> list[Part]:
    forecasts, scores = tables.get("forecasts"), tables.get("scores")
    parts: list[Part] = []
    if forecasts is None:
        parts.append(NOT_SCORED)
    else:
        parts.append(_picture("forecast", figures.forecast_against_actual(forecasts)))
        symbols, drawn = len(distinct(forecasts["symbol"])), figures.DRAWN_SYMBOLS
        parts += [f"Drawn: the first {drawn} of {symbols} symbols by name."] if symbols > drawn else []
    if scores is not None:
        parts.append(_picture("coverage", figures.coverage(scores)))
    return parts


def _heads(tables: Mapping[str, pd.DataFrame], summary: Mapping[str, object]) -> list[Part]:
    heads = tables.get("heads")
    if heads is None:
        return [*_texts(summary.get("gates"))] or [NOT_PROBED]
    parts: list[Part] = [*_texts(summary.get("gates"))]
    if heads.empty:
        return [*parts, "Absent: heads.csv has no row, no head was probed."]
    parts += [label_counts(heads), *(table for table in (labelled_heads(heads), closest_heads(heads)) if table)]
    parts += [_picture("head-map", head_figures.head_map(heads)), *unmeasured(heads)]
    if "lag_profiles" in tables:
        week = summary.get("week_bars")
        profiles = head_figures.lag_profiles(tables["lag_profiles"], week if isinstance(week, int) else WEEK_BARS)
        parts.append(_picture("lags", profiles))
    if "knockouts" in tables:
        parts.append(_picture("ablation", head_figures.ablations(tables["knockouts"])))
        count, drawn = len(heads[["layer", "head"]].drop_duplicates()), head_figures.DRAWN_BARS
        parts += (
            [f"Drawn: of {count} heads the {drawn} whose ablation costs each target most."] if count > drawn else []
        )
    return [*parts, *_together(tables, summary), *_over_time(tables)]


def _together(tables: Mapping[str, pd.DataFrame], summary: Mapping[str, object]) -> list[Part]:
    parts: list[Part] = []
    if "redundancy" in tables and not tables["redundancy"].empty:
        found = tables["redundancy"]
        parts += group_redundancy(found, tables.get("knockouts"))
        parts.append(_picture("redundancy", pruning_figures.redundancy_matrix(found)))
    if "pruning" in tables:
        curve = _picture("pruning", pruning_figures.pruning_curve(tables["pruning"]))
        parts += [*_texts(summary.get("pruning")), curve]
    return parts


def _over_time(tables: Mapping[str, pd.DataFrame]) -> list[Part]:
    if "drift_tests" not in tables:
        return []
    tests, distances = tables["drift_tests"], tables["attention_distance"]
    parts: list[Part] = [_picture("roles", drift_figures.roles(tables["drift"], tests)), *changes_table(tests)]
    parts.append(_picture("strip", drift_figures.strip(distances, tables.get("closes"))))
    return parts


def _picture(name: str, figure: go.Figure | None) -> Picture:
    reading = READINGS[name]
    return drawn_picture(name, reading.title, reading.words if figure else reading.empty, figure)


def drawn_picture(name: str, title: str, words: str, figure: go.Figure | None) -> Picture:
    """A figure as the page holds it; empty where there is none."""
    if figure is None:
        return Picture(name, title, words, Markup(""), height=0, wide=False)
    # to_json writes <, > and / as escapes, so that no text of the data can end the script element.
    data, height = Markup(str(to_json(figure))), cast("int", figure.layout.height)
    return Picture(name, title, words, data, height, wide='"xaxis2"' in data)


def _facts(summary: Mapping[str, object]) -> list[Part]:
    facts = {**summary, "seed": word(summary.get("seed"))}
    told = {key: name for key, name in FACTS.items() if summary.get(key) not in (None, [], {})}
    rows = [[Cell(name), Cell(_spelled(facts[key]), tone="prose")] for key, name in told.items()]
    return [Table("Facts", (), rows)] if rows else []


def _spelled(value: object) -> str:
    match value:
        case Mapping():
            pairs = cast("Mapping[str, object]", value).items()
            nested = any(isinstance(part, Mapping) for part in cast("Mapping[str, object]", value).values())
            return ("; " if nested else ", ").join(f"{name} {_spelled(part)}" for name, part in pairs)
        case list():
            return ", ".join(_texts(cast("list[object]", value)))
        case int():
            return f"{value:,}"
        case float():
            return significant(value)
        case _:
            return word(value)


def _quality(tables: Mapping[str, pd.DataFrame]) -> list[Part]:
    if "quality" not in tables:
        return ["No quality report: this run holds no quality.csv."]
    rows = records(tables["quality"])
    if not rows:
        nothing = "Nothing to report: no bar was changed, and none was suspicious."
        return [Table("Quality report", (), (), [nothing])]
    counted = [list(map(Cell, kind)) for kind in kinds(tables["quality"])]
    columns = ("symbol", "time", "kind", "detail", "action")
    # A daily bar's time is a date, also where the table still holds it as a stamp.
    # Some of every kind: the first rows alone would be of one.
    chosen = records(tables["quality"].groupby("kind", sort=False).head(LISTED_FAULTS))
    listed = [[Cell(word(row[column]).removesuffix(" 00:00:00")) for column in columns] for row in chosen]
    fewer = f"The first {LISTED_FAULTS} rows of each kind, {len(chosen):,} of {len(rows):,}"
    title = fewer if len(chosen) < len(rows) else "Every row"
    return [
        Table("Quality report", ("kind", "rows", "symbols", "action"), counted),
        Fold("Row by row", [Table(title, columns, listed)]),
    ]


def _subtitle(tables: Mapping[str, pd.DataFrame], summary: Mapping[str, object]) -> str:
    symbols, named = _texts(summary.get("symbols")), figures.DRAWN_SYMBOLS
    more = f" and {len(symbols) - named} more" if len(symbols) > named else ""
    parts = [", ".join(symbols[:named]) + more] if symbols else []
    if "first" in summary and "last" in summary:
        parts.append(f"bars {summary['first']} to {summary['last']}")
    forecasts = tables.get("forecasts")
    if forecasts is not None and not forecasts.empty:
        parts.append(f"tested {str(forecasts['origin'].min())[:10]} to {str(forecasts['target_time'].max())[:10]}")
    return " · ".join(parts)


def _fault(summary: Mapping[str, object]) -> str:
    status = summary.get("status")
    if status not in ("failed", "interrupted"):
        return ""
    error = word(summary.get("error"))
    return f"This run {'failed' if status == 'failed' else 'was interrupted'}{f': {error}' if error else '.'}"


def _texts(value: object) -> list[str]:
    return [str(text) for text in cast("list[object]", value)] if isinstance(value, list) else []
