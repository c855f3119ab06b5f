"""The whole line: bars -> windows -> network -> training -> forecasts -> probes -> report."""

import os
import secrets
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
import torch

from forecaster import compose, run
from forecaster.bars import store
from forecaster.bars.atomic import whole
from forecaster.bars.cleaning import PoisonedBarsError
from forecaster.bars.contract import Bars
from forecaster.config import Config
from forecaster.data import load_bars, say
from forecaster.errors import ForecasterError
from forecaster.forecasts import baselines, frame, network, scores, significance
from forecaster.prepare import Line, attainable, description, facts, prepare, versions
from forecaster.report.quality import quality_line
from forecaster.report.values import is_trained
from forecaster.saved import load
from forecaster.training.fit import fit
from forecaster.training.loggers import logger
from forecaster.windows import datamodule, splits

TEXT_WIDTH = 100  # where there is no terminal to ask
NAMED = 12  # symbols named when a training begins


def train(config: Config, directory: Path) -> str:
    """Bars to report, into a new run directory; the summary says how it ended, and the result in a few words."""
    run.begin(directory, compose.to_yaml(config))
    with _status(directory):
        kept = logger(config.logger.kind, directory, config.experiment_name)
        bars = _loaded(config, directory)
        line = prepare(config, bars, directory)
        sha256 = store.keep(bars, directory)
        run.write_table(directory, "quality", line.quality)
        run.update_summary(directory, **facts(line), bars_sha256=sha256)
        say(quality_line(line.quality))
        say(_opening(line, directory))
        with _timed(directory, "training"):
            epoch = fit(
                line.task,
                datamodule.Bars(line.panel, line.split, line.length, config.data.batch_size, config.seed),
                directory,
                {
                    **description(line.config, line.panel, line.length),
                    "config": compose.to_yaml(config),
                    "train_end": line.split.train_day,
                    "validation_end": line.split.validation_day,
                    "versions": versions(),
                },
                max_epochs=config.trainer.max_epochs,
                patience=config.trainer.patience,
                average=config.trainer.average,
                logger=kept,
                say=say,
                progress=sys.stderr.isatty(),
            )
        run.update_summary(directory, best_epoch=epoch)
        score(line, directory)
        if config.probes.enabled:
            look(line, directory)
        write_report(directory)
        run.update_summary(directory, status="complete")
    return in_short(directory)


def _loaded(config: Config, directory: Path) -> Bars:
    """The source's bars; where some would poison the training, quality.csv says all that is wrong before it stops."""
    try:
        return load_bars(config.source)
    except PoisonedBarsError as fault:
        run.write_table(directory, "quality", fault.quality)
        raise


def evaluate(directory: Path, overrides: Sequence[str] = ()) -> Path:
    """Scores a saved run again, in place; on other bars or options into a directory of its own inside the run."""
    return _again(directory, overrides, "evaluate", score)


def probe(directory: Path, overrides: Sequence[str] = ()) -> Path:
    """Probes a saved run again, in place; on other bars or options into a directory of its own inside the run."""
    return _again(directory, overrides, "probe", look)


def _again(directory: Path, overrides: Sequence[str], verb: str, station: Callable[[Line, Path], None]) -> Path:
    line = load(directory, overrides)
    if all(override.lstrip("+").startswith("debug=") for override in overrides):
        # In place the status stays: it says how the training ended.
        station(line, directory)
        write_report(directory)
        return directory
    target = directory / f"{verb}-{time.strftime('%Y-%m-%d_%H-%M-%S')}-{os.getpid()}-{secrets.token_hex(3)}"
    run.begin(target, compose.to_yaml(line.config))
    with _status(target):
        store.keep(line.bars, target)
        run.update_summary(target, of=directory.absolute().name, **facts(line))
        run.write_table(target, "quality", line.quality)
        station(line, target)
        write_report(target)
        run.update_summary(target, status="complete")
    return target


def score(line: Line, directory: Path) -> None:
    """Forecasts of the network and the baselines on the test part; scores, tests and headline."""
    with _timed(directory, "scores"):
        built, parts = line.panel, line.split
        rows = np.concatenate([parts.validation, parts.test])
        model = line.config.model.kind
        forecasts = {model: network.forecast(line.task, built, rows, line.length)}
        for name in line.baselines:
            if any(baselines.applicable(name, target) for target in built.target_names):
                forecasts[name] = baselines.forecasts(name, built, parts.train, rows, line.length)
        together = pd.concat(
            [frame.tidy(name, forecast, built, rows) for name, forecast in forecasts.items()], ignore_index=True
        )
        held_out = together["origin"] > parts.validation_end
        validation, test = together[~held_out], together[held_out].reset_index(drop=True)
        smearing = scores.smearing(validation)
        means = baselines.training_means(built, parts.train)
        table = scores.scores(test, means, smearing)
        tested = significance.tests(test, model, smearing)
        frame.write(test, directory / run.FORECASTS)
        run.write_table(directory, "scores", table)
        run.write_table(directory, "tests", tested)
        run.write_table(directory, "pit", scores.pit(test))
        run.update_summary(directory, headline=significance.headline(tested, table), **attainable(line))


def look(line: Line, directory: Path) -> None:
    """Probes every attention head; says so where the network has none."""
    if line.task.network.heads == 0:
        run.update_summary(directory, gates=[f"{line.config.model.kind} has no attention heads to probe"])
        return
    from forecaster.probes.heads import probe as probe_heads

    with _timed(directory, "probes"):
        probed = probe_heads(line.task, line.panel, line.split, line.length, interval=line.bars.interval, progress=say)
        run.write_table(directory, "heads", probed.heads)
        run.write_table(directory, "head_facts", probed.head_facts)
        run.write_table(directory, "knockouts", probed.knockouts)
        run.write_table(directory, "lag_profiles", probed.lag_profiles)
        with whole(directory / run.MEANS) as file:
            torch.save(probed.means, file)
        run.update_summary(directory, gates=probed.gates)


def in_short(directory: Path) -> str:
    """The network's pooled r2 of each target, and how many heads are functional: a row of a sweep's table."""
    tables = run.read_tables(directory)
    scored = tables["scores"].astype(str)
    asked = {"symbol": "all", "metric": "r2", "step": "1"}
    rows = scored[(scored[list(asked)] == pd.Series(asked)).all(axis=1) & scored["model"].map(is_trained)]
    told = [f"{target} {value[:6]}" for target, value in zip(rows["target"], rows["value"], strict=True)]
    if "heads" in tables:
        heads = tables["heads"].query("label == 'functional'")
        told.append(f"{len(heads[['layer', 'head']].drop_duplicates())} functional heads")
    return ", ".join(told)


def shown(directory: Path) -> str:
    """Headline, scores and labelled heads as text for the terminal."""
    from rich.console import Console

    from forecaster.report.terminal import heads_table, scores_table

    tables = run.read_tables(directory)
    terminal = sys.stdout.isatty()
    text = StringIO()
    console = Console(file=text, force_terminal=terminal, width=None if terminal else TEXT_WIDTH)
    for sentence in cast("list[str]", run.read_summary(directory).get("headline", [])):
        console.print(sentence, highlight=False, soft_wrap=True)
    if "scores" in tables:
        console.print(scores_table(tables["scores"], tables["tests"]))
    if "heads" in tables:
        console.print(heads_table(tables["heads"]))
    return text.getvalue()


def write_report(directory: Path) -> Path:
    """The report of what the run directory holds."""
    from forecaster.report.page import page

    with _timed(directory, "report"):
        tables = run.read_tables(directory)
        if (directory / run.FORECASTS).is_file():
            tables["forecasts"] = frame.read(directory / run.FORECASTS)
        run.write_text(directory / run.REPORT, page(tables, run.read_summary(directory)))
    return directory / run.REPORT


def _opening(line: Line, directory: Path) -> str:
    told = facts(line)
    named = ", ".join(line.panel.symbols[:NAMED])
    if more := len(line.panel.symbols[NAMED:]):
        named += f" and {more} more"
    parts = ", ".join(f"{name} {line.split.counts[name].told}" for name in splits.PARTS)
    return (
        f"{told['experiment']}: {named}, {told['first']} to {told['last']}; window {line.length} bars; "
        f"windows {parts}; {told['parameters']:,} parameters; {directory}"
    )


@contextmanager
def _timed(directory: Path, name: str) -> Generator[None]:
    start = time.monotonic()
    yield
    run.add_timings(directory, **{name: time.monotonic() - start})


@contextmanager
def _status(directory: Path) -> Generator[None]:
    try:
        yield
    except ForecasterError as fault:
        run.update_summary(directory, status="failed", error=str(fault))
        raise
    except Exception as fault:
        run.update_summary(directory, status="failed", error=f"{type(fault).__name__}: {fault}")
        raise
    except BaseException:
        run.update_summary(directory, status="interrupted")
        raise
