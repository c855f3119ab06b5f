import numpy as np
import pytest

from forecaster.bars.files.clocks import Clocks, Settled, settle
from forecaster.errors import DataError

ASK = "give source.timezone, such as America/New_York (the exchange's), or UTC"


def clocks(stamps: list[str], ahead: int | list[int] | None = None, symbols: list[str] | None = None) -> Clocks:
    """ahead: minutes ahead of UTC; None are naive stamps."""
    owners = symbols or ["AAA"] * len(stamps)
    names = list(dict.fromkeys(owners))
    offsets = ahead if isinstance(ahead, list) else [ahead or 0] * len(stamps)
    return Clocks(
        wall=np.array(stamps, dtype="datetime64[us]"),
        ahead=np.array(offsets, dtype=np.int64),
        aware=np.full(len(stamps), ahead is not None),
        symbol=np.array([names.index(owner) for owner in owners], dtype=np.int64),
        symbols=names,
        place=lambda row: f"a.csv line {row + 2}",
    )


def shown(settled: Settled) -> list[str]:
    return ["NaT" if np.isnat(time) else str(time).replace("T", " ") for time in settled.times.astype("datetime64[m]")]


def refused(given: Clocks, timezone: str | None = None) -> str:
    with pytest.raises(DataError) as error:
        settle(given, timezone)
    return str(error.value)


def hours(first: str, count: int, step: int = 60) -> list[str]:
    return [str(np.datetime64(first) + np.timedelta64(step * n, "m")) for n in range(count)]


def test_when_all_stamps_are_at_midnight_then_bars_are_daily():
    for ahead in (None, 0, -240, 540):
        settled = settle(clocks(["2024-01-02", "2024-01-03", "NaT"], ahead), None)
        assert not settled.intraday
        assert shown(settled) == ["2024-01-02 00:00", "2024-01-03 00:00", "NaT"]


def test_when_one_bar_a_day_has_one_naive_clock_time_then_its_date_counts():
    settled = settle(clocks(["2024-01-02T16:00", "2024-01-03T16:00", "2024-01-03T16:00"]), None)
    assert (shown(settled), settled.intraday) == (["2024-01-02 00:00", "2024-01-03 00:00", "2024-01-03 00:00"], False)


def test_when_one_bar_a_day_is_at_several_naive_clock_times_then_both_are_named():
    assert refused(clocks(["2024-01-02", "2024-01-03", "2024-01-04T16:00:01"])) == (
        "a.csv line 4: AAA: one bar a day, at 16:00:01 here but at 00:00:00 at a.csv line 2: write one clock time for "
        f"all, or {ASK}"
    )


def test_when_one_aware_bar_a_day_is_not_at_midnight_then_its_date_takes_a_zone():
    """Midnight in Tokyo is 15:00 UTC the day before; midnight in New York 04:00 or 05:00."""
    tokyo = clocks(["2024-01-01T15:00", "2024-01-02T15:00"], 0)
    assert refused(tokyo) == (
        "a.csv line 2: AAA: one bar a day, here stamped 2024-01-01 15:00:00 UTC: which date it belongs to depends on "
        f"the zone: {ASK}"
    )
    assert shown(settle(tokyo, "Asia/Tokyo")) == ["2024-01-02 00:00", "2024-01-03 00:00"]
    new_york = clocks(["2024-03-08T05:00", "2024-03-11T04:00"], 0)
    assert shown(settle(new_york, "America/New_York")) == ["2024-03-08 00:00", "2024-03-11 00:00"]
    close = clocks(["2024-03-08T21:00", "2024-03-11T20:00"], 0)
    assert shown(settle(close, "America/New_York")) == ["2024-03-08 00:00", "2024-03-11 00:00"]


def test_when_only_the_last_bar_is_off_midnight_then_it_is_the_one_named():
    live = clocks(["2024-01-02", "2024-01-03", "2024-01-04T13:07"], 0)
    assert refused(live).startswith("a.csv line 4: AAA: one bar a day, here stamped 2024-01-04 13:07:00 UTC")


def test_when_utc_midnight_is_given_another_zone_then_the_date_stays():
    settled = settle(clocks(["2024-01-02", "2024-01-03"], 0), "America/New_York")
    assert (shown(settled), settled.intraday) == (["2024-01-02 00:00", "2024-01-03 00:00"], False)


def test_when_stamps_are_aware_and_several_a_day_then_they_are_in_utc():
    settled = settle(clocks(["2024-03-08T09:30", "2024-03-08T10:30", "2024-03-11T09:30"], [-300, -300, -240]), None)
    assert (shown(settled), settled.intraday) == (["2024-03-08 14:30", "2024-03-08 15:30", "2024-03-11 13:30"], True)


def test_when_intraday_stamps_are_naive_then_the_zone_is_asked_for():
    session = clocks(["2024-01-02T09:30", "2024-01-02T10:30", "2024-01-03T09:30"])
    assert refused(session) == f"a.csv line 2: AAA: 2024-01-02 09:30:00 is a time of day without a zone: {ASK}"
    assert shown(settle(session, "America/New_York")) == ["2024-01-02 14:30", "2024-01-02 15:30", "2024-01-03 14:30"]


@pytest.mark.parametrize("step", [1, 5, 60, 240])
def test_when_naive_stamps_cover_the_day_then_they_are_read_as_utc_and_it_is_said(step: int):
    given = hours("2024-01-02T00:00", 2 * 1440 // step, step)
    settled = settle(clocks(given), None)
    slots = min(24, 1440 // step)
    assert settled.intraday
    assert settled.times.astype("datetime64[m]").astype(str).tolist() == given
    symbol, _, *rest = settled.notes[0]
    detail = f"{len(given)} stamps without a zone, from a.csv line 2 on, in {slots} of {slots} parts of the day"
    assert (symbol, *rest) == ("AAA", "timezone", detail, "read as UTC")


def test_when_a_naive_hour_stands_twice_then_the_zone_is_asked_for():
    given = [*hours("2024-10-26T00:00", 27), *hours("2024-10-27T02:00", 22)]
    assert refused(clocks(given)) == (
        "a.csv line 29: AAA: 2024-10-27 02:00:00 stands twice and has no zone (a clock set back, or a repeated bar): "
        f"{ASK}"
    )


def test_when_the_clock_is_set_back_then_the_first_hour_comes_first():
    """Berlin, 27 October 2024: 02:00 summer time is 00:00 UTC, 02:00 winter time 01:00 UTC."""
    naive = ["2024-10-27T01:00", "2024-10-27T02:00", "2024-10-27T02:00", "2024-10-27T03:00"]
    utc = ["2024-10-26 23:00", "2024-10-27 00:00", "2024-10-27 01:00", "2024-10-27 02:00"]
    assert shown(settle(clocks(naive), "Europe/Berlin")) == utc
    assert shown(settle(clocks(naive[::-1]), "Europe/Berlin")) == utc[::-1]
    halves = ["02:00", "02:30", "02:00", "02:30", "03:00"]
    settled = settle(clocks([f"2024-10-27T{half}" for half in halves]), "Europe/Berlin")
    assert [time[-5:] for time in shown(settled)] == ["00:00", "00:30", "01:00", "01:30", "02:00"]


def test_when_the_repeated_hour_stands_once_then_it_is_not_guessed():
    settled = settle(clocks(["2024-10-27T01:00", "2024-10-27T02:00", "2024-10-27T03:00"]), "Europe/Berlin")
    assert shown(settled) == ["2024-10-26 23:00", "NaT", "2024-10-27 02:00"]
    assert settled.skipped.tolist() == [1]


def test_when_the_clock_skips_an_hour_then_a_stamp_in_it_is_unread():
    settled = settle(clocks(["2024-03-31T01:30", "2024-03-31T02:30", "2024-03-31T03:30"]), "Europe/Berlin")
    assert shown(settled) == ["2024-03-31 00:30", "NaT", "2024-03-31 01:30"]
    assert settled.skipped.tolist() == [1]


def test_when_daily_and_intraday_symbols_are_together_then_one_of_each_is_named():
    given = clocks(
        ["2024-01-02", "2024-01-02T10:00", "2024-01-03", "2024-01-02T11:00"], symbols=["DAY", "HOUR", "DAY", "HOUR"]
    )
    assert refused(given, "UTC") == (
        "DAY has daily bars, HOUR intraday ones: read them apart, with source.path or source.symbols"
    )


def test_when_a_symbol_has_aware_and_naive_stamps_then_both_places_are_named():
    given = clocks(["2024-01-02", "2024-01-03"])
    mixed = Clocks(
        wall=given.wall,
        ahead=given.ahead,
        aware=np.array([True, False]),
        symbol=given.symbol,
        symbols=given.symbols,
        place=given.place,
    )
    assert refused(mixed) == (
        "a.csv line 3: AAA: mixed time zones: some stamps have an offset from UTC, others none, as at a.csv line 2: "
        "write all one way"
    )


def test_when_rows_of_symbols_are_interleaved_then_each_symbol_is_judged_alone():
    given = clocks(["2024-01-02T16:00", "2024-01-02T17:00", "2024-01-03T16:00", "2024-01-03T17:00"], None, [*"ABAB"])
    assert shown(settle(given, None)) == [
        "2024-01-02 00:00",
        "2024-01-02 00:00",
        "2024-01-03 00:00",
        "2024-01-03 00:00",
    ]
