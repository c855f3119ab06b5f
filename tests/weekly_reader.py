"""A network whose weights are set by hand: its first head reads the bar a week before the one that is forecast."""

import numpy as np
import torch

from forecaster.networks.encoder import Encoder
from forecaster.probes.capture import forecast
from forecaster.training.task import Recipe, Task
from forecaster.windows.panel import Panel
from forecaster.windows.scaling import fit
from forecaster.windows.splits import Split

LENGTH, LAG = 32, 4


def reader(panel: Panel, parts: Split, length: int = LENGTH) -> Task:
    """Layer 0, head 0 copies the return of the bar LAG before the last one to the readout; the other heads add nothing.

    Channels 0 .. L-1 hold the position, L and L+1 the return and its negative, L+2 what the head writes. The readout's
    one weight is fitted on training windows.
    """
    width = 2 * length
    half = width // 2
    torch.manual_seed(0)
    network = Encoder(
        features=len(panel.feature_names),
        length=length,
        width=width,
        heads=2,
        layers=2,
        feedforward=4,
        dropout=0.0,
        attention_dropout=0.0,
        causal=False,
        positions="learned",
        skip=False,
        horizon=1,
        targets=1,
    )
    task = Task(network, fit(panel, parts, length), Recipe(1e-3, 0.0, 0.0, 1.0))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        for norm in (m for m in network.modules() if isinstance(m, torch.nn.LayerNorm)):
            norm.weight.fill_(1.0)
        network.position[:, :length] = 10 * torch.eye(length)
        network.position[:, length + 4] = -10  # so that a layer norm subtracts nothing
        network.embed.weight[length, 0], network.embed.weight[length + 1, 0] = 1.0, -1.0
        attention = network.attention(0)
        attention.query.weight[0, length - 1] = 3.0
        attention.key.weight[0, length - 1 - LAG] = 3.0
        attention.value.weight[0, length] = 1.0
        attention.value.weight[half, length + 1] = 0.5
        attention.output.weight[length + 2, 0] = 1.0
        attention.output.weight[length + 3, half] = 0.1
        network.readout.linear.weight[0, length + 2] = 1.0
        raw = forecast(task, panel, parts.train, length).mean_BHC.double().numpy()[:, 0, 0]
        mean = task.target_mean.double().numpy()[0]
        (slope,), *_ = np.linalg.lstsq((raw - mean)[:, None], panel.targets[parts.train, 0, 0] - mean)
        network.readout.linear.weight[0, length + 2] = float(slope)
    return task
