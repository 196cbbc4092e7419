"""LUCB and its kin under faults: sources that fail, Ctrl-C, damaged saved rules, bad arguments."""

import copy
import math
import pickle
import signal

import numpy as np
import pytest

import ctrl_c
import fastrace as fr
from fastrace.pulls import BernoulliPulls
from selections import assert_same


class Stop(Exception):
    pass


@pytest.mark.parametrize("make", [
    lambda: fr.LUCB(4, 2, 0.02), lambda: fr.KLLUCB(4, 2, 0.05), lambda: fr.SAR(4, 2, 900),
])
@pytest.mark.parametrize("bad", [math.nan, math.inf, 1.5, Stop])
def test_a_source_that_fails_in_mid_run(make, bad, seed):
    means = np.array([0.9, 0.7, 0.5, 0.3])
    source = BernoulliPulls(means, rng=seed)
    wanted = make().run(BernoulliPulls(means, rng=seed))
    calls = []

    def pull(arms, counts):
        calls.append(arms)
        rewards = source.read(arms, counts)
        if len(calls) != (2 if isinstance(rule, fr.SAR) else 30):
            return rewards
        kept.append(rewards.copy())
        if bad is Stop:
            raise Stop("one")
        rewards[-1] = bad
        return rewards

    kept = []
    rule = make()
    error, text = (Stop, "one") if bad is Stop else (ValueError, r"of arm \d")
    with pytest.raises(error, match=text) as raised:
        rule.run(pull)
    if bad is Stop:
        assert str(raised.value) == "one"
    else:
        assert f"of arm {calls[-1][-1]}" in str(raised.value)
    assert not rule.done

    def replay(arms, counts):       # what did not come, or was refused alone, then the rest
        if not kept:
            return source.read(arms, counts)
        return kept.pop() if bad is Stop else kept.pop()[-counts.sum():] if counts.sum() == 1 else None

    assert_same(rule.run(replay), wanted)


@pytest.mark.parametrize("cut", [0, 3, 8, 9, 500, 4000])
@pytest.mark.parametrize("make", [
    lambda: fr.LUCB(8, 3, 0.02), lambda: fr.LUCB(8, 3, 0.05, bound="lucb1"), lambda: fr.KLLUCB(8, 3, 0.05, rate="easy"),
    lambda: fr.SAR(8, 3, 7000),
])
def test_pickles_and_copies_continue_exactly(cut, make, seed):
    means = np.linspace(0.8, 0.3, 8)
    wanted = make().run(BernoulliPulls(means, rng=seed))
    rule, source = make(), BernoulliPulls(means, rng=seed)
    rule._core.run(source, cut)
    for again in (lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy):
        twin, its_source = again(rule), pickle.loads(pickle.dumps(source))
        assert_same(twin.result(), rule.result())
        assert_same(twin.run(its_source), wanted)
    assert_same(rule.run(source), wanted)
    assert_same(pickle.loads(pickle.dumps(rule)).result(), wanted)


def test_a_damaged_pickle_is_refused():
    rule = fr.LUCB(4, 2)
    rule.run(BernoulliPulls([0.1, 0.2, 0.3, 0.4], rng=1), 100)
    rebuild, (version, cls, known, state) = rule.__reduce__()
    for name, value in (("error", np.array([1.0])), ("error", -np.ones(4)), ("pulls", np.array([0, 1, 1, 1])),
                        ("level_round", 0), ("history", ([1], []))):
        with pytest.raises(ValueError, match="damaged"):
            rebuild(version, cls, known, {**state, name: value})
    state.pop("error")
    with pytest.raises(ValueError, match="damaged"):
        rebuild(version, cls, known, state)


@pytest.mark.resources
def test_interrupt_stops_the_loop_within_100_ms():
    rule, source = fr.LUCB(50, 10, 0.0, 1e-9), BernoulliPulls(np.full(50, 0.5), rng=2)
    assert ctrl_c.press(lambda: rule.run(source)) == 5
    assert rule.run(source, rule.n_pulls + 1000).stopped_by == "max_pulls"


@pytest.mark.resources
@pytest.mark.parametrize(("rule", "n"), [
    ("intervals", 10_000), ("pairs", 5_000), pytest.param("intervals", 100_000, marks=pytest.mark.long)])
def test_many_arms(rule, n):
    means = np.full(n, 0.2)
    means[[5, n - 777]] = 0.8
    rule = fr.LUCB(n, 2, 0.1, rule=rule)
    result = rule.run(BernoulliPulls(means, rng=1), 6 * n)
    assert result.n_read == 6 * n
    assert set(rule.run(BernoulliPulls(means, rng=2)).best) == {5, n - 777}
    assert rule.result().stopped_by in ("bound", "epsilon")


@pytest.mark.parametrize(("arguments", "text"), [
    ({"n_arms": 0, "n_best": 1}, "n_arms is 0"),
    ({"n_arms": 3, "n_best": 0}, "n_best is 0"),
    ({"n_arms": 3, "n_best": 4}, "n_best is 4 and there are 3 arms"),
    ({"n_arms": 3, "n_best": 1, "epsilon": -0.1}, "epsilon is -0.1"),
    ({"n_arms": 3, "n_best": 1, "epsilon": math.inf}, "epsilon is inf"),
    ({"n_arms": 3, "n_best": 1, "epsilon": math.nan}, "epsilon is nan"),
    ({"n_arms": 3, "n_best": 1, "delta": 0}, "delta is 0"),
    ({"n_arms": 3, "n_best": 1, "delta": 1.0}, "delta is 1"),
    ({"n_arms": 3, "n_best": 1, "support": (1, 1)}, "low < high"),
    ({"n_arms": 3, "n_best": 1, "support": (0, math.inf)}, "finite ends"),
    ({"n_arms": 3, "n_best": 1, "bound": "chernoff"}, "bound is 'chernoff'"),
    ({"n_arms": 3, "n_best": 1, "split": "half"}, "split is 'half'"),
    ({"n_arms": 3, "n_best": 1, "batch": 0}, "batch is 0"),
    ({"n_arms": 3, "n_best": 1, "batch": "many"}, "batch is 'many'"),
])
def test_bad_arguments_are_named(arguments, text):
    with pytest.raises(ValueError, match=text):
        fr.LUCB(**arguments)


def test_other_bad_calls():
    with pytest.raises(ValueError, match="rate is 'fast'"):
        fr.KLLUCB(3, 1, rate="fast")
    with pytest.raises(ValueError, match="budget is 3"):
        fr.SAR(3, 1, 3)
    with pytest.raises(ValueError, match="say how many pulls"):
        fr.select_best(BernoulliPulls([0.1, 0.2]), 2, method="sar")
    with pytest.raises(ValueError, match="finds one arm"):
        fr.select_best(BernoulliPulls([0.1, 0.2, 0.3]), 3, 2, 0.1, method="median-elimination")
    with pytest.raises(ValueError, match="method is 'ucb1'"):
        fr.select_best(BernoulliPulls([0.1, 0.2]), 2, method="ucb1")
    with pytest.raises(ValueError, match="have 3 arms"):
        fr.select_best(BernoulliPulls([0.1, 0.2, 0.3]), 2)

# Ctrl-C while a request or an answer is made, of so many arms that this takes long.


def interrupted(rule, source, limit, after=0.002):
    """Run to `limit`, with Ctrl-C again and again; how often it came."""
    times = 0
    before = signal.signal(signal.SIGPROF, signal.default_int_handler)
    try:
        while rule.n_pulls < limit and not rule.done:
            try:
                try:
                    signal.setitimer(signal.ITIMER_PROF, after)
                    rule.run(source, limit)
                finally:
                    signal.setitimer(signal.ITIMER_PROF, 0.0)
            except KeyboardInterrupt:
                times += 1
                after *= 1.3
    finally:
        signal.signal(signal.SIGPROF, before)
    return times


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that signals")
@pytest.mark.parametrize(("make", "n"), [
    (lambda n: fr.KLLUCB(n, 10, 0.1), 30_000), (lambda n: fr.KLLUCB(n, 10, 0.1, rate="easy"), 30_000),
    (lambda n: fr.LUCB(n, n // 2, 0.1, bound="lucb1"), 100_000),
    (lambda n: fr.Adapt(n, n // 2, 0.1, cutoff="optimal", batch=100, rng=1), 6000),
    (lambda n: fr.Adapt(n, n // 2, 0.1, rng=1), 60_000),
    (lambda n: fr.OCBA(n, n // 2, 3 * n, n0=2, batch=n // 4, draw="deficit"), 20_000),
])
@pytest.mark.resources
def test_a_request_that_is_cut_short_is_made_again(make, n):
    means = np.random.default_rng(1).random(n)
    limit = n * (1 if isinstance(make(20), fr.LUCB) else 2) + (n if isinstance(make(20), fr.OCBA) else 200)
    rule, source = make(n), BernoulliPulls(means, rng=2)
    wanted = make(n)
    wanted.run(BernoulliPulls(means, rng=2), limit)
    assert interrupted(rule, source, limit) > 0
    assert np.array_equal(rule._core.get_state()["pulls"], wanted._core.get_state()["pulls"])
    assert np.array_equal(rule._core.get_state()["mean"], wanted._core.get_state()["mean"])
    assert rule.done or rule.ask()[0].tolist() == wanted.ask()[0].tolist()


@pytest.mark.parametrize("rate", ["proved", "easy"])
@pytest.mark.resources
def test_interrupt_is_heard_among_a_hundred_thousand_arms(rate):
    n = 100_000
    rule, source = fr.KLLUCB(n, 10, 0.0, rate=rate), BernoulliPulls(np.full(n, 0.2), rng=1)
    rule.run(source, n)
    assert ctrl_c.press(lambda: rule.run(source), 3, 0.05) == 3
    assert ctrl_c.press(rule.result, 3, 0.008) > 0       # a quick machine may finish some of them first
    assert rule.run(source, rule.n_pulls + 2).stopped_by == "max_pulls"


@pytest.mark.resources
def test_interrupt_is_heard_while_the_error_bound_is_found():
    n = 50_000
    rule = fr.LUCB(n, 10, 0.0, rule="intervals")
    rule.run(BernoulliPulls(np.random.default_rng(1).random(n), rng=1), 2 * n)
    assert ctrl_c.press(lambda: rule._core.error_bound(math.log(1e-30)), 2, 0.02) == 2
    assert rule._core.get_state()["pulls"].sum() == 2 * n


def test_a_rule_saved_after_ctrl_c_came_while_it_planned_goes_on():
    rule, source = fr.LUCB(4, 2, 0.05, rule="intervals"), BernoulliPulls([0.1, 0.4, 0.6, 0.8], rng=1)
    rule.run(source, 60)
    wanted = copy.deepcopy(rule).run(copy.deepcopy(source))
    rebuild, (version, cls, known, state) = rule.__reduce__()
    none = {"asked": state["asked"][:0], "owed": state["owed"][:0]}
    rounds = state["rounds"] - int(state["owed"][0])
    due = rebuild(version, cls, known, {**state, **none, "due": True, "rounds": rounds})
    assert due.ask()[0].tolist() == rule.ask()[0].tolist()
    assert np.ravel(due.run(source).best).tolist() == np.ravel(wanted.best).tolist()
    for change in ({"due": True}, {"due": 1}, none):
        with pytest.raises(ValueError, match="damaged"):
            rebuild(version, cls, known, {**state, **change})
