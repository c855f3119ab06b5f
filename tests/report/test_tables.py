from collections.abc import Callable
from typing import Any

from forecaster.report.tables import Cell, Fold, Table, score_tables, verdict_tables

Fabricate = Callable[..., Any]


def _column(table: Table, name: str) -> dict[str, Cell]:
    place = list(table.columns).index(name)
    return {row[0].text: row[place] for row in table.rows}


def test_scores_stand_with_interval_verdict_and_the_best_marked_whoever_holds_it(fabricate: Fabricate) -> None:
    run = fabricate(targets=("volatility",))
    scores = run.tables["scores"]
    scores.loc[(scores["model"] == "har") & (scores["metric"] == "r2"), "value"] = 0.6
    main, further = score_tables(scores, run.tables["tests"])
    assert isinstance(main, Table)
    assert main.title == "volatility, step 1, 1,998 test forecasts"
    assert [row[0].text for row in main.rows][:2] == ["attention", "persistence"]
    r2 = _column(main, "r2 ↑")
    assert r2["har"] == Cell("0.600", "[0.420, 0.520]", "best")
    assert r2["attention"] == Cell("0.490", "[0.440, 0.540]")
    verdicts = _column(main, "attention is")
    assert verdicts["har"] == Cell("no different", "p = 0.226", "even")
    assert verdicts["mean"] == Cell("worse", "p = 0.012", "bad")
    assert verdicts["zero"] == Cell("undefined")
    assert verdicts["attention"] == Cell("")
    assert _column(main, "ic ↑")["mean"] == Cell("undefined")
    assert "qlike ↓" in main.columns
    assert isinstance(further, Fold)


def test_later_steps_are_folded_and_none_is_lost(fabricate: Fabricate) -> None:
    run = fabricate(targets=("volume",), horizon=5)
    main, further = score_tables(run.tables["scores"], run.tables["tests"])
    assert isinstance(main, Table)
    assert isinstance(further, Fold)
    titles = [table.title.split(",")[1].strip() for table in further.tables if "further" not in table.title]
    assert titles == ["step 2", "step 3", "step 4", "step 5"]
    words, every = verdict_tables(run.tables["tests"])
    assert isinstance(words, Table)
    assert isinstance(every, Fold)
    assert len(every.tables) == 5


def test_without_tests_there_is_no_column_of_verdicts(fabricate: Fabricate) -> None:
    main = score_tables(fabricate(targets=("volume",)).tables["scores"], None)[0]
    assert isinstance(main, Table)
    assert "attention is" not in main.columns


def test_a_metric_that_ties_has_no_best(fabricate: Fabricate) -> None:
    further = score_tables(fabricate(targets=("volume",)).tables["scores"], None)[1]
    assert isinstance(further, Fold)
    assert {cell.tone for cell in _column(further.tables[0], "mae ↓").values()} == {""}


def test_tests_are_told_in_words_losses_beside_wins(fabricate: Fabricate) -> None:
    words, every = verdict_tables(fabricate(targets=("volatility",)).tables["tests"])
    assert isinstance(words, Table)
    assert words.words[2] == (
        "QLIKE: attention is better than persistence, seasonal, ewma; no different from har; worse than mean; "
        "undefined against zero. Model confidence set: p = 0.710, among the best."
    )
    assert isinstance(every, Fold)
    assert _column(every.tables[0], "squared error")["ewma"] == Cell("better", "p < 0.001, DM −3.52", "good")


def test_a_model_outside_the_confidence_set_is_said_to_be(fabricate: Fabricate) -> None:
    tests = fabricate(targets=("volume",)).tables["tests"]
    assert "p = 0.030, not among the best." in verdict_tables(tests.assign(mcs_p=0.03))[0].words[0]
    assert "Model confidence set: p too few." in verdict_tables(tests.assign(mcs_p="too few"))[0].words[0]
