"""Small models of somebody else's."""

import torch
from torch import Tensor, nn

LENGTH, HEADS, WIDTH = 12, 5, 20
HORIZON, TARGETS = 3, ("return", "volatility")


class Net(nn.Module):
    """Embeds bars and positions, encodes them, reads the last one."""

    def __init__(self, features: int, encoder: nn.Module, length: int = LENGTH) -> None:
        super().__init__()
        self.embed = nn.Linear(features, WIDTH)
        self.position = nn.Parameter(torch.randn(length, WIDTH))
        self.encoder = encoder
        self.readout = nn.Linear(WIDTH, HORIZON * len(TARGETS))

    def forward(self, x_BLF: Tensor) -> Tensor:
        encoded = self.encoder(self.embed(x_BLF) + self.position)
        return self.readout(encoded[:, -1]).reshape(-1, HORIZON, len(TARGETS))


def encoder(layers: int = 2, *, enable_nested_tensor: bool = False, **options: object) -> nn.TransformerEncoder:
    options = {"dropout": 0.3, "batch_first": True, **options}
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 24, **options)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=enable_nested_tensor)


def forecast(model: nn.Module, x_BLF: Tensor, future_BHK: Tensor) -> Tensor:
    return model(x_BLF)
