"""Groups of runs against a reference, seeds folded."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from forecaster.errors import DataError
from forecaster.forecasts.compare import Scored, compare, same_parameters
from forecaster.forecasts.frame import QUANTILE_COLUMNS
from forecaster.forecasts.significance import diebold_mariano

DAYS = 60


def run(group: str, seed: int, error: float, data: int = 0, parameters: int = 1000) -> Scored:
    """Forecasts of two symbols that miss by noise of that size; `data` draws what happened."""
    rng, market = np.random.default_rng((seed, len(group))), np.random.default_rng(data)
    origins = pd.bdate_range("2020-01-01", periods=DAYS).as_unit("us")
    parts = []
    for symbol in ("A", "B"):
        actual = market.normal(0, 1, DAYS)
        mean = actual + rng.normal(0, error, DAYS)
        part = pd.DataFrame(
            {"symbol": symbol, "origin": origins, "target_time": origins, "actual": actual, "mean": mean}
        )
        parts.append(part.assign(target="return", step=1, **dict.fromkeys(QUANTILE_COLUMNS, mean)))
    return Scored(group, group, seed, parameters, 0.5 + seed, pd.concat(parts, ignore_index=True))


def test_means_spread_and_tests_are_those_of_the_hand() -> None:
    runs = [run("lstm", seed, 0.6) for seed in range(3)] + [run("attention", seed, 0.4) for seed in range(3)]
    table = compare(runs, "attention").set_index("group")
    assert table.index.tolist() == ["lstm", "attention"]
    r2, mse, by_date = {}, {}, {}
    for one in runs:
        rows = one.forecasts
        squared = (rows["actual"] - rows["mean"]) ** 2
        centred = rows["actual"] - rows.groupby("symbol")["actual"].transform("mean")
        r2.setdefault(one.group, []).append(1 - squared.sum() / (centred**2).sum())
        mse.setdefault(one.group, []).append(squared.mean())
        by_date.setdefault(one.group, []).append(squared.groupby(rows["origin"]).mean().to_numpy())
    for group in ("lstm", "attention"):
        assert table.loc[group, "r2"] == pytest.approx(np.mean(r2[group]))
        assert table.loc[group, "r2_sd"] == pytest.approx(np.std(r2[group], ddof=1))
        assert table.loc[group, "seeds"] == 3
        assert table.loc[group, ["validation_loss", "validation_loss_sd"]].tolist() == [1.5, 1.0]
    ratio = np.array(mse["lstm"]) / np.array(mse["attention"])
    assert table.loc["lstm", "loss_ratio"] == pytest.approx(ratio.mean())
    assert table.loc["lstm", "seeds_p"] == pytest.approx(stats.ttest_1samp(np.log(ratio), 0).pvalue)
    d = np.mean(by_date["lstm"], axis=0) - np.mean(by_date["attention"], axis=0)
    statistic, p = diebold_mariano(d, 1)
    assert (table.loc["lstm", "statistic"], table.loc["lstm", "p"]) == (pytest.approx(statistic), pytest.approx(p))
    assert (table.loc["lstm", "against"], table.loc["lstm", "verdict"]) == ("attention", "worse")
    assert table.loc["attention", ["against", "verdict"]].tolist() == ["", ""]


def test_seeds_with_bars_of_their_own_are_compared_seed_by_seed() -> None:
    runs = [run(group, seed, error, seed) for group, error in (("attention", 0.4), ("gru", 0.6)) for seed in range(4)]
    row = compare(runs, "attention").set_index("group").loc["gru"]
    assert np.isnan(row["p"])
    assert row["seeds_p"] < 0.05
    assert row["verdict"] == "worse"


def test_equal_runs_are_undefined_and_not_significant() -> None:
    runs = [run("a", seed, 0.4) for seed in range(3)]
    twins = [Scored("b", "b", one.seed, 1000, 0.0, one.forecasts) for one in runs]
    row = compare([*runs, *twins], "a").set_index("group").loc["b"]
    assert (row["loss_ratio"], row["verdict"]) == (1.0, "undefined")


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(DataError, match="group 'a' has seed 1 twice"):
        compare([run("a", 1, 0.4), run("a", 1, 0.4)], "a")
    with pytest.raises(DataError, match="no run is of group 'c': choose from a, b"):
        compare([run("a", 1, 0.4), run("b", 1, 0.4)], "c")
    with pytest.raises(DataError, match="no seed was run by both groups on the same days"):
        compare([run("a", 1, 0.4), run("b", 2, 0.4)], "a")


def test_equal_sizes_are_told_from_others() -> None:
    assert same_parameters([run("a", 1, 0.4), run("b", 1, 0.4, parameters=1019)])
    assert not same_parameters([run("a", 1, 0.4), run("b", 1, 0.4, parameters=1021)])
