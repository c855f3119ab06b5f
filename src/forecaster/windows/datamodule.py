"""Batches of windows: each one gather of the panel by a vector of rows."""

import itertools
from collections.abc import Iterator
from typing import Any

import lightning
import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from forecaster.windows.panel import Panel
from forecaster.windows.splits import Split

# Windows, the calendar ahead, the targets of T origins of each window (N = B T), and which of these are trained on.
Batch = tuple[Float[Tensor, "B L F"], Float[Tensor, "B H K"], Float[Tensor, "N H C"], Bool[Tensor, " N"]]
# The last row of each window of a batch, and how many origins it serves: that row and those just before it.
Windowed = tuple[Int[np.ndarray, " B"], Int[np.ndarray, " B"]]


def shared(origins: Int[np.ndarray, " n"], reach: int, phase: int) -> Windowed:
    """Windows that each serve up to `reach` origins in a row, which are its last bars; every origin is in one of them.

    origins are sorted; `phase` of the first of each stretch of consecutive ones share its first window.
    """
    starts = np.flatnonzero(np.diff(origins, prepend=-2) != 1)
    stretch_n = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(origins)))
    place_n = np.arange(len(origins)) - starts[stretch_n] + (reach - phase) % reach
    last = (np.diff(stretch_n, append=-1) != 0) | (place_n % reach == reach - 1)
    ends = np.flatnonzero(last)
    return origins[ends], np.diff(ends, prepend=-1)


class Order(Sampler[Windowed]):
    """Windows of every origin, once each, batch by batch; shuffled by a permutation that seed and epoch alone fix.

    With reach T > 1 a window serves up to T origins, and which of them share one changes from epoch to epoch. Without a
    seed: in the order of time.
    """

    def __init__(self, origins: Int[np.ndarray, " n"], batch_size: int, seed: int | None, reach: int = 1) -> None:
        self.origins, self.batch_size, self.seed, self.reach, self.epoch = origins, batch_size, seed, reach, 0
        self.begin: tuple[int, int] = 0, 0  # epoch and batch: of that epoch the batches before it are left out
        self.share: tuple[int, int] = 0, 1  # which of how many equal parts of each batch
        # Some phases need more windows than others; every epoch has the number of batches that the fewest make.
        fewest = min(len(shared(origins, reach, phase)[0]) for phase in range(reach))
        self.batches = -(-fewest // batch_size)

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[Windowed]:
        phase, random = 0, np.random.default_rng((self.seed or 0, self.epoch))
        if self.seed is not None and self.reach > 1:
            phase = int(random.integers(self.reach))
        rows, counts = shared(self.origins, self.reach, phase)
        order = np.arange(len(rows)) if self.seed is None else random.permutation(len(rows))
        # Batches of one size and a smaller last one; of shared windows, whose number varies, of nearly one.
        cuts = np.arange(self.batch_size, len(rows), self.batch_size) if self.reach == 1 else self.batches
        skipped = self.begin[1] if self.epoch == self.begin[0] else 0
        part, parts = self.share
        for batch in np.array_split(order, cuts)[skipped:]:
            mine = np.array_split(batch, parts)[part]
            # A process whose part is empty takes the step with the others, on a window of which no origin counts.
            yield (rows[mine], counts[mine]) if len(mine) else (rows[batch[:1]], np.zeros_like(counts[:1]))

    def set_epoch(self, epoch: int) -> None:
        """Called by Lightning before each epoch."""
        self.epoch = epoch


class Windows(Dataset[Batch]):
    """Windows of a panel, indexed by a whole batch of their last rows at a time; targets of up to T origins of each."""

    def __init__(self, panel: Panel, length: int, reach: int = 1) -> None:
        self.panel, self.length, self.reach = panel, length, reach

    def __getitem__(self, windows: Windowed) -> Batch:
        """Raw features, the calendar ahead, targets, all float32, and which of the targets count: of the last origins
        of each window, oldest first. A target that doesn't count is 0.
        """
        rows, counts = windows
        used_BT = np.arange(self.reach) >= self.reach - counts[:, None]
        origins_N = (rows[:, None] + np.arange(1 - self.reach, 1)).reshape(-1)
        targets_NHC = self.panel.targets[origins_N].astype(np.float32)
        targets_NHC[~used_BT.reshape(-1)] = 0.0  # some are unknown, and no gradient may meet a NaN
        return (
            torch.from_numpy(self.panel.window(rows, self.length)),
            torch.from_numpy(self.panel.future(rows)),
            torch.from_numpy(targets_NHC),
            torch.from_numpy(used_BT.reshape(-1)),
        )


class Bars(lightning.LightningDataModule):
    """Loaders of the three parts; the parts themselves are computed before and never change.

    every: a training window serves the origins of its later half, so that each looks back on L / 2 bars at least;
    without it, and in validation and test, a window serves its last bar alone.
    """

    def __init__(
        self, panel: Panel, split: Split, length: int, batch_size: int, seed: int, *, every: bool = False
    ) -> None:
        super().__init__()
        self.windows, self.shared = Windows(panel, length), Windows(panel, length, max(1, length // 2) if every else 1)
        self.parts, self.batch_size, self.seed, self._begin = split, batch_size, seed, (0, 0)

    def begin(self, epoch: int, batch: int) -> None:
        """Lets the training loaders that are asked for from now on go on at this batch of this epoch."""
        self._begin = epoch, batch

    def training_rows(self, epoch: int, batch: int) -> Int[np.ndarray, " B"]:
        """The last rows of the windows of a training batch."""
        order = Order(self.parts.train, self.batch_size, self.seed, self.shared.reach)
        order.set_epoch(epoch)
        return next(itertools.islice(order, batch, None))[0]

    def train_dataloader(self) -> DataLoader[Batch]:
        """Shuffled; the last, smaller batch is kept."""
        return self._loader(self.shared, self.parts.train, self.seed, self._begin)

    def val_dataloader(self) -> DataLoader[Batch]:
        """In order."""
        return self._loader(self.windows, self.parts.validation)

    def test_dataloader(self) -> DataLoader[Batch]:
        """In order."""
        return self._loader(self.windows, self.parts.test)

    def _loader(
        self,
        windows: Windows,
        origins: Int[np.ndarray, " n"],
        seed: int | None = None,
        begin: tuple[int, int] = (0, 0),
    ) -> DataLoader[Batch]:
        order = Order(origins, self.batch_size, seed, windows.reach)
        order.begin = begin
        if self.trainer is not None:
            order.share = self.trainer.global_rank, self.trainer.world_size
        return DataLoader(windows, batch_size=None, sampler=order, collate_fn=_as_it_is)


def _as_it_is(batch: Any) -> Any:
    # The default would turn the tuple into a list.
    return batch
