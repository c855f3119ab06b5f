"""Bars of one symbol over a range of dates, taken from one of Yahoo's answers, and two such put together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pandas as pd

from forecaster.bars.contract import NUMBERS, PRICES, minutes

# Yahoo's feeds are up to half an hour late, and the closing auction's price comes after the close.
SETTLED = pd.Timedelta(minutes=30)
DAY = pd.Timedelta(days=1)
# Relative: Yahoo's adjusted prices differ in the sixth digit from one answer to the next.
NOISE = 1e-4

ALWAYS = pd.Timestamp(0, unit="s", tz="UTC")

# A row that gave no bar, or one left out: stamp, kind, detail, action.
Aside = tuple[pd.Timestamp, str, str, str]


@dataclass(frozen=True)
class Series:
    """What one cache file holds: a symbol, our name of an interval, and whether auto_adjust was asked for."""

    symbol: str
    interval: str
    adjusted: bool

    @property
    def intraday(self) -> bool:
        """Stamps are aware UTC; otherwise session dates."""
        return self.interval != "1d"


@dataclass(frozen=True)
class Stretch:
    """Finished bars of one series over a range of dates, as Yahoo gave them.

    frame: time (session date, or aware UTC) and NUMBERS, by time. first, last: the dates in the exchange's zone whose
    bars are all here, both included. asked: when. renew: the moment from which on there may be bars after `last`.
    zone, currency: the exchange's. scaled: dates of the dividends and splits that change the prices before them.
    """

    series: Series
    frame: pd.DataFrame
    first: pd.Timestamp
    last: pd.Timestamp
    asked: pd.Timestamp
    renew: pd.Timestamp
    zone: str
    currency: str
    scaled: tuple[pd.Timestamp, ...]
    asides: tuple[Aside, ...]

    def covers(self, start: pd.Timestamp, end: pd.Timestamp, now: pd.Timestamp) -> bool:
        """Whether asking Yahoo for these dates at this moment would bring nothing new."""
        return self.first <= start and (end <= self.last or now < self.renew)

    def between(self, start: pd.Timestamp, end: pd.Timestamp) -> "Stretch":
        """The bars and asides of these dates, both included."""
        inside = self.frame[self.dates().between(start, end)].reset_index(drop=True)
        asides = tuple(aside for aside in self.asides if start <= self.date(aside[0]) <= end)
        return replace(self, frame=inside, asides=asides)

    def dates(self) -> pd.Series:
        """The date of every bar in the exchange's zone: naive, midnight."""
        times = self.frame["time"]
        return times.dt.tz_convert(self.zone).dt.tz_localize(None).dt.normalize() if self.series.intraday else times

    def date(self, time: pd.Timestamp) -> pd.Timestamp:
        """The date of one stamp in the exchange's zone: naive, midnight."""
        return midnight(time.tz_convert(self.zone)) if self.series.intraday else time


def taken(
    series: Series,
    answer: dict[str, Any],
    prices: pd.DataFrame,
    first: pd.Timestamp,
    last: pd.Timestamp,
    now: pd.Timestamp,
) -> Stretch:
    """The finished bars of the dates first to last, from a chart's result and yfinance's frame of it.

    A date is over when its session closed half an hour ago. Before that a daily bar is unfinished, and so is an
    intraday one that ends after `now`, or after the last trade that Yahoo's feed, which may be late, has seen.
    """
    meta: dict[str, Any] = answer["meta"]
    zone = str(meta["exchangeTimezoneName"])
    rows = _rows(series, answer, zone)
    frame = _frame(series, prices)
    # yfinance writes 0 for a volume that Yahoo doesn't have.
    frame.loc[frame["time"].isin(rows.loc[rows["volume"].isna() & rows["priced"], "time"]), "volume"] = np.nan
    opens, closes = _session(meta, zone, now)
    today = midnight(now.tz_convert(zone))
    over = opens > today or (opens == today and now >= closes + SETTLED)
    complete = today if over else today - DAY
    stretch = Stretch(
        series=series,
        frame=frame,
        first=first,
        last=min(last, complete),
        asked=now,
        renew=_renewal(closes, now, zone) if last >= today else ALWAYS,
        zone=zone,
        currency=str(meta.get("currency")),
        scaled=_scaled(series, answer, zone),
        asides=(),
    )
    traded = _moment(meta.get("regularMarketTime") or now.timestamp())
    left = _unfinished(stretch, complete, min(now, traded))
    if rows["quote"].iloc[-1]:
        left[rows["time"].iloc[-1]] = ("live_quote", "a quote off the grid of bars, with volume 0", "dropped")
    kept = frame[~frame["time"].isin(list(left)) & frame[list(PRICES)].notna().any(axis=1)].reset_index(drop=True)
    for row in rows[~rows["time"].isin(kept["time"])].itertuples(index=False):
        outside = ("outside_hours", "a row outside the regular hours", "dropped")
        left.setdefault(
            cast("pd.Timestamp", row.time), outside if row.priced else ("blank_row", "a row without prices", "no bar")
        )
    if series.interval != "30min":
        for time in rows.loc[rows["time"].duplicated(), "time"]:
            left.setdefault(time, ("double_row", "Yahoo gave the bar twice", "one kept"))
    asides = tuple((time, *words) for time, words in sorted(left.items()))
    return replace(stretch, frame=kept, asides=asides).between(first, last)


def _unfinished(
    stretch: Stretch, complete: pd.Timestamp, reached: pd.Timestamp
) -> dict[pd.Timestamp, tuple[str, str, str]]:
    frame = stretch.between(complete + DAY, pd.Timestamp.max.as_unit("us")).frame
    detail = "the session was not over (it counts as over half an hour after the close)"
    if stretch.series.intraday:
        frame = frame[frame["time"].gt(reached - pd.Timedelta(minutes=minutes(stretch.series.interval)))]
        detail = "the bar was not over"
    at = stretch.asked.tz_convert(stretch.zone).strftime("%Y-%m-%d %H:%M %Z")
    return dict.fromkeys(list(frame["time"]), ("partial_last", f"{detail} at {at}", "dropped"))


def _rows(series: Series, answer: dict[str, Any], zone: str) -> pd.DataFrame:
    """Yahoo's rows: time as in our bars, priced, volume, quote (no whole number of bars after the date's first)."""
    given = answer["indicators"]["quote"][0]
    stamps = pd.to_datetime(pd.Series(answer["timestamp"]), unit="s", utc=True).dt.as_unit("us")
    local = stamps.dt.tz_convert(zone)
    values = pd.DataFrame({name: pd.Series(given[name], dtype="float64") for name in NUMBERS})
    first: pd.Series = stamps.groupby(local.dt.date).transform("min")
    off_grid = (stamps - first).dt.total_seconds() % (60 * minutes(series.interval)) != 0
    quote = off_grid & (values["volume"].fillna(0) == 0)
    if series.interval == "30min":  # made out of 15m
        stamps, quote = cast("pd.Series", stamps.dt.floor("30min")), quote & False
    if not series.intraday:
        # As yfinance: a stamp an hour or two before midnight is a midnight whose clock change Yahoo missed.
        early = (local.dt.minute == 0) & local.dt.hour.isin([22, 23])
        stamps = (local + pd.to_timedelta(early * 2, unit="h")).dt.tz_localize(None).dt.normalize()
        quote &= False
    priced = (values[list(PRICES)].fillna(0) != 0).any(axis=1)
    return pd.DataFrame({"time": stamps, "priced": priced, "volume": values["volume"], "quote": quote})


def _frame(series: Series, prices: pd.DataFrame) -> pd.DataFrame:
    index = cast("pd.DatetimeIndex", prices.index)
    time = index.tz_convert("UTC") if series.intraday else index.tz_localize(None).normalize()
    numbers = {name: prices[name.capitalize()].to_numpy(dtype=np.float64) for name in NUMBERS}
    return pd.DataFrame({"time": time.as_unit("us"), **numbers})


def _session(meta: dict[str, Any], zone: str, now: pd.Timestamp) -> tuple[pd.Timestamp, pd.Timestamp]:
    """The date and the close of the session that Yahoo calls the current one; the running day where it names none."""
    periods: dict[str, dict[str, int]] = meta.get("currentTradingPeriod") or {}
    regular = periods.get("regular")
    if not regular:
        day = midnight(now.tz_convert(zone))
        return day, (day + DAY).tz_localize(zone)
    start, end = (_moment(regular[name]).tz_convert(zone) for name in ("start", "end"))
    return midnight(start), end


def _renewal(closes: pd.Timestamp, now: pd.Timestamp, zone: str) -> pd.Timestamp:
    over = closes + SETTLED
    tomorrow = (midnight(now.tz_convert(zone)) + DAY).tz_localize(zone)
    return over if now < over else tomorrow


def _scaled(series: Series, answer: dict[str, Any], zone: str) -> tuple[pd.Timestamp, ...]:
    kinds = ("splits", "dividends", "capitalGains") if series.adjusted and not series.intraday else ("splits",)
    events: dict[str, dict[str, dict[str, Any]]] = answer.get("events") or {}
    seconds = [event["date"] for kind in kinds for event in events.get(kind, {}).values()]
    return tuple(sorted({midnight(_moment(at).tz_convert(zone)) for at in seconds}))


def chained(parts: Sequence[Stretch]) -> Stretch:
    """Answers about the same dates, in pieces one after the other, as one."""
    frame = pd.concat([part.frame for part in parts]).drop_duplicates("time", ignore_index=True)
    scaled = tuple(sorted({day for part in parts for day in part.scaled}))
    asides = dict.fromkeys(aside for part in parts for aside in part.asides)
    return replace(parts[-1], frame=frame, scaled=scaled, asides=tuple(asides))


def disagreement(old: Stretch, new: Stretch) -> str | None:
    """Why an answer can't be put beside bars from an earlier one; None where the bars they share are the same.

    The earlier bars stand on another basis where a dividend or a split came after them, and where a price that both
    have differs by more than 1e-4 of it.
    """
    # One of today is known before there is a bar of today.
    later = [day for day in new.scaled if day > old.dates().iloc[-1] and day not in old.scaled]
    if later:
        return f"a dividend or split of {later[0].date()} changed the prices before it"
    start = max(old.frame["time"].iloc[0], new.frame["time"].iloc[0])
    end = min(old.frame["time"].iloc[-1], new.frame["time"].iloc[-1])
    before, after = (
        part.frame[part.frame["time"].between(start, end)].set_index("time")[list(PRICES)] for part in (old, new)
    )
    if before.empty or not before.index.equals(after.index):
        return f"the bars from {start.date()} to {end.date()} are not the same ones as before"
    same = np.isclose(before.to_numpy(), after.to_numpy(), rtol=NOISE, atol=0, equal_nan=True)
    if same.all():
        return None
    row, column = np.argwhere(~same)[0]
    was, now = before.iloc[row, column], after.iloc[row, column]
    return f"the {PRICES[column]} of {before.index[row]:%Y-%m-%d} is now {now:.6g} and was {was:.6g}"


def joined(old: Stretch, new: Stretch) -> Stretch:
    """An earlier answer and one that overlaps it and goes on after or before it; the newer one's word counts."""
    since, until = new.frame["time"].iloc[0], new.frame["time"].iloc[-1]
    before, after = old.frame[old.frame["time"].lt(since)], old.frame[old.frame["time"].gt(until)]
    later = max(old, new, key=lambda part: (part.last, part.renew))
    if later is new:
        kept = tuple(aside for aside in old.asides if old.date(aside[0]) < new.first)
    else:
        kept = tuple(aside for aside in old.asides if old.date(aside[0]) > new.last)
    return replace(
        later,
        frame=pd.concat([before, new.frame, after], ignore_index=True),
        first=min(old.first, new.first),
        scaled=tuple(sorted({*old.scaled, *new.scaled})),
        asides=tuple(sorted({*kept, *new.asides})),
    )


def _moment(seconds: Any) -> pd.Timestamp:
    return pd.Timestamp(int(seconds), unit="s", tz="UTC")


def midnight(stamp: pd.Timestamp) -> pd.Timestamp:
    """The stamp's date on its own clock: naive, midnight."""
    return stamp.tz_localize(None).normalize().as_unit("us")
