"""From rows as read to bars that satisfy the contract."""

from forecaster.bars.cleaning.clean import PoisonedBarsError, clean
from forecaster.bars.cleaning.policy import Policy

__all__ = ["PoisonedBarsError", "Policy", "clean"]
