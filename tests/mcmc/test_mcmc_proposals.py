"""Proposals: from far out, leaning and in batches; each against its twin, and tuning."""

import pickle
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from chains import KERNELS, assert_keeps_steps, logistic, outcomes, rare, shifted
from fastrace import mcmc
from fastrace._models._expanded import Expanded
from fastrace.mcmc.kernels._metropolis import _fitted
from guarantee import assert_fits, few_or_many
from reference import mcmc as twin


def leaning(seed=0):
    """A posterior that leans: 8 outcomes of 1 among 3000."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(3000), rng.standard_normal((3000, 5))])
    return X, (np.argsort(np.argsort(-X[:, 1] - rng.gumbel(size=3000))) < 8).astype(float)


@pytest.mark.parametrize("name", ["exact", "poisson"])
def test_chains_of_student_t_proposals_are_their_twin(name):
    X, y = logistic(3000, 3, 1)
    model = mcmc.GLM(X, y, prior_sd=3.0)
    kernel = KERNELS[name](model, proposal="student-t", walk_share=0.2)
    reference, tails = kernel.reference, kernel.tails
    plain = twin.Logistic(X, y, reference)
    decide = {"exact": twin.exact_decision, "poisson": twin.poisson_decision}[name](plain)
    state = kernel.init(reference.center + 0.01)
    _, steps = kernel.run(np.random.default_rng(4), state, 300)
    expected = twin.student_t(
        plain, state.whitened, np.random.default_rng(4), 300, degrees=tails.degrees, shift=tails.shift,
        scale=tails.scale, walk=2.38 / np.sqrt(3), walk_share=0.2, decide=decide,
    )
    assert 60 < steps.accepted.sum() < 300
    np.testing.assert_allclose(steps.draws, expected, rtol=0, atol=1e-10)


def test_proposals_follow_a_posterior_that_leans():
    """A pilot, always of one seed, finds where it leans to, and how long its tails are."""
    X, y = leaning()
    model = mcmc.GLM(X, y, prior_sd=3.0)
    kernel, before = mcmc.PoissonMinibatchMetropolis(model), mcmc.PoissonMinibatchMetropolis(model)
    assert kernel.describe()["proposal"] == "student-t" and kernel.describe()["degrees"] == kernel.tails.degrees >= 4.0
    assert (kernel.tails.shift == before.tails.shift).all()
    again = pickle.loads(pickle.dumps(kernel))
    assert again.describe() == kernel.describe()
    followed = mcmc.PoissonMinibatchMetropolis(model, proposal="independent")
    draws = [k.run(np.random.default_rng(1), k.init(rng=2), 4000)[1].draws for k in (kernel, followed)]
    least = [min(mcmc.effective_sample_size(x[None]) for x in made.T) for made in draws]
    assert least[0] > 2.0 * least[1]
    assert mcmc.RacingMetropolis(model).describe()["proposal"] == "student-t"
    near = mcmc.PoissonMinibatchMetropolis(mcmc.GLM(*logistic(3000, 3, 1), prior_sd=3.0))
    assert near.describe()["proposal"] == "crank-nicolson" and "degrees" not in near.describe()
    plain = mcmc.Metropolis(model, proposal="student-t", control_variate=None)
    assert 0.3 < plain.run(np.random.default_rng(1), plain.init(rng=2), 200)[1].accepted.mean() < 1.0


def test_tails_are_as_long_as_draws_ask_for():
    """A little of the mean log density is given for longer tails; a normal density that is shifted keeps its gain."""
    rng, d = np.random.default_rng(3), 6
    z = rng.standard_normal((4000, d))
    stretch = np.sqrt(0.5 * 5.0 / rng.standard_gamma(2.5, (4000, 1)))
    points = z, z + 0.15, z + 1.0, z * stretch
    found = [_fitted(x) for x in points]
    assert found[0].gain < 0.0 < found[1].gain < found[2].gain and found[3].gain > 0.0
    assert 8.0 <= found[2].degrees < found[1].degrees <= 32.0 and found[3].degrees < 8.0
    for x, tails, middle in zip(points, found, (0.0, 0.15, 1.0, 0.0), strict=True):
        np.testing.assert_allclose(tails.shift, middle, atol=0.1)
        spread = tails.scale**2 * tails.degrees / (tails.degrees - 2.0)
        np.testing.assert_allclose(spread, x.var(axis=0).mean(), rtol=0.01)
        density = stats.multivariate_t(tails.shift, tails.scale**2 * np.eye(d), df=tails.degrees)
        gain = density.logpdf(x).mean() - stats.norm.logpdf(x).sum(axis=1).mean()
        assert tails.gain == pytest.approx(gain, abs=1e-9)


def test_student_t_proposals_leave_a_leaning_posterior_invariant():
    X, y = np.ones((400, 1)), (np.arange(400) < 2).astype(float)
    model = mcmc.GLM(X, y, prior_sd=5.0)
    kernel = mcmc.PoissonMinibatchMetropolis(model, proposal="student-t")
    grid = np.linspace(-15.0, 0.0, 15_001)
    density = np.exp(2.0 * grid - 400.0 * np.logaddexp(0.0, grid) - grid**2 / 50.0 + 13.0)
    edges = np.interp(np.linspace(0.0, 1.0, 11)[1:-1], np.cumsum(density) / density.sum(), grid)
    _, steps = kernel.run(np.random.default_rng(5), kernel.init(rng=6), 60_000)
    counts = np.bincount(np.searchsorted(edges, steps.draws[200::20, 0]), minlength=10)
    assert_fits(counts, np.full(10, 0.1))


def tent(theta):
    return -abs(theta[0])


@pytest.mark.parametrize(("log_prior", "mirror"), [(None, True), (tent, True), (tent, False)])
def test_batches_of_independent_proposals_are_their_twin_however_a_run_is_cut(log_prior, mirror):
    X, y = rare(300, 3, 3, -1.5)
    model = mcmc.GLM(X, y, prior_sd=3.0, log_prior=log_prior)
    kernel = mcmc.Metropolis(model, proposal="independent", batch=32, walk_share=0.2, mirror=mirror)
    about, state = kernel.reference, kernel.init(rng=1)

    def log_posterior(theta):
        return (-np.logaddexp(0.0, np.where(y > 0, -1.0, 1.0) * (X @ theta)).sum() - theta @ theta / 18.0
                + (0.0 if log_prior is None else log_prior(theta)))

    middle = about.center + about.factor @ kernel.lean
    expected = twin.antithetic(log_posterior, middle, about.factor, state.whitened - kernel.lean,
                               np.random.default_rng(2), 200, walk=2.38 / np.sqrt(3), walk_share=0.2, mirror=mirror)
    rng, after, draws = np.random.default_rng(2), state, []
    for n in (1, 40, 3, 100, 56):
        after, steps = kernel.run(rng, after, n)
        draws.append(steps.draws)
        assert (steps.rows == np.where(steps.full_pass, 300, 0)).all()
        after = pickle.loads(pickle.dumps(after))
    np.testing.assert_allclose(np.concatenate(draws), expected, rtol=0, atol=1e-10)
    assert 60 < len(np.unique(expected[:, 0])) < 200
    assert kernel.run(rng, state, 50)[1].full_pass.tolist() == [True, not mirror] * 25
    whole = kernel.run(np.random.default_rng(2), state, 200)[1]
    np.testing.assert_array_equal(whole.draws, np.concatenate(draws))
    assert pickle.loads(pickle.dumps(kernel)).describe() == kernel.describe() and kernel.describe()["batch"] == 32


@pytest.mark.parametrize("family", ["logistic", "poisson"])
def test_pairs_of_a_batch_stand_where_the_mean_is_to_third_order(family):
    X, y = rare(2000, 3, 3, -1.5)
    y = y + (family == "poisson") * (X[:, 1] > 0.0)
    weights = 1.0 + np.arange(2000) % 3
    model = mcmc.GLM(X, y, family, prior_sd=3.0, weights=weights, offset=0.1 * X[:, 2])
    kernel = mcmc.Metropolis(model, proposal="independent", batch=32)
    reference = kernel.reference
    eta, v = X @ reference.theta_hat + 0.1 * X[:, 2], X @ reference.factor
    p = 1.0 / (1.0 + np.exp(-eta))
    third = weights * (-p * (1.0 - p) * (1.0 - 2.0 * p) if family == "logistic" else -np.exp(eta))
    np.testing.assert_allclose(kernel.lean, 0.5 * v.T @ (third * np.square(v).sum(axis=1)), rtol=1e-4)
    source, theta = kernel._sums()     # mirror images share a product, wherever they stand in a pass
    middle = reference.center + reference.factor @ kernel.lean
    theta[:] = middle + 0.1 * np.random.default_rng(1).standard_normal(theta.shape)
    theta[1::2] = 2.0 * middle - theta[::2]
    shared, (plain, other) = source.totals(), model._arms(len(theta))
    other[:] = theta
    alone = Expanded(plain, reference.theta_hat).totals()
    np.testing.assert_allclose(shared, alone, rtol=0, atol=1e-9)
    np.testing.assert_allclose(source.totals([5, 1, 2, 3]), alone[[5, 1, 2, 3]], rtol=0, atol=1e-9)


@pytest.mark.parametrize("mirror", [True, False])
@few_or_many("chains", 3000, 30_000)
def test_proposals_of_a_batch_leave_a_leaning_posterior_invariant(chains, mirror):
    X, y = np.ones((40, 1)), (np.arange(40) < 3).astype(float)
    kernel = mcmc.Metropolis(mcmc.GLM(X, y, prior_sd=5.0), proposal="independent", batch=64, walk_share=0.05,
                             mirror=mirror)
    grid = np.linspace(-12.0, 2.0, 14_001)
    density = np.exp(3.0 * grid - 40.0 * np.logaddexp(0.0, grid) - grid**2 / 50.0 + 10.0)
    edges = np.interp(np.linspace(0.0, 1.0, 11)[1:-1], np.cumsum(density) / density.sum(), grid)
    _, steps = kernel.run(np.random.default_rng(5), kernel.init(rng=6), 15 * chains)
    for phase in (0, 7)[: 1 + mirror]:       # after a pair, and after the mirror image of where the chain was
        counts = np.bincount(np.searchsorted(edges, steps.draws[30 + phase :: 15, 0]), minlength=10)
        assert_fits(counts, np.full(10, 0.1))


def test_a_batch_that_fails_keeps_the_steps_before_it():
    assert_keeps_steps(lambda model: mcmc.Metropolis(model, proposal="independent", batch=16), 30)


def test_many_parameters_get_steps_that_share_passes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 120))        # for bounds of batches, too few
    model = mcmc.GLM(X, rng.random(1500) < 0.5, prior_sd=1.0)
    trace = mcmc.sample(model, n_draws=64, n_chains=1, n_tune=32, rng=1)
    assert trace.kernel["kernel"] == "Metropolis" and trace.kernel["batch"] == 240 and trace.kernel["frames"]
    words = r"Metropolis in batches reads [\d.]+ rows a step and needs [\d.]+ steps for an independent draw; "
    assert re.match(words, trace.kernel["chosen"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, "batch is 0"),
        ({"batch": 4, "proposal": "independent", "control_variate": None}, "that do not depend on the state"),
        ({"batch": 4, "proposal": "crank-nicolson"}, "that do not depend on the state"),
    ],
)
def test_batches_are_refused_for_proposals_that_need_the_state(options, message):
    with pytest.raises(ValueError, match=message):
        mcmc.Metropolis(mcmc.GLM(*rare(100, 2, 3, -1.5), prior_sd=3.0), **options)
    with pytest.raises(ValueError, match="two points at a time"):
        mcmc.Metropolis(shifted(), proposal="independent", batch=4)


FAR = {
    "logistic": ([0.5, -0.5], [6.0, 4.0]),
    "poisson": ([1.0, 0.5], [-6.0, 4.0]),
}


@pytest.mark.filterwarnings("ignore::UserWarning")     # that they are far is told, and is meant
@pytest.mark.parametrize("family", FAR)
@pytest.mark.parametrize("proposal", ["crank-nicolson", "independent", "langevin", "student-t", "random-walk", "user"])
@pytest.mark.parametrize("kernel", [mcmc.Metropolis, mcmc.RacingMetropolis, mcmc.PoissonMinibatchMetropolis,
                                    mcmc.FireflyMetropolis])
def test_every_proposal_arrives_from_far_out(kernel, proposal, family):
    """150 and 500 standard deviations out the expansion is of no use; delayed acceptance would trust it first."""
    theta, start = FAR[family]
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(2000), rng.normal(size=2000)])
    model = mcmc.GLM(X, outcomes(family, X, theta, rng), family)
    reference = model.reference()

    def walk(rng, theta):
        return theta + 1.5 * reference.factor @ rng.standard_normal(2), 0.0

    chain = kernel(model, proposal=walk if proposal == "user" else proposal)

    def distances(trace):
        apart = (trace.draws[0] - reference.center).T
        return np.linalg.norm(np.linalg.solve(reference.factor, apart), axis=0)

    trace = mcmc.sample(chain, start, n_draws=200, n_chains=1, n_tune=500, rng=1)
    assert distances(trace).max() < 6.0 and trace.accepted.mean() > 0.1
    if proposal in ("random-walk", "user"):     # without tuning too, at the pace of the walk
        trace = mcmc.sample(chain, start, n_draws=2500, n_chains=1, n_tune=0, rng=1)
        assert distances(trace)[-500:].max() < 6.0


@pytest.mark.filterwarnings("ignore::UserWarning")     # that they are far is told, and is meant
def test_arrival_ends_where_the_posterior_is_wider_than_the_reference():
    """Then the size of the proposal must adapt all the same."""
    X, y = logistic(500, 3, 2)
    model = mcmc.GLM(X, y, prior_sd=3.0)
    reference = model.reference()
    narrow = mcmc.Reference(reference.theta_hat, reference.center, reference.factor / 30.0, None, np.inf)
    kernel = mcmc.Metropolis(model, proposal="random-walk", control_variate=None)
    kernel.reference, kernel._factor = narrow, narrow.factor
    trace = mcmc.sample(kernel, n_draws=200, n_chains=2, n_tune=2000, rng=1)
    assert all(state.tuning.reach == 0.0 and state.tuning.size > 5.0 for state in trace.states)


def test_arrival_does_not_depend_on_how_a_run_is_cut():
    X, y = logistic(2000, 2, 2)
    kernel = mcmc.RacingMetropolis(mcmc.GLM(X, y))
    whole = kernel.run(np.random.default_rng(1), kernel.init([6.0, 4.0]), 300, tune=True)
    state, rng = kernel.init([6.0, 4.0]), np.random.default_rng(1)
    for count in (1, 48, 1, 7, 43, 60, 140):
        state, _ = kernel.run(rng, state, count, tune=True)
    np.testing.assert_array_equal(state.position, whole[0].position)
    assert state.tuning.size == whole[0].tuning.size and state.tuning.reach == 0.0
    state, _ = kernel.run(np.random.default_rng(1), kernel.init([6.0, 4.0]), 3, tune=True)
    assert state.tuning.reach > 1.0     # tuning that ends on the way leaves the kernel with its own proposals
    after = replace(state, tuning=replace(state.tuning, reach=0.0))
    a, b = (kernel.run(np.random.default_rng(2), s, 50)[1].draws for s in (state, after))
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", [mcmc.RacingMetropolis, mcmc.Slice])
def test_a_learnt_covariance_does_not_depend_on_how_a_run_is_cut(kind):
    X = np.random.default_rng(0).standard_normal((100, 3))
    kernel = kind(mcmc.FunctionModel(lambda theta, rows: -0.5 * np.square(1.0 - X[rows] @ theta), 3, 100))
    draws = []
    for parts in ([260], [32, 100, 7, 121], [13] * 20):
        rng, state = np.random.default_rng(1), kernel.init()
        for n in parts:
            state, steps = kernel.run(rng, state, n, tune=True)
        draws.append(kernel.run(rng, state, 20)[1].draws)
    np.testing.assert_array_equal(draws[0], draws[1])
    np.testing.assert_array_equal(draws[0], draws[2])


@pytest.mark.filterwarnings("ignore::UserWarning")     # that they are far is told, and is meant
@pytest.mark.parametrize("kernel", [mcmc.RacingMetropolis, mcmc.PoissonMinibatchMetropolis, mcmc.FireflyMetropolis])
def test_a_start_far_out_in_a_heavy_tail_is_left(kernel):
    """A hundred standard deviations out the expansion is wrong by thousands; walks, decided at once, do not ask it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 3))
    y = X @ [1.0, -0.5, 0.2] + rng.standard_t(4.0, 20_000)
    model = mcmc.GLM(X, y, family="student-t", scale=1.0, prior_sd=10.0)
    start = np.array([2.0, 0.0, -0.1])
    trace = mcmc.sample(kernel(model), init=start, n_draws=1000, n_tune=0, n_chains=1, rng=1, progress=False)
    center = model.reference().center
    assert np.linalg.norm(trace.draws[0, -1] - center) < 0.7 * np.linalg.norm(start - center)


def test_tuning_adapts_the_size_and_the_covariance():
    X, y = logistic(2000, 4, 9)
    for proposal, low, high in (("random-walk", 0.15, 0.45), ("langevin", 0.4, 0.75)):
        kernel = mcmc.RacingMetropolis(mcmc.GLM(X, y), proposal=proposal, size=0.1)
        trace = mcmc.sample(kernel, n_draws=2000, n_chains=1, n_tune=2000, rng=1)
        assert low < trace.accepted.mean() < high
    sd = np.array([1.0, 30.0])
    model = mcmc.FunctionModel(lambda theta, rows: -0.5 * np.full(len(rows), (theta / sd) @ (theta / sd)) / 10, 2, 10)
    trace = mcmc.sample(mcmc.Metropolis(model), [0.0, 0.0], n_draws=3000, n_chains=1, n_tune=2000, rng=1)
    assert trace.ess().min() > 100
    before = mcmc.sample(mcmc.Metropolis(model), [0.0, 0.0], n_draws=50, n_chains=1, n_tune=0, rng=1)
    assert before.states[0].tuning.n_steps == 0
