"""What the probes find: `python bench/results.py [--jobs N]`, or `report` to write docs/results.md alone.

Strict probes on the bundled bars and on a planted hourly market, five seeds each, one process of one thread a run. What
is done is kept below build/results/ and not done again; docs/results.md is written from all that is there.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from validate import ROOT, run, status

KEPT = ROOT / "build" / "results"
EXPERIMENTS = ("sp500", "planted_hourly")
SEEDS = 5


def jobs() -> Iterator[tuple[str, list[str]]]:
    """Name and command of every run that is not done yet."""
    for experiment in EXPERIMENTS:
        for seed in range(SEEDS):
            folder = KEPT / experiment / str(seed)
            if status(folder) == "complete":
                continue
            begun = (folder / "config.yaml").is_file()
            fresh = [f"experiment={experiment}", f"seed={seed}", "probes=strict", f"hydra.run.dir={folder}"]
            arguments = [f"resume={folder}"] if begun else fresh
            yield f"{experiment} {seed}", [sys.executable, str(ROOT / "train.py"), *arguments]


def main() -> None:
    """Runs what is missing, then writes the page."""
    options = argparse.ArgumentParser()
    options.add_argument("what", nargs="?", default="all", choices=["all", "report"])
    options.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = options.parse_args()
    wanted = [] if given.what == "report" else list(jobs())
    with ThreadPoolExecutor(given.jobs) as pool:
        for (name, _), well in zip(wanted, pool.map(lambda job: run(job[1]), wanted), strict=True):
            print(f"{name}: {'done' if well else 'failed'}", flush=True)
    from results_page import page

    target = ROOT / "docs" / "results.md"
    target.write_text(page(KEPT), encoding="utf-8")
    print(target.relative_to(ROOT))


if __name__ == "__main__":
    main()
