"""Predictions of new frames by models made by formulas: as the formula made the rows of the model."""

import pickle
import re
import warnings

import numpy as np
import pytest

from fastrace import mcmc
from fastrace.mcmc._moving import moving

pandas = pytest.importorskip("pandas")
pytest.importorskip("formulae")


def cube(x):
    return x**3


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(3)
    n = 240
    found = pandas.DataFrame({"x": rng.normal(2.0, 3.0, n), "k": rng.integers(1, 4, n), "won": rng.integers(0, 5, n)})
    for name, levels in (("g", "stuv"), ("h", "abc"), ("r", "pq")):
        found[name] = rng.choice(list(levels), n)
    found["y"] = rng.normal(size=n)
    found["n"] = 5
    found["b"] = rng.random(n) < 0.5
    return found


def drawn(model, n_draws=5):
    """A trace of a few points near 0, as chains of the model would record them."""
    rng = np.random.default_rng(1)
    draws = model.constrain(0.3 * rng.standard_normal((1, n_draws, model.dim)))
    return mcmc.Trace((mcmc.protocol.from_flags(draws[0], *(np.zeros(n_draws, dtype) for dtype in
                                                            (np.int64, np.int32, np.uint8))),),
                      {}, (), (), 0.0, "state", (), model.natural_names or ())


FORMULAS = [
    ("y ~ x", "gaussian"), ("y ~ 0 + x + h", "gaussian"), ("y ~ scale(x) * h + np.exp(x / 9)", "gaussian"),
    ("y ~ bs(x, df=4) + C(k)", "gaussian"), ("y ~ bs(x, knots=knots, degree=2)", "gaussian"),
    ("y ~ cube(x) + poly(x, 2)", "gaussian"), ("y ~ x + (1 | g)", "gaussian"),
    ("y ~ x + (x + h | g) + (1 | r)", "gaussian"), ("y ~ 0 + x + (0 + h | g)", "gaussian"),
    ("y ~ x + (1 | g / r)", "gaussian"), ("b ~ x + (1 | k)", "logistic"), ("won ~ x + offset(log(k))", "poisson"),
    ("p(won, n) ~ h + (scale(x) | g)", "binomial"), ("won ~ offset(x) + h + offset(2)", "poisson"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("formula", "family"), FORMULAS)
def test_new_frames_are_read_as_the_rows_of_the_model_were(frame, formula, family):
    """Rows of the model again, in another order and company, have the means that its own design gives them."""
    knots = [1.0, 4.0]
    assert knots
    model = mcmc.GLM.from_formula(formula, frame, family=family)
    trace = drawn(model)
    names = [name for name in frame if name not in ("y", "b", "won", "n")]
    rows = np.random.default_rng(0).permutation(len(frame))[:17]
    new = frame.iloc[rows][names]
    theta = moving(model, trace).reshape(-1, model.dim)
    eta = []
    for at in theta:
        eta.append(model._predictors(at[: model.n_seen]))
    exact = model.predict(trace, np.asarray(model._glm.X), offset=model._glm.offset, groups=model._glm.groups or None)
    means = model.predict(trace, new)
    np.testing.assert_allclose(means, exact[:, rows], rtol=1e-12, atol=1e-12)
    if family == "gaussian":
        np.testing.assert_allclose(means, np.array(eta)[:, rows], rtol=1e-10, atol=1e-10)
    by_name = {name: new[name].to_numpy() for name in names}
    np.testing.assert_array_equal(model.predict(trace, by_name), means)
    again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(model))))
    np.testing.assert_array_equal(again.predict(trace, new), means)
    one = model.predict(trace, new.iloc[3:4])
    np.testing.assert_allclose(one[:, 0], means[:, 3], rtol=1e-12)


def test_splines_beyond_their_knots_are_warned_of(frame):
    for formula, ends in (("y ~ bs(x, df=4)", (frame.x.min(), frame.x.max())), ("b ~ (bs(x, df=4) | g)", None),
                          ("y ~ bs(x, 5, None, 3, upper_bound=99.0)", (frame.x.min(), 99.0)),
                          ("y ~ bs(x, 5, None, 3, None, -50.0, 99.0)", (-50.0, 99.0))):
        model = mcmc.GLM.from_formula(formula, frame, family="gaussian" if formula[0] == "y" else "logistic")
        trace = drawn(model)
        low, high = ends or (frame.x.min(), frame.x.max())
        for fitted in model, pickle.loads(pickle.dumps(model)):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                fitted.predict(trace, {"x": [low, 2.0, high], "g": list("stu")})
            words = rf"has knots from {low:g} to {high:g}, and 2 rows beyond them, such as row 1 with {high + 1.0:g}: "
            with pytest.warns(UserWarning, match=rf"bs\(\) .* {words}.* polynomial") as told:
                fitted.predict(trace, {"x": [2.0, high + 1.0, low - 9.0], "g": list("stu")})
            assert told[0].filename == __file__


def centred(x):
    return x - x.mean()


def steps(x):
    return np.gradient(x)       # needs two rows


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("term", ["I(x - np.mean(x))", "np.cumsum(x)", "centred(x)", "steps(x)", "I(x > np.median(x))",
                                  "h:centred(x)", "offset(centred(x))", "(centred(x) | g)", "(1 | np.argsort(k))"])
def test_what_is_made_of_a_whole_column_is_refused_by_name(frame, term):
    """Its values in new rows would be made of the new rows alone."""
    model = mcmc.GLM.from_formula(f"y ~ x + {term}", frame, family="gaussian")
    name = {"(centred(x) | g)": "centred(x)", "(1 | np.argsort(k))": "np.argsort(k)"}.get(term, term)
    for own in (model, pickle.loads(pickle.dumps(model))):
        with pytest.raises(ValueError, match=f"holds {re.escape(repr(name))}, made of a whole column"):
            own.predict(drawn(model), frame.iloc[:3])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("term", ["binary(r)", "binary(r, 'q')", "I(2 * binary(r))", "(binary(r) | g)"])
def test_binary_keeps_its_level(frame, term):
    model = mcmc.GLM.from_formula(f"y ~ x + {term}", frame, family="gaussian")
    trace, new = drawn(model), frame[["x", "r", "g"]].iloc[:9]
    means = model.predict(trace, new)
    again = pickle.loads(pickle.dumps(model))
    for k in range(len(new)):
        np.testing.assert_allclose(again.predict(trace, new.iloc[k : k + 1])[:, 0], means[:, k], rtol=1e-12)


def test_a_model_keeps_no_rows_of_the_frame(frame):
    many = pandas.concat([frame] * 50, ignore_index=True)
    model = mcmc.GLM.from_formula("y ~ scale(x) + h + offset(k) + (1 | g)", many, family="gaussian", scale=1.0)
    assert len(pickle.dumps(model._new_rows)) < 8000


def test_a_model_keeps_no_variables_that_are_called_as_columns_are(frame):
    x, y = np.tile(frame["x"], 50), np.tile(frame["y"], 50)
    many = pandas.DataFrame({"x": x, "y": y, "cube": x + 1.0})      # cube is a function here, too
    model = mcmc.GLM.from_formula("y ~ x + cube(cube)", many, family="gaussian", scale=1.0)
    assert len(pickle.dumps(model._new_rows)) < 8000
    np.testing.assert_array_equal(model._glm.X[:, 2], (x + 1.0) ** 3)
    trace = drawn(model)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(trace, many), model.predict(trace, many))


@pytest.mark.filterwarnings("ignore")
def test_new_levels_of_groups_are_drawn_and_of_columns_refused(frame):
    model = mcmc.GLM.from_formula("b ~ x + h + (1 | g)", frame)
    trace = drawn(model)
    new = {"x": [0.0, 0.0], "h": ["a", "a"], "g": ["t", "elsewhere"]}
    with pytest.raises(ValueError, match="no effects of 'elsewhere' of 'g'.*new_levels=True"):
        model.predict(trace, new)
    means = model.predict(trace, new, new_levels=True, rng=1)
    assert (means[:, 0] != means[:, 1]).all()
    np.testing.assert_array_equal(means[:, 0], model.predict(trace, {"x": [0.0], "h": ["a"], "g": ["t"]})[:, 0])
    with pytest.raises(ValueError, match=r"levels \(z\) in 'h' .*no coefficient for them"):
        model.predict(trace, new | {"h": ["a", "z"], "g": ["s", "t"]})


@pytest.mark.filterwarnings("ignore")
def test_what_is_no_new_frame_is_told(frame):
    model = mcmc.GLM.from_formula("won ~ x + h + offset(k) + (1 | g)", frame, family="poisson")
    trace, new = drawn(model), frame[["x", "h", "k", "g"]].iloc[:4]
    assert model.predict(trace, new).shape == (5, 4)
    with pytest.raises(ValueError, match=r"X lacks the columns 'k', 'h', which 'won ~ .*' names; it has 'x', 'g'.*"
                                         r"those of its design: 'Intercept', 'x', 'h\[b\]'"):
        model.predict(trace, new[["x", "g"]])
    with pytest.raises(ValueError, match="missing values, in 1 row of 4: 'x'"):
        model.predict(trace, new.assign(x=[1.0, 2.0, np.nan, 0.0]))
    with pytest.raises(ValueError, match="offset was given, and .* reads it from the columns of X"):
        model.predict(trace, new, offset=np.zeros(4))
    with pytest.raises(ValueError, match="groups was given, and"):
        model.predict(trace, new, groups=new["g"])
    model = mcmc.GLM.from_formula("y ~ log(k)", frame, family="gaussian")
    with pytest.raises(ValueError, match=r"the column 'log\(k\)' of X is -inf in row 1, and not finite in 1 row"):
        model.predict(drawn(model), {"k": [2.0, 0.0]})


@pytest.mark.filterwarnings("ignore")
def test_the_columns_of_the_design_are_taken_too(frame):
    """As before there were frames: a table, or a frame of these columns, with groups and offset beside it."""
    model = mcmc.GLM.from_formula("y ~ x + h + (1 | g)", frame, family="gaussian")
    trace = drawn(model)
    design = pandas.DataFrame(np.asarray(model._glm.X), columns=model.column_names).iloc[:6]
    groups = {"g": frame["g"].iloc[:6]}
    by_frame = model.predict(trace, frame.iloc[:6])
    np.testing.assert_allclose(model.predict(trace, design, groups=groups), by_frame, rtol=1e-12)
    np.testing.assert_allclose(model.predict(trace, design.to_numpy(), groups=groups), by_frame, rtol=1e-12)


@pytest.mark.filterwarnings("ignore")
def test_a_function_that_cannot_be_saved_is_lost_in_words(frame):
    own = lambda x: 2.0 * x     # noqa: E731
    assert own(1.0) == 2.0
    model = mcmc.GLM.from_formula("y ~ own(x)", frame, family="gaussian", scale=1.0)
    trace, new = drawn(model), frame[["x"]].iloc[:3]
    means = model.predict(trace, new)
    again = pickle.loads(pickle.dumps(model))
    with pytest.raises(ValueError, match=r"made by 'y ~ own\(x\)' and saved.*could not be saved with it.*from_formula"):
        again.predict(trace, new)
    design = {"Intercept": np.ones(3), "own(x)": 2.0 * new["x"].to_numpy()}
    np.testing.assert_allclose(model.predict(trace, np.column_stack(list(design.values()))), means)
    np.testing.assert_allclose(again.predict(trace, design), means)


@pytest.mark.filterwarnings("ignore")
def test_frames_of_polars(frame):
    polars = pytest.importorskip("polars")
    pytest.importorskip("pyarrow")
    model = mcmc.GLM.from_formula("b ~ x + (1 | g)", frame)
    trace = drawn(model)
    new = polars.from_pandas(frame[["x", "g"]].iloc[:5])
    np.testing.assert_array_equal(model.predict(trace, new), model.predict(trace, frame.iloc[:5]))


@pytest.mark.filterwarnings("ignore")
def test_columns_of_new_rows_hold_what_those_of_the_model_held(frame):
    """NumPy would read a date as the number of its ticks, so that a prediction came out of it."""
    when = pandas.date_range("2024", periods=2)
    softmax = mcmc.Softmax.from_formula("h ~ x + b", frame)
    model = mcmc.GLM.from_formula("y ~ x + b + (x | k)", frame, family="gaussian")
    good = {"x": [0.0, 1.0], "b": [True, False], "k": [1, 2]}
    for held in (softmax, model):
        trace = drawn(held)
        wanted = held.predict(trace, good)
        for name, column, said in (
            ("x", when, "dates; numbers"), ("x", when - when[0], "times; numbers"), ("x", ["u", "v"], "words; numbers"),
            ("x", when.tz_localize("UTC"), "dates with a time zone; numbers"), ("b", ["True", "False"], "words; numb"),
            ("x", when.to_period("D"), "periods; numbers"), ("x", pandas.Categorical(when), "dates; numbers"),
        ):
            with pytest.raises(ValueError, match=f"the column '{name}' of X is of dtype .* and holds {said}"):
                held.predict(trace, good | {name: column})
        for name, column in (("x", pandas.array([0, 1], "Int64")), ("b", [1, 0]), ("x", pandas.Categorical([0, 1])),
                             ("x", np.array([0.0, 1.0], object)), ("k", ["1", "2"]), ("k", [1.0, 2.0])):
            np.testing.assert_array_equal(held.predict(trace, good | {name: column}), wanted)
        for name, value in good.items():
            with pytest.raises(ValueError, match="X has single values in place of columns, such as 0.0 of 'x'.*row"):
                held.predict(trace, {name: value[0] for name, value in good.items()})
            both = held.predict(trace, good | {name: value[0]})       # beside columns it is that of each row
            np.testing.assert_array_equal(both, held.predict(trace, good | {name: [value[0]] * 2}))
        with pytest.raises(ValueError, match="X has no rows; at least one row to predict is needed"):
            held.predict(trace, pandas.DataFrame(good)[:0])


@pytest.mark.filterwarnings("ignore")
def test_dates_are_read_by_a_function_that_takes_them(frame):
    def day(when):
        return (when - pandas.Timestamp("2024")).dt.days

    dated = frame.assign(d=pandas.date_range("2024", periods=len(frame)))
    assert day(dated["d"]).max() == len(frame) - 1
    model = mcmc.GLM.from_formula("y ~ day(d)", dated, family="gaussian")
    trace, when = drawn(model), pandas.date_range("2024", periods=3)
    wanted = model.predict(trace, dated[:3])
    for unit in ("s", "ns"):
        np.testing.assert_array_equal(model.predict(trace, {"d": when.astype(f"datetime64[{unit}]")}), wanted)
    for column, said in (([1, 2], "numbers; dates"), (when.tz_localize("UTC"), "dates with a time zone; dates,")):
        with pytest.raises(ValueError, match=f"holds {said}"):
            model.predict(trace, {"d": column})


def test_models_saved_before_kinds_of_columns_were_kept_predict(frame):
    model = mcmc.GLM.from_formula("y ~ x", frame, family="gaussian")
    del model._new_rows._kinds
    assert model.predict(drawn(model), {"x": [0.0]}).shape == (5, 1)


@pytest.mark.parametrize("formula", ["y ~ log(d)", "y ~ bs(d, df=4)", "y ~ poly(d, 2)", "y ~ d + x"])
def test_functions_of_dates_are_refused_in_words(frame, formula):
    dated = frame.assign(d=pandas.date_range("2024", periods=len(frame)))
    with pytest.raises(ValueError, match="is not all numbers or words: 'd' is datetime64.*days since the first"):
        mcmc.GLM.from_formula(formula, dated, family="gaussian")


def test_an_error_of_a_users_own_function_is_handed_on(frame):
    def broken(x):
        raise TypeError("of my own")

    with pytest.raises(TypeError, match="of my own"):
        mcmc.GLM.from_formula("y ~ broken(x)", frame, family="gaussian")
    with pytest.raises(TypeError, match="of my own"):
        broken(1)


@pytest.mark.filterwarnings("ignore")
def test_groups_by_truth_values_are_found_by_numbers_too(frame):
    model = mcmc.GLM.from_formula("y ~ x + (1 | b)", frame, family="gaussian")
    trace = drawn(model)
    wanted = model.predict(trace, {"x": [0.0, 1.0], "b": [True, False]})
    for flags in ([1, 0], [1.0, 0.0], ["True", "False"]):
        for options in ({}, {"new_levels": True}):
            np.testing.assert_array_equal(model.predict(trace, {"x": [0.0, 1.0], "b": flags}, **options), wanted)
