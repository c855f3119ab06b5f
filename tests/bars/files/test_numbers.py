import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecaster.bars.files.numbers import Numbers, read, typed
from forecaster.errors import DataError


def one_line(refusal: DataError) -> None:
    assert str(refusal).isprintable()


def take(
    cells: list[str], decimal: str = ".", thousands: str | None = None, volume: bool = False, **others: list[str]
) -> Numbers:
    columns = {"Close": pa.array(cells, pa.string()), **{n: pa.array(c, pa.string()) for n, c in others.items()}}
    volumes = frozenset({"Close"} if volume else {"Volume"})
    return read(columns, volumes, decimal, thousands, lambda row: f"a.csv line {row + 2}")["Close"]


def refused(cells: list[str], **options: object) -> str:
    with pytest.raises(DataError) as error:
        take(cells, **options)
    return str(error.value)


@pytest.mark.parametrize("mark", ["'", " ", "’"])
def test_when_thousands_are_parted_by_other_marks_then_the_error_names_the_option(mark: str):
    cells = [f"1{mark}196.16", f"1{mark}201.5", "985"]
    quoted = '"\'"' if mark == "'" else f"'{mark}'"
    assert refused(cells).endswith(f"has thousands parted: give source.thousands={quoted}")
    assert take(cells, thousands=mark).values.tolist() == [1196.16, 1201.5, 985]


NUMBERS = {
    "99.68": 99.68,
    " 7 ": 7,
    "5.": 5,
    ".5": 0.5,
    "+1.5": 1.5,
    "-3": -3,
    "−3": -3,
    "1e5": 1e5,
    "1.19E+06": 1.19e6,
    "1,196.16": 1196.16,
    "1,193,255": 1193255,
    "$100.03": 100.03,
    "US$ 1,000.50": 1000.5,
    "-$5": -5,
    "$-5": -5,
    "€5": 5,
}


@pytest.mark.parametrize(("text", "value"), NUMBERS.items())
def test_when_a_cell_is_a_number_then_it_is_read(text: str, value: float):
    read_ = take([text])
    assert read_.values.tolist() == [value]
    assert not read_.unread.any()


@pytest.mark.parametrize("text", ["12 EUR", "EUR 12", "EUR12", "12.0 EUR", "12EUR"])
def test_when_a_currency_code_stands_beside_a_number_then_it_is_no_part_of_it(text: str):
    assert take([text]).values.tolist() == [12]


@pytest.mark.parametrize("text", ["", " ", "nan", "NaN", "null", "None", "n/a", "N/A", "#N/A", "."])
def test_when_a_cell_is_blank_then_it_is_nan_and_read(text: str):
    read_ = take([text, "1"])
    assert np.isnan(read_.values[0])
    assert not read_.unread.any()


@pytest.mark.parametrize(
    "text",
    [
        "-",
        "halted",
        "#N/A N/A",
        "inf",
        "-Infinity",
        "5%",
        "(3)",
        "1e999",
        "1 000",
        "12.5.3",
        "1,19",
        "1,2345",
        "--3",
        "1.19M",
        "5K",
        "0x10",
        "1_000",
        "\uff11\uff12",
        "1,196,16",
        ",5",
        "$",
        "5 XYZ",
        "1e",
        "9" * 400,
    ],
)
def test_when_a_cell_is_anything_else_then_it_is_unread(text: str):
    read_ = take([text, "1", "2"])
    assert read_.unread.tolist() == [True, False, False]
    assert np.isnan(read_.values[0])


def test_when_volume_has_a_letter_or_a_dash_then_it_counts():
    read_ = take(["1.19M", "3K", "2b", "1,193.5K", "-", "0.5 m", ""], volume=True)
    np.testing.assert_array_equal(read_.values, [1.19e6, 3000, 2e9, 1193500, np.nan, 5e5, np.nan])
    assert not read_.unread.any()
    assert read_.dashes == 1


def test_when_one_comma_could_be_either_then_the_error_asks():
    message = "a.csv line 3: Close '1,193' can be read in two ways: give source.thousands=',' or source.decimal=','"
    assert refused(["985", "1,193"]) == message
    assert take(["985", "1,193"], thousands=",").values.tolist() == [985, 1193]
    assert take(["985", "1,193"], decimal=",").values.tolist() == [985, 1.193]


@pytest.mark.parametrize("other", [["1,193,255", "1"], ["1,196.16", "1"], ["99.68", "1"], ["0.5", "1"]])
def test_when_another_column_gives_it_away_then_one_comma_is_read(other: list[str]):
    assert take(["985", "1,193"], Open=other).values.tolist() == [985, 1193]


def test_when_another_column_says_nothing_then_one_comma_still_is_not():
    assert "can be read in two ways" in refused(["985", "1,193"], Open=["1", "1.193"])


def test_when_the_decimal_mark_is_a_comma_then_a_lone_dot_is_not_guessed():
    assert take(["1.193,5"], decimal=",").values.tolist() == [1193.5]
    assert take(["1.193"], decimal=",", thousands=".").values.tolist() == [1193]
    assert refused(["1.193"], decimal=",") == (
        "a.csv line 2: Close '1.193' can be read in two ways: give source.thousands='.' or source.decimal='.'"
    )


@pytest.mark.parametrize("cells", [["99,68", "100,1"], ["1.196,16", "1.200,36"], ["1.193.255", "1.000.000"]])
def test_when_a_column_has_decimal_commas_then_the_error_says_so(cells: list[str]):
    assert refused(cells) == (
        f"a.csv line 2: Close {cells[0]!r}: the decimal mark seems to be ',': give source.decimal=',' and "
        "source.thousands='.'"
    )
    assert not take(cells, decimal=",", thousands=".").unread.any()


@pytest.mark.parametrize(("thousands", "text"), [("'", "1'196.16"), (" ", "1 196.16"), (" ", "1\u00a0196.16")])
def test_when_thousands_are_told_then_they_are_read(thousands: str, text: str):
    assert take([text], thousands=thousands).values.tolist() == [1196.16]
    assert take([text, "1", "2"]).unread.tolist() == [True, False, False]


def test_when_groups_are_not_of_three_then_the_cell_is_unread():
    assert take(["1,19", "11,96", "1", "1,193"], thousands=",").unread.tolist() == [True, True, False, False]


def test_when_prices_are_in_two_currencies_then_the_error_names_both():
    assert refused(["$1", "£2"]) == (
        "a.csv line 3 (Close): prices in '£', but in '$' at a.csv line 2 (Close): bring all prices of a file to one "
        "currency"
    )


def test_when_a_column_is_typed_then_infinite_is_unread():
    read_ = typed(np.array([1.5, np.inf, np.nan]))
    np.testing.assert_array_equal(read_.values, [1.5, np.nan, np.nan])
    assert read_.unread.tolist() == [False, True, False]


@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=20), st.sampled_from([("{!r}", None), ("{:,.2f}", ",")]))
def test_when_numbers_are_written_then_they_come_back(values: list[float], form: tuple[str, str | None]):
    written = [form[0].format(value) for value in values]
    read_ = take(written, thousands=form[1])
    assert read_.values.tolist() == [float(text.replace(",", "")) for text in written]


@given(st.lists(st.text(max_size=8), min_size=1, max_size=5))
def test_when_cells_are_any_text_then_each_is_a_number_a_blank_or_unread(cells: list[str]):
    try:
        read_ = take(cells)
    except DataError as refusal:
        one_line(refusal)
    else:
        assert not (read_.unread & np.isfinite(read_.values)).any()
        assert not np.isinf(read_.values).any()
