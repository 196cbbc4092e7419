"""ADAPT: bounds turned round, equal to the plain twin pull by pull, and right as often as promised."""

import math

import numpy as np
import pytest
from scipy import optimize

import fastrace as fr
from exact_chances import chance_of_a_miss, chance_over_orders, every_reward
from fastrace.pulls import BernoulliPulls, RecordedPulls, UniformPulls
from fastrace.select._adapt import _level, _log_level, _width_at
from fastrace.select.selection import scales
from guarantee import assert_rate_at_most, few_or_many
from reference import lucb as lucb_twin
from reference import selection as twin

# Bounds turned round.


@pytest.mark.parametrize("kind", ["hoeffding", "bernstein", "normal-mixture", "gamma-mixture"])
def test_levels_equal_root_finding_on_the_widths(kind, seed):
    rng = np.random.default_rng(seed)
    for _ in range(60):
        R, u = 10 ** rng.uniform(-2, 2), int(10 ** rng.uniform(0.3, 6))
        variance = rng.choice([0.0, 0.01, 0.25]) * R**2
        level = 10 ** rng.uniform(-8, -0.7)
        arm, mixtures = (u, u * variance, u * variance, R), scales(R, 1, 0.1 * R, 0.05)
        if kind == "hoeffding":
            width = R * math.sqrt(math.log(1 / level) / (2 * u))
        elif kind == "bernstein":
            width = twin.bernstein_width(u, math.sqrt(variance), R, level)
        else:
            aim = math.log(level)
            width = optimize.brentq(
                lambda g, arm=arm, aim=aim, mixtures=mixtures: _log_level(kind, arm, g, mixtures) - aim,
                1e-12 * R, 1e3 * R, xtol=1e-300)
        assert _log_level(kind, arm, width, mixtures) == pytest.approx(math.log(level), rel=1e-10)
        if width < 2 * R:
            assert _width_at(kind, arm, math.log(level), mixtures) == pytest.approx(width, rel=1e-10)
        gaps = np.geomspace(1e-6 * R, 10 * R, 50)
        levels = [_log_level(kind, arm, g, mixtures) for g in gaps]
        assert (np.diff(levels) <= 1e-12).all() and max(levels) <= 0
        assert _log_level(kind, arm, 0.0, mixtures) == _log_level(kind, arm, -1.0, mixtures) == 0.0
    assert math.isfinite(_log_level(kind, (10**9, 0.0, 0.0, 1.0), 0.5, scales(1.0, 1, 0.1, 0.05)))


def test_the_mean_of_gamma_mixtures_is_a_little_more_careful_than_its_formula(seed):
    for _ in range(200):
        rng = np.random.default_rng(seed)
        best, v, s = 10 ** rng.uniform(0, 4), 10 ** rng.uniform(-3, 5), 10 ** rng.uniform(-1, 3)
        seed += 1
        mixtures = ((best, 0.9), (0.02 * best, 0.1))
        exact = lucb_twin.log_mean_of_mixtures(s, v, mixtures, 6.0)
        ours = -_log_level("gamma-mixture", (1000, 0.0, v, 1.0), s / 1000, mixtures, 6.0)
        assert ours <= max(exact, 0.0) + 1e-8 * (1 + abs(v))
        if exact > 3.0:
            assert ours >= exact - 0.06
        level = _level("gamma-mixture", (1000, 0.0, v, 1.0), s / 1000, mixtures, 6.0)      # the quick way, to rounding
        assert level == pytest.approx(math.exp(-ours), rel=1e-11 * (1 + ours), abs=0.0)


@pytest.mark.parametrize("kind", ["normal-mixture", "gamma-mixture"])
@pytest.mark.parametrize("p", [0.5, 0.05])
def test_mixtures_hold_at_all_times(kind, p, seed):
    alpha, failed, trials = 0.1, 0, 400
    mixtures = scales(1.0, 1, 0.05, alpha)
    for child in np.random.SeedSequence(seed).spawn(trials):
        x = (np.random.default_rng(child).random(2000) < p).astype(float)
        sums = x.cumsum()
        predicted = np.concatenate([[0.5], sums[:-1] / np.arange(1, 2000)])
        spread = ((x - predicted) ** 2).cumsum()
        for u in np.unique(np.geomspace(1, 2000, 60).astype(int)):
            level = _log_level(kind, (int(u), 0.0, spread[u - 1], 1.0), sums[u - 1] / u - p, mixtures, -math.log(alpha))
            if level <= math.log(alpha):
                failed += 1
                break
    assert_rate_at_most(failed, trials, alpha)


def chance_of_a_crossing(kind, alpha, epsilon):
    """Chance that 300 fair coins cross the normal mixture of level alpha, or that 13 cross the other."""
    mixtures, aim = scales(1.0, 1, epsilon, alpha), -math.log(alpha)

    def crossed(u, ones, spread):
        return _log_level(kind, (u, 0.0, spread, 1.0), ones / u - 0.5, mixtures, aim) <= -aim

    def crossed_ever(x):
        ones = x.cumsum()
        spread = ((x - np.concatenate([[0.5], ones[:-1] / np.arange(1, x.size)])) ** 2).cumsum()
        return any(crossed(u, ones[u - 1], spread[u - 1]) for u in range(1, x.size + 1))

    if kind == "gamma-mixture":         # it goes by the order of the coins
        return chance_over_orders(crossed_ever, 13, 0.5)
    return chance_of_a_miss(lambda pulls, ones: crossed(pulls[0], ones[0], 0.0), every_reward([0], 300), (0.5,))


@pytest.mark.parametrize(("kind", "epsilon", "alpha", "bold"), [
    ("normal-mixture", 0.05, 0.1, 2), ("gamma-mixture", 0.5, 0.005, 40)])
def test_mixtures_are_crossed_as_rarely_as_promised_and_bold_ones_more_often(kind, epsilon, alpha, bold):
    """By enumeration. 13 coins refute a gamma mixture that is 40 times too bold; that it equals its formula holds
    it beyond."""
    assert chance_of_a_crossing(kind, alpha, epsilon) <= alpha < chance_of_a_crossing(kind, bold * alpha, epsilon)


@pytest.mark.parametrize(("policy", "anytime"), [("hoeffding", False), ("tightest", False), ("tightest", True)])
def test_the_optimal_cutoff_against_brute_force(policy, anytime, seed):
    for k in range(2):
        rng = np.random.default_rng([seed, k])
        means = rng.random(8)
        rule = fr.Adapt(8, 3, 0.1, 1e-6, policy=policy, cutoff="optimal", anytime=anytime, batch=50, rng=1)
        rule.run(BernoulliPulls(means, rng=k), max_pulls=1500)
        state = rule._core.get_state()
        order = np.lexsort((np.arange(8), -state["mean"]))
        high = order[:3]
        kind, share = rule._options["kind"], rule._options["log_share"]

        def bound(c, state=state, high=high, kind=kind, share=share, rule=rule):
            levels = []
            for i in range(8):
                gap = state["mean"][i] + 0.1 - c if i in high else c - state["mean"][i]
                levels.append(math.exp(_log_level(
                    kind, (int(state["pulls"][i]), state["m2"][i], state["error"][i], 1.0), gap,
                    rule._options["scales"], share)))
            return min(1, 8 * max(levels)) if rule._anytime else -math.expm1(sum(math.log1p(-min(d, 1 - 1e-16))
                                                                              for d in levels))

        grid = np.linspace(state["mean"][order[3]], state["mean"][order[2]] + 0.1, 301)
        best = min(bound(c) for c in grid)
        assert rule.error_bound == pytest.approx(bound(rule.cutoff), rel=1e-9)
        assert rule.error_bound <= best * (1 + 1e-9) + 1e-15

# ADAPT.


def pulls_in_order(rule, table):
    """Drive a rule that asks for one pull at a time, from recorded rewards: the arms in order."""
    source, made = RecordedPulls(table), []
    while not rule.done:
        arms, counts = rule.ask()
        made += np.repeat(arms, counts).tolist()
        rule.tell(source.read(arms, counts))
    return made


@pytest.mark.parametrize("policy", ["tightest", "hoeffding"])
@pytest.mark.parametrize(("n", "m", "epsilon", "capped"), [(7, 3, 0.1, True), (2, 1, 0.0, False), (12, 1, 0.25, True)])
def test_every_pull_equals_the_plain_twin(policy, n, m, epsilon, capped, seed):
    rng = np.random.default_rng(seed)
    table = (rng.random((6000, n)) < np.linspace(0.2, 0.8, n)).astype(float)
    cap = math.ceil(2 / epsilon**2 * math.log(n / 0.1)) if capped else math.inf
    for batch, function in ((1, twin.adapt_by_envelope), (1e-9, twin.adapt)):
        used = [0] * n

        def pull(i, used=used):
            used[i] += 1
            return float(table[used[i] - 1, i])

        wanted = function(pull, n, m, epsilon, 0.1, [1.0] * n, policy, cap=cap,
                          uniform=twin.Uniforms(np.random.default_rng(5)))
        rule = fr.Adapt(n, m, epsilon, 0.1, policy=policy, cap=capped, batch=batch, rng=np.random.default_rng(5))
        assert pulls_in_order(rule, table) == wanted[0]
        assert (np.ravel(rule.result().best).tolist(), rule.result().stopped_by) == (wanted[1], wanted[2])


def test_the_error_bound_after_every_pull_is_that_of_the_product(seed):
    rng = np.random.default_rng(seed)
    rule, plain = fr.Adapt(5, 2, 0.1, 0.01, rng=1), twin.State(5, 2, 0.1, [1.0] * 5)
    assert rule.error_bound == 1.0 and math.isnan(rule.cutoff)
    for _ in range(600):
        arms, counts = rule.ask()
        rewards = rng.random(counts.sum()) * np.repeat([0.2, 0.9, 0.5, 0.2, 1.0], 1)[np.repeat(arms, counts)]
        for i, x in zip(np.repeat(arms, counts).tolist(), rewards.tolist(), strict=True):
            plain.tell(i, x)
        rule.tell(rewards)
        c = plain.cutoff()
        assert rule.cutoff == pytest.approx(c, rel=1e-12)
        assert rule.error_bound == pytest.approx(plain.error(c), rel=1e-10, abs=1e-14)
        assert rule.result().arm_error == pytest.approx(plain.levels(c), rel=1e-10, abs=1e-300)
        if rule.done:
            break


def test_the_envelope_holds_the_levels(seed):
    rule, source = fr.Adapt(30, 8, 0.05, 0.01, rng=1), BernoulliPulls(np.linspace(0.1, 0.9, 30), rng=seed)
    for top in range(100, 6000, 117):
        rule.run(source, max_pulls=top)
        above, below, levels, (low, high), cutoff, below_sum = rule._core._envelope()
        assert low <= cutoff <= high
        assert (above >= levels * (1 - 1e-12)).all() and (below <= levels * (1 + 1e-12)).all()
        assert below_sum == pytest.approx(below.sum(), rel=1e-6, abs=1e-9)
        state = rule._core.get_state()
        assert set(rule._core.chosen()) == set(np.lexsort((np.arange(30), -state["mean"]))[:8])


def test_drawing_one_by_one_in_blocks_and_plainly_takes_as_many_pulls(seed):
    means, found = np.linspace(0.9, 0.1, 9), {}
    for name, batch in (("one", 1), ("plain", 1e-9), ("blocks", 0.01)):
        found[name] = [
            fr.Adapt(9, 3, 0.1, 0.1, batch=batch, rng=[1, k]).run(BernoulliPulls(means, rng=[seed, k])).n_read
            for k in range(150)
        ]
    spread = np.std(found["plain"]) * math.sqrt(2 / 150)
    assert abs(np.mean(found["one"]) - np.mean(found["plain"])) < 5 * spread
    assert abs(np.mean(found["blocks"]) - np.mean(found["plain"])) < 5 * spread + 0.02 * np.mean(found["plain"])


def test_the_papers_instance_takes_the_pulls_of_the_plain_policy(seed):
    rng = np.random.default_rng(20100621)
    means, half = rng.random(50), math.sqrt(12) / 2
    support = (means - half, means + half)
    ours = [fr.Adapt(50, 15, 0.1, 0.15, support, rng=[1, k]).run(UniformPulls(*support, rng=[2, k])).n_read
            for k in range(24)]
    plain = [
        fr.Adapt(50, 15, 0.1, 0.15, support, batch=1e-9, rng=[3, k]).run(UniformPulls(*support, rng=[4, k])).n_read
        for k in range(5)
    ]
    error = math.hypot(np.std(ours) / math.sqrt(24), np.std(plain) / math.sqrt(5))
    assert abs(np.mean(ours) / np.mean(plain) - 1) < 0.05 + 3 * error / np.mean(plain)
    assert 20_000 < np.mean(ours) < 80_000


def test_the_cap_is_never_passed_and_tied_arms_stop(seed):
    for kw in ({}, {"batch": 100}, {"strict": True}, {"anytime": True}, {"policy": "colliding", "batch": 0.01}):
        rule = fr.Adapt(6, 2, 0.2, 0.1, rng=1, **kw)
        result = rule.run(BernoulliPulls([0.5] * 6, rng=seed))
        share = 0.05 if kw.get("strict") or kw.get("anytime") else 0.1
        assert result.pulls.max() <= math.ceil(2 / 0.04 * math.log(6 / share))
        assert result.stopped_by in ("delta", "cap", "epsilon")
        assert result.error_bound <= 0.1
    endless = fr.Adapt(2, 1, 0.0, 0.05, rng=1).run(lambda arms, counts: np.full(counts.sum(), 0.5), max_pulls=5000)
    assert endless.stopped_by == "max_pulls" and endless.error_bound == 1.0 and np.ravel(endless.best).tolist() == [0]


def test_constant_arms_stop_soon():
    values = np.array([0.7, 0.5, 0.3, 0.1])
    for kw in ({}, {"batch": 0.05}, {"anytime": True}, {"policy": "hoeffding"}):
        result = fr.Adapt(4, 2, 0.05, 0.1, rng=1, **kw).run(lambda arms, counts: np.repeat(values[arms], counts))
        assert sorted(np.ravel(result.best).tolist()) == [0, 1] and result.stopped_by == "delta"
        assert result.n_read < (5000 if kw.get("policy") else 900)


@pytest.mark.resources
def test_many_arms_cost_little(seed):
    n = 100_000
    means = np.full(n, 0.1)
    means[::1000] = 0.9
    rule = fr.Adapt(n, 100, 0.1, 0.1, rng=1)
    result = rule.run(BernoulliPulls(means, rng=seed), max_pulls=3 * n)
    assert result.n_read == 3 * n and result.stopped_by == "max_pulls"
    result = fr.Adapt(n, 100, 0.5, 0.1, batch=0.1, rng=1).run(BernoulliPulls(means, rng=seed))
    assert set(np.ravel(result.best).tolist()) == set(range(0, n, 1000)) and result.stopped_by == "delta"
    assert set(fr.Halving(n, 100, 3.0, 0.5, (0, 1)).ask()[1].tolist()) == {
        math.ceil(2 / 0.75**2 * math.log(300 / 0.25))}


INSTANCES = {
    "easy": ([0.9, 0.8, 0.3, 0.2], 2, 0.1),
    "hard": ([0.6] * 4 + [0.6 - 0.101] * 4, 4, 0.1),
    "two arms, no epsilon": ([0.53, 0.47], 1, 0.0),
    "tied at the cut": ([0.8, 0.5, 0.5, 0.5, 0.2], 2, 0.05),
    "rare rewards": ([0.05, 0.01], 1, 0.0),
    "one best": ([0.6] + [0.45] * 7, 1, 0.05),
}


@pytest.mark.parametrize("kw", [{}, {"anytime": True}, {"policy": "hoeffding", "cutoff": "optimal", "batch": 0.05},
                                {"batch": 0.02}], ids=str)
@pytest.mark.parametrize("instance", INSTANCES.values(), ids=INSTANCES)
@few_or_many("trials", 40, 600)
def test_the_stop_keeps_its_promise_under_optional_stopping(instance, kw, trials, seed):
    """Refutes what is wrong by much alone; the chances of the mixtures are enumerated above."""
    means, m, epsilon = np.array(instance[0]), instance[1], instance[2]
    good_enough = np.sort(means)[-m] - epsilon - 1e-12
    delta, wrong = 0.15, 0
    for k in range(trials):
        rule = fr.Adapt(len(means), m, epsilon, delta, rng=[seed, k, 1], **kw)
        result = rule.run(BernoulliPulls(means, rng=[seed, k, 2]), max_pulls=10**6)
        wrong += (means[result.best] < good_enough).any()
    assert_rate_at_most(wrong, trials, delta)
