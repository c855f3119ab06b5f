"""Scores of a forecast frame, each with its interval, and PIT counts."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Shaped

from forecaster.errors import DataError
from forecaster.forecasts import bootstrap, losses
from forecaster.forecasts.baselines import TrainingMeans
from forecaster.forecasts.frame import QUANTILE_COLUMNS, same_rows

SCORE_COLUMNS: Final = ("model", "target", "step", "symbol", "fold", "metric", "value", "low", "high", "n")
ALL: Final = "all"
UNDEFINED: Final = "undefined"
TOO_FEW: Final = "too few"

COVERAGE: Final = {"coverage_50": ("q25", "q75"), "coverage_80": ("q10", "q90"), "coverage_90": ("q05", "q95")}
MIN_ROWS: Final = 3  # two points always lie on a line
_ROUNDING: Final = 1e-12  # a variance below this share of the mean square is rounding

Sums = dict[str, Float[np.ndarray, "B S"]]


@dataclass(frozen=True)
class _Rows:
    """One model's rows of one target and step: numbers per row, and where each row stands in symbols and dates."""

    frame: pd.DataFrame
    history: Float[np.ndarray, " R"]  # training mean of the row's symbol
    symbol: Int[np.ndarray, " R"]
    date: Int[np.ndarray, " R"]
    symbols: Shaped[np.ndarray, " S"]
    dates: int


def smearing(validation: pd.DataFrame) -> losses.Factors:
    """Mean of exp(2 (y - m)) over a model's volatility forecasts of the validation rows, by fold, model and step.

    Duan (1983), Smearing Estimate: A Nonparametric Retransformation Method. Pooled over symbols.
    """
    known = validation[(validation["target"] == "volatility") & validation["actual"].notna()]
    groups = known.assign(ratio=np.exp(2.0 * (known["actual"] - known["mean"]))).groupby(["fold", "model", "step"])
    return {losses.keys(rows)[0]: float(rows["ratio"].mean()) for _, rows in groups}


def scores(frame: pd.DataFrame, means: TrainingMeans, factors: losses.Factors) -> pd.DataFrame:
    """SCORE_COLUMNS for every model, target, step and fold, over all symbols together and for each one.

    With y actual, m mean forecast, q quantiles, all sums over the rows whose future is known:
    r2 = 1 - sum (y - m)^2 / sum (y - mean of the symbol's y)^2; r2_historical: about the symbol's training mean.
    mse, mae, pinball, crps: means of the losses. qlike: volatility only. coverage_50, _80, _90: share of
    q25 <= y <= q75, q10..q90, q05..q95. ic: Spearman correlation of m and y (pooled: of ranks
    within symbols). hit_rate: return only, share of sign(m) = sign(y) among y != 0, m = 0 counting half.
    mz_slope, mz_intercept: y = a + b m, Mincer and Zarnowitz (1969).

    low, high: 95 % percentile interval of the stationary bootstrap over origin dates with all symbols together, block
    length from the model's squared error by date; resampled ic keeps the ranks of the full sample. `too few` under 10
    blocks. A score that has no value (nothing varies, fewer than 3 rows) is `undefined`, its interval empty.
    fold is text: each fold, and `all` for the folds joined where there are several.
    DataError where models of a target are not on the same rows, or a training mean or smearing factor is missing.
    """
    known = same_rows(frame[frame["actual"].notna()])
    table: list[tuple[object, ...]] = []
    for _, part in known.groupby(["target", "step"]):
        for fold, chosen in _folds(part):
            for _, one in chosen.groupby("model"):
                rows = _rows(one.reset_index(drop=True), means)
                model, target, step = (one[column].iloc[0] for column in ("model", "target", "step"))
                scored = _scored(rows, str(target), factors)
                table += [(model, target, step, symbol, fold, *cells) for symbol, cells in scored]
    return pd.DataFrame(table, columns=list(SCORE_COLUMNS)).astype({"value": object, "low": object, "high": object})


def pit(frame: pd.DataFrame) -> pd.DataFrame:
    """How many outcomes fall between neighbouring quantiles, by model, target and step.

    bin b of 0..Q counts the rows with exactly b quantiles below the outcome: bin 0 is at or under q05, bin Q over q95.
    A calibrated model has n (tau_{b+1} - tau_b) of n there, tau running from 0 over QUANTILES to 1.
    """
    known = frame[frame["actual"].notna()]
    below_R = (known[list(QUANTILE_COLUMNS)].to_numpy() < known["actual"].to_numpy()[:, None]).sum(axis=1)
    bins = len(QUANTILE_COLUMNS) + 1
    table: list[tuple[object, ...]] = []
    for _, rows in known.assign(bin=below_R).groupby(["model", "target", "step"]):
        counts = np.bincount(rows["bin"].to_numpy(), minlength=bins)
        model, target, step = (rows[column].iloc[0] for column in ("model", "target", "step"))
        table += [(model, target, step, b, int(count)) for b, count in enumerate(counts)]
    return pd.DataFrame(table, columns=["model", "target", "step", "bin", "count"])


def _folds(part: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    folds = [(str(fold), rows) for fold, rows in part.groupby("fold")]
    yield from folds
    if len(folds) > 1:
        yield ALL, part


def _rows(one: pd.DataFrame, means: TrainingMeans) -> _Rows:
    keys = list(zip(one["fold"].to_list(), one["symbol"], one["target"], one["step"].to_list(), strict=True))
    missing = next((key for key in keys if key not in means), None)
    if missing is not None:
        raise DataError(
            f"r2_historical of {missing[2]}: no training mean for {missing[1]} in fold {missing[0]}: give one"
        )
    symbols, symbol_R = np.unique(one["symbol"].to_numpy(dtype=object), return_inverse=True)
    dates, date_R = np.unique(one["origin"].to_numpy(), return_inverse=True)
    return _Rows(one, np.array([means[key] for key in keys]), symbol_R, date_R, symbols, len(dates))


def _scored(rows: _Rows, target: str, factors: losses.Factors) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Symbol (`all` first) and the cells metric, value, low, high, n."""
    common = _losses(rows, target, factors)
    by_date = np.bincount(rows.date, common["squared"]) / np.bincount(rows.date)
    length = bootstrap.block_length(by_date)
    # The first sample is the data as they are.
    counts_BD = np.concatenate((np.ones((1, rows.dates)), bootstrap.multiplicities(rows.dates, length)))
    for pooled in (True, False):
        symbols, group_R = ([ALL], np.zeros_like(rows.symbol)) if pooled else (list(rows.symbols), rows.symbol)
        moments, centre_G = _moments(rows, group_R)
        sums = _sums(counts_BD, rows, {**common, **moments})
        values = _metrics(sums, centre_G, target, pooled)
        count_G = np.bincount(group_R)
        moved_G = np.bincount(group_R, common["moved"]).astype(np.int64)
        dates_G = [rows.dates] if pooled else count_G
        for g, symbol in enumerate(symbols):
            enough = bootstrap.enough(int(dates_G[g]), length)
            for name, value_BG in values.items():
                n = int(moved_G[g] if name == "hit_rate" else count_G[g])
                yield symbol, (name, *_cells(value_BG[:, g], enough), n)


def _cells(value_B: Float[np.ndarray, " B"], enough: bool) -> tuple[object, object, object]:
    if not np.isfinite(value_B[0]):
        return UNDEFINED, "", ""
    # A sample without variance has no value, and samples like that come of too few distinct dates.
    if not enough or not np.isfinite(value_B).all():
        return float(value_B[0]), TOO_FEW, TOO_FEW
    low, high = np.percentile(value_B[1:], (2.5, 97.5))
    return float(value_B[0]), float(low), float(high)


def _losses(rows: _Rows, target: str, factors: losses.Factors) -> dict[str, Float[np.ndarray, " R"]]:
    """Numbers per row that don't depend on which rows they are summed with."""
    frame = rows.frame
    actual, mean = frame["actual"].to_numpy(), frame["mean"].to_numpy()
    columns = {
        "n": np.ones(len(frame)),
        "squared": losses.squared_error(frame),
        "about_history": (actual - rows.history) ** 2,
        "mae": np.abs(actual - mean),
        "pinball": losses.pinball(frame),
        "crps": losses.crps(frame),
        "moved": (actual != 0).astype(np.float64),
        "hit": np.where(mean == 0, 0.5, np.sign(mean) == np.sign(actual)) * (actual != 0),
    }
    for name, (low, high) in COVERAGE.items():
        columns[name] = ((frame[low] <= frame["actual"]) & (frame["actual"] <= frame[high])).to_numpy(np.float64)
    if target == "volatility":
        columns["qlike"] = losses.qlike(frame, factors)
    return columns


def _moments(rows: _Rows, group_R: Int[np.ndarray, " R"]) -> tuple[dict[str, np.ndarray], Float[np.ndarray, "2 G"]]:
    """Values about their groups' centres and ranks within symbols, squares and products of both, and the centres."""
    pair = rows.frame[["actual", "mean"]]
    groups = pair.groupby(group_R)
    centre_G2 = groups.mean().to_numpy()
    y, m = (pair.to_numpy() - centre_G2[group_R]).T
    # Within symbols also where they are pooled: what tells one symbol's level from another's is no skill over time.
    size_R = np.bincount(rows.symbol)[rows.symbol, None]
    rank_y, rank_m = ((pair.groupby(rows.symbol).rank().to_numpy() - (size_R + 1) / 2) / size_R).T
    moments = {"y": y, "m": m, "yy": y * y, "mm": m * m, "ym": y * m}
    ranks = {"u": rank_y, "v": rank_m, "uu": rank_y**2, "vv": rank_m**2, "uv": rank_y * rank_m}
    return moments | ranks, centre_G2.T


def _sums(counts_BD: Float[np.ndarray, "B D"], rows: _Rows, columns: dict[str, np.ndarray]) -> Sums:
    """Sums of the columns over dates, by bootstrap sample and symbol."""
    values_DSK = np.zeros((rows.dates, len(rows.symbols), len(columns)))
    values_DSK[rows.date, rows.symbol] = np.column_stack(list(columns.values()))
    sums_BSK = np.tensordot(counts_BD, values_DSK, axes=1)
    return {name: sums_BSK[:, :, k] for k, name in enumerate(columns)}


def _metrics(
    sums: Sums, centre_G: Float[np.ndarray, "2 G"], target: str, pooled: bool
) -> dict[str, Float[np.ndarray, "B G"]]:
    """Metrics of the sums, for each symbol or for all pooled; NaN where undefined."""
    within_BS = _variation(sums["n"], sums["y"], sums["yy"])
    total = {name: value.sum(axis=1, keepdims=True) for name, value in sums.items()} if pooled else sums
    within_BG = within_BS.sum(axis=1, keepdims=True) if pooled else within_BS
    n = total["n"]
    values = {
        "r2": 1.0 - _ratio(total["squared"], within_BG, n),
        "r2_historical": 1.0 - _ratio(total["squared"], total["about_history"], n),
        "mse": _ratio(total["squared"], n),
    }
    values |= {name: _ratio(total[name], n) for name in ("mae", "pinball", "crps", "qlike", *COVERAGE) if name in total}
    var_m, var_u, var_v = (_variation(n, total[x], total[x + x]) for x in "muv")
    values["ic"] = _ratio(total["uv"] - _ratio(total["u"] * total["v"], n), np.sqrt(var_u * var_v), n)
    if target == "return":
        values["hit_rate"] = _ratio(total["hit"], total["moved"])
    slope = _ratio(total["ym"] - _ratio(total["y"] * total["m"], n), var_m, n)
    values["mz_slope"] = slope
    mean_y, mean_m = (_ratio(total[x], n) + centre for x, centre in zip("ym", centre_G, strict=True))
    values["mz_intercept"] = mean_y - slope * mean_m
    return values


def _variation(n: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Sum of squares about the mean from n, sum x and sum x^2; exactly 0 where it is rounding."""
    about = second - _ratio(first**2, n)
    return np.where(about > _ROUNDING * second, about, 0.0)


def _ratio(above: np.ndarray, below: np.ndarray, n: np.ndarray | None = None) -> np.ndarray:
    """Quotient, NaN where below is 0 or, with n given, where there are fewer than MIN_ROWS rows."""
    defined = below > 0 if n is None else (below > 0) & (n >= MIN_ROWS)
    return np.where(defined, above / np.where(below > 0, below, 1.0), np.nan)
