"""The whole of it on a network whose weights are set by hand: its first head reads the bar a week before the target."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from forecaster.bars import planted
from forecaster.errors import ConfigError
from forecaster.probes.capture import Look, looks
from forecaster.probes.heads import FACT_COLUMNS, HEAD_COLUMNS, KNOCKOUT_COLUMNS, PROFILE_COLUMNS, Probed, probe
from forecaster.probes.masks import Mask, Probe, large_move
from forecaster.windows.panel import build
from forecaster.windows.splits import split
from weekly_reader import LAG, LENGTH, reader


def probed(kind: str, length: int = LENGTH, further: tuple[Probe, ...] = (), bars: int = 2500) -> Probed:
    panel = build(planted.load(kind, bars, seed=1), ("return",), 1)
    parts = split(panel, length, 0.7, 0.85)
    return probe(reader(panel, parts, length), panel, parts, length, further=further)


@pytest.fixture(scope="module")
def weekly() -> Probed:
    return probed("weekly")


def label(found: Probed, layer: int, head: int, name: str) -> pd.Series:
    rows = found.heads
    return rows[
        (rows["layer"] == layer) & (rows["head"] == head) & (rows["probe"] == name) & (rows["stratum"] == "last")
    ].iloc[0]


def test_the_head_that_reads_a_week_before_the_target_is_functional_and_no_other_is(weekly):
    row = label(weekly, 0, 0, "weekly_target")
    assert (row["label"], row["targets"]) == ("functional", "return")
    assert row["kappa"] > 0.7
    assert "functional: return passes: mean-ablation +" in row["reason"]
    labelled = weekly.heads[weekly.heads["label"] != "none"]
    assert set(zip(labelled["layer"], labelled["head"], labelled["probe"], strict=True)) == {(0, 0, "weekly_target")}


def test_the_same_head_is_only_a_pattern_when_there_is_nothing_to_forecast():
    found = probed("noise")
    row = label(found, 0, 0, "weekly_target")
    assert row["label"] == "pattern"
    assert "not functional: return fails: skill gate closed" in row["reason"]
    assert found.gates[0].startswith("return: no skill")
    assert found.knockouts["skill_share"].isna().all()
    assert not (found.heads["label"] == "functional").any()


def test_tables_have_the_columns_and_rows_of_the_run_directory(weekly):
    tables = {
        HEAD_COLUMNS: weekly.heads,
        FACT_COLUMNS: weekly.head_facts,
        KNOCKOUT_COLUMNS: weekly.knockouts,
        PROFILE_COLUMNS: weekly.lag_profiles,
    }
    for columns, table in tables.items():
        assert tuple(table.columns) == columns
    rows = weekly.heads
    assert not rows.duplicated(["layer", "head", "probe", "stratum", "direction", "weights"]).any()
    last = rows[rows["stratum"] == "last"]
    assert len(last) == 2 * 2 * 7 * 2  # layers, heads, probes, weightings
    assert set(last["direction"]) == {"past"}
    inner = rows[rows["stratum"] == "inner"]
    assert set(inner["layer"]) == {0}
    assert len(inner) == 2 * 2 * (7 + 3)  # only recency, weekly and large moves also ahead
    assert set(inner["label"]) == {"none"}
    assert not weekly.knockouts.duplicated(["layer", "head", "target", "kind", "probe"]).any()
    assert len(weekly.lag_profiles) == 2 * 2 * 2 * LENGTH


def test_knockouts_hold_every_head_and_the_pattern_s_bars(weekly):
    rows = weekly.knockouts
    kinds = rows.groupby("kind").size().to_dict()
    assert kinds == {"mean": 4, "zero": 4, "flagged": 1, "matched_mass": 1, "group": 1}
    by_kind = rows[(rows["layer"] == 0) & (rows["head"] == 0)].set_index("kind")
    assert by_kind.loc["mean", "low"] > 0
    assert by_kind.loc["mean", "skill_share"] == pytest.approx(1, abs=0.2)
    assert by_kind.loc["flagged", "low"] > by_kind.loc["matched_mass", "high"]
    idle = rows[(rows["layer"] == 1) & (rows["kind"] == "mean")]
    np.testing.assert_array_equal(idle["rise"], 0.0)
    group = rows[rows["kind"] == "group"].iloc[0]
    assert group["rise"] == by_kind.loc["mean", "rise"]
    assert (pd.isna(group["layer"]), group["probe"]) == (True, "weekly_target")


def test_a_head_that_adds_nothing_has_no_norm_weighted_figures(weekly):
    row = label(weekly, 1, 0, "recency")
    assert row["reason"].endswith("norm: kappa undefined")
    norm = weekly.heads[(weekly.heads["layer"] == 1) & (weekly.heads["weights"] == "norm")]
    assert norm["kappa"].isna().all()


def test_facts_describe_the_last_bar_s_query(weekly):
    facts = weekly.head_facts[(weekly.head_facts["layer"] == 0) & (weekly.head_facts["head"] == 0)].set_index("fact")
    assert facts.loc["half-mass lag", "value"] == LAG
    assert facts.loc["mean age", "value"] == pytest.approx(LAG, abs=0.5)
    assert facts.loc["mass on itself", "high"] < 0.05
    assert facts.loc["weekly_target comb", "value"] > facts.loc["weekly_target 2 weeks", "value"]
    whole = weekly.head_facts[weekly.head_facts["layer"].isna()].set_index("fact")["value"]
    assert whole["weekly_target queries dropped"] > 0
    assert whole["recency queries dropped"] == 0


def test_weekly_probes_are_not_measurable_when_windows_are_no_longer_than_a_week():
    found = probed("weekly", length=5, bars=600)
    for name in ("weekly", "weekly_target"):
        rows = found.heads[found.heads["probe"] == name]
        assert rows[["kappa", "low", "high", "chance", "odds"]].isna().all(axis=None)
        assert label(found, 0, 0, name)["reason"] == "not measurable: windows of 5 bars, the probe needs 31"


def test_one_head_of_one_layer_is_probed_alone(small_task, garch):
    parts = split(garch, 12, 0.7, 0.85)
    found = probe(small_task(garch, 12, layers=1, heads=1), garch, parts, 12)
    assert found.heads["head"].unique().tolist() == [0]
    assert set(found.heads["stratum"]) == {"last"}
    assert set(found.knockouts["target"]) == {"return", "volatility"}


def test_nothing_is_found_when_the_series_is_constant(small_task, garch):
    flat = replace(garch, features=np.zeros_like(garch.features), targets=np.zeros_like(garch.targets))
    found = probe(small_task(garch, 12), flat, split(garch, 12, 0.7, 0.85), 12)
    moves = found.heads[found.heads["probe"] == "large_move"]
    assert moves["kappa"].isna().all()
    last = moves[moves["stratum"] == "last"]
    assert set(last["reason"]) == {"not measurable: no query has the bars it asks about"}
    assert not (found.heads["label"] == "functional").any()


def test_figures_are_the_same_whatever_the_batch(small_task, garch, monkeypatch):
    parts, task = split(garch, 12, 0.7, 0.85), small_task(garch, 12)
    whole = probe(task, garch, parts, 12)
    monkeypatch.setattr("forecaster.probes.capture.batches.__defaults__", (100,))
    monkeypatch.setattr("forecaster.probes.capture.looks.__defaults__", (100,))
    parted = probe(task, garch, parts, 12)
    for column in ("kappa", "low", "high", "chance", "p", "q", "partial_mass"):
        np.testing.assert_allclose(parted.heads[column], whole.heads[column], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(parted.heads["odds"], whole.heads["odds"], rtol=1e-6, atol=1e-6)
    same = ["layer", "head", "probe", "stratum", "direction", "weights", "label", "targets"]
    pd.testing.assert_frame_equal(parted.heads[same], whole.heads[same])
    np.testing.assert_allclose(parted.knockouts["rise"], whole.knockouts["rise"], rtol=1e-5, atol=1e-6)


def test_figures_are_the_same_whatever_the_chunks_of_captured_attention(small_task, garch, monkeypatch):
    """The same attention, handed over in pieces of other sizes: everything but rounding of the sums is equal."""
    parts, task = split(garch, 12, 0.7, 0.85), small_task(garch, 12)
    whole = probe(task, garch, parts, 12, causal=False)

    def in_pieces(*arguments, last_only=False, every=None, **options):
        captured = list(looks(*arguments, last_only=last_only, every=every, **options))
        windows = int(max(look.window_n[-1] for look in captured)) + 1
        for first, end in itertools.pairwise((0, 1, 7, 100, 413, windows)):
            for kind in dict.fromkeys((look.layer, look.stratum, look.queries.direction) for look in captured):
                own = [look for look in captured if (look.layer, look.stratum, look.queries.direction) == kind]
                yield part_of(own, first, end)

    monkeypatch.setattr("forecaster.probes.survey.looks", in_pieces)
    parted = probe(task, garch, parts, 12, causal=False)
    numbers = ["kappa", "low", "high", "chance", "odds", "p", "q", "partial_mass"]
    np.testing.assert_allclose(parted.heads[numbers], whole.heads[numbers], rtol=1e-9, atol=1e-12)
    words = [name for name in whole.heads if name not in numbers]
    pd.testing.assert_frame_equal(parted.heads[words], whole.heads[words])


def part_of(captured: list[Look], first: int, end: int) -> Look:
    """What the looks of one kind hold of the windows first .. end - 1, as one."""
    queries = [look.queries for look in captured]
    window_n = np.concatenate([look.window_n for look in captured])
    chosen = (window_n >= first) & (window_n < end)

    def joined(arrays: list[np.ndarray]) -> np.ndarray:
        return np.concatenate(arrays)[chosen]

    return replace(
        captured[0],
        queries=replace(
            queries[0],
            rows=joined([one.rows for one in queries]),
            reach=joined([one.reach for one in queries]),
            visible=joined([one.visible for one in queries]),
        ),
        window_n=window_n[chosen],
        raw_nNL=joined([look.raw_nNL for look in captured]),
        norm_nNL=joined([look.norm_nNL for look in captured]),
    )


@pytest.mark.parametrize(("length", "needed"), [(28, 31), (16, 31)])
def test_a_probe_that_can_not_be_asked_gives_no_figure(small_task, garch, length, needed):
    found = probe(small_task(garch, length), garch, split(garch, length, 0.7, 0.85), length, causal=False)
    for name in ("weekly", "weekly_target", "monthly"):
        rows = found.heads.query(f"probe == '{name}' and stratum == 'last'")
        assert (
            rows["reason"].str.startswith(f"not measurable: windows of {length} bars, the probe needs {needed}").all()
        )
        assert rows[["kappa", "low", "high", "chance", "odds", "p", "q"]].isna().all(axis=None)


def test_too_few_months_are_told(small_task, garch):
    parts = split(garch, 32, 0.7, 0.85)
    found = probe(small_task(garch, 32), garch, parts, 32, causal=False)
    rows = found.heads.query("probe == 'monthly' and stratum == 'last'")
    months = len(np.unique(garch.times[np.concatenate((parts.validation, parts.test))].astype("datetime64[M]")))
    assert set(rows["reason"]) == {f"not measurable: {months} months of validation and test, the probe needs 30"}


def test_odds_without_bound_are_an_empty_cell_with_a_word(small_task, garch):
    """Attention on one lag alone: all of it is on those bars."""
    task = small_task(garch, 32, positions="lag")
    with torch.no_grad():
        bias = task.headed.attention(0).relative
        bias.table_NR[:, bias.ahead + 1] = 500.0
    found = probe(task, garch, split(garch, 32, 0.7, 0.85), 32, causal=False)
    rows = found.heads.query("probe == 'recency' and layer == 0 and stratum == 'last'")
    assert rows["odds"].isna().all()
    assert (rows["kappa"] > 0.99).all()
    assert rows["reason"].str.contains("odds without bound").all()


def test_a_probe_of_one_s_own_may_not_take_a_name_that_is_taken(small_task, garch):
    own = Probe("large_move", "profile", lambda panel, queries: large_move().at(panel, queries))
    with pytest.raises(ConfigError) as caught:
        probe(small_task(garch, 12), garch, split(garch, 12, 0.7, 0.85), 12, further=(own,))
    assert str(caught.value) == "probe large_move is there 2 times: give each probe of your own another name"


def test_progress_is_told(small_task, garch):
    told: list[str] = []
    probe(small_task(garch, 12, layers=1), garch, split(garch, 12, 0.7, 0.85), 12, progress=told.append)
    assert told[0] == "attention of windows 1 to 896 of 896"
    assert told[-2:] == ["knockout of the flagged bars of 0 patterns", "redundancy of the heads"]


def test_two_probings_give_the_same_bytes(weekly):
    again = probed("weekly")
    for name in ("heads", "head_facts", "knockouts", "lag_profiles"):
        assert getattr(again, name).to_csv() == getattr(weekly, name).to_csv()


def test_a_probe_of_ones_own_is_judged_like_the_others():
    def third(panel, queries):
        return Mask(
            np.broadcast_to(np.arange(queries.span) == LAG, (len(queries.rows), queries.span)).copy(),
            queries.reach > LAG,
        )

    found = probed("weekly", further=(Probe("third", "neighbours", third),))
    assert label(found, 0, 0, "third")["label"] == "functional"


def test_one_window_is_too_few_to_say_anything(small_task, garch):
    whole = split(garch, 12, 0.7, 0.85)
    parts = replace(whole, validation=whole.validation[:1], test=whole.test[:1])
    found = probe(small_task(garch, 12), garch, parts, 12)
    assert set(found.heads["label"]) == {"none"}
    last = found.heads[found.heads["stratum"] == "last"]
    told = last["reason"].str.replace(r"\d+", "N", regex=True)
    assert set(told) == {
        "too few to say: N block of dates of at least N",
        "too few to say: N block of dates of at least N; N symbols too short for the shift null",
        "not measurable: windows of N bars, the probe needs N",
        "not measurable: no query has the bars it asks about",
    }
    assert found.heads["low"].isna().all()
    assert found.knockouts["rise"].notna().all()
    assert found.knockouts["skill_share"].isna().all()
    assert all("no head is" in gate for gate in found.gates)


def test_heads_that_are_all_alike_have_all_the_same_figures(small_task, garch):
    task = small_task(garch, 12)
    with torch.no_grad():
        for block in task.network.blocks:
            for part in (block.attention.query, block.attention.key, block.attention.value):
                part.weight.copy_(part.weight[:5].repeat(4, 1))
                part.bias.copy_(part.bias[:5].repeat(4))
            block.attention.output.weight.copy_(block.attention.output.weight[:, :5].repeat(1, 4))
    found = probe(task, garch, split(garch, 12, 0.7, 0.85), 12)
    of_head = ["layer", "probe", "stratum", "direction", "weights"]
    kappas = found.heads.groupby(of_head)[["kappa", "p", "partial_mass"]]
    rises = found.knockouts.dropna(subset="head").groupby(["layer", "target", "kind"])[["rise"]]
    for groups in (kappas, rises):
        assert ((groups.max() - groups.min()).fillna(0.0) < 1e-6).all(axis=None)


def test_every_query_of_the_lower_layers_has_its_facts(weekly):
    facts = weekly.head_facts[weekly.head_facts["fact"] == "mean lag of all queries"]
    assert facts[["layer", "head"]].to_numpy().tolist() == [[0, 0], [0, 1]]
    assert facts["low"].isna().all()


def test_partial_mass_is_said_of_content_probes_alone(weekly):
    content = weekly.heads["probe"].isin(["large_move", "volume_spike", "trend_origin"])
    assert weekly.heads.loc[~content, "partial_mass"].isna().all()
    assert weekly.heads.loc[content & (weekly.heads["probe"] == "large_move"), "partial_mass"].notna().any()
    said = weekly.head_facts["fact"][weekly.head_facts["fact"].str.endswith("partial mass")]
    assert set(said) <= {f"{name} partial mass" for name in ("large_move", "volume_spike", "trend_origin")}
