"""A network by its name, at the size of the attention network that it is compared with."""

from dataclasses import dataclass, replace
from typing import Final

import torch

from forecaster.errors import ConfigError
from forecaster.networks.encoder import Encoder
from forecaster.networks.encoder_decoder import EncoderDecoder
from forecaster.networks.linear import DLinear
from forecaster.networks.recurrent import CELLS, Recurrent

KINDS: Final = ("attention", "encoder_decoder", "single_head", "attention_free", "lstm", "gru", "dlinear")
SIZED: Final = ("attention_free", *CELLS)  # their width is solved for; a single head has the same parameters as many
WITHIN: Final = 0.02

Headed = Encoder | EncoderDecoder
Network = Headed | Recurrent | DLinear


@dataclass(frozen=True)
class Shape:
    """What a network is made of: sizes of the attention network, feedforward as a multiple of the width."""

    features: int
    length: int
    width: int
    heads: int
    layers: int
    feedforward: int
    dropout: float
    attention_dropout: float
    causal: bool
    positions: str
    pooling: str
    skip: bool
    horizon: int
    targets: int
    future: int


def network(kind: str, shape: Shape) -> Network:
    """The network of that kind, with as many parameters as the attention network of the same shape, within 2 %.

    Only dlinear has the size that its window gives it. ConfigError where no width comes near enough.
    """
    return _made(kind, replace(shape, width=matched_width(kind, shape)) if kind in SIZED else shape)


def matched_width(kind: str, shape: Shape) -> int:
    """The width at which a kind's parameter count is nearest to attention's; ConfigError where it is over 2 % away."""
    wanted = parameters("attention", shape)
    low, high = 1, 2
    while parameters(kind, replace(shape, width=high)) < wanted:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if parameters(kind, replace(shape, width=middle)) < wanted:
            low = middle
        else:
            high = middle
    count, width = min((abs(parameters(kind, replace(shape, width=w)) - wanted), w) for w in (low, high))
    if count > WITHIN * wanted:
        raise ConfigError(
            f"{kind}: no width has {wanted:,} parameters within {WITHIN:.0%}, {width} comes nearest: widen model.width"
        )
    return width


def parameters(kind: str, shape: Shape) -> int:
    """Parameters of a kind at exactly this shape, counted off a network without memory."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in _made(kind, shape).parameters())


def _made(kind: str, shape: Shape) -> Network:
    match kind:
        case "attention" | "single_head" | "attention_free":
            return Encoder(
                features=shape.features,
                length=shape.length,
                width=shape.width,
                heads=1 if kind == "single_head" else shape.heads,
                layers=shape.layers,
                feedforward=shape.feedforward * shape.width,
                dropout=shape.dropout,
                attention_dropout=shape.attention_dropout,
                causal=shape.causal,
                positions=shape.positions,
                skip=shape.skip,
                horizon=shape.horizon,
                targets=shape.targets,
                average=kind == "attention_free",
                pooling=shape.pooling,
            )
        case "encoder_decoder":
            return EncoderDecoder(
                features=shape.features,
                length=shape.length,
                width=shape.width,
                heads=shape.heads,
                layers=shape.layers,
                feedforward=shape.feedforward * shape.width,
                dropout=shape.dropout,
                attention_dropout=shape.attention_dropout,
                skip=shape.skip,
                horizon=shape.horizon,
                targets=shape.targets,
                future=shape.future,
            )
        case "lstm" | "gru":
            return Recurrent(
                cell=kind,
                features=shape.features,
                length=shape.length,
                width=shape.width,
                depth=shape.layers,
                dropout=shape.dropout,
                skip=shape.skip,
                horizon=shape.horizon,
                targets=shape.targets,
            )
        case "dlinear":
            return DLinear(
                features=shape.features,
                length=shape.length,
                skip=shape.skip,
                horizon=shape.horizon,
                targets=shape.targets,
            )
        case _:
            raise ConfigError(f"model.kind={kind}: no such network: choose from {', '.join(KINDS)}")
