"""Odd data through every kind of model: the posterior, a refusal that names what is wrong, or a warning; no silence."""

import re
import warnings

import numpy as np
import pytest
from scipy import sparse

from fastrace import mcmc
from fastrace.mcmc.models._modes import ImproperError

SEED = 20260801


def told(make, **options):
    """Kind and words of the refusal, or the warnings; and the trace, if there is one."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model = make()
            trace = mcmc.sample(model, **({"n_draws": 100, "n_chains": 2, "n_tune": 100, "rng": 1} | options))
        except ValueError as error:
            return type(error), str(error), None
    return None, "; ".join(str(w.message) for w in caught), trace


def columns(n=30, seed=SEED):
    rng = np.random.default_rng(seed)
    return np.column_stack([np.ones(n), rng.normal(size=n)]), rng


EXACT = {
    "gaussian": lambda X, rng: X @ [1.0, 2.0],
    "student-t": lambda X, rng: X @ [1.0, 2.0],
    "gamma": lambda X, rng: np.exp(X @ [1.0, 0.2]),
}


@pytest.mark.parametrize("options", [{}, {"prior_sd": [10.0, 10.0, np.inf]}, {"log_prior": lambda theta: 0.0},
                                     {"groups": np.arange(30) % 5}])
@pytest.mark.parametrize("family", EXACT)
def test_rows_that_can_be_fitted_exactly_have_no_scale_to_learn(family, options):
    X, rng = columns()
    y = EXACT[family](X, rng)
    kind, words, _ = told(lambda: mcmc.GLM(X, y, family, **options))
    assert kind is ImproperError and "30 rows can be fitted exactly" in words and "Give scale" in words
    assert ("only priors tell" in words) == ("groups" in options) == ("improper" not in words)  # effects have a prior
    noisy = y * np.exp((0.1 if "groups" in options else 1e-4) * rng.normal(size=30))
    if "log_prior" not in options:              # a prior that is not expanded finds no mode here
        assert told(lambda: mcmc.GLM(X, noisy, family, **options))[0] is None
    assert told(lambda: mcmc.GLM(X, y, family, 0.5, **{**options, "prior_sd": 10.0}
                                 if "groups" not in options else options))[0] is None


@pytest.mark.parametrize("family", EXACT)
def test_fewer_rows_than_columns_leave_no_scale_to_learn(family):
    X, rng = columns(2)
    kind, words, _ = told(lambda: mcmc.GLM(X, EXACT[family](X, rng) + 1.0, family, prior_sd=[10.0, 10.0, np.inf]))
    assert kind is ImproperError and "2 rows can be fitted exactly by the 2 coefficients" in words


@pytest.mark.parametrize("data", range(4))
@pytest.mark.parametrize("family", EXACT)
def test_groups_of_one_row_leave_no_scale_to_learn(family, data):
    X, rng = columns(30, data)
    y = EXACT[family](X, rng) * np.exp(rng.normal(size=30))
    kind, words, _ = told(lambda: mcmc.GLM(X, y, family, groups=np.arange(30)))
    assert kind is not None and "groups of one row each" in words and "Give scale" in words


def one_row_each(seed=7, n=40):
    X, rng = columns(n, seed)
    return X, X @ [1.0, 0.5] + 0.8 * rng.standard_normal(n) + 0.7 * rng.standard_normal(n)


def log_normal(mean, sd):
    return lambda log: -0.5 * ((log - mean) / sd) ** 2


def half_normal(log):
    return log - 0.5 * np.exp(2.0 * log)


TELLING = {  # arguments of GLM, and log densities of the logarithms of the effects' deviation and of the scale
    "scale": ({"scale_prior": mcmc.Gamma(25.0, 35.0), "group_prior": mcmc.HalfNormal(1.0)}, half_normal,
              lambda log: 25.0 * log - 35.0 * np.exp(log)),
    "effects": ({"scale_prior": mcmc.HalfNormal(1.0), "group_prior": mcmc.LogNormal(-0.2, 0.1)}, log_normal(-0.2, 0.1),
                half_normal),
    "known deviation": ({"prior_sd": [3.0, 3.0, *[0.8] * 40, 1.0]}, None, log_normal(0.0, 1.0)),
}


@pytest.mark.parametrize("told_by", TELLING)
def test_priors_that_tell_a_scale_from_effects_of_one_row_each(told_by):
    """By quadrature over both: without effects the outcomes have a normal density of the sum of both variances."""
    (X, y), (options, of_sd, of_scale) = one_row_each(), TELLING[told_by]
    prior = {} if "prior_sd" in options else {"prior": mcmc.Normal(0.0, 3.0)}
    trace = mcmc.sample(mcmc.GLM(X, y, "gaussian", groups=np.arange(40), **options, **prior), n_draws=4000, rng=1)
    assert trace.kernel["kernel"] == "SurrogateMetropolis" and trace.kernel["decision"] == "none"
    values, vectors = np.linalg.eigh(9.0 * X @ X.T)
    grid = np.linspace(-8.0, 2.0, 600)
    sd = np.array([np.log(0.8)]) if of_sd is None else grid
    each = np.add.outer(np.exp(2.0 * sd), np.exp(2.0 * grid))[..., None] + values
    level = -0.5 * (np.log(each) + np.square(vectors.T @ y) / each).sum(axis=2) + of_scale(grid)
    level += 0.0 if of_sd is None else of_sd(sd)[:, None]
    weights = np.exp(level - level.max()) / np.exp(level - level.max()).sum()
    names, draws = list(trace.names), trace.draws.reshape(-1, len(trace.names))
    drawn = [draws[:, names.index("scale")] if "scale" in names else np.exp(draws[:, -1])]
    expected = [(weights.sum(axis=0), np.exp(grid))]
    if of_sd is not None:
        drawn.append(draws[:, names.index("sd(1|group)")])
        expected.append((weights.sum(axis=1), np.exp(sd)))
    for x, (w, at) in zip(drawn, expected, strict=True):
        mean, size = w @ at, mcmc.effective_sample_size(x.reshape(4, -1))
        assert size > 200 and abs(x.mean() - mean) < 6.0 * x.std() / np.sqrt(size)
        assert abs(np.square(x - mean).mean() / (w @ np.square(at - mean)) - 1.0) < 30.0 / np.sqrt(size)


def test_effects_that_fit_all_rows_are_refused_where_priors_do_not_bound_the_posterior():
    """Where columns leave no residuals, outcomes stand for several, or those of a group are alike; or by default."""
    (X, y), tells = one_row_each(), {"scale_prior": mcmc.Gamma(25.0, 35.0)}
    pair = np.concatenate([[0], np.arange(39)])
    for outcomes, codes, options in (
        (X @ [1.0, 0.5], np.arange(40), tells), (y, np.arange(40), {"weights": np.full(40, 2), **tells}),
        (y, np.arange(40), {"prior_sd": [3.0, 3.0, *[0.8] * 40, np.inf]}), (y, np.arange(40), {}), (y, pair, {}),
        (X[:, 0] + np.arange(40) // 4, np.arange(40) // 4, {}),
    ):
        kind, words, _ = told(lambda y=outcomes, g=codes, o=options: mcmc.GLM(X, y, "gaussian", groups=g, **o))
        assert kind is ImproperError and "Give scale" in words
    assert told(lambda: mcmc.GLM(X, y, "gaussian", groups=pair, **tells))[0] is None
    ones = X[:, :1]
    assert told(lambda: mcmc.GLM(ones, y, "gaussian", groups=pair, **tells))[0] is None  # two outcomes apart
    assert told(lambda: mcmc.GLM(ones, np.append(y[1], y[1:]), "gaussian", groups=pair, **tells))[0] is ImproperError
    assert np.isnan(mcmc.compress(mcmc.GLM(X, y, "gaussian", groups=np.arange(40), **tells)).from_mode)


def test_a_learned_scale_beside_effects_of_known_deviation():
    """The prior of its logarithm is normal, as those of a `LogNormal` scale are: one posterior, and no row is read."""
    X, rng = columns(60)
    g, sd = np.arange(60) % 5, [10.0, 10.0, *[0.8] * 5, 1.0]
    y = X @ [1.0, 0.5] + (0.8 * rng.standard_normal(5))[g] + 0.7 * rng.standard_normal(60)
    model = mcmc.GLM(X, y, "gaussian", groups=g, prior_sd=sd)
    trace = mcmc.sample(model, n_draws=4000, rng=1)
    assert trace.kernel["decision"] == "none" and trace.rows.max() == 0
    other = mcmc.sample(mcmc.Metropolis(model), n_draws=4000, rng=2)
    error = np.hypot(*(t.draws.std(axis=(0, 1)) / np.sqrt(t.ess()) for t in (trace, other)))
    assert (np.abs(trace.draws.mean(axis=(0, 1)) - other.draws.mean(axis=(0, 1))) < 6.0 * error).all()
    assert mcmc.compress(model, mcmc.compress(model).psi_hat).from_mode < 0.1


APART = [-3.64, -4.01, -3.72, 3.82, 3.84, 4.02, -3.94, 3.68, -4.35, -3.93, 3.83, -3.76, 4.08, 4.06, 4.04, -3.82, -4.03,
         4.22]


@pytest.mark.parametrize(("y", "n_groups", "df", "scale", "wide"), [
    (APART, 6, 4.0, None, 4.0), (APART, 6, 1.0, 0.1, 4.0), ([1.67, -2.53, -2.16, -3.96, 6.2, 5.06], 3, 1.0, 0.1, 1.0),
    ([5.82, -4.77, 4.62], 3, 1.0, 1.0, 4.0),
])
def test_outcomes_of_a_group_that_lie_apart_are_named_as_modes(y, n_groups, df, scale, wide):
    """And not a scale to be given that has been given: what the words advise helps."""
    groups = np.repeat(np.arange(n_groups), len(y) // n_groups)

    def kernel(scale=scale, family="student-t", psi_hat=None, df=df):
        options = {"df": df} if family == "student-t" else {}
        model = mcmc.GLM(np.ones((len(y), 1)), y, family, scale, groups=groups, **options)
        return mcmc.SurrogateMetropolis(model, psi_hat=psi_hat)

    with pytest.raises(ValueError, match="several modes where outcomes of a group.* lie further apart") as refused:
        kernel()
    words, given = str(refused.value), scale is not None
    assert "one row each" not in words and "Give scale" not in words
    assert ("a larger scale" in words) == ("psi_hat near one of the modes" in words) == given
    assert ("a scale about as wide as that" in words) == (not given)
    kernel(wide)
    kernel(df=20.0)
    kernel(family="gaussian")
    if given:
        kernel(psi_hat=[0.0, *(np.reshape(y, (n_groups, -1))[:, 0])])


@pytest.mark.parametrize(("family", "name"), [("logistic", "weights"), ("gaussian", "weights"), ("binomial", "trials")])
def test_rows_that_all_count_nothing_are_refused_by_name(family, name):
    X, _ = columns()
    kind, words, _ = told(lambda: mcmc.GLM(X, np.zeros(30), family, prior_sd=1.0, **{name: np.zeros(30)}))
    assert kind is ValueError and words.startswith(f"{name} are all 0: no row says anything")


def test_an_improper_posterior_is_refused_by_sample_too():
    """And not handed to a kernel that needs no mode."""
    X, _ = columns()
    for wrong in (np.column_stack([X, X[:, :1]]), np.column_stack([X, np.zeros(30)])):
        kind, words, _ = told(lambda X=wrong: mcmc.GLM(X, np.arange(30) % 2))
        assert kind is ImproperError and "the posterior is improper" in words
    kind, words, _ = told(lambda: mcmc.GLM(X, X[:, 1] > 0.0))
    assert kind is ImproperError and "the outcomes are separated" in words


N = 60
_, RNG = columns(N)
X = np.column_stack([np.ones(N), RNG.normal(size=N)])
Y = (RNG.random(N) < 1.0 / (1.0 + np.exp(-X[:, 1]))).astype(float)
G = np.arange(N) % 4
IN = {"groups": G}
ODD = {  # arguments of GLM, and what is said: None where there is nothing to say, else words
    "weights 0 on a whole group": (X, Y, {"weights": (G != 2) * 1.0, **IN}, None),
    "trials 0 on a whole group": (X, (G != 1) * 2, {"family": "binomial", "trials": (G != 1) * 3, **IN}, None),
    "float32": (X.astype(np.float32), Y.astype(np.float32), IN, None),
    "an empty column, weak prior": (sparse.csr_array(np.column_stack([X, np.zeros(N)])), Y, IN, None),
    "an empty column, flat prior": (sparse.csr_array(np.column_stack([X, np.zeros(N)])), Y, {}, "improper.*'x2'"),
    "one column": (X[:, :1], Y, IN, None),
    "one group": (X, Y, {"groups": np.zeros(N)}, None),
    "two rows": (X[:2], [0, 1], {"groups": [0, 1]}, None),
    "two constant columns": (np.column_stack([X, X[:, 0]]), Y, IN, None),
    "collinear columns": (np.column_stack([X, X[:, 1]]), Y, IN, None),
    "separated outcomes": (X, X[:, 1] > 0.0, IN, None),
    "separated outcomes, flat prior": (X, X[:, 1] > 0.0, {}, "the outcomes are separated"),
    "outcomes all alike, flat prior": (X, np.ones(N), {}, "the outcomes are separated"),
    "an infinite offset": (X, Y, {"offset": np.where(G == 3, np.inf, 0.0), **IN}, "offset.3. is inf"),
    "an offset far out": (X, Y, {"offset": np.full(N, 1e6), **IN}, "subtract the mean of the offset"),
    "a missing group": (X, Y, {"groups": np.where(G == 1, np.nan, G)}, "the group of row 1 .* is missing"),
    "a constant outcome": (X, np.ones(N), {"family": "gaussian", **IN}, "60 rows can be fitted exactly"),
    "outcomes of 0": (X, np.zeros(N), {"family": "gaussian", **IN}, "60 rows can be fitted exactly"),
    "outcomes that overflow": (X, 1e200 * X[:, 1], {"family": "gaussian", **IN}, "y holds .* overflow"),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_data_have_their_posterior_or_are_refused_by_name(case):
    table, y, options, words = ODD[case]
    model = []

    def make():
        model.append(mcmc.GLM(table, y, **options))
        return mcmc.SurrogateMetropolis(model[0]) if words is None else model[0]

    kind, said, trace = told(make, n_draws=600)
    if words is not None:
        assert kind is not None and re.search(words, said)
        return
    assert kind is None and ("R-hat" in said or np.isfinite(trace.draws).all())
    if not said:                                # then chains on all rows from weighted draws agree
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = mcmc.laplace(model[0], 1000, rng=2)
        error = np.hypot(trace.draws.std(axis=(0, 1)) / np.sqrt(trace.ess()), answer.sd / np.sqrt(answer.ess))
        if answer.pareto_k < 0.5:
            assert (np.abs(trace.draws.mean(axis=(0, 1)) - answer.mean) < 7.0 * error).all()


@pytest.mark.parametrize(("y", "columns", "words"), [
    (np.zeros(N, int), X, "the outcomes are separated"), ((X[:, 1] > 0).astype(int), X, "the outcomes are separated"),
    (np.where(G > 1, 2, 0), X, "the outcomes are separated"),
    (G % 3, np.column_stack([X, X[:, 1]]), "improper"),
])
def test_odd_data_of_softmax_are_refused_by_name(y, columns, words):
    kind, said, _ = told(lambda: mcmc.Softmax(columns, y))
    assert kind is ImproperError and words in said


def test_classes_of_thousands_of_tiny_groups_are_said_to_hardly_move():
    user = np.repeat(np.arange(1000), 3)
    rng = np.random.default_rng(SEED)
    table = np.column_stack([np.ones(3000), rng.normal(size=3000)])
    y = rng.random(3000) < 1.0 / (1.0 + np.exp(-table[:, 1] * np.array([1.0, -1.0])[user % 2]))
    mixture = mcmc.MixtureOf(mcmc.GLM(table, y, prior_sd=2.5), user, 3)
    for order in (None, 0):
        kernel = mcmc.SurrogateGibbs(mixture, order_by=order)
        _, said, _ = told(lambda kernel=kernel: kernel, n_draws=150)
        assert "R-hat" not in said or "1000 groups of 3 rows on average say little each" in said
        assert "take fewer classes" in kernel.exchange_advice


@pytest.mark.parametrize(("family", "words"), [
    ("logistic", "log-odds or the like"), ("poisson", "the logarithm of the mean"), ("gamma", "the logarithm"),
])
def test_an_offset_beyond_all_means_is_refused(family, words):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), rng.integers(0, 2, 60) + (family == "gamma")
    with pytest.raises(ValueError, match=rf"offset\[7\] is 1e\+06; .* on the scale of {words}.*give the logarithm"):
        mcmc.GLM(X, y, family, offset=np.where(np.arange(60) == 7, 1e6, 0.0))
    mcmc.GLM(X, y, family, offset=np.full(60, 30.0))


def test_an_offset_far_from_its_outcomes_is_warned_of():
    rng = np.random.default_rng(0)
    with pytest.warns(UserWarning, match="the mean of offset is 1e.06, .* subtract its mean from it and from y"):
        mcmc.GLM(np.ones((60, 1)), rng.normal(size=60), "gaussian", offset=np.full(60, 1e6))


@pytest.mark.parametrize("use", [
    lambda model: mcmc.sample(mcmc.RacingMetropolis(model), n_draws=5, n_chains=1, rng=1),
    lambda model: mcmc.laplace(model, 50, rng=1),
    lambda model: mcmc.sample(mcmc.Metropolis(model, proposal="independent", batch=4), n_draws=5, n_chains=1, rng=1),
    lambda model: mcmc.sample(mcmc.PoissonMinibatchMetropolis(model, proposal="independent", batch=4), n_draws=5,
                              n_chains=1, rng=1),
])
def test_an_error_of_a_log_prior_says_where_it_came_from(use):
    """It comes through as it is, with a note."""
    rng = np.random.default_rng(0)

    def mine(theta):
        return theta[2]

    model = mcmc.GLM(rng.normal(size=(60, 2)), rng.integers(0, 2, 60), prior_sd=1.0, log_prior=mine)
    with pytest.raises(IndexError, match="out of bounds") as caught:
        use(model)
    (note,) = [words for words in caught.value.__notes__ if "log_prior" in words]
    assert re.match(r"raised by log_prior\(mine\) at theta = \[.*\]; it is given an array of 2 parameters", note)


def test_rows_that_count_nothing_do_not_hide_that_others_are_separated():
    x = np.random.default_rng(20).normal(size=50)
    X, y, weights = np.column_stack([np.ones(51), np.append(x, -5.0)]), np.append(x > 0.0, 1.0), np.arange(51) < 50
    for family, more in (("logistic", {}), ("binomial", {"trials": np.ones(51)})):
        with pytest.raises(ImproperError, match="separated"):
            mcmc.GLM(X, y, family, weights=weights, **more).reference()


def test_a_far_outcome_that_counts_nothing_does_not_make_others_look_fitted():
    rng = np.random.default_rng(21)
    x, noise = rng.normal(size=50), rng.normal(size=50)
    X, y, weights = np.column_stack([np.ones(51), np.append(x, 0.0)]), np.append(x + noise, 1e12), np.arange(51) < 50
    found, plain = mcmc.GLM(X, y, "gaussian", weights=weights), mcmc.GLM(X[:50], y[:50], "gaussian")
    np.testing.assert_allclose(mcmc.compress(found).psi_hat, mcmc.compress(plain).psi_hat, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("make", [lambda X: mcmc.Softmax(X, np.zeros(30, int), 2, weights=0, prior="weak"),
                                  lambda X: mcmc.GLM(X, np.zeros(30), "binomial", trials=np.arange(30) % 2,
                                                     weights=1 - np.arange(30) % 2)])
def test_classes_and_trials_that_all_count_nothing_are_refused(make):
    with pytest.raises(ValueError, match="are all 0: no row says anything"):
        make(columns()[0])


@pytest.mark.parametrize(("family", "q"), [("logistic", 1), ("logistic", 3), ("gaussian", 2)])
def test_units_of_varying_slopes_do_not_matter(family, q):
    """In units of 1e5 the scales began ten logarithms away: a wrong center, often without a word, or a refusal."""
    rng = np.random.default_rng(20161126)
    codes, x = rng.integers(20, size=600), rng.standard_normal((600, q)) + 3.0
    effects = 0.4 * rng.standard_normal((20, q + 1))
    eta = 0.3 + (x - 3.0).sum(axis=1) / 2.0 + effects[codes, 0] + (effects[codes, 1:] * (x - 3.0)).sum(axis=1)
    y = eta + rng.standard_normal(600) if family == "gaussian" else rng.random(600) < 1.0 / (1.0 + np.exp(-eta))
    names = [f"x{j}" for j in range(q)]
    found = []
    for unit in (1.0, 1e5, 1e-5):
        table = {"1": np.ones(600)} | dict(zip(names, unit * x.T, strict=True))
        kernel = mcmc.SurrogateMetropolis(mcmc.GLM(table, y, family, groups=mcmc.Groups(codes, names)), "normal")
        first = len(kernel._phi_center) - (q + 1) * (q + 2) // 2  # where a learned scale stands before them
        center = kernel._phi_center.copy()
        center[first + 1 : first + 1 + q] -= np.log(1.0 / unit)
        found.append((center, kernel._phi_factor))
    for center, factor in found[1:]:
        np.testing.assert_allclose(center, found[0][0], atol=0.02)
        np.testing.assert_allclose(factor, found[0][1], atol=0.02)
