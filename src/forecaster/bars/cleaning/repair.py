"""What is done about jumps that no market made."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd
from jaxtyping import Bool

from forecaster.bars.cleaning.jumps import Level, Slip, levels, slips
from forecaster.bars.cleaning.policy import STOP, Policy, Step, written
from forecaster.bars.contract import PRICES, Row, quality_report, symbol_bounds

ACCEPTED: Final = "kept as accepted"
ADJUSTABLE: Final = ("split", "unit_switch", "spike")
MOVES: Final = (*ADJUSTABLE, "level_shift")  # which may be true after all


def jumps(rows: pd.DataFrame, policy: Policy, daily: bool) -> Step:
    """The rows, sorted by symbol and time, as the policy wants them where prices jump.

    To stop changes nothing but says so; to drop leaves out slipped bars and every bar before a split or a change of
    units; to adjust scales them, and leaves out only a slip that is no power of ten.
    """
    parts = [rows.iloc[:0]]
    report: list[Row] = []
    for symbol, first, end in symbol_bounds(rows["symbol"]):
        bars, noticed = _one_symbol(rows.iloc[first:end], symbol, policy, daily)
        parts.append(bars)
        report += noticed
    return (pd.concat(parts) if report else rows), [quality_report(report)]


def _one_symbol(bars: pd.DataFrame, symbol: str, policy: Policy, daily: bool) -> tuple[pd.DataFrame, list[Row]]:
    report: list[Row] = []
    found = slips(bars)
    # Levels are sought among bars that stand where they should.
    aside = np.zeros(len(bars), dtype=np.bool_)
    dropped = np.zeros(len(bars), dtype=np.bool_)
    for slip in found:
        for row in range(slip.first, slip.end):
            time, detail = bars["time"].iloc[row], _slip_detail(bars, slip, row)
            action = _slip_action(slip, policy.accepts(symbol, time), policy.on_error)
            report.append((symbol, time, "spike", detail, action))
            dropped[row] |= action == "dropped"
            if action.startswith("divided"):
                bars = _multiplied(bars, row, row + 1, 1 / (slip.unit or 1), slip.part)
            else:
                aside[row] |= slip.part == "close"
    straight = bars[~aside & ~dropped] if found else bars
    first = bars["time"].iloc[0]
    for level in levels(straight, daily):
        time = straight["time"].iloc[level.row]
        row = int((bars["time"] < time).sum())
        action = _level_action(level, policy.accepts(symbol, time), policy.on_error, row, len(bars))
        report.append((symbol, time, level.kind, _level_detail(straight, level), action))
        if action.startswith("every bar before"):
            first = time
        if action.startswith("prices"):
            span, factor = _scaling(level, row, len(bars))
            bars = _multiplied(bars, *span, factor, "close", shares=level.shares)
    if not report:
        return bars, report
    before: Bool[np.ndarray, " n"] = (bars["time"] < first).to_numpy(dtype=np.bool_)
    report += _lost(bars.loc[before & ~dropped], symbol)
    return bars.loc[~before & ~dropped], report


def _slip_action(slip: Slip, accepted: bool, on_error: str | None) -> str:
    if accepted:
        return ACCEPTED
    if on_error is None:
        return STOP
    return f"divided by {slip.unit:g}" if on_error == "adjust" and slip.unit else "dropped"


def _level_action(level: Level, accepted: bool, on_error: str | None, row: int, count: int) -> str:
    if level.kind in ("large_jump", "possible_split"):
        return "kept"
    if accepted:
        return ACCEPTED
    if on_error is None:
        return STOP
    if on_error == "drop" or level.kind == "level_shift":
        return "every bar before dropped"
    (first, end), factor = _scaling(level, row, count)
    side = "before" if first == 0 else "from it on"
    return f"prices of the {end - first} bars {side} times {factor:.6g}{', volumes divided' if level.shares else ''}"


def _scaling(level: Level, row: int, count: int) -> tuple[tuple[int, int], float]:
    """Which bars come to the level of the others, and by what factor: those before a split; of two units, the fewer."""
    if level.kind == "split" or row <= count - row:
        return (0, row), level.ratio
    return (row, count), 1 / level.ratio


def _multiplied(
    bars: pd.DataFrame, first: int, end: int, factor: float, part: str, shares: bool = False
) -> pd.DataFrame:
    within: Bool[np.ndarray, " n"] = np.zeros(len(bars), dtype=np.bool_)
    within[first:end] = True
    names = PRICES if part == "close" else (part,)
    scaled = {name: np.where(within, bars[name] * factor, bars[name]) for name in names}
    if shares:
        scaled["volume"] = np.where(within, bars["volume"] / factor, bars["volume"])
    return bars.assign(**scaled)


def _lost(bars: pd.DataFrame, symbol: str) -> Iterator[Row]:
    for time, place in zip(bars["time"], bars["place"], strict=True):
        yield symbol, time, "before_split", f"{place}: on another price level", "dropped"


def _slip_detail(bars: pd.DataFrame, slip: Slip, row: int) -> str:
    price = bars[slip.part].iloc[row]
    size = f"{slip.factor:.4g} times" if slip.factor >= 1 else f"1/{1 / slip.factor:.4g} of"
    around = "the bar before" if slip.end == len(bars) else "the bars around"
    what = around if slip.part == "close" else "the bar's other prices"
    return f"{bars['place'].iloc[row]}: {slip.part} {price:.10g} is {size} {what}"


def _level_detail(bars: pd.DataFrame, level: Level) -> str:
    close, time = bars["close"], bars["time"]
    near = f", near {level.ratio:.4g}" if level.ratio >= 1 else f", near 1/{1 / level.ratio:.4g}"
    near = "" if level.kind in ("large_jump", "level_shift") else near
    return (
        f"{bars['place'].iloc[level.row]}: close {close.iloc[level.row - 1]:.10g} at "
        f"{written(time.iloc[level.row - 1])}, then {close.iloc[level.row]:.10g}: ratio {level.seen:.4g}"
        f"{near}{', volume the other way' if level.shares else ''}"
    )
