"""Regressions as people write them in PyMC: what is recognised has PyMC's terms, and what only looks alike is not."""

import numpy as np
import pytest
from by_pymc import graphs_of, pm, pt, refused_as_hierarchy, terms_less_those_of_pymc

from fastrace import mcmc
from fastrace.mcmc.doors.pymc._hierarchy import log_posterior
from fastrace.mcmc.doors.pymc._links import predictor_in

N = 150
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
x = X[:, 0]
EXPOSURE, GROUP = RNG.uniform(0.5, 30.0, N), RNG.integers(0, 4, N)
BINARY, COUNTS, TIMES = RNG.integers(0, 2, N), RNG.poisson(3.0, N), RNG.gamma(2.0, 1.0, N)
KNOWN, DAYS, TRIALS = RNG.uniform(0.5, 3.0, N), RNG.uniform(0.05, 2.0, N), RNG.integers(1, 9, N)
SHARES = RNG.binomial(TRIALS, 0.4)


def eta():
    return pm.Normal("a") + X @ pm.Normal("b", shape=2)


def rate():
    return pm.math.exp(eta())


def named_rate():
    return pm.Deterministic("rate", rate())


def shares():
    made = pm.math.exp(eta())
    pm.Bernoulli("obs", made / (1.0 + made), observed=BINARY)


PLAIN = {
    "exposure": ("poisson", lambda: pm.Poisson("obs", EXPOSURE * rate(), observed=COUNTS)),
    "after the rate": ("poisson", lambda: pm.Poisson("obs", rate() * EXPOSURE, observed=COUNTS)),
    "data and a number": ("poisson", lambda: pm.Poisson("obs", 0.3 * pm.Data("E", EXPOSURE) * named_rate(),
                                                        observed=pm.Data("k", COUNTS))),
    "over": ("poisson", lambda: pm.Poisson("obs", named_rate() / EXPOSURE, observed=COUNTS)),
    "a number": ("poisson", lambda: pm.Poisson("obs", 12.0 * rate(), observed=COUNTS)),
    "beside an offset": ("poisson", lambda: pm.Poisson("obs", EXPOSURE * pm.math.exp(eta() + x), observed=COUNTS)),
    "counts with alpha": ("negative-binomial", lambda: pm.NegativeBinomial("obs", mu=EXPOSURE * rate(), alpha=2.0,
                                                                           observed=COUNTS)),
    "times": ("gamma", lambda: pm.Gamma("obs", alpha=2.0, beta=2.0 / (EXPOSURE * rate()), observed=TIMES)),
    "exp over 1 plus exp": ("logistic", shares),
    "1 over 1 plus exp": ("logistic", lambda: pm.Bernoulli("obs", 1.0 / (1.0 + pm.math.exp(-eta())), observed=BINARY)),
    "a hazard": ("cloglog", lambda: pm.Bernoulli("obs", 1.0 - pm.math.exp(-DAYS * rate()), observed=BINARY)),
    "a hazard by expm1": ("cloglog", lambda: pm.Bernoulli("obs", -pt.expm1(-(rate() * pm.Data("t", DAYS))),
                                                          observed=BINARY)),
    "a rate of times": ("gamma", lambda: pm.Exponential("obs", rate() / EXPOSURE, observed=TIMES)),
    "a mean of times": ("gamma", lambda: pm.Exponential("obs", scale=named_rate(), observed=TIMES)),
    "times to a power": ("gamma", lambda: pm.Weibull("obs", alpha=1.7, beta=EXPOSURE * rate(), observed=TIMES)),
    "logarithms": ("gaussian", lambda: pm.LogNormal("obs", eta(), 0.7, observed=TIMES)),
    "logarithms with scales": ("gaussian", lambda: pm.LogNormal("obs", eta(), KNOWN, observed=TIMES)),
    "Cauchy": ("student-t", lambda: pm.Cauchy("obs", eta(), 0.7, observed=TIMES)),
    "a product of exponentials": ("poisson", lambda: pm.Poisson(
        "obs", EXPOSURE * pm.math.exp(pm.Normal("a")) * pm.math.exp(pm.Normal("b") * x) * pm.math.exp(
            pm.Normal("c") * X[:, 1]), observed=COUNTS)),
    "a power": ("poisson", lambda: pm.Poisson("obs", (EXPOSURE * rate()) ** 1.25, observed=COUNTS)),
    "a divisor": ("poisson", lambda: pm.Poisson("obs", EXPOSURE / rate() ** 2, observed=COUNTS)),
    "a mean alone": ("gaussian", lambda: pm.Normal("obs", pm.Normal("a"), 1.3, observed=TIMES)),
    "log odds alone": ("logistic", lambda: pm.Bernoulli("obs", logit_p=pm.Normal("a"), observed=BINARY)),
    "a log rate alone": ("poisson", lambda: pm.Poisson("obs", pm.math.exp(pm.Normal("a")), observed=COUNTS)),
    "probit of a product": ("probit", lambda: pm.Bernoulli("obs", pm.math.invprobit(pm.Normal("b") * x),
                                                           observed=BINARY)),
    "probit of half a product": ("probit", lambda: pm.Bernoulli("obs", pm.math.invprobit(x * pm.Normal("b") / 2.0),
                                                                observed=BINARY)),
}


@pytest.mark.parametrize("name", PLAIN)
def test_terms_of_a_regression_are_those_of_pymc(name):
    """But for a constant of each row, to 1e-12; with those that the model says, PyMC's log densities."""
    family, build = PLAIN[name]
    with pm.Model() as model:
        build()
    ours = mcmc.from_pymc(model)
    assert f"compiled {family} regression" in repr(ours)
    differences, sizes = terms_less_those_of_pymc(ours, model, 4)
    assert (np.abs(differences - differences[0]) < 1e-12 * (sizes + sizes[0])).all()
    assert ours.as_glm()._glm.family == family
    if family in ("gaussian", "gamma", "student-t"):
        whole = differences + ours._glm._glm._row_constants() + ours._left_out
        assert (np.abs(whole) < 1e-7 * sizes).all()     # pi is in single precision in PyMC's Student-t


LEARNED = {
    "alpha beside an exposure": lambda: pm.NegativeBinomial("obs", mu=EXPOSURE * rate(), alpha=pm.Exponential("s", 1.0),
                                                            observed=COUNTS),
    "shape beside an exposure": lambda: pm.Gamma("obs", alpha=(s := pm.HalfNormal("s")),
                                                 beta=s / (EXPOSURE * rate()), observed=TIMES),
    "an exponential as alpha": lambda: pm.NegativeBinomial(
        "obs", mu=EXPOSURE * rate(), alpha=pm.math.exp(-pm.math.log(pm.HalfNormal("s"))), observed=COUNTS),
    "weights": lambda: pm.Normal("obs", eta(), pm.HalfNormal("s") / np.sqrt(KNOWN), observed=TIMES),
    "weights beside a power": lambda: pm.StudentT("obs", nu=4.0, mu=eta() + DAYS, sigma=pm.math.sqrt(
        KNOWN * pm.Exponential("s", 1.0)), observed=TIMES),
    "weights of logarithms": lambda: pm.LogNormal("obs", eta(), KNOWN * pm.HalfCauchy("s", 1.0), observed=TIMES),
    "logarithms": lambda: pm.LogNormal("obs", eta(), pm.LogNormal("s", 0.1, 0.5), observed=TIMES),
    "Cauchy": lambda: pm.Cauchy("obs", eta(), pm.HalfNormal("s"), observed=TIMES),
    "inverse gamma": lambda: pm.Normal("obs", eta(), pm.InverseGamma("s", 3.0, 2.0), observed=TIMES),
    "a variance": lambda: pm.Normal("obs", eta(), pm.math.sqrt(2.0 * pm.InverseGamma("s", 3.0, 2.0)), observed=TIMES),
    "inverse gamma of groups": lambda: pm.Bernoulli("obs", logit_p=pm.Normal("m") + (
        pm.InverseGamma("s", 3.0, 2.0) * pm.Normal("z", shape=4))[GROUP], observed=BINARY),
    "a mean and a scale alone": lambda: pm.Normal("obs", pm.StudentT("m", 4.0), pm.HalfNormal("s"), observed=TIMES),
    "trials of a hazard": lambda: pm.Binomial("obs", TRIALS, 1.0 - pm.math.exp(-DAYS * rate()), observed=SHARES),
    "groups": lambda: pm.Poisson("obs", EXPOSURE * pm.math.exp(
        pm.Normal("m") + (pm.HalfNormal("s") * pm.Normal("z", shape=4))[GROUP] + pm.Normal("b") * x), observed=COUNTS),
}


@pytest.mark.parametrize("name", LEARNED)
def test_the_log_posterior_of_a_regression_is_that_of_pymc(name):
    with pm.Model() as model:
        LEARNED[name]()
    ours, own = mcmc.from_pymc(model), model.compile_logp(mode="FAST_COMPILE")
    found, rng, differences = ours._recognised(), np.random.default_rng(2), []
    for _ in range(4):
        natural = found.glm.constrain(rng.normal(scale=0.3, size=found.glm.dim))
        theta = ours.from_glm(natural)
        differences.append(log_posterior(found.glm, found.glm.unconstrain(natural)) - own(ours.point(theta))
                           - found.log_jacobian(natural))
    np.testing.assert_allclose(differences, differences[0], atol=1e-9)


@pytest.mark.parametrize(("build", "words"), [
    (lambda: pm.Poisson("obs", np.where(x > 0.0, EXPOSURE, 0.0) * rate(), observed=COUNTS),
     rf"factor beside the exponential in the mean of 'obs' is 0, .* in {(x <= 0.0).sum()} rows"),
    (lambda: pm.Poisson("obs", EXPOSURE * rate() + 0.1, observed=COUNTS), "a factor beside the link"),
    (lambda: pm.Poisson("obs", EXPOSURE * (0.1 + rate()), observed=COUNTS), "a factor beside the link"),
    (lambda: pm.Bernoulli("obs", 1.0 - pm.math.exp(-DAYS * rate() - 0.1), observed=BINARY), "beside the link"),
    (lambda: pm.Exponential("obs", rate() + 0.1, observed=TIMES), "a factor beside the link"),
    (lambda: pm.Weibull("obs", alpha=pm.HalfNormal("k"), beta=rate(), observed=TIMES), "Weibull with an alpha that"),
    (lambda: pm.Normal("obs", eta(), pm.Uniform("s", 0.0, 20.0), observed=TIMES), "the scale 's' is Uniform; .*NUTS"),
    (lambda: pm.Normal("obs", eta(), pm.math.exp(pm.Normal("c") * x), observed=TIMES), "2 linear predictors, one of"),
    (lambda: pm.NegativeBinomial("obs", mu=rate(), alpha=KNOWN * pm.HalfNormal("s"), observed=COUNTS),
     "the alpha of 'obs' has another factor in each row"),
    (lambda: pm.Poisson("obs", pm.HalfNormal("m") + 0.1, observed=COUNTS), "not by the link .* on an intercept"),
    (lambda: pm.Gamma("obs", alpha=EXPOSURE * rate(), beta=2.0, observed=TIMES), "the alpha of 'obs'"),
    (lambda: pm.Bernoulli("obs", pm.math.invprobit(pm.Normal("b") * x) * 0.9, observed=BINARY), "another link"),
    (lambda: pm.Bernoulli("obs", (r := rate()) / (1.1 + 2.0 * r), observed=BINARY), "another link"),
])
def test_what_only_looks_like_a_factor_or_a_link_is_not_compiled(build, words):
    with pm.Model() as model:
        build()
    refused_as_hierarchy(model, words)
    assert "PyTensor" in repr(mcmc.from_pymc(model))


def test_a_base_rate_with_a_prior_of_its_own_leaves_the_rows_compiled():
    with pm.Model() as model:
        pm.Poisson("obs", pm.Gamma("lam", 2.0, 1.0) * EXPOSURE * rate(), observed=COUNTS)
    ours = mcmc.from_pymc(model)
    differences, sizes = terms_less_those_of_pymc(ours, model, 3)
    assert (np.abs(differences - differences[0]) < 1e-12 * (sizes + sizes[0])).all()
    assert "compiled poisson regression" in repr(ours)
    with pytest.raises(ValueError, match="a coefficient is a function of 'lam'; variables with normal"):
        ours.as_glm()


def test_a_predictor_is_a_sum_of_what_rows_see():
    """A linear predictor or its multiple, scalars, and the logarithm of a factor."""
    found = {}
    for name, mean in {
        "over": lambda one, learned: 2.0 * one / EXPOSURE, "none": lambda one, learned: one,
        "beside a learned one": lambda one, learned: EXPOSURE * (learned * one),
        "divisor": lambda one, learned: EXPOSURE / one**1.5, "a sum": lambda one, learned: 2.0 * (one + EXPOSURE),
        "another function": lambda one, learned: learned + one,
    }.items():
        with pm.Model() as model:
            pm.Poisson("obs", mean(pm.math.exp(pm.Normal("a") * x), pm.HalfNormal("learned")), observed=COUNTS)
        found[name] = predictor_in(graphs_of(model)[0], "poisson")
    assert found.pop("a sum") is None and found.pop("another function") is None
    np.testing.assert_allclose(found["over"].offset, np.log(2.0 / EXPOSURE), atol=1e-14)
    np.testing.assert_allclose(found["divisor"].offset, np.log(EXPOSURE), atol=1e-14)
    assert found["none"].offset is None
    assert {name: (*s.slopes, *s.weights) for name, s in found.items()} == {
        "over": (1.0,), "none": (1.0,), "beside a learned one": (1.0, 1.0), "divisor": (-1.5,)}
