"""Hierarchical models for tests of chains on surrogates."""

import numpy as np

from fastrace import mcmc

SEED = 20161122


def grouped(X, codes, y, family="logistic", coefficient_sd=2.0, scale_sd=1.0, **options):
    """Intercepts of groups, normal with a half-normal standard deviation."""
    return mcmc.GLM(X, y, family, groups=codes, prior=mcmc.Normal(0.0, coefficient_sd),
                    group_prior=mcmc.HalfNormal(scale_sd), **options)


def some_of_each(rng, n_rows, n_groups):
    return rng.permutation(np.r_[np.arange(n_groups), rng.integers(n_groups, size=n_rows - n_groups)])


def grouped_data(rng, n_rows, n_groups, tau=0.7, family="logistic"):
    X = np.column_stack([np.ones(n_rows), rng.standard_normal(n_rows)])
    codes = some_of_each(rng, n_rows, n_groups)
    eta = X @ [0.3, -0.6] + tau * rng.standard_normal(n_groups)[codes]
    if family == "gaussian":
        return X, codes, eta + rng.standard_normal(n_rows)
    return X, codes, (rng.random(n_rows) < 1 / (1 + np.exp(-eta))) * 1.0


def far_from_normal(rng, n_rows=60):
    """Group 0 without a positive, and a row of great leverage."""
    X, codes, y = grouped_data(rng, n_rows, 4)
    y[codes == 0] = 0.0
    X[5, 1] = 8.0
    return X, codes, y
