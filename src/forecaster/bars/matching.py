"""Which market's calendar bars keep, where their user names none."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from jaxtyping import Int

from forecaster.bars.calendar import ROUND_THE_CLOCK, Calendar, Times
from forecaster.bars.contract import minutes
from forecaster.bars.exchanges import hours_of

# Large exchanges, whose calendars are tried where a user names none.
CANDIDATES: Final = (
    *("XNYS", "XLON", "XETR", "XPAR", "XTKS", "XHKG", "XSHG", "XBOM", "XASX", "XTSE", "XSWX", "XAMS", "XMIL", "BVMF"),
    "XKRX",
)
SLOW: Final = "XKRX"  # seconds to build: tried only where no other comes near
NEAR: Final = 0.02  # mismatches a bar: fewer than the holidays in which Seoul differs from any other
WEEKDAYS: Final = "24/5"
CLOSED_DAYS: Final = 3  # in a row, holidays of New York that no other of CANDIDATES rests on together
WEEKENDS: Final = (
    0.05  # share of the bars on a Saturday (and Sunday) from which weekends are trading days; a 7th if all
)
STRANGE: Final = 0.25  # mismatches a bar beyond which stamps aren't those of an exchange's open hours


def fitting(times: Times, interval: str = "1d") -> str:
    """The calendar that fits one symbol's bars best, where its user names none.

    Bars on Saturdays and Sundays as a rule: "24/7". Intraday bars around the clock on weekdays: "forex". Otherwise that
    of CANDIDATES with the fewest bars on closed days (at closed hours) and missing bars between the first and the last,
    the first of equals.
    """
    if interval != "1d":
        return _fitting_hours(times, minutes(interval), interval)
    weekday = _weekdays(times)
    saturdays, sundays = float((weekday == 5).mean()), float((weekday == 6).mean())
    if min(saturdays, sundays) >= WEEKENDS and saturdays + sundays >= 3 * WEEKENDS:
        return "24/7"
    return _fewest(times, interval)[0]


def _fitting_hours(times: Times, length: int, interval: str) -> str:
    weekday = _weekdays(times)
    if float((weekday == 5).mean()) >= WEEKENDS:
        return "24/7"
    midweek = times[(weekday >= 1) & (weekday <= 3)].astype("datetime64[D]")
    if len(midweek):
        _, counts = np.unique(midweek, return_counts=True)
        if float(np.median(counts)) * length >= ROUND_THE_CLOCK:
            return "forex"
    code, mismatches = _fewest(times, interval)
    if mismatches <= STRANGE * len(times):
        return code
    # Bars before and after the open hours tell nothing of the exchange, but their dates do.
    return _fewest(np.unique(times.astype("datetime64[D]")).astype("datetime64[us]"), "1d", CANDIDATES)[0]


def _fewest(times: Times, interval: str, codes: Sequence[str] | None = None) -> tuple[str, int]:
    """The calendar with the fewest mismatches, and how many."""
    best, fewest = "", -1
    for code in codes or ((*CANDIDATES, WEEKDAYS) if interval == "1d" else CANDIDATES):
        if code == SLOW and fewest <= NEAR * len(times):
            continue
        if code == CANDIDATES[0] and interval == "1d" and _rests_with(code, times):
            return code, int(Calendar(code).missing(times, interval).sum())
        found = _mismatches(code, times, interval)
        if fewest < 0 or found < fewest:
            best, fewest = code, found
        if fewest == 0:
            break
    return best, fewest


def _rests_with(code: str, times: Times) -> bool:
    """Whether no bar lies on a closed day although several weekdays were closed: other calendars need no trial."""
    known = hours_of(code).sessions.to_numpy()
    if len(times) == 0 or not np.isin(times, known).all():
        return False
    weekdays = np.busday_count(str(times[0])[:10], str(times[-1])[:10])
    open_days = np.count_nonzero((known >= times[0]) & (known < times[-1]))
    return int(weekdays) - int(open_days) >= CLOSED_DAYS


def _mismatches(code: str, times: Times, interval: str) -> int:
    """Bars that the calendar has no room for, and bars that it expects but are missing."""
    hours, calendar = hours_of(code), Calendar(code)
    if interval == "1d":
        fits = hours.has(times)
    else:
        fits = hours.trading_at(times, np.timedelta64(minutes(interval), "m"))
    return int((~fits).sum()) + int(calendar.missing(times, interval).sum())


def _weekdays(times: Times) -> Int[np.ndarray, " n"]:
    # 1970-01-01 was a Thursday.
    return (times.astype("datetime64[D]").astype(np.int64) + 3) % 7
