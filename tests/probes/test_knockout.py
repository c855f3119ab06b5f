import math

import numpy as np
import pytest
import torch
from scipy.stats import t as student_t

from forecaster.forecasts.significance import better
from forecaster.probes.capture import forecast
from forecaster.probes.knockout import (
    Gate,
    Means,
    ablation,
    gates,
    losses,
    point_forecasts,
    rise,
    same_mass,
    same_offsets,
    training_means,
    units,
    value_knockout,
)
from forecaster.probes.masks import Mask

LENGTH = 12


@pytest.fixture(scope="module")
def task(small_task, garch):
    return small_task(garch, LENGTH)


@pytest.fixture(scope="module")
def windows(garch):
    return garch.origins(LENGTH)[:40]


@pytest.fixture(scope="module")
def means(task, garch):
    return training_means(task, garch, garch.origins(LENGTH)[1000:1700], LENGTH)


def test_training_means_are_those_of_every_slot(task, garch):
    origins = garch.origins(LENGTH)[1000:1700]
    capture = {0: tuple(range(LENGTH)), 1: (LENGTH - 1,)}
    record = forecast(task, garch, origins, LENGTH, capture=capture).captured
    found = training_means(task, garch, origins, LENGTH)
    for layer in range(2):
        torch.testing.assert_close(found.z_NTd[layer], record[layer].z_BNTd.mean(0))
        torch.testing.assert_close(found.v_NSd[layer], record[layer].v_BNSd.mean(0))
    assert [tuple(mean.shape) for mean in found.z_NTd] == [(4, LENGTH, 5), (4, 1, 5)]
    assert sorted(found.tensors()) == ["v.0", "v.1", "z.0", "z.1"]


def loss_of(task, panel, origins, length, units, edits=None):
    return losses(task, panel, origins, point_forecasts(task, panel, origins, length, edits), units)


def test_ablating_nothing_changes_nothing_exactly(task, garch, windows, means):
    one = np.ones((len(windows), 2))
    plain = loss_of(task, garch, windows, LENGTH, one)
    nothing = np.zeros((len(windows), LENGTH), dtype=bool)
    for edits in (ablation([], means.z_NTd), ablation([], None), value_knockout((0, 1), nothing, means)):
        np.testing.assert_array_equal(loss_of(task, garch, windows, LENGTH, one, edits), plain)


def by_hand(network, x_BLF, z_edit=None, v_edit=None):
    """Mean forecast of a one-layer network, written out head by head."""
    block, attention = network.blocks[0], network.attention(0)
    x = network.embed(x_BLF) + network.position
    normed = block.norm_attention(x)
    q, k, v = (layer(normed) for layer in (attention.query, attention.key, attention.value))
    added = attention.output.bias.clone()
    for h in range(4):
        part = slice(5 * h, 5 * h + 5)
        v_h = v[:, :, part] if v_edit is None else v_edit(h, v[:, :, part])
        weights = (q[:, -1:, part] @ k[:, :, part].mT / math.sqrt(5)).softmax(-1)
        z_h = weights @ v_h if z_edit is None else z_edit(h, weights @ v_h)
        added = added + z_h @ attention.output.weight[:, part].T
    x = x[:, -1:] + added
    x = x + block.mlp(block.norm_mlp(x))
    out = network.readout.linear(network.norm(x[:, 0]))
    return out.unflatten(-1, (network.readout.horizon, network.readout.targets, -1))[..., 0]


def test_ablation_by_hand_is_ablation_by_the_tool(small_task, garch, windows):
    task = small_task(garch, LENGTH, layers=1)
    means = training_means(task, garch, garch.origins(LENGTH)[1000:1200], LENGTH)
    x = torch.from_numpy(garch.window(windows, LENGTH))
    slices = slice(0, len(windows))
    for heads in ([2], [0, 3]):
        for values in (means.z_NTd, None):
            tool = task.network(x, ablation([(0, h) for h in heads], values)(slices)).mean_BHC
            hand = by_hand(
                task.network,
                x,
                z_edit=lambda h, z, heads=heads, values=values: (
                    z if h not in heads else torch.zeros_like(z) if values is None else values[0][h].expand_as(z)
                ),
            )
            torch.testing.assert_close(tool, hand)


def test_value_knockout_by_hand_is_knockout_by_the_tool(small_task, garch, windows):
    task = small_task(garch, LENGTH, layers=1)
    means = training_means(task, garch, garch.origins(LENGTH)[1000:1200], LENGTH)
    flags = np.random.default_rng(0).random((len(windows), LENGTH)) < 0.3
    x = torch.from_numpy(garch.window(windows, LENGTH))
    tool = task.network(x, value_knockout((0, 1), flags, means)(slice(0, 40))).mean_BHC

    def edit(head, v):
        if head != 1:
            return v
        v = v.clone()
        for n in range(len(windows)):
            for lag in range(LENGTH):
                if flags[n, lag]:
                    v[n, LENGTH - 1 - lag] = means.v_NSd[0][1, LENGTH - 1 - lag]
        return v

    torch.testing.assert_close(tool, by_hand(task.network, x, v_edit=edit))


def test_losses_are_squared_errors_in_units(task, garch, windows):
    forecasts = forecast(task, garch, windows, LENGTH).mean_BHC.double().numpy()
    scale = np.random.default_rng(0).uniform(1, 2, size=(len(windows), 2))
    expected = ((forecasts - garch.targets[windows]) ** 2).mean(1) / scale**2
    np.testing.assert_allclose(loss_of(task, garch, windows, LENGTH, scale), expected)


def test_units_follow_volatility_for_returns_alone(task, garch, windows):
    train = garch.origins(LENGTH)[100:900]
    found = units(task, garch, train, windows) / task.target_std.double().numpy()
    sigma = np.exp(garch.features[:, garch.feature_names.index("log_sigma")].astype(np.float64))
    np.testing.assert_allclose(found[:, 0], sigma[windows] / np.exp(np.log(sigma[train]).mean()))
    np.testing.assert_array_equal(found[:, 1], 1.0)


def test_knockouts_follow_their_windows_when_they_come_in_several_batches(task, garch, means, monkeypatch):
    origins = garch.origins(LENGTH)[:50]
    flags = np.random.default_rng(1).random((50, LENGTH)) < 0.3
    one = np.ones((50, 2))
    whole = loss_of(task, garch, origins, LENGTH, one, value_knockout((0, 2), flags, means))
    monkeypatch.setattr("forecaster.probes.capture.BARS", 16 * LENGTH)
    np.testing.assert_allclose(
        loss_of(task, garch, origins, LENGTH, one, value_knockout((0, 2), flags, means)), whole, rtol=1e-5
    )


def test_rise_is_the_mean_change_with_a_t_interval_over_blocks():
    rng = np.random.default_rng(2)
    change, block_n = rng.normal(size=(60, 2)), np.repeat(np.arange(12), 5)
    found = rise(change, block_n)
    means = change.reshape(12, 5, 2).mean(1)
    np.testing.assert_allclose(found.value, means.mean(0))
    half = student_t.ppf(0.975, 11) * means.std(0, ddof=1) / np.sqrt(12)
    np.testing.assert_allclose(found.high - found.value, half)


def test_rise_counts_only_the_windows_used():
    change, block_n = np.arange(24.0)[:, None], np.repeat(np.arange(12), 2)
    used = np.arange(24) % 2 == 0
    np.testing.assert_allclose(rise(change, block_n, used).value, [11.0])


def test_gate_compares_with_zero_for_returns_and_with_the_training_mean_otherwise(task, garch):
    origins = garch.origins(LENGTH)
    train, test = origins[:1000], origins[np.r_[1100:1400, 2600:2800]]
    scale = units(task, garch, train, test)
    mean = point_forecasts(task, garch, test, LENGTH)
    ours, plain = (losses(task, garch, test, mean, of) for of in (scale, np.ones_like(scale)))
    for gate, c in zip(gates(task, garch, train, test, mean, scale), range(2), strict=True):
        naive = 0.0
        if c == 1:
            means = [garch.targets[train[garch.symbol_ids[train] == s], 0, c] for s in (0, 1)]
            pooled = garch.targets[train, 0, c].mean()
            naive = np.array([m.mean() if len(m) else pooled for m in means])[garch.symbol_ids[test]]
        theirs = (garch.targets[test, 0, c] - naive) ** 2
        dates = np.unique(garch.times[test])
        d = np.array([(plain[:, c] - theirs)[garch.times[test] == date].mean() for date in dates])
        assert gate.p == pytest.approx(better(d, 1), rel=1e-6)
        assert gate.skill == pytest.approx((theirs / scale[:, c] ** 2 - ours[:, c]).mean())
        assert not gate.open
        assert gate.sentence.startswith(f"{garch.target_names[c]}: no skill")


def test_same_offsets_takes_another_window_of_the_same_symbol_half_of_its_windows_away():
    flags = np.eye(10, 4, dtype=bool)
    flags[5:] = np.eye(5, 4, k=1, dtype=bool)
    measurable = np.ones(10, dtype=bool)
    measurable[3] = False
    matched, used = same_offsets(Mask(flags & measurable[:, None], measurable), np.repeat([0, 1], [8, 2]), 3)
    rows = [0, 1, 2, 4, 5, 6, 7]
    np.testing.assert_array_equal(matched[rows], flags[[4, 5, 6, 7, 0, 1, 2]])
    np.testing.assert_array_equal(used, [1, 1, 1, 0, 1, 1, 1, 1, 0, 0])
    assert not matched[[3, 8, 9]].any()


def test_same_offsets_takes_windows_far_apart_in_time_however_few_can_be_asked():
    """Four askable windows of forty, ten bars apart: each meets the one two on, twenty bars away, of twelve needed."""
    measurable = np.zeros(40, dtype=bool)
    measurable[[0, 10, 20, 30]] = True
    flags = np.zeros((40, 3), dtype=bool)
    flags[[0, 10, 20, 30], [0, 1, 2, 0]] = True
    matched, used = same_offsets(Mask(flags, measurable), np.zeros(40, dtype=int), 12)
    np.testing.assert_array_equal(used, measurable)
    np.testing.assert_array_equal(matched[[0, 10, 20, 30]], flags[[20, 30, 0, 10]])
    assert not same_offsets(Mask(flags, measurable), np.zeros(40, dtype=int), 21)[1].any()


def test_a_gate_tells_equal_errors_from_too_few_dates():
    assert Gate("return", "zero return", np.nan, 0.0, 250).sentence == (
        "return: skill undefined (errors as the zero return's): no head is functional for it"
    )
    assert Gate("return", "zero return", np.nan, 0.01, 1).sentence == (
        "return: skill undefined (too few dates of test, 1): no head is functional for it"
    )


def test_same_mass_takes_the_most_attended_bars_that_fit():
    attention = np.array([[0.3, 0.25, 0.15, 0.1, 0.1, 0.1], [0.05, 0.75, 0.05, 0.05, 0.05, 0.05]])
    flags = np.array([[1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]], dtype=bool)
    matched = same_mass(attention, flags)
    np.testing.assert_array_equal(matched, [[0, 1, 0, 0, 0, 0], [1, 0, 1, 1, 1, 1]])


def test_same_mass_is_as_many_bars_when_attention_is_uniform():
    flags = np.zeros((1, 9), dtype=bool)
    flags[0, [2, 3, 7]] = True
    matched = same_mass(np.full((1, 9), np.float32(1 / 9)).astype(np.float64), flags)
    np.testing.assert_array_equal(np.flatnonzero(matched), [0, 1, 4])


@pytest.mark.parametrize("seed", range(3))
def test_same_mass_never_takes_flagged_bars_nor_more_than_their_mass(seed):
    rng = np.random.default_rng(seed)
    attention = rng.dirichlet(np.full(20, 0.5), size=50)
    flags = rng.random((50, 20)) < 0.15
    matched = same_mass(attention, flags)
    assert not (matched & flags).any()
    mass, of = ((attention * which).sum(1) for which in (matched, flags))
    assert (mass <= of * (1 + 1e-5)).all()
    fits = attention[~flags].reshape(-1).min()
    half = of < 0.5
    assert (of - mass)[half].mean() < 0.05 + fits


def test_means_keep_their_names(means):
    assert isinstance(means, Means)
    assert means.tensors()["v.1"] is means.v_NSd[1]
