"""Races on streams by differences of rewards of the same round: equal to the twin, true to their promise."""

import math
import pickle

import numpy as np
import pytest

import fastrace as fr
from guarantee import assert_rate_at_most, few_or_many
from reference.duels import interval
from reference.stream_racing import race as twin
from stream_races import assert_same, shuffled


def correlated(rng, n_rows, means, sd=0.2, share=0.8):
    noise = math.sqrt(1 - share) * rng.normal(size=(n_rows, len(means)))
    noise += math.sqrt(share) * rng.normal(size=(n_rows, 1))
    return np.clip(means + sd * noise, 0, 1)


def test_what_rewards_of_a_round_have_in_common_does_not_count(seed):
    paired, single, finite = 0, 0, 0
    for k in range(4):
        rng = np.random.default_rng([seed, k])
        rewards = correlated(rng, 20_000, 0.7 - 0.04 * np.arange(8))
        result = fr.BettingRace(8, support=(0, 1)).run(rewards, rng=k)
        assert (result.best, result.stopped_by, result.verdict) == (0, "bound", ("better", *["worse"] * 7))
        paired += result.pulls.sum()
        single += fr.BettingRace(8, support=(0, 1), rule="brackets").run(rewards, rng=k).pulls.sum()
        finite += fr.FiniteRace(8, 20_000, support=(0, 1), rng=k).run(
            lambda arms, rows, rewards=rewards: rewards[np.ix_(rows, arms)]).pulls.sum()
    assert paired <= 1.2 * finite
    assert 3 * paired < single


@pytest.mark.parametrize("population", [False, True])
def test_more_arms_than_seats_equal_the_twin(population, seed):
    """Arms that begin badly have no seat at first: they take those of others, and their duels begin anew."""
    for k, n_best in enumerate((1, 35)):
        rng = np.random.default_rng([seed, k])
        rewards = np.clip(0.5 + 0.3 * (rng.random((70, 80)) - 0.5) + np.linspace(-0.2, 0.3, 80), 0, 1)
        rewards[:12] = rewards[:12, ::-1]
        given = shuffled(rewards, k) if population else rewards
        pulls, alive, chosen, rounds, why = twin("betting", given, None, 0.05, 0, 1, 0.1, n_best, population)
        race = fr.BettingRace(80, support=(0, 1), n_best=n_best, epsilon=0.1)
        assert race.__reduce__()[1][3]["duels"]["start"].size == (51 if n_best == 1 else 70)
        result = race.run(rewards, **({"rng": k} if population else {"order": "given"}))
        assert (result.pulls.tolist(), result.n_rounds, result.stopped_by) == (pulls.tolist(), rounds, why)
        assert result.active.tolist() == sorted([*alive, *chosen])
        again = fr.BettingRace(80, support=(0, 1), n_best=n_best, epsilon=0.1)
        for _ in range(10 if not population and rounds > 10 else 0):
            again.tell(rewards[again.n_rounds][again.active])
            again = pickle.loads(pickle.dumps(again))
        assert_same(again.run(rewards, **({"rng": k} if population else {"order": "given"})), result)


def test_a_race_saved_with_fewer_seats_goes_on_with_them(seed):
    """As one of 20 arms did that an earlier version saved, of which 16 had seats."""
    rewards = correlated(np.random.default_rng(seed), 4000, 0.7 - 0.02 * np.arange(20))
    race = fr.BettingRace(20, support=(0, 1))
    race.tell(rewards[:5])
    rebuild, (version, cls, known, state, order) = race.__reduce__()
    duels = state["duels"]
    assert duels["start"].size == 20
    size = duels["wealth"].size // 20
    fewer = duels | {"start": duels["start"][:16], "wealth": duels["wealth"][: 16 * size],
                     "sums": duels["sums"][:, :16], "seat": np.where(duels["seat"] < 16, duels["seat"], -1),
                     "turns": np.where(duels["seat"] < 16, 1, 0)}
    result = rebuild(version, cls, known, state | {"duels": fewer}, order).run(rewards[5:], order="given")
    assert result.best == 0 and result.stopped_by == "bound"
    for seats in (3, 15):
        with pytest.raises(ValueError, match="damaged"):
            rebuild(version, cls, known, state | {"duels": fewer | {"start": duels["start"][:seats]}}, order)


@pytest.mark.parametrize("n_best", [1, 2])
def test_an_accuracy_ends_a_race_of_near_ties(n_best, seed):
    rewards = correlated(np.random.default_rng(seed), 30_000, np.array([0.6, 0.599, 0.6, 0.3]))
    result = fr.BettingRace(4, support=(0, 1), n_best=n_best, epsilon=0.02).run(rewards, order="given")
    assert result.stopped_by == "epsilon" and result.verdict[3] == "worse"
    assert set(np.atleast_1d(result.best).tolist()) < {0, 1, 2}
    assert result.error_bound <= 0.05 and result.n_rounds < 3000
    exact = fr.BettingRace(4, support=(0, 1), n_best=n_best).run(rewards[:6000], order="given")
    assert exact.pulls.sum() > result.pulls.sum()
    wide = fr.BettingRace(4, 20_000, support=(0, 1), n_best=n_best, epsilon=1e-9).run(rewards, order="given")
    assert "not known yet" in wide.verdict


def test_intervals_of_differences_equal_the_twin(seed):
    rewards = correlated(np.random.default_rng(seed), 300, np.array([0.5, 0.45, 0.3]))
    result = fr.BettingRace(3, support=([0, 0, -1], [1, 2, 1])).run(rewards, order="given")
    for m in range(3):
        n, b = result.pulls[m], int(result.best)
        low, high = interval(rewards[:n, m], rewards[:n, b], [0, 0, -1][m] - [1, 2, 1][b], [1, 2, 1][m] - [0, 0, -1][b],
                             math.log(6 / 0.05)) if m != b else (0.0, 0.0)
        assert result.differences[m] == pytest.approx([low, high], abs=1e-9)
    assert result.error_bound <= 0.05


def hard_laws(rng, n):
    """Equal means, and differences that are rare, skewed, without a spread at first, or the same in all but one row."""
    common = rng.random((n, 1))
    yield np.repeat(common, 3, axis=1) * [1, 1, 0.9]
    yield (common < 0.5).astype(float) + 0.0 * rng.random((n, 3))
    yield np.clip(common + (rng.random((n, 3)) < 0.01) - 0.005, 0, 1)
    yield np.where(rng.random((n, 1)) < 0.5, (rng.random((n, 3)) < 0.02), 0.02 * np.ones((n, 3)))
    swapped = np.concatenate([common, 1 - common], axis=1)
    yield np.column_stack([swapped, 0.2 * common])


@pytest.mark.parametrize("law", ["coin", "rare", "alike", "uniform"])
@few_or_many("trials", 60, 600)
def test_the_error_bound_holds_at_any_time(law, trials, seed):
    """Stopped where it looks best in hindsight: equal arms, and only the last is called right."""
    x, wrong = 0.2, 0
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        u = rng.random((300, 3))
        rewards = {"coin": 1.0 * (u < 0.5), "rare": 1.0 * (u < 0.03), "uniform": u,
                   "alike": np.clip(rng.random((300, 1)) + (u < 0.05) - 0.025, 0, 1)}[law]
        race, hit = fr.BettingRace(3, delta=0.01, support=(0, 1)), False
        for limit in np.geomspace(4, 300, 12).astype(int):
            if not race.done:
                arms, rounds = race.ask(int(limit) - race.n_rounds)
                race.tell(rewards[np.ix_(rounds, arms)])
            result = race.result()
            hit |= result.error_bound <= x and result.best < 2
        wrong += hit
    assert_rate_at_most(wrong, trials, x)


@pytest.mark.parametrize("population", [False, True])
@few_or_many("trials", 40, 600)
def test_differences_keep_their_promise_on_hard_laws(population, trials, seed):
    delta, lost, missed, doubtful = 0.1, np.zeros(5), np.zeros(5), np.zeros(5)
    truth = [(0.5, 0.5, 0.45), (0.5, 0.5, 0.5), None, (0.02, 0.02, 0.02), (0.5, 0.5, 0.1)]
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        for k, rewards in enumerate(hard_laws(rng, 300)):
            means = np.array(truth[k]) if truth[k] and not population else rewards.mean(axis=0)
            if truth[k] is None and not population:
                continue
            race = fr.BettingRace(3, delta=delta, support=(0, 1))
            result = race.run(rewards[:250], order="given") if not population else race.run(
                rewards, rng=rng, max_pulls=600)
            best = np.flatnonzero(means >= means.max() - 1e-12)
            lost[k] += result.stopped_by == "bound" and result.best not in best
            lost[k] += population and not np.isin(best, result.active).any()
            gaps = means - means[result.best]
            lower, upper = result.differences.T
            missed[k] += not ((lower - 1e-9 <= gaps) & (gaps <= upper + 1e-9)).all()
            doubtful[k] += result.error_bound <= 0.02 and result.best not in best
    for k in range(5):
        assert_rate_at_most(lost[k], trials, delta)
        assert_rate_at_most(missed[k], trials, delta)
        assert_rate_at_most(doubtful[k], trials, 0.02)
