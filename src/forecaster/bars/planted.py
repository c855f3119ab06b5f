"""Planted markets: synthetic bars with a structure that is known, or with none."""

from typing import Final

import numpy as np
import pandas as pd
from jaxtyping import Float

from forecaster.bars.calendar import Calendar
from forecaster.bars.contract import Bars, check, quality_report
from forecaster.bars.exchanges import FIRST, hours_of
from forecaster.bars.rules import BACK, LARGEST, MOVES, RECENT, SIGHT, Simulated, simulated
from forecaster.errors import ConfigError

KINDS: Final = (
    *("noise", "recency", "weekly", "large_move", "volume", "trend", "several", "together", "changing"),
    "weekly_hourly",
)
LAST: Final = "2025-12-31"  # fixed: the same bars on every day of the calendar
HOURLY: Final = pd.Timestamp("2006-01-03")  # the first session that hourly bars may come from
HOUR: Final = np.timedelta64(1, "h")
TURN: Final = "1990-01-02"  # from here on "changing" follows its second rule: half of 18,000 bars

FREEDOM: Final = 4  # degrees of freedom of the Student t noise
BURN_IN: Final = 500  # bars simulated before the first one kept

PATH_STEPS: Final = 16  # prices within a bar, the first of them its open
FIRST_PRICE: Final = 100.0

# Log volume: LEVEL + an AR(1) + PER_MOVE |r| / sigma + noise. Volume and absolute return move together (Karpoff, 1987,
# The Relation Between Price Changes and Trading Volume).
VOLUME_LEVEL: Final = 16.0
VOLUME_MEMORY: Final = 0.9
VOLUME_SHOCK: Final = 0.1
VOLUME_PER_MOVE: Final = 0.3
VOLUME_NOISE: Final = 0.15
QUIET: Final = 0.25  # of all that, where spikes are planted

RULES: Final = {
    "noise": "r = e",
    "recency": "r[t+1] = {phi} (r[t-1] + r[t-2]) + e",
    "weekly": "r[t+1] = {phi} r[t-4] + e",
    "weekly_hourly": "r[t+1] = {phi} r[t-34] + e, a week of 35 bars",
    "several": (
        f"r[t+1] = {RECENT} (r[t-1] + r[t-2]) + {{phi}} r[t-4] + {MOVES} sigma (sum of the {LARGEST} largest z of "
        f"{SIGHT} bars) + e"
    ),
    "large_move": f"r[t+1] = {{phi}} w sigma (sum of the {LARGEST} largest moves of {SIGHT} bars) + e",
    "together": (
        f"r[t+1] = {RECENT} (r[t-1] + r[t-2]) + {{phi}} r[t-4] + {MOVES} w sigma (sum of the {LARGEST} largest moves "
        f"of {SIGHT} bars) + e"
    ),
    "changing": (
        f"r[t+1] = {{phi}} r[t-4] + e before {TURN}, from then on {MOVES} w sigma (sum of the {LARGEST} largest moves "
        f"of {SIGHT} bars) + e"
    ),
    "volume": "after a volume spike r[t+1] = {phi} r[the spike before] + e, otherwise e",
    "trend": f"r[t+1] = {{phi}} w sigma (the last blow-off over {BACK} bars old, in sigma) - its retracement + e",
}


def load(kind: str, bars: int, seed: int, symbols: int = 1, phi: float = 0.7) -> Bars:
    """Planted bars on the last `bars` XNYS sessions (or hours) up to LAST, the same for the same arguments.

    RULES has the rule of each kind; w is -1 on Tuesdays and Thursdays, else 1 (see `rules`), e the noise: GARCH(1,1)
    with standardised Student t innovations, of infinite fourth moment: about 1 seed in 50 has an outburst of volatility
    that outweighs all other bars. "weekly": a forecaster explains R2 = phi^2 at best. "noise": nothing is explained.
    Symbols are independent, and a further one changes no other.
    ConfigError for arguments that describe no market.
    """
    if kind not in KINDS:
        raise ConfigError(f"planted bars: kind {kind!r}: choose from {', '.join(sorted(KINDS))}")
    if symbols < 1:
        raise ConfigError(f"planted bars: symbols {symbols}: ask for at least 1")
    if not -1 < phi < 1:
        raise ConfigError(f"planted bars: phi {phi}: |phi| must be below 1, or prices explode")
    times = _times(kind)
    if not 1 <= bars <= len(times):
        raise ConfigError(f"planted bars: bars {bars}: ask for 1 to {len(times)}, the sessions up to {LAST}")
    width = len(str(symbols - 1))
    frames = [
        _market(np.random.default_rng(stream), kind, times, bars, phi).assign(
            symbol=f"{kind.upper()}_{number:0{width}d}", time=times[-bars:]
        )
        for number, stream in enumerate(np.random.SeedSequence(seed).spawn(symbols))
    ]
    return Bars(
        frame=check(pd.concat(frames), "planted bars"),
        quality=quality_report(()),
        calendar="XNYS",
        interval="1h" if kind == "weekly_hourly" else "1d",
        basis=f"synthetic: {RULES[kind].format(phi=phi)}, e GARCH(1,1) Student t, seed {seed}",
    )


def expected(kind: str, bars: int, seed: int, phi: float) -> Float[np.ndarray, " n"]:
    """What the rule itself expects of each bar's return, known a bar before, of the first symbol of the same market."""
    stream = np.random.SeedSequence(seed).spawn(1)[0]
    return _simulated(np.random.default_rng(stream), kind, _times(kind), phi)[0].expected[-bars:]


def _times(kind: str) -> pd.DatetimeIndex:
    """Every session from which bars may be asked, or every hour of theirs."""
    if kind != "weekly_hourly":
        return Calendar("XNYS").sessions(FIRST + pd.offsets.Week(), LAST)
    hours = hours_of("XNYS")
    chosen = (hours.sessions >= HOURLY) & (hours.sessions <= pd.Timestamp(LAST))
    opens, closes = hours.opens[chosen], hours.closes[chosen]
    step = np.arange(int((closes - opens).max() / HOUR) + 1) * HOUR
    stamps = opens[:, None] + step
    return pd.DatetimeIndex(stamps[stamps < closes[:, None]]).tz_localize("UTC")


def _simulated(
    rng: np.random.Generator, kind: str, times: pd.DatetimeIndex, phi: float
) -> tuple[Simulated, np.random.Generator, np.random.Generator]:
    """The market's returns, and the generators of paths and volumes: each has its own stream, so that phi changes
    prices only.

    All sessions are simulated and the last ones kept, so that fewer bars are the end of the same market: a date never
    holds what another length has under an earlier one.
    """
    noise_rng, path_rng, volume_rng, event_rng = rng.spawn(4)
    noise = noise_rng.standard_t(FREEDOM, BURN_IN + len(times)) / np.sqrt(FREEDOM / (FREEDOM - 2))
    weekday = np.concatenate((np.zeros(BURN_IN, dtype=np.int64), times.day_of_week.to_numpy(dtype=np.int64)))
    hourly = kind == "weekly_hourly"
    week_bars = Calendar("XNYS").week_bars * Calendar("XNYS").session_bars("1h" if hourly else "1d")
    turn = BURN_IN + int(times.tz_localize(None).searchsorted(pd.Timestamp(TURN)))
    made = simulated("weekly" if hourly else kind, noise, weekday, phi, event_rng, week_bars, turn)
    return made.last(len(times)), path_rng, volume_rng


def _market(rng: np.random.Generator, kind: str, times: pd.DatetimeIndex, bars: int, phi: float) -> pd.DataFrame:
    """Open to volume of the last bars of one symbol."""
    made, path_rng, volume_rng = _simulated(rng, kind, times, phi)
    path = np.exp(_log_paths(path_rng, made.returns, made.sigma)) * FIRST_PRICE
    usual = _log_volume(volume_rng, np.abs(made.returns) / made.sigma)
    if made.surge.any():
        usual = VOLUME_LEVEL + QUIET * (usual - VOLUME_LEVEL)
    frame = pd.DataFrame(
        {
            "open": path[:, 0],
            "high": path.max(axis=1),
            "low": path.min(axis=1),
            "close": path[:, -1],
            "volume": np.round(np.exp(usual + made.surge)),
        }
    )
    return frame.tail(bars)


def _log_paths(
    rng: np.random.Generator, returns: Float[np.ndarray, " n"], sigma: Float[np.ndarray, " n"]
) -> Float[np.ndarray, "n steps"]:
    """Log prices within each bar: Gaussian steps of variance sigma^2 / steps, bridged from one close to the next.

    The last of them is the sum of the returns so far; the range of all tells sigma also where the return does not.
    """
    steps = rng.standard_normal((len(returns), PATH_STEPS)) * (sigma / np.sqrt(PATH_STEPS))[:, None]
    walk = steps.cumsum(axis=1)
    share = np.arange(1, PATH_STEPS + 1) / PATH_STEPS
    closes = returns.cumsum()
    before = np.concatenate(([0.0], closes[:-1]))
    paths = before[:, None] + walk + share * (returns - walk[:, -1])[:, None]
    paths[:, -1] = closes
    return paths


def _log_volume(rng: np.random.Generator, moves: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    shocks, noise = rng.standard_normal((2, len(moves)))
    # Stationary from the first bar on: its AR(1) term has the long-run variance already.
    shocks[0] /= np.sqrt(1 - VOLUME_MEMORY**2)
    persistent = VOLUME_SHOCK * shocks
    for bar in range(1, len(moves)):
        persistent[bar] += VOLUME_MEMORY * persistent[bar - 1]
    return VOLUME_LEVEL + persistent + VOLUME_PER_MOVE * moves + VOLUME_NOISE * noise
