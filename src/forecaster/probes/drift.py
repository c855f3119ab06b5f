"""Whether heads change over time: roles and worth by year, a test for a change, a day's attention from its average."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Shaped
from scipy.special import rel_entr

from forecaster.probes.capture import batches, looks, slices
from forecaster.probes.changepoint import Change, change
from forecaster.probes.knockout import Gate, Head, Means, ablation, changes, units
from forecaster.probes.masks import Mask, Probe, Queries
from forecaster.probes.nulls import benjamini_hochberg
from forecaster.probes.periods import Grid, Sums, gridded, half_widths
from forecaster.probes.statistics import beside, by_block
from forecaster.probes.subject import Subject, with_heads
from forecaster.probes.survey import last_mask, session_slots
from forecaster.windows.panel import Panel
from forecaster.windows.splits import Split

MOST_ROWS: Final = 100_000  # of distances kept, days taken together from there on
CHUNK: Final = 4096  # windows whose changes of loss are held at once
ALPHA: Final = 0.05  # false discoveries among the changes told
DRIFT_COLUMNS: Final = ("layer", "head", "kind", "of", "period", "part", "value", "low", "high", "windows")
TEST_COLUMNS: Final = (
    *("layer", "head", "kind", "of", "part", "change", "earliest", "latest", "before", "after", "statistic", "p", "q"),
    *("blocks", "alike", "words"),
)
DISTANCE_COLUMNS: Final = ("time", "layer", "head", "value")

Kind = Literal["kappa", "rise"]
Key = tuple[Head, Kind, str]  # of what: a probe or a target


def over_time(
    subject: Subject,
    panel: Panel,
    split: Split,
    length: int,
    probes: Sequence[Probe],
    labelled: Sequence[tuple[Head, str]],
    gates: Sequence[Gate],
    means: Means | None,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, pd.DataFrame]:
    """Every head over all windows, of training, validation and test, whose part is told.

    kappa: of the raw weights of the last bar's query, as in the run's heads, but for two things. A content probe's
    chance takes the head's mean profile over all windows in every period. Of probes of one bar only those queries count
    that have it at its usual lag: calendars differ in holidays from time to time (XNYS is recorded without any before
    1968), and a head that keeps its lag would seem to change. rise: of each target's loss under mean-ablation;
    with means None there are none. Tested is what was said beforehand: the kappa of each probe that labels a head, and
    each head's rise for each target whose gate is open; q is Benjamini and Hochberg's over all of them.
    """
    origins = np.sort(np.concatenate((split.train, split.validation, split.test)))
    part_n = np.select([np.isin(origins, split.train), np.isin(origins, split.validation)], [0, 1], 2)
    grid = gridded(panel, origins, part_n, length)
    sums: dict[Key, tuple[Sums, int]] = {}
    found, distances = _looked(subject, panel, origins, length, probes, grid, progress)
    for (layer, name), one in found.items():
        sums |= {((layer, head), "kappa", name): (one, head) for head in range(one.observed_rN.shape[1])}
    if means is not None:
        units_nC = units(subject, panel, split.train, origins)
        for layer in with_heads(subject.headed):
            progress(f"worth over time of each head of layer {layer}")
            heads = [(layer, number) for number in range(subject.headed.attention(layer).heads)]
            rises = _rises(subject, panel, origins, length, units_nC, heads, means, grid)
            for c, target in enumerate(panel.target_names):
                sums |= {(head, "rise", target): (rises[c], number) for number, head in enumerate(heads)}
    open_targets = [gate.target for gate in gates if gate.open]
    family: list[Key] = [(head, "kappa", name) for head, name in sorted(labelled)]
    family += [key for key in sums if key[1] == "rise" and key[2] in open_targets]
    return {
        "drift": pd.DataFrame(_rows(sums, grid), columns=list(DRIFT_COLUMNS)),
        "drift_tests": _tests({key: sums[key] for key in family}, grid),
        "attention_distance": distances,
    }


def _looked(
    subject: Subject,
    panel: Panel,
    origins: Int[np.ndarray, " n"],
    length: int,
    probes: Sequence[Probe],
    grid: Grid,
    progress: Callable[[str], None],
) -> tuple[dict[tuple[int, str], Sums], pd.DataFrame]:
    """Sums of every layer and probe, and the table of distances: two passes, the first for the mean profiles."""
    progress("mean attention of all windows")
    totals: dict[int, Float[np.ndarray, "N L"]] = {}
    for look in looks(subject, panel, origins, length, last_only=True):
        totals[look.layer] = totals.get(look.layer, 0.0) + look.raw_nNL.sum(axis=0, dtype=np.float64)
    usual = {probe.name: _usual(probe, panel, origins, length) for probe in probes if probe.chance == "neighbours"}
    profiles = {layer: total_NL / len(origins) for layer, total_NL in totals.items()}
    count, heads = len(grid.block_r), {layer: len(profile_NL) for layer, profile_NL in profiles.items()}
    sums = {
        (layer, probe.name): Sums(np.zeros(count), np.zeros((count, heads[layer])), np.zeros((count, heads[layer])))
        for layer in profiles
        for probe in probes
    }
    days, day_n = np.unique(session_slots(panel, origins, length)[0].astype("datetime64[D]"), return_inverse=True)
    kept = max(1, min(len(days), MOST_ROWS // (sum(heads.values()) + 1)))
    stretch_n = day_n * kept // len(days)
    far = {layer: np.zeros((kept, number)) for layer, number in heads.items()}
    masks: dict[str, Mask] = {}
    start = -1
    for look in looks(subject, panel, origins, length, last_only=True):
        if look.window_n[0] != start:  # masks are the same for every layer
            start = int(look.window_n[0])
            progress(f"drift of windows {start + 1} to {look.window_n[-1] + 1} of {len(origins)}")
            masks = {probe.name: probe.at(panel, look.queries) for probe in probes}
            masks |= {name: _only(masks[name], lag) for name, lag in usual.items()}
        attention_nNL, profile_NL = look.raw_nNL.astype(np.float64), profiles[look.layer]
        piece_n = grid.window_n[look.window_n]
        for probe in probes:
            _add(
                sums[look.layer, probe.name], probe, attention_nNL, masks[probe.name], look.queries, profile_NL, piece_n
            )
        far[look.layer] += by_block(distance(attention_nNL, profile_NL), stretch_n[look.window_n], kept)
    counts = np.bincount(stretch_n, minlength=kept)
    begins = days[np.searchsorted(np.arange(len(days)) * kept // len(days), np.arange(kept))]
    return sums, _distance_table(begins, {layer: sum_kN / counts[:, None] for layer, sum_kN in far.items()})


def _usual(probe: Probe, panel: Panel, origins: Int[np.ndarray, " n"], length: int) -> int:
    """The lag at which the probe's bar stands most often."""
    flags_L = np.zeros(length)
    for part in batches(len(origins), length):
        flags_L += last_mask(probe, panel, origins[part], length).flags.sum(axis=0)
    return int(flags_L.argmax())


def _only(mask: Mask, lag: int) -> Mask:
    """The mask at the queries that have this bar flagged."""
    here = mask.flags[:, lag]
    return Mask(mask.flags & here[:, None], here)


def _add(
    sums: Sums,
    probe: Probe,
    attention_nNL: Float[np.ndarray, "n N L"],
    mask: Mask,
    queries: Queries,
    profile_NL: Float[np.ndarray, "N L"],
    piece_n: Int[np.ndarray, " n"],
) -> None:
    """Adds the measurable ones of n queries."""
    count = len(sums.counts_r)
    flags_nL = mask.flags.astype(np.float64)
    sums.counts_r[:] += np.bincount(piece_n[mask.measurable], minlength=count)
    sums.observed_rN[:] += by_block(np.einsum("anl,al->an", attention_nNL, flags_nL), piece_n, count)
    match probe.chance:
        case "visible":
            chance_nN = (flags_nL.sum(axis=1) / queries.visible)[:, None]
        case "neighbours":
            row_m, lag_m = np.nonzero(mask.flags)
            chance_mN, _ = beside(attention_nNL, row_m, lag_m, queries.reach)
            chance_nN = by_block(chance_mN, row_m, len(piece_n))
        case "profile":
            chance_nN = flags_nL @ profile_NL.T
    sums.expected_rN[:] += by_block(chance_nN, piece_n, count)


def distance(
    attention_nNL: Float[np.ndarray, "n N L"], profile_NL: Float[np.ndarray, "N L"]
) -> Float[np.ndarray, "n N"]:
    """Jensen-Shannon distance of each query's attention by lag from the mean profile, 0 (equal) to 1 (disjoint).

    sqrt(sum_j [a_j log2(a_j / m_j) + p_j log2(p_j / m_j)] / 2), m = (a + p) / 2.
    Endres and Schindelin (2003), A New Metric for Probability Distributions, IEEE Trans. on Information Theory 49.
    """
    middle_nNL = (attention_nNL + profile_NL) / 2
    both_nN = (rel_entr(attention_nNL, middle_nNL) + rel_entr(profile_NL, middle_nNL)).sum(axis=-1)
    return np.sqrt(np.maximum(both_nN, 0.0) / (2 * np.log(2)))


def _rises(
    subject: Subject,
    panel: Panel,
    origins: Int[np.ndarray, " n"],
    length: int,
    units_nC: Float[np.ndarray, "n C"],
    heads: Sequence[Head],
    means: Means,
    grid: Grid,
) -> list[Sums]:
    """Of each target the rises of the heads, one column a head."""
    count = len(grid.block_r)
    asked = [ablation([head], means.z_NTd) for head in heads]
    rises_CrN = np.zeros((units_nC.shape[1], count, len(heads)))
    for part in slices(len(origins), CHUNK):
        found = changes(subject, panel, origins[part], length, units_nC[part], asked)
        for number, change_nC in enumerate(found):
            rises_CrN[:, :, number] += by_block(change_nC, grid.window_n[part], count).T
    counts_r = np.bincount(grid.window_n, minlength=count).astype(np.float64)
    return [Sums(counts_r, rise_rN, np.zeros_like(rise_rN)) for rise_rN in rises_CrN]


def _rows(sums: Mapping[Key, tuple[Sums, int]], grid: Grid) -> Iterator[tuple[object, ...]]:
    """Every value by period and part, with its interval."""
    cell_r = grid.cell_s[grid.slice_r]
    done: dict[int, tuple[Float[np.ndarray, "c N"], Float[np.ndarray, "c N"]]] = {}
    for (head, kind, of), (one, column) in sums.items():
        if id(one) not in done:
            done[id(one)] = one.over(cell_r), half_widths(one.over(cell_r), one.over(grid.slice_r), grid.cell_s)
        value_cN, half_cN = done[id(one)]
        windows = np.bincount(cell_r, one.counts_r, len(grid.periods))
        for cell, (period, part) in enumerate(zip(grid.periods, grid.parts, strict=True)):
            value, half = float(value_cN[cell, column]), float(half_cN[cell, column])
            yield (*head, kind, of, period, part, value, value - half, value + half, int(windows[cell]))


def _tests(family: Mapping[Key, tuple[Sums, int]], grid: Grid) -> pd.DataFrame:
    """A test of each claim for a change, all of them one family."""
    series = {key: one.over(grid.block_r)[:, column] for key, (one, column) in family.items()}
    found = {key: change(values_b, grid.stretches) for key, values_b in series.items()}
    q = benjamini_hochberg(np.array([one.p for one in found.values()]))
    rows = [
        _test_row(key, one, float(own), series[key], grid) for (key, one), own in zip(found.items(), q, strict=True)
    ]
    return pd.DataFrame(rows, columns=list(TEST_COLUMNS))


def _test_row(key: Key, one: Change, q: float, values_b: Float[np.ndarray, " b"], grid: Grid) -> tuple[object, ...]:
    head, kind, of = key
    blocks_known = int(np.isfinite(values_b).sum())
    if one.at < 0:
        nothing = ("", "", "", "", np.nan, np.nan, np.nan, np.nan, q, blocks_known, np.nan)
        return (*head, kind, of, *nothing, sentence(kind, of, one, q, np.nan, np.nan, ("", "", "")))
    inside = next(place for place in grid.stretches if one.at in place)
    part = "train" if inside is grid.stretches[0] else "held out"
    before, after = (
        float(np.nanmean(values_b[chosen])) for chosen in (inside[inside < one.at], inside[inside >= one.at])
    )
    at, earliest, latest = (str(grid.begins_b[block]) for block in (one.at, one.first, one.last))
    told = (part, at, earliest, latest, before, after, one.statistic, one.p, q, blocks_known, one.alike)
    return (*head, kind, of, *told, sentence(kind, of, one, q, before, after, (at, earliest, latest)))


def sentence(
    kind: Kind, of: str, one: Change, q: float, before: float, after: float, days: tuple[str, str, str]
) -> str:
    """What a test came to, in words."""
    what = f"kappa of {of}" if kind == "kappa" else f"what {of} loses without the head"
    if np.isnan(one.p):
        return f"{what}: not tested, {one.reason}"
    if not q <= ALPHA:
        return f"{what}: no change shown (q {q:.2g})"
    at, earliest, latest = (day[:7] for day in days)
    return f"{what}: {before:.3g} before {at}, {after:.3g} from then on (between {earliest} and {latest}; q {q:.2g})"


def _distance_table(begins: Shaped[np.ndarray, " k"], by_layer: Mapping[int, Float[np.ndarray, "k N"]]) -> pd.DataFrame:
    """Days by heads, and the mean of all heads without a layer and head."""
    each = {(layer, head): far_k for layer, far_kN in by_layer.items() for head, far_k in enumerate(far_kN.T)}
    every = pd.DataFrame({"time": begins, "layer": pd.NA, "head": pd.NA, "value": np.mean(list(each.values()), axis=0)})
    own = [
        pd.DataFrame({"time": begins, "layer": layer, "head": head, "value": far_k})
        for (layer, head), far_k in each.items()
    ]
    joined = pd.concat((every, *own), ignore_index=True)
    return joined.astype({"layer": "Int64", "head": "Int64"})[list(DISTANCE_COLUMNS)]
