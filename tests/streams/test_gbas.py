"""The Gamma Bernoulli approximation scheme."""

import copy
import math
import pickle

import numpy as np
import pytest
from scipy import stats

import fastrace as fr
from fastrace.streams.gbas import successes
from guarantee import assert_rate_at_most
from reference import sequences as twin


@pytest.mark.parametrize(("epsilon", "delta", "known"), [
    (0.1, 0.1, 270), (0.1, 0.05, 385), (0.1, 0.01, 672), (0.05, 0.05, 1537), (0.05, 0.01, 2662), (0.01, 0.05, 38415),
    (0.01, 0.01, 66357),
])
def test_successes_to_wait_for(epsilon, delta, known):
    assert successes(epsilon, delta) == known
    if known < 1000:
        assert twin.gbas_successes(epsilon, delta) == known


def test_it_stops_at_the_wanted_success_and_draws_one_gamma_variate():
    x = np.zeros(3000)
    x[9::10] = 1.0
    rule = fr.GBAS(0.2, 0.1, rng=7)
    used = rule.update_many(x)
    assert (rule.n_successes, used) == (rule.wanted, 10 * rule.wanted)
    gamma = np.random.default_rng(7).standard_gamma(used)
    assert rule.estimate == pytest.approx((rule.wanted - 1) / gamma, rel=1e-12)
    assert rule.interval == pytest.approx((rule.estimate / 1.2, rule.estimate / 0.8), rel=1e-12)
    assert rule.stopped_by == "epsilon"


@pytest.mark.parametrize("support", [(0, 1), (0, 4), (1, 4)])
@pytest.mark.parametrize("law", ["bernoulli", "beta"])
def test_estimates_are_as_accurate_as_promised(law, support, seed):
    missed, trials, delta, epsilon = 0, 300, 0.1, 0.2
    low, high = support
    for child in np.random.SeedSequence([seed, 5]).spawn(trials):
        rng = np.random.default_rng(child)
        z = (rng.random(4000) < 0.1).astype(float) if law == "bernoulli" else rng.beta(1, 4, 4000)
        mean = low + (high - low) * (0.1 if law == "bernoulli" else 0.2)
        rule = fr.GBAS(epsilon, delta, support, rng=rng)
        rule.update_many(low + (high - low) * z)
        assert rule.stopped
        missed += abs(rule.estimate - mean) > epsilon * mean
    assert_rate_at_most(missed, trials, delta)


def test_the_error_has_the_law_it_says(seed):
    rng = np.random.default_rng(seed)
    ratios = []
    for _ in range(400):
        rule = fr.GBAS(0.3, 0.1, rng=rng)
        rule.update_many(rng.random(2000) < 0.2)
        ratios.append((rule.wanted - 1) / (rule.estimate / 0.2))
    assert stats.kstest(ratios, stats.gamma(rule.wanted).cdf).pvalue > 1e-6


def test_18_19_any_portions_and_saved_streams_give_the_same_bits():
    x = np.random.default_rng(1).beta(1, 3, 4000)
    whole, one, saved = (fr.GBAS(0.3, 0.1, rng=3) for _ in range(3))
    used = whole.update_many(x)
    for value in x[:used]:
        one.update(value)
    saved.update_many(x[:100])
    for again in (pickle.loads(pickle.dumps(saved)), copy.copy(saved), copy.deepcopy(saved), saved):
        again.update_many(x[100:])
        assert (again.n_samples, again.estimate, again.interval) == (used, whole.estimate, whole.interval)
    assert (one.n_samples, one.estimate, one.interval) == (used, whole.estimate, whole.interval)


def test_bad_rewards_change_nothing_not_even_the_generator():
    rule, twin_rule = fr.GBAS(0.3, 0.1, rng=3), fr.GBAS(0.3, 0.1, rng=3)
    for bad in (math.nan, -0.5, 1.5):
        with pytest.raises(ValueError, match=r"xs\[2\]"):
            rule.update_many([0.5, 0.5, bad])
        with pytest.raises(ValueError, match="support"):
            rule.update(bad)
    x = np.random.default_rng(1).random(4000)
    assert rule.update_many(x) == twin_rule.update_many(x)
    assert rule.estimate == twin_rule.estimate


def test_what_it_refuses_and_what_it_cannot_know():
    with pytest.raises(ValueError, match="signed"):
        fr.GBAS(support=(-1, 1))
    with pytest.raises(ValueError, match="2\\*\\*52"):
        fr.GBAS(epsilon=1e-9)
    with pytest.raises(ValueError, match="epsilon"):
        fr.GBAS(epsilon=1.5)
    rule = fr.GBAS(max_samples=100)
    assert rule.update_many(np.zeros(1000)) == 100
    assert (rule.stopped_by, rule.interval, rule.estimate) == ("max_samples", (0.0, 1.0), 0.0)
    function, args = fr.GBAS(rng=1).__reduce__()
    with pytest.raises(ValueError, match="damaged"):
        function(*args[:4], (10**9, 0.0, np.random.default_rng()))
