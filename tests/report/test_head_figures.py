from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from forecaster.report.head_figures import DRAWN_BARS, ablations, head_map, lag_profiles, week_ticks

Fabricate = Callable[..., Any]


def _maps(figure: Any) -> list[Any]:
    return [trace for trace in figure.data if trace.type == "heatmap"]


def test_the_map_has_a_panel_per_measured_probe_and_a_view_per_weighting(fabricate: Fabricate) -> None:
    figure = head_map(fabricate().tables["heads"])
    titles = [note.text for note in figure.layout.annotations]
    assert titles == [f"<b>{p}</b>" for p in ("recency", "weekly", "weekly_target", "large_move", "volume_spike")]
    assert len(_maps(figure)) == 2 * len(titles)
    (menu,) = figure.layout.updatemenus
    assert [button.label for button in menu.buttons] == ["attention weights", "norm-weighted attention"]


def test_the_map_puts_each_kappa_at_its_layer_and_head(fabricate: Fabricate) -> None:
    heads = fabricate(layers=3, heads=5).tables["heads"]
    cells = _maps(head_map(heads))[0]
    raw = heads.query("probe == 'recency' and weights == 'raw'").set_index(["layer", "head"])["kappa"]
    found = {(y, x): z for x, y, z in zip(cells.x, cells.y, cells.z, strict=True)}
    assert found == pytest.approx(raw.to_dict())


def test_a_dot_marks_a_pattern_and_a_ring_a_functional_head(fabricate: Fabricate) -> None:
    figure = head_map(fabricate().tables["heads"])
    marks = [
        (trace.marker.size, [(round(x - 0.36), round(y + 0.2)) for x, y in zip(trace.x, trace.y, strict=True)])
        for trace in figure.data
        if trace.type == "scatter" and trace.visible and trace.x
    ]
    assert marks == [(14, [(2, 1)]), (6, [(2, 1)]), (6, [(0, 0)])]


def test_a_layer_of_64_heads_goes_on_in_the_next_rows(fabricate: Fabricate) -> None:
    figure = head_map(fabricate(heads=64).tables["heads"])
    assert list(figure.layout.yaxis.ticktext)[3:5] == ["layer 0, heads 48–63", "layer 1, heads 0–15"]
    cells = _maps(figure)[0]
    assert len(cells.z) == 128
    assert (max(cells.x), max(cells.y)) == (15, 7)


def test_past_and_future_have_panels_of_their_own(fabricate: Fabricate) -> None:
    heads = fabricate(heads=2).tables["heads"].query("probe == 'recency'")
    both = heads.assign(direction=np.where(heads["head"] == 0, "past", "future"))
    assert [note.text for note in head_map(both).layout.annotations] == [
        "<b>recency, past</b>",
        "<b>recency, future</b>",
    ]


def test_a_map_without_a_number_is_no_figure(fabricate: Fabricate) -> None:
    heads = fabricate().tables["heads"]
    assert head_map(heads[heads["probe"] == "monthly"]) is None
    assert head_map(heads.assign(kappa="too few")) is None
    assert head_map(heads.iloc[:0]) is None
    assert head_map(heads.assign(stratum="inner")) is None


@pytest.mark.parametrize(("layers", "heads", "lags"), [(1, 1, 10), (2, 8, 64), (3, 5, 3), (1, 64, 16)])
def test_every_head_has_a_lag_profile_in_every_view(fabricate: Fabricate, layers: int, heads: int, lags: int) -> None:
    table = fabricate(layers=layers, heads=heads, lags=lags).tables["lag_profiles"]
    figure = lag_profiles(table.sample(frac=1, random_state=0), 5)
    assert [note.text for note in figure.layout.annotations] == [f"<b>head {head}</b>" for head in range(heads)]
    uniform, views = figure.data[:heads], figure.data[heads:]
    assert uniform[0].y[0] == 1 / lags
    assert len(views) == 3 * heads * layers * 2
    first = table.query("layer == 0 and head == 0 and weights == 'raw'")
    np.testing.assert_allclose(views[2].y, first["mean"], rtol=1e-6)
    assert [view.visible for view in views] == [True] * 3 * heads + [False] * 3 * heads * (2 * layers - 1)


def test_a_lag_profile_with_an_interval_in_words_is_drawn_without_band(fabricate: Fabricate) -> None:
    table = fabricate(layers=1, heads=1, lags=4).tables["lag_profiles"].assign(low="too few", high="too few")
    figure = lag_profiles(table, 5)
    assert np.isnan(figure.data[1].y).all()
    assert not np.isnan(figure.data[3].y).any()
    assert lag_profiles(table.assign(mean="too few"), 5) is None


def test_ticks_stand_at_every_week_and_few_carry_a_number() -> None:
    assert week_ticks(16, 5, labels=7) == {"tickvals": [0, 5, 10, 15], "ticktext": ["0", "5", "10", "15"]}
    assert week_ticks(29, 7, labels=2) == {"tickvals": [0, 7, 14, 21, 28], "ticktext": ["0", "", "14", "", "28"]}
    assert week_ticks(3, 5, labels=7) == {"tickvals": [0], "ticktext": ["0"]}


def test_ablation_bars_are_the_rises_with_their_intervals(fabricate: Fabricate) -> None:
    table = fabricate(layers=1, heads=3, targets=("volume",)).tables["knockouts"]
    mean, zero = ablations(table).data
    np.testing.assert_allclose(mean.y, [0.0, 0.001, 0.002])
    np.testing.assert_allclose(zero.y, [0.0, 0.0018, 0.0036])
    np.testing.assert_allclose(mean.error_y.array, [0.002] * 3)
    assert (mean.name, zero.name) == ("mean-ablation", "zero-ablation")


def test_of_many_heads_those_with_the_largest_rise_are_drawn(fabricate: Fabricate) -> None:
    figure = ablations(fabricate(heads=64, targets=("volatility",)).tables["knockouts"])
    names = list(figure.layout.xaxis.ticktext)
    assert len(names) == DRAWN_BARS
    assert names[0] == "L1 H2"


def test_an_ablation_in_words_makes_no_bar(fabricate: Fabricate) -> None:
    table = fabricate(layers=1, heads=2, targets=("volume",)).tables["knockouts"]
    assert ablations(table.assign(rise="undefined")) is None
    assert ablations(table[table["kind"] == "group"]) is None
    mean, _ = ablations(table.assign(low="too few", high="too few")).data
    assert list(mean.error_y.array) == [0, 0]
