import numpy as np
import pandas as pd
import pytest
from scipy import stats

from forecaster.errors import DataError
from forecaster.forecasts import scores, significance
from forecaster.forecasts.significance import better, diebold_mariano

TARGETS = ("return", "volatility", "volume")
MODELS = ("attention", "har", "mean", "copy")
FACTORS = {(0, model, 1): 1.0 for model in MODELS}
MEANS = {(0, symbol, target, 1): 0.0 for symbol in "AB" for target in TARGETS}


def test_one_step_ahead_equals_a_hand_computation():
    d = np.array([1.0, -2.0, 3.0, 0.0])
    # Mean .5, squares about it .25 + 6.25 + 6.25 + .25 = 13, g_0 = 3.25; correction (4 + 1 - 2) / 4.
    expected = 0.5 / np.sqrt(3.25 / 4) * np.sqrt(3 / 4)
    statistic, p = diebold_mariano(d, 1)
    assert statistic == pytest.approx(expected)
    assert p == pytest.approx(2 * stats.t.sf(expected, 3))
    # With h = 1 and the correction this is the t test of a mean.
    assert (statistic, p) == pytest.approx(tuple(stats.ttest_1samp(d, 0.0)))


def test_two_steps_ahead_adds_the_first_autocovariance():
    d = np.array([2.0, 1.0, -1.0, -1.0, 1.0, 1.0])
    # Mean .5, about it 1.5, .5, -1.5, -1.5, .5, .5: squares 7.5; neighbours .75 - .75 + 2.25 - .75 + .25 = 1.75.
    variance = 7.5 / 6 + 2 * 1.75 / 6
    correction = (6 + 1 - 4 + 2 * 1 / 6) / 6
    statistic, p = diebold_mariano(d, 2)
    assert statistic == pytest.approx(0.5 / np.sqrt(variance / 6) * np.sqrt(correction))
    assert p == pytest.approx(2 * stats.t.sf(statistic, 5))


def test_a_variance_that_is_not_positive_gets_bartletts_weights():
    d = np.array([3.0, -1.0, 3.0, -1.0, 3.0, -1.0])
    # Mean 1, about it +-2: g_0 = 4, g_1 = -20/6, and 4 - 40/6 < 0; Bartlett halves g_1.
    statistic, _ = diebold_mariano(d, 2)
    variance = 4 - 20 / 6
    assert statistic == pytest.approx(1.0 / np.sqrt(variance / 6) * np.sqrt((6 + 1 - 4 + 2 / 6) / 6))


@pytest.mark.parametrize("d", [np.zeros(30), np.ones(1), np.ones(0), np.ones(3) * [1, 2, 3]])
def test_no_difference_or_too_few_dates_are_undefined(d):
    statistic, p = diebold_mariano(d, 3)
    assert np.isnan(statistic)
    assert np.isnan(p)
    assert np.isnan(better(d, 3))


def test_a_difference_that_never_varies_is_certain():
    assert diebold_mariano(np.full(30, -0.2), 1) == (-np.inf, 0.0)
    assert diebold_mariano(np.full(30, 0.2), 4) == (np.inf, 0.0)
    assert better(np.full(30, -0.2), 1) == 0.0
    assert better(np.full(30, 0.2), 1) == 1.0


def test_better_is_one_sided(rng):
    d = rng.normal(size=50) - 0.2
    statistic, p = diebold_mariano(d, 1)
    assert statistic < 0
    assert better(d, 1) == pytest.approx(p / 2)
    assert better(-d, 1) == pytest.approx(1 - p / 2)


@pytest.mark.parametrize("horizon", [1, 3])
def test_equal_models_are_told_apart_no_more_often_than_stated(horizon, rng):
    """500 moving averages of order h - 1, n = 200, under the null: rejections at 5 % have a binomial error of .0097, so
    .05 +- 3 errors is .021 to .079. A false alarm in 3 of 1,000 seeds if the size is exact."""
    rejected = 0
    for _ in range(500):
        noise = rng.normal(size=200 + horizon - 1)
        d = np.convolve(noise, np.ones(horizon), mode="valid")
        rejected += diebold_mariano(d, horizon)[1] < 0.05
    assert 0.021 < rejected / 500 < 0.079


@pytest.fixture
def frame(make_frame, rng):
    """attention has half of har's errors, copy equals har, mean says 0."""
    y, error = rng.normal(size=(200, 2)), rng.normal(size=(200, 2))
    forecasts = {"attention": y + 0.3 * error, "har": y + 0.6 * error, "copy": y + 0.6 * error, "mean": 0 * y}
    return pd.concat(
        [make_frame(y, m, model=model, target=target) for model, m in forecasts.items() for target in TARGETS]
    )


def row(table, baseline, loss="squared_error", target="volume"):
    chosen = table[(table["baseline"] == baseline) & (table["loss"] == loss) & (table["target"] == target)]
    assert len(chosen) == 1
    return chosen.iloc[0]


def test_every_baseline_is_tested_on_every_loss(frame):
    table = significance.tests(frame, "attention", FACTORS)
    assert tuple(table.columns) == significance.TEST_COLUMNS
    assert len(table) == 3 * (2 + 2 + 3)
    assert set(table.loc[table["loss"] == "qlike", "target"]) == {"volatility"}
    assert set(table["model"]) == {"attention"}


def test_losses_are_averaged_over_symbols_by_date(frame):
    rows = frame[(frame["target"] == "volume")]
    squared = (rows["actual"] - rows["mean"]) ** 2
    by_date = squared.groupby([rows["origin"], rows["model"]]).mean().unstack().sort_index()
    expected = diebold_mariano((by_date["attention"] - by_date["har"]).to_numpy(), 1)
    found = row(significance.tests(frame, "attention", FACTORS), "har")
    assert (found["statistic"], found["p"]) == pytest.approx(expected)
    assert found["verdict"] == "better"
    assert found["mcs_p"] == 1.0


def test_the_other_way_round_it_is_worse_and_outside_the_confidence_set(frame):
    table = significance.tests(frame, "har", FACTORS)
    assert row(table, "attention")["verdict"] == "worse"
    assert row(table, "attention")["mcs_p"] < 0.05
    # har beats the mean, but the set is about all of them.
    assert row(table, "mean")["verdict"] == "better"
    assert row(table, "mean")["mcs_p"] == row(table, "attention")["mcs_p"]


def test_identical_losses_are_undefined(frame):
    table = significance.tests(frame, "har", FACTORS)
    found = row(table, "copy")
    assert (found["statistic"], found["p"], found["verdict"]) == ("undefined", "undefined", "undefined")
    two = significance.tests(frame[frame["model"].isin(["har", "copy"])], "har", FACTORS)
    assert (two["mcs_p"] == "undefined").all()


def test_differences_that_are_only_rounding_are_identical(frame):
    nearly = frame.assign(mean=frame["mean"].where(frame["model"] != "copy", frame["mean"] + 1e-15))
    assert row(significance.tests(nearly, "har", FACTORS), "copy")["verdict"] == "undefined"


def test_a_model_that_counts_twice_does_not_change_the_confidence_set(frame):
    once = frame[frame["model"] != "copy"]
    for model in ("attention", "har"):
        with_copy, without = (significance.tests(rows, model, FACTORS) for rows in (frame, once))
        assert row(with_copy, "mean")["mcs_p"] == row(without, "mean")["mcs_p"]


def test_the_confidence_set_of_few_dates_is_too_few(frame):
    first = frame[frame["origin"] <= np.sort(frame["origin"].unique())[14]]
    table = significance.tests(first, "attention", FACTORS)
    assert (table["mcs_p"] == "too few").all()
    assert not (table["statistic"] == "undefined").any()


def test_losses_that_differ_by_a_constant_have_no_confidence_set():
    har = np.arange(50.0) / 64  # exact in binary, and so is the difference
    by_date = pd.DataFrame({"har": har, "ewma": har + 0.5})
    assert np.isnan(significance.confidence_set_p(by_date, "har"))


def test_equally_good_models_stay_in_the_confidence_set(rng):
    """60 sets of three equal models: each model's p is under .05 in at most about 5 % of sets; 9 or more of 60 would be
    a false alarm in 1 of 500 seeds."""
    outside = 0
    for _ in range(60):
        by_date = pd.DataFrame(rng.normal(size=(100, 3)) ** 2, columns=["har", "ewma", "mean"])
        outside += significance.confidence_set_p(by_date, "har") < 0.05
    assert outside < 9


def test_tests_do_not_depend_on_row_order(frame):
    table = significance.tests(frame, "attention", FACTORS)
    pd.testing.assert_frame_equal(significance.tests(frame.sample(frac=1, random_state=3), "attention", FACTORS), table)


def test_models_on_different_rows_and_a_model_without_rows_are_refused(frame):
    with pytest.raises(DataError, match="not on the same rows"):
        significance.tests(frame.reset_index(drop=True).drop(index=5), "attention", FACTORS)
    with pytest.raises(DataError, match="no forecasts of lstm"):
        significance.tests(frame, "lstm", FACTORS)


@pytest.mark.parametrize(
    ("statistic", "p", "word"),
    [
        (-2.0, 0.049, "better"),
        (2.0, 0.049, "worse"),
        (-2.0, 0.05, "no different"),
        (-np.inf, 0.0, "better"),
        (np.nan, np.nan, "undefined"),
    ],
)
def test_verdicts_are_at_five_percent_two_sided(statistic, p, word):
    assert significance.verdict(statistic, p) == word


def sentences(frame, model="attention"):
    return significance.headline(significance.tests(frame, model, FACTORS), scores.scores(frame, MEANS, FACTORS))


def test_the_headline_names_the_best_baseline_with_both_r2_and_p(frame):
    told = sentences(frame[frame["model"] != "copy"])
    assert [sentence.split(":")[0] for sentence in told] == list(TARGETS)
    table = scores.scores(frame, MEANS, FACTORS)
    r2 = table[(table["metric"] == "r2") & (table["symbol"] == "all") & (table["target"] == "volume")]
    ours, har = (r2[r2["model"] == model].iloc[0] for model in ("attention", "har"))
    assert told[2] == (
        f"volume: attention is better than the best baseline, har (r2 {ours['value']:.3f} "
        f"[{ours['low']:.3f} to {ours['high']:.3f}] against {har['value']:.3f}, p < 0.001)"
    )


def test_the_headline_says_worse_no_different_and_undefined(frame):
    assert "har is worse than the best baseline, attention (r2" in sentences(frame, "har")[0]
    no_attention = frame[frame["model"].isin(["har", "copy"])]
    assert "har cannot be told from the best baseline, copy (r2" in sentences(no_attention, "har")[0]
    assert sentences(no_attention, "har")[0].endswith("p undefined)")


def test_the_headline_counts_steps(frame, make_frame):
    first = frame[(frame["target"] == "volume") & frame["model"].isin(["attention", "har"])]
    swapped = first.assign(step=2, model=first["model"].map({"attention": "har", "har": "attention"}))
    both = pd.concat([first, swapped])
    means = MEANS | {(0, symbol, "volume", 2): 0.0 for symbol in "AB"}
    told = significance.headline(significance.tests(both, "attention", {}), scores.scores(both, means, {}))
    assert len(told) == 1
    start = "volume: of 2 steps better at 1, worse at 1; one step ahead attention is better than the best baseline, har"
    assert told[0].startswith(start)


def test_the_headline_without_an_interval_gives_the_reason(frame):
    first = frame[frame["origin"] <= np.sort(frame["origin"].unique())[14]]
    assert "[too few]" in sentences(first)[0]


def test_no_baselines_make_no_headline(frame):
    assert sentences(frame[frame["model"] == "attention"]) == []
