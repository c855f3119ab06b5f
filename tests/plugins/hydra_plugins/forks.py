"""A launcher for tests: all jobs at once, each in a process forked from the sweep's."""

import os
import sys
from collections.abc import Sequence
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus, run_job
from hydra.plugins.launcher import Launcher
from omegaconf import open_dict

ConfigStore.instance().store(
    group="hydra/launcher", name="forks", node={"_target_": "hydra_plugins.forks.Forks"}, provider="tests"
)


class Forks(Launcher):
    def setup(self, *, hydra_context: Any, task_function: Any, config: Any) -> None:
        self.context, self.function, self.config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        children = {self._forked(overrides, number) for number, overrides in enumerate(job_overrides, initial_job_idx)}
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        if any(codes):
            raise RuntimeError("a worker died\nof its own")
        ended = JobReturn()
        ended.status = JobStatus.COMPLETED
        return [ended] * len(children)

    def _forked(self, overrides: Sequence[str], number: int) -> int:
        child = os.fork()
        if child:
            return child
        config = self.context.config_loader.load_sweep_config(self.config, list(overrides))
        with open_dict(config):
            config.hydra.job.num = number
        run_job(
            hydra_context=self.context,
            task_function=self.function,
            config=config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )
        sys.stdout.flush()
        os._exit(0)
