import numpy as np
import pytest

from forecaster.forecasts import bootstrap


def autoregression(rng, n: int, phi: float) -> np.ndarray:
    x = np.zeros(n + 100)
    for t in range(1, len(x)):
        x[t] = phi * x[t - 1] + rng.normal()
    return x[100:]


def test_every_sample_has_as_many_dates_as_the_data():
    counts = bootstrap.multiplicities(37, 4)
    assert counts.shape == (bootstrap.REPLICATIONS, 37)
    assert (counts.sum(axis=1) == 37).all()
    assert (counts >= 0).all()
    # Every date is drawn once a sample on average; 499 samples leave a standard error near .05.
    np.testing.assert_allclose(counts.mean(axis=0), 1.0, atol=0.25)


def test_equal_arguments_give_equal_samples():
    np.testing.assert_array_equal(bootstrap.multiplicities(50, 3), bootstrap.multiplicities(50, 3))


def test_longer_blocks_draw_neighbouring_dates_together():
    def together(length):
        counts = bootstrap.multiplicities(200, length)
        return np.corrcoef(counts[:, :-1].ravel(), counts[:, 1:].ravel())[0, 1]

    assert together(1) == pytest.approx(0.0, abs=0.05)
    # Of two neighbouring dates the second is drawn with the first unless a block ends between them.
    assert together(10) == pytest.approx(0.9, abs=0.05)


def test_block_length_grows_with_dependence(rng):
    assert bootstrap.block_length(autoregression(rng, 800, 0.0)) < bootstrap.block_length(autoregression(rng, 800, 0.9))


@pytest.mark.parametrize(
    ("series", "length"),
    [
        (np.full(50, 3.0), 1),
        (np.arange(19.0), 19),
        (np.ones(1), 1),
        (np.concatenate((np.ones(25), [9.0], np.ones(24))), 1),
    ],
)
def test_block_length_of_a_series_that_says_little(series, length):
    assert bootstrap.block_length(series) == length


def test_enough_means_ten_blocks():
    assert bootstrap.enough(50, 5)
    assert not bootstrap.enough(49, 5)


def test_intervals_of_a_mean_cover_it(rng):
    """200 AR(1) series, phi .5, n = 400: the nominal coverage is .95, its binomial error .015, and block bootstraps of
    this size are known to fall short by some hundredths, so .88 to .98 passes. False alarm under 1 in 1,000 at .92."""
    hits = 0
    lengths: dict[int, np.ndarray] = {}
    for _ in range(200):
        series = autoregression(rng, 400, 0.5)
        length = bootstrap.block_length(series)
        if length not in lengths:
            lengths[length] = bootstrap.multiplicities(400, length)
        means = lengths[length] @ series / 400
        low, high = np.percentile(means, (2.5, 97.5))
        hits += bool(low <= 0.0 <= high)
    assert 0.88 <= hits / 200 <= 0.98
