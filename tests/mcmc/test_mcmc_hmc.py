"""Hamiltonian Monte Carlo by the gradients of all rows: gradients, the twin, laws, running, arguments."""

import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse, stats
from scipy.special import logsumexp

from fastrace import mcmc
from fastrace._models._arrow import Arrow, Quadratic
from fastrace._models._priors import JointPrior
from fastrace._models._slopes import AskedSlopes, GLMSlopes
from fastrace.mcmc.compression import expansion_of
from fastrace.mcmc.kernels import _choice
from fastrace.mcmc.kernels._row_hamiltonian import RowInner
from fastrace.mcmc.kernels.hmc import stable_curvature
from guarantee import assert_fits, few_or_many
from reference.hamiltonian import split_trajectory

RNG = np.random.default_rng(11)
N = 700
X = RNG.normal(size=(N, 5)) / 2.0
ETA = X @ [0.5, -0.5, 0.2, 0.0, 0.3]
CODES = RNG.integers(6, size=N)
BINARY = (RNG.random(N) < 1.0 / (1.0 + np.exp(-ETA))).astype(float)
COUNTS = RNG.poisson(np.exp(ETA)).astype(float)
REAL = ETA + RNG.standard_normal(N)
POSITIVE = np.exp(REAL) + 0.1
WIDE, SPARSE = np.zeros((N, 10)), np.where(RNG.random((N, 5)) < 0.3, X, 0.0)
WIDE[:, ::2] = X
FAMILIES = {
    "logistic": (BINARY, {}), "probit": (BINARY, {}), "cloglog": (BINARY, {}), "poisson": (COUNTS, {}),
    "binomial": (np.minimum(COUNTS, 3.0), {"trials": np.full(N, 3.0)}), "negative-binomial": (COUNTS, {"scale": 0.7}),
    "gamma": (POSITIVE, {"scale": 0.5}), "gaussian": (REAL, {"scale": 1.2}), "student-t": (REAL, {"scale": 0.8}),
}
TABLES = {"float32": X.astype(np.float32), "columns": np.asfortranarray(X), "apart": WIDE[:, ::2],
          "float32 apart": WIDE.astype(np.float32)[:, ::2], "sparse": sparse.csr_array(SPARSE),
          "sparse float32": sparse.csr_array(SPARSE.astype(np.float32))}


def sums_at(model, theta):
    """What `_expand` knows, which other tests hold against differences."""
    value, slope, _ = expansion_of(model, theta)
    return value, slope


def assert_slopes(model, theta):
    value, slope = model._slopes().evaluate(theta)
    expected, gradient = sums_at(model, theta)
    assert value == pytest.approx(expected, rel=1e-11, abs=1e-9)
    np.testing.assert_allclose(slope, gradient, rtol=1e-9, atol=1e-9 * np.abs(gradient).max())


@pytest.mark.parametrize(("family", "learned"), [
    (family, learned) for family, (_, options) in FAMILIES.items() for learned in (False, True)
    if not learned or "scale" in options])
def test_slopes_are_those_of_the_expansion(family, learned):
    y, options = FAMILIES[family]
    options = {**options, "scale": None} if learned else options
    weights = RNG.integers(0, 3, size=N).astype(float)
    model = mcmc.GLM(X, y, family, offset=0.1 * RNG.normal(size=N), weights=weights, **options)
    form = model._surrogate_form()
    assert isinstance(form._slopes(), GLMSlopes)
    assert_slopes(form, RNG.normal(size=form.n_seen) * 0.3)


@pytest.mark.parametrize("table", TABLES)
def test_slopes_of_every_table(table):
    theta = RNG.normal(size=5) * 0.3
    model = mcmc.GLM(TABLES[table], BINARY)
    assert_slopes(model, theta)
    if "32" not in table and "sparse" not in table:         # the same numbers lie differently
        slopes = [m._slopes().evaluate(theta) for m in (model, mcmc.GLM(X, BINARY))]
        assert slopes[0][0] == slopes[1][0]
        np.testing.assert_array_equal(slopes[0][1], slopes[1][1])


@pytest.mark.parametrize("table", [X, sparse.csr_array(SPARSE)], ids=["dense", "sparse"])
def test_slopes_of_groups(table):
    dense = X if isinstance(table, np.ndarray) else SPARSE
    factors = {"a": mcmc.Groups(CODES, slopes=[1] if table is X else dense[:, 1:2]), "b": RNG.integers(3, size=N)}
    model = mcmc.GLM(table, BINARY, groups=factors)._surrogate_form()
    assert_slopes(model, RNG.normal(size=model.n_seen) * 0.3)


def test_slopes_of_more_rows_than_a_block_and_of_few():
    for n in (1, 3, 255, 257, N):
        assert_slopes(mcmc.GLM(X[:n], BINARY[:n], prior_sd=1.0), RNG.normal(size=5))
    rows = RNG.integers(N, size=40_000)
    assert_slopes(mcmc.GLM(X[rows], BINARY[rows]), RNG.normal(size=5))


def test_slopes_of_other_models():
    y = RNG.integers(3, size=N)
    softmax = mcmc.Softmax(X, y, prior_sd=1.0, weights=RNG.integers(0, 3, size=N).astype(float))
    assert_slopes(softmax, RNG.normal(size=10) * 0.3)
    assert isinstance(softmax._slopes(), AskedSlopes)
    grouped = mcmc.Softmax(X, y, groups={"a": CODES, "b": mcmc.Groups(RNG.integers(3, size=N), slopes=[1])})
    assert_slopes(grouped, RNG.normal(size=grouped.n_seen) * 0.3)
    own = normal_terms()
    assert_slopes(own, np.array([0.3, -0.2]))


def normal_terms():
    x, z = X[:, :2], REAL
    return mcmc.FunctionModel(lambda theta, rows: -0.5 * (z[rows] - x[rows] @ theta) ** 2, 2, N,
                              derivatives=lambda theta, rows: ((z[rows] - x[rows] @ theta)[:, None] * x[rows],
                                                               -x[rows][:, :, None] * x[rows][:, None, :]),
                              prior_sd=1.0)


# The twin.

HALF = ("half-normal", 1.0, 0.0)
PRIORS = {
    "mixed": JointPrior([("student", 0.5, 1.0, 5.0, -1), ("laplace", 0.0, 0.7, 0.0, -1), ("normal", 0.0, 1.0, 0.0, -1),
                         ("flat", 0.0, 1.0, 0.0, -1), ("normal", 1.0, 2.0, 0.0, -1)]),
    "shared": JointPrior([("normal", 0.0, 1.0, 0.0, 0)] * 5, [("shared", HALF)]),
}


def inner_of(name, dense, step=0.7):
    prior = PRIORS[name].copy()
    prior.set_free([True, False, True, False, False])
    rng = np.random.default_rng(4)
    root = 0.2 * np.eye(prior.dim) + 0.03 * np.tril(rng.normal(size=(prior.dim, prior.dim)))
    root = root if dense else np.diag(root).copy()
    beside = Quadratic(np.linspace(-1.0, 1.0, 5), 0.3, np.full(5, 0.2), Arrow(np.eye(5) + 0.2))
    rows = GLMSlopes(mcmc.GLM(X, BINARY)._glm)
    center = 0.1 * rng.normal(size=prior.dim)
    return prior, rows, beside, center, root, RowInner(rows, beside, prior, center, step, 1.5, root)


@pytest.mark.parametrize("dense", [False, True])
def test_moves_are_those_of_the_twin(dense):
    prior, rows, beside, center, root, inner = inner_of("mixed", dense)
    start = np.array([0.1, 0.2, -0.1, 0.0, 0.3])
    ours = inner.draws(start, 40, np.random.default_rng(8))

    def density(xi):
        theta = prior.from_free(xi)
        parts = [prior.value_and_gradient(theta), rows.evaluate(theta), beside.evaluate(theta)]
        slopes, jacobian = prior.pulled_back(xi, sum(slope for _, slope in parts))
        return sum(value for value, _ in parts) + jacobian, slopes

    rng, at, accepted, gradients = np.random.default_rng(8), start, [], 0
    for theta in ours:
        xi, acceptance, count, _ = split_trajectory(prior.free_of(at), density, center,
                                                 root if dense else np.diag(root), 0.7, 1.5, rng)
        at, gradients = prior.from_free(xi), gradients + count
        accepted.append(acceptance)
        np.testing.assert_allclose(theta, at, rtol=1e-8, atol=1e-8)
    assert inner.acceptance == pytest.approx(np.mean(accepted), rel=1e-7)
    assert inner.n_gradients == gradients + 1       # that of the start; others were kept
    assert 0.2 < np.mean(accepted) < 1.0


def test_what_is_kept_of_a_point_changes_nothing():
    """From each point alone, by an object without memory of it, the move is bit for bit the same."""
    draws = inner_of("shared", True)[-1].draws(np.full(6, 0.1), 30, np.random.default_rng(2))
    rng, at = np.random.default_rng(2), np.full(6, 0.1)
    for draw in draws:
        at = inner_of("shared", True)[-1].draws(at, 1, rng)[0]
        np.testing.assert_array_equal(at, draw)
    assert len(np.unique(draws[:, 0])) > 10


# Laws.


def logistic_1d(n=12):
    """Few rows of one rare column, most of them failures: the posterior is far from normal."""
    x = np.linspace(0.2, 1.0, n)[:, None]
    return x, (np.arange(n) == n - 1).astype(float)


@few_or_many("count", 4000, 100_000)
@pytest.mark.parametrize("prior", [mcmc.Normal(0.0, 10.0), mcmc.StudentT(3.0, 0.0, 4.0), mcmc.Laplace(0.0, 5.0)])
def test_quadrature(prior, count):
    """Draws of a skewed posterior in one dimension fall into the tenths of its mass."""
    x, y = logistic_1d()
    kernel = mcmc.HMC(mcmc.GLM(x, y, prior={"x0": prior}))
    state, _ = kernel.run(np.random.default_rng(1), kernel.init([-1.0]), 500, tune=True)
    _, steps = kernel.run(np.random.default_rng(3), state, 12 * count)
    grid = np.linspace(-60.0, 40.0, 200_001)
    log = -np.logaddexp(0.0, np.outer(grid, -(2.0 * y - 1.0) * x[:, 0])).sum(axis=1)
    log += {mcmc.Normal: stats.norm(0.0, 10.0), mcmc.StudentT: stats.t(3.0, 0.0, 4.0),
            mcmc.Laplace: stats.laplace(0.0, 5.0)}[type(prior)].logpdf(grid)
    mass = np.cumsum(np.exp(log - logsumexp(log)))
    edges = np.interp(np.linspace(0.1, 0.9, 9), mass, grid)
    draws = steps.draws[11::12, 0]
    assert mcmc.effective_sample_size(draws[None]) > 0.8 * count
    assert_fits(np.bincount(np.searchsorted(edges, draws), minlength=10), np.full(10, 0.1))


@few_or_many("count", 3000, 50_000)
def test_a_closed_form_of_own_terms(count):
    """Normal outcomes: mean and covariance of the posterior are known."""
    kernel = mcmc.HMC(normal_terms())
    _, steps = kernel.run(np.random.default_rng(5), kernel.init([0.0, 0.0]), 5 * count)
    precision = X[:, :2].T @ X[:, :2] + np.eye(2)
    z = (steps.draws - np.linalg.solve(precision, X[:, :2].T @ REAL)) @ np.linalg.cholesky(precision)
    for j in range(2):
        cells = np.searchsorted(stats.norm.ppf(np.linspace(0.1, 0.9, 9)), z[4::5, j])
        assert_fits(np.bincount(cells, minlength=10), np.full(10, 0.1))


# In a kernel.

GROUPED = mcmc.GLM(X, BINARY, groups=CODES)
PLAIN = mcmc.GLM(X, BINARY, prior_sd=2.0)


def quietly(*arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")                             # that there are few draws
        return mcmc.sample(*arguments, **options)


@pytest.mark.parametrize("model", [PLAIN, GROUPED, normal_terms()], ids=["plain", "groups", "own"])
def test_a_kernel_goes_on_bit_for_bit_with_any_number_of_threads(model):
    pickled = not isinstance(model, mcmc.FunctionModel)             # whose functions are lambdas here
    kernel = mcmc.HMC(model)
    whole = quietly(kernel, n_draws=60, n_chains=3, n_tune=130, rng=2, threads=3)
    half = quietly(kernel, n_draws=25, n_chains=3, n_tune=130, rng=2, threads=1)
    rest = quietly(pickle.loads(pickle.dumps(kernel)) if pickled else mcmc.HMC(model), half, n_draws=35)
    for name in ("draws", "rows", "looks"):                         # whatever object went on with a chain
        parts = [getattr(trace, name) for trace in (half, rest)]
        np.testing.assert_array_equal(np.concatenate(parts, axis=1), getattr(whole, name))
    assert rest.kernel == whole.kernel
    sizes = [state.tuning.size for state in whole.states]
    assert whole.kernel["step"] == pytest.approx(min(sizes) * kernel.describe()["step"])


def test_a_checkpoint_goes_on_after_an_interruption(tmp_path):
    """As the run that was not interrupted, on the tuned steps of each chain."""
    def stop(chain, steps):
        raise KeyboardInterrupt

    options = {"n_draws": 200, "n_chains": 2, "n_tune": 100, "rng": 4}
    whole = quietly(mcmc.HMC(PLAIN), **options)
    with pytest.raises(KeyboardInterrupt):
        quietly(mcmc.HMC(PLAIN), **options, checkpoint=tmp_path / "c", callback=stop)
    resumed = quietly(mcmc.HMC(PLAIN), **options, checkpoint=tmp_path / "c")
    assert (resumed.draws == whole.draws).all() and (resumed.rows == whole.rows).all()


def test_steps_say_what_they_read_and_tuning_reaches_its_target():
    trace = mcmc.sample(mcmc.HMC(mcmc.GLM(*rare_columns(), prior_sd=2.0), target_accept=0.8), n_draws=1000,
                        n_chains=2, rng=3)
    assert trace.kernel["kernel"] == "HMC" and trace.kernel["target_accept"] == 0.8
    assert (trace.rows == trace.looks * 400).all() and trace.full_pass.all()
    assert 0.7 < trace.accepted.mean() < 0.9 and 1.0 <= trace.looks.mean() < 4.0
    assert not trace.warnings
    moved = (np.diff(trace.draws, axis=1) != 0.0).any(axis=2)
    assert (moved == trace.accepted[:, 1:]).all()


def test_natural_scales_are_recorded():
    trace = mcmc.sample(mcmc.HMC(GROUPED), n_draws=1000, n_chains=2, rng=1)
    assert trace.names[-1].startswith("sd(") and (trace.draws[:, :, -1] > 0.0).all()
    learned = mcmc.GLM(X, REAL, "gaussian", scale=None)
    trace = mcmc.sample(mcmc.HMC(learned), n_draws=1000, n_chains=2, rng=1)
    assert trace.names[-1] == "scale" and trace.draws[:, :, -1].mean() == pytest.approx(1.0, abs=0.1)


def test_draws_agree_with_those_of_a_kernel_that_reads_few_rows():
    """Softmax, and a formula's prior of the intercept as a part of its own."""
    y = RNG.integers(3, size=N)
    for model in (mcmc.Softmax(X, y, prior_sd=1.0), mcmc.GLM(X, COUNTS, "poisson", prior=mcmc.StudentT(4.0, 0.0, 1.0))):
        ours = mcmc.sample(mcmc.HMC(model), n_draws=1500, n_chains=2, rng=1)
        others = mcmc.sample(mcmc.SurrogateMetropolis(model), n_draws=6000, n_chains=2, rng=2)
        for j in range(model.dim):
            for power in (1, 2):
                a, b = (trace.draws[:, :, j] ** power for trace in (ours, others))
                error = np.hypot(*(x.std() / np.sqrt(mcmc.effective_sample_size(x)) for x in (a, b)))
                assert abs(a.mean() - b.mean()) < 6.0 * error


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"target_accept is 1\.0; a share"):
        mcmc.HMC(PLAIN, target_accept=1.0)
    with pytest.raises(TypeError, match="model is 3; a GLM or other"):
        mcmc.HMC(3)
    with pytest.raises(ValueError, match="no derivatives"):
        mcmc.HMC(mcmc.FunctionModel(lambda theta, rows: -theta[0] ** 2 + 0.0 * rows, 1, 5))
    with pytest.raises(ValueError, match=r"give LogDensity\(function, gradient\)"):
        mcmc.HMC(mcmc.GLM(X, BINARY, prior=mcmc.LogDensity(lambda theta: -0.5 * float(theta @ theta))))
    with pytest.raises(ValueError, match="log_prior without a gradient"):
        mcmc.HMC(mcmc.GLM(X, BINARY, prior_sd=1.0, log_prior=lambda theta: 0.0))
    with pytest.raises(ValueError, match="rows see 5 parameters and center has shape"):
        RowInner(GLMSlopes(PLAIN._glm), Quadratic(np.zeros(5), 0.0, np.zeros(5), Arrow(np.eye(5))), PRIORS["mixed"],
                 np.zeros(4), 0.5, 1.5, np.ones(5))


def test_a_start_where_the_posterior_is_not_finite_is_refused():
    counts = mcmc.GLM(X, COUNTS, "poisson", prior_sd=1.0)
    with pytest.raises(ValueError, match="chain's own state; a chain must start where it is finite"):
        mcmc.sample(mcmc.HMC(counts), init=np.full(5, 1e4), n_draws=5, n_chains=1, rng=1)


def spoiled(bad=None, slope=None):
    """Three normal outcomes, whose terms or their gradients are as given beyond 1."""
    z = np.array([0.5, 1.0, 0.2])

    def terms(theta, rows):
        out = -0.5 * (z[rows] - theta[0]) ** 2
        return np.where((rows == 1) & (theta[0] > 1.0), bad, out) if bad is not None else out

    def derivatives(theta, rows):
        slopes = (z[rows] - theta[0])[:, None]
        return (slopes if slope is None or theta[0] <= 1.0 else slope + 0.0 * slopes), -np.ones((len(rows), 1, 1))

    return mcmc.FunctionModel(terms, 1, 3, derivatives=derivatives, prior_sd=3.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("kernel", [mcmc.HMC, mcmc.SurrogateMetropolis])
def test_terms_that_are_no_numbers_are_errors(kernel, bad):
    with pytest.raises(ValueError, match=rf"the log-likelihood of row 1 is {bad}; finite numbers are needed, or -inf"):
        quietly(kernel(spoiled(bad)), [[0.0], [0.5]], n_draws=500, n_chains=2, rng=1)
    with pytest.raises(ValueError, match=rf"the log-likelihood of row 1 is {bad}; finite numbers are needed, or -inf"):
        quietly(kernel(spoiled(bad)), [2.0], n_draws=500, n_chains=1, rng=1)


def test_gradients_that_are_no_numbers_are_errors():
    with pytest.raises(ValueError, match=r"the gradient of the log-likelihood is not finite at \[1\."):
        quietly(mcmc.HMC(spoiled(slope=np.nan)), [[0.0], [0.5]], n_draws=500, n_chains=2, rng=1)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_priors_that_are_no_numbers_are_errors(bad):
    own = mcmc.LogDensity(lambda theta: -0.5 * float(theta @ theta) if theta[0] < 0.2 else bad, lambda theta: -theta)
    with pytest.raises(ValueError, match=f"{bad}"):
        quietly(mcmc.HMC(mcmc.GLM(X, BINARY, prior=own), psi_hat=np.zeros(5)), n_draws=500, n_chains=2, rng=1)


def test_impossible_parameters_are_refused():
    """A normal posterior, cut off at 1."""
    trace = quietly(mcmc.HMC(spoiled(-np.inf)), [[0.0], [0.5]], n_draws=4000, n_chains=2, rng=1)
    assert trace.draws.max() <= 1.0
    middle, sd = 1.7 / (3.0 + 1.0 / 9.0), (3.0 + 1.0 / 9.0) ** -0.5
    law = stats.truncnorm(-np.inf, (1.0 - middle) / sd, middle, sd)
    edges = law.ppf(np.linspace(0.1, 0.9, 9))
    assert_fits(np.bincount(np.searchsorted(edges, trace.draws[:, 9::10].ravel()), minlength=10), np.full(10, 0.1))


@pytest.mark.parametrize("at", [0.5, 5.0])
def test_chains_far_from_a_point_that_is_no_mode_have_arrived(at):
    trace = mcmc.sample(mcmc.HMC(PLAIN, psi_hat=np.full(5, at)), n_draws=1000, n_chains=2, rng=1)
    assert not trace.warnings and trace.ess().min() > 100


def test_separated_outcomes_under_a_kinked_prior_take_a_point():
    """The error says so. A grid says what the draws must be."""
    rng = np.random.default_rng(31)
    x = np.r_[rng.normal(-1.0, 0.5, 15), rng.normal(1.2, 0.5, 15)]
    model = mcmc.GLM(x[:, None], (x > 0.1) * 1.0, prior=mcmc.Laplace(scale=0.3))
    with pytest.raises(ValueError, match="no normal density follows") as caught:
        mcmc.HMC(model)
    assert "with psi_hat" in caught.value.__notes__[0]
    trace = mcmc.sample(mcmc.HMC(model, psi_hat=[2.0]), n_draws=2000, n_chains=2, rng=1)
    grid = np.linspace(-1.0, 12.0, 20_001)
    log = -np.logaddexp(0.0, np.outer(grid, -np.where(x > 0.1, 1.0, -1.0) * x)).sum(axis=1) - np.abs(grid) / 0.3
    mass = np.exp(log - logsumexp(log))
    mean, sd = mass @ grid, np.sqrt(mass @ grid**2 - (mass @ grid) ** 2)
    assert abs(trace.draws.mean() - mean) < 5.0 * sd / np.sqrt(trace.ess().min())


def few_groups():
    """Tails of their scales are narrow in the effects."""
    rng = np.random.default_rng(8)
    table = np.column_stack([np.ones(60), rng.normal(size=60)])
    g, h = rng.integers(5, size=60), rng.integers(3, size=60)
    y = table @ [0.3, 0.5] + 0.5 * rng.normal(size=5)[g] + rng.standard_t(4, 60)
    return mcmc.GLM(table, y, "student-t", scale=None, groups={"g": mcmc.Groups(g, [1]), "h": h})


def test_parts_too_narrow_for_the_step_are_told():
    trace = quietly(mcmc.HMC(few_groups()), n_draws=3000, n_chains=2, n_tune=1000, rng=11)
    told = [words for words in trace.warnings if "too narrow for the step of trajectories" in words]
    assert len(told) == 1 and "mcmc.SurrogateMetropolis(model)" in told[0]


def test_steps_are_stable_up_to_the_curvature_that_the_warning_asks_for():
    """Kicks by what lies beyond a normal density, and turns: their product stays bounded, or does not."""
    for angle in (0.1, 0.8, 1.6):
        limit = stable_curvature(angle)
        turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        for times, stable in ((0.99, True), (1.01, False)):
            kick = np.array([[1.0, 0.0], [-0.5 * angle * (times * limit - 1.0), 1.0]])
            assert (np.abs(np.linalg.eigvals(kick @ turn @ kick)).max() < 1.0 + 1e-6) == stable


# Chosen for a model without a kernel.


def rare_columns(n=400, dim=40, rare=10):
    rng = np.random.default_rng(1)
    table = rng.normal(size=(n, dim))
    table[:, 0], table[:, dim - rare :] = 1.0, rng.random((n, rare)) < 0.03
    theta = rng.normal(0.0, 0.3, dim)
    return table, (rng.random(n) < 1.0 / (1.0 + np.exp(2.0 - table @ theta))).astype(float)


def many_rows_of_rare_columns(seed):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(4000, 100))
    table[:, 0], table[:, 85:] = 1.0, rng.random((4000, 15)) < 0.01
    theta = rng.normal(0.0, 0.15, 100)
    theta[0] = -3.0
    y = (rng.random(4000) < 1.0 / (1.0 + np.exp(-table @ theta))).astype(float)
    return table, y


def test_it_is_chosen_where_expansions_are_bad():
    trace = mcmc.sample(mcmc.GLM(*rare_columns(), prior_sd=2.0), n_draws=1000, n_chains=2, rng=1)
    assert trace.kernel["kernel"] == "HMC" and not trace.warnings
    assert trace.kernel["chosen"].startswith("HMC reads") and "SurrogateMetropolis" in trace.kernel["chosen"]
    assert trace.ess().min() > 500


def test_independent_proposals_with_short_tails_are_left_aside():
    """One rare column in ten of many rows: weights of draws from the normal density have no finite variance."""
    table, y = many_rows_of_rare_columns(1)
    trace = mcmc.sample(mcmc.GLM(table, y, prior_sd=2.0), n_draws=1000, n_chains=2, rng=1)
    assert trace.kernel["kernel"] == "HMC" and not trace.warnings
    assert "in batches" in trace.kernel["chosen"]
    assert "Pareto k of its proposals' weights is 0.86" in trace.kernel["chosen"]
    assert trace.ess().min() > 500


def test_it_is_chosen_where_expansions_are_bad_and_a_scale_is_learned():
    """A pilot of 60 steps takes the surrogate's chains for good ones, which need 28 steps for an independent draw."""
    table, y = many_rows_of_rare_columns(3)
    trace = quietly(mcmc.GLM(table, y, prior=mcmc.Normal(0.0, mcmc.HalfNormal(1.0))), n_draws=300, n_chains=4, rng=1)
    assert trace.kernel["kernel"] == "HMC" and not trace.warnings


def test_a_prior_without_a_gradient_leaves_the_other_kernel():
    """Beside a learned scale, where the pilot of the surrogate asks for trajectories by gradients."""
    table, y = rare_columns(200, 60, 30)
    own = mcmc.LogDensity(lambda theta: -0.005 * float(theta @ theta))
    prior = [mcmc.Normal(0.0, mcmc.HalfCauchy(2.0)), own]
    trace = quietly(mcmc.GLM(table, y, prior=prior), n_draws=20, n_chains=2, rng=1)
    assert trace.kernel["kernel"] == "SurrogateMetropolis"


def test_it_is_not_tried_where_few_rows_do():
    rng = np.random.default_rng(3)
    table = rng.normal(size=(20_000, 5))
    y = (rng.random(20_000) < 0.5).astype(float)
    trace = mcmc.sample(mcmc.GLM(table, y, prior_sd=2.0), n_draws=200, n_chains=2, rng=1)
    assert "HMC" not in trace.kernel["chosen"]


def skewed_groups(family, n=6000, n_groups=300):
    """Effects of groups, few of which have most rows."""
    rng, share = np.random.default_rng(0), 1.0 / np.arange(1, n_groups + 1)
    x = rng.standard_normal(n)
    codes = rng.permutation(np.r_[np.arange(n_groups), rng.choice(n_groups, n - n_groups, p=share / share.sum())])
    eta = 0.5 * x - 0.5 + 1.5 * rng.standard_normal(n_groups)[codes]
    y = rng.gamma(2.0, np.exp(eta) / 2.0) if family == "gamma" else eta + rng.standard_t(2, n)
    return mcmc.GLM(np.column_stack([np.ones(n), x]), y, family, groups=codes)


@pytest.mark.parametrize("family", ["gamma", "student-t"])
def test_it_is_chosen_for_groups_where_the_expansion_is_bad_and_chains_stand_still(family):
    """Of 2 x 1,000 draws by the surrogate 6 and 8 were effective, by trajectories 31 and 77."""
    model = skewed_groups(family)
    chosen, why = _choice.kernel_for(model)
    assert type(chosen) is mcmc.HMC and why.startswith("HMC reads") and "SurrogateMetropolis" in why
    if family == "student-t":
        sizes = [quietly(kernel, n_draws=400, n_chains=2, n_tune=200, rng=1, threads=1).ess().min()
                 for kernel in (chosen, mcmc.SurrogateMetropolis(model))]
        assert sizes[0] > 2.0 * sizes[1]


@pytest.mark.parametrize(("n_groups", "n"), [(50, 20_000), (200, 20_000), (200, 150_000)])
def test_it_is_not_tried_for_groups_whose_surrogate_moves(n_groups, n, monkeypatch):
    """Nor are weights of its draws looked at: a pilot of 160 steps that read few rows is all that it takes."""
    rng = np.random.default_rng(n_groups)
    table, codes = np.column_stack([np.ones(n), rng.standard_normal((n, 3))]), rng.integers(n_groups, size=n)
    eta = table @ [0.3, -0.5, 0.2, 0.0] + 0.6 * rng.standard_normal(n_groups)[codes]
    model = mcmc.GLM(table, rng.random(n) < 1.0 / (1.0 + np.exp(-eta)), groups=codes)
    read, pilot = [], _choice._Pilot._go_on
    monkeypatch.setattr(_choice, "surrogate_k", lambda kernel: pytest.fail("the pilot moves well"))
    monkeypatch.setattr(_choice._Pilot, "_go_on", lambda self, k: (pilot(self, k), read.append(self._n)))
    chosen, _ = _choice.kernel_for(model)
    assert type(chosen) is mcmc.SurrogateMetropolis and chosen.decision == "poisson" and read == [_choice.STEPS]


def test_it_is_not_tried_where_the_surrogate_stands_still_and_its_weights_are_good(monkeypatch):
    """More draws, and not other moves, are what such chains lack."""
    monkeypatch.setattr(_choice, "surrogate_k", lambda kernel: 0.4)
    assert type(_choice.kernel_for(skewed_groups("student-t"))[0]) is mcmc.SurrogateMetropolis


def test_a_gradient_of_classes_is_priced_as_numpy_takes_it():
    """.24 to .27 us a row of three classes and .65 of nine were measured, where that of a GLM takes .009."""
    y = np.arange(60) % 3
    models = mcmc.Softmax(np.ones((60, 1)), y, groups=y), mcmc.GLM(np.ones((60, 1)), y > 0, groups=y)
    pilots = [_choice._Pilot(mcmc.HMC(model)) for model in models]
    prices = [(pilot.work - 36.0) / pilot.rows for pilot in pilots]
    np.testing.assert_allclose(prices, [3 * 0.85, 0.3])


# Divergent trajectories.


def waiting(seen):
    """Rates of waiting times, below 0 impossible; `seen` gets the points at which that was found."""
    y = np.random.default_rng(3).exponential(2.0, 6)

    def terms(theta, rows):
        if theta[0] > 0.0:
            return np.log(theta[0]) - theta[0] * y[rows]
        seen.append(theta[0])
        return np.full(len(rows), -np.inf)

    def derivatives(theta, rows):
        return 1.0 / theta[0] - y[rows][:, None], np.full((len(rows), 1, 1), -(theta[0] ** -2.0))

    return mcmc.FunctionModel(terms, 1, 6, derivatives=derivatives, start=[0.5], prior_sd=10.0)


def test_divergent_trajectories_are_those_of_the_twin():
    """Step for step, beyond an edge, near it, where the energy rises, and elsewhere; so are those of whole runs."""
    seen = []
    kernel = mcmc.HMC(waiting(seen))
    settled, model = kernel._trajectories, kernel.model

    def density(theta):
        value, slope = model._value_and_slope(theta) if theta[0] > 0.0 else (-np.inf, np.zeros(1))
        return value - 0.005 * float(theta @ theta), slope - 0.01 * theta

    rng, twin, state, told, rises = np.random.default_rng(1), np.random.default_rng(1), kernel.init([0.5]), [], []
    for _ in range(1000):
        found = split_trajectory(np.array(state.position), density, kernel._normal_center, settled.root, settled.step,
                                 settled.length, twin)
        seen.clear()
        state, step = kernel.step(rng, state)
        np.testing.assert_allclose(state.position, found[0], rtol=1e-9)
        rises.append(found[3])
        assert step.diverging == (rises[-1] > 1000.0) and (step.diverging or not seen)
        told.append(step.diverging)
    rises = np.array(rises)
    assert (rises == np.inf).any() and ((rises > 1000.0) & (rises < np.inf)).any() and sum(told) < 100
    rng, state = np.random.default_rng(1), kernel.init([0.5])
    state, first = kernel.run(rng, state, 300)
    _, second = kernel.run(rng, state, 700)
    assert np.concatenate([first.diverging, second.diverging]).tolist() == told


def test_divergent_trajectories_are_counted_shown_and_warned_of(tmp_path):
    """Those of draws that are kept, also where a run goes on."""
    def run(n_draws, init=None, **options):
        with pytest.warns(UserWarning, match=r"of .* trajectories diverged: .* target_accept, such as \.99"):
            return mcmc.sample(mcmc.HMC(waiting([])), init, n_draws, 2, 1, n_tune=50, threads=1, **options)

    whole = run(400, checkpoint=tmp_path / "whole")
    count = int(whole.diverging.sum())
    assert whole.diverging.shape == (2, 400) and 0 < count < 400
    assert any(f"{count} of 800 trajectories diverged" in words for words in whole.warnings)
    assert f"divergent {count}" in str(whole)
    assert (whole.to_arrays()["sample_stats"]["diverging"] == whole.diverging).all()
    run(200, checkpoint=tmp_path / "part")
    on = run(400, checkpoint=tmp_path / "part")
    further = run(200, run(200))
    assert (on.diverging == whole.diverging).all() and (further.diverging == whole.diverging[:, 200:]).all()
    assert (pickle.loads(pickle.dumps(whole)).diverging == whole.diverging).all()


@pytest.mark.filterwarnings("error")
def test_few_rows_without_a_funnel_have_no_divergent_trajectories():
    trace = mcmc.sample(mcmc.HMC(mcmc.GLM(X, BINARY, prior_sd=1.0)), n_draws=1000, n_chains=2, rng=1, threads=1)
    assert not trace.diverging.any() and "divergent 0" in str(trace)
    raced = mcmc.sample(mcmc.Metropolis(mcmc.GLM(X, BINARY, prior_sd=1.0)), n_draws=1000, n_chains=2, rng=1, threads=1)
    assert "diverging" not in raced.to_arrays()["sample_stats"] and not raced.diverging.any()


def test_steps_that_were_saved_without_marks_have_none():
    steps = mcmc.HMC(mcmc.GLM(X, BINARY, prior_sd=1.0))
    _, steps = steps.run(np.random.default_rng(1), steps.init(None, np.random.default_rng(2)), 5)
    old = object.__new__(type(steps))
    old.__setstate__({name: value for name, value in vars(steps).items() if name != "diverging"})
    assert old.diverging.tolist() == [False] * 5


def test_a_horseshoe_of_three_rows():
    """Its funnels are warned of, and the global scale has the law that quadrature over all local scales gives."""
    y = np.array([0.2, -0.4, 4.0])
    model = mcmc.GLM(np.eye(3), y, "gaussian", scale=1.0, prior=mcmc.Horseshoe(global_scale=1.0, slab_scale=np.inf))
    with pytest.warns(UserWarning, match="trajectories diverged"):
        trace = mcmc.sample(mcmc.HMC(model), n_draws=5000, n_chains=4, rng=1, threads=1)
    local = np.tan(0.5 * np.pi * (np.arange(20_000) + 0.5) / 20_000)
    grid = np.linspace(-9.0, 9.0, 361)
    log = [t - np.log1p(np.exp(2.0 * t)) + np.log(stats.norm.pdf(y[:, None], 0.0, np.sqrt(
        1.0 + np.exp(2.0 * t) * local**2)).mean(axis=1)).sum() for t in grid]
    mass = np.cumsum(np.exp(log - logsumexp(log)))
    edges = np.interp(np.linspace(0.1, 0.9, 9), mass, grid)
    draws = np.log(trace["global_scale(coefficients)"][:, ::10].ravel())
    assert_fits(np.bincount(np.searchsorted(edges, draws), minlength=10), np.full(10, 0.1))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_neck_of_neals_funnel_is_warned_of():
    """Nine effects as they are, whose spread's logarithm is known to 3: no step serves neck and mouth."""
    def funnel(theta):
        inverse = np.exp(-theta[0])
        return -0.5 * float(inverse * (theta[1:] @ theta[1:])) - 4.5 * theta[0] if theta[0] > -300.0 else -np.inf

    def slope(theta):
        inverse = np.exp(-max(theta[0], -300.0))
        return np.append(0.5 * inverse * (theta[1:] @ theta[1:]) - 4.5, -inverse * theta[1:])

    X = np.diag([1.0 / 3.0, *[0.05] * 9])
    model = mcmc.GLM(X, np.zeros(10), "gaussian", scale=1.0, prior=mcmc.LogDensity(funnel, slope))
    kernel = mcmc.HMC(model, psi_hat=np.zeros(10))
    with pytest.warns(UserWarning, match="trajectories diverged"):
        trace = mcmc.sample(kernel, np.zeros(10), n_draws=200, n_chains=2, rng=1, n_tune=0, threads=1)
    assert trace.diverging.any()


@pytest.mark.parametrize(("kind", "column", "far"), [
    (mcmc.HMC, "zeros", 0.5), (mcmc.HMC, "twice", 0.5), (mcmc.HMC, "ones", 1000.0),
    (mcmc.SurrogateMetropolis, "zeros", 0.5)])
def test_a_flat_direction_at_the_users_point_is_refused_in_words(kind, column, far):
    """A column of zeros, or twice the other, or rows far out; of a density of the user's own no curvature is known."""
    x = np.random.default_rng(0).normal(size=30)
    X = np.column_stack([{"zeros": 0.0 * x, "twice": 2.0 * x, "ones": np.ones(30)}[column], x])
    own = mcmc.LogDensity(lambda theta: -0.5 * float(theta @ theta), lambda theta: -theta)
    with pytest.raises(ValueError, match="flat in some direction.*: leave out columns that are 0 .*normal prior"):
        kind(mcmc.GLM(X, (x > 0.3).astype(float), prior=own), psi_hat=[0.0, far])
