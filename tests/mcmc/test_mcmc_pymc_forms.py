"""Regressions as people write them in PyMC: what is recognised has PyMC's terms, and what only looks alike is not."""

import numpy as np
import pytest
from by_pymc import pm, refused_as_hierarchy, terms_less_those_of_pymc

from fastrace import mcmc
from fastrace.mcmc.doors.pymc._families import factor_beside
from fastrace.mcmc.doors.pymc._hierarchy import log_posterior

N = 150
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
x = X[:, 0]
EXPOSURE, GROUP = RNG.uniform(0.5, 30.0, N), RNG.integers(0, 4, N)
BINARY, COUNTS, TIMES = RNG.integers(0, 2, N), RNG.poisson(3.0, N), RNG.gamma(2.0, 1.0, N)


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
    "probit of a product": ("probit", lambda: pm.Bernoulli("obs", pm.math.invprobit(pm.Normal("b") * x),
                                                           observed=BINARY)),
    "probit of half a product": ("probit", lambda: pm.Bernoulli("obs", pm.math.invprobit(x * pm.Normal("b") / 2.0),
                                                                observed=BINARY)),
}


@pytest.mark.parametrize("name", PLAIN)
def test_terms_of_a_regression_are_those_of_pymc(name):
    """But for a constant of each row, to 1e-12."""
    family, build = PLAIN[name]
    with pm.Model() as model:
        build()
    ours = mcmc.from_pymc(model)
    assert f"compiled {family} regression" in repr(ours)
    differences, sizes = terms_less_those_of_pymc(ours, model, 4)
    assert (np.abs(differences - differences[0]) < 1e-12 * (sizes + sizes[0])).all()
    assert ours.as_glm()._glm.family == family


LEARNED = {
    "alpha beside an exposure": lambda: pm.NegativeBinomial("obs", mu=EXPOSURE * rate(), alpha=pm.Exponential("s", 1.0),
                                                            observed=COUNTS),
    "shape beside an exposure": lambda: pm.Gamma("obs", alpha=(s := pm.HalfNormal("s")),
                                                 beta=s / (EXPOSURE * rate()), observed=TIMES),
    "an exponential as alpha": lambda: pm.NegativeBinomial(
        "obs", mu=EXPOSURE * rate(), alpha=pm.math.exp(-pm.math.log(pm.HalfNormal("s"))), observed=COUNTS),
    "groups": lambda: pm.Poisson("obs", EXPOSURE * pm.math.exp(
        pm.Normal("m") + (pm.HalfNormal("s") * pm.Normal("z", shape=4))[GROUP] + pm.Normal("b") * x), observed=COUNTS),
}


@pytest.mark.parametrize("name", LEARNED)
def test_the_log_posterior_beside_an_exposure_is_that_of_pymc(name):
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
    (lambda: pm.Poisson("obs", (EXPOSURE * rate()) ** 1.1, observed=COUNTS), "a factor beside the link"),
    (lambda: pm.Poisson("obs", EXPOSURE / rate() ** 2, observed=COUNTS), "a factor beside the link"),
    (lambda: pm.Poisson("obs", pm.Gamma("lam", 2.0, 1.0) * EXPOSURE * rate(), observed=COUNTS), "on 'lam_log__'"),
    (lambda: pm.Gamma("obs", alpha=EXPOSURE * rate(), beta=2.0, observed=TIMES), "the alpha of 'obs'"),
    (lambda: pm.Bernoulli("obs", pm.math.invprobit(pm.Normal("b") * x) * 0.9, observed=BINARY), "another link"),
    (lambda: pm.Bernoulli("obs", (r := rate()) / (1.1 + r), observed=BINARY), "another link"),
])
def test_what_only_looks_like_a_factor_or_a_link_is_not_compiled(build, words):
    with pm.Model() as model:
        build()
    refused_as_hierarchy(model, words)
    assert "PyTensor" in repr(mcmc.from_pymc(model))


def test_a_factor_is_read_where_one_exponential_stands_beside_numbers_alone():
    with pm.Model():
        a, learned = pm.Normal("a"), pm.HalfNormal("learned")
        one, two = pm.math.exp(a * x), pm.math.exp(-a * x)
        means = {"over": 2.0 * one / EXPOSURE, "none": one, "behind a learned one": EXPOSURE * (learned * one),
                 "two": EXPOSURE * one * two,
                 "a sum": 2.0 * (one + EXPOSURE), "divisor": EXPOSURE / one}
        found = {name: factor_beside(pm.Poisson.dist(mean, shape=N)) for name, mean in means.items()}
    np.testing.assert_allclose(found.pop("over"), 2.0 / EXPOSURE, rtol=1e-15)
    assert [name for name, factor in found.items() if factor is not None] == []
