"""The server of Yahoo's charts, and options that ask it for eight days."""

from collections.abc import Generator
from pathlib import Path

import pytest

import yahoo_server
from forecaster.bars.yahoo import Options
from yahoo_case import EVENING, listing
from yahoo_server import YahooServer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Generator[YahooServer]:
    with yahoo_server.served(EVENING) as found:
        yahoo_server.point(found.url, monkeypatch.setattr)
        found.listings["AAA"] = listing()
        yield found


@pytest.fixture
def options(tmp_path: Path) -> Options:
    return Options(
        symbols=("AAA",),
        start="2024-05-01",
        end="2024-05-10",
        interval="1d",
        auto_adjust=True,
        strict=False,
        cache=str(tmp_path / "cache"),
    )
