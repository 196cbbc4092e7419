"""Offsets, weights, sparse tables and priors as objects of the models that are no generalised linear ones."""

import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse, special, stats

from fastrace import mcmc
from fastrace._models._arch import ArchSource
from fastrace._models._softmax import SoftmaxSource
from reference import arch as arch_twin
from reference import mcmc as twin

N = 300


@pytest.fixture
def rows():
    rng = np.random.default_rng(7)
    X = rng.standard_normal((N, 3)) * (rng.random((N, 3)) < 0.6)
    X[:, 0] = 1.0
    offset = rng.standard_normal((N, 4))
    return X, rng.integers(0, 4, N), offset, rng.integers(0, 4, N)


def returns_of(n=400, seed=4):
    rng = np.random.default_rng(seed)
    r = np.zeros(n)
    for t in range(2, n):
        r[t] = np.sqrt(0.5 + 0.3 * r[t - 1] ** 2 + 0.2 * r[t - 2] ** 2) * rng.standard_t(6.0)
    return r


def differences(model, at):
    """The gradient and Hessian of a model's sum against differences."""
    _, gradient, hessian = model._expand(at)
    for j, e in enumerate(1e-5 * np.eye(len(at))):
        slope = (model._log_likelihoods((at + e)[None]) - model._log_likelihoods((at - e)[None]))[0] / 2e-5
        bend = (model._expand(at + e)[1] - model._expand(at - e)[1]) / 2e-5
        assert slope == pytest.approx(gradient[j], rel=1e-5, abs=1e-4)
        np.testing.assert_allclose(bend, hessian[j], rtol=1e-4, atol=1e-6 * np.abs(hessian).max())


@pytest.mark.parametrize("kind", ["dense", "float32", "sparse"])
def test_softmax_with_offsets_and_weights_is_its_twin(rows, kind):
    X, y, offset, weights = rows
    X = X.astype(np.float32) if kind == "float32" else X
    model = mcmc.Softmax(sparse.csr_array(X) if kind == "sparse" else X, y, offset=offset, weights=weights)
    rng = np.random.default_rng(0)
    at = 0.3 * rng.standard_normal(model.dim)
    differences(model, at)
    left, moved = model.engine(mcmc.Reference(at, at, np.eye(model.dim), None, np.inf))
    plain, theta = model.engine(None)
    theta[:] = moved[:] = at + 0.3 * rng.standard_normal((2, model.dim))
    order = rng.permutation(N)
    for arm in (0, 1):
        expected = twin.softmax_terms(X.astype(float), y, theta[arm], offset, weights)
        near = twin.softmax_expansion(X.astype(float), y, at, theta[arm], offset, weights)
        np.testing.assert_allclose(plain.read(order)[:, arm], expected[order], rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(left.read(order)[:, arm], (expected - near)[order], rtol=0, atol=1e-12)
        assert plain.totals()[arm] == pytest.approx(expected.sum(), rel=1e-12)
    for source in (plain, left):
        again = pickle.loads(pickle.dumps(source))
        np.testing.assert_array_equal(again.read(order), source.read(order))
    shuffled = mcmc.Softmax(model._data.rows.X, y, offset=offset, weights=weights, shuffle=3)
    assert shuffled.log_posteriors(theta) == pytest.approx(model.log_posteriors(theta), rel=1e-12)
    assert pickle.loads(pickle.dumps(model)).log_posteriors(theta) == pytest.approx(model.log_posteriors(theta), rel=0)


def test_weights_of_softmax_rows_are_rows_seen_so_often(rows):
    X, y, offset, weights = rows
    times = np.repeat(np.arange(N), weights)
    pair = [mcmc.Softmax(X, y, offset=offset, weights=weights, prior_sd=3.0),
            mcmc.Softmax(X[times], y[times], 4, offset=offset[times], prior_sd=3.0)]
    one, all_rows = (model.reference() for model in pair)
    np.testing.assert_allclose(one.center, all_rows.center, atol=1e-9)
    np.testing.assert_allclose(one.factor, all_rows.factor, atol=1e-10)
    first = np.concatenate([[0], np.cumsum(weights)])[:-1]
    assert one.weights[weights > 0] == pytest.approx((weights * all_rows.weights[np.minimum(first, len(times) - 1)])
                                                     [weights > 0], rel=1e-9)
    assert (pair[0].slopes(one)[weights == 0] == 0.0).all()


@pytest.mark.parametrize("prior", [
    mcmc.Normal(0.3, 2.0), mcmc.Normal(0.0, mcmc.HalfNormal(1.0)), mcmc.Laplace(0.0, 0.5), mcmc.StudentT(4.0, 0.0, 1.0),
    {"intercept": mcmc.Normal(1.0, 0.5)}, "weak", mcmc.LogDensity(lambda t: -0.5 * t @ t, lambda t: -t),
], ids=["normal", "learned", "laplace", "student", "by name", "weak", "own"])
def test_softmax_of_two_classes_is_logistic_regression_with_any_prior(rows, prior):
    X, y, offset, weights = rows
    ours = mcmc.Softmax(X, y % 2, offset=offset[:, :2], weights=weights, prior=prior)
    known = mcmc.GLM(X, y % 2, offset=offset[:, 1] - offset[:, 0], weights=weights, prior=prior)
    assert (ours.dim, ours.n_seen) == (known.dim, known.n_seen)
    points = np.random.default_rng(1).standard_normal((5, ours.dim))
    apart = ours.log_posteriors(points) - known.log_posteriors(points)
    assert np.ptp(apart) < 1e-9
    one, other = mcmc.compress(ours), mcmc.compress(known)
    np.testing.assert_allclose(one.psi_hat, other.psi_hat, atol=1e-4)
    np.testing.assert_allclose(one.curvature.to_dense(), other.curvature.to_dense(), rtol=1e-3)


def test_a_prior_names_a_coefficient_of_softmax_or_a_column_of_all_classes():
    rng = np.random.default_rng(2)
    frame = {"one": np.ones(N), "age": rng.standard_normal(N)}
    y = rng.integers(0, 3, N)
    model = mcmc.Softmax(frame, y, prior={"age": mcmc.Normal(0.0, 0.5), "intercept": mcmc.Normal(0.0, 7.0)})
    assert model.names == ("one[1]", "age[1]", "one[2]", "age[2]")
    assert model.prior_precision == pytest.approx([1 / 49.0, 4.0, 1 / 49.0, 4.0])
    model = mcmc.Softmax(frame, y, prior={"age[2]": mcmc.Laplace(0.0, mcmc.HalfCauchy(1.0))})
    assert model.names[-1] == "scale(age[2])" and model.n_hyper == 1
    shared = mcmc.Softmax(frame, y, prior={"age": mcmc.Horseshoe(1.0)})
    assert shared.n_hyper == 4 and shared.names[-2:] == ("local_scale(age[1])", "local_scale(age[2])")
    with pytest.raises(ValueError, match="prior names 'height'"):
        mcmc.Softmax(frame, y, prior={"height": mcmc.Normal(0.0, 1.0)})


@pytest.mark.parametrize("decision", ["poisson", "race", "exact"])
def test_surrogate_chains_of_softmax_have_the_posterior_of_a_grid(decision):
    rng = np.random.default_rng(5)
    X, offset = rng.standard_normal((200, 1)), 0.5 * rng.standard_normal((200, 3))
    y = np.argmax(X * [0.0, 0.2, -0.6] + offset + rng.gumbel(size=(200, 3)), axis=1)
    model = mcmc.Softmax(X, y, offset=offset, prior=mcmc.Laplace(0.0, 0.3))
    axis = np.linspace(-1.4, 0.9, 93)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    terms = np.array([twin.softmax_terms(X, y, point, offset).sum() for point in points])
    p = special.softmax(terms - np.abs(points).sum(axis=1) / 0.3)
    mean = p @ points
    sd = np.sqrt(p @ np.square(points - mean))
    trace = mcmc.sample(mcmc.SurrogateMetropolis(model, decision=decision), n_draws=3000, n_chains=2, rng=1)
    draws = trace.draws.reshape(-1, 2)
    ess = min(mcmc.effective_sample_size(trace.draws[:, :, j]) for j in range(2))
    assert ess > 300
    assert np.abs(draws.mean(axis=0) - mean).max() < (5.0 / np.sqrt(ess) + 0.02) * sd.max()
    assert np.abs(draws.std(axis=0) / sd - 1.0).max() < 0.2


def test_surrogate_chains_take_softmax_with_learned_scales(rows):
    X, y, offset, weights = rows
    model = mcmc.Softmax(X, y, offset=offset, weights=weights, prior=mcmc.Normal(0.0, mcmc.HalfNormal(1.0)))
    trace = mcmc.sample(model, n_draws=1500, n_chains=2, rng=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answer = mcmc.laplace(model, 1000, rng=1)
    assert trace.names[-1] == "sd(coefficients)" and (trace.draws[..., -1] > 0.0).all()
    assert np.abs(trace.draws.mean(axis=(0, 1)) - answer.mean).max() < 0.25 * answer.sd.max()


@pytest.mark.parametrize("natural", [True, False])
def test_weights_of_arch_rows_multiply_their_terms(natural):
    r, weights = returns_of(120), np.random.default_rng(0).integers(0, 4, 117)
    parameters = np.array([[0.5, 0.3, 0.1, 0.05, 6.0], [0.4, 0.2, 0.2, 0.1, 5.0]])
    parameters = parameters if natural else np.log(parameters)
    plain, weighted = (ArchSource(r**2, 3, parameters, natural=natural, weights=w) for w in (None, weights))
    rows = np.random.default_rng(1).permutation(117)
    np.testing.assert_allclose(weighted.read(rows), weights[rows, None] * plain.read(rows), rtol=1e-15)
    assert weighted.totals() == pytest.approx(weights @ plain.read(np.arange(117)), rel=1e-12)
    again = pickle.loads(pickle.dumps(weighted))
    np.testing.assert_array_equal(again.read(rows), weighted.read(rows))


def test_arch_with_weights_is_its_twin_and_leaves_out_what_weighs_nothing():
    r = returns_of()
    weights = np.random.default_rng(0).integers(0, 3, len(r))
    model = mcmc.ARCH(r, 2, weights=weights)
    at = model.start + 0.2
    differences(model, at)
    terms = arch_twin.log_likelihood_terms(r, 2, 2, np.exp(at[:-1]), np.exp(at[-1]))
    prior = stats.norm(model.start, [2.0, 2.0, 2.0, 0.7])
    expected = weights[2:] @ terms + prior.logpdf(at).sum()
    base = (model.log_posteriors(at[None]) - model.log_posteriors(model.start[None]))[0]
    start = arch_twin.log_likelihood_terms(r, 2, 2, np.exp(model.start[:-1]), np.exp(model.start[-1]))
    assert base == pytest.approx(expected - weights[2:] @ start - prior.logpdf(model.start).sum(), rel=1e-10)
    one = mcmc.ARCH(r, 2, weights=(np.arange(len(r)) < 300))
    np.testing.assert_allclose(one.reference().center, mcmc.ARCH(
        r[:300], 2, prior_mean=one.start, prior_sd=[2.0, 2.0, 2.0, 0.7]).reference().center, atol=1e-5)
    with pytest.raises(ValueError, match="model has weights"):
        mcmc.Binned(model)


def test_priors_of_arch_as_objects_are_those_given_otherwise():
    r = returns_of()
    points = mcmc.ARCH(r, 1).start + 0.3 * np.random.default_rng(1).standard_normal((4, 3))

    def same(prior, log_density, **options):
        """Up to a constant, the model without a prior and the log density of the prior."""
        flat = mcmc.ARCH(r, 1, prior_sd=np.inf).log_posteriors(points)
        apart = mcmc.ARCH(r, 1, prior=prior, **options).log_posteriors(points) - flat - log_density(points)
        assert np.ptp(apart) < 1e-9

    default = stats.norm(mcmc.ARCH(r, 1).start, [2.0, 2.0, 0.7])
    same("weak", lambda t: default.logpdf(t).sum(axis=1))
    same(mcmc.Normal(-1.0, 0.5), lambda t: stats.norm(-1.0, 0.5).logpdf(t).sum(axis=1))
    same({"log a[1]": mcmc.StudentT(3.0, -1.0, 0.4)},
         lambda t: default.logpdf(t)[:, [0, 2]].sum(axis=1) + stats.t(3.0, -1.0, 0.4).logpdf(t[:, 1]))
    same({"log nu": mcmc.Laplace(1.5, 0.2)},
         lambda t: default.logpdf(t)[:, :2].sum(axis=1) + stats.laplace(1.5, 0.2).logpdf(t[:, 2]))
    same(mcmc.LogDensity(lambda t: -t @ t, lambda t: -2.0 * t), lambda t: -np.square(t).sum(axis=1))
    learned = mcmc.ARCH(r, 2, prior={"log a[1]": mcmc.Normal(-1.5, mcmc.HalfNormal(1.0))})
    assert learned.names[-1] == "sd(log a[1])" and learned.n_hyper == 1


def test_surrogate_chains_of_arch_have_the_posterior_of_weighted_draws():
    model = mcmc.ARCH(returns_of(5000), 1, prior={"log a[1]": mcmc.StudentT(3.0, -1.0, 0.1)})
    answer = mcmc.laplace(model, 3000, rng=1)
    assert answer.pareto_k < 0.7
    trace = mcmc.sample(mcmc.SurrogateMetropolis(model), n_draws=2000, n_chains=2, rng=1)
    assert np.abs(trace.draws.mean(axis=(0, 1)) - answer.mean).max() < 0.25 * answer.sd.min()
    assert trace.draws.std(axis=(0, 1)) == pytest.approx(answer.sd, rel=0.15)


@pytest.mark.parametrize(("make", "message"), [
    (lambda X, y, o, w: mcmc.Softmax(X, y, offset=o[:, :3]), r"offset has shape \(300, 3\).*\(300, 4\)"),
    (lambda X, y, o, w: mcmc.Softmax(X, y, offset=np.where(o == o[5, 1], np.nan, o)), r"offset\[5, 1\] is nan"),
    (lambda X, y, o, w: mcmc.Softmax(X, y, offset=np.full((N, 4), "a")), "real numbers"),
    (lambda X, y, o, w: mcmc.Softmax(X, y, weights=w[:-1]), "weights has shape"),
    (lambda X, y, o, w: mcmc.Softmax(X, y, weights=w - 1), r"weights\[\d+\] is -1; each must be a whole number"),
    (lambda X, y, o, w: mcmc.Softmax(X, y, weights=w + 0.5), "whole number"),
    (lambda X, y, o, w: mcmc.Softmax(X, y, prior=mcmc.Normal(0.0, 1.0), prior_sd=2.0), "priors came as objects"),
    (lambda X, y, o, w: mcmc.Softmax(X, y, prior=mcmc.Normal(0.0, 1.0), log_prior=lambda theta: 0.0), "in one way"),
    (lambda X, y, o, w: mcmc.ARCH(o[:, 0], 1, weights=w[1:]), r"weights has shape \(299,\).*for each return"),
    (lambda X, y, o, w: mcmc.ARCH(o[:, 0], 1, weights=w - 1), "whole number"),
    (lambda X, y, o, w: mcmc.ARCH(o[:, 0], 1, prior=mcmc.Normal(0.0, 1.0), prior_sd=1.0), "priors came as objects"),
    (lambda X, y, o, w: mcmc.ARCH(o[:, 0], 1, prior={"nu": mcmc.Normal(0.0, 1.0)}), "prior names 'nu'"),
    (lambda X, y, o, w: SoftmaxSource(X, y, np.zeros((1, 9)), 4, offset=o), r"offset has shape \(300, 4\)"),
])
def test_bad_offsets_weights_and_priors_say_what_is_needed(rows, make, message):
    with pytest.raises(ValueError, match=message):
        make(*rows)


def test_no_prior_of_another_kind():
    with pytest.raises(TypeError, match="prior of coefficients is 3"):
        mcmc.Softmax(np.ones((4, 1)), [0, 1, 1, 0], prior=3)


@pytest.mark.parametrize(("labels", "named"), [(lambda y: y + 1, "class 0"), (lambda y: 2 * y, "classes 1, 3")])
def test_classes_without_rows_are_named(labels, named):
    """Labels that begin at 1, or have gaps: under a flat prior nothing bounds those classes."""
    rng = np.random.default_rng(21)
    X, y = np.column_stack([np.ones(300), rng.normal(size=300)]), labels(rng.integers(0, 3, 300))
    with pytest.warns(UserWarning, match=f"no row of y is of {named}"):
        model = mcmc.Softmax(X, y)
    with pytest.raises(ValueError, match=f"no row of y is of {named}.*the posterior is improper"):
        mcmc.sample(model)
    with pytest.warns(UserWarning, match=named):
        mcmc.Softmax(X, y, prior_sd=2.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mcmc.Softmax(X, y, int(y.max()) + 1, prior_sd=2.5)


def test_a_class_whose_rows_were_never_seen_has_none():
    y = np.random.default_rng(22).integers(0, 3, 300)
    with pytest.warns(UserWarning, match="class 2"):
        mcmc.Softmax(np.ones((300, 1)), y, prior="weak", weights=(y != 2).astype(int))


@pytest.mark.parametrize("kind", ["dense", "sparse", "frame"])
def test_a_table_of_counts_is_its_rows_one_by_one(kind):
    """The multinomial likelihood of counts is that of each outcome as a row of its own."""
    rng = np.random.default_rng(0)
    X, offset, times = rng.normal(size=(60, 2)), rng.normal(size=(60, 3)), rng.integers(0, 3, 60)
    table = rng.poisson(0.8, size=(60, 3))
    groups = rng.integers(0, 4, 60)
    groups[:4], table[:4], times[:4] = np.arange(4), 1, 1
    rows, classes = (np.repeat(places, table[np.nonzero(table)]) for places in np.nonzero(table))
    given = {"dense": X, "sparse": sparse.csr_array(X), "frame": {"x0": X[:, 0], "x1": X[:, 1]}}[kind]
    for more in ({}, {"prior_sd": 2.0}, {"prior": "weak"}, {"groups": groups}):
        own = more | ({"groups": {"g": groups}} if "groups" in more else {})
        each = more | ({"groups": {"g": groups[rows]}} if "groups" in more else {})
        ours = mcmc.Softmax(given, table, offset=offset, weights=times, **own)
        theirs = mcmc.Softmax(X[rows], classes, 3, offset=offset[rows], weights=times[rows], **each)
        assert ours.names == theirs.names and ours.n_classes == 3 and ours.n_rows == np.count_nonzero(table)
        points = rng.normal(size=(6, ours.dim))
        np.testing.assert_allclose(ours.log_posteriors(points), theirs.log_posteriors(points), rtol=1e-9)


@pytest.mark.parametrize("change, said", [
    ({"n_classes": 4}, "3 classes, one a column, and n_classes is 4"),
    ({"y": np.full((60, 3), -1)}, r"y\[0, 0\] is -1; counts"),
    ({"y": np.full((60, 3), 0.5)}, r"y\[0, 0\] is 0.5; counts"),
    ({"y": np.full((60, 3), np.nan)}, r"y\[0, 0\] is nan; counts"),
    ({"y": np.zeros((60, 3))}, "all 60 x 3 counts of y are 0"),
    ({"y": np.ones((59, 3))}, r"counts of shape \(59, 3\), and X has 60 rows"),
    ({"offset": np.zeros((60, 2))}, r"offset has shape \(60, 2\)"),
    ({"weights": np.ones(59)}, "weights has shape"),
    ({"groups": np.zeros(61)}, "groups have 61 rows"),
    ({"y": np.ones((60, 1))}, "y has shape"),
])
def test_counts_that_are_none_are_told(change, said):
    X = np.random.default_rng(0).normal(size=(60, 2))
    given = {"y": np.ones((60, 3), dtype=int)} | change
    with pytest.raises(ValueError, match=said):
        mcmc.Softmax(X, given.pop("y"), **given)
