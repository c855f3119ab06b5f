"""What needs no trained run: `bars`, `compare`, `budget`, going on with a run; and the options shared with train.py."""

import logging
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from forecaster.compose import RUNTIME, configured, load
from forecaster.config import HEADED
from forecaster.errors import ConfigError, DivergedError
from forecaster.explain import TYPED, display, parsed
from forecaster.launchers import limit_threads

LOGGED = "[%(asctime)s][%(name)s][%(levelname)s] - %(message)s"  # as Hydra does in the train.log of a training

log = logging.getLogger(__name__)


def bars(arguments: Sequence[str]) -> int:
    """Prints what a source holds; exit code 3 where a run on it would stop."""
    kept = [Path(argument.removeprefix("quality=")) for argument in arguments if argument.startswith("quality=")]
    multirun, overrides = options([argument for argument in arguments if not argument.startswith("quality=")])
    if multirun:
        raise ConfigError(f"-m is not an option of bars (in {TYPED}); load one source at a time")
    if given := [line for line in overrides if line.startswith("run=")]:
        raise ConfigError(f"{given[0]}: bars loads a source, no run (in {TYPED}); write forecaster bars source=NAME")
    if wrong := [path for path in kept if path.suffix != ".csv"]:
        raise ConfigError(f"quality={wrong[0]} is no CSV file (in {TYPED}); write quality=NAME.csv")
    # Without an experiment the parts' own values: those of sp500 end the training part in 2012.
    named = any(line.startswith("experiment=") for line in overrides)
    config = configured([*overrides, *([] if named else ["~experiment", "experiment_name=bars"])])
    from forecaster import data, run
    from forecaster.bars.cleaning import PoisonedBarsError
    from forecaster.report.quality import bars_text, quality_text

    poisoned: PoisonedBarsError | None = None
    try:
        bars = data.load_bars(config.source)
        quality, windows = data.preview(config, bars)
        text = f"{bars_text(bars)}{quality_text(quality)}{windows}\n"
    except PoisonedBarsError as fault:
        poisoned, quality, text = fault, fault.quality, quality_text(fault.quality)
    sys.stdout.write(text)
    for path in kept:
        run.write_table(path.parent, path.stem, quality)
    if poisoned:
        raise poisoned
    return 0


def resume(arguments: Sequence[str]) -> int:
    """Goes on with a run that was stopped; says so and does nothing where it is complete."""
    multirun, given = options(arguments)
    named = [argument.removeprefix("resume=") for argument in given if argument.startswith("resume=")]
    overrides = [argument for argument in given if not argument.startswith("resume=")]
    if multirun or len(named) != 1 or not named[0]:
        raise ConfigError(f"resume= takes one run, without -m (in {TYPED}); write train.py resume=DIR")
    for change in parsed(overrides):
        if change.key_or_group not in ("debug", *RUNTIME):
            raise ConfigError(
                f"{change.input_line} cannot change a run that was begun (in {TYPED}); resume it as it is or train anew"
            )
    directory = Path(named[0])
    check_run("resume", directory)
    made = directory.absolute().name.startswith(("evaluate-", "probe-", "prune-"))
    if made and (directory.absolute().parent / "config.yaml").is_file():
        raise ConfigError(
            f"{display(directory)} is no training, but made from one (in {TYPED}); evaluate or probe again"
        )
    limit_threads(load(directory / "config.yaml", overrides).trainer)
    if is_complete(directory):
        sys.stdout.write(f"{display(directory)} is complete: there is nothing to resume\n")
        return 0
    from forecaster import run  # pandas

    summary = run.read_summary(directory) if (directory / run.SUMMARY).exists() else {}
    if summary.get("exit_code") == DivergedError.exit_code:
        raise DivergedError(f"{display(directory)} can't go on: {summary.get('error')}")
    from forecaster import line  # torch

    logging.basicConfig(filename=directory / "train.log", level=logging.INFO, format=LOGGED)
    try:
        line.resume(directory, overrides)
    except Exception:
        log.exception("resumed training failed")
        raise
    sys.stdout.write(f"{line.shown(directory)}{display(directory / run.REPORT)}\n")
    return 0


def is_complete(directory: Path) -> bool:
    """Whether a run has nothing left to do."""
    from forecaster import run  # pandas

    return (directory / run.SUMMARY).exists() and run.read_summary(directory).get("status") == "complete"


def check_run(key: str, directory: Path) -> None:
    """Raises ConfigError where the directory that was typed holds no run."""
    if not (directory / "config.yaml").is_file():
        jobs = sorted(directory.glob("*/config.yaml"))
        remedy = f"give one of its jobs, {key}={jobs[0].parent}" if jobs else "give the directory that a training named"
        raise ConfigError(f"{key}={directory} is not a run directory: it has no config.yaml (in {TYPED}); {remedy}")


def heads(directory: Path, overrides: Sequence[str]) -> int:
    """Prints in words what was found of each head of a run."""
    if overrides:
        raise ConfigError(f"{overrides[0]} changes no finding (in {TYPED}); write forecaster heads run=DIR")
    from forecaster import run  # pandas

    tables = run.read_tables(directory)
    summary = run.read_summary(directory) if (directory / run.SUMMARY).exists() else {}
    if "heads" not in tables or tables["heads"].empty:
        if gates := summary.get("gates"):  # of a network without heads it says so
            sys.stdout.write(f"{display(directory)}: {' '.join(cast('list[str]', gates))}\n")
            return 0
        raise ConfigError(f"{display(directory)} has not been probed (in {TYPED}); forecaster probe run=DIR does it")
    from forecaster.report.head_words import head_words

    sys.stdout.write(head_words(tables, summary))
    return 0


def prune(arguments: Sequence[str]) -> int:
    """Prints what went and what it cost, and the directory of the smaller run."""
    given = {name: [line for line in arguments if line.startswith(f"{name}=")] for name in ("run", "share", "loss")}
    if rest := [line for line in arguments if line.split("=")[0] not in (*given, "debug")]:
        raise ConfigError(f"{rest[0]}: prune takes run=DIR and share= or loss= (in {TYPED}); leave it out")
    if len(given["run"]) != 1 or len(given["share"]) + len(given["loss"]) != 1:
        raise ConfigError(
            f"prune takes one run= and one of share= and loss= (in {TYPED}); write forecaster prune run=DIR share=.25"
        )
    [line] = given["share"] + given["loss"]
    name, _, text = line.partition("=")
    part = _part(text)
    if part is None or (name == "share" and not 0 < part < 1) or not 0 <= part < 1:
        what, example = ("share of the heads", ".25") if name == "share" else ("share of skill", "1%")
        raise ConfigError(f"{line} is no {what} that can go (in {TYPED}); write, for example, {name}={example}")
    directory = Path(given["run"][0].removeprefix("run="))
    check_run("run", directory)
    kind = load(directory / "config.yaml").model.kind
    if kind not in HEADED:
        raise ConfigError(
            f"{display(directory)} is of {kind}, which has no attention heads to remove: choose another run"
        )
    from forecaster import prune as pruning  # torch

    target, told = pruning.prune(directory, pruning.Asked(line, **{name: part}))
    sys.stdout.write(f"{told}{display(target)}\n")
    return 0


def _part(text: str) -> float | None:
    """.25, 0.25 or 25% as a number."""
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)(%?)", text)
    return float(found[1]) / (100 if found[2] else 1) if found else None


def compare(arguments: Sequence[str]) -> int:
    """Prints runs side by side, and the path of the page."""
    against = [argument.removeprefix("against=") for argument in arguments if argument.startswith("against=")]
    names = [argument for argument in arguments if not argument.startswith("against=")]
    if wrong := [name for name in names if name.startswith("-")]:
        raise ConfigError(f"{wrong[0]} is not an option of compare (in {TYPED}); write compare DIR... [against=GROUP]")
    if not names or len(against) > 1:
        raise ConfigError(f"compare takes directories and one against= (in {TYPED}); write forecaster compare DIR...")
    from forecaster import comparison

    comparison.found(names)
    text, page = comparison.compared(names, against[0] if against else None)
    sys.stdout.write(f"{text}{display(page)}\n")
    return 0


def budget(arguments: Sequence[str]) -> int:
    """Prints what heads cost at a width, or what an experiment's networks cost."""
    flags = {"--width": "512", "--heads": "", "--layers": "1"}
    given, rest = dict[str, str](), iter(arguments)
    overrides = [line for line in rest if line.split("=")[0] not in flags or not _flag(line, rest, given)]
    if wrong := [line for line in overrides if line.startswith("-")]:
        raise ConfigError(f"{wrong[0]} is not an option of budget (in {TYPED}); choose {', '.join(flags)}")
    if given and overrides:
        raise ConfigError(f"{overrides[0]} beside {next(iter(given))} (in {TYPED}); give one of the two kinds")
    if not given:
        config = configured(overrides)
        from forecaster import budgeting

        sys.stdout.write(budgeting.experiment_text(config))
        return 0
    if "--heads" not in given:
        raise ConfigError(f"budget has no --heads (in {TYPED}); write --width 512 --heads 1,8,32,64")
    numbers = {name: _counts(name, value) for name, value in (flags | given).items()}
    from forecaster import budgeting

    sys.stdout.write(budgeting.heads_text(numbers["--width"][0], numbers["--heads"], numbers["--layers"][0]))
    return 0


def _flag(line: str, rest: Iterator[str], given: dict[str, str]) -> bool:
    """Takes --name=value, or --name and the value after it, into `given`."""
    name, sign, value = line.partition("=")
    given[name] = value if sign else next(rest, "")
    return True


def _counts(name: str, text: str) -> list[int]:
    words = text.split(",")
    if not all(re.fullmatch(r"[1-9]\d*", word) for word in words) or (name != "--heads" and len(words) > 1):
        raise ConfigError(f"{name} {text} (in {TYPED}); write whole numbers from 1, as --width 512 --heads 1,8,32,64")
    return [int(word) for word in words]


def options(arguments: Sequence[str]) -> tuple[bool, list[str]]:
    """Whether -m was given, and the overrides; the folder of --config-dir is one of them for Hydra."""
    multirun, overrides, rest = False, list[str](), iter(arguments)
    for argument in rest:
        if argument in ("-m", "--multirun"):
            multirun = True
        elif argument.split("=")[0] == "--config-dir":
            named = argument.partition("=")[2] or next(rest, "")
            folder = Path(named)
            if not named or not folder.is_dir():
                raise ConfigError(f"--config-dir={folder} is not a directory (in {TYPED}); give an existing one")
            overrides.append(f'hydra.searchpath=["file://{folder.absolute()}"]')
        elif argument.startswith("-"):
            raise ConfigError(f"{argument} is not an option (in {TYPED}); choose -m, --config-dir DIR or --help")
        else:
            overrides.append(argument)
    return multirun, overrides
