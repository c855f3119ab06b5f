"""Which of the processes of one training this is."""

from collections.abc import Mapping

from forecaster.errors import ConfigError


def place(environment: Mapping[str, str]) -> tuple[int, int]:
    """This process's rank among those that torchrun or srun started, and their number; 0 and 1 where neither did."""
    if "RANK" in environment and "WORLD_SIZE" in environment:
        return int(environment["RANK"]), int(environment["WORLD_SIZE"])
    if "SLURM_PROCID" in environment and "SLURM_STEP_NUM_TASKS" in environment:
        return int(environment["SLURM_PROCID"]), int(environment["SLURM_STEP_NUM_TASKS"])
    return 0, 1


def check_number(environment: Mapping[str, str], devices: int, nodes: int) -> None:
    """Raises ConfigError where another number of processes was started than a training's devices are."""
    started = place(environment)[1]
    if started != devices * nodes and (started > 1 or nodes > 1):
        raise ConfigError(
            f"trainer.devices={devices} on trainer.nodes={nodes} needs {devices * nodes} processes, and there "
            f"{'is' if started == 1 else 'are'} {started}; start so many with torchrun or srun, or choose other devices"
        )
