"""The task: one network, its scaler, one training step."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final, cast

import lightning
import numpy as np
import torch
from jaxtyping import Float
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import ParallelStrategy
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from forecaster.errors import DivergedError
from forecaster.networks.attention import Edit
from forecaster.networks.choice import Headed, Network
from forecaster.networks.encoder import Encoder, Output
from forecaster.networks.encoder_decoder import EncoderDecoder
from forecaster.training.losses import loss
from forecaster.windows.datamodule import Batch
from forecaster.windows.scaling import Scaler

# Windows whose activations are held at once: a larger batch's gradient is added up from such pieces, so that memory
# does not grow with the batch.
PIECE: Final = 64


@dataclass(frozen=True)
class Recipe:
    """AdamW with warm-up (a share of all steps) and cosine decay to zero; gradients clipped at a norm."""

    lr: float
    weight_decay: float
    warmup: float
    clip: float


class Task(lightning.LightningModule):
    """Trains a network on scaled windows; forecasts in the targets' own units.

    The unit of relative features and targets is the volatility at the window's last bar, where the forecast is made.
    every: forecasts are made at other bars too, which can't know that one; each bar then has its own unit.
    Loshchilov and Hutter (2019), Decoupled Weight Decay Regularization.
    """

    feature_mean: Tensor
    feature_std: Tensor
    target_mean: Tensor
    target_std: Tensor
    feature_relative: Tensor
    target_relative: Tensor
    log_sigma_reference: Tensor

    def __init__(self, network: Network, scaler: Scaler, recipe: Recipe, *, every: bool = False) -> None:
        super().__init__()
        self.automatic_optimization = False  # which knows no pieces of a batch
        self.network, self.recipe, self.every = network, recipe, every
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

    def point_losses(
        self, forecast_BHC: Float[np.ndarray, "B H C"], actual_BHC: Float[np.ndarray, "B H C"]
    ) -> Float[np.ndarray, "B C"]:
        """Squared error of the mean, averaged over steps."""
        return ((forecast_BHC - actual_BHC) ** 2).mean(1)

    def losses(self, batch: Batch) -> Float[Tensor, " n"]:
        """Loss of each origin trained on, in scaled units; in training a decoder is told what came before each step."""
        x_BLF, future_BHK, actual_NHC, used_N = batch
        scaled_NHC = (actual_NHC - self.target_mean) / self.target_std
        teacher_NHC = scaled_NHC if self.training and isinstance(self.network, EncoderDecoder) else None
        out = self._scaled(x_BLF, future_BHK, teacher_BHC=teacher_NHC, origins=len(actual_NHC) // len(x_BLF))
        return loss(out.quantiles_BHCQ, out.mean_BHC, scaled_NHC)[used_N]

    def training_step(self, batch: Batch, batch_idx: int) -> None:
        """One step down the gradient of the batch's mean loss, which is added up piece by piece.

        Raises DivergedError at the first loss or gradient that is not finite.
        """
        optimizer, schedule = self.optimizers(), self.lr_schedulers()
        assert isinstance(optimizer, LightningOptimizer)
        assert isinstance(schedule, LambdaLR)
        optimizer.zero_grad()
        strategy, processes = self.trainer.strategy, self.trainer.world_size
        # Processes average their gradients, and each has a share of the batch.
        count = float(strategy.reduce(batch[-1].sum(), reduce_op="sum")) / processes
        left = -(-len(batch[0]) // PIECE)
        for piece in pieces(batch):
            left -= 1
            losses_n = self.losses(piece)
            value = self._add("train", losses_n)
            # One process alone would leave the others waiting; what is not finite reaches the gradient of all.
            if not math.isfinite(value) and processes == 1:
                raise self._diverged(f"the loss is {value}")
            with strategy.block_backward_sync() if isinstance(strategy, ParallelStrategy) and left else nullcontext():
                self.manual_backward(losses_n.sum() / count)
        norm = float(torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.recipe.clip))
        if not math.isfinite(norm):
            raise self._diverged(f"the gradient's norm is {norm}")
        optimizer.step()
        schedule.step()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Adds to the mean over all validation windows, whatever the batch size."""
        self._add("validation", self.losses(batch))

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds the sums of the epoch so far."""
        checkpoint["train_sums"] = self._summed("train")

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Takes them up."""
        self._sums["train"] = checkpoint["train_sums"] if self.trainer.is_global_zero else [0.0, 0.0]

    def on_train_epoch_start(self) -> None:
        """Starts the epoch's sums."""
        self._sums["train"] = [0.0, 0.0]

    def on_validation_epoch_start(self) -> None:
        """Starts the validation sums."""
        self._sums["validation"] = [0.0, 0.0]

    def on_validation_epoch_end(self) -> None:
        """Logs the mean losses, over all processes, that checkpoint and early stopping go by."""
        for part in self._sums:
            total, count = self._summed(part)
            if count:
                self.log(f"{part}_loss", total / count, sync_dist=True)
        total, count = self._summed("validation")
        if not math.isfinite(total / count):
            raise self._diverged(f"the validation loss is {total / count}")

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """AdamW and a schedule by step: linear warm-up, then half a cosine down to 0."""
        optimizer = torch.optim.AdamW(
            self.network.parameters(), lr=self.recipe.lr, weight_decay=self.recipe.weight_decay, fused=True
        )
        total = int(self.trainer.estimated_stepping_batches)
        warmup = max(1, round(self.recipe.warmup * total))

        def factor(step: int) -> float:
            if step < warmup:
                return (step + 1) / warmup
            return 0.5 * (1.0 + math.cos(math.pi * min(1.0, (step - warmup) / max(1, total - warmup))))

        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": LambdaLR(optimizer, factor)},
        }

    def _scaled(
        self,
        x_BLF: Float[Tensor, "B L F"],
        future_BHK: Float[Tensor, "B H K"],
        edits: Mapping[int, Edit] | None = None,
        capture: Mapping[int, Sequence[int]] | None = None,
        teacher_BHC: Float[Tensor, "B H C"] | None = None,
        origins: int = 1,
    ) -> Output:
        """Forecast in scaled target units from each of the windows' last origins, [B T, ...]; relative features and
        targets are taken to and from their unit.
        """
        unit_BL = (x_BLF[:, 0 if self.every else -1 :, self.log_sigma_column] - self.log_sigma_reference).exp()
        unit_N = unit_BL[:, -origins:].flatten()
        unit_N1C = torch.where(self.target_relative, unit_N[:, None], torch.ones_like(unit_N)[:, None])[:, None]
        x_BLF = torch.where(self.feature_relative, x_BLF / unit_BL[:, :, None], x_BLF)
        x_BLF = (x_BLF - self.feature_mean) / self.feature_std
        match self.network:
            case EncoderDecoder():
                told_BHC = None if teacher_BHC is None else teacher_BHC / unit_N1C
                out = self.network(x_BLF, edits, capture, future_BHK=future_BHK, teacher_BHC=told_BHC)
            case Encoder():
                out = self.network(x_BLF, edits, capture, origins)
            case _:
                out = self.network(x_BLF, edits, capture)
        return Output(out.quantiles_BHCQ * unit_N1C[..., None], out.mean_BHC * unit_N1C, out.captured)

    def _add(self, part: str, losses_n: Float[Tensor, " n"]) -> float:
        total = float(losses_n.detach().double().sum())
        self._sums[part][0] += total
        self._sums[part][1] += len(losses_n)
        return total

    def _summed(self, part: str) -> list[float]:
        """The part's sum of losses and their number, over all processes."""
        sums = torch.tensor(self._sums[part], dtype=torch.float64, device=self.device)
        reduced = self.trainer.strategy.reduce(sums, reduce_op="sum")
        return cast("list[float]", cast(Tensor, reduced).tolist())

    def _diverged(self, what: str) -> DivergedError:
        rate = self.trainer.optimizers[0].param_groups[0]["lr"]
        return DivergedError(
            f"training diverged: {what} at step {self.global_step} (epoch {self.current_epoch + 1}), "
            f"learning rate {rate:.3g}"
        )


def pieces(batch: Batch) -> Iterator[Batch]:
    """The batch, PIECE windows at a time."""
    x_BLF, future_BHK, targets_NHC, used_N = batch
    origins = len(targets_NHC) // len(x_BLF)
    for first in range(0, len(x_BLF), PIECE):
        windows, each = slice(first, first + PIECE), slice(first * origins, (first + PIECE) * origins)
        yield x_BLF[windows], future_BHK[windows], targets_NHC[each], used_N[each]
