"""Directions in which parameters move and no row sees it: which there are, and bounds of rows without them."""

import pickle

import numpy as np
import pytest
from scipy import linalg, sparse

from fastrace import mcmc
from fastrace.mcmc.models._unseen import orthonormal, unseen_directions
from guarantee import assert_same_law
from reference import surrogate as twin

SEED = 20161125


def table(rng, n_rows, codes, own_slopes):
    """A model with an intercept, a slope that varies, and a column that is the same in all rows of a group."""
    same = rng.standard_normal(codes.max() + 1)[codes]
    X = np.column_stack([np.ones(n_rows), rng.standard_normal((n_rows, 2)), same])
    return X, mcmc.Groups(codes, slopes=X[:, 1] if own_slopes else [1])


def design_of(model):
    X = model._glm.X
    out = np.zeros((model.n_rows, model.n_seen))
    out[:, : model.n_columns] = X.toarray() if sparse.issparse(X) else X
    for f in model.factors:
        values = f.values(X, slice(0, model.n_rows))
        for k in range(f.width):
            out[np.arange(model.n_rows), f.start + f.width * f.codes + k] = values[:, k]
    return out


def null_space(design):
    return linalg.null_space(np.linalg.qr(design, mode="r"), rcond=1e-11).T


def same_span(ways, others):
    ways, others = linalg.orth(ways.T), linalg.orth(np.transpose(others))
    return ways.shape == others.shape and np.allclose(ways @ (ways.T @ others), others, atol=1e-8)


@pytest.mark.parametrize("own_slopes", [False, True])
@pytest.mark.parametrize("form", [np.asarray, np.float32, sparse.csr_array])
def test_directions_that_no_row_sees_are_the_null_space_of_one_factor(form, own_slopes):
    rng = np.random.default_rng(SEED)
    codes = rng.integers(6, size=9000)                                  # rows in three chunks
    codes[codes == 5] = rng.integers(5, size=(codes == 5).sum())
    codes[-3:] = 5                                                      # a group that appears in the last one alone
    X, groups = table(rng, 9000, codes, own_slopes)
    X[:, 2] = 1.0
    X[8500, 2] += 1e-6                                                  # constant but for one row
    X = np.asarray(X, dtype=np.float32) if form is np.float32 else X
    if own_slopes:
        groups = mcmc.Groups(codes, slopes=np.asarray(X[:, 1], dtype=np.float64))
    model = mcmc.GLM(form(X), rng.poisson(1.0, 9000), "poisson", groups=groups)
    ways = unseen_directions(model._glm.X, model.factors, model.n_seen)
    design = design_of(model)
    assert np.abs(design @ ways.T).max() < 1e-12
    assert len(ways) == 3 and same_span(ways, null_space(design))


def test_columns_of_a_sparse_table_that_begin_with_zeros():
    rng = np.random.default_rng(SEED)
    codes = np.sort(rng.integers(4, size=9000))
    late, some = (codes == 3) * 2.0, (codes == 3) * 1.0
    some[-1] = 0.0                                                      # not the same in all rows of a group
    X = sparse.csr_array(np.column_stack([late, some, np.zeros(9000), (codes == 0) * 1.0]))
    model = mcmc.GLM(X, rng.poisson(1.0, 9000), "poisson", groups=codes)
    ways = unseen_directions(model._glm.X, model.factors, model.n_seen)
    np.testing.assert_array_equal(ways, [[1, 0, 0, 0, 0, 0, 0, -2], [0, 0, 0, 1, -1, 0, 0, 0]])


def test_directions_are_orthonormal_once_others_are_left_out():
    rng = np.random.default_rng(SEED)
    codes = [rng.integers(k, size=500) for k in (4, 3)]
    X = np.column_stack([np.ones(500), np.full(500, 2.0), rng.standard_normal(500)])
    model = mcmc.GLM(X, rng.poisson(1.0, 500), "poisson", groups={"a": codes[0], "b": codes[1]})
    ways = unseen_directions(model._glm.X, model.factors, model.n_seen)
    metric = mcmc.compress(model).metric()
    few, held = orthonormal(ways, metric)
    assert len(ways) == 4 and len(few) == 3 and same_span(few, ways)
    np.testing.assert_allclose(few @ held.T, np.eye(3), atol=1e-9)
    np.testing.assert_allclose(held, few @ metric.to_dense(), atol=1e-9)
    assert orthonormal(np.empty((0, 4)), metric).shape == (2, 0, 4)


FAMILIES = [("logistic", {}), ("poisson", {}), ("gamma", {}), ("student-t", {"scale": 1.0}),
            ("logistic", {"offset": 0.3, "weights": 2.0})]


@pytest.mark.parametrize("own_slopes", [False, True])
@pytest.mark.parametrize(("family", "options"), FAMILIES)
def test_no_row_of_one_factor_changes_by_more_than_its_bound_however_far_a_move_is_that_it_does_not_see(
        family, options, own_slopes):
    rng = np.random.default_rng(SEED)
    n_rows, n_groups = 400, 4
    codes = rng.permutation(np.r_[np.arange(n_groups), rng.integers(n_groups, size=n_rows - n_groups)])
    X, groups = table(rng, n_rows, codes, own_slopes)
    eta = X @ [0.3, -0.5, 0.2, 0.4] + (0.5 * rng.standard_normal(n_groups))[codes]
    y = {"logistic": lambda: rng.random(n_rows) < 1 / (1 + np.exp(-eta)), "poisson": lambda: rng.poisson(np.exp(eta)),
         "gamma": lambda: rng.gamma(2.0, np.exp(eta)), "student-t": lambda: eta + rng.standard_normal(n_rows)}[family]()
    options = {name: np.full(n_rows, value) if name != "scale" else value for name, value in options.items()}
    model = mcmc.GLM(X, y * 1.0, family, groups=groups, prior=mcmc.Normal(0.0, 2.0),
                     group_prior=mcmc.HalfNormal(1.0), **options)
    kernel = mcmc.SurrogateMetropolis(model, decision="poisson")
    made, model = kernel.compressed, kernel.model
    metric, design, n = made.metric().to_dense(), design_of(kernel.model), kernel.model.n_seen
    effects = model.factors[0]
    block = slice(effects.start, effects.stop)
    order = np.r_[np.arange(n)[block], np.delete(np.arange(n), np.arange(n)[block])]
    root = np.linalg.cholesky(metric[np.ix_(order, order)])
    unseen = np.zeros((3, n))
    unseen[:, : n - model.learns_scale] = null_space(design[:, : n - model.learns_scale])
    weights, radius = (kernel.reference.weights, kernel.reference.radius) if not kernel._shells else (
        kernel._shells[0][1], kernel._shells[0][0])
    source, theta = model.engine(kernel.reference)
    covariance, closest, checked = np.linalg.cholesky(np.linalg.inv(metric)), 0.0, 0

    def seen_by_rows(step):
        z = np.empty(n)
        z[order] = root.T @ twin.seen_part(step, unseen, metric)[order]
        own = z[block].reshape(effects.n_groups, effects.width)
        return np.column_stack([np.tile(np.delete(z, np.arange(n)[block]), (effects.n_groups, 1)), own])[codes]

    for size in (0.05, 0.5, 1.0):
        for far in (1.0, 30.0, 3000.0):
            for _ in range(20):
                before = covariance @ rng.standard_normal(n)
                after = np.sqrt(1.0 - size**2) * before + size * (covariance @ rng.standard_normal(n))
                further = far * rng.standard_normal((2, len(unseen)))
                theta[:] = made.psi_hat + np.array([before, after]) + further @ unseen
                z0, z1 = (seen_by_rows(psi - made.psi_hat) for psi in theta)
                inside = max(np.square(z).sum(axis=1).max() for z in (z0, z1)) <= radius**2
                first, second = source.read(np.arange(n_rows), [0, 1]).T
                bounds = weights * [twin.cubic_change(a @ a, a @ b, b @ b, (b - a) @ (b - a))
                                    for a, b in zip(z0, z1, strict=True)]
                assert not inside or (np.abs(second - first) <= bounds + 10.0 * kernel.reference.rounding).all()
                closest, checked = max(closest, (np.abs(second - first) / (bounds + 1e-9)).max()), checked + inside
    assert checked > 100 and closest > 0.01


def few_groups(rng, n_rows, crossed, slopes=False, family="logistic"):
    X = np.column_stack([np.ones(n_rows), rng.standard_normal(n_rows)])
    codes = rng.integers(3, size=n_rows)
    eta = X @ [-0.3, 0.4] + np.array([-0.15, 0.0, 0.1])[codes]
    groups = {"a": mcmc.Groups(codes, slopes=[1] if slopes else None)}
    if crossed:
        groups["b"] = mcmc.Groups(rng.integers(4, size=n_rows))
        eta = eta + np.array([0.1, 0.0, -0.1, 0.05])[groups["b"].codes]
    y = rng.poisson(np.exp(eta)) if family == "poisson" else rng.random(n_rows) < 1 / (1 + np.exp(-eta))
    return mcmc.GLM(X, y, family, groups=groups)


@pytest.mark.parametrize(("family", "crossed"), [("poisson", False), ("logistic", True), ("poisson", True)])
def test_an_intercept_far_out_against_few_groups_costs_no_full_pass(family, crossed):
    """How far three groups spread is hardly known, and with it how far the intercept goes against all effects."""
    rng = np.random.default_rng(SEED)
    kernel = mcmc.SurrogateMetropolis(few_groups(rng, 20_000, crossed, family=family))
    assert kernel.decision == "poisson"
    _, steps = kernel.run(rng, kernel.init(None, rng), 2000)
    assert (steps.rows == 20_000).mean() < 0.004        # 0; .1 to .2 where bounds were of each parameter
    assert steps.rows.mean() < 100


@pytest.mark.parametrize(("crossed", "slopes"), [(False, True), (True, False)])
def test_minibatches_without_what_no_row_sees_leave_what_exact_decisions_leave(crossed, slopes):
    rng = np.random.default_rng(SEED)
    model, draws = few_groups(rng, 250, crossed, slopes), []
    for decision in ("exact", "poisson"):
        kernel = mcmc.SurrogateMetropolis(model, decision=decision)
        kernel._shifts = kernel._along = None
        state, _ = kernel.run(rng, kernel.init(None, rng), 200)
        draws.append(kernel.run(rng, state, 16_000)[1].draws)
    assert_same_law(*draws)


@pytest.mark.parametrize("crossed", [False, True])
def test_kernels_saved_before_directions_were_kept_run_as_they_did(crossed):
    kernel = mcmc.SurrogateMetropolis(few_groups(np.random.default_rng(SEED), 20_000, crossed, family="poisson"),
                                      decision="poisson")
    old = pickle.loads(pickle.dumps(kernel))
    np.testing.assert_array_equal(old._unseen, kernel._unseen)
    for name in ("_unseen", "_wider"):
        old.__dict__.pop(name, None)
    full = []
    for own in (kernel, old):
        rng = np.random.default_rng(1)
        full.append((own.run(rng, own.init(None, rng), 2000)[1].rows == 20_000).mean())
    assert full[0] < 0.004 and full[1] > 0.01
