"""A compressed likelihood in place of the rows, in the models of other libraries."""

import os

os.environ.setdefault("PYTENSOR_FLAGS", "cxx=,linker=vm,optimizer_excluding=fusion:add_mul_fusion")

import numpy as np
import pytest
from scipy import special

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
