"""Stops a small run at every moment, or at random ones of the clock, resumes it and compares it with one never stopped.

`python bench/kills.py` takes each event of tests/killed.py in turn, with SIGKILL, SIGTERM and SIGINT (15 minutes).
`python bench/kills.py 5` starts `python train.py` afresh and kills it five times at random seconds; a second
number is the seed.
"""

import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from killed import TRAIN, served  # noqa: E402
from test_resume import TINY, assert_same  # noqa: E402


def every_moment(folder: Path) -> int:
    """Number of runs that ended otherwise than the one that was not stopped."""
    wrong = 0
    with served(folder) as train:
        whole = train(*TINY, f"hydra.run.dir={folder / 'whole'}")
        # Before the first event there is no run to resume yet.
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
            for event in range(2, whole.events + 1):
                directory = folder / f"{number}-{event}"
                first = train(*TINY, f"hydra.run.dir={directory}", event=event, signal=number)
                second = train(f"resume={directory}")
                same = second.code == 0 and is_same(directory, folder / "whole")
                wrong += not same
                print(number.name, event, first.code, second.code, "same" if same else second.err, flush=True)
    return wrong


def random_moments(folder: Path, kills: int, seed: int) -> int:
    """The same of one run that is killed so many times, each at a random second after it has read its bars."""
    draw = random.Random(seed)
    longer = [*TINY, "source.bars=1500", "data.batch_size=16", "trainer.max_epochs=12", "trainer.patience=12"]
    whole = ready([*longer, f"hydra.run.dir={folder / 'whole'}"])
    begun = time.monotonic()
    whole.communicate()
    took = time.monotonic() - begun
    typed = [*longer, f"hydra.run.dir={folder / 'run'}"]
    for _ in range(kills):
        process, after = ready(typed), draw.uniform(0.0, took / 2)
        time.sleep(after)
        process.kill()
        process.communicate()
        print(f"killed {after:.2f} of {took:.2f} s after its bars: exit code {process.returncode}", flush=True)
        typed = [f"resume={folder / 'run'}"]
    last = ready(typed)
    last.communicate()
    print(f"resumed: exit code {last.returncode}", flush=True)
    return not is_same(folder / "run", folder / "whole")


def ready(typed: list[str]) -> subprocess.Popen[str]:
    """A process of train.py that has read its bars, or ended."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, TRAIN, *typed], stdout=pipe, stderr=pipe, text=True)
    assert process.stderr
    for said in process.stderr:
        if "windows train" in said:
            break
    return process


def is_same(directory: Path, whole: Path) -> bool:
    try:
        assert_same(directory, whole)
    except AssertionError as difference:
        print(difference)
        return False
    return True


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asked = [int(argument) for argument in sys.argv[1:]]
        failed = random_moments(Path(name), asked[0], [*asked, 0][1]) if asked else every_moment(Path(name))
    print("all the same" if not failed else f"{failed} differ")
    sys.exit(bool(failed))
