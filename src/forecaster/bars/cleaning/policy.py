"""What a user said about doubtful bars, and how a doubt is told."""

from dataclasses import dataclass
from typing import Final

import pandas as pd

STOP: Final = "stop"

# Rows that are left, and quality rows for what was done to them.
Step = tuple[pd.DataFrame, list[pd.DataFrame]]


@dataclass(frozen=True)
class Policy:
    """What is done about bars that would poison training.

    calendar: a code, or None to find it from the bars. on_error: None stops the run, "drop" leaves such bars out,
    "adjust" scales what a split or a unit explains and leaves the rest out. accept: moves that are true after all, as
    "ACME 2023-09-26". now: aware; what lies after it is not known yet.
    """

    calendar: str | None
    on_error: str | None
    accept: tuple[str, ...]
    now: pd.Timestamp

    @property
    def dropping(self) -> str:
        """The action for a bar that can only be left out."""
        return "dropped" if self.on_error else STOP

    def accepts(self, symbol: str, time: pd.Timestamp) -> bool:
        """Whether the user said that this bar's move is true."""
        return f"{symbol} {written(time)}" in self.accept or f"{symbol} {time.date()}" in self.accept


def told(rows: pd.DataFrame, kind: str, detail: str | pd.Series, action: str | pd.Series) -> list[pd.DataFrame]:
    """Quality rows, one for each of the rows given."""
    if rows.empty:
        return []
    return [rows[["symbol", "time"]].assign(kind=kind, detail=detail, action=action)]


def told_once(rows: pd.DataFrame, which: pd.Series, kind: str, detail: str, action: str) -> list[pd.DataFrame]:
    """One quality row for each symbol that has such rows, at the first of them; {n} in the detail is their number."""
    counts = which.groupby(rows["symbol"]).sum()
    firsts = rows[which].drop_duplicates("symbol")
    details = [
        detail.format(n=counts[symbol], place=place)
        for symbol, place in zip(firsts["symbol"], firsts["place"], strict=True)
    ]
    return told(firsts, kind, pd.Series(details, index=firsts.index, dtype="str"), action)


def written(time: pd.Timestamp) -> str:
    """A session's date as it is, an intraday stamp with its time of day."""
    return str(time.date()) if time.tzinfo is None else f"{time:%Y-%m-%d %H:%MZ}"
