"""What the second-order expansion of a softmax regression leaves: sums that are exact, and bounds that always hold."""

import math
import pickle

import numpy as np
import pytest
from scipy import optimize, sparse

import fastrace as fr
from fastrace import mcmc
from fastrace._models.softmax_sums import THIRD
from fastrace.control_variates import ControlVariate, SoftmaxSource, TaylorSurrogate, taylor_glm
from fastrace.likelihoods import GLMSource, PairSource
from reference import mcmc as twin

N, P = 600, 3


def model(rng, n_classes=4, spread=0.1, n_arms=3, kind="dense", beside=True):
    X = rng.standard_normal((N, P)) * (rng.random((N, P)) < 0.7)
    hat = 0.5 * rng.standard_normal((n_classes - 1) * P)
    more = {"offset": rng.standard_normal((N, n_classes - 1)), "weights": rng.integers(0, 4, N)} if beside else {}
    theta = hat + spread * rng.standard_normal((n_arms, len(hat)))
    X = {"dense": X, "float32": X.astype(np.float32), "sparse": sparse.csr_array(X)}[kind]
    return SoftmaxSource(X, rng.integers(0, n_classes, N), theta, n_classes, **more), hat


def by_twin(source, hat, theta):
    """Terms and their expansions at one vector of parameters, in NumPy."""
    X = source.rows.X.toarray() if hasattr(source.rows.X, "nnz") else np.asarray(source.rows.X, dtype=float)
    offset = 0.0 if source.offset is None else np.column_stack([np.zeros(N), source.offset])
    weights = 1.0 if source.rows.weights is None else source.rows.weights
    y = source.rows.y.astype(int)
    return (twin.softmax_terms(X, y, theta, offset, weights),
            twin.softmax_expansion(X, y, hat, theta, offset, weights))


# Sums


@pytest.mark.parametrize("kind", ["dense", "float32", "sparse"])
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_an_expansion_is_its_twin_row_by_row(n_classes, kind, rng):
    source, hat = model(rng, n_classes, kind=kind)
    control, order = taylor_glm(source, hat), rng.permutation(N)
    for arm, theta in enumerate(source.theta):
        terms, near = by_twin(source, hat, theta)
        np.testing.assert_allclose(source.read(order)[:, arm], terms[order], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(control.surrogate.read(order)[:, arm], near[order], rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(control.read(order)[:, arm], (terms - near)[order], rtol=0, atol=1e-11)
        assert control.surrogate.totals()[arm] == pytest.approx(math.fsum(near), rel=1e-12)
        assert control.shifts()[arm] == pytest.approx(math.fsum(near), rel=1e-12)


@pytest.mark.parametrize("outliers", [0.0, 0.05, 0.5])
def test_residuals_and_shifts_are_the_sums(outliers, rng):
    source, hat = model(rng)
    control = taylor_glm(source, hat, outliers)
    assert len(control.always_read) == round(outliers * N)
    for spread in (0.1, 1.0):
        source.theta = hat + spread * rng.standard_normal((3, 9))
        summed = control.read(np.arange(control.n_rows)).sum(axis=0)
        np.testing.assert_allclose(summed + control.shifts(), source.totals(), rtol=1e-12)
        np.testing.assert_allclose(control.totals(), source.totals(), rtol=1e-12)
    pair = PairSource(control, 2, 0)
    assert pair.totals()[0] == pytest.approx(source.totals()[0] - source.totals()[2], rel=1e-9)


def test_two_classes_are_a_logistic_regression(rng):
    source, hat = model(rng, 2, beside=False)
    X, y = np.asarray(source.rows.X), source.rows.y
    known = taylor_glm(GLMSource(X, y, source.theta), hat, 0.02)
    control = taylor_glm(source, hat, 0.02)
    np.testing.assert_array_equal(control.always_read, known.always_read)
    np.testing.assert_allclose(control.read(np.arange(control.n_rows)), known.read(np.arange(control.n_rows)),
                               atol=1e-13)
    np.testing.assert_allclose(control.surrogate.hessian, known.surrogate.hessian, rtol=1e-10)
    np.testing.assert_allclose(control.surrogate.distances(), known.surrogate.distances(), rtol=1e-9)
    np.testing.assert_allclose(control.residual_support(), known.residual_support(), rtol=1e-8)
    np.testing.assert_allclose(control.difference_support(0, 2), known.difference_support(0, 2), rtol=1e-8)
    np.testing.assert_allclose(control.surrogate.residual_bound(), known.surrogate.residual_bound(), rtol=1e-8)


# Bounds


@pytest.mark.parametrize("spread", [1e-8, 1e-3, 0.1, 2.0, 30.0])
@pytest.mark.parametrize("outliers", [0.0, 0.1])
@pytest.mark.parametrize("beside", [False, True])
def test_no_residual_is_outside_its_bounds(beside, outliers, spread, rng):
    source, hat = model(rng, spread=spread, n_arms=12, beside=beside)
    control = taylor_glm(source, hat, outliers)
    left = control.read(np.arange(control.n_rows))
    low, high = control.residual_support()
    assert (low <= left.min(axis=0)).all() and (left.max(axis=0) <= high).all()
    bound = control.surrogate.residual_bound(control.always_read)
    assert (np.abs(left).max(axis=0) <= bound).all()
    for arm in range(1, 12):
        lowest, highest = control.difference_support(arm - 1, arm)
        between = left[:, arm] - left[:, arm - 1]
        assert lowest <= between.min() and between.max() <= highest
    if spread == 0.1:
        assert (bound < 60 * np.abs(left).max(axis=0)).all()
        assert (bound <= control.surrogate.residual_bound()).all()


@pytest.mark.parametrize("n_classes", [2, 3, 4])
def test_the_bound_on_one_row_is_the_largest_residual_that_a_search_finds(n_classes):
    """One row of one column: classes as far apart as they can be at the point of expansion, sought from many starts."""
    free, best = n_classes - 1, 0.0
    step = 0.01
    for child in np.random.SeedSequence(1).spawn(12):
        rng = np.random.default_rng(child)

        def residual(x, free=free):
            """Of a step of range 1 times `step`: from a hat of any kind, in any direction."""
            hat, d = x[:free], np.concatenate([[0.0], x[free:]])
            spread = np.ptp(d)
            if spread == 0.0:
                return 0.0
            move = step * d / spread
            source = SoftmaxSource(np.ones((1, 1)), [0], hat + move[1:] - move[0], n_classes)
            left = taylor_glm(source, hat).read([0])[0, 0]
            return -abs(left)

        found = optimize.minimize(residual, 2.0 * rng.standard_normal(2 * free), method="Nelder-Mead",
                                  options={"xatol": 1e-6, "fatol": 1e-14, "maxfev": 1500})
        best = max(best, -found.fun)
    assert 0.98 * THIRD * step**3 / 6.0 < best < (1.0 + 1e-6) * THIRD * step**3 / 6.0 + 1e-13


def test_steps_along_the_longest_row_come_near_the_bound_of_all_rows(rng):
    """Adversarial steps: the two classes that can move farthest apart in the row of the largest distance."""
    source, hat = model(rng, n_classes=3, beside=False)
    control = taylor_glm(source, hat)
    surrogate = control.surrogate
    far, inverse = int(surrogate.distances().argmax()), np.linalg.inv(-surrogate.hessian)
    ratios = []
    for j, k in [(0, 1), (0, 2), (1, 2)]:
        apart = np.zeros((3, P))
        apart[k], apart[j] = source.rows.X[far], -source.rows.X[far]
        step = inverse @ apart[1:].ravel()
        for size in np.concatenate([np.geomspace(0.01, 100.0, 40), -np.geomspace(0.01, 100.0, 40)]):
            source.theta = np.vstack([hat, hat + size * step, hat - size * step])
            left = control.read(np.arange(N))
            low, high = control.residual_support()
            assert (low <= left.min(axis=0)).all() and (left.max(axis=0) <= high).all()
            lowest, highest = control.difference_support(1, 2)
            assert lowest <= (left[:, 2] - left[:, 1]).min() and (left[:, 2] - left[:, 1]).max() <= highest
            ratios.append(np.abs(left[:, 1]).max() / high[1])
    assert 0.1 < max(ratios) <= 1.0


def test_far_predictors_round_no_farther_than_is_said(rng):
    """Predictors of 10^7: a row's term is near 0, and is still a difference of such numbers."""
    X = np.column_stack([np.ones(N), rng.standard_normal(N)])
    hat = np.array([1e7, 1.0, 1e7, -1.0])
    source = SoftmaxSource(X, rng.integers(1, 3, N), hat + 1e-9 * rng.standard_normal((20, 4)), 3)
    control = taylor_glm(source, hat)
    left = control.read(np.arange(N))
    low, high = control.residual_support()
    assert 1e-10 < np.abs(left).max() < mcmc.Softmax(X, source.rows.y.astype(int), 3)._rounding(hat)
    assert (low <= left.min(axis=0)).all() and (left.max(axis=0) <= high).all()


def test_a_model_and_its_source_have_the_same_bounds(rng):
    source, hat = model(rng, beside=False)
    surrogate = TaylorSurrogate(source, hat)
    known = mcmc.Softmax(source.rows.X, source.rows.y.astype(int))
    value, gradient, hessian = known._expand(hat)
    assert surrogate.value == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(surrogate.gradient, gradient, atol=1e-9)
    np.testing.assert_allclose(surrogate.hessian, hessian, atol=1e-9)
    factor = np.linalg.inv(np.linalg.cholesky(-hessian)).T
    np.testing.assert_allclose(THIRD * surrogate.distances() ** 3, known._bounds(hat, factor)[0], rtol=1e-6)


def test_rows_seen_often_have_bounds_so_many_times_as_wide(rng):
    source, hat = model(rng, spread=0.5)
    X, y, times = np.asarray(source.rows.X), source.rows.y, source.rows.weights
    seen = times > 0
    each = SoftmaxSource(np.repeat(X, times.astype(int), axis=0), np.repeat(y, times.astype(int)), source.theta, 4,
                         offset=np.repeat(source.offset, times.astype(int), axis=0))
    once, often = TaylorSurrogate(each, hat), TaylorSurrogate(source, hat)
    np.testing.assert_allclose(often.hessian, once.hessian, rtol=1e-9, atol=1e-9)
    first = np.concatenate([[0], np.cumsum(times).astype(int)])[:-1][seen]
    np.testing.assert_allclose(often.distances()[seen] ** 3, times[seen] * once.distances()[first] ** 3, rtol=1e-8)
    assert (often.distances()[~seen] == 0.0).all()


def test_collinear_columns_are_no_obstacle(rng):
    source, hat = model(rng, 3, beside=False)
    X = np.column_stack([source.rows.X, source.rows.X[:, 0]])
    theta = np.insert(source.theta, [3, 6], 0.0, axis=1)
    control = taylor_glm(SoftmaxSource(X, source.rows.y, theta), np.insert(hat, [3, 6], 0.0), 0.05)
    left, bound = control.read(np.arange(control.n_rows)), control.residual_support()[1]
    assert (np.abs(left).max(axis=0) <= bound).all() and (bound < 1.0).all()
    np.testing.assert_allclose(left.sum(axis=0) + control.shifts(), source.totals(), rtol=1e-10)


# What it is given, and how it is saved


def test_parameters_are_copied_and_may_be_replaced(rng):
    theta = np.zeros((2, 6))
    source = SoftmaxSource(rng.standard_normal((20, 3)), np.arange(20) % 3, theta)
    theta[:] = np.nan
    assert source.totals() == pytest.approx([-20.0 * math.log(3.0)] * 2)
    source.theta = np.ones((2, 6))
    assert (source.theta == 1.0).all()
    source.theta[:] = 3.0                   # a copy
    assert (source.theta == 1.0).all()
    assert SoftmaxSource(np.ones((2, 1)), [0, 1]).theta.tolist() == [[0.0]]
    assert SoftmaxSource(np.ones((2, 1)), [0, 1], n_classes=4).theta.shape == (1, 3)


@pytest.mark.parametrize(("change", "words"), [
    ({"y": [0, 1, 2, 3, 1]}, r"y\[3\] is 3; classes must be whole numbers from 0 to 2"),
    ({"y": [0, 1, -1, 2, 1]}, r"y\[2\] is -1"),
    ({"y": [0, 1, 0.5, 2, 1]}, r"y\[2\] is 0.5"),
    ({"y": [0, 1, math.nan, 2, 1]}, r"y\[2\] is nan"),
    ({"y": [0, 1]}, r"y has shape \(2,\)"),
    ({"y": ["a", "b", "a", "c", "b"]}, "y has shape"),
    ({"y": [0] * 5, "n_classes": 1}, "n_classes is 1"),
    ({"y": [0, 10**6, 0, 0, 0], "n_classes": None}, "without gaps"),
    ({"X": np.zeros((0, 2)), "y": [], "n_classes": 10**13}, "bytes of memory"),
    ({"X": [[math.nan, 0.0]] * 5}, "finite"),
    ({"theta": np.zeros((2, 3))}, r"theta has shape \(2, 3\); \(2, 4\) is needed: .* of 2 columns"),
    ({"y": [1, 2, 3, 1, 2], "n_classes": None, "theta": np.zeros((2, 4))}, "from 0, and the largest of y is 3"),
    ({"theta": [[0.0, 0.0, 0.0, math.inf]]}, "parameters must be finite"),
    ({"offset": np.zeros((5, 3))}, r"offset has shape \(5, 3\)"),
    ({"offset": np.full((5, 2), math.nan)}, r"offset\[0, 0\] is nan"),
    ({"weights": [1, 1, -1, 1, 1]}, "weights"),
])
def test_bad_rows_are_refused_in_words(change, words):
    given = {"X": np.ones((5, 2)), "y": [0, 1, 2, 0, 1], "theta": np.zeros((2, 4)), "n_classes": 3} | change
    if "theta" not in change and given["n_classes"] != 3:
        given["theta"] = None
    with pytest.raises(ValueError, match=words):
        SoftmaxSource(**given)


def test_bad_points_and_models_are_refused_in_words(rng):
    source, hat = model(rng)
    for point in (hat[:-1], hat[None], np.full(9, math.nan)):
        with pytest.raises(ValueError, match="9 finite parameters"):
            taylor_glm(source, point)
    with pytest.raises(ValueError, match="theta has shape"):
        source.theta = np.zeros((3, 8))
    with pytest.raises(ValueError, match="parameters must be finite"):
        source.theta = np.full((3, 9), math.nan)
    with pytest.raises(TypeError, match="a GLMSource or a SoftmaxSource"):
        taylor_glm(fr.sources.ArraySource(np.ones((5, 2))), hat)
    with pytest.raises(ValueError, match="outliers is 1"):
        taylor_glm(source, hat, 1.0)


def test_pickles(rng):
    source, hat = model(rng)
    control = taylor_glm(source, hat, 0.1, support=(-1, 1))
    again = pickle.loads(pickle.dumps(control))
    assert again.support == (-1, 1) and isinstance(again, ControlVariate)
    np.testing.assert_array_equal(again.read(np.arange(500)), control.read(np.arange(500)))
    np.testing.assert_array_equal(again.totals(), control.totals())
    np.testing.assert_array_equal(again.residual_support(), control.residual_support())
    again.source.theta = np.zeros((3, 9))       # the copied surrogate follows the copied model
    assert (again.source.totals() != source.totals()).all()
    np.testing.assert_allclose(again.totals(), again.source.totals(), rtol=1e-12)


def test_shares_that_round_to_one_leave_a_metric():
    hat = [37.0, 0.0]
    source = SoftmaxSource(np.ones((1000, 1)), np.r_[0, 2, np.ones(998, dtype=int)], [hat])
    assert np.isfinite(taylor_glm(source, hat).residual_support()).all()
