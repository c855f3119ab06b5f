import numpy as np
import pytest

from forecaster.errors import DataError
from forecaster.forecasts import losses
from forecaster.forecasts.frame import QUANTILE_COLUMNS
from forecaster.networks.quantiles import QUANTILES

# Quantiles are mean + (-1.6, -1.3, -.7, 0, .7, 1.3, 1.6); the outcome lies 1 above the mean.
OVER = np.array([2.6, 2.3, 1.7, 1.0, 0.3, -0.3, -0.6])
RHO = np.array([0.05 * 2.6, 0.1 * 2.3, 0.25 * 1.7, 0.5 * 1.0, 0.75 * 0.3, 0.1 * 0.3, 0.05 * 0.6])


@pytest.fixture
def rows(make_frame):
    return make_frame(np.array([[3.0]]), np.array([[2.0]]))


def test_losses_have_the_values_computed_by_hand(rows):
    assert losses.squared_error(rows).tolist() == [1.0]
    np.testing.assert_allclose(losses.quantile_losses(rows)[0], RHO)
    np.testing.assert_allclose(losses.pinball(rows), RHO.mean())
    weights = [0.075, 0.1, 0.2, 0.25, 0.2, 0.1, 0.075]
    np.testing.assert_allclose(losses.crps(rows), 2 * (weights * RHO).sum())
    # v / f = exp(2 (3 - 2)) / c with c = 2.
    ratio = np.exp(2.0) / 2.0
    np.testing.assert_allclose(losses.qlike(rows, {(0, "attention", 1): 2.0}), ratio - np.log(ratio) - 1.0)


def test_pinball_equals_the_training_loss(rows):
    import torch

    from forecaster.training.losses import pinball

    trained = pinball(
        torch.tensor(rows[list(QUANTILE_COLUMNS)].to_numpy())[:, None, None, :],
        torch.tensor(rows["actual"].to_numpy())[:, None, None],
    )
    np.testing.assert_allclose(losses.pinball(rows), trained.numpy().ravel(), rtol=1e-12)


def test_crps_of_a_sharp_forecast_is_the_absolute_error(make_frame):
    rows = make_frame(np.array([[3.0], [1.5]]), np.array([[2.0], [2.0]]), spread=0.0)
    np.testing.assert_allclose(losses.crps(rows), [1.0, 0.5])


def test_crps_from_quantiles_is_near_that_of_the_normal_distribution(make_frame):
    """Closed form: y (2 Phi(y) - 1) + 2 phi(y) - 1 / sqrt(pi). Seven quantiles stand for all, hence 5 %."""
    from scipy import stats

    outcomes = np.linspace(-2.0, 2.0, 9)
    rows = make_frame(outcomes[:, None], np.zeros((9, 1)))
    rows[list(QUANTILE_COLUMNS)] = stats.norm.ppf(QUANTILES)
    exact = outcomes * (2 * stats.norm.cdf(outcomes) - 1) + 2 * stats.norm.pdf(outcomes) - 1 / np.sqrt(np.pi)
    np.testing.assert_allclose(losses.crps(rows).mean(), exact.mean(), rtol=0.05)


def test_qlike_is_0_only_where_the_corrected_variance_is_right(make_frame):
    rows = make_frame(np.array([[0.0], [0.1], [-0.1]]), np.zeros((3, 1)))
    loss = losses.qlike(rows, {(0, "attention", 1): 1.0})
    assert loss[0] == 0.0
    assert (loss[1:] > 0).all()


def test_qlike_takes_the_factor_of_each_rows_own_model_fold_and_step(make_frame):
    rows = make_frame(np.zeros((2, 1)), np.zeros((2, 1))).assign(fold=[0, 3], model=["har", "ewma"], step=[2, 1])
    loss = losses.qlike(rows, {(0, "har", 2): 2.0, (3, "ewma", 1): 4.0})
    np.testing.assert_allclose(loss, [0.5 - np.log(0.5) - 1, 0.25 - np.log(0.25) - 1])


def test_qlike_without_a_factor_is_an_error(rows):
    with pytest.raises(DataError, match="qlike of attention, fold 0, step 1: no volatility forecasts of validation"):
        losses.qlike(rows, {(1, "attention", 1): 2.0})
