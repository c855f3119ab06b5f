"""From a source's configuration to bars, and from bars to the windows of each part; nothing here loads torch."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from forecaster.bars import bundled, files, planted
from forecaster.bars.calendar import Calendar
from forecaster.bars.cleaning import clean
from forecaster.bars.cleaning.policy import Policy
from forecaster.bars.contract import Bars, Row, quality_report
from forecaster.bars.files.paths import found
from forecaster.config import Config
from forecaster.errors import ConfigError, DataError
from forecaster.explain import display
from forecaster.forecasts import baselines
from forecaster.sources import Bundled, Files, Planted, Real, Source, Yahoo
from forecaster.windows import panel, scaling, splits
from forecaster.windows.features import WARMUP

DEFAULT_WINDOW = 64
LISTED = 20  # undefined targets of a symbol that have a quality row each


@dataclass(frozen=True)
class Windowed:
    """Bars as windows: what training, scores and probes of one run share.

    quality: the bars' own report, and what the windows leave out or can't scale. length: the window L. baselines: those
    whose past a window holds.
    """

    bars: Bars
    quality: pd.DataFrame
    panel: panel.Panel
    split: splits.Split
    scaler: scaling.Scaler
    length: int
    baselines: tuple[str, ...]


def say(text: str) -> None:
    """Progress, on stderr: stdout is for results."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def load_bars(source: Source) -> Bars:
    """Bars of a source, cleaned as its policy says; DataError where they can't be had or would poison training."""
    match source:
        case Bundled(symbols=symbols):
            return bundled.load(symbols)
        case Planted(market=market, bars=bars, seed=seed, phi=phi):
            return planted.load(market, bars, seed, phi=phi)
        case Files():
            options = files.Options(
                path=tuple(source.path),
                layout=source.layout,
                sep=source.sep,
                decimal=source.decimal,
                thousands=source.thousands,
                date_format=source.date_format,
                timezone=source.timezone,
                columns=source.columns or {},
                symbols=_symbols(source),
            )
            policy = _policy(source)
            named = source.path[0] if len(source.path) == 1 else f"{source.path[0]} and {len(source.path) - 1} more"
            return clean(files.read(options), policy, named)
        case Yahoo():
            from forecaster.bars import yahoo  # yfinance, which no other source needs

            policy = _policy(source)
            options = yahoo.Options(
                symbols=_symbols(source) or (),
                start=source.start or yahoo.first_date(source.interval, policy.now),
                end=source.end,
                interval=source.interval,
                auto_adjust=source.auto_adjust,
                strict=source.strict,
                cache=source.cache,
            )
            return clean(yahoo.read(options, policy.now, say), policy, "Yahoo")
        case _:
            raise TypeError(f"no loader for {type(source).__name__}")


def check(source: Source) -> None:
    """Raises what can be told of a source before it is read: its calendar, its symbols' file, missing paths."""
    if isinstance(source, Real):
        _policy(source)
        _symbols(source)
    if isinstance(source, Files):
        found(tuple(source.path))


def _policy(source: Real) -> Policy:
    if source.calendar is not None:
        try:
            Calendar(source.calendar)
        except DataError as fault:
            raise ConfigError(f"source.calendar={source.calendar}: {fault}") from fault
    return Policy(source.calendar, source.on_error, tuple(source.accept), pd.Timestamp.now("UTC"))


def _symbols(source: Real) -> tuple[str, ...] | None:
    """The symbols asked for, or None for all; from source.symbols_file one on each line, without empty lines and #."""
    if source.symbols_file is None:
        return None if source.symbols is None else tuple(source.symbols)
    path = Path(source.symbols_file).expanduser()
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as fault:
        raise ConfigError(f"source.symbols_file={display(path)} can't be read: {fault}; give a text file") from fault
    named = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not named:
        raise ConfigError(f"source.symbols_file={display(path)} names no symbol: write one on each line")
    if twice := {symbol for symbol in named if named.count(symbol) > 1}:
        raise ConfigError(f"source.symbols_file={display(path)} names {min(twice)} twice: name each symbol once")
    return tuple(named)


def build_panel(config: Config, bars: Bars, folder: Path) -> panel.Panel:
    """The panel; one larger than data.in_memory_gb lies in a file of the folder meanwhile.

    DataError where the bars lack what every target needs.
    """
    return panel.build(
        bars,
        tuple(config.data.targets),
        config.data.horizon,
        max_gap=config.data.max_gap,
        in_memory_gb=config.data.in_memory_gb,
        folder=folder,
    )


def windowed(config: Config, bars: Bars, folder: Path) -> Windowed:
    """Panel, parts and scaler. DataError where bars are too few for a window in every part."""
    built = build_panel(config, bars, folder)
    length = config.model.window or fitting_window(built, config.split.train_end)
    compared, off = _baselines(config.baselines, length, built.week_bars)
    parts = splits.split(built, length, config.split.train_end, config.split.validation_end, config.split.embargo)
    scaler = scaling.fit(built, parts, length)
    start = built.time(0)
    rows = [
        *(("all", start, "off", reason, "left out") for reason in built.off),
        *(("all", start, "baseline_off", reason, "left out") for reason in off),
        *left_out(built, length, config.data.max_gap),
        *(("all", start, "constant", f"{name} never changes", "std taken as 1") for name in scaler.constant),
    ]
    quality = pd.concat([bars.quality, quality_report(rows)], ignore_index=True)
    return Windowed(bars, quality, built, parts, scaler, length, compared)


def _baselines(names: Sequence[str], length: int, week_bars: int) -> tuple[tuple[str, ...], list[str]]:
    """The baselines whose past a window holds, and why others are left out; ConfigError where none is left."""
    kept, off = list[str](), list[ConfigError]()
    for name in names:
        try:
            baselines.check_window(name, length, week_bars)
            kept.append(name)
        except ConfigError as reason:
            off.append(reason)
    if off and not kept:
        raise off[0]
    return tuple(kept), [str(reason) for reason in off]


def fitting_window(built: panel.Panel, train_end: str | float) -> int:
    """The default window: 64 bars, or what leaves half of the longest symbol's training bars as origins."""
    end = splits.boundary(built, train_end, "split.train_end")
    bars = max(
        int(np.searchsorted(built.times[slice(*built.bounds(i))], end, side="right")) for i in range(len(built.symbols))
    )
    length = min(DEFAULT_WINDOW, (bars - WARMUP) // 2)
    if length < 1:
        raise DataError(
            f"too few bars to train on: the longest symbol has {bars} up to {splits.day(built, end)}, of which "
            f"{WARMUP} warm the features up; bring more bars or move split.train_end (split=fractions: .7 of the days)"
        )
    return length


def left_out(built: panel.Panel, length: int, max_gap: int | None) -> Iterator[Row]:
    """Quality rows for the windows that can't be: too few bars, a gap in them, a target that is undefined."""
    for number, symbol in enumerate(built.symbols):
        first, end = built.bounds(number)
        needed = WARMUP + length + built.horizon
        if end - first < needed:
            detail = f"{end - first} bars < {needed} (warm-up {WARMUP} + window {length} + horizon {built.horizon})"
            yield symbol, built.time(end - 1), "too_short", detail, "symbol left out"
        rows, fate = built.candidates(number, length)
        gapped, undefined = rows[fate == panel.GAPPED], rows[fate == panel.UNDEFINED]
        if len(gapped):
            detail = f"more than data.max_gap={max_gap} bars missing within {len(gapped)} windows or their targets"
            yield symbol, built.time(int(gapped[0])), "across_gap", detail, "windows left out"
        for row in map(int, undefined[:LISTED]):
            unknown = [n for c, n in enumerate(built.target_names) if not np.isfinite(built.targets[row, :, c]).all()]
            yield symbol, built.time(row), "undefined_target", f"{', '.join(unknown)} after this bar", "origin left out"
        if more := len(undefined[LISTED:]):
            detail = f"{more} more bars before undefined targets"
            yield symbol, built.time(int(undefined[LISTED])), "undefined_target", detail, "origins left out"


def preview(config: Config, bars: Bars) -> tuple[pd.DataFrame, str]:
    """The quality report with what windows would leave out, and how many windows each part would have."""
    try:
        ready = windowed(config, bars, Path.cwd())
    except (ConfigError, DataError) as fault:
        return bars.quality, f"no windows: {fault}"
    return ready.quality, windows_text(ready)


def windows_text(ready: Windowed) -> str:
    """Windows of each part, and how many were left out and why."""
    parts = ", ".join(f"{name} {ready.split.counts[name].told}" for name in splits.PARTS)
    return f"windows of {ready.length} bars: {parts}"
