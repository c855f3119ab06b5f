import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecaster.bars.contract import NUMBERS
from forecaster.bars.yahoo import cache
from forecaster.bars.yahoo.stretch import Series, Stretch
from forecaster.errors import DataError

AAA = Series("AAA", "1d", adjusted=True)


def stretch(series: Series = AAA, bars: int = 7) -> Stretch:
    times = pd.date_range("2024-05-01", periods=bars, freq="D", unit="us")
    if series.intraday:
        times = times.tz_localize("UTC")
    numbers = {name: np.arange(1.0, bars + 1) * (number + 1) / 3 for number, name in enumerate(NUMBERS)}
    return Stretch(
        series=series,
        frame=pd.DataFrame({"time": times, **numbers}),
        first=pd.Timestamp("2024-04-27"),
        last=pd.Timestamp("2024-05-07"),
        asked=pd.Timestamp("2024-05-08 12:00:00.123456Z"),
        renew=pd.Timestamp("2024-05-08 20:30Z"),
        zone="America/New_York",
        currency="USD",
        scaled=(pd.Timestamp("2024-05-03"),),
        asides=((pd.Timestamp("2024-05-08"), "partial_last", "not over", "dropped"),),
    )


def same(left: Stretch | None, right: Stretch) -> None:
    assert left
    pd.testing.assert_frame_equal(left.frame, right.frame, check_exact=True)
    nothing = pd.DataFrame()
    assert replace(left, frame=nothing).__dict__ | {"frame": 0} == replace(right, frame=nothing).__dict__ | {"frame": 0}


@pytest.mark.parametrize("series", [AAA, Series("^GSPC", "1h", adjusted=False)], ids=["daily", "hourly"])
def test_when_bars_are_read_back_then_nothing_has_changed(series: Series, tmp_path: Path):
    file = cache.path(tmp_path, series)
    cache.write(stretch(series), file)
    said: list[str] = []
    same(cache.read(file, series, said.append), stretch(series))
    assert said == []


def test_when_written_twice_then_the_bytes_are_equal(tmp_path: Path):
    for name in ("one", "two"):
        cache.write(stretch(), tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_when_there_is_no_file_then_there_are_no_bars_and_nothing_is_said(tmp_path: Path):
    said: list[str] = []
    assert cache.read(tmp_path / "none.parquet", AAA, said.append) is None
    assert said == []


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-9])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def html(file: Path) -> None:
    file.write_text("<html>Too Many Requests</html>")


def zeros(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def of_another_symbol(file: Path) -> None:
    cache.write(stretch(Series("BBB", "1d", adjusted=True)), file)


def of_another_adjustment(file: Path) -> None:
    cache.write(stretch(Series("AAA", "1d", adjusted=False)), file)


def without_bars(file: Path) -> None:
    cache.write(stretch(bars=0), file)


def no_cache(file: Path) -> None:
    stretch().frame.to_parquet(file)


def changed_price(file: Path) -> None:
    frame = pd.read_parquet(file)
    frame.loc[3, "close"] *= 1.001
    frame.to_parquet(file)


def changed_range(file: Path) -> None:
    frame = pd.read_parquet(file)
    frame.attrs["first"] = "2000-01-01T00:00:00"
    frame.to_parquet(file)


def older_form(file: Path) -> None:
    frame = pd.read_parquet(file)
    frame.attrs["form"] = 0
    frame.to_parquet(file)


@pytest.mark.parametrize(
    "damage",
    [
        cut,
        empty,
        html,
        zeros,
        folder,
        of_another_symbol,
        of_another_adjustment,
        without_bars,
        no_cache,
        changed_price,
        changed_range,
        older_form,
    ],
)
def test_when_the_file_is_no_good_then_it_is_said_and_not_used(damage: Callable[[Path], None], tmp_path: Path):
    file = cache.path(tmp_path, AAA)
    cache.write(stretch(), file)
    damage(file)
    said: list[str] = []
    assert cache.read(file, AAA, said.append) is None
    [text] = said
    assert text.startswith(f"{file}: no good cache of AAA (")
    assert text.endswith("): fetching it again")
    assert "\n" not in text


def test_when_any_byte_is_flipped_then_the_bars_are_the_same_or_none(tmp_path: Path):
    file = cache.path(tmp_path, AAA)
    cache.write(stretch(), file)
    good = file.read_bytes()
    for position in range(0, len(good), 41):
        file.write_bytes(good[:position] + bytes([good[position] ^ 0x55]) + good[position + 1 :])
        found = cache.read(file, AAA, lambda text: None)
        if found is not None:
            same(found, stretch())


@given(st.text(min_size=1, max_size=12), st.text(min_size=1, max_size=12))
def test_when_symbols_differ_then_their_files_differ_on_any_system(left: str, right: str):
    names = {cache.path(Path(), Series(symbol.upper(), "1d", adjusted=True)).name for symbol in (left, right)}
    assert len({name.casefold() for name in names}) == len({left.upper(), right.upper()})
    for name in names:
        assert name.isascii()
        assert not set('<>:"/\\|?*. ') & set(name.removesuffix(".parquet"))


def test_when_series_differ_then_their_files_differ():
    series = {
        Series(symbol, interval, adjusted)
        for symbol in ("A", "A-B", "A.B", "^A", "A=X", "CON")
        for interval in ("1d", "1h", "1min")
        for adjusted in (True, False)
    }
    assert len({cache.path(Path(), one).name.casefold() for one in series}) == len(series) == 36


HANG = """
import os, sys, time
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from forecaster.bars.yahoo import cache
from test_cache import AAA, stretch
def hang(descriptor):
    Path(sys.argv[1] + ".reached").touch()
    time.sleep(60)
os.fsync = hang
file = Path(sys.argv[1])
with cache.locked(file, print):
    cache.write(stretch(bars=99), file)
"""


def test_when_killed_in_the_middle_of_a_write_then_the_old_bars_stand_and_the_lock_is_free(tmp_path: Path):
    file = cache.path(tmp_path, AAA)
    cache.write(stretch(), file)
    folders = [str(Path(__file__).parents[up]) for up in (0, 2)]
    with subprocess.Popen([sys.executable, "-c", HANG, str(file), *folders]) as process:
        reached = file.with_name(f"{file.name}.reached")
        while not reached.exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    reached.unlink()
    same(cache.read(file, AAA, print), stretch())
    assert len(list(tmp_path.glob(".*"))) == 1
    said: list[str] = []
    with cache.locked(file, said.append):
        cache.write(stretch(bars=8), file)
    assert said == []
    same(cache.read(file, AAA, print), stretch(bars=8))
    assert list(tmp_path.glob(".*")) == []


def test_when_another_process_has_the_file_then_it_is_waited_for_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cache, "SHORT_WAIT", 0.05)
    file = cache.path(tmp_path, AAA)
    hold = "import sys, time; from pathlib import Path; from forecaster.bars.yahoo import cache\n"
    hold += "with cache.locked(Path(sys.argv[1]), print):\n    print(1, flush=True)\n    time.sleep(0.5)"
    with subprocess.Popen([sys.executable, "-c", hold, str(file)], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        said: list[str] = []
        with cache.locked(file, said.append):
            assert process.wait(timeout=5) == 0
    assert said == [f"{file.name}: waiting for another process that is fetching it"]


def test_when_bars_can_not_be_kept_then_the_error_names_the_folder_and_the_option(tmp_path: Path):
    (tmp_path / "file").write_text("")
    file = tmp_path / "file" / "AAA.parquet"
    with pytest.raises(DataError) as raised, cache.locked(file, print):
        pass
    assert str(raised.value) == (f"{tmp_path}/file: can't keep bars there (File exists): give a folder in source.cache")


def test_when_the_disk_is_full_then_the_old_bars_stand_and_the_error_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = cache.path(tmp_path, AAA)
    cache.write(stretch(), file)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"can't be written \(No space left on device\): make room, or give a folder"):
        cache.write(stretch(bars=8), file)
    same(cache.read(file, AAA, print), stretch())
