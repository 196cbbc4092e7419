"""Stopping rules: known answers, equal to their plain twins reward by reward, the same in any portions."""

import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastrace as fr
from reference import stopping as twin
from stopping_rules import ALL, LAWS, RULES, TWINS, one_by_one, outcome

T = np.arange(1, 45_001)
G = np.modf(T * 0.6180339887498949)[0]
STREAMS = {
    "constant": np.full(T.size, 0.5),
    "g": G,
    "g^4": G**4,
    "g<0.3": (G < 0.3).astype(float),
    "0.4+0.2g": 0.4 + 0.2 * G,
    "signed": 0.4 * G - 0.3,
}
# Rewards used and estimate at epsilon 0.1, delta 0.05, from a slow program that stood outside of this repository. A
# rule without such figures needs none: its twin is compared with it reward by reward below.
KNOWN = {
    "NAS, as printed": [(4831, 0.50000000), (4833, 0.49992403), (36294, 0.20000024), (14941, 0.29997992),
                        (4832, 0.49996584), (22282, -0.10000130)],
    "NAS": [(5017, 0.50000000), (5019, 0.50001987), (37438, 0.20000273), (15446, 0.30001295), (5017, 0.49999572),
            (23015, -0.10000338)],
    "geometric NAS": [(2216, 0.50000000), (2216, 0.49997256), (16834, 0.19998226), (7481, 0.29995990),
                      (2216, 0.49999451), (11222, -0.10001062)],
    "EBStop, telescoping": [(1085, 0.49500260), (3341, 0.49503716), (14373, 0.19798976), (15179, 0.29698115),
                            (1373, 0.49509118), (10783, -0.09898428)],
    "EBStop": [(834, 0.49500320), (2482, 0.49482476), (10288, 0.19797462), (10858, 0.29692292), (1047, 0.49507217),
               (7773, -0.09897757)],
    "EBGStop": [(885, 0.49500276), (2498, 0.49495844), (9637, 0.19799869), (10142, 0.29688421), (1102, 0.49502272),
                (7363, -0.09897539)],
    "EBGStop*": [(738, 0.49500536), (2044, 0.49505969), (7807, 0.19804008), (8215, 0.29686945), (913, 0.49492113),
                 (5992, -0.09900821)],
    "SRA": [(2334, 0.49993498), (2336, 0.49950695), (5836, 0.19993972), (3890, 0.29996099), (2334, 0.49993498)],
    "AA": [(3407, 0.50000000), (4794, 0.49986985), (18360, 0.19996182), (21019, 0.29998237), (3407, 0.50001786)],
}

# Numbers


@pytest.mark.parametrize("name", KNOWN)
def test_known_answers(name):
    for (title, x), (used, estimate) in zip(STREAMS.items(), KNOWN[name], strict=False):
        rule = RULES[name](0.1, 0.05, (-0.3, 0.1) if title == "signed" else (0, 1))
        assert rule.update_many(x) == used == rule.n_samples, title
        assert abs(rule.estimate - estimate) < 1e-8, title
        assert rule.stopped and rule.done and rule.stopped_by in ("epsilon", "bound")


@pytest.mark.parametrize("name", RULES)
def test_equals_its_plain_twin(name, seed):
    rng = np.random.default_rng(seed)
    for law, (draw, support, _) in LAWS.items():
        for epsilon, delta in ((0.3, 0.1), (0.5, 1e-4)):
            x = draw(rng, 20_000).tolist()
            used, estimate, bracket = TWINS[name](x, epsilon, delta, *support)
            rule = RULES[name](epsilon, delta, support)
            assert rule.update_many(x) == used, law
            assert rule.stopped == (estimate is not None)
            if estimate is not None:
                assert rule.estimate == pytest.approx(estimate, rel=1e-11), law
            elif name.startswith("EB"):
                assert rule.interval[1] == pytest.approx(min(bracket[1], support[1]), rel=1e-11)


def test_settings_reach_the_rule(seed):
    x = np.random.default_rng(seed).random(30_000).tolist()
    for own, twins in (
        ({"beta": 1.3}, {"beta": 1.3}),
        ({"beta": 1.001, "power": 2.0}, {"beta": 1.001, "power": 2.0}),
        ({"spending": "telescoping"}, {"beta": 1.1, "spending": "telescoping"}),
    ):
        rule = fr.EBGStop(0.1, 0.05, **own)
        rule.update_many(x)
        assert rule.n_samples == twin.bernstein(x, 0.1, 0.05, **twins)[0]
    rule = fr.EBStop(0.1, 0.05, power=1.5)
    rule.update_many(x)
    assert rule.n_samples == twin.bernstein(x, 0.1, 0.05, power=1.5)[0]
    rule = fr.GeometricNAS(0.1, 0.05, beta=1.05)
    rule.update_many(x)
    assert rule.n_samples == twin.geometric_nas(x, 0.1, 0.05, beta=1.05)[0]


def test_a_start_from_the_support_is_free(seed):
    x = (np.random.default_rng(seed).random(20_000) < 0.99).astype(float).tolist()
    slow, fast = fr.EBGStop(0.1, 0.05), fr.EBGStop(0.1, 0.05, use_support=True)
    slow.update_many(x), fast.update_many(x)
    assert fast.n_samples == twin.bernstein(x, 0.1, 0.05, beta=1.1, start=(0.0, 1.0))[0]
    assert fast.n_samples < 0.8 * slow.n_samples
    near = fr.EBStop(0.1, 0.05, (9.9, 10.1), use_support=True)
    assert near.update_many([10.0] * 5) == 2           # the support alone is accurate enough


def test_absolute_and_sign_equal_their_twins(seed):
    rng = np.random.default_rng(seed)
    for draw, support, _ in LAWS.values():
        x = draw(rng, 6000).tolist()
        span = support[1] - support[0]
        for epsilon in (0.2 * span, 0.05 * span):
            rule = fr.AbsoluteStop(epsilon, 0.1, support, bound="empirical-bernstein")
            cap = math.ceil(span**2 * math.log(4 / 0.1) / (2 * epsilon**2))
            used, estimate, bracket = twin.bernstein_signed(
                x, 0.1, support, lambda a, b, e=epsilon: (a + b) / 2 if b - a <= 2 * e else None, cap)
            assert rule.update_many(x) == used <= cap
            assert rule.estimate == pytest.approx(estimate, rel=1e-11)
            assert rule.interval == pytest.approx(bracket, rel=1e-11)
        threshold = support[0] + 0.6 * span
        rule = fr.SignStop(threshold, 0.1, support, bound="empirical-bernstein")
        used, side, _ = twin.bernstein_signed(
            x, 0.1, support, lambda a, b, c=threshold: 1.0 if a > c else -1.0 if b < c else None)
        assert rule.update_many(x) == used
        assert (rule.estimate == side) if side else not rule.stopped


def test_a_fixed_size_is_that_of_hoeffding():
    rule = fr.AbsoluteStop(0.05, 0.1, bound="fixed-size")
    assert rule.update_many(np.full(1000, 0.25)) == 600
    assert rule.estimate == pytest.approx(0.25, abs=1e-12)
    rule = fr.AbsoluteStop(0.05, 0.1, (-2, 2), bound="fixed-size")
    assert rule.update_many(np.full(599 * 16, 0.25)) == 599 * 16 - (599 * 16 - rule.n_samples)
    assert not rule.stopped


def test_affine_maps_change_nothing_but_the_answer(seed):
    x = np.random.default_rng(seed).random(20_000)
    plain = fr.AbsoluteStop(0.02, 0.05, (0, 1), bound="empirical-bernstein")
    plain.update_many(x)
    for low, high in ((0, 10), (-5, 5), (1e6, 1e6 + 1), (-1e-6, 1e-6)):
        span = high - low
        mapped = fr.AbsoluteStop(0.02 * span, 0.05, (low, high), bound="empirical-bernstein")
        mapped.update_many(low + span * x)
        assert abs(mapped.n_samples - plain.n_samples) <= (2 if high == 1e6 + 1 else 0)
        assert mapped.estimate == pytest.approx(low + span * plain.estimate, rel=1e-9, abs=1e-9 * span)
    for rule in (fr.EBGStop, fr.EBStop, fr.NAS, fr.GeometricNAS, fr.SRA, fr.AA):     # a relative accuracy scales
        plain, mapped = rule(0.2, 0.05, (0, 1)), rule(0.2, 0.05, (0, 8))
        assert mapped.update_many(8 * x) == plain.update_many(x)
        assert mapped.estimate == pytest.approx(8 * plain.estimate, rel=1e-12)

# Portions


@pytest.mark.parametrize("name", ALL)
def test_any_portions_give_the_same_bits(name, seed):
    rng = np.random.default_rng(seed)
    x = rng.random(6000)
    singly, whole, portions, narrow = (ALL[name]() for _ in range(4))
    used = one_by_one(singly, x.tolist())
    assert whole.update_many(x) == used
    start = 0
    while start < x.size and not portions.done:
        count = int(rng.integers(0, 700))
        if rng.random() < 0.2 and start < x.size:
            portions.update(x[start])
            start += 1
        else:
            start += portions.update_many(x[start : start + count])
    assert outcome(singly) == outcome(whole) == outcome(portions)
    assert singly.n_clipped == whole.n_clipped == portions.n_clipped
    narrow.update_many(x.astype(np.float32))
    exact = ALL[name]()
    exact.update_many(x.astype(np.float32).astype(float))
    assert outcome(narrow) == outcome(exact)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), max_size=1500), st.integers(1, 700), st.booleans())
def test_blocks_never_hide_a_stop(values, portion, negative):
    x = np.array(values) * (-1 if negative else 1)
    for make in (fr.EBGStop, fr.EBStop, functools.partial(fr.EBGStop, preset="plain"), fr.NAS, fr.GeometricNAS):
        singly, many = make(0.4, 0.3, (-1, 1)), make(0.4, 0.3, (-1, 1))
        one_by_one(singly, x.tolist())
        for start in range(0, x.size, portion):
            many.update_many(x[start : start + portion])
        assert outcome(singly) == outcome(many) or (x.size == 0 and many.n_samples == 0)


def test_smaller_delta_never_stops_earlier(seed):
    x = np.random.default_rng(seed).random(20_000)
    for make in RULES.values():
        used = [make(0.1, delta).update_many(x) for delta in (0.3, 0.1, 0.01, 1e-6, 1e-300)]
        assert used == sorted(used)
