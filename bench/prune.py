"""What fewer heads save: `python bench/prune.py [RUN]`, forward passes of the whole and of the pruned network by turns.

Without a run an untrained network of the default's sizes; with one its own, shapes and windows. What is timed is the
forecast of 512 windows in evaluation mode on one thread; the heads are taken out of all layers alike, the last ones.
"""

import sys
import time
from copy import deepcopy
from pathlib import Path

import numpy as np
import torch

from forecaster import saved
from forecaster.networks.pruning import heads_by_layer, remove
from forecaster.probes.capture import forecast
from forecaster.training.task import Task
from forecaster.windows.panel import Panel
from probes import made, origins_of, task_for

SHARES = (0.25, 0.5, 0.75, 1.0)
WINDOWS, LENGTH, TURNS = 512, 64, 15


def pruned(task: Task, share: float) -> Task:
    """A copy without this share of each layer's heads."""
    smaller = deepcopy(task)
    counts = heads_by_layer(smaller.headed)
    gone = [(layer, head) for layer, n in enumerate(counts) for head in range(n - round(share * n), n)]
    width = smaller.headed.attention(0).head_width
    remove(smaller.headed, gone, [torch.zeros(n, width) for n in counts])
    return smaller


def ratio(whole: Task, smaller: Task, panel: Panel, origins: np.ndarray, length: int) -> tuple[float, float]:
    """Median time of the smaller network over the whole one's, by turns; and the median of the whole one, in ms."""
    taken = np.zeros((TURNS, 2))
    for turn in range(-1, TURNS):  # the first is not counted
        for place, task in enumerate((whole, smaller)):
            start = time.process_time()
            forecast(task, panel, origins, length)
            taken[turn, place] = time.process_time() - start
    return float(np.median(taken[:, 1] / taken[:, 0])), 1e3 * float(np.median(taken[:, 0]))


def main() -> None:
    torch.set_num_threads(1)
    if sys.argv[1:]:
        line = saved.load(Path(sys.argv[1]))
        whole, panel, length, origins = line.task, line.panel, line.length, line.split.test[:WINDOWS]
    else:
        panel, length = made(1, WINDOWS, LENGTH), LENGTH
        whole, origins = task_for(panel, length), origins_of(panel, length)
    print("removed  left by layer   parameters  whole ms  time ratio", flush=True)
    for share in SHARES:
        smaller = pruned(whole, share)
        count = sum(parameter.numel() for parameter in smaller.network.parameters())
        faster, milliseconds = ratio(whole, smaller, panel, origins, length)
        left = ", ".join(map(str, heads_by_layer(smaller.headed)))
        print(f"{share:>7.0%}  {left:>13} {count:>12,} {milliseconds:>9.0f} {faster:>11.2f}", flush=True)


if __name__ == "__main__":
    main()
