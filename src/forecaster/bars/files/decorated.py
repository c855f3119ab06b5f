"""Columns of prices under names that say more than the price: AAPL.Open, Bid High, Close.1."""

import re
from collections.abc import Mapping, Sequence

from forecaster.bars.contract import PRICES
from forecaster.bars.files.layouts import LETTERS, PRICE_ROLES, listed, role, short
from forecaster.errors import DataError

WANTED = (*PRICES, "volume")
# What pandas ("Close.1"), R and polars make of a name that stands twice.
COPY = re.compile(r"(.+?)[._ ](?:duplicated_)?\d+")
SEVERAL = "write one bar a row, with a column Symbol, or use yfinance's to_csv with its line of tickers"


def check(header: Sequence[str], columns: Mapping[str, str], is_wide: bool, about: str) -> None:
    """DataError where columns hold prices of several symbols, or prices that can't be told by their names alone.

    columns: ours -> the file's, from the user, who has named what the names leave open.
    """
    copies = [name for name in header if (found := _copied(name)) and found not in columns]
    if copies:
        several = "the prices of several symbols stand side by side"
        raise DataError(f"{about}: {listed(copies)}: {several}: {SEVERAL}, or name those to read in source.columns")
    plain = any(role(name) == "close" for name in header)
    named = {} if plain or "close" in columns else _decorated(header)
    if not named:
        return
    missing = f"{about}: no column Close; found {listed(header)}"
    if any(len(names) > 1 for names in named.values()):
        raise DataError(f"{missing}: prices of several kinds or symbols: {SEVERAL}")
    pairs = ", ".join(f'{ours}: "{short(names[0])}"' for ours, names in named.items() if names)
    wide = "leave out source.layout=wide and " if is_wide else ""
    raise DataError(f"{missing}: {wide}name them, as 'source.columns={{{pairs}}}'")


def _copied(name: str) -> str | None:
    """What the first column of this name holds, if it is a price or volume and this one is a copy."""
    found = COPY.fullmatch(name.strip())
    what = role(found[1]) if found else None
    return {"adjusted": "close"}.get(what, what) if what in (*PRICE_ROLES, "volume") else None


def _decorated(header: Sequence[str]) -> dict[str, list[str]]:
    """Names with a word for one price (or volume) among others, by price; empty unless all four prices are there."""
    found: dict[str, list[str]] = {name: [] for name in WANTED}
    for name in header:
        words = [word for word in re.split(r"[^a-z]+", name.strip().lower()) if word]
        told = {one for word in words if (one := role(word) or LETTERS.get(word)) in WANTED}
        if len(words) > 1 and len(told) == 1:
            found[told.pop()].append(name.strip())
    return found if all(found[price] for price in PRICES) else {}
