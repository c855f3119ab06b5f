import numpy as np
import pytest
import torch

from forecaster.networks.attention import MultiHeadAttention
from forecaster.probes.width import effective_rank, singular_values, width_facts


def test_effective_rank_counts_equal_directions() -> None:
    assert effective_rank(np.array([3.0, 0.0, 0.0])) == 1.0
    assert effective_rank(np.full(7, 0.2)) == pytest.approx(7)
    # p = 1/4, 3/4: exp(.25 ln 4 + .75 ln(4/3)) = 1.7548.
    assert effective_rank(np.array([3.0, 1.0])) == pytest.approx(1.7548, abs=1e-4)
    assert np.isnan(effective_rank(np.zeros(3)))


def test_singular_values_are_those_of_each_heads_own_matrices() -> None:
    torch.manual_seed(0)
    module = MultiHeadAttention(20, 5).double()
    found = singular_values(module)
    for head in range(5):
        rows = slice(4 * head, 4 * head + 4)
        w_q, w_k, w_v = (linear.weight[rows].T for linear in (module.query, module.key, module.value))
        for name, product in {"qk": w_q @ w_k.T, "vo": w_v @ module.output.weight[:, rows].T}.items():
            values = torch.linalg.svdvals(product.detach())
            np.testing.assert_allclose(found[name][head], values[:4], rtol=1e-10)
            assert values[4:].max() < 1e-12


def test_a_head_of_width_one_has_rank_one() -> None:
    torch.manual_seed(1)
    facts = list(width_facts(2, MultiHeadAttention(6, 6)))
    ranks = [value for layer, _, name, value, *_ in facts if name.startswith("effective rank")]
    assert ranks == pytest.approx([1.0] * 12)
    assert {layer for layer, *_ in facts} == {2}


def test_narrower_heads_have_lower_ranks() -> None:
    torch.manual_seed(2)
    means = []
    for heads in (1, 2, 4, 8):
        values = singular_values(MultiHeadAttention(16, heads))
        means.append(np.mean([effective_rank(head) for part in values.values() for head in part]))
    assert means == sorted(means, reverse=True)
