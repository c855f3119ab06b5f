"""Which column of a table is what, by the names that vendors give them."""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forecaster.errors import DataError

PRICE_ROLES = ("open", "high", "low", "close", "adjusted")
# Names without case, spaces, underscores, stars and brackets. Where a role has several rows, a column of an earlier row
# goes before one of a later: Symbol before Name, shares before turnover.
NAMES: dict[str, tuple[str, ...]] = {
    "epoch": ("unix unixtimestamp unixtime epoch opentime unixms",),
    "date": (
        (
            "date datum data day dtyyyymmdd tradedate tradingdate tradingday "
            "datetime timestamp gmttime localtime dateutc ts"
        ),
    ),
    "clock": ("time uhrzeit zeit clock",),
    "symbol": ("symbol ticker sym tic", "code instrument pair", "name"),
    "open": ("open openprice pxopen otwarcie erster ersterkurs eroeffnung eroeffnungskurs eroffnung anfangskurs",),
    "high": ("high highprice pxhigh najwyzszy hoch hoechst hoechstkurs tageshoch",),
    "low": ("low lowprice pxlow najnizszy tief tiefst tiefstkurs tagestief",),
    "close": ("close close/last closeprice closingprice last lastprice price pxlast zamkniecie schluss schlusskurs",),
    "adjusted": ("adjclose adjustedclose closeadj closeadjusted adjcloseprice",),
    "volume": ("volume vol pxvolume wolumen stuecke stueck sharevolume", "volumen"),
    "ticks": ("tickvol tickvolume",),
}
# Bars as t, o, h, l, c, v: letters are tickers too, so these count only where all of o, h, l, c stand together.
LETTERS = {"t": "date", "o": "open", "h": "high", "l": "low", "c": "close", "v": "volume"}
FULL_STAMPS = ("datetime", "timestamp", "gmttime", "localtime", "ts")
UNNAMED = ("", "index", "unnamed:0", "level_0", "price", "ticker", "attributes", "symbols")
LEVEL_NAMES = ("", "price", "ticker", "tickers", "attributes", "symbols", "date", "datetime", "index")
PER_TICKER = frozenset(("dividends", "stocksplits", "capitalgains", "repaired?"))
VOLUME_OF = re.compile(r"volume[ _]?\(?([a-z]{2,6})\)?", re.IGNORECASE)
OURS = ("time", "date", "clock", "symbol", "open", "high", "low", "close", "volume")

_ROLES = {name: (role, rank) for role, rows in NAMES.items() for rank, row in enumerate(rows) for name in row.split()}


@dataclass(frozen=True)
class Group:
    """The columns, by role, of one symbol; of the whole table where symbol is None."""

    symbol: str | None
    columns: Mapping[str, int]


@dataclass(frozen=True)
class Layout:
    """Where a table keeps what: columns by number. time may be a date whose time of day is in clock."""

    time: int
    clock: int | None
    symbol: int | None
    groups: tuple[Group, ...]
    names: tuple[str, ...] = field(default=())


def normal(name: str) -> str:
    """A column's name without what vendors vary: case, spaces, _ * . < > and a leading number ("4. close")."""
    name = re.sub(r"^\d+\.\s*", "", name.strip().lower())
    for umlaut, letters in (("ä", "ae"), ("ö", "oe"), ("ü", "ue"), ("ß", "ss")):
        name = name.replace(umlaut, letters)
    return re.sub(r"[\s_*.<>\"']", "", name)


def role(name: str) -> str | None:
    """What a column of this name holds, or None."""
    return _ROLES.get(normal(name), (None, 0))[0]


def is_header(fields: Sequence[str]) -> bool:
    """Whether these are names of columns of a price table: two roles or more, one of them a price."""
    roles = set(_roles(fields).values())
    return len(roles) >= 2 and any(price in roles for price in PRICE_ROLES)


def is_wide_header(fields: Sequence[str]) -> bool:
    """Whether a date's name (or none) stands first among others that are no numbers."""
    named = [name for name in fields[1:] if name.strip()]
    starts = bool(fields) and (role(fields[0]) in ("date", "clock", "epoch") or normal(fields[0]) in UNNAMED)
    return starts and bool(named) and not any(re.fullmatch(r"[-+$]?[\d.,]+%?", name.strip()) for name in named)


def two_levels(upper: Sequence[str], lower: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Prices and tickers of a header of two lines, whichever comes first; None where it is none."""
    if len(upper) != len(lower) or len(upper) < 2:
        return None
    if normal(upper[0]) not in LEVEL_NAMES or normal(lower[0]) not in LEVEL_NAMES:
        return None
    if normal(upper[0]) in ("ticker", "tickers", "symbols") or not _are_prices(upper):
        upper, lower = lower, upper
    tickers = [text.strip() for text in lower[1:]]
    # A first row without a date is no line of tickers.
    unlabelled = not upper[0].strip() or not lower[0].strip()
    numeric = unlabelled and any(re.fullmatch(r"[-+$]?[\d.,]*\d[\d.,]*[KMB%]?", ticker) for ticker in tickers)
    # A date column in the middle (an index that was reset) has no ticker.
    without = [name for name, ticker in zip(upper[1:], tickers, strict=True) if not ticker and not _is_time(name)]
    if not _are_prices(upper) or numeric or without or not any(tickers):
        return None
    return tuple(upper), tuple(lower)


def _are_prices(fields: Sequence[str]) -> bool:
    roles = [role(name) for name in fields[1:]]
    known = all(
        found in (*PRICE_ROLES, "volume") or _is_time(name) or normal(name) in PER_TICKER
        for found, name in zip(roles, fields[1:], strict=True)
    )
    return known and any(found in PRICE_ROLES for found in roles)


def _is_time(name: str) -> bool:
    return role(name) == "date"


def long(header: Sequence[str], columns: Mapping[str, str], pair: str, about: str, hint: str) -> Layout:
    """The layout of a table with one row a bar. columns: ours -> the file's, from the user. about: names the place.

    pair: the symbol, in the first row: of "Volume BTC" and "Volume USD" the first is that of BTC/USD. hint: what else
    to try where Close is missing. DataError where a column is missing or two could be the same.
    """
    chosen = {ours: find(header, theirs, ours, about) for ours, theirs in columns.items()}
    roles = _roles(header)
    if "close" in chosen and roles.get(chosen["close"]) == "adjusted" and "close" in roles.values():
        # Close and Adj Close give one basis for all four prices: Adj Close alone would not.
        del chosen["close"]
    free = {column: name for column, name in roles.items() if column not in chosen.values()}
    found = {name: one for name in NAMES if (one := _one(header, free, name, chosen, about)) is not None}
    time, clock = _time(header, found, chosen, about)
    if "volume" not in {**found, **chosen} and (volume := _volume_of(header, pair, about)) is not None:
        found["volume"] = volume
    prices = {name: column for name, column in {**found, **chosen}.items() if name in (*PRICE_ROLES, "volume", "ticks")}
    if "volume" in chosen:
        prices.pop("ticks", None)
    if "close" not in prices:
        others = [name.capitalize() for name in ("open", "high", "low") if name not in prices]
        missing = ", ".join(["Close", *(others if len(others) < 3 else [])])
        if "open" in prices and "adjusted" in prices:
            hint = "Adj Close beside unadjusted prices is no close: save the file with its Close, too"
        raise DataError(f"{about}: no column {missing}; found {listed(header)}: {hint}")
    _check_whole(header, prices, about)
    symbol = chosen.get("symbol", found.get("symbol"))
    return Layout(time, clock, symbol, (Group(None, prices),), tuple(header))


def wide(header: Sequence[str], columns: Mapping[str, str], about: str) -> Layout:
    """The layout of a table with one column of closes a symbol. DataError for a symbol without a name or with two."""
    other = [ours for ours in columns if ours not in ("time", "date")]
    if other:
        raise DataError(f"{about}: source.columns names {', '.join(other)}: with source.layout=wide only date")
    roles = {role(name) for name in header}
    if "close" in roles and roles & {"open", "high", "low", "volume", "adjusted"}:
        # Alone, LOW and OPEN are tickers.
        raise DataError(f"{about}: {listed(header)} are prices of one symbol: leave out source.layout=wide")
    chosen = [find(header, theirs, ours, about) for ours, theirs in columns.items()]
    dates = [column for column, name in enumerate(header) if role(name) in ("date", "epoch", "clock")]
    time = (chosen or dates or [0])[0]
    names = {column: name.strip() for column, name in enumerate(header) if column != time}
    for column, name in names.items():
        if not name:
            raise DataError(f"{about}: column {column + 1} has no name: with source.layout=wide it names a symbol")
        if list(names.values()).count(name) > 1:
            raise DataError(f"{about}: symbol {name!r} names two columns: keep one")
    if not names:
        raise DataError(f"{about}: only one column, {listed(header)}: with source.layout=wide symbols follow the date")
    groups = tuple(Group(name, {"close": column}) for column, name in names.items())
    return Layout(time, None, None, groups, tuple(header))


def per_ticker(header: Sequence[str], tickers: Sequence[str], about: str) -> Layout:
    """The layout of a table whose header has a line of prices and one of tickers."""
    dates = [column for column in range(1, len(header)) if _is_time(header[column])]
    columns: dict[str, dict[str, int]] = {}
    for column in range(1, len(header)):
        found, ticker = role(header[column]), tickers[column].strip()
        if column in dates or found not in (*PRICE_ROLES, "volume"):
            continue
        group = columns.setdefault(ticker, {})
        if found in group:
            raise DataError(f"{about}: {short(header[column])} of {short(ticker)} stands twice: keep one")
        group[found] = column
    for ticker, group in columns.items():
        if "close" not in group:
            raise DataError(
                f"{about}: no column Close for {short(ticker)}: it has {', '.join(group)}: save it with its close"
            )
        _check_whole(header, group, f"{about}: {short(ticker)}")
    groups = tuple(Group(ticker, group) for ticker, group in columns.items())
    return Layout(dates[0] if dates else 0, None, None, groups, tuple(header))


def find(header: Sequence[str], theirs: str, ours: str, about: str) -> int:
    """The number of a column that the user named, by its exact name, else whatever its case and spaces."""
    exact = [column for column, name in enumerate(header) if name.strip() == theirs.strip()]
    loose = exact or [column for column, name in enumerate(header) if normal(name) == normal(theirs)]
    if len(loose) == 1:
        return loose[0]
    if loose:
        raise DataError(f"{about}: source.columns {ours}={theirs}: {len(loose)} columns have this name: rename one")
    near = difflib.get_close_matches(theirs, [name.strip() for name in header], n=3)
    raise DataError(f"{about}: source.columns {ours}={theirs}: no such column: choose from {listed(near or header)}")


def listed(names: Sequence[str]) -> str:
    """Names for a message, the first twelve."""
    shown = ", ".join(short(name.strip()) or "(no name)" for name in names[:12])
    return shown + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def short(text: str) -> str:
    """A text of a file on one line of a message: no control characters, 60 letters at most."""
    clean = "".join(letter if letter.isprintable() else " " for letter in text)
    return clean if len(clean) <= 60 else f"{clean[:57]}..."


def _roles(header: Sequence[str]) -> dict[int, str]:
    """Roles by column: of names, and of single letters where o, h, l and c all are there."""
    roles = {column: found for column, name in enumerate(header) if (found := role(name))}
    letters = {column: normal(name) for column, name in enumerate(header) if normal(name) in LETTERS}
    if {"o", "h", "l", "c"} <= set(letters.values()):
        roles |= {column: LETTERS[letter] for column, letter in letters.items()}
    return roles


def _one(
    header: Sequence[str], roles: Mapping[int, str], wanted: str, chosen: Mapping[str, int], about: str
) -> int | None:
    """The one column of a role; DataError where there are two of the same rank."""
    if wanted in chosen or (wanted in ("epoch", "date", "clock") and {"time", "date"} & chosen.keys()):
        return chosen.get(wanted)
    columns = [column for column, found in roles.items() if found == wanted]
    ranks = [_ROLES.get(normal(header[column]), ("", 0))[1] for column in columns]
    best = [column for column, rank in zip(columns, ranks, strict=True) if rank == min(ranks)]
    if len(best) > 1:
        names = " and ".join(short(header[column].strip()) for column in best)
        if len({header[column].strip() for column in best}) < len(best):
            raise DataError(f"{about}: {len(best)} columns are named {short(header[best[0]].strip())}: keep one")
        ours = {"epoch": "time", "adjusted": "close", "ticks": "volume"}.get(wanted, wanted)
        first = short(header[best[0]].strip())
        raise DataError(f"{about}: {names} could each be {ours}: say which, as source.columns={{{ours}: {first}}}")
    return best[0] if best else None


def _volume_of(header: Sequence[str], pair: str, about: str) -> int | None:
    """The column "Volume BTC" for BTC/USD; DataError where several such columns belong to none or more."""
    codes = {column: found[1] for column, name in enumerate(header) if (found := VOLUME_OF.fullmatch(name.strip()))}
    first = [column for column, code in codes.items() if pair.upper().startswith(code.upper())]
    if len(codes) == 1 or len(first) == 1:
        return (first or list(codes))[0]
    if codes:
        names = " and ".join(short(header[column].strip()) for column in codes)
        raise DataError(f"{about}: {names} could each be volume: say which, as source.columns={{volume: NAME}}")
    return None


def _time(
    header: Sequence[str], found: Mapping[str, int], chosen: Mapping[str, int], about: str
) -> tuple[int, int | None]:
    if "time" in chosen or "date" in chosen:
        return chosen.get("time", chosen.get("date", 0)), chosen.get("clock")
    if "epoch" in found:  # beside a Date it is the one that needs no zone
        return found["epoch"], None
    clock = chosen.get("clock", found.get("clock"))
    if "date" in found:
        if clock is not None and "clock" not in chosen and normal(header[found["date"]]) in FULL_STAMPS:
            one, other = (short(header[column].strip()) for column in (found["date"], clock))
            raise DataError(
                f"{about}: {one} and {other} could each be time: say which, as source.columns={{time: {one}}}"
            )
        return found["date"], clock
    if clock is not None:
        return clock, None
    if normal(header[0]) in UNNAMED and 0 not in {**found, **chosen}.values():
        return 0, None
    raise DataError(f"{about}: no column Date; found {listed(header)}: name it, as source.columns={{date: NAME}}")


def _check_whole(header: Sequence[str], prices: Mapping[str, int], about: str) -> None:
    """DataError where some but not all of open, high and low are there."""
    missing = [name.capitalize() for name in ("open", "high", "low") if name not in prices]
    if 0 < len(missing) < 3:
        raise DataError(
            f"{about}: no column {', '.join(missing)} beside the other prices; found {listed(header)}: "
            "name it in source.columns, or leave only the closes"
        )
