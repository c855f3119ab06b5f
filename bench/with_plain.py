"""What one would write first: nn.TransformerEncoder, a gather of windows, AdamW and a loop. Needs torch alone."""

import math
import time

from measuring import (
    CLIP,
    DECAY,
    DROPOUT,
    FEEDFORWARD,
    HEADS,
    LAYERS,
    LENGTH,
    QUANTILES,
    RATE,
    WIDTH,
    Order,
    Peak,
    Table,
    Watch,
    order,
    prepared,
    report,
    timed,
)

with timed() as imports:
    import numpy as np
    import pandas as pd
    import torch
    from torch import Tensor, nn


class Plain(nn.Module):
    """Bars embedded, learned positions, a pre-norm encoder with GELU, quantiles read off the last bar."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.embed, self.position = nn.Linear(features, WIDTH), nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, FEEDFORWARD, DROPOUT, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.readout = nn.Linear(WIDTH, len(QUANTILES))

    def forward(self, x_BLF: Tensor) -> Tensor:
        return self.readout(self.encoder(self.embed(x_BLF) + self.position)[:, -1])


def pinball(forecast_BQ: Tensor, actual_B: Tensor) -> Tensor:
    error_BQ, levels_Q = actual_B[:, None] - forecast_BQ, torch.tensor(QUANTILES)
    return torch.maximum(levels_Q * error_BQ, (levels_Q - 1) * error_BQ).mean()


def prepare(table: Table, frame: pd.DataFrame) -> tuple[Tensor, Tensor, Tensor]:
    """All bars' numbers [R, F], and the rows whose bar is forecast in training and in validation."""
    bars = torch.from_numpy(frame[["y", *table.names]].to_numpy(dtype=np.float32))
    train = [np.arange(rows.start + LENGTH, rows.start + known) for rows, known in table.parts()]
    validation = [np.arange(rows.start + known, rows.stop) for rows, known in table.parts()]
    rows = torch.from_numpy(np.concatenate(train))
    gather(bars, rows[:256])
    return bars, rows, torch.from_numpy(np.concatenate(validation))


def gather(bars: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    return bars[rows[:, None] + torch.arange(-LENGTH, 0)], bars[rows, 0]


def train(order: Order, bars: Tensor, rows: Tensor, validation: Tensor) -> Watch:
    torch.manual_seed(0)
    network = Plain(bars.shape[1])
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY)
    watch = Watch(order)
    watch.go()
    while True:
        for batch in rows[torch.randperm(len(rows))].split(order.batch):
            x_BLF, y_B = gather(bars, batch)
            optimizer.zero_grad()
            pinball(network(x_BLF), y_B).backward()
            nn.utils.clip_grad_norm_(network.parameters(), CLIP)
            optimizer.step()
            if watch.step(len(batch), len(batch)):
                return watch
        watch.pause()
        network.eval()
        with torch.no_grad():
            batches = ((len(part), *gather(bars, part)) for part in validation.split(256))
            total = sum(float(pinball(network(x_BLF), y_B)) * count for count, x_BLF, y_B in batches)
        network.train()
        if watch.validated(total / len(validation)):
            return watch
        watch.go()


def flops(features: int) -> int:
    """Floating-point operations of the plain network's matrix products in a training step, for one window.

    A product forward, and two of its size backward.
    """
    linear = LENGTH * (features * WIDTH + LAYERS * (4 * WIDTH**2 + 2 * WIDTH * FEEDFORWARD))
    attention = LAYERS * 2 * LENGTH**2 * WIDTH
    return 3 * 2 * (linear + attention)


def multiply_rate(seconds: float = 1.0) -> float:
    """Floating-point operations a second in the network's own products of 64 windows: the best of three shapes."""
    best = 0.0
    for inner, outer in ((WIDTH, WIDTH), (WIDTH, FEEDFORWARD), (FEEDFORWARD, WIDTH)):
        left, right = torch.randn(64 * LENGTH, inner), torch.randn(inner, outer)
        until = time.perf_counter() + seconds / 3
        while (start := time.perf_counter()) < until:
            for _ in range(10):
                left @ right
            best = max(best, 20.0 * math.prod(left.shape) * outer / (time.perf_counter() - start))
    return best


def main() -> None:
    asked = order()
    torch.set_num_threads(asked.threads)
    if asked.task == "multiply":
        report(asked, rate=multiply_rate())
        return
    (bars, rows, validation), told = prepared(asked, prepare)
    if asked.task == "prepare":
        report(asked, **told)
        return
    with Peak() as peak:
        watch = train(asked, bars, rows, validation)
    report(asked, imports=imports(), **watch.result(), memory_mib=peak.growth, flops=flops(bars.shape[1]))


if __name__ == "__main__":
    main()
