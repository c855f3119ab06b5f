"""The networks that the probes' nulls take: of the run's kind and recipe, untrained or trained on shuffled targets."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import lightning
import numpy as np
from jaxtyping import Float

from forecaster import run
from forecaster.bars import store
from forecaster.fitting import batches
from forecaster.networks.pruning import shape_like
from forecaster.prepare import Line, untrained
from forecaster.probes.noise import Networks
from forecaster.training import checkpoints
from forecaster.training.fit import fit
from forecaster.training.task import Task
from forecaster.windows import scaling


def networks(line: Line, directory: Path, say: Callable[[str], None]) -> Networks:
    """As many as the configuration asks for; directory: the run's, or one inside it that probes it again."""
    asked = line.config.probes
    epochs = _epochs(directory)

    def fresh(seed: int) -> Task:
        lightning.seed_everything(seed, verbose=False)
        task = untrained(line.config, line.panel, line.length, scaling.unfitted(line.panel))
        shape_like(task.headed, line.task.headed)
        scaler = {name: x for name, x in line.task.state_dict().items() if not name.startswith("network.")}
        task.load_state_dict({**task.state_dict(), **scaler})
        return task.to(line.task.device)

    def trained(targets: Float[np.ndarray, "R H C"], seed: int) -> Task:
        train = line.split.train
        known = np.isfinite(targets[train]).all(axis=(1, 2))
        noise = replace(
            line,
            config=replace(line.config, seed=seed),
            panel=replace(line.panel, targets=targets),
            split=replace(line.split, train=train[known]),
        )
        task, trainer = fresh(seed), line.config.trainer
        with TemporaryDirectory() as folder:
            fit(
                task,
                batches(noise),
                Path(folder),
                {},
                max_epochs=epochs,
                patience=epochs + 1,
                average=trainer.average,
                logger=False,
                say=say,
                progress=False,
            )
            # Not the best ones on validation: noise is to be learned for as long as the rule was.
            task.load_state_dict(checkpoints.weights(checkpoints.load(Path(folder) / checkpoints.LAST)))
        return task

    without = "" if epochs else "they take a training's bars and its kept checkpoint"
    return Networks(
        fresh,
        trained,
        asked.random_inits,
        asked.noise_seeds if epochs else 0,
        line.config.seed,
        without if asked.noise_seeds else "",
    )


def _epochs(directory: Path) -> int:
    """Epochs of the kept checkpoint; 0 where the directory's bars are not those of the training."""
    summary = run.read_summary(directory)
    if "of" in summary and "heads_kept" not in summary:  # a pruned run has its own weights and bars
        same = store.fingerprint(directory) == store.fingerprint(directory.parent)
        summary = run.read_summary(directory.parent) if same else {}
    epoch = summary.get("best_epoch")
    return epoch if isinstance(epoch, int) else 0
