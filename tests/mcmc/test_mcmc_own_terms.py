"""Chains over compiled terms of a user's own: callbacks of Numba and C, derivatives, bounds."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest
from scipy import LowLevelCallable, stats

from chains import assert_derivatives, assert_same_posterior, logistic
from fastrace import mcmc
from fastrace._models._expanded import OwnTerms
from fastrace.sources import CallableSource, CallbackSource
from reference import mcmc as twin


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
