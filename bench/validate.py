"""How often the probes are right: `make validate`, or `python bench/validate.py [quick] [--jobs N] [--only KIND]`.

Heads made by hand and markets planted, over seeds, one process of one thread each. What is done is kept below
build/validate/ and not done again; docs/validation.md is written from all that is there. `report` writes it alone.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

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
        found, labels = made.judged(case, heads, len(nulls))
        deviation = {}
        for name, finding in found.items():
            if finding.probe.content:
                kappa, shifted = finding.tally.nulls[name].kappas()
                spread = shifted.std(1)
                deviation[name] = np.where(spread > 1e-9, (kappa - shifted.mean(1)) / np.maximum(spread, 1e-9), 0.0)
        for head, (name, share) in enumerate([*((name, 0.0) for name in nulls), *grid]):
            if share == 0.0 and target != next(iter(case.masks)):
                continue
            records.append(
                {
                    "background": name,
                    "target": target if share else "",
                    "share": share,
                    "labels": sorted(labels[head]),
                    "kappa": {probe: float(one.score.kappa.value[head]) for probe, one in found.items()},
                    "partial": {probe: float(one.partial[head]) for probe, one in found.items()},
                    "p": {probe: float(one.p[head]) for probe, one in found.items() if one.probe.content},
                    "z": {probe: float(z[head]) for probe, z in deviation.items()},
                }
            )
    rng = np.random.default_rng((seed, 2))
    shapes = np.exp(rng.normal(size=(POSITIONAL, made.LENGTH)))
    count = len(case.queries.rows)
    heads = [np.broadcast_to(shape / shape.sum(), (count, made.LENGTH)) for shape in shapes]
    _, labels = made.judged(case, heads, len(heads))
    positional = [sorted(found) for found in labels]
    target = KEPT / "handmade" / f"{seed}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.with_suffix(".part").write_text(json.dumps({"heads": records, "positional": positional}))
    target.with_suffix(".part").rename(target)


def run(command: list[str]) -> bool:
    """A process of one thread, behind everything else; its words in a log of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        print(f"{' '.join(command[1:])}: exit code {done.returncode}\n{done.stderr[-2000:]}", flush=True)
    return done.returncode == 0


def jobs(size: str, only: str | None) -> Iterator[tuple[str, list[str]]]:
    """Name and command of everything that is not done yet."""
    if only in (None, "handmade"):
        for seed in range(HANDMADE[size]):
            if not (KEPT / "handmade" / f"{seed}.json").is_file():
                yield f"handmade {seed}", [sys.executable, __file__, "--one", str(seed)]
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


def main() -> None:
    """Runs what is missing, then writes the page."""
    options = argparse.ArgumentParser()
    options.add_argument("size", nargs="?", default="full", choices=["quick", "full", "report"])
    options.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options.add_argument("--only")
    options.add_argument("--one", type=int)
    given = options.parse_args()
    if given.one is not None:
        handmade(given.one)
        return
    wanted = [] if given.size == "report" else list(jobs(given.size, given.only))
    with ThreadPoolExecutor(given.jobs) as pool:
        for (name, _), well in zip(wanted, pool.map(lambda job: run(job[1]), wanted), strict=True):
            print(f"{name}: {'done' if well else 'failed'}", flush=True)
    from validation_page import page

    target = ROOT / "docs" / "validation.md"
    target.write_text(page(KEPT), encoding="utf-8")
    print(target.relative_to(ROOT))


if __name__ == "__main__":
    main()
