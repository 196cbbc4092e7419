"""Bounds on third derivatives by interval arithmetic: they hold within reach, and chains by them are exact."""

import numpy as np
import pytest

from fastrace import mcmc
from fastrace.mcmc.models._jets import UNARY, Jet, binary, power
from fastrace.mcmc.models._row_bounds import NotBoundedError, RowBounds

jax = pytest.importorskip("jax")
jnp = jax.numpy

N, RNG = 120, np.random.default_rng(0)
X, Y, G = RNG.normal(size=(N, 3)), RNG.poisson(1.0, N).astype(float), RNG.integers(0, 4, N)


def predictor(theta, rows):
    return jnp.asarray(X)[rows] @ theta[:3]


def y(rows):
    return jnp.asarray(Y)[rows]


def logistic(theta, rows):
    eta = predictor(theta, rows)
    return jnp.minimum(y(rows), 1.0) * eta - jax.nn.softplus(eta)


def poisson(theta, rows):
    eta = predictor(theta, rows) + theta[3:][jnp.asarray(G)[rows]]
    return y(rows) * eta - jnp.exp(eta)


def student(theta, rows):
    return -2.5 * jnp.log1p(jnp.square((y(rows) - predictor(theta, rows)) / 0.7) / 4.0)


def student_with_scale(theta, rows):
    return -2.5 * jnp.log1p(jnp.square((y(rows) - predictor(theta, rows)) * jnp.exp(-theta[3])) / 4.0) - theta[3]


def parts(theta, rows):
    left = y(rows) - predictor(theta, rows)
    return jnp.log(0.3) - 0.5 * left**2, jnp.log(0.7) - 0.5 * ((left - 1.0) / 3.0) ** 2 - jnp.log(3.0)


def mixture(theta, rows):
    return jnp.logaddexp(*parts(theta, rows))


def mixture_by_logsumexp(theta, rows):
    return jax.scipy.special.logsumexp(jnp.stack(parts(theta, rows), axis=1), axis=1)


def library_t(theta, rows):
    return jax.scipy.stats.t.logpdf(y(rows), 4.0, predictor(theta, rows), 1.3)


def probit(theta, rows):
    return jnp.log(0.01 + 0.49 * (1.0 + jax.lax.erf(predictor(theta, rows) / jnp.sqrt(2.0))))


@pytest.mark.parametrize(("terms", "dim", "wide"), [
    (logistic, 3, 1.6), (poisson, 7, 6.0), (student, 3, 2.5), (student_with_scale, 4, 20.0), (mixture, 3, 2.5),
    (mixture_by_logsumexp, 3, 8.0), (library_t, 3, 2.5), (probit, 3, 20.0)])
def test_bounds_hold_at_dense_random_points(terms, dim, wide):
    """`wide` is how much larger than the largest value that was met the bounds may be, summed over rows."""
    rng = np.random.default_rng(1)
    hat, factor = 0.3 * rng.normal(size=dim), 0.03 * np.linalg.cholesky(np.eye(dim) + 0.5 * np.ones((dim, dim)))
    radius, rows, largest = np.sqrt(dim) + 5.0, np.arange(N), np.zeros(N)
    bounds = RowBounds(terms, dim).within(hat, factor, radius, N)

    def along(at, way):
        f = lambda s: terms(hat + factor @ (at + s * way), rows)  # noqa: E731
        slope = lambda s: jax.jvp(f, (s,), (1.0,))[1]  # noqa: E731
        bend = lambda s: jax.jvp(slope, (s,), (1.0,))[1]  # noqa: E731
        return jax.jvp(bend, (0.0,), (1.0,))[1]

    at, way = rng.normal(size=(2, 4000, dim))
    at *= (radius * rng.random(4000) ** (1.0 / dim) / np.linalg.norm(at, axis=1))[:, None]
    way /= np.linalg.norm(way, axis=1)[:, None]
    with jax.enable_x64(True):
        for first in range(0, 4000, 500):
            met = np.abs(jax.jit(jax.vmap(along))(at[first : first + 500], way[first : first + 500])).max(axis=0)
            largest = np.maximum(largest, met)
    assert (largest <= bounds).all()
    assert np.isfinite(bounds).all() and bounds.sum() < wide * largest.sum()


@pytest.mark.parametrize("name", sorted(UNARY))
def test_each_function_of_an_interval_holds_its_own_coefficients(name):
    """Against JAX's derivatives at points of the interval; what holds anything is right, and says so."""
    function = {"neg": jnp.negative, "square": jnp.square, "logistic": jax.nn.sigmoid, "rsqrt": jax.lax.rsqrt,
                "erf": jax.lax.erf, "erfc": jax.lax.erfc, "lgamma": jax.lax.lgamma}.get(name) or getattr(jnp, name)
    rng = np.random.default_rng(2)
    low = rng.uniform(-3.0, 3.0, 40) if name not in ("log", "sqrt", "rsqrt", "lgamma") else rng.uniform(0.05, 4.0, 40)
    if name == "log1p":
        low = rng.uniform(-0.9, 3.0, 40)
    high = low + rng.uniform(0.01, 1.0, 40)
    jet = Jet(np.stack([low, np.ones(40), np.zeros(40), np.zeros(40)]),
              np.stack([high, np.ones(40), np.zeros(40), np.zeros(40)]), 1)
    out, slopes = UNARY[name](jet), [function]
    for _ in range(3):
        slopes.append(jax.grad(slopes[-1]))
    points = low + np.linspace(0.0, 1.0, 21)[:, None] * (high - low)
    with jax.enable_x64(True):
        for k, slope in enumerate(slopes):
            value = np.asarray(jax.jit(jax.vmap(slope))(points.ravel())).reshape(21, 40) / [1.0, 1.0, 2.0, 6.0][k]
            slack = 1e-9 * (1.0 + np.abs(value))
            assert (out.low[k] - slack <= value).all() and (value <= out.high[k] + slack).all()
    assert name in ("abs", "sign") or np.isfinite(out.low).all()


def test_what_has_a_kink_or_no_bound_is_anything_within_reach():
    across = Jet(np.array([[-1.0], [1.0], [0.0], [0.0]]), np.array([[1.0], [1.0], [0.0], [0.0]]), 1)
    for out in (UNARY["abs"](across), UNARY["log"](across), power(across, -1.0), power(across, 1.5),
                binary("max", across, -across)):
        assert np.isinf(out.third()).all()


@pytest.mark.parametrize(("terms", "words"), [
    (lambda theta, rows: jax.scipy.special.i0(theta[0]) * jnp.ones(len(rows)), "the terms use .*no bounds are known"),
    (lambda theta, rows: jnp.exp(theta[:2] @ theta[:2]) * jnp.ones(len(rows)), "multiply two arrays of parameters"),
    (lambda theta, rows: jnp.exp(theta).prod() + 0.0 * rows, "the terms use reduce_prod"),
    (lambda theta, rows: jnp.exp(theta).sum() + 0.0 * rows, "depends on 5 linear combinations"),
])
def test_refusals_say_what_stands_in_the_way(terms, words):
    with pytest.raises(NotBoundedError, match=words):
        RowBounds(terms, 5).within(np.zeros(5), np.eye(5), 3.0, 4)


def test_a_kink_within_reach_is_refused_with_the_row():
    model = mcmc.FunctionModel(lambda theta, rows: -jnp.abs(y(rows) - theta[0]) - theta[0] ** 2, 1, N, backend="jax",
                               third_derivatives="auto")
    with pytest.raises(ValueError, match="no bound was found for the term of row .*a kink"):
        model.reference([1.01])
    with pytest.raises(ValueError, match="give backend='jax'"):
        mcmc.FunctionModel(lambda theta, rows: 0.0 * rows, 1, N, third_derivatives="auto")
    with pytest.raises(ValueError, match="third_derivatives"):
        mcmc.FunctionModel(lambda theta, rows: 0.0 * rows, 1, N, third_derivatives="most", backend="jax")


@pytest.mark.parametrize("kind", ["minibatch", "surrogate"])
def test_exact_chains_by_these_bounds_are_the_posterior(kind):
    rng = np.random.default_rng(3)
    n = 2000
    x = rng.normal(size=(n, 2))
    won = (rng.random(n) < 1.0 / (1.0 + np.exp(-x @ [1.0, -0.5]))).astype(float)

    def terms(theta, rows):
        eta = jnp.asarray(x)[rows] @ theta
        return jnp.asarray(won)[rows] * eta - jax.nn.softplus(eta)

    model = mcmc.FunctionModel(terms, 2, n, backend="jax", third_derivatives="auto", prior_sd=2.5)
    kernel = mcmc.PoissonMinibatchMetropolis(model) if kind == "minibatch" else \
        mcmc.SurrogateMetropolis(model, decision="poisson")
    trace = mcmc.sample(kernel, n_draws=1000, n_chains=2, rng=1)
    truth = mcmc.laplace(mcmc.GLM(x, won, prior_sd=2.5), 4000, 1)
    apart = (trace.draws.mean(axis=(0, 1)) - truth.mean) / truth.sd
    assert (np.abs(apart) < 5.0 * np.sqrt(1.0 / trace.ess() + 1.0 / truth.ess)).all()
    assert (np.abs(trace.draws.std(axis=(0, 1)) / truth.sd - 1.0) < 5.0 / np.sqrt(2.0 * trace.ess()) + 0.05).all()
    assert trace.rows.mean() < 0.5 * n


def pymc_model(law, **options):
    pm = pytest.importorskip("pymc")
    rng = np.random.default_rng(1)
    X, g = rng.standard_normal((400, 2)), rng.integers(0, 3, 400)
    y = 0.3 + X @ [0.5, -0.3] + 0.7 * rng.logistic(size=400)
    with pm.Model() as model:
        table, codes, outcomes = pm.Data("X", X), pm.Data("g", g), pm.Data("outcomes", y)
        a, b, s = pm.Normal("a", 0.0, 2.0, shape=3), pm.Normal("b", 0.0, 1.0, shape=2), pm.HalfNormal("s", 1.0)
        getattr(pm, law)("y", a[codes] + table @ b, s, observed=outcomes)
    return mcmc.from_pymc(model, **options), X, g, y


def test_bounds_of_a_pymc_model_are_those_of_its_terms_in_jax():
    model, X, g, y = pymc_model("Logistic", third_derivatives="auto")

    def terms(theta, rows):
        eta = theta[:3][jnp.asarray(g)[rows]] + jnp.asarray(X)[rows] @ theta[3:5]
        z = (jnp.asarray(y)[rows] - eta) / jnp.exp(theta[5])
        return -z - theta[5] - 2.0 * jnp.logaddexp(-z, 0.0)

    assert [name.split("[")[0] for name in model.names] == ["a"] * 3 + ["b"] * 2 + ["s_log__"]
    plain = mcmc.FunctionModel(terms, 6, 400, backend="jax", third_derivatives="auto")
    reference = model.reference()
    weights, radius, *_ = plain._bounds(reference.theta_hat, reference.factor)
    assert radius == reference.radius
    np.testing.assert_allclose(reference.weights, weights, rtol=0.3)  # written otherwise, so bounded otherwise
    kernel = mcmc.PoissonMinibatchMetropolis(model, control_variate=reference)
    assert mcmc.sample(kernel, n_draws=50, n_tune=50, n_chains=1, rng=1).draws.shape == (1, 50, 6)

    # Third derivatives along random ways, from differences of PyMC's own terms.
    rng, largest, rows, h = np.random.default_rng(2), 0.0, np.arange(400), 0.05
    for _ in range(20):
        way = rng.standard_normal(6)
        way *= h / np.linalg.norm(way)
        z = rng.standard_normal(6)
        z *= (radius - 2.0 * h) * rng.random() / np.linalg.norm(z)
        at = [model.terms(reference.theta_hat + reference.factor @ (z + k * way), rows) for k in (-2, -1, 1, 2)]
        third = (at[3] - 2.0 * at[2] + 2.0 * at[1] - at[0]) / (2.0 * h**3)
        largest = max(largest, float((np.abs(third) / reference.weights).max()))
    assert 0.05 < largest <= 1.0


def test_pymc_models_without_bounds_are_refused():
    with pytest.raises(ValueError, match="no bound was found for the term of row"):
        model = pymc_model("Laplace", third_derivatives="auto")[0]
        model._bounds(np.zeros(6), 0.1 * np.eye(6))
    with pytest.raises(ValueError, match="third_derivatives is 'yes'"):
        pymc_model("Logistic", third_derivatives="yes")
    model = pymc_model("Logistic")[0]
    with pytest.raises(ValueError, match="leave one of them out"):
        mcmc.PyMCModel(model.pymc_model, variables=["a"], third_derivatives="auto")
    assert model._bounds(np.zeros(6), np.eye(6))[0] is None
