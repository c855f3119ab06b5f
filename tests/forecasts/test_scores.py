import time

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from forecaster.errors import DataError
from forecaster.forecasts import bootstrap, losses, scores

MEANS = {(fold, symbol, t, 1): 0.5 for fold in (0, 1) for symbol in "ABCDE" for t in ("return", "volatility", "volume")}
FACTORS = {(fold, model, 1): 1.2 for fold in (0, 1) for model in ("attention", "har")}


def value(table: pd.DataFrame, metric: str, column: str = "value", symbol: str = "all", model: str = "attention"):
    cells = table[(table["metric"] == metric) & (table["symbol"] == symbol) & (table["model"] == model)]
    assert len(cells) == 1
    return cells[column].iloc[0]


def test_scores_have_the_values_computed_by_hand(make_frame):
    actual = np.array([[1.0, 10.0], [2.0, 14.0], [6.0, 12.0]])  # means 3 and 12
    forecast = np.array([[2.0, 11.0], [2.0, 12.0], [4.0, 13.0]])
    means = {(0, "A", "volatility", 1): 1.0, (0, "B", "volatility", 1): 13.0}
    table = scores.scores(make_frame(actual, forecast), means, {(0, "attention", 1): 1.0})
    assert tuple(table.columns) == scores.SCORE_COLUMNS
    # Squared errors 1, 0, 4 and 1, 4, 1. About their own means: 4 + 1 + 9 and 4 + 4 + 0.
    assert value(table, "r2") == pytest.approx(1 - 11 / 22)
    assert value(table, "r2", symbol="A") == pytest.approx(1 - 5 / 14)
    assert value(table, "r2", symbol="B") == pytest.approx(1 - 6 / 8)
    # About the training means 1 and 13: 0 + 1 + 25 and 9 + 1 + 1.
    assert value(table, "r2_historical") == pytest.approx(1 - 11 / 37)
    assert value(table, "mse") == pytest.approx(11 / 6)
    assert value(table, "mae") == pytest.approx((1 + 0 + 2 + 1 + 2 + 1) / 6)
    # Half-widths .7, 1.3 and 1.6 about the mean; distances 1, 0, 2, 1, 2, 1.
    assert value(table, "coverage_50") == pytest.approx(1 / 6)
    assert value(table, "coverage_80") == pytest.approx(4 / 6)
    assert value(table, "coverage_90") == pytest.approx(4 / 6)
    ratio = np.exp(2.0 * (actual - forecast))
    assert value(table, "qlike") == pytest.approx((ratio - np.log(ratio) - 1).mean())
    # Mincer-Zarnowitz of A: forecasts 2, 2, 4, actual 1, 2, 6: products 6, squares 8/3, means 8/3 and 3.
    assert value(table, "mz_slope", symbol="A") == pytest.approx(9 / 4)
    assert value(table, "mz_intercept", symbol="A") == pytest.approx(3 - 9 / 4 * 8 / 3)
    # Spearman of A: ranks 1.5, 1.5, 3 and 1, 2, 3.
    assert value(table, "ic", symbol="A") == pytest.approx(1.5 / np.sqrt(1.5 * 2))
    assert (table["low"] == "too few").all()
    assert (table["high"] == "too few").all()
    assert value(table, "mse", "n") == 6
    assert value(table, "mse", "n", symbol="A") == 3


def test_hit_rate_counts_signs_with_0_as_half_and_leaves_out_bars_that_stood_still(make_frame):
    actual = np.array([[0.1], [-0.2], [0.3], [0.0], [-0.1], [0.2]])
    forecast = np.array([[1.0], [1.0], [0.0], [1.0], [-1.0], [1.0]])
    table = scores.scores(make_frame(actual, forecast, target="return"), MEANS, {})
    assert value(table, "hit_rate") == pytest.approx((1 + 0 + 0.5 + 1 + 1) / 5)
    assert value(table, "hit_rate", "n") == 5
    assert value(table, "mse", "n") == 6


def naive(frame: pd.DataFrame, dates: np.ndarray, metric: str) -> float:
    """The metric of the rows of these dates, a date as often as it is named, row by row."""
    places = frame.groupby("origin").indices
    rows = frame.iloc[np.concatenate([places[date] for date in pd.DatetimeIndex(dates)])]
    y, m = rows["actual"].to_numpy(), rows["mean"].to_numpy()
    sse = sum((a - b) ** 2 for a, b in zip(y, m, strict=True))
    match metric:
        case "r2":
            groups = rows.groupby("symbol")["actual"]
            return 1 - sse / sum(((own - own.mean()) ** 2).sum() for _, own in groups)
        case "r2_historical":
            return 1 - sse / sum((a - 0.5) ** 2 for a in y)
        case "mse":
            return sse / len(y)
        case "mae":
            return sum(abs(a - b) for a, b in zip(y, m, strict=True)) / len(y)
        case "pinball":
            return losses.pinball(rows).mean()
        case "crps":
            return losses.crps(rows).mean()
        case "qlike":
            ratios = [np.exp(2 * (a - b)) / 1.2 for a, b in zip(y, m, strict=True)]
            return sum(r - np.log(r) - 1 for r in ratios) / len(ratios)
        case "hit_rate":
            hits = [0.5 if b == 0 else np.sign(a) == np.sign(b) for a, b in zip(y, m, strict=True) if a != 0]
            return np.mean(hits)
        case "mz_slope":
            return np.polyfit(m, y, 1)[0]
        case "mz_intercept":
            return np.polyfit(m, y, 1)[1]
        case "ic":
            own = frame.groupby("symbol")
            size = own["actual"].transform("size").to_numpy()[:, None]
            ranks = ((own[["actual", "mean"]].rank() - (size + 1) / 2) / size).loc[rows.index]
            return np.corrcoef(ranks["actual"], ranks["mean"])[0, 1]
        case _:
            low, high = scores.COVERAGE[metric]
            return ((rows[low] <= rows["actual"]) & (rows["actual"] <= rows[high])).mean()


@pytest.mark.parametrize("target", ["volatility", "return"])
def test_scores_and_intervals_equal_a_naive_loop_over_resampled_dates(make_frame, rng, monkeypatch, target):
    monkeypatch.setattr(bootstrap, "REPLICATIONS", 9)
    actual = rng.normal(size=(60, 3)).round(1)
    actual[:20, 1], actual[50:, 2] = np.nan, np.nan  # symbols begin and end on different dates
    frame = make_frame(actual, actual + rng.normal(size=(60, 3)).round(1), 0.5, target=target)
    table = scores.scores(frame, MEANS, FACTORS)
    by_date = ((frame["actual"] - frame["mean"]) ** 2).groupby(frame["origin"]).mean()
    counts = bootstrap.multiplicities(60, bootstrap.block_length(by_date.to_numpy()))
    dates = by_date.index.to_numpy()
    for symbol in ("all", "A"):
        chosen = frame if symbol == "all" else frame[frame["symbol"] == symbol].reset_index(drop=True)
        for metric in table["metric"].unique():
            resampled = [naive(chosen, np.repeat(dates, count.astype(int)), metric) for count in counts]
            assert value(table, metric, symbol=symbol) == pytest.approx(naive(chosen, dates, metric), rel=1e-9)
            low, high = np.percentile(resampled, (2.5, 97.5))
            assert value(table, metric, "low", symbol) == pytest.approx(low, rel=1e-9, abs=1e-12)
            assert value(table, metric, "high", symbol) == pytest.approx(high, rel=1e-9, abs=1e-12)


def test_ic_is_spearmans(make_frame, rng):
    actual, forecast = rng.normal(size=(2, 50, 1)).round(1)
    table = scores.scores(make_frame(actual, forecast), MEANS, FACTORS)
    assert value(table, "ic") == pytest.approx(stats.spearmanr(actual[:, 0], forecast[:, 0]).statistic)


def test_each_target_has_its_metrics(make_frame, rng):
    y = rng.normal(size=(30, 2))
    frame = pd.concat([make_frame(y, y + 1, target=target) for target in ("return", "volatility", "volume")])
    metrics = scores.scores(frame, MEANS, FACTORS).groupby("target")["metric"].unique().apply(set)
    assert metrics["return"] - metrics["volume"] == {"hit_rate"}
    assert metrics["volatility"] - metrics["volume"] == {"qlike"}
    assert {"r2", "r2_historical", "mse", "mae", "pinball", "crps", "coverage_50", "coverage_80"} < metrics["volume"]
    assert {"coverage_90", "ic", "mz_slope", "mz_intercept"} < metrics["volume"]


def test_an_outcome_that_never_varies_has_no_r2(make_frame, rng):
    table = scores.scores(make_frame(np.full((40, 2), 0.1), rng.normal(size=(40, 2))), MEANS, FACTORS)
    for metric in ("r2", "ic"):
        assert value(table, metric) == "undefined"
        assert value(table, metric, "low") == value(table, metric, "high") == ""
    assert isinstance(value(table, "r2_historical"), float)
    assert value(table, "mz_slope") == pytest.approx(0.0)


@pytest.mark.parametrize("dates", [39, 42, 60])
def test_outcomes_that_never_vary_within_a_symbol_have_no_r2_and_no_ic(make_frame, rng, dates):
    actual = np.tile([0.1, 1 / 3, -4.837], (dates, 1))
    table = scores.scores(make_frame(actual, rng.normal(size=actual.shape)), MEANS, FACTORS)
    assert value(table, "r2") == value(table, "r2", symbol="A") == value(table, "r2", symbol="B") == "undefined"
    assert value(table, "ic") == "undefined"


def test_levels_of_symbols_are_no_skill(make_frame, rng):
    actual = rng.normal(size=(40, 2)) + np.array([0.0, 5.0])
    table = scores.scores(make_frame(actual, np.tile([0.0, 5.0], (40, 1))), MEANS, FACTORS)
    assert value(table, "ic") == "undefined"


def test_a_forecast_that_never_varies_has_no_correlation_and_no_slope(make_frame, rng):
    table = scores.scores(make_frame(rng.normal(size=(40, 2)), np.full((40, 2), 0.1)), MEANS, FACTORS)
    for metric in ("ic", "mz_slope", "mz_intercept"):
        assert value(table, metric) == "undefined"
    assert value(table, "r2") < 0


def test_outcomes_equal_to_the_training_mean_have_no_r2_historical(make_frame, rng):
    table = scores.scores(make_frame(np.full((40, 1), 0.5), rng.normal(size=(40, 1))), MEANS, FACTORS)
    assert value(table, "r2_historical") == "undefined"


def test_two_rows_are_too_few_for_a_correlation(make_frame):
    table = scores.scores(make_frame(np.array([[1.0], [2.0]]), np.array([[1.0], [3.0]])), MEANS, FACTORS)
    for metric in ("r2", "ic", "mz_slope"):
        assert value(table, metric) == "undefined"
    assert value(table, "mse") == pytest.approx(0.5)


def test_bars_that_never_moved_have_no_hit_rate(make_frame, rng):
    table = scores.scores(make_frame(np.zeros((30, 1)), rng.normal(size=(30, 1)), target="return"), MEANS, FACTORS)
    assert value(table, "hit_rate") == "undefined"
    assert value(table, "hit_rate", "n") == 0


def test_under_ten_blocks_there_is_no_interval(make_frame, rng):
    drift = np.linspace(0, 5, 60)[:, None] ** 2
    table = scores.scores(make_frame(drift + rng.normal(size=(60, 1)), np.zeros((60, 1))), MEANS, FACTORS)
    assert value(table, "mse", "low") == value(table, "mse", "high") == "too few"


def test_a_symbol_with_few_dates_has_no_interval_though_all_together_have(make_frame, rng):
    actual = rng.normal(size=(300, 2))
    actual[8:, 1] = np.nan
    table = scores.scores(make_frame(actual, rng.normal(size=(300, 2))), MEANS, FACTORS)
    assert value(table, "mse", "low", symbol="B") == "too few"
    assert value(table, "mse", "low") < value(table, "mse") < value(table, "mse", "high")


def test_rows_whose_future_is_unknown_are_not_scored(make_frame, rng):
    frame = make_frame(rng.normal(size=(30, 2)), rng.normal(size=(30, 2)))
    unknown = frame.assign(actual=frame["actual"].where(frame["origin"] < frame["origin"].max()))
    table = scores.scores(unknown, MEANS, FACTORS)
    assert value(table, "mse", "n") == 58
    pd.testing.assert_frame_equal(table, scores.scores(unknown[unknown["actual"].notna()], MEANS, FACTORS))


def test_scores_do_not_depend_on_row_order(make_frame, rng):
    y = rng.normal(size=(50, 3))
    frame = pd.concat([make_frame(y, rng.normal(size=(50, 3)), model=model) for model in ("attention", "har")])
    table = scores.scores(frame, MEANS, FACTORS)
    for seed in range(3):
        shuffled = frame.sample(frac=1, random_state=seed)
        pd.testing.assert_frame_equal(scores.scores(shuffled, MEANS, FACTORS), table)


def test_scores_of_a_model_do_not_depend_on_the_models_beside_it(make_frame, rng):
    y = rng.normal(size=(50, 2))
    one, other = (make_frame(y, rng.normal(size=(50, 2)), model=model) for model in ("attention", "har"))
    alone = scores.scores(one, MEANS, FACTORS)
    beside = scores.scores(pd.concat([other, one]), MEANS, FACTORS)
    pd.testing.assert_frame_equal(beside[beside["model"] == "attention"].reset_index(drop=True), alone)


def test_folds_are_scored_each_and_joined(make_frame, rng):
    frame = make_frame(rng.normal(size=(60, 2)), rng.normal(size=(60, 2)))
    halves = frame.assign(fold=(frame["origin"] > frame["origin"].median()).astype(np.int64))
    table = scores.scores(halves, MEANS, FACTORS)
    assert sorted(table["fold"].unique()) == ["0", "1", "all"]
    single = scores.scores(frame, MEANS, FACTORS)
    assert set(single["fold"]) == {"0"}
    joined = table[table["fold"] == "all"].reset_index(drop=True).assign(fold="0")
    pd.testing.assert_frame_equal(joined, single)


def test_models_on_different_rows_are_refused(make_frame, rng):
    y = rng.normal(size=(20, 2))
    one, other = make_frame(y, y), make_frame(y, y, model="har")
    with pytest.raises(DataError, match=r"volatility by attention and har: not on the same rows \(40 and 39\)"):
        scores.scores(pd.concat([one, other.iloc[1:]]), MEANS, FACTORS)


def test_a_missing_training_mean_is_named(make_frame):
    with pytest.raises(DataError, match="no training mean for A in fold 0"):
        scores.scores(make_frame(np.ones((5, 1)), np.ones((5, 1))), {}, FACTORS)


def test_smearing_is_the_mean_ratio_of_variances_over_validation_rows(make_frame):
    actual = np.array([[0.0, 0.5], [0.1, -0.2]])
    frame = pd.concat(
        [make_frame(actual, np.zeros((2, 2)), target=target, model="har") for target in ("volatility", "volume")]
    )
    factors = scores.smearing(frame)
    assert set(factors) == {(0, "har", 1)}
    assert factors[0, "har", 1] == pytest.approx(np.exp(2 * actual).mean())
    assert scores.smearing(frame[frame["target"] == "volume"]) == {}


def test_smearing_makes_models_that_differ_by_a_constant_equal_in_qlike(make_frame, rng):
    y, m = rng.normal(size=(2, 80, 2))
    frame = pd.concat([make_frame(y, m, model="attention"), make_frame(y, m + 0.7, model="har")])
    table = scores.scores(frame, MEANS, scores.smearing(frame))
    assert value(table, "qlike") == pytest.approx(value(table, "qlike", model="har"))


def test_pit_counts_outcomes_between_quantiles(make_frame):
    actual = np.array([[-2.0], [-1.5], [-1.0], [-0.1], [0.1], [1.0], [1.5], [2.0], [2.5], [0.7]])
    table = scores.pit(make_frame(actual, np.zeros((10, 1))))
    assert tuple(table.columns) == ("model", "target", "step", "bin", "count")
    assert table["bin"].to_list() == list(range(8))
    # .7 lies on q75, which is not below it.
    assert table["count"].to_list() == [1, 1, 1, 1, 2, 1, 1, 2]


def test_a_table_of_seven_models_takes_seconds(make_frame, rng):
    """2 symbols x 1,000 dates x 3 targets x 7 models within 6 s on one core; about .6 s of process time here."""
    y = rng.normal(size=(1000, 2))
    frames = [
        make_frame(y, y + rng.normal(size=(1000, 2)), target=target, model=f"model {number}")
        for target in ("return", "volatility", "volume")
        for number in range(7)
    ]
    frame = pd.concat(frames)
    start = time.process_time()
    scores.scores(frame, MEANS, scores.smearing(frame))
    assert time.process_time() - start < 6.0
