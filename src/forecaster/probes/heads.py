"""Everything that is said about a network's heads, as the run's tables."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pandas as pd
from torch import Tensor

from forecaster.errors import ConfigError
from forecaster.networks.encoder_decoder import EncoderDecoder
from forecaster.probes.causal import Knockout, Trials, skill_share
from forecaster.probes.drift import over_time
from forecaster.probes.facts import facts
from forecaster.probes.intervals import Interval
from forecaster.probes.knockout import Gate, Head, Means
from forecaster.probes.labels import Causal, Verdict, functional, needed
from forecaster.probes.masks import Probe
from forecaster.probes.noise import Networks, Nulls, run
from forecaster.probes.patterns import Finding, by_head, findings, verdicts
from forecaster.probes.redundancy import REDUNDANCY_COLUMNS, Group, group_rows, pair_rows
from forecaster.probes.standard import standard
from forecaster.probes.subject import Headed, Subject, with_heads
from forecaster.probes.survey import Tally, survey
from forecaster.probes.width import width_facts
from forecaster.windows.panel import Panel
from forecaster.windows.splits import Split

HEAD_COLUMNS: Final = (
    *("layer", "head", "probe", "stratum", "direction", "weights", "kappa", "low", "high", "chance", "odds", "p", "q"),
    *("partial_mass", "label", "targets", "reason"),
)
FACT_COLUMNS: Final = ("layer", "head", "fact", "value", "low", "high")
# `probe` because a head may have patterns in several, each with its own flagged bars; empty for zero and mean.
KNOCKOUT_COLUMNS: Final = ("layer", "head", "target", "kind", "rise", "low", "high", "skill_share", "probe")
NULL_COLUMNS: Final = ("null", "seed", "probe", "weights", "kappa")
PROFILE_COLUMNS: Final = ("layer", "head", "weights", "lag", "mean", "low", "high")
UNLABELLED: Final = Verdict("none", (), "reported only: labels are given on the last bar's query")

NOT_TESTED: Final = "The causal tests were not run: no head can be called functional"

Row = tuple[object, ...]
Claim = tuple[Head, str]


@dataclass(frozen=True)
class Probed:
    """The tables, a sentence on each target's skill gate, and the training means that ablations put in, by name.

    A row of lag_profiles without a head has the band of untrained heads. drift: the three tables of heads over time,
    where they were asked for.
    """

    heads: pd.DataFrame
    head_facts: pd.DataFrame
    knockouts: pd.DataFrame
    lag_profiles: pd.DataFrame
    head_nulls: pd.DataFrame
    redundancy: pd.DataFrame
    gates: list[str]
    means: dict[str, Tensor]
    drift: Mapping[str, pd.DataFrame] = field(default_factory=dict[str, pd.DataFrame])

    def tables(self) -> dict[str, pd.DataFrame]:
        """Each under the name that the run keeps it by."""
        names = ("heads", "head_facts", "knockouts", "lag_profiles", "head_nulls", "redundancy")
        return {**{name: getattr(self, name) for name in names}, **self.drift}


def probe(
    task: Subject,
    panel: Panel,
    split: Split,
    length: int,
    *,
    further: Sequence[Probe] = (),
    networks: Networks | None = None,
    causal: bool = True,
    drift: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Probed:
    """Probes every head of the task's network: patterns on validation and test together, causal tests on test.

    further: probes of one's own, beside the standard ones. networks: for the nulls that need some. causal: whether the
    causal tests are made, without which no head is functional. drift: whether heads are followed over time. progress:
    told what is done.
    """
    origins = np.sort(np.concatenate((split.validation, split.test)))
    # Where it can earn no label a probe held against its neighbours gives no figure either.
    probes = tuple(
        replace(one, window=needed(one, panel.week_bars)) for one in (*standard(panel, origins, length), *further)
    )
    for name, count in Counter(one.name for one in probes).items():
        if count > 1:
            raise ConfigError(f"probe {name} is there {count} times: give each probe of your own another name")
    tallies = survey(task, panel, origins, length, probes, progress)
    found = findings(tallies)
    nulls = Nulls() if networks is None else run(networks, panel, split, origins, length, probes, progress)
    judged = verdicts(found, panel.week_bars, nulls)
    network, layers = task.headed, with_heads(task.headed)
    single: dict[Head, dict[str, Interval]] = {}
    knocked: dict[Claim, Knockout] = {}
    groups: dict[str, Interval] = {}
    alike: list[Row] = []
    tested: list[Gate] = []
    sentences = [NOT_TESTED]
    means: Means | None = None
    if causal:
        progress("skill gates and training means")
        trials = Trials(task, panel, split, length)
        tested, means = trials.gates, trials.means
        sentences = [gate.sentence for gate in tested]
        for layer in layers:
            progress(f"ablation of each head of layer {layer}")
            single |= trials.alone([(layer, number) for number in range(network.attention(layer).heads)])
        asked = {probe.name: probe for probe in probes}
        claims = [claim for claim, verdict in judged.items() if verdict.label == "pattern"]
        progress(f"knockout of the flagged bars of {len(claims)} patterns")
        knocked = dict(zip(claims, trials.knockouts([(head, asked[name]) for head, name in claims]), strict=True))
        for (head, name), knockout in knocked.items():
            found_so = Causal(single[head]["mean"], knockout.specificity, knockout.mass_matched)
            judged[head, name] = functional(judged[head, name], found_so, tested)
        labelled = {name: heads for name in asked if (heads := by_head(judged, name))}
        groups = dict(zip(labelled, trials.together(list(labelled.values())), strict=True))
        progress("redundancy of the heads")
        by_layer = {layer: [(layer, number) for number in range(network.attention(layer).heads)] for layer in layers}
        trials.together(list(by_layer.values()))
        members: dict[Group, Sequence[Head]] = {(name, None): heads for name, heads in labelled.items()}
        members |= {("", layer): heads for layer, heads in by_layer.items()}
        alike += group_rows(trials.summed, members, trials.counts_b, [gate.target for gate in tested])
        alike += pair_rows(task, panel, split.test, length)

    watched: dict[str, pd.DataFrame] = {}
    if drift:
        earned = [claim for claim, verdict in judged.items() if verdict.label != "none"]
        watched = over_time(task, panel, split, length, probes, earned, tested, means, progress)
    carried: list[Row] = [
        (*head, f"{name} mass matched", knockout.mass_matched, np.nan, np.nan)
        for (head, name), knockout in knocked.items()
        if not np.isnan(knockout.mass_matched)
    ]
    widths = [fact for layer in layers for fact in width_facts(layer, network.attention(layer))]
    return Probed(
        heads=_table(_head_rows(found, judged), HEAD_COLUMNS),
        head_facts=_table((*facts(tallies), *carried, *widths), FACT_COLUMNS),
        knockouts=_table(_knockout_rows(single, knocked, groups, tested), KNOCKOUT_COLUMNS),
        lag_profiles=_table((*_profile_rows(tallies), *nulls.band()), PROFILE_COLUMNS),
        head_nulls=pd.DataFrame(list(nulls.rows()), columns=list(NULL_COLUMNS)),
        redundancy=_table(alike, REDUNDANCY_COLUMNS).astype({"other_layer": "Int64", "other_head": "Int64"}),
        gates=[*sentences, *_limits(network, nulls)],
        means={} if means is None else means.tensors(),
        drift=watched,
    )


def _limits(network: Headed, nulls: Nulls) -> Iterator[str]:
    """What stands behind no label of this run, in sentences."""
    if nulls.without:
        yield f"Not held against networks trained on shuffled targets: {nulls.without}"
    if isinstance(network, EncoderDecoder):
        yield "Of the encoder-decoder the encoder's self-attention is probed; none of the decoder's attention is"


def _table(rows: Sequence[Row] | Iterator[Row], columns: Sequence[str]) -> pd.DataFrame:
    """Whole numbers stay whole where a layer or head is missing."""
    return pd.DataFrame(list(rows), columns=list(columns)).astype({"layer": "Int64", "head": "Int64"})


def _head_rows(found: Sequence[Finding], judged: Mapping[tuple[Head, str], Verdict]) -> Iterator[Row]:
    for finding in sorted(found, key=lambda one: (one.tally.layer, one.tally.stratum != "last")):
        tally, score = finding.tally, finding.score
        for head in range(tally.profile.heads):
            verdict = judged[(tally.layer, head), finding.probe.name] if finding.labelled else UNLABELLED
            yield (
                *(tally.layer, head, finding.probe.name, tally.stratum, tally.direction, tally.weights),
                *_numbers(score.kappa, head),
                *(score.chance[head], score.odds[head] if np.isfinite(score.odds[head]) else np.nan),
                *(finding.p[head], finding.q[head], finding.partial[head]),
                *(verdict.label, " ".join(verdict.targets), verdict.reason),
            )


def _knockout_rows(
    single: Mapping[Head, Mapping[str, Interval]],
    knocked: Mapping[tuple[Head, str], Knockout],
    groups: Mapping[str, Interval],
    gates: Sequence[Gate],
) -> Iterator[Row]:
    def rows(head: Head | tuple[None, None], kind: str, rise: Interval, name: str = "") -> Iterator[Row]:
        shares = skill_share(rise, gates)
        for c, gate in enumerate(gates):
            yield (*head, gate.target, kind, *_numbers(rise, c), shares[c], name)

    for head, rises in single.items():
        for kind, rise in rises.items():
            yield from rows(head, kind, rise)
    for (head, name), knockout in knocked.items():
        for kind, rise in {"flagged": knockout.flagged, **knockout.matched}.items():
            yield from rows(head, kind, rise, name)
    for name, rise in groups.items():
        yield from rows((None, None), "group", rise, name)


def _profile_rows(tallies: Sequence[Tally]) -> Iterator[Row]:
    for tally in tallies:
        if tally.stratum == "last":
            profile = tally.profile.profile()
            for head in range(tally.profile.heads):
                for lag in range(tally.profile.span):
                    yield (tally.layer, head, tally.weights, lag, *_numbers(profile, (head, lag)))


def _numbers(interval: Interval, at: int | tuple[int, int]) -> tuple[float, float, float]:
    return float(interval.value[at]), float(interval.low[at]), float(interval.high[at])
