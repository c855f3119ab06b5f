"""Batches of windows: each one gather of the panel by a vector of rows."""

from collections.abc import Iterator
from typing import Any

import lightning
import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from forecaster.windows.panel import Panel
from forecaster.windows.splits import Split

Batch = tuple[Float[Tensor, "B L F"], Float[Tensor, "B H K"], Float[Tensor, "B H C"]]


class Order(Sampler[Int[np.ndarray, " B"]]):
    """Vectors of rows, batch by batch; shuffled by a permutation that depends on seed and epoch alone."""

    def __init__(self, origins: Int[np.ndarray, " n"], batch_size: int, seed: int | None) -> None:
        self.origins, self.batch_size, self.seed, self.epoch = origins, batch_size, seed, 0

    def __len__(self) -> int:
        return -(-len(self.origins) // self.batch_size)

    def __iter__(self) -> Iterator[Int[np.ndarray, " B"]]:
        rows = self.origins
        if self.seed is not None:
            rows = np.random.default_rng((self.seed, self.epoch)).permutation(rows)
        for start in range(0, len(rows), self.batch_size):
            yield rows[start : start + self.batch_size]

    def set_epoch(self, epoch: int) -> None:
        """Called by Lightning before each epoch."""
        self.epoch = epoch


class Windows(Dataset[Batch]):
    """Windows of a panel, indexed by a whole batch of origins at a time."""

    def __init__(self, panel: Panel, length: int) -> None:
        self.panel, self.length = panel, length

    def __getitem__(self, origins: Int[np.ndarray, " B"]) -> Batch:
        """Raw features, the calendar ahead and targets, all float32, of the windows that end at the origins."""
        window, future = self.panel.window(origins, self.length), self.panel.future(origins)
        targets = self.panel.targets[origins].astype(np.float32)
        return torch.from_numpy(window), torch.from_numpy(future), torch.from_numpy(targets)


class Bars(lightning.LightningDataModule):
    """Loaders of the three parts; the parts themselves are computed before and never change."""

    def __init__(self, panel: Panel, split: Split, length: int, batch_size: int, seed: int) -> None:
        super().__init__()
        self.windows, self.parts, self.batch_size, self.seed = Windows(panel, length), split, batch_size, seed

    def train_dataloader(self) -> DataLoader[Batch]:
        """Shuffled; the last, smaller batch is kept."""
        return self._loader(self.parts.train, self.seed)

    def val_dataloader(self) -> DataLoader[Batch]:
        """In order."""
        return self._loader(self.parts.validation, None)

    def test_dataloader(self) -> DataLoader[Batch]:
        """In order."""
        return self._loader(self.parts.test, None)

    def _loader(self, origins: Int[np.ndarray, " n"], seed: int | None) -> DataLoader[Batch]:
        order = Order(origins, self.batch_size, seed)
        return DataLoader(self.windows, batch_size=None, sampler=order, collate_fn=_as_it_is)


def _as_it_is(batch: Any) -> Any:
    # The default would turn the tuple into a list.
    return batch
