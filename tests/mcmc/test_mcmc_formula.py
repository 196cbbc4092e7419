"""Models written as formulas; skipped without formulae."""

import builtins

import numpy as np
import pytest

from fastrace import mcmc

pd = pytest.importorskip("pandas")
pytest.importorskip("formulae")

N = 400


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    out = pd.DataFrame({"x": rng.normal(2.0, 3.0, N), "h": rng.choice(list("abc"), N), "g": rng.choice(list("uvwz"), N),
                        "e": rng.normal(size=N)})
    out["y"] = (rng.random(N) < 1.0 / (1.0 + np.exp(1.0 - 0.5 * out["x"]))).astype(int)
    out["k"] = rng.poisson(np.exp(0.3 + 0.2 * out["e"]))
    out["word"] = np.where(out["y"] == 1, "yes", "no")
    return out


def test_a_formula_is_the_model_of_its_columns_groups_and_offset(frame):
    model = mcmc.GLM.from_formula("k ~ x + h + offset(e) + (1 + x | g)", frame, family="poisson")
    dummies = np.column_stack([np.ones(N), frame.x, frame.h == "b", frame.h == "c"]).astype(float)
    group = mcmc.Groups(frame.g, slopes=frame[["x"]], correlated=False, name="g")
    same = mcmc.GLM(dummies, frame.k, "poisson", offset=frame.e, groups=[group])
    assert model.names[:6] == ("Intercept", "x", "h[b]", "h[c]", "1|g[u]", "x|g[u]") and model.dim == same.dim
    at = np.random.default_rng(1).normal(scale=0.1, size=model.n_seen)
    for ours, plain in zip(model.expand_seen(at)[:2], same.expand_seen(at)[:2], strict=True):
        np.testing.assert_allclose(ours, plain)
    yes = mcmc.GLM.from_formula("word['yes'] ~ x", frame)
    np.testing.assert_allclose(yes.reference().center, mcmc.GLM.from_formula("y ~ x", frame).reference().center)


def test_priors_can_be_given_in_place_of_the_scaled_ones(frame):
    model = mcmc.GLM.from_formula("y ~ x", frame, prior={"x": mcmc.Normal(1.0, 0.25)})
    np.testing.assert_allclose(model.prior_precision[1] ** -0.5, 0.25)
    assert model.prior_mean[1] == 1.0 and model.prior_precision[0] > 0.0


@pytest.mark.parametrize(("formula", "match"), [
    ("y ~ q", "names 'q'; the frame has 'x'"), ("word ~ x", r"write .*\['level'\]"), ("y ~ 0 + (1 | g)", "no common"),
    ("x", "y ~ x"), ("~ x", "words such as"), ("y ~ x + ones", "'ones' is constant")])
def test_formulas_that_make_no_model_are_refused(frame, formula, match):
    with pytest.raises(ValueError, match=match):
        mcmc.GLM.from_formula(formula, frame.assign(ones=1.0))


def test_missing_values_and_a_missing_library_are_errors(frame, monkeypatch):
    with pytest.raises(ValueError, match="missing"):
        mcmc.GLM.from_formula("y ~ x", frame.assign(x=frame.x.where(frame.x > 0.0)))
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "formulae":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match="pip install"):
        mcmc.GLM.from_formula("y ~ x", frame)


def test_where_a_column_has_its_zero_changes_nothing_but_the_intercept(frame):
    """The prior is on the predictor at the mean of the columns, and on log-odds its width is the same everywhere."""
    models = [mcmc.GLM.from_formula("y ~ x + h", f) for f in (frame, frame.assign(x=frame.x + 40.0))]
    points = np.random.default_rng(4).normal(scale=0.05, size=(5, models[0].dim))
    there = points.copy()
    there[:, 0] -= 40.0 * there[:, 1]
    apart = models[0].log_posteriors(points) - models[1].log_posteriors(there)
    np.testing.assert_allclose(apart, apart[0], atol=1e-9)
    at = [model.reference().theta_hat for model in models]
    np.testing.assert_allclose([at[1][0] + 40.0 * at[1][1], *at[1][1:]], at[0], atol=1e-6)
    mode, step = models[0].reference().center, np.eye(4) * 1e-3
    rises = models[0].log_posteriors(mode + step) - models[0].log_posteriors(mode - step)
    np.testing.assert_allclose(rises, 0.0, atol=1e-5)


@pytest.mark.parametrize("formula", ["r ~ x", "r ~ x + (1 | g)"])
def test_the_surrogate_of_a_gaussian_model_is_its_posterior(frame, formula):
    """So it holds all of the prior: the intercept's at the mean of the columns too."""
    frame = frame.assign(r=1.0 + 0.1 * (frame.x + 9.0) + frame.e, x=frame.x + 9.0)
    model = mcmc.GLM.from_formula(formula, frame, family="gaussian", scale=1.0)
    kernel = mcmc.SurrogateMetropolis(model)
    kernel._walks, kernel._engines = None, []  # all else is accepted
    points = np.random.default_rng(5).normal(scale=0.5, size=(4, model.dim))
    apart = [kernel._inner().log_density_of(point) for point in points] - model.log_posteriors(points)
    np.testing.assert_allclose(apart, apart[0], atol=1e-6)
    trace, answer = mcmc.sample(kernel, n_draws=2000, n_chains=2, rng=3), mcmc.laplace(model, 2000, rng=1)
    moved = mcmc.sample(mcmc.SurrogateMetropolis(model, inner="hmc"), n_draws=2000, n_chains=2, rng=3)
    assert trace.accepted.mean() == 1.0 and answer.pareto_k < 0.5
    for draws in (trace.draws, moved.draws):
        assert abs(draws[:, :, 1].mean() - answer.mean[1]) < 0.3 * answer.sd[1]


def test_a_chain_without_a_control_variate_sees_the_whole_prior(frame):
    model = mcmc.GLM.from_formula("y ~ x", frame.assign(x=frame.x + 30.0))
    part = model.log_prior_beside(None)
    points = np.random.default_rng(6).normal(size=(3, 2))
    plain = -0.5 * np.square(points - model.prior_mean) @ model.prior_precision
    whole = model.log_posteriors(points) - model._log_likelihoods(points)
    np.testing.assert_allclose([part(p) for p in points], whole - plain)
    assert model.log_prior_beside(model.reference()) is None


def test_an_intercept_with_a_prior_of_its_own_has_it_as_it_was_given(frame):
    for name in ("Intercept", "intercept"):
        model = mcmc.GLM.from_formula("y ~ x", frame, prior={name: mcmc.Normal(1.0, 0.5)})
        assert model.prior_part is None
        np.testing.assert_allclose([model.prior_mean[0], model.prior_precision[0]], [1.0, 4.0])
    with pytest.raises(TypeError, match="a dict of priors by name of column"):
        mcmc.GLM.from_formula("y ~ x", frame, prior="weak")


def test_what_needs_independent_priors_says_how_to_have_them(frame):
    with pytest.raises(ValueError, match="prior=\\{'Intercept': mcmc.Normal"):
        mcmc.VariableSelection(mcmc.GLM.from_formula("y ~ x + e", frame))
    with pytest.raises(ValueError, match="prior=\\{'Intercept': mcmc.Normal"):
        mcmc.MixtureOf(mcmc.GLM.from_formula("y ~ x + e", frame), groups=frame.g, n_classes=2)
    own = mcmc.GLM.from_formula("y ~ x + e", frame, prior={"Intercept": mcmc.Normal(0.0, 2.5)})
    assert mcmc.VariableSelection(own).names == own.names


def test_an_offset_beside_that_of_the_formula_is_refused():
    frame = pd.DataFrame({"x": np.arange(6.0), "o": np.ones(6), "y": np.arange(6)})
    with pytest.raises(ValueError, match="offset was given"):
        mcmc.GLM.from_formula("y ~ x + offset(o)", frame, family="poisson", offset=np.zeros(6))


def test_successes_out_of_trials_and_functions_of_columns(frame):
    frame = frame.assign(t=3, z=np.exp(frame.e), w=np.minimum(frame.k, 3))
    model = mcmc.GLM.from_formula("p(w, t) ~ log(z) + offset(abs(x))", frame, family="binomial")
    design = np.column_stack([np.ones(N), frame.e])
    same = mcmc.GLM(design, frame.w, "binomial", trials=frame.t, offset=np.abs(frame.x))
    points = np.random.default_rng(8).normal(size=(3, 2))
    np.testing.assert_allclose(model._log_likelihoods(points), same._log_likelihoods(points))
    with pytest.raises(ValueError, match="successes out of trials, and family is 'poisson'"):
        mcmc.GLM.from_formula("p(w, t) ~ x", frame, family="poisson")
    with pytest.raises(ValueError, match="trials was given"):
        mcmc.GLM.from_formula("p(w, t) ~ x", frame, family="binomial", trials=frame.t)


def test_a_level_that_the_outcome_does_not_have_is_refused():
    frame = pd.DataFrame({"x": np.arange(6.0), "yw": ["yes", "no"] * 3})
    assert mcmc.GLM.from_formula("yw['yes'] ~ x", frame).n_rows == 6
    with pytest.raises(ValueError, match="no level 'maybe'.*'no', 'yes'"):
        mcmc.GLM.from_formula("yw['maybe'] ~ x", frame)


def test_priors_of_groups_are_taken_in_every_form_and_leave_the_others_scaled(frame):
    def sds(given):
        model = mcmc.GLM.from_formula("y ~ x + (1 + x | g)", frame, group_prior=given)
        return [hyper[1] for hyper in model.joint_prior.given[2][0][1]]

    scaled, narrow = sds(None), mcmc.HalfNormal(0.1)
    for given in (narrow, {"sd": narrow}, {"g": narrow}, {"g": {"sd": narrow}}):
        np.testing.assert_allclose(sds(given), [0.1, 0.1])
    for given in ({"sd": {"x": narrow}}, {"g": {"sd": {"x": narrow}}}):
        np.testing.assert_allclose(sds(given), [scaled[0], 0.1])
    with pytest.raises(ValueError, match="group_prior names 'other'; the factors are 'g'"):
        sds({"other": narrow})


@pytest.mark.parametrize(("option", "here"), [("chains", "n_chains"), ("draws", "n_draws"), ("progress", "progress")])
def test_options_of_chains_are_pointed_to_sample(frame, option, here):
    with pytest.raises(TypeError, match=rf"{option}= is an option of chains.*mcmc.sample\(model, {here}=\.\.\.\)"):
        mcmc.GLM.from_formula("y ~ x", frame, **{option: 4})


@pytest.mark.parametrize("formula", ["y ~ x +", "y ~ (x", "y ~ x $ 2", "y ~ x ~ e"])
def test_a_formula_that_cannot_be_read_is_refused(frame, formula):
    with pytest.raises(ValueError, match="is not a whole formula"):
        mcmc.GLM.from_formula(formula, frame)


def test_categories_without_rows_are_left_out_as_in_bambi():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"y": rng.integers(0, 2, 40), "h": pd.Categorical(["a", "b"] * 20, categories=["a", "b", "z"]),
                          "g": pd.Categorical(["u", "v"] * 20, categories=["u", "empty", "v"])})
    model = mcmc.GLM.from_formula("y ~ h + (1 | g)", table)
    assert model.names[:4] == ("Intercept", "h[b]", "1|g[u]", "1|g[v]")


def test_columns_that_are_no_numbers_are_named():
    frame = pd.DataFrame({"x": np.linspace(-1.0, 1.0, 20), "y": np.arange(20) % 2})
    for formula, table, words in (
        ("y ~ x", frame.assign(x=frame.x.where(frame.x < 0.9, np.inf)), "'x' is inf in row 19, .* 1 row;"),
        ("y ~ log(x)", frame, "'log\\(x\\)' is nan in row 0"),
        ("y ~ d", frame.assign(d=pd.date_range("2020", periods=20)), "'d' is datetime64"),
        ("y ~ x", pd.concat([frame, frame[["x"]]], axis=1), "'x' stands 2 times, and once is needed"),
    ):
        with pytest.raises(ValueError, match=words):
            mcmc.GLM.from_formula(formula, table)


@pytest.mark.parametrize(("formula", "family"), [
    ("y ~ x * h + (1 + x | g)", "logistic"), ("k ~ x + h", "poisson"), ("e ~ x + h + (1 + x | g)", "gaussian")])
def test_a_row_with_a_weight_is_as_many_rows(frame, formula, family):
    times = np.random.default_rng(2).integers(0, 4, N)
    far = frame.assign(x=np.where(times > 0, frame.x, 1e3), e=np.where(times > 0, frame.e, 1e4))
    weighted = mcmc.GLM.from_formula(formula, far, family=family, weights=times)
    plain = mcmc.GLM.from_formula(formula, far.loc[np.repeat(np.arange(N), times)], family=family)
    assert weighted.names == plain.names
    np.testing.assert_allclose(weighted.prior_part.precision, plain.prior_part.precision, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(weighted.prior_part.shift, plain.prior_part.shift, rtol=1e-8, atol=1e-12)
    if plain.joint_prior is None:
        np.testing.assert_allclose(weighted.prior_mean, plain.prior_mean, rtol=1e-8)
        np.testing.assert_allclose(weighted.prior_precision, plain.prior_precision, rtol=1e-8)
        np.testing.assert_allclose(weighted.reference().theta_hat, plain.reference().theta_hat, rtol=1e-5, atol=1e-6)
        return
    for theta in np.random.default_rng(3).normal(size=(3, plain.dim)):
        np.testing.assert_allclose(weighted.joint_prior.value_of(theta), plain.joint_prior.value_of(theta), rtol=1e-8)


def test_a_level_that_no_counted_row_has_has_its_prior_alone(frame):
    times = np.where(frame.h == "c", 0, 1)
    weighted = mcmc.GLM.from_formula("e ~ x + h", frame, family="gaussian", scale=1.0, weights=times)
    plain = mcmc.GLM.from_formula("e ~ x + h", frame[frame.h != "c"], family="gaussian", scale=1.0)
    assert weighted.names == (*plain.names, "h[c]")
    np.testing.assert_allclose(weighted.reference().theta_hat, [*plain.reference().theta_hat, 0.0], atol=1e-9)


def test_weights_are_refused_as_those_of_a_model_are(frame):
    for weights, words in ((np.zeros(N), "weights are all 0"), (np.full(N, -1.0), "a whole number from 0 up"),
                           (np.ones(3), "shape")):
        with pytest.raises(ValueError, match=words):
            mcmc.GLM.from_formula("e ~ x", frame, family="gaussian", weights=weights)
    only = np.where(frame.x > frame.x.median(), 1, 0)
    with pytest.raises(ValueError, match="'x' is constant"):
        mcmc.GLM.from_formula("e ~ x", frame.assign(x=np.where(only, 2.0, frame.x)), family="gaussian", weights=only)
