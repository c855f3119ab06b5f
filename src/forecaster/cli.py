"""The command line: `python train.py ...` and `forecaster VERB ...`. torch loads once all that was typed holds."""

import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import FrameType

from forecaster import verbs
from forecaster.compose import configured, load
from forecaster.errors import ConfigError, ForecasterError
from forecaster.explain import TYPED, conf_directory, display, groups
from forecaster.jobs import one_line, run
from forecaster.sweeps import sweep
from forecaster.tally import Job
from forecaster.training.place import check_number, place

VERBS = {
    "train": "bars to report; the same as python train.py",
    "bars": "prints a source's quality report (quality=NAME.csv writes it); trains nothing",
    "evaluate": "scores a trained run, on its own bars or on others (source=...)",
    "probe": "probes the attention heads of a trained run",
    "prune": "a smaller run without the heads that matter least: share=.25 of them, or loss=1% of skill",
    "heads": "tells of each head of a probed run, in words, what it looks at and what it is worth",
    "predict": "forecasts the bars to come; run=DIR,DIR2 averages several runs",
    "budget": "what heads cost: --width D --heads N,N [--layers N], or experiment=NAME",
    "compare": "runs or a sweep side by side, with tests: compare DIR... [against=GROUP]",
    "report": "writes a run's report.html again",
}

HELP = """\
Trains attention forecasters on market bars, scores them, and probes what each attention head looks at.

  python train.py experiment=NAME [key=value ...]      bars to report, into outputs/NAME/
  python train.py -m experiment=NAME key=a,b [...]     a sweep: a job for each combination of values
  python train.py resume=DIR                           goes on with a run that was stopped
  forecaster bars source=NAME [key=value ...]          what a source holds, and what is wrong with it
  forecaster VERB run=DIR [key=value ...]              a trained run, from a later point

verbs
{verbs}

experiments
{experiments}

parts, chosen by name
{parts}

keys (all of them: conf/)
  seed                 source.path          source.symbols       source.symbols_file
  source.calendar      source.on_error      split.train_end      split.validation_end
  data.targets         data.horizon         data.max_gap         data.batch_size
  model.width          model.heads          model.layers         model.window
  model.optimizer.lr   trainer.max_epochs   baselines            hydra.run.dir
  debug=true (an error comes with its traceback)

options
  -m, --multirun       run every combination of values given as key=a,b; hydra/launcher=ray, submitit_slurm or
                       submitit_local runs them side by side, hydra/sweeper=optuna searches instead
  --config-dir DIR     find experiments and parts in DIR too
  -h, --help           this text

Text with signs in it, or that reads as a value, is quoted twice: 'source.symbols=["^GSPC"]'.
"""


def train() -> None:
    """The command `python train.py`."""
    _end(_train, sys.argv[1:])


def main() -> None:
    """The command `forecaster`."""
    _end(_verb, sys.argv[1:])


def _end(command: Callable[[Sequence[str]], int], arguments: Sequence[str]) -> None:
    signal.signal(signal.SIGTERM, _terminate)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs in its background deaf to it
    debug = any(re.fullmatch(r"\+*debug=(true|yes|on|1)", line, re.IGNORECASE) for line in arguments)
    try:
        code = command(arguments)
        sys.stdout.flush()
    except ForecasterError as error:
        code = _tell(error, debug)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        code = 128 + signal.SIGINT
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains again at its end
        code = 128 + signal.SIGPIPE
    except OSError as error:
        if debug:
            traceback.print_exception(error)
        place = error.filename or "writing the output"
        sys.stderr.write(
            f"error: {place}: {error.strerror}; make room or choose a place that can be read and written\n"
        )
        code = ConfigError.exit_code
    sys.exit(code)


def _terminate(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


def _tell(error: Exception, debug: bool) -> int:
    """One line for what a user can mend; an error of the program's own is raised again, with its traceback."""
    if not isinstance(error, ForecasterError):
        raise error
    if debug:
        traceback.print_exception(error)
    sys.stderr.write(f"error: {one_line(error)}\n")
    return error.exit_code


def _train(arguments: Sequence[str]) -> int:
    if _wants_help(arguments):
        return _help()
    if place(os.environ)[0]:
        return _follow(arguments)
    if any(argument.startswith("resume=") for argument in arguments):
        return verbs.resume(arguments)
    multirun, overrides = verbs.options(arguments)
    if multirun:
        return _table(sweep(overrides))
    config, directory, error = run(overrides)
    if error:
        return _tell(error, config.debug)
    from forecaster import line  # loaded by the training

    sys.stdout.write(line.shown(directory))
    sys.stdout.write(f"{display(directory / 'report.html')}\n")
    return 0


def _follow(arguments: Sequence[str]) -> int:
    """One of several processes that torchrun or srun started: the first does all but to compute, and tells mistakes."""
    multirun, overrides = verbs.options(arguments)
    given = [line.removeprefix("resume=") for line in overrides if line.startswith("resume=")]
    try:
        config = load(Path(given[0]) / "config.yaml") if given else configured(overrides)
        check_number(os.environ, config.trainer.devices, config.trainer.nodes)
    except ForecasterError:
        multirun = True
    if multirun:
        return ConfigError.exit_code
    if given and verbs.is_complete(Path(given[0])):
        return 0  # the first says so and begins nothing to follow
    from forecaster import fitting  # torch

    fitting.follow()
    return 0


def _verb(arguments: Sequence[str]) -> int:
    if _wants_help(arguments):
        return _help()
    if not arguments:
        raise ConfigError(f"no verb (in {TYPED}); write forecaster VERB, one of {', '.join(VERBS)}")
    verb, *rest = arguments
    if verb == "train":
        return _train(rest)
    if verb == "bars":
        return verbs.bars(rest)
    if verb == "compare":
        return verbs.compare(rest)
    if verb == "budget":
        return verbs.budget(rest)
    if verb == "prune":
        return verbs.prune(rest)
    if verb not in VERBS:
        close = get_close_matches(verb, VERBS, 1, 0.7)
        meant = f"did you mean {close[0]}? Choose" if close else "choose"
        raise ConfigError(f"{verb} is not a verb (in {TYPED}); {meant} one of {', '.join(VERBS)}")
    directories, overrides = _runs(verb, rest)
    if verb == "heads":
        return verbs.heads(directories[0], overrides)
    if verb == "report" and overrides:
        raise ConfigError(f"{overrides[0]} changes no report (in {TYPED}); write forecaster report run=DIR")
    for directory in directories:
        asked = load(directory / "config.yaml", overrides).probes
        typed = {line.partition("=")[0] for line in overrides}
        if verb == "probe" and not asked.enabled and typed & {"probes", "probes.enabled"}:
            raise ConfigError(f"probes=off asks for nothing (in {TYPED}); write probes=fast, default or strict")
    from forecaster import line  # torch

    match verb:
        case "evaluate" | "probe":
            done = (line.evaluate if verb == "evaluate" else line.probe)(directories[0], overrides)
            sys.stdout.write(f"{line.shown(done)}{display(done)}\n")
        case "predict":
            from forecaster import saved

            saved.predict(directories, overrides).to_csv(sys.stdout, index=False, float_format="%.10g")
        case _:
            sys.stdout.write(f"{display(line.write_report(directories[0]))}\n")
    return 0


def _runs(verb: str, arguments: Sequence[str]) -> tuple[list[Path], list[str]]:
    """The directories of run=, each found to be a run's, and the overrides beside it."""
    given = [argument.removeprefix("run=") for argument in arguments if argument.startswith("run=")]
    overrides = [argument for argument in arguments if not argument.startswith("run=")]
    if options := [argument for argument in overrides if argument.startswith("-")]:
        raise ConfigError(f"{options[0]} is not an option of {verb} (in {TYPED}); write key=value, or --help")
    if len(given) != 1 or not given[0]:
        raise ConfigError(f"run= is given {len(given)} times, not once (in {TYPED}); write forecaster {verb} run=DIR")
    directories = [Path(given[0])]
    if verb == "predict" and not directories[0].exists():
        directories = [Path(name) for name in given[0].split(",")]
    for directory in directories:
        verbs.check_run("run", directory)
    return directories, overrides


def _wants_help(arguments: Sequence[str]) -> bool:
    return any(argument in ("-h", "--help") for argument in arguments)


def _help() -> int:
    experiments = {file.stem: _first_comment(file) for file in sorted((conf_directory() / "experiment").glob("*.yaml"))}
    parts = {f"{name}=": ", ".join(choices) for name, choices in groups().items() if name != "experiment"}
    tables = {"verbs": VERBS, "experiments": experiments, "parts": parts}
    width = max(len(name) for table in tables.values() for name in table)
    lines = {
        title: "\n".join(f"  {name:<{width}}  {text}" for name, text in table.items())
        for title, table in tables.items()
    }
    sys.stdout.write(HELP.format(**lines))
    return 0


def _first_comment(file: Path) -> str:
    lines = (
        line.lstrip("# ").strip() for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("#")
    )
    return next((line for line in lines if not line.startswith("@package")), "")


def _table(jobs: Sequence[Job]) -> int:
    """Prints how the jobs of a sweep ended; returns the exit code of the first that failed."""
    from rich.console import Console
    from rich.table import Table

    if not jobs:  # a search that was done before
        return 0
    table = Table("job", "overrides", "status", "r2 of attention, one step ahead", "directory", title="sweep")
    for job in jobs:
        status = job.status if job.exit_code == 0 else f"{job.status} ({job.exit_code})"
        table.add_row(str(job.job), job.overrides, status, job.result, job.directory)
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    return next((job.exit_code for job in jobs if job.exit_code), 0)
