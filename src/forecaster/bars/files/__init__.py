"""Price files of every common layout."""

from forecaster.bars.files.reading import Options, read

__all__ = ["Options", "read"]
