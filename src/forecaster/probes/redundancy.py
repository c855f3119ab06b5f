"""Which heads do the same: how alike they look, how alike what they write is, and what a group loses beyond its heads.

    js      sqrt(JSD(A_h, A_k)), base 2, mean over windows: 0 looks at the same bars alike, 1 at no bar in common
    cka     ||X_h^T X_k||_F^2 / (||X_h^T X_h||_F ||X_k^T X_k||_F), X_h = z_h W_O^h centred over windows: 1 writes the
            same up to rotation and scale, 0 nothing that goes along
    group   1 - sum of single rises / joint rise: 0 each head loses on its own what it is worth; towards 1 one does what
            another does; below 0 they hinder or make up for each other

The first two at the last bar's query. Lin (1991), Divergence Measures Based on the Shannon Entropy; Endres and
Schindelin (2003), A New Metric for Probability Distributions; Kornblith et al. (2019), Similarity of Neural Network
Representations Revisited, section 3.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from jaxtyping import Float, Int

from forecaster.probes.capture import batches, forecast
from forecaster.probes.importance import every_head
from forecaster.probes.intervals import FEWEST_BLOCKS, Interval, blocks, jackknife, mean
from forecaster.probes.knockout import Head
from forecaster.probes.statistics import by_block
from forecaster.probes.subject import Subject
from forecaster.windows.panel import Panel

WINDOWS: Final = 1024  # evenly spaced, at most: pairs grow with the square of the heads
# Of a group `probe` names the label, or `layer` the layer whose heads it is; other_layer and other_head are of pairs.
CKA_WINDOWS: Final = 10  # times a head's width d: of n windows of unrelated heads CKA is about d / (n + d), .09 there
REDUNDANCY_COLUMNS: Final = (
    *("kind", "layer", "head", "other_layer", "other_head", "probe", "target", "value", "low", "high"),
)

Group = tuple[str, int | None]  # probe or "", layer or None


def pair_rows(
    subject: Subject, panel: Panel, origins: Int[np.ndarray, " n"], length: int
) -> Iterator[tuple[object, ...]]:
    """REDUNDANCY_COLUMNS of every pair of heads, of all layers, over at most WINDOWS of the windows.

    No CKA over fewer windows than CKA_WINDOWS times a head's width: chance alone would make heads alike.
    """
    heads = every_head(subject)
    chosen = np.linspace(0, len(origins) - 1, min(len(origins), WINDOWS)).round().astype(np.int64)
    block_n = blocks(panel.times[origins], length, panel.symbol_ids[origins])
    distance, alike = similarities(subject, panel, origins[chosen], block_n[chosen], length)
    widest = max(subject.headed.attention(layer).head_width for layer, _ in heads)
    for kind, found in (
        (("js", distance), ("cka", alike)) if len(chosen) >= CKA_WINDOWS * widest else (("js", distance),)
    ):
        for i, one in enumerate(heads):
            for j in range(i + 1, len(heads)):
                told = (float(end[i, j]) for end in (found.value, found.low, found.high))
                yield kind, *one, *heads[j], "", "", *told


def similarities(
    subject: Subject, panel: Panel, origins: Int[np.ndarray, " n"], block_n: Int[np.ndarray, " n"], length: int
) -> tuple[Interval, Interval]:
    """Jensen-Shannon distance and linear CKA of all heads, [H, H] each, in one pass.

    Of z only its cross moments are kept, for FEWEST_BLOCKS stretches of blocks: ||X_h^T X_k||_F^2 is tr(C^T G_h C G_k)
    with C the centred cross moment of z_h and z_k, d x d, and G_h = W_O^h W_O^h^T.
    """
    network, heads = subject.headed, every_head(subject)
    layers = sorted({layer for layer, _ in heads})
    wide = max(network.attention(layer).head_width for layer in layers)
    count, size = int(block_n.max()) + 1, len(heads) * wide
    coarse_n = block_n * min(count, FEWEST_BLOCKS) // count
    distance_bHH = np.zeros((count, len(heads), len(heads)))
    moments_bPP = np.zeros((min(count, FEWEST_BLOCKS), size, size))
    sums_bP = np.zeros((min(count, FEWEST_BLOCKS), size))
    for part in batches(len(origins), length):
        capture = dict.fromkeys(layers, (length - 1,))
        captured = forecast(subject, panel, origins[part], length, capture=capture).captured
        attention = [captured[layer].attn_BNTS[:, :, 0].cpu().double().numpy() for layer in layers]
        distance_bHH += by_block(distances(np.concatenate(attention, axis=1)), block_n[part], count)
        z = [captured[layer].z_BNTd[:, :, -1].cpu().double().numpy() for layer in layers]
        padded = [np.pad(z_BNd, ((0, 0), (0, 0), (0, wide - z_BNd.shape[-1]))) for z_BNd in z]
        z_BP = np.concatenate(padded, axis=1).reshape(-1, size)
        for block in np.unique(coarse_n[part]):
            mine_mP = z_BP[coarse_n[part] == block]
            moments_bPP[block] += mine_mP.T @ mine_mP
            sums_bP[block] += mine_mP.sum(0)
    gram_Hdd = np.zeros((len(heads), wide, wide))
    for place, (layer, head) in enumerate(heads):
        w_dD = network.attention(layer).output_by_head()[head].detach().cpu().double().numpy()
        gram_Hdd[place, : len(w_dD), : len(w_dD)] = w_dD @ w_dD.T

    def cka(
        n_R: Float[np.ndarray, " R"], moments_RPP: Float[np.ndarray, "R P P"], sums_RP: Float[np.ndarray, "R P"]
    ) -> Float[np.ndarray, "R H H"]:
        return np.stack([_cka(*one, gram_Hdd) for one in zip(n_R, moments_RPP, sums_RP, strict=True)])

    coarse_b = np.bincount(coarse_n, minlength=len(sums_bP)).astype(np.float64)
    alike = jackknife(cka, moments_bPP, sums_bP, counts_b=coarse_b)
    return mean(np.bincount(block_n, minlength=count).astype(np.float64), distance_bHH), alike


def distances(attention_BHL: Float[np.ndarray, "B H L"]) -> Float[np.ndarray, "B H H"]:
    """Root of the Jensen-Shannon divergence, base 2, of every pair of heads in every window: a metric from 0 to 1."""
    entropy_BH = _entropy(attention_BHL)
    distance_BHH = np.zeros((*entropy_BH.shape, entropy_BH.shape[1]))
    for head in range(entropy_BH.shape[1] - 1):
        beside = slice(head + 1, None)
        middle_BKL = (attention_BHL[:, head, None] + attention_BHL[:, beside]) / 2
        divergence_BK = _entropy(middle_BKL) - (entropy_BH[:, head, None] + entropy_BH[:, beside]) / 2
        # Rounding leaves equal rows a hair below or above 0.
        distance_BHH[:, head, beside] = np.sqrt(np.clip(divergence_BK, 0.0, 1.0))
    return distance_BHH + distance_BHH.transpose(0, 2, 1)


def group_rows(
    summed: Mapping[frozenset[Head], Float[np.ndarray, "b C"]],
    groups: Mapping[Group, Sequence[Head]],
    counts_b: Float[np.ndarray, " b"],
    targets: Sequence[str],
) -> Iterator[tuple[object, ...]]:
    """REDUNDANCY_COLUMNS of each group of at least two heads, by target.

    summed: rises by block of dates of each head alone and of each group. NaN where the interval of the joint rise
    includes 0: a share of nothing.
    """
    for (probe, layer), heads in groups.items():
        if len(heads) < 2:
            continue
        joint_bC = summed[frozenset(heads)]
        alone_bC = np.sum([summed[frozenset({head})] for head in heads], axis=0)
        joint = mean(counts_b, joint_bC)
        with np.errstate(divide="ignore", invalid="ignore"):  # a target that loses nothing at all
            found = jackknife(_redundancy, alone_bC, joint_bC, counts_b=counts_b)
        for c, target in enumerate(targets):
            defined = joint.low[c] > 0 or joint.high[c] < 0
            told = (float(end[c]) if defined else np.nan for end in (found.value, found.low, found.high))
            yield "group", layer, None, None, None, probe, target, *told


def _redundancy(
    n_R: Float[np.ndarray, " R"], alone_RC: Float[np.ndarray, "R C"], joint_RC: Float[np.ndarray, "R C"]
) -> Float[np.ndarray, "R C"]:
    return 1.0 - alone_RC / joint_RC


def _entropy(p_L: Float[np.ndarray, "*s L"]) -> Float[np.ndarray, "*s"]:
    return -(p_L * np.log2(np.where(p_L > 0, p_L, 1.0))).sum(-1)


def _cka(
    n: float,
    moments_PP: Float[np.ndarray, "P P"],
    sums_P: Float[np.ndarray, " P"],
    gram_Hdd: Float[np.ndarray, "H d d"],
) -> Float[np.ndarray, "H H"]:
    count, wide = gram_Hdd.shape[:2]
    centred_HdHd = (moments_PP - np.outer(sums_P, sums_P) / n).reshape(count, wide, count, wide)
    left = np.einsum("hde,hekf->hdkf", gram_Hdd, centred_HdHd, optimize=True)
    right = np.einsum("hdkf,kfg->hdkg", centred_HdHd, gram_Hdd, optimize=True)
    shared_HH = np.einsum("hdkf,hdkf->hk", left, right)
    own_H = np.sqrt(np.diag(shared_HH))
    # A head that writes the same in every window goes along with nothing.
    scale_HH = np.outer(own_H, own_H)
    return np.where(scale_HH > 0, shared_HH / np.where(scale_HH > 0, scale_HH, 1.0), np.nan)
