"""Where a bar stands, said to attention, which by itself sees a set: one choice each, none being the fifth.

    learned       x_t + P[t]                  a free vector for each slot; cannot go beyond the length it was made for
    sinusoidal    x_t + PE(t)                 the same without parameters and for any t; t + k is a rotation of t
    rotary        (R_t q_t) . (R_s k_s)       turns q and k, so that scores see the lag t - s alone; values untouched
    alibi         q_t . k_s - m_h |t - s|     a fixed slope for each head: some heads see recent bars only, others all
    learned lag   q_t . k_s + b_h[t - s]      a free number for each head and lag: a head can pick one lag in one step

The first two are added to the network's input, once; rotary acts inside attention; the last two are a bias [N, T, S]
added to the scaled scores before the softmax, and count lags between positions, so that a query alone, a step of
cached decoding and a decoder's bar after the encoder's last one all get the bias of their place.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

BASE = 10000.0  # longest wavelength / 2 pi, of Vaswani et al. and of RoFormer


def learned(length: int, width: int) -> nn.Parameter:
    """A free vector for each of `length` slots, [length, width], drawn from N(0, 0.02^2).

    Radford et al. (2018), Improving Language Understanding by Generative Pre-Training, section 4.1.
    """
    return nn.Parameter(torch.randn(length, width) * 0.02)


def sinusoidal(position_T: Int[Tensor, " T"], width: int) -> Float[Tensor, "T D"]:
    """PE[t, 2i] = sin(t w_i), PE[t, 2i+1] = cos(t w_i) with w_i = 10000^(-2i/D).

    sin and cos of t + k are a rotation of those of t by an angle that depends on k alone, so that one matrix can look
    k bars back from anywhere. Vaswani et al. (2017), Attention Is All You Need, section 3.5.
    """
    pairs = (width + 1) // 2
    frequency = BASE ** (-2.0 * torch.arange(pairs, device=position_T.device, dtype=torch.float64) / width)
    angle_Tp = position_T[:, None] * frequency
    encoding_TD = torch.stack((angle_Tp.sin(), angle_Tp.cos()), dim=-1).flatten(1)[:, :width]
    return encoding_TD.to(torch.get_default_dtype())


def rotate(x_BNTd: Float[Tensor, "B N T d"], position_T: Int[Tensor, " T"]) -> Float[Tensor, "B N T d"]:
    """Rotary positions: pairs of coordinates turn by position x 10000^(-2i/d), so that q.k depends on the lag alone.

    An odd last coordinate (and the only one of a head of width 1) is left as it is.
    Su et al. (2021), RoFormer, section 3.
    """
    pairs = x_BNTd.shape[-1] // 2
    frequency = BASE ** (-torch.arange(pairs, device=x_BNTd.device, dtype=torch.float64) / max(pairs, 1))
    angle_Tp = position_T.to(torch.float64)[:, None] * frequency
    cos, sin = angle_Tp.cos().to(x_BNTd.dtype), angle_Tp.sin().to(x_BNTd.dtype)
    a, b, rest = x_BNTd[..., :pairs], x_BNTd[..., pairs : 2 * pairs], x_BNTd[..., 2 * pairs :]
    return torch.cat((a * cos - b * sin, a * sin + b * cos, rest), dim=-1)


def slopes(heads: int) -> Float[Tensor, " N"]:
    """ALiBi's slope of each head, 2^(-8h/N) for h = 1 .. N: head 1 fades within a few bars, head N over hundreds.

    Where N is no power of two: the slopes of the next smaller power, then every other one of twice that power.
    Press et al. (2022), Train Short, Test Long, section 3 and their code for the other N.
    """

    def series(count: int) -> Float[Tensor, " N"]:
        return 2.0 ** (-8.0 * torch.arange(1, count + 1, dtype=torch.float64) / count)

    power = 1 << (heads.bit_length() - 1)
    every_N = torch.cat((series(power), series(2 * power)[::2][: heads - power]))
    return every_N.to(torch.get_default_dtype())


class Alibi(nn.Module):
    """bias[h, t, s] = -m_h |t - s|, with fixed slopes m: symmetric, so that it serves attention in both directions.

    No parameter, and a bias for any lag, seen in training or not. Press et al. (2022), section 3.
    """

    slope_N: Tensor

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.register_buffer("slope_N", slopes(heads))

    def forward(self, query_T: Int[Tensor, " T"], key_S: Int[Tensor, " S"]) -> Float[Tensor, "N T S"]:
        """The bias between the positions of queries and of keys."""
        return -self.slope_N[:, None, None] * (query_T[:, None] - key_S).abs()

    def keep(self, heads: list[int]) -> None:
        """Leaves only these heads, in this order."""
        self.slope_N = self.slope_N[heads].clone()


class LagBias(nn.Module):
    """bias[h, t, s] = b_h[t - s], learned; lags beyond `past`, and beyond `ahead` after the query, share the last one.

    It starts at zero, that is, as no position at all. Shaw et al. (2018), Self-Attention with Relative Position
    Representations (the clipping); Raffel et al. (2020), T5, section 2.1 (a scalar for each head).
    """

    def __init__(self, heads: int, past: int, ahead: int) -> None:
        super().__init__()
        self.past, self.ahead = past, ahead
        self.table_NR = nn.Parameter(torch.zeros(heads, ahead + past + 1))

    def forward(self, query_T: Int[Tensor, " T"], key_S: Int[Tensor, " S"]) -> Float[Tensor, "N T S"]:
        """The bias between the positions of queries and of keys."""
        lag_TS = (query_T[:, None] - key_S).clamp(-self.ahead, self.past)
        return self.table_NR[:, lag_TS + self.ahead]

    def keep(self, heads: list[int]) -> None:
        """Leaves only these heads, in this order."""
        self.table_NR = nn.Parameter(self.table_NR.detach()[heads].clone(), self.table_NR.requires_grad)
