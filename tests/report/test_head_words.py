"""Every sentence about a head, from tables made by hand."""

import pandas as pd
import pytest

from forecaster.report.head_words import WIDTH, head_words

HEADS = (
    "layer",
    "head",
    "probe",
    "stratum",
    "direction",
    "weights",
    "kappa",
    "low",
    "high",
    "chance",
    "odds",
    "p",
    "q",
)
SHORT = "large_move"
GATES = [
    "return: no skill (squared error on test against the zero return's, p = 0.4): no head is called functional for it",
    "volatility: skill (squared error on test against the mean's, p = 1e-09): heads can be functional for it",
]


def row(layer, head, probe, kappa, label="none", reason="", **changes):
    """A pair of rows of heads.csv, raw and norm."""
    told = {
        "layer": layer,
        "head": head,
        "probe": probe,
        "stratum": "last",
        "direction": "past",
        "kappa": kappa,
        "low": kappa - 0.02,
        "high": kappa + 0.02,
        "chance": 0.05,
        "odds": 3.0,
        "p": None,
        "q": None,
        "partial_mass": None,
        "label": label,
        "targets": None,
        "reason": reason,
        **changes,
    }
    return [{**told, "weights": "raw"}, {**told, "weights": "norm", "kappa": kappa + 0.01}]


def tables(*pairs, **others):
    return {"heads": pd.DataFrame([one for pair in pairs for one in pair]), **others}


def told(made, summary=None) -> list[str]:
    """The paragraphs, each as one line."""
    text = head_words(made, {"experiment": "sp500", "gates": GATES, **(summary or {})})
    assert text.endswith("\n")
    assert max(map(len, text.splitlines())) <= WIDTH
    return [paragraph.replace("\n", " ").strip() for paragraph in text.split("\n\n")]


def knockout(head, target, kind, rise, low=None, high=None, share=None):
    return (0, head, target, kind, rise, low, high, share, None)


def knocked(*rows):
    columns = ["layer", "head", "target", "kind", "rise", "low", "high", "skill_share", "probe"]
    return pd.DataFrame(rows, columns=columns)


def test_labelled_heads_come_first_functional_before_pattern():
    general, *heads = told(
        tables(
            row(0, 0, SHORT, 0.01, reason="raw: kappa 0.010 under 0.05; norm: kappa 0.020 under 0.05"),
            row(0, 1, "weekly", 0.3, "pattern", "strong pattern (no noise null)"),
            row(1, 0, SHORT, 0.1, "functional", "pattern, functional: volatility: so", targets="volatility"),
        )
    )
    assert [head.split(":")[0] for head in heads] == ["Layer 1, head 0", "Layer 0, head 1", "Layer 0, head 0"]
    assert general.startswith(
        "sp500: 3 heads, 1 functional (the forecast needs what they look at), 1 with a pattern only, 1 without a label."
    )
    assert heads[0].startswith("Layer 1, head 0: large_move (functional for volatility). It looks at the largest moves")
    assert "Functional is not corrected for the number of heads and targets." in general
    general, _ = told(tables(row(0, 1, "weekly", 0.3, "pattern", "strong pattern (no noise null)")))
    assert "not corrected" not in general


def test_a_role_has_its_kappa_by_both_weightings_its_odds_and_q_against_shifts():
    facts = pd.DataFrame(
        [
            (None, None, "large_move shifts", 1381.0, None, None),
            (None, None, "weekly blocks of dates", 23.0, None, None),
        ],
        columns=["layer", "head", "fact", "value", "low", "high"],
    )
    general, head = told(
        tables(
            row(0, 0, SHORT, 0.14, "functional", "pattern, functional: volatility: x", targets="volatility", q=0.004),
            head_facts=facts,
        )
    )
    assert (
        "It looks at the largest moves of the window: kappa 0.140 [0.120, 0.160], weighted by what it writes 0.150 "
        "[0.120, 0.160], 3.00 times the odds of chance; q 0.00400 against 1381 shifts of those bars in time."
    ) in head
    assert "There are 23 blocks." in general
    reason = "strong pattern (no noise null); odds without bound"
    for empty in (None, float("nan"), float("inf")):
        _, head = told(tables(row(0, 0, SHORT, 0.99, "pattern", reason, odds=empty)))
        assert head.endswith("weighted by what it writes 1.000 [0.970, 1.010]; odds without bound.")


def test_two_labels_are_told_one_after_the_other_and_a_probe_of_one_s_own_by_its_name():
    _, head = told(
        tables(
            row(0, 0, "mondays", 0.1, "pattern", "pattern"), row(0, 0, "weekly", 0.2, "functional", targets="volume")
        )
    )
    assert head.startswith("Layer 0, head 0: weekly (functional for volume), mondays (pattern).")
    assert "It looks at the bars of mondays: kappa 0.100" in head


def test_notes_of_a_pattern_are_kept_and_failed_tests_named_without_their_figures():
    reason = (
        "pattern (no noise null); untrained heads reach 0.120; partial mass 0.010: mostly bars of other probes; "
        "regardless of how far back, not functional: return fails: skill gate closed; volatility fails: "
        "mean-ablation +0.001 [-0.02, +0.03], against matched_lag not measurable: no window has both; 40% of the "
        "flagged mass could be matched"
    )
    _, head = told(tables(row(0, 0, SHORT, 0.1, "pattern", reason)))
    assert (
        "times the odds of chance; untrained heads reach 0.120; partial mass 0.010: mostly bars of other probes; "
        "regardless of how far back. That the forecast needs these bars is not shown: return fails: skill gate "
        "closed; volatility fails: mean-ablation, against matched_lag not measurable: no window has both. 40% of the "
        "flagged mass could be matched."
    ) in head


def test_a_head_without_a_label_is_told_its_largest_kappa_and_what_it_lacks():
    _, head = told(
        tables(
            row(0, 0, "weekly", 0.01, reason="raw: odds 1.1 under 2; norm: odds 1.1 under 2"),
            row(0, 0, SHORT, 0.07, reason="norm: odds 1.90 under 2"),
        )
    )
    assert head == (
        "Layer 0, head 0: no label. Largest kappa: large_move, 0.070 [0.050, 0.090]; no label: norm-weighted odds 1.90 "
        "under 2."
    )
    _, nothing = told(
        tables(row(0, 0, SHORT, float("nan"), reason="not measurable: no query has the bars it asks about"))
    )
    assert nothing == "Layer 0, head 0: no label. No probe could be asked."
    short = row(0, 0, "monthly", 0.4, reason="not measurable: windows of 20 bars, the probe needs 31")
    _, head = told(tables(row(0, 0, SHORT, 0.01, reason="raw: kappa 0.010 under 0.05"), short))
    assert "Largest kappa: large_move, 0.010" in head


def test_lags_have_the_peak_mean_age_and_half_mass():
    profiles = pd.DataFrame(
        [(0, 0, "raw", lag, mean, mean - 0.01, mean + 0.01) for lag, mean in enumerate((0.2, 0.5, 0.3, 0.0))]
        + [(None, None, "raw", 0, 0.9, 0.8, 1.0), (0, 0, "norm", 0, 0.99, 0.98, 1.0)],
        columns=["layer", "head", "weights", "lag", "mean", "low", "high"],
    )
    facts = pd.DataFrame(
        [(0, 0, "mean age", 1.12, 1.0, 1.3), (0, 0, "half-mass lag", 1.0, 1.0, 1.0), (0, 1, "mean age", 9.0, 8.0, 9.5)],
        columns=["layer", "head", "fact", "value", "low", "high"],
    )
    _, head = told(tables(row(0, 0, SHORT, 0.01), lag_profiles=profiles, head_facts=facts))
    assert (
        "By lag: most at lag 1 (0.500 [0.490, 0.510]; 0.250 if it were spread evenly), mean age 1.1 bars [1.0, 1.3], "
        "half of it within lag 1."
    ) in head


@pytest.mark.parametrize(
    ("mean", "zero", "sentence"),
    [
        (
            (0.0102, 0.006, 0.0143, 0.0089),
            0.0132,
            (
                "Without it the loss of volatility rises by 0.0102 [0.00600, 0.0143], 0.89 % of the skill; with zero "
                "in its place 0.0132."
            ),
        ),
        (
            (0.0102, 0.006, 0.0143, None),
            None,
            "Without it the loss of volatility rises by 0.0102 [0.00600, 0.0143].",
        ),
        (
            (-0.002, -0.003, -0.001, -0.01),
            None,
            "Without it the loss of volatility falls, by −0.00200 [−0.00300, −0.00100].",
        ),
        (
            (0.001, -0.003, 0.005, 0.01),
            0.002,
            (
                "That volatility loses anything without it is not shown (0.00100 [−0.00300, 0.00500]; with zero in its "
                "place 0.00200)."
            ),
        ),
        (
            (0.001, None, None, None),
            None,
            "Without it the loss of volatility changes by 0.00100: too few blocks to say more.",
        ),
    ],
)
def test_what_it_costs_to_lose(mean, zero, sentence):
    rows = [knockout(0, "volatility", "mean", *mean)]
    rows += [] if zero is None else [knockout(0, "volatility", "zero", zero)]
    _, head = told(tables(row(0, 0, SHORT, 0.01), knockouts=knocked(*rows)))
    assert head.endswith(sentence)


def test_a_closed_gate_says_that_nothing_can_be_said():
    rows = knocked(
        knockout(0, "return", "mean", 0.5, 0.4, 0.6), (None, None, "return", "group", 1.0, 0.5, 1.5, None, "w")
    )
    general, head = told(tables(row(0, 0, SHORT, 0.01), knockouts=rows))
    assert head.endswith("What it is worth for return can't be said: no skill there.")
    assert "0.5" not in head.split("under")[-1]
    assert f"{GATES[0]}. {GATES[1]}." in general


def test_the_heads_most_like_it_are_named():
    columns = ["kind", "layer", "head", "other_layer", "other_head", "probe", "target", "value", "low", "high"]
    redundancy = pd.DataFrame(
        [
            ("js", 0, 0, 0, 1, "", "", 0.30, None, None),
            ("js", 0, 0, 1, 0, "", "", 0.08, None, None),
            ("js", 0, 1, 1, 0, "", "", 0.50, None, None),
            ("cka", 0, 0, 0, 1, "", "", 0.70, None, None),
            ("cka", 0, 0, 1, 0, "", "", 0.20, None, None),
            ("group", None, None, None, None, "weekly", "return", 0.9, None, None),
        ],
        columns=columns,
    )
    made = tables(row(0, 0, SHORT, 0.01), row(0, 1, SHORT, 0.02), row(1, 0, SHORT, 0.03), redundancy=redundancy)
    general, *heads = told(made)
    assert heads[0].endswith(
        "Looks most like layer 1, head 0 (distance 0.080). Writes most like layer 0, head 1 (CKA 0.700)."
    )
    assert heads[1].endswith(
        "Looks most like layer 0, head 0 (distance 0.300). Writes most like layer 0, head 0 (CKA 0.700)."
    )
    assert "not measured" not in general


def test_changes_over_the_years_are_told_and_so_are_those_not_shown_and_not_tested():
    columns = ["layer", "head", "kind", "of", "p", "q", "words"]
    tests = pd.DataFrame(
        [
            (
                0,
                0,
                "rise",
                "return",
                0.001,
                0.004,
                "what return loses without the head: 0.1 before 1990-01, 0 from then on",
            ),
            (0, 0, "rise", "volume", 0.3, 0.5, "what volume loses without the head: no change shown (q 0.5)"),
            (0, 0, "kappa", SHORT, None, None, "kappa of large_move: not tested, too few blocks, 8 of at least 10"),
        ],
        columns=columns,
    )
    general, head = told(tables(row(0, 0, SHORT, 0.01), drift_tests=tests))
    assert head.endswith(
        "Over the years: what return loses without the head: 0.1 before 1990-01, 0 from then on. Over the years: kappa "
        "of large_move: not tested, too few blocks, 8 of at least 10. No change over the years is shown in rise of "
        "volume."
    )
    assert "over the years was not tested" not in general


def test_what_can_not_be_said_of_any_head_is_said_once():
    monthly = row(0, 0, "monthly", float("nan"), reason="not measurable: windows of 20 bars, the probe needs 31")
    few = row(0, 0, "trend_origin", 0.1, reason="too few to say: 6 blocks of dates of at least 10; 2 symbols too short")
    general, _ = told(tables(row(0, 0, SHORT, 0.01, reason="raw: kappa"), monthly, few))
    assert "monthly can't be judged: not measurable: windows of 20 bars, the probe needs 31." in general
    assert "trend_origin can't be judged: too few to say: 6 blocks of dates of at least 10." in general
    assert "large_move can't be judged" not in general
    for sentence in (
        "Not compared with untrained networks.",
        "Not held against networks trained on shuffled targets (probes=strict): those may have such patterns too.",
        "What heads cost to lose was not tested.",
        "Whether they change over the years was not tested (probes.drift=true).",
        "Whether one does what another does was not measured.",
    ):
        assert sentence in general


def test_nulls_that_were_run_are_counted():
    nulls = pd.DataFrame(
        [("random", 0, SHORT, "raw", 0.1), ("random", 1, SHORT, "raw", 0.1), ("noise", 0, SHORT, "raw", 0.2)],
        columns=["null", "seed", "probe", "weights", "kappa"],
    )
    general, _ = told(tables(row(0, 0, SHORT, 0.01), head_nulls=nulls))
    assert "Compared with 2 untrained networks." in general
    assert (
        "A pattern had to be above the 95th percentile of the largest kappas of 1 network trained on shuffled targets."
    ) in general


def test_a_noise_null_that_was_asked_for_and_left_out_is_told_once():
    why = "Not held against networks trained on shuffled targets: the training part has 3 blocks"
    general, _ = told(tables(row(0, 0, SHORT, 0.01)), {"gates": [*GATES, why]})
    assert general.count("Not held against networks trained on shuffled targets") == 1
    assert f"{why}." in general


def test_inner_queries_and_later_bars_are_left_out():
    inner = [{**one, "stratum": "inner"} for one in row(0, 0, SHORT, 0.9)]
    ahead = [{**one, "stratum": "last", "direction": "future"} for one in row(0, 0, "recency", 0.9)]
    _, head = told(tables(inner, ahead, row(0, 0, "weekly", 0.02, reason="raw: so")))
    assert "Largest kappa: weekly, 0.020" in head
