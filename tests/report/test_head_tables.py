from collections.abc import Callable
from typing import Any

import pandas as pd

from forecaster.report.head_tables import closest_heads, label_counts, labelled_heads, unmeasured

Fabricate = Callable[..., Any]


def test_labelled_heads_stand_with_both_weightings_and_the_reason(fabricate: Fabricate) -> None:
    table = labelled_heads(fabricate().tables["heads"])
    assert table is not None
    assert [[cell.text for cell in row[:3]] for row in table.rows] == [
        ["layer 0, head 0", "large_move", "0.080"],
        ["layer 1, head 2", "recency", "0.360"],
    ]
    functional = table.rows[1]
    assert functional[3].text == "0.324"
    assert functional[2].note == "[0.340, 0.380]"
    assert (functional[7].text, functional[7].tone, functional[8].text) == ("functional", "functional", "volatility")
    assert "mean-ablation +0.02" in functional[9].text


def test_the_counts_tell_functional_heads_from_mere_patterns(fabricate: Fabricate) -> None:
    heads = fabricate().tables["heads"]
    assert label_counts(heads).startswith("2 of 16 heads carry a label: 1 functional (")
    none = heads.assign(label="none")
    assert label_counts(none) == "None of the 16 heads earned a label."
    few = none.assign(reason="too few to say: 9 blocks of dates of at least 10; 2 symbols too short")
    rare = few["probe"] == "volume_spike"
    few.loc[rare, "reason"] = "too few to say: 4 blocks of dates of at least 10"
    few.loc[few["probe"] == "monthly", "reason"] = "not measurable: no query has the bars it asks about"
    inner = few.assign(stratum="inner", reason="reported only: labels are given on the last bar's query")
    assert label_counts(pd.concat([few, inner])) == "No head could be judged: 9 blocks of dates, 10 are needed."
    few.loc[rare, "reason"] = "raw: kappa 0.010 under 0.05"
    assert label_counts(few) == "None of the 16 heads earned a label."
    unasked = none.assign(reason="not measurable: no query has the bars it asks about")
    assert label_counts(unasked) == "No head could be judged: no probe is measurable."


def test_of_probes_without_a_label_the_closest_head_says_what_it_failed(fabricate: Fabricate) -> None:
    heads = fabricate().tables["heads"]
    fold = closest_heads(heads)
    assert fold is not None
    rows = {row[1].text: row for row in fold.tables[0].rows}
    assert list(rows) == ["weekly", "weekly_target", "volume_spike"]
    weekly = heads.query("probe == 'weekly' and weights == 'raw'")
    best = weekly.loc[weekly["kappa"].idxmax()]
    assert rows["weekly"][0].text == f"layer {best['layer']}, head {best['head']}"
    assert rows["weekly"][9].text == best["reason"]


def test_a_probe_without_a_number_is_said_to_have_none(fabricate: Fabricate) -> None:
    heads = fabricate().tables["heads"]
    assert unmeasured(heads) == ["monthly has no score: not measurable: no query has the bars it asks about."]
    assert unmeasured(heads[heads["probe"] == "recency"].assign(kappa="too few", reason="")) == [
        "recency has no score: too few."
    ]


def test_without_a_label_there_is_no_table(fabricate: Fabricate) -> None:
    heads = fabricate().tables["heads"].assign(label="none")
    assert labelled_heads(heads) is None
    assert closest_heads(heads.iloc[:0]) is None
