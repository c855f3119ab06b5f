"""The task: one network, its scaler, one training step."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import lightning
import numpy as np
import torch
from jaxtyping import Float
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from forecaster.errors import DivergedError
from forecaster.networks.attention import Edit
from forecaster.networks.choice import Headed, Network
from forecaster.networks.encoder import Output
from forecaster.networks.encoder_decoder import EncoderDecoder
from forecaster.training.losses import loss
from forecaster.windows.datamodule import Batch
from forecaster.windows.scaling import Scaler


@dataclass(frozen=True)
class Recipe:
    """AdamW with warm-up (a share of all steps) and cosine decay to zero; gradients clipped at a norm."""

    lr: float
    weight_decay: float
    warmup: float
    clip: float


class Task(lightning.LightningModule):
    """Trains a network on scaled windows; forecasts in the targets' own units.

    Loshchilov and Hutter (2019), Decoupled Weight Decay Regularization.
    """

    feature_mean: Tensor
    feature_std: Tensor
    target_mean: Tensor
    target_std: Tensor
    feature_relative: Tensor
    target_relative: Tensor
    log_sigma_reference: Tensor

    def __init__(self, network: Network, scaler: Scaler, recipe: Recipe) -> None:
        super().__init__()
        self.network, self.recipe = network, recipe
        for name in ("feature_mean", "feature_std", "target_mean", "target_std"):
            self.register_buffer(name, torch.from_numpy(getattr(scaler, name).astype(np.float32)))
        self.register_buffer("feature_relative", torch.from_numpy(scaler.feature_relative))
        self.register_buffer("target_relative", torch.from_numpy(scaler.target_relative))
        self.register_buffer("log_sigma_reference", torch.tensor(scaler.log_sigma_reference))
        self.log_sigma_column = scaler.log_sigma_column
        self._sums = {"train": [0.0, 0.0], "validation": [0.0, 0.0]}

    @property
    def headed(self) -> Headed:
        """The network, where it has attention heads; ValueError otherwise."""
        if not isinstance(self.network, Headed) or self.network.heads == 0:
            raise ValueError(f"{type(self.network).__name__} has no attention heads")
        return self.network

    def forecast(
        self,
        x_BLF: Float[Tensor, "B L F"],
        future_BHK: Float[Tensor, "B H K"],
        edits: Mapping[int, Edit] | None = None,
        capture: Mapping[int, Sequence[int]] | None = None,
    ) -> Output:
        """Quantiles and mean in target units, from raw features and the calendar ahead."""
        out = self._scaled(x_BLF, future_BHK, edits, capture)
        return Output(
            out.quantiles_BHCQ * self.target_std[:, None] + self.target_mean[:, None],
            out.mean_BHC * self.target_std + self.target_mean,
            out.captured,
        )

    def losses(self, batch: Batch) -> Float[Tensor, " B"]:
        """Loss of each window, in scaled units; in training a decoder is told what happened before each step."""
        x_BLF, future_BHK, actual_BHC = batch
        scaled_BHC = (actual_BHC - self.target_mean) / self.target_std
        out = self._scaled(x_BLF, future_BHK, teacher_BHC=scaled_BHC if self.training else None)
        return loss(out.quantiles_BHCQ, out.mean_BHC, scaled_BHC)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Mean loss of the batch; raises DivergedError at the first one that is not finite."""
        losses_B = self.losses(batch)
        value = self._add("train", losses_B)
        if not math.isfinite(value):
            raise self._diverged(f"the loss is {value}")
        return losses_B.mean()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Adds to the mean over all validation windows, whatever the batch size."""
        self._add("validation", self.losses(batch))

    def on_train_epoch_start(self) -> None:
        """Starts the epoch's sums."""
        self._sums["train"] = [0.0, 0.0]

    def on_validation_epoch_start(self) -> None:
        """Starts the validation sums."""
        self._sums["validation"] = [0.0, 0.0]

    def on_validation_epoch_end(self) -> None:
        """Logs the mean losses that checkpoint and early stopping go by."""
        for part, (total, count) in self._sums.items():
            if count:
                self.log(f"{part}_loss", total / count)
        total, count = self._sums["validation"]
        if not math.isfinite(total / count):
            raise self._diverged(f"the validation loss is {total / count}")

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clips the gradient's norm; raises DivergedError where it is not finite."""
        norm = float(torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.recipe.clip))
        if not math.isfinite(norm):
            raise self._diverged(f"the gradient's norm is {norm}")

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """AdamW and a schedule by step: linear warm-up, then half a cosine down to 0."""
        optimizer = torch.optim.AdamW(
            self.network.parameters(), lr=self.recipe.lr, weight_decay=self.recipe.weight_decay
        )
        total = int(self.trainer.estimated_stepping_batches)
        warmup = max(1, round(self.recipe.warmup * total))

        def factor(step: int) -> float:
            if step < warmup:
                return (step + 1) / warmup
            return 0.5 * (1.0 + math.cos(math.pi * min(1.0, (step - warmup) / max(1, total - warmup))))

        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": LambdaLR(optimizer, factor), "interval": "step"},
        }

    def _scaled(
        self,
        x_BLF: Float[Tensor, "B L F"],
        future_BHK: Float[Tensor, "B H K"],
        edits: Mapping[int, Edit] | None = None,
        capture: Mapping[int, Sequence[int]] | None = None,
        teacher_BHC: Float[Tensor, "B H C"] | None = None,
    ) -> Output:
        """Forecast in scaled target units, relative features and targets taken to and from the window's own unit."""
        unit_B = (x_BLF[:, -1, self.log_sigma_column] - self.log_sigma_reference).exp()
        unit_B1C = torch.where(self.target_relative, unit_B[:, None], torch.ones_like(unit_B)[:, None])[:, None]
        x_BLF = torch.where(self.feature_relative, x_BLF / unit_B[:, None, None], x_BLF)
        x_BLF = (x_BLF - self.feature_mean) / self.feature_std
        if isinstance(self.network, EncoderDecoder):
            told_BHC = None if teacher_BHC is None else teacher_BHC / unit_B1C
            out = self.network(x_BLF, edits, capture, future_BHK=future_BHK, teacher_BHC=told_BHC)
        else:
            out = self.network(x_BLF, edits, capture)
        return Output(out.quantiles_BHCQ * unit_B1C[..., None], out.mean_BHC * unit_B1C, out.captured)

    def _add(self, part: str, losses_B: Float[Tensor, " B"]) -> float:
        total = float(losses_B.detach().double().sum())
        self._sums[part][0] += total
        self._sums[part][1] += len(losses_B)
        return total

    def _diverged(self, what: str) -> DivergedError:
        rate = self.trainer.optimizers[0].param_groups[0]["lr"]
        return DivergedError(
            f"training diverged: {what} at step {self.global_step} (epoch {self.current_epoch + 1}), "
            f"learning rate {rate:.3g}; lower model.optimizer.lr or look at the quality report"
        )
