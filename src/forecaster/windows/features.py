"""Features of a bar: numbers that use that bar and earlier ones only."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Shaped

MEDIAN_BARS: Final = 20
WARMUP: Final = 20  # the first row at which every feature exists
EWMA_DECAY: Final = 0.94  # RiskMetrics Technical Document (J.P. Morgan, 1996), daily data
CHUNK: Final = 1 << 14  # bars whose volumes are sorted at once: 3 MB
VARIANCE_FLOOR: Final = 1e-12  # a bar without any range has variance 0; 1e-12 is a daily volatility of 0.0001 %

WEEKDAYS: Final = tuple(f"weekday_{day}" for day in range(7))
FEATURES: Final = (
    *("log_return", "abs_return", "log_volatility", "log_volume", "shock", "log_sigma", "gap_days"),
    *WEEKDAYS,
)
CLOCK: Final = ("clock_sin", "clock_cos")  # of intraday bars only
NEEDS: Final = {"log_volatility": ("open", "high", "low"), "log_volume": ("volume",)}  # columns that bars may lack


def log_return(close: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Log return r[t] = ln(C[t] / C[t-1]); the first is NaN."""
    return np.diff(np.log(close), prepend=np.nan)


def garman_klass(bars: pd.DataFrame) -> Float[np.ndarray, " n"]:
    """Log of the Garman-Klass volatility of each bar.

    s2 = ln(H/L)^2 / 2 - (2 ln 2 - 1) ln(C/O)^2, returned as ln(s2) / 2 in log units per bar. s2 >= 0 for every
    possible bar and 0 only for one without range, which is held at VARIANCE_FLOOR.
    Garman and Klass (1980), On the Estimation of Security Price Volatilities from Historical Data, eq. 20.
    """
    high, low = bars["high"].to_numpy(), bars["low"].to_numpy()
    body = np.log(bars["close"].to_numpy() / bars["open"].to_numpy())
    variance = 0.5 * np.log(high / low) ** 2 - (2.0 * np.log(2.0) - 1.0) * body**2
    return 0.5 * np.log(np.maximum(variance, VARIANCE_FLOOR))


def volume_median(volume: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Median of the positive volumes among the last MEDIAN_BARS bars; NaN before so many bars or where none traded."""
    median = np.full(len(volume), np.nan)
    if len(volume) >= MEDIAN_BARS:
        traded = np.where(volume > 0, volume, np.nan)
        windows = np.lib.stride_tricks.sliding_window_view(traded, MEDIAN_BARS)
        for start in range(0, len(windows), CHUNK):
            # Sorting a bar's 20 volumes is quicker than a rolling median that keeps them in order; NaN comes last.
            ordered = np.sort(windows[start : start + CHUNK], axis=1)
            count = MEDIAN_BARS - np.isnan(ordered).sum(axis=1)
            rows = np.arange(len(ordered))
            middle = (ordered[rows, (count - 1) // 2] + ordered[rows, count // 2]) / 2.0
            median[MEDIAN_BARS - 1 + start :][: len(middle)] = middle
    return median


def log_volume(volume: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Log volume against its trailing median, ln(V[t] / median(V[t-19..t])).

    A bar without volume says nothing about it and gets 0, "as usual"; the quality report names every such bar.
    """
    median = volume_median(volume)
    with np.errstate(divide="ignore"):
        ratio = np.log(volume) - np.log(median)
    missing = ~(volume > 0) | np.isnan(median)
    ratio[missing] = 0.0
    ratio[: MEDIAN_BARS - 1] = np.nan
    return ratio


def ewma_volatility(returns: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Exponentially weighted volatility, s2[t] = .94 s2[t-1] + .06 r[t]^2, started at the mean square of the first
    WARMUP - 1 returns and therefore NaN before row WARMUP - 1.

    J.P. Morgan (1996), RiskMetrics Technical Document.
    """
    variance = np.full(len(returns), np.nan)
    if len(returns) < WARMUP:
        return variance
    start = float(np.mean(returns[1:WARMUP] ** 2))
    squares = np.concatenate(([start], returns[WARMUP:] ** 2))
    variance[WARMUP - 1 :] = pd.Series(squares).ewm(alpha=1.0 - EWMA_DECAY, adjust=False).mean().to_numpy()
    return np.sqrt(variance)


def shock(returns: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Size of a move in units of what was to be expected, |r[t]| / s_EWMA[t-1]; 0 where nothing has moved yet."""
    return _shock(returns, ewma_volatility(returns))


def _shock(returns: Float[np.ndarray, " n"], volatility: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    expected = np.concatenate(([np.nan], volatility[:-1])) if len(returns) else returns
    size = np.abs(returns)
    return np.where(
        expected > 0, size / np.where(expected > 0, expected, 1.0), np.where(np.isnan(expected), np.nan, 0.0)
    )


def available(lacking: Sequence[str], intraday: bool) -> tuple[str, ...]:
    """The features of bars that lack some columns: FEATURES without those that need them, and CLOCK where intraday."""
    names = (*FEATURES, *CLOCK) if intraday else FEATURES
    return tuple(name for name in names if not set(NEEDS.get(name, ())) & set(lacking))


def ahead(clock_BH: Shaped[np.ndarray, "B H"], intraday: bool) -> Float[np.ndarray, "B H K"]:
    """What is known beforehand of bars to come: WEEKDAYS of their dates, and CLOCK where intraday.

    clock: what a clock in the market's zone will show, datetime64.
    """
    weekday, angle = _calendar(clock_BH)
    columns = [weekday == day for day in range(len(WEEKDAYS))]
    columns += [np.sin(angle), np.cos(angle)] if intraday else []
    return np.stack(columns, axis=-1).astype(np.float64)


def _calendar(clock: Shaped[np.ndarray, "*n"]) -> tuple[Int[np.ndarray, "*n"], Float[np.ndarray, "*n"]]:
    """Day of the week from Monday = 0, and the time of day as an angle."""
    days = clock.astype("datetime64[D]")
    # 1970-01-01 was a Thursday.
    return (days.astype(np.int64) + 3) % 7, 2.0 * np.pi * ((clock - days) / np.timedelta64(1, "D"))


def features(
    bars: pd.DataFrame, names: Sequence[str] = FEATURES, clock: Shaped[np.ndarray, " n"] | None = None
) -> Float[np.ndarray, "n F"]:
    """The named features of one symbol's bars, in that order; NaN in rows before WARMUP where one does not exist yet.

    clock: what a clock in the market's zone shows at each bar, datetime64, for weekdays and the time of day; without
    it, the bars' own times. gap_days is true time between two bars, whatever the clock does.
    """
    times = bars["time"].to_numpy(dtype="datetime64[us]")
    shown = times if clock is None else clock
    returns = log_return(bars["close"].to_numpy())
    volatility = ewma_volatility(returns)
    weekday, angle = _calendar(shown)
    column: dict[str, Callable[[], np.ndarray]] = {
        "log_return": lambda: returns,
        "abs_return": lambda: np.abs(returns),
        "log_volatility": lambda: garman_klass(bars),
        "log_volume": lambda: log_volume(bars["volume"].to_numpy()),
        "shock": lambda: _shock(returns, volatility),
        "log_sigma": lambda: np.log(np.maximum(volatility, np.sqrt(VARIANCE_FLOOR))),
        "gap_days": lambda: np.diff(times, prepend=np.datetime64("NaT")) / np.timedelta64(1, "D"),
        **{name: lambda day=day: (weekday == day).astype(np.float64) for day, name in enumerate(WEEKDAYS)},
        "clock_sin": lambda: np.sin(angle),
        "clock_cos": lambda: np.cos(angle),
    }
    table = np.empty((len(bars), len(names)))
    for number, name in enumerate(names):  # one after the other: a column of a long series is large
        table[:, number] = column[name]()
    return table
