"""Loggers: none for csv, and a missing package named."""

from pathlib import Path

import pytest

from forecaster.errors import ConfigError
from forecaster.training import loggers


def test_csv_needs_no_logger(tmp_path: Path) -> None:
    assert loggers.logger("csv", tmp_path, "smoke") is False


@pytest.mark.parametrize("kind", ["tensorboard", "mlflow", "wandb"])
def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(loggers, "import_module", missing)
    with pytest.raises(ConfigError, match=rf"logger={kind} needs .* pip install -e '.\[{kind}\]'"):
        loggers.logger(kind, tmp_path, "smoke")
