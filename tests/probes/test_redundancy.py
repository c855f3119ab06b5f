import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon

from forecaster.probes import capture, redundancy
from forecaster.probes.capture import forecast
from forecaster.probes.intervals import blocks
from forecaster.probes.redundancy import distances, group_rows, pair_rows, similarities

LENGTH = 12


@pytest.fixture(scope="module")
def task(small_task, garch):
    return small_task(garch, LENGTH, layers=2)


@pytest.fixture(scope="module")
def windows(garch):
    return garch.origins(LENGTH)[::4][:600]


def test_distances_are_scipys_and_stay_between_0_and_1():
    rng = np.random.default_rng(0)
    attention_BHL = rng.dirichlet(np.full(7, 0.3), size=(5, 3))
    attention_BHL[0, 0] = np.eye(7)[0]
    attention_BHL[0, 1] = np.eye(7)[3]
    attention_BHL[1, 2] = attention_BHL[1, 1]
    found = distances(attention_BHL)
    for n in range(5):
        for i in range(3):
            for j in range(3):
                expected = jensenshannon(attention_BHL[n, i], attention_BHL[n, j], base=2)
                assert found[n, i, j] == pytest.approx(expected, abs=1e-7)
    assert found[0, 0, 1] == 1.0
    assert found[1, 1, 2] == 0.0


def test_similarities_are_those_of_the_naive_formulas(task, garch, windows):
    block_n = blocks(garch.times[windows], LENGTH)
    distance, alike = similarities(task, garch, windows, block_n, LENGTH)
    record = forecast(task, garch, windows, LENGTH, capture={0: (LENGTH - 1,), 1: (LENGTH - 1,)}).captured
    attention_nHL = np.concatenate([record[at].attn_BNTS[:, :, 0].numpy() for at in range(2)], axis=1)
    written = [
        (record[at].z_BNTd[:, head, -1].double() @ task.headed.attention(at).output_by_head()[head].double()).detach()
        for at in range(2)
        for head in range(4)
    ]
    for i in range(8):
        for j in range(8):
            p, q = (attention_nHL[:, head].astype(np.float64) for head in (i, j))
            pairs = [jensenshannon(a, b, base=2) for a, b in zip(p, q, strict=True)]
            assert distance.value[i, j] == pytest.approx(np.nan_to_num(pairs).mean(), abs=1e-5)
            x, y = (written[head] - written[head].mean(0) for head in (i, j))
            norm = torch.linalg.matrix_norm
            naive = norm(x.T @ y) ** 2 / (norm(x.T @ x) * norm(y.T @ y))
            assert alike.value[i, j] == pytest.approx(float(naive), rel=1e-6)
    np.testing.assert_allclose(np.diag(alike.value), 1.0)
    assert (alike.low[0, 1] < alike.value[0, 1]) & (alike.value[0, 1] < alike.high[0, 1])


def test_cka_of_few_windows_is_not_given(task, garch, windows):
    """Over few windows heads that have nothing in common look alike."""
    width = task.headed.attention(0).head_width
    for count, kinds in ((2, {"js"}), (10 * width - 1, {"js"}), (10 * width, {"js", "cka"})):
        assert {row[0] for row in pair_rows(task, garch, windows[:count], LENGTH)} == kinds


def test_no_size_of_batch_changes_a_similarity(task, garch, windows, monkeypatch):
    block_n = blocks(garch.times[windows], LENGTH)
    whole = similarities(task, garch, windows, block_n, LENGTH)
    monkeypatch.setattr(redundancy, "batches", lambda count, _: capture.slices(count, 37))
    small = similarities(task, garch, windows, block_n, LENGTH)
    for one, other in zip(whole, small, strict=True):
        for name in ("value", "low", "high"):
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-5, atol=1e-6)


def test_a_head_that_is_another_turned_and_scaled_writes_the_same(small_task, garch, windows):
    task = small_task(garch, LENGTH, layers=1)
    attention = task.headed.attention(0)
    with torch.no_grad():
        for layer in (attention.query, attention.key, attention.value):
            layer.weight[5:10], layer.bias[5:10] = layer.weight[:5], layer.bias[:5]
        turn, _ = torch.linalg.qr(torch.randn(20, 20))
        attention.output.weight[:, 5:10] = 3.0 * turn @ attention.output.weight[:, :5]
        attention.output.weight[:, 10:15] = 0.0
    rows = {(kind, row[2], row[4]): row for kind, *row in ([r[0], *r] for r in pair_rows(task, garch, windows, LENGTH))}
    assert rows["js", 0, 1][7] == pytest.approx(0.0, abs=1e-4)
    assert rows["cka", 0, 1][7] == pytest.approx(1.0, abs=1e-6)
    assert rows["cka", 0, 3][7] < 0.95
    assert np.isnan(rows["cka", 0, 2][7])  # what writes nothing goes along with nothing
    assert len(rows) == 12


def test_group_redundancy_of_sums_by_hand():
    """Two heads that do the same: one goes for nothing, both cost 3. One that is worth 1 whatever else goes."""
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.01, (12, 1))
    counts = np.full(12, 5.0)
    summed = {
        frozenset({(0, 0)}): 5 * (0.0 + noise),
        frozenset({(0, 1)}): 5 * (0.3 + noise),
        frozenset({(1, 0)}): 5 * (1.0 + noise),
        frozenset({(0, 0), (0, 1)}): 5 * (3.0 + noise),
        frozenset({(0, 0), (1, 0)}): 5 * (1.0 + noise),
        frozenset({(0, 1), (1, 0)}): 5 * 10 * rng.normal(0, 1, (12, 1)),
    }
    groups = {
        ("large_move", None): [(0, 0), (0, 1)],
        ("", 0): [(0, 0), (1, 0)],
        ("", 1): [(0, 1), (1, 0)],
        ("weekly", None): [(0, 0)],
    }
    found = list(group_rows(summed, groups, counts, ["return"]))
    assert [row[:7] for row in found] == [
        ("group", None, None, None, None, "large_move", "return"),
        ("group", 0, None, None, None, "", "return"),
        ("group", 1, None, None, None, "", "return"),
    ]
    single = sum(summed[frozenset({head})].sum() for head in ((0, 0), (0, 1)))
    assert found[0][7] == pytest.approx(1 - single / summed[frozenset({(0, 0), (0, 1)})].sum())
    assert found[0][8] < found[0][7] < found[0][9]
    assert found[0][7] == pytest.approx(0.9, abs=0.02)
    assert found[1][7] == pytest.approx(0.0, abs=0.02)
    assert np.isnan(found[2][7:]).all(), "the joint rise's interval includes 0"
