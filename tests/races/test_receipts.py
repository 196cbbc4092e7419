"""What was paid for is never lost: where a function raises, at Ctrl-C, and where a reward is refused."""

import asyncio
import pickle
import traceback

import numpy as np
import pytest

import fastrace as fr
from fastrace.model_selection import race_predictions
from fastrace.sources import CallableSource

VALUES = (np.random.default_rng(1).random((4000, 5)) < [0.5, 0.5, 0.58, 0.66, 0.5]).astype(float)
SIZE = {"n_arms": 5, "n_rows": 4000}
KINDS = {
    "betting": {"support": (0, 1)},
    "normal": {},
    "marginal": {"bound": "serfling", "variance": "marginal", "support": (0, 1)},
    "in order": {"support": (0, 1), "order": "given"},
    "tie": {"support": (0, 1), "first_look": 3000},
    "whole table": {"support": (0, 1), "first_look": 4000},
    "budget": {"support": (0, 1), "max_pulls": 1003},
    "drop": {"support": (0, 1), "missing": "drop"},
    "proxy": {"support": (0, 1), "proxy": VALUES[:, :1] * 0.5, "growth": 1.1},
}


class Paid:
    """A function of rewards that fails at some calls; it keeps which cells it was paid for."""

    def __init__(self, fails=(), values=VALUES, error=ConnectionError):
        self.fails, self.values, self.error = set(fails), values, error
        self.calls, self.cells = 0, []

    def __call__(self, arms, rows):
        self.calls += 1
        if self.calls in self.fails:
            raise self.error("no answer")
        self.cells += [(arm, row) for arm in arms.tolist() for row in rows.tolist()]
        return self.values[np.ix_(rows, arms)]


def same(result, expected):
    assert result.n_unused == 0
    np.testing.assert_array_equal(result.pulls, expected.pulls)
    np.testing.assert_array_equal(result.mean, expected.mean)
    np.testing.assert_allclose([result.lower, result.upper], [expected.lower, expected.upper], rtol=1e-12)
    assert (result.best, result.stopped_by, result.n_looks) == (expected.best, expected.stopped_by, expected.n_looks)


@pytest.mark.parametrize("error", [ConnectionError, KeyboardInterrupt])
@pytest.mark.parametrize("kind", KINDS)
def test_a_race_goes_on_with_all_that_was_paid_for_wherever_its_function_raises(kind, error):
    options = KINDS[kind] | {"rng": 3}
    whole = Paid()
    expected = fr.race(whole, **SIZE, **options)
    assert whole.calls < 60
    for k in range(1, whole.calls + 1):
        paid = Paid({k, k + 1, k + 3}, error=error)
        with pytest.raises(error) as caught:
            fr.race(paid, **SIZE, **options)
        race = caught.value.race
        assert race.result().n_read <= len(paid.cells) and caught.value.source.function is paid
        said = "".join(traceback.format_exception(caught.value))
        assert ("error.race.run(error.source)" in said) == (k > 1)
        while not race.done:
            race = pickle.loads(pickle.dumps(race))
            try:
                result = race.run(caught.value.source)
            except error as again:
                assert again.race is race
        same(result, expected)
        assert len(set(paid.cells)) == len(paid.cells) == expected.n_read


def test_a_full_pass_of_a_quick_function_that_has_a_cost_keeps_what_it_read():
    def source(paid):
        return CallableSource(paid, 5, 4000, (0, 1), scan_advantage=8.0, reward_cost=5.0, first_look=4000)

    whole, paid = Paid(), Paid({2})
    race = fr.FiniteRace(5, 4000, support=(0, 1), first_look=4000, cost=1.0, rng=1)
    expected = fr.FiniteRace(5, 4000, support=(0, 1), first_look=4000, cost=1.0, rng=1).run(source(whole))
    with pytest.raises(ConnectionError):
        race.run(CallableSource(Paid({1}), 5, 4000, (0, 1)))
    same(race.run(source(paid)), expected)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 7.0])
def test_only_a_reward_that_is_refused_is_asked_for_again(bad):
    expected = fr.race(Paid(), **SIZE, support=(0, 1), rng=3)
    rows = fr.FiniteRace(5, 4000, rng=3).ask()[1]
    wrong = VALUES.copy()
    wrong[rows[[3, 44]], 2] = bad
    paid, mended = Paid(values=wrong), Paid()
    with pytest.raises(ValueError, match=f"arm 2 on row {rows[3]}|reward of arm 2") as caught:
        fr.race(paid, **SIZE, support=(0, 1), rng=3)
    race = caught.value.race
    arms, out = race.pending
    assert arms.tolist() == [2, 2] and set(out.tolist()) == set(rows[[3, 44]].tolist())
    same(race.run(mended), expected)
    assert mended.cells[:2] == [(2, rows[3]), (2, rows[44])]
    assert len(paid.cells) == 250 and len(mended.cells) == expected.n_read - 250 + 2


def test_by_hand_a_race_goes_on_with_requests_in_flight():
    expected = fr.race(Paid(), **SIZE, support=(0, 1), rng=3)
    race, paid = fr.FiniteRace(5, 4000, support=(0, 1), rng=3), Paid({4})
    with pytest.raises(ConnectionError):
        race.run(CallableSource(paid, 5, 4000, (0, 1)))
    while not race.done:
        arms, rows = race.ask(pending=True)
        race.tell(paid(arms, rows), arms, rows)
    same(race.result(), expected)
    assert len(paid.cells) == expected.n_read


def test_what_is_out_by_hand_is_not_sent_again_by_run():
    race = fr.FiniteRace(5, 4000, support=(0, 1), rng=3)
    with pytest.raises(ConnectionError):
        race.run(Paid({1}))
    arms, rows = race.ask(3, pending=True)
    with pytest.raises(ValueError, match="would ask again"):
        race.run(Paid())
    race.tell(VALUES[np.ix_(rows, arms)], arms, rows)
    with pytest.raises(ValueError, match="would ask again"):
        race.ask()


def test_predictions_of_a_function_are_kept():
    truth = np.random.default_rng(0).integers(0, 2, 4000)
    guesses = np.where(VALUES == 1.0, truth[:, None], 1 - truth[:, None])
    whole = Paid(values=guesses)
    expected = race_predictions(truth, whole, n_candidates=5, names=list("abcde"), rng=3)
    paid = Paid({3}, values=guesses)
    with pytest.raises(ConnectionError) as caught:
        race_predictions(truth, paid, n_candidates=5, names=list("abcde"), rng=3)
    result = caught.value.race.run(caught.value.source)
    same(result, expected)
    assert result.names == expected.names and len(paid.cells) == len(whole.cells) == expected.n_read


def test_a_table_costs_nothing_and_keeps_nothing():
    with pytest.raises(ValueError) as caught:
        fr.race(np.full((200, 2), np.nan), rng=1)
    assert not hasattr(caught.value, "race")


# Requests.


@pytest.mark.parametrize("threads", [False, True])
def test_requests_that_fail_without_a_journal_leave_the_race(threads):
    asked = []

    def grade(arm, row):
        asked.append((arm, row))
        if len(asked) == 700:
            raise ConnectionError("no answer")
        return VALUES[row, arm]

    async def grade_async(arm, row):
        await asyncio.sleep(0)
        return grade(arm, row)

    function = grade if threads else grade_async
    options = {"support": (0, 1), "rng": 3}
    expected = fr.race(Paid(), **SIZE, **options)
    with pytest.raises(ConnectionError) as caught:
        asyncio.run(fr.race_async(function, 5, 4000, concurrency=8, retries=0, **options))
    failed = asked[699]
    assert any("race_async(evaluate, race=error.race)" in line for line in traceback.format_exception(caught.value))
    result = asyncio.run(fr.race_async(function, race=pickle.loads(pickle.dumps(caught.value.race)), concurrency=8))
    np.testing.assert_array_equal(result.pulls, expected.pulls)
    assert sorted(asked) == sorted([*set(asked), failed])


def test_a_cancelled_race_that_the_user_holds_keeps_what_was_answered():
    answered = []

    async def grade(arm, row):
        await asyncio.sleep(0)
        answered.append((arm, row))
        return VALUES[row, arm]

    async def cut(race):
        task = asyncio.create_task(fr.race_async(grade, race=race, concurrency=4))
        while len(answered) < 333:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert caught.value.race is race

    expected = fr.race(Paid(), **SIZE, support=(0, 1), rng=3)
    race = fr.FiniteRace(5, 4000, support=(0, 1), rng=3)
    asyncio.run(cut(race))
    assert not race.done
    result = asyncio.run(fr.race_async(grade, race=race, concurrency=4))
    np.testing.assert_array_equal(result.pulls, expected.pulls)
    assert len(set(answered)) == len(answered)


@pytest.mark.parametrize(("given", "error", "said"), [
    ({"race": 5}, TypeError, "race is 5; a FiniteRace, a LUCB or a BettingRace is needed"),
    ({"n_arms": 5, "delta": 0.1}, ValueError, "n_arms, delta came beside race"),
    ({"journal": "x.jsonl"}, ValueError, "journal and race both came"),
    ({"support": (0, 1)}, ValueError, "support came beside race"),
    ({"race": None}, TypeError, "n_arms and n_rows are needed.*It is None where the race is over"),
    ({"race": None, "n_arms": 4, "n_rows": 0}, ValueError, "n_rows is 0 and there is no offset: nothing tells"),
])
def test_what_does_not_go_with_a_race_is_refused(given, error, said):
    async def grade(arm, row):
        return VALUES[row, arm]

    with pytest.raises(error, match=said):
        asyncio.run(fr.race_async(grade, **({"race": fr.FiniteRace(5, 4000, support=(0, 1))} | given)))


# One first look for all that is dear.


def test_a_function_and_a_race_by_hand_pay_the_same():
    for seed in range(5):
        values = (np.random.default_rng(seed).random((4000, 5)) < [0.5, 0.5, 0.5, 0.9, 0.5]).astype(float)
        by_hand = fr.FiniteRace(5, 4000, support=(0, 1), rng=seed)
        while not by_hand.done:
            arms, rows = by_hand.ask()
            by_hand.tell(values[np.ix_(rows, arms)])
        for cost in (None, 1.0):
            result = fr.race(Paid(values=values), **SIZE, support=(0, 1), cost=cost, rng=seed)
            np.testing.assert_array_equal(result.pulls, by_hand.result().pulls)
        quick = CallableSource(Paid(values=values), 5, 4000, (0, 1), reward_cost=5.0)
        assert fr.race(quick, cost=1.0, rng=seed).n_read == by_hand.result().n_read < fr.race(quick, rng=seed).n_read


# What is no number, and what no support holds

@pytest.mark.parametrize("missing", ["raise", "drop"])
@pytest.mark.parametrize("bad", ["0.37", "-inf", "oops", [1], 1j, 10**400, 2**53 + 1])
def test_of_a_block_with_an_entry_that_is_no_number_the_others_are_kept(bad, missing):
    asked, clean = [], fr.race(VALUES, support=(0, 1), missing=missing, rng=1)

    def function(arms, rows):
        block = VALUES[np.ix_(rows, arms)].astype(object)
        if not asked:
            block[3, 2] = bad
        asked.extend((row, arm) for row in rows.tolist() for arm in arms.tolist())
        return block

    with pytest.raises(ValueError, match="real numbers|no float64 holds") as caught:
        fr.race(function, **SIZE, support=(0, 1), missing=missing, rng=1)
    result = caught.value.race.run(caught.value.source)
    assert len(asked) == len(set(asked)) + 1 and result.best == clean.best
    sums = result.mean * result.pulls
    np.testing.assert_allclose(sums, np.round(sums), atol=1e-6)     # all that was kept is 0 or 1


@pytest.mark.parametrize("options", [{}, {"first_look": 4000}, {"order": "given"}, {"missing": "worst"}])
@pytest.mark.parametrize("of_function", [False, True])
def test_a_reward_of_minus_infinity_is_outside_a_support(options, of_function):
    values = VALUES.copy()
    values[:, 3] = np.where(np.arange(4000) % 3, values[:, 3], -np.inf)
    given = (lambda arms, rows: values[np.ix_(rows, arms)]) if of_function else values
    size = SIZE if of_function else {}
    with pytest.raises(ValueError, match=r"of arm 3 on row \d+ is -inf, outside support=\(0.0, 1.0\)"):
        fr.race(given, **size, support=(0, 1), rng=1, **options)
    assert fr.race(given, **size, support=(0, 1), outside="warn", rng=1, **options).mean[3] == -np.inf
    assert fr.race(given, **size, rng=1).mean[3] == -np.inf


def test_the_shape_that_tell_needs_is_said():
    race = fr.FiniteRace(5, 4000, support=(0, 1), rng=1)
    arms, rows = race.ask()
    with pytest.raises(ValueError, match=rf"of shape \({rows.size}, {arms.size}\), rows by arms"):
        race.tell([1.0])


@pytest.mark.parametrize("missing", ["raise", "drop"])
@pytest.mark.parametrize("bad", ["oops", [1], 10**400, 2.0])
@pytest.mark.parametrize("gap", [False, True])
def test_of_a_list_of_lists_with_such_an_entry_the_others_are_kept(bad, gap, missing):
    asked, wrong = [], 1 + (gap and missing == "raise")

    def function(arms, rows):
        block = VALUES[np.ix_(rows, arms)].tolist()
        if not asked:
            block[3][2] = bad
            block[5][1] = None if gap else block[5][1]
        asked.extend((row, arm) for row in rows.tolist() for arm in arms.tolist())
        return block

    with pytest.raises(ValueError, match="row 3, column 2|arm 2 on row .* is 2.0|arm 1 on row .* is nan") as caught:
        fr.race(function, **SIZE, support=(0, 1), missing=missing, rng=1)
    result = caught.value.race.run(caught.value.source)
    assert len(asked) == len(set(asked)) + wrong
    assert getattr(result, "n_missing", 0) == (gap and missing == "drop")


def test_of_a_list_with_a_missing_reward_and_a_word_the_others_are_kept():
    paid = []

    def pull(arms, counts):
        given = np.random.default_rng(len(paid)).random(int(counts.sum())).tolist()
        if not paid:
            given[:3] = [None, given[1], "oops"]
        paid.extend(given)
        return given

    with pytest.raises(ValueError, match="arm 2 is 'oops'") as caught:
        fr.select_best(pull, n_arms=4, support=(0, 1), max_pulls=400, rng=1)
    assert caught.value.rule.pending[0].tolist() == [0, 2]
    assert caught.value.rule.run(pull, max_pulls=400).pulls.sum() == len(paid) - 2
