"""Somebody else's model as a subject of the probes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from forecaster.errors import ConfigError
from forecaster.foreign.dry_run import explore
from forecaster.foreign.passes import Edited, Layer, intercepted
from forecaster.networks.attention import Edit
from forecaster.networks.encoder import Output
from forecaster.probes.capture import evaluating
from forecaster.windows.panel import Panel
from forecaster.windows.scaling import fit
from forecaster.windows.splits import Split

Forecast = Callable[[Any, Tensor, Tensor], Tensor]  # model, windows, calendar ahead
Loss = Callable[[Float[np.ndarray, "B H C"], Float[np.ndarray, "B H C"]], Float[np.ndarray, "B C"]]


def squared_error(
    forecast_BHC: Float[np.ndarray, "B H C"], actual_BHC: Float[np.ndarray, "B H C"]
) -> Float[np.ndarray, "B C"]:
    """Squared error of the mean, averaged over steps."""
    return ((forecast_BHC - actual_BHC) ** 2).mean(1)


class Foreign:
    """A model whose attention is one of those known, with what makes a forecast of it. `probes.subject.Subject`.

    forecast: model, raw features x_BLF and the calendar ahead future_BHK -> means [B, H, C] in target units. loss: of
    forecast and actual values [B, H, C], in units of the training deviation, by window and target. channel: which of a
    window's sequences is meant, of a model that takes each feature alone. calls: which calls of attention in a forward
    pass are its layers; all by default. bars_SL: which bars of the window each token has; each token one by default.
    Raises ConfigError for a model whose attention can't be had, or can't be matched to the bars.
    """

    def __init__(
        self,
        model: object,
        panel: Panel,
        split: Split,
        length: int,
        forecast: Forecast,
        *,
        loss: Loss = squared_error,
        channel: int | None = None,
        calls: Sequence[int] | None = None,
        bars_SL: Bool[np.ndarray, "S L"] | None = None,
    ) -> None:
        self._model, self._forecast, self._loss = _checked(model), forecast, loss
        self._shape = (panel.horizon, len(panel.target_names))
        scaler = fit(panel, split, length)
        self.target_std = torch.from_numpy(scaler.target_std.astype(np.float32))
        step_F = torch.from_numpy(scaler.feature_std.astype(np.float32)).to(self.device)
        some = split.train[[0, len(split.train) // 2]]
        x_BLF = torch.from_numpy(panel.window(some, length)).to(self.device)
        future_BHK = torch.from_numpy(panel.future(some)).to(self.device)
        with evaluating(self):
            found = explore(self._model, self._means, x_BLF, future_BHK, step_F, calls=calls, bars_SL=bars_SL)
        if (channel is None and found.sequences > 1) or not 0 <= (channel or 0) < found.sequences:
            raise ConfigError(
                f"channel={channel}: the model attends in {found.sequences} sequences for each window; name the one "
                f"that is forecast, 0 to {found.sequences - 1}"
            )
        self._layers, self._calls, self._channel = found.layers, found.calls, channel or 0

    @property
    def device(self) -> torch.device:
        """That of the first parameter."""
        return next((x.device for x in self._model.parameters()), torch.device("cpu"))

    @property
    def headed(self) -> "Foreign":
        """Itself."""
        return self

    @property
    def layers(self) -> int:
        """Calls of attention that are probed."""
        return len(self._layers)

    def computed(self, layer: int) -> tuple[int, ...]:
        """Bars that a layer's queries stand at."""
        return tuple(sorted(self._layers[layer].rows))

    def attention(self, layer: int) -> Layer:
        """A layer's heads."""
        return self._layers[layer]

    def modules(self) -> Iterator[nn.Module]:
        """Every module of the model."""
        return self._model.modules()

    def eval(self) -> object:
        """Evaluation mode."""
        return self._model.eval()

    def forecast(
        self,
        x_BLF: Float[Tensor, "B L F"],
        future_BHK: Float[Tensor, "B H K"],
        edits: Mapping[int, Edit] | None = None,
        capture: Mapping[int, Sequence[int]] | None = None,
    ) -> Output:
        """The model's own forward pass, with edits and records by layer; its one quantile is the mean."""
        taken = Edited(self._layers, self._calls, len(x_BLF), self._channel, edits or {}, capture or {})
        with intercepted(self._model, taken):
            mean_BHC = self._means(x_BLF, future_BHK)
        taken.check()
        return Output(mean_BHC[..., None], mean_BHC, taken.captured)

    def point_losses(
        self, forecast_BHC: Float[np.ndarray, "B H C"], actual_BHC: Float[np.ndarray, "B H C"]
    ) -> Float[np.ndarray, "B C"]:
        """The loss, by window and target. ConfigError where it gives another shape."""
        loss_BC = np.asarray(self._loss(forecast_BHC, actual_BHC), dtype=np.float64)
        wanted = (forecast_BHC.shape[0], forecast_BHC.shape[2])
        if loss_BC.shape != wanted:
            raise ConfigError(f"loss gives {list(loss_BC.shape)}: give one number by window and target, {list(wanted)}")
        return loss_BC

    def _means(self, x_BLF: Tensor, future_BHK: Tensor) -> Float[Tensor, "B H C"]:
        mean_BHC: Any = self._forecast(self._model, x_BLF, future_BHK)
        wanted = [len(x_BLF), *self._shape]
        if not isinstance(mean_BHC, Tensor) or list(mean_BHC.shape) != wanted:
            gives = list(mean_BHC.shape) if isinstance(mean_BHC, Tensor) else type(mean_BHC).__name__
            raise ConfigError(
                f"forecast gives {gives} for {len(x_BLF)} windows: give means [windows, horizon, targets], {wanted}"
            )
        return mean_BHC.float()


def _checked(model: object) -> nn.Module:
    """The model; ConfigError for what is no module, or none that can be probed."""
    if not isinstance(model, nn.Module):
        raise ConfigError(f"{type(model).__name__} is no torch.nn.Module: give the model that the forecast asks")
    for module in model.modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise ConfigError("the model is scripted or traced, which hides attention: give the model it was made of")
        if isinstance(module, nn.DataParallel) and len(module.device_ids) > 1:
            raise ConfigError("nn.DataParallel runs on several devices at once: give the model within, .module")
    if any(isinstance(x, nn.parameter.UninitializedParameter) for x in model.parameters()):
        raise ConfigError("the model has parameters of no shape yet: let it forecast once, and train it")
    if any(x.device.type == "meta" for x in model.parameters()):
        raise ConfigError("the model's parameters are on the device meta, without values: load them")
    return model
