"""Counters near 2^40: after as many rewards, intervals are those of that many, and the next reward counts one more."""

import copy
import pickle

import numpy as np
import pytest

import fastrace as fr

COMPARISONS = {
    "exact": {"support": (0, 1)},
    "asymptotic": {},
    "clusters": {"clusters": True},
}


def doubled(test, times):
    """A comparison of 2^times as many rewards, as merges of copies make it."""
    test = copy.deepcopy(test)
    for _ in range(times):
        test.merge(copy.copy(test))
    return test


@pytest.mark.parametrize("kind", COMPARISONS)
def test_a_comparison_of_2_to_the_40_rewards(kind):
    test = fr.Comparison(3, **COMPARISONS[kind])
    for arm, pair in enumerate(([0.25, 0.375], [0.25, 0.5], [0.25, 0.375])):
        keys = np.arange(1024) if kind == "clusters" else None
        test.observe_many(arm, np.tile(pair, 512), clusters=keys)
    means = np.array([0.3125, 0.375, 0.3125])
    now, large = (doubled(test, times).result() for times in (20, 30))
    assert large.pulls.tolist() == [2**40] * 3
    shrinks = 1.0 if kind == "clusters" else 2.0**-5        # the clusters are as many as they were
    assert large.mean == pytest.approx(means, rel=1e-12)
    assert large.difference == pytest.approx([0.0625, 0.0, -0.0625], abs=1e-12)
    for low, mean, high, before in (
            (large.lower, means, large.upper, now.upper - now.lower),
            (large.difference_lower, large.difference, large.difference_upper,
             now.difference_upper - now.difference_lower)):
        assert ((low < mean) & (mean < high)).all()
        assert high - low == pytest.approx(shrinks * before, rel=0.3)
    assert large.verdict == ("better", "not known yet", "worse")
    more = pickle.loads(pickle.dumps(doubled(test, 30)))
    more.observe(0, 0.5, cluster=7 if kind == "clusters" else None)
    more.observe_many(1, np.full(500, 0.25), clusters=np.arange(500) if kind == "clusters" else None)
    assert more.n_read == 3 * 2**40 + 501
    assert more.result().pulls.tolist() == [2**40 + 1, 2**40 + 500, 2**40]
    assert more.result().difference_lower == pytest.approx(large.difference_lower, abs=1e-8)


WEALTH = np.dtype([("n", "i8"), ("total", "f8"), ("carry", "f8"), ("recent", "f8"), ("first", "f8"),
                   ("deviation", "f8"), ("square", "f8"), ("largest", "f8"), ("wealth", "f8", 24), ("scale", "f8"),
                   ("peak", "f8"), ("impossible", "i8")], align=True)


def grown(duels, factor):
    """Duels of `factor` times as many rounds, whose differences had the moments that they had."""
    wealth = duels["wealth"].copy().view(WEALTH)
    wealth["n"] *= factor
    for name in ("total", "recent", "deviation", "square"):
        wealth[name] *= factor
    return duels | {"wealth": wealth.view(np.uint8), "sums": duels["sums"] * factor}


def rounds_of(n, n_arms=3):
    noise = np.random.default_rng(1).choice([-0.2, 0.2], size=(n, 1))
    return 0.5 + noise + np.random.default_rng(2).choice([-0.1, 0.1], size=(n, n_arms))


def lucb_after(factor):
    rule, rows = fr.LUCB(3, 1, 0.0, paired=True, batch=1, rng=1), rounds_of(64)
    for row in rows:
        arms, counts = rule.ask()
        rule.tell(row[np.repeat(arms, counts)])
    rebuild, (version, cls, known, state) = rule.__reduce__()
    vectors = {name: state[name] * factor for name in ("pulls", "within", "within_high", "error")}
    counts = {name: state[name] * factor for name in ("total", "common", "rounds", "level_round", "next_gap")}
    return rebuild(version, cls, known, state | vectors | counts | {"duels": grown(state["duels"], factor)})


def betting_after(factor):
    race, rows = fr.BettingRace(3, support=(0, 1)), rounds_of(64)
    for row in rows:
        race.tell(row[None, race.ask()[0]])
    rebuild, (version, cls, known, state, order) = race.__reduce__()
    n_open, n_wanted, rounds, status = state["counts"]
    fields = state["fields"] * np.r_[[factor] * 8, 1.0, 1.0][:, None]       # but the ends of intervals
    fields[0] += 0.5 - 0.5 * factor                                         # sums begin as half a reward
    state = state | {"fields": fields, "counts": (n_open, n_wanted, rounds * factor, status),
                     "duels": grown(state["duels"], factor)}
    return rebuild(version, cls, known, state, order)


def step(rule, row):
    """Tell a rule one request, of this row at all times."""
    if isinstance(rule, fr.BettingRace):
        rule.tell(row[None, rule.ask()[0]])
    else:
        arms, counts = rule.ask()
        rule.tell(row[np.repeat(arms, counts)])


@pytest.mark.parametrize("after", [lucb_after, betting_after])
def test_rounds_in_common_after_2_to_the_40(after):
    """Saved states of a few rounds, with all that counts them and sums over them multiplied."""
    widths, apart = [], []
    for power in (0, 14, 34):
        rule = after(2**power)
        result = rule.result()
        assert result.pulls.tolist() == [2 ** (power + 6)] * 3
        assert result.mean == pytest.approx(rounds_of(64).mean(axis=0), rel=1e-9)
        assert ((result.lower <= result.mean) & (result.mean <= result.upper)).all()
        away = result.mean - result.mean[result.best]
        assert ((result.differences[:, 0] <= away + 1e-12) & (away <= result.differences[:, 1] + 1e-12)).all()
        widths.append(result.upper - result.lower)
        apart.append(np.ptp(result.differences, axis=1))
    assert (np.diff(widths, axis=0) <= 0).all() and (np.diff(apart, axis=0) <= 0).all()
    assert apart[-1].max() < 1e-3
    rule = pickle.loads(pickle.dumps(rule))
    before = rule.result().pulls
    for _ in range(50):
        if not rule.done:
            step(rule, np.array([0.5, 0.5, 0.5]))
    made = rule.result().pulls - before
    assert made.max() > 0 and made.sum() <= 150 and (made >= 0).all()


@pytest.mark.parametrize("hits", [1, 2, 3, 4])
def test_a_permutation_test_counts_exactly_to_2_to_the_31(hits):
    """With 2^31 - 1 resamples and level 1/16, it is rejected where at most 2^27 - 1 of them reach the statistic."""
    test = fr.PermutationTest(1.0, 1 / 16, alternative="greater", n_resamples=2**31 - 1, risk=0.0)
    rebuild, (version, cls, known, (count, n_used, n_read, decisions)) = test.__reduce__()
    read = 2**31 - 1 - 10
    test = rebuild(version, cls, known, (count + (2**27 - 3), n_used + read, read, decisions))
    assert test.ask()[0] == 10
    test.tell(np.r_[np.ones(hits), np.zeros(10 - hits)])
    assert test.done
    result = test.result()
    assert result.rejected == (hits <= 2)
    assert result.n_permutations > read
    assert result.lower <= (2**27 - 2 + hits) / 2**31 <= result.upper
