"""Confidence sequences in use: one stream, however it is cut, moved or stored, and what goes wrong."""

import copy
import math
import pickle

import numpy as np
import pytest

import fastrace as fr
from sequence_laws import BOUNDS, LAWS, MAKERS, RULES, state

# One stream, however it is cut, moved or stored


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
