"""Races on streams: equal to testing every bound after every round, with their promise, and undisturbed by faults."""

import copy
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest

import ctrl_c
import fastrace as fr
from fastrace._draws._row_order import RowOrder
from fastrace.sources import CallableSource
from guarantee import assert_rate_at_most, few_or_many
from reference.duels import interval
from reference.stream_racing import race as twin

RACES = [fr.HoeffdingRace, fr.BernsteinRace, fr.BettingRace]
EXACT = RACES[:2]


def drive(race, rewards, batch=1):
    while not race.done and race.n_rounds < len(rewards):
        arms, rounds = race.ask(min(batch, len(rewards) - race.n_rounds))
        race.tell(rewards[np.ix_(rounds, arms)])
    return race.result()


def same(a, b):
    assert (a.stopped_by, a.n_rounds) == (b.stopped_by, b.n_rounds)
    for name in ("best", "pulls", "active", "mean", "std", "lower", "upper", "shortfall"):
        assert np.array_equal(getattr(a, name), getattr(b, name), equal_nan=True), name


def equals_twin(race, result, rewards, horizon, support, epsilon, n_best):
    pulls, alive, chosen, rounds, why = twin(race._bound, rewards, horizon, 0.05, *support, epsilon, n_best)
    assert result.pulls.tolist() == pulls.tolist()
    assert result.active.tolist() == sorted([*alive, *chosen])
    assert (result.n_rounds, result.stopped_by) == (rounds, why)


def golden_stream(t, m):
    return np.modf(t * 0.6180339887498949 + 0.37 * m)[0]


@pytest.fixture(scope="module")
def golden():
    t = np.arange(1, 4001)
    bases, widths = (0.5, 0.48, 0.45, 0.4, 0.3), (0.1, 0.1, 0.3, 0.6, 0.6)
    streams = enumerate(zip(bases, widths, strict=True))
    return np.stack([b + w * (golden_stream(t, m) - 0.5) for m, (b, w) in streams], axis=1)


@pytest.mark.parametrize(("race", "epsilon", "pulls", "active", "why"), [
    (fr.HoeffdingRace, 0.0, [4000, 4000, 4000, 2720, 679], [0, 1, 2], "horizon"),
    (fr.BernsteinRace, 0.0, [4000, 4000, 2261, 1215, 548], [0, 1], "horizon"),
    (fr.BernsteinRace, 0.05, [1950, 1950, 1950, 1215, 548], [0, 1, 2], "epsilon"),
])
def test_known_answers(golden, race, epsilon, pulls, active, why):
    result = race(5, 4000, 0.05, (0, 1), epsilon=epsilon).run(golden, order="given")
    assert result.pulls.tolist() == pulls
    assert result.active.tolist() == active
    assert (result.best, result.stopped_by) == (0, why)
    assert result.work_saved == 1 - sum(pulls) / 20000


def test_bets_need_far_fewer_rewards(golden):
    result = fr.BettingRace(5, support=(0, 1)).run(golden, order="given")
    assert (result.best, result.stopped_by) == (0, "bound")
    assert result.pulls.sum() * 6 < 12024


@pytest.mark.parametrize("race", RACES)
@pytest.mark.parametrize("n_best", [1, 3])
@few_or_many("tables", 12, 100)
def test_every_drop_equals_the_plain_twin(race, n_best, tables, seed):
    for k in range(tables):
        rng = np.random.default_rng([seed, k])
        n_arms, n_rows = int(rng.integers(n_best, 9)), int(rng.choice([1, 64, 200, 400]))
        noise = rng.choice([0.02, 0.3, 1.0])
        rewards = np.clip(rng.random(n_arms) + noise * (rng.random((n_rows, n_arms)) - 0.5), 0, 1)
        if k % 3 == 0:
            rewards = np.round(rewards, 1)      # ties
        support = (0, 1) if k % 2 else (-0.5 * rng.random(n_arms), 1 + rng.random(n_arms))
        epsilon = float(rng.choice([0.0, 0.1, 0.3])) if n_best == 1 else 0.0
        horizon = int(rng.choice([n_rows, n_rows + 5, max(n_rows // 2, 1)]))
        result = race(n_arms, horizon, 0.05, support, epsilon=epsilon, n_best=n_best).run(rewards, order="given")
        equals_twin(race, result, rewards, horizon, support, epsilon, n_best)


@pytest.mark.parametrize("race", EXACT)
def test_several_best_arms_are_found_by_brackets_intersected_over_time(race, seed):
    # The brackets of the last round alone would take more rewards. Hundreds of blocks equal single rounds.
    rng = np.random.default_rng(seed)
    rewards = (rng.random((6000, 12)) < np.linspace(0.9, 0.1, 12)).astype(float)
    result = race(12, 6000, 0.05, (0, 1), n_best=5).run(rewards, order="given")
    equals_twin(race, result, rewards, 6000, (0, 1), 0.0, 5)
    same(result, drive(race(12, 6000, 0.05, (0, 1), n_best=5), rewards))
    for arm in range(12):
        assert result.lower[arm] <= result.mean[arm] <= result.upper[arm]


@pytest.mark.parametrize("race", EXACT)
@pytest.mark.parametrize("batch", [1, 100])
def test_an_empty_intersection_ends_a_race_for_several_arms(race, batch):
    # Four equal arms, of which no bound can tell two: but their mean moves.
    rewards = np.repeat([1.0, 0.0], [2000, 4000])[:, None] * np.ones(4)
    result = drive(race(4, 6000, 0.05, (0, 1), n_best=2), rewards, batch)
    assert result.stopped_by == "inconsistent"
    assert 2000 < result.n_rounds < 6000
    assert "a bracket became empty" in result.promise
    same(result, race(4, 6000, 0.05, (0, 1), n_best=2).run(rewards, order="given"))


@pytest.mark.parametrize("race", EXACT)
def test_blocks_that_cannot_decide_are_told_from_those_that_can(race, seed):
    # Many arms leave at many different rounds, over hundreds of blocks: testing round by round is the judge.
    rng = np.random.default_rng(seed)
    rewards = np.clip(np.linspace(0.2, 0.8, 60) + 0.3 * (rng.random((12000, 60)) - 0.5), 0, 1)
    result = race(60, 12000, 0.05, (0, 1)).run(rewards, order="given")
    assert len(set(result.pulls)) > 25
    same(result, drive(race(60, 12000, 0.05, (0, 1)), rewards))


@pytest.mark.parametrize("race", RACES)
@pytest.mark.parametrize("n_best", [1, 2])
def test_ask_tell_equals_run_in_any_blocks(race, n_best, seed):
    rewards = np.random.default_rng(seed).random((2000, 6)) ** np.linspace(0.4, 3, 6)
    wanted = race(6, 2000, 0.05, (0, 1), n_best=n_best).run(rewards, order="given")
    for batch in (1, 7, 64, 100, 2000):
        same(drive(race(6, 2000, 0.05, (0, 1), n_best=n_best), rewards, batch), wanted)
    part = race(6, 2000, 0.05, (0, 1), n_best=n_best)
    for end in (5, 64, 150, 151, 2000):
        result = part.run(rewards[:end], order="given")
    same(result, wanted)


@pytest.mark.parametrize("race", RACES)
def test_every_kind_of_source_gives_the_same_race(race, seed):
    rewards = np.random.default_rng(seed).random((1500, 5)).astype("f4") * np.linspace(0.3, 1, 5, dtype="f4")
    wanted = race(5, 1500, 0.05, (0, 1)).run(rewards.astype(np.float64), order="given")
    wide = np.zeros((3000, 10), dtype=np.float32)
    wide[::2, ::2] = rewards
    read_only = rewards.copy()
    read_only.setflags(write=False)
    for table in (rewards, np.asfortranarray(rewards), wide[::2, ::2], read_only, rewards.astype(">f8"),
                  rewards[::-1].copy()[::-1], rewards.tolist()):
        same(race(5, 1500, 0.05, (0, 1)).run(table, order="given"), wanted)
    asked = []

    def function(arms, rows):
        asked.append((len(arms), len(rows)))
        return rewards[np.ix_(rows, arms)].astype(np.float64)

    for batch in (1, 50, 10000):
        same(race(5, 1500, 0.05, (0, 1)).run(function, batch=batch), wanted)
        same(race(5, 1500, 0.05, (0, 1)).run(CallableSource(function, 5, 1500), batch, order="given"), wanted)
    asked.clear()
    race(5, 1500, 0.05, (0, 1)).run(function)
    assert sum(arms * rows for arms, rows in asked) == wanted.pulls.sum()      # nothing is paid for that is not used


# Tables in random order

def shuffled(rewards, seed):
    """The rows in the order in which a race with this seed reads them."""
    return rewards[RowOrder(len(rewards), np.random.default_rng(seed)).take(len(rewards))]


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
            same(one.run(rewards), wanted)
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
    same(part.run(rewards), wanted)
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
def test_one_arm_and_all_arms(race):
    result = race(1, 100, 0.05, (0, 1)).run(np.ones((100, 1)))
    assert (result.best, result.stopped_by, result.n_rounds, result.pulls.sum()) == (0, "single", 0, 0)
    assert "there is one arm only" in str(result)
    result = race(3, 100, 0.05, (0, 1), n_best=3).result()
    assert (np.atleast_1d(result.best).tolist(), result.stopped_by, result.n_rounds) == ([0, 1, 2], "single", 0)


@pytest.mark.parametrize("race", RACES)
def test_ties_stay_to_the_horizon(race, seed):
    rewards = np.repeat(np.random.default_rng(seed).random((900, 1)), 3, axis=1)
    rewards[:, 1] *= 0.1
    result = race(3, 900, 0.05, (0, 1)).run(rewards, order="given")
    assert (result.stopped_by, result.n_rounds, result.best) == ("horizon", 900, 0)
    (spent,) = result.warnings
    assert spent.startswith("horizon was reached: best is the arm with the largest mean so far")
    assert f"among the {result.active.size} that" in spent and f"warning: {spent}" in str(result)
    assert result.active.tolist() == [0, 2]
    result = race(4, 50, 0.05, (0, 1)).run(np.full((50, 4), 0.25), order="given")
    assert (result.stopped_by, result.active.size, result.work_saved) == ("horizon", 4, 0.0)


def test_constant_rewards_separate_by_the_range_term():
    rewards = np.full((4000, 3), 0.2)
    rewards[:, 1] = 0.7
    result = fr.BernsteinRace(3, 4000, 0.05, (0, 1)).run(rewards, order="given")
    share = math.log(3 * 3 * 4000 / 0.05)
    assert result.pulls.tolist() == [math.floor(6 * share / 0.5) + 1] * 3       # 2 (3 R L / t) < gap
    assert (result.std < 1e-12).all()
    bets = fr.BettingRace(3, support=(0, 1)).run(rewards, order="given")
    assert (bets.best, bets.stopped_by) == (1, "bound")
    assert bets.n_rounds < 40


@pytest.mark.parametrize("race", RACES)
@pytest.mark.parametrize(("a", "b"), [(0, 10), (-5, 5), (1e6, 1e6 + 1), (-1e-6, 1e-6)])
def test_affine_invariance(race, a, b, seed):
    rewards = np.random.default_rng(seed).integers(0, 1 << 20, (1500, 5)) / float(1 << 20) * np.linspace(0.3, 1, 5)
    plain = race(5, 1500, 0.05, (0, 1)).run(rewards, order="given")
    mapped = race(5, 1500, 0.05, (a, b)).run(a + (b - a) * rewards, order="given")
    assert abs(mapped.pulls - plain.pulls).max() <= (0 if abs(a) < 100 else 1)
    assert np.allclose((mapped.mean - a) / (b - a), plain.mean, atol=1e-9 + 1e-15 * abs(a) / (b - a))


@pytest.mark.parametrize("race", RACES)
def test_permuted_arms_give_permuted_answers(race, seed):
    rng = np.random.default_rng(seed)
    rewards = rng.random((1500, 7)) * np.linspace(0.3, 1, 7)
    order = rng.permutation(7)
    for n_best in (1, 3):
        plain = race(7, 1500, 0.05, (0, 1), n_best=n_best).run(rewards, order="given")
        moved = race(7, 1500, 0.05, (0, 1), n_best=n_best).run(rewards[:, order], order="given")
        assert np.array_equal(moved.pulls, plain.pulls[order])
        assert sorted(order[np.atleast_1d(moved.best)]) == np.sort(np.atleast_1d(plain.best)).tolist()


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
    # Arms 0 and 1 are equal and best, so any loss of either is an error.
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
    same(bad_race.result(), before)
    with pytest.raises(ValueError, match=r"arm 1 in round 70"):
        bad_race.run(spoilt, order="given")
    assert bad_race.n_rounds == 70                  # all that came before was used
    with pytest.raises(ValueError, match=r"arm 1 in round 70"):
        bad_race.run(lambda arms, rows: spoilt[np.ix_(rows, arms)], batch=30)
    assert bad_race.n_rounds == 70
    same(bad_race.run(rewards, order="given"), wanted)


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
        same(broken.run(rewards, order="given"), wanted)


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
            same(again.result(), part.result())
            same(again.run(rewards, order="given"), wanted)
        same(part.run(rewards, order="given"), wanted)
    over = pickle.loads(pickle.dumps(part))
    assert over.done
    same(over.result(), wanted)
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
    with pytest.raises(ValueError, match="n_rounds is 0"):
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


def test_long_races_keep_their_accuracy():
    # A mean far from zero beside a small variance, over many blocks.
    rewards = np.broadcast_to(np.float64(1e9 + 0.1), (1 << 22, 2))
    result = fr.BernsteinRace(2, 1 << 22, 0.05, (1e9, 1e9 + 1)).run(rewards, order="given")
    assert (result.mean == 1e9 + 0.1).all()
    assert (result.std < 1e-6).all()
    assert result.n_rounds == 1 << 22


def test_results_print_and_plot(seed):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    pandas = pytest.importorskip("pandas")
    rewards = np.random.default_rng(seed).random((500, 12)) * np.linspace(0.3, 1, 12)
    frame = pandas.DataFrame(rewards, columns=[f"arm{i}" for i in range(12)])
    for race in RACES:
        result = race(12, 500, 0.05, (0, 1)).run(frame)
        text = str(result)
        assert "arm11" in text and "2 more arms" in text and "promise:" in text
        assert result.plot()[0].get_xlabel() == "mean reward and interval"
        assert "after" in repr(race(12, 500, 0.05, (0, 1)))


def test_selection_in_ranks(seed):
    # The k-th largest, ties and all, through races that need it: equal lower bounds must not confuse it.
    rng = np.random.default_rng(seed)
    rewards = rng.integers(0, 2, (300, 9)) * np.linspace(0.2, 1, 9)
    for n_best in range(1, 9):
        result = fr.HoeffdingRace(9, 300, 0.05, (0, 1), n_best=n_best).run(rewards, order="given")
        equals_twin(fr.HoeffdingRace, result, rewards, 300, (0, 1), 0.0, n_best)


@pytest.mark.parametrize("race", RACES)
def test_a_table_without_rows_is_refused(race):
    for order in ("random", "given"):
        with pytest.raises(ValueError, match="rewards has 0 rows: nothing tells the arms apart"):
            race(3, 100, 0.05, (0, 1)).run(np.zeros((0, 3)), order=order)


@pytest.mark.parametrize("kind", [fr.HoeffdingRace, fr.BernsteinRace, fr.BettingRace])
def test_brackets_stay_within_the_support(kind):
    low, high = [0.0, -1.0, 2.0], [1.0, 1.0, 3.0]
    race = kind(3, 300, support=(low, high))
    while not race.done and race.result().n_rounds < 5:
        race.ask()
        race.tell([[0.5, 0.9, 2.1]])
        result = race.result()
        assert (low <= result.lower).all() and (result.upper <= high).all()
        assert (result.lower < result.mean).all() and (result.mean < result.upper).all()
        assert np.nanmax(result.shortfall) <= 4.0


# Differences of rewards of the same round

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
    for k, n_best in enumerate((1, 9)):
        rng = np.random.default_rng([seed, k])
        rewards = np.clip(0.5 + 0.3 * (rng.random((70, 22)) - 0.5) + np.linspace(-0.2, 0.3, 22), 0, 1)
        rewards[:12] = rewards[:12, ::-1]
        given = shuffled(rewards, k) if population else rewards
        pulls, alive, chosen, rounds, why = twin("betting", given, None, 0.05, 0, 1, 0.1, n_best, population)
        race = fr.BettingRace(22, support=(0, 1), n_best=n_best, epsilon=0.1)
        result = race.run(rewards, **({"rng": k} if population else {"order": "given"}))
        assert (result.pulls.tolist(), result.n_rounds, result.stopped_by) == (pulls.tolist(), rounds, why)
        assert result.active.tolist() == sorted([*alive, *chosen])
        again = fr.BettingRace(22, support=(0, 1), n_best=n_best, epsilon=0.1)
        for _ in range(10 if not population and rounds > 10 else 0):
            again.tell(rewards[again.n_rounds][again.active])
            again = pickle.loads(pickle.dumps(again))
        same(again.run(rewards, **({"rng": k} if population else {"order": "given"})), result)


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


@pytest.mark.parametrize("race", RACES)
def test_a_budget_stops_a_race_that_may_go_on(race, seed):
    rewards = np.random.default_rng(seed).random((3000, 5)) * [0.6, 0.7, 0.8, 0.9, 1.0]
    wanted = race(5, 3000, 0.05, (0, 1)).run(rewards, order="given")
    for pay in (lambda: rewards, lambda: lambda arms, rounds: rewards[np.ix_(rounds, arms)]):
        part = race(5, 3000, 0.05, (0, 1))
        spent = 0
        for budget in (0, 3, 57, 400, int(wanted.pulls.sum()) - 1):
            result = part.run(pay(), batch=9, max_pulls=budget, order="given")
            assert result.stopped_by == "max_pulls" and not part.done
            assert spent <= result.pulls.sum() <= budget < result.pulls.sum() + result.active.size
            assert "max_pulls was reached" in result.warnings[0]
            assert len(result.verdict) == 5 and result.differences.shape == (5, 2)
            spent = result.pulls.sum()
            part = pickle.loads(pickle.dumps(part))
        same(part.run(pay(), order="given"), wanted)
    with pytest.raises(ValueError, match="max_pulls is -1"):
        part.run(rewards, max_pulls=-1)


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


def test_a_race_saved_before_there_were_rules_goes_on_by_brackets(seed):
    rewards = np.random.default_rng(seed).random((900, 3)) * [0.8, 0.9, 1.0]
    wanted = fr.BettingRace(3, support=(0, 1), rule="brackets").run(rewards, order="given")
    part = fr.BettingRace(3, support=(0, 1), rule="brackets")
    part.run(rewards[:40], order="given")
    rebuild, (version, cls, known, state, order) = part.__reduce__()
    again = rebuild(version, cls, known[:-1], state, order)
    same(again.run(rewards, order="given"), wanted)
    pulls, *_ = twin("betting", rewards, None, 0.05, 0, 1, rule="brackets")
    assert wanted.pulls.tolist() == pulls.tolist()
    rebuild, (version, cls, known, state, order) = fr.BettingRace(3, support=(0, 1)).__reduce__()
    for name in ("seat", "sums", "wealth"):
        duels = state["duels"] | {name: state["duels"][name][:-1]}
        with pytest.raises(ValueError, match="damaged"):
            rebuild(version, cls, known, state | {"duels": duels}, order)
    with pytest.raises(ValueError, match="damaged"):
        rebuild(version, cls, known, state | {"duels": state["duels"] | {"seat": np.array([0, 0, 1])}}, order)


@pytest.mark.parametrize("order", ["random", "given"])
@pytest.mark.parametrize("build", [
    lambda **more: fr.BettingRace(4, None, 0.05, (0, 1), **more),
    lambda **more: fr.BernsteinRace(4, 20_000, 0.05, (0, 1), n_best=2, **more),
    lambda **more: fr.HoeffdingRace(4, 20_000, 0.05, (0, 1), **more)])
def test_costs_are_added_up_and_progress_changes_nothing(build, order, capsys):
    pytest.importorskip("rich")
    values = 0.6 * np.random.default_rng(0).random((20_000, 4)) + [0.0, 0.1, 0.2, 0.4]
    plain = build().run(values, order=order, rng=1)
    race = build(cost=[1, 2, 3, 4])
    found = race.run(values, order=order, rng=1, progress=True)
    assert f"{found.n_read}/" in capsys.readouterr().err
    assert plain.cost is None and found.cost == found.pulls @ [1, 2, 3, 4] and f"cost {found.cost:g}" in str(found)
    assert replace(found, cost=None) == plain
    assert pickle.loads(pickle.dumps(race)).result() == found
    calls = []

    def function(arms, rows):
        calls.append(len(rows))
        return values[np.ix_(rows, arms)]

    batches = [(build().run(function, 7, progress=shown).n_read, calls[:], calls.clear()) for shown in (False, True)]
    assert batches[0][0] == batches[1][0]
    cut = build().run(values, max_pulls=81, order=order, rng=1, progress=True)
    assert cut.stopped_by == "max_pulls" and cut.n_read == 80
    short = build().run(values[:10], order="given", progress=True)
    assert short.stopped_by == "" and short.n_rounds == 10
    with pytest.raises(ValueError, match="cost"):
        build(cost=[1, 2])
