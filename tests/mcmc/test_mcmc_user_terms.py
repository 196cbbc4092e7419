"""Models of a user's own: functions that fail, derivatives, sources, and what is no model at all."""

import numpy as np
import pytest
from scipy import stats

from fastrace import mcmc
from fastrace.control_variates import ControlVariate
from fastrace.sources import CallableSource


def quadratic(y, bad=None):
    def terms(theta, rows):
        out = -0.5 * (y[rows] - theta[0]) ** 2
        if bad is not None and theta[0] > 1.3:
            out[:] = bad
        return out

    return terms


@pytest.mark.parametrize("kernel", [mcmc.Metropolis, mcmc.RacingMetropolis])
def test_terms_of_minus_infinity_reject_and_nan_raises(kernel):
    y = np.random.default_rng(0).normal(1.2, 1.0, 100)
    walled = kernel(mcmc.FunctionModel(quadratic(y, -np.inf), 1, 100), covariance=[[0.05]])
    trace = mcmc.sample(walled, [1.0], n_draws=500, n_chains=1, n_tune=100, rng=1)
    assert trace.draws.max() <= 1.3 and 50 < trace.accepted.sum() < 500
    for bad in (np.nan, np.inf):
        broken = kernel(mcmc.FunctionModel(quadratic(y, bad), 1, 100), covariance=[[0.05]])
        with pytest.raises(ValueError, match="row") as caught:
            mcmc.sample(broken, [1.0], n_draws=500, n_chains=1, n_tune=0, rng=1)
        assert 0 < caught.value.trace.n_draws < 500


@pytest.mark.parametrize("value, message", [
    (np.nan, "the log-likelihood of row 10003 is nan; finite numbers are needed, or -inf"),
    (np.inf, "the log-likelihood of row 10003 is inf; finite numbers are needed, or -inf"),
    (1.5e308, "the sum of the log-likelihoods overflows, though each of them is finite"),
])
@pytest.mark.parametrize("kernel", ["metropolis", "poisson"])
def test_a_full_pass_names_the_row_that_spoils_its_sum(kernel, value, message):
    n, spoilt = 12_000, [10_003, 11_000]

    def terms(theta, rows):
        return np.where(np.isin(rows, spoilt) & (theta[0] > 0.05), value, -0.5 * theta[0] ** 2)

    def derivatives(theta, rows):
        return np.full((len(rows), 1), -theta[0]), np.full((len(rows), 1, 1), -1.0)

    model = mcmc.FunctionModel(terms, 1, n, derivatives=derivatives, third_derivatives=1e9)
    full = mcmc.PoissonMinibatchMetropolis(model) if kernel == "poisson" else mcmc.Metropolis(model)
    with pytest.raises(ValueError, match=message):
        mcmc.sample(full, [0.04], n_draws=5000, n_chains=1, n_tune=0, rng=1)


def test_derivatives_of_a_function_save_rows():
    rng = np.random.default_rng(3)
    y = rng.normal(1.0, 2.0, 4000)

    def terms(theta, rows):
        return -0.5 * ((y[rows] - theta[0]) * np.exp(-theta[1])) ** 2 - theta[1]

    def derivatives(theta, rows):
        z, s = (y[rows] - theta[0]) * np.exp(-theta[1]), np.exp(-theta[1])
        gradient = np.stack([z * s, z * z - 1.0], axis=1)
        hessian = np.empty((len(rows), 2, 2))
        hessian[:, 0, 0], hessian[:, 1, 1] = -s * s, -2 * z * z
        hessian[:, 0, 1] = hessian[:, 1, 0] = -2 * z * s
        return gradient, hessian

    model = mcmc.FunctionModel(terms, 2, 4000, derivatives=derivatives, start=[0.0, 1.0])
    reference = model.reference()
    np.testing.assert_allclose(reference.center, [y.mean(), np.log(y.std())], atol=1e-6)
    np.testing.assert_allclose(reference.factor @ reference.factor.T, np.diag([y.var() / 4000, 1 / 8000]), atol=1e-8)
    aided = mcmc.sample(mcmc.RacingMetropolis(model), n_draws=1500, n_chains=1, rng=1)
    dull = mcmc.sample(mcmc.RacingMetropolis(model, control_variate=None), n_draws=100, n_chains=1, rng=1)
    assert aided.rows.mean() < dull.rows.mean() / 3
    assert np.abs(aided.draws.mean(axis=(0, 1)) - reference.center).max() < 0.2 * np.sqrt(y.var() / 4000)


def test_a_source_with_a_support_is_raced_by_betting():
    y = np.random.default_rng(1).random(5000)

    def make():
        theta = np.zeros((2, 1))
        rewards = lambda arms, rows: np.tanh(theta[arms, 0]) * (y[rows, None] - 0.5)  # noqa: E731
        return CallableSource(rewards, 2, 5000, support=(-0.5, 0.5)), theta

    kernel = mcmc.RacingMetropolis(mcmc.SourceModel(make, prior_sd=1.0))
    assert kernel.bound == "betting"
    assert 0 < mcmc.sample(kernel, [0.0], n_draws=200, n_chains=2, rng=1).accepted.sum() < 400


@pytest.mark.parametrize("make_kernel", [mcmc.Metropolis, mcmc.RacingMetropolis])
def test_what_a_source_knows_of_its_sums_counts(make_kernel):
    """A source with rows that are always read, and a surrogate in the data: its own control variate."""
    y = np.random.default_rng(1).normal(0.7, 1.0, 800)

    def make():
        theta = np.zeros((2, 1))
        terms = CallableSource(lambda arms, rows: -0.5 * (y[rows, None] - theta[arms, 0]) ** 2, 2, 800)
        near = CallableSource(lambda arms, rows: 0.9 * y[rows, None] * theta[arms, 0], 2, 800)
        totals = lambda: 0.9 * y.sum() * theta[:, 0]  # noqa: E731
        return ControlVariate(terms, near, totals, always_read=np.arange(0, 800, 40)), theta

    kernel = make_kernel(mcmc.SourceModel(make), covariance=[[1 / 800]])
    trace = mcmc.sample(kernel, [y.mean()], n_draws=1500, n_chains=1, n_tune=100, rng=1)
    a = trace.draws[0, :, 0]
    error = a.std() / np.sqrt(mcmc.effective_sample_size(a))
    assert abs(a.mean() - y.mean()) < stats.norm.isf(1e-6) * error
    assert 0.8 < a.std() * np.sqrt(800) < 1.2


def test_a_user_function_that_raises_in_mid_chain():
    y = np.random.default_rng(0).normal(size=50)
    calls = []

    def terms(theta, rows):
        calls.append(0)
        if len(calls) > 400:
            raise RuntimeError("mine")
        return -0.5 * (y[rows] - theta[0]) ** 2

    kernel = mcmc.Metropolis(mcmc.FunctionModel(terms, 1, 50))
    for tune in (0, 130):
        calls.clear()
        with pytest.raises(RuntimeError, match="mine") as caught:
            mcmc.sample(kernel, [0.0], n_draws=1000, n_chains=1, n_tune=tune, rng=1)
        assert caught.value.trace.n_draws >= 398 - tune - 2
