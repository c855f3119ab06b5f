"""Heads over time as pictures and tables, from tables made by hand."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from forecaster.report.drift_figures import DRAWN_HEADS, STRIP_COLUMNS, roles, strip
from forecaster.report.head_tables import changes_table
from forecaster.report.page import page
from forecaster.report.tables import Fold

PERIODS = [("2010", "train"), ("2011", "train"), ("2012", "train"), ("2012", "validation"), ("2013", "test")]


def drifted(heads: int = 3) -> pd.DataFrame:
    """kappa of large_move = .1 head + .01 place, rise of return its negative."""
    rows = [
        (0, head, kind, of, period, part, sign * (0.1 * head + 0.01 * place), -1.0, 1.0, 250)
        for kind, of, sign in (("kappa", "large_move", 1), ("kappa", "weekly", 1), ("rise", "return", -1))
        for head in range(heads)
        for place, (period, part) in enumerate(PERIODS)
    ]
    columns = ["layer", "head", "kind", "of", "period", "part", "value", "low", "high", "windows"]
    return pd.DataFrame(rows, columns=columns)


def claims(heads: int = 3) -> pd.DataFrame:
    """Head 1's rise changes in 2011 (training), head 2's in 2013 (held out); the kappa of head 0 does not."""
    columns = [
        "layer",
        "head",
        "kind",
        "of",
        "part",
        "change",
        "earliest",
        "latest",
        "before",
        "after",
        "p",
        "q",
        "words",
    ]
    rows = [
        (0, 0, "kappa", "large_move", "train", "2011-05-02", "2010-02-01", "2012-01-01", 0.1, 0.1, 0.4, 0.6, "none")
    ]
    for head in range(heads):
        q = 0.01 if head in (1, 2) else 0.9
        part, day = ("train", "2011-03-04") if head == 1 else ("held out", "2013-02-03")
        rows.append((0, head, "rise", "return", part, day, day, day, 0.2, 0.0, q / 2, q, f"changes <{head}>"))
    rows.append((1, 0, "rise", "return", None, None, None, None, None, None, None, None, "not tested, too few blocks"))
    return pd.DataFrame(rows, columns=columns)


def distances(days: int = 900, heads: int = 3) -> pd.DataFrame:
    """Head h lies h apart, and 1 more on the last third of the days."""
    times = pd.bdate_range("2010-01-04", periods=days).strftime("%Y-%m-%d").to_numpy()
    late = (np.arange(days) >= 2 * days // 3).astype(float)
    own = [
        pd.DataFrame({"time": times, "layer": 0, "head": h, "value": 0.1 * h + 0.01 * h * late}) for h in range(heads)
    ]
    every = pd.DataFrame({"time": times, "layer": None, "head": None, "value": 0.5})
    return pd.concat([every, *own], ignore_index=True)


def closes() -> pd.DataFrame:
    days = pd.bdate_range("2009-06-01", periods=1200)
    return pd.concat(
        [
            pd.DataFrame({"symbol": name, "time": days, "close": first * np.arange(1, 1201)})
            for name, first in (("A", 5.0), ("B<", 7.0))
        ]
    )


def views(figure: Any) -> list[str]:
    return [button.label for button in figure.layout.updatemenus[0].buttons]


def test_there_is_a_view_for_what_was_tested_and_each_value_stands_at_its_head_and_period() -> None:
    figure = roles(drifted(), claims())
    assert views(figure) == ["kappa of large_move", "return: rise of the loss without the head"]
    heat, ring, other, rings = figure.data
    assert {(x, y): round(float(z), 3) for x, y, z in zip(heat.x, heat.y, heat.z, strict=True)} == {
        (place, head): round(0.1 * head + 0.01 * place, 3) for head in range(3) for place in range(5)
    }
    assert not ring.x
    assert other.zmax == pytest.approx(0.24)
    assert other.zmin == -other.zmax
    assert (list(rings.x), list(rings.y)) == ([1, 4], [1, 2])
    assert rings.hovertext[0] == "L0 H1, changes &lt;1&gt;"
    assert [shape.x0 for shape in figure.layout.shapes] == [2.5, 3.5]
    assert list(figure.layout.xaxis.ticktext) == ["2010", "2011", "2012", "2012", "2013"]


def test_of_many_heads_those_with_the_smallest_p_are_drawn() -> None:
    figure = roles(drifted(40), claims(40))
    shown = figure.layout.updatemenus[0].buttons[1].args[1]["yaxis.ticktext"]
    assert len(shown) == DRAWN_HEADS
    assert {"L0 H1", "L0 H2"} <= set(shown)


def test_without_a_test_there_is_no_picture_of_roles() -> None:
    assert roles(drifted(), claims().iloc[:0]) is None


def test_the_strip_shows_what_is_unusual_for_each_head_under_the_price() -> None:
    figure = strip(distances(), closes())
    heat, *lines = figure.data
    assert list(heat.y) == ["all heads", "L0 H0", "L0 H1", "L0 H2"]
    assert len(heat.x) == STRIP_COLUMNS
    z = np.array(heat.z)
    np.testing.assert_allclose(z[:2], 0.0, atol=1e-6)
    # A third of the days .02 above the rest: .02 2/3 above its mean, the others .02 / 3 below.
    np.testing.assert_allclose(z[3][[0, -1]], [-0.02 / 3, 0.04 / 3], atol=2e-4)
    assert [line.name for line in lines] == ["A", "B&lt;"]
    assert lines[0].x[0] == heat.x[0] == "2010-01-04"
    assert lines[0].y[0] == pytest.approx(156.0)  # the 156th bar of one that began at 1
    assert figure.layout.yaxis2.type == "log"


def test_without_prices_the_strip_stands_alone_and_without_rows_there_is_none() -> None:
    assert len(strip(distances(), None).data) == 1
    assert strip(distances().iloc[:0], None) is None


def test_of_many_heads_those_that_vary_most_are_in_the_strip() -> None:
    assert list(strip(distances(30, 40), None).data[0].y) == ["all heads", *(f"L0 H{head}" for head in range(16, 40))]


def test_every_test_is_listed_by_p_and_changes_are_counted() -> None:
    told, fold = changes_table(claims())
    assert told == "2 of 4 claims tested changed at 5 % false discoveries; 1 could not be tested."
    assert isinstance(fold, Fold)
    rows = fold.tables[0].rows
    assert [row[0].text for row in rows][:2] == ["layer 0, head 1", "layer 0, head 2"]
    assert (rows[0][2].text, rows[0][2].note) == ("2011-03-04", "2011-03-04 to 2011-03-04")
    assert rows[-1][-1].text == "not tested, too few blocks"
    assert (rows[-1][2].text, rows[-1][2].note) == ("", "")
    assert changes_table(claims().iloc[:0]) == []
    assert changes_table(claims().iloc[:4])[0] == "2 of 4 claims tested changed at 5 % false discoveries."
    assert changes_table(claims().iloc[4:])[0] == "1 could not be tested."


def test_the_page_has_both_pictures_where_heads_were_followed(fabricate: Any) -> None:
    run = fabricate()
    assert "Heads over the years" not in page(run.tables, run.summary)
    made = {**run.tables, "drift": drifted(), "drift_tests": claims(), "attention_distance": distances()}
    text = page({**made, "closes": closes()}, run.summary)
    for words in ("Heads over the years", "A day&#39;s attention", "2 of 4 claims tested changed"):
        assert words in text
    assert text == page({**made, "closes": closes()}, run.summary)
