"""Requests in flight: rewards that are asked for ahead of their look, and told in any order."""

import pickle

import numpy as np
import pytest
from graders import pickled_at_times

import fastrace as fr


def table(seed, n_rows=4000, n_arms=4, gap=0.15):
    rng = np.random.default_rng([seed, 7])
    common = rng.random((n_rows, 1))
    return 0.45 * common + 0.45 * rng.random((n_rows, n_arms)) + gap * (np.arange(n_arms) == seed % n_arms)


BETTING = {"bound": "betting", "support": (0, 1.2)}
KINDS = [BETTING, {"bound": "normal"}, {"bound": "serfling", "support": (0, 1.2)},
         {"bound": "normal", "variance": "marginal"}, BETTING | {"order": "given"}]


def in_turn(race, values):
    while not race.done:
        arms, rows = race.ask()
        race.tell(values[np.ix_(rows, arms)])
    return race.result()


def all_at_once(race, values, rng, ahead=30, check=None):
    """Answers come in random order, some cell by cell."""
    out = []
    while not race.done:
        while len(out) < ahead:
            arms, rows = race.ask(int(rng.integers(1, 9)), pending=True)
            if not rows.size:
                break
            out += [([arm], [row]) for arm in arms for row in rows] if rng.random() < 0.5 else [(arms, rows)]
        arms, rows = out.pop(rng.integers(len(out)))
        race.tell(values[np.ix_(rows, arms)], arms, rows)
        race = check(race) if check else race
    return race, out


def same_answer(one, other):
    left = one.to_dict()
    right = other.to_dict()
    left.pop("n_unused"), right.pop("n_unused")
    assert left == right


@pytest.mark.filterwarnings("ignore:access")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind.values())))
@pytest.mark.parametrize("k", range(2))
def test_answers_in_any_order_give_the_race_of_one_at_a_time(kind, k):
    values = table(k)
    race, out = all_at_once(fr.FiniteRace(4, 4000, rng=k, **kind), values, np.random.default_rng(k))
    result = race.result()
    same_answer(result, in_turn(fr.FiniteRace(4, 4000, rng=k, **kind), values))
    arms, rows = race.pending
    assert arms.size == sum(len(a) * len(r) for a, r in out)
    for a, r in out:                    # late answers are taken, and change nothing
        race.tell(values[np.ix_(r, a)], a, r)
    assert race.pending[0].size == 0
    assert race.result() == result
    assert result.n_unused > 0 and "asked for ahead" in str(result)


@pytest.mark.parametrize("kind", KINDS[:2], ids=["betting", "normal"])
def test_a_race_in_flight_pickles_with_what_is_out_and_what_is_held_back(kind):
    values = table(1)

    check = pickled_at_times(np.random.default_rng(3))
    race, _ = all_at_once(fr.FiniteRace(4, 4000, rng=2, **kind), values, np.random.default_rng(0), check=check)
    plain, _ = all_at_once(fr.FiniteRace(4, 4000, rng=2, **kind), values, np.random.default_rng(0))
    assert race.result() == plain.result()


def test_pending_lists_what_to_send_again():
    race = fr.FiniteRace(3, 100, first_look=10, rng=1)
    arms, rows = race.ask(4, pending=True)
    assert rows.size == 4 and arms.tolist() == [0, 1, 2]
    more = race.ask(pending=True)[1]
    assert more.size == 6 and race.ask(pending=True)[1].size == 0
    np.testing.assert_array_equal(np.concatenate([rows, more]), fr.FiniteRace(3, 100, first_look=10, rng=1).ask()[1])
    race.tell(0.5, 1, int(rows[2]))
    arms, left = race.pending
    assert arms.size == 29 and (1, rows[2]) not in set(zip(arms.tolist(), left.tolist(), strict=True))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1.5])
def test_a_bad_reward_is_refused_when_it_comes_not_when_its_turn_comes(bad):
    race = fr.FiniteRace(3, 100, support=(0, 1), first_look=10, names=["a", "b", "c"], rng=1)
    rows = race.ask(20, pending=True)[1]
    before = pickle.dumps(race)
    with pytest.raises(ValueError, match=rf"arm 1 is 'b': the reward of arm 1 on row {rows[17]} is {bad}"):
        race.tell([[0.5, bad]], [0, 1], [rows[17]])
    assert pickle.dumps(race) == before
    race.tell([[0.5, 0.25]], [0, 1], [rows[17]])


@pytest.mark.parametrize("missing", ["drop", "worst"])
def test_none_is_a_missing_reward_as_nan_is(missing):
    races = [fr.FiniteRace(3, 100, support=(0, 1), missing=missing, first_look=10, rng=1) for _ in range(2)]
    for race, none in zip(races, (None, np.nan), strict=True):
        arms, rows = race.ask(10, pending=True)
        block = [[0.25, 0.5, 0.75] for _ in rows]
        block[4][1] = none
        race.tell(block[:9], arms, rows[:9])
        race.tell(none, 0, int(rows[9]))
        race.tell([[0.5, none]], [1, 2], rows[9:])
    assert races[0].result() == races[1].result() and races[0].pending[0].size == 0
    race = fr.FiniteRace(3, 100, support=(0, 1), first_look=10, rng=1)
    arms, rows = race.ask(1, pending=True)
    with pytest.raises(ValueError, match="reward of arm 1 on row .* is nan"):
        race.tell([[0.5, None, 0.5]], arms, rows)


def test_rewards_that_nobody_awaits_are_refused():
    race = fr.FiniteRace(3, 100, first_look=10, rng=1)
    with pytest.raises(ValueError, match="handed out"):
        race.tell([[0.5]], [0], [3])
    rows = race.ask(2, pending=True)[1]
    race.tell(0.5, 0, rows[0])
    with pytest.raises(ValueError, match="not awaited"):
        race.tell(0.5, 0, rows[0])
    with pytest.raises(ValueError, match="twice"):
        race.tell([[0.5, 0.5]], [1, 1], [rows[1]])
    for call in (race.ask, lambda: race.run(table(0, 100, 3)), lambda: race.tell(np.zeros((10, 3)))):
        with pytest.raises(ValueError, match="go on with ask"):
            call()
    with pytest.raises(ValueError, match="pending=True"):
        race.ask(3)
    with pytest.raises(ValueError, match="indices from 0 to 2"):
        race.tell(0.5, 3, rows[1])
    with pytest.raises(ValueError, match=r"shape \(1, 2\)"):
        race.tell([[0.5]], [1, 2], [rows[1]])


def test_the_budget_counts_what_is_asked_for_ahead():
    values = table(2, gap=0.05)
    for budget in range(250, 900, 37):
        race = fr.FiniteRace(4, 4000, support=(0, 1.2), max_pulls=budget, rng=5)
        asked, rng = 0, np.random.default_rng(budget)
        out = []
        while not race.done:
            arms, rows = race.ask(5, pending=True)
            asked += arms.size * rows.size
            out += [(arms, rows)] if rows.size else []
            arms, rows = out.pop(rng.integers(len(out)))
            race.tell(values[np.ix_(rows, arms)], arms, rows)
        result = race.result()
        assert asked <= budget and result.n_read + result.n_unused == asked
        assert result.stopped_by == "bound" or asked > budget - 8


def test_a_reward_that_cannot_be_used_is_out_again():
    race = fr.FiniteRace(2, 100, first_look=10, rng=1)
    arms, rows = race.ask(pending=True)
    race.tell(np.full((9, 2), 0.5), arms, rows[:9])
    with pytest.raises(ValueError, match="every arm"):
        race.tell([[-np.inf, -np.inf]], arms, rows[9:])
    assert race.pending[1].tolist() == [rows[9]] * 2
    race.tell([[-np.inf, 1.0]], arms, rows[9:])
    assert race.result().best == 1


def test_a_race_goes_on_in_turn_once_nothing_is_in_flight():
    values = table(1, gap=0.05)
    race = fr.FiniteRace(4, 4000, support=(0, 1.2), rng=1)
    for _ in range(3):
        arms, rows = race.ask(pending=True)
        race.tell(values[np.ix_(rows, arms)], arms, rows)
    same_answer(in_turn(race, values), in_turn(fr.FiniteRace(4, 4000, support=(0, 1.2), rng=1), values))


@pytest.mark.parametrize("damage", [
    {"start": 3}, {"touched": 99}, {"state": np.full((10, 3), 7, np.int8)}, {"reward": np.full((10, 3), np.inf)},
    {"reward": np.zeros((10, 2))}, {"paid": np.zeros(2, np.int64)}, {"used": np.full(3, 99)}, {"late": [(0, 7)]},
    {"charged": -1}, {"state": None},
], ids=lambda damage: next(iter(damage)))
def test_a_damaged_flight_is_refused(damage):
    race = fr.FiniteRace(3, 100, first_look=10, rng=1)
    race.ask(10, pending=True)
    make, (*state, flight) = race.__reduce__()
    assert make(*state, flight).pending[0].size == 30
    with pytest.raises(ValueError, match="damaged"):
        make(*state, flight | damage)
