"""Heads whose attention is made by hand, so that the right label is known: what the probes are held against."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from forecaster.bars import planted
from forecaster.networks.choice import Shape, network
from forecaster.probes.capture import batches, looks
from forecaster.probes.intervals import blocks
from forecaster.probes.joint import JointSums
from forecaster.probes.masks import Mask, Probe, Queries
from forecaster.probes.nulls import ShiftNull, Shifts, benjamini_hochberg
from forecaster.probes.patterns import Finding, findings, verdicts
from forecaster.probes.standard import standard
from forecaster.probes.statistics import ProbeSums, ProfileSums
from forecaster.probes.survey import Tally
from forecaster.training.task import Recipe, Task
from forecaster.windows import scaling, splits
from forecaster.windows.panel import Panel, build

LENGTH, SHORT = 64, 32
SESSIONS, SYMBOLS = 1600, 2
SHARES = (0.02, 0.05, 0.1, 0.2, 0.5, 0.9)
WEEK = 5
MARKS = {"own marks, soft": 1.0, "own marks, sharp": 4.0}  # c of exp(c g)
MARKED = 16  # heads of own marks in a model


@dataclass(frozen=True)
class Case:
    """Bars in which nothing is to be found, the windows' last bars, and every probe's mask for them."""

    panel: Panel
    queries: Queries
    probes: tuple[Probe, ...]
    masks: Mapping[str, Mask]
    shifts: Mapping[str, Shifts]
    block_n: np.ndarray


def case(seed: int, length: int = LENGTH) -> Case:
    """GARCH(.08, .90) returns with t4 noise, volume coupled to |r|, real XNYS sessions; two symbols."""
    panel = build(planted.load("noise", SESSIONS, seed, symbols=SYMBOLS), ("return",), 1)
    origins = panel.origins(length)
    full = np.full(len(origins), length)
    queries = Queries(origins, full, full, length)
    probes = standard(panel, origins, length)
    masks = {probe.name: probe.at(panel, queries) for probe in probes}
    ids, times = panel.symbol_ids[origins], panel.times[origins]
    shifts = {probe.name: Shifts(masks[probe.name], ids, times, length) for probe in probes if probe.content}
    return Case(panel, queries, probes, masks, shifts, blocks(times, length, ids))


def backgrounds(made: Case, seed: int) -> dict[str, np.ndarray]:
    """Attention [n, L] of heads that look at nothing that a probe asks about (recent bars apart)."""
    rng = np.random.default_rng((seed, 1))
    lags, count = np.arange(LENGTH), len(made.queries.rows)
    window = made.panel.window(made.queries.rows, LENGTH)
    rank = window[:, :, made.panel.feature_names.index("log_volatility")].mean(1).argsort().argsort() / count
    shapes = {
        "uniform": np.ones(LENGTH),
        **{f"exponential {scale}": np.exp(-lags / scale) for scale in (3, 8, 25)},
        "power law": 1 / (1.0 + lags),
        **{f"bump {centre}": np.exp(-(((lags - centre) / 2) ** 2) / 2) for centre in (5.5, 7, 20)},
        "sink": np.where(lags == LENGTH - 1, 20.0, 1.0),
        "random positional": np.exp(rng.normal(size=LENGTH)),
        "decay by volatility": np.exp(-lags / (2 + 20 * rank[:, None])),
        "noise": np.exp(rng.normal(size=(count, LENGTH))),
    }
    heads = {name: np.broadcast_to(shape, (count, LENGTH)) for name, shape in shapes.items()}
    made_up = {name: shape / shape.sum(-1, keepdims=True) for name, shape in heads.items()}
    return made_up | {"random initialisation": untrained(made, seed)}


def own_marks(made: Case, seed: int, contrast: float) -> list[np.ndarray]:
    """Attention [n, L] of heads that follow bars by date and nothing in them: exp(c g), g noise of each symbol's bars.

    A bar keeps its mark in every window that holds it.
    """
    rng = np.random.default_rng((seed, 3, int(contrast)))
    panel = made.panel
    row_nL = panel.rows(made.queries.rows, LENGTH)[:, ::-1]
    marks = [np.exp(contrast * rng.normal(size=len(panel.times))[row_nL]) for _ in range(MARKED)]
    return [mark / mark.sum(-1, keepdims=True) for mark in marks]


def untrained(made: Case, seed: int) -> np.ndarray:
    """Attention [n, L] of the first head of an untrained network on these bars."""
    torch.manual_seed(seed)
    panel = made.panel
    shape = Shape(
        features=len(panel.feature_names),
        length=LENGTH,
        width=64,
        heads=8,
        layers=1,
        feedforward=2,
        dropout=0.0,
        attention_dropout=0.0,
        causal=False,
        positions="learned",
        pooling="last",
        skip=True,
        horizon=1,
        targets=1,
        future=panel.future_size,
    )
    scaler = scaling.fit(panel, splits.split(panel, LENGTH, 0.7, 0.85), LENGTH)
    task = Task(network("attention", shape), scaler, Recipe(1e-3, 0.0, 0.1, 1.0))
    parts = [look.raw_nNL[:, 0] for look in looks(task, panel, made.queries.rows, LENGTH, last_only=True)]
    return np.concatenate(parts).astype(np.float64)


def plant(background_nL: np.ndarray, mask: Mask, share: float) -> np.ndarray:
    """A = (1 - s) background + s target, the target spread evenly over the flagged bars of each query that has some."""
    target = mask.flags / np.maximum(mask.flags.sum(-1, keepdims=True), 1)
    share_n = np.where(mask.measurable, share, 0.0)[:, None]
    return (1 - share_n) * background_nL + share_n * target


def judged(made: Case, heads: Sequence[np.ndarray], nulls: int) -> tuple[dict[str, Finding], list[dict[str, str]]]:
    """Findings by probe, and each head's labels with their reasons, a label needing both weightings, here the same.

    The first `nulls` heads are a family of their own; each other one is judged beside them, as one of nulls + 1 heads.
    """
    count, block_count, length = len(heads), int(made.block_n.max()) + 1, made.queries.span
    flagging = [probe.name for probe in made.probes if probe.chance != "visible"]
    tally = Tally(
        *(0, "last", "past", "raw"),
        profile=ProfileSums(block_count, count, length),
        probes={probe.name: ProbeSums(probe, block_count, count, length) for probe in made.probes},
        nulls={name: ShiftNull(shifts, count) for name, shifts in made.shifts.items()},
        joint=JointSums(flagging, block_count, count, length),
    )
    for part, queries, masks in pieces(made):
        tally.add(np.stack([head[part] for head in heads], axis=1), masks, queries, made.block_n[part])
    found = [_alone(finding, nulls, len(made.shifts)) for finding in findings([tally])]
    by_probe = {finding.probe.name: finding for finding in found}
    q = _corrected([finding for finding in found if finding.probe.content], nulls)
    found = [replace(finding, q=q.get(finding.probe.name, finding.q)) for finding in found]
    twice = [*found, *(replace(finding, tally=replace(tally, weights="norm")) for finding in found)]
    labels: list[dict[str, str]] = [{} for _ in heads]
    for ((_, head), name), verdict in verdicts(twice, WEEK).items():
        if verdict.label != "none":
            labels[head][name] = verdict.reason
    return by_probe, labels


def pieces(made: Case) -> Iterator[tuple[slice, Queries, dict[str, Mask]]]:
    """The queries batch by batch, with their masks."""
    queries = made.queries
    for part in batches(len(queries.rows), queries.span):
        own = replace(queries, rows=queries.rows[part], reach=queries.reach[part], visible=queries.visible[part])
        yield part, own, {name: Mask(mask.flags[part], mask.measurable[part]) for name, mask in made.masks.items()}


def _alone(finding: Finding, nulls: int, content: int) -> Finding:
    """p as in a family of one head more than the nulls."""
    if not finding.probe.content:
        return finding
    test = finding.tally.nulls[finding.probe.name].test((nulls + 1) * content)
    return replace(finding, p=test.p, test=test)


def _corrected(found: Sequence[Finding], nulls: int) -> dict[str, np.ndarray]:
    p = np.stack([finding.p for finding in found])
    q = np.empty_like(p)
    q[:, :nulls] = benjamini_hochberg(p[:, :nulls].ravel()).reshape(len(found), nulls)
    for head in range(nulls, p.shape[1]):
        family = np.concatenate((p[:, :nulls], p[:, head : head + 1]), axis=1)
        q[:, head] = benjamini_hochberg(family.ravel()).reshape(len(found), nulls + 1)[:, -1]
    return {finding.probe.name: row for finding, row in zip(found, q, strict=True)}
