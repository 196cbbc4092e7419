"""Rows of large minibatches, thinned by how far a move takes their predictors."""

import math
from dataclasses import replace

import numpy as np
import pytest

from chains import Lattice, logistic
from fastrace import mcmc
from fastrace._models._expanded import Expanded
from guarantee import assert_fits
from reference import mcmc as twin

THIRD = 1.0 / (6.0 * math.sqrt(3.0))


def softmax_data(n, p, k, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    eta = np.column_stack([np.zeros(n), 0.7 * X @ rng.standard_normal((p, k - 1))])
    return X, np.argmax(eta + rng.gumbel(size=eta.shape), axis=1)


class PlainSoftmax:
    """Residuals of the second-order expansion of the terms of a softmax regression."""

    def __init__(self, X, y, n_classes, reference):
        self.X, self.y, self.k, self.reference = X, y, n_classes, reference

    def predictors(self, theta, rows=slice(None)):
        return np.column_stack([np.zeros(len(self.X[rows])), self.X[rows] @ theta.reshape(self.k - 1, -1).T])

    def residuals(self, theta, rows=slice(None)):
        hat = self.predictors(self.reference.theta_hat, rows)
        eta, own = self.predictors(theta, rows), (np.arange(len(hat)), self.y[rows])
        p = np.exp(hat - np.logaddexp.reduce(hat, axis=1, keepdims=True))
        d = eta - hat
        first, second = (p * d).sum(axis=1), (p * d * d).sum(axis=1)
        log_sum = np.logaddexp.reduce(eta, axis=1) - np.logaddexp.reduce(hat, axis=1)
        return d[own] - log_sum - (d[own] - first - 0.5 * (second - first**2))

    def least(self, now, new, row):
        hat = self.predictors(self.reference.theta_hat, [row])
        return THIRD / 6.0 * sum(float(np.ptp(self.predictors(theta, [row]) - hat)) ** 3 for theta in (now, new))


def two_classes():
    X, y = logistic(3000, 16, 1)
    model = mcmc.GLM(X, y, prior_sd=3.0)
    reference = model.reference()
    assert not reference.shells
    lengths = np.linalg.norm(X @ reference.factor, axis=1)

    def least(now, new, row):
        moves = [X[row] @ (theta - reference.theta_hat) for theta in (now, new)]
        return reference.weights[row] / lengths[row] ** 3 * abs(moves[1] ** 3 - moves[0] ** 3) / 6.0

    return model, twin.Logistic(X, y, reference), least


def four_classes():
    X, y = softmax_data(3000, 7, 4, 2)
    model = mcmc.Softmax(X, y, prior_sd=3.0)
    plain = PlainSoftmax(X, y, 4, model.reference())
    return model, plain, plain.least


@pytest.mark.parametrize("made", [two_classes, four_classes])
def test_thinned_chains_are_their_twins(made):
    model, plain, least = made()
    kernel = mcmc.PoissonMinibatchMetropolis(model, proposal="crank-nicolson", size=0.8, walk_share=0.1)
    assert kernel._inverse_cubes is not None
    state = kernel.init(plain.reference.center + 0.01)
    _, steps = kernel.run(np.random.default_rng(4), state, 150)
    expected = twin.chain(plain, state.whitened, np.random.default_rng(4), 150, size=0.8, walk_share=0.1,
                          walk=2.38 / math.sqrt(model.dim), decide=twin.poisson_decision(plain, least))
    assert 20 < steps.accepted.sum() < 150 and (steps.rows > 16).mean() > 0.3
    np.testing.assert_allclose(steps.draws, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("wider", [300.0, 3000.0])
def test_thinned_rows_leave_the_target_of_four_points_as_it_is(wider):
    """Bounds are wider by a factor, which the predictors take off again: many rows are drawn and few kept."""
    lattice = Lattice()
    reference = lattice.model.reference()
    wide = replace(reference, weights=wider * reference.weights, shells=())
    kernel = mcmc.PoissonMinibatchMetropolis(lattice.model, proposal=lattice.propose, control_variate=wide,
                                             full_pass_at=1e9)
    kernel._inverse_cubes = lattice.model._inverse_cubes(reference) / np.float32(16.0 * wider)
    _, steps = kernel.run(np.random.default_rng(1), kernel.init(lattice.points[1]), 200)
    assert (steps.rows >= 16).mean() > 0.5 and not steps.full_pass.any()
    assert_fits(lattice.counts(kernel, 6000, 3, np.random.default_rng(5)), lattice.p)


@pytest.mark.parametrize("family", ["logistic", "poisson", "student-t", "probit", "cloglog",
                                    "negative-binomial", "gamma"])
def test_no_row_changes_by_more_than_its_predictors_let_it(family):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((2000, 3))
    eta = 0.5 * X[:, 0] - 0.3
    y = {"poisson": lambda: rng.poisson(np.exp(eta)), "student-t": lambda: eta + rng.standard_t(4.0, 2000),
         "negative-binomial": lambda: rng.poisson(np.exp(eta) * rng.gamma(2.0, 0.5, 2000)),
         "gamma": lambda: rng.gamma(2.0, np.exp(eta) / 2.0)}.get(
             family, lambda: (rng.random(2000) < 0.4).astype(float))()
    scale = {"student-t": 1.0, "negative-binomial": 2.0, "gamma": 2.0}.get(family)
    model = mcmc.GLM(X, y, family, prior_sd=3.0, **({} if scale is None else {"scale": scale}))
    reference = model.reference()
    thirds = reference.weights * model._inverse_cubes(reference)
    source, theta = model.engine(reference)
    assert isinstance(source, Expanded) and source.source.knows_moves
    largest = 0.0
    for _ in range(40):
        ends = [reference.theta_hat + reference.factor @ (rng.uniform(0.1, 1.5) * rng.standard_normal(3)) for _ in "ab"]
        theta[:] = ends
        before, after = source.read(np.arange(2000), [0, 1]).T
        moves = [X @ (end - reference.theta_hat) for end in ends]
        most = thirds * np.abs(moves[1] ** 3 - moves[0] ** 3) / 6.0
        largest = max(largest, float((np.abs(after - before) / (most + 1e-11)).max()))
    assert 0.3 < largest < 1.0 + 1e-6
