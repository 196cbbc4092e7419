"""Promises of races over finite populations: how often they err, and when they say that they may."""

import numpy as np
import pytest

import fastrace as fr
from by_hand import RULES
from fastrace.races._options import RIGOROUS
from guarantee import assert_fits, assert_rate_at_most, few_or_many
from populations import POPULATIONS


def test_a_budget_does_not_cost_the_promise(seed):
    """The best arm is among those still active but with probability delta, wherever the budget cuts."""
    trials, delta = 400, 0.1
    missed = dict.fromkeys(("normal", "betting", "serfling"), 0)
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        d = rng.permutation(POPULATIONS["uniform"](2000, rng))
        values = np.column_stack([1e-9 - d / 2, d / 2])
        budget = int(rng.integers(200, 3000))
        for bound in missed:
            result = fr.race(values, delta, bound, support=(-1, 1), max_pulls=budget, rng=child)
            missed[bound] += 0 not in result.active
    for bound in missed:
        assert_rate_at_most(missed[bound], trials, delta)


def test_marginal_guard_sees_the_leaders_tail(seed):
    """The leader that missed its own left tail is as dangerous as an arm that missed its right one."""
    rng = np.random.default_rng(seed)
    heavy = POPULATIONS["lognormal, turned"](5000, rng)
    values = np.column_stack([rng.normal(size=5000) * 1e-2, heavy])
    values -= values.mean(axis=0) - [1e-6, 0.0]
    wrong = dict.fromkeys((False, True), 0)
    for guard in wrong:
        for child in np.random.SeedSequence(seed).spawn(200):
            options = {"variance": "marginal", "skewness_guard": guard, "tail_guard": False, "rng": child}
            wrong[guard] += fr.FiniteRace(2, 5000, 0.1, **options).run(values).best != 0
    assert wrong[False] > 40
    assert wrong[True] < 30


def test_order_stays_uniform_over_races_that_never_reset(seed):
    race = fr.FiniteRace(2, 12, first_look=3, rng=seed)._race
    pairs = np.zeros((12, 12))
    for _ in range(10_000):
        race.begin(np.zeros(2))
        _, rows = race.ask()
        assert len(set(rows)) == 3
        pairs[rows[0], rows[2]] += 1
    off_diagonal = pairs[~np.eye(12, dtype=bool)]
    assert_fits(off_diagonal, np.full(132, 1 / 132))


def test_window_starts_anywhere(seed):
    race = fr.FiniteRace(2, 12, first_look=3, order="given", rng=seed)._race
    starts = np.zeros(12)
    for _ in range(5000):
        race.begin(np.zeros(2))
        _, rows = race.ask()
        np.testing.assert_array_equal(rows, (rows[0] + np.arange(3)) % 12)
        starts[rows[0]] += 1
    assert_fits(starts, np.full(12, 1 / 12))


@few_or_many("trials", 100, 1000)
@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("bound", RIGOROUS)
def test_rigorous_bounds_keep_their_promise(bound, population, trials, seed):
    delta, n_rows, wrong = 0.1, 2000, 0
    make = POPULATIONS[population]
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        d = make(n_rows, rng)
        values = np.column_stack([np.zeros(n_rows), d])
        values[:, 0] += 1e-9 * np.ptp(d)                # the first arm is better, by next to nothing
        support = ([values[0, 0], d.min()], [values[0, 0], d.max()])
        wrong += fr.race(values, delta, bound, support=support, rng=rng).best != 0
    assert_rate_at_most(wrong, trials, delta)


@few_or_many("trials", 400, 2000)
@pytest.mark.parametrize("population", ["normal", "uniform", "two points"])
@pytest.mark.parametrize("order", ["random", "given"])
def test_normal_rule_keeps_its_promise_on_light_tails(population, order, trials, seed):
    delta, n_rows, wrong = 0.1, 2000, 0
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        d = rng.permutation(POPULATIONS[population](n_rows, rng))
        values = np.column_stack([1e-9 - d / 2, d / 2])
        wrong += fr.race(values, delta, order=order, rng=rng).best != 0
    assert_rate_at_most(wrong, trials, delta)
    assert wrong / trials > delta / 4       # the bound is sharp here: a rate far below it would waste rows


def normal_rule(d, seed, trials=200, delta=0.1, **options):
    """Share of wrong answers, and of wrong answers with a warning, where the constant arm 0 is better by a hair."""
    source = fr.sources.ArraySource(np.column_stack([np.full(d.size, 1e-9), d]))
    wrong = warned = 0
    for child in np.random.SeedSequence(seed).spawn(trials):
        options.update(scan_advantage=1.0, rng=np.random.default_rng(child))
        result = fr.FiniteRace(2, d.size, delta, **options).run(source)
        wrong += result.best != 0
        warned += result.best != 0 and bool(result.warnings)
    return wrong / trials, warned / trials


def test_normal_rule_fails_on_skewed_rewards_and_says_so(seed):
    d = POPULATIONS["lognormal, turned"](5000, np.random.default_rng(seed))
    wrong, warned = normal_rule(d, seed, bound="normal", tail_guard=False)
    assert wrong > 0.3
    assert warned > 0.8 * wrong
    assert normal_rule(d, seed, bound="normal", tail_guard=False, skewness_guard=True)[0] < wrong / 2
    assert_rate_at_most(200 * normal_rule(d, seed, bound="normal")[0], 200, 0.1)
    assert_rate_at_most(200 * normal_rule(d, seed, support=([1e-9, d.min()], [1e-9, d.max()]))[0], 200, 0.1)


def test_normal_rule_fails_on_rare_events(seed):
    """Between noise of its own, a rare event that has not been seen cannot be suspected. Only a support protects."""
    rng = np.random.default_rng(seed)
    d = POPULATIONS["1 in 1000, turned"](5000, rng)
    noise = rng.normal(size=5000) * 1e-3
    wrong, _ = normal_rule(d + noise - noise.mean(), seed, bound="normal", tail_guard=False)
    assert wrong > 0.5
    # Without the noise the first look is constant; that is seen, told, and not taken for certainty.
    wrong, warned = normal_rule(d, seed, bound="normal", tail_guard=False)
    assert wrong < 0.2
    assert warned > 0.5 * wrong
    assert_rate_at_most(200 * normal_rule(d, seed, bound="normal")[0], 200, 0.1)
    assert_rate_at_most(200 * normal_rule(d, seed, support=([1e-9, d.min()], [1e-9, d.max()]))[0], 200, 0.1)


def beside_a_regular_column(column, side, rng):
    """Two columns of which the better one, by a fifth, is the one that rare values make so, or unmake."""
    noise = rng.normal(size=column.size)
    return np.column_stack([side * 0.8 + 0.5 * (noise - noise.mean()), side * column / column.mean()])


def zero_inflated(n_rows, share, rng):
    values = np.zeros(n_rows)
    hit = rng.choice(n_rows, round(n_rows * share), replace=False)
    values[hit] = rng.exponential(size=hit.size) + 0.2
    return values


@few_or_many("trials", 150, 300)
@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("share", [1 / 20, 1 / 100, 1 / 500, 1 / 2000, "lognormal"])
def test_tail_guard_keeps_delta_where_few_rows_carry_a_mean(share, side, trials, seed):
    """Such a column beside a regular one: at the first looks the race has not seen what carries its mean."""
    delta, n_rows = 0.05, 10_000
    wrong, told = dict.fromkeys((False, True), 0), 0
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        column = rng.lognormal(0, 2, n_rows) if share == "lognormal" else zero_inflated(n_rows, share, rng)
        values = beside_a_regular_column(column, side, rng)
        for guard in wrong:
            result = fr.race(values, delta, tail_guard=guard, rng=child)
            wrong[guard] += result.best != values.mean(axis=0).argmax()
            if guard and result.held_back.size:
                assert 1 in result.held_back
                assert ("held back" in " ".join(result.warnings)) == bool((result.pulls < n_rows).any())
                told += 1
    assert wrong[False] > 2 * delta * trials
    assert_rate_at_most(wrong[True], trials, delta)
    assert told >= wrong[False] - wrong[True]


@pytest.mark.parametrize("law", ["normal", "uniform"])
def test_tail_guard_costs_next_to_nothing_on_light_tails(law, seed):
    """The seed is fixed. Of 300 other seeds, two held back an arm of a normal table, and one read over 3 % more rows.

    On average the guard reads 0.4 % more rows of normal tables (standard deviation 0.7 %), and 0.1 % of uniform ones.
    """
    rows = dict.fromkeys((False, True), 0)
    for child in np.random.SeedSequence(seed).spawn(100):
        rng = np.random.default_rng(child)
        values = (rng.normal if law == "normal" else rng.uniform)(-1, 1, (5000, 4))
        values[:, 2] += rng.uniform(0.1, 1)
        for guard in rows:
            result = fr.FiniteRace(4, 5000, tail_guard=guard, rng=child).run(values)
            rows[guard] += result.pulls.sum()
            assert not result.held_back.size
    assert rows[True] <= 1.03 * rows[False]


@few_or_many("trials", 60, 500)
@pytest.mark.parametrize("law", ["normal", "uniform", "lognormal"])
@pytest.mark.parametrize("bound", RULES)
def test_error_over_ten_arms(bound, law, trials, seed):
    """The paper's synthetic setting: standardised rewards, gaps of Gumbel noise over N."""
    delta, n_rows, n_arms, wrong = 0.1, 2000, 10, 0
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        z = {"normal": rng.standard_normal, "uniform": rng.random,
             "lognormal": lambda size, rng=rng: np.exp(2 * rng.standard_normal(size))}[law]((n_rows, n_arms))
        z = (z - z.mean(axis=0)) / z.std(axis=0) * 1e-2
        offset = np.log(0.8) * np.arange(n_arms) + rng.gumbel(size=n_arms)
        result = fr.race(z, delta, bound, support=(z.min(axis=0), z.max(axis=0)), offset=offset, rng=rng)
        wrong += result.best != offset.argmax()
    assert_rate_at_most(wrong, trials, delta)


@pytest.mark.parametrize("variance", ["pairwise", "marginal"])
def test_guards_are_warned_of_only_where_a_decision_rests_on_them(variance, seed):
    """An answer from all rows of all arms is exact, whatever its looks were like."""
    rare = np.zeros((400, 3))
    rare[:4, 0] = rare[4:7, 1] = 1.0
    kinds = set()
    for child in np.random.SeedSequence(seed).spawn(40):
        for arm_2 in (0.0, -9.0):
            values = rare + [0.0, 0.0, arm_2] + np.random.default_rng(child).normal(0, 0.1, 400)[:, None] * [0, 0, 1]
            result = fr.race(values, variance=variance, rng=child)
            whole = bool((result.pulls == 400).all())
            said = any("held back" in text or "constant" in text for text in result.warnings)
            kinds.add((whole, said))
            assert result.stopped_by != "exact" or not (whole and said)
            assert whole or not result.held_back.size or said
    assert {(True, False), (False, True)} <= kinds
