"""What `fastrace.mcmc` takes as an array goes by the names and indexes of pandas objects, or is refused.

`arguments` walks over the public names and finds every argument that may be an array. Each has its line in `BY_NAME`,
where names say what is meant, in `ROWS`, where an index does, or in `PLAIN`, with the reason why neither does. So a new
argument fails `test_every_argument_has_a_line` until its author has asked what the names of a frame mean there.
"""

import dataclasses
import inspect

import numpy as np
import pytest

from fastrace import mcmc
from fastrace.sources import CallableSource

pd = pytest.importorskip("pandas")

NAMES = ["a", "b", "c"]
POINT = np.array([0.3, -0.2, 0.1])
RNG = np.random.default_rng(5)
TABLE = RNG.normal(size=(400, 3)) * [1.0, 2.0, 0.5]
X = pd.DataFrame(TABLE, columns=NAMES)
Y = (RNG.random(400) < 1.0 / (1.0 + np.exp(-X["a"]))).astype(float)
MODEL = mcmc.GLM(X, Y, prior_sd=[1.0, 2.0, 3.0])
SHORT = {"n_draws": 20, "n_chains": 2, "n_tune": 0, "rng": 1}


def own(**more):
    """A model of a user's own terms, whose parameters have names."""
    return mcmc.FunctionModel(lambda theta, rows: -0.5 * (TABLE[rows] @ theta) ** 2, 3, 400, **more, names=NAMES)


def of_source(**more):
    def make():
        arms = np.zeros((2, 3))
        return CallableSource(lambda which, rows: -0.5 * (TABLE[rows] @ arms[which].T) ** 2, 2, 400), arms

    def slopes(theta, rows):
        x = TABLE[rows]
        return -(x @ theta)[:, None] * x, -x[:, :, None] * x[:, None, :]

    return mcmc.SourceModel(make, derivatives=slopes, **more, names=NAMES)


def with_predictor(**more):
    curves = [lambda eta: -0.5 * eta**2, lambda eta: -eta, lambda eta: -np.ones_like(eta), np.zeros_like, np.zeros_like]
    return mcmc.PredictorModel(curves, X, backend="numpy", **more)


def table(given):
    """As the one row of a frame or array."""
    return given.to_frame().T if hasattr(given, "to_frame") else given[None]


def classes(given):
    """As two classes, of a frame or array."""
    both = np.array([POINT, -POINT])
    return pd.DataFrame(both, columns=NAMES)[list(given.index)] if hasattr(given, "index") else both


def mixture(**more):
    return mcmc.MixtureOf(MODEL, np.arange(400) % 4, 2, **more)


def inside(given):
    model = mcmc.GLM(X, Y, log_prior=lambda theta: 0.0 if theta[0] > theta[1] else -np.inf)
    return [model.possible(given), not model.possible(-given)]


def square(given):
    """A covariance whose diagonal is the square of the numbers."""
    made = np.diag(np.square(np.asarray(given))) + 0.001
    return pd.DataFrame(made, given.index, given.index) if hasattr(given, "index") else made


def spread(kernel):
    return kernel.init(np.zeros(3)).tuning.factor


def reference(make):
    return lambda given: make(MODEL, control_variate=given).reference.theta_hat


def draws(given):
    """Draws of the expansion as a frame with these columns, or as an array."""
    about = MODEL.reference()
    made = about.center + np.random.default_rng(3).standard_normal((300, 3)) @ about.factor.T
    frame = pd.DataFrame(made, columns=NAMES)
    return frame[list(given.index)] if hasattr(given, "index") else made


def expected(theta_hat):
    return mcmc.SurrogateMetropolis(MODEL, psi_hat=theta_hat).compressed.psi_hat


def checked(given):
    made = mcmc.correct(draws(POINT), MODEL.reference(), MODEL, decision="race", rng=1)
    found = mcmc.check_bias(MODEL, made, 50, rng=2, draws=draws(given), surrogate=MODEL.reference())
    return np.array([found.rate, *found.interval])


KERNELS = (mcmc.FireflyMetropolis, mcmc.Metropolis, mcmc.PoissonMinibatchMetropolis, mcmc.RacingMetropolis,
           mcmc.RacingSlice, mcmc.Slice, mcmc.VariableSelection)
COMPRESSED = mcmc.compress(MODEL)
BY_NAME = {
    **{f"{kernel.__name__}(control_variate)": reference(kernel) for kernel in KERNELS},
    "MinibatchMetropolis(control_variate)": reference(mcmc.PoissonMinibatchMetropolis),
    "RowMetropolis(control_variate)": reference(mcmc.RacingMetropolis),
    "RowKernel(control_variate)": reference(mcmc.Slice),
    **{f"{kernel.__name__}(covariance)": lambda given, kernel=kernel: spread(kernel(own(), covariance=square(given)))
       for kernel in (mcmc.Metropolis, mcmc.RacingMetropolis, mcmc.RacingSlice, mcmc.Slice)},
    "RowMetropolis(covariance)": lambda given: spread(mcmc.RacingMetropolis(own(), covariance=square(given))),
    "RowKernel(covariance)": lambda given: spread(mcmc.Slice(own(), covariance=square(given))),
    "RowKernel.init(position)": lambda given: mcmc.Slice(MODEL).init(given).position,
    "HMC(psi_hat)": lambda given: mcmc.HMC(MODEL, psi_hat=given).compressed.psi_hat,
    "OnSurrogate.init(position)": lambda given: mcmc.SurrogateMetropolis(MODEL).init(given).position,
    "SurrogateMetropolis(psi_hat)": expected,
    "VariableSelection.init(position)": lambda given: mcmc.VariableSelection(MODEL).init(given).position,
    "sample(init)": lambda given: mcmc.sample(
        mcmc.Metropolis(MODEL, proposal="random-walk"), given, **SHORT).draws,
    "compress(psi_hat)": lambda given: mcmc.compress(MODEL, given).psi_hat,
    "correct(draws)": lambda given: mcmc.correct(draws(given), MODEL.reference(), MODEL, rng=1).draws,
    "check_bias(draws)": checked,
    "Compressed.log_likelihood(psi)": COMPRESSED.log_likelihood,
    "Compressed.gradient(psi)": COMPRESSED.gradient,
    "Compressed.hessian_product(vector)": COMPRESSED.hessian_product,
    "Compressed.distance(psi)": COMPRESSED.distance,
    "Model.constrain(theta)": MODEL.constrain,
    "Model.unconstrain(values)": MODEL.unconstrain,
    "Model.log_posteriors(theta)": lambda given: MODEL.log_posteriors(table(given)),
    "Model.possible(theta)": inside,
    "Model.reference(theta_hat)": lambda given: MODEL.reference(given).theta_hat,
    "GLMRows.expand_seen(psi)": lambda given: MODEL.expand_seen(given)[1],
    "Binned(at)": lambda given: mcmc.Binned(MODEL, given).covariance,
    "MixtureOf(parameters)": lambda given: mixture(parameters=classes(given)).parameters,
    "FunctionModel(start)": lambda given: own(start=given).start,
    "SourceModel(start)": lambda given: of_source(start=given).start,
    "_TermsModel(start)": lambda given: own(start=given).start,
    "PredictorModel.predictors(theta)": lambda given: with_predictor().predictors(given, slice(5)),
    "GLM(prior_mean)": lambda given: mcmc.GLM(X, Y, prior_sd=1.0, prior_mean=given).prior_mean,
    "GLM(prior_sd)": lambda given: mcmc.GLM(X, Y, prior_sd=np.exp(given)).prior_precision,
    "Softmax(prior_mean)": lambda given: mcmc.Softmax(X, Y, prior_sd=1.0, prior_mean=given).prior_mean,
    "Softmax(prior_sd)": lambda given: mcmc.Softmax(X, Y, prior_sd=np.exp(given)).prior_precision,
    "Model(prior_mean)": lambda given: own(prior_sd=1.0, prior_mean=given).prior_mean,
    "Model(prior_sd)": lambda given: own(prior_sd=np.exp(given)).prior_precision,
    "FunctionModel(prior_mean)": lambda given: own(prior_sd=1.0, prior_mean=given).prior_mean,
    "FunctionModel(prior_sd)": lambda given: own(prior_sd=np.exp(given)).prior_precision,
    "SourceModel(prior_mean)": lambda given: of_source(prior_sd=1.0, prior_mean=given).prior_mean,
    "SourceModel(prior_sd)": lambda given: of_source(prior_sd=np.exp(given)).prior_precision,
    "PredictorModel(prior_mean)": lambda given: with_predictor(prior_sd=1.0, prior_mean=given).prior_mean,
    "PredictorModel(prior_sd)": lambda given: with_predictor(prior_sd=np.exp(given)).prior_precision,
}

TRACE = mcmc.sample(MODEL, n_draws=200, n_chains=2, rng=1)
GROUPED = mcmc.GLM(X, Y, groups={"g": np.arange(400) % 4})
OF_GROUPS = mcmc.sample(GROUPED, n_draws=200, n_chains=2, rng=1)
SORTED = mcmc.Softmax(X, np.arange(400) % 3, groups={"g": np.arange(400) % 4})
OF_CLASSES = mcmc.sample(SORTED, n_draws=200, n_chains=2, rng=1)
CODES, ONES = pd.Series(np.arange(400) % 4), pd.Series(np.ones(400))
EACH = pd.DataFrame(np.ones((400, 3)))


def kinds(**more):
    return mcmc.Softmax(**{"X": X, "y": CODES, "prior_sd": 1.0} | more)


ROWS = {        # by the argument whose rows are shuffled, which another holds in order
    "GLM(X)": lambda order: mcmc.GLM(X.iloc[order], Y),
    "GLM(y)": lambda order: mcmc.GLM(X, Y.iloc[order]),
    "GLM(offset)": lambda order: mcmc.GLM(X, Y, offset=ONES.iloc[order]),
    "GLM(weights)": lambda order: mcmc.GLM(X, Y, weights=ONES.iloc[order]),
    "GLM(trials)": lambda order: mcmc.GLM(X, Y, "binomial", trials=ONES.iloc[order]),
    "GLM(groups)": lambda order: mcmc.GLM(X, Y, groups=CODES.iloc[order]),
    "GLM.predict(X)": lambda order: MODEL.predict(TRACE, X.iloc[order], offset=ONES),
    "GLM.predict(offset)": lambda order: MODEL.predict(TRACE, X, offset=ONES.iloc[order]),
    "GLM.predict(groups)": lambda order: GROUPED.predict(OF_GROUPS, X, groups=CODES.iloc[order]),
    "Softmax(X)": lambda order: kinds(X=X.iloc[order]),
    "Softmax(y)": lambda order: kinds(y=CODES.iloc[order]),
    "Softmax(offset)": lambda order: kinds(y=CODES % 3, offset=EACH.iloc[order]),
    "Softmax(weights)": lambda order: kinds(weights=ONES.iloc[order]),
    "Softmax(groups)": lambda order: kinds(groups=CODES.iloc[order]),
    "Softmax.predict(X)": lambda order: SORTED.predict(OF_CLASSES, X.iloc[order], groups=CODES),
    "Softmax.predict(offset)": lambda order: SORTED.predict(OF_CLASSES, X, groups=CODES, offset=EACH.iloc[order]),
    "Softmax.predict(groups)": lambda order: SORTED.predict(OF_CLASSES, X, groups=CODES.iloc[order]),
    "Groups(codes)": lambda order: mcmc.Groups(CODES.iloc[order], slopes=X),
    "Groups(slopes)": lambda order: mcmc.Groups(CODES, slopes=X.iloc[order]),
    "ARCH(returns)": lambda order: mcmc.ARCH(X["a"].iloc[order], 1, weights=ONES),
    "ARCH(weights)": lambda order: mcmc.ARCH(X["a"], 1, weights=ONES.iloc[order]),
    "MixtureOf(groups)": lambda order: mcmc.MixtureOf(MODEL, CODES.iloc[order], 2),
    "MixtureOf(weights)": lambda order: mixture(parameters=classes(ONES[:3].set_axis(NAMES)),
                                                weights=pd.Series([0.5, 0.5], np.argsort(order)[:2])),
    "PredictorModel(X)": lambda order: mcmc.PredictorModel(lambda eta, y: eta, X.iloc[order], [Y]),
    "PredictorModel(columns)": lambda order: mcmc.PredictorModel(lambda eta, y: eta, X, [Y.iloc[order]]),
    "PredictorModel(offset)": lambda order: with_predictor(offset=ONES.iloc[order]),
    "compress(chunks)": lambda order: mcmc.compress(MODEL, chunks=[(X, Y.iloc[order])]),
}

MEANT = "names of what it holds: a dict, words or objects of this package"
MADE = "made by the package, and checked there"
PLAIN = {
    **dict.fromkeys(["ARCH(prior)", "GLM(prior)", "GLM(group_prior)", "GLM.from_formula(prior)", "_TermsModel(prior)",
                     "GLM.from_formula(group_prior)", "Softmax(prior)", "Softmax(group_prior)"], MEANT),
    "GLM.from_formula(frame)": "its columns are named by the formula, and its rows are those of the options",
    "GLM.from_formula(options)": "those of GLM, which has its own lines",
    "Softmax.from_formula(prior)": MEANT,
    "Softmax.from_formula(frame)": "its columns are named by the formula, and its rows are those of the options",
    "Softmax.from_formula(options)": "those of Softmax, which has its own lines",
    "ARCH(prior_mean)": "Model(prior_mean) has the line",
    "ARCH(prior_sd)": "Model(prior_sd) has the line",
    "VariableSelection(always)": "numbers or names of parameters, in any order",
    "FunctionModel(third_derivatives)": "rows are numbers that a function of the user's is asked by",
    "SourceModel(third_derivatives)": "rows are numbers that a source of the user's is asked by",
    "_TermsModel(third_derivatives)": "rows are numbers that a function of the user's is asked by",
    "Categorical(log_prior)": "states have numbers alone",
    "Gibbs.init(position)": "variables have numbers alone",
    "RacingGibbs.init(position)": "variables have numbers alone",
    "SurrogateGibbs.init(position)": "tested with its own names below",
    "Softmax.expand_seen(psi)": "tested with its own names below",
    "effective_sample_size(chains)": "draws of one number; chains and draws may stand in any order of chains",
    "PredictorModel.curve(eta)": "an entry for each row that the same call names by number",
    "Gibbs.draw(engine)": MADE,
    "Gibbs.draw(losses)": MADE,
    "Groups.reordered(order)": MADE,
    "Kernel.init(position)": "a protocol, whose kernels have their own lines",
    "Kernel.init(rng)": "a generator",
    "Kernel.run(state)": MADE,
    "Kernel.step(state)": MADE,
    "LogDensity.evaluate(theta)": MADE,
    "PredictorModel.terms(theta)": MADE,
    "PredictorModel.terms(rows)": "numbers of rows",
    "PredictorModel.curve(rows)": "numbers of rows",
    "PredictorModel.predictors(rows)": "numbers of rows",
    **dict.fromkeys(["GLM.predict(trace)", "Softmax.predict(trace)", "MixtureOf.nameless(trace)",
                     "MixtureOf.occupied(trace)", "MixtureOf.together(trace)", "SurrogateGibbs.acceptance(trace)",
                     "SurrogateGibbs.judged(trace)"], "a trace, whose names are those of its kernel"),
    "Trace.plot(ax)": "axes",
    "Result.plot(ax)": "axes",
    "Trace.plot(coordinates)": "names or numbers",
    "Trace.to_arviz(model)": "a model",
}


def arguments():
    """Every argument that may be an array, as "Class(argument)", "Class.method(argument)" or "function(argument)"."""
    found = set()
    for name in mcmc.__all__:
        thing = getattr(mcmc, name)
        functions = [(name, thing)] if inspect.isfunction(thing) else []
        for home in inspect.getmro(thing) if inspect.isclass(thing) else ():
            if not home.__module__.startswith("fastrace.") or home.__module__.startswith("fastrace.mcmc.doors"):
                continue
            made = dataclasses.is_dataclass(home) and home is not mcmc.Categorical
            for method, value in vars(home).items():
                function = getattr(value, "__func__", value)
                if inspect.isfunction(function) and not (method.startswith("_") and (method != "__init__" or made)):
                    functions.append((home.__name__ + ("" if method == "__init__" else f".{method}"), function))
        for called, function in functions:
            if function.__module__.startswith("fastrace.mcmc.doors"):
                continue
            for parameter in list(inspect.signature(function).parameters.values()):
                if "Callable" not in str(parameter.annotation).split("|")[0] and any(
                        word in str(parameter.annotation) for word in ("Array", "Any")):
                    found.add(f"{called}({parameter.name})")
    return found


def test_every_argument_has_a_line():
    lines = [*BY_NAME, *ROWS, *PLAIN]
    assert len(lines) == len(set(lines))
    assert arguments() - set(lines) == set(), "new arguments: give each a line"
    assert set(lines) - arguments() == set(), "lines of no argument"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("door", BY_NAME)
def test_numbers_of_parameters_go_by_their_names(door):
    call = BY_NAME[door]
    wanted = call(POINT)
    for given in (pd.Series(POINT, NAMES), pd.Series(POINT, NAMES)[["c", "a", "b"]]):
        np.testing.assert_array_equal(call(given), wanted)
    if door not in ("correct(draws)", "check_bias(draws)", "MixtureOf(parameters)"):
        np.testing.assert_array_equal(call(pd.Series(POINT)), wanted)
        with pytest.raises(ValueError, match="has the names 'a', 'b', 'z'; those of the .*, 'a.*', 'b.*', 'c.*', are"):
            call(pd.Series(POINT, ["a", "b", "z"]))
    assert not np.array_equal(call(POINT[[2, 0, 1]]), wanted) or "(draws)" in door or "parameters)" in door


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("door", ROWS)
def test_rows_in_another_order_are_refused(door):
    order = np.roll(np.arange(400), 1)
    with pytest.raises(ValueError, match="pandas indexes of .* differ"):
        ROWS[door](order)
    ROWS[door](np.arange(400))


# What is taken in several forms.


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "dict", "list"])
def test_starts_and_draws_in_frames_of_every_library(kind):
    starts = np.array([POINT, -POINT])
    frame = pd.DataFrame(starts, columns=NAMES)[["b", "c", "a"]]
    made = {"pandas": lambda held: held, "polars": lambda held: pytest.importorskip("polars").from_pandas(held),
            "arrow": lambda held: pytest.importorskip("pyarrow").Table.from_pandas(held, preserve_index=False),
            "dict": lambda held: {name: held[name].to_numpy() for name in held},
            "list": lambda held: [row for _, row in held.iterrows()]}[kind]
    kernel = mcmc.Metropolis(MODEL, proposal="random-walk")
    with pytest.warns(UserWarning, match="R-hat"):
        wanted = mcmc.sample(kernel, starts, **SHORT).draws
    with pytest.warns(UserWarning, match="R-hat"):
        np.testing.assert_array_equal(mcmc.sample(kernel, made(frame), **SHORT).draws, wanted)
    about, two = MODEL.reference(), np.stack([draws(POINT), draws(POINT) + 0.01]).astype(float)
    exact = mcmc.correct(two, about, MODEL, rng=1).draws
    chains = [pd.DataFrame(own, columns=NAMES)[["c", "b", "a"]] for own in two]
    if kind == "list":
        np.testing.assert_array_equal(mcmc.correct(chains, about, MODEL, rng=1).draws, exact)
    else:
        np.testing.assert_array_equal(mcmc.correct(made(chains[0]), about, MODEL, rng=1).draws,
                                      mcmc.correct(two[0], about, MODEL, rng=1).draws)


def test_an_expansion_of_classes_takes_coefficients_by_their_names():
    model = kinds(y=CODES % 3)
    point = np.linspace(-0.5, 0.5, 6)
    wanted = model.expand_seen(point)[1]
    named = pd.Series(point, [f"{column}[{kind}]" for kind in (1, 2) for column in NAMES])
    np.testing.assert_array_equal(model.expand_seen(named.sample(frac=1.0, random_state=1))[1], wanted)
    with pytest.raises(ValueError, match=r"psi has the names .*'z'.*; those of the .*, 'a\[1\]'"):
        model.expand_seen(named.rename({"b[2]": "z"}))


def test_draws_in_frames_hold_a_scale_by_either_name_and_nothing_else():
    model = mcmc.GLM(X, X["a"] + RNG.normal(size=400), "gaussian")
    about = model.reference()
    made = about.center + np.random.default_rng(3).standard_normal((300, 4)) @ about.factor.T
    frame = pd.DataFrame(made, columns=model.names)
    wanted = mcmc.correct(made, about, model, rng=1).draws
    natural = frame.assign(scale=np.exp(frame.pop("log(scale)")))[["scale", "b", "c", "a"]]
    np.testing.assert_allclose(mcmc.correct(natural, about, model, rng=1).draws, wanted)
    np.testing.assert_array_equal(mcmc.correct(pd.DataFrame(made), about, model, rng=1).draws, wanted)
    for odd, words in ((natural.rename(columns={"b": "z"}), "lack 'b'"), (natural.assign(more=1.0), "hold 'more'")):
        with pytest.raises(ValueError, match=f"draws by name {words}"):
            mcmc.correct(odd, about, model, rng=1)
    twice = natural.set_axis(["scale", "a", "a", "b"], axis=1)
    with pytest.raises(ValueError, match="more than one column 'a'"):
        mcmc.correct(twice, about, model, rng=1)


def test_starts_of_classes_go_by_their_names():
    kernel = mcmc.SurrogateGibbs(mixture())
    position = kernel.init(None, 3).position
    names = list(kernel.names)
    assert len(names) == len(position)
    given = pd.Series(position, names)[np.random.default_rng(0).permutation(names)]
    np.testing.assert_array_equal(kernel.init(given).position, position)


def test_parameters_of_classes_are_found_by_name():
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.normal(size=(600, 2)), columns=["a", "b"])
    who = np.repeat(np.arange(30), 20)
    slopes = np.array([[3.0, 0.0], [0.0, 3.0]])
    y = (x * slopes[who % 2]).sum(axis=1) + rng.normal(size=600)
    model = mcmc.GLM(x, y, "gaussian", prior=mcmc.Normal(0.0, 2.5))
    given = pd.DataFrame({"a": slopes[:, 0], "b": slopes[:, 1], "scale": 1.0})
    for columns in (["a", "b", "scale"], ["scale", "b", "a"]):
        made = mcmc.MixtureOf(model, who, 2, parameters=given[columns], weights=[0.5, 0.5])
        trace = mcmc.sample(mcmc.SurrogateGibbs(made), n_draws=100, n_chains=1, rng=1)
        assert (trace.to_arrays()["posterior"]["label"][0, -1] == np.arange(30) % 2).all()
    with pytest.raises(ValueError, match="parameters has the names 'a', 'b', 'width'; those of the parameters"):
        mcmc.MixtureOf(model, who, 2, parameters=given.rename(columns={"scale": "width"}))


def test_a_covariance_is_that_of_its_names_on_both_sides():
    made = pd.DataFrame(np.diag([1.0, 4.0, 9.0]) + 0.5, NAMES, NAMES)
    wanted = spread(mcmc.Metropolis(own(), covariance=made.to_numpy()))
    other = made.loc[["b", "c", "a"], ["c", "a", "b"]]
    np.testing.assert_array_equal(spread(mcmc.Metropolis(own(), covariance=other)), wanted)
    with pytest.raises(ValueError, match="the index of covariance has the names 'a', 'b', 'z'"):
        mcmc.Metropolis(own(), covariance=made.rename({"c": "z"}))


def test_an_expansion_of_other_columns_says_by_name_where_to_expand():
    pilot = mcmc.GLM(X[["c", "a", "b"]][:100], Y[:100], prior_sd=2.0)
    about = mcmc.compress(pilot)
    place = mcmc.compress(MODEL, about).psi_hat
    np.testing.assert_array_equal(place, about.mode[[1, 2, 0]])
    with pytest.raises(ValueError, match="psi_hat has the names 'a', 'b', 'z'"):
        mcmc.compress(MODEL, mcmc.compress(mcmc.GLM(X.rename(columns={"c": "z"}), Y, prior_sd=2.0)))


def test_decisions_are_checked_along_a_trace_of_the_same_parameters():
    kernel = mcmc.RacingMetropolis(MODEL)
    trace = mcmc.sample(kernel, n_draws=100, n_chains=1, rng=1)
    other = mcmc.RacingMetropolis(mcmc.GLM(X[["b", "a", "c"]], Y, prior_sd=2.0))
    with pytest.raises(ValueError, match="the trace is of 'a', 'b', 'c', and the kernel of 'b', 'a', 'c'"):
        mcmc.check_bias(other, trace, 10)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_widths_of_all_classes_go_by_the_names_of_columns(n_classes):
    y = np.arange(400) % n_classes
    wanted = mcmc.Softmax(X, y, prior_sd=np.tile([1.0, 2.0, 4.0], n_classes - 1)).prior_precision
    given = pd.Series({"c": 4.0, "a": 1.0, "b": 2.0})
    np.testing.assert_array_equal(mcmc.Softmax(X, y, prior_sd=given).prior_precision, wanted)


def test_parameters_of_a_users_own_terms_are_called_as_the_columns():
    model = with_predictor()
    assert model.names == ("a", "b", "c") and mcmc.PredictorModel(model.term, TABLE, backend="numpy").names is None
