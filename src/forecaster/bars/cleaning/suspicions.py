"""What is odd about bars that are possible: kept as they are, and said."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd

from forecaster.bars.calendar import Calendar
from forecaster.bars.cleaning.jumps import runs
from forecaster.bars.cleaning.policy import written
from forecaster.bars.contract import NUMBERS, PRICES, Row, minutes, quality_report, symbol_bounds

FLAT_DAYS: Final = 5  # a price can stand still for some days, hardly for a week
FLAT_BARS: Final = 30  # of minutes or hours
# Below this share of the median of the bars before, the last volume is hardly a session's.
PARTIAL_SHARE: Final = 0.1
# Medians of volume before and after a bar that differ by this factor: shares, then lots or thousands.
VOLUME_FACTOR: Final = 30
VOLUME_DAYS: Final = 20


def suspicions(rows: pd.DataFrame, code: str, interval: str) -> list[pd.DataFrame]:
    """Gaps, flat stretches, phantom bars and bars without volume, of bars sorted by symbol and time."""
    calendar = Calendar(code)
    report: list[Row] = []
    for symbol, first, end in symbol_bounds(rows["symbol"]):
        bars = rows.iloc[first:end]
        report += _gaps(bars, symbol, calendar, interval)
        report += _flats(bars, symbol, interval)
        if not bars["volume"].isna().all():
            report += _volumes(bars, symbol, interval)
    return [quality_report(report)]


def _gaps(bars: pd.DataFrame, symbol: str, calendar: Calendar, interval: str) -> list[Row]:
    missing = calendar.missing(bars["time"].to_numpy(dtype="datetime64[us]"), interval)
    noun = "sessions" if interval == "1d" else f"bars of {interval}"
    return [
        (
            symbol,
            bars["time"].iloc[row + 1],
            "gap",
            f"{noun} without a bar: {missing[row]}, since {written(bars['time'].iloc[row])}",
            "kept",
        )
        for row in map(int, np.flatnonzero(missing))
    ]


def _flats(bars: pd.DataFrame, symbol: str, interval: str) -> list[Row]:
    close = bars["close"].to_numpy()
    still = np.concatenate(([False], close[1:] == close[:-1]))
    least = FLAT_DAYS if minutes(interval) >= 1440 else FLAT_BARS
    return [
        (
            symbol,
            bars["time"].iloc[first],
            "flat",
            f"close {close[first]:.10g} stays for {end - first} more bars, to {written(bars['time'].iloc[end - 1])}",
            "kept",
        )
        for first, end in runs(still, least)
    ]


def _copies(bars: pd.DataFrame, symbol: str) -> list[Row]:
    """Bars that are the one before once more, its volume included."""
    copied = np.ones(len(bars) - 1, dtype=np.bool_)
    for name in NUMBERS:
        numbers = bars[name].to_numpy()
        if not np.isnan(numbers).all():
            copied &= numbers[1:] == numbers[:-1]
    rows = np.flatnonzero(copied & (bars["volume"].to_numpy()[1:] > 0)) + 1
    if not len(rows):
        return []
    row = int(rows[0])
    detail = f"{len(rows)} bars have the prices and the volume of the one before, first {bars['place'].iloc[row]}"
    return [(symbol, bars["time"].iloc[row], "copy", detail, "kept")]


def _volume_units(bars: pd.DataFrame, symbol: str) -> Iterator[Row]:
    """Days from which on volume is another order of magnitude, from one day to the next."""
    traded = bars[bars["volume"] > 0]
    logs = np.log(traded["volume"].to_numpy())
    beyond = 0
    for row in map(int, np.flatnonzero(np.abs(np.diff(logs)) >= np.log(VOLUME_FACTOR) / 2) + 1):
        before, after = (
            logs[part] for part in (slice(max(beyond, row - VOLUME_DAYS), row), slice(row, row + VOLUME_DAYS))
        )
        moved = float(np.median(after) - np.median(before)) if min(len(before), len(after)) >= FLAT_DAYS else 0.0
        if abs(moved) >= np.log(VOLUME_FACTOR):
            factor = f"{np.exp(moved):.3g} times" if moved > 0 else f"1/{np.exp(-moved):.3g} of"
            detail = f"{traded['place'].iloc[row]}: from here on volume is {factor} what it was: other units?"
            yield symbol, traded["time"].iloc[row], "volume_shift", detail, "kept"
            beyond = row


def _volumes(bars: pd.DataFrame, symbol: str, interval: str) -> list[Row]:
    volume, close = bars["volume"].to_numpy(), bars["close"].to_numpy()
    known = not bars["open"].isna().all()
    flat = np.concatenate(([False], close[1:] == close[:-1]))
    for name in PRICES[:3] if known else ():
        flat &= bars[name].to_numpy() == close
    zero = volume == 0
    report = [*_copies(bars, symbol), *(_volume_units(bars, symbol) if interval == "1d" else ())]
    for row in map(int, np.flatnonzero(zero)):
        place = bars["place"].iloc[row]
        if flat[row]:
            detail = f"{place}: flat bar with volume 0, every price the previous close: a holiday or a halt"
            report.append((symbol, bars["time"].iloc[row], "phantom", detail, "kept"))
        else:
            report.append(
                (symbol, bars["time"].iloc[row], "zero_volume", f"{place}: prices moved, volume is 0", "kept")
            )
    usual = float(np.nanmedian(volume[-21:-1])) if interval == "1d" and len(volume) > 21 else 0.0
    if 0 < volume[-1] < PARTIAL_SHARE * usual:
        detail = (
            f"{bars['place'].iloc[-1]}: volume {volume[-1]:.10g} is {volume[-1] / usual:.0%} of the median of 20 before"
        )
        report.append((symbol, bars["time"].iloc[-1], "partial_last", detail, "kept"))
    return report
