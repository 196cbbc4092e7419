"""Kernels over rows: exact ones are exact, races are within their promise, chains are their twins; hard data."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from chains import EXACT, KERNELS, RACES, Lattice, logistic, outcomes, raced, rare, scale_of
from fastrace import bounds, mcmc
from guarantee import assert_fits, assert_rate_at_most, few_or_many
from reference import mcmc as twin


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
