"""Regressions and hierarchies written in PyMC that are recognised: what they are compiled to, and what they are not."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from by_pymc import DATA, N, made, pm, pt, refused_as_hierarchy
from scipy import stats

from fastrace import mcmc
from fastrace.mcmc._fingerprint import _hash


def by_scale(d):
    """The standard deviation of the effects stands first in PyMC, which no row sees, and second the effects."""
    a = pm.Normal("a", 0.0, pm.HalfNormal("tau"), shape=(6, 2))  # three groups have no row
    b = pm.Normal("b", shape=2)
    eta = d["x"] @ b + a[d["g"], 0] + d["o"] * a[d["g"], 1] + d["o"]
    pm.Poisson("obs", mu=pm.math.exp(eta), observed=d["k"])


def student(d):
    mean = pm.Normal("i") + d["x"] @ pm.Normal("b", 0.0, 3.0, shape=2)
    pm.StudentT("obs", nu=5.0, mu=mean, sigma=0.7, observed=d["y"])


def gaussian(d):
    pm.Normal("obs", mu=pm.Normal("i") - pm.Laplace("b", 0.0, 1.0) * d["o"], sigma=2.0, observed=d["y"])


@pytest.mark.parametrize(("build", "family", "names", "normal"), [
    (by_scale, "poisson", ("tau_log__", "b[0]", "b[1]", "a[0, 0]"), False), (student, "student-t", ("i",), True),
    (gaussian, "gaussian", ("i", "b"), False)])
def test_generalised_linear_models_are_recognised_and_run_compiled(build, family, names, normal):
    """What the compiled source gives of each row is what PyTensor gives; the reference has weights."""
    model = made(build)
    assert f"compiled {family} regression" in repr(model) and family in model.describe()
    assert model.names[: len(names)] == names
    reference = model.reference(np.full(model.dim, 0.05) if build is by_scale else None)
    assert reference.weights is not None
    source, theta = model.engine(reference)
    theta[:] = reference.theta_hat + np.random.default_rng(2).normal(scale=0.2, size=(2, model.dim))
    rows = np.arange(N)
    plain = model.left(theta[1], rows, reference.theta_hat)
    np.testing.assert_allclose(source.read(rows, [1])[:, 0], plain, rtol=1e-9, atol=1e-11)
    rest = model.log_prior_beside(reference)
    assert (rest is None) == normal
    if normal:
        step = theta[1] - reference.theta_hat
        value, gradient, hessian = reference.rest
        np.testing.assert_allclose(model.rest(theta[1]), value + gradient @ step + step @ hessian @ step / 2)
    source, theta = model.engine(None)
    theta[0] = reference.theta_hat
    differences = source.read(rows, [0])[:, 0] - model.terms(reference.theta_hat, rows)
    theta[0] += 0.1
    np.testing.assert_allclose(source.read(rows, [0])[:, 0] - model.terms(theta[0], rows), differences, atol=1e-9)


def test_a_model_that_only_looks_like_a_generalised_linear_one_is_not_compiled():
    """The probability is bounded away from 0 and 1, and the predictor is that of a logistic regression."""
    def build(d):
        p = 0.01 + 0.98 * pm.math.sigmoid(d["x"] @ pm.Normal("b", shape=2))
        pm.Bernoulli("obs", p=p, observed=d["k"])

    model = made(build)
    assert model._graphs.design is not None and "PyTensor" in repr(model) and "no generalised" in model.describe()
    assert "NUTS of PyMC" in model._remedy
    assert model.reference().weights is None


@pytest.mark.parametrize("far", [
    lambda eta, b: pm.math.clip(eta, -8.0, 8.0), lambda eta, b: pm.math.maximum(eta, -8.0),
    lambda eta, b: eta + (b[0] > 8.0), lambda eta, b: pm.math.switch(b[0] > 8.0, 0.0, eta),
])
def test_a_predictor_that_changes_its_form_far_from_the_start_is_not_compiled(far):
    """Random points near the start, where all terms agree, do not show it."""
    def build(d):
        b = pm.Normal("b", 0.0, 3.0, shape=2)
        pm.Bernoulli("obs", logit_p=far(d["x"] @ b, b), observed=d["k"])

    model = made(build)
    assert "PyTensor" in repr(model)
    with pytest.raises(ValueError, match="not recognised"):
        model.as_glm()


def test_a_bound_on_a_prior_far_from_the_start_is_kept():
    """A potential that is 0 near the start and -inf far away: the prior is not taken for normal."""
    def build(d):
        b = pm.Normal("b", 0.0, 3.0, shape=2)
        pm.Potential("bound", pt.switch(b[0] > 40.0, -np.inf, 0.0))
        pm.Bernoulli("obs", logit_p=d["x"] @ b, observed=d["k"])

    model = made(build)
    assert "compiled" in repr(model) and "Prior: PyTensor" in model.describe()
    with pytest.raises(ValueError, match="not recognised"):
        model.as_glm()


def standardised(d):
    """Two crossed factors, one with a mean of its own and one of slopes, standardised in PyMC."""
    tau, sd = pm.HalfNormal("tau", 1.5), pm.Exponential("sd", 2.0)
    a = pm.Deterministic("a", pm.Normal("mu", 0.0, 3.0) + tau * pm.Normal("z", shape=5))
    slope = sd * pm.Normal("s", shape=4)
    eta = d["x"] @ pm.Normal("b", 0.0, 2.0, shape=2) + a[d["g"]] + d["o"] * slope[d["k"]] + d["o"]
    pm.Poisson("obs", mu=pm.math.exp(eta), observed=d["k"])


def centred(d):
    a = pm.Normal("z", 0.0, pm.HalfCauchy("tau", 2.0), shape=5)
    pm.StudentT("obs", nu=5.0, mu=pm.Normal("mu") + a[d["g"]], sigma=2.0, observed=d["y"])


def learned(d):
    """A learned scale, effects and slopes that are centred at variables, a Laplace and a Student prior."""
    a = pm.Normal("z", pm.Normal("mu", 1.0, 3.0), pm.HalfCauchy("tau", 2.0), shape=5)
    slope = pm.Normal("s", pm.StudentT("m", nu=3.0, mu=0.5, sigma=2.0), pm.LogNormal("sd", 0.0, 0.5), shape=4)
    mean = a[d["g"]] + d["o"] * slope[d["k"]] + pm.Laplace("b", 0.0, 0.7) * d["o"]
    pm.Normal("obs", mean, pm.Gamma("sigma", 2.0, 2.0), observed=d["y"])


def log_density_of_learned(at):
    """Of the natural parameters, by SciPy."""
    mean = at["z"][DATA["g"]] + DATA["o"] * (at["s"][DATA["k"]] + at["b"])
    prior = [stats.norm.logpdf(at["z"], at["mu"], at["tau"]), stats.norm.logpdf(at["s"], at["m"], at["sd"]),
             stats.norm.logpdf(at["mu"], 1.0, 3.0), stats.t.logpdf(at["m"], 3.0, 0.5, 2.0),
             stats.halfcauchy.logpdf(at["tau"], scale=2.0), stats.lognorm.logpdf(at["sd"], 0.5),
             stats.laplace.logpdf(at["b"], scale=0.7), stats.gamma.logpdf(at["sigma"], 2.0, scale=0.5)]
    return sum(np.sum(p) for p in prior) + stats.norm.logpdf(DATA["y"], mean, at["sigma"]).sum()


def log_density(build, at):
    """Of the natural parameters, by SciPy."""
    if build is learned:
        return log_density_of_learned(at)
    eta, rows = at["mu"] + np.zeros(N), DATA["g"]
    scale = stats.halfnorm(scale=1.5) if build is standardised else stats.halfcauchy(scale=2.0)
    prior = scale.logpdf(at["tau"]) + stats.norm.logpdf(at["z"] * (at["tau"] if build is standardised else 1.0), 0.0,
                                                        at["tau"]).sum()
    if build is centred:
        return prior + stats.norm.logpdf(at["mu"]) + stats.t(5.0, loc=eta + at["z"][rows], scale=2.0).logpdf(
            DATA["y"]).sum()
    eta += DATA["x"] @ at["b"] + at["a"][rows] - at["mu"] + DATA["o"] * (1.0 + at["sd"] * at["s"][DATA["k"]])
    prior += stats.norm.logpdf(at["mu"], 0.0, 3.0) + stats.norm.logpdf(at["b"], 0.0, 2.0).sum()
    prior += stats.expon.logpdf(at["sd"], scale=0.5) + stats.norm.logpdf(at["sd"] * at["s"], 0.0, at["sd"]).sum()
    return prior + stats.poisson.logpmf(DATA["k"], np.exp(eta)).sum()


@pytest.mark.parametrize("build", [standardised, centred, learned])
def test_hierarchies_are_given_as_models_for_the_surrogate(build):
    """The joint density of both factors' scales and effects, in the coordinates of GLM, by SciPy up to a constant."""
    model = made(build)
    glm = model.as_glm()
    rng, differences = np.random.default_rng(3), []
    for _ in range(4):
        theta = np.concatenate([rng.uniform(-0.5, 0.5, glm.n_seen), rng.uniform(0.3, 2.0, glm.dim - glm.n_seen)])
        logs = np.r_[glm.n_seen - glm.learns_scale : glm.dim]
        theta[logs] = np.exp(theta[logs])
        at = {name: value[0] for name, value in model.unpack(model.from_glm(theta[None])).items()}
        source, arms = glm.engine(None)
        free = np.array(glm.unconstrain(theta))
        arms[:] = free[: glm.n_seen]
        ours = source.totals([0])[0] + glm.joint_prior.copy().value_and_gradient(free)[0]
        ours -= free[logs].sum()  # densities of the scales, not of their logarithms
        differences.append(log_density(build, {"mu": 0.0, **at}) - ours)
    np.testing.assert_allclose(differences, differences[0], atol=1e-9)


@pytest.mark.filterwarnings("ignore")
def test_a_chain_on_the_surrogate_comes_back_in_the_names_of_pymc():
    model = made(standardised)
    trace = mcmc.sample(mcmc.SurrogateMetropolis(model.as_glm()), n_draws=60, n_chains=2, rng=1)
    named = model.unpack(model.from_glm(trace.draws))
    again = model.unpack(trace)
    assert list(again) == list(named) and all((again[name] == named[name]).all() for name in named)
    strange = replace(trace, names=tuple(f"x{j}" for j in range(model.dim)))
    with pytest.raises(ValueError, match="a trace of this model, or of its as_glm"):
        model.unpack(strange)
    assert named["a"].shape == (2, 60, 5) and (named["tau"] > 0.0).all()
    answer = mcmc.laplace(model, n_draws=400, rng=1)
    assert answer.names == model.names and np.isfinite(answer.draws).all()
    np.testing.assert_allclose(named["a"], named["mu"][..., None] + named["tau"][..., None] * named["z"])


def effects(d, **options):
    return pm.Normal("a", 0.0, pm.HalfNormal("tau"), shape=3, **options)[d["g"]]


def student_effects(d):
    a = pm.StudentT("a", nu=3.0, mu=0.0, sigma=pm.HalfNormal("tau"), shape=3)
    pm.Normal("obs", d["x"] @ pm.Normal("b", shape=2) + a[d["g"]], 1.0, observed=d["y"])


def group_predictor(d):
    a = pm.Normal("a", pm.Normal("slope") ** 2 * np.arange(3.0), pm.HalfNormal("tau"), shape=3)
    pm.Normal("obs", pm.Normal("b") + a[d["g"]], 1.0, observed=d["y"])


def by_potential(d):
    b = pm.Normal("b")
    pm.Potential("ordered", -b**2)
    pm.Normal("obs", b + effects(d), 1.0, observed=d["y"])


def scale_of_scales(d):
    a = pm.Normal("a", 0.0, pm.HalfNormal("tau", pm.HalfNormal("top")), shape=3)
    pm.Normal("obs", pm.Normal("b") + a[d["g"]], 1.0, observed=d["y"])


def learned_df(d):
    pm.StudentT("obs", nu=2.0 + pm.HalfNormal("nu"), mu=pm.Normal("b") + effects(d), sigma=1.0, observed=d["y"])


@pytest.mark.parametrize(("build", "words"), [
    (student_effects, "the effects 'a' are StudentT"), (by_potential, "a potential, 'ordered'"),
    (learned_df, "the degrees of freedom of 'obs' are learned"),
    (group_predictor, "the mean of the effects 'a' depends on 'slope'"),
    (lambda d: pm.Normal("obs", pm.Normal("b") + effects(d), pm.HalfNormal("s") * pm.HalfNormal("t"), observed=d["y"]),
     "the sigma of 'obs' depends on 's', 't'"),
    (lambda d: pm.Normal("obs", pm.Normal("b") + effects(d), pm.Uniform("s", 0.0, 9.0), observed=d["y"]),
     "the prior of the scale 's' is Uniform"),
    (lambda d: pm.Normal("obs", pm.HalfNormal("b") + effects(d), 1.0, observed=d["y"]), "a coefficient|'b' is Half"),
    (lambda d: pm.Normal("obs", effects(d), 1.0, observed=d["y"]), "no coefficient beside effects"),
    (scale_of_scales, "the prior of the scale 'tau' has a parameter that is learned too"),
    (lambda d: pm.Laplace("obs", mu=effects(d), b=2.0, observed=d["y"]), "'obs' is Laplace"),
])
def test_hierarchies_of_another_kind_say_which_part_is(build, words):
    """From the graph, and numbers of parts of it, so that no function is compiled that rows are in."""
    with pm.Model() as model:
        build({name: pm.Data(name, value) for name, value in DATA.items()})
    refused_as_hierarchy(model, words)


def test_a_hierarchy_with_a_parameter_that_no_row_sees_is_not_given_without_it():
    def build(d):
        centred(d)
        pm.Normal("unseen")

    model = made(build)
    assert model.dim == 8
    with pytest.raises(ValueError, match="'unseen' is not seen by the rows"):
        model.as_glm()


def test_a_model_without_groups_is_a_plain_one():
    model = made(student)
    before = _hash(model)
    glm = model.as_glm()
    assert _hash(model) == before and model._remedy == ""
    np.testing.assert_allclose(glm.prior_precision, [1.0, 1.0 / 9.0, 1.0 / 9.0])
    at = np.array([[0.1, -0.2, 0.3]])
    np.testing.assert_array_equal(model.from_glm(at), at)


@pytest.mark.filterwarnings("ignore")
def test_a_hierarchy_whose_chains_go_wrong_names_the_remedy():
    model = made(standardised)
    trace = mcmc.sample(mcmc.Metropolis(model), np.zeros(14), n_draws=20, n_chains=2, n_tune=0, rng=1)
    assert "take SurrogateMetropolis(model), or NUTS" in trace.warnings[-1]


@pytest.mark.filterwarnings("ignore")
def test_a_hierarchy_as_it_is_gets_the_kernel_of_its_glm(tmp_path):
    """Draws are those of a chain on as_glm(), recorded as parameters of the PyMC model; a run is resumed, and pickles.

    Effects are centred at a variable, and named by coords; the scale is learned.
    """
    with pm.Model(coords={"where": list("uvwst")}) as pymc_model:
        d = {name: pm.Data(name, value) for name, value in DATA.items()}
        a = pm.Normal("a", pm.Normal("mu"), pm.HalfNormal("tau"), dims="where")
        mean = a[d["g"]] + pm.HalfCauchy("sd", 1.0) * pm.Normal("s", shape=2)[d["k"]] + d["o"]
        pm.Normal("obs", mean, pm.HalfNormal("sigma"), observed=d["y"])
    model = mcmc.from_pymc(pymc_model)
    trace = mcmc.sample(model, n_draws=40, n_chains=2, n_tune=20, rng=1)
    assert trace.kernel["kernel"] == "SurrogateMetropolis" and "hyperparameters" in trace.kernel["chosen"]
    assert trace.names == model.names
    other = mcmc.sample(mcmc.SurrogateMetropolis(model.as_glm()), n_draws=40, n_chains=2, n_tune=20, rng=1)
    np.testing.assert_allclose(trace.draws, model.from_glm(other.draws), rtol=1e-12, atol=1e-12)
    named = trace.to_arrays()["posterior"]
    assert list(named) == [v.name for v in model.values] and named["a"].shape == (2, 40, 5)
    assert [part.coords for part in trace.parts if part.name == "a"] == [(tuple("uvwst"),)]
    mine, theirs = model.unpack(trace), model.unpack(other)
    assert all(np.allclose(mine[name], theirs[name]) for name in theirs)
    assert np.allclose(np.log(mine["sigma"]), named["sigma_log__"])
    kernel = pickle.loads(pickle.dumps(mcmc.SurrogateMetropolis(model)))
    start = trace.draws[0, -1]
    np.testing.assert_allclose(kernel._recorded(kernel.init(start).position), start, atol=1e-12)
    half = mcmc.sample(kernel, n_draws=25, n_chains=2, n_tune=20, rng=1, checkpoint=tmp_path / "run.npz")
    whole = mcmc.sample(model, n_draws=40, n_chains=2, n_tune=20, rng=1, checkpoint=tmp_path / "run.npz")
    np.testing.assert_array_equal(whole.draws, trace.draws)
    np.testing.assert_array_equal(half.draws, trace.draws[:, :25])
