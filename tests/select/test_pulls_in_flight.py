"""Pulls in flight: rewards that are asked for ahead, and told in any order, decide as one pull at a time does."""

import asyncio
import contextlib
import itertools
import pickle
import re

import numpy as np
import pytest
from graders import all_at_once, pickled_at_times, same_answer

import fastrace as fr
from fastrace.pulls import RecordedPulls

MEANS = np.array([0.35, 0.45, 0.7, 0.4])
KINDS = {
    "pairs": {}, "intervals": {"bound": "eb-mix"}, "kl": {"bound": "kl"}, "batches": {"batch": 7},
    "symmetric": {"symmetric": True}, "sub-Gaussian": {"sub_gaussian": 0.5}, "asymptotic": {"support": None},
    "drop": {"missing": "drop"}, "worst": {"missing": "worst"}, "paired": {"paired": True},
    "paired, worst": {"paired": True, "missing": "worst"},
}


def table(seed, holes=False):
    rng = np.random.default_rng([seed, 11])
    easy = rng.random((20_000, 1)) < 0.3
    values = ((rng.random((20_000, 4)) < MEANS) | easy).astype(float)
    return np.where(rng.random(values.shape) < 0.1, np.nan, values) if holes else values


def lucb(kind, n_best=1):
    return fr.LUCB(4, n_best, 0.1, cost=[1.0, 2.0, 3.0, 4.0], **KINDS[kind])


def in_turn(rule, values):
    source = RecordedPulls(values, paired=rule._paired)
    while not rule.done:
        arms, counts = rule.ask()
        rule.tell(source.read(arms, counts))
    return rule.result()


@pytest.mark.parametrize(("kind", "n_best"), [*((kind, 1) for kind in KINDS), ("pairs", 2), ("paired", 2)])
def test_answers_in_any_order_give_the_rule_of_one_at_a_time(kind, n_best, seed):
    values = table(seed, "missing" in KINDS[kind])
    alone = in_turn(lucb(kind, n_best), values)
    for most in (1, 7, 64):
        rule, out, asked = all_at_once(lucb(kind, n_best), values, np.random.default_rng(seed), most)
        result = rule.result()
        same_answer(result, alone)
        assert len(set(asked)) == len(asked) == result.n_read + result.n_unused
        assert result.n_unused <= max(2 * most, result.n_read // 16) and (result.n_unused == 0 or most > 1) and (
            result.n_unused == 0 or "asked for ahead" in str(result))
        assert result.cost == np.bincount([arm for arm, _ in asked], minlength=4) @ [1.0, 2.0, 3.0, 4.0]
        arms, pulls = rule.pending
        assert sorted(zip(arms.tolist(), pulls.tolist(), strict=True)) == sorted(out)
        for arm, k in out:                  # late answers are taken, and change nothing
            rule.tell(values[k, arm], arm, k)
        assert rule.pending[0].size == 0 and rule.result() == result


@pytest.mark.parametrize("rule", [
    lambda: fr.Adapt(4, 1, 0.3, rng=1), lambda: fr.Direct(4, 1, 0.4), lambda: fr.Halving(4, 1, 0.4),
    lambda: fr.SubsetRace(4, 1, 100), lambda: fr.OCBA(4, 1, 400, rng=1), lambda: fr.KLLUCB(4, 1, 0.1),
    lambda: fr.SAR(4, 1, 400),
])
def test_other_rules_take_rewards_in_any_order_too(rule):
    same_answer(all_at_once(rule(), table(3), np.random.default_rng(1))[0].result(), in_turn(rule(), table(3)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_rule_in_flight_pickles_with_what_is_out_and_what_is_held_back(kind):
    values = table(4, "missing" in KINDS[kind])

    check = pickled_at_times(np.random.default_rng(3))
    rule, _, asked = all_at_once(lucb(kind), values, np.random.default_rng(0), check=check)
    plain, _, same = all_at_once(lucb(kind), values, np.random.default_rng(0))
    assert rule.result() == plain.result() and asked == same
    assert pickle.loads(pickle.dumps(rule)).result() == plain.result()


def test_pending_lists_what_to_send_again():
    rule = fr.LUCB(3, 1, batch=4)
    arms, pulls = rule.ask(2, pending=True)
    assert arms.tolist() == [0, 1] and pulls.tolist() == [0, 0]
    more = rule.ask(pending=True)
    assert more[0].tolist() == [2] and rule.ask(pending=True)[0].size == 0
    rule.tell(0.5, 1, 0)
    assert [part.tolist() for part in rule.pending] == [[0, 2], [0, 0]]
    rule.tell([0.5, 0.75], [2, 0], [0, 0])
    assert rule.n_pulls == 3 and rule.ask(pending=True)[0].size == 8
    ahead = 0
    for _ in range(10):             # one of the first 8 is slow: at most twice what is out runs ahead of it
        arms, pulls = rule.ask(9, pending=True) if ahead else (part[1:] for part in rule.pending)
        rule.tell(np.full(arms.size, 0.5), arms, pulls)
        ahead += arms.size
    assert ahead == 7 + 2 * (1 + 9) and rule.ask(9, pending=True)[0].size == 0 and rule.n_pulls == 3


def test_rounds_are_of_common_draws_that_no_other_request_has_a_part_in():
    values = table(5)
    rule, asked = fr.LUCB(4, 1, paired=True, batch=5), []
    while not rule.done:
        arms, pulls = rule.ask(100, pending=True)
        assert len({tuple(pulls[arms == arm]) for arm in set(arms.tolist())}) == 1
        assert not set(asked) & set(pulls.tolist())
        asked += sorted(set(pulls.tolist()))
        rule.tell(values[pulls, arms][::-1], arms[::-1], pulls[::-1])
    assert asked == sorted(asked) == list(range(len(asked))) and rule.result().best == 2


@pytest.mark.parametrize("bad", [np.nan, None, 1.5])
@pytest.mark.parametrize("paired", [False, True])
def test_a_bad_reward_is_refused_when_it_comes_not_when_its_turn_comes(bad, paired):
    rule = fr.LUCB(3, 1, names=["a", "b", "c"], paired=paired)
    rule.ask(3, pending=True)
    before = pickle.dumps(rule)
    with pytest.raises(ValueError, match=rf"arm 1 is 'b': reward 0 of arm 1 is {'nan' if bad is None else bad}"):
        rule.tell([0.5, bad], [0, 1], [0, 0])
    assert pickle.dumps(rule) == before
    rule.tell([0.5, 0.25], [0, 1], [0, 0])


def test_rewards_that_nobody_awaits_are_refused():
    rule = fr.LUCB(3, 1)
    with pytest.raises(ValueError, match="handed out"):
        rule.tell([0.5], [0], [3])
    rule.ask(10, pending=True)
    rule.tell(0.5, 0, 0)
    for arms, pulls in (([0], [0]), ([1], [99])):
        with pytest.raises(ValueError, match="not awaited"):
            rule.tell([0.5], arms, pulls)
    with pytest.raises(ValueError, match="twice"):
        rule.tell([0.5, 0.5], [1, 1], [0, 0])
    for call in (rule.ask, lambda: rule.run(table(0)[:, :3]), lambda: rule.tell(np.zeros(3))):
        with pytest.raises(ValueError, match="arms and pulls, and go on with ask"):
            call()
    with pytest.raises(ValueError, match="pending=True"):
        rule.ask(3)
    with pytest.raises(ValueError, match="indices from 0 to 2"):
        rule.tell(0.5, 3, 0)
    for rewards, arms, pulls in (([0.5], [1, 2], [0, 0]), ("x", 1, 0), (0.5, 1, None),
                                 (np.ma.masked_all(1), 1, 0)):
        with pytest.raises(ValueError, match=r"a real number, an arm and a pull|arms and pulls go together|has masked"):
            rule.tell(rewards, arms, pulls)


def test_a_rule_goes_on_in_turn_once_nothing_is_in_flight():
    values, alone = table(1), in_turn(lucb("pairs"), table(1))
    rule, source = lucb("pairs"), RecordedPulls(values)
    for k in range(60):
        arms, pulls = rule.ask(pending=k % 3 > 0)
        if k % 3:
            rule.tell(source.read(arms, np.ones(arms.size, np.int64)), arms, pulls)
        else:
            rule.tell(source.read(arms, pulls))
    same_answer(rule.run(source), alone)
    assert rule.result().n_unused == 0


def test_rewards_that_the_rule_refuses_are_out_again():
    rule = fr.LUCB(2, 1, missing="drop", batch=2000)
    for _ in range(2):
        arms, pulls = rule.ask(pending=True)
        rule.tell(np.full(arms.size, 0.5), arms, pulls)
    arms, pulls = rule.ask(pending=True)
    quiet = np.where(arms == 1, np.nan, 0.5)
    rule.tell(quiet[1:], arms[1:], pulls[1:])
    with pytest.raises(ValueError, match="the last 2000 pulls of arm 1 gave no reward"):
        rule.tell(quiet[0], arms[0], pulls[0])
    assert rule.n_pulls == 4002 and [part.tolist() for part in rule.pending] == [arms[:1].tolist(), pulls[:1].tolist()]


@pytest.mark.parametrize("damage", [
    {"taken": [0, 0, 0]}, {"next": [3, 3]}, {"here": [{}, {9: 0.5}, {}]}, {"here": [{}, {1: 7.0}, {}]},
    {"here": [{}, {1: 1}, {}]}, {"free": [[1], [], [4, 3]]}, {"free": [[], [2, 3], []]}, {"weight": [1.0, -1.0, 1.0]},
    {"paid": np.zeros(2, np.int64)}, {"used": np.full(3, 99)}, {"spent": 1}, {"next": None},
], ids=lambda damage: next(iter(damage)))
def test_a_damaged_flight_is_refused(damage):
    rule = fr.LUCB(3, 1)
    rule.tell([0.5] * 3, *rule.ask(pending=True))
    rule.ask(10, pending=True)
    rule.tell(0.5, *(part[:1] for part in rule.pending))
    make, (version, cls, known, state) = rule.__reduce__()
    assert make(version, cls, known, state).pending[0].size == 9
    with pytest.raises(ValueError, match="damaged"):
        make(version, cls, known | {"flight": known["flight"] | damage}, state)


def test_a_draw_is_used_once_though_arms_were_asked_for_alone_and_in_turn():
    """A flight begun anew does not know which draws the last one used, but how many there can be."""
    values = table(5)
    rule, used = fr.LUCB(4, 1, 0.01, paired=True), set()
    for t in range(40):
        arms, pulls = rule.ask(100, pending=True)
        assert not used & set(pulls.tolist())
        used |= set(pulls.tolist())
        rule.tell(values[pulls, arms], arms, pulls)
        if t % 3 == 0:
            arms, counts = rule.ask()
            rule.tell([0.5] * int(counts.sum()))
        if t % 5 == 0:
            rule = pickle.loads(pickle.dumps(rule))
    assert not rule.done and rule.n_pulls > len(used)


@pytest.mark.parametrize(("race", "budget"), [
    (lambda: fr.LUCB(2, 1, names=["a", "b"]), None), (lambda: fr.LUCB(2, 1), 21_000),
    (lambda: fr.LUCB(2, 1, 0.2), None), (lambda: fr.BettingRace(2, support=(0, 1), names=["a", "b"]), None),
], ids=["LUCB", "budget", "epsilon", "BettingRace"])
def test_a_tie_is_said_to_have_no_end_before_it_is_dear(race, budget, recwarn):
    """By requests, which are paid for; not where a budget or epsilon ends it."""
    rng, asked = np.random.default_rng(0), itertools.count()

    async def evaluate(arm, pull):
        if next(asked) > 22_000:
            raise LookupError
        return float(rng.random() < 0.5)

    rule = race()
    with contextlib.suppress(LookupError):
        asyncio.run(fr.race_async(evaluate, race=rule, max_pulls=budget, retries=0))
    said = [str(w.message) for w in recwarn if "never ends" in str(w.message)]
    if rule._names is None:
        assert not said
    else:
        assert re.match(r"20,\d\d\d rewards have not told arm [ab] .* from arm [ab] ", said[0]) and len(said) == 1
