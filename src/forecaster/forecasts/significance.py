"""Tests of whether one model forecasts better than another, and what they say in words."""

from typing import Final

import numpy as np
import pandas as pd
from arch.bootstrap import MCS
from jaxtyping import Float
from scipy import stats

from forecaster.errors import DataError
from forecaster.forecasts import bootstrap, losses
from forecaster.forecasts.frame import same_rows
from forecaster.forecasts.scores import ALL, TOO_FEW, UNDEFINED

TEST_COLUMNS: Final = ("target", "step", "model", "baseline", "loss", "statistic", "p", "mcs_p", "verdict")
BETTER: Final = "better"
NO_DIFFERENT: Final = "no different"
WORSE: Final = "worse"
SIZE: Final = 0.05  # of the two-sided tests
_ROUNDING: Final = 1e-12  # a difference below this share of the mean loss is rounding


def diebold_mariano(d: Float[np.ndarray, " D"], horizon: int) -> tuple[float, float]:
    """Statistic and two-sided p of equal mean loss, from loss differences in the order of time, h steps ahead.

    DM = mean(d) / sqrt((g_0 + 2 sum_{k=1}^{h-1} g_k) / n) with g_k the autocovariances (divisor n); times
    sqrt((n + 1 - 2h + h (h - 1) / n) / n); against Student's t with n - 1 degrees of freedom.
    Where that variance is not positive, the g_k get Bartlett's weights 1 - k/h. Differences that never vary give
    -inf or inf and p = 0. NaN, NaN (undefined) where all are 0, n < 2 or n + 1 - 2h + h (h - 1) / n <= 0.
    Diebold and Mariano (1995), Comparing Predictive Accuracy; Harvey, Leybourne and Newbold (1997), Testing the
    Equality of Prediction Mean Squared Errors.
    """
    n, h = len(d), horizon
    correction = (n + 1 - 2 * h + h * (h - 1) / n) / n if n else 0.0
    if n < 2 or correction <= 0 or not d.any():
        return np.nan, np.nan
    mean = float(d.mean())
    if np.ptp(d) == 0:
        return float(np.copysign(np.inf, mean)), 0.0
    centred = d - mean
    covariance = np.array([centred[k:] @ centred[: n - k] / n for k in range(h)])
    variance = covariance[0] + 2.0 * covariance[1:].sum()
    if variance <= 0:
        variance = covariance[0] + 2.0 * ((1.0 - np.arange(1, h) / h) @ covariance[1:])
    statistic = mean / float(np.sqrt(variance / n)) * float(np.sqrt(correction))
    return statistic, float(2.0 * stats.t.sf(abs(statistic), n - 1))


def better(d: Float[np.ndarray, " D"], horizon: int) -> float:
    """One-sided p that the first model's loss is not below the second's (d = first - second); NaN where undefined."""
    statistic, _ = diebold_mariano(d, horizon)
    return float(stats.t.cdf(statistic, max(len(d) - 1, 1)))


def tests(frame: pd.DataFrame, model: str, factors: losses.Factors) -> pd.DataFrame:
    """TEST_COLUMNS: Diebold-Mariano of `model` against every other model, by target, step and loss.

    Losses (squared_error, pinball; qlike for volatility) are averaged over symbols by origin date, folds joined.
    Negative statistics favour the model; verdict at 5 % two-sided. mcs_p is the model's p in the confidence set of all
    models of that target: under .05 it is not among the best. Text `undefined` where losses are identical,
    `too few` for mcs_p under 10 blocks of dates. DataError where models are not on the same rows.
    """
    known = same_rows(frame[frame["actual"].notna()])
    table: list[tuple[object, ...]] = []
    for _, part in known.groupby(["target", "step"]):
        target, step = str(part["target"].iloc[0]), int(part["step"].iloc[0])
        for loss in ("squared_error", "pinball", *(("qlike",) if target == "volatility" else ())):
            by_date = _by_date(part, loss, factors)
            if model not in by_date:
                raise DataError(f"tests of {target}: no forecasts of {model}: add its rows to the frame")
            mcs_p = _or_word(confidence_set_p(by_date, model))
            for baseline in by_date.columns.drop(model):
                d = differences(by_date[model].to_numpy(), by_date[baseline].to_numpy())
                statistic, p = diebold_mariano(d, step)
                numbers = (_or_word(statistic), _or_word(p), mcs_p)
                table.append((target, step, model, baseline, loss, *numbers, verdict(statistic, p)))
    columns = pd.DataFrame(table, columns=list(TEST_COLUMNS))
    return columns.astype({"statistic": object, "p": object, "mcs_p": object})


def differences(first_D: Float[np.ndarray, " D"], second_D: Float[np.ndarray, " D"]) -> Float[np.ndarray, " D"]:
    """Their difference, with what is only rounding set to 0: a test would otherwise find it significant."""
    d = first_D - second_D
    return np.where(np.abs(d) > _ROUNDING * (np.abs(first_D).mean() + np.abs(second_D).mean()), d, 0.0)


def verdict(statistic: float, p: float) -> str:
    """The words better, no different or worse at 5 % two-sided, `undefined` where the test is."""
    if np.isnan(p):
        return UNDEFINED
    if p >= SIZE:
        return NO_DIFFERENT
    return BETTER if statistic < 0 else WORSE


def confidence_set_p(by_date: pd.DataFrame, model: str) -> float | str:
    """The model's p value in the model confidence set (range statistic) over all columns of losses [D, models].

    Models with the losses of one before them count once. NaN where no other model is left, or two differ by a
    constant. Block length: the longest that suits the model's difference to any other.
    Hansen, Lunde and Nason (2011), The Model Confidence Set; arch's implementation.
    """
    distinct = [model]
    for other in by_date.columns.drop(model):
        gaps = [differences(by_date[other].to_numpy(), by_date[kept].to_numpy()) for kept in distinct]
        if all(gap.any() for gap in gaps):
            if any(np.ptp(gap) == 0 for gap in gaps):
                return np.nan
            distinct.append(other)
    if len(distinct) < 2:
        return np.nan
    losses_DM = by_date[distinct].to_numpy()
    length = max(bootstrap.block_length(losses_DM[:, 0] - other_D) for other_D in losses_DM.T[1:])
    if not bootstrap.enough(len(losses_DM), length):
        return TOO_FEW
    mcs = MCS(losses_DM, SIZE, reps=bootstrap.REPLICATIONS, block_size=length, seed=bootstrap.SEED)
    mcs.compute()
    return float(mcs.pvalues["Pvalue"].loc[0])


def headline(tests: pd.DataFrame, scores: pd.DataFrame) -> list[str]:
    """One sentence per target: the model against its best baseline, the one with the lowest mse, at the first step.

    With several steps it begins with how many of them say what, each against the best baseline of that step.
    """
    pooled = scores[scores["symbol"] == ALL]
    joined = pooled["fold"] == ALL
    pooled = pooled[joined] if joined.any() else pooled
    squared = tests[tests["loss"] == "squared_error"]
    return [_sentence(str(target), rows, pooled) for target, rows in squared.groupby("target")]


def _sentence(target: str, rows: pd.DataFrame, pooled: pd.DataFrame) -> str:
    verdicts: list[str] = []
    sentence = ""
    for step, at_step in rows.groupby("step"):
        scored = pooled[(pooled["target"] == target) & (pooled["step"] == step)]
        mse = scored[(scored["metric"] == "mse") & scored["model"].isin(at_step["baseline"])]
        best = str(mse["model"].iloc[int(mse["value"].to_numpy(np.float64).argmin())])
        test = at_step[at_step["baseline"] == best].iloc[0]
        verdicts.append(str(test["verdict"]))
        sentence = sentence or _comparison(str(test["model"]), best, test, scored[scored["metric"] == "r2"])
    if len(verdicts) == 1:
        return f"{target}: {sentence}"
    counts = ", ".join(f"{word} at {verdicts.count(word)}" for word in dict.fromkeys(verdicts))
    return f"{target}: of {len(verdicts)} steps {counts}; one step ahead {sentence}"


def _comparison(model: str, best: str, test: pd.Series, r2: pd.DataFrame) -> str:
    ours, theirs = (r2[r2["model"] == name].iloc[0] for name in (model, best))
    words = {
        BETTER: "is better than the best baseline",
        NO_DIFFERENT: "is no different from the best baseline",
        WORSE: "is worse than the best baseline",
        UNDEFINED: "cannot be told from the best baseline",
    }
    p = test["p"]
    told = f"p {_number(p)}" if isinstance(p, str) else "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
    between = f"{_number(ours['low'])} to {_number(ours['high'])}" if isinstance(ours["low"], float) else ours["low"]
    interval = f" [{between}]" if between else ""
    skill = f"r2 {_number(ours['value'])}{interval} against {_number(theirs['value'])}"
    return f"{model} {words[str(test['verdict'])]}, {best} ({skill}, {told})"


def _number(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _by_date(part: pd.DataFrame, loss: str, factors: losses.Factors) -> pd.DataFrame:
    """Losses [D, models], averaged over symbols by origin date."""
    match loss:
        case "squared_error":
            values = losses.squared_error(part)
        case "pinball":
            values = losses.pinball(part)
        case _:
            values = losses.qlike(part, factors)
    means = part.assign(loss=values).groupby(["origin", "model"])["loss"].mean()
    return means.unstack("model").sort_index()


def _or_word(value: float | str) -> float | str:
    return UNDEFINED if isinstance(value, float) and np.isnan(value) else value
