import itertools

import plotly.graph_objects as go
import pytest

from forecaster.report.canvas import EVERY_VIEW, error_bars, escape, figure, panels


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 3), (8, 8)])
def test_panels_tile_the_plot_in_reading_order_without_overlap(rows: int, columns: int) -> None:
    grid = panels(rows, columns, gap_x=0.02, gap_y=0.03)
    assert [panel.number for panel in grid] == list(range(1, rows * columns + 1))
    assert grid[0].left == 0
    assert grid[0].top == 1
    assert grid[-1].right == pytest.approx(1)
    assert grid[-1].bottom == pytest.approx(0, abs=1e-12)
    for left, right in itertools.pairwise(grid):
        if left.top == right.top:
            assert right.left - left.right == pytest.approx(0.02)
        else:
            assert left.bottom - right.top == pytest.approx(0.03)


def test_an_interval_end_that_is_no_number_draws_no_bar() -> None:
    bars = error_bars([1.0, 2.0], [0.75, None], [1.5, None], "black")
    assert bars["array"] == [0.5, 0]
    assert bars["arrayminus"] == [0.25, 0]


def test_text_from_data_is_no_markup_for_plotly() -> None:
    assert escape("<b>M&M.NS</b>") == "&lt;b&gt;M&amp;M.NS&lt;/b&gt;"


def test_with_several_views_the_first_shows_and_the_dropdown_keeps_what_belongs_to_every_view() -> None:
    drawn = [(EVERY_VIEW, go.Scatter()), ("one", go.Scatter()), ("<two>", go.Scatter())]
    made = figure(drawn, 100, {}, {"<two>": {"xaxis.range": [0, 1]}})
    assert [trace.visible for trace in made.data] == [True, True, False]
    (menu,) = made.layout.updatemenus
    assert [button.label for button in menu.buttons] == ["one", "&lt;two&gt;"]
    assert menu.buttons[1].args[0] == {"visible": [True, False, True]}
    assert menu.buttons[1].args[1] == {"xaxis.range": [0, 1]}


def test_with_one_view_there_is_no_dropdown() -> None:
    made = figure([("only", go.Scatter())], 100, {})
    assert not made.layout.updatemenus
    assert made.data[0].visible is True
