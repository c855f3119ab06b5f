"""Rows that are no bars: text in numbers, blanks, repetitions, contradictions, prices that can't be."""

from typing import Final

import numpy as np
import pandas as pd

from forecaster.bars.cleaning.policy import Policy, Step, told, told_once
from forecaster.bars.contract import NUMBERS, OPTIONAL, PRICES, symbol_bounds

# Relative: a high this little below the close is a provider's rounding of adjusted prices.
HAIR: Final = 1e-6


def readable(rows: pd.DataFrame, unread: pd.DataFrame, policy: Policy) -> Step:
    """Without the rows that hold text where a number or a stamp is meant. unread: as in Raw, by position in rows."""
    at = unread["row"].to_numpy(dtype=np.int64)
    cells = [f"{column} {text!r}" for column, text in zip(unread["column"], unread["text"], strict=True)]
    wrong: dict[int, str] = {}
    for row, cell in zip(map(int, at), cells, strict=True):
        wrong[row] = f"{wrong[row]}, {cell}" if row in wrong else cell
    faulty = rows["time"].isna() | rows.index.isin(at)
    named = rows[faulty]
    pairs = zip(named.index.to_numpy(dtype=np.int64), named["place"], strict=True)
    told_of = {row: f"{cell} can't be read" for row, cell in wrong.items()}
    details = [f"{place}: {told_of.get(int(row), 'no time')}" for row, place in pairs]
    detail = pd.Series(details, index=named.index, dtype="str")
    return rows[~faulty], told(named, "unreadable", detail, policy.dropping)


def filled(rows: pd.DataFrame, policy: Policy) -> Step:
    """Without rows that hold no price. A column that one symbol lacks is taken from all."""
    report: list[pd.DataFrame] = []
    for group in OPTIONAL:
        rows, noticed = _level(rows, group)
        report += noticed
    needed = [name for name in PRICES if not rows[name].isna().all()] or ["close"]
    blank = rows[needed].isna()
    empty, partial = blank.all(axis=1), blank.any(axis=1) & ~blank.all(axis=1)
    report += told(rows[empty], "blank", rows["place"][empty] + ": no price", "no bar")
    names = [", ".join(name for name in needed if blank.at[row, name]) for row in rows.index[partial]]
    missing = pd.Series(names, index=rows.index[partial], dtype="str")
    report += told(rows[partial], "missing_price", rows["place"][partial] + ": no " + missing, policy.dropping)
    rows = rows[~empty & ~partial]
    unknown = rows["volume"].isna() & (not rows["volume"].isna().all())
    report += told(rows[unknown], "missing_volume", rows["place"][unknown] + ": volume is blank", "read as 0")
    return rows, report


def _level(rows: pd.DataFrame, group: tuple[str, ...]) -> Step:
    """The columns of the group as NaN throughout where a symbol has nothing in them: all have the same features."""
    values = rows[list(group)]
    # A volume of 0 throughout, as of an index or a currency, says nothing about trading.
    nothing = values.isna() | (values == 0) if group == ("volume",) else values.isna()
    lacking = nothing.all(axis=1).groupby(rows["symbol"]).all()
    without = lacking.index[lacking]
    if not len(without):
        return rows, []
    kind, names = ("no_volume", "volume") if group == ("volume",) else ("close_only", "open, high and low")
    if len(without) == len(lacking):
        report = told(rows.iloc[:1].assign(symbol="all"), kind, f"no {names} in any row", f"{names} off")
    else:
        firsts = rows[rows["symbol"].isin(without)].drop_duplicates("symbol")
        action = f"{names} off for every symbol, so that all have the same features"
        report = told(firsts, kind, f"no {names} in any of its rows", action)
    return rows.assign(**dict.fromkeys(group, np.nan)), report


def ordered(rows: pd.DataFrame) -> Step:
    """Sorted by symbol, then time; rows of one time stay in the order found."""
    if _in_order(rows) and rows["symbol"].drop_duplicates().is_monotonic_increasing:
        return rows.reset_index(drop=True), []
    backwards = rows.groupby("symbol")["time"].diff() < pd.Timedelta(0)
    report = told_once(
        rows, backwards, "unsorted", "rows earlier than the one before them: {n}, first {place}", "sorted"
    )
    return rows.sort_values(["symbol", "time"], kind="stable", ignore_index=True), report


def unique(rows: pd.DataFrame, policy: Policy) -> Step:
    """One bar at a time: repeated rows once, rows of one time that contradict each other not at all."""
    if _in_order(rows):
        return rows, []
    again = rows.duplicated(["symbol", "time", *NUMBERS])
    report = told(rows[again], "duplicate", rows["place"][again] + ": the same bar again", "dropped")
    rows = rows[~again]
    double = rows.duplicated(["symbol", "time"], keep=False)
    detail = rows["place"][double] + ": " + _shown(rows[double]) + ": another bar of this time differs"
    report += told(rows[double], "conflict", detail, policy.dropping)
    return rows[~double], report


def _in_order(rows: pd.DataFrame) -> bool:
    """Whether each symbol's rows stand together, every one later than the one before: then no time stands twice."""
    spans = list(symbol_bounds(rows["symbol"]))
    steps = np.diff(rows["time"].to_numpy(dtype="datetime64[us]"))
    within = np.delete(steps, [first - 1 for _, first, _ in spans[1:]])
    return len({symbol for symbol, _, _ in spans}) == len(spans) and bool((within > np.timedelta64(0, "us")).all())


def possible(rows: pd.DataFrame, policy: Policy) -> Step:
    """Without bars that can't be: prices not above 0, a volume below 0, a high or a low inside the bar."""
    below = (rows[list(PRICES)] <= 0).any(axis=1) | (rows["volume"] < 0)
    detail = rows["place"][below] + ": " + _shown(rows[below])
    report = told(rows[below], "non_positive", detail, policy.dropping)
    rows = rows[~below]
    if rows["high"].isna().all():
        return rows, report
    top = rows[["open", "close", "low"]].max(axis=1)
    bottom = rows[["open", "close", "high"]].min(axis=1)
    over = np.maximum(top / rows["high"] - 1, 1 - bottom / rows["low"])
    excess = over.to_numpy(dtype=np.float64)
    hair = pd.Series((excess > 0) & (excess <= HAIR), index=rows.index)
    wrong = pd.Series(excess > HAIR, index=rows.index)
    report += told_once(rows, hair, "rounding", "{n} bars with a high or low a rounding (1e-6) inside", "widened")
    detail = rows["place"][wrong] + ": " + _shown(rows[wrong])
    report += told(rows[wrong], "impossible", detail, policy.dropping)
    rows = rows.assign(high=rows["high"].where(~hair, top), low=rows["low"].where(~hair, bottom))
    return rows[~wrong], report


def _shown(rows: pd.DataFrame) -> pd.Series:
    """The numbers of each row in words."""
    names = [name for name in NUMBERS if not rows[name].isna().all()]
    words = [", ".join(f"{name} {row[name]:.10g}" for name in names) for row in rows[names].to_dict("records")]
    return pd.Series(words, index=rows.index, dtype="str")
