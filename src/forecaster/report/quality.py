"""What a source holds and what is odd about it, as text for the terminal."""

import re
from io import StringIO
from typing import Final

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from forecaster.bars.contract import Bars

WIDTH: Final = 120
LISTED_SYMBOLS: Final = 40
LISTED_ROWS: Final = 12  # of each kind


def bars_text(bars: Bars) -> str:
    """Interval, calendar and basis, and the first and last bar of every symbol."""
    frame = bars.frame
    spans = frame.groupby("symbol")["time"].agg(["size", "min", "max"])
    table = _table("symbol", "bars", "first", "last")
    for symbol, count, first, last in spans.head(LISTED_SYMBOLS).itertuples(name=None):
        table.add_row(*map(Text, (str(symbol), f"{count:,}", time_text(first), time_text(last))))
    lacking = f"; no {', '.join(bars.absent)}" if bars.absent else ""
    noun = "symbol" if len(spans) == 1 else "symbols"
    count = f"{len(frame):,} {'bar' if len(frame) == 1 else 'bars'}"
    head = f"{len(spans):,} {noun}, {count} of {bars.interval}, calendar {bars.calendar}{lacking}"
    more = f"... and {len(spans) - LISTED_SYMBOLS:,} more\n" if len(spans) > LISTED_SYMBOLS else ""
    return f"{head}\nprices: {bars.basis}\n{_printed(table)}{more}"


def quality_text(quality: pd.DataFrame) -> str:
    """How often each kind of fault was seen and what was done, then the first rows of each kind."""
    if quality.empty:
        return "quality: nothing to report\n"
    table = _table("quality", "rows", "symbols", "action")
    for row in kinds(quality):
        table.add_row(*map(Text, row))
    lines: list[str] = []
    for kind, rows in quality.groupby("kind", sort=False):
        for symbol, time, _, detail, action in rows.head(LISTED_ROWS).itertuples(index=False, name=None):
            when = "" if pd.isna(time) else time_text(time)
            about = " ".join(word for word in (symbol, when) if word)
            lines.append(": ".join(word for word in (str(kind), about, detail, action) if word) + "\n")
        if len(rows) > LISTED_ROWS:
            lines.append(f"{kind}: ... and {len(rows) - LISTED_ROWS:,} more\n")
    return _printed(table) + "".join(lines)


def kinds(quality: pd.DataFrame) -> list[tuple[str, str, str, str]]:
    """Each kind of fault in its first order, with its rows, its symbols and what was done."""
    found: list[tuple[str, str, str, str]] = []
    for kind, rows in quality.groupby("kind", sort=False):
        # One action of several sizes ("prices of the 80 bars ...") stands for all of its kind.
        actions = list(dict.fromkeys(re.sub(r"s\b", "", str(action)) for action in rows["action"]))
        done = str(rows["action"].iloc[0]) if len(actions) == 1 else f"{rows['action'].iloc[0]}, and others"
        found.append((str(kind), f"{len(rows):,}", f"{rows['symbol'].nunique():,}", done))
    return found


def quality_line(quality: pd.DataFrame) -> str:
    """The counts in one line, for a training's progress."""
    if quality.empty:
        return "quality: nothing to report"
    counts = quality["kind"].value_counts(sort=False)
    return "quality: " + ", ".join(f"{count:,} {kind}" for kind, count in counts.items())


def time_text(time: pd.Timestamp) -> str:
    """A session's date, or an intraday stamp to the minute."""
    return str(time.date()) if time.tzinfo is None else f"{time:%Y-%m-%d %H:%MZ}"


def _table(*names: str) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0))
    for name in names:
        table.add_column(name, justify="right" if name in ("bars", "rows", "symbols") else "left", no_wrap=True)
    return table


def _printed(table: Table) -> str:
    text = StringIO()
    Console(file=text, width=WIDTH).print(table)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())
