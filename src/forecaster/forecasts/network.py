"""The trained network's forecasts, in the same arrays as every baseline's."""

import numpy as np
import torch
from jaxtyping import Int

from forecaster.forecasts.frame import Forecast
from forecaster.training.task import Task
from forecaster.windows.panel import Panel

CHUNK = 512  # windows a forward pass


def forecast(task: Task, panel: Panel, origins: Int[np.ndarray, " R"], length: int) -> Forecast:
    """Quantiles and mean of every origin in target units, without dropout; the task's mode is the same afterwards."""
    training = task.training
    task.eval()
    quantiles: list[np.ndarray] = []
    means: list[np.ndarray] = []
    try:
        with torch.inference_mode():
            for start in range(0, len(origins), CHUNK):
                rows = origins[start : start + CHUNK]
                window, future = torch.from_numpy(panel.window(rows, length)), torch.from_numpy(panel.future(rows))
                out = task.forecast(window, future)
                quantiles.append(out.quantiles_BHCQ.double().numpy())
                means.append(out.mean_BHC.double().numpy())
    finally:
        task.train(training)
    return Forecast(np.concatenate(quantiles), np.concatenate(means))
