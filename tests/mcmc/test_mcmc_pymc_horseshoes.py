"""Horseshoe priors as people write them in PyMC: their density as a `GLM`, and draws in the names of PyMC."""

import numpy as np
import pytest
from by_pymc import DATA, N, made, pm, refused_as_hierarchy
from scipy import stats

from fastrace import mcmc

X = np.column_stack([DATA["x"], DATA["o"]])
UNITS = np.array([1.0, -0.5, 2.0])
SLAB = 0.7


def local_scales(slab, df=1.0):
    """Local scales, with a slab or not, and what is to be multiplied by the global one."""
    lam = pm.HalfCauchy("lam", 1.0, shape=3) if df == 1.0 else pm.HalfStudentT("lam", df, 0.5, shape=3)
    if not slab:
        return lambda tau: lam
    c2 = pm.InverseGamma("c2", 1.5, 6.0)
    return lambda tau: lam * pm.math.sqrt(c2 / (c2 + tau**2 * lam**2))


def standardised(slab):
    def build(d):
        tau = pm.HalfCauchy("tau", 0.3)
        beta = pm.Deterministic("beta", pm.Normal("z", shape=3) * tau * local_scales(slab)(tau))
        pm.Bernoulli("obs", logit_p=pm.Normal("a", 0.0, 5.0) + X @ beta, observed=d["k"])

    return build


def centred(slab):
    def build(d):
        tau = pm.HalfStudentT("tau", 3.0, 0.3)
        beta = pm.Normal("beta", 0.0, tau * local_scales(slab, 4.0)(tau), shape=3)
        pm.Bernoulli("obs", logit_p=pm.Normal("a", 0.0, 5.0) + X @ beta, observed=d["k"])

    return build


def fixed_slab(standard):
    """A slab that is a number, in units of the columns where it is standardised."""
    def build(d):
        tau, lam = pm.HalfCauchy("tau", 0.3), pm.HalfCauchy("lam", 1.0, shape=3)
        wide = tau * lam * SLAB / pm.math.sqrt(SLAB**2 + tau**2 * lam**2)
        if standard:
            beta = pm.Deterministic("beta", pm.Normal("z", shape=3) * wide)
        else:
            beta = pm.Normal("beta", 0.0, wide, shape=3)
        pm.Bernoulli("obs", logit_p=pm.Normal("a", 0.0, 5.0) + X @ (UNITS * beta if standard else beta),
                     observed=d["k"])

    build.slab, build.units = SLAB, UNITS if standard else 1.0
    return build


def in_units_of_sigma(d):
    """The global scale has a prior in units of sigma, which is a half-Cauchy scale itself; columns have their own."""
    sigma = pm.HalfCauchy("sigma", 1.5)
    tau = pm.HalfStudentT("tau", 2.0, 0.1 * sigma)
    beta = pm.Deterministic("beta", UNITS * pm.Normal("z", shape=3) * tau * local_scales(True)(tau))
    pm.Normal("obs", pm.Normal("a", 0.0, 5.0) + X @ beta, sigma, observed=d["y"])


def multiplied_by_sigma(d):
    """Sigma multiplies the global scale, beside effects of groups, and c = 2 sqrt(c2)."""
    sigma, c2 = pm.Exponential("sigma", 0.5), pm.InverseGamma("c2", 1.5, 6.0)
    tau, lam = pm.HalfCauchy("tau", 0.2), pm.HalfCauchy("lam", 1.0, shape=3)
    wide = tau * sigma * lam
    beta = pm.Deterministic("beta", pm.Normal("z", shape=3) * wide / pm.math.sqrt(1.0 + wide**2 / (4.0 * c2)))
    u = pm.HalfNormal("sd", 1.0) * pm.Normal("u", shape=3)
    pm.Normal("obs", pm.Normal("a", 0.0, 5.0) + X @ beta + u[d["g"]], sigma, observed=d["y"])


def log_density(build, at):
    """Of beta, and of scales on their natural scale, by SciPy."""
    sigma, odd = at.get("sigma", 1.0), build is multiplied_by_sigma
    fixed = getattr(build, "slab", 0.0)
    by_student = "lam" in at and "z" not in at and not fixed
    wide = at["tau"] * at["lam"] * (sigma if odd else 1.0)
    if "c2" in at:
        wide = wide / np.sqrt(1.0 + wide**2 / (at["c2"] * (4.0 if odd else 1.0)))
    if fixed:
        wide = wide / np.sqrt(1.0 + wide**2 / fixed**2)
    if build is in_units_of_sigma:
        wide = wide * np.abs(UNITS)
    out = stats.norm.logpdf(at["beta"], 0.0, wide).sum() + stats.norm.logpdf(at["a"], 0.0, 5.0)
    out += (stats.t(4.0, scale=0.5) if by_student else stats.cauchy()).logpdf(at["lam"]).sum()
    out += stats.invgamma.logpdf(at["c2"], 1.5, scale=6.0) if "c2" in at else 0.0
    eta = at["a"] + X @ (at["beta"] * getattr(build, "units", 1.0))
    if build is in_units_of_sigma:
        out += stats.t(2.0, scale=0.1 * sigma).logpdf(at["tau"]) + stats.cauchy(scale=1.5).logpdf(sigma)
    elif odd:
        effects = at["sd"] * at["u"]
        eta = eta + effects[DATA["g"]]
        out += stats.cauchy(scale=0.2).logpdf(at["tau"]) + stats.expon(scale=2.0).logpdf(sigma)
        out += stats.norm.logpdf(at["sd"]) + stats.norm.logpdf(effects, 0.0, at["sd"]).sum()
    else:
        out += (stats.t(3.0, scale=0.3) if by_student else stats.cauchy(scale=0.3)).logpdf(at["tau"])
        return out + stats.bernoulli.logpmf(DATA["k"], 1.0 / (1.0 + np.exp(-eta))).sum()
    return out + stats.norm.logpdf(DATA["y"], eta, sigma).sum()


@pytest.mark.parametrize("build", [
    standardised(True), standardised(False), centred(True), centred(False), in_units_of_sigma, multiplied_by_sigma,
    fixed_slab(True), fixed_slab(False)])
def test_horseshoes_have_the_density_of_pymc(build):
    """At points that chains of the `GLM` move through, with the Jacobian of its coordinates by those of the density."""
    model = made(build)
    glm, found = model.as_glm(), model._recognised()
    assert len(found.shrunk) == 1
    rng, differences = np.random.default_rng(5), []
    for _ in range(5):
        free = rng.uniform(-1.0, 1.0, glm.dim)
        theta = np.asarray(glm.constrain(free))
        own = found.from_glm(theta)
        np.testing.assert_allclose(found.to_glm(own), theta, rtol=1e-12)
        at = {name: value[0] for name, value in model.unpack(own[None]).items()}
        source, arms = glm.engine(None)
        arms[:] = free[: glm.n_seen]
        ours = source.totals([0])[0] + glm.joint_prior.copy().value_and_gradient(free)[0]
        jacobian = sum(np.log(at[name]).sum() for name in ("tau", "lam", "c2", "sigma", "sd") if name in at)
        differences.append(log_density(build, at) + jacobian - ours)
    np.testing.assert_allclose(differences, differences[0], atol=1e-9)


def test_chains_of_a_horseshoe_ask_pytensor_for_nothing_and_come_back_in_its_names(monkeypatch):
    model = made(standardised(True))
    glm = model.as_glm()
    assert glm.names[:4] == ("z[0]", "z[1]", "z[2]", "a") or set(glm.names[:4]) == {"z[0]", "z[1]", "z[2]", "a"}
    calls = []
    monkeypatch.setattr(type(model._graphs), "call", lambda *given: calls.append(given))
    trace = mcmc.sample(mcmc.SurrogateMetropolis(model), n_draws=300, n_chains=2, rng=1)
    monkeypatch.undo()
    assert not calls and trace.names == model.names
    named = model.unpack(trace)
    wide = named["tau"][..., None] * named["lam"]
    wide = wide / np.sqrt(1.0 + wide**2 / named["c2"][..., None])
    np.testing.assert_allclose(named["beta"], named["z"] * wide, rtol=1e-9)


def other_local_scales(d):
    tau, lam = pm.HalfCauchy("tau", 0.3), pm.HalfNormal("lam", 1.0, shape=3)
    pm.Bernoulli("obs", logit_p=pm.Normal("a") + X @ (pm.Normal("z", shape=3) * tau * lam), observed=d["k"])


def squared(d):
    tau, lam = pm.HalfCauchy("tau", 0.3), pm.HalfCauchy("lam", 1.0, shape=3)
    pm.Bernoulli("obs", logit_p=pm.Normal("a") + X @ (pm.Normal("z", shape=3) * tau * lam**2), observed=d["k"])


def slab_in_units_of_sigma(d):
    """It is neither a number nor learned by itself."""
    sigma = pm.HalfNormal("sigma")
    tau, lam = pm.HalfCauchy("tau", 0.3), pm.HalfCauchy("lam", 1.0, shape=3)
    wide = 1.0 / pm.math.sqrt((tau * lam) ** -2.0 + sigma**-2.0)
    pm.Normal("obs", pm.Normal("a") + X @ (pm.Normal("z", shape=3) * wide), sigma, observed=d["y"])


def another_slab(d):
    tau, lam = pm.HalfCauchy("tau", 0.3), pm.HalfCauchy("lam", 1.0, shape=3)
    c2 = pm.InverseGamma("c2", 1.5, 6.0)
    wide = tau * lam * c2 / (c2 + tau * lam)
    pm.Bernoulli("obs", logit_p=pm.Normal("a") + X @ (pm.Normal("z", shape=3) * wide), observed=d["k"])


@pytest.mark.parametrize("build", [other_local_scales, squared, another_slab, slab_in_units_of_sigma])
def test_what_only_looks_like_a_horseshoe_is_none(build):
    with pm.Model() as model:
        build({name: pm.Data(name, value) for name, value in DATA.items()})
    refused_as_hierarchy(model, "the effects 'z' are spread by")


def test_a_truncated_scale_is_refused_by_its_name():
    """PyMC has no list of its parameters."""
    def build(d):
        tau, lam = pm.HalfCauchy("tau", 0.3), pm.Truncated("lam", pm.HalfCauchy.dist(1.0), upper=9.0, shape=3)
        pm.Bernoulli("obs", logit_p=pm.Normal("a") + X @ (pm.Normal("z", shape=3) * tau * lam), observed=d["k"])

    model = made(build)
    with pytest.raises(ValueError, match="the prior of the scale 'lam' is Truncated; mcmc.GLM has HalfNormal"):
        model.as_glm()
    assert "the prior of the scale 'lam' is Truncated" in model.describe()


def test_the_rows_of_a_horseshoe_are_the_data():
    assert made(standardised(True)).as_glm().n_rows == N
