import pytest
import torch

from forecaster.networks.attention import MultiHeadAttention, explicit, weights
from forecaster.networks.positions import LagBias
from forecaster.probes import tiles
from forecaster.probes.capture import looks
from forecaster.probes.tiles import LagSums, by_lag

B, N, L, D = 5, 3, 11, 12


def by_loops(attn_BNTS: torch.Tensor) -> torch.Tensor:
    sums = torch.zeros(N, 2 * L - 1, dtype=torch.float64)
    for query in range(L):
        for key in range(L):
            sums[:, query - key + L - 1] += attn_BNTS[:, :, query, key].double().sum(0)
    return sums / (len(attn_BNTS) * L)


@pytest.mark.parametrize("together", [1, 2, 8])
@pytest.mark.parametrize("tile", [1, L, 3 * L, 2 * 3 * L, 2 * L * L, 3 * L * L, 1 << 18])
@pytest.mark.parametrize("kind", ["plain", "causal", "biased", "padded"])
def test_tiles_give_the_same_output_and_every_query_by_lag(kind, tile, together, monkeypatch):
    # 5 windows and 11 queries are cut in ones, twos and threes, with a rest.
    monkeypatch.setattr(tiles, "TILE", tile)
    monkeypatch.setattr(tiles, "TOGETHER", together)
    torch.manual_seed(0)
    q, k, v = torch.randn(3, B, N, L, 4)
    mask = torch.ones(L, L).tril().bool() if kind == "causal" else None
    if kind == "padded":  # another number of bars of each window may be looked at
        mask = (torch.arange(L) >= torch.arange(B)[:, None]).expand(L, B, L).transpose(0, 1)
    bias = torch.randn(N, L, L) if kind == "biased" else None
    sums = LagSums(N, L)
    z = sums(q, k, v, mask, bias)
    torch.testing.assert_close(z, explicit(q, k, v, mask, bias))
    torch.testing.assert_close(sums.mean(), by_loops(weights(q, k, mask, bias)), atol=1e-7, rtol=1e-5)


def test_the_kernel_is_put_back_when_something_fails():
    attention = MultiHeadAttention(D, N, relative=LagBias(N, past=L - 1, ahead=L - 1))
    kernel = attention.attend
    sums = LagSums(N, L)

    def fail() -> None:
        with by_lag(attention, sums):
            attention(torch.randn(B, L, D))
            raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half-way"):
        fail()
    assert attention.attend is kernel
    assert sums.queries == B * L


def test_every_query_is_summed_while_windows_are_looked_at(small_task, garch):
    task, origins = small_task(garch, L), garch.origins(L)[:7]
    every = {0: LagSums(4, L)}
    for _ in looks(task, garch, origins, L, 3, every=every):
        pass
    assert every[0].queries == 7 * L
    torch.testing.assert_close(every[0].mean().sum(1), torch.ones(4, dtype=torch.float64), atol=1e-6, rtol=0)
    last = torch.cat(
        [
            torch.from_numpy(look.raw_nNL)
            for look in looks(task, garch, origins, L, 3)
            if look.layer == 0 and look.stratum == "last"
        ]
    )
    # Of the last bar alone: the oldest bar is seen from L - 1 bars away by that query only.
    torch.testing.assert_close(every[0].mean()[:, -1] * L, last[..., L - 1].mean(0).double(), atol=1e-6, rtol=1e-5)
