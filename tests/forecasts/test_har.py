import numpy as np
import pytest

from forecaster.forecasts import baselines, har
from forecaster.windows.features import FEATURES


def now(weekday: int, log_return: float) -> np.ndarray:
    named = {"log_return": log_return, "abs_return": abs(log_return), "gap_days": 3.0, f"weekday_{weekday}": 1.0}
    return np.array([named.get(name, 0.0) for name in FEATURES], dtype=np.float32)


def test_inputs_are_the_daily_weekly_and_monthly_means_leverage_size_gap_and_weekday():
    past = np.stack([np.arange(30.0), np.arange(30.0) ** 2])
    x = har.inputs(past, np.stack([now(0, -0.5), now(4, 0.25)]), FEATURES, "volatility")
    assert x.dtype == np.float64
    np.testing.assert_allclose(x[0], [1, 29, 27, 18.5, -0.5, 0.5, 3, 1, 0, 0, 0, 0, 0, 0], rtol=1e-12)
    squares = np.arange(30.0) ** 2
    np.testing.assert_allclose(
        x[1], [1, 841, squares[-5:].mean(), squares[-22:].mean(), 0, 0.25, 3, 0, 0, 0, 0, 1, 0, 0], rtol=1e-12
    )


def test_inputs_for_returns_leave_out_leverage_size_and_gap():
    x = har.inputs(np.arange(30.0)[None], now(2, -0.5)[None], FEATURES, "return")
    np.testing.assert_allclose(x[0], [1, 29, 27, 18.5, 0, 0, 1, 0, 0, 0, 0], rtol=1e-12)


@pytest.mark.parametrize("length", [1, 3, 7])
def test_a_short_window_gives_the_means_of_what_it_holds(length):
    past = np.arange(1.0, length + 1)[None]
    x = har.inputs(past, now(0, 0.0)[None], FEATURES, "volume")
    np.testing.assert_allclose(x[0, 1:4], [length, past[0, -5:].mean(), past.mean()])


def test_inputs_of_a_row_do_not_depend_on_the_batch(rng):
    past, features = rng.normal(size=(50, 30)), np.stack([now(k % 5, 0.1 * k) for k in range(50)])
    together = har.inputs(past, features, FEATURES, "volume")
    beta = rng.normal(size=together.shape[1])
    for row in range(50):
        alone = har.inputs(past[row : row + 1], features[row : row + 1], FEATURES, "volume")
        assert (alone == together[row]).all()
        assert har.predict(alone, beta)[0] == har.predict(together, beta)[row]


def test_independent_drops_what_earlier_columns_already_say(rng):
    weekday = np.arange(60) % 5
    dummies = (weekday[:, None] == np.arange(7)).astype(float)
    gap = np.where(weekday == 0, 3.0, 1.0)  # no holiday: the gap is the Monday
    x = np.column_stack([np.ones(60), rng.normal(size=60) * 1e-6, gap, dummies])
    # Monday is the gap; Friday is what remains of the intercept; Saturday and Sunday never occur.
    assert har.independent(x).tolist() == [True, True, True, False, True, True, True, False, False, False]


def test_the_fit_is_that_of_least_squares_whatever_is_collinear(rng):
    x = rng.normal(size=(40, 4))
    x = np.column_stack([np.ones(40), x, x[:, 0] - 2 * x[:, 3], np.full(40, 7.0)])
    y = rng.normal(size=40)
    beta = har.fit(x, y)
    assert beta[5:].tolist() == [0.0, 0.0]
    np.testing.assert_allclose(har.predict(x, beta), x @ np.linalg.pinv(x) @ y, atol=1e-10)


def test_coefficients_of_a_synthetic_series_are_recovered(make_panel, rng):
    """4,000 bars: each estimate within 4 standard errors of the truth; a false alarm in 1 of 1,000 seeds."""
    n, truth = 4000, np.array([-0.3, 0.35, 0.3, 0.2, -8.0, 5.0])
    returns, noise = 0.01 * rng.standard_t(5, size=n), 0.3 * rng.normal(size=n)
    y = np.full(n, -2.0)
    for t in range(22, n - 1):
        own = (1.0, y[t], y[t - 4 : t + 1].mean(), y[t - 21 : t + 1].mean(), min(returns[t], 0.0), abs(returns[t]))
        y[t + 1] = truth @ own + noise[t + 1]
    panel = make_panel([y[:, None]], ("volatility",), returns=[returns])
    rows = np.arange(100, n - 1)
    beta = baselines.coefficients(panel, rows, 40)[0][0]
    past, now_ = panel.past_window(rows, 40)[:, :, 0], panel.features[rows]
    x = har.inputs(past, now_, FEATURES, "volatility")
    error = 0.3 * np.sqrt(np.diag(np.linalg.pinv(x.T @ x)))
    assert (np.abs(beta[1:6] - truth[1:]) < 4 * error[1:6]).all()


def test_the_reference_r2_on_the_bundled_bars_is_reproduced():
    """Trained to 2012, tested 2015-2018, both indices: .481 for volatility, .264 for volume (here .266)."""
    from forecaster.bars import bundled
    from forecaster.windows import panel, splits

    built = panel.build(bundled.load(("NASDAQ", "SP500")), ("return", "volatility", "volume"), 1)
    parts = splits.split(built, 64, "2012-12-31", "2014-12-31")
    mean = baselines.forecasts("har", built, parts.train, parts.test, 64).mean[:, 0]
    actual, symbols = built.targets[parts.test, 0], built.symbol_ids[parts.test]
    centre = np.stack([actual[symbols == s].mean(axis=0) for s in (0, 1)])[symbols]
    r2 = 1 - ((actual - mean) ** 2).sum(axis=0) / ((actual - centre) ** 2).sum(axis=0)
    np.testing.assert_allclose(r2, [-0.0014, 0.4806, 0.2656], atol=0.0005)


def test_intraday_inputs_hold_the_time_of_day():
    names = ("log_return", "abs_return", "gap_days", "weekday_0", "clock_sin", "clock_cos")
    now = np.array([[-0.5, 0.5, 0.25, 1.0, 0.6, 0.8]], dtype=np.float32)
    x = har.inputs(np.array([[1.0, 2.0, 3.0]]), now, names, "volatility")
    np.testing.assert_allclose(x, [[1, 3, 2, 2, -0.5, 0.5, 0.25, 1, 0.6, 0.8]], rtol=1e-7)
