import numpy as np
import pandas as pd
import pytest

from forecaster.bars import bundled
from forecaster.bars.contract import check
from forecaster.errors import DataError


def noticed(symbol: str) -> dict[str, list[str]]:
    """Dates of each kind of suspicion."""
    quality = bundled.load([symbol]).quality
    return {str(kind): rows["time"].dt.date.astype(str).tolist() for kind, rows in quality.groupby("kind")}


def test_when_loaded_then_both_indices_have_5031_sessions():
    bars = bundled.load()
    spans = bars.frame.groupby("symbol")["time"].agg(["size", "min", "max"])
    assert spans.index.tolist() == ["NASDAQ", "SP500"]
    assert spans["size"].tolist() == [5031, 5031]
    assert spans["min"].tolist() == [pd.Timestamp("1999-01-04")] * 2
    assert spans["max"].tolist() == [pd.Timestamp("2018-12-31")] * 2
    assert (bars.calendar, bars.interval) == ("XNYS", "1d")
    pd.testing.assert_frame_equal(check(bars.frame, "again"), bars.frame)


def test_when_loaded_then_known_bars_have_their_published_figures():
    frame = bundled.load(["SP500"]).frame.set_index("time")
    first, last = frame.loc["1999-01-04"], frame.loc["2018-12-31"]
    # The index closed at 1228.10 and 2506.85.
    assert first["close"] == pytest.approx(1228.10, abs=0.005)
    assert last["close"] == pytest.approx(2506.85, abs=0.005)
    assert first["volume"] == 877_000_000


def test_when_no_price_was_adjusted_then_prices_are_the_library_s_and_the_basis_says_so():
    bars = bundled.load(["NASDAQ"])
    table = bundled.SYMBOLS["NASDAQ"]()
    for column in ("open", "high", "low", "close"):
        np.testing.assert_array_equal(bars.frame[column], table[column.capitalize()])
    assert bars.basis == "Adj Close; open, high and low scaled with it, 0 bars differing from Close"


def test_when_the_adjusted_close_differs_then_all_prices_are_scaled_and_volume_is_not(
    monkeypatch: pytest.MonkeyPatch,
):
    table = pd.DataFrame(
        {
            "Open": [10.0, 8.0],
            "High": [12.0, 8.0],
            "Low": [8.0, 4.0],
            "Close": [10.0, 4.0],
            "Adj Close": [5.0, 4.0],
            "Volume": [100, 200],
        },
        index=pd.to_datetime(["2020-01-02", "2020-01-03"]),
    )
    monkeypatch.setitem(bundled.SYMBOLS, "SP500", lambda: table)
    bars = bundled.load(["SP500"])
    assert bars.frame[["open", "high", "low", "close", "volume"]].to_numpy().tolist() == [
        [5.0, 6.0, 4.0, 5.0, 100.0],
        [8.0, 8.0, 4.0, 4.0, 200.0],
    ]
    assert bars.basis.endswith("1 bars differing from Close")


def test_when_symbols_are_named_then_they_come_sorted_and_once():
    assert bundled.load(["SP500", "NASDAQ", "SP500"]).frame["symbol"].unique().tolist() == ["NASDAQ", "SP500"]
    assert bundled.load(["SP500"]).frame["symbol"].unique().tolist() == ["SP500"]


def test_when_a_symbol_is_not_bundled_then_the_error_names_those_that_are():
    with pytest.raises(DataError) as error:
        bundled.load(["SP500", "AAPL"])
    assert str(error.value) == "bundled bars: no symbol 'AAPL': choose from NASDAQ, SP500"


def test_when_no_symbol_is_named_then_it_is_an_error():
    with pytest.raises(DataError, match="bundled bars: no symbol given: choose from NASDAQ, SP500"):
        bundled.load([])


def test_when_the_nasdaq_is_loaded_then_its_odd_volumes_are_noticed_and_kept():
    rows = noticed("NASDAQ")
    assert rows["zero_volume"] == ["2015-05-12", "2018-01-09"]
    assert rows["low_volume"] == ["2012-05-29"]
    frame = bundled.load(["NASDAQ"]).frame.set_index("time")
    assert frame.loc[["2015-05-12", "2018-01-09"], "volume"].tolist() == [0.0, 0.0]


def test_when_the_sp500_is_loaded_then_placeholder_volumes_and_stale_opens_are_noticed():
    rows = noticed("SP500")
    assert set(rows) == {"repeated_volume", "stale_open"}
    assert len(rows["repeated_volume"]) == 31
    assert {"2011-03-04", "2011-05-10"} <= set(rows["repeated_volume"])
    details = bundled.load(["SP500"]).quality["detail"].tolist()
    assert details.count("volume 4223740000 stands on 12 bars") == 12
    assert "open equals the previous close on 2004 of 5031 bars, last on 2015-01-02" in details


def test_when_the_quality_is_reported_then_every_row_says_that_the_bar_was_kept():
    assert set(bundled.load().quality["action"]) == {"kept"}


def test_when_a_half_day_is_quiet_then_it_is_not_suspected():
    # The session of 2003-12-26 ended at 13:00 with a quarter of its neighbours' volume.
    assert "2003-12-26" not in {date for dates in noticed("NASDAQ").values() for date in dates}
