import hashlib
from pathlib import Path

import pandas as pd
import pytest

from forecaster.bars import bundled, planted, store
from forecaster.bars.contract import Bars, quality_report
from forecaster.errors import DataError


def same(left: Bars, right: Bars) -> None:
    pd.testing.assert_frame_equal(left.frame, right.frame, check_exact=True)
    pd.testing.assert_frame_equal(left.quality, right.quality)
    assert (left.calendar, left.interval, left.basis) == (right.calendar, right.interval, right.basis)


@pytest.mark.parametrize("bars", [bundled.load(), planted.load("noise", bars=7, seed=1)], ids=["bundled", "planted"])
def test_when_bars_are_read_back_then_nothing_has_changed(bars: Bars, tmp_path: Path):
    store.write(bars, tmp_path / "bars.parquet")
    same(store.read(tmp_path / "bars.parquet"), bars)


def test_when_bars_are_intraday_then_stamps_stay_utc(tmp_path: Path):
    daily = planted.load("noise", bars=3, seed=1)
    frame = daily.frame.assign(time=(daily.frame["time"] + pd.Timedelta(hours=14, minutes=30)).dt.tz_localize("UTC"))
    bars = Bars(frame=frame, quality=quality_report(()), calendar="XNYS", interval="5m", basis="as published")
    store.write(bars, tmp_path / "bars.parquet")
    same(store.read(tmp_path / "bars.parquet"), bars)


def test_when_symbols_look_like_values_then_they_stay_text(tmp_path: Path):
    frame = planted.load("noise", bars=4, seed=1, symbols=2).frame
    frame = frame.assign(symbol=["005930"] * 4 + ["NA"] * 4)
    bars = Bars(frame, quality_report(()), calendar="XNYS", interval="1d", basis="none")
    store.write(bars, tmp_path / "bars.parquet")
    assert store.read(tmp_path / "bars.parquet").frame["symbol"].tolist() == ["005930"] * 4 + ["NA"] * 4


def test_when_bars_are_written_twice_then_the_bytes_are_equal(tmp_path: Path):
    for name in ("one", "two"):
        store.write(bundled.load(), tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert store.digest(tmp_path / "one") == hashlib.sha256((tmp_path / "one").read_bytes()).hexdigest()


def test_when_one_value_differs_then_the_digest_differs(tmp_path: Path):
    bars = planted.load("noise", bars=7, seed=1)
    store.write(bars, tmp_path / "one")
    changed = bars.frame.assign(volume=bars.frame["volume"] + (bars.frame.index == 3))
    store.write(Bars(changed, bars.quality, bars.calendar, bars.interval, bars.basis), tmp_path / "two")
    assert store.digest(tmp_path / "one") != store.digest(tmp_path / "two")


def test_when_written_then_the_frame_given_has_no_new_attributes_and_folders_are_made(tmp_path: Path):
    bars = planted.load("noise", bars=7, seed=1)
    store.write(bars, tmp_path / "a" / "b" / "bars.parquet")
    assert bars.frame.attrs == {}
    assert store.read(tmp_path / "a" / "b" / "bars.parquet").frame.attrs == {}


def test_when_writing_fails_then_the_old_snapshot_stands_and_no_other_file_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "bars.parquet"
    store.write(planted.load("noise", bars=7, seed=1), path)
    before = path.read_bytes()

    def full_disk(descriptor: int) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        store.write(planted.load("noise", bars=9, seed=2), path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["bars.parquet"]


def test_when_a_snapshot_stands_then_writing_replaces_it_whole(tmp_path: Path):
    path = tmp_path / "bars.parquet"
    store.write(planted.load("noise", bars=7, seed=1), path)
    store.write(planted.load("noise", bars=9, seed=2), path)
    same(store.read(path), planted.load("noise", bars=9, seed=2))
    assert [file.name for file in tmp_path.iterdir()] == ["bars.parquet"]


def test_when_there_is_no_file_then_the_error_names_the_path(tmp_path: Path):
    with pytest.raises(DataError, match=r"none\.parquet: no such file: the run has no bars of its own"):
        store.read(tmp_path / "none.parquet")


def test_when_the_file_is_no_parquet_or_cut_short_then_the_error_says_so(tmp_path: Path):
    path = tmp_path / "bars.parquet"
    path.write_text("symbol,time\n")
    with pytest.raises(DataError, match=r"bars\.parquet: no Parquet file: load the bars from their source again"):
        store.read(path)
    store.write(planted.load("noise", bars=7, seed=1), path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match="no Parquet file"):
        store.read(path)


def test_when_the_parquet_is_no_snapshot_then_the_error_says_so(tmp_path: Path):
    planted.load("noise", bars=7, seed=1).frame.to_parquet(tmp_path / "other.parquet")
    with pytest.raises(DataError, match=r"other\.parquet: a Parquet file, but no snapshot of bars"):
        store.read(tmp_path / "other.parquet")


def test_when_a_snapshot_was_tampered_with_then_the_contract_is_checked_again(tmp_path: Path):
    path = tmp_path / "bars.parquet"
    bars = planted.load("noise", bars=7, seed=1)
    store.write(Bars(bars.frame.assign(close=0.0), bars.quality, "XNYS", "1d", "none"), path)
    with pytest.raises(DataError, match=r"NOISE_0 .*: close 0: prices are above 0; .* \(7 such bars\)"):
        store.read(path)
