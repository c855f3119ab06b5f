"""`forecaster budget`: what heads and networks cost, as tables."""

from collections.abc import Sequence
from io import StringIO

from rich.console import Console
from rich.table import Table

from forecaster.config import Config
from forecaster.data import DEFAULT_WINDOW
from forecaster.networks import budget
from forecaster.networks.choice import KINDS, network, parameters
from forecaster.prepare import shape_of
from forecaster.windows.features import FEATURES, WEEKDAYS

WIDTH = 120


def heads_text(width: int, heads: Sequence[int], layers: int) -> str:
    """A row for each number of heads at the width: parameters without biases, cache, width per head, operations."""
    names = ("width per head", "parameters", "of Q, K, V", "of one head", "cache per token", "attention operations")
    table = _table("heads", *names)
    for cost in budget.costs(width, heads, layers):
        numbers = (cost.heads, cost.head_width, cost.parameters, cost.inputs, cost.head, cost.cache, cost.operations)
        table.add_row(*(f"{number:,}" for number in numbers))
    head = f"width {width:,}, {layers:,} {'layer' if layers == 1 else 'layers'}; parameters and cache of one layer\n"
    return head + _printed(table)


def experiment_text(config: Config) -> str:
    """Networks of an experiment: each kind at its size, then the parts of its own network and its heads."""
    # On full daily bars; a window left open is the default one.
    length = config.model.window or DEFAULT_WINDOW
    shape = shape_of(config, len(FEATURES), length, config.data.horizon, len(config.data.targets), len(WEEKDAYS))
    own = config.model.kind
    table = _table("network", "parameters", "to attention", "multiply-adds a window")
    wanted = parameters("attention", shape)
    for kind in KINDS:
        made = network(kind, shape)
        found = sum(parameter.numel() for parameter in made.parameters())
        adds = budget.multiply_adds(made, shape.features, shape.horizon, shape.future)
        table.add_row(f"{kind} *" if kind == own else kind, f"{found:,}", f"{found / wanted:.1%}", f"{adds:,}")
    parts = _table(f"parts of {own}", "parameters")
    for part, count in budget.by_part(network(own, shape)).items():
        parts.add_row(part, f"{count:,}")
    head = (
        f"{config.experiment_name}: window {shape.length} bars, {shape.features} features, {shape.targets} targets, "
        f"horizon {shape.horizon}; * is trained\n"
    )
    heads = 1 if own == "single_head" else shape.heads
    return f"{head}{_printed(table)}{_printed(parts)}{heads_text(shape.width, [heads], shape.layers)}"


def _table(*names: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for number, name in enumerate(names):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    return table


def _printed(table: Table) -> str:
    text = StringIO()
    Console(file=text, width=WIDTH).print(table)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())
