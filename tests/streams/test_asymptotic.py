"""Means of unknown support: asymptotic intervals, what they promise and what they say of themselves."""

import copy
import json
import math
import pickle

import numpy as np
import pytest

import fastrace as fr
from fastrace._math import _half_widths
from fastrace.streams._sequences import Sequence, differences
from guarantee import assert_rate_at_most, few_or_many
from reference import sequences as twin

LIGHT = {       # draw and mean
    "normal": (lambda rng, n: rng.standard_normal(n), 0.0),
    "uniform": (lambda rng, n: rng.random(n), 0.5),
    "exponential": (lambda rng, n: rng.exponential(size=n), 1.0),
    "gamma 4, such as timings": (lambda rng, n: rng.gamma(4.0, size=n), 4.0),
    "Student's t, 5 degrees": (lambda rng, n: rng.standard_t(5, n), 0.0),
    "Bernoulli 0.2": (lambda rng, n: (rng.random(n) < 0.2).astype(float), 0.2),
}


@pytest.mark.parametrize("law", [*LIGHT, "rare"])
def test_intervals_equal_the_twin(law):
    rare = np.where(np.arange(60) % 20 == 2, -np.arange(60.0), 0.0)
    x = rare if law == "rare" else LIGHT[law][0](np.random.default_rng(3), 60)
    sequence, ends = fr.ConfidenceSequence(support=None, delta=0.1, first_look=4, tight_at=30.0), []
    for value in x.tolist():
        sequence.update(value)
        ends.append(sequence.interval)
    assert np.allclose(ends, twin.asymptotic(x.tolist(), 0.1, 4, 30.0), rtol=1e-6, atol=1e-7)


def missed_by_peeking(draw, mean, n, seed, trials):
    """How many sequences of n rewards miss the mean at any look, 3 % of the rewards apart."""
    missed = 0
    for child in np.random.SeedSequence(seed).spawn(trials):
        x, sequence, start, out = draw(np.random.default_rng(child), n), fr.ConfidenceSequence(support=None), 0, False
        while start < n:
            end = max(200, int(1.03 * start) + 1)
            sequence.update_many(x[start:end])
            low, high = sequence.interval
            out = out or not low <= mean <= high
            start = end
        missed += out
    return missed


@few_or_many(("trials", "n"), (150, 3000), (2000, 20_000))
@pytest.mark.parametrize("law", LIGHT)
def test_peeking_at_light_tails_misses_at_most_as_often_as_said(law, trials, n, seed):
    assert_rate_at_most(missed_by_peeking(*LIGHT[law], n, [seed, 1], trials), trials, 1.2 * 0.05)


def buyers(chance, size):
    """Amounts of buyers, lognormal, and 0 for those who do not buy."""
    return lambda rng, n: (rng.random(n) < chance) * rng.lognormal(sigma=size, size=n), chance * math.exp(size**2 / 2)


HEAVY = {
    "2 % buyers": buyers(0.02, 1.0),
    "0.5 % buyers": buyers(0.005, 1.0),
    "2 % buyers of alike amounts, lost": (lambda rng, n: -buyers(0.02, 0.5)[0](rng, n), -buyers(0.02, 0.5)[1]),
}


@few_or_many(("trials", "n"), (200, 2000), (2000, 20_000))
@pytest.mark.parametrize("law", HEAVY)
def test_peeking_at_rare_amounts_misses_at_most_as_often_as_said(law, trials, n, seed):
    """By half-widths alike on both sides, 15 to 45 of 100 streams miss."""
    assert_rate_at_most(missed_by_peeking(*HEAVY[law], n, [seed, 5], trials), trials, 1.2 * 0.05)


@pytest.mark.parametrize(("law", "wider"), [("normal", 1.01), ("uniform", 1.01), ("exponential", 1.03)])
def test_light_tails_cost_little_width(law, wider):
    x, sequence = LIGHT[law][0](np.random.default_rng(13), 1000), fr.ConfidenceSequence(support=None)
    sequence.update_many(x)
    spread = _half_widths.t_mixture_spread(sequence.arguments["tight_at"], -math.log(0.05))
    half = _half_widths.t_mixture_half_width(x.var(ddof=1) / 1000, 1000.0, 999.0, spread, -math.log(0.05))
    assert half <= sequence.half_width * (1 + 1e-12) <= wider * half


@few_or_many("trials", 300, 4000)
def test_normal_rewards_are_held_from_the_second_on(trials, seed):
    missed = 0
    for child in np.random.SeedSequence([seed, 2]).spawn(trials):
        x, sequence, out = np.random.default_rng(child).normal(5.0, 3.0, 60), fr.ConfidenceSequence(
            support=None, delta=0.1, first_look=2), False
        for value in x.tolist():
            sequence.update(value)
            low, high = sequence.interval
            out = out or not low <= 5.0 <= high
        missed += out
    assert_rate_at_most(missed, trials, 0.1)


def test_for_many_rewards_the_half_width_is_that_of_the_theorem():
    x = np.random.default_rng(5).standard_normal(200_000)
    sequence = fr.ConfidenceSequence(support=None, delta=0.05, tight_at=1000.0)
    sequence.update_many(x)
    rho = (-2 * math.log(0.05) + math.log(1 - 2 * math.log(0.05))) / 1000.0
    t = x.size
    half = x.std() * math.sqrt((t * rho + 1) / (t * t * rho) * math.log((t * rho + 1) / 0.05**2))
    assert sequence.half_width == pytest.approx(half, rel=1e-4)


@pytest.mark.parametrize("rate", [0.0, 0.005, 0.02])
def test_rare_events_are_warned_of(rate):
    x = (np.random.default_rng(1).random(300) < rate).astype(float)
    sequence = fr.ConfidenceSequence(support=None)
    sequence.update_many(x)
    assert len(sequence.result().warnings) == 1
    assert ("no interval is given" in sequence.result().warnings[0]) == (x.sum() == 0)
    assert math.isinf(sequence.half_width) == (x.sum() == 0)


def test_most_light_tails_are_not_warned_of():
    rng = np.random.default_rng(2)
    warned = 0
    for draw, _ in LIGHT.values():
        for _ in range(20):
            sequence = fr.ConfidenceSequence(support=None)
            sequence.update_many(draw(rng, 200))
            warned += bool(sequence.result().warnings)
    assert warned < 0.15 * 20 * len(LIGHT)


def test_every_result_says_that_it_is_asymptotic():
    x = np.random.default_rng(6).gamma(4.0, size=5000)
    sequence = fr.ConfidenceSequence(support=None)
    sequence.update_many(x[:100])
    assert sequence.interval == (-math.inf, math.inf) and sequence.support is None and sequence.bound == "asymptotic"
    sequence.update_many(x[100:])
    for result in (sequence.result(), fr.estimate_mean(x, 0.2, support=None, accuracy="absolute", rng=1)):
        assert result.kind == "asymptotic" and "200 rewards" in result.note and "asymptotic" in str(result)
        assert json.loads(json.dumps(result.to_dict()))["kind"] == "asymptotic"
    assert fr.ConfidenceSequence().result().kind == "exact"


def test_an_absolute_accuracy_is_kept():
    rng, far = np.random.default_rng(7), 0
    for _ in range(100):
        result = fr.estimate_mean(lambda k: rng.exponential(size=k), 0.1, 0.1, None, accuracy="absolute", batch=50)
        assert result.stopped and 200 <= result.n_samples < 2000
        far += abs(result.estimate - 1.0) > 0.1
    assert_rate_at_most(far, 100, 0.12)


def test_a_column_that_is_read_whole_is_exact():
    x = np.random.default_rng(8).exponential(size=500)
    result = fr.estimate_mean(x, 1e-3, support=None, accuracy="absolute", rng=1)
    assert result.stopped_by == "exact" and result.estimate == pytest.approx(x.mean()) and not result.warnings


MAKERS = [
    lambda: fr.ConfidenceSequence(support=None, first_look=30),
    lambda: fr.AbsoluteStop(0.05, support=None, first_look=30),
]


@pytest.mark.parametrize("make", MAKERS)
def test_any_portions_pickles_and_copies_give_the_same_bits(make):
    rng = np.random.default_rng(8)
    x = rng.random(900)
    whole, single, parts = make(), make(), make()
    used = whole.update_many(x)
    assert [single.update(value) for value in x[:used].tolist()][-1] == whole.done
    start = 0
    while start < used:
        start += parts.update_many(x[start:start + int(rng.integers(1, 200))])
        parts = pickle.loads(pickle.dumps(copy.copy(parts)))
    assert whole.interval == single.interval == parts.interval and whole.n_samples == parts.n_samples == used
    assert whole.estimate == parts.estimate and whole.stopped_by == parts.stopped_by


def test_merged_workers_equal_one_stream():
    x = np.random.default_rng(9).standard_normal(1000)
    whole, first, second = (fr.ConfidenceSequence(support=None) for _ in range(3))
    whole.update_many(x)
    first.update_many(x[:150])
    second.update_many(x[150:])
    first.merge(second)
    assert np.allclose(first.interval, whole.interval, rtol=1e-12)
    with pytest.raises(ValueError, match="first_look"):
        first.merge(fr.ConfidenceSequence(support=None, first_look=50, tight_at=first.arguments["tight_at"]))


@pytest.mark.parametrize(("given", "match"), [
    ({"bound": "betting"}, "only bound is 'asymptotic'"), ({"n_rows": 10}, "has no n_rows"),
    ({"outside": "clip"}, "nothing is outside"), ({"first_look": 1}, "needs two rewards"),
    ({"support": (0, 1), "first_look": 20}, "leave it out"),
    ({"support": (0, 1), "bound": "asymptotic"}, "support=None"),
])
def test_what_does_not_go_with_an_unknown_support_is_refused(given, match):
    with pytest.raises(ValueError, match=match):
        fr.ConfidenceSequence(**{"support": None, **given})


def test_a_relative_accuracy_needs_a_support():
    with pytest.raises(ValueError, match="accuracy='absolute'"):
        fr.estimate_mean([1.0, 2.0], support=None)
    with pytest.raises(ValueError, match="a proxy needs"):
        fr.estimate_mean([1.0, 2.0], support=None, accuracy="absolute", proxy=[1.0, 2.0])


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan, 1e200])
def test_bad_rewards_change_nothing(bad):
    sequence = fr.ConfidenceSequence(support=None)
    sequence.update_many([1.0, 2.0])
    with pytest.raises(ValueError, match=r"xs\[1\].*finite number"):
        sequence.update_many([1.0, bad])
    with pytest.raises(ValueError, match="finite number"):
        sequence.update(bad)
    assert sequence.n_samples == 2 and sequence.estimate == 1.5


@pytest.mark.parametrize("far", [1e9, 1e12, -1e15])
def test_rewards_far_from_0_keep_their_width_and_their_mean(far):
    x = far + np.round(8 * np.random.default_rng(12).normal(size=5000)) / 8       # which floats hold exactly
    near, there, first, second = (fr.ConfidenceSequence(support=None) for _ in range(4))
    near.update_many(x - far)
    there.update_many(x)
    first.update_many(x[:700])
    second.update_many(x[700:])
    first.merge(second)
    unit = 2 * np.spacing(abs(far))
    for sequence in (there, first, pickle.loads(pickle.dumps(there))):
        low, high = (end - far for end in sequence.interval)
        assert near.interval[0] - unit <= low <= near.interval[0] + 1e-9
        assert near.interval[1] - 1e-9 <= high <= near.interval[1] + unit
        assert abs(sequence.estimate - far - near.estimate) <= unit and sequence.half_width > 0


# Two exact streams, one against the other

def gathered(z, delta=0.05):
    stream = Sequence()
    stream._open({}, "universal", running=False, support=(0.0, 1.0), delta=delta)
    stream.update_many(z)
    return stream


@pytest.mark.parametrize("sizes", [(1, 1), (12, 30), (200, 3), (40, 40)])
@pytest.mark.parametrize("law", ["beta", "ones"])
def test_intervals_of_differences_equal_the_twin(sizes, law):
    rng = np.random.default_rng(10)
    a, b = (rng.beta(10, 30, n) if law == "beta" else (rng.random(n) < 0.3 + 0.3 * k).astype(float)
            for k, n in enumerate(sizes))
    streams, found = [gathered(a), gathered(b)], np.empty((1, 4))
    low, high = np.array([stream.interval for stream in streams]).T.copy()
    differences(streams, np.array([[0, 1]], np.intp), low, high, math.log(40.0), True, found)
    assert np.allclose(found[0], twin.portfolio_difference(a, b, math.log(40.0)), rtol=1e-6, atol=1e-6)


def test_gathered_rewards_give_the_interval_as_of_now():
    x = np.random.default_rng(11).random(500)
    stream = gathered(x)
    again = gathered(x[:77])
    for value in x[77:90].tolist():
        again.update(value)
    again.update_many(x[90:])
    assert again.interval == stream.interval and again.n_samples == 500
    low, high = fr.ConfidenceSequence.interval.__get__(stream)
    running = fr.ConfidenceSequence()
    running.update_many(x)
    assert low <= running.interval[0] + 1e-12 and high >= running.interval[1] - 1e-12
