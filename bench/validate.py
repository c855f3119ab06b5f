"""How often the probes are right: `make validate`, or `python bench/validate.py [quick] [--jobs N] [--only KIND]`.

Heads made by hand and markets planted, over seeds, one process of one thread each. What is done is kept below
build/validate/ and not done again. From the full set docs/validation.md is written, from less
build/validate/validation.md. `report` writes the page alone.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from handmade import Case

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "build" / "validate"
HANDMADE = {"quick": 3, "full": 20}  # seeds
PLANTED = {  # experiment -> seeds
    "quick": {"planted_weekly": 1, "planted_noise": 1},
    "full": {
        "planted_recency": 5,
        "planted_weekly": 5,
        "planted_large_move": 5,
        "planted_volume": 5,
        "planted_trend": 5,
        "planted_several": 5,
        "planted_noise": 20,
    },
}
POSITIONAL = 100  # random positional heads a seed


def handmade(seed: int) -> None:
    """One seed's heads, as numbers."""
    import handmade as made

    case = made.case(seed)
    nulls = made.backgrounds(case, seed)
    records: list[dict[str, object]] = []
    for target in case.masks:
        mask = case.masks[target]
        if not mask.measurable.any():
            continue
        grid = [(name, share) for name in nulls for share in made.SHARES]
        heads = [*nulls.values(), *(made.plant(nulls[name], mask, share) for name, share in grid)]
        places = [*((name, "", 0.0) for name in nulls), *((name, target, share) for name, share in grid)]
        found = recorded(case, heads, len(nulls), places)
        records += found if not records else found[len(nulls) :]
    for name, contrast in made.MARKS.items():
        heads = made.own_marks(case, seed, contrast)
        records += recorded(case, heads, len(heads), [(name, "", 0.0)] * len(heads))
    keep("handmade", seed, {"heads": records, "positional": positional(case, seed)})


def short(seed: int) -> None:
    """One seed's random positional heads in windows as short as those of the planted markets."""
    import handmade as made

    keep("short", seed, {"positional": positional(made.case(seed, made.SHORT), seed)})


def positional(case: "Case", seed: int) -> list[list[str]]:
    """Labels of heads that weigh lags at random."""
    import handmade as made

    length = case.queries.span
    shapes = np.exp(np.random.default_rng((seed, 2)).normal(size=(POSITIONAL, length)))
    heads = [np.broadcast_to(shape / shape.sum(), (len(case.queries.rows), length)) for shape in shapes]
    return [sorted(found) for found in made.judged(case, heads, len(heads))[1]]


def keep(kind: str, seed: int, found: dict[str, object]) -> None:
    """Writes what a seed gave, whole or not at all."""
    target = KEPT / kind / f"{seed}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.with_suffix(".part").write_text(json.dumps(found))
    target.with_suffix(".part").rename(target)


def recorded(
    case: "Case", heads: list[np.ndarray], nulls: int, places: list[tuple[str, str, float]]
) -> list[dict[str, object]]:
    """Heads, each (background, target, share), as they are judged; the first `nulls` are one model."""
    import handmade as made

    found, labels = made.judged(case, heads, nulls)
    deviation = {}
    for name, finding in found.items():
        if finding.probe.content:
            kappa, shifted = finding.tally.nulls[name].kappas()
            spread = shifted.std(1)
            deviation[name] = np.where(spread > 1e-9, (kappa - shifted.mean(1)) / np.maximum(spread, 1e-9), 0.0)
    return [
        {
            "background": background,
            "target": target,
            "share": share,
            "model": nulls,
            "by_lag": bool((heads[head] == heads[head][:1]).all()),
            "labels": sorted(labels[head]),
            "kappa": {probe: float(one.score.kappa.value[head]) for probe, one in found.items()},
            "partial": {probe: float(one.partial[head]) for probe, one in found.items()},
            "p": {probe: float(one.p[head]) for probe, one in found.items() if one.probe.content},
            "z": {probe: float(z[head]) for probe, z in deviation.items()},
        }
        for head, (background, target, share) in enumerate(places)
    ]


MADE = {"handmade": handmade, "short": short}  # kind -> what makes a seed's heads


def run(command: list[str]) -> bool:
    """A process of one thread, behind everything else; its words in a log of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        print(f"{' '.join(command[1:])}: exit code {done.returncode}\n{done.stderr[-2000:]}", flush=True)
    return done.returncode == 0


def jobs(size: str, only: str | None) -> Iterator[tuple[str, list[str]]]:
    """Name and command of everything that is not done yet."""
    for kind in MADE if only is None else {only} & MADE.keys():
        for seed in range(HANDMADE[size]):
            if not (KEPT / kind / f"{seed}.json").is_file():
                yield f"{kind} {seed}", [sys.executable, __file__, "--only", kind, "--one", str(seed)]
    for experiment, seeds in PLANTED[size].items():
        for seed in range(seeds) if only in (None, experiment) else ():
            folder = KEPT / experiment / str(seed)
            if status(folder) == "complete":
                continue
            begun = (folder / "config.yaml").is_file()
            arguments = [f"resume={folder}"] if begun else [f"experiment={experiment}", f"seed={seed}"]
            arguments += [] if begun else [f"hydra.run.dir={folder}"]
            yield f"{experiment} {seed}", [sys.executable, str(ROOT / "train.py"), *arguments]


def status(folder: Path) -> str:
    """How a run ended, as its summary says; nothing where there is none."""
    try:
        return str(json.loads((folder / "summary.json").read_text())["status"])
    except (OSError, ValueError, KeyError):
        return ""


def write(name: str, kept: Path, text: str, left: int) -> None:
    """A page into docs/, or where `left` of what it is made from is missing beside what is kept."""
    target = kept / name if left else ROOT / "docs" / name
    target.write_text(text, encoding="utf-8")
    print(f"{target}: without {left} runs of the full set; docs/{name} stays" if left else target)


def work(wanted: list[tuple[str, list[str]]], at_once: int) -> int:
    """Runs every command, and says of each how it went; how many failed."""
    failed = 0
    with ThreadPoolExecutor(at_once) as pool:
        for (name, _), well in zip(wanted, pool.map(lambda job: run(job[1]), wanted), strict=True):
            print(f"{name}: {'done' if well else 'failed'}", flush=True)
            failed += not well
    return failed


def main(typed: list[str] | None = None) -> int:
    """Runs what is missing, then writes the page; the exit code."""
    options = argparse.ArgumentParser()
    options.add_argument("size", nargs="?", default="full", choices=["quick", "full", "report"])
    options.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options.add_argument("--only", choices=[*MADE, *PLANTED["full"]])
    options.add_argument("--one", type=int)
    given = options.parse_args(typed)
    if given.one is not None:
        MADE[given.only](given.one)
        return 0
    failed = work([] if given.size == "report" else list(jobs(given.size, given.only)), given.jobs)
    whole = (path for path in KEPT.glob("*/*/summary.json") if status(path.parent) == "complete")
    if not any(KEPT.glob("*/*.json")) and not any(whole):
        print(f"error: nothing is kept below {KEPT}: run make validate (VALIDATE=quick: minutes)", file=sys.stderr)
        return 2
    from validation_page import page

    write("validation.md", KEPT, page(KEPT), len(list(jobs("full", None))))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
