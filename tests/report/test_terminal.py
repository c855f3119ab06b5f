from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from forecaster.report.terminal import heads_table, scores_table

Fabricate = Callable[..., Any]


def _printed(renderable: object, width: int = 100) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(renderable)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_scores_stand_with_interval_and_the_verdict_against_each_baseline(fabricate: Fabricate) -> None:
    run = fabricate(targets=("volatility", "return"))
    lines = _printed(scores_table(run.tables["scores"], run.tables["tests"]))
    assert lines[1] == "volatility"
    assert lines[2].split() == ["attention", "0.490", "[0.440,", "0.540]", "0.0953", "0.261", "0.790"]
    assert lines[8].split()[-6:] == ["0.789", "no", "different,", "p", "=", "0.226"]
    assert "worse, p = 0.012" in lines[5]
    assert lines[4].endswith("undefined")
    assert lines[9] == "return"
    assert len(lines) == 17


@pytest.mark.parametrize("width", [80, 100])
def test_no_number_is_cut_at_the_width_of_a_terminal(fabricate: Fabricate, width: int) -> None:
    run = fabricate()
    printed = "\n".join(_printed(scores_table(run.tables["scores"], run.tables["tests"]), width))
    assert "…" not in printed
    assert "[−1.322, −1.298]" in printed
    printed = "\n".join(_printed(heads_table(run.tables["heads"]), width))
    assert "…" not in printed
    assert "0.360 [0.340, 0.380]" in printed


def test_with_several_steps_the_first_is_shown_and_the_others_are_pointed_to(fabricate: Fabricate) -> None:
    run = fabricate(targets=("volume",), horizon=5)
    lines = _printed(scores_table(run.tables["scores"], run.tables["tests"]))
    assert lines[-1] == "further steps stand in scores.csv"
    assert sum("har" in line for line in lines) == 1


def test_only_labelled_heads_are_listed(fabricate: Fabricate) -> None:
    lines = _printed(heads_table(fabricate().tables["heads"]))
    assert [line.split()[:3] for line in lines[1:]] == [["0", "0", "large_move"], ["1", "2", "recency"]]
    assert lines[2].endswith("functional volatility")


def test_when_no_head_is_labelled_then_a_line_says_so(fabricate: Fabricate) -> None:
    heads = fabricate().tables["heads"]
    none = heads_table(heads.assign(label="none"))
    assert isinstance(none, Text)
    assert none.plain == "None of the 16 heads earned a label."
    few = heads.assign(label="none", reason="too few to say: 9 blocks of dates of at least 10")
    assert str(heads_table(few)) == "No head could be judged: 9 blocks of dates, 10 are needed."
    assert _printed(heads_table(heads.iloc[:0])) == ["No head was probed."]


def test_text_from_data_is_no_markup_for_the_terminal(fabricate: Fabricate) -> None:
    run = fabricate(targets=("[bold]volume[/]",))
    assert _printed(scores_table(run.tables["scores"], run.tables["tests"]))[1] == "[bold]volume[/]"
