"""Causal tests: what the forecast loses when a head, or what it reads from certain bars, is replaced by its mean.

All are edits of v or z inside the network's own forward pass. Losses are squared errors of the mean, averaged over
steps, in the units of `units`: with returns in units of their training deviation alone, a single outburst of volatility
decides every interval (docs/LOG.md).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from forecaster.forecasts.baselines import training_mean
from forecaster.forecasts.significance import better, differences
from forecaster.networks.attention import Edit
from forecaster.networks.encoder import Output
from forecaster.probes.capture import batches, forecast
from forecaster.probes.intervals import Interval, mean
from forecaster.probes.masks import Mask
from forecaster.probes.replay import replay
from forecaster.probes.statistics import by_block
from forecaster.probes.subject import Subject
from forecaster.windows.panel import Panel
from forecaster.windows.scaling import RELATIVE_TARGETS, sigma

GATE_P: Final = 0.01
ROUNDED: Final = 1e-12  # a skill that is none
ROUNDING: Final = 1e-6  # share of the mass still to be matched that float32 attention may miss

Head = tuple[int, int]  # layer, head
Edits = Callable[[slice], Mapping[int, Edit]]  # edits by layer for a slice of the windows


@dataclass(frozen=True)
class Means:
    """Means over training windows of every layer's head outputs z and values v, by slot.

    A slot is a bar's position in the window, aligned at its end. N and d are a layer's own; of overlapping patches v
    is that of each which has the bar, one after the other.
    """

    z_NTd: tuple[Float[Tensor, "_ _ _"], ...]
    v_NSd: tuple[Float[Tensor, "_ _ _"], ...]

    def tensors(self) -> dict[str, Tensor]:
        """Under names, to be saved."""
        named = {"z": self.z_NTd, "v": self.v_NSd}
        return {f"{name}.{layer}": mean for name, means in named.items() for layer, mean in enumerate(means)}


def training_means(task: Subject, panel: Panel, origins: Int[np.ndarray, " n"], length: int) -> Means:
    """Means of z and v over the windows that end at the origins; an edit that changes nothing reads them."""
    layers = range(task.headed.layers)
    z_sums: dict[int, Tensor] = {}
    v_sums: dict[int, Tensor] = {}

    def adding(sums: dict[int, Tensor], layer: int) -> Callable[[Tensor], Tensor]:
        def add(x: Tensor) -> Tensor:
            total = x.cpu().double().sum(0)  # on the host: not every device has float64
            sums[layer] = sums[layer] + total if layer in sums else total
            return x

        return add

    edits = {layer: Edit(v=adding(v_sums, layer), z=adding(z_sums, layer)) for layer in layers}
    for part in batches(len(origins), length):
        forecast(task, panel, origins[part], length, edits)
    z, v = (
        tuple((sums[layer] / len(origins)).float().to(task.device) for layer in layers) for sums in (z_sums, v_sums)
    )
    return Means(z, v)


def ablation(heads: Sequence[Head], values: Sequence[Float[Tensor, "_ _ _"]] | None) -> Edits:
    """Outputs z of the heads replaced, before W_O, by their slots' values (a tensor a layer); by zero without any."""
    by_layer: dict[int, list[int]] = {}
    for layer, head in heads:
        by_layer.setdefault(layer, []).append(head)

    def replacing(layer: int) -> Callable[[Tensor], Tensor]:
        def replace(z_BNTd: Tensor) -> Tensor:
            edited = z_BNTd.clone()
            edited[:, by_layer[layer]] = 0.0 if values is None else values[layer][by_layer[layer]]
            return edited

        return replace

    edits = {layer: Edit(z=replacing(layer)) for layer in by_layer}
    return lambda part: edits


def value_knockout(head: Head, flags_nL: Bool[np.ndarray, "n L"], means: Means) -> Edits:
    """Values v of the head at the flagged offsets of each window's last bar replaced by their slots' means; A kept."""
    layer, number = head
    mean_Sd = means.v_NSd[layer][number]
    flags_nS = torch.from_numpy(flags_nL[:, ::-1].copy()).to(mean_Sd.device)

    def edits(part: slice) -> Mapping[int, Edit]:
        def replace(v_BNSd: Tensor) -> Tensor:
            edited = v_BNSd.clone()
            edited[:, number] = torch.where(flags_nS[part, :, None], mean_Sd, v_BNSd[:, number])
            return edited

        return {layer: Edit(v=replace)}

    return edits


def units(
    task: Subject, panel: Panel, train: Int[np.ndarray, " m"], origins: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "n C"]:
    """What a target's errors are measured in at each origin: its training deviation; for returns times sigma / (its
    geometric mean over training origins), sigma being the EWMA volatility at the origin.

    Known at the origin, so that the best forecast in these units is the same conditional mean.
    """
    pace_n = sigma(panel, origins) / np.exp(np.log(sigma(panel, train)).mean())
    relative_C = np.isin(panel.target_names, RELATIVE_TARGETS)
    return task.target_std.cpu().double().numpy() * np.where(relative_C, pace_n[:, None], 1.0)


def point_forecasts(
    task: Subject, panel: Panel, origins: Int[np.ndarray, " n"], length: int, edits: Edits | None = None
) -> Float[np.ndarray, "n H C"]:
    """Means forecast for the windows that end at the origins, with the edits' changes."""
    parts: list[Float[np.ndarray, "B H C"]] = []
    for part in batches(len(origins), length):
        out = forecast(task, panel, origins[part], length, None if edits is None else edits(part))
        parts.append(out.mean_BHC.cpu().double().numpy())
    return np.concatenate(parts)


def losses(
    task: Subject,
    panel: Panel,
    origins: Int[np.ndarray, " n"],
    mean_nHC: Float[np.ndarray, "n H C"],
    units_nC: Float[np.ndarray, "n C"],
) -> Float[np.ndarray, "n C"]:
    """Loss of forecast means in units, by window and target."""
    return task.point_losses(mean_nHC / units_nC[:, None], panel.targets[origins] / units_nC[:, None])


def changes(
    task: Subject,
    panel: Panel,
    origins: Int[np.ndarray, " n"],
    length: int,
    units_nC: Float[np.ndarray, "n C"],
    asked: Sequence[Edits],
) -> list[Float[np.ndarray, "n C"]]:
    """Of each edit: loss with it less loss without, by window and target, from one pass over the windows."""
    parts: list[list[Float[np.ndarray, "B C"]]] = [[] for _ in asked]
    for part in batches(len(origins) if asked else 0, length):
        again, rows, units_BC = replay(task, panel, origins[part], length), origins[part], units_nC[part]
        before_BC = _losses(task, again.unedited, panel, rows, units_BC)
        for edits, of in zip(asked, parts, strict=True):
            of.append(_losses(task, again.edited(edits(part)), panel, rows, units_BC) - before_BC)
    return [np.concatenate(of) for of in parts]


def _losses(
    task: Subject, out: Output, panel: Panel, origins: Int[np.ndarray, " B"], units_BC: Float[np.ndarray, "B C"]
) -> Float[np.ndarray, "B C"]:
    return losses(task, panel, origins, out.mean_BHC.cpu().double().numpy(), units_BC)


def rise(
    change_nC: Float[np.ndarray, "n C"], block_n: Int[np.ndarray, " n"], used_n: Bool[np.ndarray, " n"] | None = None
) -> Interval:
    """Mean change of the loss over windows (over the `used` ones), with its t interval over blocks of dates."""
    used = np.ones(len(block_n), dtype=np.bool_) if used_n is None else used_n
    count = int(block_n.max()) + 1
    return mean(by_block(used.astype(np.float64), block_n, count), by_block(change_nC * used[:, None], block_n, count))


@dataclass(frozen=True)
class Gate:
    """Whether a target is forecast with skill on test, so that a loss of it can mean something.

    skill is the naive forecast's loss less the model's, in units: what shares of skill are shares of. dates: those of
    test.
    """

    target: str
    naive: str
    p: float
    skill: float
    dates: int = 0

    @property
    def open(self) -> bool:
        """Better than the naive forecast at p < GATE_P, one-sided."""
        return self.p < GATE_P

    @property
    def sentence(self) -> str:
        """The same in words."""
        test = f"squared error on test against the {self.naive}'s, one-sided Diebold-Mariano p = {self.p:.3g}"
        if np.isnan(self.p):
            same = f"errors as the {self.naive}'s"
            why = f"too few dates of test, {self.dates}" if self.dates < 2 or abs(self.skill) > ROUNDED else same
            return f"{self.target}: skill undefined ({why}): no head is functional for it"
        if self.open:
            return f"{self.target}: skill ({test}): heads can be functional for it"
        return f"{self.target}: no skill ({test}, not below {GATE_P}): no head is called functional for it"


def gates(
    task: Subject,
    panel: Panel,
    train: Int[np.ndarray, " m"],
    test: Int[np.ndarray, " n"],
    mean_nHC: Float[np.ndarray, "n H C"],
    units_nC: Float[np.ndarray, "n C"],
) -> list[Gate]:
    """One gate per target: Diebold-Mariano of the model against the symbol's training mean (return: zero) on test.

    It compares plain losses, not in units, as the run's tests do, averaged over steps, and over symbols by date.
    """
    zero_C = np.array([target == "return" for target in panel.target_names])
    naive_nHC = np.where(zero_C, 0.0, training_mean(panel, train)[panel.symbol_ids[test]])
    plain = [losses(task, panel, test, of_nHC, np.ones_like(units_nC)) for of_nHC in (mean_nHC, naive_nHC)]
    skill_nC = losses(task, panel, test, naive_nHC, units_nC) - losses(task, panel, test, mean_nHC, units_nC)
    dates, date_n = np.unique(panel.times[test], return_inverse=True)
    count_D = np.bincount(date_n, minlength=len(dates))
    result: list[Gate] = []
    for c, target in enumerate(panel.target_names):
        by_date = [np.bincount(date_n, loss_nC[:, c], len(dates)) / count_D for loss_nC in plain]
        p = better(differences(*by_date), panel.horizon)
        naive = "zero return" if zero_C[c] else "historical mean"
        result.append(Gate(target, naive, p, float(skill_nC[:, c].mean()), len(dates)))
    return result


def same_offsets(
    mask: Mask, symbol_ids: Int[np.ndarray, " n"], length: int, slots: Int[np.ndarray, " n"] | None = None
) -> tuple[Bool[np.ndarray, "n L"], Bool[np.ndarray, " n"]]:
    """Flags of another window of the same symbol and slot (of intraday bars, see ShiftNull), half of its measurable
    windows away in a circle.

    In all as many bars at the same offsets, at another time. A window whose other one is nearer than `length` bars has
    none (second array). The windows given are all of a stretch of time, whether measurable or not.
    """
    slot_n = np.zeros(len(symbol_ids), dtype=np.int64) if slots is None else slots
    flags, used = np.zeros_like(mask.flags), np.zeros_like(mask.measurable)
    for symbol in np.unique(symbol_ids):
        mine = mask.measurable & (symbol_ids == symbol)
        for slot in np.unique(slot_n[mine]):
            rows = np.flatnonzero(mine & (slot_n == slot))
            others = np.roll(rows, -(len(rows) // 2))
            far = np.abs(others - rows) >= length
            flags[rows[far]], used[rows[far]] = mask.flags[others[far]], True
    return flags, used


def same_mass(attention_nL: Float[np.ndarray, "n L"], flags_nL: Bool[np.ndarray, "n L"]) -> Bool[np.ndarray, "n L"]:
    """Unflagged bars that together carry about the attention of the flagged ones, at most as much.

    From the most attended bar down (the nearer of equals first), each is taken that still fits. Where all unflagged
    bars together carry less than the flagged ones, all of them.
    """
    mass_nL = attention_nL.astype(np.float64)
    missing_n = (mass_nL * flags_nL).sum(1)
    missing_n *= 1.0 + ROUNDING
    mass_nL = np.where(flags_nL, np.inf, mass_nL)
    order_nL = np.argsort(-np.where(flags_nL, -1.0, mass_nL), axis=1, kind="stable")
    chosen_nL = np.zeros_like(flags_nL)
    rows = np.arange(len(flags_nL))
    for place_n in order_nL.T:
        taken_n = mass_nL[rows, place_n] <= missing_n
        chosen_nL[rows, place_n] = taken_n
        missing_n -= np.where(taken_n, mass_nL[rows, place_n], 0.0)
    return chosen_nL
