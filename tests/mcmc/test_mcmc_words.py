"""What a user reads who does not know our words: arguments by other names, and the priors of a printed model."""

import numpy as np
import pytest

from fastrace import mcmc
from fastrace._base._arguments import MEANT, names_meant


def made():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(300), rng.normal(3.0, 2.0, size=300)])
    return X, rng.random(300) < 0.5, rng.integers(0, 10, 300)


def test_arguments_by_the_names_of_other_libraries_are_told_apart():
    X, y, codes = made()
    model = mcmc.GLM(X, y, prior_sd=1.0)
    for call, said in ((lambda: mcmc.sample(model, draws=5), r"^sample\(\) .* 'draws': n_draws= is meant$"),
                       (lambda: mcmc.sample(model, tune=5), r"'tune': n_tune= is meant$"),
                       (lambda: mcmc.sample(model, random_seed=5), "'random_seed': rng= is meant$"),
                       (lambda: mcmc.sample(model, target=0.9), "'target'; it has kernel, init, n_draws"),
                       (lambda: mcmc.laplace(model, seed=5), "'seed': rng= is meant$"),
                       (lambda: mcmc.GLM(X, y, group=codes), r"^GLM\(\) .* 'group': groups= is meant$"),
                       (lambda: mcmc.GLM(X, y, priors=None), "'priors': prior= is meant$"),
                       (lambda: mcmc.Softmax(X, y, draws=5), r"^Softmax\(\) .* 'draws'; it has X, y, n_classes")):
        with pytest.raises(TypeError, match=said):
            call()


def test_words_that_are_meant_are_arguments_somewhere():
    """And no word leads away from an argument of the same name."""
    @names_meant
    def door(n_draws, n_tune, n_chains, threads, rng, progress, init, offset, weights, scale, df):
        return n_draws

    assert door(*range(11)) == 0
    for word, meant in MEANT.items():
        with pytest.raises(TypeError, match=f"{word!r}: {meant}= is meant"):
            door(**{word: 1})


def test_a_printed_model_shows_its_priors():
    X, y, codes = made()
    sd = X[:, 1].std()
    assert str(mcmc.GLM(X, y)).splitlines()[1:] == ["  x0, x1 ~ flat"]
    assert str(mcmc.GLM(X, y, prior_sd=[1.0, np.inf])).splitlines()[1:] == ["  x0 ~ Normal(0, 1)", "  x1 ~ flat"]
    groups = mcmc.Groups(codes, slopes=[1], name="g")
    model = mcmc.GLM(X, X[:, 1], "gaussian", groups=groups, scale_prior=mcmc.Exponential(2.0),
                     prior={"x1": mcmc.StudentT(3.0, 0.0, 0.5)}, group_prior=mcmc.HalfCauchy(0.25))
    assert repr(model) == str(model).splitlines()[0]
    assert str(model).splitlines()[1:] == [
        f"  x0 ~ Normal({X[:, 1].mean():.4g}, {2.5 * sd:.4g}), of centred columns", "  x1 ~ StudentT(3, 0, 0.5)",
        "  scale ~ Exponential(2)", "  sd(1|g), sd(x1|g) ~ HalfCauchy(0.25)", "  correlation(1,x1|g) ~ LKJ(2)"]
    wide = np.column_stack([X, X[:, 1] ** 2, X[:, 1] ** 3])
    model = mcmc.GLM(wide, y, prior=mcmc.Horseshoe(1.0))
    assert "  x1, x2, x3 ~ Horseshoe" in str(model) and "  local_scale(x1), local_scale(x2)" in str(model)
    model = mcmc.GLM(X, y, groups=codes, prior=[mcmc.Normal(0.0, mcmc.HalfNormal(2.0)),
                                                mcmc.LogDensity(lambda theta: (0.0, np.zeros_like(theta)))])
    assert str(model).splitlines()[2:] == ["  x1 ~ Normal(0, sd(coefficients))", "  sd(coefficients) ~ HalfNormal(2)",
                                           "  sd(1|group) ~ HalfNormal(2.5)", "  and a log density of your own"]
    text = str(mcmc.Softmax(X, np.arange(300) % 3, groups=codes))
    assert "  x1[1], x1[2] ~ Normal(0, " in text and "sd(1|group)[1], sd(1|group)[2] ~ HalfNormal(" in text


def test_one_entry_does_not_stand_for_all_rows():
    X, _, _ = made()
    y, n = np.ones(len(X)), len(X)
    for name, family in (("offset", "poisson"), ("weights", "poisson"), ("trials", "binomial")):
        words = rf"{name} has shape \(1,\).*of shape \({n},\), one for each row.*the number itself, {name}=1"
        with pytest.raises(ValueError, match=words):
            mcmc.GLM(X, y, family, **{name: [1]})
        mcmc.GLM(X, y, family, **{name: 1})
        mcmc.GLM(X[:1], y[:1], family, prior_sd=1.0, **{name: [1]})


def test_arguments_of_sample_are_refused_before_a_draw():
    X, y, _ = made()
    kernel, drawn = mcmc.Metropolis(mcmc.GLM(X, y)), []
    inner = kernel.run
    kernel.run = lambda *args, **options: drawn.append(1) or inner(*args, **options)
    for options, kind, words in (
        ({"callback": lambda chain: 1}, TypeError, r"callback is called as callback\(chain, steps\)"),
        ({"checkpoint": 5}, TypeError, "checkpoint is 5; the path of a file is needed"),
        ({"checkpoint_every": 0}, ValueError, "checkpoint_every is 0; a number of seconds above 0 is needed"),
        ({"init": [0.0, np.nan]}, ValueError, "init is .*nan.*; finite numbers, where chains start, are needed"),
        ({"init": [[0.0, 0.0], [np.inf, 0.0]]}, ValueError, "init is .*inf.*; finite numbers"),
    ):
        with pytest.raises(kind, match=words):
            mcmc.sample(kernel, n_draws=5, n_chains=2, rng=1, **options)
    assert not drawn
    with pytest.raises(ValueError, match=r"psi_hat is .*nan.*, of shape \(2,\); 2 finite parameters are needed"):
        mcmc.compress(mcmc.GLM(X, y), [np.nan] * 2)


def test_probabilities_of_inclusion_of_what_is_no_such_trace():
    X, y, _ = made()
    kernel = mcmc.VariableSelection(mcmc.GLM(X, y, prior_sd=1.0))
    other = mcmc.sample(mcmc.Metropolis(mcmc.GLM(X, y, prior_sd=1.0)), n_draws=9, n_chains=1, n_tune=0, rng=1)
    for bad, words in ((None, "trace is None"), (other.draws, "the Trace that"), (other, "is of Metropolis, whose")):
        with pytest.raises(TypeError, match=words):
            kernel.inclusion(bad)


@pytest.mark.parametrize("found", [None, np.zeros(2), "much", 1j])
def test_a_log_prior_that_returns_no_number(found):
    X, y, _ = made()
    words = "log_prior returned .* at .*; one number, the log density of all 2 parameters, is needed"
    model = mcmc.GLM(X, y, prior_sd=1.0, log_prior=lambda theta: found)
    for call in (lambda: mcmc.sample(model, n_draws=5, rng=1), lambda: mcmc.laplace(model, rng=1),
                 lambda: mcmc.sample(mcmc.RacingMetropolis(model), n_draws=5, rng=1)):
        with pytest.raises(ValueError, match=words):
            call()


@pytest.mark.parametrize(("y", "words"), [
    ([0, 2**70], f"y holds {2**70}; classes are whole numbers from 0 up, without gaps"),
    ([0, -(2**70)], f"y holds -{2**70}; classes"), ([0, None], "y is missing in row 1; every row needs a class"),
    ([0, 2**40], f"the largest class of y is {2**40}, and y has 2 rows"),
])
def test_a_class_that_is_none_is_named(y, words):
    with pytest.raises(ValueError, match=words):
        mcmc.Softmax(np.ones((2, 1)), y)


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_missing_word_is_named_by_its_row(missing):
    pd = pytest.importorskip("pandas")
    words, index = ["ash", "elm", missing, "ash"], [f"r{k}" for k in range(4)]
    for y in (words, np.array(words, dtype=object), pd.Series(words), pd.Categorical(words)):
        with pytest.raises(ValueError, match="^y is missing in row 2; every row needs a class"):
            mcmc.Softmax(np.ones((4, 1)), y)
    for y in (pd.Series(words, index=index), pd.Series(words, index=index, dtype="category")):
        with pytest.raises(ValueError, match=r"^y is missing in row 2 \(row 'r2'\); every row needs a class"):
            mcmc.Softmax(np.ones((4, 1)), y)


@pytest.mark.parametrize("prior", [mcmc.LogDensity(lambda theta: 0.0), mcmc.Normal(0.0, 1.0), "weak"])
def test_a_prior_that_is_no_function_is_told_where_to_go(prior):
    X, y, _ = made()
    for make in mcmc.GLM, mcmc.Softmax:
        with pytest.raises(TypeError, match="log_prior is .* a function .* is needed: objects, .* are given as prior="):
            make(X, y, log_prior=prior)
    with pytest.raises(TypeError, match="log_prior is .* a function of the parameters is needed$"):
        mcmc.FunctionModel(lambda theta, rows: np.zeros(len(rows)), 1, 10, log_prior=prior)


@pytest.mark.parametrize("make", [mcmc.GLM, mcmc.Softmax])
def test_a_bad_row_of_a_frame_is_called_as_its_index_does(make):
    """By all arguments that have an entry for each row, unless the index counts from 0."""
    pd = pytest.importorskip("pandas")
    index = [f"r{k}" for k in range(6)]
    X, y = pd.DataFrame({"a": np.arange(6.0), "b": 1.0}, index=index), pd.Series([0, 1] * 3, index=index)
    bad = {"X": X.mask(X == 2.0), "y": y.astype(float).mask(y.index == "r2"), "groups": y.astype(object).mask(
        y.index == "r2"), "weights": pd.Series([1.0, 1, -1, 1, 1, 1], index=index)}
    for name, value in bad.items():
        place = "the group of row 2" if name == "groups" else r"X\[2, 'a'\]" if name == "X" else rf"{name}\[2\]"
        with pytest.raises(ValueError, match=rf"^{place} \(row 'r2'\) "):
            make(**({"X": X, "y": y} | {name: value}))
        with pytest.raises(ValueError, match=rf"^{place} (is|of groups)"):
            make(**{key: held.reset_index(drop=True) for key, held in ({"X": X, "y": y} | {name: value}).items()})
    with pytest.raises(ValueError, match=r"^X\[2, 'a'\] \(row 'r2'\) is nan"):
        make(bad["X"], y.to_numpy())
    with pytest.raises(ValueError, match=r"^X\[2, 0\] is nan"):
        make(bad["X"].to_numpy(), y.to_numpy())
