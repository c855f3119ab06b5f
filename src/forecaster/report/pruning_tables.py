"""What groups of heads lose together, as a table of the page."""

import pandas as pd

from forecaster.report.tables import Cell, Table
from forecaster.report.values import Row, decimals, interval, number, records, whole, word

UNDEFINED = "undefined: the interval of the joint rise includes 0"
TOO_FEW = "undefined: too few blocks of dates for an interval of the joint rise"


def group_redundancy(redundancy: pd.DataFrame, knockouts: pd.DataFrame | None = None) -> list[Table]:
    """Group redundancy of every label's heads and of every layer's, by target; empty where there is no group.

    `knockouts` says whether there are intervals at all: they are over the same blocks of dates.
    """
    rows = [row for row in records(redundancy) if str(row["kind"]) == "group"]
    if not rows:
        return []
    rises = [] if knockouts is None else records(knockouts)
    few = bool(rises) and all(number(row["low"]) is None for row in rises)
    lines = [[Cell(_name(row)), Cell(word(row["target"])), _cell(row, TOO_FEW if few else UNDEFINED)] for row in rows]
    words = (
        "1 less the sum of the rises in loss of each head alone over the rise without all of them: 0, each loses what "
        "it is worth; near 1, others do the same work; below 0, the heads' rises add up to more than the group's."
    )
    return [Table("Redundancy of groups", ("heads", "target", "redundancy"), lines, [words])]


def _name(row: Row) -> str:
    return word(row["probe"]) or f"layer {whole(row['layer'])}"


def _cell(row: Row, why: str) -> Cell:
    if number(row["value"]) is None:
        return Cell("–", why)
    return Cell(decimals(row["value"], 2), interval(row["low"], row["high"], 2))
