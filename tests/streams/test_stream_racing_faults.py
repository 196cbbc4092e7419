"""Races on streams under faults: bad rewards, exceptions, Ctrl-C, damaged saved races, bad arguments."""

import copy
import math
import pickle

import numpy as np
import pytest

import ctrl_c
import fastrace as fr
from reference.stream_racing import race as twin
from stream_races import EXACT, RACES, assert_same, drive


@pytest.mark.parametrize("race", RACES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1.5, -0.25])
def test_23_a_bad_reward_changes_nothing(race, bad, seed):
    rewards = np.random.default_rng(seed).random((1000, 3)) * [0.5, 0.9, 1.0]
    wanted = race(3, 1000, 0.05, (0, 1)).run(rewards, order="given")
    spoilt = rewards.copy()
    spoilt[70, 1] = bad
    bad_race = race(3, 1000, 0.05, (0, 1))
    drive(bad_race, rewards[:50])
    before = bad_race.result()
    arms, rounds = bad_race.ask(40)
    with pytest.raises(ValueError, match=r"arm 1 in round 70.*support"):
        bad_race.tell(spoilt[np.ix_(rounds, arms)])
    assert_same(bad_race.result(), before)
    with pytest.raises(ValueError, match=r"arm 1 in round 70"):
        bad_race.run(spoilt, order="given")
    assert bad_race.n_rounds == 70                  # all that came before was used
    with pytest.raises(ValueError, match=r"arm 1 in round 70"):
        bad_race.run(lambda arms, rows: spoilt[np.ix_(rows, arms)], batch=30)
    assert bad_race.n_rounds == 70
    assert_same(bad_race.run(rewards, order="given"), wanted)


@pytest.mark.parametrize("race", RACES)
def test_rewards_of_arms_that_left_do_not_matter(race):
    rewards = np.tile([0.9, 0.8, 0.0], (3000, 1))
    left = int(race(3, 3000, 0.05, (0, 1)).run(rewards, order="given").pulls[2])
    rewards[left:, 2] = math.nan
    result = race(3, 3000, 0.05, (0, 1)).run(rewards, order="given")
    assert (result.best, result.pulls[2]) == (0, left)
    rewards[left - 1, 2] = math.nan
    with pytest.raises(ValueError, match=f"arm 2 in round {left - 1}"):
        race(3, 3000, 0.05, (0, 1)).run(rewards, order="given")


@pytest.mark.parametrize("race", RACES)
def test_an_exception_arrives_unchanged_and_the_race_goes_on(race, seed):
    rewards = np.random.default_rng(seed).random((1000, 4)) * [0.5, 0.9, 1.0, 0.7]
    wanted = race(4, 1000, 0.05, (0, 1)).run(rewards, order="given")
    last = wanted.n_rounds - 1
    for stop in (0, 1, 64, last):
        error = KeyError("mine")

        def function(arms, rows, stop=stop, error=error):
            if rows[0] == stop:
                raise error
            return rewards[np.ix_(rows, arms)]

        broken = race(4, 1000, 0.05, (0, 1))
        with pytest.raises(KeyError) as caught:
            broken.run(function)
        assert caught.value is error
        assert broken.n_rounds == stop
        assert_same(broken.run(rewards, order="given"), wanted)


@pytest.mark.parametrize("race", RACES)
@pytest.mark.resources
def test_ctrl_c_leaves_a_race_that_goes_on(race):
    rewards = np.broadcast_to(np.float64(0.5), (1 << 40, 50))
    running = race(50, 1 << 40, 0.05, (0, 1))
    assert ctrl_c.press(lambda: running.run(rewards, order="given"), 1, 0.1) == 1
    rounds = running.n_rounds
    assert rounds > 0
    running.run(rewards[: rounds + 10], order="given")
    assert running.n_rounds == rounds + 10
    assert running.result().active.size == 50


@pytest.mark.parametrize("race", RACES)
@pytest.mark.parametrize("n_best", [1, 2])
def test_19_pickles_and_copies_continue_exactly(race, n_best, seed):
    rng = np.random.default_rng(seed)
    rewards = rng.random((1200, 6)) * np.linspace(0.3, 1, 6)
    support = (np.zeros(6), np.linspace(1, 1.2, 6))
    wanted = race(6, 1200, 0.05, support, n_best=n_best).run(rewards, order="given")
    for cut in rng.integers(0, max(wanted.n_rounds, 1), 8):
        part = race(6, 1200, 0.05, support, n_best=n_best)
        part.run(rewards[:cut], order="given")
        for again in (pickle.loads(pickle.dumps(part)), copy.copy(part), copy.deepcopy(part)):
            assert_same(again.result(), part.result())
            assert_same(again.run(rewards, order="given"), wanted)
        assert_same(part.run(rewards, order="given"), wanted)
    over = pickle.loads(pickle.dumps(part))
    assert over.done
    assert_same(over.result(), wanted)
    rebuild, (_, cls, known, state, order) = part.__reduce__()
    with pytest.raises(ValueError, match="reads version 2"):
        rebuild(3, cls, known, state, order)
    part = race(6, 1200, 0.05, support, n_best=n_best)
    part.run(rewards[:50], order="given")
    rebuild, (_, cls, known, state, _) = part.__reduce__()
    with pytest.raises(ValueError, match="damaged"):
        rebuild(2, cls, known, state | {"counts": (7, 1, 0, 0)}, order)
    part = race(6, 1, 0.05, support, n_best=n_best)
    part.run(rewards, rng=1)
    rebuild, (_, cls, known, state, order) = part.__reduce__()
    for damaged in (order[:-1], (order[0], 0, *order[2:]), (order[0], 1 << 70, *order[2:])):
        with pytest.raises(ValueError, match="damaged"):
            rebuild(2, cls, known, state, damaged)


@pytest.mark.parametrize(("arguments", "error", "text"), [
    ({"n_arms": 0}, ValueError, "n_arms is 0"),
    ({"n_arms": 2.5}, TypeError, "an integer is needed"),
    ({"horizon": 0}, ValueError, "horizon is 0"),
    ({"horizon": 2**62 + 1}, ValueError, r"at most 2\*\*62"),
    ({"delta": 0}, ValueError, "delta is 0"),
    ({"delta": 1.0}, ValueError, "delta is 1.0"),
    ({"delta": math.nan}, ValueError, "delta is nan"),
    ({"delta": "0.1"}, TypeError, "delta is '0.1'"),
    ({"support": None}, ValueError, "support is None"),
    ({"support": (1, 0)}, ValueError, "low <= high"),
    ({"support": (0, math.inf)}, ValueError, "finite"),
    ({"support": (-1e308, 1e308)}, ValueError, "width"),
    ({"support": ([0, 0], [1, 1])}, ValueError, "one value per arm"),
    ({"epsilon": -0.1}, ValueError, "epsilon is -0.1"),
    ({"epsilon": math.inf}, ValueError, "epsilon is inf"),
    ({"n_best": 0}, ValueError, "n_best is 0"),
    ({"n_best": 4}, ValueError, "there are 3 arms"),
])
@pytest.mark.parametrize("race", RACES)
def test_bad_arguments(race, arguments, error, text):
    if race is fr.BettingRace and "support" in arguments and arguments["support"] is None:
        return          # which is the asymptotic kind
    with pytest.raises(error, match=text):
        race(**{"n_arms": 3, "horizon": 10, "support": (0, 1)} | arguments)


@pytest.mark.parametrize("race", [*EXACT, lambda *args, **options: fr.BettingRace(*args, rule="brackets", **options)])
def test_an_accuracy_by_brackets_is_for_one_arm(race):
    with pytest.raises(ValueError, match="finds one arm"):
        race(3, 10, 0.05, (0, 1), n_best=2, epsilon=0.1)
    with pytest.raises(ValueError, match="rule is 'pairs'"):
        fr.BettingRace(3, support=(0, 1), rule="pairs")


def test_only_betting_races_need_no_horizon():
    for race in EXACT:
        with pytest.raises(ValueError, match="BettingRace needs none"):
            race(3, None, 0.05, (0, 1))
    result = fr.BettingRace(2, support=(0, 1)).run(np.tile([0.2, 0.6], (50, 1)))
    assert (result.best, result.horizon) == (1, None)
    tiny = fr.HoeffdingRace(2, 100, 1e-300, (0, 1)).run(np.tile([0.2, 0.6], (100, 1)), order="given")
    assert tiny.stopped_by == "horizon"


@pytest.mark.parametrize("race", RACES)
def test_26_bad_blocks_are_refused(race):
    running = race(3, 100, 0.05, (0, 1))
    for block in (np.zeros((2, 4)), np.zeros((1, 2, 3)), 0.5, None, np.zeros(3, dtype=complex), ["a", "b", "c"]):
        with pytest.raises((ValueError, TypeError)):
            running.tell(block)
    with pytest.raises(ValueError, match="masked"):
        running.tell(np.ma.masked_invalid([0.5, np.nan, 0.1]))
    with pytest.raises(ValueError, match="4"):
        running.run(np.zeros((10, 4)), order="given")
    assert running.n_rounds == 0
    assert running.tell([0, 1, 0]) == 1
    assert running.tell(np.zeros((0, 3))) == 0
    for dtype in ("f2", "f4", "i1", "u1", "?", ">f8", "g"):
        running.tell(np.zeros((2, 3), dtype=dtype))
    assert running.n_rounds == 15
    with pytest.raises(ValueError, match="n is 0"):
        running.ask(0)
    running.run(np.zeros((100, 3)), order="given")
    for call in (running.ask, lambda: running.tell([0, 0, 0])):
        with pytest.raises(ValueError, match="over"):
            call()


def test_a_race_in_use_refuses_another_call():
    race = fr.HoeffdingRace(2, 100, 0.05, (0, 1))
    seen = []

    def function(arms, rows):
        if not seen:
            for call in (lambda: race.run(np.zeros((100, 2))), lambda: race.tell([0, 0]), race.result):
                with pytest.raises(RuntimeError, match="in use"):
                    call()
            seen.append(True)
        return np.zeros((len(rows), len(arms)))

    assert race.run(function).n_rounds == 100


def test_a_race_saved_before_there_were_rules_goes_on_by_brackets(seed):
    rewards = np.random.default_rng(seed).random((900, 3)) * [0.8, 0.9, 1.0]
    wanted = fr.BettingRace(3, support=(0, 1), rule="brackets").run(rewards, order="given")
    part = fr.BettingRace(3, support=(0, 1), rule="brackets")
    part.run(rewards[:40], order="given")
    rebuild, (version, cls, known, state, order) = part.__reduce__()
    again = rebuild(version, cls, known[:-1], state, order)
    assert_same(again.run(rewards, order="given"), wanted)
    pulls, *_ = twin("betting", rewards, None, 0.05, 0, 1, rule="brackets")
    assert wanted.pulls.tolist() == pulls.tolist()
    rebuild, (version, cls, known, state, order) = fr.BettingRace(3, support=(0, 1)).__reduce__()
    for name in ("seat", "sums", "wealth"):
        duels = state["duels"] | {name: state["duels"][name][:-1]}
        with pytest.raises(ValueError, match="damaged"):
            rebuild(version, cls, known, state | {"duels": duels}, order)
    with pytest.raises(ValueError, match="damaged"):
        rebuild(version, cls, known, state | {"duels": state["duels"] | {"seat": np.array([0, 0, 1])}}, order)
