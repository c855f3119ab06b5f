"""Attention out of a trained network, batch by batch, in offsets from the query bar."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final, Literal, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from forecaster.networks.attention import Captured, Edit, MultiHeadAttention
from forecaster.networks.encoder import Output
from forecaster.probes.masks import Direction, Queries
from forecaster.probes.subject import Attention, Subject, with_heads
from forecaster.probes.tiles import LagSums, by_lag
from forecaster.windows.panel import Panel

Stratum = Literal["last", "inner"]
Weights = Literal["raw", "norm"]

BARS: Final = 1 << 14  # of all windows of a batch; many more are slower, as their activations leave the cache
INNER_QUERIES: Final = 8


@dataclass(frozen=True)
class Look:
    """What one layer's heads look at from some query bars, in one direction: attention by offset.

    raw: as it is. norm: weighted by what reaches the residual stream. window_n: the number of each query's origin.
    """

    layer: int
    stratum: Stratum
    queries: Queries
    window_n: Int[np.ndarray, " n"]
    raw_nNL: Float[np.ndarray, "n N L"]
    norm_nNL: Float[np.ndarray, "n N L"]


@contextmanager
def evaluating(task: Subject) -> Generator[None]:
    """Evaluation mode without gradients; every module's own training flag is put back, after an error too."""
    flags = [(module, module.training) for module in task.modules()]
    task.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in flags:
            module.training = training


def forecast(
    task: Subject,
    panel: Panel,
    origins: Int[np.ndarray, " B"],
    length: int,
    edits: Mapping[int, Edit] | None = None,
    capture: Mapping[int, Sequence[int]] | None = None,
) -> Output:
    """The task's forecast for windows of the panel, in evaluation mode, on the task's device."""
    x_BLF = torch.from_numpy(panel.window(origins, length)).to(task.device)
    future_BHK = torch.from_numpy(panel.future(origins)).to(task.device)
    with evaluating(task):
        return task.forecast(x_BLF, future_BHK, edits=edits, capture=capture)


def batches(count: int, length: int) -> Iterator[slice]:
    """Consecutive slices that cover 0 .. count - 1, of as many windows of `length` bars as make a batch."""
    return slices(count, max(1, BARS // length))


def slices(count: int, size: int) -> Iterator[slice]:
    """Consecutive slices of `size` numbers that cover 0 .. count - 1."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def norm_weighted(captured: Captured, attention: Attention) -> Float[Tensor, "B N T S"]:
    """A[q, k] ||v_k W_O^(h)||, each row divided by its sum: the share of what head h adds at q that comes from bar k.

    v with its bias, W_O without. NaN where nothing comes from any bar. With W_O^T = Q R the norm is ||R v||, d wide
    instead of D. Kobayashi et al. (2020), Attention is Not Only a Weight, EMNLP.
    """
    if captured.norm_BNTS is not None:
        return captured.norm_BNTS
    r_Ndd = cast(Tensor, torch.linalg.qr(attention.output_by_head().mT).R)
    batch, _, keys, _ = captured.v_BNSd.shape
    # Head by head over all bars at once: no copy of v, and little enough at a time to stay in the cache.
    v_NdK = captured.v_BNSd.transpose(0, 1).flatten(1, 2).mT
    squares_NK = torch.stack([(r_dd @ v_dK).square_().sum(0) for r_dd, v_dK in zip(r_Ndd, v_NdK, strict=True)])
    norm_BNS = squares_NK.sqrt_().view(-1, batch, keys).transpose(0, 1)
    weighted_BNTS = captured.attn_BNTS * norm_BNS[:, :, None]
    return weighted_BNTS / weighted_BNTS.sum(-1, keepdim=True)


def looks(
    task: Subject,
    panel: Panel,
    origins: Int[np.ndarray, " n"],
    length: int,
    size: int | None = None,
    *,
    last_only: bool = False,
    every: Mapping[int, LagSums] | None = None,
) -> Iterator[Look]:
    """Attention of every layer over the windows that end at the origins, in their order.

    every: sums by layer to which all of its queries are added.

    Stratum `last`: the last bar's query. Stratum `inner`, of all layers but the last, which computes no other query:
    up to INNER_QUERIES further ones in the window's later half, their past apart from what a bidirectional head gives
    to the future; both as shares of all that the query gives.
    """
    network = task.headed
    inner = () if last_only else inner_queries(length)
    capture = {
        layer: (*inner, length - 1) if len(network.computed(layer)) == length else (length - 1,)
        for layer in with_heads(network)
    }
    for part in batches(len(origins), length) if size is None else slices(len(origins), size):
        with ExitStack() as stack:
            for layer, sums in (every or {}).items():
                attention = network.attention(layer)
                assert isinstance(attention, MultiHeadAttention)
                stack.enter_context(by_lag(attention, sums))
            captured = forecast(task, panel, origins[part], length, capture=capture).captured
        window_n: Int[np.ndarray, " B"] = np.arange(part.start, part.stop, dtype=np.int64)
        for layer, positions in capture.items():  # what is popped makes room for the next batch
            yield from _of_layer(
                layer, network.attention(layer), captured.pop(layer), positions, origins[part], window_n
            )


def _of_layer(
    layer: int,
    attention: Attention,
    captured: Captured,
    positions: Sequence[int],
    origins: Int[np.ndarray, " B"],
    window_n: Int[np.ndarray, " B"],
) -> Iterator[Look]:
    """The last one of the query positions, then the inner ones in each direction."""
    with torch.no_grad():
        norm = norm_weighted(captured, attention).cpu().numpy()
    raw = captured.attn_BNTS.cpu().numpy()
    yield _look(layer, "last", origins, window_n, positions[-1:], raw[:, :, -1:], norm[:, :, -1:])
    if len(positions) > 1:
        directions: tuple[Direction, ...] = ("past",) if attention.causal else ("past", "future")
        for direction in directions:
            rows, weights = positions[:-1], (raw[:, :, :-1], norm[:, :, :-1])
            yield _look(layer, "inner", origins, window_n, rows, *weights, direction, attention.causal)


def inner_queries(length: int) -> tuple[int, ...]:
    """Up to INNER_QUERIES query positions, evenly spaced over the window's later half, without the last bar."""
    first, last = -(-length // 2), length - 2
    if last < first:
        return ()
    count = min(INNER_QUERIES, last - first + 1)
    return tuple(np.linspace(first, last, count).round().astype(np.int64).tolist())


def _look(
    layer: int,
    stratum: Stratum,
    origins: Int[np.ndarray, " B"],
    window_n: Int[np.ndarray, " B"],
    positions: Sequence[int],
    raw_BNTS: Float[np.ndarray, "B N T S"],
    norm_BNTS: Float[np.ndarray, "B N T S"],
    direction: Direction = "past",
    causal: bool = False,
) -> Look:
    """Turns key positions into offsets and puts the queries of all windows one after the other."""
    batch, heads, _, length = raw_BNTS.shape
    place = np.array(positions)
    reach = place + 1 if direction == "past" else length - 1 - place
    picked: list[Float[np.ndarray, "n N L"]] = []
    for weights_BNTS in (raw_BNTS, norm_BNTS):
        offsets_BTNL = np.zeros((batch, len(place), heads, length), dtype=np.float32)
        for number, (row, bars) in enumerate(zip(positions, reach, strict=True)):
            keys = slice(row + 1, None) if direction == "future" else slice(row, None, -1)
            offsets_BTNL[:, number, :, :bars] = weights_BNTS[:, :, number, keys]
        picked.append(offsets_BTNL.reshape(-1, heads, length))
    visible = place + 1 if causal else np.full(len(place), length)
    queries = Queries(
        rows=(origins[:, None] - (length - 1 - place)).reshape(-1),
        reach=np.tile(reach, len(origins)),
        visible=np.tile(visible, len(origins)),
        span=length,
        direction=direction,
    )
    return Look(layer, stratum, queries, np.repeat(window_n, len(place)), *picked)
