from dataclasses import replace

import numpy as np
import pytest

from forecaster.errors import ConfigError, DataError
from forecaster.forecasts import baselines
from forecaster.forecasts.baselines import BASELINES
from forecaster.networks.quantiles import QUANTILES
from forecaster.windows.features import FEATURES

TARGETS = ("return", "volatility")


@pytest.fixture
def panel(make_panel):
    """40 bars of A and 33 of B; volatility t and 100 + 2 t, returns alternating."""
    a, b = np.arange(40.0), np.arange(33.0)
    returns = [0.01 * (-1) ** a, 0.02 * (-1) ** b]
    return make_panel(
        [np.column_stack([returns[0], a]), np.column_stack([returns[1], 100 + 2 * b])], TARGETS, 7, returns
    )


TRAIN = np.concatenate([np.arange(12, 20), 40 + np.arange(12, 17)])
ORIGINS = np.array([25, 40 + 20])


def mean(name, panel, length=10):
    return baselines.forecasts(name, panel, TRAIN, ORIGINS, length).mean


def test_persistence_says_the_last_value_at_every_step(panel):
    forecast = mean("persistence", panel)
    assert forecast.shape == (2, 7, 2)
    assert (forecast[0, :, 1] == 25).all()
    assert (forecast[1, :, 1] == 140).all()
    assert (forecast[0, :, 0] == -0.01).all()


def test_zero_says_0_for_returns_and_nothing_for_others(panel):
    forecast = baselines.forecasts("zero", panel, TRAIN, ORIGINS, 10)
    assert (forecast.mean[:, :, 0] == 0).all()
    assert np.isnan(forecast.mean[:, :, 1]).all()
    assert np.isnan(forecast.quantiles[:, :, 1]).all()
    assert [baselines.applicable("zero", target) for target in (*TARGETS, "volume")] == [True, False, False]
    assert all(baselines.applicable(name, "volume") for name in BASELINES if name != "zero")


def test_mean_is_each_symbols_own_over_its_training_rows(panel):
    forecast = mean("mean", panel)
    # Targets of A's training rows at step h are t + h for t = 12..19, so 15.5 + h; of B's 100 + 2 (14 + h).
    np.testing.assert_allclose(forecast[0, :, 1], 15.5 + np.arange(1, 8))
    np.testing.assert_allclose(forecast[1, :, 1], 128 + 2 * np.arange(1, 8))


def test_mean_of_a_symbol_unseen_in_training_is_the_pooled_one(panel):
    train = TRAIN[TRAIN < 40]
    forecast = baselines.forecasts("mean", panel, train, ORIGINS, 10).mean
    np.testing.assert_allclose(forecast[1, :, 1], 15.5 + np.arange(1, 8))


def test_training_means_name_fold_symbol_target_and_step(panel):
    means = baselines.training_means(panel, TRAIN, fold=2)
    assert len(means) == 2 * 2 * 7
    assert means[2, "B", "volatility", 3] == pytest.approx(134)


def test_seasonal_repeats_the_last_week(panel):
    forecast = mean("seasonal", panel)
    # One step after bar 25 is bar 26, a week before which stands bar 21; after five steps the week starts again.
    assert forecast[0, :, 1].tolist() == [21, 22, 23, 24, 25, 21, 22]
    assert forecast[1, :, 1].tolist() == [132, 134, 136, 138, 140, 132, 134]


def test_ewma_is_the_normalised_weighted_mean_of_the_window(panel):
    weights = 0.94 ** np.arange(10)
    expected = (weights * np.arange(25, 15, -1)).sum() / weights.sum()
    np.testing.assert_allclose(mean("ewma", panel)[0, :, 1], expected)


def test_har_fits_every_step_by_itself(panel):
    forecast = mean("har", panel)
    # Both series go up by a constant, which one regression on their own level and means cannot miss.
    np.testing.assert_allclose(forecast[0, :, 1], 25 + np.arange(1, 8), rtol=1e-6)
    np.testing.assert_allclose(forecast[1, :, 1], 140 + 2 * np.arange(1, 8), rtol=1e-6)


def test_quantiles_are_the_mean_plus_those_of_the_training_errors(panel, rng):
    noisy = replace(panel, targets=panel.targets + rng.normal(size=panel.targets.shape))
    forecast = baselines.forecasts("persistence", noisy, TRAIN, ORIGINS, 10)
    errors = noisy.targets[TRAIN, 2, 1] - noisy.past[TRAIN, 1]
    np.testing.assert_allclose(forecast.quantiles[0, 2, 1], 25 + np.quantile(errors, QUANTILES))


def test_quantiles_of_returns_widen_with_the_volatility_at_the_origin(panel, rng):
    features = panel.features.copy()
    features[:, FEATURES.index("log_sigma")] = rng.normal(size=len(features))
    noisy = replace(panel, targets=panel.targets + rng.normal(size=panel.targets.shape), features=features)
    assert noisy.target_names[0] == "return"
    forecast = baselines.forecasts("zero", noisy, TRAIN, ORIGINS, 10)
    sigma = np.exp(features[:, FEATURES.index("log_sigma")].astype(float))
    spread = np.quantile(noisy.targets[TRAIN, 2, 0] / sigma[TRAIN], QUANTILES)
    np.testing.assert_allclose(forecast.quantiles[:, 2, 0], sigma[ORIGINS][:, None] * spread)


@pytest.mark.parametrize("name", BASELINES)
def test_quantiles_never_cross(name, panel, rng):
    noisy = replace(panel, targets=panel.targets + rng.normal(size=panel.targets.shape))
    forecast = baselines.forecasts(name, noisy, TRAIN, ORIGINS, 10)
    steps = np.diff(forecast.quantiles[:, :, : 1 if name == "zero" else 2], axis=-1)
    assert (steps >= 0).all()


@pytest.mark.parametrize("name", BASELINES)
def test_rewriting_the_future_changes_nothing(name, panel, rng):
    """Everything after the last training target is known: 7 bars after the last training origin."""
    past, targets, features = panel.past.copy(), panel.targets.copy(), panel.features.copy()
    later = np.concatenate([np.arange(27, 40), 40 + np.arange(24, 33)])
    past[later], features[later] = rng.normal(size=(len(later), 2)), 5.0
    known = {row + step for row in TRAIN for step in range(8)}
    assert not known & set(later.tolist())
    for row in range(73):
        for step in range(7):
            if row + step + 1 in set(later.tolist()):
                targets[row, step] = -9.0
    rewritten = replace(panel, past=past, targets=targets, features=features)
    before = baselines.forecasts(name, panel, TRAIN, ORIGINS, 10)
    after = baselines.forecasts(name, rewritten, TRAIN, ORIGINS, 10)
    np.testing.assert_array_equal(before.mean, after.mean)
    np.testing.assert_array_equal(before.quantiles, after.quantiles)
    for beta, again in zip(
        baselines.coefficients(panel, TRAIN, 10), baselines.coefficients(rewritten, TRAIN, 10), strict=True
    ):
        np.testing.assert_array_equal(beta, again)


@pytest.mark.parametrize("name", BASELINES)
def test_forecasts_do_not_depend_on_how_many_are_made_at_once(name, make_panel, rng, monkeypatch):
    series = rng.normal(size=(60, 2))
    panel = make_panel([series, rng.normal(size=(50, 2))], TARGETS, 1, [series[:, 0], rng.normal(size=50)])
    train, origins = np.arange(12, 40), np.concatenate([np.arange(41, 58), 60 + np.arange(12, 48)])
    together = baselines.forecasts(name, panel, train, origins, 10)
    for chunk in (1, 7):
        monkeypatch.setattr(baselines, "CHUNK", chunk)
        np.testing.assert_array_equal(
            baselines.forecasts(name, panel, train, origins, 10).quantiles, together.quantiles
        )
    alone = baselines.forecasts(name, panel, train, origins[5:6], 10)
    np.testing.assert_array_equal(alone.quantiles[0], together.quantiles[5])


@pytest.mark.parametrize("name", BASELINES)
def test_no_origins_make_no_forecasts(name, panel):
    forecast = baselines.forecasts(name, panel, TRAIN, ORIGINS[:0], 10)
    assert forecast.quantiles.shape == (0, 7, 2, 7)


def test_an_unknown_baseline_is_told_with_the_known_ones(panel):
    with pytest.raises(ConfigError, match=r"'garchh' is unknown: choose from persistence, zero, mean, seasonal"):
        baselines.forecasts("garchh", panel, TRAIN, ORIGINS, 10)


def test_seasonal_on_windows_under_a_week_is_refused(panel):
    with pytest.raises(ConfigError, match=r"last 5 bars, a window of 4 is shorter"):
        baselines.forecasts("seasonal", panel, TRAIN, ORIGINS, 4)
    assert mean("seasonal", panel, 5).shape == (2, 7, 2)


def test_training_rows_without_known_targets_are_refused(panel):
    for train in (TRAIN[:0], np.array([12, 39])):
        with pytest.raises(DataError, match="training rows"):
            baselines.forecasts("mean", panel, train, ORIGINS, 10)


def test_har_refuses_a_series_that_is_not_finite(panel):
    past = panel.past.copy()
    past[24, 1] = np.inf
    with pytest.raises(DataError, match="baseline har: the volatility series"):
        baselines.forecasts("har", replace(panel, past=past), TRAIN, ORIGINS, 10)
