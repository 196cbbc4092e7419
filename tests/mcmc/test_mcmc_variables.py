"""Variables of draws as ArviZ users know them: a variable per term, its dims and coords, and scales as scales."""

import numpy as np
import pytest
from scipy import special

from fastrace import mcmc


def names_of(trace):
    return list(trace.to_arrays()["posterior"])


def table(n=400):
    rng = np.random.default_rng(0)
    return {"age": rng.normal(size=n), "dose": rng.normal(size=n)}, rng.choice(["u", "v", "w"], size=n), rng


def test_a_frame_with_groups_has_a_variable_for_each_term():
    columns, clinic, rng = table()
    y = columns["age"] + (clinic == "v") + rng.normal(size=400)
    groups = {"clinic": mcmc.Groups(clinic, slopes=["dose"])}
    model = mcmc.GLM(columns, y, "gaussian", groups=groups)
    trace = mcmc.sample(mcmc.SurrogateMetropolis(model), n_draws=50, n_chains=2, rng=1)
    found = trace.to_arrays()["posterior"]
    assert list(found) == ["age", "dose", "1|clinic", "dose|clinic", "sigma", "1|clinic_sigma", "dose|clinic_sigma",
                           "correlation(1,dose|clinic)"]
    at = {name: trace.draws[:, :, j] for j, name in enumerate(trace.names)}
    for name, held in (("age", "age"), ("sigma", "scale"), ("1|clinic_sigma", "sd(1|clinic)"),
                       ("dose|clinic_sigma", "sd(dose|clinic)")):
        np.testing.assert_array_equal(found[name], at[held])
    for k, level in enumerate("uvw"):
        np.testing.assert_array_equal(found["1|clinic"][:, :, k], at[f"1|clinic[{level}]"])
        np.testing.assert_array_equal(found["dose|clinic"][:, :, k], at[f"dose|clinic[{level}]"])
    axes = {variable.name: (variable.dims, variable.coords) for variable in trace.variables}
    assert axes["1|clinic"] == (("clinic__factor_dim",), (("u", "v", "w"),)) and axes["age"] == ((), ())


@pytest.mark.parametrize(("family", "name", "of"), [
    ("gaussian", "sigma", lambda s: s), ("student-t", "sigma", lambda s: s), ("gamma", "alpha", lambda s: 1.0 / s),
    ("negative-binomial", "alpha", lambda s: 1.0 / s)])
@pytest.mark.parametrize("by_logarithm", [False, True])
def test_scales_are_scales_whatever_the_draws_hold(family, name, of, by_logarithm):
    rng = np.random.default_rng(0)
    y = {"gamma": rng.gamma(2.0, size=300), "negative-binomial": rng.poisson(rng.gamma(2.0, size=300))}.get(
        family, rng.normal(size=300))
    prior = {"prior_sd": 3.0} if by_logarithm else {}
    model = mcmc.GLM(rng.normal(size=(300, 2)), y, family, **prior)
    trace = mcmc.sample(mcmc.Metropolis(model), n_draws=20, n_chains=1, rng=1)
    found = trace.to_arrays()["posterior"]
    assert list(found) == ["theta", name] and trace.names[2].startswith("log(") == by_logarithm
    held = trace.draws[:, :, 2]
    np.testing.assert_allclose(found[name], of(np.exp(held) if by_logarithm else held), rtol=1e-12)
    assert trace.variables[0].dims == ("column",) and trace.variables[0].coords == (("x0", "x1"),)


def test_a_column_called_as_the_scale_keeps_its_name_and_the_scale_its_own():
    columns, _, rng = table()
    model = mcmc.GLM({"sigma": columns["age"]}, rng.normal(size=400), "gaussian")
    trace = mcmc.sample(mcmc.Metropolis(model), n_draws=20, n_chains=1, rng=1)
    assert set(names_of(trace)) == {"sigma", "scale"}
    np.testing.assert_array_equal(trace.to_arrays()["posterior"]["scale"], trace.draws[:, :, 1])


def test_a_horseshoe_has_its_local_scales_in_one_variable():
    columns, _, rng = table()
    columns = {"one": np.ones(400), **columns}
    model = mcmc.GLM(columns, rng.integers(0, 2, 400), prior=mcmc.Horseshoe(1.0))
    trace = mcmc.sample(mcmc.SurrogateMetropolis(model, inner="hmc"), n_draws=20, n_chains=1, n_tune=20, rng=1)
    assert names_of(trace) == ["one", "age", "dose", "global_scale(coefficients)", "slab_scale(coefficients)",
                               "local_scale"]
    local = trace.variables[-1]
    assert local.coords == (("age", "dose"),)
    np.testing.assert_array_equal(local.of(trace.draws), trace.draws[:, :, -2:])


def test_classes_are_an_axis_of_a_softmax():
    columns, _, rng = table()
    y = rng.integers(0, 4, 400)
    trace = mcmc.sample(mcmc.Metropolis(mcmc.Softmax(columns, y)), n_draws=20, n_chains=2, rng=1)
    found = trace.to_arrays()["posterior"]
    assert list(found) == ["age", "dose"] and found["dose"].shape == (2, 20, 3)
    assert trace.variables[1].dims == ("class",) and trace.variables[1].coords == ((1, 2, 3),)
    np.testing.assert_array_equal(found["dose"][:, :, 2], trace.draws[:, :, trace.names.index("dose[3]")])
    plain = mcmc.sample(mcmc.Metropolis(mcmc.Softmax(np.column_stack(list(columns.values())), y)), n_draws=20,
                        n_chains=2, rng=1)
    np.testing.assert_array_equal(plain.to_arrays()["posterior"]["theta"], plain.draws.reshape(2, 20, 3, 2))
    assert plain.variables[0].dims == ("class", "column")


def test_selection_says_which_coefficients_are_in():
    columns, _, rng = table(2000)
    y = rng.random(2000) < special.expit(2.0 * columns["age"])
    kernel = mcmc.VariableSelection(mcmc.GLM(columns, y, prior_sd=1.0), prior=0.2)
    trace = mcmc.sample(kernel, n_draws=200, n_chains=2, rng=1)
    found = trace.to_arrays()["posterior"]
    assert list(found) == ["age", "dose", "included"]
    np.testing.assert_allclose(found["included"].mean(axis=(0, 1)), kernel.inclusion(trace), rtol=1e-12)
    assert trace.variables[-1].coords == (("age", "dose"),)


def test_formulas_have_the_variables_of_bambi():
    pytest.importorskip("formulae")
    pandas = pytest.importorskip("pandas")
    columns, clinic, rng = table()
    frame = pandas.DataFrame({**columns, "g": clinic, "h": rng.choice(["a", "b", "c"], size=400)})
    frame["y"] = rng.normal(size=400)
    model = mcmc.GLM.from_formula("y ~ age + h + age:h + (1 + dose | g)", frame, family="gaussian")
    trace = mcmc.sample(mcmc.SurrogateMetropolis(model), n_draws=20, n_chains=1, n_tune=20, rng=1)
    axes = {variable.name: (variable.dims, variable.coords) for variable in trace.variables}
    assert list(axes) == ["Intercept", "age", "h", "age:h", "1|g", "dose|g", "sigma", "1|g_sigma", "dose|g_sigma"]
    assert axes["h"] == (("h_dim",), (("b", "c"),)) and axes["Intercept"] == ((), ())
    assert axes["dose|g"] == (("g__factor_dim",), (("u", "v", "w"),))
    bambi = pytest.importorskip("bambi")
    theirs = bambi.Model("y ~ age + h + age:h + (1 + dose | g)", frame)
    theirs.build()
    deterministic = {v.name for v in theirs.backend.model.unobserved_RVs} - {"mu"}
    assert {name for name in deterministic if not name.endswith("_offset")} == set(axes)


def test_arviz_summarises_each_variable_and_the_expanded_log_posterior():
    arviz = pytest.importorskip("arviz")
    columns, clinic, rng = table()
    y = rng.random(400) < special.expit(columns["age"] + (clinic == "v"))
    model = mcmc.GLM(columns, y, groups={"g": clinic})
    trace = mcmc.sample(mcmc.SurrogateMetropolis(model), n_draws=200, n_chains=2, rng=1)
    tree = trace.to_arviz(model)
    effects = tree["posterior"]["1|g"]
    assert effects.dims == ("chain", "draw", "g__factor_dim")
    np.testing.assert_array_equal(effects.sel(g__factor_dim="v"), trace.draws[:, :, trace.names.index("1|g[v]")])
    assert {"age", "dose", "1|g[u]", "1|g_sigma"} <= set(arviz.summary(tree).index)
    assert "lp" not in trace.to_arviz()["sample_stats"]
    kept = np.asarray(tree["sample_stats"]["lp"])
    exact = model.log_posteriors(model.unconstrain(trace.draws).reshape(-1, model.dim)).reshape(kept.shape)
    assert np.std(kept - exact) < 0.15 * np.std(exact)
    np.testing.assert_array_equal(np.asarray(tree["sample_stats"]["accepted"]), trace.accepted)


def test_an_expansion_that_is_off_is_no_log_posterior():
    pytest.importorskip("arviz")
    rng = np.random.default_rng(0)
    model = mcmc.GLM(rng.normal(size=(60, 1)), rng.standard_normal(60) < 0.5, prior_sd=100.0)
    trace = mcmc.sample(mcmc.Metropolis(model), n_draws=50, n_chains=2, n_tune=0, rng=1)
    far = [steps.draws.__imul__(200.0) for steps in trace.chains]
    assert far and np.abs(trace.draws).max() > 20.0
    with pytest.warns(UserWarning, match="sample_stats has no lp: the second-order expansion"):
        assert "lp" not in trace.to_arviz(model)["sample_stats"]


# What the models of bambi 0.17.2 call their variables, with levels along their axes; the axis of groups stands first.
GROUPS = {"g__factor_dim": ["north", "south", "west"]}
INNER = {"g:s__factor_dim": ["north:u", "north:v", "south:u", "south:v", "west:u", "west:v"]}
NESTED = {"1|g:s": INNER, "1|g:s_sigma": {}}
BY_BAMBI = [
    ("y ~ x + (1 | g)", "gaussian", {"Intercept": {}, "x": {}, "1|g": GROUPS, "sigma": {}, "1|g_sigma": {}}),
    ("y ~ x * h + (x | g)", "gaussian", {
        "Intercept": {}, "x": {}, "h": {"h_dim": ["b", "c"]}, "x:h": {"x:h_dim": ["b", "c"]}, "1|g": GROUPS,
        "x|g": GROUPS, "sigma": {}, "1|g_sigma": {}, "x|g_sigma": {}}),
    ("y ~ 0 + h + (1 | g) + (0 + x | s)", "gaussian", {
        "h": {"h_dim": ["a", "b", "c"]}, "1|g": GROUPS, "x|s": {"s__factor_dim": ["u", "v"]}, "sigma": {},
        "1|g_sigma": {}, "x|s_sigma": {}}),
    ("k ~ x + h + (h | g)", "logistic", {
        "Intercept": {}, "x": {}, "h": {"h_dim": ["b", "c"]}, "1|g": GROUPS,
        "h|g": {**GROUPS, "h__expr_dim": ["b", "c"]}, "1|g_sigma": {}, "h|g_sigma": {"h__expr_dim": ["b", "c"]}}),
    ("c ~ x + (1 | g)", "negative-binomial", {
        "Intercept": {}, "x": {}, "1|g": GROUPS, "alpha": {}, "1|g_sigma": {}}),
    ("p ~ x + w:h", "gamma", {"Intercept": {}, "x": {}, "w:h": {"w:h_dim": ["a", "b", "c"]}, "alpha": {}}),
    ("y ~ x + (1 | g:s)", "gaussian", {"Intercept": {}, "x": {}, "sigma": {}, **NESTED}),
    ("y ~ x + (1 | g/s)", "gaussian", {
        "Intercept": {}, "x": {}, "1|g": GROUPS, "sigma": {}, "1|g_sigma": {}, **NESTED}),
    ("y ~ x + (0 + h | g)", "gaussian", {
        "Intercept": {}, "x": {}, "h|g": {**GROUPS, "h__expr_dim": ["a", "b", "c"]}, "sigma": {},
        "h|g_sigma": {"h__expr_dim": ["a", "b", "c"]}}),
    ("y ~ poly(x, 2) + bs(w, df=4)", "gaussian", {
        "Intercept": {}, "poly(x, 2)": {"poly(x, 2)_dim": ["0", "1"]},
        "bs(w, df=4)": {"bs(w, df=4)_dim": ["0", "1", "2", "3"]}, "sigma": {}}),
    ("y ~ h:s + (1 | g)", "gaussian", {
        "Intercept": {}, "s": {"s_dim": ["v"]}, "h:s": {"h:s_dim": ["b, u", "b, v", "c, u", "c, v"]}, "1|g": GROUPS,
        "sigma": {}, "1|g_sigma": {}}),
]


@pytest.mark.parametrize(("formula", "family", "expected"), BY_BAMBI)
def test_variables_of_formulas_are_called_as_bambi_calls_them(formula, family, expected):
    pytest.importorskip("formulae")
    pd = pytest.importorskip("pandas")
    rng, n = np.random.default_rng(0), 60
    frame = pd.DataFrame({
        "y": rng.normal(size=n), "k": rng.integers(0, 2, n), "c": rng.poisson(3, n), "p": rng.gamma(2, 1, n),
        "x": rng.normal(size=n), "w": rng.normal(size=n), "h": pd.Categorical(rng.choice(list("abc"), n)),
        "g": pd.Categorical(rng.choice(["north", "south", "west"], n)), "s": pd.Categorical(rng.choice(["u", "v"], n))})
    model = mcmc.GLM.from_formula(formula, frame, family=family)
    names = model.natural_names or model.names
    variables = model._variables_of(names)
    found = {v.name: dict(zip(v.dims, [list(map(str, own)) for own in v.coords], strict=True)) for v in variables}
    assert found == expected
    assert all(list(found[name]) == list(dims) for name, dims in expected.items())  # the order of axes
    assert sorted(np.concatenate([v.places for v in variables])) == list(range(len(names)))
    for v in variables:  # each number stands where its name says
        for place, labels in zip(v.places, np.ndindex(v.shape), strict=True):
            levels = [str(own[j]) for own, j in zip(v.coords, labels, strict=True)]
            assert all(level in names[place] for part in levels for level in part.split(", "))


def test_a_level_with_brackets_of_its_own_is_a_level():
    pytest.importorskip("formulae")
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"y": rng.normal(size=60), "c": pd.cut(rng.random(60), [0.0, 0.3, 0.6, 1.0]).astype(str),
                          "g": rng.choice(["u", "v"], 60)})
    model = mcmc.GLM.from_formula("y ~ 1 + (0 + c | g)", frame, family="gaussian")
    found = {v.name: v.coords for v in model._variables_of(model.natural_names)}
    cuts = ("(0.0, 0.3]", "(0.3, 0.6]", "(0.6, 1.0]")
    assert found["c|g"] == (("u", "v"), cuts) and found["c|g_sigma"] == (cuts,)
