"""What the rows of a PyMC model see of its parameters: linear predictors found in the graph, and expansions in them."""

import pickle
import re

import numpy as np
import pytest
from by_pymc import DATA, N, graphs_of, made, pm, pt
from scipy import stats

from fastrace import mcmc
from fastrace._base._progress import _lines, patient
from fastrace.mcmc._fit import other_mode
from fastrace.mcmc.doors.pymc import _graphs, _mapped


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
    compressed = mcmc.compress(model)
    np.testing.assert_array_equal(compressed.psi_hat, hat)
    np.testing.assert_array_equal(compressed.slope, slope)
    np.testing.assert_allclose(compressed.curvature.to_dense(), curvature, rtol=1e-12, atol=1e-12)
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
