"""What a function gave beside a bad reward was paid for: it is kept, only the bad reward is asked for again.

The race that goes on then gives the answer of a race without a bad reward, by whichever door.
"""

import asyncio
import math
import pickle

import numpy as np
import pytest

import catalogue
import fastrace as fr
from fastrace.sources import CallableSource

MEANS = np.array([0.5, 0.56, 0.47])
TABLE = (np.random.default_rng(3).random((20_000, 3)) < MEANS).astype(float)
RULES = {
    "LUCB": lambda **o: fr.LUCB(3, 1, 0.05, batch=100, **o),
    "two of three": lambda **o: fr.LUCB(3, 2, 0.05, batch=100, **o),
    "intervals": lambda **o: fr.LUCB(3, 1, 0.05, batch=100, rule="intervals", **o),
    "paired": lambda **o: fr.LUCB(3, 1, 0.05, batch=100, paired=True, **o),
    "asymptotic": lambda **o: fr.LUCB(3, 1, 0.05, batch=100, support=None, **o),
    "dropped": lambda **o: fr.LUCB(3, 1, 0.05, batch=100, missing="drop", **o),
    "worst": lambda **o: fr.LUCB(3, 1, 0.05, batch=100, missing="worst", **o),
    "Direct": lambda **o: fr.Direct(3, 1, 0.3, 0.3),
    "Adapt": lambda **o: fr.Adapt(3, 1, 0.1, batch=50, rng=1),
}
RACES = {
    "BettingRace": lambda **o: fr.BettingRace(3, support=(0, 1), **o),
    "asymptotic": lambda **o: fr.BettingRace(3, support=None, **o),
    "two of three": lambda **o: fr.BettingRace(3, support=(0, 1), n_best=2, **o),
    "dropped": lambda **o: fr.BettingRace(3, support=(0, 1), missing="drop", **o),
    "worst": lambda **o: fr.BettingRace(3, support=(0, 1), missing="worst", **o),
    "HoeffdingRace": lambda **o: fr.HoeffdingRace(3, 20_000, support=(0, 1), **o),
    "BernsteinRace": lambda **o: fr.BernsteinRace(3, 20_000, support=(0, 1), **o),
}


class Pulls:
    """Rewards of the table, an arm's in order; `bad` ones stand in their place in call number `at`.

    A reward that was spoilt is that of the next pull of its arm.
    """

    def __init__(self, bad=(), at=2, gaps=False):
        self.values = np.where(np.arange(20_000)[:, None] % 17 == 3, np.nan, TABLE) if gaps else TABLE
        self.bad, self.at, self.n_calls, self.n_given = bad, at, 0, 0
        self.next, self.owed, self.asked = [0] * 3, [[], [], []], []

    def __call__(self, arms, counts):
        self.n_calls += 1
        self.n_given += int(counts.sum())
        self.asked.append((arms.tolist(), counts.tolist()))
        found = []
        for arm, count in zip(arms, counts, strict=True):
            fresh = count - len(self.owed[arm])
            found += [*self.owed[arm], *self.values[self.next[arm] : self.next[arm] + fresh, arm]]
            self.next[arm] += fresh
            self.owed[arm] = []
        if self.n_calls == self.at and self.bad:
            at = len(found) // 2 + np.arange(len(self.bad))
            for k, value in zip(at, self.bad, strict=True):
                self.owed[np.repeat(arms, counts)[k]].append(found[k])
                found[k] = value
        return found


class Rounds:
    """The rewards of each round; of those `spoilt`, by round and arm, the first time, and of none later."""

    def __init__(self, spoilt=None, gaps=False):
        self.values = np.where(np.arange(20_000)[:, None] % 17 == 3, np.nan, TABLE) if gaps else TABLE
        self.spoilt, self.n_given, self.asked = dict(spoilt or {}), 0, []

    def __call__(self, arms, rounds):
        block = self.values[np.ix_(rounds, arms)].astype(object)
        self.n_given += block.size
        self.asked.append((arms.tolist(), rounds.tolist()))
        for i, t in enumerate(rounds.tolist()):
            for j, arm in enumerate(arms.tolist()):
                block[i, j] = self.spoilt.pop((t, arm), block[i, j])
        return block


def same(found, wanted, *but):
    assert catalogue.plain({name: value for name, value in vars(found).items() if name not in but}) == catalogue.plain(
        {name: value for name, value in vars(wanted).items() if name not in but})


def options_of(name):
    return {} if name in ("Direct", "Adapt") else {"cost": 1.0}


@pytest.mark.parametrize("bad", [[math.inf], [math.inf] * 3, ["oops"], [[1], 1j, 10**400]], ids=str)
@pytest.mark.parametrize("name", RULES)
def test_a_rule_keeps_the_good_rewards_and_asks_for_the_bad_ones_alone(name, bad):
    gaps = name in ("dropped", "worst")
    wanted, undisturbed = Pulls(gaps=gaps), RULES[name](**options_of(name))
    wanted_result = undisturbed.run(wanted, max_pulls=6000)
    pulls, rule = Pulls(bad, gaps=gaps), RULES[name](**options_of(name))
    said = "inf" if bad[0] == math.inf else "'oops'; real numbers" if bad == ["oops"] else r"\[1\]; real numbers"
    with pytest.raises(ValueError, match=rf"of arm \d is {said}") as caught:
        rule.run(pulls, max_pulls=6000)
    assert caught.value.rule is rule and "nothing paid for is lost" in caught.value.__notes__[0]
    arms, numbers = rule.pending
    assert arms.size == len(bad)
    if options_of(name):                # what was refused was not counted; the rest was, and is held
        assert rule.result().cost == pulls.n_given - len(bad) > rule.n_pulls
    again = pickle.loads(pickle.dumps(rule))
    assert [part.tolist() for part in again.pending] == [arms.tolist(), numbers.tolist()]
    before = pulls.n_calls
    found = rule.run(pulls, max_pulls=6000)
    asked = [pair for call in pulls.asked[before:] for pair in zip(*call, strict=True)]
    counts = np.bincount(arms)
    assert asked[: np.unique(arms).size] == [(arm, counts[arm]) for arm in np.unique(arms).tolist()]
    assert pulls.n_given == wanted.n_given + len(bad)
    same(found, wanted_result)
    # By hand, from the saved copy: the rewards that the call should have given.
    pulls = Pulls(bad, gaps=gaps)
    with pytest.raises(ValueError, match=said):
        RULES[name](**options_of(name)).run(pulls, max_pulls=6000)
    told = [pulls.owed[arm].pop(0) for arm in arms.tolist()]
    again.tell(told, arms, numbers)
    same(again.run(pulls, max_pulls=6000), wanted_result)


@pytest.mark.parametrize("bad", [[math.inf] * 3, ["oops", [1], 10**400]], ids=["inf", "words"])
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("name", RACES)
def test_a_race_keeps_the_good_rewards_and_asks_for_the_bad_ones_alone(name, ordered, bad):
    gaps = name in ("dropped", "worst")
    if ordered and name == "dropped":
        pytest.skip("refused")

    def source(rounds):
        return CallableSource(rounds, 3, 20_000) if ordered else rounds

    wanted, undisturbed = Rounds(gaps=gaps), RACES[name](cost=1.0)
    wanted_result = undisturbed.run(source(wanted), 50, rng=5)
    place = {tuple(wanted.asked[2][1])[k]: k for k in (10, 11, 40)}     # rows of rounds 110, 111 and 140
    spoilt = dict(zip([(row, arm) for row, arm in zip(place, (1, 0, 1), strict=True)], bad, strict=True))
    rounds, race = Rounds(spoilt, gaps), RACES[name](cost=1.0)
    said = "inf" if bad[0] == math.inf else r"row 1[01], column \d of .* is ('oops'|\[1\]); a block"
    with pytest.raises(ValueError, match=said) as caught:
        race.run(source(rounds), 50, rng=5)
    assert caught.value.race is race and "nothing paid for is lost" in caught.value.__notes__[0]
    n_open = 3 if name == "dropped" else race.active.size           # of arms that left nothing more is of use
    held = n_open * (150 - race._race.position_now) - race.pending[0].size
    assert race.result().cost == race.result().pulls.sum() + held and held >= 77
    again = pickle.loads(pickle.dumps(race))
    if ordered:
        with pytest.raises(ValueError, match="go on with run"):
            race.ask(pending=True)
        with pytest.raises(ValueError, match="must be read from its start"):
            race.run(CallableSource(rounds, 3, 19_999), 50)
    else:
        assert sorted(zip(*(part.tolist() for part in race.pending), strict=True)) == [(0, 111), (1, 110), (1, 140)]
    n_calls, n_refused = len(rounds.asked), race.pending[0].size
    found = race.run(source(rounds), 50, rng=6)
    asked = [(arm, row) for arms, rows in rounds.asked[n_calls:] for arm in arms for row in rows]
    assert n_refused >= 1 and set(asked[:n_refused]) <= {(arm, row) for row, arm in spoilt}
    assert rounds.n_given == wanted.n_given + n_refused
    ahead = "n_unused", "cost"          # what is held is counted where its arm then leaves
    same(found, wanted_result, *ahead)
    same(again.run(source(Rounds(gaps=gaps)), 50), wanted_result, *ahead)


@pytest.mark.parametrize("rule", [RULES["LUCB"], RULES["paired"], RULES["dropped"], RULES["Adapt"]])
def test_a_rule_that_gets_a_word_again_asks_for_that_one_again(rule):
    """Rewards that come in the place of those that were refused are kept beside a word, too."""
    undisturbed = Pulls()
    wanted = rule().run(undisturbed, max_pulls=6000)
    pulls, rule = Pulls(["a", "b", "c"]), rule()
    with pytest.raises(ValueError, match="'a'"):
        rule.run(pulls, max_pulls=6000)
    n_pending = []
    for word in ("d", "e"):
        pulls.bad, pulls.at = [word], pulls.n_calls + 1
        with pytest.raises(ValueError, match=f"is '{word}'"):
            rule.run(pulls, max_pulls=6000)
        n_pending.append(rule.pending[0].size)
    same(rule.run(pulls, max_pulls=6000), wanted)
    assert n_pending == sorted(n_pending, reverse=True) and n_pending[0] < 3
    assert pulls.n_given == undisturbed.n_given + 5


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("race", ["BettingRace", "worst", "HoeffdingRace"])
def test_a_race_that_gets_a_word_again_asks_for_that_one_again(race, ordered):
    def source(rounds):
        return CallableSource(rounds, 3, 20_000) if ordered else rounds

    gaps = race == "worst"
    wanted, clean = Rounds(gaps=gaps), RACES[race]()
    wanted_result = clean.run(source(wanted), 50, rng=5)
    cells = [(row, 1) for row in wanted.asked[1][1][3:6]]
    rounds, race = Rounds(dict.fromkeys(cells, "a"), gaps), RACES[race]()
    for left in (3, 1):
        with pytest.raises(ValueError, match="'a'"):
            race.run(source(rounds), 50, rng=5)
        flight = race._flight
        assert flight.out()[0].size == left
        rounds.spoilt = {cells[1]: "a"} if left == 3 else {}
    same(race.run(source(rounds), 50, rng=6), wanted_result, "n_unused")
    assert rounds.n_given == wanted.n_given + 3 + 1


def test_of_rows_that_a_selection_draws_those_beside_a_word_are_paid_for_once():
    asked, spoilt = [], {}

    def read(arms, rows):
        block = TABLE[np.ix_(rows, arms)].astype(object)
        if len(asked) > 500 and not spoilt:
            spoilt[int(rows[1]), int(arms[0])] = block[1, 0]
            block[1, 0] = "oops"
        asked.extend((row, arm) for row in rows.tolist() for arm in arms.tolist())
        return block

    rule = fr.LUCB(3, 1, 0.02, batch=200, rng=1, cost=1.0)
    source = CallableSource(read, 3, 20_000)
    with pytest.raises(ValueError, match=r"row 1, column 0 of .* is 'oops'"):
        rule.run(source, rng=5, max_pulls=3000)
    found = rule.run(source, max_pulls=3000)
    assert sorted(cell for cell in set(asked) if asked.count(cell) > 1) == list(spoilt)
    assert len(asked) == found.n_read + 1


def test_a_race_of_requests_goes_on_where_a_block_was_refused():
    rounds, race = Rounds({(110, 1): 2.0}), fr.BettingRace(3, support=(0, 1))
    with pytest.raises(ValueError, match="2.0, outside"):
        race.run(rounds, 50)
    asked = []

    def evaluate(arm, k):
        asked.append((k, arm))
        return TABLE[k, arm]

    result = asyncio.run(fr.race_async(evaluate, race=race, concurrency=4))
    assert min(k for k, _ in asked) == 110 and sum(k < 150 for k, _ in asked) == 1
    assert result.best == 1 and result.n_rounds == fr.BettingRace(3, support=(0, 1)).run(Rounds(), 50).n_rounds


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("dear", [False, True])
def test_a_table_is_drawn_on_with_the_rows_of_the_request_that_failed(paired, dear):
    """Other rows would be drawn less often where they fail: an answer about another table."""
    spoilt = TABLE.copy()
    spoilt[:400, 1] = np.nan
    asked = []

    def source(table):
        def read(arms, rows):
            asked.extend((row, arm) for row in rows.tolist() for arm in arms.tolist())
            return table[np.ix_(rows, arms)]

        return CallableSource(read, 3, 20_000) if dear else table

    rule = fr.LUCB(3, 1, 0.02, batch=200, rng=1, paired=paired, cost=1.0)
    with pytest.raises(ValueError, match="arm 1 is nan") as caught:
        rule.run(source(spoilt), rng=5)
    error = caught.value
    rule = pickle.loads(pickle.dumps(error.rule))
    n_before = rule.n_pulls
    if dear:
        wanted = {cell for cell in asked if cell[1] == 1 and cell[0] < 400}
        asked.clear()
        part = rule.run(source(TABLE), max_pulls=int(rule.result().n_read) + 600, rng=6)
        assert wanted and set(asked[: len(wanted)]) == wanted           # all others are known, and paid for once
        assert part.n_read > n_before
    else:
        other = pickle.loads(pickle.dumps(rule))
        first, second = (one.run(TABLE, max_pulls=n_before + 60, rng=seed) for one, seed in ((rule, 6), (other, 7)))
        same(first, second)             # the same rows, whatever is drawn after them


@pytest.mark.parametrize("answer", [["a", "b"], "few", None, [[0.5, "x"]]])
def test_an_answer_that_nobody_can_read_goes_back(answer):
    def function(arms, counts):
        return answer

    doors = {
        "LUCB": lambda: fr.LUCB(3, 1).run(function),
        "BettingRace": lambda: fr.BettingRace(3, support=(0, 1)).run(function, 10),
        "race": lambda: fr.race(function, n_arms=3, n_rows=1000, support=(0, 1)),
        "estimate_mean": lambda: fr.estimate_mean(lambda k: answer, support=(0, 1), batch=10),
    }
    for door in doors.values():
        with pytest.raises((ValueError, TypeError)) as caught:
            door()
        assert caught.value.answer is answer


def test_what_was_paid_before_an_answer_that_nobody_can_read_is_said():
    calls = []

    def function(arms, counts):
        calls.append(1)
        return "no number" if len(calls) == 5 else np.repeat(MEANS[arms], counts)

    with pytest.raises(ValueError, match="rewards") as caught:
        fr.LUCB(3, 1, batch=10).run(function)
    assert caught.value.answer == "no number" and "error.answer" in caught.value.__notes__[-1]
