"""What groups of heads lose together, as a table of the page."""

import pandas as pd

from forecaster.report.tables import Cell, Table
from forecaster.report.values import Row, decimals, interval, number, records, whole, word

UNDEFINED = "undefined: the interval of the joint rise includes 0"


def group_redundancy(redundancy: pd.DataFrame) -> list[Table]:
    """Group redundancy of every label's heads and of every layer's, by target; empty where there is no group."""
    rows = [row for row in records(redundancy) if str(row["kind"]) == "group"]
    if not rows:
        return []
    lines = [[Cell(_name(row)), Cell(word(row["target"])), _cell(row)] for row in rows]
    words = (
        "1 less the sum of the rises in loss of each head alone over the rise without all of them: 0, each loses what "
        "it is worth; near 1, others do the same work; below 0, the heads' rises add up to more than the group's."
    )
    return [Table("Redundancy of groups", ("heads", "target", "redundancy"), lines, [words])]


def _name(row: Row) -> str:
    return word(row["probe"]) or f"layer {whole(row['layer'])}"


def _cell(row: Row) -> Cell:
    if number(row["value"]) is None:
        return Cell("–", UNDEFINED)
    return Cell(decimals(row["value"], 2), interval(row["low"], row["high"], 2))
