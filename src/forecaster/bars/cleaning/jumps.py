"""Jumps that no market made: unadjusted splits, units that switch, prices slipped by a factor."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

RATIOS: Final = (1.5, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 25, 30, 35, 40, 50, 100, 1000)
UNITS: Final = (10.0, 100.0, 1000.0)

# A step of this factor from one bar to the next and back again is no price: the largest daily steps of listed stocks
# that were not halted stay below it.
SLIP: Final = 4.0
SLIP_BARS: Final = 10  # the longest stretch that is taken for a slip rather than a new level
SLIP_BACK: Final = 0.35  # how near, in logs, the price must come to where it was
RANGE_SLIP: Final = 3.0  # high or low against the bar's own open and close

AROUND: Final = 60  # bars to either side that say how much prices move
SIGMA_FLOOR: Final = 0.003
# In logs: how near the open must come to the ratio, and the close; half of it at 3:2, where falls that are true are
# common. At 3:2 the next ratio lies .29 away, at 6:1 .15; a true fall of 40 % is .10 from 3:2.
NEAR_OPEN: Final = (0.02, 0.06)
NEAR_CLOSE: Final = (0.04, 0.08)
# With closes alone nothing but the ratio speaks for a split, and falls by a half or two thirds happen in a day.
CLOSES_ALONE: Final = 3.5
# A crash brings a wide bar and a crowd; a split brings neither. Medians of the bars before.
WIDE: Final = 4.0
CROWD: Final = 5.0


@dataclass(frozen=True)
class Slip:
    """Bars first to end - 1 stand `factor` times too high; `part` names the column where only one is wrong."""

    first: int
    end: int
    factor: float
    part: str = "close"

    @property
    def unit(self) -> float | None:
        """The power of ten that mends them, where the factor is one."""
        return next((u for unit in UNITS for u in (unit, 1 / unit) if abs(np.log(self.factor / u)) < 0.1), None)


@dataclass(frozen=True)
class Level:
    """From bar `row` on prices stand at `ratio` times what they were; `kind` tells what did it.

    shares: volume moved the other way, as the number of shares in a split.
    """

    row: int
    ratio: float
    kind: Literal["split", "unit_switch", "possible_split", "large_jump"]
    shares: bool
    seen: float


def slips(bars: pd.DataFrame) -> list[Slip]:
    """Stretches of one symbol's bars that leave the price level and return to it, and bars with one price far out."""
    logs = np.log(bars["close"].to_numpy())
    steps = np.diff(logs)
    found: list[Slip] = []
    beyond = 0
    for jump in map(int, np.flatnonzero(np.abs(steps) >= np.log(SLIP))):
        if jump < beyond:
            continue
        for back in range(jump + 1, min(jump + 1 + SLIP_BARS, len(steps))):
            opposite = steps[back] * steps[jump] < 0 and abs(steps[back]) >= np.log(SLIP) / 2
            if opposite and abs(logs[back + 1] - logs[jump]) < SLIP_BACK:
                level = (logs[jump] + logs[back + 1]) / 2
                factor = float(np.exp(np.median(logs[jump + 1 : back + 1]) - level))
                found.append(Slip(jump + 1, back + 1, factor))
                beyond = back + 1
                break
    inside = np.zeros(len(bars), dtype=bool)
    for slip in found:
        inside[slip.first : slip.end] = True
    return [*found, *_within(bars, inside)]


def _within(bars: pd.DataFrame, slipped: Bool[np.ndarray, " n"]) -> Iterator[Slip]:
    if bars["open"].isna().all():
        return
    opens, high, low, close = (bars[name].to_numpy() for name in ("open", "high", "low", "close"))
    before = np.concatenate(([close[0]], close[:-1]))
    body = {"high": np.maximum(opens, close), "low": np.minimum(opens, close)}
    opened = np.log(opens / close)
    wrong_open = (np.abs(opened) >= np.log(SLIP)) & (np.abs(np.log(opens / before)) >= np.log(SLIP))
    wrong_open[0] = abs(opened[0]) >= np.log(SLIP)
    for row in map(int, np.flatnonzero(wrong_open & ~slipped)):
        yield Slip(row, row + 1, float(opens[row] / close[row]), "open")
    for name, price in (("high", high), ("low", low)):
        out = (np.abs(np.log(price / body[name])) >= np.log(RANGE_SLIP)) & ~slipped & ~wrong_open
        for row in map(int, np.flatnonzero(out)):
            yield Slip(row, row + 1, float(price[row] / body[name][row]), name)


def levels(bars: pd.DataFrame, daily: bool) -> list[Level]:
    """Steps of one symbol's bars to a level that stays: at a ratio of shares or of units, or large and unexplained.

    A split shows at the open, near a ratio of whole shares, without the wide bar and the crowd of a crash.
    """
    logs = np.log(bars["close"].to_numpy())
    steps = np.diff(logs)
    large = np.flatnonzero(np.abs(steps) >= np.log(min(RATIOS)) - NEAR_CLOSE[1])
    found = [_level(bars, steps, int(step), daily) for step in large]
    return [level for level in found if level is not None]


def _level(bars: pd.DataFrame, steps: Float[np.ndarray, " m"], step: int, daily: bool) -> Level | None:
    row = step + 1
    close = bars["close"].to_numpy()
    around = np.delete(steps[max(0, step - AROUND) : step + AROUND + 1], min(step, AROUND))
    sigma = max(SIGMA_FLOOR, 1.4826 * float(np.median(np.abs(around)))) if len(around) else SIGMA_FLOOR
    seen = float(np.exp(steps[step]))
    ratio = min((r for n in RATIOS for r in (float(n), 1 / n)), key=lambda r: abs(np.log(seen / r)))
    gap = close[row] if bars["open"].isna().all() else bars["open"].to_numpy()[row]
    share = 0.5 if abs(np.log(ratio)) < np.log(2) else 1.0
    near = abs(np.log(gap / close[step] / ratio)) <= share * np.clip(3 * sigma, *NEAR_OPEN)
    near = near and abs(np.log(seen / ratio)) <= share * np.clip(4 * sigma, *NEAR_CLOSE)
    if near and abs(np.log(ratio)) >= 8 * sigma and not _crash(bars, row, ratio, daily):
        shares = _shares(bars, row, ratio)
        alone = bars["open"].isna().all() and not shares
        if alone and abs(np.log(ratio)) < np.log(CLOSES_ALONE):
            return Level(row, ratio, "possible_split", shares, seen)
        unit = min(abs(np.log(ratio) - np.log(u)) for unit in UNITS[1:] for u in (unit, 1 / unit)) < 1e-9
        return Level(row, ratio, "unit_switch" if unit and not shares else "split", shares, seen)
    return Level(row, seen, "large_jump", False, seen) if abs(steps[step]) >= np.log(SLIP) else None


def _crash(bars: pd.DataFrame, row: int, ratio: float, daily: bool) -> bool:
    before = slice(max(0, row - 21), row)
    if daily and not bars["high"].isna().all():
        spans = np.log(bars["high"].to_numpy() / bars["low"].to_numpy())
        usual = float(np.median(spans[before]))
        if usual > 0 and spans[row] > WIDE * usual and spans[row] > 0.05:
            return True
    if bars["volume"].isna().all():
        return False
    volume = bars["volume"].to_numpy()
    traded = volume[before][volume[before] > 0]  # a blank volume is NaN here
    usual = float(np.median(traded)) if len(traded) else 0.0
    return bool(daily and usual > 0 and volume[row] > CROWD * max(1.0, 1 / ratio) * usual)


def _shares(bars: pd.DataFrame, row: int, ratio: float) -> bool:
    """Whether volume moved with the number of shares: nearer to 1 / ratio than to no change."""
    if bars["volume"].isna().all():
        return False
    volume = bars["volume"].to_numpy()
    before, after = (volume[part][volume[part] > 0] for part in (slice(max(0, row - 21), row), slice(row, row + 21)))
    if not len(before) or not len(after):
        return False
    moved = np.log(np.median(after) / np.median(before))
    return bool(abs(moved + np.log(ratio)) < abs(moved))


def runs(flags: Bool[np.ndarray, " n"], least: int) -> Int[np.ndarray, "k 2"]:
    """First row and one past the last row of every stretch of at least `least` true flags."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(np.int8), [0]))))
    pairs = edges.reshape(-1, 2)
    return pairs[pairs[:, 1] - pairs[:, 0] >= least]
