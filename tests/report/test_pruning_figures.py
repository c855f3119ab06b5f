from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from forecaster.probes.pruning import PRUNING_COLUMNS
from forecaster.probes.redundancy import REDUNDANCY_COLUMNS
from forecaster.report.page import page
from forecaster.report.pruning_figures import LEGIBLE, pruning_curve, redundancy_matrix
from forecaster.report.pruning_tables import TOO_FEW, UNDEFINED, group_redundancy


def curve(heads: int = 4) -> pd.DataFrame:
    """return: no skill. volume: losses that grow with what is gone, faster for later random orders."""
    rows = []
    orders = [("importance", None, 1.0), ("gradient", None, 2.0), ("stable_rank", None, 3.0)]
    for name, seed, pace in [*orders, *(("random", seed, 2.0 + seed) for seed in range(3))]:
        for part in ("test",) if name == "random" else ("validation", "test"):
            for gone in range(heads + 1):
                for target, skill in (("return", np.nan), ("volume", 0.5)):
                    rise = 0.01 * pace * gone
                    told = (
                        1.0 + rise,
                        rise,
                        rise - 0.01,
                        rise + 0.01,
                        rise / skill,
                        f"L0H{gone - 1}" if gone else None,
                    )
                    rows.append((name, seed, gone, gone / heads, part, target, *told))
    return pd.DataFrame(rows, columns=list(PRUNING_COLUMNS))


def pairs(heads: int, kinds: tuple[str, ...] = ("js", "cka")) -> pd.DataFrame:
    """Heads h and h + 2 are alike, whatever else."""
    rows = []
    for kind in kinds:
        for i in range(heads):
            for j in range(i + 1, heads):
                far = 0.1 if (j - i) % 2 == 0 else 0.8
                value = far if kind == "js" else 1 - far
                rows.append((kind, i // 3, i % 3, j // 3, j % 3, None, None, value, value - 0.05, value + 0.05))
    rows += [
        ("group", None, None, None, None, "weekly", "volume", 0.4, 0.3, 0.5),
        ("group", 1, None, None, None, None, "volume", np.nan, np.nan, np.nan),
    ]
    return pd.DataFrame(rows, columns=list(REDUNDANCY_COLUMNS))


def test_the_curve_has_a_panel_per_target_three_orders_and_the_band_of_random_ones() -> None:
    figure: Any = pruning_curve(curve())
    assert [note.text for note in figure.layout.annotations] == ["<b>return</b>", "<b>volume</b>"]
    assert figure.layout.yaxis.title.text == "rise in loss (no skill)"
    assert figure.layout.yaxis2.title.text == "share of skill lost"
    of_volume = [trace for trace in figure.data if trace.yaxis == "y2"]
    low, high, median, *lines, bound = of_volume
    assert list(low.y) == pytest.approx([0.04 * gone for gone in range(5)])
    assert list(median.y) == pytest.approx([0.06 * gone for gone in range(5)])
    assert list(high.y) == pytest.approx([0.08 * gone for gone in range(5)])
    assert list(low.x) == pytest.approx([0, 0.25, 0.5, 0.75, 1])
    assert [trace.name for trace in lines] == ["by importance", "by gradient", "by stable rank"]
    assert list(lines[0].y) == pytest.approx([0.02 * gone for gone in range(5)])
    assert list(bound.y) == [0.01, 0.01]
    assert len([trace for trace in figure.data if trace.yaxis == "y"]) == 6  # a target without skill has no bound
    assert sum(trace.showlegend for trace in figure.data if trace.name) == 4
    assert pruning_curve(curve().iloc[:0]) is None


def test_the_matrix_puts_heads_that_are_alike_beside_each_other_under_their_tree() -> None:
    found = pairs(6)
    figure: Any = redundancy_matrix(found)
    cells, links, *_ = figure.data
    names = list(figure.layout.xaxis2.ticktext)
    assert {frozenset(names[:3]), frozenset(names[3:])} == {
        frozenset({"L0 H0", "L0 H2", "L1 H1"}),
        frozenset({"L0 H1", "L1 H0", "L1 H2"}),
    }
    z = np.array(cells.z, dtype=float)
    np.testing.assert_allclose(z, np.kron(np.eye(2), np.full((3, 3), -0.7)) + 0.8 - 0.1 * np.eye(6), atol=1e-12)
    assert links.xaxis == "x"
    assert max(y for y in links.y if y == y) == pytest.approx(0.8)
    (menu,) = figure.layout.updatemenus
    assert len(menu.buttons) == 2
    assert set(menu.buttons[1].args[1]["xaxis2.ticktext"]) == set(names)


def test_many_heads_are_drawn_without_names_and_few_not_at_all() -> None:
    figure: Any = redundancy_matrix(pairs(LEGIBLE + 1, ("cka",)))
    assert list(figure.layout.xaxis2.ticktext) == []
    assert figure.data[0].texttemplate == ""
    assert redundancy_matrix(pairs(2)) is None


def test_a_pair_without_a_number_counts_as_not_alike_and_stays_empty() -> None:
    found = pairs(4, ("cka",))
    found.loc[0, ["value", "low", "high"]] = np.nan
    figure: Any = redundancy_matrix(found)
    assert sum(value is None for line in figure.data[0].z for value in line) == 2


def test_groups_are_told_with_their_interval_or_why_there_is_none() -> None:
    [table] = group_redundancy(pairs(4))
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["weekly", "volume", "0.40"],
        ["layer 1", "volume", "–"],
    ]
    assert [row[2].note for row in table.rows] == ["[0.30, 0.50]", UNDEFINED]
    assert group_redundancy(pairs(4).query("kind == 'js'")) == []
    for low, why in ((np.nan, TOO_FEW), (-0.1, UNDEFINED)):
        [table] = group_redundancy(pairs(4), pd.DataFrame({"rise": [0.1, 0.2], "low": [np.nan, low]}))
        assert table.rows[1][2].note == why


def test_the_page_shows_both_where_the_run_has_the_tables(fabricate: Callable[..., Any]) -> None:
    made = fabricate()
    made.tables |= {"pruning": curve(), "redundancy": pairs(5)}
    text = page(made.tables, {**made.summary, "pruning": ["3 of 4 heads can go"]})
    for words in ("3 of 4 heads can go", "Pruning curve", "Which heads do the same", "Redundancy of groups"):
        assert words in text
    for name in ("pruning", "redundancy"):
        del made.tables[name]
    assert "Pruning curve" not in page(made.tables, made.summary)
