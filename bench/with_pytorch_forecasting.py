"""pytorch-forecasting's Temporal Fusion Transformer at the same width and heads; it has one layer of attention."""

import logging
import warnings

from measuring import (
    DROPOUT,
    FOREVER,
    HEADS,
    LENGTH,
    QUANTILES,
    RATE,
    WIDTH,
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
    import lightning.pytorch as lightning
    import pandas as pd
    import torch
    from pytorch_forecasting import TemporalFusionTransformer, TimeSeriesDataSet
    from pytorch_forecasting.data import TorchNormalizer
    from pytorch_forecasting.metrics import QuantileLoss

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def prepare(table: Table, frame: pd.DataFrame) -> TimeSeriesDataSet:
    dataset = TimeSeriesDataSet(
        frame[frame["bar"] < table.known.repeat(table.counts)],
        time_idx="bar",
        target="y",
        group_ids=["symbol"],
        max_encoder_length=LENGTH,
        max_prediction_length=1,
        time_varying_unknown_reals=["y", *table.names],
        target_normalizer=TorchNormalizer(method="identity"),
    )
    next(iter(dataset.to_dataloader(train=True, batch_size=256, num_workers=0)))
    return dataset


def main() -> None:
    asked = order()
    torch.set_num_threads(asked.threads)
    lightning.seed_everything(0, verbose=False)
    dataset, told = prepared(asked, prepare)
    if asked.task == "prepare":
        report(asked, **told)
        return
    table = Table.read(asked.panel)
    frame = table.frame()
    ahead = TimeSeriesDataSet.from_dataset(dataset, frame[frame["bar"] >= table.known.repeat(table.counts) - LENGTH])
    loader = dataset.to_dataloader(train=True, batch_size=asked.batch, num_workers=0)
    watch = Watch(asked)
    network = TemporalFusionTransformer.from_dataset(
        dataset,
        hidden_size=WIDTH,
        attention_head_size=HEADS,
        dropout=DROPOUT,
        output_size=len(QUANTILES),
        loss=QuantileLoss(list(QUANTILES)),
        learning_rate=RATE,
        logging_metrics=torch.nn.ModuleList(),
    )
    watching = callback(lightning.Callback, watch, "val_loss", 0.5)
    trainer = lightning.Trainer(max_epochs=FOREVER, **trainer_options([watching]))
    with Peak() as peak:
        trainer.fit(network, loader, ahead.to_dataloader(train=False, batch_size=256, num_workers=0))
    report(asked, imports=imports(), **watch.result(), memory_mib=peak.growth)


if __name__ == "__main__":
    main()
