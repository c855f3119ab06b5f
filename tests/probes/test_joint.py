import numpy as np
import pytest

from forecaster.probes.intervals import blocks
from forecaster.probes.joint import JointSums
from forecaster.probes.masks import Mask
from forecaster.probes.statistics import ProfileSums
from forecaster.probes.tracking import CalendarOrLag, DateTracking

COUNT, HEADS, SPAN, BLOCKS = 400, 3, 9, 12


def masks(seed: int = 0) -> dict[str, Mask]:
    """Two masks that share many bars, and one that always flags the same lag."""
    rng = np.random.default_rng(seed)
    first = rng.random((COUNT, SPAN)) < 0.2
    second = np.where(rng.random((COUNT, SPAN)) < 0.6, first, rng.random((COUNT, SPAN)) < 0.2)
    asked = rng.random(COUNT) < 0.7
    everyone = np.ones(COUNT, dtype=bool)
    fixed = np.broadcast_to(np.arange(SPAN) == 2, (COUNT, SPAN)).copy()
    return {
        "first": Mask(first, everyone),
        "second": Mask(second & asked[:, None], asked),
        "fixed": Mask(fixed, everyone),
    }


def fitted(attention: np.ndarray, flagged: dict[str, Mask], parts: list[int] | None = None):
    block_n = np.arange(COUNT) * BLOCKS // COUNT
    joint, profile = JointSums(list(flagged), BLOCKS, HEADS, SPAN), ProfileSums(BLOCKS, HEADS, SPAN)
    for rows in np.split(np.arange(COUNT), parts or []):
        part = {name: Mask(mask.flags[rows], mask.measurable[rows]) for name, mask in flagged.items()}
        joint.update(attention[rows], part, block_n[rows])
        profile.update(attention[rows], block_n[rows])
    return joint.partial(profile)


def test_partial_mass_is_the_least_squares_fit_over_queries_and_lags():
    flagged = masks()
    attention = np.random.default_rng(1).dirichlet(np.ones(SPAN), size=(COUNT, HEADS))
    found = fitted(attention, flagged)
    by_lag = np.tile(np.eye(SPAN), (COUNT, 1))
    design = np.column_stack([flagged[name].flags.ravel() for name in ("first", "second")] + [by_lag]).astype(float)
    for head in range(HEADS):
        (first, second, *_), *_ = np.linalg.lstsq(design, attention[:, head].ravel(), rcond=None)
        bars = [flagged[name].flags.sum() / flagged[name].measurable.sum() for name in ("first", "second")]
        assert found["first"].value[head] == pytest.approx(first * bars[0], rel=1e-9)
        assert found["second"].value[head] == pytest.approx(second * bars[1], rel=1e-9)


def test_partial_mass_is_undefined_for_bars_that_are_always_at_the_same_lag():
    attention = np.random.default_rng(1).dirichlet(np.ones(SPAN), size=(COUNT, HEADS))
    found = fitted(attention, masks())
    assert np.isnan(found["fixed"].value).all()
    assert not np.isnan(found["first"].low).any()


def test_a_head_that_looks_at_one_mask_has_nothing_left_for_the_other():
    flagged = masks()
    flags = flagged["first"].flags[:, None] / np.maximum(flagged["first"].flags.sum(1), 1)[:, None, None]
    some = flagged["first"].flags.any(1)[:, None, None]
    attention = np.where(some, 0.7 / SPAN + 0.3 * flags, 1 / SPAN)
    found = fitted(np.broadcast_to(attention, (COUNT, HEADS, SPAN)), flagged)
    assert abs(found["second"].value[0]) < 0.02
    assert found["first"].value[0] > 0.2


def test_the_fit_is_the_same_whatever_the_chunks():
    attention = np.random.default_rng(1).dirichlet(np.ones(SPAN), size=(COUNT, HEADS))
    whole, parted = fitted(attention, masks()), fitted(attention, masks(), [1, 2, 150, 399])
    for name in ("first", "second"):
        for end in ("value", "low", "high"):
            np.testing.assert_allclose(getattr(parted[name], end), getattr(whole[name], end), rtol=1e-9)


def test_date_tracking_tells_what_is_followed():
    """Head 0 always looks 3 bars back, head 1 at the bar numbered 100 while it is in sight, head 2 everywhere alike."""
    rows = np.arange(95, 105)
    attention = np.zeros((len(rows), 3, SPAN))
    attention[:, 0, 3] = 1.0
    age = np.clip(rows - 100, 0, SPAN - 1)
    attention[np.arange(len(rows)), 1, age] = 1.0
    attention[:, 2] = 1 / SPAN
    tracking = DateTracking(1, 3)
    for part in np.split(np.arange(len(rows)), [1, 4]):
        tracking.update(attention[part], rows[part], np.zeros(len(part), dtype=int))
    assert tracking.counts_b.tolist() == [9]
    # Head 1: five windows before bar 100 look at themselves, lag 0, then four follow the bar.
    assert (tracking.sums_bN[0] / 9).tolist() == pytest.approx([-1.0, (-5 + 4) / 9, (8 / 9 - 1)])


def test_date_tracking_compares_no_windows_that_are_not_neighbours():
    tracking = DateTracking(1, 1)
    tracking.update(np.full((4, 1, SPAN), 1 / SPAN), np.array([5, 7, 20, 21]), np.zeros(4, dtype=int))
    assert tracking.counts_b.tolist() == [1]


def test_calendar_or_lag_compares_the_two_bars_in_odd_weeks_alone():
    """Usual lag 5. Of four queries one has it there, two at lag 4, one none: A(4) .3 and .5 against A(5) .1 and .1."""
    flags = np.zeros((4, SPAN), dtype=bool)
    flags[0, 5] = flags[1, 4] = flags[2, 4] = True
    attention = np.zeros((4, 1, SPAN))
    attention[1, 0, 4:6], attention[2, 0, 4:6] = (0.3, 0.1), (0.5, 0.1)
    attention[0, 0, 5] = 1.0
    sums = CalendarOrLag(5, 2, 1)
    sums.update(attention, Mask(flags, flags.any(1)), np.array([0, 0, 1, 1]))
    assert sums.counts_b.tolist() == [1, 1]
    assert sums.share()[0] == pytest.approx(0.5)
    assert sums.difference().value[0] == pytest.approx((0.8 - 0.2) / 1.0)


def test_blocks_are_a_hundred_at_most():
    times = (np.datetime64("2000-01-01", "us") + np.arange(1000) * np.timedelta64(1, "D")).astype("datetime64[us]")
    assert blocks(times, 5).max() == 99
    assert blocks(times, 50).max() == 19
