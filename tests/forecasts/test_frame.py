import numpy as np
import pandas as pd
import pytest

from forecaster.errors import DataError
from forecaster.forecasts import frame
from forecaster.forecasts.frame import FRAME_COLUMNS, QUANTILE_COLUMNS, Forecast

TARGETS = ("volatility", "return")


@pytest.fixture
def panel(make_panel):
    return make_panel([np.arange(14.0).reshape(7, 2), 100 + np.arange(10.0).reshape(5, 2)], TARGETS, horizon=2)


@pytest.fixture
def forecast():
    mean_RHC = np.arange(12.0).reshape(3, 2, 2)
    return Forecast(quantiles=mean_RHC[..., None] + np.arange(7) - 3, mean=mean_RHC)


ORIGINS = np.array([9, 2, 6])  # B's third bar, A's third and A's last


def test_columns_have_the_documented_names_and_types(panel, forecast):
    table = frame.tidy("har", forecast, panel, ORIGINS, fold=3)
    assert tuple(table.columns) == FRAME_COLUMNS
    assert FRAME_COLUMNS[7:14] == ("q05", "q10", "q25", "q50", "q75", "q90", "q95")
    assert set(table["model"]) == {"har"}
    assert set(table["fold"]) == {3}
    assert table["origin"].dtype == table["target_time"].dtype == np.dtype("datetime64[us]")
    assert table["fold"].dtype == table["step"].dtype == np.int64
    assert (table[list(FRAME_COLUMNS[7:])].dtypes == np.float64).all()


def test_every_number_stands_beside_its_own_row(panel, forecast):
    table = frame.tidy("har", forecast, panel, ORIGINS)
    assert len(table) == 3 * 2 * 2
    row = table[(table["symbol"] == "A") & (table["target"] == "return") & (table["step"] == 2)].iloc[0]
    # Origin 2 is the second forecast; two steps after A's third bar is its fifth, whose return is 9.
    assert row["mean"] == forecast.mean[1, 1, 1]
    assert row["q95"] == forecast.quantiles[1, 1, 1, 6]
    assert row["actual"] == 9.0
    assert row["origin"] == panel.times[2]
    assert row["target_time"] == panel.times[4]


def test_rows_are_sorted_by_target_step_symbol_and_origin(panel, forecast):
    keys = frame.tidy("har", forecast, panel, ORIGINS)[["target", "step", "symbol", "origin"]]
    assert keys.equals(keys.sort_values(list(keys.columns), ignore_index=True))


def test_what_is_not_known_yet_is_empty_and_kept(panel, forecast):
    table = frame.tidy("har", forecast, panel, ORIGINS)
    last = table[(table["symbol"] == "A") & (table["origin"] == panel.times[6])]
    assert len(last) == 4
    assert last["actual"].isna().all()
    assert last["target_time"].isna().all()


def test_a_target_without_any_forecast_is_left_out_for_that_model(panel, forecast):
    forecast.mean[:, :, 0], forecast.quantiles[:, :, 0] = np.nan, np.nan
    assert set(frame.tidy("zero", forecast, panel, ORIGINS)["target"]) == {"return"}


def test_a_single_forecast_that_is_not_finite_is_an_error(panel, forecast):
    forecast.quantiles[1, 0, 0, 2] = np.inf
    with pytest.raises(DataError, match="model har: its volatility forecasts"):
        frame.tidy("har", forecast, panel, ORIGINS)


def test_a_model_that_forecasts_nothing_is_an_error(panel, forecast):
    forecast.mean[:], forecast.quantiles[:] = np.nan, np.nan
    with pytest.raises(DataError, match="forecasts none of volatility, return"):
        frame.tidy("zero", forecast, panel, ORIGINS)


def test_parquet_gives_back_the_same_values_and_types(panel, forecast, tmp_path):
    table = frame.tidy("har", forecast, panel, ORIGINS).assign(symbol=pd.Series(["NA"] * 12, dtype="str"))
    frame.write(table, tmp_path / "forecasts.parquet")
    pd.testing.assert_frame_equal(frame.read(tmp_path / "forecasts.parquet"), table)
    assert [path.name for path in tmp_path.iterdir()] == ["forecasts.parquet"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(panel, forecast, tmp_path, monkeypatch):
    path = tmp_path / "forecasts.parquet"
    frame.write(frame.tidy("har", forecast, panel, ORIGINS), path)
    before = path.read_bytes()

    def no_space(partial, target):
        raise OSError(f"no space left: {partial} to {target}")

    monkeypatch.setattr(type(path), "replace", no_space)
    with pytest.raises(OSError, match="no space left"):
        frame.write(frame.tidy("ewma", forecast, panel, ORIGINS), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [None, b"", b"no parquet", "other columns"])
def test_a_file_that_is_no_forecasts_is_one_line(tmp_path, content):
    path = tmp_path / "forecasts.parquet"
    if content == "other columns":
        pd.DataFrame({"model": ["har"]}).to_parquet(path)
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        frame.read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_average_is_that_of_means_and_of_each_quantile(make_frame):
    actual = np.array([[1.0, 2.0], [3.0, 4.0]])
    runs = [make_frame(actual, actual + shift, spread) for shift, spread in ((0.0, 1.0), (1.0, 2.0), (5.0, 6.0))]
    average = frame.average(runs, "ensemble")
    expected = make_frame(actual, actual + 2.0, 3.0, model="ensemble")
    pd.testing.assert_frame_equal(average, expected, check_exact=False)
    assert (average[list(QUANTILE_COLUMNS)].diff(axis=1).iloc[:, 1:] > 0).all(axis=None)


def test_the_average_does_not_depend_on_row_order(make_frame, rng):
    actual = rng.normal(size=(5, 2))
    first, second = make_frame(actual, actual + 1), make_frame(actual, actual + 2)
    shuffled = second.sample(frac=1, random_state=1)
    pd.testing.assert_frame_equal(frame.average([first, shuffled], "e"), frame.average([first, second], "e"))


def test_runs_on_different_rows_are_not_averaged(make_frame):
    actual = np.array([[1.0, 2.0], [3.0, 4.0]])
    first = make_frame(actual, actual)
    others = [
        first.iloc[1:],
        first.assign(origin=first["origin"] + pd.Timedelta(days=1)),
        first.assign(target="return"),
    ]
    for other in (*others, first.assign(actual=0.0), pd.concat([first, first])):
        with pytest.raises(DataError):
            frame.average([first, other], "ensemble")
    with pytest.raises(DataError, match="at least one run"):
        frame.average([], "ensemble")


def test_forecasts_for_the_unknown_future_are_averaged_too(make_frame):
    first = make_frame(np.ones((2, 1)), np.ones((2, 1))).assign(actual=np.nan)
    assert frame.average([first, first.assign(mean=3.0)], "e")["mean"].to_list() == [2.0, 2.0]


def test_same_rows_refuses_an_origin_in_two_folds(make_frame):
    one = make_frame(np.ones((3, 1)), np.ones((3, 1)))
    with pytest.raises(DataError, match="an origin occurs twice"):
        frame.same_rows(pd.concat([one, one.assign(fold=1)]))
