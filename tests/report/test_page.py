import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pandas as pd
import pytest
from plotly.offline import get_plotlyjs

from forecaster.report.page import page

Fabricate = Callable[..., Any]
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Reader(HTMLParser):
    """Collects what the tests look at and fails on a tag that closes nothing."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)


def _read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


def _told(html: str) -> str:
    return re.sub(r"\s+", " ", " ".join(_read(html).text))


@pytest.fixture(scope="module")
def html(fabricate: Fabricate) -> str:
    run = fabricate()
    return page(run.tables, run.summary)


def test_the_page_is_balanced_and_loads_nothing(html: str) -> None:
    reader = _read(html)
    for tag, attributes in reader.tags:
        assert "src" not in attributes, tag
        assert tag != "link"
        assert (attributes.get("href") or "#").startswith("#")
    ids = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    anchors = {(attributes["href"] or "")[1:] for tag, attributes in reader.tags if tag == "a"}
    assert anchors <= set(ids)
    (style,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    assert "url(" not in style
    assert "@import" not in style


def test_the_browser_is_told_to_load_nothing(html: str) -> None:
    policies = [attributes["content"] for _, attributes in _read(html).tags if "http-equiv" in attributes]
    assert policies == [
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
    ]


def test_plotly_stands_in_the_page_once(html: str) -> None:
    assert html.count(get_plotlyjs()[:200]) == 1


def test_every_figure_has_its_data_and_its_place(html: str) -> None:
    tags = _read(html).tags
    data = [attributes["id"] for tag, attributes in tags if tag == "script" and "id" in attributes]
    assert data == [
        f"{name}-data" for name in ("r2", "forecast", "coverage", "head-map", "lags", "ablation", "history")
    ]
    places = {attributes["id"] for tag, attributes in tags if tag == "div" and "id" in attributes}
    assert places == {str(name).removesuffix("-data") for name in data}
    for source in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', html, re.DOTALL):
        assert set(json.loads(source)) >= {"data", "layout"}


def test_the_same_tables_give_the_same_bytes(fabricate: Fabricate, html: str) -> None:
    again = fabricate()
    assert page(again.tables, again.summary) == html


def test_a_test_period_of_a_thousand_dates_stays_small(fabricate: Fabricate) -> None:
    run = fabricate(dates=1000)
    assert len(page(run.tables, run.summary)) - len(get_plotlyjs()) < 1_000_000


@pytest.mark.parametrize(
    "evil", ["<script>alert(1)</script>", "</script><b>M&M.NS</b>", '"><img src=x>', "{{ 7 * 7 }}"]
)
def test_text_from_data_is_never_markup(fabricate: Fabricate, evil: str) -> None:
    run = fabricate(symbols=(evil, "M&M.NS"), targets=("volatility",), heads=1, dates=4)
    for key in ("headline", "gates"):
        run.summary[key] = [evil]
    run.summary |= {"experiment": evil, "status": "failed", "error": evil, "basis": evil, "versions": {evil: evil}}
    run.tables["heads"]["reason"] = evil
    run.tables["scores"]["model"] = run.tables["scores"]["model"].replace("ewma", evil)
    run.tables["quality"]["detail"] = evil
    html = page(run.tables, run.summary)
    reader = _read(html)
    assert not {"img", "b"} & {tag for tag, _ in reader.tags}
    assert sum(tag == "script" for tag, _ in reader.tags) == 9
    assert evil in "".join(reader.text)
    assert "M&M.NS" in "".join(reader.text)
    for source in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', html, re.DOTALL):
        figure = json.loads(source)
        # What plotly reads as markup: only the tags that the figures put there themselves.
        assert "<script" not in json.dumps(figure)
        assert "<img" not in json.dumps(figure)


def test_headline_gates_facts_and_verdicts_are_told(html: str) -> None:
    told = _told(html)
    for sentence in (
        "SP500, NASDAQ · bars 1999-01-04 to 2018-12-31 · tested 2015-01-02 to 2015-02-13",
        "volatility: attention is no different from the best baseline",
        "return: the gate is closed (p = 0.412)",
        "worse than mean",
        "train 6,342, validation 1,386, test 1,998",
        "parameters 70,485",
        "training 41.2, scores 8.10",
        "python 3.11.7, torch 2.13.0",
        "2 of 16 heads carry a label",
        "monthly has no score",
        "zero_volume 2 1 kept",
    ):
        assert sentence in told


def test_a_run_without_probes_says_so_and_has_no_empty_plot(fabricate: Fabricate) -> None:
    run = fabricate(dates=4)
    tables = {name: run.tables[name] for name in ("scores", "tests", "forecasts", "history", "quality")}
    html = page(tables, {key: value for key, value in run.summary.items() if key != "gates"})
    assert "this run has not been probed (forecaster probe run=DIR does it)" in _told(html)
    assert "head-map" not in html


def test_a_run_that_was_stopped_before_anything_says_what_is_absent() -> None:
    html = page({}, {"status": "interrupted"})
    told = _told(html)
    assert told.count("Absent:") == 5
    assert "This run was interrupted." in told
    assert "No headline: this run has not been scored." in told
    assert "No quality report" in told
    assert "<script" not in html


def test_heads_that_were_never_found_are_said_to_be_none(fabricate: Fabricate) -> None:
    run = fabricate(dates=4)
    for name in ("heads", "lag_profiles", "knockouts"):
        run.tables[name] = run.tables[name].iloc[:0]
    assert "heads.csv has no row" in _told(page(run.tables, run.summary))


def test_a_figure_without_a_number_is_a_sentence(fabricate: Fabricate) -> None:
    run = fabricate(dates=4, heads=2)
    run.tables["scores"]["value"] = "undefined"
    run.tables["heads"]["kappa"] = "too few"
    run.tables["lag_profiles"]["mean"] = "too few"
    run.tables["knockouts"]["rise"] = "undefined"
    told = _told(page(run.tables, run.summary))
    for sentence in ("no r2 of this run", "no coverage of this run", "no kappa", "lag_profiles.csv", "no ablation"):
        assert sentence in told


def test_a_clean_source_has_nothing_to_report(fabricate: Fabricate) -> None:
    run = fabricate(dates=4)
    run.tables["quality"] = run.tables["quality"].iloc[:0]
    assert "Nothing to report" in _told(page(run.tables, run.summary))


def test_a_long_quality_report_counts_every_row_and_says_how_many_it_lists(fabricate: Fabricate) -> None:
    run = fabricate(dates=4)
    run.tables["quality"] = pd.concat([run.tables["quality"]] * 600, ignore_index=True)
    told = _told(page(run.tables, run.summary))
    assert "zero_volume 1,200 1 kept" in told
    assert "The first 20 rows of each kind, 20 of 1,200" in told


def test_many_symbols_and_heads_are_cut_in_the_open(fabricate: Fabricate) -> None:
    run = fabricate(symbols=[f"S{number}" for number in range(9)], targets=("return",), heads=64, lags=8, dates=3)
    told = _told(page(run.tables, run.summary))
    assert "S5 and 3 more" in told
    assert "Drawn: the first 6 of 9 symbols by name." in told
    assert "Drawn: of 128 heads the 24 whose ablation costs each target most." in told


def test_tables_read_back_from_their_files_make_the_same_statements(fabricate: Fabricate, tmp_path: Any) -> None:
    run = fabricate(horizon=2, dates=4)
    back = {}
    for name, table in run.tables.items():
        table.to_csv(tmp_path / name, index=False, float_format="%.10g")
        back[name] = pd.read_csv(tmp_path / name, keep_default_na=False, na_values=[""])
    assert _told(page(back, run.summary)) == _told(page(run.tables, run.summary))
