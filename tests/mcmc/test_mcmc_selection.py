"""Spike-and-slab selection: its twin, sets that can be enumerated, calibration, and what it refuses."""

import itertools
import math
import pickle
import warnings

import numpy as np
import pytest
from scipy import special, stats

from fastrace import mcmc
from guarantee import assert_fits, assert_mean, assert_rate_at_most, assert_uniform, few_or_many
from reference import inclusion

DECISIONS = ["race", "poisson", "exact"]


def logistic(n_rows, beta, seed=0, **options):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, len(beta)))
    y = rng.random(n_rows) < special.expit(X @ beta)
    return mcmc.GLM(X, y, **({"prior_sd": 1.0} | options))


def gaussian(n_rows=60, p=5, seed=0, **options):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, p))
    X[:, 1] = 0.8 * X[:, 0] + 0.5 * X[:, 1]         # two that stand for one another
    y = X @ np.resize([0.3, 0.2, 0.0], p) + rng.normal(size=n_rows)
    return X, y, mcmc.GLM(X, y, "gaussian", 1.0, **options)


def sets_of(draws):
    """The number of the set that each draw is of."""
    return (draws.reshape(-1, draws.shape[-1]) != 0.0) @ (1 << np.arange(draws.shape[-1]))


def enumerated(X, y, sd, mean, log_prior):
    """Probability of each set in a Gaussian model with unit scale."""
    p = X.shape[1]
    logs = np.empty(1 << p)
    for number, chosen in enumerate(itertools.product([False, True], repeat=p)):
        chosen = np.array(chosen[::-1])
        covariance = np.eye(len(y)) + sd**2 * X[:, chosen] @ X[:, chosen].T
        left = y - X[:, chosen].sum(axis=1) * mean
        logs[number] = log_prior(chosen) - 0.5 * (
            np.linalg.slogdet(covariance)[1] + left @ np.linalg.solve(covariance, left))
    return np.exp(logs - special.logsumexp(logs))


def logs_of_sets(X, y, scale, slab):
    """Log probability of each set with its values integrated out, for errors and slabs of these deviations."""
    total = np.empty(1 << X.shape[1])
    for number in range(len(total)):
        chosen = (number >> np.arange(X.shape[1])) & 1 == 1
        covariance = scale**2 * np.eye(len(y)) + slab**2 * (X * chosen) @ X.T
        total[number] = np.log(np.where(chosen, 0.3, 0.7)).sum() - 0.5 * (
            np.linalg.slogdet(covariance)[1] + y @ np.linalg.solve(covariance, y))
    return total


def assert_sets_fit(kernel, probabilities, n, thin, seed=1):
    """Chi-squared of the sets in thinned draws, rare ones together."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        trace = mcmc.sample(kernel, n_draws=n * thin, n_chains=1, n_tune=0, rng=seed)
    counts = np.bincount(sets_of(trace.draws[:, ::thin]), minlength=len(probabilities))
    rare = probabilities * n < 8.0
    groups = [*np.flatnonzero(~rare).tolist()]
    seen, expected = counts[groups].tolist(), probabilities[groups].tolist()
    if rare.any():
        seen, expected = [*seen, int(counts[rare].sum())], [*expected, float(probabilities[rare].sum())]
        if expected[-1] * n < 8.0:
            seen[0], expected[0] = seen[0] + seen.pop(), expected[0] + expected.pop()
    assert_fits(seen, expected)
    return trace


@pytest.mark.parametrize("decision", ["exact", "poisson"])
@few_or_many("n", 1500, 60_000)
def test_all_sets_of_ten_coefficients_have_their_probabilities(n, decision):
    X, y, model = gaussian(p=10, prior_sd=0.5, prior_mean=0.1)
    shares = np.where(np.arange(10) < 5, 0.3, 0.6)
    probabilities = enumerated(X, y, 0.5, 0.1, lambda chosen: np.log(np.where(chosen, shares, 1.0 - shares)).sum())
    assert_sets_fit(mcmc.VariableSelection(model, shares, decision=decision), probabilities, n, 5)


def joint_draws(decision, steps, chance=0.4, slab_sd=1.0):
    """Outcomes and parameters drawn in turn, the latter by a kernel with this probability of inclusion and slab."""
    rng = np.random.default_rng(13)
    X, kept = rng.standard_normal((40, 2)) / 2.0, []
    theta = np.array([0.5, 0.0, 0.0])
    for _ in range(steps):
        y = X @ theta[:2] + np.exp(theta[2]) * rng.standard_normal(40)
        model = mcmc.GLM(X, y, "gaussian", prior_sd=[slab_sd, slab_sd, 0.5])
        kernel = mcmc.VariableSelection(model, chance, decision=decision, delta=0.01)
        theta = kernel.run(rng, kernel.init(theta), 4)[1].draws[-1]
        kept.append([*(theta[:2] != 0.0), *theta, *np.tanh(theta) ** 2])
    return np.array(kept, dtype=float)


def joint_means():
    """Where the probability of inclusion is 0.4, slabs have deviation 1 and the logarithm of the scale 0.5."""
    grid = np.linspace(-8.0, 8.0, 4001)
    wide, narrow = (np.average(np.tanh(sd * grid) ** 2, weights=np.exp(-0.5 * grid**2)) for sd in (1.0, 0.5))
    return [0.4, 0.4, 0.0, 0.0, 0.0, 0.4 * wide, 0.4 * wide, narrow]


@few_or_many("steps", 150, 10_000)
@pytest.mark.parametrize("decision", DECISIONS)
def test_geweke_joint_distribution(decision, steps):
    """Outcomes and parameters drawn in turn keep the prior of coefficients, some of them 0, and of a learned scale."""
    assert_mean(joint_draws(decision, steps), joint_means())


@few_or_many(("steps", "wrong"), (600, {"chance": 0.6}), (15_000, {"chance": 0.45}))
def test_the_joint_test_tells_sets_that_are_wrong(steps, wrong):
    with pytest.raises(AssertionError, match=" against .* standard error "):
        assert_mean(joint_draws("exact", steps, **wrong), joint_means())


@few_or_many(("steps", "wrong"), (600, {"slab_sd": 0.5}), (15_000, {"slab_sd": 0.8}))
def test_the_joint_test_tells_slabs_that_are_wrong(steps, wrong):
    with pytest.raises(AssertionError, match=" against .* standard error "):
        assert_mean(joint_draws("exact", steps, **wrong), joint_means())


@pytest.mark.parametrize("decision", DECISIONS)
@few_or_many("n", 800, 20_000)
def test_a_learned_scale_and_an_intercept_are_always_in(n, decision):
    """Against sums over a grid of the scale's logarithm; both used to be 0 in many draws, a scale of 1."""
    X, y, _ = gaussian(p=3)
    X, y, sds = np.column_stack([X, np.ones(60)]), 0.3 * y + 0.05, np.array([0.5, 0.5, 0.5, 0.4])

    def log_prior(chosen):
        return np.log(np.where(chosen, 0.3, 0.7))[:3].sum() + (0.0 if chosen[3] else -np.inf)

    logs = []
    for log_scale in np.linspace(-3.0, 1.0, 161):
        total = np.empty(16)
        for number in range(16):
            chosen = (number >> np.arange(4)) & 1 == 1
            covariance = math.exp(2.0 * log_scale) * np.eye(60) + (X * sds**2 * chosen) @ X.T
            total[number] = log_prior(chosen) - 0.5 * (
                np.linalg.slogdet(covariance)[1] + y @ np.linalg.solve(covariance, y) + log_scale**2)
        logs.append(total)
    probabilities = special.softmax(special.logsumexp(logs, axis=0))
    model = mcmc.GLM(X, y, "gaussian", prior_sd=[*sds, 1.0])
    kernel = mcmc.VariableSelection(model, 0.3, decision=decision, delta=0.001)
    trace = assert_sets_fit(kernel, np.concatenate([np.zeros(16), probabilities]), n, 5)
    assert (kernel.inclusion(trace)[3:] == 1.0).all() and (kernel.inclusion(trace)[:3] < 1.0).all()


@pytest.mark.parametrize("decision", DECISIONS)
@few_or_many("n", 800, 20_000)
def test_a_learned_scale_may_have_a_prior_of_its_own(n, decision):
    """Half-normal, against sums over a grid: sets, and the mean of the scale."""
    X, y, _ = gaussian(p=3)
    y = 0.3 * y
    logs, grid = [], np.linspace(-3.0, 1.0, 321)
    for log_scale in grid:
        logs.append(logs_of_sets(X, y, math.exp(log_scale), 0.5) - 0.5 * math.exp(2.0 * log_scale) / 0.2**2 + log_scale)
    probabilities = special.softmax(special.logsumexp(logs, axis=0))
    shares = special.softmax(special.logsumexp(logs, axis=1))
    model = mcmc.GLM(X, y, "gaussian", prior=mcmc.Normal(0.0, 0.5), scale_prior=mcmc.HalfNormal(0.2))
    kernel = mcmc.VariableSelection(model, 0.3, decision=decision, delta=0.001)
    trace = assert_sets_fit(kernel, np.concatenate([np.zeros(8), probabilities]), n, 5)
    assert trace.names == ("x0", "x1", "x2", "scale") and (kernel.inclusion(trace)[3] == 1.0).all()
    mean = float(shares @ np.exp(grid))
    assert_mean(trace["scale"][0, ::5, None], [mean])
    state = kernel.init([0.5, 0.0, 0.0, 0.25])
    assert state.position[3] == pytest.approx(math.log(0.25))


def test_a_prior_of_the_scale_far_from_log_normal_is_whole_where_rows_are_few():
    """The surrogate expands the prior to second order in the logarithm; what that leaves is decided, too."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((8, 2))
    y = X[:, 0] + rng.standard_normal(8)
    grid = np.linspace(-5.0, 2.0, 1401)
    logs = []
    for log_scale in grid:
        covariance = math.exp(2.0 * log_scale) * np.eye(8) + X @ X.T
        logs.append(-0.5 * (np.linalg.slogdet(covariance)[1] + y @ np.linalg.solve(covariance, y))
                    - 0.5 * math.exp(2.0 * log_scale) / 0.2**2 + log_scale)
    weights = np.exp(np.array(logs) - max(logs))
    mean = float(np.exp(grid) @ weights / weights.sum())
    model = mcmc.GLM(X, y, "gaussian", prior=mcmc.Normal(0.0, 1.0), scale_prior=mcmc.HalfNormal(0.2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)        # eight rows say little
        trace = mcmc.sample(mcmc.VariableSelection(model, prior=1.0), n_draws=200_000, n_chains=1, rng=99)
    assert_mean(trace["scale"][0, 2000::20, None], [mean])


def test_a_trace_prints_the_shares_of_draws_in_which_coefficients_are_included():
    trace = mcmc.sample(mcmc.VariableSelection(gaussian(prior_sd=1.0)[2]), n_draws=300, n_chains=2, rng=1)
    shares = (trace.draws != 0.0).mean(axis=(0, 1))
    assert shares.min() < 0.9 < shares.max() + 0.1
    np.testing.assert_array_equal(trace.to_frame()["included"], shares)
    head, *rows = str(trace).splitlines()[1:7]
    place = head.split().index("included")
    assert [row.split()[place + 1] for row in rows] == [f"{share:.3f}" for share in shares]


def test_what_may_be_out_of_the_model():
    X, y, _ = gaussian(p=2)
    model = mcmc.GLM(np.column_stack([np.ones(60), X]), y, "gaussian", prior_sd=1.0)
    free = lambda prior, **options: mcmc.VariableSelection(model, prior, **options)._plan[3].tolist()   # noqa: E731
    assert free(0.3) == free(lambda k: 0.0) == [1, 2]
    assert free(0.3, always=[1]) == [2]
    assert free([0.5, 0.5, 0.5, 1.0]) == [0, 1, 2]
    with pytest.raises(ValueError, match="no coefficient"):
        free([0.5, 0.5, 0.5, 0.5])
    flat = mcmc.GLM(np.column_stack([np.ones(60), X]), y, "gaussian", 1.0, prior_sd=[np.inf, 1.0, 1.0])
    assert len(mcmc.VariableSelection(flat, 0.5)._plan[3]) == 2


@pytest.mark.parametrize("prior", [
    lambda k: special.betaln(k + 1.5, 5 - k + 4.0), mcmc.Beta(1.5, 4.0)], ids=["function", "beta"])
@few_or_many("n", 1500, 60_000)
def test_a_prior_of_the_number_of_coefficients(n, prior):
    X, y, model = gaussian(prior_sd=0.5)
    probabilities = enumerated(X, y, 0.5, 0.0, lambda chosen: special.betaln(chosen.sum() + 1.5, 9.0 - chosen.sum()))
    assert_sets_fit(mcmc.VariableSelection(model, prior, decision="exact"), probabilities, n, 4)


@pytest.mark.parametrize("sizes", [(0, 1, 2), (2, 3), (3, 4, 5)])
@few_or_many("n", 800, 60_000)
def test_sets_of_impossible_sizes_are_never_drawn(n, sizes):
    """Of what is left each set has its probability, from starts at random."""
    X, y, model = gaussian(prior_sd=0.5)

    def prior(k):
        return 0.3 * k if k in sizes else -math.inf

    probabilities = enumerated(X, y, 0.5, 0.0, lambda chosen: prior(int(chosen.sum())))
    kernel = mcmc.VariableSelection(model, prior, decision="exact")
    trace = assert_sets_fit(kernel, probabilities, n, 4)
    drawn = np.count_nonzero(trace.draws, axis=2)
    assert set(np.unique(drawn)) <= set(sizes)
    assert all(np.count_nonzero(kernel.init(None, seed).position) in sizes for seed in range(30))
    outside = np.where(np.arange(5) < (5 if 5 not in sizes else 0), 1.0, 0.0)
    with pytest.raises(ValueError, match="coefficients of those that may be out, which has prior 0"):
        kernel.init(outside)


def test_a_share_with_a_beta_prior_is_that_of_coefficients_that_may_be_out():
    """With 1, 1 every number of them is as likely; those always in do not count."""
    X, y, model = gaussian(p=4, prior_sd=0.5)
    counts = mcmc.VariableSelection(model, mcmc.Beta(), always=[0])._counts
    sets = np.exp(counts) * special.comb(3, np.arange(4))
    np.testing.assert_allclose(sets, 0.25)
    with pytest.raises(ValueError, match="b of Beta is 0; a positive finite number"):
        mcmc.Beta(1.0, 0.0)


SLABS = {"student": mcmc.StudentT(3.0, 0.1, 0.4), "laplace": mcmc.Laplace(0.1, 0.4)}


def slab_density(slab):
    return stats.laplace(0.1, 0.4) if isinstance(slab, mcmc.Laplace) else stats.t(3.0, 0.1, 0.4)


@pytest.mark.parametrize("decision", DECISIONS)
@pytest.mark.parametrize("slab", SLABS)
@few_or_many("n", 800, 20_000)
def test_slabs_that_are_not_normal_give_sets_and_values_their_probabilities(n, slab, decision):
    """A logistic model: against sums over a grid of the values of two coefficients, and always of a third."""
    rng = np.random.default_rng(3)
    X = np.column_stack([np.ones(50), rng.normal(size=(50, 2))])
    y = rng.random(50) < special.expit(X @ [0.3, 0.6, 0.3])
    density = slab_density(SLABS[slab])
    z = np.linspace(-3.0, 4.0, 101)
    step = z[1] - z[0]
    base = np.linspace(-2.0, 2.5, 41)
    logs, means = [], []
    for number in range(4):
        axes = [base, z if number & 1 else np.zeros(1), z if number & 2 else np.zeros(1)]
        b = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
        eta = b @ X.T
        log = (y * eta - np.logaddexp(0.0, eta)).sum(axis=1) - 0.5 * np.square(b[:, 0])
        for j in (1, 2):
            if number >> (j - 1) & 1:
                log = log + density.logpdf(b[:, j]) + math.log(step)
        logs.append(special.logsumexp(log) + (math.log(0.4) - math.log(0.6)) * bin(number).count("1"))
        means.append(special.softmax(log) @ b)
    model = mcmc.GLM(X, y, prior={"x0": mcmc.Normal(0.0, 1.0), "x1": SLABS[slab], "x2": SLABS[slab]})
    kernel = mcmc.VariableSelection(model, 0.4, decision=decision, delta=0.001)
    sets = special.softmax(logs)
    trace = assert_sets_fit(kernel, [sets[(k >> 1) % 4] * (k & 1) for k in range(8)] @ np.eye(8), n, 5)
    assert_mean(trace.draws[0, ::5], sets @ means)


@few_or_many("steps", 150, 10_000)
@pytest.mark.parametrize(("slab", "decision"), [
    ("student", "exact"), ("laplace", "exact"), ("laplace", "race"), ("student", "poisson")])
def test_geweke_joint_distribution_of_slabs_that_are_not_normal(decision, slab, steps):
    """Outcomes and parameters drawn in turn keep slabs, a share with a beta prior, and a gamma scale."""
    rng = np.random.default_rng(14)
    X, kept, density = rng.standard_normal((12, 3)) / 2.0, [], slab_density(SLABS[slab])
    theta = np.array([0.5, 0.0, 0.0, 0.0])
    for _ in range(steps):
        y = X @ theta[:3] + np.exp(theta[3]) * rng.standard_normal(12)
        model = mcmc.GLM(X, y, "gaussian", prior=SLABS[slab], scale_prior=mcmc.Gamma(10.0, 10.0))
        kernel = mcmc.VariableSelection(model, mcmc.Beta(2.0, 2.0), decision=decision, delta=0.01)
        theta = np.append(theta[:3], np.exp(theta[3]))
        draw = kernel.run(rng, kernel.init(theta), 8)[1].draws[-1]
        theta = np.append(draw[:3], np.log(draw[3]))
        inside = theta[:3] != 0.0
        kept.append([*inside, inside.sum() == 0, inside.sum() == 3, *np.tanh(theta[:3]), *np.tanh(theta[:3]) ** 2,
                     np.tanh(draw[3])])
    q = (np.arange(20_000) + 0.5) / 20_000
    one, two = (float(np.mean(np.tanh(density.ppf(q)) ** power)) for power in (1, 2))
    none = math.exp(special.betaln(2.0, 5.0) - special.betaln(2.0, 2.0))
    scale = float(np.mean(np.tanh(stats.gamma(10.0, scale=0.1).ppf(q))))
    assert_mean(np.array(kept, dtype=float), [0.5] * 3 + [none] * 2 + [0.5 * one] * 3 + [0.5 * two] * 3 + [scale])


@pytest.mark.parametrize("decision", DECISIONS)
@few_or_many("n", 800, 20_000)
def test_sets_of_a_logistic_model_have_their_probabilities(n, decision):
    """Against sums over a grid of the values; the expansion is far off in so few rows."""
    model = logistic(60, [0.7, 0.3], seed=3)
    grid = np.linspace(-4.0, 4.0, 161)
    step = grid[1] - grid[0]
    points = {0: np.zeros((1, 2)), 1: np.column_stack([grid, 0.0 * grid]), 2: np.column_stack([0.0 * grid, grid]),
              3: np.stack([axis.ravel() for axis in np.meshgrid(grid, grid)], axis=1)}
    logs = []
    for number in range(4):
        size = bin(number).count("1")
        logs.append(special.logsumexp(model.log_posteriors(points[number]))
                    + size * (math.log(step) - 0.5 * math.log(2.0 * math.pi)))
    kernel = mcmc.VariableSelection(model, 0.5, decision=decision, delta=0.001)
    assert_sets_fit(kernel, np.exp(logs - special.logsumexp(logs)), n, 5)


@pytest.mark.parametrize(("options", "prior"), [
    ({"prior_sd": 1.0}, 0.3), ({"prior_mean": 0.2, "prior_sd": 0.7}, None),
    ({"prior_sd": 1.0}, lambda k: 0.0 if k in (1, 2) else -math.inf),
    *(({"prior_sd": np.inf, "prior": slab}, prior) for slab in SLABS.values() for prior in (mcmc.Beta(1.0, 2.0), None)),
])
def test_steps_are_those_of_the_twin(options, prior):
    model = logistic(80, [0.8, 0.4, 0.0, 0.1], seed=5, **options)
    prior = [1.0, 0.3, 0.5, 0.6] if prior is None else prior
    kernel = mcmc.VariableSelection(model, prior, decision="exact", n_flips=3)
    start = kernel.init(None, 4)
    _, steps = kernel.run(np.random.default_rng(6), start, 100)
    source, theta = model.engine(kernel.reference)

    def residual(at):
        theta[:] = at
        return source.read(np.arange(80), [0]).sum() + source.shifts([0])[0]

    rng, at = np.random.default_rng(6), start.position
    for draw in steps.draws:
        at = inclusion.step(rng, at, kernel._plan, residual)
        np.testing.assert_allclose(draw, at, atol=1e-9)
        assert ((draw == 0.0) == (at == 0.0)).all()
    assert 0 < steps.accepted.sum() < 100 and (steps.draws == 0.0).any()


LEARNED = {"normal": mcmc.Normal(0.1, mcmc.HalfCauchy(0.5)), "student": mcmc.StudentT(3.0, 0.1, mcmc.HalfNormal(0.5)),
           "laplace": mcmc.Laplace(0.1, mcmc.HalfNormal(0.5))}


def half_cauchy(t):
    return math.log(2.0 / math.pi / 0.5) + t - math.log1p(math.exp(2.0 * t) / 0.25)


def half_normal(t):
    return 0.5 * math.log(2.0 / math.pi) - math.log(0.5) + t - 0.5 * math.exp(2.0 * t) / 0.25


@pytest.mark.parametrize("slab", LEARNED)
def test_steps_with_a_learned_scale_are_those_of_the_twin(slab):
    """One scale of three slabs, beside a normal one; a set without any of the three leaves it to its prior."""
    prior = dict.fromkeys(["x1", "x2", "x3"], LEARNED[slab]) | {"x0": mcmc.Normal(0.0, 1.0)}
    model = logistic(80, [0.8, 0.4, 0.0, 0.1], seed=5, prior_sd=np.inf, prior=prior)
    kernel = mcmc.VariableSelection(model, [1.0, 0.3, 0.3, 0.4], decision="exact", n_flips=3)
    start = kernel.init(None, 4)
    _, steps = kernel.run(np.random.default_rng(6), start, 150)
    source, theta = kernel._rows.engine(kernel.reference)

    def residual(at):
        theta[:] = at
        return source.read(np.arange(80), [0]).sum() + source.shifts([0])[0]

    rng, at = np.random.default_rng(6), start.position
    for draw in steps.draws:
        at = inclusion.step(rng, at, kernel._plan[:-1], residual, [half_cauchy if slab == "normal" else half_normal])
        np.testing.assert_allclose(draw, np.append(at[:4], math.exp(at[4])), rtol=1e-8, atol=1e-9)
    assert 0 < steps.accepted.sum() < 150 and (steps.draws[:, 1:4] == 0.0).all(axis=1).any()


@pytest.mark.parametrize("decision", DECISIONS)
@few_or_many("n", 800, 20_000)
def test_sets_and_their_learned_scale_have_their_probabilities(n, decision):
    """A Gaussian model: sets against sums over a grid of the scale's logarithm, and the mean of the logarithm."""
    X, y, _ = gaussian(p=4)
    y = 0.5 * y
    logs, grid = [], np.linspace(-12.0, 8.0, 801)
    for t in grid:
        logs.append(logs_of_sets(X, y, 1.0, math.exp(t)) + half_cauchy(t))
    sets = special.softmax(special.logsumexp(logs, axis=0))
    shares = special.softmax(special.logsumexp(logs, axis=1))
    model = mcmc.GLM(X, y, "gaussian", 1.0, prior=mcmc.Normal(0.0, mcmc.HalfCauchy(0.5)))
    kernel = mcmc.VariableSelection(model, 0.3, decision=decision, delta=0.001)
    trace = assert_sets_fit(kernel, np.concatenate([np.zeros(16), sets]), n, 8)
    assert trace.names == ("x0", "x1", "x2", "x3", "sd(coefficients)")
    assert_mean(np.tanh(np.log(trace["sd(coefficients)"][0, ::8, None])), [float(shares @ np.tanh(grid))])
    state = kernel.init([0.5, 0.0, 0.0, 0.1, 0.25])
    assert state.position[4] == pytest.approx(math.log(0.25))
    with pytest.raises(ValueError, match="5 finite parameters are needed"):
        kernel.init([0.5, 0.0, 0.0, 0.1])


@few_or_many("steps", 150, 10_000)
@pytest.mark.parametrize(("slab", "decision"), [
    ("normal", "exact"), ("normal", "poisson"), ("student", "race"), ("laplace", "exact")])
def test_geweke_joint_distribution_of_a_learned_scale(decision, slab, steps):
    """Outcomes and parameters drawn in turn keep the prior of sets, values and their scale."""
    rng = np.random.default_rng(15)
    X, kept = rng.standard_normal((15, 2)) / 2.0, []
    theta = np.array([0.5, 0.0, 0.5])
    for _ in range(steps):
        y = (rng.random(15) < special.expit(X @ theta[:2])).astype(float)
        kernel = mcmc.VariableSelection(mcmc.GLM(X, y, prior=LEARNED[slab]), 0.4, decision=decision, delta=0.01)
        theta = kernel.run(rng, kernel.init(theta), 8)[1].draws[-1]
        kept.append([*(theta[:2] != 0.0), *np.tanh(theta[:2]), *np.tanh(theta[:2]) ** 2, np.tanh(theta[2]),
                     theta[2] < 0.2])
    draws = np.random.default_rng(1)
    scale = 0.5 * np.abs(draws.standard_cauchy(10**6) if slab == "normal" else draws.standard_normal(10**6))
    z = {"normal": draws.standard_normal, "student": lambda k: draws.standard_t(3.0, k), "laplace": draws.laplace}[slab]
    values = np.tanh(0.1 + scale * z(size=10**6) if slab == "laplace" else 0.1 + scale * z(10**6))
    one, two = 0.4 * values.mean(), 0.4 * np.square(values).mean()
    small = (scale < 0.2).mean()
    assert_mean(np.array(kept, dtype=float), [0.4, 0.4, one, one, two, two, np.tanh(scale).mean(), small])


def test_a_learned_scale_is_continued_bit_for_bit_and_printed():
    model = logistic(300, [0.5, 0.0, 0.2], prior_sd=np.inf, prior=mcmc.Normal(0.0, mcmc.HalfCauchy(1.0)))
    kernel = mcmc.VariableSelection(model, decision="race")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        whole = mcmc.sample(kernel, n_draws=90, n_chains=2, rng=3, n_tune=10)
        first = mcmc.sample(kernel, n_draws=40, n_chains=2, rng=3, n_tune=10)
        on = mcmc.sample(pickle.loads(pickle.dumps(kernel)), pickle.loads(pickle.dumps(first)), n_draws=50)
        check = mcmc.check_bias(kernel, whole, n=100, rng=1)
    np.testing.assert_array_equal(np.concatenate([first.draws, on.draws], axis=1), whole.draws)
    assert "sd(coefficients)" in str(whole) and kernel.inclusion(whole)[3] == 1.0
    assert_rate_at_most(check.n_wrong, check.n_checked, 0.05)


def calibrated_ranks(decision, slab, fits, draws, chance=None, **wrong):
    """Ranks, ties broken at random, of the size of the set and of the largest predictor.

    The kernel may have a probability of inclusion, or a slab, other than that of the simulation.
    """
    rng, ranks = np.random.default_rng(11), []
    chance = chance or (0.5 if slab is None else mcmc.Beta(2.0, 2.0))
    options = ({"prior_sd": 1.0} if slab is None else {"prior": SLABS[slab]}) | wrong
    for _ in range(fits):
        values = rng.standard_normal(3) if slab is None else slab_density(SLABS[slab]).rvs(3, random_state=rng)
        theta = values * (rng.random(3) < (0.5 if slab is None else rng.beta(2.0, 2.0)))
        X = rng.standard_normal((40, 3))
        y = rng.random(40) < special.expit(X @ theta)
        kernel = mcmc.VariableSelection(mcmc.GLM(X, y, **options), chance, decision=decision, delta=0.01)
        _, steps = kernel.run(rng, kernel.init(theta), 6 * draws)       # theta is itself a draw from the posterior
        kept = steps.draws[5::6]
        row = []
        for of in (lambda b: (b != 0.0).sum(axis=-1), lambda b, X=X: (b @ X.T).max(axis=-1)):
            ours, true = of(kept), of(theta)
            row.append((ours < true).sum() + rng.integers((ours == true).sum() + 1))
        ranks.append(row)
    return np.array(ranks)


@pytest.mark.parametrize(("fits", "cells"), [
    pytest.param(80, 5, id="few"), pytest.param(1000, 20, id="many", marks=pytest.mark.long)])
@pytest.mark.parametrize(("decision", "slab"), [
    *((decision, None) for decision in DECISIONS), ("exact", "student"), ("race", "student"), ("poisson", "laplace")])
def test_simulation_based_calibration(decision, slab, fits, cells):
    assert_uniform(calibrated_ranks(decision, slab, fits, cells - 1), cells - 1, cells)


@pytest.mark.parametrize(("slab", "wrong", "fits", "cells"), [
    (None, {"chance": 0.7}, 500, 5), (None, {"prior_sd": 0.6}, 500, 5),
    ("student", {"chance": mcmc.Beta(2.0, 4.0)}, 500, 5), ("student", {"prior": mcmc.StudentT(3.0, 0.1, 0.2)}, 500, 5),
    *(pytest.param(*case, 2000, 20, marks=pytest.mark.long) for case in [
        (None, {"chance": 0.57}), (None, {"prior_sd": 0.75}), ("student", {"chance": mcmc.Beta(2.0, 2.7)})])])
def test_ranks_tell_a_prior_that_is_wrong(slab, wrong, fits, cells):
    with pytest.raises(AssertionError, match="counts"):
        assert_uniform(calibrated_ranks("exact", slab, fits, cells - 1, **wrong), cells - 1, cells)


def test_tall_data_take_few_rows_and_nearly_all_moves():
    rng = np.random.default_rng(1)
    beta = np.where(np.arange(20) < 5, 0.15, 0.0)
    kernel = mcmc.VariableSelection(logistic(20_000, beta, prior_sd=0.3), 0.3)
    trace = mcmc.sample(kernel, n_draws=300, n_chains=2, n_tune=0, rng=rng)
    found = kernel.inclusion(trace)
    assert trace.warnings == () and trace.accepted.mean() > 0.8 and trace.rows.mean() < 6000
    assert (found[:5] > 0.9).all() and found[5:].mean() < 0.2


def test_coefficients_that_are_always_in_may_have_a_flat_prior():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(500), rng.normal(size=(500, 2))])
    y = rng.random(500) < special.expit(1.0 + X[:, 1])
    model = mcmc.GLM(X, y, prior_sd=[np.inf, 1.0, 1.0], names=["base", "age", "noise"])
    for options in ({"prior": [1.0, 0.5, 0.5]}, {"always": [0]}):
        kernel = mcmc.VariableSelection(model, **options)
        trace = mcmc.sample(kernel, n_draws=200, n_chains=2, n_tune=0, rng=1)
        assert kernel.inclusion(trace)[0] == 1.0 and trace.names == ("base", "age", "noise")
    whole = mcmc.VariableSelection(model, always=[0, 1, 2])
    assert (mcmc.sample(whole, n_draws=20, n_chains=1, n_tune=0, rng=1).draws != 0.0).all()
    with pytest.raises(ValueError, match="coefficient base may be out of the model and has a flat prior"):
        mcmc.VariableSelection(model, [0.5, 0.5, 0.5])


@pytest.mark.parametrize("decision", DECISIONS)
def test_chains_are_continued_bit_for_bit(decision, tmp_path):
    kernel = mcmc.VariableSelection(logistic(300, [0.5, 0.0, 0.2]), decision=decision)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        whole = mcmc.sample(kernel, n_draws=90, n_chains=2, rng=3, n_tune=10, threads=2)
        first = mcmc.sample(kernel, n_draws=40, n_chains=2, rng=3, n_tune=10, checkpoint=tmp_path / "run", threads=1)
        again = pickle.loads(pickle.dumps(kernel))
        later = mcmc.sample(again, n_draws=90, n_chains=2, n_tune=10, checkpoint=tmp_path / "run")
        on = mcmc.sample(kernel, pickle.loads(pickle.dumps(first)), n_draws=50)
    np.testing.assert_array_equal(later.draws, whole.draws)
    np.testing.assert_array_equal(np.concatenate([first.draws, on.draws], axis=1), whole.draws)
    other = mcmc.VariableSelection(logistic(300, [0.5, 0.0, 0.2]), 0.4, decision=decision)
    with pytest.raises(ValueError, match="of another run, which differs in kernel"):
        mcmc.sample(other, n_draws=90, n_chains=2, n_tune=10, checkpoint=tmp_path / "run")


def test_races_are_checked():
    kernel = mcmc.VariableSelection(logistic(2000, [0.2, 0.0, 0.1]), decision="race")
    trace = mcmc.sample(kernel, n_draws=300, n_chains=2, n_tune=0, rng=1)
    check = mcmc.check_bias(kernel, trace, n=150, rng=1)
    assert_rate_at_most(check.n_wrong, check.n_checked, 0.05)
    with pytest.raises(TypeError, match="whose decisions are not races"):
        mcmc.check_bias(mcmc.VariableSelection(kernel.model, decision="exact"), trace)


@pytest.mark.parametrize(("wrong", "words"), [
    ({"prior": 0.0}, "probabilities of inclusion above 0"),
    ({"prior": [0.5, 0.5, 1.5]}, "probabilities of inclusion above 0"),
    ({"prior": lambda k: -math.inf}, "prior returned -inf for a number of coefficients"),
    ({"prior": lambda k: 0.0 if k in (0, 2) else -math.inf}, r"2 sizes of a set are possible, \[0, 2\]"),
    ({"prior": lambda k: 0.0 if k == 1 else -math.inf}, "and be two at least"),
    ({"prior": lambda k: math.inf}, "prior returned inf for a number of coefficients"),
    ({"decision": "guess"}, "decision is 'guess'"),
    ({"always": [3]}, "always is"),
    ({"always": [0.5]}, "always is"),
    ({"n_flips": 0}, "n_flips is 0"),
    ({"delta": 1.5}, "delta is 1.5"),
    ({"control_variate": None}, "control_variate is None"),
])
def test_bad_arguments(wrong, words):
    with pytest.raises(ValueError, match=words):
        mcmc.VariableSelection(logistic(100, [0.5, 0.0, 0.2]), **wrong)


@pytest.mark.parametrize(("prior", "words"), [
    (True, "prior is True; .*are named in always="), ([0.5, True, 0.5], r"prior is \[0.5, True, 0.5\]; numbers"),
    (np.ones(3, bool), "prior is array.*numbers"), ({"x0": 0.5, "x1": 0.5, "x2": np.True_}, "prior is {'x0'.*numbers"),
    (lambda k: k < 2, r"prior returned \[True, True, False, False\] .* -inf for impossible ones"),
])
def test_truth_values_are_no_probabilities(prior, words):
    with pytest.raises(TypeError, match=words):
        mcmc.VariableSelection(logistic(100, [0.5, 0.0, 0.2]), prior)


def test_inclusion_is_of_draws_of_the_kernel():
    kernel = mcmc.VariableSelection(logistic(100, [0.5, 0.0]))
    with pytest.raises(TypeError, match="trace is None; the Trace"):
        kernel.inclusion(None)
    other = mcmc.sample(mcmc.VariableSelection(logistic(100, [0.5])), n_draws=100, n_chains=2, n_tune=0, rng=1)
    with pytest.raises(ValueError, match=r"have shape \(2, 100, 1\); \(n_chains, n_draws, 2\), those of"):
        kernel.inclusion(other)


def test_models_that_cannot_be_selected_from():
    with pytest.raises(TypeError, match="model is 3"):
        mcmc.VariableSelection(3)
    with pytest.raises(ValueError, match="has no derivatives"):
        mcmc.VariableSelection(mcmc.FunctionModel(lambda theta, rows: np.zeros(len(rows)), 1, 10, prior_sd=1.0))
    with pytest.raises(ValueError, match="has a log_prior"):
        mcmc.VariableSelection(logistic(100, [0.5], log_prior=lambda theta: 0.0))


def test_slabs_that_cannot_be_integrated_out_are_refused_with_what_to_give():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    with pytest.raises(ValueError, match="is a Horseshoe.*whose scale may be learned; a Student-t slab has a scale"):
        mcmc.VariableSelection(mcmc.GLM(x, y, "gaussian", prior=mcmc.Horseshoe(1)))
    with pytest.raises(ValueError, match="has a LogDensity; the slab must be independent"):
        mcmc.VariableSelection(mcmc.GLM(x, y, "gaussian", prior=mcmc.LogDensity(lambda theta: 0.0, np.zeros_like)))
    with pytest.raises(ValueError, match="has groups.*scales of group effects would have to move too.*Leave out"):
        mcmc.VariableSelection(mcmc.GLM(x, y, "gaussian", groups=np.arange(60) % 3), always=[0])
    assert mcmc.VariableSelection(mcmc.GLM(x, y, "gaussian")).names[-1] == "scale"
    with pytest.raises(ValueError, match="coefficient x0 may be out of the model and has a flat prior"):
        mcmc.VariableSelection(mcmc.GLM(x, y, "gaussian", prior=mcmc.Normal(0.0, np.inf)))
    assert mcmc.VariableSelection(mcmc.GLM(x, y, "gaussian", prior_sd=1.0)).names[-1] == "log(scale)"


def test_probabilities_go_by_name():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(200), rng.normal(size=(200, 2))])
    model = mcmc.GLM(X, rng.normal(size=200), "gaussian", prior_sd=1.0, names=["base", "age", "dose"])
    wanted = mcmc.VariableSelection(model, [1.0, 0.2, 0.7, 1.0])
    for prior, options in [({"dose": 0.7, "age": 0.2}, {}), ({"age": 0.2, "base": 1.0, "dose": 0.7}, {}),
                           ({"dose": 0.7, "age": 0.2, "log(scale)": 1}, {})]:
        kernel = mcmc.VariableSelection(model, prior, **options)
        for ours, theirs in zip(kernel._plan, wanted._plan, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert mcmc.VariableSelection(model, {"dose": 0.7}, always="age")._free.tolist() == [2]
    assert mcmc.VariableSelection(model, {"dose": 0.7, "age": 0.2, "base": 0.5})._free.tolist() == [0, 1, 2]
    for prior, words in [({"dose": 0.7}, "prior has no probability of 'age'; one of each coefficient is needed"),
                         ({"dose": 0.7, "age": 0.2, "sex": 0.5}, "prior names 'sex'; the names of the model are"),
                         ({"dose": 0.7, "age": 0.0}, "probabilities of inclusion above 0"),
                         ({"dose": 0.7, "age": 0.2, "log(scale)": 0.5}, "which is no coefficient")]:
        with pytest.raises(ValueError, match=words):
            mcmc.VariableSelection(model, prior)
    with pytest.raises(TypeError, match="prior\\['age'\\] is 'often'"):
        mcmc.VariableSelection(model, {"dose": 0.7, "age": "often"})
    classes = mcmc.Softmax(X, rng.integers(0, 3, 200), prior_sd=1.0, names=["base", "age", "dose"])
    kernel = mcmc.VariableSelection(classes, {"age": 0.2, "dose": 0.7})
    assert [classes.names[j].startswith("base") for j in range(classes.dim) if j not in kernel._free] == [True, True]
    twice = {"age": 0.2, "dose": 0.7, next(name for name in classes.names if name.startswith("age")): 0.3}
    with pytest.raises(ValueError, match="two probabilities"):
        mcmc.VariableSelection(classes, twice)


@pytest.mark.parametrize(("always", "chosen"), [
    (["intercept", "x1"], [2]), ("x2", [0, 1]), (["x0"], [1, 2]), (np.array(["x1", "x2"]), [0]), ([0, 2], [1]),
])
def test_coefficients_that_are_always_in_go_by_name_too(always, chosen):
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(200), rng.normal(size=(200, 2))])
    model = mcmc.GLM(X, rng.integers(0, 2, 200), prior_sd=1.0)
    assert mcmc.VariableSelection(model, [0.5] * 3, always=always)._free.tolist() == chosen
    with pytest.raises(ValueError, match="always names 'x7'; the names of the model are 'x0', 'x1', 'x2'"):
        mcmc.VariableSelection(model, always=["x0", "x7"])


def test_a_column_of_a_softmax_is_that_of_all_its_classes():
    rng = np.random.default_rng(0)
    model = mcmc.Softmax(rng.normal(size=(200, 2)), rng.integers(0, 3, 200), prior_sd=1.0)
    held = [j for j, name in enumerate(model.names) if not name.startswith("x0")]
    assert mcmc.VariableSelection(model, always="x0")._free.tolist() == held
