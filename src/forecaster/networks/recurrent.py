"""Recurrent networks to compare with: what attention must beat at the same number of parameters."""

from collections.abc import Mapping, Sequence
from typing import Final

from jaxtyping import Float
from torch import Tensor, nn

from forecaster.networks.attention import Edit
from forecaster.networks.dropout import Dropout
from forecaster.networks.encoder import Output, linear_inputs
from forecaster.networks.readout import Readout

CELLS: Final = {"lstm": nn.LSTM, "gru": nn.GRU}


class Recurrent(nn.Module):
    """Embedding, layers of LSTM or GRU cells over the window, the state after its last bar to the same readout.

    Hochreiter and Schmidhuber (1997), Long Short-Term Memory. Cho et al. (2014), Learning Phrase Representations using
    RNN Encoder-Decoder.
    """

    layers: Final = 0  # of attention
    heads: Final = 0

    def __init__(
        self,
        *,
        cell: str,
        features: int,
        length: int,
        width: int,
        depth: int,
        dropout: float,
        skip: bool,
        horizon: int,
        targets: int,
    ) -> None:
        super().__init__()
        self.length = length
        self.embed = nn.Linear(features, width)
        self.cells = CELLS[cell](width, width, depth, batch_first=True, dropout=dropout if depth > 1 else 0.0)
        self.dropout = Dropout(dropout)
        self.norm = nn.LayerNorm(width)
        self.readout = Readout(width, 3 * features if skip else 0, horizon, targets)

    def forward(
        self,
        x_BLF: Float[Tensor, "B L F"],
        edits: Mapping[int, Edit] | None = None,
        capture: Mapping[int, Sequence[int]] | None = None,
    ) -> Output:
        """Forecast in scaled target units; there are no heads to edit or to capture."""
        if edits or capture:
            raise ValueError("a recurrent network has no heads")
        state_BLD, _ = self.cells(self.dropout(self.embed(x_BLF)))
        quantiles_BHCQ, mean_BHC = self.readout(self.dropout(self.norm(state_BLD[:, -1])), linear_inputs(x_BLF))
        return Output(quantiles_BHCQ, mean_BHC, {})
