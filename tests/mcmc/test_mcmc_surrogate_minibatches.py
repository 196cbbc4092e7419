"""Bounds of rows on surrogates in blocks, and the minibatches drawn by them."""

import pickle
from fractions import Fraction

import numpy as np
import pytest

from fastrace import mcmc
from fastrace.mcmc.kernels import _surrogate_decisions, _surrogate_moves
from fastrace.mcmc.kernels._minibatch import BlockTable
from reference import surrogate as twin
from reference.mcmc import RowStream
from surrogates import SEED, grouped, grouped_data, plain_inner


def test_lengths_of_rows_are_those_of_exact_arithmetic_where_columns_are_nearly_collinear():
    rng = np.random.default_rng(SEED)
    X, codes, y = grouped_data(rng, 3000, 4)
    X = np.column_stack([X, X[:, 1] + 1e-6 * rng.standard_normal(3000)])
    kernel = mcmc.SurrogateMetropolis(grouped(X, codes, y, coefficient_sd=1e8), decision="poisson")
    factor, table = kernel.compressed.factor(), np.column_stack([X, np.eye(4)[codes]])
    order = np.r_[3:7, 0:3]                         # the factor is lower triangular, and exact as it stands
    lower = [[Fraction(x) for x in factor.whiten(unit)[order].tolist()] for unit in np.eye(7)[order]]
    assert np.linalg.cond(kernel.compressed.metric().to_dense()) > 1e12
    for row, length in zip(table[:40, order].tolist(), kernel._lengths_of_rows().tolist(), strict=False):
        z = []
        for i, x in enumerate(row):
            z.append((Fraction(x) - sum(lower[i][j] * z[j] for j in range(i))) / lower[i][i])
        short = 1 - Fraction(length) ** 2 / sum(number**2 for number in z)
        assert abs(short) / 2 < 3e-10               # its cube is within the margin of `cubic_change`


@pytest.mark.parametrize("family", ["logistic", "gamma"])
@pytest.mark.parametrize("slopes", [False, True])
def test_bounds_in_blocks_need_no_dense_root(family, slopes):
    rng = np.random.default_rng(SEED)
    X, codes, y = grouped_data(rng, 5000, 60)
    y = y if family == "logistic" else rng.gamma(2.0, np.exp(0.3 * X[:, 1] - y))
    groups = mcmc.Groups(codes, slopes=[1]) if slopes else codes
    model = mcmc.GLM(X, y, family, groups=groups, prior=mcmc.Normal(0.0, 2.0), group_prior=mcmc.HalfNormal(1.0))
    kernel = mcmc.SurrogateMetropolis(model, decision="poisson")
    made, about = kernel.compressed, kernel.reference
    assert about.factor.size == 0 and kernel.model.learns_scale == (family == "gamma")
    weights, radius, _, *shells = kernel.model._bounds(np.array(made.psi_hat), made.covariance_root())
    np.testing.assert_allclose(about.weights, weights, rtol=1e-8)
    assert about.radius == radius and len(shells) == len(about.shells)
    for found, plain in zip(about.shells, shells, strict=True):
        np.testing.assert_allclose(found[1], plain[1], rtol=1e-8)
    kernel = pickle.loads(pickle.dumps(kernel))
    state, _ = kernel.run(rng, kernel.init(rng=1), 30)
    assert np.isfinite(state.position).all()


@pytest.mark.parametrize(("radii", "wider", "thin"), [
    ((), 1.0, False), ((), 2.0, False), ((1.6, 2.4), 1.5, False), ((1.6, 2.4), 60.0, True)])
def test_minibatches_by_blocks_are_their_twin(radii, wider, thin, monkeypatch):
    monkeypatch.setattr(_surrogate_moves, "LEAN", 0.0)
    rng = np.random.default_rng(SEED)
    X, codes, y = grouped_data(rng, 4000, 4)
    kernel = mcmc.SurrogateMetropolis(grouped(X, codes, y), decision="poisson")
    kernel._walks, kernel._engines, kernel._wider = None, [], wider
    made, about = kernel.compressed, kernel.reference
    lengths = kernel.model._lengths(made.covariance_root())
    np.testing.assert_allclose(kernel._lengths_of_rows(), lengths, rtol=1e-8)
    within = [(radius, kernel.model._weights_within(made.psi_hat, lengths, radius)) for radius in radii]
    kernel._balls = tuple((radius, BlockTable(weights, codes, 4)) for radius, weights in within)
    balls = [(radius, twin.Blocks(weights, codes, 4)) for radius, weights in within]
    kernel._inverse_cubes = kernel._cubes_of_rows() if thin else None
    order = np.r_[2:6, 0:2]
    plain = plain_inner(kernel, twin.Prior([2.0, 2.0], [(4, [1.0])]), order)
    metric = made.metric().to_dense()
    root = np.linalg.cholesky(metric[np.ix_(order, order)])
    blocks = twin.Blocks(about.shells[0][1] if about.shells else about.weights, codes, 4)
    table = np.column_stack([X, np.eye(4)[codes]])

    def residual(row, psi):
        return twin.logistic_residual(table[row], y[row], made.psi_hat, psi)

    unseen = np.array([[1.0, 0.0, -1.0, -1.0, -1.0, -1.0]])     # the intercept against the effects of all groups

    def whitened(psi):
        z = np.empty(6)
        z[order] = root.T @ twin.seen_part(psi - made.psi_hat, unseen, metric)[order]
        return z

    state = kernel.init(np.r_[made.psi_hat, np.exp(kernel._phi_center)])
    _, steps = kernel.run(np.random.default_rng(3), state, 60)
    stream, theta = np.random.default_rng(3), state.position
    for draw, accepted, rows in zip(kernel.model.unconstrain(steps.draws), steps.accepted, steps.rows, strict=True):
        own = RowStream(int(stream.bit_generator.random_raw()))
        level = -stream.standard_exponential()
        new = plain.move(theta, stream)
        level += (new - theta)[:6] @ kernel._tilt

        def least(row, weight, now=theta, to=new):
            moves = [table[row] @ (end[:6] - made.psi_hat) for end in (now, to)]
            return weight / lengths[row] ** 3 * abs(moves[1] ** 3 - moves[0] ** 3) / 6.0

        took, read = twin.minibatch(
            own, blocks, whitened(theta[:6]), whitened(new[:6]), np.arange(2), [[2 + g] for g in range(4)],
            lambda row, now=theta, to=new: residual(row, to[:6]) - residual(row, now[:6]), level,
            balls, wider, least if thin else None)
        assert (took, read) == (accepted, rows)
        theta = new if took else theta
        np.testing.assert_allclose(draw, theta, rtol=1e-6, atol=1e-6)
    assert steps.rows.max() > 0 and (steps.rows.mean() > 16.0 or not thin)


def test_bounds_of_one_factor_are_widened_where_minibatches_would_refuse_most_moves(monkeypatch):
    rng = np.random.default_rng(SEED)
    X, codes = np.column_stack([np.ones(20_000), rng.standard_normal(20_000)]), rng.integers(300, size=20_000)
    eta = X @ [-0.3, 0.3] + (0.5 * rng.standard_normal(300))[codes]
    model, accepted, read = mcmc.GLM(X, rng.random(20_000) < 1 / (1 + np.exp(-eta)), groups=codes), [], []
    for wide in (True, False):
        if not wide:
            monkeypatch.setattr(_surrogate_decisions.DecidedByRows, "_widening", lambda *given: 1.0)
        kernel = mcmc.SurrogateMetropolis(model, decision="poisson")
        _, steps = kernel.run(rng, kernel.init(None, rng), 1500)
        accepted.append(steps.accepted.mean())
        read.append(steps.rows.mean())
        assert pickle.loads(pickle.dumps(kernel))._wider == kernel._wider and (kernel._wider > 1.5) == wide
    assert accepted[0] > accepted[1] + 0.1 and read[0] < 0.05 * 20_000
