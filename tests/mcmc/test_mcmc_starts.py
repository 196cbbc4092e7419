"""Default starts of chains lie where the posterior is not 0, whatever edges it has."""

import numpy as np
import pytest
from scipy import stats

from fastrace import mcmc
from fastrace.mcmc._scales import first_point
from fastrace.mcmc.kernels import _rows, _surrogate_moves
from fastrace.mcmc.kernels._trajectories import _inside
from guarantee import assert_fits

X = np.random.default_rng(0).normal(size=(40, 2))
BINARY = (np.random.default_rng(1).random(40) < 1.0 / (1.0 + np.exp(-0.3 * X[:, 0]))).astype(float)
COUNT, Y = 6, np.random.default_rng(3).exponential(2.0, 6)


def rates(**options):
    """Exponential waiting times by their rate, which must be positive: terms are -inf beyond that edge."""
    def terms(theta, rows):
        return np.log(theta[0]) - theta[0] * Y[rows] if theta[0] > 0.0 else np.full(len(rows), -np.inf)

    def derivatives(theta, rows):
        return 1.0 / theta[0] - Y[rows][:, None], np.full((len(rows), 1, 1), -(theta[0] ** -2.0))

    return mcmc.FunctionModel(terms, 1, COUNT, derivatives=derivatives, start=[0.5], prior_sd=10.0, **options)


def half(theta):
    return -0.5 * float(theta @ theta) if theta[0] > 0.0 else -np.inf


def box(theta):
    return 0.0 if (np.abs(theta) < 0.8).all() else -np.inf


MODELS = {
    "rates": rates,
    "half": lambda: mcmc.GLM(X, BINARY, log_prior=half),
    "box": lambda: mcmc.GLM(X, BINARY, log_prior=box, prior_sd=10.0),
    "half, with a gradient": lambda: mcmc.GLM(X, BINARY, prior=mcmc.LogDensity(half, lambda theta: -theta)),
    "box, with a gradient": lambda: mcmc.GLM(
        X, BINARY, prior=[mcmc.Normal(0.0, 1.0), mcmc.LogDensity(box, np.zeros_like)]),
    "box beside groups": lambda: mcmc.GLM(
        X, BINARY, groups=np.arange(40) // 8,
        prior=[mcmc.Normal(0.0, 1.0), mcmc.LogDensity(box, np.zeros_like, names=("x0", "x1"))]),
}
KERNELS = {
    "HMC": mcmc.HMC,
    "SurrogateMetropolis": mcmc.SurrogateMetropolis,
    "SurrogateMetropolis, hmc": lambda model: mcmc.SurrogateMetropolis(model, inner="hmc"),
    "RacingMetropolis": mcmc.RacingMetropolis,
    "RacingSlice": mcmc.RacingSlice,
    "Metropolis": mcmc.Metropolis,
    "Slice": mcmc.Slice,
    "PoissonMinibatchMetropolis": mcmc.PoissonMinibatchMetropolis,
    "TunaMetropolis": mcmc.TunaMetropolis,
    "FireflyMetropolis": mcmc.FireflyMetropolis,
    "VariableSelection": mcmc.VariableSelection,
}
ON_SURROGATE = list(KERNELS)[:3]
NO_GRADIENT, LEARNED = ("half", "box"), ("box beside groups",)


def pairs():
    for model in MODELS:
        for kernel in KERNELS:
            if kernel in ON_SURROGATE:
                fits = model not in NO_GRADIENT
            elif kernel == "VariableSelection":
                fits = model == "rates"
            else:
                fits = model not in LEARNED and (model != "rates" or kernel in list(KERNELS)[3:7])
            if fits:
                yield pytest.param(model, kernel, id=f"{kernel} of {model}")


@pytest.mark.parametrize(("name", "kind"), list(pairs()))
def test_starts_lie_inside(name, kind):
    model = MODELS[name]()
    kernel = KERNELS[kind](model)
    moving = getattr(kernel, "_unconstrained", lambda draws: draws)
    for seed in range(30):
        rng = np.random.default_rng(seed)
        state = kernel.init(None, rng)
        assert np.isfinite(model.log_posteriors(state.position[None])[0])
        if kind != "VariableSelection":         # which has starts of its own for each chain
            start = kernel.dispersed(rng)
            assert np.isfinite(model.log_posteriors(moving(start)[None])[0])


@pytest.mark.parametrize("name", MODELS)
def test_there_are_edges_within_reach_of_starts(name, monkeypatch):
    """A control: without a look at the posterior some of as many starts lie outside."""
    model = MODELS[name]()
    kernel = (mcmc.RacingMetropolis if name in NO_GRADIENT else mcmc.HMC)(model)
    for where in (_rows, _surrogate_moves):
        monkeypatch.setattr(where, "first_inside", lambda model, middle, draw: draw())
    starts = kernel._unconstrained([kernel.dispersed(np.random.default_rng(seed)) for seed in range(30)])
    assert sum(not model.possible(start) for start in starts) > 2


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", ON_SURROGATE)
@pytest.mark.parametrize("name", ["rates", "box, with a gradient"])
def test_chains_run_from_any_seed(name, kind):
    kernel = KERNELS[kind](MODELS[name]())
    for seed in range(10):
        for n_tune in (0, 20):
            trace = mcmc.sample(kernel, n_draws=5, n_chains=3, rng=seed, n_tune=n_tune, threads=1)
            assert np.isfinite(trace.draws).all()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", ON_SURROGATE)
def test_an_edge_is_kept_to_by_the_draws(kind):
    """The posterior of the rate is a gamma law, but for the normal prior, which the density of its bins has."""
    trace = mcmc.sample(KERNELS[kind](rates()), n_draws=1000, n_chains=4, rng=1, threads=1)
    grid = np.linspace(1e-4, 5.0, 20_001)
    mass = np.cumsum(stats.gamma.pdf(grid, COUNT + 1, scale=1.0 / Y.sum()) * np.exp(-0.005 * grid**2))
    ends = np.interp(np.linspace(0.1, 0.9, 9), mass / mass[-1], grid)
    draws = trace.draws[:, ::10].ravel()
    assert_fits(np.bincount(np.searchsorted(ends, draws), minlength=10), np.full(10, 0.1))


def test_trajectories_begin_where_a_density_of_a_learned_scale_allows():
    """Nothing moves from where the prior is 0: the scale of coefficients near 0 is looked for in the box."""
    own = mcmc.LogDensity(box, np.zeros_like)
    compressed = mcmc.compress(mcmc.GLM(X, BINARY, prior=[mcmc.Normal(0.0, mcmc.HalfNormal(1.0)), own]))
    hat, prior = np.array(compressed.psi_hat), compressed.prior
    first, _ = first_point(prior, hat, 1.0 / np.sqrt(compressed.curvature.diagonal()))
    assert prior.value_of(first) == -np.inf
    found = _inside(prior, first, 0)
    assert np.isfinite(prior.value_of(found)) and (found[:2] == first[:2]).all()
    assert _inside(prior, found, 0) is found


@pytest.mark.parametrize("kind", ["Metropolis", "SurrogateMetropolis", "HMC"])
def test_no_start_is_an_error_in_words(kind):
    """The likelihood has a mode where the prior is 0 all around."""
    own = mcmc.LogDensity(lambda theta: 0.0 if theta[0] > 1e6 else -np.inf, np.zeros_like)
    model = mcmc.GLM(X, BINARY, prior=[mcmc.Normal(0.0, 1.0), own])
    kernel = mcmc.Metropolis(model) if kind == "Metropolis" else KERNELS[kind](model, psi_hat=np.zeros(2))
    with pytest.raises(ValueError, match="no start was found .*: it is -inf at .*; give such a point as init"):
        mcmc.sample(kernel, n_draws=5, n_chains=2, rng=1)


NORMAL = X @ [1.0, 1.0] + np.random.default_rng(2).normal(size=40)
EDGE = 1.5      # of the first coefficient; the rows alone have their mode far below


def beyond(theta):
    return 0.0 if theta[0] > EDGE else -np.inf


def outside():
    """The mode of the rows lies beyond an edge of the prior."""
    return mcmc.GLM(X, NORMAL, family="gaussian", scale=1.0,
                    prior=[mcmc.Normal(0.0, 10.0), mcmc.LogDensity(beyond, np.zeros_like)])


def truth_outside():
    """Mean of the first coefficient by quadrature."""
    precision = X.T @ X + np.eye(2) / 100.0
    mean, covariance = np.linalg.solve(precision, X.T @ NORMAL), np.linalg.inv(precision)
    assert mean[0] + 3.0 * np.sqrt(covariance[0, 0]) < EDGE
    grid = np.linspace(EDGE, EDGE + 1.0, 100_001)
    mass = np.exp(-0.5 * ((grid - mean[0]) ** 2 - (EDGE - mean[0]) ** 2) / covariance[0, 0])
    return (grid * mass).sum() / mass.sum()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", [None, "Metropolis", "RacingMetropolis", "RacingSlice", "Slice", "HMC",
                                  "PoissonMinibatchMetropolis", "SurrogateMetropolis"])
def test_a_start_of_the_users_own_needs_no_other(kind):
    """It is used where no start near the mode exists, each chain's own too."""
    model = outside()
    kernel = model if kind is None else KERNELS[kind](model)
    for init in ([2.0, 1.0], [[2.0, 1.0], [1.8, 0.9]], {"x0": 2.0, "x1": [1.0, 0.9]}):
        trace = mcmc.sample(kernel, init, n_draws=20, n_chains=2, rng=1, n_tune=0)
        assert (trace.draws[..., 0] > EDGE).all()
    with pytest.raises(ValueError, match=r"init has shape \(3,\); \(2,\) for all chains"):
        mcmc.sample(kernel, [2.0, 1.0, 1.0], n_draws=5, n_chains=2, rng=1)


def test_a_model_is_sampled_beyond_an_edge_from_a_users_start():
    starts = [[2.0, 1.0], [1.6, 0.9], [1.8, 1.1], [1.7, 0.7]]
    trace = mcmc.sample(outside(), starts, n_draws=4000, n_chains=4, rng=1)
    assert trace.kernel["kernel"] == "Metropolis" and "no start was found" in trace.kernel["chosen"]
    theirs = trace.draws[..., 0]
    error = theirs.std() / np.sqrt(float(trace.ess()[0]))
    assert abs(theirs.mean() - truth_outside()) < 4.0 * error < 0.02


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("derives", [True, False])
@pytest.mark.parametrize("kind", [None, "Metropolis", "RacingMetropolis", "Slice"])
def test_the_start_of_a_model_is_tried(kind, derives):
    """After points near the mode, and in place of zeros where there are no derivatives."""
    def derivatives(theta, rows):
        return (NORMAL[rows] - X[rows] @ theta)[:, None] * X[rows], -X[rows, :, None] * X[rows, None]

    model = mcmc.FunctionModel(
        lambda theta, rows: -0.5 * (NORMAL[rows] - X[rows] @ theta) ** 2, 2, len(X), log_prior=beyond, prior_sd=10.0,
        derivatives=derivatives if derives else None, start=[2.0, 1.0])
    trace = mcmc.sample(model if kind is None else KERNELS[kind](model), n_draws=20, n_chains=2, rng=1)
    assert (trace.draws[..., 0] > EDGE).all()
