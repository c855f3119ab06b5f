"""Facts about heads: figures of the last bar's query on the raw weights that carry no label."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from jaxtyping import Float

from forecaster.probes.intervals import Interval, mean
from forecaster.probes.statistics import ProfileSums
from forecaster.probes.survey import Tally

Fact = tuple[int | None, int | None, str, float, float, float]  # layer, head, fact, value, low, high

TELLING_SHARE: Final = 0.05  # of attention: below, a head that hardly looks there has no say on calendar or lag


def half_mass_lag(profile: ProfileSums) -> Interval:
    """Median lag of the mean profile: the first j with F(j) = sum of its first j + 1 values >= 1/2.

    Its interval is what the intervals of F allow: first j with high(F(j)) >= 1/2 to first j with low(F(j)) >= 1/2.
    Woodruff (1952), Confidence Intervals for Medians and Other Position Measures, JASA 47.
    """
    cumulated = mean(profile.counts_b, profile.attention_bNL.cumsum(-1))

    def first(values_NL: Float[np.ndarray, "N L"]) -> Float[np.ndarray, " N"]:
        reached = values_NL >= 0.5
        return np.where(reached.any(-1), reached.argmax(-1), np.nan)

    return Interval(first(cumulated.value), first(cumulated.high), first(cumulated.low))


def facts(tallies: Sequence[Tally]) -> Iterator[Fact]:
    """All facts of the layers, head by head, then those of the probes' queries, which belong to no head."""
    raw = [tally for tally in tallies if tally.stratum == "last" and tally.weights == "raw"]
    for tally in raw:
        lags = np.arange(tally.profile.span, dtype=np.float64)
        named = {
            "mean age": tally.profile.weighted(lags),
            "half-mass lag": half_mass_lag(tally.profile),
            "mass on itself": tally.profile.weighted((lags == 0).astype(np.float64)),
        }
        named |= {name: sums.rate() for name, sums in tally.hits.items() if sums.counts_b.any()}
        for name, sums in tally.probes.items():
            if sums.probe.content and sums.counts_b.any():
                named[f"{name} beta near"], named[f"{name} far-back ratio"] = sums.far_back()
        named |= {name: sums.score().kappa for name, sums in tally.multiples.items() if sums.counts_b.any()}
        if tally.tracking is not None and tally.tracking.counts_b.any():
            named["date tracking"] = tally.tracking.overlap()
        if tally.joint is not None:
            partial = tally.joint.partial(tally.profile)
            named |= {f"{name} partial mass": one for name, one in partial.items() if tally.probes[name].probe.content}
        if tally.every is not None:
            mean_NL2 = tally.every.mean().numpy()
            lags_L2 = np.arange(1 - tally.profile.span, tally.profile.span)
            named["mean lag of all queries"] = _alone(mean_NL2 @ lags_L2)
            named["mass on later bars of all queries"] = _alone(mean_NL2[:, lags_L2 < 0].sum(1))
        odd = {name: anchor for name, anchor in tally.anchors.items() if anchor.counts_b.any()}
        named |= {f"{name} share in odd weeks": _alone(anchor.share()) for name, anchor in odd.items()}
        telling = {f"{name} calendar or lag": (anchor.share(), anchor.difference()) for name, anchor in odd.items()}
        for head in range(tally.profile.heads):
            for name, interval in named.items():
                if not np.isnan(interval.value[head]):
                    yield (tally.layer, head, name, *_numbers(interval, head))
            for name, (share, interval) in telling.items():
                if share[head] >= TELLING_SHARE:
                    yield (tally.layer, head, name, *_numbers(interval, head))
    for name, sums in raw[0].probes.items():
        yield (None, None, f"{name} queries dropped", float(sums.dropped), np.nan, np.nan)
        yield (None, None, f"{name} blocks of dates", float((sums.counts_b > 0).sum()), np.nan, np.nan)
    for name, anchor in raw[0].anchors.items():
        yield (None, None, f"{name} queries of odd weeks", float(anchor.counts_b.sum()), np.nan, np.nan)
    for name, null in raw[0].nulls.items():
        left_out, count = null.shifts.left_out, len(null.shifts.admissible)
        yield (None, None, f"{name} symbols left out of the shift null", float(left_out), np.nan, np.nan)
        yield (None, None, f"{name} shifts", float(count), np.nan, np.nan)


def _alone(values_N: Float[np.ndarray, " N"]) -> Interval:
    nothing = np.full(values_N.shape, np.nan)
    return Interval(values_N, nothing, nothing)


def _numbers(interval: Interval, head: int) -> tuple[float, float, float]:
    return float(interval.value[head]), float(interval.low[head]), float(interval.high[head])
