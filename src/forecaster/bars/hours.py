"""Opens, closes and breaks of a market as arrays, and the trading time between two instants."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Shaped

FOREX_ZONE: Final = "America/New_York"
FOREX_CLOSE: Final = pd.Timedelta(hours=17)  # where one forex day ends and the next begins
USUAL_SESSIONS: Final = 250  # the last ones known, a year of them, show how long a session usually is
RECENT_SESSIONS: Final = 20  # whose bars show a symbol's own hours


@dataclass(frozen=True)
class Hours:
    """Sessions S with opens and closes, and the stretches G between breaks: naive datetime64[us], instants in UTC.

    zone: where the market's clock runs. week: sessions in a week without holidays.
    """

    sessions: pd.DatetimeIndex
    opens: Shaped[np.ndarray, " S"]
    closes: Shaped[np.ndarray, " S"]
    starts: Shaped[np.ndarray, " G"]
    ends: Shaped[np.ndarray, " G"]
    zone: str
    week: int

    @staticmethod
    def of(schedule: pd.DataFrame, zone: str, week: int) -> "Hours":
        """Hours from a table of open, break_start, break_end and close (aware; NaT for no break) by session."""
        opens, pauses, resumes, closes = (
            schedule[name].to_numpy(dtype="datetime64[us]") for name in ("open", "break_start", "break_end", "close")
        )
        pausing = ~np.isnat(pauses)
        return Hours(
            # The library stamps in ns, bars in us.
            sessions=pd.DatetimeIndex(schedule.index).as_unit("us").tz_localize(None),
            opens=opens,
            closes=closes,
            starts=np.sort(np.concatenate((opens, resumes[pausing]))),
            ends=np.sort(np.concatenate((closes, pauses[pausing]))),
            zone=zone,
            week=week,
        )

    @cached_property
    def _knots(self) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
        """Starts and ends in turn in microseconds, and the minutes traded up to each."""
        knots = np.column_stack((self.starts, self.ends)).ravel()
        lengths = (self.ends - self.starts) / np.timedelta64(1, "m")
        total = np.cumsum(lengths)
        return _microseconds(knots), np.column_stack((total - lengths, total)).ravel()

    @cached_property
    def usual(self) -> int:
        """Minutes traded in a usual session."""
        traded = self.traded(self.closes[-USUAL_SESSIONS:]) - self.traded(self.opens[-USUAL_SESSIONS:])
        return round(float(np.median(traded)))

    def usual_span(self, day: np.datetime64) -> np.timedelta64:
        """From the open to the close, breaks included, of the usual one of the last sessions before a date: exchanges
        have changed their hours.
        """
        place = int(np.searchsorted(self.sessions.to_numpy(), day))
        last = slice(max(0, place - RECENT_SESSIONS), max(1, place))
        spans = (self.closes[last] - self.opens[last]) / np.timedelta64(1, "us")
        return np.timedelta64(round(float(np.median(spans))), "us")

    @cached_property
    def ahead(self) -> pd.Timedelta:
        """How long before midnight a session opens that opens on the evening before its date."""
        opening = pd.Timestamp(self.opens[-1]).tz_localize("UTC").tz_convert(self.zone).tz_localize(None)
        return max(self.sessions[-1] - opening, pd.Timedelta(0))

    def has(self, days: Shaped[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
        """Whether each date is a session."""
        known = self.sessions.to_numpy()
        return known[np.minimum(np.searchsorted(known, days), len(known) - 1)] == days

    def traded(self, stamps: Shaped[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Minutes traded from the first open up to each stamp."""
        return np.interp(_microseconds(stamps), *self._knots)

    def trading_after(
        self, stamps: Shaped[np.ndarray, " n"], minutes: Float[np.ndarray, " H"]
    ) -> Shaped[np.ndarray, "n H"]:
        """The instant at which so many minutes have been traded after each stamp; at a close, the next open."""
        knots, traded = self._knots
        # A hair later: at a close as many minutes are traded as at the next open.
        wanted = self.traded(stamps)[:, None] + minutes + 1e-6
        return np.floor(np.interp(wanted, traded, knots) / 1e6).astype("datetime64[s]").astype("datetime64[us]")

    def open_at(self, stamps: Shaped[np.ndarray, " n"], bar: np.timedelta64) -> Bool[np.ndarray, " n"]:
        """Whether a bar that begins or ends at each stamp overlaps a session, from its open to its close."""
        return _within(stamps, bar, self.opens, self.closes)

    def trading_at(self, stamps: Shaped[np.ndarray, " n"], bar: np.timedelta64) -> Bool[np.ndarray, " n"]:
        """Like `open_at`, but a break is closed."""
        return _within(stamps, bar, self.starts, self.ends)

    def stepping(self, time: np.datetime64, bar: np.timedelta64, lead: np.timedelta64) -> Iterator[np.datetime64]:
        """Stamps one bar after the other, where the market trades during that bar, which begins `lead` before it."""
        stamp = time + bar
        while stamp < self.closes[-1]:
            if np.ptp(self.traded(np.array([stamp - lead, stamp - lead + bar]))) > 0:
                yield stamp
            stamp += bar

    def following(
        self, time: np.datetime64, day: np.datetime64, slots: Shaped[np.ndarray, " K"], lead: np.timedelta64
    ) -> Iterator[np.datetime64]:
        """Stamps after a time, whose session date is `day`: those sessions' opens plus slots.

        lead: how long before its stamp a bar begins. After an early close there are no bars of the usual hours, while
        those beyond the usual hours stay; a bar that begins before it and ends after it is stamped with the close.
        """
        usual = self.usual_span(day)
        first = int(np.searchsorted(self.sessions.to_numpy(), day))
        for opening, closing in zip(self.opens[first:], self.closes[first:], strict=True):
            for slot in slots:
                cut = slot - lead < closing - opening < slot if lead else False
                stamp = closing if cut else opening + slot
                if stamp > time and (slot - lead < closing - opening or slot - lead >= usual):
                    yield stamp
                    time = stamp


def forex(first: pd.Timestamp, last: pd.Timestamp) -> Hours:
    """The week of currencies: sessions Monday to Friday, each from 17:00 New York the day before to 17:00.

    Holidays are not known: brokers differ.
    """
    days = pd.bdate_range(first, last).as_unit("us")
    opens, closes = (
        (days + shift + FOREX_CLOSE).tz_localize(FOREX_ZONE).tz_convert("UTC").tz_localize(None).to_numpy()
        for shift in (pd.Timedelta(days=-1), pd.Timedelta(0))
    )
    return Hours(days, opens, closes, opens, closes, FOREX_ZONE, 5)


def _microseconds(stamps: Shaped[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    # Exact: microseconds of this age of the world are whole numbers below 2^53.
    return stamps.astype("datetime64[us]").astype(np.int64).astype(np.float64)


def _within(
    stamps: Shaped[np.ndarray, " n"],
    bar: np.timedelta64,
    starts: Shaped[np.ndarray, " G"],
    ends: Shaped[np.ndarray, " G"],
) -> Bool[np.ndarray, " n"]:
    place = np.searchsorted(starts, stamps + bar) - 1  # the last stretch that begins before stamp + bar
    return (place >= 0) & (stamps <= ends[np.maximum(place, 0)])
