"""Softmax with names of classes: columns of counts, categories, and levels of a formula's outcome."""

import pickle

import numpy as np
import pytest
from scipy import stats

from fastrace import mcmc

pandas = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(5)
    found = pandas.DataFrame({"x": rng.normal(3.0, 2.0, 300), "h": rng.choice(list("uvw"), 300)})
    eta = np.outer(found["x"] - 3.0, [0.0, 0.5, -0.5])
    kinds = np.array(["ash", "elm", "oak"])[np.argmax(eta + rng.gumbel(size=eta.shape), axis=1)]
    return found.assign(kind=kinds, times=rng.integers(0, 4, 300))


# Tables of counts and categories.


def test_columns_of_counts_are_the_names_of_classes(frame):
    counts = pandas.DataFrame(np.random.default_rng(0).poisson(1.0, (300, 3)), columns=["red", "green", "blue"])
    X = frame[["x"]]
    named, plain = mcmc.Softmax(X, counts, prior_sd=1.0), mcmc.Softmax(X, counts.to_numpy(), prior_sd=1.0)
    assert named.classes == ("red", "green", "blue") and plain.classes == (0, 1, 2)
    assert named.names == ("x[green]", "x[blue]") and plain.names == ("x[1]", "x[2]")
    points = np.random.default_rng(1).normal(size=(3, 2))
    np.testing.assert_array_equal(named.log_posteriors(points), plain.log_posteriors(points))
    by_column = mcmc.Softmax(X, {name: counts[name].to_numpy() for name in counts}, prior_sd=1.0)
    assert by_column.names == named.names
    trace = mcmc.sample(named, n_draws=60, n_tune=60, n_chains=2, rng=1)
    assert trace["x"].shape == (2, 60, 2) and trace["x[blue]"].shape == (2, 60)
    (variable,) = named._variables_of(named.names)
    assert variable.dims == ("class",) and variable.coords == (("green", "blue"),)
    (variable,) = plain._variables_of(plain.names)
    assert variable.coords == ((1, 2),)
    probabilities = named.predict(trace, frame[:4])
    np.testing.assert_array_equal(probabilities, plain.predict(mcmc.sample(
        plain, n_draws=60, n_tune=60, n_chains=2, rng=1), frame[:4]))
    assert pickle.loads(pickle.dumps(named)).classes == named.classes


def test_priors_in_series_are_found_by_the_names_of_columns(frame):
    rng = np.random.default_rng(0)
    X, y = pandas.DataFrame(rng.normal(size=(300, 3)), columns=["a", "b", "c"]), rng.integers(0, 2, 300)
    mean, sd = (pandas.Series(own, ["a", "b", "c"]) for own in ([1.0, 2.0, 3.0], [0.5, 1.0, 4.0]))
    for options in ({}, {"groups": {"h": frame["h"]}}):
        exact = mcmc.GLM(X, y, prior_mean=mean.to_numpy(), prior_sd=sd.to_numpy(), **options)
        points = 0.1 * rng.normal(size=(3, exact.dim))
        for order in (list("abc"), list("cab")):
            model = mcmc.GLM(X, y, prior_mean=mean[order], prior_sd=sd[order], **options)
            np.testing.assert_array_equal(model.log_posteriors(points), exact.log_posteriors(points))
        model = mcmc.GLM(X, y, prior_mean=mean.reset_index(drop=True), prior_sd=sd.reset_index(drop=True), **options)
        np.testing.assert_array_equal(model.log_posteriors(points), exact.log_posteriors(points))
        with pytest.raises(ValueError, match="prior_sd has the names 'a', 'b', 'z'; those of the [cp]"):
            mcmc.GLM(X, y, prior_sd=sd.rename({"c": "z"}), **options)
    whole = pandas.Series([1.0, 2.0, 3.0], ["c[1]", "a[1]", "b[1]"])
    model = mcmc.Softmax(X, y, prior_sd=whole)
    np.testing.assert_allclose(model.prior_precision, [0.25, 1.0 / 9.0, 1.0])


@pytest.mark.parametrize("kind", ["counts", "categories", "formula"])
def test_columns_of_offsets_are_found_by_the_names_of_classes(frame, kind):
    rng = np.random.default_rng(0)
    names = ["ash", "elm", "oak"]
    counts = pandas.DataFrame(rng.poisson(1.0, (300, 3)), columns=names)
    words = frame.assign(tree=pandas.Categorical(rng.choice(names, 300)))
    offset = pandas.DataFrame(rng.normal(size=(300, 3)), columns=names)

    def made(given):
        if kind == "formula":
            return mcmc.Softmax.from_formula("tree ~ x", words, offset=given)
        return mcmc.Softmax(frame[["x"]], counts if kind == "counts" else words["tree"], offset=given, prior_sd=1.0)

    if kind == "formula":
        pytest.importorskip("formulae")
    exact = made(offset.to_numpy())
    points = rng.normal(size=(3, exact.dim))
    trace = mcmc.sample(exact, n_draws=20, n_tune=20, n_chains=2, rng=1)
    new = frame[["x"]][:4]
    means = exact.predict(trace, new, offset=offset.to_numpy()[:4])
    other = offset[["oak", "ash", "elm"]]
    for given in (offset, other, {name: other[name].to_numpy() for name in other},
                  offset.set_axis(range(3), axis=1), other.rename(columns={"oak": 2, "ash": 0, "elm": 1})[[0, 1, 2]]):
        np.testing.assert_array_equal(made(given).log_posteriors(points), exact.log_posteriors(points))
        part = {n: v[:4] for n, v in given.items()} if isinstance(given, dict) else given[:4]
        np.testing.assert_array_equal(exact.predict(trace, new, offset=part), means)
    odd = offset.rename(columns={"oak": "yew"})
    for call in (lambda: made(odd), lambda: exact.predict(trace, new, offset=odd[:4])):
        with pytest.raises(ValueError, match="offset has the names 'ash', 'elm', 'yew'; those of the classes, 'ash'"):
            call()


def test_names_of_classes_are_those_of_priors_and_groups(frame):
    counts = pandas.DataFrame(np.random.default_rng(0).poisson(1.0, (300, 3)), columns=["red", "green", "blue"])
    prior = {"x": mcmc.Normal(0.0, 2.0), "x[blue]": mcmc.Normal(0.0, 0.5)}
    model = mcmc.Softmax(frame[["x"]], counts, prior=prior, groups={"h": frame["h"]})
    assert "1|h[u][green]" in model.names and "sd(1|h)[blue]" in model.names
    assert {"  x[green] ~ Normal(0, 2)", "  x[blue] ~ Normal(0, 0.5)"} < set(str(model).splitlines())
    with pytest.raises(ValueError, match=r"prior names 'x\[2\]'"):
        mcmc.Softmax(frame[["x"]], counts, prior={"x[2]": mcmc.Normal(0.0, 1.0)})


def test_a_class_without_a_count_is_warned_of_as_one_without_rows_is(frame):
    counts = pandas.DataFrame(np.random.default_rng(0).poisson(1.0, (300, 3)), columns=["red", "green", "blue"])
    counts["grey"] = 0
    X = frame[["x"]]
    with pytest.warns(UserWarning, match="no count of y is of class 'grey'.*give n_classes=4"):
        mcmc.Softmax(X, counts, prior_sd=1.0)
    with pytest.warns(UserWarning, match="no count of y is of class 0"):
        mcmc.Softmax(X, counts.to_numpy()[:, ::-1], prior_sd=1.0)
    mcmc.Softmax(X, counts, 4, prior_sd=1.0)        # told, and so silent: a warning is an error here
    with pytest.raises(ValueError, match="no count of y is of class 'grey'.*So the posterior is improper"):
        mcmc.Softmax(np.ones((300, 1)), counts, 4).reference()


def test_categories_are_classes(frame):
    words = pandas.Series(frame["kind"], dtype=pandas.CategoricalDtype(["oak", "ash", "elm"]))
    for y in (words, pandas.Categorical(words)):
        model = mcmc.Softmax(frame[["x"]], y, prior_sd=1.0)
        assert model.classes == ("oak", "ash", "elm") and model.names == ("x[ash]", "x[elm]")
        same = mcmc.Softmax(frame[["x"]], words.cat.codes, prior_sd=1.0)
        np.testing.assert_array_equal(model.log_posteriors([[0.3, -0.2]]), same.log_posteriors([[0.3, -0.2]]))
    with pytest.warns(UserWarning, match="no row of y is of class 'yew'.*remove_unused_categories"):
        mcmc.Softmax(frame[["x"]], words.cat.add_categories(["yew"]), prior_sd=1.0)
    with pytest.raises(ValueError, match="y is missing in row 0"):
        mcmc.Softmax(frame[["x"]], words.cat.remove_categories([words[0]]), prior_sd=1.0)
    with pytest.raises(ValueError, match="categories of y are 3 classes, and n_classes is 4"):
        mcmc.Softmax(frame[["x"]], words, 4, prior_sd=1.0)
    with pytest.raises(ValueError, match="categories of y are 1 class,"):
        mcmc.Softmax(frame[["x"]], pandas.Categorical(["a"] * 300), prior_sd=1.0)
    with pytest.raises(ValueError, match="the pandas indexes of X and y differ"):
        mcmc.Softmax(frame[["x"]], words[::-1], prior_sd=1.0)


def test_chunks_of_frames_have_the_columns_of_the_model(frame):
    words = frame["kind"].astype("category")
    model = mcmc.Softmax(frame[["x"]], words, prior_sd=1.0)
    parts = [(frame[["x"]][rows], words.cat.codes[rows]) for rows in (slice(0, 100), slice(100, 300))]
    whole, chunked = mcmc.compress(model), mcmc.compress(model, chunks=parts)
    np.testing.assert_allclose(chunked.psi_hat, whole.psi_hat, rtol=1e-6)
    with pytest.raises(ValueError, match="its columns are 'z', and those of the model 'x'"):
        mcmc.compress(model, chunks=[({"z": frame["x"]}, words.cat.codes)])


def test_classes_and_offsets_of_chunks_go_by_the_names_of_the_classes(frame):
    words = frame["kind"].astype(pandas.CategoricalDtype(["oak", "ash", "elm"]))
    offset = pandas.DataFrame(np.random.default_rng(4).normal(size=(300, 3)), columns=["oak", "ash", "elm"])
    X = frame[["x"]]
    model = mcmc.Softmax(X, words, offset=offset, prior_sd=1.0)
    whole = mcmc.compress(model)
    for y in (words, words.cat.codes, words.cat.reorder_categories(["elm", "oak", "ash"]),
              words.cat.add_categories(["yew"])):
        chunked = mcmc.compress(model, psi_hat=whole.psi_hat, chunks=[{"X": X, "y": y, "offset": offset.iloc[:, ::-1]}])
        np.testing.assert_allclose(chunked.slope, whole.slope, atol=1e-9)
        np.testing.assert_allclose(chunked.precision, whole.precision, rtol=1e-9)
    for changed, said in (({"y": words.cat.rename_categories({"elm": "yew"})}, "y has the category 'yew'; the classes"),
                          ({"offset": offset.set_axis(list("abc"), axis=1)}, "offset has the names 'a', 'b', 'c'")):
        with pytest.raises(ValueError, match=f"chunk 0: {said}"):
            mcmc.compress(model, chunks=[{"X": X, "y": words, "offset": offset} | changed])


# Formulas.


def by_hand(frame, levels, **options):
    """What the formula "kind ~ x + h" stands for, with its priors written out."""
    pytest.importorskip("formulae")
    x, v, w = (np.asarray(column, dtype=np.float64) for column in (frame["x"], frame["h"] == "v", frame["h"] == "w"))
    X = np.column_stack([np.ones(len(x)), x, v, w])
    y = np.array([levels.index(kind) for kind in frame["kind"]])
    sd = np.array([1.0 / x.std(), 1.0, 1.0])

    def log_prior(theta):
        out = 0.0
        for own in np.reshape(theta, (-1, 4)):
            out += stats.norm.logpdf(own[1:], 0.0, sd).sum() + stats.norm.logpdf(own @ X.mean(axis=0), 0.0, 1.5)
        return out

    return mcmc.Softmax(X, y, log_prior=log_prior, **options)


def test_a_formula_is_the_model_of_its_columns_and_levels(frame):
    pytest.importorskip("formulae")
    model, twin = mcmc.Softmax.from_formula("kind ~ x + h", frame), by_hand(frame, ["ash", "elm", "oak"])
    points = np.random.default_rng(2).normal(size=(50, 8))
    ours, plain = model.log_posteriors(points), twin.log_posteriors(points)
    np.testing.assert_allclose(ours - ours[0], plain - plain[0], rtol=1e-12, atol=1e-10)
    assert model.classes == ("ash", "elm", "oak")
    assert model.names == tuple(f"{name}[{level}]" for level in ("elm", "oak")
                                for name in ("Intercept", "x", "h[v]", "h[w]"))
    found = {v.name: (v.shape, v.dims, v.coords) for v in model._variables_of(model.names)}
    assert found == {"Intercept": ((2,), ("class",), (("elm", "oak"),)), "x": ((2,), ("class",), (("elm", "oak"),)),
                     "h": ((2, 2), ("h_dim", "class"), (("v", "w"), ("elm", "oak")))}
    assert "Intercept[elm], Intercept[oak] ~ Normal(0, 1.5), of centred columns" in str(model)


def test_of_two_levels_it_is_the_logistic_model_of_the_second(frame):
    pytest.importorskip("formulae")
    two = frame[frame["kind"] != "oak"]
    points = np.random.default_rng(2).normal(size=(20, 6))
    formula = "{} ~ x * h"
    for options in ({}, {"weights": two["times"]}):
        softmax = mcmc.Softmax.from_formula(formula.format("kind"), two, **options)
        logistic = mcmc.GLM.from_formula(formula.format("kind['elm']"), two, **options)
        a, b = softmax.log_posteriors(points), logistic.log_posteriors(points)
        np.testing.assert_allclose(a - a[0], b - b[0], rtol=1e-12, atol=1e-10)


def test_priors_may_be_given_by_coefficient_column_and_term(frame):
    pytest.importorskip("formulae")
    prior = {"h": mcmc.Normal(0.0, 0.25), "x[oak]": mcmc.Normal(1.0, 0.5), "h[w][elm]": mcmc.StudentT(4.0, 0.0, 1.0),
             "Intercept[oak]": mcmc.Normal(0.0, 7.0)}
    shown = str(mcmc.Softmax.from_formula("kind ~ x + h", frame, prior=prior)).splitlines()
    sd = 1.0 / frame["x"].std(ddof=0)
    for words in ("Intercept[elm] ~ Normal(0, 1.5), of centred columns", f"x[elm] ~ Normal(0, {sd:.4g})",
                  "h[v][elm], h[v][oak], h[w][oak] ~ Normal(0, 0.25)", "h[w][elm] ~ StudentT(4, 0, 1)",
                  "Intercept[oak] ~ Normal(0, 7)", "x[oak] ~ Normal(1, 0.5)"):
        assert f"  {words}" in shown
    with pytest.raises(ValueError, match=r"prior names 'x\[ash\]'"):
        mcmc.Softmax.from_formula("kind ~ x", frame, prior={"x[ash]": mcmc.Normal(0.0, 1.0)})


def test_an_ordered_category_says_which_class_is_first(frame):
    pytest.importorskip("formulae")
    order = pandas.CategoricalDtype(["oak", "ash", "elm"], ordered=True)
    model = mcmc.Softmax.from_formula("kind ~ x + h", frame.astype({"kind": order}))
    twin = by_hand(frame, ["oak", "ash", "elm"])
    points = np.random.default_rng(2).normal(size=(5, 8))
    ours, plain = model.log_posteriors(points), twin.log_posteriors(points)
    assert model.classes == ("oak", "ash", "elm")
    np.testing.assert_allclose(ours - ours[0], plain - plain[0], rtol=1e-12, atol=1e-10)


def test_a_frame_is_predicted_with_the_levels_of_the_model(frame):
    pytest.importorskip("formulae")
    model = mcmc.Softmax.from_formula("kind ~ scale(x) + h", frame)
    trace = mcmc.sample(model, n_draws=100, n_tune=200, n_chains=2, rng=1)
    new = pandas.DataFrame({"h": ["w", "u"], "x": [9.0, 0.0]})
    z = (new["x"] - frame["x"].mean()) / frame["x"].std(ddof=0)
    X = np.column_stack([np.ones(2), z, new["h"] == "v", new["h"] == "w"]).astype(float)
    theta = trace.draws.reshape(-1, 2, 4)
    eta = np.concatenate([np.zeros((200, 2, 1)), np.swapaxes(theta @ X.T, 1, 2)], axis=2)
    exact = np.exp(eta) / np.exp(eta).sum(axis=2, keepdims=True)
    for own in (model, pickle.loads(pickle.dumps(model))):
        np.testing.assert_allclose(own.predict(trace, new), exact, rtol=1e-9)
    assert trace["x" if "x" in trace.names else "scale(x)"].shape == (2, 100, 2)
    with pytest.raises(ValueError, match="X lacks the column 'h', which 'kind ~ scale"):
        model.predict(trace, new[["x"]])


@pytest.mark.parametrize(("formula", "change", "words"), [
    ("x ~ h", {}, "the outcome 'x' holds numbers or truth values; words"),
    ("big ~ h", {"big": True}, "holds numbers or truth values"),
    ("kind ~ x", {"kind": "ash"}, "the outcome 'kind' is 'ash' in every row; two levels"),
    ("kind ~ x", {"kind": pandas.CategoricalDtype(["ash", "elm", "oak", "yew"])}, "levels without a row: 'yew'"),
    ("kind ~ x + (1 | h)", {}, r"has effects of groups \(1\|h\)"),
    ("kind ~ h + offset(x)", {}, "has an offset, and each class has a predictor of its own"),
    ("kind['elm'] ~ x", {}, "is whether 'kind' is one level"),
    ("p(times, times) ~ x", {}, "made by a function"),
    ("~ x", {}, "words such as"),
])
def test_formulas_that_make_no_softmax_are_refused(frame, formula, change, words):
    pytest.importorskip("formulae")
    kinds = {name: value for name, value in change.items() if hasattr(value, "categories")}
    frame = frame.assign(**{name: value for name, value in change.items() if name not in kinds}).astype(kinds)
    with pytest.raises(ValueError, match=words):
        mcmc.Softmax.from_formula(formula, frame)


def test_options_that_are_none_are_refused(frame):
    pytest.importorskip("formulae")
    for options, error, words in [({"groups": frame["h"]}, ValueError, "not scaled by a formula"),
                                  ({"family": "categorical"}, TypeError, "family was given"),
                                  ({"priors": {}}, TypeError, "an option of bambi, not of Softmax.from_formula"),
                                  ({"prior": "weak"}, TypeError, "a dict of priors by name"),
                                  ({"names": ["a"]}, TypeError, "the formula says it")]:
        with pytest.raises(error, match=words):
            mcmc.Softmax.from_formula("kind ~ x", frame, **options)


@pytest.mark.parametrize("levels", [[3, 5, 9], [0, 1, 2], [1.5, 2.0], [False, True], ["0", "1", "2"], ["u", "v"]])
@pytest.mark.parametrize("how", ["formula", "categories"])
def test_classes_are_what_the_column_compares_equal_to(frame, levels, how):
    rng = np.random.default_rng(0)
    own = frame.assign(kind=pandas.Categorical(np.array(levels, object)[rng.integers(0, len(levels), 300)], levels))
    if how == "formula":
        pytest.importorskip("formulae")
        model = mcmc.Softmax.from_formula("kind ~ x", own)
    else:
        model = mcmc.Softmax(own[["x"]], own["kind"], prior_sd=1.0)
    assert list(model.classes) == levels and [type(k) for k in model.classes] == [type(k) for k in levels]
    for k, level in enumerate(model.classes):
        np.testing.assert_array_equal(own["kind"] == level, own["kind"].cat.codes == k)
    assert model.names[-1] == f"x[{levels[-1]}]" and pickle.loads(pickle.dumps(model)).classes == model.classes
    if how == "categories":
        back = own["kind"].cat.reorder_categories(levels[::-1])
        np.testing.assert_array_equal(model._numbered(back), own["kind"].cat.codes)


@pytest.mark.parametrize("kind", ["Categorical", "Enum"])
def test_categories_of_polars_are_classes(frame, kind):
    polars = pytest.importorskip("polars")
    words = np.random.default_rng(0).choice(["elm", "ash", "oak"], 300)
    order = ["oak", "elm", "ash"] if kind == "Enum" else ["ash", "elm", "oak"]
    polars.Series(["yew", "ash"], dtype=polars.Categorical)        # of another column, in the same store of words
    column = polars.Series(words, dtype=polars.Enum(order) if kind == "Enum" else polars.Categorical)
    model = mcmc.Softmax(frame[["x"]], column, prior_sd=1.0)
    exact = mcmc.Softmax(frame[["x"]], pandas.Categorical(words, order), prior_sd=1.0)
    assert model.classes == exact.classes == tuple(order)
    points = np.random.default_rng(1).normal(size=(3, model.dim))
    np.testing.assert_array_equal(model.log_posteriors(points), exact.log_posteriors(points))
    chunks = [(frame[["x"]].to_numpy()[part], column[part]) for part in (slice(0, 7), slice(7, 300))]
    found, wanted = (mcmc.compress(model, points[0], chunks=given) for given in (chunks, None))
    np.testing.assert_allclose(found.slope, wanted.slope)
    missing = polars.Series([None, *words[1:]], dtype=column.dtype)
    with pytest.raises(ValueError, match="y is missing in row 0"):
        mcmc.Softmax(frame[["x"]], missing)
