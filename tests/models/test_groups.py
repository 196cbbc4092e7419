"""Models with groups, offsets, weights and sparse tables: equal to plain models with a column for each effect."""

import copy
import math
import pickle

import numpy as np
import pytest
import scipy.sparse

from fastrace import likelihoods, mcmc
from fastrace._models._seen import expand_seen
from fastrace.control_variates import TaylorSurrogate
from fastrace.likelihoods import GLMSource
from reference import sources as twin

N, P = 230, 3
FAMILIES = list(likelihoods._FAMILIES)
LAYOUTS = {
    "float64": lambda x: x,
    "float32": lambda x: x.astype(np.float32).astype(float).astype(np.float32),
    "Fortran": np.asfortranarray,
    "sparse": scipy.sparse.csr_array,
    "sparse float32": lambda x: scipy.sparse.csr_array(x.astype(np.float32)),
}


def outcomes(rng, family, n=N):
    """Of any family."""
    return rng.integers(0, 2, n) + 0.5 * (family == "gamma")


def arguments(family):
    return {"scale": 0.8, "df": 3.5} if family in likelihoods.SCALED else {}


def crossed(rng, X):
    """Two factors: intercept and two slopes in 7 groups, a slope of own values in 11; and their twin's columns."""
    first, second, own = rng.integers(0, 7, N), rng.integers(0, 11, N), rng.normal(size=(N, 1))
    first[:7], second[:11] = np.arange(7), np.arange(11)
    groups = [mcmc.Groups(first, slopes=[2, 0]), mcmc.Groups(second, slopes=own, intercept=False)]
    dense = X.toarray() if scipy.sparse.issparse(X) else np.asarray(X, dtype=float)
    values = np.column_stack([np.ones(N), dense[:, [2, 0]]])
    return groups, twin.design(dense, [(first, 7, values), (second, 11, own)])


def pair(rng, family, layout="float64"):
    """A source with everything, and a plain one with a column for each effect and a row for each time it was seen."""
    table = rng.normal(size=(N, P)) * (rng.random((N, P)) < 0.6)
    X = LAYOUTS[layout](table)
    groups, design = crossed(rng, X)
    offset, weights, y = rng.normal(size=N), rng.integers(0, 4, N), outcomes(rng, family)
    theta = 0.3 * rng.normal(size=(3, design.shape[1]))
    own = GLMSource(X, y, theta, family, **arguments(family), offset=offset, weights=weights, groups=groups)
    plain = GLMSource(np.column_stack([design, offset]), y, np.column_stack([theta, np.ones(3)]), family,
                      **arguments(family))
    return own, plain, design, weights


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_equals_a_column_for_each_effect(family, layout, rng):
    own, plain, design, weights = pair(rng, family, layout)
    rows = np.arange(N)
    expected = plain.read(rows) * weights[:, None]
    size = 1e-11 * np.abs(expected).max()
    np.testing.assert_allclose(own.read(rows), expected, atol=size)
    np.testing.assert_allclose(own.totals(), expected.sum(axis=0), atol=N * size)
    again = pickle.loads(pickle.dumps(own))
    np.testing.assert_array_equal(again.read(rows), own.read(rows))
    some = rng.integers(0, N, 50)
    np.testing.assert_array_equal(own.read(some, [2]), own.read(rows)[some][:, [2]])
    hat = own.theta[1]
    value, gradient, hessian = expand_seen(own, hat)
    level, slope, bend = plain.derivatives(np.append(hat, 1.0))
    np.testing.assert_allclose(value, level @ weights, rtol=1e-11)
    np.testing.assert_allclose(gradient, (weights * slope) @ design, atol=1e-9 * np.abs(slope).sum())
    np.testing.assert_allclose(hessian.to_dense(), design.T @ ((weights * bend)[:, None] * design),
                               atol=1e-9 * np.abs(bend).sum())
    assert hessian.blocks.shape == (7, 3, 3) and hessian.dense.shape == (P + 11, P + 11) and hessian.start == P


@pytest.mark.parametrize("family", FAMILIES)
def test_residuals_are_terms_less_their_expansions(family, rng):
    X, y = rng.normal(size=(N, P)), outcomes(rng, family)
    model = mcmc.GLM(X, y, family, **arguments(family), offset=rng.normal(size=N), weights=rng.integers(1, 3, N),
                     groups={"a": rng.integers(0, 4, N), "b": rng.integers(0, 3, N)}, prior_sd=np.ones(P + 7))
    reference = model.reference()
    source, theta = model.engine(None)
    left, moved = model.engine(reference)
    theta[:] = moved[:] = reference.theta_hat + 0.1 * rng.normal(size=(2, model.dim))
    value, gradient, hessian = model.expand_seen(reference.theta_hat)
    for arm in range(2):
        step = theta[arm] - reference.theta_hat
        expansion = value + gradient @ step + 0.5 * step @ hessian.to_dense() @ step
        assert abs(source.totals()[arm] - expansion - left.totals()[arm]) < 1e-9 * (1.0 + abs(value))
    np.testing.assert_allclose(gradient - reference.theta_hat, 0.0, atol=1e-3)     # the mode under the prior
    if reference.weights is not None and reference.radius == math.inf:
        steps = np.linalg.solve(reference.factor, (theta - reference.theta_hat).T).T
        reach = np.abs(steps[0] - steps[1])
        longest = max(np.linalg.norm(steps, axis=1))
        bound = reference.weights * 0.5 * longest**2 * np.linalg.norm(reach) + reference.rounding
        change = np.abs(np.diff(left.read(np.arange(N)), axis=1)[:, 0])
        assert (change <= bound * (1.0 + 1e-9)).all()


def test_gaussian_totals_with_offset_and_weights_take_no_rows(rng):
    X, y, offset, weights = rng.normal(size=(N, P)), rng.normal(size=N), rng.normal(size=N), rng.integers(0, 3, N)
    source = GLMSource(X, y, rng.normal(size=(2, P)), "gaussian", 0.7, offset=offset, weights=weights)
    np.testing.assert_allclose(source.totals(), source.read(np.arange(N)).sum(axis=0), rtol=1e-11)
    assert source.scan_advantage > 1e6


def test_a_weight_is_a_row_seen_so_often(rng):
    X, y, weights = rng.normal(size=(N, P)), rng.poisson(1.0, N), rng.integers(0, 4, N)
    weighted, repeated = (mcmc.GLM(X[i], y[i], "poisson", weights=w, prior_sd=2.0)
                          for i, w in ((np.arange(N), weights), (np.repeat(np.arange(N), weights), None)))
    np.testing.assert_allclose(weighted.reference().center, repeated.reference().center, rtol=1e-6)
    np.testing.assert_allclose(weighted._glm.constant, repeated._glm.constant, rtol=1e-12)


def test_chains_with_groups_have_the_posterior_of_a_column_for_each_effect(rng):
    """Two models of the same posterior, one machine: the same chain."""
    X, codes = rng.normal(size=(2000, 2)), rng.integers(0, 5, 2000)
    y = rng.random(2000) < 0.4
    grouped = mcmc.GLM(X, y, groups=codes, prior_sd=np.full(7, 1.5))
    plain = mcmc.GLM(np.column_stack([X, np.eye(5)[codes]]), y, prior_sd=1.5)
    for kernel in (mcmc.RacingMetropolis, mcmc.PoissonMinibatchMetropolis):
        ours, theirs = (mcmc.sample(kernel(m), n_draws=200, n_chains=1, n_tune=0, rng=3) for m in (grouped, plain))
        np.testing.assert_allclose(ours.draws, theirs.draws, atol=1e-6)


@pytest.mark.parametrize("make", [
    lambda X, y, g, **given: mcmc.GLM(X, y, groups={"g": g}, **given),
    lambda X, y, g, **given: mcmc.GLM(X, y + X[:, 1], "gaussian", groups={"g": mcmc.Groups(g, [1])}, **given),
    lambda X, y, g, **given: mcmc.Softmax(X, y, 3, groups={"g": g}, **given),
])
def test_prior_sd_is_the_prior_of_columns_and_effects_are_pooled_all_the_same(make, rng):
    """A number was the standard deviation of the effects too, which were not pooled then, without a word."""
    X, g, y = rng.normal(size=(60, 2)) + 3.0, np.arange(60) % 5, rng.integers(0, 2, 60)
    for mean, sd in ((0.5, 2.0), ([0.5, 0.0], 2.0), (0.0, [2.0, math.inf])):
        means, sds = np.broadcast_to(mean, 2), np.broadcast_to(sd, 2)
        named = {f"x{j}": mcmc.Normal(means[j], sds[j]) for j in range(2)}
        for more in ({}, {"group_prior": mcmc.HalfNormal(0.3)}):
            ours, theirs = make(X, y, g, prior_mean=mean, prior_sd=sd, **more), make(X, y, g, prior=named, **more)
            assert ours.names == theirs.names and any("sd(1|g)" in name for name in ours.names)
            points = rng.normal(size=(5, ours.dim))
            np.testing.assert_array_equal(ours.log_posteriors(points), theirs.log_posteriors(points))
    fixed = make(X, y, g, prior_sd=np.full(ours.n_seen, 2.0))
    assert fixed.dim == ours.n_seen and fixed.n_hyper == 0 and fixed.joint_prior is None
    with pytest.raises(ValueError, match="say all in one way"):
        make(X, y, g, prior=mcmc.Normal(0.0, 1.0), prior_sd=2.0)
    with pytest.raises(ValueError, match="prior_sd"):
        make(X, y, g, prior_sd=-1.0)


@pytest.mark.parametrize("given, said", [
    ({"prior_mean": [1.0, 2.0]}, r"prior_mean is .*prior_sd infinite.*prior=\{'x0': mcmc.Normal\(1, 1.0\)\}"),
    ({"prior_mean": [0.0, 2.0]}, r"prior=\{'x1': mcmc.Normal\(2, 1.0\)\}"),
    ({"prior_mean": 1.0}, "prior_mean is .*prior_sd infinite"),
    ({"prior_sd": True}, "prior_sd is True; numbers are needed"),
    ({"prior_sd": [True, False]}, r"prior_sd is \[True, False\]; numbers are needed"),
    ({"prior_sd": [1.0, 2.0, 3.0]}, r"prior_sd has shape \(3,\); a number or shape \(2,\), of the 2 columns, .*"),
    ({"prior_mean": [1.0, 2.0], "prior_sd": np.ones(7)}, r"prior_mean has shape \(2,\) beside \(7,\) of the other"),
    ({"prior_sd": [1.0, -2.0]}, "positive standard deviations are needed"),
    ({"prior_mean": [1.0, math.nan], "prior_sd": 2.0}, "finite means and positive"),
    ({"prior_sd": "2"}, "prior_sd has dtype"),
])
def test_numbers_for_priors_beside_groups_are_told_in_right_words(given, said):
    X, g = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 5
    with pytest.raises((ValueError, TypeError), match=said):
        mcmc.GLM(X, np.arange(60) % 2, groups={"g": g}, **given)


def test_an_array_of_infinite_deviations_is_flat_and_infinity_alone_is_weak():
    X, g = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 5
    for more in ({}, {"family": "gaussian"}):
        flat = mcmc.GLM(X, np.arange(60) % 2, groups={"g": g}, prior_sd=[math.inf, math.inf], **more)
        assert "  x0, x1 ~ flat" in str(flat).splitlines() and "sd(1|g)" in flat.names
        for weak in ({"prior_sd": math.inf}, {"prior_mean": [0.0, 0.0]}):
            assert str(mcmc.GLM(X, np.arange(60) % 2, groups={"g": g}, **weak, **more)) == str(
                mcmc.GLM(X, np.arange(60) % 2, groups={"g": g}, **more))
    scaled = mcmc.GLM(X, X[:, 0] + np.arange(60) % 2, "gaussian", prior_sd=[math.inf] * 3)
    assert str(scaled).splitlines()[1:] == ["  x0, x1, log(scale) ~ flat"]
    with pytest.raises(ValueError, match="prior_mean is"):
        mcmc.GLM(X, X[:, 0] + np.arange(60) % 2, "gaussian", prior_mean=[1.0, 0.0, 0.0])


# Names and codes


def test_names_of_effects():
    X = {"age": np.arange(6.0), "dose": np.array([1.0, 0, 1, 0, 1, 1])}
    groups = {"clinic": mcmc.Groups(list("bababa"), slopes=["dose"]), "ward": (list("bababa"), [1, 1, 2, 2, 2, 2])}
    model = mcmc.GLM(X, [0, 1, 0, 1, 1, 0], groups=groups, prior_sd=np.ones(10))
    assert model.names == ("age", "dose", "1|clinic[a]", "dose|clinic[a]", "1|clinic[b]", "dose|clinic[b]",
                           "1|ward[a:1]", "1|ward[a:2]", "1|ward[b:1]", "1|ward[b:2]")
    assert model.n_seen == model.dim == 10
    assert [(f.start, f.stop, f.width, f.n_groups) for f in model.factors] == [(2, 6, 2, 2), (6, 10, 1, 4)]
    assert repr(model).startswith("GLM(6 rows, 2 columns, 2 groups of 'clinic' (2 correlated effects each), 4 groups "
                                  "of 'ward'")
    shuffled = mcmc.GLM(X, [0, 1, 0, 1, 1, 0], groups=groups, prior_sd=np.ones(10), shuffle=1, offset=np.arange(6.0))
    in_order = mcmc.GLM(X, [0, 1, 0, 1, 1, 0], groups=groups, prior_sd=np.ones(10), offset=np.arange(6.0))
    np.testing.assert_allclose(shuffled.reference().center, in_order.reference().center, atol=1e-9)


@pytest.mark.parametrize("codes, levels, numbers", [
    (["b", "a", "b"], ("a", "b"), [1, 0, 1]),
    ([30, -10, 30], (-10, 30), [1, 0, 1]),
    (np.array([2**62, 5, 2**62]), (5, 2**62), [1, 0, 1]),
    (np.array([True, False, True]), (False, True), [1, 0, 1]),
    ([1.5, 0.5, 1.5], (0.5, 1.5), [1, 0, 1]),
    (["x", 3, "x"], ("x", 3), [0, 1, 0]),
    ([(1, 2), (0, 9), (1, 2)], ((0, 9), (1, 2)), [1, 0, 1]),
    ((["u", "u", "v"], [1, 0, 1]), (("u", 0), ("u", 1), ("v", 1)), [1, 0, 2]),
])
def test_codes_of_many_kinds(codes, levels, numbers):
    groups = mcmc.Groups(codes)
    assert groups.levels == levels and groups.codes.tolist() == numbers and groups.codes.dtype == np.int32


def test_a_categorical_column_keeps_groups_without_rows():
    pandas = pytest.importorskip("pandas")
    column = pandas.Series(pandas.Categorical(["b", "c", "b"], categories=["a", "b", "c"]), name="site")
    groups = mcmc.Groups(column)
    assert groups.levels == ("a", "b", "c") and groups.codes.tolist() == [1, 2, 1]
    model = mcmc.GLM(np.ones((3, 1)), [0, 1, 1], groups=column, prior_sd=np.full(4, 2.0))
    assert model.names[1] == "1|site[a]"
    center, factor = model.reference().center, model.reference().factor
    np.testing.assert_allclose([center[1], (factor @ factor.T)[1, 1]], [0.0, 4.0], atol=1e-9)   # its prior


def test_one_row_a_group_is_right(rng):
    X, y = np.ones((40, 1)), rng.poisson(2.0, 40)
    model = mcmc.GLM(X, y, "poisson", groups=np.arange(40), prior_sd=np.full(41, 0.5))
    _, gradient, _ = model._log_posterior(model.reference().theta_hat)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-3)


@pytest.mark.parametrize("change, words", [
    ({"groups": [0, 1, math.nan, 1, 0]}, "the group of row 2 of groups is missing"),
    ({"groups": ["a", None, "b", "b", "a"]}, "the group of row 1 of groups is missing"),
    ({"groups": {"g": np.array(["2020-01-01", "NaT"] * 2 + ["NaT"], dtype="M8[D]")}}, "row 1 of groups 'g' is missing"),
    ({"groups": np.zeros(4, dtype=int)}, "groups 'group' have 4 rows; 5, as many as X"),
    ({"groups": np.zeros((5, 2))}, r"groups have shape \(5, 2\)"),
    ({"groups": []}, "groups are empty"),
    ({"groups": "clinic"}, "one group for each row is needed"),
    ({"groups": [0, 1, 1, 0, 0], "prior_sd": [1.0, 1.0, 1.0, math.inf]}, "groups 'group' have a flat prior.*finite"),
    ({"offset": [0, 0, 0, 0, math.inf]}, r"offset\[4\] is inf; each must be finite"),
    ({"offset": [0, 0]}, r"offset has shape \(2,\)"),
    ({"weights": [1, 1, 1.5, 1, 1]}, r"weights\[2\] is 1.5; each must be a whole number from 0 up"),
    ({"weights": [1, 1, 1, -1, 1]}, r"weights\[3\] is -1"),
    ({"weights": [1, 1, 1, 1, math.nan]}, r"weights\[4\] is nan"),
    ({"weights": ["a"] * 5}, "weights"),
    ({"X": scipy.sparse.csr_array([[math.nan, 1.0]] * 5)}, "not finite"),
    ({"X": scipy.sparse.csr_array(np.ones((5, 2), dtype=complex))}, "complex128"),
])
def test_bad_arguments(change, words):
    given = {"X": np.ones((5, 2)), "y": [0, 1, 0, 1, 1], "prior_sd": 1.0} | change
    with pytest.raises((ValueError, TypeError), match=words):
        mcmc.GLM(**given)


@pytest.mark.parametrize("groups", [
    "clinic", {"g": "clinic"}, {"g": ("1", "age")}, [("clinic", [1])], {"g": ([0, 1, 0, 1, 1], [1])}, "1 + x | g",
    np.zeros((5, 2)), {"g": [np.zeros(5), np.zeros(1)]}, {"g": {"codes": [0, 1, 0, 1, 1], "slopes": [1]}},
    {"codes": [0, 1, 0, 1, 1], "slopes": [1]},
])
def test_what_is_no_factor_is_told_how_slopes_vary(groups):
    with pytest.raises(ValueError, match=r"where slopes vary too, give mcmc.Groups\(codes, slopes=\['age'\]\)"):
        mcmc.GLM(np.ones((5, 2)), [0, 1, 0, 1, 1], groups=groups)


@pytest.mark.parametrize("change, words", [
    ({"slopes": ["age"]}, "name column 'age'; X has columns without names"),
    ({"slopes": [2]}, "name column 2; X has columns 0 to 1"),
    ({"slopes": [0, 0]}, "name '0' twice"),
    ({"slopes": np.zeros((4, 1))}, r"slopes of groups have shape \(4, 1\)"),
    ({"slopes": np.full((5, 1), math.nan)}, "slopes of groups are not all finite"),
    ({"intercept": False}, "no intercept and no slopes"),
    ({"codes": ([0, 1, 1, 0, 0], [1, 2])}, "have 5, 2 entries"),
    ({"codes": ()}, "empty tuple"),
    ({"codes": [[0], [1], [1], [0], [0]]}, "cannot be told apart"),
])
def test_bad_groups(change, words):
    with pytest.raises(ValueError, match=words):
        mcmc.GLM(np.ones((5, 2)), [0, 1, 0, 1, 1], groups=mcmc.Groups(**{"codes": [0, 1, 1, 0, 0]} | change),
                 prior_sd=1.0)


def test_what_expands_columns_alone_refuses_by_name(rng):
    X, y = rng.normal(size=(50, 2)), rng.integers(0, 2, 50)
    with pytest.raises(ValueError, match="model has offset, groups; bins"):
        mcmc.Binned(mcmc.GLM(X, y, offset=X[:, 0], groups=y, prior_sd=1.0))
    with pytest.raises(ValueError, match="glm has a sparse X"):
        TaylorSurrogate(GLMSource(scipy.sparse.csr_array(X), y), np.zeros(2))


def _shuffled():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(30)
    frame = pd.DataFrame({"one": 1.0, "a": rng.normal(size=60)})
    y, g = pd.Series(rng.integers(0, 2, 60)), pd.Series(rng.integers(0, 4, 60))
    return frame, frame.sample(frac=1.0, random_state=1), y, g


@pytest.mark.parametrize(("make", "named"), [
    (lambda f, s, y, g: mcmc.GLM(s, y), "X and y"),
    (lambda f, s, y, g: mcmc.GLM(f.to_numpy(), y, weights=y.loc[s.index]), "y and weights"),
    (lambda f, s, y, g: mcmc.GLM(f, y, "poisson", offset=s["a"]), "X and offset"),
    (lambda f, s, y, g: mcmc.GLM(s, y.to_numpy(), "binomial", trials=y), "X and trials"),
    (lambda f, s, y, g: mcmc.GLM(s, y.to_numpy(), groups=g), "X and groups"),
    (lambda f, s, y, g: mcmc.GLM(s, y.to_numpy(), groups={"g": mcmc.Groups(g)}), "X and groups"),
    (lambda f, s, y, g: mcmc.GLM({"a": f["a"], "b": s["a"]}, y), "indexes of X differ"),
    (lambda f, s, y, g: mcmc.Groups(g, slopes=s), "groups and slopes"),
    (lambda f, s, y, g: mcmc.Softmax(f, y.to_numpy(), offset=s), "X and offset"),
    (lambda f, s, y, g: mcmc.Softmax(f.to_numpy(), y.astype("category"), weights=y.loc[s.index]), "y and weights"),
    (lambda f, s, y, g: mcmc.Softmax(f.to_numpy(), y.astype("category"), groups=g.loc[s.index]), "y and groups"),
    (lambda f, s, y, g: mcmc.ARCH(s["a"], 1, weights=y), "returns and weights"),
])
def test_indexes_that_differ_are_refused(make, named):
    """Rows are matched by position, so a shuffled frame would be put together with other rows' outcomes."""
    with pytest.raises(ValueError, match=f"{named}.* row 0 is .*reset_index"):
        make(*_shuffled())


def test_an_index_given_is_a_column_of_values_and_labels_no_rows():
    pd = pytest.importorskip("pandas")
    frame, shuffled, y, g = _shuffled()
    words = pd.Index(["north", "south", "east", "west"])[g]
    for X in (shuffled, shuffled.to_numpy()):
        for codes in (words, pd.CategoricalIndex(words), pd.MultiIndex.from_arrays([g]).get_level_values(0)):
            made = mcmc.GLM(X, pd.Index(y), weights=pd.Index(np.arange(60)), groups=codes, prior_sd=1.0)
            same = mcmc.GLM(X, y.to_numpy(), weights=np.arange(60), groups=codes.to_numpy(), prior_sd=1.0)
            assert made.names == same.names
            at = np.linspace(-0.5, 0.5, made.dim)
            np.testing.assert_array_equal(made.log_posteriors([at]), same.log_posteriors([at]))
    assert mcmc.Groups(words, slopes=shuffled[["a"]]).index.equals(shuffled.index)
    assert mcmc.Softmax(shuffled, y.to_numpy(), groups=words).n_seen == 6


def test_rows_with_the_same_index_or_none_go_together():
    frame, shuffled, y, g = _shuffled()
    own = y.loc[shuffled.index]
    model = mcmc.GLM(shuffled, own, groups={"g": mcmc.Groups(g.loc[shuffled.index])}, shuffle=1)
    mcmc.GLM(shuffled, y.to_numpy(), weights=[1] * 60)
    mcmc.GLM(shuffled.reset_index(drop=True), y, groups=[g, g.to_numpy()])
    again = pickle.loads(pickle.dumps(model))
    assert all(group.index is None for one in (model, again) for group in one._glm.groups)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies_of_models_and_groups_remember_their_rows(copied):
    frame, shuffled, y, g = _shuffled()
    model = copied(mcmc.GLM(frame, y, "gaussian", 1.0, prior_sd=1.0))
    assert model.index.equals(frame.index)
    at = np.linspace(-0.5, 0.5, model.dim)
    np.testing.assert_array_equal(model.log_posteriors([at]),
                                  mcmc.GLM(frame, y, "gaussian", 1.0, prior_sd=1.0).log_posteriors([at]))
    mixture = mcmc.MixtureOf(model, g, 2)
    assert mixture.model is model and mixture.rows_by_group().index is None     # rows that stand in another order
    with pytest.raises(ValueError, match="the pandas indexes of the model and groups differ"):
        mcmc.MixtureOf(model, g.loc[shuffled.index], 2)
    groups = copied(mcmc.Groups(g))
    assert groups.index.equals(g.index) and pickle.loads(pickle.dumps(groups)).index is None
    with pytest.raises(ValueError, match="the pandas indexes of X and groups differ"):
        mcmc.GLM(shuffled, y.loc[shuffled.index], groups=groups)


FAR = [2**63, 2**63 + 1, 7, 2**53 + 1, 2**53]     # NumPy makes floats of a list of these, and one of the first two


@pytest.mark.parametrize("make", [mcmc.GLM, mcmc.Softmax])
@pytest.mark.parametrize("kind", [list, tuple, dict, "object"])
def test_numbers_of_64_bits_in_a_list_stay_groups_of_their_own(make, kind):
    X, y = np.ones((40, 1)), [0, 1] * 20
    codes = FAR * 8
    given = {list: codes, tuple: [codes], dict: {"user": codes}, "object": np.array(codes, dtype=object)}[kind]
    factor = make(X, y, groups=given).factors[0]
    assert factor.levels == tuple(map(str, sorted(FAR)))
    assert [sorted(FAR)[code] for code in factor.codes] == codes


@pytest.mark.parametrize("kind", [list, np.uint64])
def test_groups_whose_numbers_all_lie_beyond_signed_ones(kind):
    codes = [2**63 + 1, 2**63] * 20
    factor = mcmc.GLM(np.ones((40, 1)), [0, 1] * 20, groups=codes if kind is list else np.array(codes, kind)).factors[0]
    assert factor.levels == (str(2**63), str(2**63 + 1)) and factor.codes.tolist() == [1, 0] * 20


def test_numbers_of_64_bits_beside_fractions_stay_groups_of_their_own_and_gaps_are_refused():
    X, y = np.ones((40, 1)), [0, 1] * 20
    assert mcmc.GLM(X, y, groups=[2**63, 2**63 + 1, 1.5, 2] * 10).factors[0].n_groups == 4
    with pytest.raises(ValueError, match="the group of row 1 of groups is missing"):
        mcmc.GLM(X, y, groups=[2**63, math.nan] * 20)


def test_a_mixture_keeps_numbers_of_64_bits_in_a_list_apart(rng):
    model = mcmc.GLM(np.ones((40, 1)), rng.normal(size=40), "gaussian", scale=1.0, prior_sd=2.0)
    mixture = mcmc.MixtureOf(model, groups=FAR * 8, n_classes=2)
    assert mixture.levels == tuple(sorted(FAR))
