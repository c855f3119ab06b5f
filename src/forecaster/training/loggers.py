"""Where losses go beside history.csv, which every run has."""

from importlib import import_module
from pathlib import Path

from lightning.pytorch.loggers import Logger

from forecaster.errors import ConfigError


def logger(kind: str, directory: Path, name: str) -> Logger | bool:
    """Lightning's logger of that kind, keeping its files in the run directory; False for csv, which needs none.

    Raises ConfigError where the package that it needs is not installed.
    """
    if kind == "csv":
        return False
    try:
        import_module(kind)
    except ModuleNotFoundError as missing:
        raise ConfigError(
            f"logger={kind} needs a package that is missing: pip install -e '.[{kind}]' in the project's folder"
        ) from missing
    from lightning.pytorch import loggers

    match kind:
        case "tensorboard":
            return loggers.TensorBoardLogger(directory, name=None, version="tensorboard")
        case "mlflow":
            return loggers.MLFlowLogger(name, tracking_uri=f"file:{directory.resolve() / 'mlruns'}")
        case "wandb":
            return loggers.WandbLogger(name, save_dir=directory)
        case _:
            raise ValueError(f"unknown logger {kind!r}")
