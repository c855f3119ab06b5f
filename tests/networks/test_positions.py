"""Positions: each against its formula, and where the bias stands in self-, causal and cross-attention."""

import math

import pytest
import torch

from forecaster.networks.attention import MultiHeadAttention
from forecaster.networks.positions import Alibi, LagBias, learned, rotate, sinusoidal, slopes

B, T, S, D, N = 2, 7, 9, 20, 5


def test_learned_positions_are_one_small_vector_a_slot() -> None:
    torch.manual_seed(0)
    table = learned(500, D)
    assert table.shape == (500, D)
    assert table.requires_grad
    assert float(table.detach().std()) == pytest.approx(0.02, rel=0.05)  # 10,000 draws: five standard errors


@pytest.mark.parametrize("width", [1, 6, 7])
def test_sinusoidal_positions_are_sines_and_cosines_of_falling_frequency(width: int) -> None:
    encoding = sinusoidal(torch.tensor([0, 3, 41]), width)
    assert encoding.shape == (3, width)
    for row, t in enumerate((0, 3, 41)):
        for i in range(width):
            angle = t / 10000 ** ((i - i % 2) / width)
            assert float(encoding[row, i]) == pytest.approx(math.cos(angle) if i % 2 else math.sin(angle), abs=1e-6)


def test_products_of_sinusoidal_positions_depend_on_the_lag_alone() -> None:
    encoding = sinusoidal(torch.arange(60), 8).double()
    products = (encoding @ encoding.T).diagonal(7)
    torch.testing.assert_close(products, products[:1].expand(53), atol=1e-5, rtol=0)


def test_rotary_scores_depend_on_the_lag_alone() -> None:
    torch.manual_seed(0)
    q, k = (torch.randn(1, 1, 1, 6, dtype=torch.float64) for _ in range(2))
    scores = [float(rotate(q, torch.tensor([t])) @ rotate(k, torch.tensor([t - 3])).mT) for t in (3, 10, 50)]
    assert scores == pytest.approx([scores[0]] * 3)
    assert scores[0] != pytest.approx(float(q @ k.mT))


def test_rotary_turns_pairs_and_leaves_an_odd_last_coordinate() -> None:
    x = torch.tensor([1.0, 0.0, 0.0, 2.0, 5.0], dtype=torch.float64).reshape(1, 1, 1, 5)
    turned = rotate(x, torch.tensor([3])).flatten().tolist()  # pairs (0, 2) and (1, 3), by 3 and by 3 / 100
    assert turned == pytest.approx([math.cos(3), -2 * math.sin(0.03), math.sin(3), 2 * math.cos(0.03), 5.0])
    single = x[..., :1]
    assert torch.equal(rotate(single, torch.tensor([3])), single)


@pytest.mark.parametrize(
    ("heads", "exponents"),
    [
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (16, [h / 2 for h in range(1, 17)]),
        (1, [8]),
        (5, [2, 4, 6, 8, 1]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
    ],
)
def test_alibi_slopes_are_those_of_the_paper(heads: int, exponents: list[float]) -> None:
    assert slopes(heads).tolist() == pytest.approx([2.0**-e for e in exponents])


def test_alibi_falls_with_the_distance_in_both_directions() -> None:
    bias = Alibi(8)(torch.tensor([4, 9]), torch.tensor([2, 4, 7]))
    assert bias.shape == (8, 2, 3)
    assert bias[0].tolist() == [[-1.0, 0.0, -1.5], [-3.5, -2.5, -1.0]]
    assert bias[7].tolist() == [[x / 256 for x in row] for row in ([-2, 0, -3], [-7, -5, -2])]


def test_learned_lag_bias_reads_its_table_and_shares_the_ends_beyond_it() -> None:
    bias = LagBias(2, past=3, ahead=2)
    assert (bias.table_NR == 0).all()
    with torch.no_grad():
        bias.table_NR.copy_(torch.stack((torch.arange(-2.0, 4.0), 10 * torch.arange(-2.0, 4.0))))
    lags = bias(torch.tensor([5, 0]), torch.tensor([5, 2, 1, 9, 0]))
    assert lags[0].tolist() == [[0, 3, 3, -2, 3], [-2, -2, -1, -2, 0]]
    assert torch.equal(lags[1], 10 * lags[0])
    (gradient,) = torch.autograd.grad(lags[0, 0].sum(), bias.table_NR)
    assert gradient.tolist() == [[1, 0, 1, 0, 0, 3], [0] * 6]


@pytest.mark.parametrize("kind", ["self", "causal", "cross"])
def test_a_bias_for_one_lag_makes_a_head_look_at_just_that_bar(kind: str) -> None:
    """In cross-attention the first row of x is the bar after the memory: lag 3 from it is the memory's last but two."""
    torch.manual_seed(0)
    bias = LagBias(N, past=S + T, ahead=0 if kind == "causal" else T)
    with torch.no_grad():
        bias.table_NR[2, bias.ahead + 3] = 60.0
    attention = MultiHeadAttention(D, N, causal=kind == "causal", relative=bias)
    x, memory = torch.randn(B, T, D), torch.randn(B, S, D) if kind == "cross" else None
    start = S if memory is not None else 0
    _, captured = attention(x, memory, start=start, queries=(6, 2, 4), capture=(4, 2))
    assert captured is not None
    keys = S if memory is not None else T
    for row, t in enumerate((4, 2)):
        target = start + t - 3
        if 0 <= target < keys:
            assert (captured.attn_BNTS[:, 2, row, target] > 0.999).all()
        else:
            assert (captured.attn_BNTS[:, 2, row] < 0.999).all()
        assert (captured.attn_BNTS[:, 1, row] < 0.9).all()


@pytest.mark.parametrize("options", [{"rotary": True}, {"relative": Alibi(N)}])
def test_between_equal_bars_relative_weights_depend_on_the_lag_alone(options: dict[str, object]) -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(D, N, **options).double()
    with torch.no_grad():
        attention.query.weight.mul_(3)
    _, captured = attention(torch.randn(B, 1, D, dtype=torch.float64).expand(B, T, D), capture=range(T))
    assert captured is not None
    fits = captured.attn_BNTS.log()
    fits = fits - fits.diagonal(dim1=-2, dim2=-1)[..., None]  # against the weight of the query's own bar
    torch.testing.assert_close(fits[..., 1:, 1:], fits[..., :-1, :-1], atol=1e-10, rtol=0)
    assert (fits[..., 1:, 0].abs() > 1e-6).all()


def test_without_positions_attention_sees_a_set_and_with_any_it_does_not() -> None:
    torch.manual_seed(0)
    x, order = torch.randn(B, T, D), [4, 0, 6, 1, 2, 5, 3]
    lag = LagBias(N, past=T, ahead=T)
    torch.nn.init.normal_(lag.table_NR)
    for options, same in (
        ({}, True),
        ({"rotary": True}, False),
        ({"relative": Alibi(N)}, False),
        ({"relative": lag}, False),
    ):
        attention = MultiHeadAttention(D, N, **options)
        shuffled, straight = attention(x[:, order])[0], attention(x)[0][:, order]
        assert torch.allclose(shuffled, straight, atol=1e-6) == same
