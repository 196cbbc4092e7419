"""BettingRace with missing rewards: the same as the race on what is left, and true of the means over it."""

import math
import pickle

import numpy as np
import pytest

import fastrace as fr
from guarantee import assert_rate_at_most

KINDS = [{}, {"rule": "brackets"}, {"n_best": 2, "epsilon": 0.02}, {"support": None, "first_look": 50}]


def gappy(rng, n_rounds=4000, share=0.03, means=(0.3, 0.4, 0.5, 0.62)):
    """Rewards with a common part; the higher one is, the more often it is missing."""
    rewards = np.clip(np.array(means) + 0.1 * rng.standard_normal((n_rounds, 1))
                      + 0.1 * rng.standard_normal((n_rounds, len(means))), 0.0, 1.0)
    return np.where(rng.random(rewards.shape) < 4.0 * share * rewards ** 2, np.nan, rewards)


def make(missing, kind, **options):
    return fr.BettingRace(4, **({"support": (0, 1)} | kind | {"missing": missing} | options))


def same(found, plain):
    """All but what rounds cost and how many there were."""
    for name in ("best", "mean", "std", "lower", "upper", "differences", "error_bound", "stopped_by", "shortfall"):
        np.testing.assert_array_equal(getattr(found, name), getattr(plain, name), err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [1, 7, 500])
def test_dropped_rounds_leave_the_race_on_the_others(kind, batch, rng):
    rewards = gappy(rng)
    there = ~np.isnan(rewards).any(axis=1)
    plain = make("raise", kind).run(rewards[there], order="given")
    row_at_the_end = np.flatnonzero(there)[plain.n_rounds - 1] + 1 if plain.stopped_by != "" else 4000
    asked = []

    def stream(arms, rounds):
        assert arms.tolist() == [0, 1, 2, 3]
        asked.extend(rounds.tolist())
        return rewards[rounds]

    for found in (make("drop", kind).run(stream, batch, max_pulls=16_000),
                  make("drop", kind).run(rewards, order="given")):
        same(found, plain)
        assert (found.pulls == row_at_the_end).all() and found.n_rounds == plain.n_rounds
        assert found.n_dropped == row_at_the_end - plain.n_rounds > 0
        assert f"{found.n_dropped} rounds were dropped" in found.warnings[0]
    assert asked == list(range(len(asked))) and row_at_the_end <= len(asked) < row_at_the_end + batch


@pytest.mark.parametrize("kind", KINDS[:3])
def test_missing_rewards_that_are_the_worst_are_the_low_ends(kind, rng):
    rewards = gappy(rng)
    low = np.array([0.0, -0.1, -0.2, 0.0])
    kind = kind | {"support": (low, np.ones(4))}
    plain = make("raise", kind).run(np.where(np.isnan(rewards), low, rewards), order="given")
    found = make("worst", kind).run(rewards, order="given")
    same(found, plain)
    assert (found.pulls == plain.pulls).all() and found.n_missing > 0 and "low end" in found.warnings[0]
    shuffled = [make(missing, kind).run(table, rng=3) for missing, table in
                (("worst", rewards), ("raise", np.where(np.isnan(rewards), low, rewards)))]
    same(*shuffled)


@pytest.mark.parametrize("missing", ["drop", "worst"])
@pytest.mark.parametrize("kind", KINDS[:3])
def test_by_hand_and_pickled_on_the_way(missing, kind, rng):
    rewards = gappy(rng)
    plain = make(missing, kind).run(rewards, order="given")
    race, used = make(missing, kind), 0
    while not race.done:
        arms, rounds = race.ask(9)
        assert rounds[0] == used and (missing == "worst" or arms.size == 4)
        block = rewards[np.ix_(rounds, arms)]
        given = [[None if np.isnan(x) else x for x in row] for row in block.tolist()] if used % 2 else block
        used += race.tell(given)
        race = pickle.loads(pickle.dumps(race))
    same(race.result(), plain)
    assert (race.result().pulls == plain.pulls).all() and race.result().n_missing == plain.n_missing


def test_a_horizon_and_a_budget_count_dropped_rounds(rng):
    rewards = gappy(rng, means=(0.5, 0.5, 0.5, 0.5))
    for found in (make("drop", {}, horizon=300).run(rewards, order="given"),
                  make("drop", {}).run(rewards, order="given", max_pulls=1203)):
        assert found.pulls.tolist() == [300] * 4 and found.stopped_by in ("horizon", "max_pulls")
        assert found.n_rounds == 300 - found.n_dropped == 300 - np.isnan(rewards[:300]).any(axis=1).sum()
    race = make("drop", {}, horizon=300)
    assert race.tell(rewards[:1000]) == 300 and race.done and race.result().stopped_by == "horizon"
    race = make("drop", {}, horizon=3)
    assert race.tell(np.full((5, 4), np.nan)) == 3 and (race.result().n_dropped, race.result().n_missing) == (3, 12)


def test_a_bad_reward_changes_nothing_and_names_its_round(rng):
    rewards = np.full((60, 4), 0.5)
    rewards[10:20, 1] = np.nan
    rewards[40, 2] = 1.5
    race = make("drop", {})
    with pytest.raises(ValueError, match="arm 2 in round 40"):
        race.tell(rewards)
    assert race.result().pulls.sum() == 0 and race.result().n_missing == 0
    for batch in (1, 60):
        race = make("drop", {})
        with pytest.raises(ValueError, match="arm 2 in round 40"):
            race.run(lambda arms, rounds: rewards[rounds], batch)
        assert race.n_rounds == 30
        if batch == 1:                  # the only bad round of its call: three of its rewards are held
            assert [part.tolist() for part in race.pending] == [[2], [40]]
        race.tell(0.5, 2, 40)
        assert race.n_rounds == (31 if batch == 1 else 50) and race.ask()[1].tolist() == [41 if batch == 1 else 60]


@pytest.mark.parametrize("change", [
    ({"missing": "lose"}, "missing is 'lose'"), ({"missing": "worst", "support": None}, "low end of a support"),
])
def test_what_is_refused(change):
    options, said = change
    with pytest.raises(ValueError, match=said):
        fr.BettingRace(2, **({"support": (0, 1)} | options))
    with pytest.raises(ValueError, match="FiniteRace drops rows"):
        fr.BettingRace(2, support=(0, 1), missing="drop").run(np.zeros((5, 2)))
    with pytest.raises(ValueError, match="finite number"):
        fr.BettingRace(2, support=(0, 1)).tell([np.nan, 0.0])


@pytest.mark.parametrize("missing", ["drop", "worst"])
def test_the_answer_is_about_the_means_it_names(missing, seed):
    """Arm 0 is best where nothing is missing, and over all draws, but not in what `missing` is about."""
    trials, delta, wrong = 100, 0.1, 0
    right = 1 if missing == "worst" else 2
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)

        def stream(arms, rounds, rng=rng):
            hard = rng.random(len(rounds)) < 0.5
            rewards = rng.random((len(rounds), 3)) < np.where(hard[:, None], [0.36, 0.45, 0.0], [0.55, 0.45, 0.65])
            gone = np.zeros(rewards.shape, bool)
            gone[:, 0] = hard & (rng.random(len(rounds)) < 0.2)
            gone[:, 2] = hard
            return np.where(gone, np.nan, rewards)[:, arms]

        result = fr.BettingRace(3, delta=delta, support=(0, 1), missing=missing).run(stream, 50, max_pulls=60_000)
        wrong += result.stopped_by == "bound" and result.best != right
    assert_rate_at_most(wrong, trials, delta)


@pytest.mark.parametrize("last", [0, 30])
def test_an_arm_that_falls_silent_is_named(last):
    """All rounds would be dropped for ever."""
    rng = np.random.default_rng(3)

    def rewards(arms, rounds):
        table = (rng.random((len(rounds), len(arms))) < 0.5).astype(float)
        table[:, [place for place, arm in enumerate(arms) if arm == 1]] *= np.where(
            np.asarray(rounds)[:, None] < last, 1.0, math.nan)
        return table

    race, needed = fr.BettingRace(3, delta=1e-6, missing="drop", support=(0, 1)), 1000 if last else 5_000
    with pytest.raises(ValueError, match=rf"each of the last {needed} rounds, that of arm 1 in the last one"):
        race.run(rewards, batch=10)
    assert race.n_rounds == last and race.result().n_dropped == needed


def test_arms_that_are_all_silent_are_all_named_where_the_user_called():
    race = fr.BettingRace(3, missing="drop", support=(0, 1))
    with pytest.raises(ValueError, match=r"those of arms 0, 1, 2 in the last one"), \
            pytest.warns(RuntimeWarning, match="nothing is known yet") as said:
        race.run(lambda arms, rounds: np.full((len(rounds), len(arms)), math.nan))
    assert {warning.filename for warning in said} == {__file__}


@pytest.mark.parametrize(("whole", "needed"), [
    ([], 5_000), ([1], 10_000), ([12], 120_000), ([5, 12], 1200), ([5, 12, 60], 2000), ([1, 2, 3], 1000),
])
def test_how_long_a_silence_is_waited_for(whole, needed):
    """Longer where little has been heard. What is refused is not taken, however often it is told."""
    race, silent = fr.BettingRace(2, delta=1e-6, missing="drop", support=(0, 1)), np.array([0.5, math.nan])
    table = np.tile(silent, (max(whole, default=0), 1))
    table[[t - 1 for t in whole]] = 0.5
    race.tell(np.vstack([table, np.tile(silent, (needed - 1, 1))]))
    assert race.n_rounds == len(whole)
    told = len(table) + needed - 1
    for copy in (pickle.loads(pickle.dumps(race)), race):
        for _ in range(2):
            with pytest.raises(ValueError, match=rf"the last {needed} rounds, that of arm 1"):
                copy.tell(silent)
            assert copy.result().pulls.tolist() == [told] * 2 and copy.ask()[1].tolist() == [told]
        assert copy.tell([0.5, 0.5]) == 1 and copy.tell(silent) == 1 and copy.n_rounds == len(whole) + 1


def test_rounds_before_a_bad_reward_end_a_silence():
    """`run` keeps them."""
    race, table = fr.BettingRace(2, missing="drop", support=(0, 1)), np.full((3060, 2), 0.5)
    table[30:930, 1] = table[1000:, 1] = math.nan
    race.tell(table[:930])
    table[940] = 1.5
    with pytest.raises(ValueError, match="arm 0 in round 940"):
        race.run(lambda arms, rounds: table[rounds], 64)
    assert race.n_rounds == 40 and race.tell([0.5, math.nan], [0, 1], [940, 940]) == 54
    assert race.tell(np.repeat(table[-1:], 998, axis=0)) == 998 and race.result().n_dropped == 1899


def test_races_saved_before_silent_rounds_were_go_on():
    race = fr.BettingRace(2, missing="drop", support=(0, 1))
    race.tell(np.tile([[0.5, 0.5], [0.5, math.nan]], (50, 1)))
    call, (*arguments, state, order) = race.__reduce__()[:2]
    assert state.pop("silent") == 1
    old = call(*arguments, state, order)
    assert old.result().n_dropped == 50 and old.tell([0.5, math.nan]) == 1


@pytest.mark.parametrize("rate", [0.003, 0.01])
def test_rounds_that_are_rarely_whole_are_waited_for(rate, seed):
    trials, refused = 100, 0
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng, race = np.random.default_rng(child), fr.BettingRace(2, missing="drop", support=(0, 1))

        def stream(arms, rounds, rng=rng):
            return np.where(rng.random((len(rounds), 1)) < rate, np.asarray(arms) * 0.9, math.nan)

        try:
            assert race.run(stream, batch=200).best == 1
        except ValueError as error:
            refused += "no more becomes known" in str(error)
    assert_rate_at_most(refused, trials, 1 / 4000)
