"""Labels: what may be said of a head, and which condition stood in the way.

none -> pattern (it looks there more than chance has it) -> functional (the forecast needs it to).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from jaxtyping import Float

from forecaster.probes.intervals import FEWEST_BLOCKS, Interval
from forecaster.probes.knockout import Gate
from forecaster.probes.masks import NEIGHBOURS, Chance, Probe
from forecaster.probes.statistics import Score, kappa

Label = Literal["none", "pattern", "functional"]

PATTERN_KAPPA: Final = 0.05
PATTERN_ODDS: Final = 2.0
PATTERN_Q: Final = 0.05
RECENCY_KAPPA: Final = 0.2
STRONG_KAPPA: Final = 0.2
STRONG_RECENCY_KAPPA: Final = 0.5
FIRST_PLACEBO: Final = 3
LAST_PLACEBO: Final = 30
NO_NOISE_NULL: Final = "pattern (no noise null)"


@dataclass(frozen=True)
class Evidence:
    """One head's figures for one probe and one weighting, as the rules read them.

    noise: NaN where not run. tail: whether q comes from the t tail of few shifts.
    """

    kappa: float
    low: float
    odds: float
    beside: float
    q: float
    placebo: float
    placebo_lag: int
    noise: float = np.nan
    tail: bool = False


@dataclass(frozen=True)
class Verdict:
    """A label, the targets it holds for (functional only) and the reason in words."""

    label: Label
    targets: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Causal:
    """One head's causal tests, arrays over targets.

    mean: the rise under mean-ablation. specificity: by kind of matched bars, the rise on the flagged less that on them.
    mass_matched: share of the flagged mass that unflagged bars could match. A head with all its mass on the flagged
    bars leaves little to match, and the comparison then says little: its reason names the share. NaN without any mass.
    """

    mean: Interval
    specificity: Mapping[str, Interval]
    mass_matched: float


def last_placebo(week_bars: int) -> int:
    """The farthest lag that the weekly rule compares with: in shorter windows too few lags are left to be above."""
    return max(LAST_PLACEBO, -(-3 * week_bars // 2))


def needed(probe: Probe, week_bars: int) -> int:
    """The fewest bars of a window at which a probe can earn a label."""
    return max(probe.window, last_placebo(week_bars) + 1) if probe.chance == "neighbours" else probe.window


def placebo_lags(week_bars: int, length: int) -> list[int]:
    """Lags in the window from 3 to the larger of 30 and 1.5 weeks that are no multiple of the week, +-1.

    Multiples count from the query bar or from a target one bar ahead.
    """
    last = min(last_placebo(week_bars), length - 1)
    return [lag for lag in range(FIRST_PLACEBO, last + 1) if lag % week_bars not in _weekly_residues(week_bars)]


def placebos(profile_NL: Float[np.ndarray, "N L"], lags: Sequence[int]) -> Float[np.ndarray, "N P"]:
    """Kappa at fixed lags, as for the weekly bar: against the mean of the bars at +-1, +-2 in the window."""
    length = profile_NL.shape[1]
    beside = [[lag + step for step in NEIGHBOURS if 0 <= lag + step < length] for lag in lags]
    expected = [profile_NL[:, around].mean(1) for around in beside]
    if not lags:
        return np.empty((len(profile_NL), 0))
    return kappa(profile_NL[:, list(lags)], np.stack(expected, axis=1))


def missing(chance: Chance, evidence: Evidence) -> list[str]:
    """Conditions of a pattern that one weighting fails, in words; none where all hold."""
    if np.isnan(evidence.kappa):
        return ["kappa undefined"]
    least = RECENCY_KAPPA if chance == "visible" else PATTERN_KAPPA
    failed = [] if evidence.kappa >= least else [f"kappa {evidence.kappa:.3f} under {least}"]
    # A t tail makes too much of few shifts where a head's attention is one sharp peak.
    if (chance != "profile" or evidence.tail) and not evidence.low > 0:
        failed.append("interval of kappa not above 0")
    if chance != "visible" and not evidence.odds >= PATTERN_ODDS:
        undefined = np.isnan(evidence.odds)
        failed.append("odds undefined" if undefined else f"odds {evidence.odds:.2f} under {PATTERN_ODDS:g}")
    if chance == "profile" and not evidence.q <= PATTERN_Q:
        failed.append("no shift null" if np.isnan(evidence.q) else f"q {evidence.q:.3g} above {PATTERN_Q}")
    if chance == "neighbours":
        if evidence.placebo_lag < 0:
            failed.append("no placebo lag in the window")
        elif not evidence.kappa > evidence.placebo:
            failed.append(f"not above the placebo lag {evidence.placebo_lag} (kappa {evidence.placebo:.3f})")
        if not evidence.beside > 0:
            failed.append("not above the bar on either side")
    if not np.isnan(evidence.noise) and not evidence.kappa > evidence.noise:
        failed.append(f"not above heads trained on noise (kappa {evidence.noise:.3f})")
    return failed


def pattern(chance: Chance, score: Score, by_weights: Mapping[str, Evidence]) -> Verdict:
    """Pattern where every weighting meets every condition; otherwise none, with what each of them misses."""
    if score.queries == 0:
        return Verdict("none", (), "not measurable: no query has the bars it asks about")
    if score.blocks < FEWEST_BLOCKS:
        blocks = "1 block" if score.blocks == 1 else f"{score.blocks} blocks"
        return Verdict("none", (), f"too few to say: {blocks} of dates of at least {FEWEST_BLOCKS}")
    failed = {weights: missing(chance, evidence) for weights, evidence in by_weights.items()}
    if any(failed.values()):
        return Verdict("none", (), "; ".join(f"{name}: {', '.join(words)}" for name, words in failed.items() if words))
    weakest = min(evidence.kappa for evidence in by_weights.values())
    strong = weakest >= (STRONG_RECENCY_KAPPA if chance == "visible" else STRONG_KAPPA)
    name = NO_NOISE_NULL if any(np.isnan(evidence.noise) for evidence in by_weights.values()) else "pattern"
    return Verdict("pattern", (), f"{'strong ' if strong else ''}{name}")


def functional(found: Verdict, causal: Causal, gates: Sequence[Gate]) -> Verdict:
    """Functional for the targets that pass every causal test; else still a pattern, with what each target misses.

    The gate is open, the loss rises under mean-ablation, and under the value knockout of the flagged bars more than of
    matched ones: all intervals above 0.
    """
    passed: list[str] = []
    words: list[str] = []
    for c, gate in enumerate(gates):
        failed = [] if gate.open else ["skill gate closed"]
        tests = {"mean-ablation": causal.mean, **{f"against {k}": v for k, v in causal.specificity.items()}}
        failed += [f"{name} {_interval(test, c)}" for name, test in tests.items() if not test.low[c] > 0]
        if failed:
            words.append(f"{gate.target} fails: {', '.join(failed)}")
        else:
            passed.append(gate.target)
            told = ", ".join(f"{name} {_interval(test, c)}" for name, test in tests.items())
            words.append(f"{gate.target} passes: {told}")
    share = causal.mass_matched
    none = "no attention on flagged bars of test to be matched"
    told = f"{'; '.join(words)}; {none if np.isnan(share) else f'{share:.0%} of the flagged mass could be matched'}"
    if passed:
        return Verdict("functional", tuple(passed), f"{found.reason}, functional: {told}")
    return Verdict("pattern", (), f"{found.reason}, not functional: {told}")


def _interval(test: Interval, c: int) -> str:
    if np.isnan(test.value[c]):
        return "not measurable: no window has both"
    if np.isnan(test.low[c]):
        return f"{test.value[c]:+.3g} [too few blocks to say]"
    return f"{test.value[c]:+.3g} [{test.low[c]:+.3g}, {test.high[c]:+.3g}]"


def _weekly_residues(week_bars: int) -> set[int]:
    return {step % week_bars for anchor in (0, -1) for step in (anchor - 1, anchor, anchor + 1)}
