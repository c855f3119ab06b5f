"""Planted markets: synthetic daily bars with a structure that is known, or with none."""

from typing import Final

import numpy as np
import pandas as pd
from jaxtyping import Float

from forecaster.bars.calendar import Calendar
from forecaster.bars.contract import Bars, check, quality_report
from forecaster.bars.exchanges import FIRST
from forecaster.errors import ConfigError

KINDS: Final = ("noise", "several", "weekly")
LAST: Final = "2025-12-31"  # fixed: the same bars on every day of the calendar

# GARCH(1,1) of daily index returns, unconditional volatility sqrt(OMEGA / (1 - ALPHA - BETA)) = 1 %.
OMEGA: Final = 2e-6
ALPHA: Final = 0.08
BETA: Final = 0.90
FREEDOM: Final = 4  # degrees of freedom of the Student t noise
WEEK: Final = 5  # bars
# "several": r[t+1] = RECENT (r[t-1] + r[t-2]) + phi r[t-4] + MOVES sigma[t+1] (sum of the LARGEST z in SIGHT bars) + e.
# r[t] itself is left out: a residual stream carries it without any head. RECENT is below 0: drifts don't build up.
RECENT: Final = -0.25
MOVES: Final = 0.2
LARGEST: Final = 3
SIGHT: Final = 30
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


def load(kind: str, bars: int, seed: int, symbols: int = 1, phi: float = 0.7) -> Bars:
    """Planted bars on the last `bars` XNYS sessions up to LAST, the same for the same arguments.

    "weekly": r[t+1] = phi r[t-4] + e[t+1], of which a forecaster explains R2 = phi^2 at best. "several": that, the bars
    two and three before and the three largest surprises z = e / sigma of the last 30 bars. "noise": r = e, nothing.
    e is GARCH(1,1) with standardised Student t noise, of infinite fourth moment: about 1 seed in 50 has an outburst of
    volatility that outweighs all other bars. Symbols are independent, and a further one changes no other.
    ConfigError for arguments that describe no market.
    """
    if kind not in KINDS:
        raise ConfigError(f"planted bars: kind {kind!r}: choose from {', '.join(KINDS)}")
    if symbols < 1:
        raise ConfigError(f"planted bars: symbols {symbols}: ask for at least 1")
    if not -1 < phi < 1:
        raise ConfigError(f"planted bars: phi {phi}: |phi| must be below 1, or prices explode")
    sessions = Calendar("XNYS").sessions(FIRST + pd.offsets.Week(), LAST)
    if not 1 <= bars <= len(sessions):
        raise ConfigError(f"planted bars: bars {bars}: ask for 1 to {len(sessions)}, the sessions up to {LAST}")
    width = len(str(symbols - 1))
    frames = [
        # All sessions are simulated and the last ones kept, so that fewer bars are the end of the same market: a date
        # never holds what another length has under an earlier one.
        _market(np.random.default_rng(stream), len(sessions), kind, phi)
        .assign(symbol=f"{kind.upper()}_{number:0{width}d}", time=sessions)
        .tail(bars)
        for number, stream in enumerate(np.random.SeedSequence(seed).spawn(symbols))
    ]
    weekly_rule = f"r[t+1] = {phi} r[t-4] + e"
    several_rule = (
        f"r[t+1] = {RECENT} (r[t-1] + r[t-2]) + {phi} r[t-4] + {MOVES} sigma (sum of the {LARGEST} largest z of "
        f"{SIGHT} bars) + e"
    )
    rule = {"weekly": weekly_rule, "several": several_rule, "noise": "r = e"}[kind]
    return Bars(
        frame=check(pd.concat(frames), "planted bars"),
        quality=quality_report(()),
        calendar="XNYS",
        interval="1d",
        basis=f"synthetic: {rule}, e GARCH(1,1) Student t, seed {seed}",
    )


def garch(noise: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Volatility sigma of a GARCH(1,1) driven by noise z of variance 1, where e = sigma z.

    sigma2[0] = omega / (1 - alpha - beta); sigma2[t+1] = omega + (alpha z[t]^2 + beta) sigma2[t].
    Bollerslev (1986), Generalized Autoregressive Conditional Heteroskedasticity.
    """
    variance = np.empty(len(noise))
    now = OMEGA / (1 - ALPHA - BETA)
    for bar, growth in enumerate(ALPHA * noise**2 + BETA):
        variance[bar] = now
        now = OMEGA + growth * now
    return np.sqrt(variance)


def weekly(innovations: Float[np.ndarray, " n"], phi: float) -> Float[np.ndarray, " n"]:
    """Returns r[t] = phi r[t-5] + e[t], with r = 0 before the first bar."""
    returns = innovations.copy()
    for bar in range(WEEK, len(returns)):
        returns[bar] += phi * returns[bar - WEEK]
    return returns


def several(noise: Float[np.ndarray, " n"], sigma: Float[np.ndarray, " n"], phi: float) -> Float[np.ndarray, " n"]:
    """Returns r[t] = -.25 (r[t-2] + r[t-3]) + phi r[t-5] + sigma[t] (.2 m[t] + z[t]), r = 0 before the first bar.

    m[t]: sum of the three z of largest |z| among bars t-30 .. t-1. Of the noise, not of returns, so that no large move
    feeds itself.
    """
    returns = sigma * (noise + MOVES * largest_sum(noise))
    for bar in range(WEEK, len(returns)):
        returns[bar] += RECENT * (returns[bar - 2] + returns[bar - 3]) + phi * returns[bar - WEEK]
    return returns


def largest_sum(noise: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Sum of the LARGEST values by size among the SIGHT before each; 0 before so many."""
    windows = np.lib.stride_tricks.sliding_window_view(noise, SIGHT)[:-1]
    places = np.argpartition(-np.abs(windows), LARGEST - 1, axis=1)[:, :LARGEST]
    sums = np.take_along_axis(windows, places, axis=1).sum(axis=1)
    return np.concatenate((np.zeros(len(noise) - len(sums)), sums))


def expected(kind: str, bars: int, seed: int, phi: float) -> Float[np.ndarray, " n"]:
    """What the rule itself expects of each bar's return, known a bar before, of the first symbol of the same market."""
    sessions = len(Calendar("XNYS").sessions(FIRST + pd.offsets.Week(), LAST))
    stream = np.random.SeedSequence(seed).spawn(1)[0]
    returns, _, noise = _returns(np.random.default_rng(stream).spawn(3)[0], sessions, kind, phi)
    return (returns - noise)[-bars:]


def _returns(
    rng: np.random.Generator, bars: int, kind: str, phi: float
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Returns, volatility and innovations e = sigma z."""
    noise = rng.standard_t(FREEDOM, BURN_IN + bars) / np.sqrt(FREEDOM / (FREEDOM - 2))
    sigma = garch(noise)
    match kind:
        case "weekly":
            returns = weekly(sigma * noise, phi)
        case "several":
            returns = several(noise, sigma, phi)
        case _:
            returns = sigma * noise
    return returns[BURN_IN:], sigma[BURN_IN:], (sigma * noise)[BURN_IN:]


def _market(rng: np.random.Generator, bars: int, kind: str, phi: float) -> pd.DataFrame:
    """Open to volume of one symbol. Each kind of number has its own stream, so that phi changes prices only."""
    noise_rng, path_rng, volume_rng = rng.spawn(3)
    returns, sigma, _ = _returns(noise_rng, bars, kind, phi)
    path = np.exp(_log_paths(path_rng, returns, sigma)) * FIRST_PRICE
    return pd.DataFrame(
        {
            "open": path[:, 0],
            "high": path.max(axis=1),
            "low": path.min(axis=1),
            "close": path[:, -1],
            "volume": np.round(np.exp(_log_volume(volume_rng, np.abs(returns) / sigma))),
        }
    )


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
