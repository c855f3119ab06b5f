"""Yahoo Finance, through yfinance and a cache."""

from forecaster.bars.yahoo.source import Options, first_date, read

__all__ = ["Options", "first_date", "read"]
