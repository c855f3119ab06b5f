"""Batches: order from seed and epoch, every origin once, alone or with others in one window."""

import numpy as np
import pytest
import torch

from fabricate import random_bars
from forecaster.windows import datamodule, panel, splits

LENGTH = 6


def bars_module(batch_size: int, seed: int = 3, *, every: bool = False) -> datamodule.Bars:
    built = panel.build(random_bars({"A": 100, "B": 70}), ("return", "volume"), 2)
    return datamodule.Bars(built, splits.split(built, LENGTH, 0.6, 0.8), LENGTH, batch_size, seed, every=every)


def batches(module: datamodule.Bars, epoch: int) -> list[datamodule.Windowed]:
    loader = module.train_dataloader()
    assert isinstance(loader.sampler, datamodule.Order)
    loader.sampler.set_epoch(epoch)
    return list(loader.sampler)


def order(module: datamodule.Bars, epoch: int) -> np.ndarray:
    return np.concatenate([rows for rows, _ in batches(module, epoch)])


@pytest.mark.parametrize("every", [False, True])
def test_order_depends_on_seed_and_epoch_alone(every: bool) -> None:
    assert np.array_equal(order(bars_module(8, every=every), 2), order(bars_module(16, every=every), 2))
    assert not np.array_equal(order(bars_module(8, every=every), 2), order(bars_module(8, every=every), 3))
    assert not np.array_equal(order(bars_module(8, 3, every=every), 2), order(bars_module(8, 4, every=every), 2))


def test_every_training_window_comes_once_an_epoch_and_the_last_batch_is_kept() -> None:
    module = bars_module(8)
    assert np.array_equal(np.sort(order(module, 0)), np.sort(module.parts.train))
    assert len(module.train_dataloader()) == -(-len(module.parts.train) // 8)
    assert sum(len(x) for x, *_ in module.train_dataloader()) == len(module.parts.train)


@pytest.mark.parametrize("reach", [1, 2, 3, 7])
def test_when_windows_are_shared_then_every_origin_is_in_one_of_them_and_none_crosses_a_gap(reach: int) -> None:
    origins = np.array([5, 6, 7, 8, 9, 10, 11, 20, 30, 31, 32])
    for phase in range(reach):
        rows, counts = datamodule.shared(origins, reach, phase)
        served = [np.arange(row - count + 1, row + 1) for row, count in zip(rows, counts, strict=True)]
        assert np.array_equal(np.concatenate(served), origins)
        assert counts.max() <= reach
        assert counts[0] == min(phase or reach, 7)
    assert [list(part) for part in datamodule.shared(origins, 3, 2)] == [[6, 9, 11, 20, 31, 32], [2, 3, 2, 1, 2, 1]]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_when_windows_are_shared_then_an_epoch_has_every_origin_once_in_the_same_number_of_batches(size: int) -> None:
    module = bars_module(size, every=True)
    ends = set()
    for epoch in range(5):
        found = batches(module, epoch)
        assert len(found) == len(module.train_dataloader())
        assert 1 <= min(len(rows) for rows, _ in found) <= max(len(rows) for rows, _ in found) <= size + 1
        pairs = [(row, count) for rows, counts in found for row, count in zip(rows, counts, strict=True)]
        assert sorted(row - back for row, count in pairs for back in range(count)) == sorted(module.parts.train)
        assert {row for row, _ in pairs} <= set(module.parts.train)
        ends.add(tuple(sorted(row for row, _ in pairs)))
    assert len(ends) > 1


@pytest.mark.parametrize("every", [False, True])
def test_when_training_goes_on_inside_an_epoch_then_that_epoch_alone_lacks_what_was_done(every: bool) -> None:
    whole, rest = bars_module(4, every=every), bars_module(4, every=every)
    rest.begin(1, 3)
    for epoch, done in ((0, 0), (1, 3), (2, 0)):
        expected, found = batches(whole, epoch)[done:], batches(rest, epoch)
        assert len(found) == len(expected)
        assert all(
            np.array_equal(a, b)
            for one, two in zip(expected, found, strict=True)
            for a, b in zip(one, two, strict=True)
        )
        assert np.array_equal(rest.training_rows(epoch, 2), batches(whole, epoch)[2][0])


def test_a_batch_is_the_panels_windows_and_targets() -> None:
    module = bars_module(8)
    x_BLF, future_BHK, y_BHC, used_B = next(iter(module.test_dataloader()))
    rows = module.parts.test[:8]
    assert x_BLF.dtype == future_BHK.dtype == y_BHC.dtype == torch.float32
    assert np.array_equal(future_BHK.numpy(), module.windows.panel.future(rows))
    assert np.array_equal(x_BLF.numpy(), module.windows.panel.window(rows, LENGTH))
    assert np.array_equal(y_BHC.numpy(), module.windows.panel.targets[rows].astype(np.float32))
    assert used_B.all()


def test_when_windows_are_shared_then_a_batch_has_the_targets_of_their_last_origins_and_zeros_before() -> None:
    module = bars_module(8, every=True)
    built, reach = module.windows.panel, LENGTH // 2
    rows, counts = np.array([module.parts.train[9], module.parts.train[4]]), np.array([3, 2])
    built.targets[rows[1] - 2] = np.nan  # an origin that the second window does not serve
    x_BLF, _, y_NHC, used_N = module.shared[rows, counts]
    assert np.array_equal(x_BLF.numpy(), built.window(rows, LENGTH))
    assert used_N.tolist() == [True, True, True, False, True, True]
    expected = built.targets[[rows[0] - 2, rows[0] - 1, rows[0], rows[1], rows[1] - 1, rows[1]]].astype(np.float32)
    assert np.array_equal(y_NHC.numpy()[used_N], expected[[0, 1, 2, 4, 5]])
    assert (y_NHC[~used_N] == 0).all()
    assert len(y_NHC) == 2 * reach


def test_loaders_asked_for_twice_are_the_same() -> None:
    module = bars_module(8)
    first = [y for _, _, y, _ in module.val_dataloader()]
    second = [y for _, _, y, _ in module.val_dataloader()]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
