"""What a source has read, before anything is judged or changed."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from forecaster.bars.contract import NUMBERS, Row

RAW_COLUMNS = ("symbol", "time", *NUMBERS, "place")


@dataclass(frozen=True)
class Raw:
    """Rows in the order found; NaN is a blank or an absent cell, NaT a stamp that could not be read.

    frame: RAW_COLUMNS; place tells where a row stands, as "a.csv line 46". unread: row (position in frame), column (as
    the source names it) and text of every cell with text where a number or a stamp is meant. notes: quality rows that
    the source itself has to tell. basis: in words, how prices were adjusted. intraday: stamps are aware UTC, otherwise
    session dates. files: what was read.
    """

    frame: pd.DataFrame
    unread: pd.DataFrame
    notes: tuple[Row, ...]
    basis: str
    intraday: bool
    files: tuple[Path, ...]
