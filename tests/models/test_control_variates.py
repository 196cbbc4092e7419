"""Residuals plus shift are the rewards: exactly, for every way to make a control variate."""

import math
import pickle

import numpy as np
import pytest

from fastrace.control_variates import BinnedTaylor, ControlVariate, TaylorSurrogate, taylor_glm
from fastrace.likelihoods import GLMSource, PairSource
from fastrace.sources import ArraySource, CallableSource
from reference import sources as twin

FAMILIES = ["logistic", "gaussian", "poisson", "student-t"]
N = 600


def model(rng, family, dtype=np.float64, spread=0.1):
    X = rng.standard_normal((N, 5)).astype(dtype)
    hat = 0.3 * rng.standard_normal(5)
    eta = X @ hat
    y = {"logistic": lambda: (rng.random(N) < 1 / (1 + np.exp(-eta))).astype(float),
         "gaussian": lambda: eta + 2.0 * rng.standard_normal(N),
         "poisson": lambda: rng.poisson(np.exp(eta)).astype(float),
         "student-t": lambda: eta + rng.standard_t(4, N)}[family]()
    theta = hat + spread * rng.standard_normal((3, 5))
    return GLMSource(X, y, theta, family, scale=1.5, df=3.5), hat


def assert_same_sums(control, source):
    """The mean identity: read one by one, in a full pass, and through part of the arms."""
    exact = source.totals()
    size = np.abs(source.read(np.arange(source.n_rows))).sum(axis=0) + 1e-300
    summed = np.array([math.fsum(column) for column in control.read(np.arange(control.n_rows)).T])
    assert np.max(np.abs(summed + control.shifts() - exact) / size) < 1e-12
    assert np.max(np.abs(control.totals() - exact) / size) < 1e-12
    arms = np.arange(source.n_arms)[::-2]
    assert np.max(np.abs(control.totals(arms) - exact[arms]) / size[arms]) < 1e-12
    np.testing.assert_array_equal(control.shifts(arms), control.shifts()[arms])


# Any source and any surrogate


@pytest.mark.parametrize("always_read", [None, [], [599], [3, 17, 3, 0], np.arange(300, 600), np.arange(N)])
def test_any_surrogate(always_read, rng):
    values = rng.standard_normal((N, 4))
    near = values + 0.01 * rng.standard_normal((N, 4))
    source, surrogate = ArraySource(values), ArraySource(near)
    control = ControlVariate(source, surrogate, always_read=always_read)
    kept = np.setdiff1d(np.arange(N), always_read if always_read is not None else [])
    assert control.n_rows == len(kept)
    assert control.always_read.tolist() == np.setdiff1d(np.arange(N), kept).tolist()
    np.testing.assert_array_equal(control.read(np.arange(len(kept))), (values - near)[kept])
    if len(kept):
        rows, arms = rng.integers(0, len(kept), 50), [3, 1]
        np.testing.assert_array_equal(control.read(rows, arms), (values - near)[kept][np.ix_(rows, arms)])
    removed = np.setdiff1d(np.arange(N), kept)
    np.testing.assert_allclose(control.shifts(), values[removed].sum(axis=0) + near[kept].sum(axis=0), rtol=1e-11)
    assert_same_sums(control, source)


def test_in_order_reading_agrees_with_reading_by_number(rng):
    values = rng.standard_normal((5000, 2))
    source = ArraySource(values)
    for surrogate in (ArraySource(np.round(values, 1)),
                      CallableSource(lambda arms, rows: np.round(values, 1)[np.ix_(rows, arms)], 2, 5000)):
        control = ControlVariate(source, surrogate, always_read=np.arange(0, 5000, 7))
        # The total of a pair of nested differences is taken by ranges.
        nested = ControlVariate(control, ArraySource(np.zeros((control.n_rows, 2))))
        np.testing.assert_allclose(nested.totals(), source.totals(), rtol=1e-11)
        np.testing.assert_allclose(nested.shifts(), control.shifts(), rtol=1e-13)


def test_given_totals_replace_the_full_pass(rng):
    values = rng.standard_normal((N, 3))
    near = np.round(values, 1)

    def refuse(arms, rows):
        assert len(rows) < 100, "a full pass over the surrogate"
        return near[np.ix_(rows, arms)]

    sums = near.sum(axis=0)
    surrogate = CallableSource(refuse, 3, N)
    for totals in (sums, sums.tolist(), lambda: sums):
        control = ControlVariate(ArraySource(values), surrogate, totals, always_read=[5, 7])
        np.testing.assert_allclose(control.totals(), values.sum(axis=0), rtol=1e-11)
        np.testing.assert_allclose(control.shifts([2]), (sums + (values - near)[[5, 7]].sum(axis=0))[2:], rtol=1e-12)


def test_totals_that_do_not_fit(rng):
    source = ArraySource(rng.random((5, 2)))
    for totals in ([1.0], [1.0, math.nan], [[1.0, 2.0]]):
        with pytest.raises(ValueError, match="one finite sum for each of the 2 arms"):
            ControlVariate(source, source, totals)
    with pytest.raises(ValueError, match="one finite sum"):
        ControlVariate(source, source, lambda: None).shifts()


def test_an_exception_of_the_surrogate_arrives(rng):
    error = LookupError("mine")

    def fail(arms, rows):
        raise error

    control = ControlVariate(ArraySource(rng.random((5, 2))), CallableSource(fail, 2, 5), always_read=[1])
    for read in (lambda: control.read([0]), control.totals, control.shifts):
        with pytest.raises(LookupError) as caught:
            read()
        assert caught.value is error


@pytest.mark.parametrize("change, words", [
    ({"surrogate": ArraySource(np.zeros((5, 3)))}, "3 arms and 5 rows, the source has 2 and 5"),
    ({"surrogate": ArraySource(np.zeros((4, 2)))}, "2 arms and 4 rows"),
    ({"always_read": [5]}, r"within \[0, 5\)"),
    ({"always_read": [-1]}, "runs from -1"),
    ({"always_read": [0.5]}, "float64"),
    ({"always_read": [[0]]}, r"shape \(1, 1\)"),
])
def test_bad_arguments(change, words):
    source = ArraySource(np.zeros((5, 2)))
    with pytest.raises(ValueError, match=words):
        ControlVariate(**({"source": source, "surrogate": source} | change))


def test_none_is_no_source():
    with pytest.raises(TypeError):
        ControlVariate(None, ArraySource(np.zeros((5, 2))))


# Expansion in the parameters


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_taylor_equals_its_twin(family, dtype, rng):
    glm, hat = model(rng, family, dtype)
    surrogate = TaylorSurrogate(glm, hat)
    rows, arms = rng.integers(0, N, 60), [2, 0]
    expected = twin.taylor_glm(glm.X, glm.y, glm.theta, hat, family, rows, arms, 1.5, 3.5)
    np.testing.assert_allclose(surrogate.read(rows, arms), expected, rtol=1e-11, atol=1e-12)
    control = taylor_glm(glm, hat)
    np.testing.assert_allclose(control.read(rows, arms), glm.read(rows, arms) - expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("layout", [np.ascontiguousarray, np.asfortranarray])
def test_taylor_sums_cost_no_pass_and_are_exact(family, layout, rng):
    glm, hat = model(rng, family)
    glm = GLMSource(layout(glm.X), glm.y, glm.theta, family, 1.5, 3.5)
    surrogate = TaylorSurrogate(glm, hat)
    exact = np.array([math.fsum(column) for column in surrogate.read(np.arange(N)).T])
    np.testing.assert_allclose(surrogate.totals(), exact, rtol=1e-12)
    glm.theta = hat + rng.standard_normal((3, 5))
    exact = np.array([math.fsum(column) for column in surrogate.read(np.arange(N)).T])
    np.testing.assert_allclose(surrogate.totals(), exact, rtol=1e-12)
    np.testing.assert_allclose(surrogate.totals([1]), exact[1:2], rtol=1e-12)
    value, slope, curvature = glm.derivatives(hat)
    np.testing.assert_allclose(surrogate.gradient, slope @ glm.X, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(surrogate.hessian, (glm.X.T * curvature) @ glm.X, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(surrogate.value, value.sum(), rtol=1e-13)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("outliers", [0.0, 0.05, 0.5])
def test_taylor_glm_keeps_the_sums(family, outliers, rng):
    glm, hat = model(rng, family)
    control = taylor_glm(glm, hat, outliers)
    assert len(control.always_read) == round(outliers * N)
    assert_same_sums(control, glm)
    glm.theta = hat + 0.5 * rng.standard_normal((3, 5))
    assert_same_sums(control, glm)


@pytest.mark.parametrize("family", ["logistic", "poisson", "student-t"])
def test_residuals_shrink_as_the_cube_of_the_step(family, rng):
    glm, hat = model(rng, family)
    control = taylor_glm(glm, hat)
    step = rng.standard_normal((3, 5))
    spread = []
    for size in (0.02, 0.01):
        glm.theta = hat + size * step
        spread.append(control.read(np.arange(N)).std(axis=0))
    np.testing.assert_allclose(spread[0] / spread[1], 8.0, rtol=0.1)


def test_gaussian_residuals_vanish(rng):
    glm, hat = model(rng, "gaussian", spread=1.0)
    control = taylor_glm(glm, hat)
    assert np.abs(control.read(np.arange(N))).max() < 1e-12
    np.testing.assert_allclose(control.shifts(), glm.totals(), rtol=1e-12)


def test_residuals_at_the_reference_are_zero(rng):
    for family in FAMILIES:
        glm, hat = model(rng, family)
        glm.theta = [hat] * 3
        np.testing.assert_array_equal(taylor_glm(glm, hat).read(np.arange(N)), 0.0)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("outliers", [0.0, 0.1])
@pytest.mark.parametrize("spread", [1e-8, 1e-3, 0.1, 2.0])
def test_residual_bound_holds(family, outliers, spread, rng):
    glm, hat = model(rng, family, spread=spread)
    control = taylor_glm(glm, hat, outliers)
    surrogate = control.surrogate
    # exp(eta) bounds the third derivative of the Poisson family where the parameters go
    third = float(np.exp(np.maximum(glm.X @ glm.theta.T, (glm.X @ hat)[:, None]).max())) \
        if family == "poisson" else None
    bound = surrogate.residual_bound(control.always_read, third)
    worst = np.abs(control.read(np.arange(control.n_rows))).max(axis=0)
    assert bound.shape == (3,)
    assert (worst <= bound).all()
    if family == "logistic" and spread == 0.1:
        assert (bound < 100 * worst).all()
    assert (bound <= surrogate.residual_bound((), third)).all()


def test_residual_bound_of_the_student_family_is_sharp():
    z = np.linspace(-20, 20, 400_001)
    glm = GLMSource(z[:, None], np.zeros(len(z)), [[1.0]], "student-t", scale=1.5, df=3.5)
    curvature = glm.derivatives([1.0])[2]
    steepest = np.abs(np.gradient(curvature, z)).max()
    surrogate = TaylorSurrogate(glm, [0.0])
    far = surrogate.distances().max() * math.sqrt(np.sum(np.abs(glm.derivatives([0.0])[2]) * z**2))
    assert surrogate.residual_bound()[0] == pytest.approx(steepest / 6 * far**3, rel=1e-6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("family", FAMILIES)
def test_bounds_hold_far_out_and_are_never_nan(family, rng):
    """Of the Gaussian family 0 times an overflow came out nan, and rounding far out was left aside."""
    glm, hat = model(rng, family)
    control, rows = taylor_glm(glm, hat), np.arange(N)
    for far in (1e3, 1e6, 1e150, 1e300):
        glm.theta = [hat, hat + far, hat - far]
        third = 1.0 if family == "poisson" else None
        bounds = [control.residual_support()[1], control.surrogate.residual_bound((), third)]
        assert not np.isnan(bounds).any() and (np.array(bounds)[:, 0] < 1e-10).all()
        assert np.isposinf(control.difference_support()[1]) == np.isposinf(bounds[0][1])
        if far < 1e10 and family != "poisson":
            left = np.abs(control.read(rows)).max(axis=0)
            assert all((left <= bound).all() for bound in bounds) and np.isfinite(bounds).all()
        if far > 1e200:
            assert np.isposinf(np.array(bounds)[:, 1:]).all()


@pytest.mark.filterwarnings("error")
def test_where_curvature_underflows_nothing_is_known_and_no_bound_is_nan(rng):
    X = rng.standard_normal((50, 2))
    glm = GLMSource(X, rng.random(50) < 0.5, [[1e10, 1e10], [1e10, 1e9]])
    control = taylor_glm(glm, [1e10, 1e10])
    assert (control.residual_support()[1] == np.inf).all()


def test_poisson_has_no_bound_of_its_own(rng):
    glm, hat = model(rng, "poisson")
    surrogate = TaylorSurrogate(glm, hat)
    with pytest.raises(ValueError, match="not bounded; give third_derivative"):
        surrogate.residual_bound()
    with pytest.raises(ValueError, match="third_derivative is -1"):
        surrogate.residual_bound(third_derivative=-1)


def test_farthest_rows_have_the_largest_residuals(rng):
    glm, hat = model(rng, "logistic")
    surrogate = TaylorSurrogate(glm, hat)
    far = surrogate.farthest(0.1)
    assert len(far) == 60 and (np.diff(far) > 0).all()
    residual = np.abs(ControlVariate(glm, surrogate).read(np.arange(N))).mean(axis=1)
    assert residual[far].mean() > 2 * np.delete(residual, far).mean()
    assert surrogate.distances()[far].min() >= np.delete(surrogate.distances(), far).max()
    for fraction in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match="fraction is"):
            surrogate.farthest(fraction)
    for outliers, error in ((2, ValueError), (math.nan, ValueError), ("all", TypeError)):
        with pytest.raises(error, match="outliers is "):
            taylor_glm(glm, hat, outliers)


def test_collinear_columns_are_no_obstacle(rng):
    glm, hat = model(rng, "logistic")
    X = np.column_stack([glm.X, glm.X[:, 0]])
    twice = GLMSource(X, glm.y, np.column_stack([glm.theta, np.zeros(3)]))
    control = taylor_glm(twice, np.append(hat, 0.0), 0.05)
    assert_same_sums(control, twice)
    bound = control.surrogate.residual_bound(control.always_read)
    assert (np.abs(control.read(np.arange(control.n_rows))).max(axis=0) <= bound).all()


@pytest.mark.parametrize("theta_hat", [np.zeros(4), np.zeros((1, 5)), [0, 0, 0, 0, math.nan]])
def test_bad_reference(theta_hat, rng):
    with pytest.raises(ValueError, match="5 finite parameters"):
        TaylorSurrogate(model(rng, "logistic")[0], theta_hat)


def test_metropolis_hastings_difference(rng):
    glm, hat = model(rng, "logistic")
    pair = PairSource(taylor_glm(glm, hat, 0.1), 0, 1)
    sums = glm.totals()
    np.testing.assert_allclose(pair.totals(), sums[1] - sums[0], rtol=1e-10)
    np.testing.assert_allclose(pair.read(np.arange(pair.n_rows)).sum() + pair.shifts(), sums[1] - sums[0], rtol=1e-10)


# Expansion in the data


class Cosine:
    """Rewards cos(w . y - a): every third partial derivative is at most max |w|^3."""

    def __init__(self, w, a):
        self.w, self.a = w, a

    def rewards(self, y):
        return np.cos(y @ self.w.T - self.a)

    def __call__(self, at):
        phase = at @ self.w.T - self.a
        return (np.cos(phase), -np.sin(phase)[:, :, None] * self.w,
                -np.cos(phase)[:, :, None, None] * self.w[:, :, None] * self.w[:, None, :])


def wave(rng, q=3, n_arms=4):
    return rng.standard_normal((N, q)), Cosine(rng.standard_normal((n_arms, q)) / q, rng.standard_normal(n_arms))


@pytest.mark.parametrize("q", [1, 2, 3])
def test_binned_equals_its_twin(q, rng):
    y, cosine = wave(rng, q)
    surrogate = BinnedTaylor(y, cosine, 4, n_bins=27)
    value, gradient, hessian = cosine(surrogate.references)
    rows, arms = rng.integers(0, N, 60), [3, 0, 1]
    expected = twin.binned_taylor(y, surrogate.labels, surrogate.references, value, gradient, hessian, rows, arms)
    np.testing.assert_allclose(surrogate.read(rows, arms), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("fraction", [0.0, 0.2])
@pytest.mark.parametrize("n_bins", [1, 100])
def test_binned_keeps_the_sums(fraction, n_bins, rng):
    y, cosine = wave(rng)
    rewards = ArraySource(cosine.rewards(y))
    surrogate = BinnedTaylor(y, cosine, 4, z=y[:, :2], n_bins=n_bins)
    exact = np.array([math.fsum(column) for column in surrogate.read(np.arange(N)).T])
    size = np.abs(surrogate.read(np.arange(N))).sum(axis=0)
    assert np.max(np.abs(surrogate.totals() - exact) / size) < 1e-12
    control = ControlVariate(rewards, surrogate, always_read=surrogate.farthest(fraction))
    assert control.n_rows == N - round(fraction * N)
    assert_same_sums(control, rewards)


def test_bins_are_quantile_cells(rng):
    y = rng.standard_normal((10_000, 2))
    surrogate = BinnedTaylor(y, Cosine(np.ones((1, 2)), np.zeros(1)), 1)
    count = np.bincount(surrogate.labels)
    assert len(count) == 100 and count.sum() == 10_000 and 50 < count.min() and count.max() < 160
    for b in (0, 37, 99):
        rows = surrogate.labels == b
        np.testing.assert_allclose(surrogate.references[b], y[rows].mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(surrogate.covariances[b], np.cov(y[rows].T, bias=True), rtol=1e-9)
        assert surrogate.weights[b] == rows.mean()
    # neighbours in a cell are neighbours in each coordinate: a tenth of the ranks
    for column in y.T:
        rank = column.argsort().argsort()
        spread = [np.ptp(rank[surrogate.labels == b]) for b in range(100)]
        assert max(spread) <= 1000


def test_more_bins_leave_smaller_residuals(rng):
    y, cosine = wave(rng, 2)
    rewards = ArraySource(cosine.rewards(y))
    spread = [ControlVariate(rewards, BinnedTaylor(y, cosine, 4, n_bins=n)).read(np.arange(N)).std()
              for n in (1, 16, 144)]
    assert spread[0] > 4 * spread[1] > 16 * spread[2]


def test_ties_and_constant_columns_fall_into_fewer_bins(rng):
    y = np.column_stack([rng.integers(0, 2, N), np.zeros(N)])
    cosine = Cosine(np.ones((1, 2)), np.zeros(1))
    surrogate = BinnedTaylor(y, cosine, 1)
    assert len(surrogate.references) == 2
    assert_same_sums(ControlVariate(ArraySource(cosine.rewards(y)), surrogate), ArraySource(cosine.rewards(y)))
    assert surrogate.distances().max() < 1e-12


def test_given_labels(rng):
    y, cosine = wave(rng)
    labels = rng.integers(0, 5, N)
    surrogate = BinnedTaylor(y, cosine, 4, labels=labels)
    np.testing.assert_array_equal(surrogate.labels, labels)
    assert_same_sums(ControlVariate(ArraySource(cosine.rewards(y)), surrogate), ArraySource(cosine.rewards(y)))


def test_binned_residual_bound_holds(rng):
    y, cosine = wave(rng)
    surrogate = BinnedTaylor(y, cosine, 4)
    far = surrogate.farthest(0.2)
    control = ControlVariate(ArraySource(cosine.rewards(y)), surrogate, always_read=far)
    third = np.abs(cosine.w).max(axis=1) ** 3
    bound = surrogate.residual_bound(third, far)
    assert (np.abs(control.read(np.arange(control.n_rows))).max(axis=0) <= bound).all()
    assert (bound <= surrogate.residual_bound(third)).all()


def test_update_follows_the_parameters_or_changes_nothing(rng):
    y, cosine = wave(rng)
    surrogate = BinnedTaylor(y, cosine, 4)
    cosine.a = cosine.a + 1.0
    rewards = ArraySource(cosine.rewards(y))
    stale = surrogate.totals()
    surrogate.update()
    assert not np.allclose(surrogate.totals(), stale)
    assert_same_sums(ControlVariate(rewards, surrogate), rewards)
    before, w = surrogate.totals(), cosine.w
    cosine.w = np.full_like(w, math.nan)
    with pytest.raises(ValueError, match="value of the expansion holds nan"):
        surrogate.update()
    np.testing.assert_array_equal(surrogate.totals(), before)


@pytest.mark.parametrize("answer, words", [
    (None, "returned a NoneType"),
    ((1, 2), "returned a tuple"),
    ((np.zeros((1, 2)), np.zeros((1, 2, 3)), np.zeros((1, 2, 3))), r"hessian .* \(1, 2, 3\); \(1, 2, 3, 3\)"),
    ((np.zeros(2), np.zeros((1, 2, 3)), np.zeros((1, 2, 3, 3))), r"value .* \(2,\); \(1, 2\)"),
])
def test_bad_expansions(answer, words, rng):
    with pytest.raises(ValueError, match=words):
        BinnedTaylor(rng.standard_normal((10, 3)), lambda at: answer, 2, n_bins=1)


@pytest.mark.parametrize("change, words", [
    ({"y": np.zeros(5)}, r"y has shape \(5,\)"),
    ({"y": np.full((5, 2), math.inf)}, "y holds inf"),
    ({"y": np.zeros((0, 2))}, "y has 0"),
    ({"z": np.zeros((4, 1))}, "z has 4 rows and y has 5"),
    ({"n_bins": 0}, "n_bins is 0"),
    ({"labels": [0, 1, 1]}, r"labels has shape \(3,\)"),
    ({"labels": [0, 1, 1, 3, 3]}, "bin 2 empty"),
    ({"labels": [0, 0, 0, 0, -1]}, "bin number from 0 up"),
    ({"labels": [0.0] * 5}, "float64"),
])
def test_bad_data(change, words):
    arguments = {"y": np.zeros((5, 2)), "expansion": Cosine(np.ones((1, 2)), np.zeros(1)), "n_arms": 1} | change
    with pytest.raises(ValueError, match=words):
        BinnedTaylor(**arguments)


# Pickling


def test_pickles(rng):
    glm, hat = model(rng, "logistic")
    control = taylor_glm(glm, hat, 0.1, support=(-1, 1))
    again = pickle.loads(pickle.dumps(control))
    assert again.support == (-1, 1)
    np.testing.assert_array_equal(again.read(np.arange(500)), control.read(np.arange(500)))
    np.testing.assert_array_equal(again.totals(), control.totals())
    again.source.theta = np.zeros((3, 5))       # the copied surrogate follows the copied model
    np.testing.assert_allclose(again.totals(), [glm.n_rows * -math.log(2)] * 3, rtol=1e-12)

    y, cosine = wave(rng)
    surrogate = pickle.loads(pickle.dumps(BinnedTaylor(y, cosine, 4, z=y[:, :2])))
    np.testing.assert_array_equal(surrogate.totals(), BinnedTaylor(y, cosine, 4, z=y[:, :2]).totals())
    np.testing.assert_array_equal(surrogate.farthest(0.2), BinnedTaylor(y, cosine, 4, z=y[:, :2]).farthest(0.2))
