"""What heads cost: parameters, cache and operations, read off real modules."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from forecaster.networks.attention import Cache, MultiHeadAttention, explicit
from forecaster.networks.choice import Network
from forecaster.networks.encoder_decoder import EncoderDecoder
from forecaster.networks.recurrent import Recurrent

STACKS: Final = ("blocks", "decoder")  # modules whose parts are told apart


@dataclass(frozen=True)
class Cost:
    """One attention module without biases, and `layers` of them.

    parameters: of W_Q, W_K, W_V and W_O; inputs: of the first three; head: of one head's three. head_width: d. cache:
    numbers that a token adds to the key-value cache of a layer. operations: softmax(Q K^T) V in a forward pass.
    """

    heads: int
    head_width: int
    parameters: int
    inputs: int
    head: int
    cache: int
    operations: int


def costs(width: int, heads: Sequence[int], layers: int = 1) -> Iterator[Cost]:
    """The cost at each number of heads; ConfigError where one doesn't divide the width."""
    for count in heads:
        with torch.device("meta"):
            module = MultiHeadAttention(width, count, bias=False)
        inputs = module.inputs_by_head()
        yield Cost(
            heads=count,
            head_width=inputs[0].shape[-1],
            parameters=sum(parameter.numel() for parameter in module.parameters()),
            inputs=sum(part.numel() for part in inputs),
            head=sum(part[0].numel() for part in inputs),
            cache=_cache_numbers(module),
            operations=layers * inputs[0].shape[0],
        )


def by_part(network: nn.Module) -> dict[str, int]:
    """Parameters of each part of a network, of blocks by what is in them, largest first."""
    found: dict[str, int] = {}
    for name, parameter in network.named_parameters():
        first, *rest = (word for word in name.split(".") if not word.isdigit())
        part = f"{first}.{rest[0]}" if first in STACKS else first
        found[part] = found.get(part, 0) + parameter.numel()
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def multiply_adds(network: Network, features: int, horizon: int, future: int) -> int:
    """Multiply-adds of one window's forecast, counted while it is made: half of PyTorch's floating point operations.

    Those of matrix products and attention; sums, norms and activations are not in it.
    """
    x_1LF, future_1HK = torch.zeros(1, network.length, features), torch.zeros(1, horizon, future)
    network = copy.deepcopy(network).eval()
    for module in network.modules():
        if isinstance(module, MultiHeadAttention):
            module.attend = explicit  # PyTorch has no count for the fused kernel of a CPU
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        if isinstance(network, EncoderDecoder):
            network(x_1LF, future_BHK=future_1HK)
        else:
            network(x_1LF)
    counted = counter.get_total_flops() // 2
    if isinstance(network, Recurrent) and isinstance(network.cells, nn.LSTM):
        # PyTorch has no count for its LSTM kernel: each weight is used once a bar.
        weights = (parameter.numel() for parameter in network.cells.parameters() if parameter.dim() == 2)
        counted += network.length * sum(weights)
    return counted


def _cache_numbers(module: MultiHeadAttention) -> int:
    """Numbers that one token adds to a real cache."""
    cache = Cache()
    module(torch.empty(1, 1, module.width, device="meta"), cache=cache)
    return cache.numbers
