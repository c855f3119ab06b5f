"""This project: the public line, `python train.py`, with a watch on its task; and the panel that all sides get."""

import sys
from typing import Any

from measuring import LAYERS, LENGTH, Order, Peak, Table, Watch, order, prepared, report, timed

with timed() as imports:
    import numpy as np
    import pandas as pd
    import torch

    from forecaster import cli, line
    from forecaster.bars.contract import symbol_bounds
    from forecaster.compose import configured
    from forecaster.data import load_bars, windowed
    from forecaster.forecasts import baselines, network
    from forecaster.training.task import Task
    from forecaster.windows import datamodule, panel, scaling, splits
    from forecaster.windows.features import WARMUP
    from forecaster.windows.targets import ahead

OVERRIDES = (f"model.layers={LAYERS}", f"model.window={LENGTH}", "data.targets=[volatility]", "probes=off")
OWN = "log_volatility"  # the feature that is the target's own series


def table(built: panel.Panel, train_end: np.datetime64, end: np.datetime64) -> tuple[Table, float]:
    """The panel up to an end as series, standardised on training bars, and what 1 of y is in the target's units."""
    rows = [np.arange(*built.bounds(number))[WARMUP:] for number in range(len(built.symbols))]
    rows = [own[built.times[own] <= end] for own in rows]
    known = np.array([(built.times[own] <= train_end).sum() for own in rows])
    training = np.concatenate([own[:count] for own, count in zip(rows, known, strict=True)])
    mean, std = built.features[training].mean(0, dtype=np.float64), built.features[training].std(0, dtype=np.float64)
    std = np.where(std > 0, std, 1.0)
    scaled = ((built.features[np.concatenate(rows)] - mean) / std).astype(np.float32)
    own, names = built.feature_names.index(OWN), [name for name in built.feature_names if name != OWN]
    counts = np.array([len(own) for own in rows])
    return Table(scaled[:, own], np.delete(scaled, own, axis=1), names, counts, known), float(std[own])


def pinball(quantiles_RHCQ: np.ndarray, actual_RHC: np.ndarray) -> float:
    levels_Q = np.array(baselines.QUANTILES)
    error = actual_RHC[..., None] - quantiles_RHCQ
    return float(np.maximum(levels_Q * error, (levels_Q - 1) * error).mean())


def bundled(asked: Order) -> None:
    """Writes the bundled bars as a table; reports log-HAR's pinball loss on the validation part, and y's unit."""
    config = configured(["experiment=sp500", *OVERRIDES])
    ready = windowed(config, load_bars(config.source), None)
    parts = ready.split
    made, unit = table(ready.panel, parts.train_end, parts.validation_end)
    made.write(asked.panel)
    har = baselines.forecasts("har", ready.panel, parts.train, parts.validation, LENGTH)
    report(asked, mark=pinball(har.quantiles, ready.panel.targets[parts.validation]), unit=unit)


def fabricated(asked: Order) -> None:
    """Writes random bars of so many symbols as a table."""
    from panel import made

    built = panel.build(made(int(asked.options[0])), ("volatility",), 1)
    end = built.times.max()
    table(built, built.sessions[int(0.85 * len(built.sessions))], end)[0].write(asked.panel)
    report(asked)


def prepare(table: Table, frame: pd.DataFrame) -> None:
    """From the features that the peers get, to the first batch."""
    rows = [rows for rows, _ in table.parts()]
    own = frame["y"].to_numpy(dtype=np.float64)
    times = np.datetime64("2000-01-01", "us") + frame["bar"].to_numpy() * np.timedelta64(1, "D")
    built = panel.Panel(
        features=frame[["y", *table.names]].to_numpy(),
        targets=np.concatenate([ahead(own[part], 1) for part in rows])[..., None],
        past=own[:, None],
        times=times,
        target_times=times[:, None] + np.timedelta64(1, "D"),
        symbol_ids=np.arange(len(rows), dtype=np.int32).repeat(table.counts),
        symbols=tuple(name for name, _, _ in symbol_bounds(frame["symbol"])),
        feature_names=(OWN, *table.names),
        target_names=("volatility",),
        calendar="XNYS",
        week_bars=5,
    )
    _first_batch(built)


def prepare_bars(asked: Order) -> dict[str, float]:
    """From bars, whose features are yet to be computed, to the first batch."""
    from panel import made

    _first_batch(panel.build(made(2), ("volatility",), 1))
    bars = made(len(Table.read(asked.panel).counts))
    with Peak() as held, timed() as took:
        _first_batch(panel.build(bars, ("volatility",), 1))
    return {"prepare_bars": took(), "prepare_bars_mib": held.growth}


def _first_batch(built: panel.Panel) -> None:
    parts = splits.split(built, LENGTH, 0.7, 0.85)
    scaling.fit(built, parts, LENGTH)
    next(iter(datamodule.Bars(built, parts, LENGTH, 256, 0).train_dataloader()))


def watched(watch: Watch, processes: int) -> None:
    """Puts the watch on every task that is trained from now on.

    A rate is taken of the training steps alone. Time to a loss counts all that training does, its own validation too.
    """
    step, validate = Task.training_step, Task.validation_step
    begin = Task.on_train_epoch_start
    quality = watch.order.task == "quality"

    def training_step(task: Task, batch: Any, batch_idx: int) -> Any:
        done = step(task, batch, batch_idx)
        windows, origins = len(batch[0]), int(batch[-1].sum()) if batch[-1].dtype == torch.bool else len(batch[0])
        if watch.step(processes * windows, processes * origins) and processes == 1:
            task.trainer.should_stop = True
        return done

    def validation_step(task: Task, batch: Any, batch_idx: int) -> Any:
        if batch_idx == 0 and quality:  # here the weights are those that are validated: the moving average
            watch.pause()
            bars = task.trainer.datamodule
            rows, built = bars.parts.validation, bars.windows.panel
            found = pinball(network.forecast(task, built, rows, LENGTH).quantiles, built.targets[rows])
            if watch.validated(found) and processes == 1:
                task.trainer.should_stop = True
            watch.go()
        return validate(task, batch, batch_idx)

    def on_train_epoch_start(task: Task) -> None:
        if not quality or not watch.steps:
            watch.go()
        begin(task)

    def on_validation_start(_: Task) -> None:
        if not quality:
            watch.pause()

    Task.training_step, Task.validation_step = training_step, validation_step
    Task.on_train_epoch_start, Task.on_validation_start = on_train_epoch_start, on_validation_start


def train(asked: Order) -> None:
    """One training through the command line; ends after it, before the scores."""
    watch, processes = Watch(asked), 2 if "trainer=ddp_cpu" in asked.options else 1
    watched(watch, processes)
    fitted = line.fitted

    def until_trained(made: Any, *arguments: Any, **options: Any) -> None:
        with Peak() as peak:
            fitted(made, *arguments, **options)
        found = watch.result()
        if found["core_ms"]:
            found["core_ms"] *= processes
        report(asked, **found, imports=imports(), memory_mib=processes * peak.growth)
        sys.exit(0)

    line.fitted = until_trained
    sys.argv = ["train.py", *OVERRIDES, *asked.options]
    cli.train()


def main() -> None:
    asked = order()
    match asked.task:
        case "bundled":
            bundled(asked)
        case "fabricated":
            fabricated(asked)
        case "prepare":
            report(asked, **prepared(asked, prepare)[1], **prepare_bars(asked))
        case _:
            train(asked)


if __name__ == "__main__":
    main()
