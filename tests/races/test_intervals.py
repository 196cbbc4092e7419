"""The interval of each mean in the result of a race."""

import copy
import pickle

import numpy as np
import pytest

import fastrace as fr
from guarantee import assert_rate_at_most
from reference import lil as twin
from reference import racing as plain

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


@pytest.mark.parametrize("max_pulls", [None, 900, 160])
@pytest.mark.parametrize("bound", RULES)
def test_intervals_are_those_of_the_formula_cut_to_what_the_support_leaves(bound, max_pulls, seed):
    n_rows, looks = 3000, fr.bounds.looks(3000, 50, 1.5).tolist()
    rng = np.random.default_rng(seed)
    values, offset = rng.random((n_rows, 5)) ** 3 + [0.0, 0.0, 0.0, 0.3, 0.6], n_rows * rng.random(5) * 0.1
    race = fr.FiniteRace(5, n_rows, 0.1, bound, support=(0, 1.6), growth=1.5, offset=offset, max_pulls=max_pulls,
                         tail_guard=False, rng=seed)
    read = [[] for _ in range(5)]
    while True:
        result = race.result()
        first = min([len(rows) for rows in read if rows], default=0)
        for arm, rows in enumerate(read):
            if rows:
                expected = plain.interval(values[rows, arm], looks, bound, 0.1, 5, constant=offset[arm], low=0.0,
                                          high=1.6, cut=max_pulls is not None, first=first)
                np.testing.assert_allclose((result.lower[arm], result.upper[arm]), expected, rtol=1e-9)
                assert offset[arm] / n_rows - 1e-12 <= result.lower[arm] <= result.mean[arm] <= result.upper[arm]
                assert result.upper[arm] <= 1.6 + offset[arm] / n_rows + 1e-12
        if race.done:
            break
        arms, rows = race.ask()
        race.tell(values[np.ix_(rows, arms)])
        for arm in arms:
            read[arm] += rows.tolist()


def test_an_interval_keeps_its_mean_where_rewards_leave_the_support():
    values = np.random.default_rng(0).random((4000, 3)) + [0.0, 0.3, 1.5]
    result = fr.race(values, support=(0, 1), outside="warn", max_pulls=600, rng=0)
    assert result.warnings and (result.lower <= result.mean).all() and (result.mean <= result.upper).all()


def test_intervals_hold_wherever_a_budget_ends_the_race(seed):
    """Arms that look bad leave early with what they look like; those that stay are read up to a number of rows that
    depends on it. Shares for the looks of the plan alone would miss one and a half times as often as promised.
    """
    n_rows, n_arms, first, trials, missed = 20_000, 24, 50, 1500, 0
    values = np.random.default_rng(1).standard_normal((n_rows, n_arms))
    values = (values - values.mean(axis=0)) / values.std(axis=0)
    values[:, 0] *= 0.05
    values[:, 1:] -= 0.3 / np.sqrt(first)
    mean, source = values.mean(axis=0), fr.sources.ArraySource(values)
    for child in np.random.SeedSequence(seed).spawn(trials):
        race = fr.FiniteRace(n_arms, n_rows, 0.3, "normal", first_look=first, growth=1e3, max_pulls=1200 * n_arms,
                             tail_guard=False, rng=np.random.default_rng(child))
        result = race.run(source)
        missed += not ((result.lower <= mean) & (mean <= result.upper)).all()
    assert_rate_at_most(missed, trials, 0.3)


@pytest.mark.parametrize(("n_rows", "first_look", "max_pulls"),
                         [(40, 50, 60), (2000, 50, 6), (2000, 50, 30), (200, 256, 300)])
def test_normal_intervals_say_nothing_before_the_first_look(n_rows, first_look, max_pulls):
    """A budget may end the race there, and where the first look is that of all rows there is no other."""
    values = np.random.default_rng(0).random((n_rows, 3)) - 0.5
    result = fr.race(values, bound="normal", first_look=first_look, max_pulls=max_pulls, rng=1)
    assert result.stopped_by == "max_pulls" and (0 < result.pulls).all() and (result.pulls < first_look).all()
    assert (result.lower == -np.inf).all() and (result.upper == np.inf).all()
    within = fr.race(values, bound="normal", support=(-0.5, 0.5), first_look=first_look, max_pulls=max_pulls, rng=1)
    left = 1 - within.pulls / n_rows        # of the rows, each within the support
    np.testing.assert_allclose(within.upper - within.lower, left, atol=1e-12)


def test_the_printed_table_shows_the_interval():
    values = np.random.default_rng(0).random((4000, 3)) + [0.0, 0.3, 0.6]
    result = fr.race(values, support=(0, 1.6), rng=0)
    lines = str(result).splitlines()
    assert lines[1].split() == ["arm", "mean", "lower", "upper", "pulls", "verdict"]
    assert lines[2].split()[1:6] == ["2", *(f"{value[2]:.5g}" for value in (result.mean, result.lower, result.upper)),
                                    str(result.pulls[2])]


def test_before_the_first_look_an_interval_is_endless():
    result = fr.FiniteRace(3, 100).result()
    assert np.isnan(result.mean).all() and not (result.upper < np.inf).any()


@pytest.mark.parametrize("options", [
    {}, {"student": True, "temperature": 2.0}, {"allocation": "adaptive", "bound": "normal", "support": (0.0, 1.5)},
    *({"bound": bound, "support": (0.0, 1.5)} for bound in RULES[2:]),
])
def test_sums_have_the_intervals_of_the_formula(options, seed):
    rng = np.random.default_rng(seed)
    parts = [rng.random(size) + 0.002 * k for k, size in enumerate((900, 700, 40, 12, 0))]
    constant = [0.0, 60.0, 300.0, 400.0, 380.0]
    race = fr.UnequalRace([part.size for part in parts], 0.1, first_look=10, offset=constant, rng=seed, **options)
    formula = {name: value for name, value in options.items() if name != "allocation"}
    read = [[] for _ in parts]
    while not race.done:
        arms, rows = race.ask()
        race.tell([parts[arm][row] for arm, row in zip(arms, rows, strict=True)])
        for arm, row in zip(arms, rows, strict=True):
            read[arm].append(parts[arm][row])
        result = race.result()
        for arm, x in enumerate(read):
            if x:
                expected = twin.sum_interval(x, parts[arm].size, 5, 0.1, constant=constant[arm],
                                             **{"bound": "normal"} | formula)
                np.testing.assert_allclose((result.lower[arm], result.upper[arm]), expected, rtol=1e-9)
                assert result.lower[arm] <= result.total[arm] <= result.upper[arm]
    assert (result.lower[4], result.upper[4]) == (380.0, 380.0)


def test_all_intervals_of_sums_hold_together(seed):
    """A race of an arm against one that is known ends when the first seems far from it: then its interval must hold."""
    trials, missed = 1500, 0
    rewards = np.random.default_rng(0).standard_normal(4000)
    parts = [rewards - rewards.mean(), np.array([0.5, 1.0, -1.5])]
    for child in np.random.SeedSequence(seed).spawn(trials):
        race = fr.UnequalRace([4000, 3], 0.3, tail_guard=False, scan_advantage=1.0, rng=np.random.default_rng(child))
        result = race.run(parts)
        sums = np.array([part.sum() for part in parts])
        missed += not ((result.lower <= sums + 1e-6) & (sums - 1e-6 <= result.upper)).all()
    assert_rate_at_most(missed, trials, 0.3)


def test_in_the_middle_of_a_look_only_the_support_limits_a_sum():
    big = 3 << 20
    race = fr.UnequalRace([big, 30], support=(0.0, 1.0), first_look=1 << 21, rng=0)
    arms, _ = race.ask()
    race.tell(np.full(arms.size, 0.5))
    result = race.result()
    assert result.pulls[0] == arms.size < 1 << 21
    assert result.lower[0] == 0.5 * arms.size and result.upper[0] == 0.5 * arms.size + big - arms.size
