"""Rounds in flight: rewards that are asked for ahead, and told in any order, decide as one round at a time does."""

import asyncio
import pickle
import signal

import numpy as np
import pytest
from graders import Grader, all_at_once, killed, pickled_at_times, same_answer, written

import fastrace as fr
from fastrace.races import flight

COST = [1.0, 2.0, 3.0, 4.0]
KINDS = {
    "betting": {}, "epsilon": {"epsilon": 0.2}, "two": {"n_best": 2}, "brackets": {"rule": "brackets"},
    "horizon": {"horizon": 40}, "drop": {"missing": "drop"}, "worst": {"missing": "worst"},
    "asymptotic": {"support": None, "first_look": 20},
}
RACES = {kind: lambda given=given: fr.BettingRace(4, delta=0.1, cost=COST, **({"support": (0, 1)} | given))
         for kind, given in KINDS.items()}
RACES["hoeffding"] = lambda: fr.HoeffdingRace(4, 3000, 0.1, (0, 1), cost=COST)
RACES["bernstein"] = lambda: fr.BernsteinRace(4, 3000, 0.1, (0, 1), n_best=2, cost=COST)


def table(seed, holes=False):
    rng = np.random.default_rng([seed, 11])
    easy = rng.random((4000, 1)) < 0.3
    values = ((rng.random((4000, 4)) < [0.35, 0.45, 0.7, 0.4]) | easy).astype(float)
    return np.where(rng.random(values.shape) < 0.1, np.nan, values) if holes else values


def in_turn(kind, values, max_pulls=None):
    return RACES[kind]().run(values, order="given", max_pulls=max_pulls)


@pytest.mark.parametrize("kind", RACES)
def test_answers_in_any_order_give_the_race_of_one_round_at_a_time(kind, seed):
    values = table(seed, kind in ("drop", "worst"))
    alone = in_turn(kind, values)
    for most in (1, 7, 64):
        race, out, asked = all_at_once(RACES[kind](), values, np.random.default_rng(seed), most)
        result = race.result()
        same_answer(result, alone)
        assert len(set(asked)) == len(asked) == result.pulls.sum() + result.n_unused
        assert most == 1 or result.n_unused <= 4 * max(2 * most, result.pulls.sum() // 16)
        assert result.cost == np.bincount([arm for arm, _ in asked], minlength=4) @ COST
        assert (result.n_unused > 0) == ("asked for ahead" in str(result))
        assert race.pending[0].size == 0    # nobody needs what is out
        for arm, k in out:                  # late answers are taken, and change nothing
            assert race.tell(values[k, arm], arm, k) == 0
        assert race.result() == result


@pytest.mark.parametrize("kind", RACES)
def test_a_race_in_flight_pickles_with_what_is_out_and_what_is_held_back(kind):
    values = table(4, kind in ("drop", "worst"))

    check = pickled_at_times(np.random.default_rng(3))
    race, _, asked = all_at_once(RACES[kind](), values, np.random.default_rng(0), check=check)
    plain, _, same = all_at_once(RACES[kind](), values, np.random.default_rng(0))
    assert race.result() == plain.result() == pickle.loads(pickle.dumps(race)).result() and asked == same


def test_further_rounds_are_of_the_arms_still_in_the_race():
    race = RACES["betting"]()
    assert [part.tolist() for part in race.ask(6, pending=True)] == [[0, 1, 2, 3, 0, 1], [0, 0, 0, 0, 1, 1]]
    assert race.ask(pending=True)[0].size == 0
    assert race.tell([1.0, 0.0, 1.0, 0.0], [3, 2, 0, 0], [0, 0, 1, 0]) == 0 and race.n_rounds == 0
    assert race.tell(1.0, 1, 0) == 1 and race.n_rounds == 1
    assert [part.tolist() for part in race.pending] == [[1], [1]]
    assert [part.tolist() for part in race.ask(pending=True)] == [[2, 3], [1, 1]]
    for call in (race.ask, lambda: race.run(table(0)), lambda: race.tell(np.zeros(4))):
        with pytest.raises(ValueError, match="arms and rounds, and go on with ask"):
            call()


def test_arms_that_left_neither_hold_up_what_is_asked_ahead_nor_are_sent_again():
    rng, means = np.random.default_rng(0), np.r_[np.linspace(0.05, 0.5, 28), 0.799, 0.8]
    values = np.clip(rng.normal(means, 0.05, (4000, means.size)), 0.0, 1.0)
    race, out, under_way = fr.BettingRace(means.size, delta=0.1, support=(0, 1)), [], []
    while len(under_way) < 50:
        out += zip(*(part.tolist() for part in race.ask(64 - len(out), pending=True)), strict=True)
        if race.active.size == 2:
            under_way.append(len(out))
        assert set(race.pending[0]) <= set(race.active)
        rng.shuffle(out)
        now, out = out[:16], out[16:]
        race.tell([values[k, arm] for arm, k in now], *zip(*now, strict=True))
    assert not race.done and np.mean(under_way[10:]) > 35


@pytest.mark.parametrize("door", ["ask and tell", "run", "run, cut short", "in flight again"])
@pytest.mark.parametrize("kind", ["betting", "hoeffding", "bernstein"])
def test_a_race_goes_on_in_turn_once_nothing_of_use_is_in_flight(kind, door):
    """Rewards of an arm that left are out or held back; those that come late are taken, and not used."""
    values = np.clip(np.random.default_rng(1).normal([0.1, 0.6, 0.7, 0.9], 0.2, (60_000, 4)), 0.0, 1.0)
    race, slow = RACES[kind](), 0
    whole = RACES[kind]().run(values, order="given")
    while race.active.size == 4:
        race.ask(12, pending=True)
        arms, rounds = race.pending
        keep = (arms != slow) | (rounds % 3 < 2) | (rounds == race.n_rounds)
        race.tell(values[rounds[keep], arms[keep]], arms[keep], rounds[keep])
    late = [(arm, k) for arm in range(4) for k in range(race._flight.taken[arm], race._flight.next[arm])
            if race._flight._awaited(k, arm)]
    while race._under_way:
        arms, rounds = race.pending
        if not arms.size:
            arms, rounds = race.ask(pending=True)
        race.tell(values[rounds, arms], arms, rounds)
    assert not race.done and slow not in race.active and slow in {arm for arm, _ in late}
    race = pickle.loads(pickle.dumps(race))

    def given(arms, rounds):
        return values[np.ix_(rounds, arms)]

    if door == "run, cut short":
        def fails(arms, rounds):
            if rounds[-1] > race_at + 3:
                raise OSError("down")
            return given(arms, rounds)

        race_at = race.n_rounds
        with pytest.raises(OSError, match="down"):
            race.run(fails)
        assert race.n_rounds > race_at
    before = race.n_rounds
    while not race.done and door in ("ask and tell", "in flight again") and race.n_rounds < before + 30:
        arms, rounds = race.ask(3)
        race.tell(given(arms, rounds))
    race = pickle.loads(pickle.dumps(race))
    if not race.done and door == "in flight again":
        arms, rounds = race.ask(5, pending=True)
        assert rounds[0] == race.n_rounds and set(arms) <= set(race.active)
        race.tell(values[rounds, arms], arms, rounds)
        arms, rounds = race.ask(pending=True)
        race.tell(values[rounds, arms], arms, rounds)
        assert not race.pending[0].size
        while race._under_way:
            arms, rounds = race.ask(pending=True)
            race.tell(values[rounds, arms], arms, rounds)
    arm, k = next(cell for cell in late if cell[0] == slow)
    race.tell(values[k, arm], arm, k)
    result = race.run(given)
    for name in ("best", "stopped_by", "n_rounds", "mean", "lower", "upper", "pulls", "error_bound"):
        np.testing.assert_array_equal(getattr(result, name), getattr(whole, name), err_msg=name)
    assert result.n_unused >= len([arm for arm, _ in late if arm == slow]) > 0


@pytest.mark.parametrize("bad", [np.nan, None, 1.5])
def test_a_bad_reward_is_refused_when_it_comes_not_when_its_turn_comes(bad):
    race = fr.BettingRace(3, support=(0, 1), names=["a", "b", "c"])
    race.ask(6, pending=True)
    before = pickle.dumps(race)
    said = "nan" if bad is None else bad
    with pytest.raises(ValueError, match=rf"arm 1 is 'b': the reward of arm 1 in round 1.* {said}"):
        race.tell([0.5, bad], [0, 1], [0, 1])
    for rewards, arms, rounds, said in (([0.5], [0], [7], "round 7 of arm 0 is not awaited"),
                                        ([0.5, 0.5], [1, 1], [0, 0], "a pair twice"), (0.5, 1, None, "go together")):
        with pytest.raises(ValueError, match=said):
            race.tell(rewards, arms, rounds)
    assert pickle.dumps(race) == before
    race.tell([0.5, 0.25], [0, 1], [0, 0])
    table_race = fr.BettingRace(3, support=(0, 1))
    table_race.run(table(0)[:, :3], max_pulls=3, rng=1)
    with pytest.raises(ValueError, match="reads a table in random order"):
        table_race.ask(3, pending=True)


@pytest.mark.parametrize("damage", [
    {"taken": [0, 0, 0, 0]}, {"here": [{}, {9: 0.5}, {}, {}]}, {"here": [{}, {1: 7.0}, {}, {}]}, {"next": None},
])
def test_a_damaged_flight_is_refused(damage):
    race = RACES["betting"]()
    race.tell([0.5] * 4, *race.ask(pending=True))
    race.ask(8, pending=True)
    make, (*known, saved) = race.__reduce__()
    assert make(*known, saved).pending[0].size == 8
    with pytest.raises(ValueError, match="damaged"):
        make(*known, saved | damage)


VALUES = (np.random.default_rng(5).random((3000, 4)) < [0.5, 0.55, 0.72, 0.55]).astype(float)


def go(evaluate, race=None, *, concurrency=16, **options):
    race = fr.BettingRace(4, delta=0.02, support=(0, 1)) if race is None else race
    return asyncio.run(fr.race_async(evaluate, race=race, concurrency=concurrency, **options))


def expected(max_pulls=None):
    return fr.BettingRace(4, delta=0.02, support=(0, 1)).run(VALUES, order="given", max_pulls=max_pulls)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(flight, "FIRST_WAIT", 0.0)


@pytest.mark.parametrize("concurrency", [1, 7, 64])
def test_requests_give_the_answer_of_one_round_at_a_time(concurrency, tmp_path):
    path = tmp_path / "race.jsonl"
    fails, grader, again = (Grader(VALUES, k, fails=lambda count, k=k: k == 0 and count > 90) for k in range(3))
    with pytest.raises(ConnectionError, match="no answer") as caught:
        go(fails, concurrency=concurrency, journal=path, retries=0)
    result = go(grader, concurrency=concurrency, journal=path)
    same_answer(result, expected())
    assert grader.most <= concurrency and not set(grader.asked) & set(written(path, "round")[:len(fails.answered)])
    same_answer(go(again, journal=path), expected())
    assert not again.asked
    same_answer(go(Grader(VALUES), race=caught.value.race), expected())


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
def test_a_killed_process_goes_on_and_asks_again_only_what_had_no_answer(tmp_path):
    path = tmp_path / "race.jsonl"
    asked = killed("race=fr.BettingRace(4, delta=0.02, support=(0, 1)), concurrency=16", path, tmp_path / "asked", 120)
    kept = written(path, "round")
    assert len(asked) == 120 and len(kept) >= 120 - 16 and expected().pulls.sum() > 120
    grader = Grader(VALUES, 1)
    same_answer(go(grader, journal=path), expected())
    assert not set(grader.asked) & set(kept)
    with pytest.raises(ValueError, match=r"is of another race: .*delta is 0\.02 there and 0\.1 here"):
        go(Grader(VALUES), fr.BettingRace(4, delta=0.1, support=(0, 1)), journal=path)


def test_a_budget_buys_whole_rounds_and_goes_on_with_a_larger_one():
    for budget in (4, 60, 101):
        race, grader = fr.BettingRace(4, delta=0.02, support=(0, 1)), Grader(VALUES)
        result = go(grader, race, max_pulls=budget)
        assert result.stopped_by == "max_pulls" and len(grader.asked) <= budget < len(grader.asked) + 4
        assert result.pulls.sum() + result.n_unused == len(grader.asked)
        alone = go(Grader(VALUES), concurrency=1, max_pulls=budget)
        same_answer(alone, expected(budget))
        assert alone.n_unused == 0
        second = Grader(VALUES, 2)
        same_answer(go(second, race), expected())
        assert not set(second.asked) & set(grader.asked)
    with pytest.raises(ValueError, match="max_pulls is 3; at least 4 is needed"):
        go(Grader(VALUES), max_pulls=3)


@pytest.mark.parametrize("options", [{}, {"max_pulls": 10_000}])
def test_rounds_that_a_failed_run_took_are_not_handed_out_again(options):
    """Once rounds were in flight, and without an end, with which a run looks at the clock now and then."""
    race, values, seen = fr.BettingRace(3, support=(0, 1)), np.random.default_rng(0).random((4000, 3)), []

    def rewards(arms, rounds):
        if rounds[0] >= 101:
            raise OSError("down")
        seen.extend(rounds.tolist())
        return values[np.ix_(rounds, arms)]

    arms, rounds = race.ask(pending=True)
    race.tell(rewards(arms, rounds[:1])[0], arms, rounds)
    with pytest.raises(OSError, match="down"):
        race.run(rewards, **options)
    assert len(seen) == len(set(seen)) == race.result().pulls[0] == 101
    for copied in (race, pickle.loads(pickle.dumps(race))):
        arms, rounds = copied.ask(pending=True)
        assert rounds[0] == 101
