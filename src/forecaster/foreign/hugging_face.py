"""Hugging Face's PatchTST and TimeSeriesTransformer, on eager attention or on scaled_dot_product_attention.

Their attention modules ask transformers' AttentionInterface, a mapping, for the function that attends. For the length
of a forward pass the two names stand there for functions that hand the heads over and then call the model's own.
"""

import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from forecaster.errors import ConfigError
from forecaster.foreign.calls import Call, Matrices, by_head, output_by_head
from forecaster.foreign.packed import Intercepted
from forecaster.foreign.tokens import Tokens, patches, tokens

NAMES: Final = ("eager", "sdpa")

Attend = Callable[..., tuple[Tensor, Tensor | None]]


@contextmanager
def dispatched(mode: Intercepted) -> Generator[None]:
    """Attention of transformers' models goes to `mode.take`; nothing where transformers isn't loaded."""
    functions = getattr(sys.modules.get("transformers.modeling_utils"), "ALL_ATTENTION_FUNCTIONS", None)
    with ExitStack() as stack:
        for name in NAMES if functions is not None else ():
            stack.enter_context(_standing(functions, name, mode))
        yield


@contextmanager
def _standing(functions: Any, name: str, mode: Intercepted) -> Generator[None]:
    """A function of ours under a name of the mapping; what stood there comes back, an override of somebody's too."""
    before: Attend | None = functions.get(name)
    functions[name] = _handing(before, mode)
    try:
        yield
    finally:
        del functions[name]
        if functions.get(name) is not before:
            functions[name] = before


def _handing(own: Attend | None, mode: Intercepted) -> Attend:
    def attend(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
    ) -> tuple[Tensor, Tensor | None]:
        # Eager attention stands in no mapping but in the file of the model.
        attending: Attend = own or sys.modules[type(module).__module__].eager_attention_forward
        weights: list[Tensor | None] = []

        def kernel(v_RNSd: Tensor) -> Tensor:
            z_RTNd, of_all = attending(module, query, key, v_RNSd, attention_mask, **options)
            weights.append(of_all)
            return z_RTNd.transpose(1, 2)

        with mode.known():
            z_RNTd = mode.take(_call(module, query, key, value, attention_mask, options, fused=own is not None), kernel)
        return z_RNTd.transpose(1, 2).contiguous(), weights[0]

    return attend


def _call(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: dict[str, Any], *, fused: bool
) -> Call:
    kind = KINDS.get(type(module).__name__)
    if kind is None or not type(module).__module__.startswith("transformers."):
        raise ConfigError(
            f"{type(module).__name__} is no attention that is known ({', '.join(KINDS)}): its keys can't be matched to "
            "bars; write a Subject (docs/models.md)"
        )
    of_tokens, aside = kind(module)
    queries = query.shape[2]
    given = options.get("is_causal")
    # The rule of transformers' own function for the fused kernel; eager attention is causal by its mask alone.
    if fused and mask is None and queries > 1 and (module.is_causal if given is None else given):
        mask = torch.ones((queries, key.shape[2]), dtype=torch.bool, device=query.device).tril()[None, None]
    heads: int = module.num_heads

    def matrices() -> Matrices:
        query, key, value = (by_head(part.weight, heads) for part in (module.q_proj, module.k_proj, module.v_proj))
        return Matrices(query, key, value, output_by_head(module.out_proj.weight, heads))

    return Call(
        q_RNTd=query,
        k_RNSd=key,
        v_RNSd=value,
        bias=mask,
        scale=query.shape[-1] ** -0.5 if options.get("scaling") is None else options["scaling"],
        own_queries=not module.is_decoder,
        matrices=matrices,
        tokens=of_tokens,
        aside=aside,
    )


def _patchtst(module: Any) -> tuple[Callable[[int], Tokens], bool]:
    """Patches of one channel's last `context_length` bars."""
    config = module.config
    for key, what in (
        ("use_cls_token", "a token that is no bar"),
        ("channel_attention", "heads that look at channels"),
    ):
        if getattr(config, key):
            raise ConfigError(f"PatchTST with {key} has {what}: probe a model with {key}=False")

    def of_window(length: int) -> Tokens:
        first = _first(length, config.context_length)
        bars_SC = patches(config.context_length, config.patch_length, config.patch_stride)
        return tokens(np.pad(bars_SC, ((0, 0), (first, 0))))

    return of_window, False


def _time_series(module: Any) -> tuple[Callable[[int], Tokens] | None, bool]:
    """Times of the encoder's context, at each of which it is told the bars `lags_sequence` before.

    The decoder's attention to itself is to steps ahead, no bars.
    """
    config = module.config
    if module.is_decoder and module.is_causal:
        return None, True

    def of_window(length: int) -> Tokens:
        lags: list[int] = list(config.lags_sequence)
        times = range(_first(length, config.context_length + max(lags)) + max(lags), length)
        bars_SL = np.zeros((len(times), length), dtype=np.bool_)
        for token, time in enumerate(times):
            bars_SL[token, [time - lag for lag in lags]] = True
        return tokens(bars_SL, times)

    return of_window, False


def _first(length: int, needed: int) -> int:
    if needed > length:
        raise ConfigError(f"the model reads {needed} bars, the windows have {length}: make windows of {needed} bars")
    return length - needed


KINDS: Final = MappingProxyType({"PatchTSTAttention": _patchtst, "TimeSeriesTransformerAttention": _time_series})
