"""Heads taken out of a trained network, each leaving behind one constant output."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from forecaster.networks.attention import MultiHeadAttention
from forecaster.networks.encoder import Encoder
from forecaster.networks.encoder_decoder import EncoderDecoder
from forecaster.networks.positions import Alibi

Headed = Encoder | EncoderDecoder


def remove(network: Headed, heads: Sequence[tuple[int, int]], outputs_Nd: Sequence[Float[Tensor, "_ d"]]) -> None:
    """Takes heads (layer, head) out for good; in each one's place stands its row c_h of its layer's outputs.

    out = sum over heads kept of z_h W_O^h + b',  b' = b + sum over heads removed of c_h W_O^h: for every query what
    the whole network gives with z_h edited to c_h, up to rounding. A layer may lose all its heads; its attention is
    then b'. What is left is numbered anew from 0 in each layer. The parameters are new ones.
    """
    for layer in range(network.layers):
        gone = sorted({head for at, head in heads if at == layer})
        if gone:
            _fold(network.attention(layer), gone, outputs_Nd[layer])
            network.attention(layer).prune(gone)


def shape_like(network: Headed, other: Headed) -> None:
    """Leaves each layer as many heads as it has in the other network, of the same kind, with the biases of those.

    Heads of an untrained network differ in nothing but ALiBi's slopes, which are not learned and stay with a head.
    """
    for layer in range(network.layers):
        own, theirs = network.attention(layer), other.attention(layer)
        own.prune(range(theirs.heads, own.heads))
        if isinstance(own.relative, Alibi) and isinstance(theirs.relative, Alibi):
            own.relative.slope_N = theirs.relative.slope_N.clone()


def heads_by_layer(network: Headed) -> list[int]:
    """How many heads each layer has."""
    return [network.attention(layer).heads for layer in range(network.layers)]


def _fold(attention: MultiHeadAttention, heads: list[int], outputs_Nd: Float[Tensor, "N d"]) -> None:
    added_D = torch.einsum("nd,ndD->D", outputs_Nd[heads].double(), attention.output_by_head()[heads].detach().double())
    bias = attention.output.bias
    attention.output.bias = nn.Parameter(bias.detach() + added_D.to(bias.dtype), bias.requires_grad)
