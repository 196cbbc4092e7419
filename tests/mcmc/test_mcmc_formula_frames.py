"""Frames and formulas: what is taken as it is, what is refused, and in which words."""

import re

import numpy as np
import pytest

from fastrace import mcmc

pd = pytest.importorskip("pandas")
pytest.importorskip("formulae")

N = 120


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    out = pd.DataFrame({"x": rng.normal(2.0, 3.0, N), "h": rng.choice(list("abc"), N), "g": rng.choice(list("uvw"), N),
                        "b": rng.random(N) < 0.4, "i": rng.integers(0, 4, N), "t": 3})
    out["r"] = out["x"] + rng.normal(size=N)
    out["y"] = (rng.random(N) < 0.4).astype(int)
    return out


def gaussian(formula, frame, **options):
    return mcmc.GLM.from_formula(formula, frame, family="gaussian", **options)


def triple(x):
    return 3.0 * x


def test_functions_and_values_of_the_caller_are_known_to_the_formula(frame):
    knots = [0.0, 2.0]
    model = mcmc.GLM.from_formula("r ~ bs(x, knots=knots)", frame, family="gaussian")
    assert len(knots) + 3 == model.n_columns - 1
    twice = mcmc.GLM.from_formula("r ~ triple(x)", frame, family="gaussian")
    np.testing.assert_allclose(np.asarray(twice._glm.X)[:, 1], 3.0 * frame.x)
    np.testing.assert_allclose(np.asarray(gaussian("r ~ np.square(x)", frame)._glm.X)[:, 1], frame.x**2)

    def broken(x):
        return {}["boom"]

    with pytest.raises(KeyError, match="boom"):     # an error of the user's own function stays as it is
        mcmc.GLM.from_formula("r ~ broken(x)", frame, family="gaussian")
    assert callable(broken)


def test_a_bad_row_is_called_as_the_index_of_the_frame_does(frame):
    named = frame.set_axis([f"r{k}" for k in range(N)]).assign(z=np.arange(N) + 1.0)
    low, odd = named.assign(z=named.z.where(named.z != 4.0, 0.0)), named.assign(y=named.y.where(named.z != 4.0, 2))
    for formula, bad, said in (
        ("y ~ x", odd, r"^y\[3\] \(row 'r3'\) is 2"),
        ("log(z) ~ x", low, r"^the outcome 'log\(z\)' is -inf in row 3 \(row 'r3'\), "),
        ("y ~ log(z)", low, r"^the column 'log\(z\)' is -inf in row 3 \(row 'r3'\), "),
        ("y ~ x + offset(log(z))", low, r"^offset\[3\] \(row 'r3'\) is -inf"),
    ):
        with pytest.raises(ValueError, match=said):
            mcmc.GLM.from_formula(formula, bad)
        with pytest.raises(ValueError, match=said.replace(r" \(row 'r3'\)", "")):
            mcmc.GLM.from_formula(formula, bad.reset_index(drop=True))
    for weights in (-named.z, -named.z.to_numpy()):
        with pytest.raises(ValueError, match=r"^weights\[0\] \(row 'r0'\) is -1"):
            mcmc.GLM.from_formula("y ~ x", named, weights=weights)
    with pytest.raises(ValueError, match=r"^the column 'log\(z\)' is -inf in row 3 \(row 'r3'\), "):
        mcmc.Softmax.from_formula("h ~ log(z)", low)


def test_two_terms_that_share_a_category_are_those_written_out(frame):
    """formulae lays the "h" of "h/x" out anew for its interaction, and then has three names for two columns."""
    short, long = (gaussian(formula, frame) for formula in ("r ~ h / x", "r ~ h + h:x"))
    assert short.names == long.names
    np.testing.assert_array_equal(np.asarray(short._glm.X), np.asarray(long._glm.X))


@pytest.mark.parametrize(("column", "names"), [
    ("g", ["1|g[u]", "1|g[v]", "1|g[w]"]), ("b", ["1|b[False]", "1|b[True]"]), ("i", [f"1|i[{k}]" for k in range(4)]),
    ("C(i)", [f"1|C(i)[{k}]" for k in range(4)]), ("o", ["1|o[c]", "1|o[a]", "1|o[b]"]),
    ("c", ["1|c[a]", "1|c[b]", "1|c[c]"]), ("T(h)", ["1|T(h)[a]", "1|T(h)[b]", "1|T(h)[c]"]),
    ("log(t)", [f"1|log(t)[{np.log(3)}]"])])
def test_groups_are_called_and_ordered_as_formulae_has_them(frame, column, names):
    order = ["c", "unused", "a", "b"]
    frame = frame.assign(o=pd.Categorical(frame.h, categories=order, ordered=True), c=pd.Categorical(frame.h, order))
    model = gaussian(f"r ~ x + (1 | {column})", frame)
    assert list(model.names[2:-2]) == names
    codes = model._glm.factors[0].codes
    if column in ("g", "b", "i", "o"):
        assert [str(frame[column][j]) for j in range(N)] == [names[k][4:-1] for k in codes]


def test_groups_of_nested_factors_are_those_that_some_row_has(frame):
    frame = frame.assign(sub=frame.g + frame.i.astype(str))
    model = gaussian("r ~ x + (1 | g / sub)", frame)
    nested = [name for name in model.names if name.startswith("1|g:sub[")]
    assert nested == [f"1|g:sub[{s[0]}:{s}]" for s in sorted(frame["sub"].unique())]


@pytest.mark.parametrize("kind", ["string", "category", "object"])
def test_kinds_of_words_and_numbers_of_pandas_make_one_model(frame, kind):
    other = frame.astype({"h": kind, "g": kind, "x": "Float64", "i": "Int64", "b": "boolean"})
    plain, model = (gaussian("r ~ x + h + b + i + (x | g)", own) for own in (frame, other))
    assert plain.names == model.names
    np.testing.assert_array_equal(np.asarray(plain._glm.X), np.asarray(model._glm.X))


def test_frames_of_polars_are_those_of_pandas(frame):
    pl = pytest.importorskip("polars")
    pytest.importorskip("pyarrow")
    table = pl.from_pandas(frame).with_columns(pl.col("h").cast(pl.Enum(["c", "a", "unused", "b"])))
    model = gaussian("r ~ x + h + b + (1 | g)", table)
    assert model.names[:5] == ("Intercept", "x", "h[a]", "h[b]", "b")       # an enumeration has an order
    with pytest.raises(ValueError, match=r"missing values, in 1 row of 120: 'x' \(1\)"):
        gaussian("r ~ x", table.with_columns(pl.when(pl.col("x") > pl.col("x").max() - 1e-9).then(None)
                                             .otherwise(pl.col("x")).alias("x")))
    with pytest.raises(TypeError, match="collect"):
        gaussian("r ~ x", table.lazy())


def test_only_what_the_formula_names_must_be_there(frame):
    frame = frame.assign(other=np.nan, x2=np.where(frame.x > 5.0, np.nan, frame.x), d=pd.date_range("2020", periods=N))
    assert gaussian("r ~ x + (1 | g)", frame).n_rows == N
    with pytest.raises(ValueError, match=r"values, in .* of 120: 'x2' \(\d+\)\. .*dropna\(subset=\['r', 'x2'\]\)"):
        gaussian("r ~ x2", frame)
    assert gaussian("r ~ x2", frame.dropna(subset=["r", "x2"])).n_rows == int((frame.x <= 5.0).sum())


@pytest.mark.parametrize(("formula", "words"), [
    ("r ~ when", "'when' is datetime64"), ("r ~ mixed", "'mixed' holds objects \\(mixed-integer\\)"),
    ("r ~ truth", "'truth' holds objects \\(boolean\\)"), ("r ~ turn", "'turn' is complex"),
    ("r ~ only", "'only' has one level"), ("only ~ x", "has one level; one number"), ("same ~ x", "is 5 in every row"),
    ("r ~ t", "'t' is constant"), ("r ~ large", "'large' holds .*e\\+199, whose square overflows")])
def test_columns_that_say_nothing_a_model_can_use_are_named(frame, formula, words):
    frame = frame.assign(when=pd.date_range("2020", periods=N), mixed=["a", 1] * (N // 2), only="a", same=5.0,
                         truth=frame.b.astype(object), turn=1j * frame.x, large=frame.x * 1e199)
    with pytest.raises(ValueError, match=words):
        gaussian(formula, frame)


@pytest.mark.parametrize(("formula", "words"), [
    ("weighted(r, t) ~ x", "weighted\\(\\), which bambi has .*weights="), ("censored(r, h) ~ x", "cut off"),
    ("truncated(r, 0) ~ x", "left out"), ("constrained(r, 0) ~ x", "bounds"), ("c(r, y) ~ x", "one outcome"),
    ("r ~ hsgp(x, m=10, c=2)", "Gaussian process of bambi.*bs\\(x"), ("r ~ x | g", "outside parentheses"),
    ("r ~ x + (x || g)", "write | for"), ("r ~ x + (1 | S(h))", "contrasts say nothing"),
    ("r ~ h['a']", "after the ~, where a level says nothing"), ("r['a'] ~ x", "numbers, which have no level 'a'"),
    ("C(i)['0'] ~ x", "no outcome before the ~"), ("cat['1'] ~ x", "astype\\(str\\)"), ("r ~ x + r", "foretell itself"),
    ("r ~ x + (r | g)", "foretell itself"), ("r + y ~ x", "not a whole formula"), ("r ~ (0 | g)", "not a whole"),
    ("h == 'a' ~ x", "not a whole formula"), ("r ~ nothing(x)", "names 'nothing'; the frame has 'x', .*no function"),
    ("r ~ Intercept + x", "names a column 'Intercept'"), ("r ~ x + (1 | Intercept)", "names a column 'Intercept'"),
])
def test_formulas_beyond_these_models_are_refused(frame, formula, words):
    with pytest.raises(ValueError, match=words):
        gaussian(formula, frame.assign(cat=pd.Categorical(frame.i), Intercept=frame.x))


@pytest.mark.parametrize(("formula", "rest"), [
    ("r ~ x i + (1 | g)", "i + ( 1 | g )"), ("r ~ x + i) + h", ") + h"), ("r ~ x %in% g + i", "% in % g + i"),
    ("r ~ x > 3", "> 3"), ("r ~ x, i", ", i"), ("r ~ (x + i)) * h", ") * h"), ("r ~ x 3 + i", "3 + i")])
def test_what_comes_after_the_first_place_that_makes_no_sense_is_named(frame, formula, rest):
    """formulae reads up to there, and leaves the rest out."""
    for make, outcome in ((gaussian, "r"), (mcmc.Softmax.from_formula, "h")):
        with pytest.raises(ValueError, match=re.escape(f"no sense from {rest!r} on")):
            make(formula.replace("r", outcome, 1), frame)


@pytest.mark.parametrize("formula", ["r ~ x (1 | g)", "r ~ x + i (1 | g)"])
def test_effects_of_groups_without_a_plus_are_no_call(frame, formula):
    with pytest.raises(ValueError, match="is not a whole formula"):
        gaussian(formula, frame)


def test_a_gaussian_process_of_bambi_is_no_column(frame):
    """bambi adds hsgp to the functions of formulae, which then reads its first argument as a column."""
    pytest.importorskip("bambi")
    with pytest.raises(ValueError, match="Gaussian process"):
        gaussian("r ~ 0 + hsgp(x, m=10, c=2)", frame)


@pytest.mark.parametrize(("options", "words"), [
    ({"priors": {}}, "prior="), ({"link": "log"}, "the family says the link"), ({"dropna": True}, "frame.dropna"),
    ({"categorical": "i"}, "C\\(x\\)"), ({"noncentered": False}, "bambi"), ({"names": ["a"]}, "the formula says it"),
    ({"X": [[1.0]]}, "the formula says it")])
def test_options_of_bambi_say_what_to_do_here(frame, options, words):
    with pytest.raises(TypeError, match=words):
        gaussian("r ~ x", frame, **options)


@pytest.mark.parametrize(("family", "words"), [("bernoulli", "'logistic'"), ("t", "'student-t'"),
                                               ("negativebinomial", "'negative-binomial'"), ("beta", "choose one of")])
def test_families_of_bambi_are_called_by_their_names_here(frame, family, words):
    with pytest.raises(ValueError, match=words):
        mcmc.GLM.from_formula("y ~ x", frame, family=family)


def test_groups_beside_those_of_the_formula_are_refused(frame):
    with pytest.raises(ValueError, match="groups was given, and the formula has one too"):
        gaussian("r ~ x + (1 | g)", frame, groups=frame.h)
    assert len(gaussian("r ~ x", frame, groups=frame.h).factors) == 1


@pytest.mark.resources
def test_groups_take_memory_in_proportion_to_the_rows():
    """Dummies would take 1.2 GB here."""
    import tracemalloc

    rng, n = np.random.default_rng(1), 50_000
    frame = pd.DataFrame({"x": rng.normal(size=n), "g": rng.integers(0, 3000, n), "y": rng.integers(0, 2, n)})
    tracemalloc.start()
    model = mcmc.GLM.from_formula("y ~ x + (x | g)", frame)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert model.factors[0].n_groups == 3000
    assert peak < 40e6
