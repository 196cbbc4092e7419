"""Scales that are learned: posteriors by quadrature, whatever the rows say of them."""

import pickle

import numpy as np
import pytest
from scipy import special, stats

from fastrace import mcmc
from fastrace._models._priors import JointPrior

SEED = 20260715


def outcomes(family, n=40):
    """Few rows, and counts that are not overdispersed: the likelihood alone has no mode in the dispersion."""
    rng = np.random.default_rng(SEED)
    if family == "negative-binomial":
        return np.repeat([3.0, 4.0, 5.0], [n // 4, n // 2, n // 4])
    return {"gamma": lambda: rng.gamma(2.0, 0.5, 8), "gaussian": lambda: rng.normal(1.0, 2.0, 8),
            "student-t": lambda: 1.0 + 2.0 * rng.standard_t(4.0, 8)}[family]()


def terms(family, y, eta, aux):
    """Log densities of the rows, from SciPy."""
    scale = np.exp(aux)
    if family == "negative-binomial":
        return stats.nbinom(1.0 / scale, 1.0 / (1.0 + scale * np.exp(eta))).logpmf(y)
    if family == "gamma":
        return stats.gamma(1.0 / scale, scale=scale * np.exp(eta)).logpdf(y)
    return (stats.norm if family == "gaussian" else stats.t(4.0)).logpdf((y - eta) / scale) - aux


def moments(family, y, prior_sd, scale_prior):
    """Means and standard deviations of intercept and log scale, by a sum over a grid."""
    b, aux = np.linspace(-8.0, 10.0, 301), np.linspace(-24.0, 6.0, 401)
    if family in ("gamma", "negative-binomial"):
        b = np.linspace(-2.5, 2.5, 301) + np.log(y.mean())
    log = sum(terms(family, value, b[:, None], aux) for value in y)
    log = log - 0.5 * (b[:, None] / prior_sd) ** 2 + scale_prior.logpdf(np.exp(aux)) + aux
    p = special.softmax(log)
    of = [(p.sum(axis=1), b), (p.sum(axis=0), aux)]
    means = [float(q @ x) for q, x in of]
    return means, [float(np.sqrt(q @ (x - m) ** 2)) for (q, x), m in zip(of, means, strict=True)]


@pytest.mark.parametrize("kernel", [mcmc.SurrogateMetropolis, mcmc.Metropolis])
@pytest.mark.parametrize("family", ["negative-binomial", "gamma", "gaussian", "student-t"])
def test_a_learned_scale_has_its_posterior_by_quadrature(family, kernel):
    if family == "negative-binomial" and kernel is mcmc.Metropolis:
        pytest.skip("it makes no plain steps in the dispersion, mixes slowly, and warns")
    y = outcomes(family)
    model = mcmc.GLM(np.ones((len(y), 1)), y, family, prior=mcmc.Normal(0.0, 3.0), scale_prior=mcmc.HalfCauchy(1.0))
    means, sds = moments(family, y, 3.0, stats.halfcauchy())
    draws = mcmc.sample(kernel(model), n_draws=5000, n_chains=2, rng=SEED).draws
    draws = np.stack([draws[:, :, 0], np.log(draws[:, :, 1])])
    for own, mean, sd in zip(draws, means, sds, strict=True):
        for values, truth in ((own, mean), ((own - mean) ** 2, sd**2)):
            error = values.std() / np.sqrt(mcmc.effective_sample_size(values))
            assert abs(values.mean() - truth) < 5.5 * error + 0.01 * sd


@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("counts", range(4))
def test_a_dispersion_is_learned_from_counts_that_are_not_overdispersed(counts, groups):
    rng = np.random.default_rng(counts)
    X = np.column_stack([np.ones(400), rng.normal(size=400)])
    y = rng.poisson(np.exp(X @ [0.5, 0.5]))
    model = mcmc.GLM(X, y, "negative-binomial", groups=rng.integers(0, 6, 400) if groups else None)
    made = mcmc.compress(model)
    assert -12.0 < made.psi_hat[-1] < 0.0
    trace = mcmc.sample(mcmc.SurrogateMetropolis(model, psi_hat=made), n_draws=200, n_chains=2, rng=counts)
    assert trace.accepted.mean() > 0.4


def test_a_vague_scale_gets_the_kernel_with_plain_steps():
    y = outcomes("negative-binomial")
    trace = mcmc.sample(mcmc.GLM(np.ones((len(y), 1)), y, "negative-binomial"), n_draws=500, n_chains=2, rng=1)
    assert trace.kernel["kernel"] == "SurrogateMetropolis" and "learned scale" in trace.kernel["chosen"]


@pytest.mark.parametrize("prior", [mcmc.StudentT(3.0, 0.5, 0.2), mcmc.Normal(0.5, 0.2), mcmc.Laplace(0.5, 0.2)])
def test_what_a_normal_density_leaves_of_a_prior_is_what_is_decided(prior):
    """Normal density at the mode, times what is left, is the posterior's expansion times the prior, everywhere."""
    rng = np.random.default_rng(SEED)
    X = rng.normal(size=(30, 2))
    model = mcmc.GLM(X, X @ [1.0, -0.5] + rng.normal(size=30), "gaussian", prior=prior)
    about = model.reference()
    value, slope, hessian = model.expand_seen(about.theta_hat)
    beside = model.log_prior_beside(about)
    inverse = np.linalg.inv(about.factor)
    off = []
    for at in about.theta_hat + rng.normal(scale=0.3, size=(20, 3)):
        step = at - about.theta_hat
        whole = model.joint_prior.value_of(at) + slope @ step + 0.5 * step @ hessian.to_dense() @ step
        off.append(whole - beside(at) + 0.5 * np.square(inverse @ (at - about.center)).sum())
    np.testing.assert_allclose(off, off[0], atol=1e-8)
    again = pickle.loads(pickle.dumps(about))
    assert again.with_prior and pickle.loads(pickle.dumps(beside))(about.center) == beside(about.center)


def test_a_reference_made_before_priors_were_expanded_leaves_the_whole_prior():
    model = mcmc.GLM(np.ones((8, 1)), np.arange(8.0), "gaussian")
    old = mcmc.Reference(np.zeros(2), np.zeros(2), np.eye(2), None, np.inf)
    assert model.log_prior_beside(old) is model.log_prior


def test_an_approximation_of_a_prior_far_out_keeps_its_digits():
    """Where a half-Cauchy density is nearly a straight line, the normal density beside it must not swallow it."""
    prior = JointPrior((), aux=("half-student", 1.0, 1.0))
    prior.expand_at([-17.0])
    truth = prior.value_of([-16.0]) - prior.value_of([-17.0])
    mean, precision = prior.conditional_of(())
    normal = -0.5 * precision * ((-16.0 - mean) ** 2 - (-17.0 - mean) ** 2)
    assert prior.beside_of([-16.0]) - prior.beside_of([-17.0]) + normal == pytest.approx(truth, abs=1e-7)


def test_outcomes_that_a_student_prior_keeps_apart_have_a_mode():
    X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    model = mcmc.GLM(X, X[:, 0] > 0, prior=mcmc.StudentT(4.0, 0.0, 1.0))
    grid = np.linspace(-3.0, 40.0, 40_001)[:, None]
    assert model.reference().theta_hat[0] == pytest.approx(grid[model.log_posteriors(grid).argmax(), 0], abs=2e-3)
