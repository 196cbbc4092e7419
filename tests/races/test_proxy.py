"""Races with a proxy: equal to the plain twin, valid whatever the proxy says, and cheaper where it says something."""

import copy
import itertools
import json
import math
import pickle

import numpy as np
import pytest

import fastrace as fr
from by_hand import drive_saved
from guarantee import assert_rate_at_most, few_or_many
from reference import racing as twin
from reference.draws import Order, Window


def population(law, n_rows, rng, gaps):
    """Labels in [0, 1] of several arms, and scores of all rows: of each arm, or one column."""
    gaps = np.asarray(gaps)
    shape = (n_rows, gaps.size)
    if law == "good":               # scores of each arm, of one row together
        y = np.clip(0.5 * rng.random((n_rows, 1)) + 0.4 * rng.random(shape) + gaps, 0, 1)
        return y, 3.0 * y + rng.normal(0, 0.2, shape)
    if law == "judge":              # 0 or 1, nine in ten right
        y = (rng.random(shape) < 0.4 + gaps) * 1.0
        return y, np.where(rng.random(shape) < 0.9, y, 1 - y)
    if law == "useless":
        return (rng.random(shape) < 0.4 + gaps) * 1.0, rng.normal(size=shape)
    if law == "rare":               # few labels, and scores that find most of them
        y = (rng.random(shape) < 0.02 + gaps / 4) * 1.0
        return y, np.where(rng.random(shape) < 0.95, y, rng.random(shape) < 0.02)
    if law == "against":            # scores that name the arms in the wrong order
        y = (rng.random(shape) < 0.4 + gaps) * 1.0
        return y, -2.0 * gaps * rng.random(shape) - y
    if law == "shared":             # one column, which says how the arms differ
        p = rng.random(n_rows)
        slope = np.linspace(-0.4, 0.4, gaps.size)
        return np.clip(0.5 + gaps + slope * (p[:, None] - 0.5) + rng.normal(0, 0.05, shape), 0, 1), p
    if law == "constant":
        return rng.random(shape) * 0.9 + gaps, np.full(n_rows, 7.0)
    if law == "sorted":             # labels and scores in the order of the table, the scores the other way
        y = np.sort(rng.random(shape) * 0.9, axis=0) + gaps
        return y, np.sort(rng.random(shape), axis=0)[::-1]
    heavy = rng.lognormal(0, 2, shape)                  # "heavy": one score in a thousand is a thousand times as large
    return np.clip(heavy / 20, 0, 0.9) + gaps, heavy


LAWS = ["good", "judge", "useless", "rare", "against", "shared", "constant", "sorted", "heavy"]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("options", [{}, {"epsilon": 0.02}, {"n_best": 2}, {"order": "given"}])
def test_a_race_with_a_proxy_equals_the_twin(law, options, seed):
    for child in np.random.SeedSequence([seed, 5]).spawn(2):
        rng = np.random.default_rng(child)
        values, proxy = population(law, 300, rng, [0.0, 0.02, 0.1, 0.05])
        offset = rng.normal(size=4)
        race = fr.FiniteRace(4, 300, 0.1, support=(0, 1), first_look=20, offset=offset, proxy=proxy,
                             rng=copy.deepcopy(rng), **options)
        looks, quantiles, log_inv_delta = race._options.plan(4)
        ours = race.run(values)
        order = Window(300) if "order" in options else Order(300)
        words = {name: value for name, value in options.items() if name != "order"}
        theirs = twin.race(values, looks, quantiles, log_inv_delta, bound="betting", pairwise=True, order=order,
                           rng=rng, offset=offset, low=np.zeros(4), high=np.ones(4), scores=proxy, **words)
        assert (ours.stopped_by, ours.n_looks) == (theirs.stopped_by, theirs.n_looks)
        np.testing.assert_array_equal(ours.best, theirs.best)
        np.testing.assert_array_equal(ours.pulls, theirs.pulls)


@pytest.mark.parametrize("law", LAWS)
def test_given_the_past_the_mean_of_what_is_bet_on_is_that_of_a_population(law):
    """Over all rows that may come next, adjusted by what is known before, for every arm."""
    rng = np.random.default_rng(4)
    values, proxy = population(law, 60, rng, [0.0, 0.05, 0.1])
    rows, adjusted = rng.permutation(60).tolist(), twin.Adjusted(values, proxy, np.zeros(3), np.ones(3))
    for n in range(60):
        if n in (5, 7, 10, 20, 29):
            adjusted.learn(rows[:n], [0, 1, 2])
        _, slope, shift = adjusted.parts[-1]
        left = rows[n:]
        nexts = values[left] - slope * adjusted.q[left] + shift
        past = adjusted.bets(rows[:n])[0].sum(axis=0)
        np.testing.assert_allclose(nexts.mean(axis=0), (values.sum(axis=0) - past) / len(left), atol=1e-9)


@pytest.mark.parametrize("law", ["good", "judge", "shared", "rare"])
def test_intervals_are_those_of_the_twin(law, seed):
    rng = np.random.default_rng(seed)
    values, proxy = population(law, 600, rng, [0.0, 0.02, 0.04])
    race = fr.FiniteRace(3, 600, 0.1, support=(0, 1), first_look=30, proxy=proxy, rng=copy.deepcopy(rng))
    adjusted, read = twin.Adjusted(values, proxy, np.zeros(3), np.ones(3)), []
    while not race.done and len(read) < 120:
        arms, rows = race.ask()
        read.extend(rows.tolist())
        race.tell(values[np.ix_(rows, arms)])
        adjusted.learn(read, arms.tolist())
    result, n = race.result(), len(read)
    np.testing.assert_allclose(race._race._slope[arms], adjusted.slope[arms], rtol=1e-9, atol=1e-12)
    best, rest = result.best, 1 - n / 600

    def refuted(a, b, known, share):
        _, peak, impossible = adjusted.wealth(read, a, b, known)
        return impossible or peak >= -math.log(share)

    def nearest(a, b, middle, end, side, share):
        """The candidate nearest to the middle that bets refute; `side` is 1 for the lower end."""
        good, bad = end, middle
        for _ in range(30):
            trial = (good + bad) / 2
            good, bad = (trial, bad) if refuted(a, b, -side * trial, share) else (good, trial)
        return good

    for i in arms.tolist():
        told = [(None, i, i, None, values[read, i], result.lower[i], result.upper[i], 0.1 / 6, 0, 1)]
        if i != best:
            lead = values[read, i] - values[read, best]
            told.append((best, i, i, best, lead, *result.differences[i], 0.1 / 6, -1, 1))
        for over, under, a, b, raw, lower, upper, share, low, high in told:
            y = raw.sum() / 600
            middle = (lower + upper) / 2
            ends = nearest(a, b, middle, y + rest * low, 1, share), nearest(over, under, middle, y + rest * high, -1,
                                                                           share)
            slack = 0.05 * (ends[1] - ends[0])          # wealths are tried until the end is about that near
            assert ends[0] - slack <= lower <= ends[0] + 1e-6
            assert ends[1] - 1e-6 <= upper <= ends[1] + slack


@few_or_many("trials", 40, 600)
@pytest.mark.parametrize("law", LAWS)
def test_the_answer_is_wrong_as_seldom_as_promised(law, trials, seed):
    """Near ties, stopped at any time: the best arm, the differences and the means, each within delta."""
    delta, wrong, missed, outside = 0.2, 0, 0, 0
    for child in np.random.SeedSequence([seed, 7]).spawn(trials):
        rng = np.random.default_rng(child)
        values, proxy = population(law, 600, rng, [0.0, 0.0, 0.03])
        result = fr.race(values, delta, support=(0, 1), first_look=10, max_pulls=int(rng.integers(100, 1800)),
                         proxy=proxy, rng=rng)
        means = values.mean(axis=0)
        wrong += means.max() not in means[result.active]
        true = means - means[result.best]
        missed += not ((result.differences[:, 0] - 1e-9 <= true) & (true <= result.differences[:, 1] + 1e-9)).all()
        outside += not ((result.lower - 1e-9 <= means) & (means <= result.upper + 1e-9)).all()
        assert ((result.lower <= result.mean) & (result.mean <= result.upper)).all()
    for failures in (wrong, missed, outside):
        assert_rate_at_most(failures, trials, delta)


@few_or_many("trials", 60, 1000)
@pytest.mark.parametrize("law", ["judge", "rare", "against", "shared"])
def test_equal_arms_are_told_apart_as_seldom_as_promised(law, trials, seed):
    """Arms whose means are the same, and scores by which they differ: a bet on the scores alone would name one."""
    delta, decided = 0.2, 0
    for child in np.random.SeedSequence([seed, 8]).spawn(trials):
        rng = np.random.default_rng(child)
        values, proxy = population(law, 400, rng, [0.0, 0.0])
        count = int(values.sum(axis=0).min()) if law != "shared" else 0
        for i in range(2 if count else 0):              # the same number of ones
            ones = np.flatnonzero(values[:, i])
            values[rng.permutation(ones)[count:], i] = 0.0
        values[:, 1] += (values[:, 0].mean() - values[:, 1].mean()) if law == "shared" else 0.0
        proxy = proxy + (rng.random(proxy.shape) * [0.0, 0.5] if proxy.ndim == 2 else 0.0)
        result = fr.race(values, delta, support=(-0.5, 1.5), first_look=10, proxy=proxy, rng=rng)
        decided += result.stopped_by == "bound"
    assert_rate_at_most(decided, trials, 2 * delta)         # of either arm


@few_or_many("trials", 100, 1500)
@pytest.mark.parametrize("law", ["judge", "shared", "rare"])
def test_the_error_bound_is_a_p_value_whenever_the_race_is_cut(law, trials, seed):
    low = {0.02: 0, 0.1: 0, 0.3: 0}
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        values, proxy = population(law, 400, rng, [0.0, 0.01, 0.02])
        race = fr.FiniteRace(3, 400, 0.3, support=(0, 1), first_look=20, proxy=proxy, rng=rng)
        means, least = values.mean(axis=0), 1.0
        while not race.done:
            arms, rows = race.ask()
            race.tell(values[np.ix_(rows, arms)])
            result = race.result()
            if means[result.best] < means.max():
                least = min(least, result.error_bound)
        for level in low:
            low[level] += least <= level
    for level, count in low.items():
        assert_rate_at_most(count, trials, level)


def test_a_proxy_saves_what_it_explains_and_a_useless_one_costs_little():
    """Rows over those without; sums over 40 races each, so that the limits are far off."""
    for law, most in (("judge", 0.6), ("shared", 0.4), ("useless", 1.06), ("constant", 1.0)):
        rows = np.zeros(2)
        for child in np.random.SeedSequence(3).spawn(40):
            rng = np.random.default_rng(child)
            values, proxy = population(law, 20_000, rng, [0.0, 0.08] if law != "shared" else [0.0, 0.02])
            for k, given in enumerate((None, proxy)):
                rows[k] += fr.race(values, support=(0, 1), proxy=given, cost=1.0, rng=5).pulls[0]
        assert rows[1] <= most * rows[0], (law, rows)


@pytest.mark.parametrize("options", [{}, {"epsilon": 0.03}, {"n_best": 2}, {"max_pulls": 1500}, {"order": "given"}])
@pytest.mark.parametrize("law", ["judge", "shared"])
def test_by_hand_saved_anywhere_and_in_flight_is_the_same_race(law, options):
    values, proxy = population(law, 3000, np.random.default_rng(1), [0.0, 0.02, 0.05, 0.05])
    given = {"support": (0, 1), "proxy": proxy, "rng": 3, **options}
    whole = fr.FiniteRace(4, 3000, 0.1, **given).run(values)
    assert fr.race(values, 0.1, **given) == whole
    race, ahead = fr.FiniteRace(4, 3000, 0.1, **given), fr.FiniteRace(4, 3000, 0.1, **given)
    race = drive_saved(race, values)
    assert race.result() == whole
    assert pickle.loads(pickle.dumps(race)).result() == whole
    while "max_pulls" not in options and not ahead.done:
        arms, rows = ahead.ask(7, pending=True)
        for row, arm in itertools.product(rows[::-1], arms):
            ahead.tell(values[row, arm], int(arm), int(row))
    if "max_pulls" not in options:
        np.testing.assert_array_equal(ahead.result().mean, whole.mean)


def test_requests_take_a_proxy_and_their_journal_knows_it(tmp_path):
    import asyncio
    values, proxy = population("judge", 1000, np.random.default_rng(1), [0.0, 0.2])
    given = {"support": (0, 1), "proxy": proxy, "journal": tmp_path / "race.jsonl", "rng": 1}

    async def grade(arm, row):
        return values[row, arm]

    result = asyncio.run(fr.race_async(grade, 2, 1000, concurrency=5, **given))
    assert result.best == fr.race(values, support=(0, 1), proxy=proxy, rng=1).best == 1
    first = (tmp_path / "race.jsonl").read_text().splitlines()[0]
    assert len(first) < 2000 and len(json.loads(first)["race"]["proxy"]) == 64
    assert asyncio.run(fr.race_async(grade, 2, 1000, **given)).best == 1
    with pytest.raises(ValueError, match="proxy"):
        asyncio.run(fr.race_async(grade, 2, 1000, **(given | {"proxy": 1 - proxy})))


def test_a_saved_proxy_that_was_damaged_is_refused():
    values, proxy = population("judge", 3000, np.random.default_rng(1), [0.0, 0.02])
    race = fr.FiniteRace(2, 3000, support=(0, 1), proxy=proxy, rng=1)
    for _ in range(3):
        arms, rows = race.ask()
        race.tell(values[np.ix_(rows, arms)])
    _, plan, state = race._race.saved()
    for damage in (None, {}, state["proxy"] | {"_begins": np.array([5])}, state["proxy"] | {"_slope": np.zeros(5)},
                   state["proxy"] | {"_shifts": state["proxy"]["_shifts"] * np.nan}):
        fresh = fr.FiniteRace(2, 3000, support=(0, 1), proxy=proxy, rng=1)._race
        with pytest.raises(ValueError, match="damaged"):
            fresh.restore(plan, state | {"proxy": damage})


def test_worst_rewards_impossible_arms_and_rewards_outside():
    rng = np.random.default_rng(1)
    values, proxy = population("judge", 4000, rng, [0.0, 0.1, 0.0])
    lost = values.copy()
    lost[rng.random(values.shape) < 0.05] = np.nan
    result = fr.race(lost, support=(0, 1), proxy=proxy, missing="worst", rng=1)
    assert result.best == 1 and "low end" in result.warnings[0]
    lost = values.copy()
    lost[:, 2] = np.where(rng.random(4000) < 0.2, -np.inf, 1.0)
    with pytest.raises(ValueError, match=r"is -inf, outside support=\(0.0, 1.0\)"):
        fr.race(lost, support=(0, 1), proxy=proxy, rng=1)
    result = fr.race(lost, support=(0, 1), outside="warn", proxy=proxy, rng=1)
    assert result.best == 1 and result.mean[2] == -np.inf
    result = fr.race(values, support=(0, 1), offset=[0.0, 0.0, -np.inf], proxy=proxy, rng=1)
    assert result.best == 1 and result.pulls[2] == 0
    result = fr.race(values * 1.5, support=(0, 1), outside="warn", proxy=proxy, rng=1)
    assert (result.lower <= result.mean).all() and "void" in result.warnings[0]
    exact = fr.race(values[:60], support=(0, 1), proxy=proxy[:60], rng=1)
    np.testing.assert_allclose(exact.mean[exact.lower == exact.upper],
                               values[:60].mean(axis=0)[exact.lower == exact.upper])


@pytest.mark.parametrize(("given", "said"), [
    ({"support": None}, "give support"), ({"bound": "serfling"}, "'serfling' and proxy"),
    ({"missing": "drop"}, "take missing='worst'"), ({"scan_advantage": 5.0}, "scan_advantage is 5.0"),
    ({"proxy": np.ones(5)}, r"shape \(5,\)"), ({"proxy": np.ones((100, 3))}, r"shape \(100, 3\)"),
    ({"proxy": np.full(100, np.nan)}, "nan at row 0, column 0"), ({"proxy": ["a"] * 100}, "dtype"),
    ({"proxy": np.ma.masked_equal(np.ones(100), 1)}, "masked")])
def test_what_does_not_go_with_a_proxy_is_refused_by_words(given, said):
    with pytest.raises((ValueError, TypeError), match=said):
        fr.FiniteRace(2, 100, **({"support": (0, 1), "proxy": np.ones(100)} | given))


def test_a_plan_refuses_scores_of_rows_that_it_simulates():
    with pytest.raises(ValueError, match="nothing of simulated rewards"):
        fr.plan_race(gap=0.1, sd=0.5, n_rows=100, support=(0, 1), proxy=np.ones(100), n_races=2)


@pytest.mark.parametrize("far", [1e12, -1e9, "rounded"])
def test_scores_far_from_0_keep_the_promise(far, seed):
    """Their mean is known as exactly as that of scores near 0: rounding of it would be scaled to the support."""
    for child in np.random.SeedSequence([seed, 9]).spawn(3):
        rng = np.random.default_rng(child)
        y = (rng.random((30_000, 2)) < [0.5, 0.47]).astype(float)
        near = np.where(rng.random(y.shape) < 0.5, 0.0, 0.1 + 0.2 - 0.3) if far == "rounded" else 0.25 * y
        scores = np.where(near > 0, 0.1 + 0.2, 0.3) if far == "rounded" else far + near
        result = fr.race(y, support=(0, 1), proxy=scores, delta=1e-6, rng=1, max_pulls=9000)
        other = fr.race(y, support=(0, 1), proxy=near, delta=1e-6, rng=1, max_pulls=9000)
        means = y.mean(axis=0)
        assert (result.lower <= means).all() and (means <= result.upper).all()
        assert (result.pulls == other.pulls).all()
        np.testing.assert_allclose(result.mean, other.mean, rtol=0, atol=1e-9)


def test_scores_that_doubles_cannot_hold_the_range_of_are_refused():
    with pytest.raises(ValueError, match="farther apart than a double"):
        fr.race(np.eye(4), support=(0, 1), proxy=[-1e308, 1e308, 1e308, 0.0])
