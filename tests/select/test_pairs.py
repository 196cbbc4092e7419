"""LUCB by pairs: its wealth is at most a gambler's, every pull equals the twin's, and its promise is kept."""

import itertools
import math

import numpy as np
import pytest
from following import assert_follows, assert_follows_within, reader
from scipy import optimize

import fastrace as fr
from fastrace.pulls import BernoulliPulls, UniformPulls
from fastrace.select import _pairs
from guarantee import assert_rate_at_most, few_or_many
from reference import pairs as reference

# Wealth.


def some_rewards(rng, n):
    """Of many laws in [0, 1], rare and constant ones among them."""
    law = rng.integers(6)
    if law == 0:
        return (rng.random(n) < rng.random() ** 2).astype(float)
    if law == 1:
        return np.full(n, rng.choice([0.0, 0.3, 1.0, 1e-7]))
    if law == 2:
        return rng.beta(*rng.uniform(0.05, 5, 2), n)
    if law == 3:
        return np.clip(rng.random() + rng.normal(0, 0.03, n), 0, 1)
    if law == 4:
        return rng.choice([0.0, 1e-3, 0.5, 1.0], n, p=rng.dirichlet(np.ones(4)))
    return rng.random(n)


def test_the_wealth_of_moments_is_at_most_that_of_a_gambler_and_equal_for_zeros_and_ones(seed):
    rng = np.random.default_rng(seed)
    for _ in range(300):
        x, floor = some_rewards(rng, int(rng.integers(1, 400))), rng.uniform(0.01, 0.99)
        found, _slope = _pairs._log_wealth(*reference.moments(x), floor)
        gambler = reference.log_betting_wealth(x, floor)
        assert found <= gambler + 1e-9 * (1 + abs(gambler))
        if set(x) <= {0.0, 1.0}:
            idle = reference.log_betting_wealth(x, floor, idle=True)
            assert found == pytest.approx(idle, rel=1e-12, abs=1e-11)


def test_the_wealth_falls_and_is_convex_in_the_floor_and_equals_the_twin(seed):
    rng = np.random.default_rng(seed)
    for _ in range(20):
        moments = reference.moments(some_rewards(rng, int(rng.integers(1, 400))))
        floors = np.linspace(0.01, 0.99, 50)
        found = np.array([_pairs._log_wealth(*moments, floor) for floor in floors])
        want = np.array([reference.log_wealth(*reference.stand_ins(*moments), floor) for floor in floors])
        assert np.allclose(found, want, rtol=1e-10, atol=1e-9)
        assert (np.diff(found[:, 0]) <= 1e-9).all()
        assert (np.diff(found[:, 1]) >= -1e-7 * (1 + abs(found[:-1, 1]))).all()
        chord = found[:-1, 0] + found[:-1, 1] * np.diff(floors)
        assert (chord <= found[1:, 0] + 1e-9 * (1 + abs(found[1:, 0]))).all()


def test_a_gambler_on_a_fair_mean_seldom_gets_rich(seed):
    level, crossed, trials = math.log(10), 0, 100
    laws = itertools.cycle([("beta", 0.5, 0.5), ("binomial", 1, 0.05), ("binomial", 1, 0.9), ("beta", 40, 60)])
    for child, (law, a, b) in zip(np.random.SeedSequence(seed).spawn(trials), laws, strict=False):
        x = getattr(np.random.default_rng(child), law)(a, b, 1500).astype(float)
        mean = a / (a + b) if law == "beta" else b
        sums = [np.arange(1, 1501), *np.cumsum([x, x * (1 - x), x * x * (1 - x)], axis=1)]
        crossed += any(_pairs._log_wealth(*(total[t] for total in sums), mean)[0] >= level for t in range(0, 1500, 3))
    assert_rate_at_most(crossed, trials, 0.1)


# The loop against its twin.


@pytest.mark.parametrize(("n_arms", "n_best", "batch"), [(2, 1, 1), (6, 2, 1), (7, 6, "auto"), (12, 5, 3)])
@pytest.mark.parametrize("shared", [True, False])
def test_every_pull_equals_the_plain_twin(n_arms, n_best, batch, shared):
    rng = np.random.default_rng(n_arms)
    low = np.zeros(n_arms) if shared else rng.normal(0, 0.3, n_arms)
    high = low + (1.0 if shared else rng.uniform(0.5, 2.0, n_arms))
    values = low + rng.random((4000, n_arms)) ** rng.uniform(0.2, 5, n_arms) * (high - low)
    values[:, 1] = values[0, 1]                                     # one constant arm
    twin = reference.pairs(reader(values), low, high, n_best, 0.1, 0.1, 0 if batch == "auto" else batch, 500)
    assert_follows(lambda: fr.LUCB(n_arms, n_best, 0.1, 0.1, (low, high), rule="pairs", batch=batch), values, twin)


@pytest.mark.parametrize(("n_arms", "n_best", "batch", "budget"), [
    (3, 1, 1, 47), (6, 2, 1, 191), (6, 2, 1, 192), (7, 6, "auto", 50), (12, 5, 3, 191), (20, 1, "auto", 300),
    (12, 1, "auto", 500),
])
def test_every_pull_within_a_small_budget_equals_the_plain_twin(n_arms, n_best, batch, budget):
    rng = np.random.default_rng(n_arms)
    low = np.zeros(n_arms) if n_best == 1 else rng.normal(0, 0.3, n_arms)
    high = low + (1.0 if n_best == 1 else rng.uniform(0.5, 2.0, n_arms))
    values = low + rng.random((400, n_arms)) ** rng.uniform(0.3, 1, n_arms) * (high - low)
    given = n_best, 0.0, 0.1, 0 if batch == "auto" else batch, budget
    twin = reference.pairs(reader(values), low, high, *given, known=True)
    assert twin[1] != reference.pairs(reader(values), low, high, *given)[1]
    assert_follows_within(lambda: fr.LUCB(n_arms, n_best, 0.0, 0.1, (low, high), batch=batch), values, budget, twin)


# Answers.


def least_evidence(rule, epsilon, delta):
    """The smallest sum of evidence over all pairs and cuts, on a fine grid about the best of a coarse one."""
    state = rule._core.get_state()
    arms = reference.Arms(*rule._support, rule._n_best, epsilon, delta)
    arms.pulls, arms.means, arms.squares = state["pulls"], state["mean"], state["m2"]
    arms.first, arms.second = state["within"], state["within_high"]
    best = np.atleast_1d(rule.result().best).tolist()
    rest = [i for i in range(arms.n) if i not in best]

    def both(cut):
        return (min(arms.evidence(i, 0, cut)[0] for i in best) + min(arms.evidence(i, 1, cut)[0] for i in rest))

    grid = np.linspace(arms.low.min(), arms.high.max() - epsilon, 102)[1:-1]
    at = grid[int(np.argmin([both(cut) for cut in grid]))]
    step = grid[1] - grid[0]
    return optimize.minimize_scalar(both, bounds=(at - step, at + step), method="bounded", options={"xatol": 1e-7}).fun


@pytest.mark.parametrize(("means", "n_best", "epsilon", "pulls"), [
    ([0.6, 0.5, 0.4], 1, 0.0, 1500), ([0.9, 0.8, 0.6, 0.3], 2, 0.05, 150), ([0.05, 0.02, 0.01], 1, 0.01, 900),
])
def test_error_bound_is_the_delta_that_would_have_stopped(means, n_best, epsilon, pulls):
    rule = fr.LUCB(len(means), n_best, epsilon, 1e-9)
    result = rule.run(BernoulliPulls(means, rng=1), pulls)
    least = least_evidence(rule, epsilon, 1e-9)
    assert result.stopped_by == "max_pulls"
    assert 0.0 < result.error_bound < 1.0
    assert math.log(result.error_bound) == pytest.approx(-least, abs=2e-3)
    assert result.trace[1].min() >= 1e-9
    assert (np.diff(result.trace[0]) > 0).all()


def test_intervals_are_where_the_wealth_refutes_a_mean(seed):
    rule = fr.LUCB(3, 1, 0.0, 0.01, (-1.0, 3.0))
    result = rule.run(UniformPulls(np.array([-0.5, 0.0, 0.4]), np.array([1.0, 1.5, 2.9]), rng=seed), 400)
    state = rule._core.get_state()
    for i in range(3):
        total = (state["mean"][i] + 1.0) / 4.0 * state["pulls"][i]
        moments = state["pulls"][i], total, state["within"][i], state["within_high"][i]
        wealth = _pairs._log_wealth(*moments, (result.lower[i] + 1.0) / 4.0)[0]
        assert wealth == pytest.approx(math.log(3 / 0.01), abs=1e-6)
        assert -1.0 < result.lower[i] < result.mean[i] < result.upper[i] < 3.0


def test_a_stop_meets_its_accuracy_and_a_bound_or_split_means_intervals():
    source = [0.8, 0.6, 0.3]
    result = fr.LUCB(3, 1, 0.05).run(BernoulliPulls(source, rng=1))
    assert (result.rule, result.stopped_by, result.shortfall) == ("LUCB pairs", "epsilon", 0.05)
    assert 0.03 < result.error_bound <= result.trace[1][-1] <= 0.05         # the trace is not as exact
    assert fr.LUCB(3, 1, bound="eb-mix").result().rule == fr.LUCB(3, 1, split="equal").result().rule == "LUCB eb-mix"
    assert fr.LUCB(3, 1, rule="intervals").result().rule == "LUCB eb-mix"
    for given in ({"bound": "kl"}, {"split": "equal"}):
        with pytest.raises(ValueError, match=f"{next(iter(given))} is .* and rule is 'pairs'"):
            fr.LUCB(3, 1, rule="pairs", **given)
    with pytest.raises(ValueError, match="rule is 'both'"):
        fr.LUCB(3, 1, rule="both")
    wide = fr.LUCB(3, 1, 1.5)                                      # no arm can be so much better
    assert wide.run(BernoulliPulls(source, rng=1)).n_read == 3


def test_a_damaged_pair_or_moment_is_refused():
    rule = fr.LUCB(4, 2, 0.05)
    rule.run(BernoulliPulls([0.1, 0.4, 0.6, 0.8], rng=1), 60)
    rebuild, (version, cls, known, state) = rule.__reduce__()
    for change in ({"held": (0, 4)}, {"held": (-1, 2)}, {"carry": math.nan}, {"carry": 3.0}, {"turn": 8},
                   {"within": -state["within"] - 1.0}, {"within_high": state["pulls"] * 1.0 + 1.0}):
        with pytest.raises(ValueError, match="damaged"):
            rebuild(version, cls, known, {**state, **change})


# Promises.

INSTANCES = {
    "easy": ([0.9, 0.8, 0.3, 0.2, 0.1], 2, 0.05),
    "hard": ([0.52, 0.5, 0.48], 1, 0.0),
    "tied within epsilon": ([0.5, 0.5, 0.5, 0.42], 2, 0.07),
    "rare": ([0.05, 0.02, 0.01, 0.01], 1, 0.02),
    "sure": ([1.0, 0.9, 0.9, 0.0], 2, 0.05),
}


@pytest.mark.parametrize("name", list(INSTANCES))
@few_or_many("trials", 40, 1000)
def test_wrong_sets_are_as_rare_as_promised(name, trials, seed):
    means, n_best, epsilon = INSTANCES[name]
    means, delta, wrong = np.array(means), 0.2, 0
    worst = np.sort(means)[-n_best] - epsilon
    for k in range(trials):
        result = fr.LUCB(len(means), n_best, epsilon, delta).run(BernoulliPulls(means, rng=[seed, k]), 100_000)
        wrong += result.error_bound <= delta and means[result.best].min() < worst - 1e-12
    assert_rate_at_most(wrong, trials, delta)


@pytest.mark.parametrize("n_best", [1, 2])
@few_or_many("trials", 40, 400)
def test_the_error_bound_at_any_time_is_a_p_value(n_best, trials, seed):
    # Stopped where it looks best in hindsight: equal arms, and only the last n_best of them are called right.
    x, wrong = 0.3, 0
    for k in range(trials):
        rule, source, hit = fr.LUCB(4, n_best, 0.0, 1e-9), BernoulliPulls(np.full(4, 0.5), rng=[seed, k]), False
        for limit in np.geomspace(10, 10_000, 20).astype(int):
            result = rule.run(source, int(limit))
            hit |= result.error_bound <= x and np.min(result.best) < 4 - n_best
        wrong += hit
    assert_rate_at_most(wrong, trials, x)


def test_it_takes_fewer_pulls_than_intervals():
    half = 0.05 * math.sqrt(3.0)
    means = np.r_[0.6, np.full(9, 0.5)]
    few = [fr.LUCB(10, 1, 0.0, 0.05).run(UniformPulls(means - half, means + half, rng=k)).n_read for k in range(10)]
    assert np.mean(few) < 1000
    pulls = {"pairs": 0, "intervals": 0}
    for rule, n_best, k in itertools.product(pulls, (1, 3), range(10)):
        source = BernoulliPulls(np.linspace(0.8, 0.2, 10), rng=k)
        pulls[rule] += fr.LUCB(10, n_best, 0.0, 0.05, rule=rule).run(source).n_read
    assert pulls["pairs"] < 0.85 * pulls["intervals"]


def test_an_arm_that_began_badly_is_not_left_waiting():
    # Seven zeros first: the others at .5 are close, and to tell them apart is not what is asked.
    means = np.r_[np.full(5, 0.6), np.full(5, 0.5)]
    rng = np.random.default_rng(1)
    values = (rng.random((60_000, 10)) < means).astype(float)
    values[:7, 0] = 0.0
    result = fr.LUCB(10, 5, 0.0, 0.05).run(values, order="given")
    assert sorted(result.best.tolist()) == [0, 1, 2, 3, 4]
    assert result.n_read < 60_000
