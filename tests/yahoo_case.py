"""What the tests of the source `yahoo` read from the server, and how."""

import pandas as pd
import pytest

import yahoo_server
from forecaster.bars import yahoo
from forecaster.bars.raw import Raw
from forecaster.bars.yahoo import Options
from forecaster.errors import DataError
from yahoo_server import Listing, YahooServer, daily

# Friday 2024-05-10, two hours before New York closes.
NOON = "2024-05-10 18:00Z"
EVENING = "2024-05-10 23:00Z"
DAYS = [f"2024-05-{day:02}" for day in (1, 2, 3, 6, 7, 8, 9, 10)]
CLOSES = [100.0, 101.0, 103.0, 102.0, 104.0, 105.0, 107.0, 106.0]


def listing(closes: list[float] = CLOSES, **more: object) -> Listing:
    return Listing({"1d": daily(dict(zip(DAYS, closes, strict=False)))}, **more)  # pyright: ignore


def read(
    options: Options, server: YahooServer, pauses: tuple[float, ...] = (), timeout: float = 5.0
) -> tuple[Raw, list[str]]:
    said: list[str] = []
    return yahoo.read(options, server.now, said.append, pauses, timeout), said


def refused(options: Options, server: YahooServer, pauses: tuple[float, ...] = (), timeout: float = 5.0) -> str:
    with pytest.raises(DataError) as raised:
        read(options, server, pauses, timeout)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def dates(raw: Raw) -> list[str]:
    return raw.frame["time"].dt.strftime("%Y-%m-%d").tolist()


def kinds(raw: Raw) -> list[str]:
    return [kind for _, _, kind, _, _ in raw.notes]


def hourly(days: list[str], count: int = 7) -> pd.DataFrame:
    stamps = [
        pd.Timestamp(f"{day} 09:30", tz="America/New_York").tz_convert("UTC") + pd.Timedelta(hours=hour)
        for day in days
        for hour in range(count)
    ]
    return yahoo_server.bars(pd.DatetimeIndex(stamps), [100.0 + row for row in range(len(stamps))])
