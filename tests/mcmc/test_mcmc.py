"""Kernels over rows: exact ones are exact, races are within their promise, and nothing made is lost."""

import json
import pickle
import threading
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import fastrace as fr
from fastrace import bounds, mcmc
from fastrace._models._expanded import Expanded
from fastrace.control_variates import ControlVariate, TaylorSurrogate
from fastrace.mcmc.kernels.gibbs import Tally
from fastrace.races._weighted import AliasTable, _verdicts
from fastrace.sources import ArraySource, CallableSource
from guarantee import assert_fits, assert_rate_at_most, few_or_many
from populations import POPULATIONS
from reference import gibbs as gibbs_twin
from reference import mcmc as twin


def logistic(n_rows, dim, seed=0, spread=0.5):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, dim))
    X[:, 0] = 1.0
    theta = spread * rng.standard_normal(dim)
    return X, (rng.random(n_rows) < 1.0 / (1.0 + np.exp(-X @ theta))).astype(float)


def outcomes(family, X, theta, rng):
    eta = X @ theta
    if family == "logistic":
        return (rng.random(len(X)) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
    if family == "poisson":
        return rng.poisson(np.exp(eta)).astype(float)
    return eta + (rng.standard_normal(len(X)) if family == "gaussian" else rng.standard_t(4.0, len(X)))


def scale_of(family):
    return {"scale": 1.0} if family in ("gaussian", "student-t") else {}


KERNELS = {
    "exact": lambda model, **o: mcmc.Metropolis(model, **o),
    "exact-plain": lambda model, **o: mcmc.Metropolis(model, control_variate=None, **o),
    "poisson": lambda model, **o: mcmc.PoissonMinibatchMetropolis(model, **o),
    "poisson-one-stage": lambda model, **o: mcmc.PoissonMinibatchMetropolis(model, delayed=False, **o),
    "race": lambda model, **o: mcmc.RacingMetropolis(model, 0.01, **o),
    "race-normal": lambda model, **o: mcmc.RacingMetropolis(model, 0.01, "normal", **o),
    "race-plain": lambda model, **o: mcmc.RacingMetropolis(model, 0.01, control_variate=None, **o),
    "tuna": lambda model, **o: mcmc.TunaMetropolis(model, chi=1e-2, full_pass_at=1e9, **o),
    "firefly": lambda model, **o: mcmc.FireflyMetropolis(model, full_pass_at=1e9, **o),
    "firefly-half": lambda model, **o: mcmc.FireflyMetropolis(model, fraction=0.5, full_pass_at=2.0, **o),
}
EXACT = ["exact", "exact-plain", "poisson", "poisson-one-stage", "tuna", "firefly", "firefly-half"]
RACES = ["race", "race-normal", "race-plain"]


# Invariance: states on a lattice, so that the target can be enumerated.


class Lattice:
    """Four parameter vectors, and proposals that draw one of the three others."""

    def __init__(self, n_rows=60, seed=3):
        self.X, self.y = logistic(n_rows, 2, seed)
        self.model = mcmc.GLM(self.X, self.y, prior_sd=2.0)
        center, factor = self.model.reference().center, self.model.reference().factor
        self.points = center + np.array([[0.0, 0.0], [1.5, -0.5], [-1.0, 1.2], [0.4, 1.9]]) @ factor.T
        log_p = [twin.log_terms("logistic", self.X, self.y, p).sum() - p @ p / 8.0 for p in self.points]
        self.p = np.exp(log_p - np.max(log_p))
        self.p /= self.p.sum()

    def number(self, theta):
        return int(np.abs(self.points - theta).sum(axis=1).argmin())

    def propose(self, rng, theta):
        other = (self.number(theta) + rng.integers(1, 4)) % 4
        return self.points[other], 0.0

    def counts(self, kernel, trials, steps, rng):
        out = np.zeros(4, int)
        states = [kernel.init(p) for p in self.points]
        for start in rng.choice(4, size=trials, p=self.p):
            _, made = kernel.run(rng, states[start], steps)
            out[self.number(made.draws[-1])] += 1
        return out


@few_or_many("chains", 1500, 333_334)
@pytest.mark.parametrize("name", EXACT)
def test_exact_kernels_leave_an_enumerable_target_invariant(name, chains):
    lattice = Lattice()
    kernel = KERNELS[name](lattice.model, proposal=lattice.propose)
    assert_fits(lattice.counts(kernel, chains, 3, np.random.default_rng(5)), lattice.p)


@pytest.mark.parametrize(("name", "mixed"), [("poisson", 0.2), ("tuna", 2.0), ("firefly", 0.2), ("firefly-half", 0.2)])
@few_or_many("n_steps", 4000, 12_000)
def test_minibatches_and_full_passes_leave_it_invariant_over_long_runs(name, mixed, n_steps):
    """Every step by a minibatch; then some of them by full passes."""
    lattice = Lattice(20)
    options = {} if name == "tuna" else {"control_variate": lattice.points[0] + 0.5}     # far from the mode
    for share in (1e9, mixed):
        kernel = KERNELS[name](lattice.model, proposal=lattice.propose, **options)
        kernel.full_pass_at = share
        counts, passes, rows = np.zeros(4, int), 0, 0
        for start in range(4):
            _, steps = kernel.run(np.random.default_rng(start), kernel.init(lattice.points[start]), n_steps)
            at = np.abs(steps.draws[100::20, None] - lattice.points).sum(axis=2).argmin(axis=1)
            counts += np.bincount(at, minlength=4)
            passes += int(steps.full_pass.sum())
            rows += int(steps.rows[~steps.full_pass].sum())
        assert_fits(counts, lattice.p)
        assert 0.1 < passes / (4 * n_steps) < 0.9 if share == mixed else passes == 0
        assert rows / (4 * n_steps - passes) > 0.3


@pytest.mark.parametrize("name", RACES)
def test_races_are_within_their_promise_on_an_enumerable_target(name):
    lattice = Lattice(400)
    kernel = KERNELS[name](lattice.model, proposal=lattice.propose)
    trials, steps = 1500, 2
    counts = lattice.counts(kernel, trials, steps, np.random.default_rng(6))
    for count, p in zip(counts, lattice.p, strict=True):
        assert_rate_at_most(count, trials, p + steps * kernel.delta)
        assert_rate_at_most(trials - count, trials, 1.0 - p + steps * kernel.delta)


def test_the_enumerable_target_tells_a_wrong_kernel():
    lattice = Lattice()
    skewed = lattice.p * [1.3, 1.0, 1.0, 0.7]
    with pytest.raises(AssertionError):
        kernel = KERNELS["exact"](lattice.model, proposal=lattice.propose)
        assert_fits(lattice.counts(kernel, 2500, 3, np.random.default_rng(5)), skewed / skewed.sum())


# Twins, and the same chain by different means.


def test_exact_and_poisson_chains_are_their_twins():
    X, y = logistic(3000, 3, 1)
    model = mcmc.GLM(X, y, prior_sd=3.0)
    reference = model.reference()
    plain = twin.Logistic(X, y, reference)
    options = {"size": 0.8, "walk": 2.38 / np.sqrt(3), "walk_share": 0.1}
    for name, decision in (
        ("exact", twin.exact_decision(plain)),
        ("poisson", twin.poisson_decision(plain)),
        ("firefly", twin.firefly_decision(plain)),
        ("firefly-half", twin.firefly_decision(plain, 0.5)),
    ):
        kernel = KERNELS[name](model, control_variate=reference, size=0.8)
        state = kernel.init(reference.center + 0.01)
        _, steps = kernel.run(np.random.default_rng(4), state, 300)
        expected = twin.chain(plain, state.whitened, np.random.default_rng(4), 300, decide=decision, **options)
        assert 20 < steps.accepted.sum() < 300
        np.testing.assert_allclose(steps.draws, expected, rtol=0, atol=1e-10)


def rare(n_rows, dim, seed=0, intercept=-4.0):
    """Few outcomes of 1: third derivatives near the mode are far smaller than elsewhere."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n_rows), rng.standard_normal((n_rows, dim - 1))])
    return X, (rng.random(n_rows) < 1.0 / (1.0 + np.exp(-intercept - 0.5 * X[:, 1:].sum(axis=1)))).astype(float)


@pytest.mark.parametrize("kernel", ["poisson", "race"])
def test_chains_with_weights_for_several_balls_are_their_twins(kernel):
    X, y = rare(3000, 2, 3, -3.5)
    model = mcmc.GLM(X, y, prior_sd=3.0)
    known = model.reference()
    (_, weights), *_ = known.shells
    assert known.radius == np.inf and weights.sum() < 0.6 * known.weights.sum()
    reference = replace(known, shells=((0.8, weights), (1.6, 1.1 * weights)))      # all are met
    plain = twin.Logistic(X, y, reference)
    if kernel == "poisson":
        made = mcmc.PoissonMinibatchMetropolis(model, control_variate=reference, proposal="crank-nicolson", size=0.4,
                                               walk_share=0.0)
        decide = twin.poisson_decision(plain)
    else:
        made = mcmc.RacingMetropolis(model, 0.1, "betting", control_variate=reference, proposal="crank-nicolson",
                                     size=0.4, walk_share=0.0, scan_advantage=1.0)
        decide = twin.weighted_decision(plain, 0.1, bounds.looks(3000, 16, 1.1))
    state = made.init(reference.center + 0.01)
    _, steps = made.run(np.random.default_rng(4), state, 300)
    expected = twin.chain(plain, state.whitened, np.random.default_rng(4), 300, decide=decide, size=0.4,
                          walk=2.38 / np.sqrt(2), walk_share=0.0)
    np.testing.assert_allclose(steps.draws, expected, rtol=0, atol=1e-10)
    away = np.linalg.norm(np.linalg.solve(reference.factor, (expected - reference.center).T), axis=0)
    assert min(np.histogram(away, [0.0, 0.8, 1.6, 9.0])[0]) > 20
    assert pickle.loads(pickle.dumps(made)).step(np.random.default_rng(5), state)[0].position.tolist() == \
        made.step(np.random.default_rng(5), state)[0].position.tolist()


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
    X, y = rare(100, 2, 3, -1.5)
    calls = []

    def log_prior(theta):
        calls.append(theta)
        if len(calls) == 30:
            raise KeyError("mine")
        return 0.0

    kernel = mcmc.Metropolis(mcmc.GLM(X, y, prior_sd=3.0, log_prior=log_prior), proposal="independent", batch=16)
    calls.clear()
    with pytest.raises(KeyError, match="mine") as caught:
        kernel.run(np.random.default_rng(2), kernel.init(rng=1), 50)
    state, steps = caught.value.partial_run
    assert 0 < len(steps) < 50
    np.testing.assert_array_equal(state.position, steps.draws[-1])


def test_many_parameters_get_steps_that_share_passes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 120))
    model = mcmc.GLM(X, rng.random(3000) < 0.5, prior_sd=1.0)
    trace = mcmc.sample(model, n_draws=64, n_chains=1, n_tune=32, rng=1)
    assert trace.kernel["kernel"] == "Metropolis" and trace.kernel["batch"] == 128 and not trace.kernel["mirror"]
    assert trace.kernel["chosen"].startswith("Metropolis in batches")


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


@pytest.mark.parametrize("make", [
    mcmc.PoissonMinibatchMetropolis, mcmc.FireflyMetropolis, lambda m, **o: mcmc.TunaMetropolis(m, chi=1e6, **o),
    lambda m, **o: mcmc.SurrogateMetropolis(m, decision="poisson", **o),
])
def test_a_minibatch_ends_however_large_full_pass_at_is(make):
    """Far from the expansion bounds ask for more rows than a step can draw: it reads all 30 instead."""
    X, y = logistic(30, 2, 1)
    kernel = make(mcmc.GLM(X, y, prior_sd=3.0), full_pass_at=1e300, size=1.0)
    _, steps = kernel.run(np.random.default_rng(0), kernel.init([1e5, -1e5]), 50)
    assert steps.full_pass.any() and steps.rows.max() < 11_000


def test_few_positives_are_few_rows_for_an_exact_chain():
    X, y = rare(20_000, 4, 1, -6.5)
    assert 30 < y.sum() < 100
    model = mcmc.GLM(X, y, prior_sd=10.0)
    reference = model.reference()
    read = []
    for about in (reference, replace(reference, shells=())):
        kernel = mcmc.PoissonMinibatchMetropolis(model, control_variate=about)
        read.append(kernel.run(np.random.default_rng(1), kernel.init(rng=2), 300)[1].rows.mean())
    assert read[0] < 0.01 * len(y) and read[0] < 0.1 * read[1]
    assert mcmc.RacingMetropolis(model, control_variate=reference).bound == "betting"


@pytest.mark.parametrize("name", ["exact", "poisson", "firefly"])
def test_delayed_chains_are_their_twin_inside_the_ball_and_outside(name):
    X, y = logistic(3000, 2, 1)
    model = mcmc.GLM(X, y, prior_sd=3.0)
    kernel = KERNELS[name](model, proposal="random-walk")
    kernel._near, kernel._engines = 1.2, []     # about half of the pairs
    if hasattr(kernel, "full_pass_at"):
        kernel.full_pass_at = 1e9
    plain = twin.Logistic(X, y, kernel.reference)
    decision = {"exact": twin.exact_decision, "poisson": twin.poisson_decision, "firefly": twin.firefly_decision}[name]
    state = kernel.init(kernel.reference.center)
    _, steps = kernel.run(np.random.default_rng(4), state, 400)
    expected = twin.delayed_walk(plain, state.whitened, np.random.default_rng(4), 400, size=2.38 / np.sqrt(2),
                                 radius=1.2, plain_share=0.1, decide=decision(plain))
    np.testing.assert_allclose(steps.draws, expected, rtol=0, atol=1e-10)
    inside = np.linalg.norm(np.linalg.solve(kernel.reference.factor, (expected - kernel.reference.center).T), axis=0)
    assert 0.2 < (inside < 1.2).mean() < 0.8


@pytest.mark.parametrize("name", ["exact", "poisson", "firefly", "firefly-half"])
@pytest.mark.parametrize("radius", [0.5, 1.6])
@few_or_many("chains", 1500, 20_000)
def test_pairs_delayed_or_not_leave_an_enumerable_target_invariant(name, radius, chains):
    """Of four states one, or three, are near the reference: pairs of both kinds, and of one in and one out."""
    lattice = Lattice()
    kernel = KERNELS[name](lattice.model, proposal=lattice.propose)
    kernel._near, kernel._engines = radius, []
    assert_fits(lattice.counts(kernel, chains, 3, np.random.default_rng(5)), lattice.p)


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


@pytest.mark.parametrize("advantage", [1.0, 2.5])
def test_chains_by_weighted_races_are_their_twin(advantage):
    X, y = logistic(300, 3, 1)
    model = mcmc.GLM(X, y, prior_sd=3.0)
    reference = model.reference()
    plain = twin.Logistic(X, y, reference)
    kernel = mcmc.RacingMetropolis(model, 0.1, control_variate=reference, size=0.8, scan_advantage=advantage)
    assert kernel.bound == "betting"
    state = kernel.init(reference.center + 0.01)
    _, steps = kernel.run(np.random.default_rng(4), state, 250)
    decide = twin.weighted_decision(plain, 0.1, bounds.looks(300, 16, 1.1), advantage)
    expected = twin.chain(plain, state.whitened, np.random.default_rng(4), 250, decide=decide, size=0.8,
                          walk=2.38 / np.sqrt(3), walk_share=0.1)
    raced = (steps.rows > 0) & ~steps.full_pass
    assert raced.sum() > 50 and len(set(steps.rows[raced])) > 5 and steps.full_pass.any()
    np.testing.assert_allclose(steps.draws, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", ["normal", "lognormal", "1 in 100", "1 in 1000", "two points"])
def test_weighted_races_keep_their_promise_whatever_the_rows(kind):
    """At a tie, where one gambler may be wrong at any look, over any population and any bounds on its rows."""
    trials, delta, n = 500, 0.05, 2000
    wrong = given_up = 0
    for child, loose in zip(np.random.SeedSequence(7).spawn(3), (0.0, 0.5, 3.0), strict=True):
        rng = np.random.default_rng(child)
        d = POPULATIONS[kind](n, rng)
        table = AliasTable((np.abs(d) + 1e-6 * np.ptp(d)) * np.exp(loose * np.abs(rng.standard_normal(n))))
        source = ArraySource(np.stack([np.zeros(n), d], axis=1))
        for side in (1, -1):
            near = d.sum() - side * 1e-9 * np.ptp(d)
            verdicts = _verdicts(source, table, bounds.looks(n, 16, 1.1), delta, near, 1.0, rng, trials)
            wrong += sum(verdict == (side < 0) for verdict, _ in verdicts)
            given_up += sum(verdict < 0 for verdict, _ in verdicts)
    assert_rate_at_most(wrong, 6 * trials, delta)
    assert given_up > trials


def test_weighted_races_at_a_tie_turn_to_the_full_pass_before_they_have_drawn_as_many_rows():
    """Draws with replacement make nothing exact: once they will not do, each further one is lost."""
    n, rng = 2000, np.random.default_rng(3)
    d = rng.standard_normal(n)
    source = ArraySource(np.stack([np.zeros(n), d], axis=1))
    verdicts = _verdicts(source, AliasTable(np.abs(d) + 0.5), bounds.looks(n, 16, 1.1), 0.05, d.sum(), 1.0, rng, 300)
    drawn = np.array([rows for verdict, rows in verdicts if verdict < 0])
    assert len(drawn) > 200 and drawn.mean() < 0.4 * n


def test_chains_over_python_terms_turn_to_the_full_pass_where_a_race_does_not_pay():
    n, rng = 2000, np.random.default_rng(0)
    X = rng.standard_normal((n, 3))
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-X @ np.full(3, 0.5)))).astype(float)

    def terms(theta, rows):
        return twin.log_terms("logistic", X[rows], y[rows], theta)

    def derivatives(theta, rows):
        x, p = X[rows], 1.0 / (1.0 + np.exp(-X[rows] @ theta))
        return (y[rows] - p)[:, None] * x, -(p * (1.0 - p))[:, None, None] * x[:, :, None] * x[:, None, :]

    third = np.linalg.norm(X, axis=1).max() ** 3 / (6.0 * np.sqrt(3.0))
    model = mcmc.FunctionModel(terms, 3, n, derivatives=derivatives, third_derivatives=third)
    trace = mcmc.sample(mcmc.RacingMetropolis(model, bound="betting"), n_draws=3000, n_chains=1, rng=1)
    raced_in_vain = trace.rows[trace.undecided]
    assert len(raced_in_vain) > 10 and raced_in_vain.mean() < 1.5 * n


def test_weighted_races_refuse_a_row_beyond_its_bound():
    d = np.ones(100)
    source = ArraySource(np.stack([np.zeros(100), d], axis=1))
    with pytest.raises(ValueError, match=r"row \d+ are 0.0 now and 1.0 for the proposal; .* at most 0.5"):
        _verdicts(source, AliasTable(d), [100], 0.05, 0.0, 0.5, np.random.default_rng(1), 1)


def counts(n_rows=20_000):
    """Poisson regression whose terms are of order 1e7, so that their residuals are rounding."""
    rng = np.random.default_rng(0)
    X = np.stack([np.ones(n_rows), 0.1 * rng.standard_normal(n_rows)], axis=1)
    return mcmc.GLM(X, rng.poisson(np.exp(X @ [13.8, 1.0])), family="poisson")


def shifted(n_rows=2000):
    """Terms with a constant of 1e8, which says nothing, and third derivatives that are what they are said to be."""
    third = 3.0 * np.where(np.arange(n_rows) % 2, 1.0, -1.0)

    def terms(theta, rows):
        return 1e8 - 0.5 * theta[0] ** 2 + third[rows] * theta[0] ** 3 / 6.0

    def derivatives(theta, rows):
        gradient, hessian = -theta[0] + third[rows] * theta[0] ** 2 / 2.0, -1.0 + third[rows] * theta[0]
        return gradient[:, None], hessian[:, None, None]

    return mcmc.FunctionModel(terms, 1, n_rows, derivatives=derivatives, third_derivatives=np.abs(third))


@pytest.mark.parametrize("kernel", [mcmc.RacingMetropolis, mcmc.PoissonMinibatchMetropolis, mcmc.FireflyMetropolis])
@pytest.mark.parametrize("make", [counts, shifted])
def test_rounding_of_large_terms_is_not_taken_for_a_wrong_bound(make, kernel):
    k = kernel(make())
    assert isinstance(k, mcmc.RacingMetropolis) <= (getattr(k, "bound", None) == "betting")
    trace = mcmc.sample(k, k.reference.center, n_draws=3000, n_chains=1, rng=1, progress=False)
    assert trace.rows.sum() > 0
    sd = np.sqrt(np.diag(k.reference.factor @ k.reference.factor.T))
    np.testing.assert_allclose(trace.draws[0].std(axis=0), sd, rtol=0.2)


def test_references_know_how_far_terms_round():
    X, y = logistic(300, 3)
    glm = counts(300)
    for model in (mcmc.GLM(X, y, prior_sd=2.0), mcmc.Softmax(X, y.astype(int), prior_sd=2.0), glm, shifted(300)):
        reference = model.reference()
        source, theta = model.engine(None)
        theta[0] = reference.theta_hat
        largest = np.abs(source.read(np.arange(300), [0])).max()
        assert reference.rounding == pytest.approx(2e-13 * (1.0 + largest), rel=1e-12)
    surrogate = TaylorSurrogate(glm._glm, glm.reference().theta_hat)
    assert surrogate.rounding == glm.reference().rounding


def test_the_rule_behind_auto():
    """Rigorous where bounds are known and small; the normal rule where they are large or unknown."""
    X, y = logistic(400, 2)
    assert mcmc.RacingMetropolis(mcmc.GLM(X, y, prior_sd=2.0)).bound == "betting"
    assert mcmc.RacingMetropolis(mcmc.GLM(X, y, prior_sd=2.0), bound="normal").bound == "normal"
    assert mcmc.RacingMetropolis(mcmc.GLM(*logistic(300, 40), prior_sd=2.0)).bound == "normal"
    assert mcmc.RacingMetropolis(mcmc.GLM(X, y, prior_sd=2.0), control_variate=None).bound == "normal"
    assert mcmc.RacingSlice(mcmc.GLM(X, y, prior_sd=2.0)).bound == "betting"


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


def test_tuna_chains_are_their_twin():
    X, y = logistic(300, 3, 1)
    model = mcmc.GLM(X, y, prior_sd=0.2)
    kernel = mcmc.TunaMetropolis(model, chi=1e-3, size=0.03, full_pass_at=1e9)
    reference = model.reference()
    state = kernel.init(reference.center + 0.01)
    _, steps = kernel.run(np.random.default_rng(4), state, 400)
    expected = twin.walk(
        reference, lambda theta: -12.5 * theta @ theta, state.whitened, np.random.default_rng(4), 400,
        size=0.03 * 2.38 / np.sqrt(3), decide=twin.tuna_decision(X, y, model, model.slopes(reference), 1e-3),
    )
    assert 100 < steps.accepted.sum() < 400 and steps.rows.mean() > 1.0
    np.testing.assert_allclose(steps.draws, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("control_variate", ["auto", None])
@pytest.mark.parametrize("proposal", ["random-walk", "langevin", "crank-nicolson"])
def test_a_race_of_all_rows_decides_as_the_exact_kernel(control_variate, proposal):
    X, y = logistic(500, 3, 2)
    model = mcmc.GLM(X, y, prior_sd=3.0)
    options = {"control_variate": control_variate, "proposal": proposal}
    exact, race = mcmc.Metropolis(model, **options), mcmc.RacingMetropolis(model, first_look=500, **options)
    state = exact.init(rng=1)
    a, b = (k.run(np.random.default_rng(8), state, 2000)[1] for k in (exact, race))
    np.testing.assert_array_equal(a.draws, b.draws)
    assert 100 < a.accepted.sum() < 2000


def test_alias_table_has_the_probabilities_asked_for():
    rng = np.random.default_rng(0)
    for weights in (rng.random(1000), rng.lognormal(0, 3, 500), [1.0], [0.0, 2.0, 0.0, 1.0], np.ones(7)):
        table = AliasTable(weights)
        np.testing.assert_allclose(table.probabilities(), np.asarray(weights) / np.sum(weights), atol=1e-14)
        keep, other = twin.alias_table(weights)
        again = np.array(keep) / len(keep)
        np.add.at(again, other, (1.0 - np.array(keep)) / len(keep))
        np.testing.assert_allclose(again, np.asarray(weights) / np.sum(weights), atol=1e-14)
    for bad in ([], [-1.0], [np.nan], [[1.0]]):
        with pytest.raises(ValueError, match="weights"):
            AliasTable(bad)


# Posteriors.


@pytest.mark.parametrize("family", ["logistic", "gaussian", "poisson", "student-t"])
def test_means_and_deviations_agree_with_a_long_exact_run(family):
    rng = np.random.default_rng(11)
    X = rng.standard_normal((1500, 3)) / 2.0
    y = outcomes(family, X, np.array([0.5, -0.3, 0.8]), rng)
    model = mcmc.GLM(X, y, family, **scale_of(family), prior_sd=5.0)
    reference = model.reference()
    exact = mcmc.sample(mcmc.Metropolis(model, control_variate=reference), n_draws=8000, n_chains=1, rng=1)
    for kernel in (
        mcmc.PoissonMinibatchMetropolis(model, control_variate=reference),
        mcmc.FireflyMetropolis(model, control_variate=reference),
        mcmc.RacingMetropolis(model, 0.01, control_variate=reference),
    ):
        ours = mcmc.sample(kernel, n_draws=8000, n_chains=1, rng=2)
        promise = getattr(kernel, "delta", 0.0)
        for power in (1, 2):
            a, b = exact.draws[0], ours.draws[0]
            if power == 2:
                a, b = (a - reference.center) ** 2, (b - reference.center) ** 2
            for j in range(3):
                error = np.hypot(*(x[:, j].std() / np.sqrt(mcmc.effective_sample_size(x[:, j])) for x in (a, b)))
                apart = abs(a[:, j].mean() - b[:, j].mean())
                assert apart < stats.norm.isf(1e-6 / 36) * error + promise * b[:, j].std()


# Hard data.


@few_or_many("n_draws", 2500, 6000)
@pytest.mark.parametrize("data", ["sorted", "heavy", "sparse", "duplicated"])
def test_hard_data(data, n_draws):
    rng = np.random.default_rng(41)
    X, y = logistic(4000, 3, 42)
    if data == "sorted":
        order = np.argsort(y)
        X, y = X[order], y[order]
    elif data == "heavy":
        X = X * np.minimum(rng.standard_t(2.0, (4000, 1)), 30.0)
    elif data == "sparse":
        X[:, 2] *= rng.random(4000) < 0.01
    else:
        X, y = np.repeat(X[:40], 100, axis=0), np.repeat(y[:40], 100)
    model = mcmc.GLM(X, y, prior_sd=5.0)
    reference = model.reference()
    exact = mcmc.sample(mcmc.Metropolis(model, control_variate=reference), n_draws=3000, n_chains=1, rng=1)
    for kernel in (
        mcmc.PoissonMinibatchMetropolis(model, control_variate=reference),
        mcmc.FireflyMetropolis(model, control_variate=reference),
        mcmc.RacingMetropolis(model, 0.01, control_variate=reference),
        mcmc.RacingSlice(model, 1e-3, control_variate=reference),
    ):
        ours = mcmc.sample(kernel, n_draws=n_draws // 6 if isinstance(kernel, mcmc.RacingSlice) else n_draws,
                           n_chains=1, rng=2)
        promise = 2.0 * getattr(kernel, "delta", 0.0)
        for j in range(3):
            a, b = exact.draws[0, :, j], ours.draws[0, :, j]
            error = np.hypot(*(x.std() / np.sqrt(mcmc.effective_sample_size(x)) for x in (a, b)))
            assert abs(a.mean() - b.mean()) < stats.norm.isf(1e-6 / 48) * error + promise * a.std()


def test_a_bad_start_is_left():
    X, y = logistic(2000, 3, 5)
    kernel = mcmc.PoissonMinibatchMetropolis(mcmc.GLM(X, y, prior_sd=10.0), walk_share=0.5)
    far = kernel.reference.center + 30.0 * kernel.reference.factor.sum(axis=1)
    trace = mcmc.sample(kernel, far, n_draws=2000, n_chains=1, n_tune=3000, rng=1)
    assert np.abs(kernel._take(kernel.init().tuning).whiten(trace.draws[0, -1])).max() < 6.0


def test_weak_posteriors_are_read_in_full():
    X, y = logistic(30, 3, 6)
    trace = mcmc.sample(mcmc.PoissonMinibatchMetropolis(mcmc.GLM(X, y, prior_sd=3.0)), n_draws=500, n_chains=1, rng=1)
    assert trace.full_pass.any() and (trace.rows[trace.full_pass] == 30).all()


# User functions.


def quadratic(y, bad=None):
    def terms(theta, rows):
        out = -0.5 * (y[rows] - theta[0]) ** 2
        if bad is not None and theta[0] > 1.3:
            out[:] = bad
        return out

    return terms


@pytest.mark.parametrize("kernel", [mcmc.Metropolis, mcmc.RacingMetropolis])
def test_terms_of_minus_infinity_reject_and_nan_raises(kernel):
    y = np.random.default_rng(0).normal(1.2, 1.0, 100)
    walled = kernel(mcmc.FunctionModel(quadratic(y, -np.inf), 1, 100), covariance=[[0.05]])
    trace = mcmc.sample(walled, [1.0], n_draws=500, n_chains=1, n_tune=100, rng=1)
    assert trace.draws.max() <= 1.3 and 50 < trace.accepted.sum() < 500
    for bad in (np.nan, np.inf):
        broken = kernel(mcmc.FunctionModel(quadratic(y, bad), 1, 100), covariance=[[0.05]])
        with pytest.raises(ValueError, match="row") as caught:
            mcmc.sample(broken, [1.0], n_draws=500, n_chains=1, n_tune=0, rng=1)
        assert 0 < caught.value.trace.n_draws < 500


@pytest.mark.parametrize("value, message", [
    (np.nan, "the log-likelihood of row 10003 is nan; finite numbers are needed, or -inf"),
    (np.inf, "the log-likelihood of row 10003 is inf; finite numbers are needed, or -inf"),
    (1.5e308, "the sum of the log-likelihoods overflows, though each of them is finite"),
])
@pytest.mark.parametrize("kernel", ["metropolis", "poisson"])
def test_a_full_pass_names_the_row_that_spoils_its_sum(kernel, value, message):
    n, spoilt = 12_000, [10_003, 11_000]

    def terms(theta, rows):
        return np.where(np.isin(rows, spoilt) & (theta[0] > 0.05), value, -0.5 * theta[0] ** 2)

    def derivatives(theta, rows):
        return np.full((len(rows), 1), -theta[0]), np.full((len(rows), 1, 1), -1.0)

    model = mcmc.FunctionModel(terms, 1, n, derivatives=derivatives, third_derivatives=1e9)
    full = mcmc.PoissonMinibatchMetropolis(model) if kernel == "poisson" else mcmc.Metropolis(model)
    with pytest.raises(ValueError, match=message):
        mcmc.sample(full, [0.04], n_draws=5000, n_chains=1, n_tune=0, rng=1)


def test_derivatives_of_a_function_save_rows():
    rng = np.random.default_rng(3)
    y = rng.normal(1.0, 2.0, 4000)

    def terms(theta, rows):
        return -0.5 * ((y[rows] - theta[0]) * np.exp(-theta[1])) ** 2 - theta[1]

    def derivatives(theta, rows):
        z, s = (y[rows] - theta[0]) * np.exp(-theta[1]), np.exp(-theta[1])
        gradient = np.stack([z * s, z * z - 1.0], axis=1)
        hessian = np.empty((len(rows), 2, 2))
        hessian[:, 0, 0], hessian[:, 1, 1] = -s * s, -2 * z * z
        hessian[:, 0, 1] = hessian[:, 1, 0] = -2 * z * s
        return gradient, hessian

    model = mcmc.FunctionModel(terms, 2, 4000, derivatives=derivatives, start=[0.0, 1.0])
    reference = model.reference()
    np.testing.assert_allclose(reference.center, [y.mean(), np.log(y.std())], atol=1e-6)
    np.testing.assert_allclose(reference.factor @ reference.factor.T, np.diag([y.var() / 4000, 1 / 8000]), atol=1e-8)
    aided = mcmc.sample(mcmc.RacingMetropolis(model), n_draws=1500, n_chains=1, rng=1)
    dull = mcmc.sample(mcmc.RacingMetropolis(model, control_variate=None), n_draws=100, n_chains=1, rng=1)
    assert aided.rows.mean() < dull.rows.mean() / 3
    assert np.abs(aided.draws.mean(axis=(0, 1)) - reference.center).max() < 0.2 * np.sqrt(y.var() / 4000)


def test_a_source_with_a_support_is_raced_by_betting():
    y = np.random.default_rng(1).random(5000)

    def make():
        theta = np.zeros((2, 1))
        rewards = lambda arms, rows: np.tanh(theta[arms, 0]) * (y[rows, None] - 0.5)  # noqa: E731
        return CallableSource(rewards, 2, 5000, support=(-0.5, 0.5)), theta

    kernel = mcmc.RacingMetropolis(mcmc.SourceModel(make, prior_sd=1.0))
    assert kernel.bound == "betting"
    assert 0 < mcmc.sample(kernel, [0.0], n_draws=200, n_chains=2, rng=1).accepted.sum() < 400


@pytest.mark.parametrize("make_kernel", [mcmc.Metropolis, mcmc.RacingMetropolis])
def test_what_a_source_knows_of_its_sums_counts(make_kernel):
    """A source with rows that are always read, and a surrogate in the data: its own control variate."""
    y = np.random.default_rng(1).normal(0.7, 1.0, 800)

    def make():
        theta = np.zeros((2, 1))
        terms = CallableSource(lambda arms, rows: -0.5 * (y[rows, None] - theta[arms, 0]) ** 2, 2, 800)
        near = CallableSource(lambda arms, rows: 0.9 * y[rows, None] * theta[arms, 0], 2, 800)
        totals = lambda: 0.9 * y.sum() * theta[:, 0]  # noqa: E731
        return ControlVariate(terms, near, totals, always_read=np.arange(0, 800, 40)), theta

    kernel = make_kernel(mcmc.SourceModel(make), covariance=[[1 / 800]])
    trace = mcmc.sample(kernel, [y.mean()], n_draws=1500, n_chains=1, n_tune=100, rng=1)
    a = trace.draws[0, :, 0]
    error = a.std() / np.sqrt(mcmc.effective_sample_size(a))
    assert abs(a.mean() - y.mean()) < stats.norm.isf(1e-6) * error
    assert 0.8 < a.std() * np.sqrt(800) < 1.2


# Running.


def raced(n_rows=2000):
    return mcmc.RacingMetropolis(mcmc.GLM(*logistic(n_rows, 3, 7), prior_sd=10.0))


def test_threads_make_the_chains_that_one_thread_makes():
    for kernel in (raced(), mcmc.PoissonMinibatchMetropolis(raced().model)):
        a = mcmc.sample(kernel, n_draws=3000, n_chains=3, rng=5, threads=1)
        b = mcmc.sample(kernel, n_draws=3000, n_chains=3, rng=5, threads=3)
        np.testing.assert_array_equal(a.draws, b.draws)
        np.testing.assert_array_equal(a.rows, b.rows)
        assert not np.array_equal(a.draws[0], a.draws[1])


@pytest.mark.parametrize("name", [*KERNELS, "slice", "race-slice"])
def test_every_kernel_goes_on_bit_for_bit_and_in_threads_as_in_turn(name, tmp_path):
    model = mcmc.GLM(*logistic(400, 3, 7), prior_sd=10.0)
    make = {**KERNELS, "slice": mcmc.Slice, "race-slice": mcmc.RacingSlice}[name]
    options = {"size": 0.05} if name == "tuna" else {}
    kernel = make(model, **options)
    whole = mcmc.sample(kernel, n_draws=90, n_chains=2, n_tune=60, rng=5, threads=1)
    side_by_side = mcmc.sample(kernel, n_draws=90, n_chains=2, n_tune=60, rng=5, threads=2)
    start = mcmc.sample(kernel, n_draws=40, n_chains=2, n_tune=60, rng=5, checkpoint=tmp_path / "chains")
    rest = mcmc.sample(make(model, **options), pickle.loads(pickle.dumps(start)), n_draws=50)
    resumed = mcmc.sample(make(model, **options), n_draws=90, n_chains=2, n_tune=60, checkpoint=tmp_path / "chains")
    for part in ("draws", "rows", "looks", "accepted", "full_pass", "undecided"):
        expected = getattr(whole, part)
        np.testing.assert_array_equal(getattr(side_by_side, part), expected)
        np.testing.assert_array_equal(getattr(resumed, part), expected)
        joined = np.concatenate([getattr(start, part), getattr(rest, part)], axis=1)
        np.testing.assert_array_equal(joined, expected)
    assert whole.accepted.any()


def test_chains_of_one_thread_take_turns_so_that_each_has_draws_when_sampling_is_cut_short():
    calls = []

    def callback(chain, steps):
        calls.append(chain)
        if len(calls) == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        mcmc.sample(raced(300), n_draws=10**8, n_chains=3, n_tune=0, rng=5, threads=1, callback=callback)
    assert calls == [0, 1, 2] * 3 and caught.value.trace.n_draws >= 3 * 32


def test_a_trace_goes_on_as_if_it_had_never_stopped():
    kernel = raced()
    whole = mcmc.sample(kernel, n_draws=700, n_chains=2, rng=5)
    start = mcmc.sample(kernel, n_draws=300, n_chains=2, rng=5)
    for again in (start, pickle.loads(pickle.dumps(start))):
        rest = mcmc.sample(pickle.loads(pickle.dumps(kernel)), again, n_draws=400)
        np.testing.assert_array_equal(np.concatenate([start.draws, rest.draws], axis=1), whole.draws)
        np.testing.assert_array_equal(np.concatenate([start.rows, rest.rows], axis=1), whole.rows)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("when", [2, 6])
def test_a_callback_that_raises_loses_nothing_and_the_checkpoint_goes_on(tmp_path, threads, when):
    kernel = raced(300)
    whole = mcmc.sample(kernel, n_draws=4000, n_chains=2, rng=5)
    path = tmp_path / "chains"
    calls, seen = [], []
    lock = threading.Lock()

    def callback(chain, steps):
        with lock:
            calls.append(chain)
            seen.append((chain, len(steps)))
            if len(calls) == when:
                raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        mcmc.sample(kernel, n_draws=4000, n_chains=2, rng=5, checkpoint=path, callback=callback, threads=threads)
    made = caught.value.trace
    assert sum(len(chain) for chain in made.chains) <= 8000
    for ours, right in zip(made.chains, whole.chains, strict=True):
        np.testing.assert_array_equal(ours.draws, right.draws[: len(ours)])
    finished = mcmc.sample(kernel, n_draws=4000, n_chains=2, rng=5, checkpoint=path)
    np.testing.assert_array_equal(finished.draws, whole.draws)
    with pytest.raises(ValueError, match="another run.*RacingMetropolis.*there.*'Metropolis'.*here"):
        mcmc.sample(mcmc.Metropolis(kernel.model), n_draws=4000, n_chains=2, checkpoint=path)


def scaled_terms(y, scale=1.0):
    return lambda theta, rows: -0.5 * (y[rows] - theta[0]) ** 2 / scale


def checkpointed(kind, *, row=0.0, prior_sd=10.0, scale=1.0):
    """A kernel over data of which one row, the prior or a number may be another."""
    if kind == "softmax":
        X, y = logistic(300, 2, 7)
        X[77, 1] += row
        return mcmc.Slice(mcmc.Softmax(X, y.astype(int), prior_sd=prior_sd), width=scale)
    if kind == "arch":
        returns = np.random.default_rng(3).standard_t(6.0, 400)
        returns[77] += row
        return mcmc.RacingMetropolis(mcmc.ARCH(returns, 1, prior_sd=prior_sd), 0.05 * scale)
    if kind in ("glm", "binned", "poisson"):
        X, y = logistic(300, 2, 7)
        y[77] = y[77] if row == 0.0 else 1.0 - y[77]
        model = mcmc.GLM(X, y, prior_sd=prior_sd)
        if kind == "poisson":
            return mcmc.PoissonMinibatchMetropolis(model, size=0.5 * scale)
        return mcmc.Metropolis(mcmc.Binned(model) if kind == "binned" else model, size=0.5 * scale)
    y = np.random.default_rng(1).normal(size=200)
    y[77] += row
    if kind == "gibbs":
        means = np.array([0.0, 0.1, 0.3]) * scale
        factors = lambda states, rows, z: -0.5 * (y[rows, None] - means[states]) ** 2  # noqa: E731
        return mcmc.RacingGibbs([mcmc.Categorical(3, factors, 200, log_prior=[0.0, 0.0, -prior_sd])])
    if kind == "source":
        def make():
            theta = np.zeros((2, 1))
            terms = lambda arms, rows: -0.5 * (y[rows, None] - theta[arms, 0]) ** 2 / scale  # noqa: E731
            return CallableSource(terms, 2, 200), theta
        return mcmc.RacingMetropolis(mcmc.SourceModel(make, prior_sd=prior_sd), covariance=[[0.01]])
    return mcmc.RacingMetropolis(mcmc.FunctionModel(scaled_terms(y, scale), 1, 200, prior_sd=prior_sd))


@pytest.mark.parametrize("kind", ["glm", "softmax", "arch", "binned", "poisson", "function", "source", "gibbs"])
def test_a_checkpoint_is_of_one_run(kind, tmp_path):
    path, options = tmp_path / "chains", {"n_chains": 2, "n_tune": 5, "rng": 5}
    kernel = checkpointed(kind)
    whole = mcmc.sample(kernel, n_draws=20, **options)
    mcmc.sample(kernel, n_draws=12, checkpoint=path, **options)
    before = path.read_bytes()
    wrong = {
        "model": [({"row": 0.5}, {}), ({"prior_sd": 9.0}, {})],
        "kernel|model": [({"scale": 1.5}, {})],
        "seed": [({}, {"rng": 6}), ({}, {"rng": np.random.default_rng(7)})],
        "n_chains 2 there, 3 here": [({}, {"n_chains": 3})],
        "n_tune": [({}, {"n_tune": 6})],
        "init": [({}, {"init": np.zeros_like(kernel.init().position)})],
        "has 12 draws": [({}, {"n_draws": 11})],
    }
    for name, cases in wrong.items():
        for other, asked in cases:
            with pytest.raises(ValueError, match=f"(of another run.*)?({name})(.|\n)*remove it.*another path"):
                mcmc.sample(checkpointed(kind, **other), checkpoint=path, **{"n_draws": 20, **options, **asked})
    assert path.read_bytes() == before
    for asked in (kernel, checkpointed(kind)):
        path.write_bytes(before)
        for rng in (5, None, np.random.SeedSequence(5), np.random.default_rng(5)):
            resumed = mcmc.sample(asked, n_draws=20, checkpoint=path, **{**options, "rng": rng})
            np.testing.assert_array_equal(resumed.draws, whole.draws)


def test_a_trace_goes_on_through_a_checkpoint_of_its_own(tmp_path):
    kernel, path = raced(300), tmp_path / "chains"
    start, other = (mcmc.sample(kernel, n_draws=20, n_chains=2, n_tune=5, rng=rng) for rng in (5, 6))
    mcmc.sample(kernel, start, n_draws=10, checkpoint=path)
    again = mcmc.sample(kernel, pickle.loads(pickle.dumps(start)), n_draws=30, checkpoint=path)
    np.testing.assert_array_equal(again.draws, mcmc.sample(kernel, start, n_draws=30).draws)
    with pytest.raises(ValueError, match="of another run, which differs in init"):
        mcmc.sample(kernel, other, n_draws=30, checkpoint=path)


@pytest.mark.parametrize("content", [b"hello", b"", pickle.dumps((2, {}))])
def test_damaged_checkpoints_and_wrong_places_are_told_before_sampling(content, tmp_path):
    path, calls = tmp_path / "chains", []
    path.write_bytes(content)
    callback = lambda chain, steps: calls.append(chain)  # noqa: E731
    for place, words in ((path, "chains' holds no chains of this fastrace"), (tmp_path, "a folder; the path of a file"),
                         (tmp_path / "none" / "chains", "its folder does not exist")):
        with pytest.raises(ValueError, match=words):
            mcmc.sample(raced(100), n_draws=10, n_chains=1, checkpoint=place, callback=callback)
    assert not calls and path.read_bytes() == content


def test_a_user_function_that_raises_in_mid_chain():
    y = np.random.default_rng(0).normal(size=50)
    calls = []

    def terms(theta, rows):
        calls.append(0)
        if len(calls) > 400:
            raise RuntimeError("mine")
        return -0.5 * (y[rows] - theta[0]) ** 2

    kernel = mcmc.Metropolis(mcmc.FunctionModel(terms, 1, 50))
    for tune in (0, 130):
        calls.clear()
        with pytest.raises(RuntimeError, match="mine") as caught:
            mcmc.sample(kernel, [0.0], n_draws=1000, n_chains=1, n_tune=tune, rng=1)
        assert caught.value.trace.n_draws >= 398 - tune - 2


def test_steps_one_by_one_are_a_run():
    kernel = raced()
    state = kernel.init(rng=1)
    _, steps = kernel.run(np.random.default_rng(2), state, 50)
    rng = np.random.default_rng(2)
    for i in range(50):
        state, info = kernel.step(rng, state)
        np.testing.assert_array_equal(state.position, steps.draws[i])
        assert info == steps.info(i)


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


def test_statistics_and_containers():
    trace = mcmc.sample(raced(), n_draws=300, n_chains=2, rng=1)
    assert trace.rows.shape == trace.looks.shape == trace.accepted.shape == (2, 300)
    assert ((trace.rows == 0) == (trace.looks == 0)).all()
    assert (trace.undecided >= trace.full_pass).all()
    groups = trace.to_arrays()
    assert set(groups["sample_stats"]) == {"n_rows", "n_looks", "accepted", "full_pass", "undecided"}
    assert groups["posterior"]["theta"].shape == (2, 300, 3)
    assert "rows a step" in str(trace) and "RacingMetropolis" in str(trace)
    plain = json.loads(json.dumps(trace.to_dict(), allow_nan=False))
    assert plain["posterior"]["theta"] == trace.draws.tolist() and plain["kernel"]["kernel"] == "RacingMetropolis"
    frame = trace.to_frame()
    assert list(frame["coordinate"]) == [f"x{j}" for j in range(3)]
    assert list(frame["ess"]) == pytest.approx(trace.ess())
    page = trace._repr_html_()
    assert page.count("<tr>") == 4 and f"{frame['mean'][0]:.4g}" in page
    assert "[[" not in repr(trace) and len(repr(trace)) < 200
    again = pickle.loads(pickle.dumps(trace))
    np.testing.assert_array_equal(again.draws, trace.draws)


def test_effective_sample_size_of_an_autoregression():
    rng = np.random.default_rng(0)
    for rho in (0.0, 0.5, 0.9, -0.4):
        x = np.zeros((4, 20_000))
        noise = rng.standard_normal(x.shape)
        for t in range(1, x.shape[1]):
            x[:, t] = rho * x[:, t - 1] + noise[:, t]
        expected = x.size * (1 - rho) / (1 + rho)
        assert 0.8 < mcmc.effective_sample_size(x) / expected < 1.25
    assert mcmc.effective_sample_size(np.ones((2, 50))) == 100


def test_arviz(monkeypatch):
    """Both lines of ArviZ are asked in their own way."""
    import sys
    import types

    trace = mcmc.sample(raced(300), n_draws=50, n_chains=2, n_tune=0, rng=1)
    for version in ("0.23.4", "1.3.0"):
        asked = {}
        stand_in = types.SimpleNamespace(__version__=version, from_dict=lambda *a, _to=asked, **k: _to.update(a=a, k=k))
        monkeypatch.setitem(sys.modules, "arviz", stand_in)
        trace.to_arviz()
        if version[0] == "0":
            assert set(asked["k"]) == {"posterior", "sample_stats", "attrs", "coords", "dims"}
        else:
            assert set(asked["a"][0]) == {"posterior", "sample_stats"} and "posterior" in asked["k"]["attrs"]
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match="arviz"):
        trace.to_arviz()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda m: mcmc.RacingMetropolis(m, 1.5), "delta"),
        (lambda m: mcmc.RacingMetropolis(m, proposal="guess"), "proposal"),
        (lambda m: mcmc.RacingMetropolis(m, size=0.0), "size"),
        (lambda m: mcmc.RacingMetropolis(m, size=1.5), "at most 1"),
        (lambda m: mcmc.RacingMetropolis(m, walk_share=1.0), "walk_share"),
        (lambda m: mcmc.RacingMetropolis(m, control_variate=[0.0]), "theta_hat"),
        (lambda m: mcmc.RacingMetropolis(m, access="shuffled"), "shuffle"),
        (lambda m: mcmc.RacingMetropolis(m, "x"), "delta"),
        (lambda m: mcmc.RacingMetropolis(m, bound="betting", control_variate=None), "support"),
        (lambda m: mcmc.PoissonMinibatchMetropolis(m, full_pass_at=0.0), "full_pass_at"),
        (lambda m: mcmc.PoissonMinibatchMetropolis(mcmc.FunctionModel(divmod, 1, 5)), "third derivative"),
        (lambda m: mcmc.RacingMetropolis(mcmc.FunctionModel(divmod, 1, 5), proposal="langevin"), "derivatives"),
        (lambda m: mcmc.RacingMetropolis(mcmc.FunctionModel(divmod, 2, 5), covariance=[[1.0]]), "covariance"),
        (lambda m: mcmc.TunaMetropolis(m, chi=0.0), "chi"),
        (lambda m: mcmc.TunaMetropolis(m, proposal="langevin"), "random-walk"),
        (lambda m: mcmc.RacingMetropolis(m).init([0.0]), "position"),
        (lambda m: mcmc.sample(mcmc.RacingMetropolis(m), np.zeros((3, 5)), n_chains=2), "init"),
        (lambda m: mcmc.sample(mcmc.RacingMetropolis(m), n_draws=-1), "n_draws"),
        (lambda m: mcmc.GLM(m._glm.X, m._glm.y, prior_sd=0.0), "prior_sd"),
        (lambda m: mcmc.FunctionModel(None, 1, 5), "terms"),
    ],
)
def test_bad_arguments(make, message):
    model = mcmc.GLM(*logistic(200, 3, 1))
    with pytest.raises((ValueError, TypeError), match=message):
        make(model)


def test_gil_is_released():
    """Another thread makes progress beside a chain of compiled code: beside a longer one, should chance keep it out."""
    kernel = mcmc.Metropolis(mcmc.GLM(*logistic(20_000, 3, 1)), control_variate=None)
    state, ticks = kernel.init(rng=1), 0
    for n_steps in (300, 3000, 30_000):
        done = []
        worker = threading.Thread(
            target=lambda n=n_steps, done=done: done.append(kernel.run(np.random.default_rng(1), state, n)))
        worker.start()
        while worker.is_alive():
            ticks += 1
            worker.join(0.001)
        assert done
        if ticks > 5:
            break
    assert ticks > 5


# Slices.


@few_or_many("n_draws", 500, 1200)
@pytest.mark.parametrize("kernel", [mcmc.Slice, mcmc.RacingSlice])
@pytest.mark.parametrize("control_variate", ["auto", None])
def test_slices_have_the_posterior(kernel, control_variate, n_draws):
    X, y = logistic(1500, 2, 12)
    model = mcmc.GLM(X, y, prior_sd=5.0)
    reference = model.reference()
    exact = mcmc.sample(mcmc.Metropolis(model, control_variate=reference), n_draws=5 * n_draws, n_chains=1, rng=1)
    ours = mcmc.sample(kernel(model, control_variate=control_variate), n_draws=n_draws, n_chains=1, n_tune=0, rng=2)
    for j in range(2):
        for power in (1, 2):
            a, b = ((t.draws[0, :, j] - reference.center[j]) ** power for t in (exact, ours))
            error = np.hypot(*(x.std() / np.sqrt(mcmc.effective_sample_size(x)) for x in (a, b)))
            assert abs(a.mean() - b.mean()) < stats.norm.isf(1e-6 / 16) * error + 0.02 * a.std()
    assert kernel is mcmc.RacingSlice or (ours.looks >= 2).all()


def test_a_racing_slice_of_all_rows_is_the_exact_one():
    X, y = logistic(300, 2, 13)
    model = mcmc.GLM(X, y, prior_sd=5.0)
    for control_variate in ("auto", None):
        exact = mcmc.Slice(model, control_variate=control_variate)
        race = mcmc.RacingSlice(model, first_look=300, control_variate=control_variate)
        state = exact.init(rng=1)
        a, b = (k.run(np.random.default_rng(3), state, 200)[1].draws for k in (exact, race))
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("width", "most"), [(2.5, 16), (0.4, 3)])
def test_slices_are_their_twin(width, most):
    X, y = logistic(300, 3, 4)
    kernel = mcmc.Slice(mcmc.GLM(X, y), width=width, max_steps=most)
    model, reference = twin.Logistic(X, y, kernel.reference), kernel.reference

    def log_density(z):
        return model.residuals(reference.center + reference.factor @ z).sum() - 0.5 * (z @ z)

    start = kernel.init(reference.center + reference.factor @ [0.5, -1.0, 0.2])
    ours = kernel.run(np.random.default_rng(3), start, 60)[1].draws
    z = twin.slice_sweeps(log_density, start.whitened, np.random.default_rng(3), 60, width=width, most=most)
    np.testing.assert_allclose(ours, reference.center + z @ reference.factor.T, rtol=1e-7, atol=1e-9)


def test_slice_samplers_have_no_proposal():
    model = mcmc.GLM(*logistic(200, 2))
    for kernel in (mcmc.Slice(model), mcmc.RacingSlice(model)):
        assert not hasattr(kernel, "proposal") and not hasattr(kernel, "delayed")
        assert {"width", "max_steps"} < kernel.describe().keys() and "proposal" not in repr(kernel)
        with pytest.raises(TypeError, match="walk_share"):
            type(kernel)(model, walk_share=0.5)


def test_slice_arguments():
    model = mcmc.GLM(*logistic(200, 2, 1))
    for options in ({"width": 0.0}, {"max_steps": 0}):
        for kernel in (mcmc.Slice, mcmc.RacingSlice):
            with pytest.raises(ValueError, match="width|max_steps"):
                kernel(model, **options)


# Categorical variables.


class Coupled:
    """A binary and a three-state variable, coupled by their factors, of which they have different numbers."""

    def __init__(self, scale=0.05, seed=4):
        rng = np.random.default_rng(seed)
        self.a = scale * rng.standard_normal((300, 2, 3))      # log-factors that see both
        self.b = scale * rng.standard_normal((200, 3))         # those of the second alone
        self.log_prior = np.log([0.5, 0.3, 0.2])
        log_p = self.a.sum(axis=0) + self.b.sum(axis=0) + self.log_prior
        self.p = np.exp(log_p - log_p.max())
        self.p /= self.p.sum()
        both = np.concatenate([self.a, np.broadcast_to(self.b[:, None], (200, 2, 3))])
        self.variables = [
            mcmc.Categorical(2, lambda states, rows, z: self.a[rows][:, states, z[1]], 300),
            mcmc.Categorical(3, lambda states, rows, z: both[rows][:, z[0]][:, states], 500, log_prior=self.log_prior),
        ]

    def counts(self, kernel, trials, rng):
        out = np.zeros(6, int)
        for start in rng.choice(6, size=trials, p=self.p.ravel()):
            z = kernel.run(rng, kernel.init(np.unravel_index(start, (2, 3))), 1)[1].draws[-1]
            out[3 * z[0] + z[1]] += 1
        return out


@pytest.mark.parametrize("name", ["exact", "poisson"])
def test_exact_gibbs_kernels_leave_an_enumerable_target_invariant(name):
    target = Coupled(0.02 if name == "poisson" else 0.05)
    if name == "exact":
        kernel = mcmc.Gibbs(target.variables)
    else:
        kernel = mcmc.PoissonMinibatchGibbs(target.variables, (-0.12, 0.12), rate=400.0)
    assert_fits(target.counts(kernel, 1500, np.random.default_rng(1)), target.p.ravel())


def test_racing_gibbs_is_within_its_promise():
    target = Coupled()
    kernel = mcmc.RacingGibbs(target.variables, 0.05)
    counts = target.counts(kernel, 500, np.random.default_rng(2))
    for count, p in zip(counts, target.p.ravel(), strict=True):
        assert_rate_at_most(count, 500, p + 2 * 0.05)
        assert_rate_at_most(500 - count, 500, 1 - p + 2 * 0.05)


def coupled_tables(spread, n=400):
    """Two variables of three and two states; the tables of each depend on the other's state."""
    rng = np.random.default_rng(9)
    first, second = spread * rng.random((2, n, 3)), spread * rng.random((3, n, 2))
    first[:, :, 0] += 0.003
    tables = [(lambda z: first[z[1]], lambda z: [0.2 * z[1], 0.0, -0.1]),
              (lambda z: second[z[0]], lambda z: [0.0, 0.5])]
    variables = [
        mcmc.Categorical(3, lambda states, rows, z: first[z[1]][rows][:, states], n, log_prior=tables[0][1]),
        mcmc.Categorical(2, lambda states, rows, z: second[z[0]][rows][:, states], n, log_prior=tables[1][1]),
    ]
    return tables, variables


@pytest.mark.parametrize("name", ["exact", "racing", "poisson", "poisson-rate"])
def test_gibbs_chains_are_their_twins(name):
    tables, variables = coupled_tables(0.25 if name == "racing" else 0.05)
    if name == "exact":
        kernel, draw = mcmc.Gibbs(variables), gibbs_twin.exact
    elif name == "racing":
        kernel = mcmc.RacingGibbs(variables, 0.05, first_look=20)
        plans = [fr.FiniteRace(k, 400, 0.05, "normal", "pairwise", 20)._options.plan(k) for k in (3, 2)]
        source = variables[0].source(np.zeros(2, np.intp))
        draw = gibbs_twin.Racing(plans, [source.scan_advantage + 0.6 / (source.reward_cost * k) for k in (3, 2)])
    else:
        rate = 90.0 if name == "poisson-rate" else None
        kernel = mcmc.PoissonMinibatchGibbs(variables, (0.0, 0.06), rate)
        draw = gibbs_twin.PoissonMinibatch(0.0, 0.06, rate)
    _, steps = kernel.run(np.random.default_rng(5), kernel.init([1, 0]), 200)
    expected = gibbs_twin.sweeps(tables, [1, 0], np.random.default_rng(5), 200, draw)
    np.testing.assert_array_equal(steps.draws, expected)
    assert (np.ptp(steps.draws, axis=0) > 0).all()
    if name == "racing":
        assert draw.n_raced > 20 and draw.n_left_out > 20


def test_racing_gibbs_of_all_factors_is_the_exact_one():
    target = Coupled()
    exact, race = mcmc.Gibbs(target.variables), mcmc.RacingGibbs(target.variables, first_look=500)
    for seed in range(30):
        rngs = [np.random.default_rng(seed) for _ in range(2)]
        variable = seed % 2
        drawn = []
        for kernel, rng in zip((exact, race), rngs, strict=True):
            z = np.array([0, 1])
            engine = kernel._engine(target.variables[variable], z)
            drawn.append(kernel.draw(rng, variable, z, np.zeros(2, int), engine, Tally()))
        assert drawn[0] == drawn[1]


def test_states_with_factors_of_their_own():
    rng = np.random.default_rng(5)
    members = [rng.normal(m, 1.0, n) for m, n in ((0.01, 2000), (0.2, 30), (0.0, 0))]
    sums = np.array([m.sum() for m in members]) / 8
    p = np.exp(sums - sums.max()) / np.exp(sums - sums.max()).sum()
    variable = mcmc.Categorical(3, lambda state, rows, z: members[state][rows] / 8,
                                sizes=lambda z: [len(m) for m in members])
    exact = mcmc.sample(mcmc.Gibbs([variable]), n_draws=3000, n_chains=1, n_tune=0, rng=1)
    assert_fits(np.bincount(exact.draws[0, :, 0], minlength=3), p)
    race = mcmc.sample(mcmc.RacingGibbs([variable], 0.05), n_draws=800, n_chains=1, n_tune=0, rng=1)
    for count, share in zip(np.bincount(race.draws[0, :, 0], minlength=3), p, strict=True):
        assert_rate_at_most(count, 800, share + 0.05)
        assert_rate_at_most(800 - count, 800, 1 - share + 0.05)
    assert race.rows.mean() <= exact.rows.mean()
    # What a support rules out is not read: the small state cannot win.
    members[1], members[0] = np.full(30, -4.0) + 0.01 * rng.random(30), members[0].clip(-4.0, 4.0) + 3.0
    bounded = mcmc.sample(mcmc.RacingGibbs([variable], 0.05, support=(-0.6, 0.9)), n_draws=50, n_chains=1, n_tune=0,
                          rng=1)
    assert (bounded.draws == 0).all()
    assert bounded.rows.mean() <= 20


def test_losing_races_turn_to_full_passes_and_are_reported():
    rng = np.random.default_rng(6)
    flat = rng.standard_normal((3000, 2)) - 0.0
    flat[:, 1] = flat[rng.permutation(3000), 0]
    kernel = mcmc.RacingGibbs([mcmc.Categorical(2, lambda states, rows, z: flat[rows][:, states], 3000)])
    trace = mcmc.sample(kernel, n_draws=100, n_chains=1, n_tune=0, rng=1)
    assert trace.full_pass.mean() > 0.9 and trace.undecided.mean() < 0.3
    model = mcmc.GLM(*logistic(3000, 2, 1))
    plain = mcmc.sample(mcmc.RacingMetropolis(model, control_variate=None), n_draws=1000, n_chains=1, rng=1)
    exact = mcmc.sample(mcmc.Metropolis(model, control_variate=None), n_draws=1000, n_chains=1, rng=1)
    assert plain.rows.mean() < 1.3 * exact.rows.mean()


@pytest.mark.parametrize("racing", [False, True])
def test_gibbs_chains_go_on(racing):
    variables = Coupled().variables
    kernel = mcmc.RacingGibbs(variables) if racing else mcmc.Gibbs(variables)
    whole = mcmc.sample(kernel, n_draws=60, n_chains=2, n_tune=3, rng=5, threads=1)
    start = mcmc.sample(kernel, n_draws=25, n_chains=2, n_tune=3, rng=5, threads=2)
    rest = mcmc.sample(kernel, start, n_draws=35)
    np.testing.assert_array_equal(np.concatenate([start.draws, rest.draws], axis=1), whole.draws)


def test_bad_gibbs_arguments():
    good = Coupled().variables
    for make, message in (
        (lambda: mcmc.Gibbs([]), "variables"),
        (lambda: mcmc.Categorical(0, len, 5), "n_states"),
        (lambda: mcmc.Categorical(2, None, 5), "factors"),
        (lambda: mcmc.Categorical(2, len), "n_factors"),
        (lambda: mcmc.Gibbs(good).init([0, 3]), "position"),
        (lambda: mcmc.PoissonMinibatchGibbs(good, (0.0, 0.0)), "support"),
        (lambda: mcmc.PoissonMinibatchGibbs(good, (0.0, 1.0), rate=-1.0), "rate"),
        (lambda: mcmc.RacingGibbs(good, 2.0), "delta"),
        (lambda: mcmc.sample(mcmc.PoissonMinibatchGibbs(good, (0.0, 1e-3)), n_tune=0), "support"),
        (lambda: mcmc.sample(mcmc.Gibbs([mcmc.Categorical(2, lambda s, r, z: np.full((len(r), len(s)), np.nan), 5)]),
                             n_tune=0, n_chains=1), "nan"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            make()


# What delta bought.


def test_check_bias_sees_an_honest_and_a_broken_race():
    X, y = logistic(4000, 3, 14)
    model = mcmc.GLM(X, y, prior_sd=10.0)
    kernel = mcmc.RacingMetropolis(model, 0.05, control_variate=None, proposal="random-walk", size=3.0)
    trace = mcmc.sample(kernel, n_draws=300, n_chains=2, n_tune=0, rng=1)
    check = mcmc.check_bias(kernel, trace, n=400, rng=1)
    assert_rate_at_most(check.n_wrong, check.n_checked, kernel.delta)
    assert check.interval[0] <= check.rate <= check.interval[1] and "promised 0.05" in str(check)
    careless = mcmc.RacingMetropolis(model, 0.49, control_variate=None, proposal="random-walk", first_look=2)
    found = mcmc.check_bias(careless, trace, n=300, rng=1)
    assert found.n_wrong > 0 and found.n_raced > 0
    with pytest.raises(TypeError, match="Metropolis"):
        mcmc.check_bias(mcmc.Metropolis(model), trace)


def test_check_bias_of_gibbs():
    target = Coupled()
    kernel = mcmc.RacingGibbs(target.variables, 0.05)
    trace = mcmc.sample(kernel, n_draws=100, n_chains=1, n_tune=0, rng=1)
    check = mcmc.check_bias(kernel, trace, n=150, rng=1)
    assert_rate_at_most(check.n_wrong, check.n_checked, 0.05)


def test_what_is_no_kernel_callback_control_variate_or_list_is_told():
    model, kernel = raced(100).model, raced(100)
    for wrong in (3.0, mcmc.Metropolis):
        with pytest.raises(TypeError, match="a kernel such as"):
            mcmc.sample(wrong)
    with pytest.raises(TypeError, match="callback is 3"):
        mcmc.sample(kernel, callback=3)
    with pytest.raises(ValueError, match="control_variate is None"):
        mcmc.PoissonMinibatchMetropolis(model, control_variate=None)
    with pytest.raises(TypeError, match="a list of them is needed"):
        mcmc.Gibbs(mcmc.Categorical(2, lambda s, rows, z: np.zeros((len(rows), len(s))), 5))


@pytest.mark.parametrize(("support", "broken"), [((-0.5, 0.5), False), ((-0.011, 0.011), True)])
def test_racing_gibbs_notes_a_broken_support_as_a_field(support, broken):
    y = np.random.default_rng(0).random(3000)
    y[7] = 0.6 if support[1] > 0.1 else 30.0

    def factors(states, rows, z):
        return (y[rows, None] - 0.5) * np.array([0.0, 0.01, 0.02])[states]

    kernel = mcmc.RacingGibbs([mcmc.Categorical(3, factors, 3000)], 0.05, support=support)
    sampler = kernel._engine(kernel.variables[0], np.zeros(1, np.intp))[1]
    sampler.draw_many(200)
    assert sampler._core.outside is broken
    assert any("outside" in words for words in sampler.stats.warnings) is broken
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        mcmc.sample(kernel, n_draws=50, n_chains=1, n_tune=0, rng=1)
    assert kernel.outside is broken
