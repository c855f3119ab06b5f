"""Memory and time of the probe pass: `python bench/probes.py [memory|time]`, each size in a process of its own.

memory: what the pass holds beyond what it began with, for more and more windows, from more symbols and from longer
series. time: processor time of the passes that look, against the network's plain forward pass (PyTorch's fused kernel)
on the same windows, one thread: median over rounds of the ratio within a round, beside what is asked of it.
"""

import ctypes
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np
import torch
from panel import Peak, resident

from forecaster.networks.choice import Shape, network
from forecaster.probes.capture import batches, forecast, looks
from forecaster.probes.standard import standard
from forecaster.probes.survey import survey
from forecaster.probes.tiles import LagSums, by_lag
from forecaster.training.task import Recipe, Task
from forecaster.windows import scaling
from forecaster.windows.features import FEATURES
from forecaster.windows.panel import Panel

WIDTH, HEADS, LAYERS = 64, 8, 2
MEMORY = ((1, 1_000), (10, 1_000), (100, 1_000), (1, 10_000), (1, 100_000))  # symbols, windows of each
TIMES = ((64, 2048), (256, 256), (1024, 32))  # bars of a window, windows
LAST_BAR, EVERY = 1.2, {64: 1.0, 256: 1.3, 1024: 1.9}  # multiples of the plain pass, at most, by window
REPEATS = 7


def made(symbols: int, windows: int, length: int) -> Panel:
    """Random features; what they hold does not matter here."""
    rng = np.random.default_rng(0)
    bars = windows + length
    count = symbols * bars
    features = rng.standard_normal((count, len(FEATURES)), dtype=np.float32)
    for name in ("abs_return", "shock"):
        features[:, FEATURES.index(name)] = np.abs(features[:, FEATURES.index(name)])
    features[:, FEATURES.index("log_return")] *= 0.01
    features[:, FEATURES.index("log_sigma")] = np.log(0.01)
    times = np.datetime64("1800-01-01", "us") + np.arange(bars) * np.timedelta64(1, "D")
    targets = rng.standard_normal((count, 1, 1))
    return Panel(
        features=features,
        targets=targets,
        past=targets[:, 0],
        times=np.tile(times, symbols).astype("datetime64[us]"),
        target_times=np.tile(times + np.timedelta64(1, "D"), symbols).astype("datetime64[us]")[:, None],
        symbol_ids=np.repeat(np.arange(symbols, dtype=np.int32), bars),
        symbols=tuple(f"S{number}" for number in range(symbols)),
        feature_names=FEATURES,
        target_names=("return",),
        calendar="24/7",
        week_bars=7,
    )


def task_for(panel: Panel, length: int) -> Task:
    """An untrained network of the default's sizes."""
    torch.manual_seed(0)
    shape = Shape(
        features=len(panel.feature_names),
        length=length,
        width=WIDTH,
        heads=HEADS,
        layers=LAYERS,
        feedforward=2,
        dropout=0.0,
        attention_dropout=0.0,
        causal=False,
        positions="learned",
        pooling="last",
        skip=True,
        horizon=1,
        targets=1,
        future=panel.future_size,
    )
    return Task(network("attention", shape), scaling.unfitted(panel), Recipe(1e-3, 0.0, 0.1, 1.0))


def origins_of(panel: Panel, length: int) -> np.ndarray:
    """Every full window."""
    bounds = [panel.bounds(symbol) for symbol in range(len(panel.symbols))]
    return np.concatenate([np.arange(first + length - 1, end - 1) for first, end in bounds])


def memory(symbols: int, windows: int) -> None:
    """One row: windows, and the most held during the pass beyond what was held before, in MB."""
    length = 64
    panel = made(symbols, windows, length)
    task, origins = task_for(panel, length), origins_of(panel, length)
    forecast(
        task, panel, origins[next(batches(len(origins), length))], length
    )  # what torch holds from its first pass on
    ctypes.CDLL(None).malloc_trim(0)  # glibc keeps a part of it, more or less by chance
    before = resident()
    start = time.process_time()
    with Peak() as peak:
        survey(task, panel, origins, length, standard(panel, origins, length), lambda _: None)
    seconds = time.process_time() - start
    held = (peak.most - before) / 1e6
    print(
        f"{len(origins):>9,} {symbols:>8} {panel.features.nbytes / 1e6:>9.0f} {held:>9.0f} {seconds:>9.1f}", flush=True
    )


def ratios(plain: Callable[[], object], works: list[Callable[[], object]]) -> tuple[float, list[float]]:
    """Median processor time of the plain pass in seconds, and of each work as a multiple of the plain pass before it.

    One after the other in every round: what else the machine does meets all of them.
    """
    taken: list[list[float]] = []
    for _ in range(REPEATS + 1):
        taken.append([])
        for work in (plain, *works):
            start = time.process_time()
            work()
            taken[-1].append(time.process_time() - start)
    rounds = np.array(taken[1:])  # the first one warms up
    return float(np.median(rounds[:, 0])), np.median(rounds[:, 1:] / rounds[:, :1], axis=0).tolist()


def times(length: int, windows: int) -> None:
    """One row: the plain pass in ms, and as multiples of it what looks at the last bar's query and at all of them.

    all queries: the forward pass that gives every layer's sums of attention by lag besides; its last layer computes one
    query only, as it does in the plain pass. both: with the last bar's attention of all layers, raw and norm-weighted.
    """
    panel = made(1, windows, length)
    task, origins = task_for(panel, length), origins_of(panel, length)
    probes = standard(panel, origins, length)

    def plain() -> None:
        for part in batches(len(origins), length):
            forecast(task, panel, origins[part], length)

    def last() -> None:
        for _ in looks(task, panel, origins, length, last_only=True):
            pass

    def every() -> None:
        with ExitStack() as stack:
            for layer in range(LAYERS - 1):
                stack.enter_context(by_lag(task.headed.attention(layer), LagSums(HEADS, length)))
            plain()

    def both() -> None:
        sums = {layer: LagSums(HEADS, length) for layer in range(LAYERS - 1)}
        for _ in looks(task, panel, origins, length, last_only=True, every=sums):
            pass

    def whole() -> None:
        survey(task, panel, origins, length, probes, lambda _: None)

    fused, found = ratios(plain, [last, every, both, whole])
    asked = (LAST_BAR, EVERY[length])
    told = [f"{ratio:.2f} (at most {most:.1f})" for ratio, most in zip(found[:2], asked, strict=True)]
    print(f"{length:>6} {windows:>8} {1e3 * fused:>9.0f} {told[0]:>20} {told[1]:>20} {found[2]:>6.2f} {found[3]:>7.2f}")


def main() -> None:
    """All sizes, or one of them in this process."""
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["--one"]:
        {"memory": memory, "time": times}[sys.argv[2]](*map(int, sys.argv[3:]))
        return
    wanted = sys.argv[1:] or ["memory", "time"]
    titles = {
        "memory": f"{'windows':>9} {'symbols':>8} {'panel MB':>9} {'pass MB':>9} {'cpu s':>9}",
        "time": f"window  windows  plain ms {'last bar':>20} {'all queries':>20}   both  survey",
    }
    for name, sizes in (("memory", MEMORY), ("time", TIMES)):
        if name in wanted:
            print(titles[name], flush=True)
            for size in sizes:
                subprocess.run([sys.executable, __file__, "--one", name, *map(str, size)], check=True)


if __name__ == "__main__":
    main()
