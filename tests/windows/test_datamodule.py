"""Batches: order from seed and epoch, every window once."""

import numpy as np
import torch

from fabricate import random_bars
from forecaster.windows import datamodule, panel, splits


def bars_module(batch_size: int, seed: int = 3) -> datamodule.Bars:
    built = panel.build(random_bars({"A": 100, "B": 70}), ("return", "volume"), 2)
    return datamodule.Bars(built, splits.split(built, 6, 0.6, 0.8), 6, batch_size, seed)


def order(module: datamodule.Bars, epoch: int) -> np.ndarray:
    loader = module.train_dataloader()
    assert isinstance(loader.sampler, datamodule.Order)
    loader.sampler.set_epoch(epoch)
    return np.concatenate(list(loader.sampler))


def test_order_depends_on_seed_and_epoch_alone() -> None:
    assert np.array_equal(order(bars_module(8), 2), order(bars_module(16), 2))
    assert not np.array_equal(order(bars_module(8), 2), order(bars_module(8), 3))
    assert not np.array_equal(order(bars_module(8, 3), 2), order(bars_module(8, 4), 2))


def test_every_training_window_comes_once_an_epoch_and_the_last_batch_is_kept() -> None:
    module = bars_module(8)
    assert np.array_equal(np.sort(order(module, 0)), np.sort(module.parts.train))
    assert len(module.train_dataloader()) == -(-len(module.parts.train) // 8)
    assert sum(len(x) for x, *_ in module.train_dataloader()) == len(module.parts.train)


def test_a_batch_is_the_panels_windows_and_targets() -> None:
    module = bars_module(8)
    x_BLF, future_BHK, y_BHC = next(iter(module.test_dataloader()))
    rows = module.parts.test[:8]
    assert x_BLF.dtype == future_BHK.dtype == y_BHC.dtype == torch.float32
    assert np.array_equal(future_BHK.numpy(), module.windows.panel.future(rows))
    assert np.array_equal(x_BLF.numpy(), module.windows.panel.window(rows, 6))
    assert np.array_equal(y_BHC.numpy(), module.windows.panel.targets[rows].astype(np.float32))


def test_loaders_asked_for_twice_are_the_same() -> None:
    module = bars_module(8)
    first = [y for *_, y in module.val_dataloader()]
    second = [y for *_, y in module.val_dataloader()]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
