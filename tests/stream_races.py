"""Races on streams: their classes, and what several files of their tests share."""

import numpy as np

import fastrace as fr
from fastrace._draws._row_order import RowOrder
from reference.stream_racing import race as twin

RACES = [fr.HoeffdingRace, fr.BernsteinRace, fr.BettingRace]
EXACT = RACES[:2]


def drive(race, rewards, batch=1):
    while not race.done and race.n_rounds < len(rewards):
        arms, rounds = race.ask(min(batch, len(rewards) - race.n_rounds))
        race.tell(rewards[np.ix_(rounds, arms)])
    return race.result()


def assert_same(result, other):
    assert (result.stopped_by, result.n_rounds) == (other.stopped_by, other.n_rounds)
    for name in ("best", "pulls", "active", "mean", "std", "lower", "upper", "shortfall"):
        assert np.array_equal(getattr(result, name), getattr(other, name), equal_nan=True), name


def assert_equals_twin(race, result, rewards, horizon, support, epsilon, n_best):
    pulls, alive, chosen, rounds, why = twin(race._bound, rewards, horizon, 0.05, *support, epsilon, n_best)
    assert result.pulls.tolist() == pulls.tolist()
    assert result.active.tolist() == sorted([*alive, *chosen])
    assert (result.n_rounds, result.stopped_by) == (rounds, why)


def shuffled(rewards, seed):
    """The rows in the order in which a race with this seed reads them."""
    return rewards[RowOrder(len(rewards), np.random.default_rng(seed)).take(len(rewards))]
