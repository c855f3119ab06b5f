"""What Hydra's launchers and its search need of a sweep: cores for each job, and a study to continue."""

import hashlib
import logging
import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, cast

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from forecaster.config import Trainer
from forecaster.explain import within

# Each library with threads of its own reads one of these when it loads.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


# A job's output is in its train.log, and the sweep tells how each ended.
QUIET: dict[str, int | str] = {
    "ray.init.include_dashboard": "false",
    "ray.init.log_to_driver": "false",
    "ray.init.logging_level": logging.ERROR,
}


class Plan(NamedTuple):
    """How a sweep's jobs run: settings for Hydra beside those typed, and how many at a time (None: a cluster knows)."""

    settings: list[str]
    at_once: int | None


def limit_threads(trainer: Trainer) -> None:
    """Keeps libraries that are yet to load to the threads of one run, on which its last digits may depend."""
    os.environ |= dict.fromkeys(THREADS, str(trainer.threads))


def plan(hydra: DictConfig, trainer: Trainer, given: Sequence[Override]) -> Plan:
    """Cores and GPUs that the launcher reserves for each job, and how many jobs then fit on this machine.

    given: what was typed, which stands.
    """
    apart = trainer.nodes > 1  # a task for each process, or one that starts the others
    cores = max(1, trainer.threads * (1 if apart else trainer.devices))
    tasks = {"nodes": trainer.nodes, "tasks_per_node": trainer.devices} if apart else {}
    gpus = trainer.devices if trainer.accelerator == "gpu" else 0
    fit = max(1, len(os.sched_getaffinity(0)) // cores)
    at_once: int | None = None
    wanted: dict[str, int | str] = {}
    match hydra.runtime.choices.get("hydra/launcher"):
        case "basic":
            at_once = 1
        case "ray":
            wanted = {"ray.remote.num_cpus": cores, "ray.remote.num_gpus": gpus} | QUIET
            if OmegaConf.select(hydra, "launcher.ray.init.address") is None and "RAY_ADDRESS" not in os.environ:
                wanted["ray.init.num_cpus"], at_once = fit * cores, fit
            else:
                wanted["ray.init.object_store_memory"] = "null"  # the plugin's own default is refused by a cluster
            logging.getLogger("ray").setLevel(logging.ERROR)  # it would tell of its tokens
        case "submitit_local":
            wanted, at_once = {"cpus_per_task": cores}, fit
        case "submitit_slurm":
            wanted |= {"cpus_per_task": cores, **tasks} | ({"gpus_per_node": gpus} if gpus else {})
        case _:
            pass
    settings = {f"hydra.launcher.{key}": value for key, value in wanted.items()}
    if is_search(hydra):
        jobs = int(hydra.sweeper.n_jobs)
        settings["hydra.sweeper.n_jobs"] = at_once = min(at_once or jobs, jobs)
    elif "cpus_per_task" in wanted and at_once:
        settings["hydra.sweeper.max_batch_size"] = at_once  # it starts all that it is given at once
    typed = {line.key_or_group for line in given}
    return Plan([f"++{key}={value}" for key, value in settings.items() if key not in typed], at_once)


def elsewhere(hydra: DictConfig) -> bool:
    """Whether jobs run in processes of their own: Hydra's own launcher runs one after another in this."""
    return hydra.runtime.choices.get("hydra/launcher") != "basic"


def is_search(hydra: DictConfig) -> bool:
    """Whether Optuna chooses the values, not a grid."""
    return hydra.runtime.choices.get("hydra/sweeper") == "optuna"


class Study(NamedTuple):
    """A study to continue: its name, where it lies, the trials still to run, and the settings that make Hydra do so."""

    name: str
    storage: str
    left: int
    done: int
    settings: list[str]

    @property
    def told(self) -> str:
        """What is there and what is left of it."""
        more = "" if self.left else "; none is left to do: raise hydra.sweeper.n_trials"
        study = f"study {self.name} in {self.storage}, {self.done} of its trials done"
        return f"search: the validation loss is minimised; {study}{more}"


def study(composed: DictConfig, given: Sequence[Override]) -> Study:
    """The study of the same command, as far as it came; it lies in a file unless a storage is given.

    Its name holds a digest of what was typed: losses of another command are of another kind. The sampler starts from
    the number of trials so far, so that it repeats a search but not the first draws of the start before.
    """
    os.environ["SQLALCHEMY_SILENCE_UBER_WARNING"] = "1"  # Optuna 2 is written for SQLAlchemy 1
    optuna: Any = import_module("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sweeper = composed.hydra.sweeper
    typed = sorted(str(line.input_line) for line in given if not within(line.key_or_group.partition("/")[0], "hydra"))
    digest = hashlib.sha256("\n".join(typed).encode()).hexdigest()[:8]
    name = cast("str | None", sweeper.study_name) or f"{composed.experiment_name}-{digest}"
    storage = str(sweeper.storage or f"sqlite:///outputs/{composed.experiment_name}/study.db")
    if storage.startswith("sqlite:///"):
        Path(storage.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    try:
        states = [trial.state for trial in optuna.load_study(study_name=name, storage=storage).trials]
    except KeyError:  # none yet
        states = list[Any]()
    done = sum(state.is_finished() for state in states)
    left = max(0, int(sweeper.n_trials) - done)
    settings = [
        f"hydra.sweeper.study_name='{name}'",
        f"hydra.sweeper.storage='{storage}'",
        f"hydra.sweeper.n_trials={left}",
    ]
    if "seed" in sweeper.sampler and sweeper.sampler.seed is None:
        settings.append(f"hydra.sweeper.sampler.seed={len(states)}")
    return Study(name, storage, left, done, settings)


def best(study: Study) -> str:
    """The trial with the lowest loss so far."""
    optuna: Any = import_module("optuna")
    try:
        trial = optuna.load_study(study_name=study.name, storage=study.storage).best_trial
    except ValueError:  # none is complete
        return ""
    values = " ".join(f"{key}={value}" for key, value in trial.params.items())
    return f"lowest validation loss of the study: {trial.value:.6g} with {values}\n"
