"""Training, beside what one would pick instead: `python bench/train.py`.

Installs neuralforecast, darts and pytorch-forecasting into .bench/venv and measures each in processes of its own, round
by round on the same panel, with the same number of threads; writes the tables of docs/performance.md (20 minutes on two
cores). --quick: one short round, printed only (5 minutes). --ours: this project and a plain loop, printed only, without
peers (1 minute).
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".bench" / "venv"
PEERS = ROOT / "bench" / "peers.txt"
PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- written by bench/train.py: begin -->", "<!-- written by bench/train.py: end -->"
THREADS = 2
SYMBOLS = (64, 512)


@dataclass(frozen=True)
class Side:
    """One contender: its script bench/with_NAME.py, and what it is told for a rate and for a quality."""

    label: str
    script: str
    rate: tuple[str, ...] = ()
    quality: tuple[str, ...] | None = None  # None: not raced to a loss


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int
    seconds: float
    limit: float
    symbols: tuple[int, ...]


FULL = Plan(3, 8.0, 110.0, SYMBOLS)
QUICK = Plan(1, 3.0, 20.0, SYMBOLS[:1])
OURS_ONLY = Plan(1, 3.0, 0.0, ())


def ours(seconds: float = 8.0) -> list[Side]:
    """One process of two threads, and two of one thread, with one origin a window and with all.

    Two processes are timed over whole epochs, as many as may take so many seconds.
    """
    last, every = "experiment=sp500", "experiment=every_origin"
    one, two = f"trainer.threads={THREADS}", "trainer=ddp_cpu"

    def rate(experiment: str, how: str, batch: int, epochs_a_second: float) -> tuple[str, ...]:
        epochs = f"trainer.max_epochs={max(1, round(epochs_a_second * seconds))}"
        return experiment, how, f"data.batch_size={batch}", epochs, "trainer.patience=99"

    return [
        Side("forecaster, one process", "forecaster", rate(last, one, 256, 0.4), (last, one)),
        Side("forecaster, two processes", "forecaster", rate(last, two, 256, 0.3), (last, two)),
        Side("forecaster, all origins, one process", "forecaster", rate(every, one, 64, 3), (every, one)),
        Side("forecaster, all origins, two processes", "forecaster", rate(every, two, 64, 3)),
    ]


PLAIN = Side("nn.TransformerEncoder, plain loop", "plain", quality=())
VANILLA = Side("neuralforecast VanillaTransformer", "neuralforecast", quality=())
DARTS = Side("darts TransformerModel", "darts", quality=())
TFT = Side("pytorch-forecasting TFT", "pytorch_forecasting", quality=())
RIVALS = (PLAIN.label, VANILLA.label, DARTS.label)  # of one kind with ours; the TFT attends from one bar, once


def install() -> None:
    """The peers' environment; made anew where peers.txt has changed."""
    stamp, wanted = VENV / "installed", PEERS.read_text()
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    say("installing the peers into .bench/venv (2 GB; minutes where they have to be downloaded)")
    subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], check=True)
    pip = [VENV / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", PEERS]
    torch = next(line for line in wanted.splitlines() if line.startswith("torch=="))
    subprocess.run([*pip, torch], check=True)
    subprocess.run([*pip, "--requirement", PEERS], check=True)
    stamp.write_text(wanted)


def measure(side: Side, task: str, folder: Path, **given: Any) -> dict[str, Any]:
    """One measurement in a process of its own."""
    own = side.script in ("forecaster", "plain")
    python = sys.executable if own else VENV / "bin" / "python"
    out = Path(tempfile.mkstemp(dir=folder, suffix=".json")[1])
    options = list(given.pop("options", ()))
    if side.script == "forecaster" and options and task in ("rate", "quality"):
        options.append(f"hydra.run.dir={tempfile.mkdtemp(dir=folder)}/run")
    told = {"task": task, "out": str(out), "threads": THREADS, "options": options, **given}
    threads = 1 if "trainer=ddp_cpu" in options else THREADS
    done = subprocess.run(
        [python, ROOT / "bench" / f"with_{side.script}.py", json.dumps(told)],
        cwd=folder if not own else ROOT,
        env={**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
    )
    if not out.stat().st_size:
        sys.exit(f"error: {side.label}, {task}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return json.loads(out.read_text())


def rates(sides: list[Side], plan: Plan, folder: Path, panel: str) -> dict[str, list[dict[str, Any]]]:
    """Everybody's rate in each round, whose order is turned by one, beside the machine's rate of multiplying then."""
    found = defaultdict[str, list[dict[str, Any]]](list)
    for number in range(plan.rounds):
        speed = measure(PLAIN, "multiply", folder, panel=panel)["rate"]
        say(f"round {number + 1} of {plan.rounds}: {speed / 1e9:.0f} GFLOP/s")
        turned = sides[number % len(sides) :] + sides[: number % len(sides)]
        for side in turned:
            given = {"batch": 256, "seconds": plan.seconds, "options": side.rate}
            result = measure(side, "rate", folder, panel=panel, **given)
            found[side.label].append({**result, "speed": speed})
            say(f"  {side.label}: {result['windows_per_s']:.0f} windows/s, {result['core_ms']:.2f} core-ms a window")
    return found


def races(sides: list[Side], plan: Plan, folder: Path, panel: str, mark: float, unit: float) -> dict[str, Any]:
    """How long everybody takes to the mark, a pinball loss in the target's units, of which `unit` is a peer's 1."""
    found = dict[str, Any]()
    for side in sides:
        if side.quality is None:
            continue
        scale = 1.0 if side.script == "forecaster" else unit
        given = {"batch": 64, "limit": plan.limit, "mark": mark / scale, "options": side.quality}
        result = measure(side, "quality", folder, panel=panel, **given)
        if result["best"] is not None:
            result["best"] *= scale
        found[side.label] = result
        told = f"{result['seconds']:.1f} s" if result["seconds"] else f"not reached in {plan.limit:.0f} s"
        say(f"  {side.label}: {told}")
    return found


def preparations(sides: list[Side], plan: Plan, folder: Path) -> dict[int, dict[str, Any]]:
    """Data preparation of a universe of each size, to the first batch."""
    found = dict[int, dict[str, Any]]()
    for symbols in plan.symbols:
        panel = str(folder / f"{symbols}.npz")
        measure(ours()[0], "fabricated", folder, panel=panel, options=[str(symbols)])
        found[symbols] = {}
        for side in sides:
            if side.label.startswith("forecaster,") and side is not sides[0]:
                continue
            name = "forecaster" if side.script == "forecaster" else side.label
            found[symbols][name] = measure(side, "prepare", folder, panel=panel)
            say(f"  {symbols} symbols, {name}: {found[symbols][name]['prepare']:.2f} s")
    return found


def rate_table(found: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    middle = {label: median(row["origins_per_s"] for row in rows) for label, rows in found.items()}
    best = max(middle[label] for label in RIVALS if label in middle)
    flops = found[PLAIN.label][0]["flops"]
    heads = "windows/s (all rounds)", "origins/s", "× best rival", "of limit", "core-ms a window", "MiB", "imports, s"
    yield f"| | {' | '.join(heads)} |"
    yield "| --- |" + " --- |" * len(heads)
    for label, rows in found.items():
        rate = sorted(row["windows_per_s"] for row in rows)
        share = median(row["windows_per_s"] * flops / row["speed"] for row in rows)
        yield (
            f"| {label} | {median(rate):,.0f} ({rate[0]:,.0f} to {rate[-1]:,.0f}) | {middle[label]:,.0f} | "
            f"{middle[label] / best:.2f} | {share:.0%} | {median(row['core_ms'] for row in rows):.2f} | "
            f"{median(row['memory_mib'] for row in rows):,.0f} | {median(row['imports'] for row in rows):.1f} |"
        )


def race_table(found: dict[str, Any], limit: float) -> Iterator[str]:
    yield "| | seconds to the mark | epochs | best loss |"
    yield "| --- | --- | --- | --- |"
    for label, row in found.items():
        told = f"{row['seconds']:.1f}" if row["seconds"] else f"not reached: counts as its limit, {limit:.0f}"
        best = "–" if row["best"] is None else f"{row['best']:.4f}"
        yield f"| {label} | {told} | {row['epochs']} | {best} |"


def preparation_table(found: dict[int, dict[str, Any]]) -> Iterator[str]:
    yield "| | " + " | ".join(f"{symbols} symbols, s | MiB" for symbols in found) + " |"
    yield "| --- |" + " --- | --- |" * len(found)
    for label in next(iter(found.values())):
        rows = [found[symbols][label] for symbols in found]
        yield f"| {label} | " + " | ".join(f"{row['prepare']:.2f} | {row['prepare_mib']:,.0f}" for row in rows) + " |"
        if "prepare_bars" in rows[0]:
            cells = (f"{row['prepare_bars']:.2f} | {row['prepare_bars_mib']:,.0f}" for row in rows)
            yield f"| {label}, from bars, its features computed | " + " | ".join(cells) + " |"


def machine() -> str:
    import torch

    info = Path("/proc/cpuinfo")
    name = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.is_file() else None
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores ({name[1] if name else 'unknown'}), torch {torch.__version__}, {THREADS} threads each"


def write(text: str) -> None:
    """Puts the tables between the page's two marks."""
    page = PAGE.read_text()
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round, printed only")
    parser.add_argument("--ours", action="store_true", help="without peers, printed only")
    asked = parser.parse_args()
    plan = OURS_ONLY if asked.ours else QUICK if asked.quick else FULL
    sides = [*ours(plan.seconds), PLAIN] if asked.ours else [*ours(plan.seconds), PLAIN, VANILLA, DARTS, TFT]
    if not asked.ours:
        install()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        panel = str(folder / "bundled.npz")
        given = measure(sides[0], "bundled", folder, panel=panel)
        lines = [f"{machine()}; {plan.rounds} rounds.", "", *rate_table(rates(sides, plan, folder, panel))]
        if plan.limit:
            say(f"to a validation loss of {given['mark']:.4f}")
            found = races(sides, plan, folder, panel, **given)
            lines += ["", f"To log-HAR's pinball loss on 2013-2014, {given['mark']:.4f}:", ""]
            lines += race_table(found, plan.limit)
        if plan.symbols:
            lines += ["", *preparation_table(preparations(sides, plan, folder))]
    print("\n".join(lines))
    if plan is FULL:
        write("\n".join(lines))


if __name__ == "__main__":
    main()
