"""Columns of frames keep their names: in models, their errors, traces, what they print and draw."""

import json
import pickle
import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from test_mcmc_warnings import words_of

from fastrace import mcmc
from fastrace.likelihoods import GLMSource

FRAMES = {"dict": dict, "pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}
COLUMNS = {"pandas": pd.Series, "polars": pl.Series, "arrow": lambda y: pa.chunked_array([y])}
NAMES = ("age", "income")


def columns(n_rows=300, seed=0):
    rng = np.random.default_rng(seed)
    X = {name: rng.normal(size=n_rows) for name in NAMES}
    return X, (rng.random(n_rows) < 0.5).astype(np.int64)


@pytest.mark.parametrize("outcomes", [None, *COLUMNS])
@pytest.mark.parametrize("kind", FRAMES)
def test_frames_of_every_library_make_the_model_of_their_numbers(kind, outcomes):
    X, y = columns()
    model = mcmc.GLM(FRAMES[kind](X), y if outcomes is None else COLUMNS[outcomes](y), shuffle=3)
    plain = mcmc.GLM(np.column_stack(list(X.values())), y, shuffle=3)
    assert model.names == NAMES and plain.names == ("x0", "x1")
    np.testing.assert_array_equal(model.reference().center, plain.reference().center)


@pytest.mark.parametrize("make", [mcmc.GLM, mcmc.Softmax])
def test_two_columns_of_one_name_give_no_names_and_a_warning(make):
    X, y = columns()
    frame = pd.DataFrame(X).set_axis(["age", "age"], axis="columns")
    with pytest.warns(UserWarning, match="more than one column is named 'age': go by the numbers") as seen:
        assert make(frame, y).names == (("x0", "x1") if make is mcmc.GLM else ("x0[1]", "x1[1]"))
    assert seen[0].filename == __file__
    assert make(frame, y, names=["age", "income"]).names is not None
    with pytest.raises(ValueError, match=r"names has 'age.*' more than once"):
        make(frame, y, names=["age", "age"])


def test_columns_of_different_types_are_numbers_together():
    X, y = columns()
    frame = pd.DataFrame(X).assign(count=np.arange(300), member=y > 0, score=pd.array([1, 2, 3] * 100, dtype="Int64"))
    model = mcmc.GLM(frame, y, prior_sd=1.0)
    assert model.names == (*NAMES, "count", "member", "score")
    with pytest.raises(ValueError, match="X has columns that are not numbers: town; leave them out"):
        mcmc.GLM(frame.assign(town="Bern"), y)


@pytest.mark.parametrize("shuffle", [None, 1])
@pytest.mark.parametrize("make", [mcmc.GLM, mcmc.Softmax])
@pytest.mark.parametrize("kind", FRAMES)
def test_a_missing_number_is_named_by_its_row_and_column(kind, make, shuffle):
    X, y = columns()
    X["income"][7] = np.nan
    with pytest.raises(ValueError, match=re.escape("X[7, 'income'] is nan; finite numbers are needed")):
        make(FRAMES[kind](X), y, shuffle=shuffle)
    with pytest.raises(ValueError, match=re.escape("X[7, 1] is nan; finite numbers are needed")):
        make(np.column_stack(list(X.values())), y, shuffle=shuffle)


def test_missing_values_of_nullable_columns_are_named_too():
    X, y = columns()
    missing = [None if row == 5 else row for row in range(300)]
    for frame in (pd.DataFrame(X).assign(visits=pd.array(missing, dtype="Int64")),
                  pl.DataFrame(X).with_columns(visits=pl.Series(missing))):
        with pytest.raises(ValueError, match=re.escape("X[5, 'visits'] is nan")):
            GLMSource(frame, y)
    masked = np.ma.masked_array(np.column_stack(list(X.values())), False)
    masked[2, 1] = np.ma.masked
    with pytest.raises(ValueError, match="X has masked entries"):
        mcmc.GLM(masked, y)


@pytest.mark.parametrize("make, bad, message", [
    (mcmc.GLM, 2, "y[4] is 2; each outcome of the logistic family must be 0 or 1"),
    (mcmc.Softmax, -1, "y[4] is -1; classes must be whole numbers"),
])
def test_a_bad_outcome_is_named_by_its_row_before_the_shuffle(make, bad, message):
    X, y = columns()
    y[4] = bad
    with pytest.raises(ValueError, match=re.escape(message)):
        make(X, y, shuffle=1)


def test_names_are_given_by_hand_or_follow_from_the_model():
    X, y = columns()
    table = np.column_stack(list(X.values()))
    assert mcmc.GLM(table, y, names=["a", "b"]).names == ("a", "b")
    assert mcmc.GLM(X, y, names=["a", "b"]).names == ("a", "b")
    assert mcmc.Softmax(X, np.arange(300) % 3).names == ("age[1]", "income[1]", "age[2]", "income[2]")
    assert mcmc.ARCH(X["age"], order=2).names == ("log a[0]", "log a[1]", "log a[2]", "log nu")
    assert mcmc.Binned(mcmc.GLM(X, y)).names == NAMES
    terms = lambda theta, rows: -0.5 * (y[rows] - theta[0]) ** 2  # noqa: E731
    assert mcmc.FunctionModel(terms, 1, 300, names=["mu"]).names == ("mu",)
    for wrong in (["a"], "ab", ["a", "b", "c"]):
        with pytest.raises((TypeError, ValueError), match="names "):
            mcmc.GLM(table, y, names=wrong)


def test_a_trace_names_its_coordinates_everywhere():
    X, y = columns()
    kernel = mcmc.RacingMetropolis(mcmc.GLM(X, y, names=["age", "income of the household"]))
    trace = mcmc.sample(kernel, n_draws=120, n_chains=2, n_tune=50, rng=1)
    assert trace.names == ("age", "income of the household")
    lines = str(trace).splitlines()
    at = next(i for i, line in enumerate(lines) if " age " in line)
    assert lines[at + 1].lstrip().startswith("income of the household") and len(lines[at]) == len(lines[at + 1])
    assert list(trace.to_frame()["coordinate"]) == list(trace.names)
    assert json.loads(json.dumps(trace.to_dict()))["names"] == list(trace.names)
    assert "income of the household" in trace._repr_html_()
    assert pickle.loads(pickle.dumps(trace)).names == trace.names
    assert mcmc.sample(kernel, trace, n_draws=10).names == trace.names


def test_names_change_no_draw_and_no_checkpoint(tmp_path):
    X, y = columns()
    plain, named = (mcmc.RacingMetropolis(mcmc.GLM(x, y)) for x in (np.column_stack(list(X.values())), X))
    first = mcmc.sample(plain, n_draws=20, n_chains=1, n_tune=0, rng=1, checkpoint=tmp_path / "run")
    on = mcmc.sample(named, n_draws=30, n_chains=1, n_tune=0, rng=1, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(on.draws[:, :20], first.draws)
    assert on.names == NAMES and first.names == ("x0", "x1")


def test_a_plot_takes_names_of_coordinates():
    plt = pytest.importorskip("matplotlib.pyplot")
    X, y = columns()
    trace = mcmc.sample(mcmc.Metropolis(mcmc.GLM(X, y)), n_draws=20, n_chains=1, n_tune=0, rng=1)
    for which in ("income", ["income"], 1):
        ax = trace.plot("draws", coordinates=which)
        assert [line.get_label() for line in ax.lines] == ["chain 0, income"]
        np.testing.assert_array_equal(ax.lines[0].get_ydata(), trace.draws[0, :, 1])
    assert trace.plot("income").lines[0].get_label() == "chain 0, income"
    with pytest.raises(ValueError, match="coordinates has 'height'; .*age.*income"):
        trace.plot(coordinates="height")
    plt.close("all")


def test_warnings_and_errors_name_the_parameters():
    X, y = columns()
    kernel = mcmc.Metropolis(mcmc.FunctionModel(lambda theta, rows: np.zeros(len(rows)), 1, 5, prior_sd=1.0,
                                                names=["slope of age"]), covariance=[[1e-8]])
    said = " | ".join(words_of(kernel, [[0.0], [1.0]], n_draws=200, n_chains=2, n_tune=0))
    assert "R-hat of slope of age is" in said and "the effective sample size of slope of age" in said
    doubled = X | {"twice": 2.0 * X["age"]}
    with pytest.raises(ValueError, match="one direction of parameters 'age', 'twice'"):
        mcmc.GLM(doubled, y).reference()
    with pytest.raises(ValueError, match="as theta moves along parameters 'income'"):
        mcmc.GLM(X, X["income"] > 0.0, prior_sd=[1.0, np.inf]).reference()
    with pytest.raises(ValueError, match="as theta moves along parameters 'income.1.'"):
        mcmc.Softmax(X, X["income"] > 0.0, prior_sd=[1.0, np.inf]).reference()


@pytest.mark.parametrize("groups", [False, True])
def test_columns_without_names_have_one_name_everywhere(groups):
    X, y = columns()
    model = mcmc.GLM(np.column_stack(list(X.values())), y, groups=np.arange(300) % 3 if groups else None,
                     prior={"x1": mcmc.Normal(0.0, 1.0)})
    trace = mcmc.sample(mcmc.SurrogateMetropolis(model), n_draws=100, n_chains=2, rng=1)
    made = (model.names, trace.names, mcmc.compress(model).names, mcmc.laplace(model, 100, rng=1).names)
    assert all(names[:2] == ("x0", "x1") for names in made) and "theta[0]" not in str(trace)


def test_tables_print_scales_and_coefficients_before_effects():
    X, y = columns()
    model = mcmc.GLM(X, y, groups={"town": np.arange(300) % 30})
    trace = mcmc.sample(mcmc.SurrogateMetropolis(model), n_draws=100, n_chains=2, rng=1)
    corrected = mcmc.correct(model.unconstrain(trace.draws), mcmc.compress(model), model, 1)
    for table in (trace, pickle.loads(pickle.dumps(trace)), mcmc.laplace(model, 100, rng=1), corrected):
        first = [line.split()[0] for line in str(table).splitlines() if line.strip().split()[0] in model.names]
        assert first[:4] == ["age", "income", "sd(1|town)", "1|town[0]"] and len(first) == 20
        assert tuple(table.to_frame()["coordinate"]) == model.names


def test_a_trace_goes_on_with_its_own_chains_or_not_at_all():
    X, y = columns()
    kernel = mcmc.Metropolis(mcmc.GLM(X, y))
    trace = mcmc.sample(kernel, n_draws=200, n_chains=2, rng=1)
    with pytest.raises(ValueError, match="n_chains is 4 and init a trace of 2 chains"):
        mcmc.sample(kernel, trace, n_draws=10, n_chains=4)
    longer = [mcmc.sample(kernel, trace, n_draws=10, n_chains=n).draws for n in (None, 2)]
    np.testing.assert_array_equal(*longer)


def test_a_trace_is_continued_by_its_kernel_on_its_parameters():
    rng = np.random.default_rng(40)
    X, y = rng.normal(size=(300, 2)), rng.integers(0, 2, 300)
    model = mcmc.GLM(X, y, prior_sd=2.5, names=("a", "b"))
    trace = mcmc.sample(mcmc.SurrogateMetropolis(model), n_draws=100, n_chains=2, rng=1)
    for other, match in (
        (mcmc.RacingMetropolis(model), "of SurrogateMetropolis normal, and the kernel is RacingMetropolis"),
        (mcmc.SurrogateMetropolis(model, inner="hmc"), "normal, and the kernel is SurrogateMetropolis hmc"),
        (mcmc.SurrogateMetropolis(mcmc.GLM(X[:, :1], y, prior_sd=2.5)), "has 2 parameters, and the kernel's model 1"),
        (mcmc.SurrogateMetropolis(mcmc.GLM(X, y, prior_sd=2.5, names=("a", "c"))), "'b' where .* has 'c'"),
    ):
        with pytest.raises(ValueError, match=match):
            mcmc.sample(other, trace, n_draws=10)
    assert mcmc.sample(mcmc.SurrogateMetropolis(model), trace, n_draws=10).n_draws == 10


def test_messages_name_what_may_be_given():
    rng = np.random.default_rng(41)
    X, y = rng.normal(size=(60, 2)), rng.integers(0, 2, 60)
    with pytest.raises(TypeError, match="a model such as GLM"):
        mcmc.sample(X)
    with pytest.raises(TypeError, match="a dict of these by name of column, or 'weak'"):
        mcmc.GLM(X, y, prior=2.5)
    with pytest.raises(ValueError, match=r"such as the column frame\['town'\]"):
        mcmc.GLM(X, y, groups="town")
    model = mcmc.GLM(X, y, prior_sd=1.0, log_prior=lambda theta: 0.0 if theta[0] > 9.0 else -np.inf)
    with pytest.raises(ValueError, match="give such a point as init"):
        mcmc.sample(mcmc.RacingMetropolis(model), np.zeros(2), n_draws=10, n_chains=1)


LEARNED = {
    "gaussian": ("scale", lambda rng, mean: mean + rng.normal(scale=3.0, size=len(mean))),
    "student-t": ("scale", lambda rng, mean: mean + 3.0 * rng.standard_t(4, size=len(mean))),
    "gamma": ("dispersion", lambda rng, mean: rng.gamma(2.0, 0.5 * np.exp(mean))),
    "negative-binomial": ("dispersion", lambda rng, mean: rng.poisson(rng.gamma(2.0, 0.5 * np.exp(mean)))),
}
OVER_ROWS = {
    "surrogate": mcmc.SurrogateMetropolis,
    "all rows": mcmc.Metropolis,
    "batches": lambda model: mcmc.Metropolis(model, proposal="independent", batch=32),
    "frames": lambda model: mcmc.Metropolis(model, proposal="independent", batch=32, walk_share=0.01, frames=True),
    "no reference": lambda model: mcmc.Metropolis(model, control_variate=None),
    "race": mcmc.RacingMetropolis,
    "slice": mcmc.Slice,
    "racing slice": mcmc.RacingSlice,
}


def with_learned_scale(family, n=1500):
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    name, outcomes = LEARNED[family]
    return name, mcmc.GLM(x[:, None], outcomes(rng, 0.4 * x), family)


@pytest.mark.parametrize("family", LEARNED)
def test_every_kernel_and_door_records_a_learned_scale_itself(family):
    name, model = with_learned_scale(family)
    answer = mcmc.laplace(model, 1000, 1)
    assert model.names == ("x0", f"log({name})") and answer.names == ("x0", name)
    assert answer.sd[1] < 0.2 * answer.mean[1] and (answer.draws[:, 1] > 0.0).all()
    for kernel in (make(model) for make in OVER_ROWS.values()):
        trace = mcmc.sample(kernel, n_draws=250, n_chains=2, n_tune=150, rng=1)
        assert trace.names == ("x0", name)
        apart = trace.draws.mean(axis=(0, 1)) - answer.mean
        assert (np.abs(apart) < 6.0 * answer.sd / np.sqrt(np.minimum(trace.ess(), 500.0)) + 0.05 * answer.sd).all()
        last = trace.draws[:, -1]
        again = mcmc.sample(kernel, last, n_draws=20, n_chains=2, n_tune=0, rng=2)     # a start is what a draw is
        assert (np.abs(again.draws[:, 0] - last) < 15.0 * answer.sd).all()
        _, steps = kernel.run(np.random.default_rng(0), kernel.init(last[0]), 1)
        assert steps.draws.shape == (1, 2) and steps.draws[0, 1] > 0.0


def test_a_learned_scale_is_itself_after_correction_and_in_arviz():
    _, model = with_learned_scale("gaussian")
    about = model.reference()
    draws = about.center + np.random.default_rng(1).standard_normal((2, 200, 2)) @ about.factor.T
    trace = mcmc.correct(draws, mcmc.compress(model), model, 1)
    assert trace.names == ("x0", "scale") and abs(trace.draws[:, :, 1].mean() - 3.0) < 0.5
    pytest.importorskip("arviz")
    tree = trace.to_arviz()
    assert list(tree["posterior"]["theta"].coords["column"].values) == ["x0"]
    np.testing.assert_array_equal(tree["posterior"]["sigma"], trace.draws[:, :, 1])


@pytest.mark.parametrize("name", ["surrogate", "race"])
def test_starts_by_name_take_a_scale_or_its_logarithm(name):
    _, model = with_learned_scale("gaussian", 300)
    kernel = OVER_ROWS[name](model)
    said = mcmc.sample(kernel, np.array([0.4, 3.0]), n_draws=20, n_chains=1, n_tune=0, rng=1)
    for start in ({"x0": 0.4, "scale": 3.0}, {"log(scale)": np.log(3.0), "x0": 0.4}, {"x0": [0.4], "scale": 3.0}):
        trace = mcmc.sample(kernel, start, n_draws=20, n_chains=1, n_tune=0, rng=1)
        np.testing.assert_allclose(trace.draws, said.draws, rtol=1e-9)
    for bad, words in (
        ({"x0": 0.4}, "init lacks 'scale'"), ({"x0": 0.4, "scale": 1.0, "x9": 0.0}, "init holds 'x9'"),
        ({"z": 1.0}, "init holds 'z', which is no parameter, and lacks 'x0'; .* each of 'x0', 'scale'"),
        ({"x0": [0.4, 0.1], "scale": 1.0}, "one for each chain"),
        ({"x0": 0.4, "scale": -1.0}, "the scale 'scale' is -1"),
    ):
        with pytest.raises(ValueError, match=words):
            mcmc.sample(kernel, bad, n_draws=5, n_chains=1, rng=1)


def test_a_start_by_name_under_a_prior_of_the_logarithm():
    rng = np.random.default_rng(0)
    model = mcmc.GLM(rng.normal(size=(300, 1)), rng.normal(size=300), "gaussian", prior_sd=3.0)
    kernel = mcmc.RacingMetropolis(model)
    assert kernel.names == model.natural_names == ("x0", "log(scale)")
    one = mcmc.sample(kernel, {"x0": 0.0, "scale": 1.1}, n_draws=5, n_chains=1, n_tune=0, rng=1)
    other = mcmc.sample(kernel, [0.0, np.log(1.1)], n_draws=5, n_chains=1, n_tune=0, rng=1)
    np.testing.assert_array_equal(one.draws, other.draws)
    with pytest.raises(ValueError, match="scale = -1; a scale is a positive number"):
        mcmc.sample(kernel, {"x0": 0.0, "scale": -1.0}, n_draws=5, n_chains=1, rng=1)


def test_a_dict_of_starts_needs_names():
    kernel = mcmc.RacingMetropolis(mcmc.FunctionModel(lambda rows, theta: -0.5 * theta[:, 0], 1, 20))
    if kernel.names is None:
        with pytest.raises(TypeError, match="have no names"):
            mcmc.sample(kernel, {"x0": 0.0}, n_draws=5, n_chains=1, rng=1)


def test_slopes_are_called_as_their_columns_are():
    rng = np.random.default_rng(0)
    X, y, group = rng.standard_normal((60, 2)), rng.random(60) < 0.5, np.arange(60) % 3
    for slopes in ([1], ["age"]):
        model = mcmc.GLM(X, y, groups={"g": mcmc.Groups(group, slopes=slopes)}, names=["one", "age"])
        assert "age|g[0]" in model.names and "sd(age|g)" in model.names
    assert "x1|g[0]" in mcmc.GLM(X, y, groups={"g": mcmc.Groups(group, slopes=[1])}).names
