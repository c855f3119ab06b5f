"""Runs side by side: from their directories to a table, a page and a text."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import pandas as pd
from omegaconf import OmegaConf

from forecaster import compose, run
from forecaster.errors import ConfigError, DataError
from forecaster.explain import TYPED, display, within
from forecaster.forecasts import frame
from forecaster.forecasts.compare import Scored, by_run, compare, same_parameters
from forecaster.probes import across
from forecaster.probes.pruning import BOUND, removable
from forecaster.report.comparison import comparison_page, comparison_text
from forecaster.report.values import NETWORKS

TABLE: Final = "compare"
ROLES: Final = "compare_roles"
WEEKS: Final = "compare_weeks"
PAGE: Final = "compare.html"
# What does not make runs different in kind.
NOT_A_GROUP: Final = (
    *("seed", "source.seed", "source.cache", "experiment_name", "debug", "probes", "logger"),
    *("trainer.threads", "trainer.accelerator", "trainer.strategy", "trainer.devices", "trainer.nodes"),
    "data.in_memory_gb",
)
WITHIN: Final = 0.02


def found(names: Sequence[str]) -> list[Path]:
    """The run directories named, a sweep's jobs one by one; ConfigError for a directory that holds neither."""
    directories: list[Path] = []
    for name in names:
        directory = Path(name)
        jobs = sorted(directory.glob("*/config.yaml"), key=lambda path: (len(path.parent.name), path.parent.name))
        if (directory / run.CONFIG).is_file():
            directories.append(directory)
        elif jobs:
            directories += [path.parent for path in jobs]
        else:
            raise ConfigError(f"{name} is no run and no sweep (in {TYPED}); give directories that a training named")
    return directories


def compared(names: Sequence[str], against: str | None) -> tuple[str, Path]:
    """Text of the comparison, and the page written: into the sweep's directory, or one of its own for other runs."""
    directories = found(names)
    runs, left_out = _scored(directories)
    roles, weeks = _across(directories, runs)
    if len({one.group for one in runs}) < 2 and roles.empty and weeks.empty:
        raise DataError(f"compare: {len(runs)} runs of one kind: name runs that differ in more than their seed")
    reference = against or next((one.group for one in runs if one.model == "attention"), runs[0].group)
    table = compare(runs, reference).merge(_ranks(directories, runs), on="group", how="left")
    target = Path(names[0]) if len(names) == 1 else Path("outputs") / f"compare-{time.strftime('%Y-%m-%d_%H-%M-%S')}"
    told = [] if same_parameters(runs, WITHIN) else [f"Parameter counts differ by more than {WITHIN:.0%}."]
    told += [f"{display(path)} is left out: {reason}." for path, reason in left_out]
    told += _removable(directories, runs)
    run.write_table(target, TABLE, table)
    run.write_table(target, ROLES, roles)
    run.write_table(target, WEEKS, weeks)
    run.write_text(target / PAGE, comparison_page(table, by_run(runs), " ".join(told), roles, weeks))
    return comparison_text(table, " ".join(told), roles, weeks), target / PAGE


def _scored(directories: Sequence[Path]) -> tuple[list[Scored], list[tuple[Path, str]]]:
    summaries = {path: run.read_summary(path) for path in directories}
    left_out = [(path, f"status {summary.get('status')}") for path, summary in summaries.items() if not _done(summary)]
    complete = [path for path, summary in summaries.items() if _done(summary)]
    if not complete:
        raise DataError(f"compare: none of {len(directories)} runs is complete: wait for them, or run them again")
    written = {path: OmegaConf.structured(compose.load(path / run.CONFIG)) for path in complete}
    flat = {path: _flat(OmegaConf.to_container(config)) for path, config in written.items()}
    for path, values in flat.items():
        values["pruned"] = summaries[path].get("pruned", "no")
        values["init"] = values["init"] is not None  # each seed begins with a run of its own
    every = {key for values in flat.values() for key in values}
    keys = sorted(key for key in every if not any(within(key, part) for part in NOT_A_GROUP))
    differing = [key for key in keys if len({str(values.get(key)) for values in flat.values()}) > 1]
    runs: list[Scored] = []
    for path in complete:
        forecasts = frame.read(path / run.FORECASTS)
        [model] = [name for name in forecasts["model"].unique() if name in NETWORKS]
        mine = forecasts[forecasts["model"] == model].reset_index(drop=True)
        summary = summaries[path]
        seed, parameters = cast(int, summary["seed"]), cast(int, summary["parameters"])
        history = run.read_tables(path).get("history")  # a pruned run has none
        chosen_by = float("nan") if history is None else float(history["validation_loss"].min())
        runs.append(Scored(_label(flat[path], differing), str(model), seed, parameters, chosen_by, mine))
    return runs, left_out


def _done(summary: Mapping[str, object]) -> bool:
    return summary.get("status") == "complete"


def _flat(node: Any, prefix: str = "") -> dict[str, object]:
    if not isinstance(node, dict):
        return {prefix.removesuffix("."): node}
    found: dict[str, object] = {}
    for key, value in cast("dict[str, Any]", node).items():
        found |= _flat(value, f"{prefix}{key}.")
    return found


def _label(values: Mapping[str, object], differing: Sequence[str]) -> str:
    """What makes the run one of its group: the network's name alone, or key=value of everything that differs."""
    if "model.kind" in differing:
        rest = [key for key in differing if not key.startswith("model.")]
        return ", ".join([str(values["model.kind"]), *(f"{key}={values.get(key)}" for key in rest)])
    return ", ".join(f"{key.removeprefix('model.')}={values.get(key)}" for key in differing) or "all"


def _ranks(directories: Sequence[Path], runs: Sequence[Scored]) -> pd.DataFrame:
    """Mean effective rank of what heads compare and of what they write, by group, where runs were probed."""
    rows: list[tuple[str, str, float]] = []
    complete = [path for path in directories if _done(run.read_summary(path))]
    for path, one in zip(complete, runs, strict=True):
        facts = run.read_tables(path).get("head_facts")
        if facts is None:
            continue
        chosen = facts[facts["fact"].astype(str).str.startswith("effective rank")]
        rows += [
            (one.group, str(fact).replace("effective rank ", "rank_"), float(value))
            for fact, value in zip(chosen["fact"], chosen["value"], strict=True)
        ]
    ranks = pd.DataFrame(rows, columns=["group", "rank", "value"])
    return ranks.groupby(["group", "rank"])["value"].mean().unstack("rank").reset_index()


def _removable(directories: Sequence[Path], runs: Sequence[Scored]) -> list[str]:
    """Of each group the share of heads that can go at 1 % of skill, over the runs with a curve and a headline."""
    shares: dict[str, list[tuple[float, float]]] = {}
    complete = [path for path in directories if _done(run.read_summary(path))]
    for path, one in zip(complete, runs, strict=True):
        curve = run.read_tables(path).get("pruning")
        ours, lot = (
            ({}, {}) if curve is None else (removable(curve, order, "test") for order in ("importance", "random"))
        )
        if curve is not None and ours and lot:
            count = float(curve["removed"].max())
            shares.setdefault(one.group, []).append((ours[None] / count, float(np.median(list(lot.values()))) / count))
    sentences: list[str] = []
    for group, found in shares.items():
        mean, spread = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) if len(found) > 1 else (np.nan, np.nan)
        ranked, drawn = (f"{m:.0%} ± {s:.0%}" if s == s else f"{m:.0%}" for m, s in zip(mean, spread, strict=True))
        seeds = f"{len(found)} run{'' if len(found) == 1 else 's'}"
        sentences.append(
            f"Heads removable at {BOUND:.0%} of skill, {group}: {ranked} by importance, {drawn} by lot ({seeds})."
        )
    return sentences


def _across(directories: Sequence[Path], runs: Sequence[Scored]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Roles of heads and weekly heads over the seeds of each group, where at least two of its runs were probed."""
    groups: dict[str, list[across.Heads]] = {}
    complete = [path for path in directories if _done(run.read_summary(path))]
    for path, one in zip(complete, runs, strict=True):
        tables = run.read_tables(path)
        if "heads" in tables and "lag_profiles" in tables:
            week_bars = cast(int, run.read_summary(path)["week_bars"])
            groups.setdefault(one.group, []).append(across.read(tables["heads"], tables["lag_profiles"], week_bars))
    several = {group: heads for group, heads in groups.items() if len(heads) > 1}
    found = [
        pd.concat([made(heads).assign(group=group) for group, heads in several.items()])
        if several
        else pd.DataFrame(columns=["group", *columns])
        for made, columns in ((across.roles, across.ROLE_COLUMNS), (across.weeks, across.WEEK_COLUMNS))
    ]
    return found[0][["group", *across.ROLE_COLUMNS]], found[1][["group", *across.WEEK_COLUMNS]]
