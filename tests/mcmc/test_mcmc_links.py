"""Probit, complementary log-log and binomial models: posteriors of two parameters by quadrature, for each kernel."""

import numpy as np
import pytest
from scipy import special, stats

from fastrace import mcmc
from guarantee import assert_mean

N, PRIOR_SD = 150, 1.5
KERNELS = {
    "surrogate-poisson": lambda model: mcmc.SurrogateMetropolis(model, decision="poisson"),
    "surrogate-race": lambda model: mcmc.SurrogateMetropolis(model, decision="race", delta=1e-3, first_look=20),
    "surrogate-exact": lambda model: mcmc.SurrogateMetropolis(model, decision="exact"),
    "minibatch": lambda model: mcmc.PoissonMinibatchMetropolis(model, full_pass_at=1e9),
    "race": lambda model: mcmc.RacingMetropolis(model, 1e-3, student=True, first_look=20),
    "race-betting": lambda model: mcmc.RacingMetropolis(model, 1e-3, "betting", first_look=20),
}


def log_likelihood(family, eta, y, trials):
    """As the laws of the outcomes say, written apart from the compiled families."""
    if family == "probit":
        return np.where(y > 0.0, stats.norm.logcdf(eta), stats.norm.logsf(eta))
    if family == "cloglog":
        return np.where(y > 0.0, np.log(-special.expm1(-np.exp(eta))), -np.exp(eta))
    return stats.binom.logpmf(y, 1 if trials is None else trials, special.expit(eta))


def data(family, offset):
    rng = np.random.default_rng(11)
    X = np.column_stack([np.ones(N), rng.standard_normal(N)])
    apart = 0.4 * rng.standard_normal(N) if offset else np.zeros(N)
    eta = X @ [-0.4, 0.7] + apart
    trials = rng.integers(0, 7, N) if family == "binomial" else None
    share = {"probit": stats.norm.cdf(eta), "cloglog": -special.expm1(-np.exp(eta))}.get(family, special.expit(eta))
    y = rng.binomial(1 if trials is None else trials, share).astype(float)
    return X, y, trials, apart


def functions(theta):
    """Means, squares, a product and tails: what shows a wrong location, width, tilt or skewness."""
    a, b = np.moveaxis(np.asarray(theta), -1, 0)
    return np.stack([a, b, a * a, b * b, a * b, a**3, b**3, a < -0.55, b > 0.9], axis=-1)


def by_quadrature(family, X, y, trials, apart):
    """Means of `functions` by sums on a grid, and the log density on it."""
    a, b = np.linspace(-1.8, 1.0, 281), np.linspace(-0.7, 2.1, 281)
    grid = np.stack([axis.ravel() for axis in np.meshgrid(a, b)], axis=1)
    density = np.empty(len(grid))
    for part in np.array_split(np.arange(len(grid)), 100):
        eta = grid[part] @ X.T + apart
        density[part] = log_likelihood(family, eta, y, trials).sum(axis=1)
    density += stats.norm.logpdf(grid, 0.0, PRIOR_SD).sum(axis=1)
    weights = np.exp(density - density.max())
    edge = (np.abs(grid[:, 0] + 0.4) > 1.39) | (np.abs(grid[:, 1] - 0.7) > 1.39)
    assert weights[edge].max() < 1e-9       # the grid holds the posterior
    return weights @ functions(grid) / weights.sum(), grid, density


@pytest.mark.parametrize("offset", [False, True], ids=["plain", "offset"])
@pytest.mark.parametrize("family", ["probit", "cloglog", "binomial"])
def test_log_posteriors_are_those_of_the_laws(family, offset):
    X, y, trials, apart = data(family, offset)
    model = mcmc.GLM(X, y, family, trials=trials, offset=apart if offset else None, prior_sd=PRIOR_SD)
    _, grid, density = by_quadrature(family, X, y, trials, apart)
    some = np.flatnonzero(density > density.max() - 50.0)[::97]
    np.testing.assert_allclose(np.diff(model.log_posteriors(grid[some])), np.diff(density[some]), atol=1e-9)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("family", ["probit", "cloglog", "binomial"])
def test_chains_have_the_posterior_of_a_quadrature(family, kernel):
    X, y, trials, apart = data(family, True)
    model = mcmc.GLM(X, y, family, trials=trials, offset=apart, prior_sd=PRIOR_SD)
    means, _, _ = by_quadrature(family, X, y, trials, apart)
    made = KERNELS[kernel](model)
    rng = np.random.default_rng(5)
    state, _ = made.run(rng, made.init(None, rng), 300, tune=True)
    _, steps = made.run(rng, state, 12_000)
    assert 0.2 < steps.accepted.mean() <= 1.0
    assert_mean(functions(steps.draws), means)


def test_the_quadrature_tells_links_apart():
    """Chains of the logistic model of the same outcomes fail the test that those of the probit model pass."""
    X, y, trials, apart = data("probit", True)
    means, _, _ = by_quadrature("probit", X, y, trials, apart)
    made = mcmc.PoissonMinibatchMetropolis(mcmc.GLM(X, y, "logistic", offset=apart, prior_sd=PRIOR_SD))
    rng = np.random.default_rng(5)
    _, steps = made.run(rng, made.init(None, rng), 3000)
    with pytest.raises(AssertionError):
        assert_mean(functions(steps.draws), means)
