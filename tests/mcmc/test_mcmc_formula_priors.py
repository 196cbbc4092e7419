"""Priors of models written as formulas: the figures of bambi's rules, and beside bambi itself where it is installed."""

import numpy as np
import pytest
from scipy import stats

from fastrace import mcmc

pd = pytest.importorskip("pandas")
pytest.importorskip("formulae")


@pytest.fixture(scope="module")
def even():
    """Columns of known means and standard deviations: x 1 and 1, z 2 and 2, h[b] and k[v] .5 and .5, r 10 and 3."""
    return pd.DataFrame({
        "x": [0.0, 2.0] * 4, "z": [0.0, 0.0, 4.0, 4.0] * 2, "h": list("aaaabbbb"), "k": list("uuvvuuvv"),
        "g": list("pqqpqppq"), "s": list("1122" * 2), "r": [7.0, 7.0, 13.0, 13.0, 13.0, 13.0, 7.0, 7.0],
        "y": [0, 1, 1, 0, 1, 0, 0, 1], "n": [0, 3, 1, 2, 0, 1, 5, 2], "t": [1, 2, 3, 4, 5, 6, 7, 8]})


# Formula, family and priors that are given; then, worked out by hand: (mean, sd) of the predictor where columns have
# their means, sds of coefficients, scales of half-normal sds of effects. Column h[a]:x has mean .5 and variance .75.
SCALES = [
    ("r ~ x + z + h", "gaussian", {}, (10.0, 15.0), {"x": 7.5, "z": 3.75, "h[b]": 15.0}, {}),
    ("r ~ 0 + h", "gaussian", {}, None, {"h[a]": 15.0, "h[b]": 15.0}, {}),
    ("r ~ h:x", "gaussian", {}, (10.0, 93.75**0.5), {"h[a]:x": 7.5 / 0.75**0.5, "h[b]:x": 7.5 / 0.75**0.5}, {}),
    ("r ~ x + z", "gaussian", {"x": mcmc.Normal(0.0, 1.0)}, (10.0, 112.5**0.5), {"x": 1.0, "z": 3.75}, {}),
    ("r ~ h * k", "gaussian", {"h": mcmc.Normal(0.0, 1.0)}, (10.0, 131.25**0.5),
     {"h[b]": 1.0, "k[v]": 15.0, "h[b]:k[v]": 7.5 / 0.1875**0.5}, {}),
    ("r ~ 0 + x + (1 | g)", "gaussian", {}, None, {"x": 7.5}, {"sd(1|g)": 112.5**0.5}),
    ("r ~ 1 + (1 | g / s)", "gaussian", {}, (10.0, 7.5), {}, {"sd(1|g)": 7.5, "sd(1|g:s)": 7.5}),
    ("r ~ x + (0 + k | g)", "student-t", {}, (10.0, 112.5**0.5), {"x": 7.5}, {"sd(k[u]|g)": 15.0, "sd(k[v]|g)": 15.0}),
    ("r ~ x + z:h", "student-t", {}, (10.0, (2 * 56.25 + 2 * 18.75) ** 0.5),
     {"x": 7.5, "z:h[a]": 7.5 / 3.0**0.5, "z:h[b]": 7.5 / 3.0**0.5}, {}),
    ("y ~ x * h", "logistic", {}, (0.0, 1.5), {"x": 1.0, "h[b]": 1.0, "x:h[b]": 1.0 / 0.75**0.5}, {}),
    ("y ~ h:x", "logistic", {}, (0.0, 1.5), {"h[a]:x": 1.0, "h[b]:x": 1.0}, {}),
    ("y ~ h * k", "probit", {}, (0.0, 1.5), {"h[b]": 1.0, "k[v]": 1.0, "h[b]:k[v]": 1.0}, {}),
    ("y ~ poly(z, 2, raw=True)", "logistic", {}, (0.0, 1.5),
     {"poly(z, 2, raw=True)[0]": 0.5, "poly(z, 2, raw=True)[1]": 0.125}, {}),
    ("y ~ x + (x + h | g)", "logistic", {}, (0.0, 1.5), {"x": 1.0},
     {"sd(1|g)": 7.25**0.5, "sd(x|g)": 2.5, "sd(h[b]|g)": 5.0}),
    ("p(y, t) ~ z + h", "binomial", {}, (0.0, 1.5), {"z": 0.5, "h[b]": 1.0}, {}),
    ("y ~ x + h", "cloglog", {}, (0.0, 18.75**0.5), {"x": 2.5, "h[b]": 5.0}, {}),
    ("n ~ x + offset(log(t)) + (x | g)", "poisson", {}, (0.0, 12.5**0.5), {"x": 2.5},
     {"sd(1|g)": 12.5**0.5, "sd(x|g)": 2.5}),
    ("n ~ 0 + k", "negative-binomial", {}, None, {"k[u]": 5.0, "k[v]": 5.0}, {}),
    ("t ~ z", "gamma", {}, (0.0, 12.5**0.5), {"z": 1.25}, {}),
]


@pytest.mark.parametrize(("formula", "family", "prior", "intercept", "coefficients", "effects"), SCALES)
def test_priors_have_the_scales_of_the_rules(even, formula, family, prior, intercept, coefficients, effects):
    model = mcmc.GLM.from_formula(formula, even, family=family, prior=prior)
    points = np.random.default_rng(1).normal(size=(5, model.dim))
    apart = model.log_posteriors(points) - model._log_likelihoods(points[:, : model.n_seen])
    means = np.asarray(model._glm.X).mean(axis=0)
    for number, point in enumerate(points):
        apart[number] -= _by_hand(model, point, means, intercept, coefficients, effects)
    np.testing.assert_allclose(apart, apart[0], atol=1e-9)


def _by_hand(model, point, means, intercept, coefficients, effects):
    named = dict(zip(model.names, point, strict=True))
    own = [name for name in model.names if "|" not in name and "log(" not in name]
    assert set(own) == {*coefficients, *(["Intercept"] if intercept else [])}
    assert {name for name in named if name.startswith("sd(")} == set(effects)
    value = sum(stats.norm.logpdf(named[name], 0.0, sd) for name, sd in coefficients.items())
    if intercept:
        value += stats.norm.logpdf(means @ point[: model.n_columns], *intercept)
    for name, scale in effects.items():
        value += stats.halfnorm.logpdf(np.exp(named[name]), scale=scale) + named[name]
        effect, _, factor = name[3:-1].partition("|")
        of_groups = [v for key, v in named.items() if key.startswith(f"{effect}|{factor}[")]
        value += stats.norm.logpdf(of_groups, 0.0, np.exp(named[name])).sum()
    if "log(scale)" in named:       # half-Student with 4 degrees of freedom, in units of the outcome
        value += stats.t.logpdf(np.exp(named["log(scale)"]) / 3.0, 4.0) + named["log(scale)"]
    if "log(dispersion)" in named:  # bambi's alpha, 1 / dispersion, has the same half-Cauchy prior
        value += stats.cauchy.logpdf(np.exp(named["log(dispersion)"])) + named["log(dispersion)"]
    return value


def test_a_prior_by_the_name_of_a_term_is_that_of_its_columns_but_those_named(even):
    def sd(prior):
        return mcmc.GLM.from_formula("y ~ C(t) + x", even, prior=prior).prior_precision[1:-1] ** -0.5

    np.testing.assert_allclose(sd({"C(t)": mcmc.Normal(0.0, 3.0)}), 3.0)
    for prior in ({"C(t)": mcmc.Normal(0.0, 3.0), "C(t)[4]": mcmc.Normal(0.0, 2.0)},
                  {"C(t)[4]": mcmc.Normal(0.0, 2.0), "C(t)": mcmc.Normal(0.0, 3.0)}):
        np.testing.assert_allclose(sd(prior), [3.0, 3.0, 2.0, 3.0, 3.0, 3.0, 3.0])


@pytest.mark.parametrize(("prior", "match"), [
    ({"q": mcmc.Normal(0.0, 1.0)}, "prior names 'q'; the columns are 'Intercept', 'h\\[b\\]', 'x'.*terms .*'h'"),
    ({"x|g": mcmc.HalfNormal(1.0)}, "group_prior={'g': {'sd': {'x': mcmc.HalfNormal"),
    ({"sigma": mcmc.HalfNormal(1.0)}, "given as scale_prior=")])
def test_a_prior_of_no_column_is_refused_with_the_place_where_it_is_given(even, prior, match):
    with pytest.raises(ValueError, match=match):
        mcmc.GLM.from_formula("r ~ x + h + (x | g)", even, family="gaussian", prior=prior)


def test_one_prior_is_that_of_all_columns_and_a_term_shares_its_scale(even):
    names = mcmc.GLM.from_formula("y ~ x + h", even, prior=mcmc.Horseshoe(global_scale=0.1)).names
    wanted = [*(f"{word}_scale(coefficients)" for word in ("global", "slab")), "local_scale(x)", "local_scale(h[b])"]
    assert list(names[3:]) == wanted
    lasso = mcmc.Laplace(0.0, mcmc.HalfCauchy(1.0))
    model = mcmc.GLM.from_formula("y ~ x + h", even, prior={"x": lasso, "h": lasso})
    assert model.names[3:] == ("scale(coefficients)",)
    fixed = mcmc.GLM.from_formula("y ~ x + h", even, prior=mcmc.Normal(0.0, 3.0))
    assert str(fixed).count("Normal(0, 3)") == 1 and "Intercept, x, h[b] ~ Normal(0, 3)" in str(fixed)
    with pytest.raises(TypeError, match="one for all columns"):
        mcmc.GLM.from_formula("y ~ x + h", even, prior="weak")


def test_a_column_that_no_prior_can_be_scaled_by_may_have_one_of_its_own(even):
    frame = even.assign(one=1.0)[:6]
    for formula, name in (("r ~ 0 + one + x", "one"), ("r ~ h:k", "h[b]:k[v]")):
        with pytest.raises(ValueError, match="constant|0 in every row"):
            mcmc.GLM.from_formula(formula, frame, family="gaussian")
        model = mcmc.GLM.from_formula(formula, frame, family="gaussian", prior={name: mcmc.Normal(0.0, 2.0)})
        assert name in model.names
    with pytest.raises(ValueError, match="effects of groups on its coefficient"):
        mcmc.GLM.from_formula("r ~ x + (one | g)", frame, family="gaussian")


N = 300


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    out = pd.DataFrame({
        "x": rng.normal(2.0, 3.0, N), "z": rng.normal(-1.0, 0.5, N), "e": rng.normal(size=N), "b": rng.random(N) < 0.4,
        "h": rng.choice(list("abc"), N), "k": rng.choice(["u", "v"], N), "g": rng.choice(list("pqrst"), N),
        "i": rng.integers(0, 4, N), "t": rng.integers(1, 6, N)})
    out["o"] = pd.Categorical(out["h"], categories=["c", "a", "b"], ordered=True)
    out["y"] = (rng.random(N) < 0.4).astype(int)
    out["won"] = rng.binomial(out["t"], 0.4)
    out["n"] = rng.poisson(np.exp(0.3 + 0.1 * out["x"]))
    out["r"] = 40.0 + 2.0 * out["x"] + 5.0 * rng.standard_t(4.0, N)
    out["q"] = np.exp(0.1 * out["x"] + 0.3 * out["e"])
    return out


CALLED = {"logistic": ("bernoulli", "logit"), "probit": ("bernoulli", "probit"), "cloglog": ("bernoulli", "cloglog"),
          "negative-binomial": ("negativebinomial", None), "student-t": ("t", None), "gamma": ("gamma", "log")}
BESIDE = [
    ("gaussian", ["r ~ x * z", "r ~ x + z * h", "r ~ 0 + h:k", "r ~ poly(x, 3)", "r ~ bs(x, df=5, intercept=True)",
                  "r ~ I(x**2) + {x * z} + scale(z)", "log(q) ~ b * x", "r ~ C(i) + S(h) * S(k)", "r ~ o + T(h, 'b')",
                  "r ~ x / h", "r ~ (x + z + h)**2", "r ~ x + offset(z) + offset(2)", "r ~ x + (1 | g) + (0 + x | g)",
                  "r ~ h + (h | g)", "r ~ h + (0 + h | g)", "r ~ x * h + (x * h | g)", "r ~ x + (x | g) + (S(h) | k)",
                  "r ~ x + (poly(x, 2) | g)", "r ~ 0 + x + (1 | g)", "r ~ (1 | g / k)", "r ~ x + (1 | i) + (b | o)"]),
    ("logistic", ["y ~ x * z * h", "y ~ h * k", "y ~ x:h", "y ~ poly(x, 2):h", "y ~ b * x", "y ~ b:h + S(h):x",
                  "y ~ 0 + h + (x | g)", "y ~ x + (h | g)"]),
    ("binomial", ["p(won, t) ~ x + log(q)", "p(won, 5) ~ 0 + h + (1 | g)"]),
    ("probit", ["y ~ 0 + h", "y ~ x * h + (x | g)"]), ("cloglog", ["y ~ x * h", "y ~ x * h + (x | g)"]),
    ("poisson", ["n ~ x * h", "n ~ x + offset(e) + (0 + x | g)"]),
    ("negative-binomial", ["n ~ x * h", "n ~ 0 + h + (1 | g)"]), ("gamma", ["q ~ x * h", "q ~ x + (x | h)"]),
    ("student-t", ["r ~ x * h", "r ~ h + (e | g)"]),
]


@pytest.mark.parametrize(("family", "formula"), [(family, one) for family, several in BESIDE for one in several])
def test_the_log_posterior_is_that_of_the_compiled_model_of_bambi(frame, family, formula):
    """At any points, but for one constant: Jacobians, the prior of centred columns' intercept and all."""
    bmb = pytest.importorskip("bambi")
    called, link = CALLED.get(family, (family, None))
    theirs = bmb.Model(formula, frame, family=called, link=link, priors={"nu": 4} if called == "t" else None,
                       noncentered=False)
    theirs.build()
    log_density = theirs.backend.model.compile_logp()
    ours = mcmc.GLM.from_formula(formula, frame, family=family)
    # bambi cuts probabilities off at 1e-16 or so, and extreme predictors with them
    points = np.random.default_rng(2).normal(scale=0.01, size=(6, ours.dim))
    apart = [float(log_density(_point_of_bambi(theirs, ours, point))) for point in points]
    apart -= ours.log_posteriors(points)
    np.testing.assert_allclose(apart, apart[0], rtol=0.0, atol=1e-9 * np.abs(ours.log_posteriors(points)).max())


def _point_of_bambi(theirs, ours, theta):
    """A point of a model of bambi: its intercept is that of centred columns, and its alpha 1 / dispersion."""
    named, used = dict(zip(ours.names, theta, strict=True)), set()
    component, model = next(iter(theirs.components.values())), theirs.backend.model
    start, out = model.initial_point(), {}
    for name in (variable.name for variable in model.value_vars):
        if name == "Intercept":
            out[name] = np.asarray(ours._glm.X).mean(axis=0) @ theta[: ours.n_columns]
            used.add(name)
            continue
        term = component.terms.get(name.removesuffix("_log__").removesuffix("_sigma"))
        if term is None:            # sigma or alpha, which is 1 / dispersion
            keys = [f"log({ours.scale_name})"]
        elif "|" not in name:
            keys = list(term.term.labels)
        else:
            labels = ["1"] if term.kind == "intercept" else list(term.term.expr.labels)
            factor = term.term.factor.name
            keys = [f"{label}|{factor}[{group}]" for group in term.groups for label in labels]
            keys = [f"sd({label}|{factor})" for label in labels] if name.endswith("_sigma_log__") else keys
        out[name] = np.reshape([named[key] for key in keys], start[name].shape) * (-1.0 if "alpha" in name else 1.0)
        used |= set(keys)
    assert used == set(named)
    return out


def test_correlations_of_effects_that_have_none_are_refused():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": rng.standard_normal(200), "g": rng.integers(6, size=200), "y": rng.standard_normal(200)})
    for given in ({"g": {"correlation": mcmc.LKJ(2.0)}}, {"correlation": mcmc.LKJ(2.0)}):
        with pytest.raises(ValueError, match=r"'g' has a 'correlation'; its effects \('1', 'x'\) have none.*slopes="):
            mcmc.GLM.from_formula("y ~ x + (1 + x | g)", frame, family="gaussian", group_prior=given)
    X = frame[["x"]]
    factors = {"g": mcmc.Groups(frame["g"], slopes=["x"]), "h": frame["g"] // 2}
    own = {"correlation": mcmc.LKJ(2.0)}
    of_both = mcmc.GLM(X, frame["y"], "gaussian", groups=factors, group_prior=own)      # g has correlations
    assert "6 groups of 'g' (2 correlated effects each), 3 groups of 'h', " in repr(of_both)
    of_formula = mcmc.GLM.from_formula("y ~ x + (1 + x | g)", frame, family="gaussian")
    assert "(2 independent effects each)" in repr(of_formula)
    with pytest.raises(ValueError, match="of 'h' has a 'correlation'"):
        mcmc.GLM(X, frame["y"], "gaussian", groups=factors, group_prior={"h": own})
