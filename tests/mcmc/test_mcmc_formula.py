"""Models written as formulas; skipped without formulae, and beside bambi without bambi."""

import os

os.environ.setdefault("PYTENSOR_FLAGS", "cxx=,linker=vm,optimizer_excluding=fusion:add_mul_fusion")

import builtins

import numpy as np
import pytest
from scipy import stats

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


@pytest.mark.parametrize(("formula", "family"), [("y ~ x * h + (1 + x | g)", "logistic"), ("k ~ x + h", "poisson")])
def test_priors_are_those_of_bambi(frame, formula, family):
    bmb = pytest.importorskip("bambi")
    theirs = bmb.Model(formula, frame, family={"logistic": "bernoulli"}.get(family, family), center_predictors=False)
    theirs.build()
    ours = mcmc.GLM.from_formula(formula, frame, family=family)
    component = next(iter(theirs.components.values()))
    sds = {name: np.ravel(term.prior.args["sigma"]) for name, term in component.common_terms.items()}
    flat = np.concatenate([sds[name] for name in sds])
    if ours.joint_prior is None:
        found = ours.prior_precision[1:] ** -0.5
        np.testing.assert_allclose(ours.prior_precision[0] ** -0.5, component.intercept_term.prior.args["sigma"])
    else:
        coefficients, _, factors = ours.joint_prior.given[:3]
        found = [c[2] for c in coefficients[1:]]
        group = {name: float(term.prior.args["sigma"].args["sigma"])
                 for name, term in component.group_specific_terms.items()}
        np.testing.assert_allclose([hyper[1] for hyper in factors[0][1]], [group["1|g"], group["x|g"]])
    np.testing.assert_allclose(found, flat)


@pytest.mark.long
def test_the_answer_is_that_of_bambi(frame):
    bmb = pytest.importorskip("bambi")
    theirs = bmb.Model("y ~ x + h", frame, family="bernoulli")
    kept = theirs.fit(draws=400, tune=300, chains=2, cores=1, random_seed=1, progressbar=False)
    posterior = kept["posterior"]
    draws = np.concatenate([posterior["Intercept"].values[..., None], posterior["x"].values[..., None],
                            posterior["h"].values], axis=-1)
    model = mcmc.GLM.from_formula("y ~ x + h", frame)
    ours = mcmc.sample(mcmc.Metropolis(model), n_draws=4000, n_chains=2, rng=1).draws
    for j in range(model.dim):
        a, b = ours[:, :, j], draws[:, :, j]
        error = np.hypot(*(c.std() / np.sqrt(mcmc.effective_sample_size(c)) for c in (a, b)))
        assert abs(a.mean() - b.mean()) < stats.norm.isf(1e-6 / 10) * error + 0.02 * a.std()
        np.testing.assert_allclose(a.std(), b.std(), rtol=0.2)


def test_an_offset_beside_that_of_the_formula_is_refused():
    frame = pd.DataFrame({"x": np.arange(6.0), "o": np.ones(6), "y": np.arange(6)})
    with pytest.raises(ValueError, match="offset was given"):
        mcmc.GLM.from_formula("y ~ x + offset(o)", frame, family="poisson", offset=np.zeros(6))


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
    with pytest.raises(ValueError, match="group_prior names"):
        sds({"other": narrow})


@pytest.mark.parametrize("formula", ["y ~ x +", "y ~ (x", "y ~ x $ 2", "y ~ x ~ e"])
def test_a_formula_that_cannot_be_read_is_refused(frame, formula):
    with pytest.raises(ValueError, match="is not a whole formula"):
        mcmc.GLM.from_formula(formula, frame)
