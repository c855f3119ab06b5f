"""Runs side by side: seeds folded, each group against a reference, on the same days."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import stats

from forecaster.errors import DataError
from forecaster.forecasts import losses
from forecaster.forecasts.significance import diebold_mariano, differences, verdict

COLUMNS: Final = (
    *("group", "model", "parameters", "seeds", "validation_loss", "validation_loss_sd"),
    *("target", "step", "r2", "r2_sd", "mse", "pinball", "pinball_sd"),
    *("against", "loss_ratio", "statistic", "p", "seeds_p", "verdict"),
)
NOTHING: Final = ("", np.nan, np.nan, np.nan, np.nan, "")  # a reference has no test against itself


@dataclass(frozen=True)
class Scored:
    """A run as the comparison sees it: group, seed, size, the loss that its epoch was chosen by, its test forecasts."""

    group: str
    model: str
    seed: int
    parameters: int
    validation_loss: float
    forecasts: pd.DataFrame


def compare(runs: Sequence[Scored], reference: str) -> pd.DataFrame:
    """COLUMNS: a row for each group, target and step, groups in their first order.

    validation_loss (what a choice between groups should go by), r2 = 1 - SSE / SST about each symbol's test mean, mse,
    pinball: means over seeds; _sd the standard deviation over
    them (divisor n - 1; NaN for one seed). Against the reference, on squared errors averaged over symbols by origin:
    loss_ratio, mean over seeds of mse / reference's mse; statistic and p, Diebold-Mariano on losses averaged over the
    seeds that both have, where all were tested on the same days (NaN otherwise: each seed has its own bars);
    seeds_p, two-sided paired t over seeds of log(mse / reference's mse). verdict: by p, else by seeds_p.
    DataError where a group has a seed twice, or the groups share no seed, target and step with the reference.
    """
    groups = list(dict.fromkeys(run.group for run in runs))
    if reference not in groups:
        raise DataError(f"compare: no run is of group {reference!r}: choose from {', '.join(groups)}")
    by_group = {group: _by_seed([run for run in runs if run.group == group]) for group in groups}
    table: list[tuple[object, ...]] = []
    for group in groups:
        mine, theirs = by_group[group], by_group[reference]
        first = next(iter(mine.values()))
        for target, step in _targets(first.forecasts):
            scored = {seed: _part(run, target, step) for seed, run in mine.items()}
            against = {seed: _part(run, target, step) for seed, run in theirs.items()}
            numbers = [_numbers(part) for part in scored.values()]
            r2, mse, pinball = (np.array(column) for column in zip(*numbers, strict=True))
            tested = NOTHING if group == reference else (reference, *_tested(scored, against, step))
            chosen_by = np.array([run.validation_loss for run in mine.values()])
            head = (group, first.model, first.parameters, len(mine), chosen_by.mean(), _sd(chosen_by), target, step)
            table.append((*head, r2.mean(), _sd(r2), mse.mean(), pinball.mean(), _sd(pinball), *tested))
    return pd.DataFrame(table, columns=list(COLUMNS))


def by_run(runs: Sequence[Scored]) -> pd.DataFrame:
    """group, seed, target, step and r2 of every run."""
    rows = [
        (one.group, one.seed, target, step, _numbers(_part(one, target, step))[0])
        for one in runs
        for target, step in _targets(one.forecasts)
    ]
    return pd.DataFrame(rows, columns=["group", "seed", "target", "step", "r2"])


def same_parameters(runs: Sequence[Scored], within: float = 0.02) -> bool:
    """Whether the largest network has at most that share more parameters than the smallest."""
    sizes = [run.parameters for run in runs]
    return max(sizes) <= min(sizes) * (1.0 + within)


def _by_seed(runs: Sequence[Scored]) -> Mapping[int, Scored]:
    found: dict[int, Scored] = {}
    for run in runs:
        if run.seed in found:
            raise DataError(f"compare: group {run.group!r} has seed {run.seed} twice: name each run once")
        found[run.seed] = run
    return found


def _targets(forecasts: pd.DataFrame) -> list[tuple[str, int]]:
    pairs = forecasts[["target", "step"]].drop_duplicates()
    return [(str(target), int(step)) for target, step in pairs.itertuples(index=False)]


def _part(run: Scored, target: str, step: int) -> pd.DataFrame:
    rows = run.forecasts
    chosen = rows[(rows["target"] == target) & (rows["step"] == step) & rows["actual"].notna()]
    return chosen.sort_values(["symbol", "origin"], kind="stable", ignore_index=True)


def _numbers(part: pd.DataFrame) -> tuple[float, float, float]:
    squared = losses.squared_error(part)
    centred = part["actual"] - part.groupby("symbol")["actual"].transform("mean")
    total = float((centred**2).sum())
    r2 = 1.0 - float(squared.sum()) / total if total > 0 else np.nan
    return r2, float(squared.mean()), float(losses.pinball(part).mean())


def _tested(
    scored: Mapping[int, pd.DataFrame], against: Mapping[int, pd.DataFrame], step: int
) -> tuple[float, float, float, float, str]:
    shared = [seed for seed in scored if seed in against and _same_rows(scored[seed], against[seed])]
    if not shared:
        raise DataError("compare: no seed was run by both groups on the same days: run the sweep over equal seeds")
    mine = [_by_date(scored[seed]) for seed in shared]
    theirs = [_by_date(against[seed]) for seed in shared]
    ratios = np.array([ours.mean() / other.mean() for ours, other in zip(mine, theirs, strict=True)])
    seeds_p = np.nan
    if len(ratios) > 1 and np.ptp(ratios) > 0:
        seeds_p = float(cast(Any, stats.ttest_1samp(np.log(ratios), 0.0)).pvalue)
    statistic, p = np.nan, np.nan
    if all(ours.index.equals(mine[0].index) for ours in mine) and _same_actuals([scored[seed] for seed in shared]):
        d = differences(np.mean(mine, axis=0), np.mean(theirs, axis=0))
        statistic, p = diebold_mariano(d, step)
    judged = p if not np.isnan(p) else seeds_p
    direction = statistic if not np.isnan(p) else float(np.log(ratios).mean())
    return float(ratios.mean()), statistic, p, seeds_p, verdict(direction, judged)


def _by_date(part: pd.DataFrame) -> pd.Series:
    return part.assign(loss=losses.squared_error(part)).groupby("origin")["loss"].mean().sort_index()


def _same_rows(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    columns = ["symbol", "origin", "target_time"]
    return one[columns].equals(other[columns])


def _same_actuals(parts: Sequence[pd.DataFrame]) -> bool:
    return all(np.array_equal(part["actual"].to_numpy(), parts[0]["actual"].to_numpy()) for part in parts)


def _sd(values: Float[np.ndarray, " n"]) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else np.nan
