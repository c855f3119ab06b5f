"""Which bars of a window each token of a model stands for, and attention and values taken from tokens to bars."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from forecaster.errors import ConfigError


@dataclass(frozen=True)
class Tokens:
    """S tokens over the L bars of a window, oldest first: share[s, l] = 1 / (its number of bars) where token s has bar
    l. at: the bar that each stands at as a query. Attention to a token is attention to its bars, in even shares.
    """

    share_SL: Float[np.ndarray, "S L"]
    at: tuple[int, ...]

    @cached_property
    def each(self) -> bool:
        """Whether each token is one bar."""
        return np.array_equal(self.share_SL, np.eye(*self.share_SL.shape)) and self.at == tuple(range(len(self.at)))

    @cached_property
    def cover(self) -> Int[np.ndarray, "L K"]:
        """The tokens that have each bar, -1 where it is in fewer than K."""
        having = [np.flatnonzero(column) for column in self.share_SL.T]
        cover = np.full((len(having), max(map(len, having))), -1, dtype=np.int64)
        for bar, tokens in enumerate(having):
            cover[bar, : len(tokens)] = tokens
        return cover

    def spread(self, weights_BNTS: Float[Tensor, "B N T S"]) -> Float[Tensor, "B N T L"]:
        """A[q, l] = sum_s A[q, s] share[s, l]."""
        if self.each:
            return weights_BNTS
        return weights_BNTS @ torch.from_numpy(self.share_SL).to(weights_BNTS)

    def mean_values(self, v_BNSd: Float[Tensor, "B N S d"]) -> Float[Tensor, "B N L d"]:
        """Of each bar the mean v of the tokens that have it; 0 where none has."""
        if self.each:
            return v_BNSd
        has_SL = (self.share_SL > 0).astype(np.float32)
        mean_LS = (has_SL / np.maximum(has_SL.sum(0), 1.0)).T
        return torch.from_numpy(mean_LS).to(v_BNSd) @ v_BNSd

    def edited(self, v_BNSd: Float[Tensor, "B N S d"], edit: Callable[[Tensor], Tensor]) -> Float[Tensor, "B N S d"]:
        """The v after an edit by bar. The edit is shown, for each bar, the v of the K tokens that have it one after the
        other, [B, N, L, K d]; what it changes at a bar changes the token by the bar's share in it:

            v'_s = v_s + sum_l share[s, l] (edited v of s at l - v_s)

        so that z = A v moves as if the token's weight had lain on its bars; an edit of all bars is one of the token.
        """
        if self.each:
            return edit(v_BNSd).to(v_BNSd.dtype)
        cover_LK = torch.from_numpy(self.cover).to(v_BNSd.device)
        before_BNLKd = v_BNSd[:, :, cover_LK] * (cover_LK >= 0)[..., None]
        change = edit(before_BNLKd.flatten(3)).reshape(before_BNLKd.shape) - before_BNLKd
        taken_LK = np.take_along_axis(self.share_SL.T, np.maximum(self.cover, 0), axis=1)
        share_LK = torch.from_numpy(np.where(self.cover >= 0, taken_LK, 0.0))
        moved = (change * share_LK.to(change)[..., None]).flatten(2, 3)
        # A bar in too few tokens has share 0 in whichever token it is added to.
        return v_BNSd.index_add(2, cover_LK.clamp(min=0).flatten(), moved.to(v_BNSd.dtype))


def tokens(bars_SL: Bool[np.ndarray, "S L"], at: Sequence[int] | None = None) -> Tokens:
    """Tokens from the bars that each has. at: the bar that each stands at, its last one by default.

    ConfigError where a token has no bar, or none stands at the window's last bar, from which the forecast looks back.
    """
    if not bars_SL.any(1).all():
        raise ConfigError(f"token {int(np.argmin(bars_SL.any(1)))} has no bar of the window: give each token its bars")
    length = bars_SL.shape[1]
    stands = [length - 1 - int(row[::-1].argmax()) for row in bars_SL] if at is None else list(at)
    if stands[-1] != length - 1:
        raise ConfigError(
            f"the last token stands at bar {stands[-1] + 1} of {length}: let the last one stand at the last bar"
        )
    return Tokens(bars_SL / bars_SL.sum(1, keepdims=True), tuple(stands))


def single(length: int) -> Tokens:
    """Each bar a token."""
    return tokens(np.eye(length, dtype=np.bool_))


def patches(length: int, patch: int, stride: int) -> Bool[np.ndarray, "S L"]:
    """The bars of patches of so many bars, a stride apart, of which the last ends at the last bar.

    Nie et al. (2023), A Time Series is Worth 64 Words, section 3.1 (there the end is padded; here, as in Hugging Face's
    PatchTST, the first bars that fill no patch are left out).
    """
    first = np.arange(length - patch, -1, -stride)[::-1]
    bar = np.arange(length)
    return (bar >= first[:, None]) & (bar < first[:, None] + patch)
