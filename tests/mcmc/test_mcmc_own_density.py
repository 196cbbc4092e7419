"""Where a likelihood is expanded under a log density of a user's own, which has its part in it where it matters."""

import pickle
from functools import partial

import numpy as np
import pytest
from scipy import stats

from fastrace import mcmc
from guarantee import assert_mean
from surrogates import SEED

RNG = np.random.default_rng(SEED)
N, D = 20_000, 3
X = np.column_stack([np.ones(N), RNG.normal(size=(N, D - 1))])
ETA = X @ [0.4, -0.5, 0.3]
OUTCOMES = {"logistic": (RNG.random(N) < 1.0 / (1.0 + np.exp(-ETA))) * 1.0, "poisson": RNG.poisson(np.exp(ETA)) * 1.0}
AWAY = np.array([1.0, -1.0, 1.0])


def likelihood_of(family):
    """Mode of the likelihood, and standard deviations there."""
    reference = mcmc.GLM(X, OUTCOMES[family], family, prior_sd=np.inf).reference()
    return reference.theta_hat, np.sqrt(np.square(reference.factor).sum(axis=1))


def log_normal(b, mean, sd):
    return -0.5 * np.sum(((b - mean) / sd) ** 2)


def slope_of_normal(b, mean, sd):
    return (mean - b) / sd**2


def density(mean, sd, backend="numpy", names=None):
    """A normal log density as a user might write it; "values" has no gradient."""
    if backend == "jax":
        jnp = pytest.importorskip("jax.numpy")
        return mcmc.LogDensity(lambda b: -0.5 * jnp.sum(((b - mean) / sd) ** 2), names=names, backend="jax")
    function, slope = (partial(each, mean=mean, sd=sd) for each in (log_normal, slope_of_normal))
    return mcmc.LogDensity(function, None if backend == "values" else slope, names)


def apart(family, away, tight):
    """The same posterior by an own density of each kind and by prior_sd, and how far from the likelihood it is."""
    hat, sd = likelihood_of(family)
    mean, own = hat + away * sd * AWAY, tight * sd
    known = mcmc.GLM(X, OUTCOMES[family], family, prior_mean=mean, prior_sd=own)
    return known, (lambda backend: mcmc.GLM(X, OUTCOMES[family], family, prior=density(mean, own, backend))), hat, sd


@pytest.mark.parametrize("backend", ["numpy", "jax", "values"])
@pytest.mark.parametrize(("family", "away", "tight"), [("logistic", 30.0, 1.0), ("poisson", 60.0, 0.3)])
def test_an_informative_density_moves_the_point_of_expansion_into_the_posterior(family, away, tight, backend):
    known, by, hat, sd = apart(family, away, tight)
    reference, made = known.reference(), mcmc.compress(by(backend))
    step = np.linalg.solve(reference.factor, made.psi_hat - reference.center)
    assert np.linalg.norm(np.linalg.solve(reference.factor, hat - reference.center)) > 15.0  # without the density
    assert np.linalg.norm(step) < 0.5  # of the posterior with it
    metric, moved = mcmc.compress(by(backend), psi_hat=hat).curvature.to_dense(), made.psi_hat - hat
    assert made.moved_by_density == pytest.approx(np.sqrt(moved @ metric @ moved), rel=1e-6)
    assert np.isnan(made.from_mode)


@pytest.mark.parametrize("backend", ["numpy", "jax"])
@pytest.mark.parametrize(("family", "away", "tight"), [("logistic", 30.0, 1.0), ("poisson", 60.0, 0.3)])
def test_chains_by_an_informative_density_are_those_by_the_same_prior(family, away, tight, backend):
    known, by, *_ = apart(family, away, tight)
    ours, theirs = (mcmc.sample(mcmc.SurrogateMetropolis(model), n_draws=1000, n_chains=2, rng=SEED)
                    for model in (by(backend), known))
    assert ours.kernel["moved_by_density"] > 15.0 and "moved_by_density" not in theirs.kernel
    assert not ours.warnings
    assert 0.5 < ours.ess().min() / theirs.ess().min()
    errors = np.hypot(*(trace.draws.std(axis=(0, 1)) / np.sqrt(trace.ess()) for trace in (ours, theirs)))
    z = (ours.draws.mean(axis=(0, 1)) - theirs.draws.mean(axis=(0, 1))) / errors
    assert (np.abs(z) < stats.norm.isf(1e-6 / (2 * D))).all()


def test_sampling_a_model_takes_the_moved_expansion():
    _, by, *_ = apart("logistic", 30.0, 1.0)
    trace = mcmc.sample(by("numpy"), n_draws=500, n_chains=2, rng=SEED)
    assert trace.kernel["kernel"] == "SurrogateMetropolis" and trace.ess().min() > 250.0


def test_a_density_that_moves_little_leaves_the_expansion_and_chains_as_they_were():
    """Bit for bit: the mode of all else, as it was before densities had a part in it."""
    hat, sd = likelihood_of("logistic")
    model = mcmc.GLM(X, OUTCOMES["logistic"], prior=density(hat + 3.0 * sd * AWAY, 5.0 * sd))
    made, kernels = mcmc.compress(model), []
    np.testing.assert_array_equal(made.psi_hat, model.reference().theta_hat)
    assert made.moved_by_density == 0.0
    for psi_hat in (None, model.reference().theta_hat):  # a point is taken as it is
        kernels.append(mcmc.SurrogateMetropolis(model, psi_hat=psi_hat))
        assert "moved_by_density" not in kernels[-1].describe()
    traces = [mcmc.sample(kernel, n_draws=50, n_chains=1, n_tune=50, rng=1).draws for kernel in kernels]
    np.testing.assert_array_equal(*traces)


def test_a_moved_expansion_is_restored_and_its_chains_go_on_bit_for_bit(tmp_path):
    _, by, *_ = apart("logistic", 30.0, 1.0)
    kernel = mcmc.SurrogateMetropolis(by("numpy"))
    again = pickle.loads(pickle.dumps(kernel.compressed))
    np.testing.assert_array_equal(again.psi_hat, kernel.compressed.psi_hat)
    assert again.moved_by_density == kernel.compressed.moved_by_density
    whole = mcmc.sample(kernel, n_draws=60, n_chains=2, n_tune=100, rng=1)
    path = tmp_path / "chains"
    mcmc.sample(kernel, n_draws=20, n_chains=2, n_tune=100, rng=1, checkpoint=path)
    parts = mcmc.sample(kernel, n_draws=60, n_chains=2, n_tune=100, rng=1, checkpoint=path)
    np.testing.assert_array_equal(parts.draws, whole.draws)


def test_a_tight_laplace_prior_has_its_part_too():
    hat, sd = likelihood_of("logistic")
    prior = {f"x{k}": mcmc.Laplace(float(hat[k] + 40.0 * sd[k] * AWAY[k]), float(sd[k] / 30.0)) for k in range(D)}
    made = mcmc.compress(mcmc.GLM(X, OUTCOMES["logistic"], prior=prior))
    # Where the slope of the likelihood is that of the prior, or at its kink: some 30 deviations away in each.
    assert made.moved_by_density > 15.0
    trace = mcmc.sample(mcmc.SurrogateMetropolis(mcmc.GLM(X, OUTCOMES["logistic"], prior=prior)), n_draws=500,
                        n_chains=2, rng=SEED)
    assert trace.kernel["moved_by_density"] == made.moved_by_density
    assert trace.ess().min() > 100.0


def test_with_groups_a_density_of_coefficients_moves_effects_along():
    """Beside learned scales: against the same prior of the same columns as a normal one."""
    codes = RNG.integers(0, 30, N)
    hat, sd = likelihood_of("logistic")
    mean, own = hat[1:] + 30.0 * sd[1:] * AWAY[1:], sd[1:]
    groups = {"groups": {"g": codes}, "group_prior": mcmc.HalfNormal(1.0), "names": ("1", "a", "b")}
    normal = {"1": mcmc.Normal(0.0, 2.5), "a": mcmc.Normal(mean[0], own[0]), "b": mcmc.Normal(mean[1], own[1])}
    known = mcmc.compress(mcmc.GLM(X, OUTCOMES["logistic"], prior=normal, **groups))
    flat = {"1": mcmc.Normal(0.0, 2.5), "a": mcmc.Normal(0.0, np.inf), "b": mcmc.Normal(0.0, np.inf)}
    prior = [flat, density(mean, own, names=("a", "b"))]
    made = mcmc.compress(mcmc.GLM(X, OUTCOMES["logistic"], prior=prior, **groups))
    assert made.moved_by_density > 15.0
    assert known.distance(made.psi_hat) < 3.0


def test_a_density_of_zero_at_the_mode_leads_nowhere():
    hat, _ = likelihood_of("logistic")
    beyond = mcmc.LogDensity(lambda b: 0.0 if b[0] > hat[0] + 1.0 else -np.inf, lambda b: np.zeros(D))
    model = mcmc.GLM(X, OUTCOMES["logistic"], prior=beyond)
    made = mcmc.compress(model)
    np.testing.assert_array_equal(made.psi_hat, model.reference().theta_hat)
    assert made.moved_by_density == 0.0


def test_an_edge_of_the_density_on_the_way_is_kept_to():
    """A slope that leads beyond where parameters are possible."""
    hat, sd = likelihood_of("logistic")
    edge = hat[1] + 20.0 * sd[1]

    def value(b):
        return 50.0 * b[1] / sd[1] if b[1] < edge else -np.inf

    slope = np.array([0.0, 50.0 / sd[1], 0.0])
    made = mcmc.compress(mcmc.GLM(X, OUTCOMES["logistic"], prior=mcmc.LogDensity(value, lambda b: slope)))
    assert hat[1] + 10.0 * sd[1] < made.psi_hat[1] < edge


def test_chunks_are_expanded_where_the_density_leads():
    known, by, *_ = apart("logistic", 30.0, 1.0)
    parts = [(X[k::4], OUTCOMES["logistic"][k::4]) for k in range(4)]
    made = mcmc.compress(by("numpy"), chunks=parts)
    reference = known.reference()
    assert made.from_mode <= np.sqrt(D)
    assert np.linalg.norm(np.linalg.solve(reference.factor, made.mode - reference.center)) < 0.5


def test_a_given_point_knows_where_the_density_leads():
    known, by, hat, _ = apart("logistic", 30.0, 1.0)
    made, reference = mcmc.compress(by("numpy"), psi_hat=hat), known.reference()
    np.testing.assert_array_equal(made.psi_hat, hat)
    assert made.from_mode > 15.0 and made.moved_by_density == 0.0
    assert np.linalg.norm(np.linalg.solve(reference.factor, made.mode - reference.center)) < 3.0


def test_means_are_those_of_quadrature():
    """One coefficient: the posterior by a grid."""
    rng = np.random.default_rng(SEED)
    x, y = np.ones((5000, 1)), (rng.random(5000) < 0.6) * 1.0
    own = density(np.array([1.6]), np.array([0.02]))
    trace = mcmc.sample(mcmc.SurrogateMetropolis(mcmc.GLM(x, y, prior=own)), n_draws=4000, n_chains=2, rng=SEED)
    assert trace.kernel["moved_by_density"] > 15.0
    grid = np.linspace(0.4, 2.0, 20_001)
    log = y.sum() * grid - len(y) * np.logaddexp(0.0, grid) - 0.5 * ((grid - 1.6) / 0.02) ** 2
    weights = np.exp(log - log.max())
    assert_mean(trace.draws[0, :, 0], weights @ grid / weights.sum())


def test_a_density_of_each_entry_is_refused_by_name():
    def ridge(theta):
        return -0.5 * theta**2

    model = mcmc.GLM(np.random.default_rng(0).normal(size=(50, 3)), np.arange(50) % 2, prior=mcmc.LogDensity(ridge))
    with pytest.raises(TypeError, match=r"log density 'ridge' returned .* theta of shape \(3,\); one number, .* sum"):
        model.log_posteriors(np.ones((1, 3)))
    with pytest.raises(TypeError, match=r"returned None at theta of shape \(2,\)"):
        mcmc.LogDensity(lambda theta: None).evaluate(np.ones(2))


def test_a_density_without_a_gradient_beyond_whose_edge_the_mode_lies_is_sampled_by_walks():
    """As a function given as log_prior is: nobody chose the kernel that needs a gradient."""
    x = RNG.normal(size=(200, 2))
    y = RNG.random(200) < 1.0 / (1.0 + np.exp(x @ [0.5, -0.5]))
    inside = mcmc.LogDensity(lambda theta: -0.5 * theta[1] ** 2 if theta[0] > 0.0 else -np.inf)
    trace = mcmc.sample(mcmc.GLM(x, y, prior=inside), init=[[0.5, 0.5], [0.2, 0.3]], n_draws=500, n_chains=2, rng=1)
    assert trace.kernel["kernel"] == "Metropolis" and (trace.draws[:, :, 0] > 0.0).all()


def test_trajectories_whose_pilot_would_begin_beyond_an_edge_have_a_step_that_moves():
    """No move of a pilot leaves a place of density 0, so that its step would shrink without end."""
    x = RNG.normal(size=(200, 2))
    y = RNG.random(200) < 1.0 / (1.0 + np.exp(x @ [0.5, -0.5]))
    inside = mcmc.LogDensity(lambda theta: -0.5 * theta[1] ** 2 if theta[0] > 0.0 else -np.inf,
                             lambda theta: np.array([0.0, -theta[1]]))
    kernel = mcmc.SurrogateMetropolis(mcmc.GLM(x, y, prior=inside))
    assert kernel.inner == "hmc" and kernel.describe()["step"] > 1e-3
    trace = mcmc.sample(kernel, init=[[0.05, 0.5], [0.2, 0.3]], n_draws=200, n_tune=100, n_chains=2, rng=1)
    assert (trace.draws[:, :, 0] > 0.0).all() and (trace.draws.std(axis=1) > 0.01).all()
