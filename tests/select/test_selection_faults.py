"""Selections under faults: bad rewards, sources that raise, Ctrl-C, damaged saved rules, bad arguments."""

import math

import numpy as np
import pytest

import ctrl_c
import fastrace as fr
from fastrace.pulls import BernoulliPulls, RecordedPulls, UniformPulls, as_pulls
from selections import MEANS, RULES, assert_same, every_rule


@every_rule
def test_a_bad_call_changes_nothing_and_names_the_arm(make, seed):
    wanted = make(6, 2).run(BernoulliPulls(MEANS, rng=seed))
    rule, source, source_left = make(6, 2), BernoulliPulls(MEANS, rng=seed), 40
    while not rule.done:
        arms, counts = rule.ask()
        rewards = source.read(arms, counts)
        if source_left:
            source_left -= 1
            at = int(np.random.default_rng(source_left).integers(len(rewards)))
            arm = np.repeat(arms, counts)[at]
            for bad, text in ((np.nan, f"of arm {arm} is nan"), (1.5, f"of arm {arm} is 1.5, outside support"),
                              (-np.inf, f"of arm {arm} is -inf, outside")):
                spoiled = rewards.copy()
                spoiled[at] = bad
                with pytest.raises(ValueError, match=text):
                    rule.tell(spoiled)
            for wrong in (rewards[:-1], np.append(rewards, 0.5), rewards.reshape(-1, 1), rewards.astype(complex), "x"):
                with pytest.raises(ValueError, match="rewards"):
                    rule.tell(wrong)
            assert [part.tolist() for part in rule.ask()] == [arms.tolist(), counts.tolist()]
        rule.tell(rewards)
    assert_same(rule.result(), wanted)
    with pytest.raises(ValueError, match="over"):
        rule.ask()
    with pytest.raises(ValueError, match="over"):
        rule.tell([0.5])


@pytest.mark.parametrize("name", ["adapt", "adapt in blocks", "direct", "race", "ocba"])
def test_a_source_that_raises_or_returns_nan_mid_run(name, seed):
    class Own(Exception):
        pass

    wanted = RULES[name](6, 2).run(BernoulliPulls(MEANS, rng=seed))
    for kind in ("raise", "nan"):
        source = BernoulliPulls(MEANS, rng=seed)
        rule, calls = RULES[name](6, 2), 0
        error = Own("mine")
        kept = []

        def pull(arms, counts, source=source, kept=kept, kind=kind, error=error):
            nonlocal calls
            calls += 1
            rewards = kept.pop() if kept else source.read(arms, counts)
            if calls in (1, 2, 5):
                # so that the second attempt sees the same rewards: all, or only the one that was refused
                kept.append(rewards if kind == "raise" else rewards[:1])
                if kind == "raise":
                    raise error
                spoiled = rewards.copy()
                spoiled[0] = np.nan
                return spoiled
            return rewards

        for _ in range(3):
            try:
                rule.run(pull)
            except Own as caught:
                assert caught is error
            except ValueError as caught:
                assert kind == "nan" and "of arm" in str(caught) and "nan" in str(caught)
        assert rule.result().n_read == rule.n_pulls
        assert_same(rule.run(pull), wanted)


@pytest.mark.resources
def test_interrupt_leaves_the_rule_usable():
    source = BernoulliPulls([0.5, 0.5, 0.5], rng=1)
    rule = fr.Adapt(3, 1, 0.0, 1e-9, rng=1)
    for _ in range(3):
        assert ctrl_c.press(lambda: rule.run(source), 1, 0.05) == 1
        before = rule.n_pulls
        assert rule.result().n_read == before
        assert rule.run(source, max_pulls=before + 1000).n_read == before + 1000
    assert rule._core.get_state()["rng"].bit_generator.lock.acquire(blocking=False)


def test_a_rule_is_not_entered_twice():
    rule = fr.Adapt(3, 1, 0.1)

    def pull(arms, counts):
        rule.ask()

    with pytest.raises(RuntimeError, match="in use"):
        rule.run(pull)
    assert rule.n_pulls == 0


def test_a_damaged_saved_rule_is_refused():
    rule = fr.Adapt(3, 1, 0.1, rng=1)
    rule.run(BernoulliPulls([0.1, 0.5, 0.6]), max_pulls=50)
    rebuild, (version, cls, known, state) = rule.__reduce__()
    with pytest.raises(ValueError, match="version 1"):
        rebuild(1, cls, known, state)
    for name, value in (("pulls", np.array([1, 2])), ("asked", np.array([7])), ("owed", np.array([0])),
                        ("status", 99), ("pulls", np.array([0, -1, 3])), ("rng", None),
                        ("pulls", np.array([2**64 - 1, 2**63, 1], dtype=np.uint64))):
        with pytest.raises(ValueError, match="damaged"):
            rebuild(version, cls, known, state | {name: value})
    del state["error"]
    with pytest.raises(ValueError, match="damaged"):
        rebuild(version, cls, known, state)


@every_rule
def test_damaged_arguments_of_a_saved_rule_are_refused(make, seed):
    rule = make(6, 2)
    rule.run(BernoulliPulls(MEANS, rng=seed), max_pulls=50)
    rebuild, (version, cls, known, state) = rule.__reduce__()
    low, high = known["given"]["support"]
    damaged = [{"n_arms": 7}, {"n_arms": 2**62}, {"n_arms": -6}, {"n_arms": None}, {"n_best": 0}, {"n_best": 7},
               {"support": (low, low)}, {"support": (low[:3], high)}, {"support": (low, high * np.nan)}, {"no": 1}]
    for name, bad in (("delta", 0.0), ("delta", math.nan), ("epsilon", -1.0), ("epsilon", math.inf), ("batch", 0),
                      ("budget", 5), ("horizon", 0), ("const", 1.0), ("n0", 0), ("policy", "best"), ("bound", "kl")):
        if name in known["given"]:
            damaged.append({name: bad})
    for change in damaged:
        with pytest.raises(ValueError, match="damaged"):
            rebuild(version, cls, known | {"given": known["given"] | change}, state)
    for change in ({"maker": dict}, {"maker": None}, {"maker": fr.SAR}, {"given": None}, {"added": None}):
        with pytest.raises(ValueError, match="damaged"):
            rebuild(version, cls, known | change, state)
    with pytest.raises(ValueError, match="damaged"):
        rebuild(version, dict, known, state)
    for change in ({"rng": 1}, {"rng": None}, {"pulls": None}):
        with pytest.raises(ValueError, match="damaged"):
            rebuild(version, cls, known, state | change)


@pytest.mark.parametrize("method", ["auto", "kl-lucb", "sar", "median-elimination"])
def test_select_best_says_by_its_own_name_that_an_option_is_unknown(method):
    with pytest.raises(TypeError, match=r"^select_best: unexpected keyword argument 'nonsense'"):
        fr.select_best(np.full((20, 3), 0.5), method=method, max_pulls=100, nonsense=1)


@pytest.mark.parametrize("change", [
    {"n_arms": 0}, {"n_best": 0}, {"n_best": 4}, {"epsilon": -0.1}, {"epsilon": np.inf}, {"epsilon": np.nan},
    {"delta": 0.0}, {"delta": 1.0}, {"delta": np.nan}, {"support": (1, 0)}, {"support": (0, 0)},
    {"support": (0, np.inf)},
    {"support": (0, [1, 1])}, {"support": 3}, {"batch": 0}, {"batch": 1.5}, {"n0": 0}, {"policy": "best"},
    {"cutoff": "c"}, {"rng": "x"}, {"epsilon": 0.0, "policy": "uniform"}, {"epsilon": 1e-10},
])
def test_bad_parameters_are_refused(change):
    with pytest.raises((ValueError, TypeError), match=r"is |has "):
        fr.Adapt(**({"n_arms": 3, "n_best": 1, "epsilon": 0.1} | change))


@pytest.mark.parametrize("call", [
    lambda: fr.Direct(3, 1, 0.0), lambda: fr.Halving(3, 1, 0.0), lambda: fr.Incremental(3, 1, 0.0),
    lambda: fr.MedianElimination(3, 0.1, const=1.9), lambda: fr.Direct(3, 1, 1e-12), lambda: fr.OCBA(3, 1, 5),
    lambda: fr.OCBA(3, 1, 100, n0=1), lambda: fr.OCBA(3, 1, 100, n0=40), lambda: fr.OCBA(3, 1, 100, draw="all"),
    lambda: fr.SubsetRace(3, 1, 0), lambda: fr.SubsetRace(3, 1, 5, bound="kl"), lambda: BernoulliPulls([0.5, 1.1]),
    lambda: UniformPulls([0.0], [-1.0]), lambda: RecordedPulls([1.0]), lambda: as_pulls(np.zeros((3, 2)), 3),
    lambda: fr.Direct(3, 1, 0.1).run(np.zeros((3, 3)), max_pulls=-1),
])
def test_bad_parameters_of_the_other_rules(call):
    with pytest.raises((ValueError, TypeError)):
        call()


@pytest.mark.parametrize("make", [fr.Adapt, fr.OCBA])
def test_a_decision_of_too_many_pulls_is_refused(make):
    with pytest.raises(ValueError, match="at most 16777216 pulls"):
        make(3, 1, 1000, batch=2**24 + 1)


@pytest.mark.parametrize("make", [fr.Direct, fr.Halving, fr.Incremental])
def test_accuracies_that_cannot_be_reached_are_refused(make):
    for epsilon in (1e-300, 5e-324, 1e-160):
        with pytest.raises(ValueError, match=r"at most 2\*\*62"):
            make(3, 1, epsilon)


@pytest.mark.parametrize("call", [
    lambda n: fr.Adapt(4, 2, 0.2, n0=n), lambda n: fr.OCBA(4, 2, n), lambda n: fr.SubsetRace(4, 2, n),
    lambda n: fr.LUCB(4, 2, batch=n)])
def test_numbers_beyond_64_bits_are_refused_by_name(call):
    for n in (2**63, 2**70):
        with pytest.raises(ValueError, match=f"is {n}"):
            call(n)
