"""Hierarchical models for tests of chains on surrogates."""

import numpy as np

from fastrace import mcmc
from reference import surrogate as twin

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


def plain_inner(kernel, prior, order, size=1.0):
    """The twin of a kernel's nested normal moves, with what its moves add to the expansion."""
    made, dense = kernel.compressed, kernel.compressed.curvature.to_dense()
    slope = made.slope if kernel._tilt is None else made.slope + kernel._tilt
    bend = dense if kernel._bend is None else dense + kernel._bend.to_dense()
    return twin.NormalInner(made.psi_hat, slope, bend, prior, order, kernel._phi_center, kernel._phi_factor,
                            kernel._inner().walk_share, size, stay=kernel._stay, stretch=kernel._phi_stretch)
