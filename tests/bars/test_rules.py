import numpy as np
import pytest

from forecaster.bars import planted, rules
from forecaster.bars.exchanges import hours_of
from forecaster.sources import MARKETS


def test_every_market_has_a_rule_and_is_known_to_the_configuration():
    assert set(planted.RULES) == set(planted.KINDS) == set(MARKETS)


def test_when_innovations_are_given_then_the_recency_recursion_agrees_with_the_hand():
    # r[3] = 4 - .5 (2 + 1); r[4] = 5 - .5 (3 + 2); r[5] = 6 - .5 (2.5 + 3).
    returns = rules.recency(np.arange(1.0, 7.0), -0.5)
    np.testing.assert_array_equal(returns, [1, 2, 3, 2.5, 2.5, 3.25])


def test_when_moves_are_given_then_the_three_largest_of_thirty_foretell_the_next():
    rng = np.random.default_rng(3)
    noise, sigma = rng.standard_normal(90), rng.uniform(0.5, 2, 90)
    strength = np.where(np.arange(90) % 3, 0.2, -0.2)
    returns = rules.large_move(noise, sigma, strength, -0.25, np.full(90, 0.3))
    variance = np.empty(90)
    variance[0] = sigma[0] ** 2
    for bar in range(1, 90):
        variance[bar] = 0.94 * variance[bar - 1] + 0.06 * returns[bar - 1] ** 2
    moves = returns / np.sqrt(variance)
    np.testing.assert_allclose(returns[:30], sigma[:30] * noise[:30])
    for bar in range(30, 90):
        largest = sum(sorted(moves[bar - 30 : bar], key=abs)[-3:])
        rule = -0.25 * (returns[bar - 2] + returns[bar - 3]) + 0.3 * returns[bar - 5]
        rule += sigma[bar] * strength[bar] * largest
        assert returns[bar] == pytest.approx(rule + sigma[bar] * noise[bar], rel=1e-12)


def test_when_the_rule_changes_then_each_holds_on_its_side():
    rng, weekday = np.random.default_rng(4), np.arange(200) % 5
    noise = rng.standard_normal(200)
    made = rules.simulated("changing", noise, weekday, 0.6, rng, turn=120)
    sign = np.where(np.isin(weekday, (1, 3)), -1.0, 1.0)
    # No rule holds before there are 30 bars to look at.
    for bar in range(30, 120):
        assert made.expected[bar] == pytest.approx(0.6 * made.returns[bar - 5], rel=1e-12, abs=1e-15)
    moves, variance = np.zeros(200), made.sigma[0] ** 2
    for bar in range(200):
        moves[bar] = made.returns[bar] / np.sqrt(variance)
        variance = 0.94 * variance + 0.06 * made.returns[bar] ** 2
    for bar in range(120, 200):
        largest = sum(sorted(moves[bar - 30 : bar], key=abs)[-3:])
        assert made.expected[bar] == pytest.approx(made.sigma[bar] * 0.2 * sign[bar] * largest, rel=1e-9)


def test_the_market_changes_in_january_1990():
    frame = planted.load("changing", 18_000, 1).frame
    returns = np.log(frame["close"]).diff().to_numpy()
    rule = planted.expected("changing", 18_000, 1, 0.7)
    late = (frame["time"] >= "1990-01-02").to_numpy()
    assert late.mean() == pytest.approx(0.5, abs=0.01)
    week_before = np.concatenate((np.zeros(5), returns[:-5]))
    np.testing.assert_allclose(rule[6:][~late[6:]], 0.7 * week_before[6:][~late[6:]], atol=1e-12)
    apart = np.abs(rule - 0.7 * week_before)[late]
    assert np.median(apart) > 0.2 * np.abs(returns[late]).mean()


def test_when_volume_has_spiked_then_the_return_of_the_spike_before_comes_back():
    spikes = np.array([0, 1, 0, 1, 1, 0, 0, 1, 0], dtype=bool)
    returns = rules.volume(np.arange(1.0, 10.0), spikes, 0.5)
    # After bar 3 the return of bar 1, after bar 4 that of bar 3, after bar 7 that of bar 4 (5 + .5 x 2).
    np.testing.assert_array_equal(returns, [1, 2, 3, 4, 5 + 1, 6 + 2, 7, 8, 9 + 3])


def test_when_a_leg_has_begun_then_its_blow_off_is_taken_back_and_then_foretells():
    noise, sigma, strength = np.zeros(20), np.full(20, 2.0), np.full(20, 0.1)
    strength[::2] = -0.1
    blow_off = np.zeros(20)
    blow_off[[3, 12]] = 6.0, -5.0
    returns = rules.trend(noise, sigma, blow_off, strength) / 2.0
    back = -1.15 * 6.0 / 5
    np.testing.assert_allclose(returns[:9], [0, 0, 0, 6, back, back, back, back, back])
    np.testing.assert_allclose(returns[9:13], [0.6, -0.6, 0.6, -0.6 - 5.0])
    # While the second is taken back, the first is still the origin that is known.
    forth = 1.15 * 5.0 / 5
    np.testing.assert_allclose(returns[13:18], [0.6 + forth, -0.6 + forth, 0.6 + forth, -0.6 + forth, 0.6 + forth])
    np.testing.assert_allclose(returns[18:], [0.5, -0.5])


def test_blow_offs_come_at_their_distances_and_mostly_turn():
    moves = rules.blow_offs(np.random.default_rng(0), 20_000)
    places = np.flatnonzero(moves)
    assert np.diff(places).min() >= 10
    assert np.diff(places).max() <= 21
    assert (np.abs(moves[places]) >= 4.8).all()
    assert (np.abs(moves[places]) <= 7.2).all()
    turns = (np.sign(moves[places][1:]) != np.sign(moves[places][:-1])).mean()
    assert turns == pytest.approx(0.9, abs=0.03)  # 1,260 legs: 3 standard errors are .025


@pytest.mark.parametrize("kind", [kind for kind in planted.KINDS if kind != "noise"])
def test_what_the_rule_leaves_is_noise(kind: str):
    """Signs of what is left, over 8,000 bars, at lags 1 to 10: 4 standard errors are .045 (false alarm < .1 %).

    A leg's blow-off is no noise of a bar: those bars are left out.
    """
    phi = -0.5 if kind == "recency" else 0.2
    bars = planted.load(kind, 8_000, 5, phi=phi).frame
    returns = np.log(bars["close"]).diff().to_numpy()[1:]
    left = returns - planted.expected(kind, 8_000, 5, phi)[1:]
    assert np.corrcoef(returns, planted.expected(kind, 8_000, 5, phi)[1:])[0, 1] > 0.1
    for lag in range(1, 11):
        assert abs(np.corrcoef(np.sign(left[lag:]), np.sign(left[:-lag]))[0, 1]) < 0.045


def test_hourly_bars_stand_on_the_exchange_s_hours():
    found = planted.load("weekly_hourly", 500, 1)
    times = found.frame["time"].dt.tz_localize(None).to_numpy(dtype="datetime64[us]")
    hours = hours_of("XNYS")
    session = np.searchsorted(hours.opens, times, side="right") - 1
    assert ((times - hours.opens[session]) % np.timedelta64(1, "h") == np.timedelta64(0, "h")).all()
    assert (times < hours.closes[session]).all()
    assert np.bincount(session - session[0])[1:-1].max() == 7
    assert found.interval == "1h"


def test_spikes_of_volume_stand_out_of_the_usual():
    frame = planted.load("volume", 2_000, 1, phi=0.9).frame
    logs = np.log(frame["volume"].to_numpy())
    spikes = logs > 16.6
    assert spikes.mean() == pytest.approx(0.25, abs=0.03)
    assert logs[spikes].mean() - logs[~spikes].mean() == pytest.approx(1.2, abs=0.05)
