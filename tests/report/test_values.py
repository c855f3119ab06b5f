import numpy as np
import pandas as pd
import pytest

from forecaster.report.values import decimals, interval, is_label, number, p_value, pooled, significant, whole, word


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (0.25, 0.25),
        ("0.25", 0.25),
        (np.float64(-3), -3.0),
        (0, 0.0),
        ("undefined", None),
        ("too few", None),
        ("", None),
        (None, None),
        (np.nan, None),
        (pd.NA, None),
        (np.inf, None),
    ],
)
def test_a_cell_is_a_number_only_where_it_is_finite(cell: object, expected: float | None) -> None:
    assert number(cell) == expected


@pytest.mark.parametrize("empty", [None, np.nan, pd.NaT, pd.NA, "", "  ", "nan"])
def test_an_empty_cell_has_no_word(empty: object) -> None:
    assert word(empty) == ""


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (0.4806, "0.481"),
        ("-0.01234", "−0.012"),
        (-0.0004, "0.000"),
        ("undefined", "undefined"),
        (np.nan, "–"),
        (np.inf, "inf"),
        (1, "1.000"),
    ],
)
def test_a_bounded_quantity_has_three_places_and_words_pass(cell: object, expected: str) -> None:
    assert decimals(cell) == expected


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (0.0953, "0.0953"),
        (0.11, "0.110"),
        (123.4, "123"),
        (12.34, "12.3"),
        (1234.5, "1,234"),
        (0.0000123, "1.23e−05"),
        (0.000124, "1.24e−04"),
        (-2.0, "−2.00"),
        (0.0, "0"),
        ("too few", "too few"),
        (None, "–"),
    ],
)
def test_a_quantity_of_any_size_has_three_digits_and_words_pass(cell: object, expected: str) -> None:
    assert significant(cell) == expected


def test_an_interval_shows_both_ends_or_its_one_word_or_nothing() -> None:
    assert interval(0.44, 0.5) == "[0.440, 0.500]"
    assert interval("-0.5", 0.00012, places=None) == "[−0.500, 1.20e−04]"
    assert interval("too few", "too few") == "too few"
    assert interval("", "") == ""
    assert interval(0.1, np.nan) == "[0.100, –]"


@pytest.mark.parametrize(
    ("cell", "expected"),
    [(0.0123, "p = 0.012"), (0.0009, "p < 0.001"), (0.0, "p < 0.001"), (1, "p = 1.000"), ("too few", "p too few")],
)
def test_a_p_value_is_never_shown_as_zero(cell: object, expected: str) -> None:
    assert p_value(cell) == expected


def test_a_layer_beside_empty_cells_is_still_a_whole_number() -> None:
    assert whole(3.0) == whole("3") == whole(np.int64(3)) == 3


@pytest.mark.parametrize(("cell", "expected"), [("none", False), ("", False), (np.nan, False), ("pattern", True)])
def test_none_and_nothing_are_no_label(cell: object, expected: bool) -> None:
    assert is_label(cell) is expected


def _score(model: str, symbol: str, fold: str) -> dict[str, object]:
    return {"model": model, "symbol": symbol, "fold": fold, "metric": "r2", "value": 0.1}


def test_pooled_rows_are_those_of_all_symbols_with_the_trained_network_first() -> None:
    scores = pd.DataFrame(
        [_score(m, s, "0") for m in ("unheard_of", "har", "attention", "persistence") for s in ("all", "SP500")]
    )
    rows = pooled(scores)
    assert [row["model"] for row in rows] == ["attention", "persistence", "har", "unheard_of"]
    assert {row["symbol"] for row in rows} == {"all"}


def test_when_folds_were_scored_together_then_only_that_row_is_taken() -> None:
    scores = pd.DataFrame([_score("har", "all", fold) for fold in ("0", "1", "all")])
    assert [row["fold"] for row in pooled(scores)] == ["all"]
