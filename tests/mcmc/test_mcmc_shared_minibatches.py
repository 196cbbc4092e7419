"""Poisson minibatches that decide a batch of steps: their twin, their bounds, what they leave invariant."""

import pickle
import re

import numpy as np
import pytest
from scipy import special

from chains import assert_keeps_steps, logistic, rare, shifted, slots_from_exact_draws
from fastrace import mcmc
from guarantee import assert_fits, assert_rate_at_most, few_or_many
from reference import mcmc as twin


def shared(model, batch=16, walk_share=0.02, **options):
    return mcmc.PoissonMinibatchMetropolis(model, proposal="independent", batch=batch, walk_share=walk_share, **options)


def tent(theta):
    return -abs(theta[0])


def classes(n_rows=4000, weights=None):
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(n_rows), rng.standard_normal((n_rows, 2))])
    eta = np.column_stack([np.zeros(n_rows), X @ [0.5, 1.0, 0.0], X @ [-0.5, 0.3, -1.0]])
    return mcmc.Softmax(X, (eta + rng.gumbel(size=eta.shape)).argmax(axis=1), prior_sd=3.0, weights=weights)


def of_family(family, n_rows=4000):
    rng = np.random.default_rng(2)
    X = np.column_stack([np.ones(n_rows), rng.standard_normal((n_rows, 3))])
    eta = X @ [-1.0, 0.4, 0.2, -0.3]
    y = rng.poisson(np.exp(eta)) if family == "poisson" else rng.random(n_rows) < special.expit(eta)
    return mcmc.GLM(X, y, family, prior_sd=3.0, weights=1.0 + np.arange(n_rows) % 3, offset=0.1 * X[:, 2])


MODELS = {
    "logistic": lambda: of_family("logistic"),
    "poisson": lambda: of_family("poisson"),
    "softmax": classes,
    "softmax, weighted": lambda: classes(weights=1.0 + np.arange(4000) % 2),
}


def all_residuals(model, about, points):
    """Of each row at each point, shape (n, n_rows), by the terms and by differences of them at the expansion's point.

    The expansion's terms are those of a short step, so that they owe nothing to the derivatives of the model.
    """
    source, theta = model._arms(3)
    hat, out = about.theta_hat, []
    for point in points:
        step, h = point - hat, 1e-2
        theta[:] = [hat, hat + h * step, hat - h * step]
        level, ahead, behind = source.read(np.arange(model.n_rows)).T
        slope, bend = (ahead - behind) / (2.0 * h), (ahead - 2.0 * level + behind) / h**2
        theta[0] = point
        out.append(source.read(np.arange(model.n_rows), [0])[:, 0] - level - slope - 0.5 * bend)
    return np.array(out)


@pytest.mark.parametrize("log_prior", [None, tent])
@pytest.mark.parametrize("batch", [2, 16])
def test_shared_minibatches_are_their_twin_however_a_run_is_cut(batch, log_prior):
    X, y = rare(300, 3, 3, -1.5)
    kernel = shared(mcmc.GLM(X, y, prior_sd=3.0, log_prior=log_prior), batch, 0.2, tail=0.3)
    about, state = kernel.reference, kernel.init(rng=1)
    plain = twin.Logistic(X, y, about)
    expected = twin.shared_minibatches(
        lambda theta: plain.residuals(theta, np.arange(300)), list(kernel._bounds_of_rows),
        (lambda theta: 0.0) if log_prior is None else log_prior, about.center + about.factor @ kernel.lean,
        about.factor, kernel.lean, state.whitened - kernel.lean, np.random.default_rng(2), 120,
        batch=batch, walk=2.38 / np.sqrt(3), walk_share=0.2)
    rng, after, draws, rows = np.random.default_rng(2), state, [], []
    for n in (1, 30, 3, 50, 36):
        after, steps = kernel.run(rng, after, n)
        draws.append(steps.draws)
        rows.append(steps.rows)
        after = pickle.loads(pickle.dumps(after))
        np.testing.assert_array_equal(after.position, steps.draws[-1])
        np.testing.assert_allclose(about.center + about.factor @ after.whitened, after.position, rtol=0, atol=1e-10)
    np.testing.assert_allclose(np.concatenate(draws), expected, rtol=0, atol=1e-10)
    whole = kernel.run(np.random.default_rng(2), state, 120)[1]
    np.testing.assert_array_equal(whole.draws, np.concatenate(draws))
    np.testing.assert_array_equal(whole.rows, np.concatenate(rows))
    moved = (np.diff(whole.draws, axis=0, prepend=state.position[None]) != 0.0).any(axis=1)
    np.testing.assert_array_equal(whole.accepted, moved)
    assert 20 < moved.sum() < 120 and not whole.full_pass.any() and len(set(whole.rows)) > 3
    again = pickle.loads(pickle.dumps(kernel)).describe()
    assert again == kernel.describe() and again["batch"] == batch and again["tail"] == 0.3


@pytest.mark.parametrize(("name", "least"), [("logistic", 0.1), ("poisson", 0.1), ("softmax", 0.01),
                                             ("softmax, weighted", 0.01)])
def test_bounds_hold_at_all_rows_as_often_as_they_say(name, least):
    """Of draws of the proposals. They are not far too wide: by `least` the largest share that is met of them."""
    model = MODELS[name]()
    kernel = shared(model, tail=0.2)
    about, bounds = kernel.reference, kernel._bounds_of_rows
    rng, d = np.random.default_rng(3), model.dim
    middle = about.center + about.factor @ kernel.lean
    points = middle + rng.standard_normal((300, d)) @ about.factor.T
    left = all_residuals(model, about, points)
    assert_rate_at_most((np.abs(left) > bounds + 1e-7).any(axis=1).sum(), 300, 0.2)
    assert least < (np.abs(left) / np.maximum(bounds, 1e-12)).max(axis=1).mean()


def test_bounds_reach_as_far_as_predictors_move():
    """At points where the predictors of many rows have moved as far as they are taken to, and half as far again."""
    model = of_family("logistic")
    kernel = shared(model, tail=0.2)
    about, bounds = kernel.reference, kernel._bounds_of_rows
    X, factor = np.asarray(model._glm.X), about.factor
    ways = X[:300] @ factor
    reach = -special.ndtri(0.5 * 0.2 / model.n_rows) * np.linalg.norm(ways, axis=1)
    ways /= np.linalg.norm(ways, axis=1)[:, None]
    for times, beyond in ((1.0, False), (1.5, True)):
        steps = (times * reach / np.linalg.norm(X[:300] @ factor, axis=1))[:, None] * ways
        left = all_residuals(model, about, about.theta_hat + steps @ factor.T)[np.arange(300), np.arange(300)]
        assert (np.abs(left) > bounds[:300] + 1e-7).any() == beyond


@pytest.mark.parametrize("batch", [2, 9])
@few_or_many("chains", 3000, 30_000)
def test_shared_minibatches_leave_a_leaning_posterior_invariant(batch, chains):
    """Two parameters, on a grid: draws far apart."""
    X, y = np.column_stack([np.ones(200), np.arange(200) % 2 - 0.5]), (np.arange(200) < 20).astype(float)
    kernel = shared(mcmc.GLM(X, y, prior_sd=1.0), batch, tail=1e-12)
    a, b = np.meshgrid(np.linspace(-5.0, 0.0, 500), np.linspace(-4.0, 4.0, 500), indexing="ij")
    eta = np.multiply.outer(X[:, 0], a) + np.multiply.outer(X[:, 1], b)
    density = np.exp(np.tensordot(y, eta, 1) - np.logaddexp(0.0, eta).sum(axis=0) - (a * a + b * b) / 2.0 + 68.0)
    of = (a, b, a + b)
    limits = [np.interp(np.linspace(0.0, 1.0, 11)[1:-1], np.cumsum(weight) / weight.sum(), value)
              for value, weight in [(np.sort(f, axis=None), density.ravel()[np.argsort(f, axis=None)]) for f in of]]
    stride = 2 * batch + 12
    _, steps = kernel.run(np.random.default_rng(5), kernel.init(rng=6), (chains + 2) * stride)
    draws = steps.draws[2 * stride :: stride]
    for value, edges in zip((draws[:, 0], draws[:, 1], draws.sum(axis=1)), limits, strict=True):
        assert_fits(np.bincount(np.searchsorted(edges, value), minlength=10), np.full(10, 0.1))
    assert 0.3 < steps.accepted.mean() < 1.0


def test_one_batch_from_the_posterior_ends_in_it():
    """Whatever the place in the batch: chains that begin at exact draws are at such draws after each step."""
    X, y = np.ones((100, 1)), (np.arange(100) < 10).astype(float)
    kernel = shared(mcmc.GLM(X, y, prior_sd=3.0), 4, 0.1, tail=1e-12)
    grid = np.linspace(-8.0, 2.0, 10_001)
    log_density = 10.0 * grid - 100.0 * np.logaddexp(0.0, grid) - grid**2 / 18.0
    for slot in slots_from_exact_draws(kernel, grid, log_density, np.random.default_rng(8)):
        assert_fits(slot, np.full(5, 0.2))


def test_minibatches_that_hold_the_posterior_are_small_beside_those_of_one_step():
    X, y = logistic(20_000, 60, 1, 0.1)
    model = mcmc.GLM(X, y, prior_sd=3.0)
    together, alone = shared(model, 64), mcmc.PoissonMinibatchMetropolis(model, proposal="independent")
    rows = [k.run(np.random.default_rng(1), k.init(rng=2), 300)[1].rows.mean() for k in (together, alone)]
    assert 10 < rows[0] < 0.2 * rows[1]


def test_chains_warn_where_rows_are_beyond_their_bounds():
    X, y = logistic(2000, 2, 3)
    about = mcmc.GLM(X, y, prior_sd=3.0).reference()
    away = about.center + 8.0 * about.factor[:, 0]      # where a prior of one's own has the posterior
    model = mcmc.GLM(X, y, prior_sd=3.0, log_prior=lambda theta: -5000.0 * float(np.square(theta - away).sum()))
    with pytest.warns(UserWarning, match="beyond the bound that batches give it"):
        trace = mcmc.sample(shared(model, 32, 0.5), n_draws=1000, n_chains=2, rng=1)
    assert any("smaller tail, or batch=1" in words for words in trace.warnings)
    fits = shared(mcmc.GLM(*logistic(5000, 3, 1), prior_sd=3.0), 32)
    assert mcmc.sample(fits, n_draws=1000, n_chains=2, rng=1).warnings == ()


@pytest.mark.parametrize("make", [
    lambda rng: mcmc.GLM(rng.standard_normal((4000, 120)), rng.random(4000) < 0.5, prior_sd=1.0),
    lambda rng: mcmc.Softmax(rng.standard_normal((6000, 18)), rng.integers(5, size=6000), prior_sd=1.0),
])
def test_many_parameters_get_steps_that_share_minibatches(make):
    trace = mcmc.sample(make(np.random.default_rng(0)), n_draws=64, n_chains=1, n_tune=32, rng=1)
    assert trace.kernel["kernel"] == "PoissonMinibatchMetropolis" and trace.kernel["batch"] == 256
    words = r"PoissonMinibatchMetropolis in batches reads \d+ rows a step and needs [\d.]+ steps for an independent"
    assert re.match(words + " draw; ", trace.kernel["chosen"])
    assert trace.rows.mean() < 1000 and trace.accepted.mean() > 0.5


def test_batches_whose_bounds_fail_are_not_chosen(monkeypatch):
    rng = np.random.default_rng(0)
    model = mcmc.GLM(rng.standard_normal((2000, 120)), rng.random(2000) < 0.5, prior_sd=1.0)
    monkeypatch.setattr(mcmc.PoissonMinibatchMetropolis, "_beyond", lambda kernel, draws: "they fail")
    trace = mcmc.sample(model, n_draws=16, n_chains=1, n_tune=16, rng=1)
    assert trace.kernel["kernel"] != "PoissonMinibatchMetropolis"


def test_a_batch_that_fails_keeps_the_steps_before_it():
    assert_keeps_steps(lambda model: shared(model, 8), 24)


def test_chains_go_on_from_steps_without_batches():
    model = mcmc.GLM(*logistic(2000, 3, 1), prior_sd=3.0)
    alone, together = mcmc.PoissonMinibatchMetropolis(model, proposal="independent"), shared(model)
    for first, other in ((alone, together), (together, alone)):
        after, _ = first.run(np.random.default_rng(1), first.init(rng=2), 21)
        _, steps = other.run(np.random.default_rng(3), after, 50)
        assert steps.accepted.mean() > 0.5 and np.ptp(steps.draws, axis=0).min() > 0.0


@pytest.mark.parametrize(("options", "message"), [
    ({"batch": 0}, "batch is 0"),
    ({"batch": 4, "proposal": "crank-nicolson"}, "that do not depend on the state"),
    ({"batch": 4, "proposal": "independent", "tail": 0.0}, "tail is 0.0"),
    ({"batch": 4, "proposal": "independent", "tail": 1e-300}, "would draw .* times a row of 30"),
])
def test_batches_are_refused_where_they_do_not_hold(options, message):
    with pytest.raises(ValueError, match=message):
        mcmc.PoissonMinibatchMetropolis(mcmc.GLM(*rare(30, 2, 3, -3.0), prior_sd=30.0), **options)


def test_models_without_bounds_for_batches_are_refused():
    with pytest.raises(ValueError, match="two points at a time"):
        shared(shifted())
    rng = np.random.default_rng(0)
    learned = mcmc.GLM(rng.standard_normal((500, 2)), rng.standard_t(4.0, 500), "student-t")
    with pytest.raises(ValueError, match="no bounds for batches"):
        shared(learned)


def test_a_start_where_the_prior_is_0_is_refused():
    X, y = rare(300, 3, 3, -1.5)
    kernel = shared(mcmc.GLM(X, y, prior_sd=3.0, log_prior=lambda t: 0.0 if t[0] < 0.0 else -np.inf))
    with pytest.raises(ValueError, match="log_prior is -inf at the chain's own state"):
        kernel.run(np.random.default_rng(1), kernel.init([1.0, 0.0, 0.0]), 10)
