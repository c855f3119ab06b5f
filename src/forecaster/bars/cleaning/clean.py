"""From what a source has read to bars that satisfy the contract; every change and every doubt is a quality row."""

from collections.abc import Sequence
from typing import Final

import pandas as pd

from forecaster.bars.cleaning import repair, rows, sessions
from forecaster.bars.cleaning.policy import STOP, Policy, written
from forecaster.bars.cleaning.suspicions import suspicions
from forecaster.bars.contract import Bars, check, quality_report
from forecaster.bars.raw import Raw
from forecaster.errors import DataError

NAMED: Final = 4  # faults that the one line of an error tells in full


class PoisonedBarsError(DataError):
    """Bars on which nothing may train as they are; `quality` holds the whole report."""

    def __init__(self, message: str, quality: pd.DataFrame) -> None:
        super().__init__(message)
        self.quality = quality


def clean(raw: Raw, policy: Policy, where: str) -> Bars:
    """Bars of the rows read. `where` names the source in messages.

    PoisonedBarsError where bars would poison training and the policy doesn't say what to do; DataError where rows are
    no bars at all: nothing left, several intervals, several calendars.
    """
    report = [quality_report(raw.notes)]
    bars, noticed = rows.readable(raw.frame.reset_index(drop=True), raw.unread, policy)
    report += noticed
    bars, noticed = rows.filled(bars, policy)
    report += noticed
    bars, noticed = rows.unique(bars, policy)
    report += noticed
    bars, noticed = rows.ordered(bars)
    report += noticed
    bars, noticed = rows.possible(bars, policy)
    report += noticed
    if bars.empty:
        _stopped(report, where)
        raise DataError(f"{where}: none of its {len(raw.frame)} rows is a bar with a time and a price: bring others")
    interval = sessions.interval(bars, raw.intraday, where)
    code = policy.calendar or sessions.calendar(bars, interval, where)
    if policy.calendar is None:
        report += sessions.doubtful(bars, code, interval)
    bars, noticed = sessions.known(bars, code, interval, policy)
    report += noticed
    bars, noticed = sessions.open_days(bars, code, interval, where)
    report += noticed
    if any(kind == "timezone" for _, _, kind, _, _ in raw.notes):
        sessions.check_zone(bars, code, interval, where)
    bars, noticed = sessions.finished(bars, code, interval, policy)
    report += noticed
    bars, noticed = repair.jumps(bars, policy, daily=interval == "1d")
    report += noticed
    report += suspicions(bars, code, interval)
    report.append(_unmatched(report, policy))
    quality = _stopped(report, where)
    frame = bars.drop(columns="place")
    if not frame["volume"].isna().all():
        frame["volume"] = frame["volume"].fillna(0.0)  # as reported: a blank says no more than a 0
    return Bars(check(frame, where), quality, code, interval, raw.basis)


def _unmatched(report: Sequence[pd.DataFrame], policy: Policy) -> pd.DataFrame:
    """Quality rows for entries of source.accept at which nothing was found to accept."""
    kept = pd.concat([part[part["action"] == repair.ACCEPTED] for part in report])
    pairs = zip(kept["symbol"], kept["time"], strict=True)
    found = {f"{symbol} {day}" for symbol, time in pairs for day in (written(time), str(time.date()))}
    lost = [entry for entry in policy.accept if entry not in found]
    return quality_report(("", pd.NaT, "accept", f"{entry}: no jump was found there", "ignored") for entry in lost)


def _stopped(report: Sequence[pd.DataFrame], where: str) -> pd.DataFrame:
    """The whole report, in the order of its steps; PoisonedBarsError where an action is to stop."""
    quality = quality_report(row for part in report for row in part.itertuples(index=False, name=None))
    stops = quality[quality["action"] == STOP]
    if stops.empty:
        return quality
    told = [
        # The place stands in front of all already.
        f"{symbol}{'' if pd.isna(time) else ' ' + written(time)} {kind}: {detail.removeprefix(f'{where} ')}".lstrip()
        for symbol, time, kind, detail, _ in stops[:NAMED].itertuples(index=False, name=None)
    ]
    if more := len(stops) - NAMED if len(stops) > NAMED else 0:
        told.append(f"and {more} more")
    remedy = "correct the data, or leave such bars out with source.on_error=drop"
    movable = stops[stops["kind"].isin(repair.MOVES)]
    if stops["kind"].isin(repair.ADJUSTABLE).any():
        remedy += ", or scale them with source.on_error=adjust"
    if len(movable):
        symbol, time = movable.iloc[0]["symbol"], movable.iloc[0]["time"]
        remedy += f", or keep a true move with 'source.accept=[\"{symbol} {written(time)}\"]'"
    raise PoisonedBarsError(f"{where}: {'; '.join(told)}: {remedy}", quality)
