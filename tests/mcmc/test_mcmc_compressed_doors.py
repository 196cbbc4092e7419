"""A compressed likelihood in place of the rows, in the models of other libraries."""

import numpy as np
import pytest
from scipy import special, stats

from chains import mostly_ones
from fastrace import mcmc
from fastrace.mcmc.doors import compressed as doors

SD = 2.5


@pytest.fixture(scope="module")
def logistic():
    model = mostly_ones(prior_sd=SD)
    return model, mcmc.compress(model)


def surrogate(compressed, psi):
    """Log density of prior times expansion, but for constants."""
    return compressed.log_likelihood(psi) - 0.5 * psi @ psi / SD**2


def same_up_to_a_constant(density, compressed, tolerance):
    points = compressed.psi_hat + np.random.default_rng(1).normal(scale=0.5, size=(5, 2))
    differences = [float(density(psi)) - surrogate(compressed, psi) for psi in points]
    np.testing.assert_allclose(differences, differences[0], atol=tolerance)


def test_stan_gets_a_quadratic_form(logistic):
    _, compressed = logistic
    data = {name: np.array(value) for name, value in doors.stan_data(compressed).items()}

    def program(psi):
        step = psi - data["psi_hat"]
        return data["slope"] @ step - 0.5 * step @ data["curvature"] @ step - 0.5 * psi @ psi / SD**2

    same_up_to_a_constant(program, compressed, 1e-10)
    with pytest.raises(TypeError, match=r"mcmc.compress\(model\)"):
        doors.stan_data(logistic[0])


def test_a_pymc_model_has_a_potential(logistic):
    pm = pytest.importorskip("pymc")
    _, compressed = logistic
    with pm.Model() as model:
        doors.pymc_potential(compressed, pm.Normal("b", 0.0, SD, shape=2))
    density = model.compile_logp()
    same_up_to_a_constant(lambda psi: density({"b": psi}), compressed, 1e-9)


def test_a_numpyro_model_has_a_factor(logistic):
    pytest.importorskip("jax")
    numpyro = pytest.importorskip("numpyro")
    from numpyro.infer.util import log_density

    _, compressed = logistic

    def model():
        b = numpyro.sample("b", numpyro.distributions.Normal(0.0, SD).expand([2]).to_event(1))
        doors.numpyro_factor(compressed, b)

    same_up_to_a_constant(lambda psi: log_density(model, (), {}, {"b": psi})[0], compressed, 1e-4)


def corrected_draws_are_the_posterior(draws, compressed, model):
    """Moments after `correct`, against sums over a grid of the posterior with rows."""
    about, z = model.reference(), np.linspace(-7.0, 7.0, 121)
    grid = np.stack([axis.ravel() for axis in np.meshgrid(z, z)], axis=1) @ about.factor.T + about.center
    weights = special.softmax(model.log_posteriors(grid))
    mean = weights @ grid
    sd = np.sqrt(weights @ np.square(grid - mean))
    trace = mcmc.correct(draws, compressed, model, 2, delta=0.01)
    error = sd / np.sqrt(trace.ess())
    assert (np.abs(trace.draws.mean(axis=(0, 1)) - mean) < 5.5 * error).all()
    assert 0.4 < trace.accepted.mean() < 0.99


def test_draws_of_blackjax_without_rows_are_corrected_to_the_posterior_with_rows(logistic):
    jax = pytest.importorskip("jax")
    blackjax = pytest.importorskip("blackjax")
    model, compressed = logistic
    log_likelihood = doors.jax_log_likelihood(compressed)
    algorithm = blackjax.hmc(lambda psi: log_likelihood(psi) - 0.5 * psi @ psi / SD**2, step_size=0.25,
                             inverse_mass_matrix=np.ones(2), num_integration_steps=8)

    def run(key):
        start = algorithm.init(jax.numpy.asarray(compressed.psi_hat))
        keys = jax.random.split(key, 8000)
        return jax.lax.scan(lambda state, k: 2 * (algorithm.step(k, state)[0],), start, keys)[1].position

    draws = np.asarray(jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), 2)), dtype=np.float64)
    corrected_draws_are_the_posterior(draws[:, 8::8], compressed, model)


@pytest.mark.long
def test_nuts_of_pymc_without_rows_is_corrected_to_the_posterior_with_rows(logistic):
    pm = pytest.importorskip("pymc")
    model, compressed = logistic
    with pm.Model():
        doors.pymc_potential(compressed, pm.Normal("b", 0.0, SD, shape=2))
        draws = pm.sample(4000, tune=500, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True,
                          compute_convergence_checks=False).posterior["b"].to_numpy()
    corrected_draws_are_the_posterior(draws[:, 4::4], compressed, model)


@pytest.mark.long
def test_nuts_of_numpyro_without_rows_is_corrected_to_the_posterior_with_rows(logistic):
    jax = pytest.importorskip("jax")
    numpyro = pytest.importorskip("numpyro")
    model, compressed = logistic

    def program():
        b = numpyro.sample("b", numpyro.distributions.Normal(0.0, SD).expand([2]).to_event(1))
        doors.numpyro_factor(compressed, b)

    nuts = numpyro.infer.MCMC(numpyro.infer.NUTS(program), num_warmup=500, num_samples=8000, num_chains=2,
                              chain_method="sequential", progress_bar=False)
    nuts.run(jax.random.key(1))
    draws = np.asarray(nuts.get_samples(group_by_chain=True)["b"], dtype=np.float64)
    corrected_draws_are_the_posterior(draws[:, 8::8], compressed, model)


# Models as people have them: ten correlated columns, and thirty groups with a standard deviation to learn.

WIDE, N_GROUPS = 1.0, 30  # of the half-normal prior of that standard deviation


def correlated():
    rng = np.random.default_rng(5)
    root = np.linalg.cholesky(0.8 ** np.abs(np.subtract.outer(np.arange(10), np.arange(10))))
    X = rng.normal(size=(500, 10)) @ root.T
    X[:, 0] = 1.0
    return mcmc.GLM(X, rng.random(500) < special.expit(X @ np.linspace(-0.6, 0.6, 10)), prior_sd=SD)


def grouped():
    rng = np.random.default_rng(6)
    X, codes = np.column_stack([np.ones(1800), rng.normal(size=1800)]), rng.permutation(1800) % N_GROUPS
    eta = X @ [0.3, -0.5] + rng.normal(0.0, 0.7, N_GROUPS)[codes]
    return mcmc.GLM(X, rng.random(1800) < special.expit(eta), groups={"g": codes}, prior=mcmc.Normal(0.0, SD),
                    group_prior=mcmc.HalfNormal(WIDE))


def parts(n_seen):
    """How many numbers the coefficients are, and the effects of groups."""
    return (10, 0) if n_seen == 10 else (n_seen - N_GROUPS, N_GROUPS)


def in_pymc(compressed):
    """Variables of PyMC, and what the rows see of them; effects are not centred."""
    pm = pytest.importorskip("pymc")
    n, groups = parts(len(compressed.psi_hat))
    b = pm.Normal("b", 0.0, SD, shape=n)
    if groups:
        tau = pm.HalfNormal("tau", WIDE)
        b = pm.math.concatenate([b, tau * pm.Normal("z", shape=groups)])
    doors.pymc_potential(compressed, pm.Deterministic("psi", b))


def in_numpyro(compressed):
    numpyro = pytest.importorskip("numpyro")
    import jax.numpy as jnp

    n, groups = parts(len(compressed.psi_hat))
    laws = numpyro.distributions
    b = numpyro.sample("b", laws.Normal(0.0, SD).expand([n]).to_event(1))
    if groups:
        tau = numpyro.sample("tau", laws.HalfNormal(WIDE))
        b = jnp.concatenate([b, tau * numpyro.sample("z", laws.Normal(0.0, 1.0).expand([groups]).to_event(1))])
    doors.numpyro_factor(compressed, numpyro.deterministic("psi", b))


def by_pymc(compressed, n_draws):
    """NUTS on the model of PyMC, whose density JAX compiles."""
    pm = pytest.importorskip("pymc")
    pytest.importorskip("numpyro")
    with pm.Model():
        in_pymc(compressed)
        found = pm.sample(n_draws, tune=500, chains=2, random_seed=1, progressbar=False, nuts_sampler="numpyro",
                          nuts_sampler_kwargs={"chain_method": "vectorized"}, compute_convergence_checks=False)
    found = found.posterior
    return found["psi"].to_numpy(), found["tau"].to_numpy() if "tau" in found else None


def by_numpyro(compressed, n_draws):
    jax = pytest.importorskip("jax")
    numpyro = pytest.importorskip("numpyro")
    nuts = numpyro.infer.MCMC(numpyro.infer.NUTS(lambda: in_numpyro(compressed)), num_warmup=500, num_samples=n_draws,
                              num_chains=2, chain_method="vectorized", progress_bar=False)
    nuts.run(jax.random.key(2))
    found = nuts.get_samples(group_by_chain=True)
    return found["psi"], found.get("tau")


def by_blackjax(compressed, n_draws):
    """Hamiltonian steps from near the mode; what is moved are b, log tau and z."""
    jax = pytest.importorskip("jax")
    blackjax = pytest.importorskip("blackjax")
    jnp = jax.numpy
    n, groups = parts(len(compressed.psi_hat))
    log_likelihood = doors.jax_log_likelihood(compressed)

    def seen(theta):
        return jnp.concatenate([theta[:n], jnp.exp(theta[n]) * theta[n + 1 :]]) if groups else theta

    def density(theta):
        hyper = theta[n] - 0.5 * jnp.exp(2.0 * theta[n]) / WIDE**2 if groups else 0.0
        return (log_likelihood(seen(theta)) + hyper - 0.5 * jnp.square(theta[:n] / SD).sum()
                - 0.5 * jnp.square(theta[n + 1 :]).sum())

    variances = np.r_[np.diagonal(np.linalg.inv(compressed.curvature.to_dense() + np.eye(n + groups)))[:n],
                      [0.05] * bool(groups), np.full(groups, 0.3)]
    algorithm = blackjax.hmc(density, step_size=0.25, inverse_mass_matrix=variances, num_integration_steps=12)

    def run(key):
        start = algorithm.init(jnp.asarray(np.r_[compressed.psi_hat[:n], [-0.3] * bool(groups), np.zeros(groups)]))
        keys = jax.random.split(key, 500 + n_draws)
        return jax.lax.scan(lambda state, k: 2 * (algorithm.step(k, state)[0],), start, keys)[1].position[500:]

    draws = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), 2))
    return jax.vmap(jax.vmap(seen))(draws), jnp.exp(draws[:, :, n]) if groups else None


@pytest.fixture(scope="module", params=["correlated columns", "thirty groups"])
def realistic(request):
    """A model, its expansion, and a long run that decides by passes over all rows."""
    model = correlated() if request.param == "correlated columns" else grouped()
    kernel = mcmc.SurrogateMetropolis(model, decision="exact")
    return model, mcmc.compress(model), mcmc.sample(kernel, n_draws=8000, n_chains=2, rng=1)


def assert_same_moments(draws, expected):
    """Means and mean squares of each parameter, within Monte Carlo error of both; wrong once in a million."""
    center = expected.mean(axis=(0, 1))
    z = stats.norm.isf(1e-6 / (4 * draws.shape[2]))
    for power in (1, 2):
        means, errors = [], []
        for some in (draws, expected):
            x = (some - center) ** power
            sizes = [mcmc.effective_sample_size(x[:, :, j]) for j in range(x.shape[2])]
            means.append(x.mean(axis=(0, 1)))
            errors.append(x.std(axis=(0, 1)) / np.sqrt(sizes))
        away = np.abs(means[0] - means[1]) / np.hypot(*errors)
        assert (away < z).all(), (power, away)


@pytest.mark.long
@pytest.mark.parametrize("by", [by_pymc, by_numpyro, by_blackjax])
def test_draws_of_other_libraries_without_rows_are_corrected_to_the_posterior_of_a_realistic_model(realistic, by):
    model, compressed, expected = realistic
    psi, tau = (None if part is None else np.asarray(part, dtype=np.float64) for part in by(compressed, 6000))
    draws = psi if tau is None else np.concatenate([psi, tau[:, :, None]], axis=2)
    trace = mcmc.correct(draws[:, 2::3], compressed, model, 3, decision="exact")
    assert trace.kernel["pareto_k"] < 0.7 and 0.3 < trace.accepted.mean() < 1.0
    assert_same_moments(trace.draws, expected.draws)


def test_the_densities_of_realistic_models_have_the_expansion_in_place_of_rows(realistic):
    """Stan's data, PyMC's potential and NumPyro's factor at random points, whatever the priors are."""
    _, compressed, _ = realistic
    data = {name: np.array(value) for name, value in doors.stan_data(compressed).items()}
    n, groups = parts(len(compressed.psi_hat))
    assert data["n_seen"] == n + groups and np.array_equal(data["curvature"], data["curvature"].T)
    rng = np.random.default_rng(1)
    points = [{"b": compressed.psi_hat[:n] + rng.normal(scale=0.3, size=n), "tau": np.exp(rng.normal()),
               "z": rng.normal(size=groups)} for _ in range(5)]
    seen = [np.r_[at["b"], at["tau"] * at["z"]] for at in points]
    ours = np.array([compressed.log_likelihood(psi) for psi in seen])
    steps = np.array(seen) - data["psi_hat"]
    stan = steps @ data["slope"] - 0.5 * np.einsum("ij,jk,ik->i", steps, data["curvature"], steps)
    np.testing.assert_allclose(stan - stan[0], ours - ours[0], rtol=1e-12, atol=1e-10)
    pm = pytest.importorskip("pymc")
    with pm.Model() as model:
        in_pymc(compressed)
    potential = model.compile_logp(vars=model.potentials, mode="FAST_COMPILE")
    given = {v.name for v in model.value_vars}
    pymc = [potential({name: value for name, value in {**at, "tau_log__": np.log(at["tau"])}.items() if name in given})
            for at in points]
    np.testing.assert_allclose(np.subtract(pymc, pymc[0]), ours - ours[0], rtol=1e-12, atol=1e-10)
    pytest.importorskip("jax")
    handlers = pytest.importorskip("numpyro").handlers
    numpyro = []
    for at in points:
        site = handlers.trace(handlers.substitute(handlers.seed(in_numpyro, 0), at)).get_trace(compressed)["rows"]
        numpyro.append(float(site["fn"].log_prob(site["value"])))
    np.testing.assert_allclose(np.subtract(numpyro, numpyro[0]), ours - ours[0], rtol=1e-4, atol=1e-3)
