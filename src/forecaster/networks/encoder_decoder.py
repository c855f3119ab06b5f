"""A forecast of several steps, each knowing the one before: an encoder over the window, a decoder over the horizon."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from forecaster.networks.attention import Cache, Captured, Edit, MultiHeadAttention
from forecaster.networks.dropout import Dropout
from forecaster.networks.encoder import Block, Output, linear_inputs
from forecaster.networks.positions import learned
from forecaster.networks.readout import Readout


class DecoderBlock(nn.Module):
    """x + SelfAttention(norm x), causal; x + CrossAttention(norm x, memory); x + MLP(norm x).

    Vaswani et al. (2017), section 3.1, in the pre-norm form.
    """

    def __init__(self, width: int, heads: int, feedforward: int, dropout: float, attention_dropout: float) -> None:
        super().__init__()
        self.norm_self, self.norm_cross, self.norm_mlp = (nn.LayerNorm(width) for _ in range(3))
        self.attention = MultiHeadAttention(width, heads, dropout=attention_dropout, causal=True)
        self.cross = MultiHeadAttention(width, heads, dropout=attention_dropout)
        self.mlp = nn.Sequential(nn.Linear(width, feedforward), nn.GELU(), nn.Linear(feedforward, width))
        self.dropout = Dropout(dropout)

    def forward(
        self, x_BHD: Float[Tensor, "B H D"], memory_BLD: Float[Tensor, "B L D"], caches: tuple[Cache, Cache] | None
    ) -> Float[Tensor, "B H D"]:
        """Output for the steps of x, which follow those in the caches (of itself, of the memory)."""
        own, seen = caches or (None, None)
        x_BHD = x_BHD + self.dropout(self.attention(self.norm_self(x_BHD), cache=own)[0])
        x_BHD = x_BHD + self.dropout(self.cross(self.norm_cross(x_BHD), memory_BLD, cache=seen)[0])
        return x_BHD + self.dropout(self.mlp(self.norm_mlp(x_BHD)))


class EncoderDecoder(nn.Module):
    """Window of scaled features, and what is known of the days ahead, to mean and quantiles of every step in turn.

    The input of step h is the target at step h - 1 (nothing at the first) beside the calendar of step h. In training it
    is what happened (teacher forcing: all steps in one pass, the mask keeps each from later ones); in forecasts it is
    the network's own mean, step by step with cached keys and values.
    Williams and Zipser (1989), A Learning Algorithm for Continually Running Fully Recurrent Neural Networks.
    """

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
        skip: bool,
        horizon: int,
        targets: int,
        future: int,
    ) -> None:
        super().__init__()
        self.length, self.layers, self.heads, self.horizon = length, layers, heads, horizon
        self.embed = nn.Linear(features, width)
        self.position, self.step = learned(length, width), learned(horizon, width)
        self.blocks = nn.ModuleList(
            Block(MultiHeadAttention(width, heads, dropout=attention_dropout), feedforward, dropout)
            for _ in range(layers)
        )
        self.norm_memory = nn.LayerNorm(width)
        self.previous = nn.Linear(targets + future, width)
        self.decoder = nn.ModuleList(
            DecoderBlock(width, heads, feedforward, dropout, attention_dropout) for _ in range(layers)
        )
        self.dropout = Dropout(dropout)
        self.norm = nn.LayerNorm(width)
        self.readout = Readout(width, 0, 1, targets)
        self.skip = nn.Linear(3 * features, horizon * targets, bias=False) if skip else None
        if self.skip is not None:
            nn.init.zeros_(self.skip.weight)
        self.targets = targets

    def forward(
        self,
        x_BLF: Float[Tensor, "B L F"],
        edits: Mapping[int, Edit] | None = None,
        capture: Mapping[int, Sequence[int]] | None = None,
        *,
        future_BHK: Float[Tensor, "B H K"],
        teacher_BHC: Float[Tensor, "B H C"] | None = None,
    ) -> Output:
        """Forecast in scaled target units; edits and capture of encoder layers. teacher: what happened, scaled."""
        memory_BLD, captured = self._encoded(x_BLF, edits or {}, capture or {})
        base_BHC = self._base(x_BLF)
        if teacher_BHC is not None:
            return Output(*self.decoded(memory_BLD, teacher_BHC, future_BHK, base_BHC), captured)
        caches = [(Cache(), Cache()) for _ in self.decoder]
        previous_B1C = torch.zeros_like(base_BHC[:, :1])
        quantiles: list[Tensor] = []
        means: list[Tensor] = []
        for step in range(self.horizon):
            now = slice(step, step + 1)
            state_B1D = self._steps(previous_B1C, future_BHK[:, now], step)
            for block, cache in zip(self.decoder, caches, strict=True):
                state_B1D = block(state_B1D, memory_BLD, cache)
            quantiles_B1CQ, mean_B1C = self._read(state_B1D, base_BHC[:, now])
            quantiles.append(quantiles_B1CQ)
            means.append(mean_B1C)
            previous_B1C = mean_B1C
        return Output(torch.cat(quantiles, dim=1), torch.cat(means, dim=1), captured)

    def decoded(
        self,
        memory_BLD: Float[Tensor, "B L D"],
        teacher_BHC: Float[Tensor, "B H C"],
        future_BHK: Float[Tensor, "B H K"],
        base_BHC: Float[Tensor, "B H C"],
    ) -> tuple[Float[Tensor, "B H C Q"], Float[Tensor, "B H C"]]:
        """Quantiles and mean of all steps in one pass, given the targets that go before each."""
        before_BHC = torch.cat((torch.zeros_like(teacher_BHC[:, :1]), teacher_BHC[:, :-1]), dim=1)
        state_BHD = self._steps(before_BHC, future_BHK, 0)
        for block in self.decoder:
            state_BHD = block(state_BHD, memory_BLD, None)
        return self._read(state_BHD, base_BHC)

    def attention(self, layer: int) -> MultiHeadAttention:
        """The attention module of an encoder layer."""
        block = self.blocks[layer]
        assert isinstance(block, Block)
        assert isinstance(block.attention, MultiHeadAttention)
        return block.attention

    def computed(self, layer: int) -> tuple[int, ...]:
        """Query positions that an encoder layer computes: every bar, as the decoder may look at each."""
        return tuple(range(self.length))

    def _encoded(
        self, x_BLF: Tensor, edits: Mapping[int, Edit], capture: Mapping[int, Sequence[int]]
    ) -> tuple[Float[Tensor, "B L D"], dict[int, Captured]]:
        x_BLD = self.dropout(self.embed(x_BLF) + self.position)
        captured: dict[int, Captured] = {}
        for layer, block in enumerate(self.blocks):
            x_BLD, record = block(x_BLD, None, edits.get(layer), capture.get(layer))
            if record is not None:
                captured[layer] = record
        return self.norm_memory(x_BLD), captured

    def _steps(self, before_BHC: Tensor, future_BHK: Tensor, first: int) -> Float[Tensor, "B H D"]:
        inputs_BHD = self.previous(torch.cat((before_BHC, future_BHK), dim=-1))
        return self.dropout(inputs_BHD + self.step[first : first + before_BHC.shape[1]])

    def _base(self, x_BLF: Tensor) -> Float[Tensor, "B H C"]:
        if self.skip is None:
            return x_BLF.new_zeros(len(x_BLF), self.horizon, self.targets)
        return self.skip(linear_inputs(x_BLF)).unflatten(-1, (self.horizon, self.targets))

    def _read(self, state_BHD: Tensor, base_BHC: Tensor) -> tuple[Float[Tensor, "B H C Q"], Float[Tensor, "B H C"]]:
        batch, steps = state_BHD.shape[:2]
        flat_SD = self.norm(state_BHD).flatten(0, 1)
        quantiles, mean = self.readout(flat_SD, flat_SD[:, :0])
        quantiles_BHCQ = quantiles[:, 0].unflatten(0, (batch, steps))
        return quantiles_BHCQ + base_BHC[..., None], mean[:, 0].unflatten(0, (batch, steps)) + base_BHC
