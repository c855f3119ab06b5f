import numpy as np
import pytest

from forecaster.probes.intervals import Interval
from forecaster.probes.knockout import Gate
from forecaster.probes.labels import Causal, Evidence, Verdict, functional, missing, pattern, placebo_lags, placebos
from forecaster.probes.statistics import Score

FOUND = Verdict("pattern", (), "pattern (no noise null)")
OPEN, CLOSED = Gate("volatility", "historical mean", 0.001, 0.5), Gate("return", "zero return", 0.2, 0.001)


def evidence(**changed: float) -> Evidence:
    return Evidence(
        **{"kappa": 0.3, "low": 0.1, "odds": 4.0, "beside": 0.1, "q": 0.01, "placebo": 0.1, "placebo_lag": 7} | changed
    )


def score(queries: int = 100, blocks: int = 12) -> Score:
    nothing = np.zeros(1)
    return Score(Interval(nothing, nothing, nothing), nothing, nothing, nothing, queries, 0, blocks)


def interval(*bounds: tuple[float, float]) -> Interval:
    low, high = np.array(bounds).T
    return Interval((low + high) / 2, low, high)


def test_an_interval_that_holds_0_stands_against_a_content_pattern_only_where_p_is_a_tail():
    assert missing("profile", evidence(low=-0.01)) == []


def test_words_where_a_head_has_no_attention_on_flagged_bars_of_test():
    rises = interval((0.01, 0.03))
    verdict = functional(FOUND, Causal(rises, {"matched_mass": rises}, np.nan), [OPEN])
    assert verdict.reason.endswith("; no attention on flagged bars of test to be matched")


def test_placebo_lags_avoid_both_anchors_when_the_week_has_five_bars():
    assert placebo_lags(5, 64) == [7, 12, 17, 22, 27]
    assert placebo_lags(5, 20) == [7, 12, 17]


def test_placebo_lags_avoid_both_anchors_when_the_week_has_seven_bars():
    assert placebo_lags(7, 64) == [3, 4, 9, 10, 11, 16, 17, 18, 23, 24, 25, 30]


def test_placebo_lags_reach_a_week_and_a_half_when_the_week_is_long():
    lags = placebo_lags(35, 80)
    assert lags == [lag for lag in range(3, 54) if lag not in (33, 34, 35, 36)]


def test_placebos_are_kappas_against_their_own_neighbours():
    profile = np.array([[0.1, 0.1, 0.1, 0.3, 0.1, 0.1, 0.2]])
    by_hand = [(0.3 - 0.1) / (1 - 0.1), (0.2 - 0.1) / (1 - 0.1)]
    np.testing.assert_allclose(placebos(profile, [3, 6]), [by_hand])


@pytest.mark.parametrize(
    ("chance", "changed", "words"),
    [
        ("visible", {"kappa": 0.19}, "kappa 0.190 under 0.2"),
        ("profile", {"kappa": np.nan, "odds": np.nan}, "kappa undefined"),
        ("visible", {"low": 0.0}, "interval of kappa not above 0"),
        ("neighbours", {"kappa": 0.04, "placebo": 0.0}, "kappa 0.040 under 0.05"),
        ("neighbours", {"low": np.nan}, "interval of kappa not above 0"),
        ("neighbours", {"odds": 1.9}, "odds 1.90 under 2"),
        ("neighbours", {"placebo": 0.3}, "not above the placebo lag 7 (kappa 0.300)"),
        ("neighbours", {"placebo": np.nan, "placebo_lag": -1}, "no placebo lag in the window"),
        ("neighbours", {"beside": 0.0}, "not above the bar on either side"),
        ("profile", {"q": 0.06}, "q 0.06 above 0.05"),
        ("profile", {"q": np.nan}, "no shift null"),
        ("profile", {"odds": np.nan}, "odds undefined"),
        ("profile", {"tail": True, "low": -0.01}, "interval of kappa not above 0"),
    ],
)
def test_a_pattern_misses_what_a_weighting_fails(chance, changed, words):
    assert missing(chance, evidence()) == []
    assert missing(chance, evidence(**changed)) == [words]


@pytest.mark.parametrize(
    ("chance", "changed"),
    [("visible", {"odds": 1.0, "q": 1.0, "placebo": 1.0, "beside": -1.0}), ("profile", {"low": -1.0, "placebo": 1.0})],
)
def test_a_pattern_does_not_ask_what_belongs_to_other_probes(chance, changed):
    assert missing(chance, evidence(**changed)) == []


def test_reason_names_every_condition_of_the_weighting_that_fails():
    verdict = pattern("profile", score(), {"raw": evidence(), "norm": evidence(kappa=0.01, odds=1.5, q=0.2)})
    assert verdict == Verdict("none", (), "norm: kappa 0.010 under 0.05, odds 1.50 under 2, q 0.2 above 0.05")


@pytest.mark.parametrize(
    ("queries", "blocks", "words"),
    [
        (0, 0, "not measurable: no query has the bars it asks about"),
        (9, 9, "too few to say: 9 blocks of dates of at least 10"),
    ],
)
def test_reason_says_when_nothing_could_be_measured(queries, blocks, words):
    assert pattern("neighbours", score(queries, blocks), {"raw": evidence()}).reason == words


def test_a_head_is_functional_for_the_targets_that_pass_everything():
    rises = interval((0.01, 0.03), (0.01, 0.03))
    verdict = functional(FOUND, Causal(rises, {"matched_lag": rises, "matched_mass": rises}, 0.5), [CLOSED, OPEN])
    assert (verdict.label, verdict.targets) == ("functional", ("volatility",))
    assert verdict.reason.startswith(
        "pattern (no noise null), functional: return fails: skill gate closed; volatility passes: "
    )


@pytest.mark.parametrize(
    ("mean", "lag", "mass", "words"),
    [
        ((-0.01, 0.03), (0.01, 0.03), (0.01, 0.03), "mean-ablation +0.01 [-0.01, +0.03]"),
        ((0.01, 0.03), (-0.01, 0.03), (0.01, 0.03), "against matched_lag +0.01 [-0.01, +0.03]"),
        ((0.01, 0.03), (0.01, 0.03), (np.nan, np.nan), "against matched_mass not measurable: no window has both"),
    ],
)
def test_a_pattern_stays_one_when_a_causal_test_fails(mean, lag, mass, words):
    causal = Causal(interval(mean), {"matched_lag": interval(lag), "matched_mass": interval(mass)}, 0.02)
    verdict = functional(FOUND, causal, [OPEN])
    assert verdict == Verdict(
        "pattern",
        (),
        f"pattern (no noise null), not functional: volatility fails: {words}; 2% of the flagged mass could be matched",
    )


def test_a_rise_of_too_few_blocks_comes_without_an_interval():
    few = Interval(np.array([0.02]), np.array([np.nan]), np.array([np.nan]))
    causal = Causal(few, {"matched_lag": few, "matched_mass": few}, 0.02)
    assert "mean-ablation +0.02 [too few blocks to say]" in functional(FOUND, causal, [OPEN]).reason
