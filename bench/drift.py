"""How often the test for a change over time is wrong on series that don't change, and right on those that do.

    python bench/drift.py

Prints the tables of docs/drift.md: of 1,000 series each, how many are tested and how many of those reach p <= .05, in
blocks as the bundled bars have (53 of training, 23 of validation and test, 64 bars each) and as 18,000 planted bars
have (100 and 100).
"""

from collections.abc import Callable

import numpy as np

from forecaster.probes.changepoint import change

SERIES = 1_000
SIZES = ((53, 23), (100, 100))
BARS = 64  # of a block
FEW = 100  # below it a rate is given as counts
Draw = Callable[[np.random.Generator, int], np.ndarray]


def autocorrelated(rho: float) -> Draw:
    """AR(1) of unit variance."""

    def draw(rng: np.random.Generator, count: int) -> np.ndarray:
        noise = rng.standard_normal(count + 50) * np.sqrt(1 - rho**2)
        for place in range(1, count + 50):
            noise[place] += rho * noise[place - 1]
        return noise[50:]

    return draw


def garch(rng: np.random.Generator, count: int) -> np.ndarray:
    """Mean squared returns of blocks of a GARCH(.08, .90) market with t4 noise: heavy tails and clusters."""
    shocks = rng.standard_t(4, count * BARS) / np.sqrt(2)
    squares, variance = np.empty(len(shocks)), 1e-4
    for bar, shock in enumerate(shocks):
        squares[bar] = variance * shock**2
        variance = 2e-6 + 0.08 * squares[bar] + 0.90 * variance
    return squares.reshape(count, BARS).mean(axis=1)


def spread(rng: np.random.Generator, count: int) -> np.ndarray:
    """Noise whose deviation trebles in the middle of training; its level does not change."""
    return rng.standard_normal(count) * np.where(np.arange(count) < count // 3, 1.0, 3.0)


UNCHANGING: dict[str, Draw] = {
    "independent": lambda rng, count: rng.standard_normal(count),
    "independent, t with 3 degrees": lambda rng, count: rng.standard_t(3, count),
    "deviation trebles": spread,
    "squared GARCH returns by block": garch,
    **{f"AR(1), {rho:g}": autocorrelated(rho) for rho in (0.2, 0.4, 0.6, 0.8)},
}
STEPS: dict[str, tuple[Draw, float]] = {
    "1 deviation": (UNCHANGING["independent"], 1.0),
    "1 deviation, AR(1) .3": (autocorrelated(0.3), 1.0),
    "2 deviations": (UNCHANGING["independent"], 2.0),
    "2 deviations, AR(1) .3": (autocorrelated(0.3), 2.0),
}


def told(hits: int, of: int) -> str:
    """A rate; of few, its counts."""
    if not of:
        return "–"
    return f"{hits / of:.1%}" if of >= FEW else f"{hits} of {of}"


def main() -> None:
    """Both tables."""
    print("| unchanging series | blocks | tested | p ≤ .05 of the tested | p ≤ .01 of the tested | p ≤ .05 of all |")
    print("| --- | --- | --- | --- | --- | --- |")
    for train, held in SIZES:
        stretches = (np.arange(train), np.arange(train, train + held))
        for seed, (name, draw) in enumerate(UNCHANGING.items()):
            rng = np.random.default_rng(seed)
            p = np.array([change(draw(rng, train + held), stretches).p for _ in range(SERIES)])
            tested = np.isfinite(p)
            rates = [told(int((p <= level).sum()), int(tested.sum())) for level in (0.05, 0.01)]
            cells = (name, f"{train} + {held}", f"{tested.mean():.1%}", *rates, f"{(p <= 0.05).mean():.1%}")
            print(f"| {' | '.join(cells)} |", flush=True)
    print("\n| change in the middle of training | blocks | p ≤ .05 | within 3 blocks | in its interval |")
    print("| --- | --- | --- | --- | --- |")
    for train, held in SIZES:
        stretches, middle = (np.arange(train), np.arange(train, train + held)), train // 2
        for seed, (name, (draw, size)) in enumerate(STEPS.items()):
            rng = np.random.default_rng(100 + seed)
            step = np.where(np.arange(train + held) < middle, 0.0, size)
            found = [change(draw(rng, train + held) + step, stretches) for _ in range(SERIES)]
            shares = (
                np.mean([one.p <= 0.05 for one in found]),
                np.mean([abs(one.at - middle) <= 3 for one in found]),
                np.mean([one.first <= middle <= one.last for one in found]),
            )
            print(f"| {name} | {train} + {held} | {' | '.join(f'{share:.1%}' for share in shares)} |", flush=True)


if __name__ == "__main__":
    main()
