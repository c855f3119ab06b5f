"""What a model does with windows of bars, found by trying: its calls of attention, and which tokens read which bars."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from forecaster.errors import ConfigError
from forecaster.foreign.calls import Call, Kernel, attention
from forecaster.foreign.passes import Layer, intercepted
from forecaster.foreign.tokens import Tokens, single, tokens

READS: Final = 1e-6  # relative: a token whose v moves by less has not read the bar
DRAWN: Final = 1e-4  # share of a forecast's size by which two passes may differ, by rounding
KNOWN: Final = "torch.nn.MultiheadAttention; Hugging Face's PatchTST and TimeSeriesTransformer on eager or sdpa"
MISTAKES: Final = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError)

Run = Callable[[Tensor, Tensor], Tensor]  # windows [B, L, F] and the calendar ahead -> means [B, H, C]


@dataclass
class Seen:
    """How many sequences each call of a pass has, in order; none is changed. whole: the calls are kept, with their A.
    values: v of the call `of`.
    """

    whole: bool = False
    of: int | None = None
    sequences: list[int] = field(default_factory=list[int])
    calls: list[Call] = field(default_factory=list[Call])
    attention: list[Tensor] = field(default_factory=list[Tensor])
    values: Tensor | None = None

    def __call__(self, call: Call, kernel: Kernel) -> Tensor:
        """Keeps what is asked for."""
        if len(self.sequences) == self.of:
            self.values = call.v_RNSd
        self.sequences.append(len(call.q_RNTd))
        if self.whole:
            self.calls.append(call)
            self.attention.append(attention(call, list(range(call.q_RNTd.shape[2]))))
        return kernel(call.v_RNSd)


@dataclass(frozen=True)
class Found:
    """Layers that are probed, the calls of a pass in all, and the sequences of a window."""

    layers: tuple[Layer, ...]
    calls: int
    sequences: int


def explore(
    model: nn.Module,
    run: Run,
    x_BLF: Float[Tensor, "2 L F"],
    future_BHK: Float[Tensor, "2 H K"],
    step_F: Float[Tensor, " F"],
    *,
    calls: Sequence[int] | None,
    bars_SL: Bool[np.ndarray, "S L"] | None,
) -> Found:
    """Three passes: two over two windows, and one over the first window with each of its bars in turn moved by a step,
    whose first call tells which tokens read which bars.

    ConfigError where the model's attention can't be had, or can't be matched to the bars.
    """
    length = x_BLF.shape[1]
    seen = Seen(whole=True)
    _try(model, run, x_BLF, future_BHK, seen, Seen())
    if all(call.aside for call in seen.calls):
        raise ConfigError(
            f"{type(model).__name__} gives no attention that is known ({KNOWN}): nothing to probe; attend with one of "
            "these, or write a Subject (docs/models.md)"
        )
    chosen = _chosen(seen.calls, calls)
    given = None if bars_SL is None else tokens(bars_SL)
    layers = tuple(_layer(number, seen, given, length, future_BHK.shape[1]) for number in chosen)
    moved_BLF = x_BLF[:1].repeat(length + 1, 1, 1)
    bars = torch.arange(length)
    moved_BLF[bars, bars] += step_F
    # Later calls see bars that earlier ones have mixed.
    first = next(number for number, call in enumerate(seen.calls) if not call.aside)
    again = Seen(of=first if bars_SL is None and chosen[0] == first else None)
    _try(model, run, moved_BLF, future_BHK[:1].repeat(length + 1, 1, 1), again)
    sequences = seen.sequences[chosen[0]] // 2
    if len(again.sequences) != len(seen.sequences):
        raise ConfigError(
            f"the model makes {len(seen.sequences)} calls of attention for 2 windows and {len(again.sequences)} for "
            f"{length + 1}: forecast all windows that are given at once"
        )
    for windows, each in ((2, seen), (length + 1, again)):
        if wrong := [number for number in chosen if each.sequences[number] != windows * sequences]:
            raise ConfigError(
                f"call {wrong[0]} of attention has {each.sequences[wrong[0]]} sequences for {windows} windows: "
                "let attention run over each window's bars (batch_first?)"
            )
    if again.values is not None:
        _check_reading(again.values.reshape(length + 1, sequences, *again.values.shape[1:]), layers[0].tokens)
    return Found(layers, len(seen.calls), sequences)


def _try(model: nn.Module, run: Run, x_BLF: Tensor, future_BHK: Tensor, *takes: Seen) -> None:
    """A pass for each take, with other random numbers. ConfigError where they make a difference."""
    means: list[Tensor] = []
    for seed, take in enumerate(takes):
        with intercepted(model, take):
            torch.default_generator.manual_seed(seed)  # and of devices that of the model's alone, which is put back
            if x_BLF.is_cuda:
                with torch.cuda.device(x_BLF.device):
                    torch.cuda.manual_seed(seed)
            means.append(_attempt(run, x_BLF, future_BHK))
    if (means[0] - means[-1]).abs().max() > DRAWN * means[0].abs().max():
        raise ConfigError(
            "the model's forecast is another in each pass: it draws random numbers in evaluation mode; forecast the "
            "mean of its distribution, without sampling or masking"
        )


def _attempt(run: Run, x_BLF: Tensor, future_BHK: Tensor) -> Tensor:
    """The forecast; ConfigError with the model's own complaint where it fails, and where it is not finite."""
    try:
        mean_BHC = run(x_BLF, future_BHK)
    except MISTAKES as fault:
        complaint = (str(fault).strip().splitlines() or [""])[0]
        raise ConfigError(
            f"forecast fails on windows {list(x_BLF.shape)} of float32 on {x_BLF.device}: {type(fault).__name__}: "
            f"{complaint}; let it take x_BLF and future_BHK to what the model reads"
        ) from fault
    if not mean_BHC.isfinite().all():
        raise ConfigError("forecast gives numbers that are not finite: scale what the model reads")
    return mean_BHC


def _chosen(found: Sequence[Call], asked: Sequence[int] | None) -> list[int]:
    """The calls to probe: those asked for, else all but those set aside."""
    if asked is None:
        return [number for number, call in enumerate(found) if not call.aside]
    if not asked or not set(asked) <= set(range(len(found))):
        raise ConfigError(f"calls={list(asked)}: the model makes {len(found)}, numbered from 0")
    return sorted(set(asked))


def _layer(number: int, seen: Seen, given: Tokens | None, length: int, horizon: int) -> Layer:
    call = seen.calls[number]
    _, heads, keys, head_width = call.k_RNSd.shape
    queries = call.q_RNTd.shape[2]
    of_keys = given or (single(length) if call.tokens is None else call.tokens(length))
    if keys != len(of_keys.at):
        fitting = [i for i, other in enumerate(seen.calls) if other.k_RNSd.shape[2] == len(of_keys.at)]
        other = f"name those to probe (calls={fitting})" if fitting else "let it run over the bars (batch_first?)"
        raise ConfigError(
            f"call {number} of {len(seen.calls)} of attention has {keys} keys for {len(of_keys.at)} tokens of a window "
            f"of {length} bars: {other}, or name the bars of each key (tokens=)"
        )
    own = queries == keys and call.own_queries
    if not own and queries not in (1, horizon):
        raise ConfigError(
            f"call {number} of attention has {queries} queries for {keys} keys: probes know those of the bars, a "
            f"single one, or one for each of the {horizon} steps ahead; name other calls (calls=)"
        )
    matrices = call.matrices()
    return Layer(
        place=number,
        heads=heads,
        head_width=head_width,
        width=matrices.output_NdD.shape[-1],
        causal=own and not bool(seen.attention[number].triu(1).any()),
        matrices=matrices,
        tokens=of_keys,
        rows={bar: row for row, bar in enumerate(of_keys.at)} if own else {length - 1: 0},
    )


def _check_reading(v_BCNSd: Float[Tensor, "B C N S d"], of_keys: Tokens) -> None:
    """ConfigError for a token whose v stays as it is when one of its bars is moved (in the last window none is)."""
    moved_LS = (v_BCNSd[:-1] - v_BCNSd[-1:]).abs().amax((1, 2, 4)) > READS * v_BCNSd.abs().max()
    unread_SL = (of_keys.share_SL > 0) & ~moved_LS.T.cpu().numpy()
    if unread_SL.any():
        token, bar = map(int, np.argwhere(unread_SL)[0])
        raise ConfigError(
            f"token {token} of the first attention does not read bar {bar + 1} of {unread_SL.shape[1]}, which it would "
            "stand for: let tokens follow the bars, oldest first, or name the bars of each (tokens=)"
        )
