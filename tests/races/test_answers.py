"""What a race is asked for and answers: near ties, several best arms, differences, errors."""

import copy
import pickle

import numpy as np
import pytest

import fastrace as fr
import fastrace.control_variates
from by_hand import drive, drive_saved
from guarantee import assert_rate_at_most, few_or_many
from reference import racing as twin
from reference.draws import Order

RULES = ("normal", "betting", "hoeffding-serfling", "empirical-bernstein-serfling", "serfling")


@pytest.mark.parametrize("bound", RULES)
@pytest.mark.parametrize("variance", ["pairwise", "marginal"])
@pytest.mark.parametrize("n_best", [1, 2, 3])
def test_near_ties_and_several_best_arms_equal_the_twin(bound, variance, n_best, seed):
    if bound == "betting" and variance == "marginal":
        pytest.skip("bets are placed on paired differences only")
    ends = set()
    for child in np.random.SeedSequence([seed, n_best]).spawn(2 if bound == "betting" else 10):
        rng = np.random.default_rng(child)
        values = np.clip(rng.normal(0.5, 0.1, (400, 5)) + 0.03 * rng.integers(0, 5, 5), 0, 1)
        offset, epsilon = rng.normal(size=5), float(rng.choice([0.0, 0.02, 0.1]))
        race = fr.FiniteRace(5, 400, 0.1, bound, variance, 20, support=(0, 1), offset=offset, epsilon=epsilon,
                             n_best=n_best, rng=copy.deepcopy(rng))
        looks, quantiles, log_inv_delta = race._options.plan(5)
        ours = race.run(values)
        theirs = twin.race(values, looks, quantiles, log_inv_delta, bound=bound, pairwise=variance == "pairwise",
                           order=Order(400), rng=rng, offset=offset, low=np.zeros(5), high=np.ones(5), tails=True,
                           epsilon=epsilon, n_best=n_best)
        assert (ours.stopped_by, ours.n_looks) == (theirs.stopped_by, theirs.n_looks)
        np.testing.assert_array_equal(ours.best, theirs.best)
        np.testing.assert_array_equal(ours.pulls, theirs.pulls)
        np.testing.assert_array_equal(np.sort(ours.active), theirs.active)
        ends.add(ours.stopped_by)
    assert len(ends) > 1 or bound != "normal"


@pytest.mark.parametrize("options", [{}, {"epsilon": 0.03}, {"n_best": 2}, {"n_best": 2, "epsilon": 0.03}])
@pytest.mark.parametrize("bound", ["normal", "betting", "serfling"])
def test_by_hand_and_saved_anywhere_is_the_same_race(bound, options, rng):
    values = np.clip(rng.normal(0.5, 0.1, (3000, 4)) + [0.0, 0.02, 0.05, 0.05], 0, 1)
    whole = fr.FiniteRace(4, 3000, 0.1, bound, support=(0, 1), rng=3, **options).run(values)
    race = fr.FiniteRace(4, 3000, 0.1, bound, support=(0, 1), rng=3, **options)
    assert drive_saved(race, values).result() == whole
    assert pickle.loads(pickle.dumps(whole)) == whole


@few_or_many("trials", 60, 600)
@pytest.mark.parametrize(("bound", "n_best"), [("betting", 1), ("betting", 2), ("normal", 1), ("serfling", 2)])
def test_an_answer_within_epsilon_is_wrong_as_seldom_as_promised(bound, n_best, trials, seed):
    delta, epsilon, wrong, early = 0.1, 0.02, 0, 0
    for child in np.random.SeedSequence([seed, n_best]).spawn(trials):
        rng = np.random.default_rng(child)
        values = (rng.random((4000, 5)) < 0.5 + np.array([0.0, 0.0, 0.015, 0.025, 0.04]) * rng.choice([0.5, 1])) * 1.0
        result = fr.race(values, delta, bound, support=(0, 1), epsilon=epsilon, n_best=n_best, cost=1.0, rng=rng)
        means = values.mean(axis=0)
        wrong += means[result.best].min() < np.sort(means)[-n_best] - epsilon
        early += result.stopped_by == "epsilon"
        assert result.error_bound <= delta
    assert early > 0
    assert_rate_at_most(wrong, trials, delta)


@few_or_many("trials", 150, 2000)
@pytest.mark.parametrize("bound", ["betting", "normal", "serfling"])
def test_the_error_bound_is_a_p_value_whenever_the_race_is_cut(bound, trials, seed):
    """An answer that is wrong has a small bound as seldom as the bound says, over the whole race."""
    low = {0.02: 0, 0.1: 0, 0.3: 0}
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        values = rng.random((600, 3)) + np.array([0.0, 0.002, 0.004])
        race = fr.FiniteRace(3, 600, 0.3, bound, support=(0, 1.1), first_look=20, rng=rng)
        best, least = values.mean(axis=0).argmax(), 1.0
        while not race.done:
            arms, rows = race.ask()
            race.tell(values[np.ix_(rows, arms)])
            result = race.result()
            if result.best != best:
                least = min(least, result.error_bound)
        for level in low:
            low[level] += least <= level
    for level, count in low.items():
        assert_rate_at_most(count, trials, level)


@few_or_many("trials", 60, 600)
@pytest.mark.parametrize("options", [{"bound": "betting"}, {"bound": "normal"}, {"bound": "serfling"},
                                     {"bound": "betting", "max_pulls": 900}, {"bound": "normal", "max_pulls": 900},
                                     {"bound": "serfling", "variance": "marginal"}])
def test_all_differences_hold_as_often_as_promised(options, trials, seed):
    missed, narrow = 0, 0
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        common = rng.random((1500, 1))
        values = 0.7 * common + 0.3 * rng.random((1500, 4)) + 0.01 * np.arange(4)
        result = fr.race(values, 0.2, support=(0, 1.1), first_look=30, cost=1.0, rng=rng, **options)
        means = values.mean(axis=0)
        true = means - means[result.best]
        missed += not ((result.differences[:, 0] - 1e-12 <= true) & (true <= result.differences[:, 1] + 1e-12)).all()
        wide = result.upper - result.lower
        narrow += (np.diff(result.differences)[:, 0] <= wide + wide[result.best] + 1e-12).all()
    assert narrow == trials
    assert_rate_at_most(missed, trials, 0.2)


@pytest.mark.parametrize("bound", RULES[1:])
def test_differences_are_those_of_the_formula(bound, seed):
    rng = np.random.default_rng(seed)
    values = rng.random((800, 3)) + [0.0, 0.02, 0.05]
    race = fr.FiniteRace(3, 800, 0.1, bound, support=(0, 1.1), first_look=30, rng=copy.deepcopy(rng))
    read = []
    while not race.done and (not read or race.result().pulls.max() < 250):
        arms, rows = race.ask()
        read.extend(rows)
        race.tell(values[np.ix_(rows, arms)])
    result, looks = race.result(), race._options.plan(3)[0]
    seen = values[read]
    for arm in set(range(3)) - {result.best}:
        n = result.pulls[arm]
        low, high = twin.difference(seen[:n, arm], seen[:n, result.best], 800, bound, 0.1, 3, looks, 0.0, 1.1)
        slack = 0.03 * (high - low) if bound == "betting" else 1e-9     # bets are tried until the end is that near
        assert low - slack <= result.differences[arm, 0] <= low + 1e-9
        assert high - 1e-9 <= result.differences[arm, 1] <= high + slack


def test_verdicts_of_two_arms():
    values = np.random.default_rng(1).random((20_000, 2)) * [0.2, 0.2]
    values[:, 1] = values[:, 0] + 0.001 * np.random.default_rng(2).standard_normal(20_000)
    equal = fr.race(values, support=(-0.1, 0.4), epsilon=0.0125, growth=2.0, rng=1)
    assert (equal.stopped_by, equal.verdict) == ("epsilon", ("equivalent", "equivalent"))
    assert fr.race(values + [0, 0.1], support=(-0.1, 0.4), rng=1).verdict == ("worse", "better")
    cut = fr.race(values, support=(-0.1, 0.4), max_pulls=20, rng=1)
    assert cut.verdict == ("not known yet", "not known yet")
    assert cut.error_bound > 0.05
    assert {"verdict", "error_bound", "differences"} <= set(cut.to_dict())


def test_six_near_ties_are_told_within_a_point_from_a_tenth_of_the_items(seed):
    """Items passed or failed by six variants, any two of which differ on one item in sixty."""
    trials, wrong, read = 30, 0, []
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        hard = rng.random((20_000, 1))
        again = rng.random((20_000, 6)) < 0.02
        values = np.where(again, rng.random((20_000, 6)) < 0.7, hard < 0.7 + 0.001 * np.arange(6)) * 1.0
        result = fr.race(values, support=(0, 1), epsilon=0.01, cost=1.0, rng=rng)
        means = values.mean(axis=0)
        wrong += means[result.best] < means.max() - 0.01
        read.append(result.fraction_read)
    assert np.mean(read) <= 0.1
    assert_rate_at_most(wrong, trials, 0.05)


def test_what_evaluations_cost_is_added_up(rng):
    values = rng.random((2000, 3)) + [0.0, 0.0, 0.1]
    result = fr.race(values, support=(0, 1.1), cost=[1.0, 2.0, 5.0], rng=1)
    assert result.cost == result.pulls @ [1.0, 2.0, 5.0]
    assert fr.race(values, support=(0, 1.1), rng=1).cost is None
    for bad in (-1.0, [1.0, 2.0], np.nan):
        with pytest.raises(ValueError, match="cost"):
            fr.race(values, cost=bad)
    for bad in ({"epsilon": -0.1}, {"epsilon": np.inf}, {"n_best": 0}, {"n_best": 4}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            fr.race(values, **bad)


@pytest.mark.parametrize("options", [{"bound": "betting"}, {"bound": "betting", "epsilon": 0.02}, {"bound": "normal"},
                                     {"bound": "serfling"}, {"bound": "betting", "n_best": 2}])
def test_dropped_rows_are_ties_in_the_twin(options, seed):
    """Sums of the differences over the rows with all rewards say who leaves."""
    for child in np.random.SeedSequence(seed).spawn(3):
        rng = np.random.default_rng(child)
        values = rng.random((600, 4)) * 0.5 + 0.1 * rng.integers(0, 4, 4)
        values[rng.random((600, 4)) < 0.04] = np.nan
        race = fr.FiniteRace(4, 600, 0.1, support=(0, 1), missing="drop", rng=1, tail_guard=False, **options)
        ours = race.run(values)
        tied = np.where(np.isnan(values).any(axis=1, keepdims=True), 0.5, values)
        assert len(set(ours.pulls)) == 1                    # all arms say which rows are dropped, until the end
        if not options.get("epsilon") and ours.stopped_by == "bound":
            # A dropped row is one with equal rewards; the last arm leaves as soon as then, or later.
            plain = fr.FiniteRace(4, 600, 0.1, support=(0, 1), rng=1, tail_guard=False, **options).run(tied)
            assert ours.pulls[0] >= max(plain.pulls) and np.array_equal(ours.best, plain.best)
        assert drive(fr.FiniteRace(4, 600, 0.1, support=(0, 1), missing="drop", rng=1, tail_guard=False, **options),
                     values) == ours
        assert ours.n_missing > 0 and any("dropped" in text for text in ours.warnings)


@few_or_many("trials", 60, 600)
@pytest.mark.parametrize("options", [{"bound": "betting"}, {"bound": "betting", "epsilon": 0.02}, {"bound": "normal"},
                                     {"bound": "serfling", "epsilon": 0.02}])
def test_with_dropped_rows_the_promises_are_about_the_rest(options, trials, seed):
    """Missing rows go together with large rewards of the arm that would look best otherwise."""
    wrong = means_missed = differences_missed = 0
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        values = (rng.random((1500, 3)) < [0.5, 0.54, 0.56]) * 1.0
        lost = rng.random(1500) < 0.3 * values[:, 2]
        values[lost] = np.nan
        result = fr.race(values, 0.2, support=(0, 1), missing="drop", cost=1.0, rng=rng, **options)
        rest = values[~lost].mean(axis=0)
        wrong += rest[result.best] < rest.max() - options.get("epsilon", 0.0)
        means_missed += not ((result.lower - 1e-9 <= rest) & (rest <= result.upper + 1e-9)).all()
        true = rest - rest[result.best]
        differences_missed += not ((result.differences[:, 0] - 1e-9 <= true) & (true <= result.differences[:, 1] + 1e-9)
                                   ).all()
        assert result.n_missing > 0
    for count in (wrong, means_missed, differences_missed):
        assert_rate_at_most(count, trials, 0.2)


def _one_arm_misses_by_its_rewards(rng, values):
    values[rng.random(len(values)) < 0.3 * values[:, 2], 2] = np.nan


def _a_weak_arm_misses_where_others_differ(rng, values):
    """It leaves at once; the rows it misses say that arm 2 is best, the others that arm 1 is."""
    values[:, 0] = rng.random(len(values)) < 0.1
    values[(values[:, 1] < values[:, 2]) & (rng.random(len(values)) < 0.9), 0] = np.nan


def _most_rewards_are_missing(rng, values):
    values[rng.random(values.shape) < 0.6] = np.nan


@few_or_many("trials", 60, 600)
@pytest.mark.parametrize("spoil", [_one_arm_misses_by_its_rewards, _a_weak_arm_misses_where_others_differ,
                                   _most_rewards_are_missing])
@pytest.mark.parametrize("options", [{"bound": "betting"}, {"bound": "normal"}, {"bound": "serfling", "epsilon": 0.02},
                                     {"bound": "betting", "n_best": 2}])
def test_the_answer_is_about_the_rows_that_no_arm_misses(spoil, options, trials, seed):
    wrong = means_missed = differences_missed = 0
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        values = (rng.random((1500, 3)) < [0.5, 0.54, 0.56]) * 1.0
        spoil(rng, values)
        rest = values[~np.isnan(values).any(axis=1)].mean(axis=0)
        result = fr.race(values, 0.1, support=(0, 1), missing="drop", cost=1.0, rng=rng, **options)
        best = np.atleast_1d(result.best)
        wrong += rest[best].min() < np.sort(rest)[-len(best)] - options.get("epsilon", 0.0) - 1e-9
        means_missed += not ((result.lower - 1e-9 <= rest) & (rest <= result.upper + 1e-9)).all()
        true = rest - rest[best[0]]
        differences_missed += not ((result.differences[:, 0] - 1e-9 <= true) & (true <= result.differences[:, 1] + 1e-9)
                                   ).all()
    for count in (wrong, means_missed, differences_missed):
        assert_rate_at_most(count, trials, 0.1)


def test_a_missing_reward_is_refused_or_the_worst(rng):
    values = rng.random((3000, 3)) + [0.0, 0.0, 0.2]
    values[rng.random((3000, 3)) < 0.05] = np.nan
    with pytest.raises(ValueError, match="the reward of arm . on row . is nan|is nan"):
        fr.race(values, support=(0, 1.2), rng=1)
    worst = fr.race(values, support=(0, 1.2), missing="worst", cost=1.0, rng=1)
    filled = fr.race(np.where(np.isnan(values), 0.0, values), support=(0, 1.2), cost=1.0, rng=1)
    np.testing.assert_array_equal(worst.mean, filled.mean)
    assert worst.best == filled.best and any("low end" in text for text in worst.warnings)
    race = fr.FiniteRace(3, 3000, support=(0, 1.2), missing="drop", rng=1)
    while not race.done:
        arms, rows = race.ask()
        race.tell([[None if np.isnan(x) else x for x in row] for row in values[np.ix_(rows, arms)]])
        race = pickle.loads(pickle.dumps(race))
    assert race.result() == fr.FiniteRace(3, 3000, support=(0, 1.2), missing="drop", rng=1).run(values)
    for bad, words in [({"missing": "no"}, "missing is 'no'"), ({"missing": "worst"}, "the low end of a support"),
                       ({"missing": "drop", "variance": "marginal"}, "marginal"),
                       ({"missing": "drop", "support": ([0, 0, 2], [1, 1, 3])}, "no number in common")]:
        with pytest.raises(ValueError, match=words):
            fr.race(values, **bad)


@pytest.mark.parametrize("bound", ["betting", "normal"])
def test_a_race_saved_before_its_first_dropped_row_goes_on_as_if_it_had_not_been(bound, rng):
    values = rng.random((3000, 3)) * 0.9 + [0.0, 0.0, 0.01]

    def answer(saved_after):
        race = fr.FiniteRace(3, 3000, support=(0, 1.2), missing="drop", bound=bound, rng=1)
        for n_looks in range(1, 20):
            arms, rows = race.ask()
            block = values[np.ix_(rows, arms)]
            block[0] = np.nan if n_looks == 4 else block[0]
            race.tell(block)
            if n_looks == saved_after:
                saved = pickle.dumps(race)
                junk = [np.full(n, 255, np.uint8) for n in (64, 128, 200, 256, 300, 400, 512, 600, 800, 1024) * 20]
                del junk                        # memory that is not zero when the race gets it
                race = pickle.loads(saved)
            if race.done:
                break
        return race.result()

    assert answer(3) == answer(None)
    assert answer(None).n_missing > 0


@pytest.mark.parametrize(("n_dropped", "marks", "words"), [
    (2, bytes(10), "its options drop none"), (11, b"", "its missing rewards"), (-1, b"", "its missing rewards")])
def test_a_damaged_count_of_dropped_rows_is_refused(n_dropped, marks, words):
    race = fr.FiniteRace(3, 2000, first_look=10, rng=1)
    race.ask()
    race.tell(np.random.default_rng(1).random((10, 3)))
    rebuild, saved = race.__reduce__()
    saved = copy.deepcopy(saved)
    state = next(part for part in saved if isinstance(part, dict) and "n_dropped" in part)
    state.update(n_dropped=n_dropped, marks=marks)
    with pytest.raises(ValueError, match=words):
        rebuild(*saved)


def test_a_table_without_a_whole_row_is_refused():
    values = np.random.default_rng(1).random((50, 3))
    values[:, 1] = np.nan
    with pytest.raises(ValueError, match="first 50 rows, so that all of them were dropped"):
        fr.race(values, missing="drop", support=(0, 1), rng=1)


def test_rows_that_are_dropped_refuse_what_is_known_of_the_sums():
    values = np.random.default_rng(1).random((400, 3))
    options = {"support": (0, 1), "missing": "drop", "rng": 1}
    for offset in ([0.0, 1.0, 0.0], [-np.inf, 1.0, 0.0]):
        with pytest.raises(ValueError, match="say nothing of the rows that remain"):
            fr.race(values, offset=offset, **options)
    assert fr.race(values, offset=[-np.inf, 2.0, 2.0], **options).best in (1, 2)

    known = fr.control_variates.ControlVariate(
        fr.sources.ArraySource(values), fr.sources.ArraySource(0.5 * values), 0.5 * values.sum(axis=0))
    with pytest.raises(ValueError, match="says nothing of the rows that remain"):
        fr.race(known, missing="drop", support=(-1, 1), rng=1)


@pytest.mark.parametrize("bound", ["normal", "betting"])
def test_rows_that_are_dropped_refuse_impossible_arms(bound):
    values = np.random.default_rng(1).random((400, 3))
    values[::2, 0], values[1::50, 0] = np.nan, -np.inf
    with pytest.raises(ValueError, match="which rows it misses is then unknown"):
        fr.race(values, bound=bound, support=(0, 1), outside="warn", missing="drop", rng=1)
