"""Confidence sequences over rewards drawn without replacement: equal to the twin, exact at the end."""

import functools
import pickle

import numpy as np
import pytest

import fastrace as fr
from guarantee import assert_rate_at_most
from reference import sequences as twin
from sequence_laws import LAWS, OF_POPULATIONS, RULES, TWINS


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


@pytest.mark.parametrize("bound", OF_POPULATIONS)
def test_rewards_beyond_the_population_are_refused_and_change_nothing(bound):
    z = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0])
    sequence = fr.ConfidenceSequence(bound, n_rows=5)
    with pytest.raises(ValueError, match=r"xs\[5\] is one too many: n_rows is 5"):
        sequence.update_many(z)
    assert sequence.n_samples == 0 and not sequence.done
    assert sequence.update_many(z[:5]) == 5 and sequence.interval == (0.6, 0.6)
    for call in (lambda: sequence.update(1.0), lambda: sequence.update_many(z[5:])):
        with pytest.raises(ValueError, match="one too many: n_rows is 5, and so many rewards have come"):
            call()
    assert sequence.update_many([]) == 0 and sequence.interval == (0.6, 0.6) and sequence.n_samples == 5
