"""The interval of each mean in the result of a race."""

import copy
import pickle

import numpy as np
import pytest

import fastrace as fr
from guarantee import assert_rate_at_most

RULES = ("normal", "betting", "hoeffding-serfling", "empirical-bernstein-serfling", "serfling")


@pytest.mark.parametrize("variance", ["pairwise", "marginal"])
@pytest.mark.parametrize("bound", RULES)
def test_all_intervals_hold_their_means_as_often_as_promised(bound, variance, seed):
    if bound == "betting" and variance == "marginal":
        pytest.skip("bets are placed on paired differences only")
    trials, missed, shortest = 60, 0, np.inf
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        values = rng.random((4000, 6)) * 0.4 + 0.12 * np.arange(6)
        result = fr.race(values, 0.1, bound, support=(0, 1), variance=variance, rng=rng)
        mean = values.mean(axis=0)
        missed += not ((result.lower <= mean + 1e-9) & (mean - 1e-9 <= result.upper)).all()
        assert (result.lower <= result.mean).all() and (result.mean <= result.upper).all()
        whole = result.pulls == 4000
        assert (result.lower[whole] == result.upper[whole]).all()
        assert (result.lower[~whole] < result.upper[~whole]).all()
        shortest = min(shortest, (result.upper - result.lower)[~whole].min(initial=np.inf))
    assert_rate_at_most(missed, trials, 0.1)
    assert shortest < 1.5 or bound == "empirical-bernstein-serfling"       # which reads all of so few rows


@pytest.mark.parametrize("variance", ["pairwise", "marginal"])
def test_a_saved_race_keeps_its_intervals(variance, seed):
    values = np.random.default_rng(seed).random((3000, 5)) + 0.2 * np.arange(5)
    race = fr.FiniteRace(5, 3000, variance=variance, rng=seed)
    while not race.done:
        arms, rows = race.ask()
        race.tell(values[np.ix_(rows, arms)])
        for again in (copy.deepcopy(race), pickle.loads(pickle.dumps(race))):
            for name in ("lower", "upper"):
                np.testing.assert_array_equal(getattr(again.result(), name), getattr(race.result(), name))
    assert (race.result().upper - race.result().lower)[0] < 0.5


def test_an_interval_has_the_width_of_the_bound(seed):
    values = np.random.default_rng(seed).random((5000, 4)) * 0.5 + 0.15 * np.arange(4)
    source = fr.sources.ArraySource(values)
    race = fr.FiniteRace(4, 5000, 0.1, "hoeffding-serfling", support=(0, 1), rng=seed)
    result = race.run(source)
    looks = fr.bounds.looks(5000, 50, 2.0).size
    for arm in np.flatnonzero(result.pulls < 5000):
        expected = fr.bounds.hoeffding_serfling(result.pulls[arm], 5000, 0.1 / (2 * 4 * looks), (0, 1))
        assert result.upper[arm] - result.mean[arm] == pytest.approx(expected)


def test_before_the_first_look_an_interval_is_endless():
    result = fr.FiniteRace(3, 100).result()
    assert np.isnan(result.mean).all() and not (result.upper < np.inf).any()


def test_intervals_of_sums_hold_as_often_as_promised(seed):
    trials, missed = 60, 0
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        parts = [rng.random(size) * 0.6 for size in (2000, 1500, 500)]
        result = fr.race_sums(parts, None, 0.1, rng=rng)
        sums = np.array([part.sum() for part in parts])
        missed += not ((result.lower <= sums + 1e-6) & (sums - 1e-6 <= result.upper)).all()
    assert_rate_at_most(missed, trials, 0.1)
