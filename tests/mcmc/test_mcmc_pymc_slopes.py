"""Varying slopes of PyMC models, correlated or not, centred or not: recognised as `GLM`, with the same posterior."""

import itertools
from functools import partial

import numpy as np
import pytest
from by_pymc import pm, pt, refused_as_hierarchy
from scipy import stats

from fastrace import mcmc
from fastrace.mcmc.doors.pymc._coordinates import Factor

N, G = 60, 4
RNG = np.random.default_rng(0)
DATA = {"x": RNG.normal(size=N), "w": RNG.normal(size=N), "g": RNG.integers(0, G, N), "h": RNG.integers(0, 3, N),
        "y": RNG.normal(size=N), "k": RNG.integers(0, 2, N)}
LEVELS = np.array([0.5, -1.0, 2.0, 0.0])  # a number of each group


def of_rows(effects, d):
    """Intercepts and slopes, shape (G, 2)."""
    return effects[d["g"], 0] + effects[d["g"], 1] * d["x"]


def covariance(sd_dist, eta=2.0, n=2):
    return pm.LKJCholeskyCov("chol", n=n, eta=eta, sd_dist=sd_dist, compute_corr=True)[0]


def correlations():
    return pm.LKJCorr("corr", n=2, eta=1.5, return_matrix=True), pm.HalfNormal("sd", [1.0, 2.0], shape=2)


def means(d):
    return pm.Normal("a", 0.0, 3.0) + pm.Normal("b", 0.0, 2.0) * d["x"]


def joint_centred(d):
    mu = pm.Normal("mu", [0.0, 1.0], [5.0, 2.0], shape=2)
    return of_rows(pm.MvNormal("v", mu, chol=covariance(pm.Exponential.dist(1.5)), shape=(G, 2)), d)


def joint_about_scalars(d):
    mean = pt.stack([pm.Normal("a", 0.0, 3.0), pm.Normal("b", 0.0, 2.0)])
    effects = pm.MvNormal("v", mean, chol=covariance(pm.HalfCauchy.dist(2.0), 1.0), shape=(G, 2))
    return (pt.stack([pt.ones_like(d["x"]), d["x"]], axis=1) * effects[d["g"]]).sum(axis=1)


def joint_standardised(d):
    z = pm.Normal("z", 0.0, 1.0, shape=(2, G))
    effects = pm.Deterministic("v", pt.dot(covariance(pm.HalfNormal.dist(np.array([1.0, 2.0]))), z).T)
    return means(d) + of_rows(effects, d)


def joint_by_columns(d):
    """Groups first in z, a mean within the effects, and columns taken before the groups are."""
    z = pm.Normal("z", shape=(G, 2))
    effects = pm.Normal("mu", 0.0, 3.0, shape=2)[:, None] + covariance(pm.HalfStudentT.dist(nu=3.0, sigma=2.0)) @ z.T
    intercepts, slopes = pm.Deterministic("first", effects[0]), pm.Deterministic("second", effects[1])
    return intercepts[d["g"]] + d["x"] * slopes[d["g"]]


def by_correlations(d):
    corr, sd = correlations()
    cov = pt.diag(sd) @ corr @ pt.diag(sd)
    return of_rows(pm.MvNormal("v", pm.Normal("mu", 0.0, 5.0, shape=2), cov=cov, shape=(G, 2)), d)


def by_correlations_standardised(d):
    corr, sd = correlations()
    z = pm.Normal("z", shape=(2, G))
    return means(d) + of_rows((sd[:, None] * (pt.linalg.cholesky(corr) @ z)).T, d)


def apart_centred(d):
    """Two variables with the same groups; the mean of the intercepts follows a number of the group."""
    a = pm.Normal("v0", pm.Normal("m") + pm.Normal("e", 0.5, 2.0) * LEVELS, pm.HalfNormal("s0"), shape=G)
    b = pm.Normal("v1", pm.Normal("n"), pm.HalfNormal("s1", 2.0), shape=G)
    return a[d["g"]] + b[d["g"]] * d["x"]


def apart_standardised(d):
    z, sd = pm.Normal("z", shape=(G, 2)), pm.Exponential("sd", [1.0, 0.5], shape=2)
    return means(d) + of_rows(sd * z, d)


def one_of_each(d):
    """Intercepts centred, slopes standardised, a mean of intercepts by group, and levels that are columns."""
    a = pm.Normal("v0", pm.Normal("m"), pm.HalfNormal("s0"), shape=G)
    b = pm.Deterministic("v1", pm.Normal("n") + pm.Normal("f") * LEVELS + pm.HalfNormal("s1") * pm.Normal("z", shape=G))
    return a[d["g"]] + b[d["g"]] * d["x"] + pm.Normal("c", 0.0, 2.0, shape=3)[d["h"]]


def three_terms(d):
    chol = covariance(pm.Gamma.dist(2.0, 1.0), 3.0, n=3)
    v = pm.MvNormal("v", pm.Normal("mu", shape=3), chol=chol, shape=(G, 3))
    return of_rows(v, d) + v[d["g"], 2] * d["w"]


SOME = [joint_centred, joint_standardised, by_correlations, apart_centred]
REST = [joint_about_scalars, joint_by_columns, by_correlations_standardised, apart_standardised, one_of_each,
        three_terms]


def gaussian(build, data=DATA):
    with pm.Model() as model:
        d = {name: pm.Data(name, value) for name, value in data.items()}
        pm.Normal("obs", build(d), pm.HalfNormal("sigma", 2.0), observed=d["y"])
    return model


def density_of_prior(build, at):
    """Log density of the natural parameters, but for effects and constants; covariance and mean of the effects."""
    half, normal = stats.halfnorm.logpdf, stats.norm.logpdf
    names, mean = ("a", "b"), np.zeros((G, 2))
    own = [normal(at["a"], 0.0, 3.0), normal(at["b"], 0.0, 2.0)] if "a" in at else []
    if "mu" in at:
        names, mean = (), at["mu"] + np.zeros((G, 2))
        center, wide = {joint_centred: ([0.0, 1.0], [5.0, 2.0]), joint_by_columns: (0.0, 3.0)}.get(build, (0.0, 5.0))
        own.append(normal(at["mu"], center, wide))
    elif build is joint_about_scalars:
        mean = np.array([at["a"], at["b"]]) + np.zeros((G, 2))
    elif build in (apart_centred, one_of_each):
        m = at["m"] + (at["e"] * LEVELS if build is apart_centred else 0.0)
        n = at["n"] + (at["f"] * LEVELS if build is one_of_each else 0.0)
        mean = np.stack([m + np.zeros(G), n + np.zeros(G)], axis=1)
        own += [normal(at["m"]), normal(at["n"])]
        own += [normal(at["e"], 0.5, 2.0)] if build is apart_centred else [normal(at["f"]), normal(at["c"], 0.0, 2.0)]
    if "chol_stds" in at:
        sd, r = at["chol_stds"], at["chol_corr"][0, 1]
        own.append({joint_centred: stats.expon(scale=1.0 / 1.5), joint_about_scalars: stats.halfcauchy(scale=2.0),
                    joint_standardised: stats.halfnorm(scale=np.array([1.0, 2.0]))}.get(build, stats.t(3.0, scale=2.0))
                   .logpdf(sd))
        own.append(np.log1p(-r * r) * {joint_about_scalars: 0.0}.get(build, 1.0))
    elif "corr" in at:
        sd, r = at["sd"], at["corr"][0]
        own += [half(sd, scale=np.array([1.0, 2.0])), 0.5 * np.log1p(-r * r)]
    else:
        sd, r = (at["sd"], 0.0) if "sd" in at else (np.array([at["s0"], at["s1"]]), 0.0)
        own.append(stats.expon(scale=[1.0, 2.0]).logpdf(sd) if "sd" in at else
                   half(sd, scale=[1.0, 2.0 if build is apart_centred else 1.0]))
    assert all(name in at for name in names) or "m" in at
    cov = np.outer(sd, sd) * np.array([[1.0, r], [r, 1.0]])
    return sum(np.sum(part) for part in own), cov, mean


def effects_at(build, at, cov):
    """Those of groups about their mean, of variables that may be standardised or have it in them."""
    _, _, mean = density_of_prior(build, at)
    root = np.linalg.cholesky(cov)
    if build is one_of_each:
        return np.stack([at["v0"] - mean[:, 0], at["s1"] * at["z"]], axis=1)
    if build is apart_centred:
        return np.stack([at["v0"], at["v1"]], axis=1) - mean
    if "z" in at:
        z = at["z"] if at["z"].shape == (G, 2) else at["z"].T
        return z @ root.T
    return at["v"] - mean


@pytest.mark.parametrize("build", [*SOME, *(pytest.param(b, marks=pytest.mark.long) for b in REST[:-1])])
def test_varying_slopes_have_the_density_of_pymc(build):
    """In natural parameters, by SciPy: the log densities of `GLM` and of the model differ by one constant."""
    model = mcmc.from_pymc(gaussian(build))
    glm = model.as_glm()
    assert len(glm.factors) == 1 and glm.factors[0].width == 2 and glm.factors[0].n_groups == G
    related = glm.factors[0].correlated
    rng, differences = np.random.default_rng(3), []
    for _ in range(5):
        free = rng.uniform(-0.7, 0.7, glm.dim)
        source, arms = glm.engine(None)
        arms[:] = free[: glm.n_seen]
        ours = source.totals([0])[0] + glm.joint_prior.copy().value_and_gradient(free)[0]
        theta = glm.constrain(free)
        np.testing.assert_allclose(glm.unconstrain(theta), free, atol=1e-9)
        ours -= free[glm.n_seen - 1 : glm.n_seen + 2].sum()  # logarithms of sigma and of standard deviations
        if related:
            ours -= np.log1p(-theta[-1] ** 2)  # a correlation, and not its inverse hyperbolic tangent
        at = {name: value[0] for name, value in model.unpack(model.from_glm(theta[None])).items()}
        prior, cov, mean = density_of_prior(build, at)
        effects = effects_at(build, at, cov)
        shift = [at["a"], at["b"]] if "a" in at and build is not joint_about_scalars else 0.0
        both = effects + mean + shift
        eta = both[DATA["g"], 0] + both[DATA["g"], 1] * DATA["x"]
        eta += at["c"][DATA["h"]] if "c" in at else 0.0
        theirs = prior + stats.multivariate_normal(np.zeros(2), cov).logpdf(effects).sum()
        theirs += stats.halfnorm.logpdf(at["sigma"], scale=2.0) + stats.norm.logpdf(DATA["y"], eta, at["sigma"]).sum()
        differences.append(theirs - ours)
    np.testing.assert_allclose(differences, differences[0], atol=1e-8)


@pytest.mark.parametrize("build", [pytest.param(b, marks=pytest.mark.long) for b in (*SOME, *REST)])
def test_the_log_density_is_that_which_pymc_compiles(build):
    """Against `model.compile_logp`, with the Jacobian from finite differences of the parameters themselves."""
    pymc_model = gaussian(build)
    model = mcmc.from_pymc(pymc_model)
    glm, logp = model.as_glm(), pymc_model.compile_logp()
    rng, differences = np.random.default_rng(4), []
    move = lambda free: model.from_glm(glm.constrain(free))  # noqa: E731
    for _ in range(4):
        free = rng.uniform(-0.6, 0.6, glm.dim)
        source, arms = glm.engine(None)
        arms[:] = free[: glm.n_seen]
        ours = source.totals([0])[0] + glm.joint_prior.copy().value_and_gradient(free)[0]
        jacobian = [sum(c * (move(free + k * h) - move(free - k * h)) for k, c in ((1, 8.0), (2, -1.0))) / 12e-3
                    for h in 1e-3 * np.eye(glm.dim)]
        theirs = float(logp(model.point(move(free))))
        differences.append(theirs + np.linalg.slogdet(jacobian)[1] - ours)
    np.testing.assert_allclose(differences, differences[0], atol=1e-8)


def factor_of(kind, standardised, q=3):
    """Of 2 groups, in the first places; one coefficient before them is in the mean of the second term."""
    n = 2 * q
    places = 1 + np.arange(n).reshape(2, q)
    slopes = np.zeros((2, q, 1))
    slopes[:, 1, 0] = 0.5
    none, sds = np.empty(0, dtype=int), 1 + n + np.arange(q)
    more = {"packed": (none, 1 + n + np.arange(q * (q + 1) // 2), none), "apart": (sds, none, none),
            "logits": (sds, none, 1 + n + q + np.arange(q * (q - 1) // 2))}[kind]
    return Factor(places, np.full(q, standardised), np.full((2, q), 0.3), np.array([0]), slopes, *more)


@pytest.mark.parametrize(("kind", "standardised", "q"), itertools.product(["packed", "logits", "apart"], [True, False],
                                                                          [2, 4]))
def test_parameters_of_pymc_come_from_those_of_the_model_and_back(kind, standardised, q):
    """With the Jacobian that finite differences give, by logarithms and partial correlations."""
    from fastrace._models._priors import JointPrior
    from fastrace.mcmc.doors.pymc._coordinates import Hierarchy
    from fastrace.mcmc.models._joint import constrained

    f = factor_of(kind, standardised, q)
    eta = None if kind == "apart" else 2.0
    prior = JointPrior([("normal", 0.0, 1.0, 0.0, -1)], factors=[(2, [("half-normal", 1.0, 0.0)] * q, eta)])
    found = Hierarchy(None, np.array([0]), [f], -1, prior.dim)
    free = np.random.default_rng(5).uniform(-0.8, 0.8, (3, prior.dim))
    natural = partial(constrained, prior)
    theta = found.from_glm(natural(free))
    assert theta.shape == (3, prior.dim)
    np.testing.assert_allclose(found.to_glm(theta), natural(free), atol=1e-12)
    h = 1e-3
    steps = [sum(c * (found.from_glm(natural(free[0] + k * unit)) - found.from_glm(natural(free[0] - k * unit)))
                 for k, c in ((h, 8.0), (2.0 * h, -1.0))) / (12.0 * h) for unit in np.eye(prior.dim)]
    assert found.log_jacobian(natural(free[0])) == pytest.approx(np.linalg.slogdet(steps)[1], abs=1e-8)
    if kind == "packed":
        root = np.zeros((q, q))
        root[np.tril_indices(q)] = theta[0, f.packed]
        root[np.diag_indices(q)] = np.exp(np.diagonal(root))
        np.testing.assert_allclose(np.sqrt(np.diagonal(root @ root.T)), natural(free)[0, 1 + 2 * q : 1 + 3 * q])


def shared_sd(d):
    return pm.Normal("a") + of_rows(pm.Normal("v", 0.0, pm.HalfNormal("sd"), shape=(G, 2)), d)


def two_factors(d):
    v = pm.MvNormal("v", np.zeros(2), chol=covariance(pm.HalfNormal.dist(1.0)), shape=(G, 2))
    return pm.Normal("a") + v[d["g"], 0] + v[d["h"], 1] * d["x"]


def transposed(d):
    """A frequent slip: the covariance of z @ chol is another one."""
    v = pm.Normal("z", shape=(G, 2)) @ covariance(pm.HalfNormal.dist(1.0))
    return pm.Normal("a") + of_rows(v, d)


def partly(d):
    v = pm.MvNormal("v", np.zeros(2), chol=covariance(pm.HalfNormal.dist(1.0)), shape=(G, 2))
    return pm.Normal("a") + v[d["g"], 0]


def scales_of_another_kind(d):
    chol = covariance(pm.Uniform.dist(0.0, 5.0))
    return pm.Normal("a") + of_rows(pm.MvNormal("v", np.zeros(2), chol=chol, shape=(G, 2)), d)


def curved_mean(d):
    mean = pm.math.exp(pm.Normal("slope") * LEVELS)
    return pm.Normal("v", mean, pm.HalfNormal("sd"), shape=G)[d["g"]] + pm.Normal("b")


def nested_means(d):
    top = pm.Normal("top", 0.0, pm.HalfNormal("sd_top"), shape=2)
    return pm.Normal("a") + pm.Normal("v", top[np.array([0, 0, 1, 1])], pm.HalfNormal("sd"), shape=G)[d["g"]]


def many_levels(d):
    return pm.Normal("c", 0.0, 2.0, shape=70)[d["g"]] + pm.Normal("v", 0.0, pm.HalfNormal("sd"), shape=3)[d["h"]]


def shrunk(d):
    table = pt.stack([d["x"], d["w"]], axis=1)
    return pm.Normal("a") + table @ pm.Normal("b", 0.0, pm.HalfNormal("tau"), shape=2)


@pytest.mark.parametrize(("build", "words"), [
    (shared_sd, "'v' is in the predictor more than once; each effect of a group needs a standard deviation of its own"),
    (two_factors, "effects of 'v', which are correlated, from different groups"),
    (transposed, "the effects 'z' are spread by 'chol', and not as standard deviations or the root"),
    (partly, "'v' is not in the predictor with all of its 2 columns"),
    (scales_of_another_kind, "the sd_dist of 'chol' is Uniform; mcmc.GLM has HalfNormal.*: take one of these"),
    (curved_mean, "the mean of the effects 'v' depends on 'slope', and not by sums and multiples"),
    (nested_means, "the mean of the effects 'v' depends on 'top'.* write effects of larger groups as summands"),
    (many_levels, "the 70 entries of 'c', of which none has a scale that is learned; at most 64"),
    (shrunk, "the prior of the coefficient 'b' depends on 'tau', and rows do not choose from it"),
])
def test_effects_of_another_kind_are_refused_by_name(build, words):
    model = gaussian(build)
    refused_as_hierarchy(model, words)


@pytest.mark.filterwarnings("ignore")
def test_draws_come_back_in_the_variables_of_pymc():
    """The packed root, standard deviations, correlations, effects and what they are made of, with dims and coords."""
    with pm.Model(coords={"effect": ["level", "slope"], "site": list("stuv")}) as pymc_model:
        d = {name: pm.Data(name, value) for name, value in DATA.items()}
        z = pm.Normal("z", dims=("effect", "site"))
        v = pm.Deterministic("v", (covariance(pm.HalfNormal.dist(1.0)) @ z).T, dims=("site", "effect"))
        pm.Bernoulli("obs", logit_p=means(d) + of_rows(v, d), observed=d["k"])
    model = mcmc.from_pymc(pymc_model)
    trace = mcmc.sample(model, n_draws=30, n_chains=2, n_tune=20, rng=1)
    assert trace.kernel["kernel"] == "SurrogateMetropolis" and trace.names == model.names
    assert trace.to_arrays()["posterior"]["chol_cholesky-cov-packed__"].shape == (2, 30, 3)
    found, labels = model.labelled(trace)
    assert {"chol", "chol_corr", "chol_stds", "a", "b", "z", "v"} <= set(found)
    assert labels["coords"]["effect"] == ["level", "slope"] and labels["dims"]["v"] == ["site", "effect"]
    root = np.zeros((2, 30, 2, 2))
    root[..., *np.tril_indices(2)] = found["chol"]
    np.testing.assert_allclose(found["v"], (root @ found["z"]).swapaxes(-1, -2), atol=1e-12)
    cov = found["chol_stds"][..., None] * found["chol_corr"] * found["chol_stds"][..., None, :]
    np.testing.assert_allclose(root @ root.swapaxes(-1, -2), cov, atol=1e-12)
    other = mcmc.sample(mcmc.SurrogateMetropolis(model.as_glm()), n_draws=30, n_chains=2, n_tune=20, rng=1)
    np.testing.assert_allclose(trace.draws, model.from_glm(other.draws), rtol=1e-9, atol=1e-9)
    answer = mcmc.laplace(model, n_draws=200, rng=1)
    assert answer.names == model.names and np.isfinite(answer.draws).all()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("centred", [True, False])
def test_chains_of_correlated_slopes_are_the_posterior_on_a_grid(centred):
    """Standard deviations and correlation against sums over a grid; all else is normal and integrated apart."""
    rng = np.random.default_rng(8)
    truth = rng.multivariate_normal([0.0, 0.0], [[1.0, -0.5], [-0.5, 0.6]], size=G)
    y = truth[DATA["g"], 0] + truth[DATA["g"], 1] * DATA["x"] + 0.8 * DATA["y"]
    with pm.Model() as pymc_model:
        d = {name: pm.Data(name, value) for name, value in {**DATA, "y": y}.items()}
        chol = covariance(pm.HalfNormal.dist(1.5), 1.5)
        v = pm.MvNormal("v", np.zeros(2), chol=chol, shape=(G, 2)) if centred else (
            chol @ pm.Normal("z", shape=(2, G))).T
        pm.Normal("obs", means(d) + of_rows(v, d), 0.8, observed=d["y"])
    model = mcmc.from_pymc(pymc_model)
    trace = mcmc.sample(model, n_draws=6000, n_chains=2, rng=1)
    found = model.unpack(trace, ["chol_stds", "chol_corr"])
    logs, w = np.linspace(-5.0, 2.3, 41), np.linspace(-2.6, 2.6, 31)
    first, second, third = (part.ravel() for part in np.meshgrid(logs, logs, w, indexing="ij"))
    density = np.empty(len(first))
    x, same = np.column_stack([np.ones(N), DATA["x"]]), DATA["g"][:, None] == DATA["g"]
    fixed = 0.64 * np.eye(N) + x @ np.diag([9.0, 4.0]) @ x.T
    for part in np.array_split(np.arange(len(first)), 40):
        sd, r = np.exp(np.stack([first[part], second[part]], axis=1)), np.tanh(third[part])
        cov = sd[:, :, None] * sd[:, None] * np.where(np.eye(2, dtype=bool), 1.0, r[:, None, None])
        lower = np.linalg.cholesky(fixed + same * np.einsum("ni,bij,mj->bnm", x, cov, x))
        left = np.linalg.solve(lower, y[:, None])[..., 0]
        density[part] = -0.5 * np.square(left).sum(axis=1) - np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
        density[part] += stats.halfnorm.logpdf(sd, scale=1.5).sum(axis=1) + np.log(sd).sum(axis=1)
        density[part] += 1.5 * np.log1p(-r * r)  # LKJ(1.5), and the Jacobian of r
    share = np.exp(density - density.max())
    share /= share.sum()
    drawn = [*np.moveaxis(np.log(found["chol_stds"]), -1, 0), np.arctanh(found["chol_corr"][..., 0, 1])]
    for values, draws in zip((first, second, third), drawn, strict=True):
        mean = share @ values
        sd = np.sqrt(share @ (values - mean) ** 2)
        effective = mcmc.effective_sample_size(draws)
        assert effective > 1000.0
        assert abs(draws.mean() - mean) < 5.0 * sd / np.sqrt(effective) + 0.02 * sd
        assert abs(draws.std() / sd - 1.0) < 5.0 / np.sqrt(effective) + 0.03
