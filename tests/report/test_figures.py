from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from forecaster.report.figures import (
    DRAWN_SYMBOLS,
    coverage,
    forecast_against_actual,
    r2_against_baselines,
    training_history,
)

Fabricate = Callable[..., Any]
COLUMNS = ["model", "target", "step", "symbol", "fold", "metric", "value", "low", "high", "n"]


def _scores(*rows: tuple[str, str, object, object, object]) -> pd.DataFrame:
    full = [(m, "volatility", 1, "all", "0", metric, *cells, 9) for m, metric, *cells in rows]
    return pd.DataFrame(full, columns=COLUMNS).astype(object)


def _points(figure: Any) -> Any:
    (points,) = _marks(figure)
    return points


def _marks(figure: Any) -> list[Any]:
    return [trace for trace in figure.data if trace.mode == "markers"]


def _asides(figure: Any) -> list[str]:
    return [text for trace in figure.data if trace.mode == "text" for text in trace.text]


def test_r2_points_and_intervals_are_those_of_the_table() -> None:
    figure = r2_against_baselines(_scores(("har", "r2", 0.4, 0.3, 0.6), ("attention", "r2", 0.5, 0.4, 0.55)))
    points = _points(figure)
    assert list(points.x) == [0.5, 0.4]
    assert list(points.y) == [1, 0]
    assert list(figure.layout.yaxis.ticktext) == ["attention", "har"]
    np.testing.assert_allclose(points.error_x.array, [0.05, 0.2])
    np.testing.assert_allclose(points.error_x.arrayminus, [0.1, 0.1])


def test_a_model_far_below_is_named_at_the_edge_and_none_is_lost() -> None:
    figure = r2_against_baselines(
        _scores(
            ("attention", "r2", 0.5, 0.45, 0.55),
            ("persistence", "r2", -0.31, -0.4, -0.2),
            ("ewma", "r2", -0.29, -0.4, -0.2),
        )
    )
    # The floor is min(0, 0.45) - 3 * 0.1 = -0.3.
    assert list(_points(figure).x) == [0.5, -0.29]
    assert _asides(figure) == ["◂ −0.310"]


def test_a_word_stands_in_the_row_of_its_model() -> None:
    figure = r2_against_baselines(
        _scores(("attention", "r2", "0.5", "too few", "too few"), ("har", "r2", "undefined", "", ""))
    )
    assert _asides(figure) == ["undefined"]
    assert list(_points(figure).error_x.array) == [0]


def test_without_a_number_there_is_no_figure() -> None:
    nothing = _scores(("attention", "r2", "undefined", "", ""))
    assert r2_against_baselines(nothing) is None
    assert coverage(nothing) is None
    assert r2_against_baselines(nothing.iloc[:0]) is None


def test_coverage_far_from_nominal_is_drawn_not_pushed_aside() -> None:
    figure = coverage(
        _scores(
            ("attention", "coverage_90", 0.9, 0.89, 0.91),
            ("attention", "coverage_50", 0.1, 0.09, 0.11),
            ("har", "coverage_80", 0.02, 0.01, 0.03),
        )
    )
    assert [list(marks.x) for marks in _marks(figure)] == [[0.1], [0.02], [0.9]]
    assert [marks.marker.symbol for marks in _marks(figure)] == ["circle", "square", "diamond"]
    assert [round(marks.y[0]) for marks in _marks(figure)] == [1, 0, 1]
    assert _asides(figure) == []


def test_every_step_has_its_view_with_its_own_range(fabricate: Fabricate) -> None:
    figure = r2_against_baselines(fabricate(horizon=5).tables["scores"])
    (menu,) = figure.layout.updatemenus
    assert [button.label for button in menu.buttons] == [f"step {step}" for step in range(1, 6)]
    assert tuple(menu.buttons[0].args[1]["xaxis2.range"]) == tuple(figure.layout.xaxis2.range)
    assert len({tuple(button.args[1]["xaxis2.range"]) for button in menu.buttons}) == 5


def test_forecast_band_and_actual_are_those_of_the_first_step_of_the_trained_network(fabricate: Fabricate) -> None:
    forecasts = fabricate(symbols=("SP500",), targets=("volume",), horizon=5, dates=12).tables["forecasts"]
    forecasts = forecasts.sample(frac=1, random_state=0)
    figure = forecast_against_actual(forecasts)
    chosen = forecasts.query("model == 'attention' and step == 1").sort_values("target_time")
    low, high, actual, mean = figure.data
    assert list(mean.x) == list(chosen["target_time"].dt.strftime("%Y-%m-%d"))
    for trace, column in ((low, "q10"), (high, "q90"), (actual, "actual"), (mean, "mean")):
        np.testing.assert_allclose(trace.y, chosen[column], rtol=1e-6)


def test_bars_within_a_day_keep_their_time(fabricate: Fabricate) -> None:
    forecasts = fabricate(symbols=("X",), targets=("return",), dates=3).tables["forecasts"]
    later = forecasts.assign(target_time=forecasts["target_time"].dt.tz_localize("UTC") + pd.Timedelta(minutes=95))
    assert forecast_against_actual(later).data[0].x[0].endswith(" 01:35")


def test_a_panel_of_many_symbols_draws_the_first_few(fabricate: Fabricate) -> None:
    symbols = [f"S{number:02}" for number in range(DRAWN_SYMBOLS + 3)]
    figure = forecast_against_actual(fabricate(symbols=symbols, targets=("return",), dates=3).tables["forecasts"])
    (menu,) = figure.layout.updatemenus
    assert [button.label for button in menu.buttons] == [f"return · {symbol}" for symbol in symbols[:DRAWN_SYMBOLS]]


def test_forecasts_of_baselines_alone_make_no_figure(fabricate: Fabricate) -> None:
    forecasts = fabricate(dates=3).tables["forecasts"]
    assert forecast_against_actual(forecasts[forecasts["model"] == "har"]) is None


@pytest.mark.parametrize("losses", [[0.9, 0.5, 0.7], ["0.9", "0.5", "0.7"]])
def test_the_epoch_of_least_validation_loss_is_ringed(losses: list[object]) -> None:
    history = pd.DataFrame({"epoch": [0, 1, 2], "train_loss": [1.0, 0.8, np.nan], "validation_loss": losses})
    training, validation, ring = training_history(history).data
    assert list(training.x) == [0, 1]
    assert list(validation.y) == [0.9, 0.5, 0.7]
    assert (ring.x[0], ring.y[0]) == (1, 0.5)


def test_a_history_without_an_epoch_makes_no_figure() -> None:
    assert training_history(pd.DataFrame({"epoch": [], "train_loss": [], "validation_loss": []})) is None
