"""Compiled models besides the generalised linear ones: their terms, expansions and bounds, and chains over them."""

import ctypes
import pickle
import shutil
import subprocess
import warnings

import numpy as np
import pytest
from scipy import LowLevelCallable, stats

from chains import EXACT, KERNELS, RACES, Lattice, logistic, outcomes, scale_of
from fastrace import DiscreteSampler, mcmc
from fastrace._models._expanded import OwnTerms
from fastrace.sources import CallableSource, CallbackSource
from guarantee import assert_fits, assert_rate_at_most, few_or_many
from reference import arch as arch_twin
from reference import mcmc as twin

# Softmax regression.


def classes(n_rows, dim, n_classes, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, dim))
    X[:, 0] = 1.0
    eta = np.zeros((n_rows, n_classes))
    eta[:, 1:] = X @ (0.7 * rng.standard_normal((dim, n_classes - 1)))
    return X, np.argmax(eta + rng.gumbel(size=eta.shape), axis=1)


def assert_derivatives(model, at, terms):
    """The expansion at a point against differences of the twin's sums, and the residuals against both."""
    value, gradient, hessian = model._expand(at)
    assert value == pytest.approx(terms(at).sum(), rel=1e-12)
    step = 1e-5
    for j in range(model.dim):
        e = step * np.eye(model.dim)[j]
        slope = (terms(at + e).sum() - terms(at - e).sum()) / (2 * step)
        assert slope == pytest.approx(gradient[j], rel=1e-6, abs=1e-6 * np.abs(gradient).max() + 1e-5)
        bend = (model._expand(at + e)[1] - model._expand(at - e)[1]) / (2 * step)
        np.testing.assert_allclose(bend, hessian[j], rtol=1e-5, atol=1e-7 * np.abs(hessian).max())
    reference = mcmc.Reference(at, at, np.eye(model.dim), None, np.inf)
    source, theta = model.engine(reference)
    plain, parameters = model.engine(None)
    rng = np.random.default_rng(9)
    theta[:] = parameters[:] = at + 0.1 * rng.standard_normal((2, model.dim))
    rows = rng.permutation(model.n_rows)
    for arm in (0, 1):
        here, d = terms(theta[arm]), theta[arm] - at
        np.testing.assert_allclose(plain.read(rows)[:, arm], here[rows], rtol=1e-12, atol=1e-12)
        assert plain.totals()[arm] == pytest.approx(here.sum(), rel=1e-12)
        residual = source.read(rows)[:, arm]
        assert source.totals()[arm] == pytest.approx(residual.sum(), rel=1e-9, abs=1e-11)
        rest = here.sum() - (value + gradient @ d + 0.5 * d @ hessian @ d)
        assert residual.sum() == pytest.approx(rest, abs=1e-10 * abs(value))
    return source, theta


@pytest.mark.parametrize(("n_classes", "dim"), [(2, 3), (4, 3), (7, 1), (18, 140)])
@pytest.mark.parametrize("layout", ["C", "F", "float32"])
def test_softmax_terms_and_expansion_are_the_twins(n_classes, dim, layout):
    X, y = classes(300, dim, n_classes, 5)
    X = np.asfortranarray(X) if layout == "F" else X.astype(np.float32) if layout == "float32" else X
    model = mcmc.Softmax(X, y, n_classes)
    rng = np.random.default_rng(1)
    at = rng.standard_normal(model.dim) / dim

    def terms(theta):
        return twin.softmax_terms(X.astype(float), y, theta)

    if model.dim < 30:
        source, theta = assert_derivatives(model, at, terms)
        for arm in (0, 1):
            expected = terms(theta[arm]) - twin.softmax_expansion(X.astype(float), y, at, theta[arm])
            np.testing.assert_allclose(source.read(np.arange(300))[:, arm], expected, rtol=0, atol=1e-13)
        again = pickle.loads(pickle.dumps(source))
        np.testing.assert_array_equal(again.read(np.arange(300)), source.read(np.arange(300)))
    source, theta = model.engine(None)
    theta[:] = at + rng.standard_normal((2, model.dim)) * np.array([[0.1], [30.0]])     # far out too
    for arm in (0, 1):
        np.testing.assert_allclose(source.read(np.arange(300))[:, arm], terms(theta[arm]), rtol=1e-12, atol=1e-12)


def test_softmax_of_two_classes_is_logistic_regression():
    X, y = logistic(500, 3, 2)
    pair = mcmc.Softmax(X, y.astype(int), prior_sd=3.0), mcmc.GLM(X, y, prior_sd=3.0)
    ours, known = (model.reference() for model in pair)
    np.testing.assert_allclose(ours.center, known.center, atol=1e-9)
    np.testing.assert_allclose(ours.factor, known.factor, atol=1e-12)
    np.testing.assert_allclose(ours.weights, known.weights, rtol=1e-9)
    np.testing.assert_allclose(pair[0].slopes(ours), pair[1].slopes(known), rtol=1e-9)


def test_softmax_bounds_hold_and_are_reached():
    X, y = classes(400, 2, 4, 8)
    model = mcmc.Softmax(X, y)
    reference = model.reference()
    slopes = model.slopes(reference)
    source, theta = model.engine(reference)
    plain, parameters = model.engine(None)
    rng = np.random.default_rng(2)
    closest = 0.0
    for length in (0.1, 1.0, 10.0, 100.0):
        for _ in range(100):
            z = rng.standard_normal((2, model.dim))
            z *= length * rng.random((2, 1)) / np.sqrt(np.square(z).sum(axis=1, keepdims=True))
            theta[:] = parameters[:] = reference.theta_hat + z @ reference.factor.T
            moved = np.abs(np.subtract(*source.read(np.arange(400)).T))
            bound = reference.weights * twin.size_of_move(z[0], z[1])
            assert (moved <= bound * (1 + 1e-9) + 1e-12).all()
            closest = max(closest, (moved / (bound + 1e-9)).max())
            changed = np.abs(np.subtract(*plain.read(np.arange(400)).T))
            assert (changed <= slopes * np.sqrt(np.square(z[1] - z[0]).sum()) * (1 + 1e-9) + 1e-12).all()
    assert closest > 0.2


@pytest.mark.parametrize("family", ["logistic", "poisson", "student-t"])
def test_bounds_in_balls_hold_and_are_reached(family):
    """Where outcomes are rare, rows differ in how much curvature they see within a ball."""
    rng = np.random.default_rng(4)
    X = np.column_stack([np.ones(500), rng.standard_normal((500, 2))])
    eta = X @ [-4.0 if family == "logistic" else -1.0, 0.7, 0.7]
    y = {"logistic": (rng.random(500) < 1.0 / (1.0 + np.exp(-eta))).astype(float), "poisson": rng.poisson(np.exp(eta)),
         "student-t": eta + 2.5 * rng.standard_t(4.0, 500)}[family]
    model = mcmc.GLM(X, y, family, 1.0 if family == "student-t" else None, prior_sd=5.0)
    reference = model.reference()
    lengths, center = model._lengths(reference.factor), X @ reference.theta_hat
    balls = [*reference.shells, *([(reference.radius, reference.weights)] if family == "poisson" else [])]
    assert balls and (reference.radius == np.inf) == (family != "poisson")
    source, theta = model.engine(reference)
    if family == "student-t":
        center = center - y
    third = {"logistic": lambda e: np.tanh(e / 2.0) / (4.0 * np.cosh(e / 2.0) ** 2), "poisson": np.exp,
             "student-t": lambda e: 5.0 * e * (12.0 - e * e) * 2.0 / (4.0 + e * e) ** 3}[family]
    totals = [weights.sum() for _, weights in balls]
    assert totals == sorted(totals)
    for radius, weights in balls:
        exact = np.array([twin.bend(third, c, t) for c, t in zip(center, radius * lengths, strict=True)])
        assert (weights >= exact * lengths**3 * (1.0 - 1e-3)).all()
        assert weights.sum() <= 1.35 * (exact * lengths**3).sum()
        closest = 0.0
        for _ in range(300):
            z = rng.standard_normal((2, 3))
            z *= radius * rng.random((2, 1)) / np.sqrt(np.square(z).sum(axis=1, keepdims=True))
            theta[:] = reference.theta_hat + z @ reference.factor.T
            moved = np.abs(np.subtract(*source.read(np.arange(500)).T))
            bound = weights * twin.size_of_move(z[0], z[1])
            assert (moved <= bound * (1 + 1e-9) + 1e-12).all()
            closest = max(closest, (moved / (bound + 1e-9)).max())
        assert closest > 0.2


class SoftmaxLattice(Lattice):
    """Four parameter vectors of a regression with three classes."""

    def __init__(self, n_rows=60):
        self.X, self.y = classes(n_rows, 2, 3, 3)
        self.model = mcmc.Softmax(self.X, self.y, prior_sd=2.0)
        reference = self.model.reference()
        z = np.array([[0, 0, 0, 0], [1.0, -0.5, 0.3, 0.2], [-0.6, 0.8, -1.0, 0.1], [0.4, 0.3, 0.5, -1.4]])
        self.points = reference.center + z @ reference.factor.T
        log_p = [twin.softmax_terms(self.X, self.y, p).sum() - p @ p / 8.0 for p in self.points]
        self.p = np.exp(log_p - np.max(log_p))
        self.p /= self.p.sum()


@few_or_many("chains", 1200, 20_000)
@pytest.mark.parametrize("name", EXACT)
def test_exact_kernels_leave_an_enumerable_softmax_posterior_invariant(name, chains):
    lattice = SoftmaxLattice()
    kernel = KERNELS[name](lattice.model, proposal=lattice.propose)
    assert_fits(lattice.counts(kernel, chains, 2, np.random.default_rng(5)), lattice.p)


@pytest.mark.parametrize("name", RACES)
def test_races_are_within_their_promise_on_an_enumerable_softmax_posterior(name):
    lattice = SoftmaxLattice(400)
    kernel = KERNELS[name](lattice.model, proposal=lattice.propose)
    counts = lattice.counts(kernel, 1000, 2, np.random.default_rng(6))
    for count, p in zip(counts, lattice.p, strict=True):
        assert_rate_at_most(count, 1000, p + 2 * kernel.delta)
        assert_rate_at_most(1000 - count, 1000, 1.0 - p + 2 * kernel.delta)


def assert_same_posterior(exact, ours, center, alpha=1e-6):
    for j in range(len(center)):
        for power in (1, 2):
            a, b = ((t.draws[0, :, j] - center[j]) ** power for t in (exact, ours))
            error = np.hypot(*(x.std() / np.sqrt(mcmc.effective_sample_size(x)) for x in (a, b)))
            assert abs(a.mean() - b.mean()) < stats.norm.isf(alpha / (4 * len(center))) * error + 0.01 * b.std()


def test_softmax_chains_agree_with_a_long_exact_run():
    X, y = classes(3000, 2, 4, 15)
    model = mcmc.Softmax(X, y, prior_sd=5.0)
    reference = model.reference()
    exact = mcmc.sample(mcmc.Metropolis(model, control_variate=reference), n_draws=4000, n_chains=1, rng=1)
    for kernel in (
        mcmc.PoissonMinibatchMetropolis(model, control_variate=reference),
        mcmc.RacingMetropolis(model, 0.01, control_variate=reference),
    ):
        ours = mcmc.sample(kernel, n_draws=6000, n_chains=1, rng=2)
        assert_same_posterior(exact, ours, reference.center)
        assert ours.rows.mean() < 1500


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda X, y: mcmc.Softmax(X, y[:-1]), "y has shape"),
        (lambda X, y: mcmc.Softmax(X, y - 1), r"y\[\d+\] is -1; classes"),
        (lambda X, y: mcmc.Softmax(X, y + 0.5), "classes must be whole"),
        (lambda X, y: mcmc.Softmax(X, y, 2), "classes must be whole numbers from 0 to 1"),
        (lambda X, y: mcmc.Softmax(X, y, 1), "n_classes"),
        (lambda X, y: mcmc.Softmax(X[0], y), "X has shape"),
        (lambda X, y: mcmc.Softmax(X, np.where(y == 1, np.nan, y)), "finite"),
        (lambda X, y: mcmc.Softmax(X, y).reference([0.0]), "theta_hat"),
        (lambda X, y: mcmc.Softmax(X, y, prior_sd=[1.0]), "prior_sd"),
        (lambda X, y: mcmc.RacingMetropolis(mcmc.Softmax(X, y), access="shuffled"), "shuffle"),
    ],
)
def test_bad_softmax_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make(*classes(100, 2, 3))


# ARCH.


def arch_returns(n, order, nu=6.0, seed=0):
    """Returns of an ARCH(order) model."""
    rng = np.random.default_rng(seed)
    weights = np.array([0.5, *(0.5 / order * np.ones(order))])
    r = np.zeros(n + 200)
    for t in range(order, len(r)):
        r[t] = np.sqrt(weights[0] + weights[1:] @ np.square(r[t - order : t][::-1])) * rng.standard_t(nu)
    return r[200:]


def arch_terms(returns, order):
    return lambda theta: arch_twin.log_likelihood_terms(
        returns, order, order, np.exp(theta[:-1]), np.exp(theta[-1])
    )


@pytest.mark.parametrize("order", [1, 3])
@pytest.mark.parametrize("n", [40, 150])
def test_arch_terms_and_expansion_are_the_twins(order, n):
    returns = arch_returns(n, order, seed=order)
    returns[7] = 0.0
    model = mcmc.ARCH(returns, order)
    at = model.start + 0.3 * np.random.default_rng(1).standard_normal(model.dim)
    source, theta = assert_derivatives(model, at, arch_terms(returns, order))
    again = pickle.loads(pickle.dumps(source))
    rows = np.arange(model.n_rows)
    np.testing.assert_array_equal(again.read(rows), source.read(rows))
    theta[1] = at
    np.testing.assert_allclose(source.read(rows)[:, 1], 0.0, atol=1e-14)
    # row by row: third order in the distance
    moved = []
    for step in (0.02, 0.01):
        theta[1] = at + step
        moved.append(source.read(rows)[:, 1])
    np.testing.assert_allclose(moved[0], 8.0 * moved[1], atol=0.1 * np.abs(moved[0]).max())


def test_arch_of_impossible_parameters_rejects():
    model = mcmc.ARCH(arch_returns(100, 2), 2)
    for hat in (None, model.reference()):
        source, theta = model.engine(hat)
        theta[0], theta[1] = model.start, model.start
        for far in ([0, 800.0, 0, 0], [-800.0, 0, 0, 0], [0, 0, 0, 60.0]):
            theta[1] = model.start + far
            assert source.totals()[1] == -np.inf and np.isfinite(source.totals()[0])
        theta[1, 0] = np.nan
        assert np.isnan(source.read([0])[0, 1])


def test_exact_arch_chains_have_the_posterior_of_a_quadrature():
    """One lag and nu all but known: moments by a sum over a grid."""
    returns = arch_returns(400, 1, seed=4)
    sd = [2.0, 2.0, 1e-3]
    model = mcmc.ARCH(returns, 1, prior_mean=[-0.5, -0.7, np.log(6.0)], prior_sd=sd)
    reference = model.reference()
    grid = np.linspace(-7.0, 7.0, 57)
    points = reference.center + np.stack(np.meshgrid(grid, grid, [0.0], indexing="ij"), -1).reshape(-1, 3) \
        @ reference.factor.T
    source, theta = model.engine(None)
    log_p = np.empty(len(points))
    for i, point in enumerate(points):
        theta[0] = point
        log_p[i] = source.totals([0])[0] - 0.5 * np.square((point - model.prior_mean) / sd).sum()
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    for make, n, draws in ((mcmc.Metropolis, "exact", 8000), (mcmc.RacingMetropolis, 0.01, 8000)):
        kernel = make(model) if n == "exact" else make(model, n)
        a = mcmc.sample(kernel, n_draws=draws, n_chains=1, rng=3).draws[0]
        for j in range(2):
            for power in (1, 2):
                expected = p @ (points[:, j] - reference.center[j]) ** power
                b = (a[:, j] - reference.center[j]) ** power
                error = b.std() / np.sqrt(mcmc.effective_sample_size(b))
                promise = 0.0 if n == "exact" else 0.02 * b.std()
                assert abs(b.mean() - expected) < stats.norm.isf(1e-6 / 16) * error + promise


def test_arch_races_read_few_rows_of_a_long_series():
    model = mcmc.ARCH(arch_returns(30_000, 2, seed=6), 2)
    reference = model.reference()
    exact = mcmc.sample(mcmc.Metropolis(model, control_variate=reference), n_draws=1500, n_chains=1, rng=1)
    race = mcmc.sample(mcmc.RacingMetropolis(model, 0.01, control_variate=reference), n_draws=3000, n_chains=1, rng=2)
    assert_same_posterior(exact, race, reference.center)
    assert race.rows.mean() < 0.5 * exact.rows.mean()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda r: mcmc.ARCH(r, 0), "order"),
        (lambda r: mcmc.ARCH(r, 65), "order"),
        (lambda r: mcmc.ARCH(r[:3], 3), "more than 3"),
        (lambda r: mcmc.ARCH(np.where(r == r[5], np.nan, r), 2), "finite"),
        (lambda r: mcmc.ARCH(0.0 * r, 2), "not all of them 0"),
        (lambda r: mcmc.ARCH(r, 2, prior_sd=-1.0), "prior_sd"),
        (lambda r: mcmc.ARCH(r, 2).reference([0.0]), "theta_hat"),
        (lambda r: mcmc.PoissonMinibatchMetropolis(mcmc.ARCH(r, 2)), "RacingMetropolis"),
        (lambda r: mcmc.TunaMetropolis(mcmc.ARCH(r, 2)), "bound"),
    ],
)
def test_bad_arch_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make(arch_returns(100, 2))


# Terms from compiled code of a user's own.


def location(y, callback_of):
    """A normal location model over a callback. Parameters and data lie in one array, which is its user data."""
    alive = []

    def make():
        data = np.concatenate([np.zeros(2), y])
        theta = data[:2].reshape(2, 1)
        alive.append(data)
        return CallbackSource(callback_of(ctypes.c_void_p(data.ctypes.data)), 2, len(y)), theta

    return mcmc.SourceModel(make, prior_sd=10.0)


def numba_callback(block):
    numba = pytest.importorskip("numba")
    types, carray = numba.types, numba.carray

    def per_arm(out, n_rows, rows, arm, data):
        x = carray(data, 602, types.float64)
        for i in range(n_rows):
            out[i] = -0.5 * (x[2 + rows[i]] - x[arm]) ** 2
        return 0

    def all_arms(out, n_rows, rows, n_arms, arms, data):
        x = carray(data, 602, types.float64)
        for j in range(n_arms):
            for i in range(n_rows):
                out[j * n_rows + i] = -0.5 * (x[2 + rows[i]] - x[arms[j]]) ** 2
        return 0

    last = (types.CPointer(types.intp),) if block else ()
    form = types.int32(types.CPointer(types.float64), types.intp, types.CPointer(types.int64), types.intp, *last,
                       types.voidptr)
    compiled = numba.cfunc(form)(all_arms if block else per_arm)
    return lambda data: LowLevelCallable(compiled.ctypes, data)


C_SOURCE = """
#include <stddef.h>
#include <stdint.h>
int terms(double *out, intptr_t n_rows, const int64_t *rows, intptr_t arm, void *data)
{
    const double *theta = data, *y = theta + 2;
    for (intptr_t i = 0; i < n_rows; i++) {
        double step = y[rows[i]] - theta[arm];
        out[i] = -0.5 * step * step;
    }
    return theta[arm] > 1e3;
}
"""


@pytest.fixture(scope="module")
def c_terms(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler at hand")
    folder = tmp_path_factory.mktemp("terms")
    (folder / "terms.c").write_text(C_SOURCE)
    library = folder / "terms.so"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(folder / "terms.c")], check=True)
    function = ctypes.CDLL(str(library)).terms
    function.restype = ctypes.c_int
    function.argtypes = [ctypes.POINTER(ctypes.c_double), ctypes.c_ssize_t, ctypes.POINTER(ctypes.c_int64),
                         ctypes.c_ssize_t, ctypes.c_void_p]

    return lambda data: LowLevelCallable(function, data)


def assert_chains_of_a_callback(callback_of):
    rng = np.random.default_rng(3)
    y = rng.normal(0.4, 1.0, 600)
    mean, sd = y.sum() / (600 + 0.01), 1.0 / np.sqrt(600 + 0.01)
    model = location(y, callback_of)
    plain = mcmc.FunctionModel(lambda theta, rows: -0.5 * (y[rows] - theta[0]) ** 2, 1, 600, prior_sd=10.0)
    one = [mcmc.sample(mcmc.Metropolis(m), [mean], n_draws=200, n_chains=2, n_tune=0, rng=1) for m in (model, plain)]
    np.testing.assert_allclose(one[0].draws, one[1].draws, rtol=0, atol=1e-9)
    for kernel in (mcmc.Metropolis, mcmc.RacingMetropolis, mcmc.RacingSlice):
        made = kernel(model, covariance=[[sd * sd]])
        trace = mcmc.sample(made, [mean], n_draws=1500, n_chains=2, n_tune=0, rng=1, threads=2)
        for power in (1, 2):
            a = (trace.draws[..., 0] - mean) ** power
            error = a.std() / np.sqrt(mcmc.effective_sample_size(a))
            delta = 0.0 if kernel is mcmc.Metropolis else made.delta
            assert abs(a.mean() - (0.0, sd * sd)[power - 1]) < stats.norm.isf(1e-6 / 6) * error + delta * a.std()


class Robust:
    """Student-t errors with 4 degrees of freedom, location and log scale: terms and derivatives in NumPy."""

    def __init__(self, n_rows, seed=0):
        rng = np.random.default_rng(seed)
        self.y = 1.0 + 2.0 * rng.standard_t(4.0, n_rows)

    def terms(self, theta, rows):
        z = (self.y[rows] - theta[0]) * np.exp(-theta[1])
        return -theta[1] - 2.5 * np.log1p(z * z / 4.0)

    def derivatives(self, theta, rows):
        s = np.exp(-theta[1])
        z = (self.y[rows] - theta[0]) * s
        once, twice = -5.0 * z / (4.0 + z * z), -5.0 * (4.0 - z * z) / (4.0 + z * z) ** 2
        hessian = np.empty((len(rows), 2, 2))
        hessian[:, 0, 0], hessian[:, 1, 1] = s * s * twice, z * once + z * z * twice
        hessian[:, 0, 1] = hessian[:, 1, 0] = s * (once + z * twice)
        return np.stack([-s * once, -1.0 - z * once], axis=1), hessian

    def function_model(self, **options):
        return mcmc.FunctionModel(self.terms, 2, len(self.y), derivatives=self.derivatives, start=[0.0, 0.5], **options)

    def source_model(self, **options):
        def make():
            theta = np.zeros((2, 2))
            rewards = lambda arms, rows: np.stack([self.terms(theta[a], rows) for a in arms], axis=1)  # noqa: E731
            return CallableSource(rewards, 2, len(self.y)), theta

        return mcmc.SourceModel(make, derivatives=self.derivatives, start=[0.0, 0.5], **options)


@pytest.mark.parametrize("kind", ["function", "source"])
def test_expansions_of_own_terms_are_the_twins(kind):
    robust = Robust(700)
    model = robust.function_model() if kind == "function" else robust.source_model()
    source, theta = assert_derivatives(model, np.array([0.8, 0.9]), lambda t: robust.terms(t, np.arange(700)))
    reference = mcmc.Reference(np.array([0.8, 0.9]), np.zeros(2), np.eye(2), None, np.inf)
    source, theta = model.engine(reference)
    theta[:] = [[0.7, 1.0], [1.4, 0.6]]
    rows = np.random.default_rng(1).permutation(700)
    gradient, hessian = robust.derivatives(reference.theta_hat, rows)
    for arm in (0, 1):
        d = theta[arm] - reference.theta_hat
        expected = robust.terms(theta[arm], rows) - robust.terms(reference.theta_hat, rows) - gradient @ d
        expected -= 0.5 * np.einsum("kab,a,b->k", hessian, d, d)
        np.testing.assert_allclose(source.read(rows)[:, arm], expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(source.totals()[arm], expected.sum(), rtol=0, atol=1e-10)
    with pytest.raises(ValueError, match="table"):
        OwnTerms(source.source.source, theta, source.source.table[:, 1:])
    with pytest.raises(ValueError, match="parameters"):
        OwnTerms(source.source.source, theta[:1], source.source.table)


def test_derivatives_of_a_source_save_rows():
    robust = Robust(20_000)
    model = robust.source_model()
    reference = model.reference()
    np.testing.assert_allclose(reference.center, robust.function_model().reference().center, atol=1e-9)
    exact = mcmc.sample(mcmc.Metropolis(model, control_variate=reference), n_draws=400, n_chains=1, n_tune=0, rng=1)
    race = mcmc.sample(mcmc.RacingMetropolis(model, 0.01, control_variate=reference), n_draws=800, n_chains=1, rng=2)
    assert_same_posterior(exact, race, reference.center)
    assert race.rows.mean() < 0.1 * exact.rows.mean()


def test_bounds_of_own_terms_make_minibatches_exact():
    """A logistic regression as a function of one's own, with its bound: the chains of the GLM."""
    X, y = logistic(400, 2, 7)

    def terms(theta, rows):
        return twin.log_terms("logistic", X[rows], y[rows], theta)

    def derivatives(theta, rows):
        x, p = X[rows], 1.0 / (1.0 + np.exp(-X[rows] @ theta))
        return (y[rows] - p)[:, None] * x, -(p * (1.0 - p))[:, None, None] * x[:, :, None] * x[:, None, :]

    third = np.sqrt(np.square(X).sum(axis=1)) ** 3 / (6.0 * np.sqrt(3.0))
    model = mcmc.FunctionModel(terms, 2, 400, derivatives=derivatives, third_derivatives=third, prior_sd=2.0)
    known = mcmc.GLM(X, y, prior_sd=2.0)
    ours, theirs = model.reference(), known.reference()
    np.testing.assert_allclose(ours.center, theirs.center, atol=1e-8)
    assert (ours.weights >= theirs.weights * (1 - 1e-9)).all() and (ours.weights < 3.0 * theirs.weights).all()
    exact = mcmc.sample(mcmc.Metropolis(known, control_variate=theirs), n_draws=8000, n_chains=1, rng=1)
    for kernel in (mcmc.PoissonMinibatchMetropolis, mcmc.FireflyMetropolis):
        made = mcmc.sample(kernel(model, control_variate=ours), n_draws=1500, n_chains=1, n_tune=100, rng=2)
        assert_same_posterior(exact, made, theirs.center)
        assert 0.0 < made.rows.mean() < 40


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"derivatives": 3}, "derivatives is 3"),
        ({"third_derivatives": 1.0}, "without derivatives"),
        ({"derivatives": len, "third_derivatives": -1.0}, "third_derivatives"),
        ({"derivatives": len, "third_derivatives": np.full(5, np.nan)}, "third_derivatives"),
        ({"derivatives": len, "start": [0.0, 1.0]}, "start"),
    ],
)
def test_bad_derivatives(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        mcmc.FunctionModel(divmod, 1, 5, **options)


@pytest.mark.parametrize("block", [False, True], ids=["per arm", "all arms"])
def test_kernels_over_a_numba_callback(block):
    assert_chains_of_a_callback(numba_callback(block))


def test_kernels_over_a_c_callback(c_terms):
    assert_chains_of_a_callback(c_terms)


def test_a_c_callback_that_fails_in_mid_chain_keeps_the_draws(c_terms):
    model = location(np.random.default_rng(0).normal(size=20), c_terms)

    def propose(rng, theta):
        return [1e4 if rng.random() < 0.05 else rng.normal(0.0, 0.3)], 0.0

    with pytest.raises(RuntimeError, match="callback returned 1") as caught:
        mcmc.sample(mcmc.Metropolis(model, proposal=propose), [0.0], n_draws=1000, n_chains=1, n_tune=0, rng=1)
    assert 0 < caught.value.trace.n_draws < 1000


# Expansions in the data.


def binned(family, n_rows=6000, **options):
    rng = np.random.default_rng(8)
    if family == "arch":
        return mcmc.Binned(mcmc.ARCH(arch_returns(n_rows, 2, seed=6), 2), **options)
    X = rng.standard_normal((n_rows, 3))
    X[:, 0] = 1.0
    y = outcomes(family, X, np.array([0.3, 0.5, -0.4]), rng)
    return mcmc.Binned(mcmc.GLM(X, y, family, **scale_of(family), prior_sd=5.0), **options)


@pytest.mark.parametrize("family", ["logistic", "gaussian", "poisson", "student-t", "arch"])
def test_binned_control_variates_know_their_sums_and_follow_the_terms(family):
    model = binned(family)
    source, theta = model.engine(None)
    plain, parameters = model.model.engine(None)
    at = model.model.reference().theta_hat
    rng = np.random.default_rng(1)
    for spread in (0.02, 0.5):      # near the mode and away from it
        theta[:] = parameters[:] = at + spread * rng.standard_normal((2, model.dim))
        np.testing.assert_allclose(source.totals(), plain.totals(), rtol=1e-9)
        left = np.subtract(*source.read(np.arange(source.n_rows)).T)
        whole = np.subtract(*plain.read(np.arange(model.n_rows)).T)
        assert left.std() < (1e-9 if family == "gaussian" else 0.2) * whole.std()
    assert f"{len(source.always_read)} rows always read" in repr(model)
    assert len(source.always_read) == 120 or family == "arch"


def test_binned_races_have_the_posterior():
    model = binned("logistic", 20_000)
    reference = model.model.reference()
    exact = mcmc.sample(mcmc.Metropolis(model.model, control_variate=reference), n_draws=3000, n_chains=1, rng=1)
    kernel = mcmc.RacingMetropolis(model, 0.01, covariance=model.covariance)
    race = mcmc.sample(kernel, reference.center, n_draws=1500, n_chains=1, n_tune=0, rng=2)
    assert_same_posterior(exact, race, reference.center)
    assert race.rows.mean() < 0.6 * 20_000
    plain = mcmc.RacingMetropolis(model.model, control_variate=None, proposal="random-walk")
    assert race.rows.mean() < 0.6 * mcmc.sample(plain, n_draws=100, n_chains=1, n_tune=0, rng=1).rows.mean()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"n_bins": 0}, "n_bins"), ({"outliers": 1.0}, "outliers"), ({"at": [0.0]}, "theta_hat")],
)
def test_bad_bins(options, message):
    with pytest.raises(ValueError, match=message):
        binned("logistic", 200, **options)
    with pytest.raises(TypeError, match="GLM or an ARCH"):
        mcmc.Binned(mcmc.FunctionModel(divmod, 1, 5))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_explanatory_variables_must_be_finite(value, dtype):
    X = np.random.default_rng(0).normal(size=(5000, 2)).astype(dtype)
    y = (X[:, 0] > 0.0).astype(int)
    X[4500, 1] = value
    for make in (mcmc.GLM, mcmc.Softmax):
        with pytest.raises(ValueError, match=rf"X\[4500, 1\] is {value}; finite numbers are needed"):
            make(X, y, shuffle=1)
    with pytest.raises(ValueError, match="finite"):
        mcmc.ARCH(X[:, 1], 1)


@pytest.mark.parametrize("support", [(-0.001, 0.0), (-40.0, 0.0)])
@pytest.mark.parametrize("kind", ["gibbs", "own", "metropolis", "slice"])
def test_a_support_that_does_not_hold_is_told(kind, support):
    y, means = np.random.default_rng(0).normal(0.2, 1.0, 2000), np.array([0.0, 0.25, 0.5])
    if kind in ("metropolis", "slice"):
        def make():
            theta = np.zeros((2, 1))
            terms = lambda arms, rows: -0.5 * np.tanh(y[rows, None] - theta[arms, 0]) ** 2  # noqa: E731
            return CallableSource(terms, 2, 2000, support=support), theta
        race = mcmc.RacingMetropolis if kind == "metropolis" else mcmc.RacingSlice
        kernel = race(mcmc.SourceModel(make, prior_sd=1.0), covariance=[[0.01]])
    else:
        factors, sizes = (lambda s, rows, z: -0.5 * (y[rows, None] - means[s]) ** 2), None
        if kind == "own":
            factors, sizes = (lambda s, rows, z: -0.5 * (y[rows] - means[s]) ** 2), lambda z: [2000, 2000, 2000]
        bound = "serfling" if kind == "own" else "betting"
        kernel = mcmc.RacingGibbs([mcmc.Categorical(3, factors, 2000, sizes=sizes)], support=support, bound=bound)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(2):
            mcmc.sample(kernel, n_draws=5, n_chains=2, n_tune=0, rng=1)
    told = [w for w in seen if "outside support: the promise of the draws is void" in str(w.message)]
    assert len(told) == (2 if support[0] == -0.001 else 0)


def test_stats_of_a_sampler_print_what_voids_the_promise():
    y = np.random.default_rng(0).normal(size=(2000, 1))
    sampler = DiscreteSampler(y + [0.0, 0.01], support=(-0.001, 0.0), bound="betting", outside="warn", rng=0)
    sampler.draw_many(2)
    assert "warning: a reward lay outside the support" in str(sampler.stats)
