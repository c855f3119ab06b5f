"""Numbers as people and vendors write them: thousands, currency signs, K, M and B, and blanks; never a guess."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow.compute
from jaxtyping import Bool, Float, Int

from forecaster.errors import DataError

# Without types.
pa, pc = cast(Any, pyarrow), cast(Any, pyarrow.compute)

BLANKS = ("", "nan", "null", "none", "n/a", "#n/a", ".")  # a dot: FRED
CURRENCIES = (
    "USD|EUR|GBP|GBX|JPY|CHF|CAD|AUD|NZD|CNY|CNH|HKD|SGD|SEK|NOK|DKK|INR|KRW|BRL|MXN|ZAR|PLN|CZK|HUF|TRY|ILS|TWD|THB|"
    "IDR|MYR|PHP|USDT|USDC|BTC|ETH|GBp"
)
SIGNS = r"US\$|[$€£¥₹₩]"
MULTIPLES = {"K": 1e3, "M": 1e6, "B": 1e9}

Place = Callable[[int], str]


@dataclass(frozen=True)
class Numbers:
    """values: NaN where a cell is blank or unread. unread: cells with text that is no number. dashes: a lone - ."""

    values: Float[np.ndarray, " R"]
    unread: Bool[np.ndarray, " R"]
    dashes: int = 0


@dataclass(frozen=True)
class _Cells:
    """Those cells of a column that are neither plain nor blank, at `rows`, without signs, with what they multiply."""

    rows: Int[np.ndarray, " N"]
    text: Any
    factor: Float[np.ndarray, " N"]
    sign: Any


def read(
    columns: Mapping[str, Any], volumes: frozenset[str], decimal: str, thousands: str | None, place: Place
) -> dict[str, Numbers]:
    """Text columns (pyarrow strings) of one file as numbers; in `volumes`, K, M, B count and a lone dash is blank.

    place: tells where a row stands. Without `thousands` a separator counts as one where no other reading is possible
    in the file ("1,196.16", "1,193,255"). DataError where it is (a lone "1,193"), for decimal commas that were not
    announced, and for two currencies.
    """
    other = thousands or ("." if decimal == "," else ",")
    forms = _Forms(decimal, other)
    split = {name: _split(column, forms, name in volumes) for name, column in columns.items()}
    _check_currency({name: cells for name, (_, cells, _) in split.items() if name not in volumes}, place)
    if thousands is None:
        _check_marks(columns, place)
        for name, (plain, cells, _) in split.items():
            _check_decimal(name, plain.values, cells, forms, place)
        sure = any(_any(cells.text, forms.surely_grouped) for _, cells, _ in split.values())
        if not sure:
            _check_unsure(columns, {name: cells for name, (_, cells, _) in split.items()}, forms, place)
    return {name: _join(plain, cells, dashes, forms) for name, (plain, cells, dashes) in split.items()}


def typed(values: Any) -> Numbers:
    """A numeric column of a typed file; infinite is unread."""
    numbers = np.asarray(values, dtype=np.float64)
    endless = np.isinf(numbers)
    return Numbers(np.where(endless, np.nan, numbers), endless)


class _Forms:
    """Regular expressions of numbers with a decimal mark and a thousands separator."""

    def __init__(self, decimal: str, other: str) -> None:
        d, t = re.escape(decimal), "[ \u00a0\u202f]" if other == " " else re.escape(other)
        self.decimal, self.other, self.separator = decimal, other, t
        self.plain = rf"^[+-]?(\d+({d}\d*)?|{d}\d+)([eE][+-]?\d+)?$"
        self.grouped = rf"^[+-]?\d{{1,3}}({t}\d{{3}})+({d}\d*)?$"
        self.surely_grouped = rf"^[+-]?\d{{1,3}}(({t}\d{{3}}){{2,}}({d}\d*)?|{t}\d{{3}}{d}\d*)$"
        self.unsure = rf"^[+-]?\d{{1,3}}{t}\d{{3}}$"
        # The two marks swapped: 99,68 or 1.196,16 or 1.193.255 where the decimal mark is a dot.
        self.swapped = rf"^[+-]?(\d+{t}(\d{{1,2}}|\d{{4,}})|\d{{1,3}}({d}\d{{3}})+{t}\d*|\d{{1,3}}({d}\d{{3}}){{2,}})$"
        self.fraction = rf"{d}(\d{{1,2}}|\d{{4,}})$"


def _split(column: Any, forms: _Forms, volume: bool) -> tuple[Numbers, _Cells, int]:
    """The plain numbers of a column, its other cells that hold text, and how many were a dash that is a blank."""
    text = pc.utf8_trim_whitespace(column)
    plain = _mask(pc.match_substring_regex(text, forms.plain))
    values = np.full(len(text), np.nan)
    values[plain] = _floats(text if plain.all() else text.filter(pa.array(plain)), forms.decimal)
    left = np.flatnonzero(~plain)
    rest = text.take(pa.array(left))
    blank = _mask(pc.is_in(pc.utf8_lower(rest), value_set=pa.array(BLANKS)))
    dash = _mask(pc.equal(rest, "-")) & volume
    cells = _bare(left[~(blank | dash)], rest.filter(pa.array(~(blank | dash))), volume)
    return Numbers(values, np.isinf(values)), cells, int(dash.sum())


def _bare(rows: Int[np.ndarray, " N"], text: Any, volume: bool) -> _Cells:
    if not len(rows):
        return _Cells(rows, text, np.ones(0), text)
    text = pc.replace_substring(text, "−", "-")
    sign = pc.struct_field(pc.extract_regex(text, rf"^[+-]?(?P<sign>{SIGNS}|(?:{CURRENCIES}) ?)"), "sign")
    after = pc.struct_field(pc.extract_regex(text, rf"\d[KMB]? ?(?P<sign>{SIGNS}|{CURRENCIES})$"), "sign")
    sign = pc.utf8_trim_whitespace(pc.coalesce(sign, after, ""))
    text = pc.replace_substring_regex(text, rf"^([+-]?)(?:{SIGNS}|(?:{CURRENCIES}) ?)\s?([+-]?[\d.,])", r"\1\2")
    text = pc.replace_substring_regex(text, rf"(\d[KMB]?) ?(?:{SIGNS}|{CURRENCIES})$", r"\1")
    factor = np.ones(len(rows))
    if volume:
        for letter, multiple in MULTIPLES.items():
            ends = rf"(\d[.,]?) ?[{letter}{letter.lower()}]$"
            factor[_mask(pc.match_substring_regex(text, ends))] = multiple
            text = pc.replace_substring_regex(text, ends, r"\1")
    return _Cells(rows, text, factor, sign)


def _join(plain: Numbers, cells: _Cells, dashes: int, forms: _Forms) -> Numbers:
    if not len(cells.rows) and not plain.unread.any():
        return Numbers(plain.values, plain.unread, dashes)  # nearly every column of nearly every file
    values, unread = plain.values.copy(), plain.unread.copy()
    grouped = _mask(pc.match_substring_regex(cells.text, forms.grouped))
    text = pc.if_else(pa.array(grouped), pc.replace_substring_regex(cells.text, forms.separator, ""), cells.text)
    good = _mask(pc.match_substring_regex(text, forms.plain))
    values[cells.rows[good]] = _floats(text.filter(pa.array(good)), forms.decimal) * cells.factor[good]
    unread[cells.rows[~good]] = True
    unread |= np.isinf(values)  # 1e999
    values[unread] = np.nan
    return Numbers(values, unread, dashes)


def _floats(text: Any, decimal: str) -> Float[np.ndarray, " N"]:
    if decimal != ".":
        text = pc.replace_substring(text, decimal, ".")
    text = pc.replace_substring_regex(text, r"^\+", "")
    return pc.cast(text, pa.float64()).to_numpy(zero_copy_only=False)


def _check_marks(columns: Mapping[str, Any], place: Place) -> None:
    """DataError where thousands are parted by what is neither a comma nor a dot."""
    for name, column in columns.items():
        for mark in ("'", "’", " ", "_"):
            grouped = np.flatnonzero(
                _mask(pc.match_substring_regex(column, rf"^\s*\d{{1,3}}({mark}\d{{3}})+([.,]\d*)?\s*$"))
            )
            if 2 * len(grouped) > len(column):
                text = column[int(grouped[0])].as_py()
                given = f'"{mark}"' if mark == "'" else f"'{mark}'"
                raise DataError(
                    f"{place(int(grouped[0]))}: {name} {text!r} has thousands parted: give source.thousands={given}"
                )


def _check_decimal(name: str, plain: Float[np.ndarray, " R"], cells: _Cells, forms: _Forms, place: Place) -> None:
    """DataError where most of a column is written with the two marks swapped: one such cell alone is just unread."""
    swapped = np.flatnonzero(_mask(pc.match_substring_regex(cells.text, forms.swapped)))
    if 2 * len(swapped) > int(np.isfinite(plain).sum()) + len(cells.rows):
        row, text = cells.rows[swapped[0]], cells.text[int(swapped[0])].as_py()
        raise DataError(
            f"{place(int(row))}: {name} {text!r}: the decimal mark seems to be {forms.other!r}: "
            f"give source.decimal='{forms.other}' and source.thousands='{forms.decimal}'"
        )


def _check_unsure(columns: Mapping[str, Any], cells: Mapping[str, _Cells], forms: _Forms, place: Place) -> None:
    for name, column in cells.items():
        unsure = np.flatnonzero(_mask(pc.match_substring_regex(column.text, forms.unsure)))
        # A file that writes 99.68 elsewhere uses the dot for decimals, so its comma can't be one.
        if len(unsure) and not any(_any(whole, forms.fraction) for whole in columns.values()):
            row, text = int(column.rows[unsure[0]]), column.text[int(unsure[0])].as_py()
            raise DataError(
                f"{place(row)}: {name} {text!r} can be read in two ways: "
                f"give source.thousands='{forms.other}' or source.decimal='{forms.other}'"
            )


def _check_currency(columns: Mapping[str, _Cells], place: Place) -> None:
    seen: dict[str, str] = {}
    for name, cells in columns.items():
        for sign in pc.unique(cells.sign).to_pylist():
            row = int(cells.rows[int(pc.index(cells.sign, sign).as_py())])
            if sign:
                seen.setdefault(sign, f"{place(row)} ({name})")
    if len(seen) > 1:
        (first, here), (second, there), *_ = seen.items()
        raise DataError(
            f"{there}: prices in {second!r}, but in {first!r} at {here}: bring all prices of a file to one currency"
        )


def _any(text: Any, form: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(text, form)).as_py())


def _mask(found: Any) -> Bool[np.ndarray, " N"]:
    return found.to_numpy(zero_copy_only=False).astype(bool)
