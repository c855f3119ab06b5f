"""neuralforecast's VanillaTransformer: an encoder of the same size, and its smallest decoder."""

import logging
import warnings

from measuring import (
    DROPOUT,
    FEEDFORWARD,
    FOREVER,
    HEADS,
    LAYERS,
    LENGTH,
    QUANTILES,
    RATE,
    WIDTH,
    Order,
    Peak,
    Table,
    Watch,
    callback,
    order,
    prepared,
    report,
    timed,
    trainer_options,
)

warnings.simplefilter("ignore")

with timed() as imports:
    import pandas as pd
    import pytorch_lightning as lightning
    import torch
    from neuralforecast.losses.pytorch import MQLoss
    from neuralforecast.models import VanillaTransformer
    from neuralforecast.tsdataset import TimeSeriesDataset, TimeSeriesLoader

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


def model(order: Order, watch: Watch, epoch: int) -> VanillaTransformer:
    """It samples its windows, so that an epoch is a number of steps; it reads the target alone (no past features)."""
    return VanillaTransformer(
        h=1,
        input_size=LENGTH,
        hidden_size=WIDTH,
        n_head=HEADS,
        encoder_layers=LAYERS,
        decoder_layers=1,
        conv_hidden_size=FEEDFORWARD,
        dropout=DROPOUT,
        loss=MQLoss(quantiles=list(QUANTILES)),
        learning_rate=RATE,
        max_steps=FOREVER,
        val_check_steps=epoch,
        batch_size=2,
        windows_batch_size=order.batch,
        inference_windows_batch_size=256,
        scaler_type="identity",
        random_seed=0,
        **trainer_options([callback(lightning.Callback, watch, "ptl/val_loss", 1.0 / len(QUANTILES))]),
    )


def prepare(table: Table, frame: pd.DataFrame) -> TimeSeriesDataset:
    """To the first batch of windows, which its training step cuts out of 32 whole series."""
    dataset, *_ = TimeSeriesDataset.from_df(frame, id_col="symbol", time_col="bar")
    batch = next(iter(TimeSeriesLoader(dataset, batch_size=min(32, len(table.counts)), shuffle=True)))
    network = VanillaTransformer(h=1, input_size=LENGTH, max_steps=1)
    network.val_size = network.test_size = 0
    windows, static, static_names, there, weights, names = network._create_windows(batch, step="train")
    network._sample_windows(
        windows_temporal=windows,
        static=static,
        static_cols=static_names,
        temporal_cols=names,
        w_idxs=torch.randperm(len(there))[:256],
        final_condition=there,
        sample_weight=weights,
    )
    return dataset


def main() -> None:
    asked = order()
    torch.set_num_threads(asked.threads)
    dataset, told = prepared(asked, prepare)
    if asked.task == "prepare":
        report(asked, **told)
        return
    watch, table = Watch(asked), Table.read(asked.panel)
    trained = model(asked, watch, -(-table.windows // asked.batch))
    with Peak() as peak:
        trained.fit(dataset, val_size=int((table.counts - table.known).min()))
    report(asked, imports=imports(), **watch.result(), memory_mib=peak.growth)


if __name__ == "__main__":
    main()
