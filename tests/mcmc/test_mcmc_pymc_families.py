"""Families of `GLM` that are recognised in PyMC models, with their links and dispersions."""

import numpy as np
import pytest
from by_pymc import pm, pt, terms_less_those_of_pymc
from scipy import stats

from fastrace import mcmc
from fastrace.mcmc._pointwise import pointwise
from fastrace.mcmc.doors.pymc._hierarchy import log_posterior
from fastrace.mcmc.kernels import _choice

N = 150
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
ETA = X @ [0.5, -0.4] + 0.2
OFFSET = 0.1 * RNG.normal(size=N)
BINARY = RNG.integers(0, 2, N)
TRIALS = RNG.integers(1, 9, N)
SHARES = RNG.binomial(TRIALS, 1.0 / (1.0 + np.exp(-ETA)))
COUNTS = RNG.negative_binomial(2, 2.0 / (2.0 + np.exp(ETA)))
TIMES = RNG.gamma(2.0, np.exp(ETA) / 2.0)
KNOWN = RNG.uniform(0.5, 3.0, N)  # standard deviations of the rows
GROUP = RNG.integers(0, 4, N)


def eta():
    return pm.Normal("a") + X @ pm.Normal("b", 0.0, 1.0, shape=2) + OFFSET


def mean():
    return pm.math.exp(eta())


def by_rate(alpha, mu):
    pm.Gamma("obs", alpha=alpha, beta=alpha / mu, observed=TIMES)


def by_spread(mu, of_mean):
    pm.Gamma("obs", mu=mu, sigma=mu * of_mean, observed=TIMES)


FIXED = {
    "probit": ("probit", lambda: pm.Bernoulli("obs", p=pm.math.invprobit(eta()), observed=BINARY)),
    "cloglog": ("cloglog", lambda: pm.Bernoulli("obs", p=1 - pm.math.exp(-pm.math.exp(eta())), observed=BINARY)),
    "expm1": ("cloglog", lambda: pm.Bernoulli("obs", p=-pt.expm1(-pt.exp(eta())), observed=BINARY)),
    "invlogit": ("logistic", lambda: pm.Bernoulli("obs", p=pm.math.invlogit(eta()), observed=BINARY)),
    "trials": ("binomial", lambda: pm.Binomial("obs", n=TRIALS, logit_p=eta(), observed=SHARES)),
    "one number of trials": ("binomial", lambda: pm.Binomial("obs", n=8, p=pm.math.sigmoid(eta()), observed=SHARES)),
    "alpha of counts": ("negative-binomial",
                        lambda: pm.NegativeBinomial("obs", mu=mean(), alpha=2.5, observed=COUNTS)),
    "alpha of times": ("gamma", lambda: by_rate(2.5, mean())),
    "tau": ("gaussian", lambda: pm.Normal("obs", eta(), tau=0.7, observed=ETA)),
    "lam": ("student-t", lambda: pm.StudentT("obs", nu=3.0, mu=eta(), lam=0.7, observed=ETA)),
    "known sigma": ("gaussian", lambda: pm.Normal("obs", eta(), KNOWN, observed=ETA)),
    "known sigma in pm.Data": ("gaussian", lambda: pm.Normal("obs", eta(), pm.Data("sd", KNOWN), observed=ETA)),
    "known tau": ("gaussian", lambda: pm.Normal("obs", eta(), tau=1.0 / KNOWN**2, observed=ETA)),
    "known sigma of Student-t": ("student-t",
                                 lambda: pm.StudentT("obs", nu=3.0, mu=eta(), sigma=KNOWN, observed=ETA)),
}


@pytest.mark.parametrize("name", FIXED)
def test_families_without_a_learned_scale_run_compiled(name):
    """Each row's term differs from PyMC's by a constant; the root of 2 in its probit has single precision."""
    family, build = FIXED[name]
    with pm.Model() as model:
        build()
    ours = mcmc.from_pymc(model)
    assert f"compiled {family} regression" in repr(ours) and ours._row_form() is ours
    differences, _ = terms_less_those_of_pymc(ours, model, 3)
    np.testing.assert_allclose(differences, np.tile(differences[0], (3, 1)), atol=2e-6 if family == "probit" else 1e-9)
    if family in ("gaussian", "student-t"):  # PyMC's Student-t has pi in single precision
        np.testing.assert_allclose(differences[0] + ours._left_out, 0.0, atol=1e-12 if family == "gaussian" else 1e-8)


@pytest.mark.parametrize("prior", ["normal", "Laplace", "normal and a potential"])
def test_a_step_of_a_compiled_model_calls_no_prior_that_its_expansion_holds_whole(prior):
    """So that `sample` chooses the kernel that it chooses for `as_glm`: a call counts as dear there."""
    with pm.Model() as model:
        b = pm.Laplace("b", 0.0, 1.0, shape=2) if prior == "Laplace" else pm.Normal("b", 0.0, 1.0, shape=2)
        pm.Bernoulli("obs", p=pm.math.invprobit(X @ b), observed=BINARY)
        if "potential" in prior:
            pm.Potential("soft", -pm.math.sqr(b.sum()))
    ours = mcmc.from_pymc(model)
    reference = ours.reference()
    for make in (mcmc.RacingMetropolis, mcmc.PoissonMinibatchMetropolis):
        kernel = make(ours, control_variate=reference)
        assert kernel.calls_python == (prior != "normal")
        if prior == "normal":
            own = make(ours.as_glm())
            assert not own.calls_python
            assert _choice._Pilot(kernel).work < 1.2 * _choice._Pilot(own).work
    assert mcmc.RacingMetropolis(ours, control_variate=None).calls_python


LEARNED = {
    "alpha": ("negative-binomial", -1.0, lambda: pm.NegativeBinomial(
        "obs", mu=mean(), alpha=pm.Exponential("s", 0.5), observed=COUNTS)),
    "log-normal alpha": ("negative-binomial", -1.0, lambda: pm.NegativeBinomial(
        "obs", mu=mean(), alpha=3.0 * pm.LogNormal("s", 0.5, 0.7), observed=COUNTS)),
    "inverse": ("negative-binomial", 1.0, lambda: pm.NegativeBinomial(
        "obs", mu=mean(), alpha=2.0 / pm.HalfNormal("s", 0.5), observed=COUNTS)),
    "shape": ("gamma", -1.0, lambda: by_rate(pm.Gamma("s", 2.0, 0.5), mean())),
    "spread": ("gamma", 2.0, lambda: by_spread(mean(), pm.HalfStudentT("s", 4.0, 0.8))),
    "twice sigma": ("gaussian", 1.0, lambda: pm.Normal("obs", eta(), 2.0 * pm.HalfCauchy("s", 1.0), observed=ETA)),
    "tau": ("gaussian", -0.5, lambda: pm.Normal("obs", eta(), tau=pm.Gamma("s", 2.0, 1.5), observed=ETA)),
    "lam": ("student-t", -0.5,
            lambda: pm.StudentT("obs", nu=4.0, mu=eta(), lam=pm.Exponential("s", 0.5), observed=ETA)),
    "root of a variance": ("gaussian", 0.5,
                           lambda: pm.Normal("obs", eta(), pm.math.sqrt(pm.LogNormal("s", 0.1, 0.8)), observed=ETA)),
}


@pytest.mark.parametrize("name", LEARNED)
def test_learned_dispersions_keep_their_prior_whatever_power_pymc_draws(name):
    """The log-posterior in the coordinates of GLM is PyMC's, up to a constant: log s is linear in log(dispersion)."""
    family, power, build = LEARNED[name]
    with pm.Model() as model:
        build()
    ours = mcmc.from_pymc(model)
    found, own = ours._recognised(), model.compile_logp(mode="FAST_COMPILE")
    assert found.glm._glm.family == family and found.power == power and found.glm.learns_scale
    assert isinstance(mcmc.RacingMetropolis(ours).model, mcmc.GLM) and family in ours.describe()
    rng, differences = np.random.default_rng(2), []
    for _ in range(4):
        free = rng.normal(scale=0.4, size=4)
        theta = ours.from_glm(found.glm.constrain(free))
        np.testing.assert_allclose(found.to_glm(theta), found.glm.constrain(free), rtol=1e-12)
        differences.append(log_posterior(found.glm, free) - own(ours.point(theta)))
    np.testing.assert_allclose(differences, differences[0], atol=1e-8)


TWO_ROWS = {
    "probit": lambda: pm.math.invprobit(eta()),
    "cloglog": lambda: 1.0 - pm.math.exp(-pm.math.exp(eta())),
    "probit of groups": lambda: pm.math.invprobit(
        pm.Normal("a") + pm.HalfNormal("s") * pm.Normal("z", shape=4)[GROUP] + OFFSET),
}


@pytest.mark.parametrize("name", TWO_ROWS)
def test_trials_with_another_link_are_two_rows_of_a_glm(name):
    """As many successes and as many failures as there were: the log-posterior is PyMC's, up to a constant."""
    with pm.Model() as model:
        pm.Binomial("obs", n=TRIALS, p=TWO_ROWS[name](), observed=SHARES)
    ours, own = mcmc.from_pymc(model), model.compile_logp(mode="FAST_COMPILE")
    found, rng, differences = ours._recognised(), np.random.default_rng(2), []
    assert found.glm.n_rows == (SHARES > 0).sum() + (SHARES < TRIALS).sum()
    assert found.glm._glm.family == name.split()[0] and found.glm._glm.weights.sum() == TRIALS.sum()
    if "groups" not in name:
        assert isinstance(mcmc.RacingMetropolis(ours).model, mcmc.GLM)
    for _ in range(4):
        free = rng.normal(scale=0.3, size=found.glm.dim)
        theta = ours.from_glm(found.glm.constrain(free))
        differences.append(log_posterior(found.glm, free) - own(ours.point(theta)) - found.log_jacobian(
            found.glm.constrain(free)))
    np.testing.assert_allclose(differences, differences[0], atol=2e-5 if "probit" in name else 1e-8)


def test_known_standard_deviations_are_divided_by_in_every_part_of_a_predictor():
    """Effects of groups, slopes, columns and an offset; the log density of each row keeps its constant."""
    with pm.Model() as model:
        v = pm.Normal("v", pm.Normal("m"), pm.HalfNormal("tau"), shape=4)
        u = pm.HalfNormal("width") * pm.Normal("z", shape=4)
        seen = v[GROUP] + u[GROUP] * X[:, 0] + X[:, 1] * pm.Normal("b") + OFFSET
        pm.Normal("obs", seen, KNOWN, observed=ETA)
    ours, own = mcmc.from_pymc(model), model.compile_logp(mode="FAST_COMPILE")
    found, rng, differences = ours._recognised(), np.random.default_rng(2), []
    for _ in range(4):
        free = rng.normal(scale=0.5, size=found.glm.dim)
        theta = ours.from_glm(found.glm.constrain(free))
        differences.append(log_posterior(found.glm, free) - own(ours.point(theta)) - found.log_jacobian(
            found.glm.constrain(free)))
    np.testing.assert_allclose(differences, differences[0], atol=1e-9)


def test_log_densities_of_rows_have_the_constants_of_known_standard_deviations():
    """By which models are compared: those of PyMC, to rounding."""
    with pm.Model() as model:
        pm.Normal("obs", eta(), KNOWN, observed=ETA)
    ours = mcmc.from_pymc(model)
    draws = np.random.default_rng(4).normal(size=(1, 30, 3))
    own = model.compile_logp(vars=model.observed_RVs, sum=False, mode="FAST_COMPILE")
    expected = [own(ours.point(theta))[0] for theta in draws[0]]
    np.testing.assert_allclose(pointwise(ours, draws)[0], expected, atol=1e-12 * np.abs(expected).max())


def one_column(law):
    """A coefficient and a scale: a model, and its log density on a grid of both, by SciPy."""
    x, rng = X[:60, 0], np.random.default_rng(3)
    if law == "counts":
        y = rng.negative_binomial(2, 2.0 / (2.0 + np.exp(0.5 * x)))
        with pm.Model() as model:
            mu = pm.math.exp(pm.Normal("b", 0.0, 1.0) * x)
            pm.NegativeBinomial("obs", mu=mu, alpha=pm.Exponential("s", 0.5), observed=y)
    else:
        y = rng.gamma(2.0, np.exp(0.5 * x) / 2.0)
        with pm.Model() as model:
            mu = pm.math.exp(pm.Normal("b", 0.0, 1.0) * x)
            pm.Gamma("obs", mu=mu, sigma=mu * pm.HalfNormal("s", 0.8), observed=y)

    def density(b, s):
        """At one coefficient and many scales."""
        mu, shape = np.exp(b * x), s[:, None]
        if law == "counts":
            terms = stats.nbinom.logpmf(y, shape, shape / (shape + mu))
            return stats.norm.logpdf(b) + stats.expon.logpdf(s, scale=2.0) + terms.sum(axis=1)
        terms = stats.gamma.logpdf(y, 1.0 / shape**2, scale=mu * shape**2)
        return stats.norm.logpdf(b) + stats.halfnorm.logpdf(s, scale=0.8) + terms.sum(axis=1)

    return model, density


@pytest.mark.parametrize("law", ["counts", "times"])
def test_the_posterior_with_a_learned_dispersion_is_that_of_quadrature(law):
    model, density = one_column(law)
    ours = mcmc.from_pymc(model)
    trace = mcmc.sample(mcmc.SurrogateMetropolis(ours), n_draws=3000, n_chains=2, rng=1)
    b, logs = np.linspace(-1.0, 2.0, 161), np.linspace(-2.5, 4.5, 161)
    grid = np.array([density(v, np.exp(logs)) + logs for v in b])
    weight = np.exp(grid - grid.max())
    weight /= weight.sum()
    for j, (ticks, axis) in enumerate(((b, 1), (logs, 0))):
        margin = weight.sum(axis=axis)
        assert margin[[0, -1]].max() < 1e-5
        center = margin @ ticks
        sd = np.sqrt(margin @ (ticks - center) ** 2)
        drawn = trace.draws[:, :, j]
        error = sd / np.sqrt(trace.ess()[j])
        assert abs(drawn.mean() - center) < stats.norm.isf(1e-6 / 8) * error, (drawn.mean(), center, sd)
        np.testing.assert_allclose(drawn.std(), sd, rtol=8.0 / np.sqrt(trace.ess()[j]))


@pytest.mark.parametrize(("build", "words"), [
    (lambda: pm.Bernoulli("obs", p=0.9 * pm.math.invprobit(eta()), observed=BINARY), "another link"),
    (lambda: pm.Bernoulli("obs", p=1.0 - pm.math.exp(-0.1 - pm.math.exp(eta())), observed=BINARY), "another link"),
    (lambda: pm.Binomial("obs", n=TRIALS, p=0.9 * pm.math.invprobit(eta()), observed=SHARES), "another link"),
    (lambda: pm.Normal("obs", eta(), KNOWN + pm.HalfNormal("s"), observed=ETA),
     "2 linear predictors, one of them its sigma, by 's': one that is learned for all rows is needed, or one"),
    (lambda: pm.Normal("obs", eta(), tau=pm.Normal("s", 2.0, 0.1), observed=ETA), "the scale 's' is Normal"),
    (lambda: pm.StudentT("obs", nu=3.0 + KNOWN, mu=eta(), sigma=1.0, observed=ETA), "are learned, or not one number"),
    (lambda: pm.NegativeBinomial("obs", mu=mean(), alpha=KNOWN, observed=COUNTS),
     "the alpha of 'obs' depends on no variable, and is not one number; a number, or one scalar variable, is needed"),
    (lambda: pm.Normal("obs", pm.HalfNormal("A") * pm.math.exp(-pm.HalfNormal("k") * TIMES), 1.0, observed=ETA),
     "'obs' depends on"),
    (lambda: pm.Normal("obs", pm.HalfNormal("A") * TIMES / (pm.HalfNormal("k") + TIMES), pm.HalfNormal("s"),
                       observed=ETA), "'obs' depends on 'A' by another way than a linear predictor and its sigma"),
    (lambda: pm.Gamma("obs", mu=mean(), sigma=1.0, observed=TIMES), "the alpha of 'obs'"),
    (lambda: pm.NegativeBinomial("obs", mu=mean(), alpha=1.0 + pm.HalfNormal("s"), observed=COUNTS),
     "the alpha of 'obs' is not a power of 's'"),
    (lambda: pm.NegativeBinomial("obs", mu=mean(), alpha=pm.Uniform("s", 0.0, 9.0), observed=COUNTS),
     "the prior of the scale 's' is Uniform"),
])
def test_near_misses_stay_with_pymc_and_say_why(build, words):
    with pm.Model() as model:
        build()
    ours = mcmc.from_pymc(model)
    assert "PyTensor" in repr(ours) and "no generalised linear model was recognised" in ours.describe()
    with pytest.raises(ValueError, match=words):
        ours.as_glm()
