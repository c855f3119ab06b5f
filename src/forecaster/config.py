"""The schema of a configuration, key by key, and what its values must satisfy. The values stand in conf/."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from datetime import date
from operator import attrgetter
from typing import Any, cast, get_type_hints

from forecaster.errors import ConfigError
from forecaster.sources import SOURCES, Source, day_or_share, shown, source_faults

TARGETS = ("return", "volatility", "volume")
BASELINES = ("persistence", "zero", "mean", "seasonal", "ewma", "har")
ENCODERS = ("attention", "single_head", "attention_free")
KINDS = ("attention", "encoder_decoder", "single_head", "attention_free", "lstm", "gru", "dlinear")
HEADED = ("attention", "encoder_decoder", "single_head")  # kinds with attention heads
POOLINGS = ("last", "mean", "attention")
POSITIONS = ("learned", "sinusoidal", "rotary", "alibi", "lag", "none")
ORIGINS = ("last", "all")
ACCELERATORS = ("cpu", "gpu")
PRECISIONS = ("32-true", "bf16-mixed")
STARTING = ("spawn", "fork", "notebook")  # of Lightning's strategies: those that start processes in a way of their own
LOGGERS = ("csv", "tensorboard", "mlflow", "wandb")


@dataclass(kw_only=True)
class Data:
    """What is forecast (targets, horizon H in bars) and how many windows make a batch B.

    origins: where in a training window forecasts are made, at its `last` bar or at `all` bars of its later half.
    max_gap: bars missing between two bars of a window and its targets at most (null: any number). in_memory_gb: a
    larger panel is kept in a file beside the run and read as needed.
    """

    targets: list[str]
    horizon: int
    origins: str = "last"  # what runs of 0.1.0, which don't say it, were trained with
    batch_size: int
    max_gap: int | None
    in_memory_gb: float


@dataclass(kw_only=True)
class Split:
    """Where train ends and where validation ends: a date, or a fraction of the sessions; the embargo in bars."""

    train_end: Any  # text or float: OmegaConf can't compose a union below a part that is still missing
    validation_end: Any
    embargo: int


@dataclass(kw_only=True)
class Optimizer:
    """AdamW; `warmup` is the fraction of all steps over which the rate rises to `lr`."""

    lr: float
    weight_decay: float
    warmup: float


@dataclass(kw_only=True)
class Model:
    """Kind of network, width D, heads N, window L in bars (null: min(64, what fits)), feedforward as a multiple of D.

    Networks to compare attention with take the number of parameters that attention has at these sizes.
    """

    kind: str
    width: int
    heads: int
    layers: int
    window: int | None
    feedforward: int
    dropout: float
    attention_dropout: float
    positions: str
    pooling: str
    causal: bool
    skip: bool
    optimizer: Optimizer


@dataclass(kw_only=True)
class Trainer:
    """Early stopping after `patience` epochs without a better validation loss; `clip` bounds the gradient's norm,
    `average` is the decay of the weights' moving average, `threads` the cores that one process computes on.

    The others are Lightning's: `devices` on each of `nodes` machines, a process for each, which share every batch.
    """

    max_epochs: int
    patience: int
    clip: float
    average: float
    threads: int
    accelerator: str = "cpu"  # this and the next: what runs of 0.1.0, which don't say them, were trained with
    strategy: str = "auto"
    devices: int = 1
    nodes: int = 1
    precision: str = "32-true"


@dataclass(kw_only=True)
class Probes:
    """Whether heads are probed after training; `forecaster probe` does so whatever stands here.

    causal: whether the tests that a functional head must pass are made. random_inits: untrained networks to compare
    with. noise_seeds: networks trained on shuffled targets, whose heads a pattern must be above. drift: whether heads
    are followed over the years, on the windows of all parts. pruning: whether heads are removed, in several orders.
    """

    enabled: bool
    causal: bool = True  # these five: what runs of 0.1.0, which don't say them, were probed with
    random_inits: int = 0
    noise_seeds: int = 0
    drift: bool = False
    pruning: bool = False


@dataclass(kw_only=True)
class Logger:
    """Where the losses of each epoch go beside history.csv."""

    kind: str


@dataclass(kw_only=True)
class Config:
    """One run. init: a run whose best weights and heads the training begins with (null: drawn from the seed)."""

    seed: int
    experiment_name: str
    init: str | None = None
    source: Source
    data: Data
    split: Split
    model: Model
    trainer: Trainer
    probes: Probes
    logger: Logger
    baselines: list[str]
    debug: bool


# Intervals as mathematics writes them: a square bracket includes its end. NaN is in none.
LIMITS: Mapping[str, str] = {
    "seed": "[0, 4294967295]",
    "source.bars": "[1, inf)",
    "source.seed": "[0, 4294967295]",
    "source.phi": "(-1, 1)",
    "data.horizon": "[1, inf)",
    "data.batch_size": "[1, inf)",
    "data.max_gap": "[0, inf)",
    "data.in_memory_gb": "[0, inf)",
    "split.embargo": "[0, inf)",
    "model.width": "[1, 65536]",
    "model.heads": "[1, inf)",
    "model.layers": "[1, 1024]",
    "model.window": "[1, inf)",
    "model.feedforward": "[1, 1024]",
    "model.dropout": "[0, 1)",
    "model.attention_dropout": "[0, 1)",
    "model.optimizer.lr": "(0, 1e30]",
    "model.optimizer.weight_decay": "[0, inf)",
    "model.optimizer.warmup": "[0, 1)",
    "probes.random_inits": "[0, 1000]",
    "probes.noise_seeds": "[0, 1000]",
    "trainer.max_epochs": "[1, inf)",
    "trainer.patience": "[1, inf)",
    "trainer.clip": "(0, inf)",
    "trainer.average": "[0, 1)",
    "trainer.threads": "[1, 1024]",
    "trainer.devices": "[1, 1024]",
    "trainer.nodes": "[1, 65536]",
}


def keys(schema: type = Config, prefix: str = "") -> dict[str, Any]:
    """Every key that a configuration may hold, dotted, with its type; the fields of all kinds of source together."""
    found: dict[str, Any] = {}
    for name, hint in get_type_hints(schema).items():
        if not is_dataclass(hint):
            found[prefix + name] = hint
            continue
        declared = cast(type, hint)
        for part in SOURCES.values() if declared is Source else (declared,):
            found |= keys(part, f"{prefix}{name}.")
    return found


def validate(config: Config, where: Callable[[str], str] = lambda key: "the configuration") -> None:
    """Raise ConfigError for the first value that cannot be meant; `where` tells in what place a key got its value."""
    for key, fault, remedy in faults(config):
        raise ConfigError(f"{key}={shown(attrgetter(key)(config))} {fault} (in {where(key)}); {remedy}")


def faults(config: Config) -> Iterator[tuple[str, str, str]]:
    """Yield each key whose value is wrong, with what is wrong and what to do."""
    yield from source_faults(config.source)
    for key, interval in LIMITS.items():
        if key.startswith("source.") and not hasattr(config.source, key.removeprefix("source.")):
            continue
        value = attrgetter(key)(config)
        if value is not None and not _inside(value, interval):
            yield key, f"is outside {interval}", "give a number inside"
    yield from _split_faults(config.split)
    yield from _model_faults(config.model)
    yield from _origins_faults(config)
    for key, known in {"data.targets": TARGETS, "baselines": BASELINES}.items():
        names = attrgetter(key)(config)
        if unknown := [name for name in names if name not in known]:
            yield key, f"names {shown(unknown[0])}, which is not known", f"choose from {', '.join(known)}"
        if len(set(names)) < len(names):
            yield key, "names one twice", "name each once"
    if not config.data.targets:
        yield "data.targets", "names nothing to forecast", f"choose from {', '.join(TARGETS)}"
    yield from _trainer_faults(config.trainer)
    if config.logger.kind not in LOGGERS:
        yield "logger.kind", "is not known", f"choose one of {', '.join(LOGGERS)}"
    if not re.fullmatch(r"[\w.+-]+", config.experiment_name):
        yield "experiment_name", "is not a folder's name", "use letters, digits and any of _ . + -"


def _inside(value: float | int, interval: str) -> bool:
    low, high = (float(end) for end in interval[1:-1].split(","))
    return (low <= value if interval[0] == "[" else low < value) and (
        value <= high if interval[-1] == "]" else value < high
    )


def _split_faults(split: Split) -> Iterator[tuple[str, str, str]]:
    train, validation = day_or_share(split.train_end), day_or_share(split.validation_end)
    for key, end in (("split.train_end", train), ("split.validation_end", validation)):
        if end is None:
            yield key, "is neither a date nor a fraction", "give a date (2012-12-31) or a number between 0 and 1 (0.7)"
    dates = isinstance(train, date) and isinstance(validation, date) and train >= validation
    fractions = isinstance(train, float) and isinstance(validation, float) and train >= validation
    if dates or fractions:
        yield "split.validation_end", f"is not after split.train_end={shown(split.train_end)}", "give a later one"


def _trainer_faults(trainer: Trainer) -> Iterator[tuple[str, str, str]]:
    for key, known in {"accelerator": ACCELERATORS, "precision": PRECISIONS}.items():
        if getattr(trainer, key) not in known:
            yield f"trainer.{key}", "is not known", f"choose one of {', '.join(known)}"
    if any(word in trainer.strategy for word in STARTING):
        yield "trainer.strategy", "starts processes in a way of its own", "write ddp: they are started here"


def _origins_faults(config: Config) -> Iterator[tuple[str, str, str]]:
    model = config.model
    if config.data.origins not in ORIGINS:
        yield "data.origins", "is not known", f"choose one of {', '.join(ORIGINS)}"
    elif config.data.origins == "all" and not (model.causal and model.kind in ENCODERS and model.pooling == "last"):
        need = f"kind {', '.join(ENCODERS)}, model.causal=true and model.pooling=last"
        yield "data.origins", "needs a network of which no bar sees a later one", f"give {need}, or data.origins=last"


def _model_faults(model: Model) -> Iterator[tuple[str, str, str]]:
    if model.width % model.heads:
        divisors = [str(heads) for heads in range(1, model.width + 1) if model.width % heads == 0]
        yield "model.heads", f"does not divide model.width={model.width}", f"choose one of {', '.join(divisors)}"
    if model.kind not in KINDS:
        yield "model.kind", "is not known", f"choose one of {', '.join(KINDS)}"
    if model.pooling not in POOLINGS:
        yield "model.pooling", "is not known", f"choose one of {', '.join(POOLINGS)}"
    if model.pooling != "last" and model.kind not in ENCODERS:
        yield "model.pooling", f"is read by {', '.join(ENCODERS)} alone, not by {model.kind}", "leave it at last"
    if model.positions not in POSITIONS:
        yield "model.positions", "is not known", f"choose one of {', '.join(POSITIONS)}"
    if model.kind == "encoder_decoder" and (model.positions != "learned" or model.causal):
        yield "model.kind", "has learned positions and sees its whole window", "leave positions and causal as they are"
    if model.positions == "rotary" and model.width // model.heads % 2:
        yield "model.positions", f"needs an even width per head, not {model.width // model.heads}", "choose fewer heads"
