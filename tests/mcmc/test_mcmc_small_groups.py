"""Few rows that say little, above all groups with a flat side: what chains say of them, against quadrature."""

import warnings

import numpy as np
import pytest

from fastrace import mcmc
from fastrace.mcmc.kernels import _surrogate_decisions
from guarantee import assert_mean, assert_uniform, few_or_many
from reference.varying_intercepts import VaryingIntercepts

SEED = 20161125


def single_row():
    return "logistic", np.r_[1.0, np.arange(22) % 3 == 0], np.r_[0, np.repeat([1, 2], 11)]


def one_outcome():
    rng = np.random.default_rng(SEED)
    y = (rng.random(60) < 0.4) * 1.0
    y[:12] = 1.0
    return "logistic", y, np.repeat(np.arange(5), 12)


def all_of_one_outcome():
    sizes = np.tile([1, 2], 4)
    return "logistic", np.repeat(np.arange(8) % 2, sizes) * 1.0, np.repeat(np.arange(8), sizes)


def counts_of_zero():
    y = np.random.default_rng(SEED).poisson(2.0, 135) * 1.0
    y[:5] = 0.0
    return "poisson", y, np.repeat(np.arange(6), [5, 5, 5, 40, 40, 40])


def few_counts():
    return "poisson", np.bincount([10, 14, 21, 28], minlength=30) * 1.0, np.repeat(np.arange(6), 5)


@few_or_many(("scale", "n_draws"), (10.0, 4000), (1.0, 60_000))
@pytest.mark.parametrize("data", [single_row, one_outcome, all_of_one_outcome, counts_of_zero, few_counts])
def test_small_groups_have_their_posterior(data, scale, n_draws):
    """Chains were up to 17 standard errors off, and deviations .5 of what they are, at times without a warning."""
    family, y, codes = data()
    model = mcmc.GLM(np.ones((len(y), 1)), y, family, groups=codes, prior=mcmc.Normal(sd=2.0),
                     group_prior=mcmc.HalfNormal(scale))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")             # k of importance weights, which are not used
        trace = mcmc.sample(mcmc.SurrogateMetropolis(model), n_draws=n_draws, n_chains=4, rng=SEED)
    assert np.max(trace.rhat()) < 1.02
    truth = VaryingIntercepts(family, y, codes, 2.0, scale)
    mean, sd = truth.moments()
    draws = np.array(trace.draws)
    draws[..., -1] = np.log(draws[..., -1])
    for points in (mean - 1.3 * sd, mean, mean + 1.3 * sd):
        for k, share in enumerate(truth.below(points)):
            assert_mean((draws[..., k] < points[k]).ravel() * 1.0, share)


def crossed(rng):
    """Model, and what its draws are of, from the prior."""
    a, b = rng.permutation(24) % 4, rng.permutation(24) % 3
    base, (s, t) = rng.standard_normal(1), 3.0 * np.abs(rng.standard_normal(2))
    u, v = s * rng.standard_normal(4), t * rng.standard_normal(3)
    y = (rng.random(24) < 1 / (1 + np.exp(-base - u[a] - v[b]))) * 1.0
    model = mcmc.GLM(np.ones((24, 1)), y, groups={"a": a, "b": b}, prior=mcmc.Normal(sd=1.0),
                     group_prior=mcmc.HalfNormal(3.0))
    return model, np.r_[base, u, v, s, t]


def slopes(rng):
    codes, x = rng.permutation(24) % 4, rng.standard_normal(24)
    base, sd = rng.standard_normal(2), 3.0 * np.abs(rng.standard_normal(2))
    u = sd * rng.standard_normal((4, 2))
    X = np.column_stack([np.ones(24), x])
    y = (rng.random(24) < 1 / (1 + np.exp(-((base + u[codes]) * X).sum(axis=1)))) * 1.0
    model = mcmc.GLM(X, y, groups=mcmc.Groups(codes, slopes=[1], correlated=False), prior=mcmc.Normal(sd=1.0),
                     group_prior=mcmc.HalfNormal(3.0))
    return model, np.r_[base, u.ravel(), sd]


def dispersed_counts(rng):
    codes = rng.permutation(24) % 4
    base, sd, shape = rng.standard_normal(), 2.0 * abs(rng.standard_normal()), np.exp(0.5 * rng.standard_normal())
    u = sd * rng.standard_normal(4)
    y = rng.poisson(np.exp(base + u[codes]) * rng.gamma(shape, size=24) / shape) * 1.0
    model = mcmc.GLM(np.ones((24, 1)), y, "negative-binomial", groups=codes, prior=mcmc.Normal(sd=1.0),
                     group_prior=mcmc.HalfNormal(2.0), scale_prior=mcmc.LogNormal(0.0, 0.5))
    return model, np.r_[base, u, 1.0 / shape, sd]      # in draws, the dispersion


@few_or_many(("fits", "draws", "cells"), (60, 19, 5), (1000, 99, 20))
@pytest.mark.parametrize("case", [crossed, slopes, dispersed_counts])
def test_simulation_based_calibration_where_groups_have_flat_sides(case, fits, draws, cells):
    rng, ranks, swept = np.random.default_rng(SEED), [], 0
    for _ in range(fits):
        model, theta = case(rng)
        kernel = mcmc.SurrogateMetropolis(model)
        swept += len(kernel._swept) > 0
        _, steps = kernel.run(rng, kernel.init(theta), draws * 12)
        ranks.append((steps.draws[11::12] < theta).sum(axis=0))
    assert swept > 0.3 * fits
    assert_uniform(np.array(ranks), draws, cells)


def test_many_parameters_for_few_rows_have_walks_along_rows():
    rng = np.random.default_rng(SEED)
    X = np.column_stack([np.ones(100), rng.standard_normal((100, 19))])
    model = mcmc.GLM(X, np.arange(100) < 3, prior_sd=10.0)
    assert mcmc.SurrogateMetropolis(model)._along.shape == (64, 20)
    trace = mcmc.sample(mcmc.SurrogateMetropolis(model), n_draws=2000, n_chains=2, rng=1)
    assert trace.ess().min() > 100
    assert mcmc.sample(model, n_draws=2000, n_chains=2, rng=1).ess().min() > trace.ess().min()
    y = rng.random(100) < 0.5
    assert mcmc.SurrogateMetropolis(mcmc.GLM(X[:, :3], y, prior_sd=1.0))._along is None


@few_or_many("n_draws", 4000, 100_000)
def test_walks_along_rows_leave_the_posterior_of_separated_outcomes(n_draws, monkeypatch):
    monkeypatch.setattr(_surrogate_decisions, "REFUSED", 1.0)
    x = np.linspace(-2.0, 2.0, 20)
    X, y = np.column_stack([np.ones(20), x]), (x > 0.5) * 1.0
    kernel = mcmc.SurrogateMetropolis(mcmc.GLM(X, y, prior_sd=20.0))
    assert kernel._along is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")             # k of importance weights, and acceptance beside the walks
        draws = mcmc.sample(kernel, n_draws=n_draws, n_chains=4, rng=SEED).draws
    grid = np.linspace(-110.0, 110.0, 1101)
    eta = grid[:, None, None] + grid[:, None] * x
    log_p = (y * eta - np.logaddexp(0.0, eta)).sum(axis=2) - 0.5 * np.add.outer(grid**2, grid**2) / 400.0
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    for k in range(2):
        share = np.cumsum(p.sum(axis=1 - k))
        for place in np.searchsorted(share, [0.1, 0.5, 0.9]):
            assert_mean((draws[..., k] < grid[place] + 0.1).ravel() * 1.0, share[place])
