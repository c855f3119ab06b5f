"""How much width a head uses: singular values of what it compares and of what it writes."""

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float

from forecaster.probes.facts import Fact
from forecaster.probes.subject import Attention

# Without types.
qr, svdvals = cast(Any, torch.linalg.qr), cast(Any, torch.linalg.svdvals)


def effective_rank(singular: Float[np.ndarray, " d"]) -> float:
    """exp(entropy of p), p the shares of the singular values in their sum: 1 for one direction, d for d equal ones.

    NaN where all are 0.

    Roy and Vetterli (2007), The Effective Rank: A Measure of Effective Dimensionality.
    """
    if not singular.any():
        return float("nan")
    p = singular[singular > 0] / singular.sum()
    return float(np.exp(-(p * np.log(p)).sum()))


def singular_values(module: Attention) -> dict[str, Float[np.ndarray, "N d"]]:
    """By head, descending, float64: "qk" of W_Q^h W_K^h^T, what it compares, "vo" of W_V^h W_O^h, what it writes.

    Both are D x D of rank d at most: with A = Q R and B = P S, A B^T = Q (R S^T) P^T has the singular values of R S^T.
    Elhage et al. (2021), A Mathematical Framework for Transformer Circuits.
    """
    query, key, value = (part.detach().double() for part in module.inputs_by_head())
    output = module.output_by_head().detach().double()
    return {"qk": _product(query, key.mT), "vo": _product(value, output)}


def width_facts(layer: int, module: Attention) -> Iterator[Fact]:
    """Effective ranks and singular values of a layer's heads as rows of head_facts."""
    for name, values_Nd in singular_values(module).items():
        for head, values in enumerate(values_Nd):
            yield layer, head, f"effective rank {name}", effective_rank(values), np.nan, np.nan
            for place, value in enumerate(values, start=1):
                yield layer, head, f"singular value {name} {place}", float(value), np.nan, np.nan


def _product(left_NDd: torch.Tensor, right_NdD: torch.Tensor) -> Float[np.ndarray, "N d"]:
    r, s = (cast(torch.Tensor, qr(part)[1]) for part in (left_NDd, right_NdD.mT))
    return cast(np.ndarray, svdvals(r @ s.mT).cpu().numpy())
