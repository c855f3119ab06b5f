"""The devices that a training computes on, through Lightning, and the processes that share one training."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, cast

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch.accelerators import CUDAAccelerator
from lightning.pytorch.strategies import StrategyRegistry
from torch import distributed
from torch.distributed import PrefixStore, TCPStore  # pyright: ignore[reportPrivateImportUsage] (documented ones)

from forecaster.errors import ConfigError, ForecasterError
from forecaster.training.place import check_number, place

# A lost process is seen by its closed connection; waiting for one that loads its bars is none.
PATIENCE: Final = timedelta(hours=12)
DIRECTORY: Final = "directory"  # in the store: where the run is
GRACE: Final = 5.0  # seconds in which a process that failed is gone
READY: Final = "ready"  # in the store: how many others are there
FEW: Final = 8  # processes that may share fewer cores, to try them out
BF16: Final = {"avx512_bf16", "amx_bf16", "bf16"}  # as Linux calls what processors can


@dataclass(frozen=True)
class Devices:
    """Lightning's words: devices on each of so many nodes, a process for each device."""

    accelerator: str
    strategy: str
    devices: int
    nodes: int
    precision: str

    @property
    def processes(self) -> int:
        """How many share the training."""
        return self.devices * self.nodes

    def trainer_arguments(self) -> dict[str, Any]:
        """What Lightning's Trainer takes."""
        return {
            "accelerator": self.accelerator,
            "strategy": self.strategy,
            "devices": self.devices,
            "num_nodes": self.nodes,
            "precision": self.precision,
            # Named, so that no other is guessed from what a cluster left in the environment.
            "plugins": [TorchElasticEnvironment() if self.processes > 1 else LightningEnvironment()],
            "use_distributed_sampler": False,  # `Order` shares out each batch itself
        }

    def check(self) -> None:
        """Raises ConfigError where this machine has no such device, or another number of processes was started."""
        check_number(os.environ, self.devices, self.nodes)
        cores = len(os.sched_getaffinity(0))
        if self.accelerator == "cpu" and self.devices > max(FEW, cores):
            raise ConfigError(f"trainer.devices={self.devices} are that many processes on {cores} cores; choose fewer")
        if self.accelerator == "gpu":
            found = CUDAAccelerator.auto_device_count()
            if found < self.devices:
                raise ConfigError(
                    f"trainer.devices={self.devices} with trainer.accelerator=gpu: CUDA finds {found} devices here; "
                    "choose fewer, or trainer=cpu"
                )
        if self.precision == "bf16-mixed" and not self._has_bf16():
            raise ConfigError(
                f"trainer.precision=bf16-mixed: this {self.accelerator} computes no bfloat16, which is then many times "
                "slower than float32; leave trainer.precision=32-true"
            )
        known = ["auto", *cast("list[str]", StrategyRegistry.available_strategies())]
        if self.strategy not in known:
            raise ConfigError(f"trainer.strategy={self.strategy} is not known; choose one of {', '.join(known)}")

    def _has_bf16(self) -> bool:
        if self.accelerator == "gpu":
            return torch.cuda.is_bf16_supported(including_emulation=False)
        return bool(flags() & BF16)


def flags() -> set[str]:
    """What this machine's processor can, in Linux's words."""
    told = Path("/proc/cpuinfo")
    return set(told.read_text().split()) if told.is_file() else set[str]()


CPU: Final = Devices("cpu", "auto", 1, 1, "32-true")


@contextmanager
def together(asked: Devices, directory: Path) -> Generator[None]:
    """Meanwhile the other processes of the training compute along with this one, the first.

    Those that torchrun or srun started wait in `following`; where nobody did, they are started here, on this machine,
    and end with the block.
    """
    if asked.processes == 1:
        yield
        return
    before, others = dict(os.environ), list[subprocess.Popen[bytes]]()
    try:
        if place(os.environ)[1] == 1:
            store = _opened(asked)
            others += _others(asked, directory)
            _await(store, others, directory)
        else:
            _adopt_slurm()
            store = _reached()
        store.set(DIRECTORY, str(directory.absolute()))
        _join(asked, store)
        yield
        for other in others:
            other.wait()
    except RuntimeError as fault:  # what torch raises where a connection is gone
        if lost := [code for code in map(_ended, others) if code]:
            raise ForecasterError(
                f"a process of the training was lost, with exit code {lost[0]} ({directory / 'train.log'} has its "
                f"words); go on with resume={directory}"
            ) from fault
        raise
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()
        for other in others:
            other.terminate()
            other.communicate()
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def following() -> Generator[tuple[Path, Callable[[Devices], None]]]:
    """In another process than the first: its run directory, once its training begins, and what to call to take part."""
    _adopt_slurm()
    store = _reached()
    store.add(READY, 1)
    directory = Path(store.get(DIRECTORY).decode())
    try:
        yield directory, lambda asked: _join(asked, store)
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()


def _opened(asked: Devices) -> TCPStore:
    """A store in this process, and the environment that torchrun would give it."""
    store = TCPStore("127.0.0.1", 0, None, True, PATIENCE, wait_for_workers=False)
    size = str(asked.processes)
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "GROUP_RANK": "0"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    return store


def _others(asked: Devices, directory: Path) -> list[subprocess.Popen[bytes]]:
    program = [sys.executable, "-m", "forecaster.fitting"]
    with (directory / "train.log").open("ab") as log:
        return [
            # Ctrl-C is for the first process, which asks the others to stop with it.
            subprocess.Popen(
                program,
                env=os.environ | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdin=subprocess.PIPE,  # which closes with the first process, however that ends
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            for rank in range(1, asked.processes)
        ]


def _await(store: TCPStore, others: list[subprocess.Popen[bytes]], directory: Path) -> None:
    """Returns once all others are there; RuntimeError where one has ended instead."""
    while store.add(READY, 0) < len(others):
        if ended := [other for other in others if other.poll() is not None]:
            raise RuntimeError(f"a process of the training ended with {ended[0].returncode}: see {directory}/train.log")
        time.sleep(0.05)


def _ended(other: subprocess.Popen[bytes]) -> int:
    try:
        return other.wait(timeout=GRACE)
    except subprocess.TimeoutExpired:
        return 0


def _reached() -> TCPStore:
    """The store of the first process, or of torchrun."""
    own = os.environ["RANK"] == "0" and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(address, port, None, own, PATIENCE, wait_for_workers=False)


def _adopt_slurm() -> None:
    """Gives what srun says of the processes torchrun's names."""
    if "RANK" in os.environ:
        return
    slurm = SLURMEnvironment(auto_requeue=False)
    rank, world = place(os.environ)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(slurm.local_rank()), "WORLD_SIZE": str(world)}
    os.environ |= {"GROUP_RANK": str(slurm.node_rank()), "MASTER_ADDR": slurm.main_address}
    os.environ["MASTER_PORT"] = str(slurm.main_port)


def _join(asked: Devices, store: TCPStore) -> None:
    rank, world = place(os.environ)
    distributed.init_process_group(
        "nccl" if asked.accelerator == "gpu" else "gloo",
        store=PrefixStore("training", store),
        rank=rank,
        world_size=world,
        timeout=PATIENCE if asked.accelerator == "cpu" else None,
    )
