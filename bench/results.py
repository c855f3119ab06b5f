"""What the probes find: `python bench/results.py [--jobs N]`, or `report` to write docs/results.md alone.

Strict probes on the bundled bars and on a planted hourly market, five seeds each, one process of one thread a run. What
is done is kept below build/results/ and not done again. From all ten runs docs/results.md is written, from fewer
build/results/results.md.
"""

import argparse
import os
import sys
from collections.abc import Iterator

from validate import ROOT, status, work, write

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


def main(typed: list[str] | None = None) -> int:
    """Runs what is missing, then writes the page; the exit code."""
    options = argparse.ArgumentParser()
    options.add_argument("what", nargs="?", default="all", choices=["all", "report"])
    options.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = options.parse_args(typed)
    failed = work([] if given.what == "report" else list(jobs()), given.jobs)
    if not any(status(path.parent) == "complete" for path in KEPT.glob("*/*/summary.json")):
        print(f"error: no whole run below {KEPT}: run python bench/results.py", file=sys.stderr)
        return 2
    from results_page import page

    write("results.md", KEPT, page(KEPT), len(list(jobs())))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
