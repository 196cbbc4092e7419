"""Races on streams are right as often as promised, and say what they promise."""

import math

import numpy as np
import pytest

import fastrace as fr
from guarantee import assert_rate_at_most, few_or_many
from stream_races import EXACT, RACES


def test_best_sets_are_found(seed):
    rewards = np.random.default_rng(seed).random((4000, 8)) * 0.3 + np.array([0.1, 0.6, 0.2, 0.55, 0.3, 0.5, 0.0, 0.15])
    for race in RACES:
        result = race(8, 4000, 0.05, (0, 1), n_best=3).run(rewards, order="given")
        assert np.atleast_1d(result.best).tolist() == [1, 3, 5]
        assert result.stopped_by == "bound"
        assert "selected arms" in result.promise


@pytest.mark.parametrize("race", RACES)
@pytest.mark.parametrize("law", ["bernoulli", "rare", "beta", "two-point", "constant"])
@few_or_many("trials", 100, 1000)
def test_no_best_arm_is_lost(race, law, trials, seed):
    """Arms 0 and 1 are equal and best, so any loss of either is an error.

    It refutes what is wrong by much, for one law or another. `contracts/test_true_errors.py` says how far below delta
    the error of Hoeffding and Bernstein races is, and holds them to that.
    """
    delta, lost = 0.2, 0
    means = np.array([0.5, 0.5, 0.45, 0.3])
    for child in np.random.SeedSequence([seed, len(law)]).spawn(trials):
        rng = np.random.default_rng(child)
        if law == "bernoulli":
            rewards = (rng.random((800, 4)) < means).astype(float)
        elif law == "rare":
            rewards = (rng.random((800, 4)) < 0.05 * means).astype(float)
        elif law == "beta":
            rewards = rng.beta(0.5, 0.5 * (1 - means) / means, (800, 4))
        elif law == "two-point":
            rewards = np.where(rng.random((800, 4)) < 0.5, 0.0, 2 * means)
        else:
            rewards = np.tile(means, (800, 1))
        result = race(4, 800, delta, (0, 1)).run(rewards, order="given")
        lost += not {0, 1} <= set(result.active.tolist())
    assert_rate_at_most(lost, trials, delta)


def test_betting_brackets_hold_at_all_times(seed):
    # The union of all rounds and arms, and of both sides: the strongest form of the promise.
    trials, delta, missed = 300, 0.2, 0
    means = np.array([0.02, 0.5, 0.52])
    for child in np.random.SeedSequence(seed).spawn(trials):
        rewards = (np.random.default_rng(child).random((400, 3)) < means).astype(float)
        result = fr.BettingRace(3, 400, delta, (0, 1)).run(rewards, order="given")   # brackets are running
        missed += not ((result.lower <= means) & (means <= result.upper)).all()
    assert_rate_at_most(missed, trials, delta)


@pytest.mark.parametrize("race", RACES)
def test_epsilon_best_is_within_epsilon(race, seed):
    trials, delta, epsilon, missed = 100, 0.1, 0.1, 0
    means = np.array([0.5, 0.55, 0.35])
    for child in np.random.SeedSequence(seed).spawn(trials):
        rewards = np.clip(means + 0.4 * (np.random.default_rng(child).random((6000, 3)) - 0.5), 0, 1)
        result = race(3, 6000, delta, (0, 1), epsilon=epsilon).run(rewards, order="given")
        assert result.stopped_by in ("epsilon", "bound")
        missed += means[result.best] < 0.55 - epsilon
    assert_rate_at_most(missed, trials, delta)
    exact = race(3, 6000, delta, (0, 1)).run(rewards, order="given")
    assert result.pulls.sum() < exact.pulls.sum()


@pytest.mark.parametrize("race", EXACT)
def test_what_is_promised_when_the_horizon_ends(race, seed):
    rng = np.random.default_rng(seed)
    means = np.array([0.5, 0.49, 0.3, 0.1])
    rewards = np.clip(means + 0.2 * (rng.random((3000, 4)) - 0.5), 0, 1)
    result = race(4, 3000, 0.05, (0, 1)).run(rewards, order="given")
    assert result.stopped_by == "horizon"
    left, gone = result.active, np.setdiff1d(np.arange(4), result.active)
    # Survivors lack at most what the brackets say, and those say no more than the theorem.
    assert (means.max() - means[left] <= result.shortfall[left]).all()
    assert (result.shortfall[left] <= result.promised_gap[left]).all()
    assert np.isnan(result.shortfall[gone]).all() and np.isnan(result.promised_gap[gone]).all()
    assert gone.size >= result.promised_drops
    if race is fr.HoeffdingRace:
        share = math.log(2 * 4 * 3000 / 0.05)
        assert np.allclose(result.promised_gap[left], 4 * math.sqrt(share / 6000))
        gaps = np.sort(result.mean[result.best] - result.mean)[::-1]
        needed = [math.ceil(8 * share / gap**2) for gap in gaps if gap > 0]
        wanted = max(d for d in range(4) if 2 * sum(needed[:d]) <= result.pulls.sum())
    else:
        share = math.log(4 * 4 * 3000 / 0.05)
        both = result.std + result.std[result.best]
        assert np.allclose(result.promised_gap[left], both[left] * math.sqrt(8 * share / 3000) + 12 * share / 3000)
        gap = result.mean[result.best] - result.mean
        terms = (8 * both**2 + 18 * gap)[gap > 0] / gap[gap > 0] ** 2 * share
        needed = sorted(math.ceil(term) for term in terms)
        wanted = max(d for d in range(4) if 2 * sum(needed[:d]) <= result.pulls.sum())
    assert result.promised_drops == wanted > 0
    assert "had to leave" in result.promise


@pytest.mark.parametrize("race", [fr.HoeffdingRace, fr.BernsteinRace])
def test_nothing_is_promised_beforehand_of_several_best_arms(race, seed):
    """The theorems are about one best arm: two arms tied for the second place never leave, far as they are from it."""
    rewards = np.random.default_rng(seed).random((4000, 3)) < [0.9, 0.2, 0.2]
    result = race(3, 4000, 0.05, (0, 1), n_best=2).run(rewards.astype(float), order="given")
    assert result.stopped_by == "horizon" and result.active.size == 3
    assert np.isnan(result.promised_gap).all() and result.promised_drops == 0
    assert "had to leave" not in result.promise


def test_an_empty_bracket_ends_the_race_as_inconsistent():
    rewards = np.concatenate([np.zeros((300, 2)), np.ones((300, 2))])
    result = fr.BettingRace(2, support=(0, 1)).run(rewards, order="given")
    assert result.stopped_by == "inconsistent"
    assert "a bracket became empty" in result.warnings[0]
    assert result.promise.startswith("none")
    assert result.n_rounds < 600
