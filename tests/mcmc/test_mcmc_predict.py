"""Means of new rows at the draws of a trace, against the same computed row by row; draws by name."""

import math

import numpy as np
import pytest
from scipy import sparse, special, stats

from fastrace import mcmc
from fastrace.mcmc._prediction import _low_quantiles

N = 200
INVERSE = {"logistic": special.expit, "binomial": special.expit, "probit": stats.norm.cdf,
           "cloglog": lambda eta: 1.0 - np.exp(-np.exp(eta)), "poisson": np.exp, "negative-binomial": np.exp,
           "gamma": np.exp, "gaussian": lambda eta: eta, "student-t": lambda eta: eta}
OUTCOMES = {"poisson": lambda rng: rng.poisson(2.0, N), "negative-binomial": lambda rng: rng.poisson(2.0, N),
            "gamma": lambda rng: rng.gamma(2.0, size=N), "gaussian": lambda rng: rng.normal(size=N),
            "student-t": lambda rng: rng.normal(size=N)}


def drawn(model, **options):
    return mcmc.sample(mcmc.SurrogateMetropolis(model), n_draws=30, n_chains=2, n_tune=20, rng=1, **options)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", sorted(INVERSE))
def test_predictions_are_those_of_each_row_and_draw(family):
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(N, 2)), np.arange(N) % 4
    y = OUTCOMES.get(family, lambda r: r.integers(0, 2, N))(rng)
    groups = {"clinic": mcmc.Groups([f"c{k}" for k in codes], slopes=[1])}
    model = mcmc.GLM(X, y, family, groups=groups, prior=mcmc.Normal(0.0, 1.0))
    trace = drawn(model)
    new, offset, own = rng.normal(size=(5, 2)), rng.normal(size=5), ["c2", "c0", "c3", "c2", "c2"]
    found = model.predict(trace, new, offset=offset, groups={"clinic": mcmc.Groups(own, slopes=[1])})
    names, flat = trace.names, trace.draws.reshape(60, -1)
    expected = np.empty((60, 5))
    for m in range(60):
        value = dict(zip(names, flat[m], strict=True))
        for i in range(5):
            eta = offset[i] + new[i] @ [value["x0"], value["x1"]]
            eta += value[f"1|clinic[{own[i]}]"] + value[f"x1|clinic[{own[i]}]"] * new[i, 1]
            expected[m, i] = INVERSE[family](eta)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    mean, low, high = model.predict(trace, new, offset=offset, groups=groups_of(own), interval=0.8)
    np.testing.assert_allclose(mean, expected.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose([low, high], np.quantile(expected, [0.1, 0.9], axis=0), rtol=1e-10)


def groups_of(own):
    return {"clinic": mcmc.Groups(own, slopes=[1])}


@pytest.mark.filterwarnings("error")
def test_probabilities_far_out_are_silent():
    model = mcmc.GLM(np.random.default_rng(0).normal(size=(N, 1)), np.arange(N) % 2, prior_sd=1.0)
    found = model.predict(drawn(model), [[0.0], [0.0]], offset=[-800.0, 800.0])
    np.testing.assert_array_equal(found, np.tile([0.0, 1.0], (60, 1)))


@pytest.mark.parametrize("q", [0.0, 0.0005, 0.01, 0.05, 0.25, 0.5])
@pytest.mark.parametrize("m", [1, 2, 3, 100, 3000])
@pytest.mark.parametrize("law", ["normal", "ties", "constant", "rising", "low sample", "high sample"])
def test_quantiles_of_few_candidates_are_those_of_all_draws(law, m, q):
    values = np.random.default_rng(m).normal(size=(20, m))
    values[:, ::16] += {"low sample": -100.0, "high sample": 100.0}.get(law, 0.0)      # of every 16th draw
    values = {"ties": np.round(values), "constant": 0.0 * values, "rising": np.sort(values)}.get(law, values)
    before = values.copy()
    np.testing.assert_array_equal(_low_quantiles(values, q), np.quantile(values, q, axis=1))
    np.testing.assert_array_equal(values, before)


@pytest.mark.filterwarnings("ignore")
def test_predictions_of_classes():
    rng = np.random.default_rng(0)
    X, codes, y = rng.normal(size=(N, 2)), np.arange(N) % 4, rng.integers(0, 3, N)
    model = mcmc.Softmax(X, y, groups={"g": codes})
    trace = drawn(model)
    new, offset, own = rng.normal(size=(4, 2)), rng.normal(size=(4, 3)), [3, 1, 1, 0]
    found = model.predict(trace, new, offset=offset, groups={"g": own})
    flat = trace.draws.reshape(60, -1)
    for m in range(60):
        value = dict(zip(trace.names, flat[m], strict=True))
        for i in range(4):
            eta = offset[i].copy()
            for k in (1, 2):
                eta[k] += new[i] @ [value[f"x0[{k}]"], value[f"x1[{k}]"]] + value[f"1|g[{own[i]}][{k}]"]
            np.testing.assert_allclose(found[m, i], special.softmax(eta), rtol=1e-10)
    three = model.predict(trace, new, offset=offset, groups={"g": own}, interval=0.5)
    np.testing.assert_allclose(three, [found.mean(axis=0), *np.quantile(found, [0.25, 0.75], axis=0)], rtol=1e-10)
    with pytest.raises(ValueError, match="no effects of '9' of 'g': the trace knows the 4 groups that had rows$"):
        model.predict(trace, new, groups={"g": [9, 1, 1, 0]})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [int, float])
def test_a_group_is_the_same_as_an_integer_and_as_a_float(kind):
    """pandas makes floats of a column of integers as soon as one is missing; 1.5 and 7 are new either way."""
    rng = np.random.default_rng(0)
    X, codes, arms = rng.normal(size=(N, 1)), (np.arange(N) % 4).astype(kind), np.array(list("uv"))[np.arange(N) % 2]
    for groups, of in ((codes, lambda own: own), ((codes, arms), lambda own: (own, ["v", "u", "v"]))):
        model = mcmc.GLM(X, X[:, 0] + rng.normal(size=N), "gaussian", groups={"g": groups})
        trace = drawn(model)
        exact = model.predict(trace, np.zeros((3, 1)), groups={"g": of(np.array([3, 0, 1], kind))}, rng=1)
        for own in (np.array([3, 0, 1]), np.array([3.0, 0.0, 1.0]), np.array([3, 0, 1], np.float32)):
            np.testing.assert_array_equal(model.predict(trace, np.zeros((3, 1)), groups={"g": of(own)}), exact)
            known = model.predict(trace, np.zeros((3, 1)), groups={"g": of(own)}, new_levels=True, rng=2)
            np.testing.assert_array_equal(known, exact)
    model = mcmc.GLM(X, X[:, 0] + rng.normal(size=N), "gaussian", groups={"g": codes})
    with pytest.raises(ValueError, match=r"no effects of '1.5', '7.0' of 'g'"):
        model.predict(drawn(model), np.zeros((3, 1)), groups={"g": [1.0, 7.0, 1.5]})


@pytest.mark.filterwarnings("ignore")
def test_effects_of_new_groups_have_the_covariance_of_each_draw():
    """Given a draw, effects of a new group are normal with its deviations and correlation: over many groups."""
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(N, 1)), np.arange(N) % 4
    y = X[:, 0] + rng.normal(size=4)[codes] + rng.normal(size=N)
    model = mcmc.GLM(X, y, "gaussian", groups=mcmc.Groups(codes, slopes=[0], name="g"))
    trace = drawn(model)
    many = 4000
    known = model.predict(trace, [[0.0], [1.0]], groups=mcmc.Groups([1, 1], [0], name="g"), new_levels=True)
    np.testing.assert_array_equal(known, model.predict(trace, [[0.0], [1.0]], groups=mcmc.Groups([1, 1], [0])))
    where = mcmc.Groups(np.repeat([f"new {k}" for k in range(many)], 2), [0], name="g")
    found = model.predict(trace, np.tile([[0.0], [1.0]], (many, 1)), groups=where, new_levels=True, rng=3)
    intercepts, ends = found[:, ::2], found[:, 1::2]
    slopes = ends - intercepts - trace["x0"].reshape(-1, 1)
    flat = {name: trace[name].ravel() for name in ("sd(1|g)", "sd(x0|g)", "correlation(1,x0|g)")}
    for m in range(60):
        covariance = np.cov(intercepts[m], slopes[m])
        sds = flat["sd(1|g)"][m], flat["sd(x0|g)"][m]
        expected = sds[0] * sds[1] * flat["correlation(1,x0|g)"][m]
        for ours, theirs, sd in ((covariance[0, 0], sds[0] ** 2, math.sqrt(2.0) * sds[0] ** 2),
                                 (covariance[1, 1], sds[1] ** 2, math.sqrt(2.0) * sds[1] ** 2),
                                 (covariance[0, 1], expected, math.hypot(sds[0] * sds[1], expected))):
            assert abs(ours - theirs) < 6.0 * sd / math.sqrt(many)  # 2e-9 each
    again = model.predict(trace, np.tile([[0.0], [1.0]], (many, 1)), groups=where, new_levels=True, rng=3)
    np.testing.assert_array_equal(found, again)


@pytest.mark.filterwarnings("ignore")
def test_frames_are_read_by_name_and_sparse_tables_too(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2))
    model = mcmc.GLM({"age": X[:, 0], "dose": X[:, 1]}, rng.integers(0, 2, N), prior_sd=1.0)
    trace = drawn(model)
    new = rng.normal(size=(7, 2))
    found = model.predict(trace, new)
    monkeypatch.setattr("fastrace.mcmc._prediction._AT_ONCE", 100)
    for same in ({"dose": new[:, 1], "y": np.zeros(7), "age": new[:, 0]}, sparse.csr_array(new), new.tolist()):
        np.testing.assert_allclose(model.predict(trace, same), found, rtol=1e-12)
        np.testing.assert_allclose(model.predict(trace, same, interval=0.9)[0], found.mean(axis=0), rtol=1e-12)


@pytest.mark.filterwarnings("ignore")
def test_what_is_no_new_row_is_told():
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(N, 2)), np.arange(N) % 4
    model = mcmc.GLM({"age": X[:, 0], "dose": X[:, 1]}, rng.integers(0, 2, N), groups={"g": codes})
    fixed = mcmc.GLM(X, rng.integers(0, 2, N), groups={"g": codes}, prior_sd=np.ones(6))
    trace, other, g = drawn(model), drawn(fixed), {"g": [0, 1]}
    new = X[:2]
    for call, said in (
        (lambda: model.predict(trace, {"age": new[:, 0]}, groups=g), "X lacks the column 'dose'; the model has 'age'"),
        (lambda: model.predict(trace, X[:2, :1], groups=g), r"X has shape \(2, 1\).*\(n, 2\), with the columns 'age'"),
        (lambda: model.predict(trace, [[np.nan, 1.0]], groups={"g": [0]}), "X is not finite"),
        (lambda: model.predict(trace, new), "groups of 'g' are needed, one for each new row"),
        (lambda: model.predict(trace, new, groups={"h": [0, 1]}), "groups of 'g' are needed"),
        (lambda: model.predict(trace, new, groups={"g": [0]}), "groups 'g' have 1 rows; 2, as many as X"),
        (lambda: model.predict(trace, new, groups={"g": [0, 7]}), "no effects of '7' of 'g'.*new_levels=True"),
        (lambda: model.predict(trace, new, groups=g, offset=1.0), None),
        (lambda: model.predict(trace, new, groups=g, offset=[1.0]), r"offset has shape \(1,\).*itself, offset=1.0"),
        (lambda: model.predict(trace, new, groups=g, offset=np.ones(3)), r"offset has shape \(3,\)"),
        (lambda: model.predict(trace, new, groups=g, interval=90), "interval is 90; a probability"),
        (lambda: model.predict(other, new, groups=g), "the model that was sampled is needed"),
        (lambda: model.predict(trace.draws, new, groups=g), "trace is .*the Trace"),
        (lambda: fixed.predict(other, new, groups={"g": [0, 7]}, new_levels=True), "since prior_sd fixes them"),
    ):
        if said is not None:
            with pytest.raises((ValueError, TypeError), match=said):
                call()
        else:
            assert call().shape == (60, 2)


@pytest.mark.filterwarnings("ignore")
def test_draws_by_name():
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(N, 2)), np.arange(N) % 4
    model = mcmc.GLM({"age": X[:, 0], "dose": X[:, 1]}, rng.normal(size=N), "gaussian", groups={"g": codes})
    trace = drawn(model)
    for j, name in enumerate(trace.names):
        np.testing.assert_array_equal(trace[name], trace.draws[:, :, j])
    np.testing.assert_array_equal(trace["1|g"], trace.draws[:, :, 2:6])
    np.testing.assert_array_equal(trace["sigma"], trace["scale"])
    with pytest.raises(KeyError, match="nothing is called 'weight'; there are 'age', 'dose'"):
        trace["weight"]
    for wrong in (0, slice(None), None):
        with pytest.raises(TypeError, match="trace.draws"):
            trace[wrong]
    with pytest.raises(TypeError):
        list(trace)


def test_rows_whose_indexes_differ_are_refused():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(2)
    X = pandas.DataFrame(rng.normal(size=(300, 2)), columns=["a", "b"])
    y = pandas.Series((rng.random(300) < 0.5).astype(float))
    model, softmax = mcmc.GLM(X, y, prior_sd=1.0), mcmc.Softmax(X, y, prior_sd=1.0)
    pilot = mcmc.GLM(X[:100], y[:100], prior_sd=1.0)
    for other in (model, softmax):
        with pytest.raises(ValueError, match="the pandas indexes of X and offset differ: row 0 is 0 in the one and 4"):
            other.predict(drawn(other), X[:5], offset=pandas.Series(np.zeros(5))[::-1])
    with pytest.raises(ValueError, match="chunk 1: the pandas indexes of X and y differ: row 0 is 100 in the one and"):
        mcmc.compress(pilot, chunks=[(X[:100], y[:100]), (X[100:], y[100:][::-1])])


def test_groups_of_new_rows_go_with_these_by_their_index_and_an_index_is_values():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(2)
    X = pandas.DataFrame(rng.normal(size=(300, 2)), columns=["a", "b"])
    y, words = (rng.random(300) < 0.5).astype(float), pandas.Series(np.arange(300) % 3).map("uvw".__getitem__)
    model = mcmc.GLM(X, y, groups={"g": pandas.Index(words)}, prior_sd=1.0)
    trace, shuffled = drawn(model), X.sample(frac=1.0, random_state=1)
    found = model.predict(trace, shuffled, groups=pandas.Index(words[shuffled.index]))
    np.testing.assert_array_equal(found, model.predict(trace, shuffled, groups=words[shuffled.index]))
    for groups in (words, mcmc.Groups(words, name="g")):
        with pytest.raises(ValueError, match="the pandas indexes of X and groups differ"):
            model.predict(trace, shuffled, groups=groups)


def test_slopes_of_groups_go_by_the_names_of_their_columns():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(4)
    one, codes = np.ones((N, 1)), np.arange(N) % 4
    S = pandas.DataFrame(rng.normal(size=(N, 2)), columns=["s1", "s2"])
    y = S["s1"] * codes - S["s2"] + rng.normal(size=N)
    model = mcmc.GLM(one, y, "gaussian", groups={"g": mcmc.Groups(codes, slopes=S)}, prior_sd=1.0)
    trace = drawn(model)
    wanted = model.predict(trace, one, groups=mcmc.Groups(codes, slopes=S.to_numpy()))
    numbered = S.set_axis(range(2), axis=1)
    for own in (S, S[["s2", "s1"]], numbered, {"s2": S["s2"].to_numpy(), "s1": S["s1"].to_numpy()}):
        np.testing.assert_array_equal(model.predict(trace, one, groups=mcmc.Groups(codes, slopes=own)), wanted)
    odd = mcmc.Groups(codes, slopes=S.rename(columns={"s2": "s3"}))
    with pytest.raises(ValueError, match="slopes of groups 'g' has the names 's1', 's3'; those of the model's slopes"):
        model.predict(trace, one, groups=odd)
    columns = mcmc.GLM(S, y, "gaussian", groups={"g": mcmc.Groups(codes, slopes=["s2"])}, prior_sd=1.0)
    with pytest.raises(ValueError, match="have a table of slopes, and those of the model are 's2', as X has them"):
        columns.predict(drawn(columns), S, groups=mcmc.Groups(codes, slopes=S[["s1"]]))


def test_series_of_groups_in_a_list_go_by_their_names():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(4)
    one = np.ones((N, 1))
    g, h = pandas.Series(np.arange(N) % 4, name="g"), pandas.Series(np.arange(N) // 4 % 4, name="h")
    y = g - 2.0 * h + rng.normal(size=N)
    model = mcmc.GLM(one, y, "gaussian", groups=[g, h])
    assert model.names[1] == "1|g[0]" and "sd(1|h)" in model.names
    trace = drawn(model)
    wanted = model.predict(trace, one, groups={"g": g, "h": h})
    for groups in ([g, h], [h, g], [mcmc.Groups(h, name="h"), g], [g.to_numpy(), h.to_numpy()]):
        np.testing.assert_array_equal(model.predict(trace, one, groups=groups), wanted)
    with pytest.raises(ValueError, match="groups of 'h' are needed"):
        model.predict(trace, one, groups=[g, h.rename("k")])


def test_a_frame_with_numbered_columns_is_an_array():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(N, 2)), rng.integers(0, 2, N)
    for model in (mcmc.GLM(X, y), mcmc.GLM(X, y, names=["a", "b"]), mcmc.Softmax(X, y)):
        trace, wanted = drawn(model), None
        wanted = model.predict(trace, X)
        np.testing.assert_array_equal(model.predict(trace, pandas.DataFrame(X)), wanted)
        with pytest.raises(ValueError, match="X lacks the column"):     # their order means something
            model.predict(trace, pandas.DataFrame(X)[[1, 0]])
        with pytest.raises(ValueError, match="X lacks the column"):
            model.predict(trace, pandas.DataFrame(np.c_[X, X]))
    own = mcmc.GLM(pandas.DataFrame(X), y)          # a model of numbered columns knows their numbers
    np.testing.assert_array_equal(own.predict(drawn(own), pandas.DataFrame(X)[[1, 0]]), own.predict(drawn(own), X))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("known", [np.array([True, False]), [True, False], np.array([1, 0]), np.array([1.0, 0.0])])
def test_a_group_is_the_same_as_a_truth_value_and_as_a_number(known):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(4)
    one, which = np.ones((N, 1)), rng.integers(0, 2, N)
    codes = pandas.Categorical(np.asarray(known)[which]) if isinstance(known, list) else known[which]
    y = 3.0 * which + rng.normal(size=N)
    model = mcmc.GLM(one, y, "gaussian", groups={"g": codes})
    trace = drawn(model)
    wanted = model.predict(trace, one[:2], groups={"g": codes[:2]}, rng=1)
    flags = np.asarray(known)[which][:2]
    for own in (flags.astype(bool), flags.astype(int), flags.astype(float), flags.astype(bool).astype(object)):
        for options in ({}, {"new_levels": True, "rng": 3}):
            np.testing.assert_array_equal(model.predict(trace, one[:2], groups={"g": own}, **options), wanted)
    with pytest.raises(ValueError, match="no effects of '2' of 'g'"):
        model.predict(trace, one[:1], groups={"g": [2]})
