"""Files as vendors and accidents make them: bars that equal what went in, or the line that says why not."""

import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forecaster import cli
from forecaster.bars.calendar import Calendar
from forecaster.bars.cleaning import Policy, clean
from forecaster.bars.contract import NUMBERS
from forecaster.bars.files import Options, read

NAMES = ["Open", "High", "Low", "Close"]
ROW = 200  # where something happens


def walk(times: pd.DatetimeIndex, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    close = 80 * np.exp(np.cumsum(rng.normal(0, 0.01, len(times))))
    opens = close * np.exp(rng.normal(0, 0.004, len(times)))
    high, low = np.maximum(opens, close) * 1.004, np.minimum(opens, close) / 1.004
    table = pd.DataFrame(dict(zip(NAMES, (opens, high, low, close), strict=True)), index=times).round(2)
    return table.assign(Volume=rng.lognormal(13, 0.3, len(times)).round()).rename_axis("Date")


SESSIONS = Calendar("XNYS").sessions("2022-01-03", "2023-06-30")
DAYS = walk(SESSIONS)
NEW_YORK = DAYS.tz_localize("America/New_York").tz_convert("UTC")
CRYPTO = walk(pd.date_range("2024-12-20", "2025-01-12 23:00", freq="1h", tz="UTC"))
AT = str(SESSIONS[ROW].date())


def hours(first: str, last: str) -> pd.DatetimeIndex:
    """Hours of New York from half past nine on, half days too (24 November and 3 July 2023 end at one)."""
    short = {"2023-07-03", "2023-11-24"}
    days = [(day, 4 if str(day.date()) in short else 7) for day in Calendar("XNYS").sessions(first, last)]
    opens = [(day + pd.Timedelta("9h30min")).tz_localize("America/New_York") for day, _ in days]
    stamps = [
        start + pd.Timedelta(hours=n) for start, (_, count) in zip(opens, days, strict=True) for n in range(count)
    ]
    return pd.DatetimeIndex(stamps).tz_convert("UTC")


HOURS = walk(hours("2023-10-02", "2024-03-28"))
LOCAL = HOURS.tz_convert("America/New_York")


def counts(times: pd.DatetimeIndex, unit: str) -> list[int]:
    return times.as_unit(unit).astype("int64").tolist()  # pyright: ignore


def scaled(first: int, end: int | None, factor: float) -> pd.DataFrame:
    table = DAYS.copy()
    table.iloc[first:end, :4] = (table.iloc[first:end, :4] * factor).round(4)
    return table


def with_day(day: str, volume: float) -> pd.DataFrame:
    """Once more the bar before a closed day, flat."""
    close = DAYS["Close"].loc[:day].iloc[-1]
    row = pd.DataFrame([[close] * 4 + [volume]], index=pd.DatetimeIndex([day], name="Date"), columns=DAYS.columns)
    return pd.concat([DAYS, row]).sort_index()


def crashed() -> pd.DataFrame:
    table = scaled(ROW, None, 0.6 * DAYS["Close"].iloc[ROW - 1] / DAYS["Close"].iloc[ROW])
    table.iloc[ROW, 1:3] *= [1.08, 0.92]
    table.iloc[ROW, 4] *= 9
    return table


def klines(unit: Callable[[int], int]) -> str:
    """Binance's archive: milliseconds, and from 2025 on microseconds."""
    rows = zip(counts(CRYPTO.index, "ms"), CRYPTO.to_numpy().tolist(), strict=True)
    return "".join(f"{unit(ms)},{','.join(map(str, row))},{unit(ms + 3_599_999)},1.5,7,1.0,1.0,0\n" for ms, row in rows)


def csv(table: pd.DataFrame, **options: object) -> str:
    return table.to_csv(**options)  # pyright: ignore


def stamped(table: pd.DataFrame, stamps: object, name: str = "Date", **options: object) -> str:
    return csv(table.set_axis(pd.Index(stamps, name=name)), **options)  # pyright: ignore


NASDAQ = '"Date","Close/Last","Volume","Open","High","Low"\n' + "".join(
    f'"{day:%m/%d/%Y}","${row.Close:,.2f}","{row.Volume:,.0f}","${row.Open}","${row.High}","${row.Low}"\n'
    for day, row in DAYS[::-1].iterrows()
)
STOOQ = "<TICKER>,<PER>,<DATE>,<TIME>,<OPEN>,<HIGH>,<LOW>,<CLOSE>,<VOL>,<OPENINT>\r\n" + "".join(
    f"AAA.US,D,{day:%Y%m%d},000000,{row.Open},{row.High},{row.Low},{row.Close},{row.Volume:.0f},0\r\n"
    for day, row in DAYS.iterrows()
)
TICKERS = pd.concat({"AAA": DAYS, "BBB": DAYS[60:]}, axis=1, names=["Ticker", "Price"])
SOON = pd.date_range("2023-06-05", "2023-06-12", freq="B")

# What is in the file, the options, and the bars that it must come to, as a table, or what the output must hold.
Outcome = pd.DataFrame | str
FILES: dict[str, tuple[str | bytes, list[str], Outcome]] = {
    "dollars, newest first": (NASDAQ, [], DAYS),
    "stooq": (STOOQ, [], DAYS),
    "tickers first, two of unequal length": (csv(TICKERS), [], pd.concat([DAYS, DAYS[60:]])),
    "utf-16": (csv(DAYS).encode("utf-16"), [], DAYS),
    "mark in front": (csv(DAYS).encode("utf-8-sig"), [], DAYS),
    "preamble and footer": (f"Account,U1\n\n{csv(DAYS)}Total,,,,,9\nSource: exchange\n", [], DAYS),
    "semicolons and decimal commas": (
        csv(DAYS, sep=";", decimal=",", date_format="%d.%m.%Y"),
        ['source.sep=";"', 'source.decimal=","'],
        DAYS,
    ),
    "decimal commas, unsaid": (csv(DAYS, sep=";", decimal=","), [], r"error: .*source\.sep=';' source\.decimal=','"),
    "days that may be months": (stamped(DAYS[:6].set_axis(SOON), SOON.strftime("%d/%m/%Y")), [], "error: .*told apart"),
    "epochs of midnight in New York": (
        stamped(DAYS, counts(NEW_YORK.index, "ms"), "timestamp"),
        [],
        "error: .*depends on the zone",
    ),
    "epochs of midnight and its zone": (
        stamped(DAYS, counts(NEW_YORK.index, "ms"), "timestamp"),
        ["source.timezone=America/New_York"],
        DAYS,
    ),
    "klines in ms, then us": (klines(lambda ms: ms if ms < 1_735_689_600_000 else ms * 1000), [], CRYPTO),
    "klines in s": (klines(lambda ms: ms // 1000), [], CRYPTO),
    "hours over a clock change, half days": (stamped(LOCAL, LOCAL.index.astype("str")), [], HOURS),
    "hours without a zone": (stamped(LOCAL, LOCAL.index.tz_localize(None)), [], "error: .*time of day without a zone"),
    "two zones": (
        stamped(DAYS, [f"{day}{'Z' * (n > 9)}" for n, day in enumerate(SESSIONS)]),
        [],
        "error: .*mixed time zones",
    ),
    **{
        f"split, prices times {ratio:.3g}": (csv(scaled(ROW, None, ratio)), [], rf"error: .*{AT} split")
        for ratio in (1 / 2, 2 / 3, 20.0)
    },
    "hundred times, two days": (csv(scaled(ROW, ROW + 2, 100)), [], rf"error: .*{AT} spike"),
    "pence, then pounds": (csv(scaled(ROW, None, 0.01)), [], rf"error: .*{AT} unit_switch"),
    "a true fall of 40 %": (csv(crashed()), [], crashed()),
    "holiday filled": (csv(with_day("2022-07-04", 0)), [], r"holiday +1 +1 dropped"),
    "saturday filled": (csv(with_day("2022-07-09", 0)), [], r"weekend +1 +1 dropped"),
    "closes blank for a month": (
        csv(DAYS.assign(Close=DAYS["Close"].where(np.abs(np.arange(len(DAYS)) - ROW) > 15))),
        [],
        "error: .*missing_price",
    ),
    "bar twice, volume differs": (csv(pd.concat([DAYS, DAYS[9:10].assign(Volume=1.0)])), [], "error: .*conflict"),
    "last volume a fiftieth": (
        csv(DAYS.assign(Volume=DAYS["Volume"].where(DAYS.index < DAYS.index[-1], 9e3))),
        [],
        "partial_last +1 +1 kept",
    ),
    "year 2099": (csv(DAYS).replace("2023-06-30", "2099-06-30"), [], "error: .*2099-06-30 future"),
    "weeks": (csv(DAYS[::5]), [], r"error: .*7 days apart"),
    "closes side by side": (
        csv(DAYS[NAMES].set_axis(list("ABCD"), axis=1)),
        ["source.layout=wide"],
        "4 symbols, 1,500 bars",
    ),
    "closes side by side, unsaid": (
        csv(DAYS[NAMES].set_axis(list("ABCD"), axis=1)),
        [],
        r"error: .*source\.layout=wide",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_file_comes_to_its_bars_or_to_its_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content, options, expected = FILES[name]
    path = tmp_path / "AAA.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    monkeypatch.setattr("sys.argv", ["forecaster", "bars", "source=files", f"source.path={path}", *options])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    printed = capsys.readouterr()
    refused = isinstance(expected, str) and expected.startswith("error")
    assert ended.value.code == (3 if refused else 0), printed
    assert printed.err.count("\n") == refused
    if isinstance(expected, str):
        assert re.search(expected, printed.err if refused else printed.out), printed
        return
    chosen = {option.split("=")[0].removeprefix("source."): option.split("=", 1)[1].strip('"') for option in options}
    raw = read(Options(path=(str(path),), **chosen))  # pyright: ignore
    found = clean(raw, Policy(None, None, (), pd.Timestamp.now("UTC")), "AAA.csv").frame
    assert found["time"].tolist() == expected.index.tolist()
    np.testing.assert_allclose(found[list(NUMBERS)], expected, rtol=1e-12)


def test_archive_of_several_files_is_refused_and_typed_files_keep_their_index(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "AAA.zip", "w") as archive:
        archive.writestr("a.csv", csv(DAYS))
    DAYS.to_feather(tmp_path / "BBB.feather")
    pd.concat({"CCC": DAYS, "DDD": DAYS}, names=["ticker", "date"]).to_parquet(tmp_path / "both.parquet")
    frame = clean(read(Options(path=(str(tmp_path),))), Policy(None, None, (), pd.Timestamp.now("UTC")), "folder").frame
    assert frame["symbol"].unique().tolist() == ["AAA", "BBB", "CCC", "DDD"]
    np.testing.assert_array_equal(frame[list(NUMBERS)], pd.concat([DAYS] * 4))
