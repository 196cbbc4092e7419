"""What the rows of a PyMC model see of its parameters: linear predictors found in the graph, and expansions in them."""

import pickle
import re
from dataclasses import replace

import numpy as np
import pytest
from by_pymc import graphs_of, pm, pt, refused_as_hierarchy
from scipy import stats

from fastrace import mcmc
from fastrace._base._progress import _lines, patient
from fastrace.mcmc._fingerprint import _hash
from fastrace.mcmc._fit import other_mode
from fastrace.mcmc.doors.pymc import _graphs, _mapped

N = 60
RNG = np.random.default_rng(0)
DATA = {"x": RNG.normal(size=(N, 2)), "g": RNG.integers(0, 3, N), "o": RNG.normal(size=N), "y": RNG.normal(size=N),
        "k": RNG.integers(0, 2, N)}


def by_groups(X, G, offset):
    """Intercept, slopes, a scaled intercept of each group, slopes of each group, an offset."""
    tau, z = pm.HalfNormal("tau"), pm.Normal("z", shape=(3, 2))
    return pm.Normal("a") + X @ pm.Normal("b", shape=2) + tau * z[G, 0] + (X * z[G]).sum(axis=1) + offset


def logistic(d):
    pm.Bernoulli("obs", logit_p=by_groups(d["x"], d["g"], d["o"]), observed=d["k"])


def counts(d):
    mu = pm.Deterministic("mu", pm.math.exp(by_groups(d["x"], d["g"], d["o"])))
    pm.NegativeBinomial("obs", mu=mu, alpha=pm.HalfNormal("alpha"), observed=d["k"])


def two_predictors(d):
    mean = pm.Normal("a") + pm.Normal("b", shape=3)[d["g"]] * d["o"]
    pm.Normal("obs", mean, pm.math.exp(pm.Normal("c") - pm.Normal("e") * d["o"]), observed=d["y"])


def two_scalars(d):
    mean = d["x"] @ (pm.HalfNormal("s") * pm.Normal("b", shape=2))
    pm.StudentT("obs", nu=2.0 + pm.HalfNormal("nu"), mu=mean, sigma=pm.HalfNormal("sigma"), observed=d["y"])


def softmax(d):
    pm.Categorical("obs", logit_p=d["x"] @ pm.Normal("b", shape=(2, 3)), observed=d["k"])


def made(build, **options):
    with pm.Model() as model:
        build({name: pm.Data(name, value) for name, value in DATA.items()})
    return mcmc.from_pymc(model, **options)


@pytest.mark.parametrize(("build", "n_predictors", "n_scalars"), [
    (logistic, 1, 0), pytest.param(counts, 1, 1, marks=pytest.mark.long), (two_predictors, 2, 0),
    pytest.param(two_scalars, 1, 2, marks=pytest.mark.long)])
def test_expansions_in_what_the_rows_see_are_those_in_the_parameters(build, n_predictors, n_scalars):
    """The chain rule against automatic differentiation of every row."""
    model = made(build)
    graphs = model._graphs
    assert len(graphs.predictors.leaves) == n_predictors and len(graphs.predictors.scalars) == n_scalars
    at = np.random.default_rng(1).normal(scale=0.5, size=model.dim)
    some = np.array([3, 59, 8, 8])
    found = [model._expand(at), model._expand(at, some)]
    graphs.design = None
    for ours, plain in zip(found, [model._expand(at), model._expand(at, some)], strict=True):
        for a, b in zip(ours, plain, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_a_mean_that_is_spread_over_effects_is_taken_by_its_own_entries():
    """Codes that choose from a sum of arrays of shapes (2,) and (3, 2): they were those of the larger one in both."""
    def build(d):
        effects = pm.Normal("mu", shape=2) + pm.HalfNormal("sd", shape=2) * pm.Normal("z", shape=(3, 2))
        mean = effects[d["g"], 0] + effects[d["g"], 1] * d["o"]
        pm.StudentT("obs", nu=2.0 + pm.HalfNormal("nu"), mu=mean, sigma=1.0, observed=d["y"])

    model = made(build)
    at = np.random.default_rng(2).normal(scale=0.5, size=model.dim)
    assert model._graphs.design is not None
    np.testing.assert_allclose(model._expand(at)[0], model.terms(at, np.arange(N)).sum() + model.rest(at))


def test_terms_that_are_no_functions_of_predictors_are_differentiated_row_by_row():
    model = made(softmax)
    assert model._graphs.design is None and model.reference().center.shape == (6,)


def test_the_rows_differentiated_are_shown(capsys):
    def build(d):
        pm.Normal("obs", d["x"] @ pm.Normal("b", shape=2), 1.0, observed=d["y"])

    model = made(build, progress=True)
    model.reference()
    assert "rows differentiated" in capsys.readouterr().err
    model.progress = False
    model.reference()
    assert capsys.readouterr().err == ""


def test_long_work_says_how_far_it_is_on_a_terminal_alone(capsys, monkeypatch):
    clock = iter(range(0, 1000, 60))
    with monkeypatch.context() as patch:
        patch.setattr("time.monotonic", lambda: float(next(clock)))
        for in_files, said in (False, ""), (True, "rows differentiated 1000/?, 120 s\n"):    # a minute for each look
            with patient("rows differentiated", False, wait=0.0, in_files=in_files) as show:
                show(1000)
            assert capsys.readouterr().err == said
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with patient("rows differentiated", False, wait=1e6) as show:
        show(1000)
    assert capsys.readouterr().err == ""
    with patient("rows differentiated", False, wait=0.0) as show:
        show(1000)
    assert capsys.readouterr().err == "\rrows differentiated: 1,000\n"


def test_lines_show_progress_where_standard_error_is_a_pipe(capsys):
    with _lines("rows", 100, True, wait=0.0) as show:
        show(40)
        show(100)
    assert capsys.readouterr().err == "rows 40/100, 0 s\nrows 100/100, 0 s\n"
    with _lines("rows", None, False, wait=1e6) as show:        # what is quick is silent unless it was asked for
        show(40)
    assert capsys.readouterr().err == ""
    rng = np.random.default_rng(0)
    model = mcmc.GLM(rng.normal(size=(200, 1)), rng.integers(0, 2, 200))
    plain = mcmc.sample(model, n_draws=50, n_chains=2, rng=1, progress=False)
    assert capsys.readouterr().err == ""
    shown = mcmc.sample(model, n_draws=50, n_chains=2, rng=1, progress=True)
    err = capsys.readouterr().err
    begun = "choosing a kernel", "  0.0 s: setting up SurrogateMetropolis", "  0.0 s: expanding the likelihood"
    assert tuple(err.splitlines()[:3]) == begun and " s: setting up PoissonMinibatchMetropolis\n" in err
    assert re.search(r" s: a short pilot of it\n( .* s: a longer pilot of \w+\n)+choosing a kernel: ", err)
    assert "\nchecking the draws: " in err
    assert "sampling 1100/1100" in err
    np.testing.assert_array_equal(plain.draws, shown.draws)
    mcmc.SurrogateMetropolis(model)
    assert capsys.readouterr().err == ""
    kernel = mcmc.SurrogateMetropolis(model, decision="poisson", progress=True)
    stages = [line.split(": ")[-1] for line in capsys.readouterr().err.splitlines()]
    assert stages[0] == "setting up SurrogateMetropolis" and stages[-1].endswith(" s")
    assert [words.split()[0] for words in stages[1:-1]] == ["expanding", "bounding", "finding", "choosing"]
    quiet = mcmc.SurrogateMetropolis(model, decision="poisson")
    draws = [mcmc.sample(k, n_draws=50, n_chains=1, rng=1).draws for k in (kernel, quiet)]
    np.testing.assert_array_equal(*draws)


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


def lapses(d):
    """Probabilities bounded away from 0 and 1, centred effects; 3 + 3 parameters are seen through 5."""
    a = pm.Deterministic("a", pm.Normal("mu") + pm.HalfNormal("tau") * pm.Normal("z", shape=2))
    eta = a[d["k"]] + pm.Normal("b") * d["o"]
    pm.Bernoulli("obs", p=0.05 + 0.9 * pm.math.sigmoid(eta), observed=(d["y"] > 0.0).astype("int64"))


def mixture(d):
    """The terms are no functions of linear predictors; the rows see all parameters."""
    mu = pm.Normal("mu", np.array([-1.0, 1.0]), 1.0, shape=2)
    pm.NormalMixture("obs", w=np.array([0.3, 0.7]), mu=mu, sigma=pm.HalfNormal("s"), observed=d["y"])


@pytest.fixture
def short_pilots(monkeypatch):
    """Without a compiler a gradient takes most of a millisecond: what is settled here need not be good."""
    for owner, name, value in ((_mapped, "EFFORT", 0.03), (_mapped.MappedModel, "_effort", 0.03),
                               (_mapped, "_MOVES", 30), (_mapped, "_ARRIVING", 5), (_mapped, "_ROUNDS", 1)):
        monkeypatch.setattr(owner, name, value)


@pytest.mark.parametrize("build", [lapses, pytest.param(mixture, marks=pytest.mark.long)])
def test_a_model_of_another_kind_is_expanded_in_what_its_rows_see(build, short_pilots):
    """What is left of the terms is what expansion and terms say; the sum of all is the posterior of PyMC."""
    model = made(build)
    kernel = mcmc.SurrogateMetropolis(model)
    mapped = kernel.model
    assert kernel.inner == "hmc" and kernel.names == model.names and mapped.is_hierarchy == (build is lapses)
    hat, slope, curvature, added = mapped.expansion
    assert len(hat) == (4 if build is lapses else 3)
    np.testing.assert_allclose(mapped.expanded(hat)[1], slope, rtol=1e-9)
    np.testing.assert_allclose(mapped.expanded(hat)[2], added - curvature, rtol=1e-9, atol=1e-9)
    source, arms = kernel.model.engine(kernel.reference)
    points = np.random.default_rng(4).normal(scale=0.3, size=(3, model.dim)) + kernel.compressed.psi_hat
    sums, inner, rows = [], kernel._inner(), np.arange(N)
    for point in points:
        arms[:] = point
        step = mapped.seen(point) - hat
        plain = model.terms(point, rows)
        sums.append([source.totals([0])[0] + inner.log_density_of(point), plain.sum() + model.rest(point)])
        quadratic = slope @ step - step @ curvature @ step / 2
        np.testing.assert_allclose(source.totals([0])[0] + quadratic, plain.sum() - mapped.expanded(hat)[0], atol=1e-8)
    np.testing.assert_allclose(np.diff(sums, axis=0)[:, 0], np.diff(sums, axis=0)[:, 1], atol=1e-8)
    with pytest.raises(ValueError, match="map of the model's parameters"):
        mcmc.compress(model)
    with pytest.raises(ValueError, match="inner='normal' needs"):
        mcmc.SurrogateMetropolis(model, inner="normal")


def test_draws_at_the_edge_of_a_neck_are_told_though_chains_agree(short_pilots):
    """Ten groups of two rows, centred, by densities of the user's own: chains stop where steps are too wide."""
    def funnel(d):
        v = pm.Normal("v", 0.0, 1.5)
        w = pm.CustomDist("w", v, logp=lambda x, v: -0.5 * x**2 * pm.math.exp(-2.0 * v) - v, shape=10)
        pm.Normal("obs", w[d["k"]], 1.0, observed=d["y"])

    rng = np.random.default_rng(3)
    with pm.Model() as whole:
        funnel({"k": pm.Data("k", np.repeat(np.arange(10), 2)), "y": pm.Data("y", rng.normal(size=20))})
    kernel = mcmc.SurrogateMetropolis(mcmc.from_pymc(whole))
    at, draws = kernel.names.index("v"), rng.normal(size=(300, 11))
    draws[:, at] = 0.0
    assert kernel.inner == "hmc" and kernel._beyond(draws) == ""
    draws[::50, at] = -6.0
    draws[::50, np.arange(11) != at] *= np.exp(-6.0)
    assert "at 2.0% of the draws the posterior is too narrow" in kernel._beyond(draws)
    assert "as z * sd" in kernel._beyond(draws)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("decision", ["exact", "race"])
def test_chains_of_a_hierarchy_of_another_kind_are_the_posterior_on_a_grid(decision):
    """Mean and sd of the slope and the effects' scale against sums over a grid, the effects integrated apart."""
    model = made(lapses)
    trace = mcmc.sample(mcmc.SurrogateMetropolis(model, decision=decision), n_draws=4000, n_chains=2, rng=1)
    y = DATA["y"] > 0.0
    b, mu, log_tau, z = (np.linspace(-2.5, 2.5, 51), np.linspace(-2.5, 2.5, 41), np.linspace(-9.0, 1.4, 60),
                         np.linspace(-3.5, 3.5, 41))
    effect = np.linspace(-6.0, 6.0, 301)
    by_group = []
    for k in range(2):
        rows = DATA["k"] == k
        eta = effect[:, None, None] + b[None, :, None] * DATA["o"][rows]
        p = 0.05 + 0.9 / (1.0 + np.exp(-eta))
        by_group.append(np.where(y[rows], np.log(p), np.log1p(-p)).sum(axis=2))
    at = mu[:, None, None] + np.exp(log_tau)[None, :, None] * z
    density = np.ones((len(mu), len(log_tau), len(b)))
    for table in by_group:
        likelihood = np.exp(table)
        each = np.stack([np.interp(at, effect, likelihood[:, j]) for j in range(len(b))], axis=-1)
        density *= (each * stats.norm.pdf(z)[:, None]).sum(axis=2)
    prior = stats.norm.pdf(mu)[:, None, None] * (stats.halfnorm.pdf(np.exp(log_tau)) * np.exp(log_tau))[None, :, None]
    density *= prior * stats.norm.pdf(b)
    density /= density.sum()
    for name, values, axis in (("b", b, (0, 1)), ("tau_log__", log_tau, (0, 2)), ("mu", mu, (1, 2))):
        share, j = density.sum(axis=axis), trace.names.index(name)
        mean = share @ values
        sd = np.sqrt(share @ (values - mean) ** 2)
        draws = trace.draws[:, :, j]
        assert abs(draws.mean() - mean) < 5.0 * sd / np.sqrt(trace.ess()[j]) + 0.02 * sd
        assert abs(draws.std() / sd - 1.0) < 5.0 / np.sqrt(trace.ess()[j]) + 0.03


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_chains_of_a_model_of_another_kind_go_on_bit_for_bit(tmp_path, short_pilots):
    model = made(lapses)
    trace = mcmc.sample(model, n_draws=30, n_chains=2, n_tune=20, rng=1, threads=2)
    assert "parameters stand behind" in trace.kernel["chosen"]
    assert trace.to_arrays()["posterior"]["z"].shape == (2, 30, 2)
    cloudpickle = pytest.importorskip("cloudpickle")  # models of PyMC need it
    kernel = pickle.loads(cloudpickle.dumps(mcmc.SurrogateMetropolis(model)))
    mcmc.sample(kernel, n_draws=10, n_chains=2, n_tune=20, rng=1, checkpoint=tmp_path / "run.npz", threads=1)
    whole = mcmc.sample(model, n_draws=30, n_chains=2, n_tune=20, rng=1, checkpoint=tmp_path / "run.npz")
    np.testing.assert_array_equal(whole.draws, trace.draws)


def hidden_mixture(d):
    """The terms are no functions of linear predictors, and the means of the parts are effects."""
    mu = pm.Deterministic("mu", pm.Normal("m") + pm.HalfNormal("tau") * pm.Normal("z", shape=2))
    pm.NormalMixture("obs", w=np.array([0.3, 0.7]), mu=mu, sigma=pm.HalfNormal("s"), observed=d["y"])


@pytest.mark.parametrize(("build", "through", "n_seen"), [
    pytest.param(lapses, ["a", "b"], 3, marks=pytest.mark.long),
    pytest.param(lapses, ["mu", "tau", "z", "b"], 5, marks=pytest.mark.long), (hidden_mixture, None, 3)])
def test_the_rows_see_the_variables_that_a_cut_goes_through(build, through, n_seen, short_pilots):
    """The expansion is of PyMC's terms as functions of these variables, found or named."""
    with pm.Model() as pymc_model:
        build({name: pm.Data(name, value) for name, value in DATA.items()})
    model = mcmc.from_pymc(pymc_model, through=through)
    kernel = mcmc.SurrogateMetropolis(model)
    mapped = kernel.model
    hat, slope, curvature, _ = mapped.expansion
    assert len(hat) == n_seen and mapped.is_hierarchy
    assert (model._graphs.design is None) == (n_seen != 3 or build is hidden_mixture)
    rng, rows = np.random.default_rng(5), np.arange(N)
    source, arms = mapped.engine(kernel.reference)
    for point in rng.normal(scale=0.3, size=(3, model.dim)) + kernel.compressed.psi_hat:
        named = {name: value[0] for name, value in model.unpack(point[None]).items()}
        if build is hidden_mixture:
            expected = np.r_[named["mu"], np.log(named["s"])]
        else:
            expected = np.r_[named["mu"], np.log(named["tau"]), named["z"], named["b"]] if n_seen == 5 else None
        if expected is not None:
            np.testing.assert_allclose(mapped.seen(point), expected)
        arms[:] = point
        step = mapped.seen(point) - hat
        quadratic = slope @ step - step @ curvature @ step / 2
        np.testing.assert_allclose(source.totals([0])[0] + quadratic,
                                   model.terms(point, rows).sum() - mapped.expanded(hat)[0], atol=1e-8)
    if build is lapses:
        with pytest.raises(ValueError, match="through says what its rows see"):
            model.as_glm()


@pytest.mark.parametrize(("through", "words"), [
    ("aa", "through names 'aa'; the model has"), (["a"], "rows depend on b by another way"),
    (["a", "b", "tau"], "has tau, on which no row depends directly"), (["a", "a"], "each variable once"),
    (["eta"], r"'eta', which has numbers of the rows \(k, o\)"), (["obs"], "'obs', which is neither a free"),
])
def test_a_cut_that_parameters_go_around_is_refused_by_name(through, words):
    with pm.Model() as pymc_model:
        d = {name: pm.Data(name, value) for name, value in DATA.items()}
        a = pm.Deterministic("a", pm.Normal("mu") + pm.HalfNormal("tau") * pm.Normal("z", shape=2))
        eta = pm.Deterministic("eta", a[d["k"]] + pm.Normal("b") * d["o"])
        pm.Bernoulli("obs", p=0.05 + 0.9 * pm.math.sigmoid(eta), observed=(d["y"] > 0.0).astype("int64"))
    with pytest.raises(ValueError, match=words):
        mcmc.from_pymc(pymc_model, through=through)
    with pytest.raises(ValueError, match="through came with variables"):
        mcmc.PyMCModel(pymc_model, variables=["mu"], through=["a", "b"])


@pytest.mark.skipif(bool(pytest.importorskip("pytensor").config.cxx), reason="a compiler fuses these operations")
def test_without_a_compiler_nothing_is_computed_entry_by_entry():
    """Not even log(1 + exp(x)) and casts, which NumPy has under other names; with the same numbers."""
    x, small = pt.dvector("x"), pt.vector("small", dtype="int8")
    with pm.Model() as model:
        d = {name: pm.Data(name, value) for name, value in DATA.items()}
        pm.Bernoulli("obs", logit_p=pm.Normal("b", shape=2)[d["k"]], observed=d["k"])
    graphs, _ = graphs_of(model)
    function = graphs._compiled([x, small], [pt.softplus(x), small.astype("int64"), small.astype("float64") + x.sum()])
    for f in (function, graphs.function("curvature")):
        scalars = [op for op in (getattr(n.op, "scalar_op", None) for n in f.maker.fgraph.toposort()) if op is not None]
        assert scalars and all(op.nfunc_spec is not None for op in scalars)
    at = np.array([-745.0, -40.0, -1e-3, 0.0, 5.0, 33.0, 710.0])
    softplus, integers, floats = function(at, np.array([-3, 4], dtype=np.int8))
    np.testing.assert_allclose(softplus, np.logaddexp(0.0, at), rtol=1e-15)
    assert integers.dtype == np.int64 and list(integers) == [-3, 4] and floats.dtype == np.float64


def two_parts(d, apart):
    mu = pm.Normal("mu", 0.0, 3.0, shape=2)
    places = pt.stack([mu[0], mu[0] + pt.exp(mu[1])]) if apart else mu
    y = np.r_[np.full(N // 2, -1.5), np.full(N // 2, 1.5)] + 0.3 * DATA["y"]
    pm.NormalMixture("obs", w=np.array([0.5, 0.5]), mu=places, sigma=0.5, observed=pm.Data("parts", y))


def test_another_mode_of_a_small_model_is_found():
    """The parts of a mixture may change places."""
    model = made(lambda d: two_parts(d, False))
    found = other_mode(model, model.reference(np.array([-1.49, 1.51])))
    np.testing.assert_allclose(found[0], [1.5, -1.5], atol=0.3)
    assert found[1] == pytest.approx(1.0, rel=0.2)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:all 2 chains began")
def test_another_mode_of_a_small_model_is_warned_of_and_there_is_none_of_parts_in_order():
    model = made(lambda d: two_parts(d, False))
    kernel = mcmc.RacingMetropolis(model, control_variate=model.reference(np.array([-1.5, 1.5])))
    with pytest.warns(UserWarning, match="has another mode near theta"):
        mcmc.sample(kernel, [-1.5, 1.5], n_draws=40, n_chains=2, n_tune=0, rng=1)
    model = made(lambda d: two_parts(d, True))
    assert other_mode(model, model.reference(np.array([-1.5, np.log(3.0)]))) is None
    assert made(lambda d: pm.Bernoulli("obs", logit_p=d["x"] @ pm.Normal("b", shape=2), observed=d["k"]))._concave


def test_a_regression_with_normal_priors_is_moved_on_a_surrogate_too():
    """As the same GLM is: the moments in closed form, and draws by the names of the PyMC model."""
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(400), rng.normal(size=400)])
    y = X @ [1.0, -0.5] + 2.0 * rng.normal(size=400)
    with pm.Model() as whole:
        x, out = pm.Data("x", X[:, 1]), pm.Data("out", y)
        b, a = pm.Normal("b", 0.0, 3.0), pm.Normal("a", 1.0, 0.5)
        pm.Normal("obs", a + b * x, 2.0, observed=out)
    trace = mcmc.sample(mcmc.SurrogateMetropolis(mcmc.from_pymc(whole)), n_draws=2000, n_chains=2, rng=1)
    assert trace.names == ("b", "a")
    places, prior = [trace.names.index(name) for name in ("a", "b")], np.diag([4.0, 1.0 / 9.0])
    covariance = np.linalg.inv(X.T @ X / 4.0 + prior)
    mean, sd = covariance @ (X.T @ y / 4.0 + prior @ [1.0, 0.0]), np.sqrt(np.diagonal(covariance))
    away = (trace.draws.mean(axis=(0, 1))[places] - mean) / sd * np.sqrt(trace.ess()[places])
    assert np.abs(away).max() < stats.norm.isf(1e-6 / 4.0)
    assert set(trace.to_arrays()["posterior"]) == {"a", "b"}


def test_a_model_says_in_words_how_it_runs():
    def varying(d):
        pm.Bernoulli("obs", logit_p=pm.Normal("a") + pm.HalfNormal("tau") * pm.Normal("z", shape=3)[d["g"]],
                     observed=d["k"])

    words = made(varying).describe()
    assert "sample, laplace and SurrogateMetropolis do not call PyTensor" in words and "3 groups" in words
    assert "no generalised" not in words


@pytest.mark.parametrize(("given", "words"), [
    ("a", "model is 'a'; a pymc.Model is needed"), (3.0, "model is 3.0"), (None, "no model came"),
])
def test_what_is_no_model_is_refused_by_name(given, words):
    with pytest.raises(TypeError, match=words):
        mcmc.from_pymc(given)


def with_potential(d):
    pm.Potential("soft", -pm.math.sqr(pm.Normal("q") - 1.0))
    logistic(d)


def test_terms_of_a_glm_are_compiled_where_the_rest_of_the_model_is_another_one():
    """Values, derivatives and what an expansion leaves are those of PyTensor; a term that differs stays with it."""
    model = made(with_potential)
    assert model._glm is None and model._seen_glm is not None and "no generalised linear" in model.describe()
    assert "compiled code, as logistic regression in what the rows see, in SurrogateMetropolis" in model.describe()
    assert "compiled" not in made(with_potential, through=list("abz") + ["tau"]).describe()
    at, some = np.random.default_rng(1).normal(scale=0.5, size=model.dim), np.array([3, 59, 8, 8])
    form = model._surrogate_form()
    form._expand_at(form.seen(at))
    source, theta = form.engine(mcmc.Reference(at, at, np.eye(model.dim), None, np.inf))
    theta[:] = at + 0.3
    ours = [*model._expand(at), *model._expand(at, some), source.read(some, [1])[:, 0]]
    model._seen_glm = None
    plain = [*model._expand(at), *model._expand(at, some), form.left(at + 0.3, some)]
    for a, b in zip(ours, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    assert np.abs(plain[-1]).max() > 1e-4

    def cauchit(d):
        pm.Potential("soft", -pm.math.sqr(pm.Normal("q") - 1.0))
        pm.Bernoulli("obs", p=0.5 + pt.arctan(by_groups(d["x"], d["g"], d["o"])) / np.pi, observed=d["k"])

    assert made(cauchit)._seen_glm is None


def test_derivatives_in_all_directions_take_one_call(monkeypatch):
    model = made(with_potential)
    at, names = np.random.default_rng(1).normal(scale=0.5, size=model.dim), []
    graphs, call = _graphs.RowGraphs, _graphs.RowGraphs.call
    monkeypatch.setattr(graphs, "call", lambda self, name, *args: names.append(name) or call(self, name, *args))
    _, gradient, hessian = model._expand(at)
    assert sorted(names) == ["jacobian", "pulled", "rest_expansion", "seen", "seen"]
    for j in range(model.dim):  # central differences of the log-posterior and of its gradient
        step = 1e-5 * np.eye(model.dim)[j]
        up, down = model._expand(at + step), model._expand(at - step)
        assert (up[0] - down[0]) / 2e-5 == pytest.approx(gradient[j], abs=1e-5)
        np.testing.assert_allclose((up[1] - down[1]) / 2e-5, hessian[j], atol=1e-4)
    monkeypatch.setattr("fastrace.mcmc.doors.pymc._graphs._TOGETHER", 3 * model.dim)  # three directions a call
    np.testing.assert_allclose(model._expand(at)[2], hessian, rtol=1e-12, atol=1e-12)


def test_derivatives_of_a_prior_compile_by_jax_too():
    """Its functions know no number of directions before they run."""
    pytest.importorskip("jax")
    at = np.random.default_rng(1).normal(scale=0.5, size=made(with_potential).dim)
    ours = made(with_potential)._graphs.expansion("rest_expansion", at)
    other = made(with_potential, compile_kwargs={"mode": "JAX"})._graphs.expansion("rest_expansion", at)
    for a, b in zip(ours, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_a_normal_prior_behind_coefficients_is_said_to_be_moved_as_a_glm():
    def moved(d):
        pm.Bernoulli("obs", logit_p=(2.0 * pm.Normal("z") + 0.5) * d["x"][:, 0], observed=d["k"])

    model = made(moved)
    words = model.describe()
    assert "kernels do not call PyTensor" in words and "no generalised" not in words and "Prior: normal" in words
    assert isinstance(mcmc.RacingMetropolis(model).model, mcmc.GLM)


def heavy_tails(x, y):
    with pm.Model() as model:
        X, Y = pm.Data("X", x), pm.Data("Y", 1.0 * (y > 0.0))
        b = pm.StudentT("b", nu=4.0, mu=0.2, sigma=0.5, shape=2)
        pm.Bernoulli("obs", logit_p=X @ b, observed=Y)
    return model


def unknown_scale(x, y):
    with pm.Model() as model:
        X, Y = pm.Data("X", x), pm.Data("Y", y)
        b, s = pm.Normal("b", 0.0, 3.0, shape=2), pm.HalfNormal("s", 5.0)
        pm.Normal("obs", X @ b, s, observed=Y)
    return model


@pytest.mark.parametrize("written", [heavy_tails, unknown_scale])
def test_kernels_over_rows_move_a_recognised_model_as_a_glm(written, monkeypatch):
    """And record PyMC's parameters. A reference or a proposal of one's own keeps PyTensor, whose chains agree."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 2))
    ours = mcmc.from_pymc(written(x, x @ [0.5, -0.5] + rng.normal(size=400)))
    kernels = [make(ours) for make in (mcmc.RacingMetropolis, mcmc.PoissonMinibatchMetropolis, mcmc.Metropolis,
                                       mcmc.Slice)]
    by_hand = [mcmc.Metropolis(ours, control_variate=ours.reference()),
               mcmc.Metropolis(ours, proposal=lambda rng, theta: theta)]
    assert all(isinstance(kernel.model, mcmc.GLM) for kernel in kernels)
    assert all(kernel.model is ours for kernel in by_hand)
    theirs = mcmc.sample(by_hand[0], n_draws=2000, n_chains=1, rng=2)
    for kernel in kernels:
        with monkeypatch.context() as without:
            without.setattr(type(ours._graphs), "call", None)
            trace = mcmc.sample(kernel, n_draws=2000, n_chains=1, rng=1)
        assert trace.names == ours.names and set(trace.to_arrays()["posterior"]) == set(ours._value_names)
        spread = [t.draws.std(axis=(0, 1)) for t in (trace, theirs)]
        error = np.hypot(spread[0] / np.sqrt(trace.ess()), spread[1] / np.sqrt(theirs.ess()))
        assert (np.abs(trace.draws.mean(axis=(0, 1)) - theirs.draws.mean(axis=(0, 1))) < 5.5 * error).all()
        np.testing.assert_allclose(spread[0], spread[1], rtol=0.3)
        start = theirs.draws[0, -1]
        np.testing.assert_allclose(kernel._recorded(kernel.init(start).position[None])[0], start)
    assert "kernels do not call PyTensor" in ours.describe() and "Rows: compiled code, as" in ours.describe()
    assert (ours.unpack(trace).get("s", np.ones(1)) > 0.0).all()
    assert mcmc.sample(kernels[0], trace_of(kernels[0]), n_draws=50).names == ours.names


def trace_of(kernel):
    return mcmc.sample(kernel, n_draws=50, n_chains=1, n_tune=10, rng=3)


def test_tuna_bounds_slopes_of_the_glm_that_it_moves():
    rng = np.random.default_rng(0)
    x = 30.0 * rng.normal(size=(400, 1))
    with pm.Model() as model:               # the intercept comes last here, and first in the GLM
        X, Y = pm.Data("X", x), pm.Data("Y", (rng.random(400) < 1 / (1 + np.exp(-x[:, 0] / 30 - 1))).astype(float))
        b, a = pm.Laplace("b", 0.0, 1.0, shape=1), pm.StudentT("a", nu=3, mu=0.0, sigma=2.0)
        pm.Bernoulli("obs", logit_p=a + X @ b, observed=Y)
    ours = mcmc.from_pymc(model)
    steps = [mcmc.TunaMetropolis(of, size=0.3) for of in (ours, ours.as_glm())]
    assert ours.names == ("b[0]", "a") and ours.as_glm().names != ours.names
    rows = [mcmc.sample(kernel, n_draws=500, n_chains=2, rng=1).rows.mean() for kernel in steps]
    assert rows[0] == rows[1] < 100
