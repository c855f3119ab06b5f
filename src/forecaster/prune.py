"""From a trained run to a smaller one: heads cut out of its network, as a run of its own."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from forecaster import compose, curve, line, run
from forecaster.bars.atomic import whole
from forecaster.data import say
from forecaster.errors import ConfigError, DataError
from forecaster.networks import pruning as cut
from forecaster.prepare import Line
from forecaster.probes.importance import every_head
from forecaster.probes.knockout import Head, losses, point_forecasts, training_means
from forecaster.probes.pruning import heads_in_order, removable
from forecaster.probes.removal import Ground, constants, ground
from forecaster.saved import load
from forecaster.training import checkpoints
from forecaster.training.task import Task

SAME: Final = 1e-4  # of a loss: floats of another machine, not another network


@dataclass(frozen=True)
class Asked:
    """How much is to go: a share of the heads, or as many as cost no target more than this share of its skill."""

    typed: str
    share: float | None = None
    loss: float | None = None


def prune(directory: Path, asked: Asked) -> tuple[Path, str]:
    """Writes a smaller run into a directory inside the run, and says what went and what it costs on test.

    Heads go in the order of their importance on validation, which the run's pruning curve holds; one that has none
    gets it. Raises ConfigError for a share that is no head, DataError where no head can go at the loss asked for.
    """
    # As it was written: `load` fills in the window that the run chose, and the smaller run's checkpoint says none.
    found = replace(load(directory), config=compose.load(directory / run.CONFIG))
    heads = every_head(found.task)
    if asked.share is not None and not 0 < int(asked.share * len(heads) + 1e-9) < len(heads):
        raise ConfigError(
            f"{asked.typed} of {len(heads)} heads leaves all of them or none: give 1/{len(heads)} at least, under 1"
        )
    table = _curve(found, directory)
    order = heads_in_order(table)
    test = ground(found.task, found.panel, found.split, found.length, "test")
    if sorted(order) != heads or not _same_loss(table, test):
        raise DataError(f"{directory / 'pruning.csv'} is of another network: remove it, it is then measured again")
    removed = order[: _number(table, len(heads), asked)]
    outputs = constants(training_means(found.task, found.panel, found.split.train, found.length))
    smaller = deepcopy(found.task)
    cut.remove(smaller.headed, removed, outputs)
    loss_C = _loss(smaller, found, test)
    kept = [
        [head for at, head in heads if at == layer and (at, head) not in removed]
        for layer in range(found.task.headed.layers)
    ]
    before, after = (sum(p.numel() for p in task.network.parameters()) for task in (found.task, smaller))
    content = checkpoints.load(directory / checkpoints.BEST)

    def station(made: Line, target: Path) -> None:
        described = {**checkpoints.described(content), "heads_kept": kept}
        (target / checkpoints.BEST).parent.mkdir(parents=True, exist_ok=True)
        with whole(target / checkpoints.BEST) as file:
            chosen = {name: content[name] for name in checkpoints.FORECASTING if name in content}
            torch.save({**chosen, "state_dict": smaller.state_dict(), "forecaster": described}, file)
        run.update_summary(
            target,
            pruned=asked.typed,
            heads_kept=kept,
            parameters_before=before,
            best_epoch=checkpoints.epoch(content, directory / checkpoints.BEST),
            loss_on_test={
                gate.target: {"before": float(test.loss_nC[:, c].mean()), "after": float(loss_C[c])}
                for c, gate in enumerate(test.gates)
            },
        )
        line.score(made, target)
        if made.config.probes.enabled:
            line.look(made, target)

    target = line.beside(directory, replace(found, task=smaller), "prune", station)
    return target, told(removed, kept, (before, after), test, loss_C)


def told(
    removed: Sequence[Head],
    kept: Sequence[Sequence[int]],
    parameters: tuple[int, int],
    test: Ground,
    loss_C: Float[np.ndarray, " C"],
) -> str:
    """What went, and the loss on test before and after, a line each."""
    count, (before, after) = len(removed) + sum(map(len, kept)), parameters
    names = " ".join(f"L{layer}H{head}" for layer, head in removed)
    left = ", ".join(str(len(heads)) for heads in kept)
    lines = [
        f"{len(removed)} of {count} heads removed: {names}; left by layer: {left}",
        f"parameters {before:,} before, {after:,} after ({after / before - 1:+.1%})",
    ]
    for c, gate in enumerate(test.gates):
        whole_loss = float(test.loss_nC[:, c].mean())
        rise = float(loss_C[c]) - whole_loss
        of_skill = "no skill on test to lose"
        if c in test.open:
            of_skill = f"{'gains' if rise < 0 else 'loses'} {100 * abs(rise) / gate.skill:.1f} % of its skill"
        lines.append(f"{gate.target}: loss on test {whole_loss:.5g} before, {loss_C[c]:.5g} after ({of_skill})")
    return "".join(f"{text}\n" for text in lines)


def _curve(found: Line, directory: Path) -> pd.DataFrame:
    """The run's curve; where it has none, it is measured and kept in the run."""
    table = run.read_tables(directory).get("pruning")
    if table is None:
        with run.held(directory):
            table = curve.draw(found, directory, say).pruning
            line.write_report(directory)
    return table


def _same_loss(table: pd.DataFrame, test: Ground) -> bool:
    """Whether the curve begins with this network's loss on test; another seed's has the same heads."""
    begins = table.query("removed == 0 and part == 'test' and order == 'importance'")
    told = dict(zip(begins["target"], begins["loss"].astype(float), strict=True))
    own = {gate.target: float(test.loss_nC[:, c].mean()) for c, gate in enumerate(test.gates)}
    return told.keys() == own.keys() and all(abs(told[name] / loss - 1) < SAME for name, loss in own.items())


def _number(table: pd.DataFrame, count: int, asked: Asked) -> int:
    """How many heads go; at least one stays."""
    if asked.share is not None:
        return int(asked.share * count + 1e-9)
    assert asked.loss is not None
    found = removable(table[table["removed"] < count], "importance", "validation", asked.loss)
    if found is None:
        raise DataError(
            f"{asked.typed}: no target is forecast with skill on validation, so no head has a share of it; give share="
        )
    [number] = found.values()
    if not number:
        raise DataError(f"{asked.typed}: the first head to go costs some target more on validation; give a larger loss")
    return number


def _loss(task: Task, found: Line, test: Ground) -> Float[np.ndarray, " C"]:
    mean_nHC = point_forecasts(task, found.panel, test.origins, found.length)
    return losses(task, found.panel, test.origins, mean_nHC, test.units_nC).mean(0)
