"""The rules of planted markets: returns that depend on certain earlier bars and on nothing else."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Int

# GARCH(1,1) of daily index returns, unconditional volatility sqrt(OMEGA / (1 - ALPHA - BETA)) = 1 %.
OMEGA: Final = 2e-6
ALPHA: Final = 0.08
BETA: Final = 0.90
WEEK: Final = 5  # bars
# "several": r[t+1] = RECENT (r[t-1] + r[t-2]) + phi r[t-4] + MOVES sigma[t+1] (sum of the LARGEST z in SIGHT bars) + e.
# r[t] itself is left out: a residual stream carries it without any head. RECENT is below 0: drifts don't build up.
RECENT: Final = -0.25
MOVES: Final = 0.2
LARGEST: Final = 3
SIGHT: Final = 30
SMOOTHING: Final = 0.94  # of the EWMA variance that moves are measured in
# What is looked up turns its sign on these weekdays (Tuesday, Thursday): it stays the same for many bars, so that an
# average of the returns it has moved would tell it without a look at the bar it came from.
AGAINST: Final = (1, 3)
SPIKES: Final = 0.25  # share of bars with a volume spike
SPIKE: Final = 1.2  # of log volume
# "trend": a leg begins with a blow-off of BLOW_OFF sigma (times .8 to 1.2), taken back OVER-fully within BACK bars.
BLOW_OFF: Final = 6.0
BACK: Final = 5
OVER: Final = 1.15
LEGS: Final = (10, 22)  # bars between one and the next
TURNS: Final = 0.9  # share of legs that go against the one before


@dataclass(frozen=True)
class Simulated:
    """Returns, their volatility, what the rule expects of each (known a bar before), what is added to log volume."""

    returns: Float[np.ndarray, " n"]
    sigma: Float[np.ndarray, " n"]
    expected: Float[np.ndarray, " n"]
    surge: Float[np.ndarray, " n"]

    def last(self, bars: int) -> "Simulated":
        """The last bars of it."""
        return Simulated(*(part[-bars:] for part in (self.returns, self.sigma, self.expected, self.surge)))


def simulated(
    kind: str,
    noise: Float[np.ndarray, " n"],
    weekday: Int[np.ndarray, " n"],
    phi: float,
    rng: np.random.Generator,
    week_bars: int = WEEK,
    turn: int = 0,
) -> Simulated:
    """The market of a kind, driven by noise z of variance 1. weekday: of each bar, Monday = 0. rng: events' own.

    turn: the first bar that follows the second rule of "changing".
    """
    sigma = garch(noise)
    innovations, surge = sigma * noise, np.zeros(len(noise))
    sign = np.where(np.isin(weekday, AGAINST), -1.0, 1.0)
    match kind:
        case "recency":
            returns = recency(innovations, phi)
        case "weekly":
            returns = weekly(innovations, phi, week_bars)
        case "several":
            returns = several(noise, sigma, phi)
        case "large_move":
            returns = large_move(noise, sigma, phi * sign)
        case "together":
            returns = large_move(noise, sigma, MOVES * sign, RECENT, np.full(len(noise), phi))
        case "changing":
            after = np.arange(len(noise)) >= turn
            returns = large_move(noise, sigma, np.where(after, MOVES * sign, 0.0), week=np.where(after, 0.0, phi))
        case "volume":
            spikes = rng.random(len(noise)) < SPIKES
            returns, surge = volume(innovations, spikes, phi), SPIKE * spikes
        case "trend":
            blow_off = blow_offs(rng, len(noise))
            returns, innovations = trend(noise, sigma, blow_off, phi * sign), sigma * (noise + blow_off)
            surge = SPIKE * (blow_off != 0)
        case _:
            returns = innovations
    return Simulated(returns, sigma, returns - innovations, surge)


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


def recency(innovations: Float[np.ndarray, " n"], phi: float) -> Float[np.ndarray, " n"]:
    """Returns r[t] = phi (r[t-2] + r[t-3]) + e[t], r = 0 before the first bar."""
    returns = innovations.copy()
    for bar in range(3, len(returns)):
        returns[bar] += phi * (returns[bar - 2] + returns[bar - 3])
    return returns


def weekly(innovations: Float[np.ndarray, " n"], phi: float, week_bars: int = WEEK) -> Float[np.ndarray, " n"]:
    """Returns r[t] = phi r[t-week] + e[t], with r = 0 before the first bar."""
    returns = innovations.copy()
    for bar in range(week_bars, len(returns)):
        returns[bar] += phi * returns[bar - week_bars]
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


def large_move(
    noise: Float[np.ndarray, " n"],
    sigma: Float[np.ndarray, " n"],
    strength: Float[np.ndarray, " n"],
    recent: float = 0.0,
    week: Float[np.ndarray, " n"] | None = None,
) -> Float[np.ndarray, " n"]:
    """Returns r[t] = sigma[t] (strength[t] m[t] + z[t]) + recent (r[t-2] + r[t-3]) + week[t] r[t-5].

    m[t]: sum of the three of largest size among the moves x[t-30 .. t-1], x = r / (EWMA volatility a bar before): moves
    as anybody can measure them.
    """
    returns, moves = np.zeros(len(noise)), np.zeros(len(noise))
    variance, weight = sigma[0] ** 2, np.zeros(len(noise)) if week is None else week
    for bar in range(len(noise)):
        if bar >= SIGHT:
            seen = moves[bar - SIGHT : bar]
            largest = seen[np.argpartition(-np.abs(seen), LARGEST - 1)[:LARGEST]].sum()
            returns[bar] = sigma[bar] * strength[bar] * largest
            returns[bar] += recent * (returns[bar - 2] + returns[bar - 3]) + weight[bar] * returns[bar - WEEK]
        returns[bar] += sigma[bar] * noise[bar]
        moves[bar] = returns[bar] / np.sqrt(variance)
        variance = SMOOTHING * variance + (1.0 - SMOOTHING) * returns[bar] ** 2
    return returns


def volume(innovations: Float[np.ndarray, " n"], spikes: Bool[np.ndarray, " n"], phi: float) -> Float[np.ndarray, " n"]:
    """Returns r[t] = e[t], and after a bar with a volume spike phi r[s] + e[t], s the spike before that one."""
    returns, last = innovations.copy(), -1
    for bar in range(1, len(returns)):
        if spikes[bar - 1]:
            if last >= 0:
                returns[bar] += phi * returns[last]
            last = bar - 1
    return returns


def blow_offs(rng: np.random.Generator, bars: int) -> Float[np.ndarray, " n"]:
    """Moves in sigma with which legs of a trend begin, mostly of the other sign than the one before; 0 elsewhere."""
    moves, sign, bar = np.zeros(bars), 1.0, int(rng.integers(*LEGS))
    while bar < bars:
        sign = -sign if rng.random() < TURNS else sign
        moves[bar] = sign * BLOW_OFF * rng.uniform(0.8, 1.2)
        bar += int(rng.integers(*LEGS))
    return moves


def trend(
    noise: Float[np.ndarray, " n"],
    sigma: Float[np.ndarray, " n"],
    blow_off: Float[np.ndarray, " n"],
    strength: Float[np.ndarray, " n"],
) -> Float[np.ndarray, " n"]:
    """Returns r[t] = sigma[t] (strength[t] x[p] - OVER x[q] / BACK + x[t] + z[t]), x the blow-offs.

    q: the last one, while at most BACK bars old, so that its bar becomes a pivot of price; p: the last one older than
    that, the origin of the trend that is known at t - 1.
    """
    returns = np.zeros(len(noise))
    origin, fresh = -1, -1
    for bar in range(len(noise)):
        if fresh >= 0 and bar - fresh > BACK:
            origin, fresh = fresh, -1
        expected = strength[bar] * blow_off[origin] if origin >= 0 else 0.0
        if fresh >= 0:
            expected -= OVER * blow_off[fresh] / BACK
        returns[bar] = sigma[bar] * (expected + blow_off[bar] + noise[bar])
        if blow_off[bar]:
            fresh = bar
    return returns
