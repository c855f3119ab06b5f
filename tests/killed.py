"""train.py as processes that send themselves a signal at a chosen event: a step taken, a file before or after a rename.

Everything is imported once; each command then runs in a process forked from there, as `python train.py` would run it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TRAIN = str(Path(__file__).parents[1] / "train.py")

SERVER = """
import json, os, runpy, signal, sys
from pathlib import Path
from torch.optim import optimizer
import plotly.graph_objects
from forecaster import line
from forecaster.report import page
from forecaster.probes import heads

told = {"events": 0, "steps": 0}

def event(kind):
    told[kind] += 1
    if told[kind] == tell[kind]:
        os.kill(os.getpid(), tell["signal"])

def stepped(*_):
    event("steps")
    event("events")

def command():
    os.chdir(tell["folder"])
    for name, descriptor in (("out", 1), ("err", 2)):
        os.dup2(os.open(tell[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    optimizer.register_optimizer_step_post_hook(stepped)
    replace = Path.replace
    def counted(path, target):
        event("events")
        replaced = replace(path, target)
        event("events")
        return replaced
    Path.replace = counted
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = tell["arguments"]
    code = 1
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        import traceback
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        Path(tell["told"]).write_text(json.dumps(told))
        os._exit(code)

for request in sys.stdin:
    child = os.fork()
    if child == 0:
        tell = json.loads(request)
        command()
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


@dataclass(frozen=True)
class Ended:
    """code: as subprocess gives it, -9 for a process that was killed. events: how many, 0 of one that was killed."""

    code: int
    out: str
    err: str
    events: int


class Trainings:
    """Runs `python train.py ...` in processes of their own."""

    def __init__(self, server: subprocess.Popen[str], folder: Path) -> None:
        self.server, self.folder = server, folder

    def __call__(self, *arguments: str, event: int = 0, step: int = 0, signal: int = 0) -> Ended:
        """Sends itself the signal at this event, or at this step, counted from 1."""
        places = {name: self.folder / name for name in ("out", "err", "told")}
        places["told"].unlink(missing_ok=True)
        asked = {"folder": str(self.folder), "arguments": [TRAIN, *arguments], "events": event, "steps": step}
        request = {**asked, "signal": signal, **{name: str(path) for name, path in places.items()}}
        assert self.server.stdin
        assert self.server.stdout
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        code = int(self.server.stdout.readline())
        events = json.loads(places["told"].read_text())["events"] if places["told"].exists() else 0
        return Ended(code, places["out"].read_text(), places["err"].read_text(), events)


@contextmanager
def served(folder: Path) -> Generator[Trainings]:
    """Trainings, until left."""
    program = [sys.executable, "-c", SERVER]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    ) as server:
        yield Trainings(server, folder)
        assert server.stdin
        server.stdin.close()
