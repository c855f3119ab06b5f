"""What every side of the race is given and measured with; runs in the peers' environment too, without this project."""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

# The size at which everybody trains, and how.
LENGTH, WIDTH, HEADS, LAYERS, FEEDFORWARD, DROPOUT = 64, 64, 8, 3, 128, 0.1
QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
RATE, DECAY, CLIP = 1e-3, 0.01, 1.0
WARM = 3  # steps before the clock counts
FOREVER = 10**6  # epochs or steps, where the watch ends a training
MIB = 1 << 20


@dataclass(frozen=True)
class Order:
    """One measurement that a process of its own makes: `prepare`, `rate` or `quality`, of one side.

    batch: windows. seconds: how long a rate is taken. mark: the pinball loss to reach; limit: seconds given for it.
    threads: of the process. options: what only this side understands.
    """

    task: str
    panel: str
    out: str
    batch: int = 256
    seconds: float = 8.0
    mark: float = 0.0
    limit: float = 100.0
    threads: int = 2
    options: list[str] = field(default_factory=list)


def order() -> Order:
    """The order that stands on the command line."""
    return Order(**json.loads(sys.argv[1]))


def report(order: Order, **result: Any) -> None:
    """Hands a result back."""
    Path(order.out).write_text(json.dumps(result))


@dataclass(frozen=True)
class Table:
    """The panel as series: y [R], scaled target, and x [R, F], the other features, symbol after symbol.

    counts [S]: bars of each symbol, of which the first `known` [S] are for training, the others for validation.
    """

    y: np.ndarray
    x: np.ndarray
    names: list[str]
    counts: np.ndarray
    known: np.ndarray

    @classmethod
    def read(cls, path: str) -> "Table":
        with np.load(path) as file:
            return cls(file["y"], file["x"], list(file["names"]), file["counts"], file["known"])

    def write(self, path: str) -> None:
        np.savez(path, y=self.y, x=self.x, names=np.array(self.names), counts=self.counts, known=self.known)

    def frame(self) -> pd.DataFrame:
        """A long frame, as the peers take it: symbol, bar (0, 1, ...), y and the features."""
        names = np.array([f"S{number:05d}" for number in range(len(self.counts))])
        bars = np.concatenate([np.arange(count) for count in self.counts])
        keys = pd.DataFrame({"symbol": np.repeat(names, self.counts), "bar": bars, "y": self.y})
        return pd.concat([keys, pd.DataFrame(self.x, columns=self.names)], axis=1)

    def parts(self) -> Iterator[tuple[slice, int]]:
        """Rows of each symbol, and how many of them are for training."""
        ends = np.cumsum(self.counts)
        for end, count, known in zip(ends, self.counts, self.known, strict=True):
            yield slice(end - count, end), int(known)

    def first(self, symbols: int) -> "Table":
        """That of the first symbols alone."""
        end = int(self.counts[:symbols].sum())
        return Table(self.y[:end], self.x[:end], self.names, self.counts[:symbols], self.known[:symbols])

    @property
    def windows(self) -> int:
        """Training windows: those whose target is a training bar."""
        return int((self.known - LENGTH).sum())


def resident() -> int:
    """Bytes of memory that this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class Peak:
    """The most memory held while it is open, looked at every 5 ms."""

    def __enter__(self) -> "Peak":
        self.before = resident()
        self.most, self._open = self.before, True
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while self._open:
            self.most = max(self.most, resident())
            time.sleep(0.005)

    @property
    def growth(self) -> float:
        """MiB more than at the beginning."""
        return (self.most - self.before) / MIB

    def __exit__(self, *_: object) -> None:
        self._open = False
        self._thread.join()


def prepared(order: Order, prepare: Callable[[Table, pd.DataFrame], Any]) -> tuple[Any, dict[str, float]]:
    """What a side makes of the table and its frame, beside seconds and MiB that it took; not its first time."""
    table = Table.read(order.panel)
    small = table.first(2)
    prepare(small, small.frame())
    frame = table.frame()
    with Peak() as held, timed() as took:
        made = prepare(table, frame)
    return made, {"prepare": took(), "prepare_mib": held.growth}


@contextmanager
def timed() -> Iterator[Callable[[], float]]:
    """Seconds since the beginning, or that the block took once it has ended."""
    start, took = time.perf_counter(), list[float]()
    yield lambda: took[0] if took else time.perf_counter() - start
    took.append(time.perf_counter() - start)


def _now() -> np.ndarray:
    return np.array([time.perf_counter(), time.process_time()])


class Watch:
    """One training's clock: counts its windows, takes its validation losses, and says when it is enough."""

    def __init__(self, order: Order) -> None:
        self.order, self.steps = order, 0
        self.windows = self.origins = 0
        self.losses: list[tuple[float, float]] = []
        self._before, self._since, self._counted = np.zeros(2), None, np.ones(2)

    def go(self) -> None:
        """Starts the clock, or goes on with it."""
        self._since = _now()

    def pause(self) -> None:
        """Stops the clock meanwhile."""
        self._before, self._since = self._clock, None

    @property
    def _clock(self) -> np.ndarray:
        return self._before + (0.0 if self._since is None else _now() - self._since)

    @property
    def spent(self) -> float:
        """Seconds on the clock."""
        return float(self._clock[0])

    def step(self, windows: int, origins: int) -> bool:
        """Counts a step; True when it is enough."""
        self.steps += 1
        if self.order.task == "quality":
            return self.spent > self.order.limit
        if self.steps <= WARM:
            self._before, self._since = np.zeros(2), _now()
            return False
        self.windows, self.origins, self._counted = self.windows + windows, self.origins + origins, self._clock
        return self.spent > self.order.seconds

    def validated(self, pinball: float) -> bool:
        """Takes the pinball loss on the validation part; True when it is enough."""
        self.losses.append((self.spent, pinball))
        return self.order.task == "quality" and pinball <= self.order.mark

    def result(self) -> dict[str, Any]:
        """What it has seen, for `report`."""
        reached = [seconds for seconds, loss in self.losses if loss <= self.order.mark]
        spent, cores = self._counted
        return {
            "windows_per_s": self.windows / spent if self.windows else None,
            "origins_per_s": self.origins / spent if self.windows else None,
            "core_ms": 1e3 * cores / self.windows if self.windows else None,
            "seconds": min(reached) if reached else None,
            "epochs": len(self.losses),
            "best": min((loss for _, loss in self.losses), default=None),
        }


def callback(base: type, watch: Watch, loss: str, share: float) -> Any:
    """A Lightning callback (of the module that the peer uses) that keeps the watch; validation isn't on the clock.

    loss: the name of the peer's validation loss, of which the mean pinball is that share.
    """

    class Watching(base):
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            watch.go()

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if watch.step(watch.order.batch, watch.order.batch):
                trainer.should_stop = True

        def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
            watch.pause()

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            if watch.validated(share * float(trainer.callback_metrics[loss])):
                trainer.should_stop = True
            watch.go()

    return Watching()


def trainer_options(callbacks: list[Any], **more: Any) -> dict[str, Any]:
    """What every peer's Lightning trainer is told: a CPU, and nothing written or shown."""
    return {
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        "gradient_clip_val": CLIP,
        "callbacks": callbacks,
        **more,
    }
