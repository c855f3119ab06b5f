"""Numbers and words of the run's tables as text: a cell holds a number, nothing, or a word such as `undefined`."""

import math
from collections.abc import Iterable, Mapping

import pandas as pd

Row = Mapping[str, object]

# Names of trained networks in the model columns: one of them a run.
NETWORKS = ("attention", "encoder_decoder", "single_head", "attention_free", "lstm", "gru", "dlinear")
MODELS = (*NETWORKS, "persistence", "zero", "mean", "seasonal", "ewma", "har", "garch", "gjr", "ridge", "boosting")
MISSING = "–"


def number(value: object) -> float | None:
    """The cell as a finite float; None where it is empty or holds a word (`undefined`, `too few`, `not measurable`)."""
    try:
        parsed = float(str(value))
    except ValueError:
        return None
    return parsed if math.isfinite(parsed) else None


def word(value: object) -> str:
    """The cell as text, its own words kept; an empty cell (None, NaN, NaT) is the empty text."""
    text = "" if value is None else str(value).strip()
    return "" if text.lower() in {"nan", "none", "nat", "<na>"} else text


def decimals(value: object, places: int = 3) -> str:
    """A bounded quantity (a share, r2, kappa) with fixed places and a true minus sign; words pass through."""
    parsed = number(value)
    if parsed is None:
        return word(value) or MISSING
    text = f"{parsed:.{places}f}"
    return text.removeprefix("-") if float(text) == 0 else text.replace("-", "−")


def significant(value: object) -> str:
    """A quantity of unknown size (a loss, odds) with three significant digits; words pass through."""
    parsed = number(value)
    if parsed is None:
        return word(value) or MISSING
    if abs(parsed) >= 1000:
        text = f"{parsed:,.0f}"
    elif 0 < abs(parsed) < 0.001:
        text = f"{parsed:.2e}"
    else:
        text = f"{parsed:#.3g}".rstrip(".") if parsed else "0"
    return text.replace("-", "−")


def interval(low: object, high: object, places: int | None = 3) -> str:
    """`[low, high]`, or the one word that stands for both, or the empty text; places None: significant digits."""
    if number(low) is None and number(high) is None:
        return word(low) or word(high)
    shown = [significant(end) if places is None else decimals(end, places) for end in (low, high)]
    return f"[{shown[0]}, {shown[1]}]"


def p_value(value: object, places: int = 3) -> str:
    """`p = 0.012`, `p < 0.001`, or the word in the cell after `p `."""
    told = probability(value, places)
    return f"p {told}" if number(value) is None or told.startswith("<") else f"p = {told}"


def probability(value: object, places: int = 3) -> str:
    """`0.012`, `< 0.001`, or the word in the cell."""
    parsed, smallest = number(value), 10.0**-places
    if parsed is None:
        return word(value) or MISSING
    return f"< {smallest:.{places}f}" if parsed < smallest else f"{parsed:.{places}f}"


def distinct(cells: Iterable[object]) -> list[str]:
    """The distinct texts in their first order."""
    return list(dict.fromkeys(str(cell) for cell in cells))


def whole(value: object) -> int:
    """A layer, head, lag or step, which a table with empty cells may hold as 3.0."""
    return int(float(str(value)))


def records(table: pd.DataFrame) -> list[Row]:
    """The table row by row."""
    return [{str(name): cell for name, cell in row.items()} for row in table.to_dict("records")]


def pooled(scores: pd.DataFrame) -> list[Row]:
    """The rows of scores.csv for all symbols, and all folds where there are several; the trained network first."""
    rows = [row for row in records(scores) if str(row["symbol"]) == "all"]
    joined = [row for row in rows if str(row["fold"]) == "all"]
    return sorted(joined or rows, key=lambda row: place(row["model"]))


def place(model: object) -> int:
    """Where a model stands in a listing: the trained network first, unknown names last."""
    return MODELS.index(str(model)) if str(model) in MODELS else len(MODELS)


def is_trained(model: object) -> bool:
    """Whether a model is the run's trained network rather than a baseline."""
    return str(model) in NETWORKS


def trained_name(models: Iterable[object]) -> str:
    """The name of the trained network among the models."""
    return next((str(model) for model in models if is_trained(model)), "the network")


def is_label(cell: object) -> bool:
    """Whether a cell of the column `label` names a label."""
    return word(cell) not in {"", "none"}
