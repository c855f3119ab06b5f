"""How much each head matters: the rise in loss without it, its gradient score, and what its matrices alone say."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from forecaster.networks.attention import Edit
from forecaster.probes.capture import batches, evaluating
from forecaster.probes.causal import skill_share
from forecaster.probes.intervals import Interval
from forecaster.probes.knockout import Head
from forecaster.probes.removal import Ground, Removals
from forecaster.probes.subject import Attention, Subject, with_heads
from forecaster.probes.width import singular_values
from forecaster.windows.panel import Panel

# `target` is "all" where every target counts: importance is the share of skill of the open target that loses most.
IMPORTANCE_COLUMNS: Final = ("layer", "head", "measure", "target", "value", "low", "high", "skill_share")


def every_head(subject: Subject) -> list[Head]:
    """Layer by layer."""
    network = subject.headed
    return [(layer, head) for layer in with_heads(network) for head in range(network.attention(layer).heads)]


def gradient_scores(subject: Subject, panel: Panel, length: int, ground: Ground) -> dict[Head, Float[np.ndarray, " C"]]:
    """Michel's I_h of each head and target: mean over windows of |sum over slots and d of z_h . dL/dz_h|.

    dL/dg at g = 1 of a gate g z_h, in absolute value by window: to first order what zero-ablation does to each window's
    loss, whichever way. L is the squared error in units, averaged over steps.
    Michel et al. (2019), Are Sixteen Heads Really Better than One?, equation 2.
    """
    network, count = subject.headed, len(panel.target_names)
    totals = {layer: np.zeros((network.attention(layer).heads, count)) for layer in with_heads(network)}
    for part in batches(len(ground.origins), length):
        rows = ground.origins[part]
        x_BLF = torch.from_numpy(panel.window(rows, length)).to(subject.device)
        future_BHK = torch.from_numpy(panel.future(rows)).to(subject.device)
        units_B1C = torch.from_numpy(ground.units_nC[part][:, None])
        actual_BHC = torch.from_numpy(panel.targets[rows])
        outputs: dict[int, Tensor] = {}
        edits = {layer: Edit(z=_noting(outputs, layer)) for layer in totals}
        with evaluating(subject), torch.enable_grad():
            mean_BHC = subject.forecast(x_BLF, future_BHK, edits).mean_BHC.cpu().double()
            losses_C = (((mean_BHC - actual_BHC) / units_B1C) ** 2).mean(1).sum(0)
            z = [outputs[layer] for layer in totals]
            for c in range(count):
                gradients = torch.autograd.grad(losses_C[c], z, retain_graph=c + 1 < count)
                for layer, z_BNTd, gradient_BNTd in zip(totals, z, gradients, strict=True):
                    score_BN = (z_BNTd * gradient_BNTd).detach().cpu().double().sum((2, 3)).abs()
                    totals[layer][:, c] += score_BN.sum(0).numpy()
    return {
        (layer, head): totals_NC[head] / len(ground.origins)
        for layer, totals_NC in totals.items()
        for head in range(len(totals_NC))
    }


def stable_ranks(module: Attention) -> dict[str, Float[np.ndarray, " N"]]:
    """||W||_F^2 / ||W||_2^2 of "qk", W_Q^h W_K^h^T, and "vo", W_V^h W_O^h: from 1 to d. NaN for a matrix of zeros.

    Rudelson and Vershynin (2007), Sampling from Large Matrices, section 1.
    """
    squares = {name: values_Nd**2 for name, values_Nd in singular_values(module).items()}
    return {
        name: squares_Nd.sum(1) / np.where(squares_Nd[:, 0] > 0, squares_Nd[:, 0], np.nan)
        for name, squares_Nd in squares.items()
    }


def rows(
    heads: Sequence[Head],
    trial: Removals,
    gradients: Mapping[Head, Float[np.ndarray, " C"]],
    ranks: Mapping[Head, Mapping[str, float]],
) -> Iterator[tuple[object, ...]]:
    """IMPORTANCE_COLUMNS of each head, on the trial's part."""
    ground = trial.ground
    rises = trial.rises(frozenset({head}) for head in heads)
    for head in heads:
        rise_C: Interval = rises[frozenset({head})]
        shares = skill_share(rise_C, ground.gates)
        for c, gate in enumerate(ground.gates):
            told = float(rise_C.value[c]), float(rise_C.low[c]), float(rise_C.high[c])
            yield *head, "rise", gate.target, *told, shares[c]
        cost = ground.cost(rise_C.value)
        yield *head, "importance", "all", cost, np.nan, np.nan, cost if ground.open else np.nan
        for c, gate in enumerate(ground.gates):
            yield *head, "gradient", gate.target, float(gradients[head][c]), np.nan, np.nan, np.nan
        for name, rank in ranks[head].items():
            yield *head, f"stable rank {name}", "all", rank, np.nan, np.nan, np.nan


def _noting(outputs: dict[int, Tensor], layer: int) -> Callable[[Tensor], Tensor]:
    def note(z_BNTd: Tensor) -> Tensor:
        # A network whose parameters are frozen has no graph up to here.
        outputs[layer] = z_BNTd if z_BNTd.requires_grad else z_BNTd.requires_grad_()
        return outputs[layer]

    return note
