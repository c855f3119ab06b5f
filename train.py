"""Bars to report: python train.py experiment=NAME [key=value ...]; python train.py --help lists what can be given."""

from forecaster.cli import train

if __name__ == "__main__":
    train()
