"""From sums to patterns: every probe's figures for every head, tested and judged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, get_args

import numpy as np
from jaxtyping import Float

from forecaster.probes.capture import Weights
from forecaster.probes.knockout import Head
from forecaster.probes.labels import (
    PATTERN_KAPPA,
    Evidence,
    Verdict,
    needed,
    pattern,
    placebo_lags,
    placebos,
)
from forecaster.probes.masks import Probe
from forecaster.probes.noise import Nulls, thresholds
from forecaster.probes.nulls import ShiftNull, ShiftTest, benjamini_hochberg
from forecaster.probes.statistics import Score
from forecaster.probes.survey import Tally

OWN_SHARE: Final = 0.05  # of the queries
FAR_BACK: Final = 0.5  # of beta: the far half of the window at least half as strong as the near one

Key = tuple[int, Weights, str]  # layer, weighting, probe


@dataclass(frozen=True)
class Finding:
    """One probe's figures for a layer's heads in one stratum, direction and weighting; p and q of content probes.

    partial: what of the mass above chance is left in the fit of all probes; of content probes, else NaN.
    """

    tally: Tally
    probe: Probe
    score: Score
    p: Float[np.ndarray, " N"]
    q: Float[np.ndarray, " N"]
    test: ShiftTest | None
    partial: Float[np.ndarray, " N"]

    @property
    def labelled(self) -> bool:
        """Whether labels are given on it: the last bar's query, looking back."""
        return self.tally.stratum == "last"


def findings(tallies: Sequence[Tally]) -> list[Finding]:
    """Scores of all tallies, with the shift null's p and, by weighting over heads x content probes, q."""
    tests: dict[Key, ShiftTest] = {}
    q: dict[Key, Float[np.ndarray, " N"]] = {}
    for weights in get_args(Weights):
        nulls: dict[Key, ShiftNull] = {
            (tally.layer, tally.weights, name): null
            for tally in tallies
            if tally.weights == weights
            for name, null in tally.nulls.items()
        }
        heads = [null.heads for null in nulls.values()]
        family = {key: null.test(sum(heads)) for key, null in nulls.items()}
        if family:
            tests |= family
            corrected = benjamini_hochberg(np.concatenate([test.p for test in family.values()]))
            q |= dict(zip(family, np.split(corrected, np.cumsum(heads)[:-1]), strict=True))
    found: list[Finding] = []
    for tally in tallies:
        partial = {} if tally.joint is None else tally.joint.partial(tally.profile)
        for name, sums in tally.probes.items():
            key: Key = (tally.layer, tally.weights, name)
            test = tests.get(key) if tally.stratum == "last" else None
            nothing = np.full(tally.profile.heads, np.nan)
            p, of = (nothing, nothing) if test is None else (test.p, q[key])
            # By lag: what a positional head gives a lag that is nearly always the same is no part of the fit.
            left = partial[name].value if name in partial and sums.probe.content else nothing
            found.append(Finding(tally, sums.probe, sums.score(), p, of, test, left))
    return found


def verdicts(found: Sequence[Finding], week_bars: int, nulls: Nulls | None = None) -> dict[tuple[Head, str], Verdict]:
    """Pattern or none for every head and probe, both weightings taken together."""
    pairs: dict[tuple[int, str], dict[Weights, Finding]] = {}
    for finding in found:
        if finding.labelled:
            pairs.setdefault((finding.tally.layer, finding.probe.name), {})[finding.tally.weights] = finding
    judged: dict[tuple[Head, str], Verdict] = {}
    for (layer, name), by_weights in pairs.items():
        noise, random = (thresholds(nulls, kind, name) for kind in ("noise", "random"))
        evidence = {weights: _evidence(finding, week_bars, noise[weights]) for weights, finding in by_weights.items()}
        finding = by_weights["raw"]
        span = finding.tally.profile.span
        for head in range(finding.tally.profile.heads):
            fewest, words = needed(finding.probe, week_bars), finding.probe.lacking
            if span < fewest:
                words = f"windows of {span} bars, the probe needs {fewest}"
            if words:
                judged[(layer, head), name] = Verdict("none", (), f"not measurable: {words}")
                continue
            verdict = pattern(finding.probe.chance, finding.score, {w: heads[head] for w, heads in evidence.items()})
            notes = _notes(finding, head, verdict, random["raw"]) if finding.score.queries else []
            judged[(layer, head), name] = replace(verdict, reason="; ".join((verdict.reason, *notes)))
    return judged


def _evidence(finding: Finding, week_bars: int, noise: float) -> list[Evidence]:
    """What the rules read, head by head."""
    score, profile = finding.score, finding.tally.profile
    lags: list[int] = []
    placebo_NP = np.empty((profile.heads, 0))
    if finding.probe.chance == "neighbours":
        lags = [lag for lag in placebo_lags(week_bars, profile.span) if lag not in _own_lags(finding)]
        placebo_NP = placebos(profile.mean(), lags)
    listed: list[Evidence] = []
    for head in range(profile.heads):
        best = int(placebo_NP[head].argmax()) if lags else -1
        listed.append(
            Evidence(
                kappa=float(score.kappa.value[head]),
                low=float(score.kappa.low[head]),
                odds=float(score.odds[head]),
                beside=float(score.beside[head]),
                q=float(finding.q[head]),
                placebo=float(placebo_NP[head, best]) if lags else np.nan,
                placebo_lag=lags[best] if lags else -1,
                noise=noise,
                tail=finding.test is not None and finding.test.tail,
            )
        )
    return listed


def _own_lags(finding: Finding) -> set[int]:
    """Lags at which the probe's bar often is, +-1: no placebos for it. Those of the weekly probes never are."""
    sums = finding.tally.probes[finding.probe.name]
    often = np.flatnonzero(sums.flags_bL.sum(0) >= OWN_SHARE * max(1.0, sums.counts_b.sum()))
    return {int(lag) + step for lag in often for step in (-1, 0, 1)}


def _notes(finding: Finding, head: int, verdict: Verdict, untrained: float) -> list[str]:
    """What a reader must know beside the rule: whose bars they are, at what distance, how p came about."""
    notes: list[str] = []
    if verdict.label == "pattern" and finding.score.kappa.value[head] <= untrained:
        notes.append(f"untrained heads reach {untrained:.3f}")
    if verdict.label == "pattern" and finding.probe.content:
        left, kappa = finding.partial[head], finding.score.kappa.value[head]
        if left < PATTERN_KAPPA:
            much = "mostly" if left < kappa / 2 else "in part"
            notes.append(f"partial mass {left:.3f}: {much} bars of other probes")
        near, ratio = finding.tally.probes[finding.probe.name].far_back()
        if near.low[head] > 0 and ratio.low[head] >= FAR_BACK:
            notes.append("regardless of how far back")
    if np.isinf(finding.score.odds[head]):
        notes.append("odds without bound")
    if finding.test is not None and finding.test.tail:
        notes.append(f"p from the t tail of {finding.test.shifts} shifts")
    if finding.test is not None and finding.test.left_out:
        notes.append(f"{finding.test.left_out} symbols too short for the shift null")
    return notes


def by_head(tallied: Mapping[tuple[Head, str], Verdict], name: str) -> list[Head]:
    """Heads that carry any label of a probe."""
    return [head for (head, probe), verdict in tallied.items() if probe == name and verdict.label != "none"]
