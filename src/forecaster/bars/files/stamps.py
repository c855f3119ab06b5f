"""Dates and times as people and vendors write them, each read in the one way that its file allows or not at all."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow.compute
from jaxtyping import Bool, Int

from forecaster.bars.files.layouts import short
from forecaster.errors import ConfigError, DataError

# Without types.
pa, pc = cast(Any, pyarrow), cast(Any, pyarrow.compute)

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
FIRST, LAST = np.datetime64("1900-01-01", "us"), np.datetime64("2101-01-01", "us")
# The count 0: what a stamp becomes that is lost or taken in a wrong unit. No market was open on that day.
LOST = np.datetime64("1970-01-01", "D")
# Microseconds in a unit, and from which size on a count since 1970 is in it: 10 digits are seconds to the year 2286.
UNITS = ((1e17, 1e-3), (1e14, 1.0), (1e11, 1e3), (0.0, 1e6))

_WEEKDAY = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? )?"
_CLOCK = (
    r"(?:(?:T| +|, ?)(?P<h>\d{1,2}):(?P<mi>\d{2})(?::(?P<s>\d{2})(?:[.,](?P<f>\d{1,9}))?)?"
    r"(?: ?(?P<half>[AaPp])\.?[Mm]\.?)?(?: ?(?P<zone>Z|(?:GMT|UTC)?[+-]\d{2}(?::?\d{2})?|GMT|UTC))?)?$"
)
_COMPACT_CLOCK = r"(?:\.0)?(?:[T ]?(?P<h>\d{2})(?P<mi>\d{2})(?P<s>\d{2})?)?$"
_WRITTEN = (
    rf"^{_WEEKDAY}(?P<a>\d{{1,4}})(?P<sep>[-/. ])(?P<b>\d{{1,2}}|[A-Za-z]{{3,9}})(?P<sep2>[-/. ])(?P<c>\d{{1,4}})"
)
_MONTH_FIRST = rf"^{_WEEKDAY}(?P<b>[A-Za-z]{{3,9}})\.? (?P<a>\d{{1,2}}),? (?P<c>\d{{4}})"
_COMPACT = r"^(?P<a>(?:19|20)\d{2})(?P<b>\d{2})(?P<c>\d{2})"
_EPOCH = r"^-?\d{9,11}(\.\d+)?$|^\d{13,19}(\.\d+)?$|^\d{12}$"
FORMS = (_WRITTEN + _CLOCK, _COMPACT + _COMPACT_CLOCK, _COMPACT + _CLOCK, _MONTH_FIRST + _CLOCK)

Place = Callable[[int], str]


@dataclass(frozen=True)
class Stamps:
    """One file's stamps. wall: as the file's own clock shows them. ahead: how far that clock is ahead of UTC, in
    minutes, 0 without an offset. aware: UTC is known. unread: text that is no stamp; a blank one is NaT only.
    """

    wall: np.ndarray  # datetime64[us]
    ahead: Int[np.ndarray, " R"]
    aware: bool
    unread: Bool[np.ndarray, " R"]


@dataclass(frozen=True)
class _Parsed:
    """Distinct texts, read; fields as in Stamps, aware for each."""

    wall: np.ndarray
    ahead: Int[np.ndarray, " U"]
    aware: Bool[np.ndarray, " U"]


def read(text: Any, clock: Any | None, date_format: str | None, name: str, place: Place) -> Stamps:
    """Text stamps (pyarrow strings) of one file, with a column of clock times or None.

    ISO 8601, YYYYMMDD, day and month in the order that a part above 12 gives away, month names, and counts of s, ms, us
    or ns since 1970 (UTC), each row by its size. DataError where no cell is a stamp, the order is open, years have two
    digits, or some stamps have an offset and some none.
    """
    text = pc.utf8_trim_whitespace(text)
    if clock is not None:
        if date_format and not re.search("%[HIXcrRT]", date_format):
            date_format += " %H:%M:%S" if _any(clock, r"^\s*(\d+:\d+:\d+|\d{5,6}\s*$)") else " %H:%M"
        text = pc.utf8_trim_whitespace(pc.binary_join_element_wise(text, _clock(clock), " "))
    # Stamps repeat (one long file of many symbols): each text is read once.
    encoded = text.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    texts = encoded.dictionary
    where = _Where(texts, codes, name, place)
    parsed = _strictly(texts, date_format, where) if date_format else _recognised(texts, where)
    blank = pc.equal(texts, "").to_numpy(zero_copy_only=False)
    inside = _inside(parsed.wall)
    wall = np.where(inside, parsed.wall, np.datetime64("NaT"))
    unread = np.isnat(wall) & ~blank
    if unread.any() and not inside.any():
        where.refuse(texts, unread, date_format)
    _check_one_kind(parsed.aware[codes], ~np.isnat(wall[codes]), where)
    aware = bool((parsed.aware & inside).any())
    return Stamps(wall[codes], parsed.ahead[codes], aware, unread[codes])


def typed(times: "pd.Series[Any]") -> Stamps:
    """A column of stamps of a typed file, of any unit, aware or naive."""
    aware = isinstance(times.dtype, pd.DatetimeTZDtype)
    wall = times.dt.tz_localize(None) if aware else times
    utc = times.dt.tz_convert("UTC").dt.tz_localize(None) if aware else times
    here = wall.dt.as_unit("us").to_numpy(dtype="datetime64[us]")
    ahead = here - utc.dt.as_unit("us").to_numpy(dtype="datetime64[us]")
    minutes = np.where(np.isnat(ahead), np.timedelta64(0, "us"), ahead) // np.timedelta64(1, "m")
    inside = _inside(here)
    return Stamps(
        np.where(inside, here, np.datetime64("NaT")), minutes.astype(np.int64), aware, ~inside & ~np.isnat(here)
    )


def _inside(wall: np.ndarray) -> Bool[np.ndarray, " N"]:
    return (wall >= FIRST) & (wall < LAST) & (wall.astype("datetime64[D]") != LOST)


@dataclass(frozen=True)
class _Where:
    """Finds the row of a distinct text, for messages."""

    texts: Any
    codes: Int[np.ndarray, " R"]
    name: str
    place: Place

    def of(self, code: int) -> str:
        row = int((self.codes == code).argmax())
        return f"{self.place(row)}: {self.name} {short(self.texts[code].as_py())!r}"

    def refuse(self, texts: Any, unread: Bool[np.ndarray, " U"], date_format: str | None) -> None:
        code = int(unread.argmax())
        text = texts[code].as_py()
        if date_format:
            raise DataError(f"{self.of(code)} does not fit source.date_format={date_format}: correct the format")
        if text.replace(".", "", 1).isdigit() and len(text.split(".")[0]) == 5:
            raise DataError(f"{self.of(code)} seems to be a spreadsheet's count of days: write dates as 2023-06-01")
        if pc.match_substring_regex(pa.array([text]), r"^\d{1,2}[-/. ]\d{1,2}[-/. ]\d{2}( |$)")[0].as_py():
            raise DataError(f"{self.of(code)} has a year of two digits: give source.date_format, such as %m/%d/%y")
        raise DataError(
            f"{self.of(code)} is no date that can be recognised: give source.date_format, such as %d/%m/%Y, "
            "or the column's name as source.columns={date: NAME}"
        )


def _any(text: Any, form: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(text, form)).as_py())


def _clock(clock: Any) -> Any:
    """Clock times with colons; 93000 and 930 have lost a zero, and 0 is midnight."""
    clock = pc.utf8_trim_whitespace(clock)
    digits = pc.match_substring_regex(clock, r"^\d{1,6}$")
    lengths = pc.if_else(digits, pc.utf8_length(clock), 0)
    seconds = (pc.max(lengths).as_py() or 0) > 4
    padded = pc.utf8_lpad(clock, 6 if seconds else 4, "0")
    pairs = pc.replace_substring_regex(padded, r"^(\d\d)(\d\d)(\d\d)?$", r"\1:\2:\3")
    return pc.if_else(digits, pc.replace_substring_regex(pairs, ":$", ""), clock)


def _recognised(texts: Any, where: _Where) -> _Parsed:
    size = len(texts)
    wall = np.full(size, np.datetime64("NaT"), dtype="datetime64[us]")
    ahead, aware = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=bool)
    left = np.arange(size)
    for form in FORMS:
        if not len(left):
            break
        parts = pc.extract_regex(texts.take(pa.array(left)), form)
        found = parts.is_valid().to_numpy(zero_copy_only=False)
        if found.any():
            rows = left[found]
            read_rows = _assemble(parts.filter(pa.array(found)), rows, form.startswith(_WRITTEN), where)
            wall[rows], ahead[rows], aware[rows] = read_rows.wall, read_rows.ahead, read_rows.aware
            left = left[~found | np.isnat(wall[left])]
    counts = pc.match_substring_regex(texts.take(pa.array(left)), _EPOCH).to_numpy(zero_copy_only=False)
    rows = left[counts.astype(bool)]
    wall[rows], aware[rows] = _since_1970(texts.take(pa.array(rows))), True
    return _Parsed(wall, ahead, aware)


def _since_1970(text: Any) -> np.ndarray:
    """Counts of s, ms, us or ns since 1970, each by its own size, as datetime64[us]."""
    whole = pc.cast(pc.replace_substring_regex(text, r"\..*$", ""), pa.float64()).to_numpy(zero_copy_only=False)
    # A float holds a count of us to 2255 exactly, of ns to a quarter of a us.
    values = pc.cast(text, pa.float64()).to_numpy(zero_copy_only=False)
    scale = np.select([np.abs(whole) >= size for size, _ in UNITS], [factor for _, factor in UNITS])
    micro = values * scale
    return np.where(np.abs(micro) < 1e16, micro, np.nan).round().astype("datetime64[us]")


def _assemble(parts: Any, rows: Int[np.ndarray, " N"], written: bool, where: _Where) -> _Parsed:
    names = {parts.type.field(index).name for index in range(parts.type.num_fields)}
    field = {name: pc.struct_field(parts, name) for name in names}
    named = pc.match_substring_regex(field["b"], "^[A-Za-z]").to_numpy(zero_copy_only=False).astype(bool)
    month = _whole(pc.if_else(pa.array(named), "", field["b"]))
    if named.any():
        # "June" and "Sept" by their first three letters.
        spelt = pc.index_in(pc.utf8_slice_codeunits(pc.utf8_lower(field["b"]), 0, 3), value_set=pa.array(MONTHS))
        month = np.where(named, pc.fill_null(spelt, -1).to_numpy(zero_copy_only=False) + 1, month)
    first, last = _whole(field["a"]), _whole(field["c"])
    year_first = pc.equal(pc.utf8_length(field["a"]), 4).to_numpy(zero_copy_only=False).astype(bool)
    year_last = pc.equal(pc.utf8_length(field["c"]), 4).to_numpy(zero_copy_only=False).astype(bool) & ~year_first
    valid = year_first | year_last
    day = np.where(year_first, last, first)
    if written:
        same = pc.equal(field["sep"], field["sep2"]).to_numpy(zero_copy_only=False).astype(bool)
        valid &= same & (~year_first | (pc.utf8_length(field["c"]).to_numpy(zero_copy_only=False) <= 2))
        numeric = year_last & ~named & valid
        if numeric.any() and _month_first(first, month, numeric, rows, where):
            day, month = np.where(numeric, month, day), np.where(numeric, day, month)
    date, exists = _date(np.where(year_first, first, last), month, day)
    time, fits = _time(field)
    zone, zoned = _zone(field.get("zone"), len(rows))
    wall = np.where(valid & exists & fits, date + time, np.datetime64("NaT"))
    return _Parsed(wall, zone, zoned)


def _month_first(
    first: Int[np.ndarray, " N"],
    second: Int[np.ndarray, " N"],
    numeric: Bool[np.ndarray, " N"],
    rows: Int[np.ndarray, " N"],
    where: _Where,
) -> bool:
    """Whether the first of two numbers is the month, by those rows where one of them can't be."""
    day = numeric & (first > 12) & (first <= 31) & (second <= 12)
    month = numeric & (second > 12) & (second <= 31) & (first <= 12)
    if day.any() and month.any():
        one, other = (where.of(int(rows[mask.argmax()])) for mask in (day, month))
        raise DataError(f"{other}: the month comes first, but the day in {one}: write all dates in one order")
    either = numeric & (first != second) & (first <= 12) & (second <= 12)
    if not day.any() and not month.any() and either.any():
        raise DataError(
            f"{where.of(int(rows[either.argmax()]))}: day and month can't be told apart in this file: "
            "give source.date_format, such as %d/%m/%Y or %m/%d/%Y, as the file writes it"
        )
    return bool(month.any())


def _date(
    year: Int[np.ndarray, " N"], month: Int[np.ndarray, " N"], day: Int[np.ndarray, " N"]
) -> tuple[np.ndarray, Bool[np.ndarray, " N"]]:
    start = (year.astype("datetime64[Y]") - np.timedelta64(1970, "Y")).astype("datetime64[M]") + (month - 1)
    date = start.astype("datetime64[D]") + (day - 1)
    exists = (month >= 1) & (month <= 12) & (day >= 1) & (date.astype("datetime64[M]") == start)
    return date.astype("datetime64[us]"), exists


def _time(field: dict[str, Any]) -> tuple[np.ndarray, Bool[np.ndarray, " N"]]:
    hour, minute, second = (_whole(field[name]) for name in ("h", "mi", "s"))
    fits = (hour < 24) & (minute < 60) & (second < 60)
    micro = np.zeros(len(hour), dtype=np.int64)
    if "f" in field:
        micro = _whole(pc.utf8_slice_codeunits(pc.utf8_rpad(field["f"], 6, "0"), 0, 6))
        half = pc.utf8_lower(field["half"])
        given = pc.not_equal(half, "").to_numpy(zero_copy_only=False).astype(bool)
        after_noon = pc.equal(half, "p").to_numpy(zero_copy_only=False).astype(bool)
        fits &= ~given | ((hour >= 1) & (hour <= 12))
        hour = np.where(given, hour % 12 + 12 * after_noon, hour)
    return (((hour * 60 + minute) * 60 + second) * 1_000_000 + micro).astype("timedelta64[us]"), fits


def _zone(zone: Any | None, size: int) -> tuple[Int[np.ndarray, " N"], Bool[np.ndarray, " N"]]:
    """Offsets in minutes, and which rows have one."""
    if zone is None:
        return np.zeros(size, dtype=np.int64), np.zeros(size, dtype=bool)
    parts = pc.extract_regex(zone, r"(?P<sign>[+-])(?P<h>\d{2}):?(?P<m>\d{2})?$")
    hours, minutes = (_whole(pc.fill_null(pc.struct_field(parts, name), "")) for name in ("h", "m"))
    negative = pc.equal(pc.fill_null(pc.struct_field(parts, "sign"), ""), "-").to_numpy(zero_copy_only=False)
    given = pc.not_equal(zone, "").to_numpy(zero_copy_only=False).astype(bool)
    return (hours * 60 + minutes) * np.where(negative.astype(bool), -1, 1), given


def _whole(text: Any) -> Int[np.ndarray, " N"]:
    return pc.cast(pc.if_else(pc.equal(text, ""), "0", text), pa.int64()).to_numpy(zero_copy_only=False)


def _strictly(texts: Any, date_format: str, where: _Where) -> _Parsed:
    series = texts.to_pandas().astype("str")
    zoned = "%z" in date_format
    try:
        # Offsets are told apart below; utc=True lets them differ from row to row.
        times = cast(Any, pd.to_datetime(series, format=date_format, errors="coerce", utc=zoned))
    except (ValueError, TypeError) as reason:
        text = " ".join(str(reason).split())
        raise ConfigError(f"source.date_format={date_format}: {text}: write it as %d/%m/%Y %H:%M") from reason
    utc: np.ndarray = (times.dt.tz_localize(None) if zoned else times).dt.as_unit("us").to_numpy(dtype="datetime64[us]")
    ahead = np.zeros(len(utc), dtype=np.int64)
    if zoned:
        ahead, _ = _zone(pc.struct_field(pc.extract_regex(texts, r"(?P<z>[+-]\d{2}:?\d{2})?$"), "z"), len(utc))
    return _Parsed(utc + ahead.astype("timedelta64[m]"), ahead, np.full(len(utc), zoned))


def _check_one_kind(aware: Bool[np.ndarray, " R"], known: Bool[np.ndarray, " R"], where: _Where) -> None:
    """DataError at the first row that has an offset after rows without one, or the other way round."""
    rows = np.flatnonzero(known)
    change = np.flatnonzero(aware[rows] != aware[rows[0]]) if len(rows) else rows
    if len(change):
        row = int(rows[change[0]])
        now, before = ("has an offset from UTC", "have none") if aware[row] else ("has no offset", "have one from UTC")
        raise DataError(
            f"{where.of(int(where.codes[row]))} {now}, the lines before it {before}: mixed time zones; "
            "write all stamps one way"
        )
