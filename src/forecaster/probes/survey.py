"""One pass over the windows: every head's sums for every probe, stratum, direction and weighting."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int, Shaped

from forecaster.bars.calendar import Calendar
from forecaster.networks.attention import MultiHeadAttention
from forecaster.probes.capture import Look, Stratum, Weights, batches, looks
from forecaster.probes.intervals import blocks
from forecaster.probes.joint import JointSums
from forecaster.probes.masks import Direction, Mask, Probe, Queries, large_move, weekly, weekly_target
from forecaster.probes.nulls import ShiftNull, Shifts
from forecaster.probes.statistics import ProbeSums, ProfileSums, hits
from forecaster.probes.subject import Subject, with_heads
from forecaster.probes.tiles import LagSums
from forecaster.probes.tracking import CalendarOrLag, DateTracking
from forecaster.windows.panel import Panel

HIT_RANKS = (1, 2)

Key = tuple[int, Stratum, Direction, Weights]


@dataclass
class Tally:
    """Sums of one layer's heads for one stratum, direction and weighting.

    Of the last bar's query also the content probes' nulls, the joint fit and, on the raw weights, sums that become
    facts: arg-max hits, multiples of the week, what is followed over time, all queries of the layer by lag.
    """

    layer: int
    stratum: Stratum
    direction: Direction
    weights: Weights
    profile: ProfileSums
    probes: dict[str, ProbeSums]
    nulls: dict[str, ShiftNull] = field(default_factory=dict[str, ShiftNull])
    joint: JointSums | None = None
    hits: dict[str, ProbeSums] = field(default_factory=dict[str, ProbeSums])
    multiples: dict[str, ProbeSums] = field(default_factory=dict[str, ProbeSums])
    anchors: dict[str, CalendarOrLag] = field(default_factory=dict[str, CalendarOrLag])
    tracking: DateTracking | None = None
    every: LagSums | None = None

    def add(
        self,
        attention_nNL: Float[np.ndarray, "n N L"],
        masks: Mapping[str, Mask],
        queries: Queries,
        block_n: Int[np.ndarray, " n"],
    ) -> None:
        """Adds the attention of n queries."""
        for null in self.nulls.values():
            null.update(attention_nNL)  # as it came: they hold it, and float64 would take twice the memory
        attention_nNL = attention_nNL.astype(np.float64)
        whole_bNL = self.profile.update(attention_nNL, block_n)
        for name, sums in (self.probes | self.multiples).items():
            sums.update(attention_nNL, masks[name], queries, block_n, whole_bNL)
        if self.joint is not None:
            self.joint.update(attention_nNL, masks, block_n)
        for name, anchor in self.anchors.items():
            anchor.update(attention_nNL, masks[name], block_n)
        if self.tracking is not None:
            self.tracking.update(attention_nNL, queries.rows, block_n)
        if self.hits:
            best_nNL = hits(attention_nNL)
            for name, sums in self.hits.items():
                sums.update(best_nNL, masks[name], queries, block_n)


def survey(
    task: Subject,
    panel: Panel,
    origins: Int[np.ndarray, " n"],
    length: int,
    probes: Sequence[Probe],
    progress: Callable[[str], None],
    *,
    whole: bool = True,
) -> list[Tally]:
    """Sums over the windows that end at the origins, which are sorted by symbol, then time.

    whole=False: only what kappa and lag profiles at the last bar's query need.
    """
    block_n = blocks(panel.times[origins], length, panel.symbol_ids[origins])
    asked = {probe.name: probe for probe in probes}
    moves = {f"large_move hit rate top {rank}": large_move(rank) for rank in HIT_RANKS}
    weeks = multiples(panel.week_bars, length)
    network, block_count = task.headed, int(block_n.max()) + 1
    dates, slots = session_slots(panel, origins, length)
    shifts = {
        name: Shifts(last_mask(probe, panel, origins, length), panel.symbol_ids[origins], dates, length, slots)
        for name, probe in asked.items()
        if probe.content and whole
    }

    def sums(wanted: Mapping[str, Probe], heads: int) -> dict[str, ProbeSums]:
        return {name: ProbeSums(probe, block_count, heads, length) for name, probe in wanted.items()}

    def empty(key: Key) -> Tally:
        layer, stratum, direction, weights = key
        heads = network.attention(layer).heads
        wanted = {name: probe for name, probe in asked.items() if direction in probe.directions}
        tally = Tally(*key, ProfileSums(block_count, heads, length), sums(wanted, heads))
        if stratum == "last" and whole:
            tally.nulls |= {name: ShiftNull(shifted, heads) for name, shifted in shifts.items()}
            flagging = [name for name, probe in wanted.items() if probe.chance != "visible"]
            tally.joint = JointSums(flagging, block_count, heads, length)
            if weights == "raw":
                tally.hits |= sums(moves, heads)
                tally.multiples |= sums(weeks, heads)
                tally.tracking = DateTracking(block_count, heads)
                tally.anchors |= {
                    name: CalendarOrLag(usual, block_count, heads)
                    for name, usual in (("weekly", panel.week_bars), ("weekly_target", panel.week_bars - 1))
                    if name in asked and usual < length
                }
        return tally

    # While another's network computes, its kernel can't be replaced.
    ours = {
        layer: own for layer in with_heads(network) if isinstance(own := network.attention(layer), MultiHeadAttention)
    }
    complete = {layer: own.heads for layer, own in ours.items() if len(network.computed(layer)) == length}
    every = {layer: LagSums(heads, length) for layer, heads in complete.items()} if whole else {}
    tallies: dict[Key, Tally] = {}
    masks: dict[tuple[Stratum, Direction], dict[str, Mask]] = {}
    start = -1

    def add(look: Look) -> None:
        nonlocal start
        if look.window_n[0] != start:
            start = int(look.window_n[0])
            masks.clear()
            progress(f"attention of windows {start + 1} to {look.window_n[-1] + 1} of {len(origins)}")
        place = (look.stratum, look.queries.direction)
        if place not in masks:  # the same for every layer
            wanted = asked | moves | weeks if look.stratum == "last" and whole else asked
            masks[place] = {
                name: probe.at(panel, look.queries) for name, probe in wanted.items() if place[1] in probe.directions
            }
        for weights, attention_nNL in _by_weights(look):
            key = (look.layer, *place, weights)
            if key not in tallies:
                tallies[key] = empty(key)
            tallies[key].add(attention_nNL, masks[place], look.queries, block_n[look.window_n])

    for look in looks(task, panel, origins, length, last_only=not whole, every=every):
        add(look)
        del look  # the next one takes as much
    for layer, sums_by_lag in every.items():
        tallies[layer, "last", "past", "raw"].every = sums_by_lag
    return list(tallies.values())


def session_slots(
    panel: Panel, origins: Int[np.ndarray, " n"], length: int
) -> tuple[Shaped[np.ndarray, " n"], Int[np.ndarray, " n"] | None]:
    """Session date of each origin's bar, and of intraday ones a number for how their windows lie on the market's clock.

    The number is that of the last bar's time of the day, and whether the first bar's is the usual one then: after an
    early close or missing bars the same lags are other hours.
    """
    times = panel.times[origins]
    if panel.interval == "1d":
        return times, None
    last_n, first_n = (
        np.unique(clock - clock.astype("datetime64[D]"), return_inverse=True)[1]
        for clock in (panel.clock(times), panel.clock(panel.times[origins - (length - 1)]))
    )
    counts = np.zeros((last_n.max() + 1, first_n.max() + 1), dtype=np.int64)
    np.add.at(counts, (last_n, first_n), 1)
    return Calendar(panel.calendar).days(times, panel.interval), 2 * last_n + (first_n != counts.argmax(1)[last_n])


def last_mask(probe: Probe, panel: Panel, origins: Int[np.ndarray, " n"], length: int) -> Mask:
    """A probe's mask for the last bars of the windows that end at the origins, computed piece by piece."""
    parts: list[Mask] = []
    for part in batches(len(origins), length):
        full = np.full(part.stop - part.start, length)
        parts.append(probe.at(panel, Queries(origins[part], full, full, length)))
    return Mask(np.concatenate([mask.flags for mask in parts]), np.concatenate([mask.measurable for mask in parts]))


def multiples(week_bars: int, length: int) -> dict[str, Probe]:
    """Two weeks, three, ... and the comb of all from one week on, of either anchor, as far as the window goes."""
    most = (length - 1) // week_bars
    named: dict[str, Probe] = {}
    for anchor in (weekly, weekly_target):
        name = anchor(week_bars).name
        named |= {f"{name} {count} weeks": anchor(week_bars, (count,)) for count in range(2, most + 1)}
        if most > 1:
            named[f"{name} comb"] = anchor(week_bars, tuple(range(1, most + 1)))
    return named


def _by_weights(look: Look) -> tuple[tuple[Weights, np.ndarray], ...]:
    return ("raw", look.raw_nNL), ("norm", look.norm_nNL)
