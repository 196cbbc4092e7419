"""Terms that are a user's function of a linear predictor: derivatives, bounds and exact chains, without a table."""

import pickle

import numpy as np
import pytest
from scipy import sparse, stats

from fastrace import mcmc
from fastrace.likelihoods import GLMSource
from fastrace.mcmc.models import own_terms

RNG = np.random.default_rng(3)
N, D = 400, 3
X = RNG.normal(size=(N, D))
Y = (RNG.random(N) < 1 / (1 + np.exp(-X @ [1.0, -0.5, 0.2]))).astype(float)
OFFSET = RNG.normal(scale=0.3, size=N)


def slope(order):
    def of(eta, y):
        p = 1.0 / (1.0 + np.exp(-eta))
        return [y - p, -p * (1 - p), -p * (1 - p) * (1 - 2 * p), -p * (1 - p) * (1 - 6 * p * (1 - p))][order]
    return of


CURVE = [lambda eta, y: y * eta - np.logaddexp(0.0, eta), *map(slope, range(4))]


def of_jax(eta, y):
    import jax.numpy as jnp
    return y * eta - jnp.logaddexp(0.0, eta)


def of_pytensor(eta, y):
    import pytensor.tensor as pt
    return y * eta - pt.softplus(eta)


TERMS = {"numpy": CURVE, "jax": of_jax, "pytensor": of_pytensor}


def made(backend="numpy", x=X, **options):
    return mcmc.PredictorModel(TERMS[backend], x, [Y], backend=backend, offset=OFFSET, prior_sd=3.0, **options)


@pytest.mark.parametrize("backend", ["numpy", "jax", pytest.param("pytensor", marks=pytest.mark.long)])
def test_terms_sums_and_what_is_left_are_those_of_the_glm(backend):
    if backend != "numpy":
        pytest.importorskip(backend)
    model, glm = made(backend), mcmc.GLM(X, Y, "logistic", offset=OFFSET, prior_sd=3.0)
    at, rows = np.array([0.5, -0.2, 0.1]), np.array([3, 3, 399, 0, 17])
    own, theirs = model.reference(), glm.reference()
    np.testing.assert_allclose(own.theta_hat, theirs.theta_hat, atol=1e-7)
    np.testing.assert_allclose(own.factor, theirs.factor, rtol=1e-6, atol=1e-9)
    own = model.reference(at)
    for reference in (None, own):
        source, theta = model.engine(reference)
        other, phi = glm.engine(None if reference is None else glm.reference(at))
        theta[:], phi[:] = at + 0.3, at + 0.3
        np.testing.assert_allclose(source.read(rows, [0, 1]), other.read(rows, [0, 1]), rtol=1e-9, atol=1e-12)
    eta = np.linspace(-3.0, 3.0, 5)
    for order, part in enumerate(model.curve(4, eta, rows)):
        np.testing.assert_allclose(part, CURVE[order](eta, Y[rows]), rtol=1e-9, atol=1e-13)


def test_bounds_hold_over_the_reach_and_are_not_much_too_wide():
    """Against the largest third derivative on a grid a hundred times as fine, of every row."""
    model = made()
    reference = model.reference()
    lengths = np.linalg.norm(X @ reference.factor, axis=1)
    center = model.predictors(reference.theta_hat, slice(None))
    for radius, weights in (*reference.shells, (reference.radius, reference.weights)):
        fine = center[:, None] + (lengths * radius)[:, None] * np.linspace(-1.0, 1.0, 1501)
        largest = np.abs(CURVE[3](fine, Y[:, None])).max(axis=1)
        assert (weights >= largest * lengths**3).all() and weights.sum() < 1.4 * (largest * lengths**3).sum()


@pytest.mark.parametrize("kernel", [mcmc.PoissonMinibatchMetropolis, mcmc.SurrogateMetropolis])
def test_exact_chains_are_the_posterior(kernel):
    model = made()
    options = {"decision": "poisson"} if kernel is mcmc.SurrogateMetropolis else {}
    trace = mcmc.sample(kernel(model, **options), n_draws=1500, n_chains=2, rng=1)
    answer = mcmc.laplace(mcmc.GLM(X, Y, "logistic", offset=OFFSET, prior_sd=3.0), n_draws=4000, rng=1)
    weights = np.exp(answer.log_weights - answer.log_weights.max())
    weights /= weights.sum()
    mean = weights @ answer.draws
    sd = np.sqrt(weights @ (answer.draws - mean) ** 2)
    error = sd * np.sqrt(1.0 / trace.ess() + 1.0 / 3000)
    assert (np.abs(trace.draws.mean(axis=(0, 1)) - mean) < stats.norm.isf(1e-7) * error).all()
    np.testing.assert_allclose(trace.draws.std(axis=(0, 1)), sd, rtol=0.25)
    assert trace.rows.mean() < N


def test_a_row_beyond_its_bound_stops_the_chain_and_draws_are_kept():
    """A narrow step between the points of the grid, which the bounds do not see."""
    def stepped(eta, y):
        return CURVE[0](eta, y) + 0.5 * np.tanh(200.0 * (eta - 0.37))

    model = mcmc.PredictorModel([stepped, *CURVE[1:]], X, [Y], backend="numpy", prior_sd=3.0)
    with pytest.raises(ValueError, match="bound") as caught:
        mcmc.sample(mcmc.PoissonMinibatchMetropolis(model), n_draws=2000, n_chains=1, n_tune=0, rng=1)
    assert caught.value.trace.draws.shape[2] == D


def test_no_table_is_made_and_sparse_rows_and_pickles_do(monkeypatch):
    monkeypatch.setattr(mcmc.FunctionModel, "_table", None)
    model, thin = made(), made(x=sparse.csr_matrix(X))
    rows = np.array([5, 1])
    for other in (thin, pickle.loads(pickle.dumps(mcmc.PredictorModel(
            [GLMSource] * 5, X, [Y], backend="numpy")))):
        assert other.dim == D and other._kept is None
    np.testing.assert_allclose(thin.reference().weights, model.reference().weights, rtol=1e-9)
    np.testing.assert_allclose(thin.terms(np.ones(3), rows), model.terms(np.ones(3), rows), rtol=1e-12)
    assert sum(part.nbytes for part in model._at(model.reference().theta_hat)) == 4 * 8 * N


@pytest.mark.parametrize(("make", "words"), [
    (lambda: mcmc.PredictorModel(CURVE[:3], X, backend="numpy"), "needs 5 functions"),
    (lambda: mcmc.PredictorModel(CURVE, X[0], backend="numpy"), r"X has shape \(3,\)"),
    (lambda: mcmc.PredictorModel(CURVE, X, [Y[1:]], backend="numpy"), r"\[\(399,\)\]; \(400,\)"),
    (lambda: mcmc.PredictorModel(of_jax, X, [Y], backend="stan"), "backend"),
    (lambda: mcmc.PredictorModel([lambda eta, y: 0.0, *CURVE[1:]], X, [Y], backend="numpy").terms(
        np.zeros(3), np.arange(2)), "one value per row"),
])
def test_bad_input_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


# Terms of all parameters.


def of_two(theta, rows):
    """A location and the logarithm of a scale."""
    return -0.5 * ((X[rows, 0] - theta[0]) * np.exp(-theta[1])) ** 2 - theta[1]


def of_two_by_jax(theta, rows):
    import jax.numpy as jnp
    return -0.5 * ((jnp.asarray(X)[rows, 0] - theta[0]) * jnp.exp(-theta[1])) ** 2 - theta[1]


def derivatives_of_two(theta, rows):
    z, w = X[rows, 0] - theta[0], np.exp(-2.0 * theta[1])
    mixed = -2.0 * z * w
    return (np.stack([z * w, z**2 * w - 1.0], axis=1),
            np.stack([[np.full(len(rows), -w), mixed], [mixed, -2.0 * z**2 * w]]).transpose(2, 0, 1))


@pytest.mark.parametrize("kind", ["anew", pytest.param("jax", marks=pytest.mark.long)])
def test_what_is_left_needs_no_table(kind, monkeypatch):
    """The same source, chain and reference as by the table, up to rounding."""
    kept = mcmc.FunctionModel(of_two, 2, N, derivatives=derivatives_of_two)
    reference = kept.reference()
    source, theta = kept.engine(reference)
    if kind == "anew":
        monkeypatch.setattr(own_terms, "_MOST_TABLE", 100)
        monkeypatch.setattr(own_terms, "_MOST_AT_ONCE", 12)
        other = mcmc.FunctionModel(of_two, 2, N, derivatives=derivatives_of_two)
    else:
        pytest.importorskip("jax")
        other = mcmc.FunctionModel(of_two_by_jax, 2, N, backend="jax")
        np.testing.assert_allclose(other.reference().theta_hat, reference.theta_hat, atol=1e-8)
        np.testing.assert_allclose(other.reference().factor, reference.factor, rtol=1e-6, atol=1e-9)
        with pytest.raises(ValueError, match="leave it out"):
            mcmc.FunctionModel(of_two_by_jax, 2, N, derivatives=derivatives_of_two, backend="jax")
    thin, phi = other.engine(reference)
    monkeypatch.setattr(other, "_table", None)
    theta[:] = phi[:] = reference.theta_hat + [[0.1, -0.2], [-0.3, 0.1]]
    rows = np.array([7, 7, 0, 399, 20])
    np.testing.assert_allclose(thin.read(rows, [0, 1]), source.read(rows, [0, 1]), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(thin.totals([0, 1]), source.totals([0, 1]), rtol=1e-9)
    assert pickle.loads(pickle.dumps(other)).has_derivatives
    bounded = mcmc.FunctionModel(other.terms, 2, N, derivatives=other.derivatives, third_derivatives=30.0,
                                 backend=other.backend)
    assert mcmc.PoissonMinibatchMetropolis(bounded).reference.weights.shape == (N,)
