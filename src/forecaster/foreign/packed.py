"""torch.nn.MultiheadAttention, and with it nn.TransformerEncoder, nn.TransformerDecoder and nn.Transformer.

Their modules all end in torch.nn.functional.multi_head_attention_forward, which torch lets a TorchFunctionMode answer.
So nothing of the model is replaced, and hooks and subclasses act as ever. While a mode is active torch takes neither
the fused encoder layer nor nested tensors, which would go past it.
"""

import inspect
import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from forecaster.errors import ConfigError
from forecaster.foreign.calls import Call, Matrices, Take, attention, by_head, output_by_head

PACKED: Final[Callable[..., Any]] = functional.multi_head_attention_forward
FUSED: Final[Callable[..., Any]] = functional.scaled_dot_product_attention
SIGNATURE: Final = inspect.signature(PACKED)


class Intercepted(TorchFunctionMode):
    """Answers each call of multi_head_attention_forward; refuses the fused kernel where no adapter knows the caller."""

    def __init__(self, take: Take) -> None:
        super().__init__()
        self.take, self._known = take, False

    @contextmanager
    def known(self) -> Generator[None]:
        """While another adapter's module attends."""
        self._known = True
        try:
            yield
        finally:
            self._known = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Torch's own answer to everything else."""
        if func is PACKED:
            given = SIGNATURE.bind(*args, **(kwargs or {}))
            given.apply_defaults()
            return _attended(given.arguments, self.take)
        if func is FUSED and not self._known:
            raise ConfigError(
                "scaled_dot_product_attention is called by a module that is not known, and its W_O with it: use "
                "torch.nn.MultiheadAttention there, or write a Subject (docs/models.md)"
            )
        return func(*args, **(kwargs or {}))


def _attended(given: dict[str, Any], take: Take) -> tuple[Tensor, Tensor | None]:
    """The same as multi_head_attention_forward, whose arguments are given, with the heads handed to `take`."""
    _check(given)
    heads: int = given["num_heads"]
    projections = _projections(given)
    named = ("query", "key", "value")
    q_RNTd, k_RNSd, v_RNSd = (
        _split(functional.linear(given[name], weight, bias), heads)
        for name, (weight, bias) in zip(named, projections, strict=True)
    )
    bias = _bias(given, q_RNTd)
    share: float = given["dropout_p"] if given["training"] else 0.0

    def matrices() -> Matrices:
        query, key, value = (by_head(weight, heads) for weight, _ in projections)
        return Matrices(query, key, value, output_by_head(given["out_proj_weight"], heads))

    call = Call(
        q_RNTd=q_RNTd,
        k_RNSd=k_RNSd,
        v_RNSd=v_RNSd,
        bias=bias,
        scale=1.0 / math.sqrt(q_RNTd.shape[-1]),
        own_queries=q_RNTd.shape[2] == k_RNSd.shape[2],
        matrices=matrices,
    )
    z_RNTd = take(call, lambda v: FUSED(q_RNTd, k_RNSd, v, attn_mask=bias, dropout_p=share))
    joined_TRE = z_RNTd.permute(2, 0, 1, 3).flatten(2)
    out_TRD = functional.linear(joined_TRE, given["out_proj_weight"], given["out_proj_bias"])
    if not given["need_weights"]:
        return out_TRD, None
    weights_RNTS = attention(call, list(range(q_RNTd.shape[2]))).to(q_RNTd.dtype)
    return out_TRD, weights_RNTS.mean(1) if given["average_attn_weights"] else weights_RNTS


def _split(x_TRE: Float[Tensor, "T R E"], heads: int) -> Float[Tensor, "R N T d"]:
    return x_TRE.reshape(*x_TRE.shape[:2], heads, -1).permute(1, 2, 0, 3)


def _check(given: dict[str, Any]) -> None:
    """ConfigError for what gives attention to something that is no bar, or shows no batch."""
    if given["bias_k"] is not None or given["add_zero_attn"]:
        raise ConfigError(
            "nn.MultiheadAttention with add_bias_kv or add_zero_attn attends to a key that is no bar: probe a model "
            "without them"
        )
    if given["static_k"] is not None or given["static_v"] is not None:
        raise ConfigError("multi_head_attention_forward with static_k or static_v: let it project its own keys")
    if given["is_causal"] and given["attn_mask"] is None:
        raise ConfigError("nn.MultiheadAttention with is_causal needs its attn_mask too, as torch has it: give it one")
    if given["query"].dim() != 3:
        raise ConfigError("nn.MultiheadAttention is given single windows: give it batches [B, L, D]")


def _projections(given: dict[str, Any]) -> list[tuple[Tensor, Tensor | None]]:
    """Weight and bias of query, key and value."""
    if given["use_separate_proj_weight"]:
        weights: list[Tensor] = [given[f"{name}_proj_weight"] for name in "qkv"]
    else:
        weights = list(given["in_proj_weight"].chunk(3))
    bias: Tensor | None = given["in_proj_bias"]
    biases = [None] * 3 if bias is None else list(bias.chunk(3))
    return list(zip(weights, biases, strict=True))


def _bias(given: dict[str, Any], q_RNTd: Tensor) -> Float[Tensor, "#R #N #T S"] | None:
    """What the masks add to the scores. Of truth values True means, here as in torch, that a query may not look."""
    masks: list[Tensor] = []
    sequences, heads, queries, _ = q_RNTd.shape
    if given["is_causal"] and given["key_padding_mask"] is None and not given["need_weights"]:
        # Where torch trusts the hint it doesn't look at the mask.
        causal = torch.ones((queries, given["key"].shape[0]), dtype=torch.bool, device=q_RNTd.device).triu(1)
        given = {**given, "attn_mask": causal}
    for name in ("attn_mask", "key_padding_mask"):
        if given[name] is None:
            continue
        mask: Tensor = given[name]
        if mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=q_RNTd.dtype).masked_fill(mask, -torch.inf)
        if name == "key_padding_mask":
            mask = mask[:, None, None]
        else:
            mask = mask[None, None] if mask.dim() == 2 else mask.reshape(sequences, heads, *mask.shape[1:])
        masks.append(mask)
    return sum(masks[1:], masks[0]).to(q_RNTd.dtype) if masks else None
