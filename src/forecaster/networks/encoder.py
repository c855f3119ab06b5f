"""The forecaster's network: a pre-norm transformer encoder over a window of bars, read at its last bar."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from forecaster.networks.attention import Captured, Edit, MultiHeadAttention
from forecaster.networks.averaging import Averaging
from forecaster.networks.dropout import Dropout
from forecaster.networks.positions import Alibi, LagBias, learned, sinusoidal
from forecaster.networks.readout import Readout

WEEK, MONTH = 5, 22  # bars of a log-HAR's weekly and monthly means


@dataclass(frozen=True)
class Output:
    """A forecast, and what was recorded of the layers asked for."""

    quantiles_BHCQ: Float[Tensor, "B H C Q"]
    mean_BHC: Float[Tensor, "B H C"]
    captured: dict[int, Captured]


class Block(nn.Module):
    """x + Attention(norm x), then x + MLP(norm x), dropout on both branches.

    Xiong et al. (2020), On Layer Normalization in the Transformer Architecture (the pre-norm form).
    """

    def __init__(self, attention: MultiHeadAttention | Averaging, feedforward: int, dropout: float) -> None:
        super().__init__()
        width = attention.width
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = attention
        self.mlp = nn.Sequential(nn.Linear(width, feedforward), nn.GELU(), nn.Linear(feedforward, width))
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x_BSD: Float[Tensor, "B S D"],
        queries: Sequence[int] | None,
        edit: Edit | None,
        capture: Sequence[int] | None,
    ) -> tuple[Float[Tensor, "B T D"], Captured | None]:
        """Output for the queries only; the other bars serve as keys."""
        attended, captured = self.attention(self.norm_attention(x_BSD), queries=queries, edit=edit, capture=capture)
        x_BTD = (x_BSD if queries is None else x_BSD[:, list(queries)]) + self.dropout(attended)
        return x_BTD + self.dropout(self.mlp(self.norm_mlp(x_BTD))), captured


class Encoder(nn.Module):
    """Window of scaled features to mean and quantiles of every target and step.

    pooling: what the readout reads of the bars' vectors x_t: "last", x_L alone, for which the last layer computes no
    other query; "mean" of all; "attention", sum_t softmax(x_t . w / sqrt(D)) x_t with a learned query w, the mean at
    first. average: attention's place is taken by a plain average, which has no heads.
    Yang et al. (2016), Hierarchical Attention Networks for Document Classification (the pooling by a learned query).
    """

    wave: Tensor | None

    def __init__(
        self,
        *,
        features: int,
        length: int,
        width: int,
        heads: int,
        layers: int,
        feedforward: int,
        dropout: float,
        attention_dropout: float,
        causal: bool,
        positions: str,
        skip: bool,
        horizon: int,
        targets: int,
        average: bool = False,
        pooling: str = "last",
    ) -> None:
        super().__init__()
        self.length, self.layers, self.heads, self.causal = length, layers, 0 if average else heads, causal
        self.embed = nn.Linear(features, width)
        self.position = learned(length, width) if positions == "learned" else None
        self.register_buffer("wave", sinusoidal(torch.arange(length), width) if positions == "sinusoidal" else None)
        self.blocks = nn.ModuleList(
            Block(
                Averaging(width, causal=causal)
                if average
                else MultiHeadAttention(
                    width,
                    heads,
                    dropout=attention_dropout,
                    causal=causal,
                    rotary=positions == "rotary",
                    relative=_relative(positions, heads, length, causal),
                ),
                feedforward,
                dropout,
            )
            for _ in range(layers)
        )
        self.dropout = Dropout(dropout)
        self.norm = nn.LayerNorm(width)
        self.readout = Readout(width, 3 * features if skip else 0, horizon, targets)
        self.pooling = pooling
        self.pool = nn.Parameter(torch.zeros(width)) if pooling == "attention" else None

    def forward(
        self,
        x_BLF: Float[Tensor, "B L F"],
        edits: Mapping[int, Edit] | None = None,
        capture: Mapping[int, Sequence[int]] | None = None,
        origins: int = 1,
    ) -> Output:
        """Forecast in scaled target units; edits and capture by layer.

        With origins T > 1 one from each of the window's last T bars, [B T, ...], window by window and oldest first: of
        a causal network, which lets none of them see a later bar. ValueError for another network.
        """
        if origins > 1 and not (self.causal and self.pooling == "last"):
            raise ValueError("only a causal network that reads out single bars can forecast from several of a window")
        x_BTD = self.embed(x_BLF)
        if self.position is not None:
            x_BTD = x_BTD + self.position
        if self.wave is not None:
            x_BTD = x_BTD + self.wave
        x_BTD = self.dropout(x_BTD)
        captured: dict[int, Captured] = {}
        for layer in range(self.layers):
            computed = self.computed(layer, origins)
            queries = computed if len(computed) < self.length else None
            x_BTD, record = self.blocks[layer](x_BTD, queries, (edits or {}).get(layer), (capture or {}).get(layer))
            if record is not None:
                captured[layer] = record
        read_BD = self._pooled(x_BTD) if origins == 1 else self.norm(x_BTD[:, -origins:]).flatten(0, 1)
        quantiles_BHCQ, mean_BHC = self.readout(read_BD, linear_inputs(x_BLF, origins))
        return Output(quantiles_BHCQ, mean_BHC, captured)

    def _pooled(self, x_BTD: Float[Tensor, "B T D"]) -> Float[Tensor, "B D"]:
        if self.pooling == "last":
            return self.norm(x_BTD[:, -1])
        x_BTD = self.norm(x_BTD)
        if self.pool is None:
            return x_BTD.mean(1)
        weights_BT = (x_BTD @ self.pool / math.sqrt(len(self.pool))).softmax(-1)
        return (weights_BT[:, None] @ x_BTD)[:, 0]

    def attention(self, layer: int) -> MultiHeadAttention:
        """The attention module of a layer."""
        block = self.blocks[layer]
        assert isinstance(block, Block)
        assert isinstance(block.attention, MultiHeadAttention)
        return block.attention

    def computed(self, layer: int, origins: int = 1) -> tuple[int, ...]:
        """Query positions that a layer computes: every bar, but in the last layer only those that are read."""
        last = layer == self.layers - 1 and self.pooling == "last"
        return tuple(range(self.length - origins if last else 0, self.length))


def _relative(positions: str, heads: int, length: int, causal: bool) -> Alibi | LagBias | None:
    """The bias of a layer's own, where positions are said by one."""
    if positions == "alibi":
        return Alibi(heads)
    return LagBias(heads, past=length - 1, ahead=0 if causal else length - 1) if positions == "lag" else None


def linear_inputs(x_BLF: Float[Tensor, "B L F"], origins: int = 1) -> Float[Tensor, "BT K"]:
    """What a log-HAR reads: each feature's last value and its mean over the last 5 and 22 bars (K = 3 F), or over as
    many as the window has; with origins T > 1 as it stood at each of the window's last T bars, [B T, K].
    """
    if origins == 1:
        return torch.cat((x_BLF[:, -1], x_BLF[:, -WEEK:].mean(1), x_BLF[:, -MONTH:].mean(1)), dim=-1)
    means = (_running_mean(x_BLF, bars)[:, -origins:] for bars in (WEEK, MONTH))
    return torch.cat((x_BLF[:, -origins:], *means), dim=-1).flatten(0, 1)


def _running_mean(x_BLF: Float[Tensor, "B L F"], bars: int) -> Float[Tensor, "B L F"]:
    """Mean of each bar and of those before it, `bars` in all or as many as there are."""
    sums_BLF = nn.functional.pad(x_BLF, (0, 0, bars - 1, 0)).unfold(1, bars, 1).sum(-1)
    counts_L = torch.arange(1, x_BLF.shape[1] + 1, device=x_BLF.device, dtype=x_BLF.dtype).clamp(max=bars)
    return sums_BLF / counts_L[:, None]
