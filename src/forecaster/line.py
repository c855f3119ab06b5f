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

from forecaster import compose, curve, run
from forecaster.bars import store
from forecaster.bars.atomic import whole
from forecaster.bars.cleaning import PoisonedBarsError
from forecaster.bars.contract import Bars
from forecaster.beginning import begin, check
from forecaster.config import Config
from forecaster.data import load_bars, say
from forecaster.errors import ConfigError, DataError, ForecasterError
from forecaster.fitting import asked, fitted
from forecaster.forecasts import baselines, frame, network, scores, significance
from forecaster.prepare import Line, attainable, description, facts, prepare, versions
from forecaster.report.quality import quality_line
from forecaster.report.values import is_trained
from forecaster.saved import check_trained, load
from forecaster.training import checkpoints
from forecaster.training.loggers import logger
from forecaster.windows import splits

TEXT_WIDTH = 100  # where there is no terminal to ask
NAMED = 12  # symbols named when a training begins
NO_MEMORY = ("can't allocate memory", "out of memory")  # torch's words, on a CPU and on a GPU
FEW = 1024  # windows: a batch of no more may be larger than the training part, which is then one batch


def train(config: Config, directory: Path) -> str:
    """Bars to report, into a new run directory; the summary says how it ended, and the result in a few words."""
    asked(config.trainer).check()
    check(config)
    with run.held(directory):
        run.check_new(directory)
        with _status(directory):
            run.begin(directory, compose.to_yaml(config))
            return _finish(config, directory, None)


def resume(directory: Path, overrides: Sequence[str] = ()) -> str:
    """Goes on with a run that was stopped, at whatever station, as if it had not been."""
    with run.held(directory):
        config = compose.load(directory / run.CONFIG, overrides)
        asked(config.trainer).check()
        with _status(directory):
            return _finish(config, directory, run.go_on(directory))


def _finish(config: Config, directory: Path, done: set[str] | None) -> str:
    """The stations that a run has not done yet; None for a new one."""
    kept = logger(config.logger.kind, directory, config.experiment_name)
    bars = _loaded(config, directory) if done is None else _kept(config, directory)
    line = prepare(config, bars, directory)
    check_batch(line)
    begin(line, directory)
    sha256 = (None if done is None else store.fingerprint(directory)) or store.keep(bars, directory)
    run.write_table(directory, "quality", line.quality)
    run.update_summary(directory, **facts(line), bars_sha256=sha256)
    if done is not None:
        _check_kept(line, directory)
    say(quality_line(line.quality))
    say(_opening(line, directory))
    progress, resume = sys.stderr.isatty(), done is not None
    trained = fitted(line, directory, logger=kept, say=say, progress=progress, resume=resume)
    run.update_summary(directory, best_epoch=trained.epoch)
    run.add_timings(directory, training=trained.seconds)
    if not done or "scores" not in done:
        score(line, directory)
    if config.probes.enabled and (not done or "probes" not in done):
        look(line, directory)
    write_report(directory)
    run.update_summary(directory, status="complete")
    return in_short(directory)


def check_batch(line: Line) -> None:
    """Raises ConfigError for a batch that no training part fills; a few bars below a usual size are one batch."""
    size, windows = line.config.data.batch_size, len(line.split.train)
    if size > max(windows, FEW):
        raise ConfigError(
            f"data.batch_size={size} is larger than the training part, of {windows:,} windows; give {windows} at most"
        )


def _kept(config: Config, directory: Path) -> Bars:
    """The bars that the run began with; the source's where it was stopped before it had any."""
    found = store.fingerprint(directory)
    if found is None:
        return _loaded(config, directory)
    begun = run.read_summary(directory).get("bars_sha256", found)
    if found != begun:
        raise DataError(
            f"the bars in {directory} have SHA-256 {found}, the run began with {begun}: put those back, or train again"
        )
    return store.kept(directory)


def _check_kept(line: Line, directory: Path) -> None:
    """Raises DataError where a checkpoint was trained with anything else; tells of other releases."""
    paths = [path for name in (checkpoints.LAST, checkpoints.BEST) if (path := directory / name).is_file()]
    contents = [checkpoints.load(path) for path in paths]
    for path, content in zip(paths, contents, strict=True):
        check_trained(line.config, content, path)
        checkpoints.verify(content, description(line.config, line.panel, line.length), path)
    if not contents:
        return
    told, now = checkpoints.described(contents[0]).get("versions"), versions()
    before = cast("dict[object, object]", told) if isinstance(told, dict) else {}
    if other := [f"{name} {before.get(name)}, now {now[name]}" for name in now if before.get(name) != now[name]]:
        say(f"warning: the run began under {', '.join(other)}: its weights may end otherwise than without the stop")


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
        with run.held(directory):
            station(line, directory)
            write_report(directory)
        return directory
    return beside(directory, line, verb, station)


def beside(directory: Path, line: Line, verb: str, station: Callable[[Line, Path], None]) -> Path:
    """What a line's station makes of a run, into a directory of its own inside the run."""
    target = directory / f"{verb}-{time.strftime('%Y-%m-%d_%H-%M-%S')}-{os.getpid()}-{secrets.token_hex(3)}"
    with _status(target):
        run.begin(target, compose.to_yaml(line.config))
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
    from forecaster.nulls import networks
    from forecaster.probes.heads import probe as probe_heads

    with _timed(directory, "probes"):
        null, wanted, what = networks(line, directory, say), line.config.probes, (line.task, line.panel, line.split)
        causal, drift = wanted.causal, wanted.drift
        probed = probe_heads(*what, line.length, networks=null, causal=causal, drift=drift, progress=say)
        for name, table in probed.tables().items():
            run.write_table(directory, name, table)
        with whole(directory / run.MEANS) as file:
            torch.save(probed.means, file)
        run.update_summary(directory, gates=probed.gates)
        if line.config.probes.pruning:
            curve.draw(line, directory, say)


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
        console.print(sentence, highlight=False, soft_wrap=True, markup=False)
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
        summary = run.read_summary(directory)
        tables |= run.read_closes(directory, summary)
        run.write_text(directory / run.REPORT, page(tables, summary))
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
        run.update_summary(directory, status="failed", error=str(fault), exit_code=fault.exit_code)
        raise
    except Exception as fault:
        run.update_summary(directory, status="failed", error=f"{type(fault).__name__}: {fault}")
        if isinstance(fault, MemoryError) or any(words in str(fault) for words in NO_MEMORY):
            raise ConfigError(
                "the memory is too small for this network and these batches: lower model.width, model.layers, "
                "model.window or data.batch_size"
            ) from fault
        raise
    except BaseException:
        run.update_summary(directory, status="interrupted")
        raise
