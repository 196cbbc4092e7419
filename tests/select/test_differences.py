"""Differences to the leader and verdicts of selections, at stops of all kinds."""

import dataclasses

import numpy as np
import pytest

import fastrace as fr
from fastrace.pulls import BernoulliPulls
from guarantee import assert_rate_at_most, few_or_many

RULES = {
    "pairs": {},
    "eb-mix": {"bound": "eb-mix"},
    "sides": {"bound": "hoeffding-mix", "split": "sides"},
    "sub-Gaussian": {"sub_gaussian": 0.5},
    "symmetric": {"symmetric": True},
    "paired": {"paired": True},
    "asymptotic": {"support": None},
}


def rewards(options, means, rng):
    """A stream of rewards that keeps what the rule assumes; of common rounds if it is paired."""
    def pull(arms, counts):
        if options.get("paired"):
            common = rng.random(counts.max())
            return [np.clip(means[arm] + 0.4 * (common[:count] - 0.5) + 0.2 * (rng.random(count) - 0.5), 0.0, 1.0)
                    for arm, count in zip(arms, counts, strict=True)]
        if options.get("symmetric") or "support" in options:
            return rng.normal(np.repeat(means[arms], counts), 0.3)
        return (rng.random(counts.sum()) < np.repeat(means[arms], counts)).astype(float)
    return pull


@pytest.mark.parametrize("n_best", [1, 2])
@pytest.mark.parametrize("name", RULES)
@few_or_many("trials", 40, 400)
def test_all_differences_hold_at_stops_that_depend_on_the_rewards(name, n_best, trials):
    """A run is looked at as its budgets end and as it stops; a difference missed at any look is a failure."""
    means, delta, failures, narrow = np.array([0.42, 0.5, 0.45, 0.55]), 0.2, 0, 0
    for child in np.random.SeedSequence([20261127, n_best]).spawn(trials):
        rule = fr.LUCB(4, n_best, 0.02, delta, **RULES[name])
        pull, missed = rewards(RULES[name], means, np.random.default_rng(child)), False
        for budget in (50, 200, 900, 2000, 4000):
            result = rule.run(pull, budget)
            leader = np.ravel(result.best)[0]
            low, high = result.differences.T
            truth = means - means[leader]
            missed |= bool(((truth < low - 1e-12) | (truth > high + 1e-12)).any())
            verdict = np.array(result.verdict)
            missed |= bool((means[verdict == "worse"] > means[np.ravel(result.best)].min() + 0.02).any())
        failures += missed
        narrow += bool(np.delete(high - low, leader).min() < 0.5)
    assert narrow > 0.5 * trials            # intervals that say something
    assert_rate_at_most(failures, trials, delta)


@pytest.mark.parametrize("name", ["pairs", "eb-mix", "sub-Gaussian", "symmetric"])
def test_differences_follow_from_intervals_of_the_means_at_half_of_delta(name):
    options = RULES[name] | ({"split": "equal"} if name == "eb-mix" else {})
    rule = fr.LUCB(4, 2, 0.0, 0.1, batch=5, **options)
    result = rule.run(rewards(options, np.array([0.2, 0.5, 0.45, 0.6]), np.random.default_rng(7)), 900)
    half = fr.LUCB(4, 2, 0.0, 0.05, batch=5, **options)
    half._core = half._make(np.random.default_rng(1))
    half._core.set_state(rule._core.get_state())
    known, leader = half.result(), int(result.best[0])
    expected = np.stack([known.lower - known.upper[leader], known.upper - known.lower[leader]], axis=1)
    expected[leader] = 0.0
    assert np.allclose(result.differences, expected, rtol=5e-3, atol=1e-9)


def test_verdicts_say_what_a_stop_decided():
    def run(means, limit=None, **options):
        return fr.LUCB(len(means), **options).run(BernoulliPulls(means, rng=3), limit)

    assert run([0.2, 0.8, 0.1], n_best=1).verdict == ("worse", "better", "worse")
    near = run([0.5, 0.51], n_best=1, epsilon=0.1)
    assert near.stopped_by == "epsilon"
    assert sorted(near.verdict) == ["good enough", "not better"]
    cut = run([0.5, 0.51], 40, n_best=1)
    assert cut.verdict == ("not known yet",) * 2 and cut.differences.shape == (2, 2)
    known = dataclasses.replace(cut, best=0, differences=np.array([[0.0, 0.0], [-0.3, -0.1]]))
    assert known.stopped_by == "max_pulls" and known.verdict == ("better", "worse")
    assert run([0.5, 0.5], n_best=2).verdict == ("no rival", "no rival")
    assert fr.LUCB(3, 1).result().verdict == ("not known yet",) * 3


def test_a_race_within_epsilon_says_so_of_both_arms():
    """Two arms nearly tied: the stop decided that neither is better by epsilon."""
    rng = np.random.default_rng(0)
    table = (rng.random((40_000, 2)) < [0.50, 0.505]).astype(float)
    for result in (fr.race(table, support=(0, 1), epsilon=0.03, cost=1.0, rng=1),
                   fr.BettingRace(2, support=(0, 1), epsilon=0.03).run(table, rng=1)):
        assert result.stopped_by == "epsilon"
        assert "not known yet" not in result.verdict
        assert result.verdict[result.best] in ("good enough", "equivalent", "better")


def test_a_selection_from_a_table_that_is_read_whole_knows_all_differences():
    table = np.array([[0.0, 1.0, 1.0], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    result = fr.select_best(table, rng=1)
    assert result.stopped_by == "exact" and result.verdict == ("worse", "equivalent", "equivalent")
    assert np.allclose(result.differences, [[-1 / 3] * 2, [0, 0], [0, 0]])
    frame = result.to_frame()
    assert {"difference_lower", "difference_upper", "verdict"} <= set(frame.columns)
    assert result.to_dict()["verdict"] == list(result.verdict)


def test_rules_without_bounds_at_all_times_have_no_differences():
    result = fr.Direct(3, 1, 0.2).run(BernoulliPulls([0.2, 0.8, 0.3], rng=1))
    assert result.differences is None and result.verdict == ("not better", "good enough", "not better")
