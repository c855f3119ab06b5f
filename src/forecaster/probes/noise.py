"""Nulls that take networks: heads that were never trained, and heads trained on targets that nothing foretells."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
from jaxtyping import Float, Int

from forecaster.probes.capture import Weights
from forecaster.probes.intervals import FEWEST_BLOCKS
from forecaster.probes.masks import Probe
from forecaster.probes.subject import Subject
from forecaster.probes.survey import Tally, survey
from forecaster.windows.panel import Panel
from forecaster.windows.splits import Split

RANDOM_WINDOWS: Final = 512  # that untrained networks are shown at most
QUANTILE: Final = 0.95
BAND: Final = (0.025, 0.975)

Kind = Literal["random", "noise"]
Key = tuple[str, Weights]  # probe, weighting


@dataclass(frozen=True)
class Networks:
    """How many networks each null takes, and where they come from.

    fresh: an untrained network of the run's kind and scaler for a seed. fit: one trained by the run's own recipe, for
    as many steps as its kept checkpoint and without early stopping, on other targets of the training origins (NaN: the
    origin is left out). seed: the run's, from which each network has its own, so that runs of several seeds are held
    against several sets of them. without: why there are none of `noise`, where they were asked for.
    """

    fresh: Callable[[int], Subject]
    fit: Callable[[Float[np.ndarray, "R H C"], int], Subject]
    random: int = 0
    noise: int = 0
    seed: int = 0
    without: str = ""

    def drawn(self, kind: Kind, number: int) -> int:
        """The seed of a null's network of that number."""
        return int(np.random.SeedSequence((self.seed, ("random", "noise").index(kind), number)).generate_state(1)[0])


@dataclass
class Nulls:
    """By null, seed, probe and weighting the largest kappa of any head; by layer and weighting untrained profiles.

    without: why no network was trained on shuffled targets, where that was asked for.
    """

    largest: dict[tuple[Kind, int, Key], float] = field(default_factory=dict[tuple[Kind, int, Key], float])
    profiles: dict[tuple[int, Weights], list[Float[np.ndarray, "N L"]]] = field(
        default_factory=dict[tuple[int, Weights], list[np.ndarray]]
    )
    without: str = ""

    def threshold(self, kind: Kind, key: Key) -> float:
        """The 95th percentile over seeds of the largest kappa of any head; NaN where the null was not run."""
        values = [value for (null, _, of), value in self.largest.items() if (null, of) == (kind, key)]
        return float(np.quantile(values, QUANTILE)) if values else np.nan

    def rows(self) -> Iterator[tuple[object, ...]]:
        """null, seed, probe, weights, largest kappa."""
        for (kind, seed, (name, weights)), value in self.largest.items():
            yield kind, seed, name, weights, value

    def band(self) -> Iterator[tuple[object, ...]]:
        """layer, no head, weights, lag, mean, 2.5 and 97.5 % over the heads of all untrained networks."""
        for (layer, weights), profiles in self.profiles.items():
            every = np.concatenate(profiles)
            low, high = np.quantile(every, BAND, axis=0)
            for lag, mean in enumerate(every.mean(0)):
                yield layer, None, weights, lag, float(mean), float(low[lag]), float(high[lag])


def run(
    networks: Networks,
    panel: Panel,
    split: Split,
    origins: Int[np.ndarray, " n"],
    length: int,
    probes: Sequence[Probe],
    progress: Callable[[str], None],
) -> Nulls:
    """Both nulls, on the windows that end at the origins (untrained networks on at most RANDOM_WINDOWS of them)."""
    nulls, count = Nulls(without=networks.without), shuffled_blocks(panel, split.train, length)
    if networks.noise and count < FEWEST_BLOCKS:
        nulls.without = f"blocks of {length} training dates to exchange: {count}, needed: {FEWEST_BLOCKS}"
    few = origins[np.linspace(0, len(origins) - 1, min(len(origins), RANDOM_WINDOWS)).round().astype(np.int64)]
    for seed in range(networks.random):
        progress(f"untrained network {seed + 1} of {networks.random}")
        tallies = survey(
            networks.fresh(networks.drawn("random", seed)), panel, few, length, probes, lambda _: None, whole=False
        )
        _add(nulls, "random", seed, tallies)
        for tally in tallies:
            nulls.profiles.setdefault((tally.layer, tally.weights), []).append(tally.profile.mean())
    for seed in range(0 if nulls.without else networks.noise):
        progress(f"network trained on shuffled targets {seed + 1} of {networks.noise}")
        own = networks.drawn("noise", seed)
        task = networks.fit(shuffled(panel, split.train, length, own), own)
        _add(nulls, "noise", seed, survey(task, panel, origins, length, probes, lambda _: None, whole=False))
    return nulls


def _add(nulls: Nulls, kind: Kind, seed: int, tallies: Sequence[Tally]) -> None:
    found: dict[Key, list[float]] = {}
    for tally in tallies:
        for name, sums in tally.probes.items():
            found.setdefault((name, tally.weights), []).extend(sums.score().kappa.value.tolist())
    for key, kappas in found.items():
        defined = [kappa for kappa in kappas if not np.isnan(kappa)]
        if defined:
            nulls.largest[kind, seed, key] = max(defined)


def shuffled(panel: Panel, train: Int[np.ndarray, " m"], length: int, seed: int) -> Float[np.ndarray, "R H C"]:
    """Targets of the training origins exchanged in blocks of `length` dates, all symbols together.

    The blocks' order is drawn anew until none is in its place: what an origin foretells is now what came after another
    one, while targets keep their sequence within blocks, their distribution by symbol and their dependence between
    symbols. NaN where the symbol has no training origin at the other date.
    """
    dates, date_m = np.unique(panel.times[train], return_inverse=True)
    count = shuffled_blocks(panel, train, length)
    block_d = np.arange(len(dates)) * count // len(dates)
    rng = np.random.default_rng(seed)
    order = rng.permutation(count)
    while count > 1 and (order == np.arange(count)).any():
        order = rng.permutation(count)
    source_d = np.concatenate([np.flatnonzero(block_d == block) for block in order])
    row_SD = np.full((len(panel.symbols), len(dates)), -1, dtype=np.int64)
    row_SD[panel.symbol_ids[train], date_m] = train
    from_m = row_SD[panel.symbol_ids[train], source_d[date_m]]
    targets = np.array(panel.targets)
    targets[train] = np.where((from_m >= 0)[:, None, None], panel.targets[from_m], np.nan)
    return targets


def shuffled_blocks(panel: Panel, train: Int[np.ndarray, " m"], length: int) -> int:
    """How many blocks the training origins' dates make."""
    return max(1, len(np.unique(panel.times[train])) // length)


def thresholds(nulls: Nulls | None, kind: Kind, name: str) -> Mapping[Weights, float]:
    """What a head of a probe must be above, by weighting; NaN where the null was not run."""
    return {weights: np.nan if nulls is None else nulls.threshold(kind, (name, weights)) for weights in ("raw", "norm")}
