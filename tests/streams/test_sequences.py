"""Confidence sequences and the rules that stop by bets: known answers, and equal to their twins sample for sample."""

import functools
import math

import numpy as np
import pytest

import fastrace as fr
from fastrace.streams._sequences import Sequence
from reference import sequences as twin
from sequence_laws import BOUNDS, LAWS, TWINS, streams

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
    expected = twin.running(TWINS[bound](z, 0.1), (low, high))
    if bound == "universal":            # ends of earlier looks by tangents, and those as of now
        looks = zip(twin.watched(z, 0.1), 1 - twin.watched(1 - z, 0.1), strict=True)
        expected = [(low + (high - low) * max(now[0], end[0]), low + (high - low) * min(now[1], end[1]))
                    for now, end in zip(twin.universal(z, 0.1), looks, strict=True)]
    for x, (lower, upper) in zip(low + (high - low) * z, expected, strict=True):
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


@pytest.mark.parametrize("law", [*LAWS, "narrow"])
def test_looks_at_a_portfolio_keep_what_its_bounds_would_be(law):
    """Looks go from one refuted candidate to the next, and stay short of the bounds as of now, which are found from
    nothing, by 1 in 500 of the half-width at most; they never claim more."""
    rng, support = np.random.default_rng(12), (-3.0, 5.0)
    x = support[0] + 8.0 * (rng.beta(100, 300, 2500) if law == "narrow" else LAWS[law](rng, 2500))
    sequence, anew, look = fr.ConfidenceSequence(support=support), Sequence(), 1
    anew._open({}, "universal", running=False, support=support, delta=0.05)
    low, high = support
    while look <= 2500:
        x_next = x[anew.n_samples:look]
        with pytest.raises(ValueError, match="outside"):        # what is tried and refused leaves nothing behind
            sequence.update_many([*support * 10, 7.0])
        sequence.update_many(x_next)
        anew.update_many(x_next)
        now = anew.interval
        low, high = max(low, now[0]), min(high, now[1])
        short = np.array([low - sequence.interval[0], sequence.interval[1] - high])
        assert (short >= -1e-9 * (high - low) - 1e-12).all()
        assert (short <= 0.002 * abs(np.array([low, high]) - anew.estimate) + 1e-12).all()
        look = max(look + 1, int(1.005 * look))
    whole = fr.ConfidenceSequence(support=support)              # looks that are sure to find nothing are left out
    whole.update_many(x[:sequence.n_samples])
    assert whole.interval == sequence.interval


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


def test_a_portfolio_saved_with_other_bettors_is_refused_in_words():
    sequence = fr.ConfidenceSequence()
    sequence.update_many(LAWS["uniform"](np.random.default_rng(7), 60))
    rebuild, (*most, (kernel, data)) = sequence.__reduce__()
    assert rebuild(*most, (kernel, data)).interval == sequence.interval
    more = 4 * (48 - len(twin.BETTORS)) * 8                     # products and their powers, up and down
    with pytest.raises(ValueError, match="48 bettors on either side; there are 24 now"):
        rebuild(*most, (kernel, data + bytes(more)))
    with pytest.raises(ValueError, match="damaged"):
        rebuild(*most, (kernel, data + bytes(more - 8)))


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
