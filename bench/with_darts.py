"""darts' TransformerModel: an encoder of the same size, and its smallest decoder."""

import logging
import warnings
from contextlib import suppress

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
    from darts import TimeSeries
    from darts.models import TransformerModel
    from darts.utils.likelihood_models.torch import QuantileRegression

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


class FirstBatchError(Exception):
    """The first batch has come."""


class FirstBatch(lightning.Callback):
    """Ends a training before it begins."""

    def on_train_batch_start(self, *_: object) -> None:
        raise FirstBatchError


def split(table: Table, frame: pd.DataFrame) -> dict[str, list[TimeSeries]]:
    """Targets and past covariates of each symbol, of the training and of the validation part."""
    columns = ["y", *table.names]
    every = TimeSeries.from_group_dataframe(frame, "symbol", "bar", columns, drop_group_cols=["symbol"], verbose=False)
    known = [series[:count] for series, count in zip(every, table.known, strict=True)]
    ahead = [series[count - LENGTH :] for series, count in zip(every, table.known, strict=True)]
    return {
        "series": [series["y"] for series in known],
        "past_covariates": [series[table.names] for series in known],
        "val_series": [series["y"] for series in ahead],
        "val_past_covariates": [series[table.names] for series in ahead],
    }


def prepare(table: Table, frame: pd.DataFrame) -> None:
    with suppress(FirstBatchError):
        model(256, FirstBatch()).fit(**split(table, frame), verbose=False)


def model(batch: int, watching: object) -> TransformerModel:
    return TransformerModel(
        input_chunk_length=LENGTH,
        output_chunk_length=1,
        d_model=WIDTH,
        nhead=HEADS,
        num_encoder_layers=LAYERS,
        num_decoder_layers=1,
        dim_feedforward=FEEDFORWARD,
        dropout=DROPOUT,
        activation="gelu",
        likelihood=QuantileRegression(list(QUANTILES)),
        optimizer_kwargs={"lr": RATE},
        batch_size=batch,
        n_epochs=FOREVER,
        random_state=0,
        pl_trainer_kwargs=trainer_options([watching]),
    )


def main() -> None:
    asked = order()
    torch.set_num_threads(asked.threads)
    if asked.task == "prepare":
        _, told = prepared(asked, prepare)
        report(asked, **told)
        return
    table, watch = Table.read(asked.panel), Watch(asked)
    series = split(table, table.frame())
    trained = model(asked.batch, callback(lightning.Callback, watch, "val_loss", 1.0 / len(QUANTILES)))
    with Peak() as peak:
        trained.fit(**series, verbose=False)
    report(asked, imports=imports(), **watch.result(), memory_mib=peak.growth)


if __name__ == "__main__":
    main()
