"""LUCB on rewards without a support: its wealth is a gambler's, every pull equals the twin's, its promise is kept."""

import math
import pickle

import numpy as np
import pytest
from following import assert_follows, assert_follows_within, reader
from scipy import optimize

import fastrace as fr
from fastrace.pulls import RecordedPulls
from fastrace.select import _unbounded
from guarantee import assert_rate_at_most, few_or_many
from reference import pairs as reference

LAWS = {            # symmetric about 0, with or without moments
    "normal": lambda rng, n: rng.standard_normal(n),
    "Student's": lambda rng, n: rng.standard_t(2, n),
    "Cauchy's": lambda rng, n: rng.standard_cauchy(n),
    "two points": lambda rng, n: rng.choice([-1.0, 1.0], n),
    "rare": lambda rng, n: rng.choice([-30.0, -1.0, 0.0, 1.0, 30.0], n, p=[0.01, 0.1, 0.78, 0.1, 0.01]),
    "uniform": lambda rng, n: rng.uniform(-1, 1, n),
}


# Wealth.


@pytest.mark.parametrize("symmetric", [True, False])
def test_bounds_over_ranges_of_cuts_are_below_the_wealth_of_the_bettors(symmetric, seed):
    rng = np.random.default_rng(seed)
    for law in LAWS.values():
        y = rng.normal() + law(rng, int(rng.integers(1, 200)))
        arms = reference.FreeArms(1, None if symmetric else 1.0, 1, 0.0, 0.1)
        arms.rewards = [[0.0] * (5 if symmetric else 0) + y.tolist()]
        given = y.size, y.sum(), (y * y).sum()
        most = 1.5 if symmetric else 4.0

        def wealth(cut, arms=arms):
            logs = arms.bettors(0, 0, cut)[0]
            return np.logaddexp.reduce(np.log(arms.weights[: logs.size]) + logs)

        for _ in range(10):
            a, b = np.sort(rng.normal(scale=3.0, size=2) * 3.0 ** rng.integers(-2, 3))
            cuts = np.linspace(a, b, 30)
            real = np.array([wealth(cut) for cut in cuts])
            slack = 1e-9 * (1 + np.abs(real))
            found, slope = _unbounded._log_wealth(*given, a, symmetric, most)
            assert found == pytest.approx(real[0], rel=1e-9, abs=1e-9)
            step = 1e-6 * (1 + abs(a))
            assert slope == pytest.approx((wealth(a + step) - wealth(a - step)) / (2 * step), rel=1e-3, abs=1e-2)
            left, right, below = _unbounded._log_floor(*given, a, b, symmetric, most)
            assert (np.linspace(left, right, 30) <= real + slack).all()
            assert (below <= real + slack).all()
            assert all(below <= wealth(b - far) + 1e-6 for far in (1.0, 10.0, 1e4))


@pytest.mark.parametrize("law", list(LAWS))
@pytest.mark.parametrize("shift", [0.0, 0.3])
def test_a_gambler_on_symmetric_rewards_seldom_gets_rich(law, shift, seed):
    level, crossed, trials = math.log(5), 0, 150
    for child in np.random.SeedSequence(seed).spawn(trials):
        y = LAWS[law](np.random.default_rng(child), 600) - shift       # the mean is at most 0
        sums = [np.arange(1, 601), *np.cumsum([y, y * y], axis=1)]
        crossed += any(_unbounded._log_wealth(*(total[t] for total in sums), 0.0, True, 1.5)[0] >= level
                       for t in range(0, 600, 3))
    assert_rate_at_most(crossed, trials, 0.2)


# The loop against its twin.


@pytest.mark.parametrize(("n_arms", "n_best", "batch", "epsilon"), [
    (2, 1, 1, 0.0), (6, 2, 1, 0.1), (5, 4, "auto", 0.1),
])
@pytest.mark.parametrize("scale", [None, 0.8, (0.5, 1.0, 2.0)])
def test_every_pull_equals_the_plain_twin(n_arms, n_best, batch, epsilon, scale):
    rng = np.random.default_rng(n_arms)
    scales = None if scale is None else np.resize(scale, n_arms)
    values = 2.0 * rng.standard_normal(n_arms) + rng.standard_normal((400, n_arms)) * np.resize([0.5, 1.0, 2.0], n_arms)
    values[:, 1] = values[0, 1]                                     # one constant arm
    arms = reference.FreeArms(n_arms, scales, n_best, epsilon, 0.1)
    twin = reference.pairs(
        reader(values), None, None, n_best, epsilon, 0.1, 0 if batch == "auto" else batch, 64, arms=arms)
    given = {"symmetric": True} if scale is None else {"sub_gaussian": scales}
    assert_follows(lambda: fr.LUCB(n_arms, n_best, epsilon, 0.1, batch=batch, **given), values, twin)


@pytest.mark.parametrize("scale", [None, 0.8, [0.5, 1.0, 2.0]])
def test_every_pull_within_a_small_budget_equals_the_plain_twin(scale):
    rng = np.random.default_rng(6)
    scales, values = None if scale is None else np.resize(scale, 6), rng.standard_normal((400, 6)) + np.arange(6) / 5
    given = {"symmetric": True} if scale is None else {"sub_gaussian": scales}

    def twin(known):
        arms = reference.FreeArms(6, scales, 1, 0.0, 0.1)
        return reference.pairs(reader(values), None, None, 1, 0.0, 0.1, 1, 95, arms=arms, known=known)

    assert twin(True)[1] != twin(False)[1]
    assert_follows_within(lambda: fr.LUCB(6, 1, delta=0.1, batch=1, **given), values, 95, twin(True))


# Answers.


def normal(means, scales, seed):
    rng = np.random.default_rng(seed)
    means, scales = np.asarray(means, float), np.broadcast_to(scales, len(means))
    return lambda arms, counts: rng.normal(np.repeat(means[arms], counts), np.repeat(scales[arms], counts))


@pytest.mark.parametrize("given", [{"symmetric": True}, {"sub_gaussian": 1.5}])
def test_error_bound_is_the_delta_that_would_have_stopped(given):
    rule = fr.LUCB(3, 1, 0.05, 1e-9, **given)
    arms = reference.FreeArms(3, None if "symmetric" in given else 1.5, 1, 0.05, 1e-9)
    source = normal([2.0, 0.9, 0.3], 1.5, 1)
    while rule.n_pulls < 120:
        wanted, counts = rule.ask()
        rewards = source(wanted, counts)
        for i, part in zip(wanted, np.split(rewards, np.cumsum(counts)[:-1]), strict=True):
            arms.take(i, part)
        rule.tell(rewards)
    result = rule.result()
    arms.ready()
    rest = [i for i in range(3) if i != result.best]

    def evidence(cut):
        return arms.evidence(result.best, 0, cut)[0] + min(arms.evidence(i, 1, cut)[0] for i in rest)

    cuts = np.linspace(-1, 4, 51)
    near = cuts[int(np.argmin([evidence(cut) for cut in cuts]))]
    least = optimize.minimize_scalar(evidence, bounds=(near - 0.1, near + 0.1), method="bounded").fun
    assert 1e-9 < result.error_bound < 0.9
    assert math.log(result.error_bound) == pytest.approx(-least, abs=2e-3)


def test_intervals_are_infinite_before_there_is_evidence_and_equal_in_any_units():
    found = []
    for unit, shift in ((1.0, 0.0), (1e6, 3e6), (1e-6, 0.0)):
        rule = fr.LUCB(2, 1, symmetric=True)
        assert np.isinf(rule.result().lower).all() and np.isinf(rule.result().upper).all()
        source = normal([0.5, 0.0], 1.0, 5)

        def pull(arms, counts, unit=unit, shift=shift, source=source):
            return shift + unit * source(arms, counts)

        result = rule.run(pull, 200)
        found.append([(result.lower - shift) / unit, (result.upper - shift) / unit])
        assert (result.lower < result.mean).all() and (result.mean < result.upper).all()
        if result.stopped_by == "max_pulls":
            assert np.isfinite(result.lower).all() and np.isfinite(result.upper).all()
    assert np.allclose(found[0], found[1], atol=1e-6)
    assert np.allclose(found[0], found[2], atol=1e-6)


def test_what_does_not_go_together_is_refused():
    for given, said in (
        ({"sub_gaussian": 1.0, "symmetric": True}, "give one of them"),
        ({"sub_gaussian": 1.0, "bound": "kl"}, "needs rule='pairs'"),
        ({"symmetric": True, "rule": "intervals"}, "needs rule='pairs'"),
        ({"symmetric": True, "support": (0, 2)}, "give one of them"),
        ({"sub_gaussian": 0.0}, "finite scales above 0"),
        ({"sub_gaussian": [1.0, 2.0]}, r"shape \(2,\)"),
        ({"sub_gaussian": [1.0, math.nan, 2.0]}, "finite scales above 0"),
    ):
        with pytest.raises(ValueError, match=said):
            fr.LUCB(3, 1, **given)
    rule = fr.LUCB(2, 1, symmetric=True)
    with pytest.raises(ValueError, match="reward 0 of arm 0 is inf"):
        rule.tell([math.inf, *np.zeros(9)])
    assert rule.n_pulls == 0


def test_skewed_rewards_are_warned_of_and_symmetric_ones_are_not(seed):
    rng = np.random.default_rng(seed)

    def pull(arms, counts):
        return np.concatenate([rng.exponential(size=n) if i == 0 else rng.standard_t(2, n) + 0.98
                               for i, n in zip(arms, counts, strict=True)])

    result = fr.LUCB(2, 1, symmetric=True, names=["skewed", "not"]).run(pull, 6000)
    assert any("1 arm look skewed (skewed)" in warning for warning in result.warnings)


def test_a_damaged_scale_or_moment_is_refused():
    for given in ({"symmetric": True}, {"sub_gaussian": 1.0}):
        rule = fr.LUCB(4, 2, 0.05, **given)
        rule.run(normal([0.1, 0.4, 0.6, 0.8], 1.0, 1), 60)
        rebuild, (version, cls, known, state) = rule.__reduce__()
        for change in ({"scale": 0.0 * state["scale"]}, {"above": state["above"] - 100.0},
                       {"within_high": state["within_high"] - 1e9}):
            with pytest.raises(ValueError, match="damaged"):
                rebuild(version, cls, known, {**state, **change})
    with pytest.raises(ValueError, match="damaged"):
        rebuild(version, cls, known, {**state, "scale": 2.0 * state["scale"]})


# Promises.


@pytest.mark.parametrize("law", list(LAWS))
@few_or_many("trials", 60, 1000)
def test_wrong_sets_are_as_rare_as_promised(law, trials, seed):
    means, delta, wrong = np.array([0.5, 0.45, 0.0]), 0.2, 0
    for k in range(trials):
        rng = np.random.default_rng([seed, k])

        def pull(arms, counts, rng=rng):
            return np.repeat(means[arms], counts) + LAWS[law](rng, int(counts.sum()))

        result = fr.LUCB(3, 1, 0.0, delta, symmetric=True).run(pull, 600)
        wrong += result.error_bound <= delta and result.best != 0
    assert_rate_at_most(wrong, trials, delta)


@pytest.mark.parametrize("given", [{"symmetric": True}, {"sub_gaussian": 1.0}])
@few_or_many("trials", 60, 400)
def test_the_error_bound_and_the_intervals_hold_at_any_time(given, trials, seed):
    # Stopped where it looks best in hindsight: equal arms, and only the last is called right.
    x, wrong, missed = 0.3, 0, 0
    for k in range(trials):
        rule, hit, miss = fr.LUCB(3, 1, 0.0, 0.2, **given), False, False
        source = normal(np.zeros(3), 1.0, [seed, k])
        for limit in np.geomspace(10, 600, 8).astype(int):
            result = rule.run(source, int(limit))
            hit |= result.error_bound <= x and result.best < 2
            miss |= (result.lower > 0).any()
        wrong += hit
        missed += miss
    assert_rate_at_most(wrong, trials, x)
    assert_rate_at_most(missed, trials, 0.2)


def test_it_needs_far_fewer_pulls_than_a_support_that_is_wide_enough():
    means = np.r_[0.8, np.zeros(4)]
    pulls = {name: np.mean([fr.LUCB(5, 1, **given).run(normal(means, 1.0, k)).n_read for k in range(5)])
             for name, given in {"symmetric": {"symmetric": True}, "known": {"sub_gaussian": 1.0},
                                 "support": {"support": (-8.0, 9.0)}}.items()}
    assert max(pulls["symmetric"], pulls["known"]) < 0.6 * pulls["support"]
    assert fr.select_best(normal(means, 1.0, 1), 5, symmetric=True).best == 0


@pytest.mark.parametrize("given", [{}, {"sub_gaussian": 1.0}, {"symmetric": True}],
                         ids=["any law", "scale", "symmetric"])
@pytest.mark.parametrize("offset", [-1e12, 1e13, 1e14, 1e15])
def test_far_from_0_arms_are_told_apart_as_near_it(given, offset):
    """Means that count from 0 stand still there: three of 32 such answers were wrong at 1e15, others never came."""
    for seed in range(6):
        rewards = np.round(4 * np.random.default_rng([seed, 15]).normal(size=(3000, 3)) + [0, 2, 0]) / 4
        near = fr.LUCB(3, 1, 0.01, support=None, **given).run(RecordedPulls(rewards), 8000)
        rule = fr.LUCB(3, 1, 0.01, support=None, **given)
        source = RecordedPulls(rewards + offset)
        rule.run(source, 250)
        result = pickle.loads(pickle.dumps(rule)).run(source, 8000)
        assert result.best == near.best == 1 and {result.stopped_by, near.stopped_by} <= {"bound", "epsilon"}
        if not given.get("symmetric"):      # its unit is that of five rewards, rounded
            assert result.pulls.tolist() == near.pulls.tolist()
            assert np.allclose(result.mean - offset, near.mean, atol=abs(offset) * 2e-16)
            assert ((result.lower <= near.lower + offset) & (near.upper + offset <= result.upper)).all()
            assert result.error_bound == pytest.approx(near.error_bound)


def test_arms_near_0_keep_their_digits_beside_one_that_is_far():
    rng = np.random.default_rng(16)
    means = np.array([-1e30, 0.0, 1.0])
    result = fr.LUCB(3, 1, support=None).run(
        lambda arms, counts: np.repeat(means[arms], counts) + rng.normal(size=counts.sum()), 60_000)
    assert result.best == 2 and abs(result.mean[1]) < 1.0 and result.lower[2] < 1.0 < result.upper[2]
    means = np.array([1e15, 0.25, 1e15 + 1.0])
    result = fr.LUCB(3, 2, support=None).run(
        lambda arms, counts: np.repeat(means[arms], counts) + rng.integers(-1, 2, counts.sum()), 60_000)
    assert set(result.best) == {0, 2} and abs(result.mean[1] - 0.25) < 0.5
