"""The pruning curve of a run, as its tables."""

from collections.abc import Callable
from pathlib import Path

from forecaster import run
from forecaster.prepare import Line
from forecaster.probes.pruning import Pruning, prune_curve


def draw(line: Line, directory: Path, say: Callable[[str], None]) -> Pruning:
    """Measures the curve and keeps it in the run: pruning.csv, importance.csv, the headline in the summary."""
    found = prune_curve(line.task, line.panel, line.split, line.length, say)
    for name, table in found.tables().items():
        run.write_table(directory, name, table)
    run.update_summary(directory, pruning=found.sentences)
    return found
