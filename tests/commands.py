"""train.py and the verbs as processes, with nothing but the line itself put aside."""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRAIN = str(ROOT / "train.py")

# A line that only says what it was asked; seeds choose how a training ends.
LINE = """
import json, os, runpy, sys, time, types
from pathlib import Path
import forecaster
from forecaster.errors import DataError, DivergedError

def train(config, directory):
    (directory / "config.yaml").write_text("taken")
    if config.seed == 33:
        raise DataError("a.csv has no bars\\n(line 1); give others")
    if config.seed == 44:
        raise DivergedError("loss is not finite (step 7); lower model.optimizer.lr")
    if config.seed == 55:
        raise RuntimeError("a fault of the program")
    if config.seed == 66:
        raise KeyboardInterrupt
    if config.seed == 77:
        Path("waiting").touch()
        time.sleep(60)
    if config.seed == 88:
        os._exit(9)
    print("trained", config.seed, config.model.heads, directory.is_dir())
    return f"r2 of {config.model.heads}"

class Table(str):
    def to_csv(self, file, **_):
        file.write(f"{self}\\n")

line = types.ModuleType("forecaster.line")
line.train = train
line.shown = lambda directory: ""
line.evaluate = lambda directory, overrides: f"evaluated {directory} {overrides}"
line.probe = lambda directory, overrides: f"probed {directory} {overrides}"
saved = types.ModuleType("forecaster.saved")
saved.predict = lambda directories, overrides: Table(f"predicted {[str(d) for d in directories]} {overrides}")
sys.modules["forecaster.saved"] = forecaster.saved = saved
line.write_report = lambda directory: f"reported {directory}"
sys.modules["forecaster.line"] = forecaster.line = line

def command(name):
    if name == "forecaster":
        from forecaster.cli import main
        main()
    runpy.run_path(name, run_name="__main__")
"""

# Python and Hydra start once; each command then runs in a process forked from there, with its own folder and modules.
SERVER = f"""
{LINE}
import contextlib, io, traceback
import forecaster.cli

def answer(folder, name, arguments):
    out, err, code = io.StringIO(), io.StringIO(), 0
    os.chdir(folder)
    sys.argv = [name, *arguments]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            command(name)
        except SystemExit as ended:
            code = ended.code
        except BaseException:
            traceback.print_exc()
            code = 1
    heavy = " ".join({{"torch", "pandas", "lightning"}} & set(sys.modules))
    return code, out.getvalue(), err.getvalue(), heavy

for request in sys.stdin:
    if os.fork() == 0:
        print(json.dumps(answer(*json.loads(request))), flush=True)
        os._exit(0)
    os.wait()
"""


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str
    loaded: str


class Commands:
    """Runs commands in processes of their own."""

    def __init__(self, server: subprocess.Popen[str]) -> None:
        self.server = server

    def __call__(self, cwd: Path, *arguments: str) -> Ended:
        name, *rest = arguments if arguments[:1] == ("forecaster",) else (TRAIN, *arguments)
        assert self.server.stdin
        assert self.server.stdout
        self.server.stdin.write(json.dumps([str(cwd), name, rest]) + "\n")
        self.server.stdin.flush()
        return Ended(*json.loads(self.server.stdout.readline()))

    def refused(self, cwd: Path, *arguments: str) -> str:
        """The one line of a refusal, without `error: `; nothing heavy was loaded and no file written."""
        before = set(cwd.rglob("*"))
        ended = self(cwd, *arguments)
        assert (ended.code, ended.out, ended.loaded) == (2, "", ""), ended.err
        assert ended.err.startswith("error: ")
        assert ended.err.count("\n") == 1
        assert set(cwd.rglob("*")) == before
        return ended.err.removeprefix("error: ").rstrip("\n")


@contextmanager
def served() -> Generator[Commands]:
    """Commands, until left."""
    program = [sys.executable, "-c", SERVER]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        yield Commands(server)
        assert server.stdin
        server.stdin.close()


def started(cwd: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """train.py in a process that starts from nothing."""
    program = [sys.executable, "-c", f"{LINE}\nsys.argv[0] = {TRAIN!r}\ncommand({TRAIN!r})", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(program, cwd=cwd, env=os.environ | environment, stdout=pipe, stderr=pipe, text=True)


def runs(cwd: Path) -> list[Path]:
    return sorted((cwd / "outputs").glob("*/*"))
