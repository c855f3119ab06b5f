"""Yahoo Finance, through yfinance and a cache."""

from forecaster.bars.yahoo.source import Options, read

__all__ = ["Options", "read"]
