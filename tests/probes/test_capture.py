import numpy as np
import pytest
import torch

from forecaster.networks.attention import Captured
from forecaster.probes.capture import evaluating, forecast, inner_queries, looks, norm_weighted


def test_last_query_by_lag_is_its_attention_row_read_backwards(small_task, garch):
    origins = garch.origins(12)[:5]
    task = small_task(garch, 12)
    record = forecast(task, garch, origins, 12, capture={0: (11,), 1: (11,)}).captured
    seen = {look.layer: look for look in looks(task, garch, origins, 12) if look.stratum == "last"}
    for layer in range(2):
        by_hand = record[layer].attn_BNTS[:, :, 0].numpy()[..., ::-1]
        np.testing.assert_allclose(seen[layer].raw_nNL, by_hand, rtol=1e-5)
        np.testing.assert_array_equal(seen[layer].queries.rows, origins)
        np.testing.assert_allclose(seen[layer].norm_nNL.sum(-1), 1, rtol=1e-5)


def test_inner_queries_keep_past_and_future_apart(small_task, garch):
    origins = garch.origins(12)[:4]
    task = small_task(garch, 12)
    places = inner_queries(12)
    record = forecast(task, garch, origins, 12, capture={0: places}).captured[0].attn_BNTS.numpy()
    inner = {look.queries.direction: look for look in looks(task, garch, origins, 12) if look.stratum == "inner"}
    assert {look.layer for look in inner.values()} == {0}
    total = sum(look.raw_nNL.sum(-1) for look in inner.values())
    np.testing.assert_allclose(total, 1, rtol=1e-5)
    window, place = 2, 1
    number, query = window * len(places) + place, places[place]
    past, future = inner["past"], inner["future"]
    assert past.window_n[number] == window
    assert past.queries.rows[number] == origins[window] - (11 - query)
    for j in range(query + 1):
        np.testing.assert_allclose(past.raw_nNL[number, :, j], record[window, :, place, query - j], rtol=1e-5)
    for j in range(11 - query):
        np.testing.assert_allclose(future.raw_nNL[number, :, j], record[window, :, place, query + 1 + j], rtol=1e-5)
    assert (past.queries.reach[number], future.queries.reach[number]) == (query + 1, 11 - query)
    assert (past.queries.visible[number], future.queries.visible[number]) == (12, 12)


def test_causal_heads_have_no_future(small_task, garch):
    task = small_task(garch, 12, causal=True)
    seen = list(looks(task, garch, garch.origins(12)[:4], 12))
    inner = [look for look in seen if look.stratum == "inner"]
    assert {look.queries.direction for look in inner} == {"past"}
    np.testing.assert_array_equal(inner[0].queries.visible, inner[0].queries.reach)
    np.testing.assert_allclose(inner[0].raw_nNL.sum(-1), 1, rtol=1e-5)


def test_norm_weighting_is_the_size_of_what_each_bar_adds(small_task, garch):
    attention = small_task(garch, 12).network.attention(0)
    generator = torch.Generator().manual_seed(1)
    attn = torch.rand((2, 4, 1, 12), generator=generator).softmax(-1)
    v = torch.randn((2, 4, 12, 5), generator=generator)
    weighted = norm_weighted(Captured(attn, v, v[:, :, :1], (11,)), attention).detach()
    by_hand = torch.empty_like(attn)
    for b in range(2):
        for h in range(4):
            w_o = attention.output.weight[:, 5 * h : 5 * h + 5]  # D x d
            for k in range(12):
                by_hand[b, h, 0, k] = attn[b, h, 0, k] * (w_o @ v[b, h, k]).norm()
    torch.testing.assert_close(weighted, by_hand / by_hand.sum(-1, keepdim=True))


def test_inner_queries_are_spread_over_the_later_half():
    assert inner_queries(64) == (32, 36, 41, 45, 49, 53, 58, 62)
    assert inner_queries(7) == (4, 5)
    assert inner_queries(2) == ()


def test_attention_is_the_same_whatever_the_batch(small_task, garch):
    task, origins = small_task(garch, 12), garch.origins(12)[:9]
    whole = [look.norm_nNL for look in looks(task, garch, origins, 12) if look.stratum == "last" and look.layer == 1]
    parts = [look.norm_nNL for look in looks(task, garch, origins, 12, 4) if look.stratum == "last" and look.layer == 1]
    assert len(parts) == 3
    np.testing.assert_allclose(np.concatenate(parts), whole[0], rtol=1e-5, atol=1e-7)


def test_modes_are_put_back_when_something_fails(small_task, garch):
    task = small_task(garch, 12)
    task.train()
    task.network.blocks[1].eval()
    before = [module.training for module in task.modules()]

    def fail() -> None:
        with evaluating(task):
            assert not any(module.training for module in task.modules())
            assert not torch.is_grad_enabled()
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        fail()
    assert [module.training for module in task.modules()] == before
    assert torch.is_grad_enabled()


def test_two_passes_are_equal_although_the_task_is_in_training_mode(small_task, garch):
    task = small_task(garch, 12, dropout=0.5)
    task.train()
    first, second = (forecast(task, garch, garch.origins(12)[:6], 12).mean_BHC for _ in range(2))
    assert torch.equal(first, second)
