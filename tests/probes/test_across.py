import numpy as np
import pandas as pd
import pytest

from forecaster.probes.across import Heads, matched, read, roles, weeks

L = 32


def bump(lag: int, share: float = 0.5) -> np.ndarray:
    profile = np.full(L, (1 - share) / L)
    profile[lag] += share
    return profile


def heads(profiles: list[np.ndarray], labels: list[dict[str, str]], layers: list[int] | None = None) -> Heads:
    kappa = np.array([[float(name in own) for name in ("weekly", "large_move")] for own in labels])
    return Heads(np.array(layers or [0] * len(profiles)), np.stack(profiles), kappa, tuple(labels), 5)


def test_heads_are_matched_by_what_they_do_whatever_their_numbers():
    nothing: list[dict[str, str]] = [{}, {}, {}]
    one = heads([bump(4), bump(9), bump(20)], nothing)
    other = heads([bump(20), bump(4), bump(9)], nothing)
    assert matched(one, other).tolist() == [1, 2, 0]
    assert matched(other, one).tolist() == [2, 0, 1]


def test_heads_of_equal_profiles_are_matched_by_their_masks():
    one = heads([bump(4), bump(4)], [{"large_move": "pattern"}, {}])
    other = heads([bump(4), bump(4)], [{}, {"large_move": "pattern"}])
    assert matched(one, other).tolist() == [1, 0]


def test_heads_are_matched_within_their_layer_only():
    one = heads([bump(4), bump(9)], [{}, {}], [0, 1])
    other = heads([bump(9), bump(4)], [{}, {}], [0, 1])
    assert matched(one, other).tolist() == [0, 1]


def test_a_role_is_stable_when_matched_heads_have_it_again():
    """Seed 0: heads 0, 1 are functional; seed 1: the match of head 0 is functional, that of head 1 a pattern; seed 2:
    none. Patterns: 2 + 2 labelled heads, each asked in two other seeds: 8 times, 4 of them again."""
    weekly, pattern = {"weekly": "functional"}, {"weekly": "pattern"}
    runs = [
        heads([bump(4), bump(9), bump(20), bump(25)], [weekly, weekly, {}, {}]),
        heads([bump(9), bump(4), bump(25), bump(20)], [pattern, weekly, {}, {}]),
        heads([bump(4), bump(9), bump(20), bump(25)], [{}, {}, {}, {}]),
    ]
    table = roles(runs).set_index("label")
    row = table.loc["pattern"]
    assert (row["seeds"], row["with"]) == (3, 2)
    assert row["heads"] == pytest.approx(4 / 3)
    assert row["again"] == pytest.approx(0.5)
    assert row["by_chance"] == pytest.approx(8 / 8 * (0.5 + 0.0) / 2)
    row = table.loc["functional"]
    # Seed 0's two are asked in seed 1 (one again) and in seed 2; seed 1's one in seed 0 (again) and in seed 2.
    assert row["again"] == pytest.approx(2 / 6)


def test_a_role_that_no_seed_has_is_no_row():
    assert roles([heads([bump(4)], [{}]), heads([bump(4)], [{}])]).empty


@pytest.mark.parametrize(("seeds", "verdict"), [(4, "too few seeds: 4 of 5"), (5, "weekly_target")])
def test_a_recipe_is_weekly_when_its_heads_peak_there_over_enough_seeds(seeds, verdict):
    runs = [heads([bump(4), bump(4), bump(12), bump(30)], [{}] * 4) for _ in range(seeds)]
    table = weeks(runs).set_index(["is", "lag"])
    row = table.loc[("weekly_target", 4)]
    assert (row["heads"], row["verdict"]) == (2, verdict)
    # Placebo lags 7, 12, 17, 22, 27: one head of a seed peaks at 12.
    assert row["difference"] == pytest.approx(2 - 1 / 5)
    assert table.loc[("placebo", 12), "heads"] == 1
    assert table.loc[("weekly", 5), "heads"] == 0
    assert table.loc[("weekly", 5), "verdict"] == ("none" if seeds == 5 else verdict)


def test_a_recipe_is_not_weekly_when_a_placebo_has_as_many_heads():
    runs = [heads([bump(4), bump(12), bump(30)], [{}] * 3) for _ in range(5)]
    assert weeks(runs).set_index("is").loc["weekly_target", "verdict"] == "none"


def test_windows_shorter_than_a_week_have_no_weekly_claim():
    short = Heads(np.zeros(1, dtype=int), np.full((1, 5), 0.2), np.zeros((1, 2)), ({},), 5)
    assert weeks([short, short]).empty


def test_tables_of_a_run_are_read_whatever_is_not_measurable():
    rows = [
        (0, head, probe, stratum, "past", weights, kappa, label)
        for head, label in ((0, "functional"), (1, "none"))
        for probe, kappa in (("weekly", "" if head else "0.5"), ("large_move", "not measurable"))
        for stratum in ("last", "inner")
        for weights in ("raw", "norm")
    ]
    table = pd.DataFrame(rows, columns=["layer", "head", "probe", "stratum", "direction", "weights", "kappa", "label"])
    profile = [(0, head, "raw", lag, 0.25 + head / 10) for head in (1, 0) for lag in range(4)]
    untrained = [(0, None, "raw", lag, 0.9) for lag in range(4)]
    profiles = pd.DataFrame(profile + untrained, columns=["layer", "head", "weights", "lag", "mean"])
    found = read(table, profiles, 5)
    np.testing.assert_allclose(found.profile_HL, [[0.25] * 4, [0.35] * 4])
    np.testing.assert_array_equal(found.kappa_HP[1], 0.0)
    assert found.kappa_HP[0].max() == 0.5
    assert found.labels == ({"weekly": "functional", "large_move": "functional"}, {})
