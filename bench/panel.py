"""Time and memory of a universe's panel: `python bench/panel.py [symbols ...]`, each size in a process of its own."""

import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd

from forecaster.bars.calendar import Calendar
from forecaster.bars.contract import Bars, quality_report
from forecaster.windows import datamodule, panel, scaling, splits

SIZES = (64, 512, 4096)
BARS = 4000
WINDOW = 64
TARGETS = ("return", "volatility", "volume")
FIELDS = (
    "symbols",
    "panel GB",
    "build s",
    "cpu s",
    "ms/symbol",
    "peak GB",
    "peak/panel",
    "split s",
    "scaler s",
    "batch ms",
)


def made(symbols: int) -> Bars:
    """Random walks on the last XNYS sessions, cheaply: what they hold does not matter here."""
    rng = np.random.default_rng(0)
    sessions = Calendar("XNYS").sessions("2000-01-03", "2025-12-31")[-BARS:]
    count = symbols * BARS
    numbers = np.empty((5, count))
    for row, scale in zip(numbers[:3], (0.01, 0.002, 0.002), strict=True):
        rng.standard_normal(out=row)
        row *= scale
    close, high, low = numbers[:3]
    np.cumsum(close.reshape(symbols, BARS), axis=1, out=close.reshape(symbols, BARS))
    np.exp(close, out=close)
    for row, sign in ((high, 1.0), (low, -1.0)):
        np.abs(row, out=row)
        row *= sign
        np.exp(row, out=row)
        row *= close
    numbers[3] = close
    rng.standard_exponential(out=numbers[4])
    numbers[4] += 1.0
    names = pd.array([f"S{number:05d}" for number in range(symbols)], dtype="str")
    frame = pd.DataFrame({"symbol": names}).loc[np.repeat(np.arange(symbols), BARS)].reset_index(drop=True)
    frame["time"] = np.tile(sessions.to_numpy(), symbols)
    for name, row in zip(("open", "high", "low", "close", "volume"), (3, 1, 2, 0, 4), strict=True):
        frame[name] = numbers[row]
    return Bars(frame, quality_report(()), "XNYS", "1d", "synthetic")


def resident() -> int:
    """Bytes of memory that this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class Peak:
    """The most memory held while it is open, looked at every 5 ms."""

    def __enter__(self) -> "Peak":
        self.most, self._open = resident(), True
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while self._open:
            self.most = max(self.most, resident())
            time.sleep(0.005)

    def __exit__(self, *_: object) -> None:
        self._open = False
        self._thread.join()


def measured(symbols: int, in_memory_gb: float) -> dict[str, float]:
    panel.build(made(1), TARGETS, 1)  # loads calendar and libraries
    before = resident()
    bars = made(symbols)
    with tempfile.TemporaryDirectory() as folder, Peak() as peak:
        start, used = time.perf_counter(), time.process_time()
        built = panel.build(bars, TARGETS, 1, in_memory_gb=in_memory_gb, folder=Path(folder))
        seconds, cpu = time.perf_counter() - start, time.process_time() - used
    arrays = (built.features, built.targets, built.past, built.times, built.target_times, built.symbol_ids)
    size = sum(array.nbytes for array in arrays)
    start = time.perf_counter()
    parts = splits.split(built, WINDOW, 0.7, 0.85)
    split_seconds = time.perf_counter() - start
    start = time.perf_counter()
    scaling.fit(built, parts, WINDOW)
    scaler_seconds = time.perf_counter() - start
    windows = datamodule.Windows(built, WINDOW)
    origins = np.random.default_rng(0).choice(parts.train, 512)
    each = np.ones(len(origins), dtype=np.int64)  # one origin a window: its last bar
    start = time.perf_counter()
    windows[origins, each]
    batch = time.perf_counter() - start
    held = peak.most - before
    numbers = (symbols, size / 1e9, seconds, cpu, 1e3 * seconds / symbols, held / 1e9, held / size)
    return dict(zip(FIELDS, (*numbers, split_seconds, scaler_seconds, 1e3 * batch), strict=True))


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        row = measured(int(sys.argv[2]), float(sys.argv[3]))
        print("  ".join(f"{row[name]:>{max(9, len(name))}.5g}" for name in FIELDS), flush=True)
        return
    sizes = [int(text) for text in sys.argv[1:]] or SIZES
    for words, in_memory_gb in (("in memory", float("inf")), ("in a file", 0.0)):
        print(f"{BARS} bars a symbol, horizon 1, {len(TARGETS)} targets, window {WINDOW}, batch 512, {words}")
        print("  ".join(f"{name:>9}" for name in FIELDS), flush=True)
        for size in sizes:
            subprocess.run([sys.executable, __file__, "--one", str(size), str(in_memory_gb)], check=True)


if __name__ == "__main__":
    main()
