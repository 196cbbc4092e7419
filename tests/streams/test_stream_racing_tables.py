"""Races on streams over a table: read in random order, at its end exactly, and on from where a race was."""

import copy
import pickle

import numpy as np
import pytest

import fastrace as fr
from fastrace._draws._row_order import RowOrder
from fastrace.sources import CallableSource
from guarantee import assert_rate_at_most, few_or_many
from reference.stream_racing import race as twin
from stream_races import RACES, assert_same, shuffled


@pytest.mark.parametrize("race", RACES)
@pytest.mark.parametrize("n_best", [1, 3])
@few_or_many("tables", 25, 100)
def test_a_table_is_read_in_random_order_and_at_its_end_exactly(race, n_best, tables, seed):
    ends = set()
    for k in range(tables):
        rng = np.random.default_rng([seed, k])
        n_arms, n_rows = int(rng.integers(n_best + 1, 9)), int(rng.choice([1, 64, 200, 500]))
        noise = rng.choice([0.02, 0.3, 1.0])
        rewards = np.sort(np.clip(rng.random(n_arms) + noise * (rng.random((n_rows, n_arms)) - 0.5), 0, 1), axis=0)
        if k % 3 == 0:
            rewards[:, -1] = rewards[::-1, 0]       # ties
        horizon = int(rng.choice([n_rows, n_rows + 5, max(n_rows // 2, 1)]))
        result = race(n_arms, horizon, 0.05, (0, 1), n_best=n_best).run(rewards, rng=k)
        pulls, alive, chosen, rounds, why = twin(race._bound, shuffled(rewards, k), horizon, 0.05, 0, 1, 0.0, n_best,
                                                 population=True)
        assert (result.pulls.tolist(), result.n_rounds, result.stopped_by) == (pulls.tolist(), rounds, why)
        assert result.active.tolist() == sorted([*alive, *chosen])
        ends.add(why)
        if why == "exact":
            means = rewards.mean(axis=0)
            assert means[np.atleast_1d(result.best)].min() >= np.sort(means)[-n_best] - 1e-12
            assert result.lower[alive] == pytest.approx(means[alive], abs=1e-12)
            assert result.upper[alive] == pytest.approx(means[alive], abs=1e-12)
            assert "every row was read" in result.promise
            assert ("cannot be told" in result.promise) == (len(alive) + len(chosen) > n_best)
    assert {"exact", "bound"} <= ends


@pytest.mark.parametrize("race", RACES)
def test_the_order_of_a_table_does_not_decide_the_race(race, seed):
    rng = np.random.default_rng(seed)
    a = np.sort(rng.beta(2, 2, 4000) * 0.8)         # sorted: low at the top
    b = rng.permutation(rng.beta(2, 2, 4000) * 0.6)
    for table in (np.c_[a, b], np.c_[a, b][::-1]):
        result = race(2, 4000, 0.05, (0, 1)).run(table, rng=seed)
        assert (result.best, result.stopped_by) == (0, "bound")


@pytest.mark.parametrize("race", RACES)
@pytest.mark.parametrize("n_best", [1, 2])
def test_a_race_over_a_table_goes_on_with_the_rows_that_are_left(race, n_best, seed):
    rewards = np.random.default_rng(seed).random((900, 4)) * [0.6, 0.65, 0.9, 0.95]
    wanted = race(4, 900, 0.05, (0, 1), n_best=n_best).run(rewards, rng=5)
    for broken_at in (1, 20, 60):
        calls = []

        def function(arms, rows, calls=calls, stop=broken_at):
            calls.append(len(rows))
            if sum(calls) == stop:
                raise KeyError("the line is dead")
            return rewards[np.ix_(rows, arms)]

        part = race(4, 900, 0.05, (0, 1), n_best=n_best)
        with pytest.raises(KeyError, match="the line is dead"):
            part.run(CallableSource(function, 4, 900), rng=5)
        again = pickle.loads(pickle.dumps(part))
        twice = copy.copy(part)
        for one in (part, again, twice):
            assert_same(one.run(rewards), wanted)
    spoilt = rewards.copy()
    row = int(RowOrder(900, np.random.default_rng(5)).take(12)[-1])
    spoilt[row, 2] = 1.5
    part = race(4, 900, 0.05, (0, 1), n_best=n_best)
    with pytest.raises(ValueError, match=rf"arm 2 in row {row} is 1.5"):
        part.run(spoilt, rng=5)
    assert part.n_rounds == 11
    with pytest.raises(ValueError, match="some of which it has seen"):
        part.run(rewards, order="given")
    with pytest.raises(ValueError, match="in random order must be read from its start"):
        part.run(rewards[:-1])
    with pytest.raises(ValueError, match="in random order; go on"):
        part.tell(np.zeros(part.active.size))
    assert_same(part.run(rewards), wanted)
    given = race(4, 900, 0.05, (0, 1), n_best=n_best)
    given.run(rewards[:10], order="given")
    with pytest.raises(ValueError, match="say order='given'"):
        given.run(rewards)


def test_betting_brackets_hold_the_mean_of_a_table(seed):
    missed, delta, trials = 0, 0.1, 300
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        rewards = rng.beta(0.3, 1.0, (200, 3))
        race = fr.BettingRace(3, int(rng.choice([20, 100, 190])), delta, (0, 1))
        result = race.run(rewards, rng=rng)
        mean = rewards.mean(axis=0)
        missed += bool((result.lower > mean + 1e-12).any() or (result.upper < mean - 1e-12).any())
    assert_rate_at_most(missed, trials, delta)


@pytest.mark.parametrize("race", RACES)
def test_no_best_arm_of_a_table_is_lost(race, seed):
    missed, delta, trials = 0, 0.2, 200
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        rewards = np.sort(rng.random((300, 4)) < [0.35, 0.4, 0.45, 0.5], axis=0).astype(float)
        result = race(4, 300, delta, (0, 1)).run(rewards, rng=rng)
        mean = rewards.mean(axis=0)
        missed += mean[result.best] < mean.max() - 1e-12
    assert_rate_at_most(missed, trials, delta)


@pytest.mark.parametrize("race", RACES)
def test_a_table_without_rows_is_refused(race):
    for order in ("random", "given"):
        with pytest.raises(ValueError, match="rewards has 0 rows: nothing tells the arms apart"):
            race(3, 100, 0.05, (0, 1)).run(np.zeros((0, 3)), order=order)


@pytest.mark.parametrize("support", [(0, 1), None])
def test_a_table_read_to_its_end_leaves_no_error(support, rng):
    first = np.repeat([0.0, 1.0], 300)
    near = np.where(np.arange(600) == 599, 1.0, first[::-1])
    result = fr.BettingRace(2, support=support).run(np.c_[first, near], rng=1)
    assert result.stopped_by == "exact" and result.best == 1 and result.error_bound == 0.0
    result = fr.BettingRace(3, support=support, first_look=None if support else 20).run(
        np.c_[first, near, 0.1 * first], rng=1)
    assert result.stopped_by == "exact" and result.pulls[2] < 600 and 0.0 < result.error_bound <= 0.05
