"""Jumps that no market made: unadjusted splits, units that switch, prices slipped by a factor."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

RATIOS: Final = (
    *(5 / 4, 4 / 3, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 25, 30, 35, 40, 50),
    *(60, 75, 80, 100, 150, 200, 250, 300, 400, 500, 1000),
)
UNITS: Final = (10.0, 100.0, 1000.0)

# A step of this factor from one bar to the next and back again is no price: the largest daily steps of listed stocks
# that were not halted stay below it.
SLIP: Final = 4.0
SLIP_BARS: Final = 10  # the longest stretch that is taken for a slip rather than a new level
SLIP_BACK: Final = 0.35  # how near, in logs, the price must come to where it was
# A smaller one is none either, where it lies far beyond the usual, between two bars, alone, and is undone at once.
SHORT: Final = 1.4
SHORT_SIGMAS: Final = 12
SHORT_BARS: Final = 3
SHORT_BACK: Final = 0.1
RANGE_SLIP: Final = 3.0  # high or low against the bar's own open and close

AROUND: Final = 60  # bars to either side that say how much prices move
SIGMA_FLOOR: Final = 0.003
CLOSED_SIGMA: Final = 0.04  # the most that a night or a gap in the bars widens it to
PEERS: Final = 21  # bars before that say what is usual, and least of them
LEAST_PEERS: Final = 5
# In logs: how near the open must come to the ratio, and the close. Below 2:1, where falls that are true are common, the
# close no farther than CALM, and an open farther than half of it leaves the split possible. At 3:2 the next ratio lies
# .12 away, at 6:1 .15; a true fall of 40 % is .10 from 3:2.
NEAR_OPEN: Final = (0.02, 0.06)
NEAR_CLOSE: Final = (0.04, 0.25)
CALM: Final = 0.08
# Below this ratio a true move looks alike too often to stop for.
SURE: Final = 1.4
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
    kind: Literal["split", "unit_switch", "possible_split", "level_shift", "large_jump"]
    shares: bool
    seen: float


def slips(bars: pd.DataFrame) -> list[Slip]:
    """Stretches of one symbol's bars that leave the price level and return to it, and bars with one price far out.

    A last bar that leaves it is one, too: nothing shows that it stays.
    """
    logs = np.log(bars["close"].to_numpy())
    steps = np.diff(logs)
    moved = np.abs(steps[steps != 0])
    short = max(np.log(SHORT), SHORT_SIGMAS * 1.4826 * float(np.median(moved))) if len(moved) else np.log(SLIP)
    found: list[Slip] = []
    beyond = 0
    for jump in map(int, np.flatnonzero(np.abs(steps) >= min(short, np.log(SLIP)))):
        if jump < beyond:
            continue
        far = bool(abs(steps[jump]) >= np.log(SLIP))
        least, near = (np.log(SLIP) / 2, SLIP_BACK) if far else (abs(steps[jump]) / 2, SHORT_BACK)
        for back in range(jump + 1, min(jump + 1 + (SLIP_BARS if far else SHORT_BARS), len(steps))):
            opposite = steps[back] * steps[jump] < 0 and abs(steps[back]) >= least
            if opposite and abs(logs[back + 1] - logs[jump]) < near and (far or _lone(bars, steps, jump, back)):
                level = (logs[jump] + logs[back + 1]) / 2
                factor = float(np.exp(np.median(logs[jump + 1 : back + 1]) - level))
                found.append(Slip(jump + 1, back + 1, factor))
                beyond = back + 1
                break
    last = len(steps) - 1
    if last > 0 and beyond <= last and abs(steps[last]) >= np.log(SLIP):
        found.append(Slip(last + 1, last + 2, float(np.exp(steps[last]))))
    inside = np.zeros(len(bars), dtype=bool)
    for slip in found:
        inside[slip.first : slip.end] = True
    return [*found, *_within(bars, inside)]


def _lone(bars: pd.DataFrame, steps: Float[np.ndarray, " m"], jump: int, back: int) -> bool:
    """Whether a step and its way back lie between bars, with none of their size near: a squeeze has many."""
    near = np.abs(steps[max(0, jump - SHORT_BARS) : back + 1 + SHORT_BARS])
    return int((near >= abs(steps[jump]) / 2).sum()) == 2 and _jumped(bars, steps, jump, back)


def _jumped(bars: pd.DataFrame, steps: Float[np.ndarray, " m"], *which: int) -> bool:
    """Whether half of each of these steps lies between two bars; closes alone can't tell, and may have."""
    if bars["open"].isna().all():
        return True
    opens, close = bars["open"].to_numpy(), bars["close"].to_numpy()
    return all(np.log(opens[step + 1] / close[step]) / steps[step] >= 0.5 for step in which)


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
    large = np.flatnonzero(np.abs(steps) >= np.log(min(RATIOS)) - CALM / 2)
    if not len(large):
        return []
    waits = np.diff(bars["time"].to_numpy(dtype="datetime64[us]")) / np.timedelta64(1, "D")
    found = [_level(bars, steps, waits, int(step), daily) for step in large]
    return [level for level in found if level is not None]


def _level(
    bars: pd.DataFrame, steps: Float[np.ndarray, " m"], waits: Float[np.ndarray, " m"], step: int, daily: bool
) -> Level | None:
    row = step + 1
    close = bars["close"].to_numpy()
    sigma = _usual(steps, waits, step, daily)
    seen = float(np.exp(steps[step]))
    alone = bool(bars["open"].isna().all())
    gap = float((close if alone else bars["open"].to_numpy())[row] / close[step])
    # Where it opened is nearer to the ratio than where a day has carried it.
    ratio = min((r for n in RATIOS for r in (float(n), 1 / n)), key=lambda r: abs(np.log(gap / r)))
    size = abs(np.log(ratio))
    farthest = CALM if size < np.log(2) else NEAR_CLOSE[1]
    off, tolerance = abs(np.log(gap / ratio)), np.clip(3 * sigma, *NEAR_OPEN)
    near = off <= tolerance and abs(np.log(seen / ratio)) <= np.clip(4 * sigma, NEAR_CLOSE[0], farthest)
    if near and size >= 8 * sigma and not _crash(bars, waits, row, ratio, daily):
        shares = _shares(bars, row, ratio)
        nearest = size >= np.log(2) or off <= tolerance / 2
        if size < np.log(SURE):
            return None if alone or not nearest else Level(row, ratio, "possible_split", shares, seen)
        if not nearest or (alone and not shares and size < np.log(CLOSES_ALONE)):
            return Level(row, ratio, "possible_split", shares, seen)
        unit = min(abs(np.log(ratio) - np.log(u)) for unit in UNITS[1:] for u in (unit, 1 / unit)) < 1e-9
        return Level(row, ratio, "unit_switch" if unit and not shares else "split", shares, seen)
    if abs(steps[step]) < np.log(SLIP):
        return None
    # Most of it between two bars: no trading led there.
    shifted = not alone and _jumped(bars, steps, step) and not _crash(bars, waits, row, seen, daily)
    return Level(row, seen, "level_shift" if shifted else "large_jump", False, seen)


def _usual(steps: Float[np.ndarray, " m"], waits: Float[np.ndarray, " m"], step: int, daily: bool) -> float:
    """How far the price usually moves in a step as long as this one, in logs: more where a night or a gap lies within.

    Steps of nothing, of a price that nobody traded, tell nothing.
    """
    around = np.delete(steps[max(0, step - AROUND) : step + AROUND + 1], min(step, AROUND))
    moved = np.abs(around[around != 0])
    sigma = 1.4826 * float(np.median(moved)) if len(moved) else 0.0
    # Days of a week count as 5 of 7.
    longer = float(waits[step] / (1.4 if daily else 1.0) / np.median(waits))
    return max(SIGMA_FLOOR, sigma, min(sigma * longer**0.5, CLOSED_SIGMA))


def _crash(bars: pd.DataFrame, waits: Float[np.ndarray, " m"], row: int, ratio: float, daily: bool) -> bool:
    """Whether a bar is wide, or has a crowd, against those before; of intraday bars those after as long a pause."""
    peers = np.flatnonzero(waits[: row - 1] >= waits[row - 1] / 2) + 1 if not daily else np.arange(row)
    if len(peers) < LEAST_PEERS:
        return False
    before = peers[-PEERS:]
    if not bars["high"].isna().all():
        spans = np.log(bars["high"].to_numpy() / bars["low"].to_numpy())
        usual = float(np.median(spans[before]))
        if usual > 0 and spans[row] > WIDE * usual and spans[row] > 0.05:
            return True
    if bars["volume"].isna().all():
        return False
    volume = bars["volume"].to_numpy()
    traded = volume[before][volume[before] > 0]  # a blank volume is NaN here
    usual = float(np.median(traded)) if len(traded) else 0.0
    return bool(usual > 0 and volume[row] > CROWD * max(1.0, 1 / ratio) * usual)


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
