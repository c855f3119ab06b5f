"""The probes as a library: a model, windows of bars and a forecast of it in, the tables of a run out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from torch import nn

from forecaster.bars.contract import Bars, check, quality_report
from forecaster.foreign.subject import Forecast, Foreign, Loss, squared_error
from forecaster.foreign.tokens import patches
from forecaster.probes.heads import Probed, probe
from forecaster.probes.masks import Probe
from forecaster.probes.noise import Networks
from forecaster.windows.panel import Panel, build
from forecaster.windows.splits import Split, split

__all__ = ["Probed", "Windows", "patches", "probe_model", "squared_error", "windows"]

UNTRAINED: Final = 20
RETRAINED: Final = 5


@dataclass(frozen=True)
class Windows:
    """Windows of L bars with what comes after them, in three parts by date."""

    panel: Panel
    split: Split
    length: int

    @property
    def feature_names(self) -> tuple[str, ...]:
        """What each column of a window is."""
        return self.panel.feature_names

    @property
    def target_names(self) -> tuple[str, ...]:
        """What is forecast."""
        return self.panel.target_names

    def part(
        self, name: Literal["train", "validation", "test"]
    ) -> tuple[Float[np.ndarray, "n L F"], Float[np.ndarray, "n H K"], Float[np.ndarray, "n H C"]]:
        """A part's windows of raw features, the calendar ahead, both float32, and targets, float64."""
        origins = getattr(self.split, name)
        return self.panel.window(origins, self.length), self.panel.future(origins), self.panel.targets[origins]


def windows(
    bars: Bars | pd.DataFrame,
    length: int,
    *,
    targets: Sequence[str] = ("return",),
    horizon: int = 1,
    train_end: str | float = 0.7,
    validation_end: str | float = 0.85,
    calendar: str = "XNYS",
    interval: str = "1d",
) -> Windows:
    """Windows of bars: those of a source (`data.load_bars`), or a frame as `bars.contract.check` wants it, of a
    calendar and interval. The ends of training and validation are dates or shares of the dates.

    Raises DataError for bars that are not so, or too few.
    """
    if isinstance(bars, pd.DataFrame):
        bars = Bars(check(bars, "the frame"), quality_report(()), calendar, interval, "as given")
    panel = build(bars, tuple(targets), horizon)
    return Windows(panel, split(panel, length, train_end, validation_end), length)


def probe_model(
    model: nn.Module,
    data: Windows,
    forecast: Forecast,
    *,
    loss: Loss = squared_error,
    channel: int | None = None,
    calls: Sequence[int] | None = None,
    tokens: Bool[np.ndarray, "S L"] | None = None,
    further: Sequence[Probe] = (),
    untrained: Callable[[int], nn.Module] | None = None,
    retrained: Callable[[Float[np.ndarray, "R H C"], int], nn.Module] | None = None,
    causal: bool = True,
    drift: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Probed:
    """Probes the heads of a model that is not ours: the same tables, by the same rules, as a run has of its own.

    forecast, loss, channel, calls, tokens: see `foreign.subject.Foreign`. untrained: a model of the same kind for a
    seed, of which UNTRAINED are looked at. retrained: one trained on other targets of the panel's rows (NaN: leave the
    row out) for a seed, RETRAINED of them, which a pattern's kappa must exceed. further, causal, drift: see
    `heads.probe`.

    The model is left as it was, bit for bit. Raises ConfigError, in one line, for a model that can't be probed.
    """

    def subject(other: nn.Module) -> Foreign:
        return Foreign(
            other,
            data.panel,
            data.split,
            data.length,
            forecast,
            loss=loss,
            channel=channel,
            calls=calls,
            bars_SL=tokens,
        )

    def fresh(seed: int) -> Foreign:
        assert untrained is not None
        return subject(untrained(seed))

    def fit(targets_RHC: Float[np.ndarray, "R H C"], seed: int) -> Foreign:
        assert retrained is not None
        return subject(retrained(targets_RHC, seed))

    networks = Networks(
        fresh,
        fit,
        random=0 if untrained is None else UNTRAINED,
        noise=0 if retrained is None else RETRAINED,
    )
    found = probe(
        subject(model),
        data.panel,
        data.split,
        data.length,
        further=further,
        networks=networks,
        causal=causal,
        drift=drift,
        progress=progress,
    )
    if loss is squared_error:
        return found
    return replace(found, gates=[sentence.replace("squared error", "loss") for sentence in found.gates])
