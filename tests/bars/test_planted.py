from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecaster.bars import planted, rules, store
from forecaster.bars.calendar import Calendar
from forecaster.bars.contract import check
from forecaster.errors import ConfigError


def log_returns(frame: pd.DataFrame) -> np.ndarray:
    return np.diff(np.log(frame["close"].to_numpy()))


def autocorrelation(values: np.ndarray, lag: int) -> float:
    return float(np.corrcoef(values[lag:], values[:-lag])[0, 1])


def garman_klass(frame: pd.DataFrame) -> np.ndarray:
    wide = np.log(frame["high"] / frame["low"]) ** 2
    return (0.5 * wide - (2 * np.log(2) - 1) * np.log(frame["close"] / frame["open"]) ** 2).to_numpy()


def test_when_noise_is_given_then_the_garch_recursion_agrees_with_the_hand():
    # omega 2e-6, alpha .08, beta .90: s2[0] = 2e-6 / .02 = 1e-4; z = 1 leads to 2e-6 + .98e-4 = 1e-4;
    # z = 2 to 2e-6 + (.32 + .90) 1e-4 = 1.24e-4; z = 0 to 2e-6 + .90 x 1.24e-4 = 1.136e-4.
    sigma = rules.garch(np.array([1.0, 2.0, 0.0, 5.0]))
    np.testing.assert_allclose(sigma**2, [1e-4, 1e-4, 1.24e-4, 1.136e-4], rtol=1e-12)


def test_when_innovations_are_given_then_the_weekly_recursion_agrees_with_the_hand():
    # r[5] = 6 + .5 x 1; r[6] = 7 + .5 x 2; r[10] = 11 + .5 x 6.5.
    returns = rules.weekly(np.arange(1.0, 12.0), 0.5)
    np.testing.assert_array_equal(returns[:5], [1, 2, 3, 4, 5])
    np.testing.assert_array_equal(returns[[5, 6, 10]], [6.5, 8.0, 14.25])


@given(st.integers(1, 40), st.floats(-0.9, 0.9))
def test_when_returns_are_put_back_into_the_rule_then_the_innovations_return(bars: int, phi: float):
    innovations = np.random.default_rng(bars).standard_normal(bars)
    returns = rules.weekly(innovations, phi)
    lagged = np.concatenate([np.zeros(5), returns])[:bars]
    np.testing.assert_allclose(returns - phi * lagged, innovations, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_when_weekly_then_the_true_rule_reaches_the_attainable_r2(seed: int):
    """Attainable: phi^2 = .49. Of 200 seeds 2 lay outside the bound (.42 to .54 in all): 1 % false alarms a seed."""
    returns = log_returns(planted.load("weekly", bars=18_000, seed=seed).frame)
    target, forecast = returns[5:], 0.7 * returns[:-5]
    r2 = 1 - np.sum((target - forecast) ** 2) / np.sum((target - target.mean()) ** 2)
    assert r2 == pytest.approx(0.49, abs=0.045)


def test_when_weekly_then_only_lags_of_whole_weeks_are_correlated():
    """Fat tails make these noisy. Of 200 seeds, false alarms: lag 5 none, lag 10 1, the other six lags together 2."""
    returns = log_returns(planted.load("weekly", bars=18_000, seed=0).frame)
    assert autocorrelation(returns, 5) == pytest.approx(0.7, abs=0.05)
    assert autocorrelation(returns, 10) == pytest.approx(0.49, abs=0.08)
    assert all(abs(autocorrelation(returns, lag)) < 0.15 for lag in (1, 2, 3, 4, 6, 7))


def test_when_noise_then_no_return_is_correlated_with_an_earlier_one():
    """Of 200 seeds 3 had one of ten lags above the bound: 1.5 % false alarms."""
    returns = log_returns(planted.load("noise", bars=18_000, seed=0).frame)
    assert all(abs(autocorrelation(returns, lag)) < 0.15 for lag in range(1, 11))


def test_when_noise_then_phi_has_no_say():
    left = planted.load("noise", bars=50, seed=3, phi=0.7).frame
    pd.testing.assert_frame_equal(left, planted.load("noise", bars=50, seed=3, phi=0.1).frame)


def test_when_noise_then_moments_are_those_of_a_garch_market():
    """Volatility 1 % a day, fat tails, clustered absolute returns. Of 200 seeds 5 had another volatility (an outburst
    that outweighs all other bars), none failed the rest: 2.5 % false alarms."""
    returns = log_returns(planted.load("noise", bars=18_000, seed=0).frame)
    assert returns.std() == pytest.approx(0.01, abs=0.003)
    assert pd.Series(returns).kurt() > 3
    assert autocorrelation(np.abs(returns), 1) > 0.1
    assert autocorrelation(np.abs(returns), 20) > 0.05


def test_when_bars_are_drawn_then_their_closes_carry_the_simulated_returns_exactly():
    """The same streams drawn by hand: noise first of the symbol's three."""
    stream = np.random.SeedSequence(11).spawn(2)[1]
    noise_rng = np.random.default_rng(stream).spawn(3)[0]
    sessions = len(Calendar("XNYS").sessions("1950-01-08", planted.LAST))
    noise = noise_rng.standard_t(4, 500 + sessions) / np.sqrt(2)
    expected = rules.weekly(rules.garch(noise) * noise, 0.7)[500:][-9_000:]
    frame = planted.load("weekly", bars=9_000, seed=11, symbols=2).frame
    closes = frame.loc[frame["symbol"] == "WEEKLY_1", "close"].to_numpy()
    np.testing.assert_allclose(np.diff(np.log(closes)), expected[1:], rtol=0, atol=1e-9)


def test_when_fewer_bars_are_asked_for_then_they_are_the_last_of_the_same_market():
    long, short = (planted.load("weekly", bars=bars, seed=3).frame for bars in (900, 400))
    pd.testing.assert_frame_equal(long.tail(400).reset_index(drop=True), short, check_exact=True)


def test_when_bars_are_drawn_then_the_range_tells_the_volatility():
    """Garman-Klass of one bar against sigma. Over 200 seeds: correlation of logs .58 or more; 2 had their mean
    ratio outside the bounds: 1 % false alarms."""
    stream = np.random.SeedSequence(5).spawn(1)[0]
    sessions = len(Calendar("XNYS").sessions("1950-01-08", planted.LAST))
    noise = np.random.default_rng(stream).spawn(3)[0].standard_t(4, 500 + sessions) / np.sqrt(2)
    sigma = rules.garch(noise)[-9_000:]
    estimate = garman_klass(planted.load("noise", bars=9_000, seed=5).frame)
    assert (estimate > 0).all()
    assert np.corrcoef(np.log(estimate), np.log(sigma**2))[0, 1] > 0.55
    # Below 1: 16 prices see less than the full range, and the first of them is the open.
    assert 0.54 < np.mean(estimate / sigma**2) < 0.6


def test_when_bars_are_drawn_then_volume_follows_the_size_of_moves_and_persists():
    """Of 200 seeds, false alarms: 1 for the moves, 2 for the persistence."""
    frame = planted.load("noise", bars=9_000, seed=0).frame
    volume = np.log(frame["volume"].to_numpy())
    assert np.corrcoef(volume[1:], np.abs(log_returns(frame)))[0, 1] > 0.2
    assert autocorrelation(volume, 1) > 0.3
    assert (frame["volume"] == frame["volume"].round()).all()


@pytest.mark.parametrize("kind", ["noise", "weekly"])
@pytest.mark.parametrize("seed", range(3))
def test_when_18000_bars_are_drawn_then_prices_stay_far_from_the_limits_of_numbers(kind: str, seed: int):
    """A random walk of 18,000 steps: of 200 seeds 1 went beyond (to e^30, far from where floats end)."""
    frame = planted.load(kind, bars=18_000, seed=seed).frame
    assert np.abs(np.log(frame[["low", "high"]].to_numpy() / 100)).max() < 15
    pd.testing.assert_frame_equal(check(frame, "again"), frame)


def test_when_bars_are_drawn_then_they_stand_on_the_last_sessions_of_the_exchange():
    frame = planted.load("weekly", bars=18_000, seed=0).frame
    sessions = Calendar("XNYS").sessions(frame["time"].iloc[0], "2025-12-31")
    assert frame["time"].tolist() == sessions.tolist()
    assert set(frame["time"].dt.day_of_week) == {0, 1, 2, 3, 4}


def test_when_the_seed_is_the_same_then_so_are_the_bytes_and_with_another_they_are_not(tmp_path: Path):
    for name, seed in (("one", 7), ("two", 7), ("other", 8)):
        store.write(planted.load("weekly", bars=200, seed=seed, symbols=2), tmp_path / name)
    assert store.digest(tmp_path / "one") == store.digest(tmp_path / "two") != store.digest(tmp_path / "other")


def test_when_there_are_several_symbols_then_they_are_independent_and_one_more_changes_none():
    """Of 60 seeds the largest correlation was .044: no false alarm."""
    three = planted.load("noise", bars=4_000, seed=2, symbols=3).frame
    closes = three.pivot(index="time", columns="symbol", values="close")
    assert closes.columns.tolist() == ["NOISE_0", "NOISE_1", "NOISE_2"]
    correlations = np.corrcoef(np.diff(np.log(closes.to_numpy()), axis=0).T)
    assert np.abs(correlations - np.eye(3)).max() < 0.08
    two = planted.load("noise", bars=4_000, seed=2, symbols=2).frame
    pd.testing.assert_frame_equal(two, three[three["symbol"] != "NOISE_2"])


def test_when_there_are_more_than_ten_symbols_then_names_still_sort():
    symbols = planted.load("noise", bars=2, seed=0, symbols=12).frame["symbol"].unique().tolist()
    assert symbols == [f"NOISE_{number:02d}" for number in range(12)]


def test_when_phi_changes_then_the_noise_does_not():
    left = planted.load("weekly", bars=60, seed=4, phi=0.0).frame
    right = planted.load("noise", bars=60, seed=4).frame
    pd.testing.assert_frame_equal(left.drop(columns="symbol"), right.drop(columns="symbol"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"kind": "monthly"},
            "planted bars: kind 'monthly': choose from changing, large_move, noise, recency, several, together",
        ),
        ({"symbols": 0}, "planted bars: symbols 0: ask for at least 1"),
        ({"phi": 1.0}, r"planted bars: phi 1.0: \|phi\| must be below 1, or prices explode"),
        ({"bars": 0}, "planted bars: bars 0: ask for 1 to 19"),
        ({"bars": 30_000}, "planted bars: bars 30000: ask for 1 to 19.*, the sessions up to 2025-12-31"),
    ],
)
def test_when_arguments_describe_no_market_then_the_error_names_them(arguments: dict, message: str):
    with pytest.raises(ConfigError, match=message):
        planted.load(**{"kind": "weekly", "bars": 10, "seed": 0, **arguments})


def test_several_dependencies_follow_their_rule() -> None:
    rng = np.random.default_rng(3)
    noise, sigma = rng.standard_normal(90), rng.uniform(0.5, 2, 90)
    returns = rules.several(noise, sigma, 0.3)
    for bar in range(5, 90):
        before = noise[max(0, bar - 30) : bar] if bar >= 30 else []
        moves = sum(sorted(before, key=abs, reverse=True)[:3])
        rule = -0.25 * (returns[bar - 2] + returns[bar - 3]) + 0.3 * returns[bar - 5] + 0.2 * sigma[bar] * moves
        assert returns[bar] == pytest.approx(rule + sigma[bar] * noise[bar], rel=1e-12)


@pytest.mark.parametrize("kind", ["weekly", "several"])
def test_expected_returns_are_what_the_rule_leaves_without_its_noise(kind: str) -> None:
    bars = planted.load(kind, 900, 5, phi=0.3).frame
    returns = np.log(bars["close"]).diff().to_numpy()[1:]
    rule = planted.expected(kind, 900, 5, 0.3)[1:]
    if kind == "weekly":
        np.testing.assert_allclose(rule[5:], 0.3 * returns[:-5], atol=1e-12)
    # What is left is noise: over 899 bars no lag up to 10 correlates beyond 4 standard errors (false alarm < .1 %).
    noise = (returns - rule) / np.abs(returns - rule).mean()
    for lag in range(1, 11):
        assert abs(np.corrcoef(np.sign(noise[lag:]), np.sign(noise[:-lag]))[0, 1]) < 4 / np.sqrt(899)


def test_no_rule_expects_nothing() -> None:
    assert not planted.expected("noise", 50, 1, 0.7).any()
