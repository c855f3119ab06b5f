import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecaster.bars import planted
from forecaster.probes.content import NOTHING, pivots, trend_origin, volume_scale, volume_spike
from forecaster.probes.masks import Queries, monthly
from forecaster.windows.panel import Panel, build

LENGTH = 12


def panel_of(columns: dict[str, list[np.ndarray]], times: pd.DatetimeIndex | None = None) -> Panel:
    """A panel of the columns, each with one array a symbol."""
    arrays = next(iter(columns.values()))
    sizes = [len(array) for array in arrays]
    count = sum(sizes)
    stamps = pd.bdate_range("2020-01-01", periods=max(sizes)) if times is None else times
    days = np.concatenate([stamps[:size].to_numpy() for size in sizes]).astype("datetime64[us]")
    return Panel(
        features=np.stack([np.concatenate(column) for column in columns.values()], axis=1).astype(np.float32),
        targets=np.zeros((count, 1, 1)),
        past=np.zeros((count, 1)),
        times=days,
        target_times=days[:, None],
        symbol_ids=np.repeat(np.arange(len(sizes), dtype=np.int32), sizes),
        symbols=tuple(f"S{number}" for number in range(len(sizes))),
        feature_names=tuple(columns),
        target_names=("return",),
        calendar="XNYS",
        week_bars=5,
    )


def last_bars(rows: list[int], length: int = LENGTH) -> Queries:
    return Queries(np.array(rows), np.full(len(rows), length), np.full(len(rows), length), length)


def volumes(spikes: dict[int, float], count: int = 60) -> np.ndarray:
    """Log volume against its median: .1 up and down, and the spikes."""
    values = np.where(np.arange(count) % 2, 0.1, -0.1)
    for bar, size in spikes.items():
        values[bar] = size
    return values


def lags(mask_flags: np.ndarray) -> list[list[int]]:
    return [np.flatnonzero(row).tolist() for row in mask_flags]


def test_a_spike_looks_to_the_last_one_of_like_size():
    # The root mean square at bars 49 .. 56 lies between .3 and .4: spikes of 1 have z near 3, that of 2 near 6.
    panel = panel_of({"log_volume": [volumes({46: 1.0, 49: 2.0, 52: 1.0, 56: 1.0})]})
    mask = volume_spike().at(panel, last_bars([52, 55, 56, 49]))
    assert mask.measurable.tolist() == [True, False, True, False]  # 55 is no spike, 49 has none like it before
    assert lags(mask.flags) == [[6], [], [4], []]


def test_likeness_is_measured_in_the_query_s_unit():
    """.1 in all bars but spikes of 1 and 1.15 at bars 50 and 56: the unit at 56 is sqrt((55 x .01 + 1 + 1.15^2) / 57)
    = .225, so that .15 are .67 of it; with a spike of 1.1 the difference is .45 of .220."""
    for size, seen in ((1.15, False), (1.1, True)):
        panel = panel_of({"log_volume": [volumes({50: 1.0, 56: size})]})
        assert volume_spike().at(panel, last_bars([56])).measurable.tolist() == [seen]


def test_a_spike_out_of_reach_or_of_another_symbol_is_not_seen():
    panel = panel_of({"log_volume": [volumes({40: 1.0, 56: 1.0}), volumes({56: 1.0})]})
    assert not volume_spike().at(panel, last_bars([56, 60 + 56])).measurable.any()
    assert volume_spike().at(panel, last_bars([56], 20)).measurable.all()


def test_volumes_that_never_change_or_are_not_there_have_no_spikes():
    flat = panel_of({"log_volume": [np.zeros(60)]})
    none = panel_of({"shock": [np.ones(60)]})
    for panel in (flat, none):
        assert np.isnan(volume_scale(panel)).all()
        assert not volume_spike().at(panel, last_bars([40, 50])).measurable.any()


def test_volume_s_unit_is_its_root_mean_square_over_a_year():
    values = np.random.default_rng(0).normal(size=600)
    values[:19] = np.nan
    found = volume_scale(panel_of({"log_volume": [values]}))
    for bar in (19, 38, 39, 300, 599):
        window = values[max(0, bar - 249) : bar + 1]
        window = window[~np.isnan(window)].astype(np.float32).astype(float)
        if len(window) < 20:
            assert np.isnan(found[bar])
        else:
            assert found[bar] == pytest.approx(np.sqrt((window**2).mean()), rel=1e-9)


def test_a_pivot_is_known_once_the_price_has_turned_by_three_volatilities():
    """Volatility 1 throughout: the top at bar 3 is confirmed at bar 6 (3 below), the bottom at bar 7 at bar 9."""
    price = np.array([0, 1, 2, 4, 3, 2, 1, 0, 1, 3, 4], dtype=float)
    panel = panel_of({"log_return": [np.diff(price, prepend=0.0)], "log_sigma": [np.zeros(len(price))]})
    assert pivots(panel).tolist() == [-1, -1, -1, 0, 0, 0, 3, 3, 3, 7, 7]
    mask = trend_origin().at(panel, last_bars([5, 8, 10]))
    assert lags(mask.flags) == [[5], [5], [3]]


def expected_pivots(price: np.ndarray) -> list[int]:
    """By the definition, bar by bar, over the whole past each time."""
    found, last, way = [], NOTHING, 0
    start = 0
    for bar in range(len(price)):
        leg = price[start : bar + 1]
        top, bottom = start + int(leg.argmax()), start + int(leg.argmin())
        if way >= 0 and price[top] - price[bar] >= 3:
            last, way, start = top, -1, top
        elif way <= 0 and price[bar] - price[bottom] >= 3:
            last, way, start = bottom, 1, bottom
        found.append(last)
    return found


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=60))
def test_pivots_are_those_of_the_definition(steps: list[int]):
    price = np.cumsum([0, *steps]).astype(float)
    panel = panel_of({"log_return": [np.diff(price, prepend=0.0)], "log_sigma": [np.zeros(len(price))]})
    assert pivots(panel).tolist() == expected_pivots(price)


def test_nothing_after_a_bar_changes_its_pivot_or_its_volume_s_size():
    bars = planted.load("noise", 400, 3)
    whole = build(bars, ("return",), 1)
    early = build(
        type(bars)(bars.frame.head(250), bars.quality, bars.calendar, bars.interval, bars.basis), ("return",), 1
    )
    np.testing.assert_array_equal(pivots(whole)[:250], pivots(early))
    np.testing.assert_array_equal(volume_scale(whole)[:250], volume_scale(early))


def test_a_month_before_is_the_same_day_or_the_month_s_last():
    days = pd.date_range("2023-01-01", "2024-03-31")
    panel = panel_of({"shock": [np.ones(len(days))]}, days)
    asked = [days.get_loc(pd.Timestamp(day)) for day in ("2024-03-15", "2024-03-31", "2023-03-30")]
    mask = monthly(30).at(panel, last_bars(asked, 40))
    found = [str(days[row - lag[0]].date()) for row, lag in zip(asked, lags(mask.flags), strict=True)]
    assert found == ["2024-02-15", "2024-02-29", "2023-02-28"]


def test_a_month_is_not_measurable_over_too_few_months_or_in_short_windows():
    days = pd.date_range("2023-01-01", "2024-03-31")
    panel = panel_of({"shock": [np.ones(len(days))]}, days)
    assert not monthly(29).at(panel, last_bars([100], 40)).measurable.any()
    assert not monthly(30).at(panel, last_bars([100], 24)).measurable.any()
    assert monthly(30).at(panel, last_bars([100], 40)).measurable.all()
