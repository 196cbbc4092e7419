"""Predictions of new frames by models made by formulas: as the formula made the rows of the model."""

import pickle
import re

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
