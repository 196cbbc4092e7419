"""Confidence sequences and the rules that stop by bets, against their plain twins."""

import copy
import functools
import math
import pickle

import numpy as np
import pytest

import fastrace as fr
from guarantee import assert_rate_at_most, few_or_many
from reference import sequences as twin

BOUNDS = ["empirical-bernstein-mixture", "plug-in", "stitched", "hoeffding", "betting", "universal"]
OF_POPULATIONS = ["plug-in", "betting", "universal"]
TWINS = {
    "empirical-bernstein-mixture": twin.mixture,
    "plug-in": twin.plug_in,
    "stitched": twin.stitched,
    "hoeffding": twin.hoeffding,
    "betting": twin.betting,
    "universal": twin.universal,
}
LAWS = {
    "bernoulli 0.5": lambda rng, n: (rng.random(n) < 0.5).astype(float),
    "bernoulli 0.05": lambda rng, n: (rng.random(n) < 0.05).astype(float),
    "bernoulli 0.01": lambda rng, n: (rng.random(n) < 0.01).astype(float),
    "uniform": lambda rng, n: rng.random(n),
    "beta(0.5, 0.5)": lambda rng, n: rng.beta(0.5, 0.5, n),
    "two points": lambda rng, n: np.where(rng.random(n) < 0.3, 0.9, 0.2),
    "constant 0": lambda rng, n: np.zeros(n),
    "constant 0.3": lambda rng, n: np.full(n, 0.3),
    "constant 1": lambda rng, n: np.ones(n),
    "lognormal": lambda rng, n: np.minimum(rng.lognormal(-2.5, 1.0, n), 1.0),
}
# of min(lognormal(-2.5, 1), 1): exp(m + s^2 / 2) Phi((0 - m - s^2) / s) + 1 - Phi((0 - m) / s)
MEANS = {"bernoulli 0.5": 0.5, "bernoulli 0.05": 0.05, "bernoulli 0.01": 0.01, "uniform": 0.5, "beta(0.5, 0.5)": 0.5,
         "two points": 0.41, "constant 0": 0.0, "constant 0.3": 0.3, "constant 1": 1.0,
         "lognormal": math.exp(-2.0) * 0.5 * math.erfc(-1.5 / math.sqrt(2)) + 0.5 * math.erfc(2.5 / math.sqrt(2))}
RULES = {
    "TargetEBStop": lambda **given: fr.TargetEBStop(**given),
    "TargetBetStop": lambda **given: fr.TargetBetStop(**given),
    "TargetOddsStop": lambda **given: fr.TargetOddsStop(**given),
    "BettingStop": lambda **given: fr.BettingStop(**given),
}


def streams(n):
    """The streams of the test vectors: no random numbers."""
    g = (np.arange(1, n + 1) * 0.6180339887498949) % 1.0
    return {"constant": np.full(n, 0.5), "g": g, "g^4": g**4, "g < 0.3": (g < 0.3).astype(float),
            "narrow": 0.4 + 0.2 * g}


# Known answers

TARGET = {"constant": (56, 0.49508744), "g": (289, 0.49308111), "g^4": (1405, 0.19850256),
          "g < 0.3": (1771, 0.29627122), "narrow": (64, 0.49667780)}
PLUG_IN = {"constant": (148, 0.49501503), "g": (398, 0.49535834), "g^4": (2578, 0.19791100),
           "g < 0.3": (4699, 0.29682507), "narrow": (152, 0.49554926)}
STITCHED = {"constant": (249, 0.49500391), "g": (886, 0.49461373), "g^4": (3833, 0.19797497),
            "g < 0.3": (4559, 0.29696844), "narrow": (249, 0.49479829)}
HEDGED = {"constant": 69, "g": 327, "g^4": 2764, "g < 0.3": 5450, "narrow": 71}
TARGET_BET = {"constant": 44, "g": 246, "g^4": 1314, "g < 0.3": 1701, "narrow": 47}


@pytest.mark.parametrize("name", TARGET)
def test_target_rule_stops_at_the_known_sample(name):
    rule = fr.TargetEBStop(epsilon=0.1, delta=0.05)
    x = streams(5000)[name]
    assert rule.update_many(x) == TARGET[name][0]
    assert rule.estimate == pytest.approx(TARGET[name][1], abs=5e-9)
    n, estimate = twin.stop(twin.target(x[:2000], 0.05, lambda mean: 0.1 * mean), 0.1)
    assert n == rule.n_samples
    assert estimate == pytest.approx(rule.estimate, rel=1e-12)


@pytest.mark.parametrize(("bound", "known"), [("plug-in", PLUG_IN), ("stitched", STITCHED)])
@pytest.mark.parametrize("name", TARGET)
def test_sequences_allow_the_known_stop(bound, known, name):
    n, estimate = known[name]
    x = streams(5000)[name]
    sequence = fr.ConfidenceSequence(bound, delta=0.05)
    sequence.update_many(x[: n - 1])
    low, high = sequence.interval
    assert 1.1 * low < 0.9 * high
    sequence.update(x[n - 1])
    low, high = sequence.interval
    assert 1.1 * low >= 0.9 * high
    assert (1.1 * low + 0.9 * high) / 2 == pytest.approx(estimate, abs=5e-9)
    assert twin.stop(TWINS[bound](x[:n], 0.05), 0.1)[0] == n


@pytest.mark.parametrize("name", ["constant", "g", "narrow"])
def test_betting_on_a_grid_costs_little_more_than_betting_on_every_candidate(name):
    x = streams(3000)[name]
    assert twin.exact_betting_stop(x[:500], 0.1, 0.05, twin.hedged_bets, 0.5) == HEDGED[name]
    assert twin.exact_betting_stop(x[:500], 0.1, 0.05, twin.target_bets(0.1), 0.9) == TARGET_BET[name]
    assert HEDGED[name] <= fr.BettingStop(epsilon=0.1, delta=0.05).update_many(x) <= 1.1 * HEDGED[name]
    assert TARGET_BET[name] <= fr.TargetBetStop(epsilon=0.1, delta=0.05).update_many(x) <= 1.1 * TARGET_BET[name]


@pytest.mark.parametrize("name", ["g^4", "g < 0.3"])
def test_long_runs_of_betting_on_a_grid(name):
    x = streams(8000)[name]
    assert HEDGED[name] <= fr.BettingStop(epsilon=0.1, delta=0.05).update_many(x) <= 1.1 * HEDGED[name]
    assert TARGET_BET[name] <= fr.TargetBetStop(epsilon=0.1, delta=0.05).update_many(x) <= 1.1 * TARGET_BET[name]


def test_plug_in_bounds_equal_the_published_formula():
    """Waudby-Smith & Ramdas (2024), Theorem 2, as their package confseq computes it over arrays."""
    x, alpha = np.random.default_rng(1).beta(2, 5, 10_000), 0.05
    t = np.arange(1, x.size + 1)
    mean = (0.5 + np.cumsum(x)) / (t + 1)
    variance = (0.25 + np.cumsum((x - mean) ** 2)) / (t + 1)
    before = np.append(0.5, mean[:-1])
    bets = np.sqrt(2 * np.log(2 / alpha) / (np.append(0.25, variance[:-1]) * t * np.log(1 + t)))
    bets = np.minimum(bets, 0.5)
    gain = 4 * (x - before) ** 2 * (-np.log(1 - bets) - bets) / 4
    margin = (np.log(2 / alpha) + np.cumsum(gain)) / np.cumsum(bets)
    centre = np.cumsum(bets * x) / np.cumsum(bets)
    low = np.maximum.accumulate(np.maximum(centre - margin, 0))
    high = np.minimum.accumulate(np.minimum(centre + margin, 1))
    sequence = fr.ConfidenceSequence("plug-in", delta=alpha)
    for i in range(x.size):
        sequence.update(x[i])
        assert sequence.interval == pytest.approx((low[i], high[i]), abs=1e-10)


def test_the_boundaries_have_the_known_values():
    assert twin.stitched_boundary(100, math.log(1 / 0.05), scale=0) == pytest.approx(37.9156, abs=5e-5)
    u = twin.mixture_boundary(30.0, 3.0, 4.0)
    assert twin.log_mixture(u, 30.0, 4.0) == pytest.approx(3.0, abs=1e-10)


# Twins, sample for sample

@pytest.mark.parametrize("law", [law for law in LAWS if law not in ("bernoulli 0.5", "two points", "constant 0.3")])
@pytest.mark.parametrize("bound", BOUNDS)
def test_intervals_equal_the_twin(bound, law):
    n = 60 if bound in ("betting", "universal") else 200
    low, high = -3.0, 5.0
    z = LAWS[law](np.random.default_rng(5), n)
    sequence = fr.ConfidenceSequence(bound, support=(low, high), delta=0.1)
    for x, (lower, upper) in zip(low + (high - low) * z, twin.running(TWINS[bound](z, 0.1), (low, high)), strict=True):
        sequence.update(x)
        if bound != "empirical-bernstein-mixture" or sequence.n_samples < 1000:
            assert sequence.interval == pytest.approx((lower, upper), abs=1e-9)
    assert sequence.estimate == pytest.approx(low + (high - low) * z.mean(), abs=1e-12)
    assert sequence.stopped_by == ""


def test_the_mixture_is_looked_at_where_the_twin_does(seed):
    z = np.random.default_rng(seed).random(1200)
    expected = list(twin.running(twin.mixture(z, 0.05)))
    sequence = fr.ConfidenceSequence("empirical-bernstein-mixture")
    for n in (499, 500, 501, 502, 999, 1001, 1003, 1200):
        sequence.update_many(z[sequence.n_samples:n])
        low, high = expected[n - 1]
        assert sequence.interval[0] >= low - 1e-9       # the present interval may add to what was seen at looks
        assert sequence.interval[1] <= high + 1e-9


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 1.0])
@pytest.mark.parametrize("n_rows", [None, 60, 200])
def test_shares_of_ones_equal_the_twin(n_rows, share):
    low, high = -3.0, 5.0
    z = (np.random.default_rng(5).random(60) < share).astype(float)
    sequence = fr.ConfidenceSequence("beta-binomial", support=(low, high), delta=0.1, n_rows=n_rows)
    expected = list(twin.running(twin.beta_binomial(z, 0.1, n_rows), (low, high)))
    for x, ends in zip(low + (high - low) * z, expected, strict=True):
        sequence.update(x)
        assert sequence.interval == pytest.approx(ends, abs=1e-9)
    if n_rows == 60:
        assert sequence.interval == pytest.approx([low + (high - low) * z.mean()] * 2)


@pytest.mark.parametrize("n_rows", [None, 60])
@pytest.mark.parametrize("law", ["uniform", "bernoulli 0.05", "lognormal"])
def test_a_portfolio_claims_no_more_money_than_it_has_won(law, n_rows):
    z = LAWS[law](np.random.default_rng(7), 60)
    bounds = twin.universal(z, 0.1, n_rows)
    for t in (1, 10, 40, 59):
        for ends, m in ((z[:t], bounds[t - 1][0]), (1 - z[:t], 1 - bounds[t - 1][1])):
            surely = 0.0 if n_rows is None else ends.sum() / n_rows     # what needs no money
            if not surely + 1e-9 < m < 1:
                continue
            assert twin.won_above(ends, m, n_rows) >= math.log(10) - 1e-6
            if n_rows is None:
                assert twin.won_above(ends, m) == pytest.approx(math.log(10), abs=1e-6)
    for m in (0.001, 0.3, 0.5, 0.999):          # one unit of money, whatever the candidate
        assert twin.shares(m).sum() + twin.shares(1 - m).sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("support", [(0.0, 1.0), (-0.3, 0.1), (-2.0, 6.0)])
@pytest.mark.parametrize("law", ["uniform", "two points", "bernoulli 0.5"])
def test_target_rules_equal_the_twin(law, support, absolute):
    low, high = support
    span = high - low
    z = LAWS[law](np.random.default_rng(3), 3000)
    epsilon = 0.1 * span if absolute else 0.3
    target, target_bets = (
        [functools.partial(fr.AbsoluteStop, bound=bound) for bound in ("target", "target-betting")]
        if absolute else [fr.TargetEBStop, fr.TargetBetStop])

    def wanted(mean):
        return epsilon / span if absolute else max(epsilon * abs(mean + low / span), 1e-12)

    rule = target(epsilon, 0.1, support)
    rule.update_many(low + span * z)
    expected = twin.stop(twin.target(z[: rule.n_samples + 1], 0.1, wanted), epsilon, support, absolute)
    assert (rule.n_samples, rule.estimate) == (expected[0], pytest.approx(expected[1], rel=1e-9))
    bets = twin.target_bets(epsilon, low / span, epsilon / span if absolute else None)
    rule = target_bets(epsilon, 0.1, support)
    rule.update_many(low + span * z)
    if rule.n_samples < 300:
        expected = twin.stop(twin.betting(z[: rule.n_samples + 1], 0.1, bets, 0.9), epsilon, support, absolute)
        assert (rule.n_samples, rule.estimate) == (expected[0], pytest.approx(expected[1], rel=1e-9))


@pytest.mark.parametrize("n_rows", [None, 40, 200])
@pytest.mark.parametrize(("law", "support"), [("uniform", (0.0, 1.0)), ("two points", (-2.0, 6.0)),
                                              ("bernoulli 0.05", (0.0, 2.0))])
def test_bets_on_odds_equal_the_twin(law, support, n_rows):
    low, high = support
    span, epsilon = high - low, 0.2
    z = LAWS[law](np.random.default_rng(3), 40)
    for absolute in (False, True):
        rule = (fr.AbsoluteStop(epsilon * span / 4, 0.1, support, bound="target-odds", n_rows=n_rows) if absolute
                else fr.TargetOddsStop(epsilon, 0.1, support, n_rows=n_rows))

        def wanted(mean, side, absolute=absolute):
            return epsilon / 4 if absolute else max(epsilon * abs(mean + low / span) / (1 + side * epsilon), 1e-12)

        expected = twin.running(twin.target_odds(z, 0.1, functools.partial(wanted, side=1),
                                                 functools.partial(wanted, side=-1), n_rows=n_rows), support)
        for x, ends in zip(low + span * z, expected, strict=True):
            if rule.update(x) or ends[0] >= ends[1] - 1e-12:
                break
            assert rule.interval == pytest.approx(ends, abs=1e-9 * span)


def test_bets_on_odds_stop_first():
    """At most 110 rewards on betas, where TargetEBStop takes 156, and nowhere many more than that."""
    for law, epsilon, most in [("beta(10, 30)", 0.1, 110), ("uniform", 0.1, None), ("two points", 0.05, None),
                               ("bernoulli 0.05", 0.4, None)]:
        used = []
        for child in np.random.SeedSequence(11).spawn(10):
            rng = np.random.default_rng(child)
            x = rng.beta(10, 30, 400) if law == "beta(10, 30)" else LAWS[law](rng, 10_000)
            used.append([rule(epsilon, 0.05).update_many(x) for rule in (fr.TargetOddsStop, fr.TargetEBStop)])
        ours, theirs = np.mean(used, axis=0)
        assert ours <= (most or 1.1 * theirs), law


@pytest.mark.parametrize("law", ["uniform", "bernoulli 0.05", "constant 0.3"])
def test_sign_tests_equal_the_twin(law):
    for seed in range(20):
        z = LAWS[law](np.random.default_rng(seed), 400)
        for threshold in (0.02, 0.4, 0.7):
            test = fr.SignStop(threshold * 4 - 1, 0.05, support=(-1, 3))
            test.update_many(4 * z - 1)
            n, side = twin.sign_test(z, threshold, 0.05)
            assert (test.n_samples, test.estimate if test.stopped else 0) == (n, side)
            population = fr.SignStop(threshold, 0.05, support=(0, 1), n_rows=400)
            population.update_many(z)
            n, side = twin.sign_test(z, threshold, 0.05, n_rows=400)
            assert (population.n_samples, population.estimate if population.stopped else 0) == (n, side)


# Without replacement

@pytest.mark.parametrize("bound", OF_POPULATIONS)
def test_sequences_over_a_population_equal_the_twin_and_end_exact(bound):
    for law in ("uniform", "bernoulli 0.05", "constant 0", "constant 1"):
        z = LAWS[law](np.random.default_rng(2), 90)
        sequence = fr.ConfidenceSequence(bound, delta=0.001, n_rows=90)
        for x, expected in zip(z, twin.running(TWINS[bound](z, 0.001, n_rows=90)), strict=True):
            sequence.update(x)
            assert sequence.interval == pytest.approx(expected, abs=1e-9)
        assert sequence.interval == pytest.approx((z.mean(), z.mean()), abs=1e-12)
        assert sequence.done
        assert sequence.stopped_by == "max_samples"
        assert "every row" in str(sequence.result())


@pytest.mark.parametrize("name", RULES)
def test_rules_over_a_population_stop_at_its_end_at_the_latest(name):
    z = LAWS["uniform"](np.random.default_rng(2), 50)
    rule = RULES[name](epsilon=0.001, delta=0.05, n_rows=50)
    assert rule.update_many(z) <= 50
    assert rule.stopped
    assert rule.estimate == pytest.approx(z.mean(), rel=0.001)
    rule = RULES[name](epsilon=0.1, delta=0.05, n_rows=50)
    assert rule.update_many(np.zeros(50)) == 50
    assert rule.stopped
    assert rule.estimate == 0.0


@pytest.mark.parametrize("portion", [1, 60, 400])
@pytest.mark.parametrize("limit", [370, 390, 400])
def test_a_population_missed_within_max_samples_is_inconsistent(limit, portion):
    z = np.repeat([0.5, 1.0], 200)                  # not in random order: the intervals miss the mean
    low, high = np.array(twin.target(z, 0.05, lambda mean: 2e-4, n_rows=400)).T
    assert low[:limit].max() > high[:limit].min()
    made = [fr.AbsoluteStop(2e-4, 0.05, n_rows=400, max_samples=limit),
            fr.AbsoluteStop(2e-4, 0.05, bound="target-betting", n_rows=400, max_samples=limit),
            fr.ConfidenceSequence("plug-in", n_rows=400, max_samples=limit)]
    for rule in made:
        for first in range(0, 400, portion):
            rule.update_many(z[first:first + portion])
        low, high = rule.interval
        assert rule.done and rule.n_samples == limit
        assert rule.stopped_by == "inconsistent"
        assert (low > high) == (limit < 400)
        assert ("an earlier interval missed" if limit == 400 else "are the rewards independent") in str(rule.result())
    rule = fr.AbsoluteStop(2e-4, 0.05, bound="target-betting", n_rows=400, max_samples=20)
    rule.update_many(z)
    assert rule.stopped_by == "max_samples" and rule.interval[0] <= rule.interval[1]


@pytest.mark.parametrize("bound", OF_POPULATIONS)
def test_intervals_over_a_population_hold_its_mean(bound, seed):
    missed, delta = 0, 0.1
    for child in np.random.SeedSequence(seed).spawn(300):
        rng = np.random.default_rng(child)
        z = rng.beta(0.3, 1.0, 200)
        sequence = fr.ConfidenceSequence(bound, delta=delta, n_rows=200)
        sequence.update_many(z)
        low, high = sequence.interval
        missed += sequence.stopped_by == "inconsistent" or not low - 1e-9 <= z.mean() <= high + 1e-9
    assert_rate_at_most(missed, 300, delta)


@pytest.mark.parametrize("n_rows", [None, 300])
@pytest.mark.parametrize("share", [0.01, 0.5])
def test_intervals_hold_the_share_of_ones_at_all_times(share, n_rows, seed):
    missed, delta, trials = 0, 0.1, 200
    for child in np.random.SeedSequence([seed, 5]).spawn(trials):
        z = (np.random.default_rng(child).random(300) < share).astype(float)
        sequence = fr.ConfidenceSequence("beta-binomial", delta=delta, n_rows=n_rows)
        sequence.update_many(z)
        low, high = sequence.interval
        missed += sequence.stopped_by == "inconsistent" or not low <= (share if n_rows is None else z.mean()) <= high
    assert_rate_at_most(missed, trials, delta)


@pytest.mark.parametrize("make", [
    *[functools.partial(fr.ConfidenceSequence, bound) for bound in OF_POPULATIONS],
    *[functools.partial(fr.AbsoluteStop, 2e-4, 0.05, bound=bound)
      for bound in ("target", "target-betting", "target-odds", "betting")],
], ids=[*OF_POPULATIONS, "AbsoluteStop", *[f"AbsoluteStop {bound}" for bound in (
    "target-betting", "target-odds", "betting")]])
@pytest.mark.parametrize("portion", [1, 60, 400])
def test_a_population_read_to_its_end_after_a_miss_gives_its_mean(make, portion):
    # The rows are not in random order: the second half is all ones, and intervals miss the mean before the end.
    z = np.repeat([0.5, 1.0], 200)
    rule = make(n_rows=400)
    missed = False
    for first in range(0, 400, portion):
        assert rule.update_many(z[first:first + portion]) == min(portion, 400 - first)
        if rule.interval[0] > rule.interval[1]:
            missed = True
            assert rule.stopped_by == "inconsistent"
            assert "are the rewards independent" in str(rule.result())
        assert rule.done == (rule.n_samples == 400)
    assert missed or portion > 1
    assert rule.interval == (0.75, 0.75)
    assert (rule.estimate, rule.stopped_by, rule.stopped) == (0.75, "inconsistent", False)
    assert "an earlier interval missed" in str(rule.result())
    again = pickle.loads(pickle.dumps(rule))
    assert (again.interval, again.stopped_by) == ((0.75, 0.75), "inconsistent")


@pytest.mark.parametrize("support", [(0.0, 1.0), (-1.0, 1.0), (1e6, 1e6 + 1.0)])
def test_an_exact_tie_is_on_neither_side(support, seed):
    low, high = support
    rng = np.random.default_rng(seed)
    for k in range(200):
        n = int(rng.choice([4, 60, 1000]))
        steps = rng.integers(0, 10, n // 2)
        threshold = low + (high - low) * 0.4
        x = threshold + (high - low) * 0.04 * np.r_[steps, -steps]
        x = rng.permutation(x)
        test = fr.SignStop(threshold, 1e-6, support, n_rows=n)
        test.update_many(x)
        assert (test.stopped, test.stopped_by, test.n_samples) == (False, "max_samples", n), k
        assert test.interval == pytest.approx((threshold, threshold))
        assert "the mean is the threshold" in str(test.result())
    x[0] += 1e-6 * (high - low)                 # no tie: the last row tells
    test = fr.SignStop(threshold, 1e-6, support, n_rows=n)
    test.update_many(x)
    assert test.stopped and test.estimate == 1.0


# Promises

@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("bound", BOUNDS)
@few_or_many("most", 100, 300)
def test_intervals_hold_the_mean_at_all_times(bound, law, most, seed):
    few = {"betting": 40, "universal": 60, "empirical-bernstein-mixture": 60}
    trials, n = (few[bound], 600) if bound in few else (most, 1500)
    trials, delta, missed = max(trials, most // 3), 0.1, 0
    for child in np.random.SeedSequence([seed, 1]).spawn(trials):
        sequence = fr.ConfidenceSequence(bound, delta=delta)
        sequence.update_many(LAWS[law](np.random.default_rng(child), n))
        low, high = sequence.interval
        missed += sequence.stopped_by == "inconsistent" or not low - 1e-9 <= MEANS[law] <= high + 1e-9
    assert_rate_at_most(missed, trials, delta)


@pytest.mark.parametrize("law", [law for law in LAWS if law not in ("bernoulli 0.01", "constant 0")])
@pytest.mark.parametrize("name", RULES)
@few_or_many("most", 100, 300)
def test_estimates_are_as_accurate_as_promised(name, law, most, seed):
    trials, delta, missed = 60 if "Bet" in name else most, 0.1, 0
    for child in np.random.SeedSequence([seed, 2]).spawn(trials):
        rule = RULES[name](epsilon=0.25, delta=delta)
        rule.update_many(LAWS[law](np.random.default_rng(child), 20_000))
        assert rule.stopped
        missed += abs(rule.estimate - MEANS[law]) > 0.25 * MEANS[law]
    assert_rate_at_most(missed, trials, delta)


def test_sign_tests_are_right(seed):
    trials, delta, missed = 400, 0.1, 0
    for child in np.random.SeedSequence([seed, 3]).spawn(trials):
        test = fr.SignStop(0.0, delta, support=(-0.4, 0.6))
        test.update_many(np.random.default_rng(child).uniform(-0.35, 0.55, 20_000))
        assert test.stopped
        missed += test.estimate != 1.0
    assert_rate_at_most(missed, trials, delta)


# One stream, however it is cut, moved or stored

def makers():
    for bound in BOUNDS:
        yield f"ConfidenceSequence {bound}", lambda bound=bound, **given: fr.ConfidenceSequence(bound, **given)
    yield from RULES.items()
    for bound in ("target", "target-odds", "betting"):
        yield f"AbsoluteStop {bound}", lambda bound=bound, **given: fr.AbsoluteStop(
            **{"epsilon": 0.02, "bound": bound, **given})
    yield "universal population", lambda **given: fr.ConfidenceSequence("universal", n_rows=4000, **given)
    yield "SignStop", lambda **given: fr.SignStop(**{"threshold": 0.41, "support": (0, 1), **given})


MAKERS = dict(makers())


def state(stream):
    return stream.interval, stream.n_samples, stream.stopped_by, repr(stream.estimate)


@pytest.mark.parametrize("name", MAKERS)
def test_any_portions_give_the_same_bits(name):
    rng = np.random.default_rng(8)
    x = LAWS["two points"](rng, 1500)
    whole, one, parts = MAKERS[name](), MAKERS[name](), MAKERS[name]()
    used = whole.update_many(x)
    for value in x[:used]:
        done = one.update(value)
    assert done == whole.done
    start = 0
    while start < used:
        start += parts.update_many(x[start:start + int(rng.integers(1, 300))])
    assert state(whole) == state(one) == state(parts)
    assert pickle.dumps(one._own_state()) == pickle.dumps(parts._own_state())


@pytest.mark.parametrize("name", MAKERS)
def test_19_saved_streams_go_on_as_if_nothing_had_been(name):
    x = LAWS["two points"](np.random.default_rng(4), 800)
    for cut in (0, 1, 7, 300):
        stream = MAKERS[name]()
        stream.update_many(x[:cut])
        for again in (pickle.loads(pickle.dumps(stream)), copy.copy(stream), copy.deepcopy(stream)):
            assert state(again) == state(stream)
            again.update_many(x[again.n_samples:])
            whole = MAKERS[name]()
            whole.update_many(x)
            assert state(again) == state(whole)


def test_a_damaged_pickle_is_refused():
    stream = fr.BettingStop()
    stream.update(0.5)
    function, (version, cls, arguments, shared, own) = stream.__reduce__()[:2]
    with pytest.raises(ValueError, match="version 2"):
        function(2, cls, arguments, shared, own)
    with pytest.raises(ValueError, match="damaged"):
        function(version, cls, arguments, shared, (own[0], own[1][:-1]))
    with pytest.raises(ValueError, match="damaged"):
        function(version, cls, arguments, shared, (own[0] + 1, own[1]))
    with pytest.raises(ValueError, match="damaged"):
        function(version, cls, arguments, shared, (own[0], b"\xff" * len(own[1])))


@pytest.mark.parametrize("support", [(0, 10), (-5, 5), (1e6, 1e6 + 1), (-1e-6, 1e-6)])
@pytest.mark.parametrize("bound", BOUNDS)
def test_intervals_move_with_the_rewards(bound, support):
    low, high = support
    z = np.random.default_rng(6).beta(2, 2, 500)
    plain, moved = fr.ConfidenceSequence(bound), fr.ConfidenceSequence(bound, support=support)
    plain.update_many(z)
    moved.update_many(low + (high - low) * z)
    back = [(end - low) / (high - low) for end in moved.interval]
    assert back == pytest.approx(plain.interval, abs=1e-8)
    absolute = fr.AbsoluteStop(0.1, 0.05), fr.AbsoluteStop(0.1 * (high - low), 0.05, support)
    absolute[0].update_many(z)
    absolute[1].update_many(low + (high - low) * z)
    assert absolute[0].n_samples == absolute[1].n_samples
    assert (absolute[1].estimate - low) / (high - low) == pytest.approx(absolute[0].estimate, abs=1e-8)


@pytest.mark.parametrize("bound", BOUNDS)
def test_constant_rewards(bound):
    for value in (0.0, 0.3, 1.0):
        sequence = fr.ConfidenceSequence(bound)
        sequence.update_many(np.full(100_000 if bound != "betting" else 20_000, value))
        low, high = sequence.interval
        assert low <= value <= high
        assert high - low < (0.02 if bound == "hoeffding" else 0.004)


@pytest.mark.parametrize("name", RULES)
def test_a_smaller_delta_never_stops_earlier(name):
    for law in ("uniform", "bernoulli 0.5", "constant 0.3"):
        x = LAWS[law](np.random.default_rng(9), 4000)
        used = [RULES[name](epsilon=0.2, delta=delta).update_many(x) for delta in (0.3, 0.1, 0.01, 1e-4)]
        assert used == sorted(used)
        assert used[0] < used[-1]


@pytest.mark.parametrize("name", MAKERS)
def test_arrays_of_every_kind(name):
    x = (np.random.default_rng(3).random(300) < 0.5).astype(float)
    expected = MAKERS[name]()
    expected.update_many(x)
    spread = np.zeros(900)
    spread[::3] = x
    spread.flags.writeable = False
    for kind in (x.astype(np.float32), x.astype(bool), x.astype(np.uint8), x.astype(">f8"), x.tolist(), spread[::3],
                 x[::-1].copy()[::-1]):
        stream = MAKERS[name]()
        stream.update_many(kind)
        assert state(stream) == state(expected)
    assert MAKERS[name]().update_many([]) == 0


# What goes wrong

@pytest.mark.parametrize("name", MAKERS)
def test_bad_rewards_change_nothing(name):
    stream = MAKERS[name]()
    stream.update_many([0.2, 0.9, 0.2])
    before = pickle.dumps(stream)
    for bad in (math.nan, math.inf, -0.1, 1.1):
        with pytest.raises(ValueError, match="support"):
            stream.update(bad)
        with pytest.raises(ValueError, match=r"xs\[250\]"):
            MAKERS[name](delta=1e-9).update_many([0.4, 0.42] * 125 + [bad] + [0.5] * 50)
        with pytest.raises(ValueError, match=r"xs\[1\]"):
            stream.update_many([0.5, bad])
        assert pickle.dumps(stream) == before
    with pytest.raises(TypeError):
        stream.update("0.5")
    with pytest.raises(ValueError, match="shape"):
        stream.update_many([[0.5]])
    assert pickle.dumps(stream) == before
    clipped = MAKERS[name](outside="clip")
    clipped.update_many([0.2, 1.5, -3.0])
    assert clipped.n_clipped == 2


def test_rewards_between_the_ends_are_refused_by_a_count_of_ones():
    made = [fr.ConfidenceSequence("beta-binomial", support=(-1, 1)),
            fr.AbsoluteStop(0.01, support=(-1, 1), bound="beta-binomial")]
    for stream in made:
        stream.update_many([1.0, -1.0, 1.0 + 1e-13])
        before = pickle.dumps(stream)
        with pytest.raises(ValueError, match=r"xs\[150\] is 0\.5, between the ends of support=\(-1\.0, 1\.0\); "):
            stream.update_many([1.0] * 150 + [0.5, 1.0])
        with pytest.raises(ValueError, match=r"the reward is 0\.0, between"):
            stream.update(0)
        with pytest.raises(ValueError, match=r"xs\[0\] is nan"):
            stream.update_many([math.nan, 0.5])
        assert pickle.dumps(stream) == before
    clipped = fr.ConfidenceSequence("beta-binomial", support=(-1, 1), outside="clip")
    clipped.update_many([7.0, -1.0, -9.0])
    assert (clipped.n_samples, clipped.n_clipped, clipped.estimate) == (3, 2, pytest.approx(-1 / 3))
    with pytest.raises(ValueError, match=r"xs\[1\]"):
        clipped.update_many([3.0, 0.0])
    assert (clipped.n_samples, clipped.n_clipped) == (3, 2)


def test_rounding_at_the_ends_of_the_support_is_forgiven():
    sequence = fr.ConfidenceSequence("plug-in", support=(0, 3))
    sequence.update_many([3.0 + 1e-12, -1e-12])
    assert sequence.n_samples == 2


@pytest.mark.parametrize(("given", "match"), [
    ({"delta": 0}, "delta"), ({"delta": 1}, "delta"), ({"delta": math.nan}, "delta"), ({"delta": -0.1}, "delta"),
    ({"support": (1, 0)}, "support"), ({"support": (0, math.inf)}, "support"), ({"support": 1}, "support"),
    ({"max_samples": 0}, "max_samples"), ({"outside": "ignore"}, "outside"),
])
@pytest.mark.parametrize("name", MAKERS)
def test_bad_parameters(name, given, match):
    with pytest.raises(ValueError, match=match):
        MAKERS[name](**given)


@pytest.mark.parametrize(("make", "match"), [
    (lambda: fr.ConfidenceSequence("bernstein"), "bound"),
    (lambda: fr.ConfidenceSequence("hoeffding", n_rows=10), "without replacement"),
    (lambda: fr.ConfidenceSequence("plug-in", n_rows=0), "n_rows"),
    (lambda: fr.ConfidenceSequence("plug-in", cap=1.0), "cap"),
    (lambda: fr.ConfidenceSequence(tight_at=0), "tight_at"),
    (lambda: fr.ConfidenceSequence("betting", delta=1e-300), "1e-200"),
    (lambda: fr.TargetEBStop(epsilon=0), "epsilon"),
    (lambda: fr.TargetEBStop(epsilon=1), "epsilon"),
    (lambda: fr.AbsoluteStop(epsilon=math.inf), "epsilon"),
    (lambda: fr.AbsoluteStop(0.1, bound="target-bet"), "bound"),
    (lambda: fr.AbsoluteStop(0.1, bound="hoeffding", n_rows=10), "n_rows needs a bound among 'target', "),
    (lambda: fr.AbsoluteStop(0.1, cap=1.0), "cap"),
    (lambda: fr.TargetEBStop(floor=-1), "floor"),
    (lambda: fr.SignStop(1.0), "threshold"),
    (lambda: fr.SignStop(math.nan), "threshold"),
])
def test_parameters_that_do_not_go(make, match):
    with pytest.raises(ValueError, match=match):
        make()


@pytest.mark.parametrize("name", RULES)
def test_a_mean_of_zero_is_said_not_guessed(name):
    x = np.tile([-0.5, 0.5], 2000)
    rule = RULES[name](epsilon=0.1, delta=0.05, support=(-0.5, 0.5), max_samples=3000)
    assert rule.update_many(x) == 3000
    assert rule.stopped_by == "max_samples"
    assert not rule.stopped
    assert rule.interval[0] < 0 < rule.interval[1]
    assert "zero" in str(rule.result())
    near = RULES[name](epsilon=0.1, delta=0.05, support=(-0.5, 0.5), floor=0.3)
    assert near.update_many(x) < 4000
    assert near.stopped
    assert near.estimate == 0.0


@pytest.mark.parametrize("bound", BOUNDS)
def test_rewards_whose_mean_moves_are_called_inconsistent(bound):
    x = np.repeat([0.0, 1.0], 5000)
    sequence = fr.ConfidenceSequence(bound)
    used = sequence.update_many(x)
    assert sequence.stopped_by == "inconsistent"
    assert 5000 < used < 10_000
    assert not sequence.stopped
    assert "independent" in str(sequence.result())


def test_the_first_reward_can_stop_nothing_but_what_is_certain():
    assert not fr.TargetEBStop(epsilon=0.9, delta=0.5).update(0.5)
    assert fr.AbsoluteStop(epsilon=0.5, delta=0.5).update(0.1)


def test_a_rule_that_is_over_takes_no_more():
    rule = fr.TargetEBStop(epsilon=0.5, delta=0.1)
    rule.update_many(np.full(1000, 0.5))
    before = state(rule)
    assert rule.update_many(np.full(10, 0.5)) == 0
    assert rule.update(0.1)
    assert state(rule) == before


# Merging

@pytest.mark.parametrize("bound", BOUNDS)
def test_merged_sequences_are_narrower_and_hold_the_mean(bound, seed):
    missed, delta, trials = 0, 0.1, 40 if bound == "betting" else 200
    for child in np.random.SeedSequence([seed, 4]).spawn(trials):
        z = np.random.default_rng(child).beta(1, 3, 900)
        parts = [fr.ConfidenceSequence(bound, delta=delta) for _ in range(3)]
        for part, xs in zip(parts, np.split(z, 3), strict=True):
            part.update_many(xs)
        if any(part.stopped_by for part in parts):          # a miss of a part, which another test counts
            continue
        others = [pickle.dumps(part) for part in parts[1:]]
        alone = parts[0].half_width
        for other in parts[1:]:
            parts[0].merge(other)
        assert [pickle.dumps(part) for part in parts[1:]] == others
        assert parts[0].n_samples == 900
        assert parts[0].estimate == pytest.approx(z.mean(), abs=1e-12)
        if parts[0].stopped_by == "inconsistent":
            missed += 1
            continue
        if bound == "universal":        # which may have come closest in the middle of the first part
            assert parts[0].half_width <= alone
        else:
            assert parts[0].half_width < alone
        missed += not parts[0].interval[0] <= 0.25 <= parts[0].interval[1]
    assert_rate_at_most(missed, trials, delta)


@pytest.mark.parametrize("bound", ["hoeffding", "universal", "beta-binomial"])
def test_merging_equals_one_stream_whose_guesses_start_afresh(bound):
    z = np.random.default_rng(0).random(300)
    if bound == "beta-binomial":
        z = z.round()
    one, two = fr.ConfidenceSequence(bound), fr.ConfidenceSequence(bound)
    one.update_many(z[:100])
    two.update_many(z[100:])
    one.merge(two)
    whole = fr.ConfidenceSequence(bound)
    whole.update_many(z)
    if bound in TWINS or bound == "beta-binomial":
        low, high = (TWINS | {"beta-binomial": twin.beta_binomial})[bound](z, 0.05)[-1]
        assert one.interval[0] >= low - 1e-12 and one.interval[1] <= high + 1e-12
    assert one.interval[0] <= whole.interval[0] + 1e-12     # the interval at the end is the same, those between are not
    assert one.interval[1] >= whole.interval[1] - 1e-12
    one.update_many(z)
    assert one.n_samples == 600


def test_merging_what_does_not_fit():
    one = fr.ConfidenceSequence("plug-in")
    one.update(0.5)
    before = pickle.dumps(one)
    for other, error, match in [
        (fr.ConfidenceSequence("stitched"), ValueError, "bound"),
        (fr.ConfidenceSequence("plug-in", delta=0.1), ValueError, "delta"),
        (fr.ConfidenceSequence("plug-in", support=(0, 2)), ValueError, "support"),
        (one, ValueError, "itself"),
        (fr.TargetEBStop(), TypeError, "ConfidenceSequence"),
    ]:
        with pytest.raises(error, match=match):
            one.merge(other)
    population = fr.ConfidenceSequence("plug-in", n_rows=10)
    with pytest.raises(ValueError, match="without replacement"):
        population.merge(fr.ConfidenceSequence("plug-in", n_rows=10))
    assert pickle.dumps(one) == before


# Long streams

def test_a_sequence_after_2_to_the_40_rewards():
    """By doubling: a copy of a stream merged into it forty times."""
    for bound in ("plug-in", "stitched", "hoeffding", "empirical-bernstein-mixture", "universal"):
        sequence = fr.ConfidenceSequence(bound)
        sequence.update_many(np.tile([0.2, 0.4], 512))
        while sequence.n_samples < 2**40:
            sequence.merge(copy.copy(sequence))
        low, high = sequence.interval
        assert sequence.n_samples == 2**40
        assert low < 0.3 < high
        assert 0 < high - low < (0.02 if bound == "plug-in" else 1e-4)     # whose bets stay those of 1024 rewards
        assert sequence.estimate == pytest.approx(0.3, abs=1e-12)
        sequence.update_many(np.tile([0.2, 0.4], 100))
        assert sequence.stopped_by == ""


# Samples beside the rule that the default one replaces

def ebgstop_star(x, epsilon, delta, beta=1.1, p=1.1):
    """Samples that EBGStop takes with the parameters its authors prefer, over arrays."""
    t = np.arange(1, x.size + 1)
    ends = np.floor(beta ** np.arange(math.ceil(math.log(x.size) / math.log(beta)) + 2))
    k = np.maximum(np.searchsorted(ends, t), 1)
    level = ends[k] / ends[k - 1] * np.log(3 * k**p * p / (delta * (p - 1)))
    mean = np.cumsum(x) / t
    half = np.sqrt(2 * np.maximum(np.cumsum(x * x) / t - mean**2, 0) * level / t) + 3 * level / t
    half[0] = np.inf
    low = np.maximum.accumulate(np.maximum(np.abs(mean) - half, 0))
    stops = (1 + epsilon) * low >= (1 - epsilon) * np.minimum.accumulate(np.abs(mean) + half)
    assert stops.any()
    return int(stops.argmax()) + 1


def uniforms(low, high, n, size):
    return lambda rng: low + (high - low) * rng.random((size, n)).mean(axis=1)


SETTINGS = {
    **{f"mean of {n} uniforms": uniforms(0, 1, n, 4000 if n < 50 else 1200) for n in (1, 5, 10, 50, 100)},
    **{f"uniforms about {mean}": uniforms(mean - 0.1, mean + 0.1, 10, int(700 / mean))
       for mean in (0.9, 0.7, 0.5, 0.3)},
    "uniforms about 0.1": uniforms(0, 0.2, 10, 6000),
    **{f"bernoulli {p}": lambda rng, p=p: (rng.random(int(5000 / p) + 2000) < p).astype(float)
       for p in (0.99, 0.9, 0.5, 0.1, 0.05)},
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_default_rule_takes_a_sixth_of_the_samples_of_ebgstop(setting, seed):
    rng = np.random.default_rng([seed, 6])
    streams = [SETTINGS[setting](rng) for _ in range(20 if "bernoulli" in setting else 5)]
    before = np.array([ebgstop_star(x, 0.1, 0.1) for x in streams])
    ours = np.array([fr.TargetEBStop(0.1, 0.1).update_many(x) for x in streams])
    error = math.hypot(before.std() / before.mean(), ours.std() / ours.mean()) / math.sqrt(ours.size)
    assert before.mean() / ours.mean() > 6.0 * (1.0 - 3.0 * error)
