"""What may happen to the stream of a stopping rule: constants, means of zero, signs, great length."""

import functools
import math

import numpy as np
import pytest

import fastrace as fr
from reference import stopping as twin
from stopping_rules import RULES, one_by_one, outcome


def test_the_first_reward_and_none():
    for make in RULES.values():
        rule = make(0.1, 0.05)
        assert math.isnan(rule.estimate) and rule.interval == (0.0, 1.0) and rule.stopped_by == ""
        assert rule.update_many([]) == 0
        assert rule.update(0.5) is False
        assert (rule.n_samples, rule.estimate) == (1, 0.5)
        assert "still running after 1 sample" in str(rule.result())


def test_constant_rewards(seed):
    for value in (0.3, 1.0, 1 / 3):
        for name, make in RULES.items():
            rule = make(0.1, 0.05)
            rule.update_many(np.full(60_000, value))
            assert rule.stopped, name
            assert abs(rule.estimate - value) <= 0.1 * value, name
            assert rule.interval[0] <= value <= rule.interval[1], name


def test_a_mean_of_zero_is_never_known_relatively(seed):
    x = np.random.default_rng(seed).uniform(-1, 1, 20_000)
    for make in (fr.NAS, fr.GeometricNAS, fr.EBStop, fr.EBGStop):
        rule = make(0.1, 0.05, (-1, 1), max_samples=15_000)
        assert rule.update_many(x) == 15_000
        assert rule.stopped_by == "max_samples" and not rule.stopped and rule.done
        assert rule.interval[0] < 0 < rule.interval[1]
        assert "zero" in str(rule.result()) and "no promise" in str(rule.result())
        assert rule.update(0.5) is True and rule.n_samples == 15_000        # takes no more
        assert rule.update_many(x) == 0
        floored = make(0.1, 0.05, (-1, 1), floor=0.2)
        floored.update_many(x)
        assert floored.stopped and floored.estimate == 0.0 and floored.interval[1] <= 0.2
        assert "floor" in str(floored.result())
    for make in (fr.SRA, fr.AA):
        rule = make(0.1, 0.05, max_samples=1000)
        assert rule.update_many(np.zeros(5000)) == 1000
        assert rule.stopped_by == "max_samples" and rule.interval == (0.0, 1.0)


def test_floor_equals_its_twin(seed):
    x = np.random.default_rng(seed).uniform(-1, 1, 20_000).tolist()
    rule = fr.EBStop(0.1, 0.05, (-1, 1), floor=0.1)
    rule.update_many(x)
    assert (rule.n_samples, 0.0) == twin.bernstein(x, 0.1, 0.05, 2.0, floor=0.1)[:2]


def test_an_empty_intersection_is_no_stop():
    x = np.r_[np.ones(3000), np.zeros(3000)]            # not one mean
    for make in (fr.EBStop, fr.EBGStop, functools.partial(fr.EBGStop, preset="plain")):
        rule, singly = make(1e-6, 0.05), make(1e-6, 0.05)
        used = rule.update_many(x)
        assert 3000 < used < 6000 and one_by_one(singly, x.tolist()) == used
        assert outcome(rule) == outcome(singly)
        assert rule.stopped_by == "inconsistent" and rule.done and not rule.stopped
        assert rule.update(0.5) is True and rule.n_samples == used
        assert "inconsistent" in str(rule.result())
    rule = fr.AbsoluteStop(1e-6, 0.05, bound="empirical-bernstein")
    rule.update_many(x)
    assert rule.stopped_by == "inconsistent"
    low, high = rule.interval
    assert low > high
    rule = fr.GeometricNAS(1e-3, 0.05)
    rule.update_many(np.r_[np.ones(30_000), np.zeros(30_000)])
    assert rule.stopped_by == "inconsistent"


def test_signed_rewards():
    x = -np.random.default_rng(3).random(20_000)
    for make in (fr.NAS, fr.GeometricNAS, fr.EBStop, fr.EBGStop):
        rule = make(0.1, 0.05, (-1, 0))
        rule.update_many(x)
        assert rule.stopped and abs(rule.estimate + 0.5) < 0.05
        assert rule.interval[0] < -0.5 < rule.interval[1] < 0
    for make in (fr.AA, fr.SRA):
        with pytest.raises(ValueError, match="never negative"):
            make(0.1, 0.05, (-1, 1))


def test_betas_close_to_one(seed):
    x = np.random.default_rng(seed).random(20_000)
    for beta in (1 + 2**-52, 1 + 1e-12, 1 + 1e-6, 1.0005, 50.0, 1e300):
        for make in (fr.EBGStop, fr.GeometricNAS):
            singly, many = make(0.3, 0.05, beta=beta), make(0.3, 0.05, beta=beta)
            many.update_many(x)
            one_by_one(singly, x.tolist())
            assert outcome(singly) == outcome(many)
            assert many.interval[0] <= 0.5 <= many.interval[1]


@pytest.mark.parametrize("repeats", [20, pytest.param(954, marks=pytest.mark.long)])
def test_a_long_stream_keeps_its_accuracy(repeats):
    """10^9 rewards in 954 portions: blocks are merged as pairs of doubles, so nothing is lost."""
    part = np.random.default_rng(1).random(1 << 20) * 1e-3 + 0.7
    rule = fr.EBGStop(1e-9, 0.05)
    constant = fr.EBGStop(1e-9, 0.05)
    tenth = np.full(part.size, 0.1)
    for _ in range(repeats):
        assert rule.update_many(part) == part.size
        assert constant.update_many(tenth) == part.size
    exact = math.fsum(part) / part.size
    variance = math.fsum((part - exact) ** 2) / part.size
    n, mean, low, m2, m2_low, *_ = rule._own_state()
    assert n == repeats * part.size
    assert mean + low == pytest.approx(exact, rel=2e-16)
    assert (m2 + m2_low) / n == pytest.approx(variance, rel=1e-13)
    assert constant.estimate == pytest.approx(0.1, rel=1e-15)
    assert constant._own_state()[3] == 0.0
    # the same by merging moments
    merged, one = fr.RunningMoments(), fr.RunningMoments()
    one.update_many(part)
    for _ in range(repeats):
        merged.merge(one)
    assert merged.mean == pytest.approx(mean + low, rel=1e-15)
    assert merged.variance(0) == pytest.approx((m2 + m2_low) / n, rel=1e-13)


def test_counts_of_2_to_the_40():
    rule = fr.EBGStop(1e-6, 0.05)
    rule.update_many(np.random.default_rng(1).random(512))
    function, (version, cls, arguments, shared, own) = rule.__reduce__()
    n = 1 << 40
    later = function(version, cls, arguments, (n, *shared[1:]), (n, 0.5, 0.0, n / 12, 0.0, *own[5:6], 0.5, n / 12,
                                                                 *own[8:]))
    assert later.update(0.4) is False and later.update_many(np.full(2000, 0.6)) == 2000
    assert later.n_samples == n + 2001
    low, high = later.interval
    assert high - low < 2e-5 and low < 0.5 < high
