"""Stopping rules are as accurate as promised, and right as often."""

import numpy as np
import pytest

import fastrace as fr
from guarantee import assert_rate_at_most
from stopping_rules import LAWS, RULES, mean_of

# Runs of each rule on each law.
some_runs = pytest.mark.parametrize("runs", [60, pytest.param(2000, marks=pytest.mark.long)])
CHEAP = {"Bernoulli 0.01": 0.5}         # relative accuracy for rules that need 1 / mean^2 rewards there


@some_runs
@pytest.mark.parametrize("law", LAWS)
def test_relative_accuracy_is_kept(law, runs, seed):
    draw, support, _ = LAWS[law]
    mean, delta = mean_of(law), 0.1
    for name, make in RULES.items():
        epsilon = CHEAP.get(law, 0.2)
        hoeffding = "NAS" in name
        trials = runs if not (hoeffding and law in CHEAP) else runs // 20
        if trials < 40:         # which find no rate near the promise; the long test has enough
            continue
        missed = 0
        for child in np.random.SeedSequence([seed, len(name)]).spawn(trials):
            rng = np.random.default_rng(child)
            rule = make(epsilon, delta, support)
            while not rule.done:
                rule.update_many(draw(rng, 1 << (16 if hoeffding and law in CHEAP else 12)))
                assert rule.n_samples < 10**8
            assert rule.stopped
            missed += abs(rule.estimate - mean) > epsilon * mean
        assert_rate_at_most(missed, trials, 2 * delta if "printed" in name or name == "geometric NAS" else delta)


@some_runs
@pytest.mark.parametrize("law", LAWS)
def test_absolute_accuracy_and_side_are_kept(law, runs, seed):
    draw, support, _ = LAWS[law]
    mean, delta, span = mean_of(law), 0.1, LAWS[law][1][1] - LAWS[law][1][0]
    missed, fixed, wrong = 0, 0, 0
    for child in np.random.SeedSequence(seed).spawn(runs):
        rng = np.random.default_rng(child)
        x = draw(rng, 40_000)
        for bound in ("empirical-bernstein", "fixed-size"):
            rule = fr.AbsoluteStop(0.05 * span, delta, support, bound=bound)
            rule.update_many(x)
            assert rule.stopped
            miss = abs(rule.estimate - mean) > 0.05 * span
            missed, fixed = missed + (miss and bound != "fixed-size"), fixed + (miss and bound == "fixed-size")
        side = fr.SignStop(mean + 0.05 * span, delta, support, bound="empirical-bernstein")
        side.update_many(x)
        wrong += side.estimate == 1.0 and side.stopped
    for count in (missed, fixed, wrong):
        assert_rate_at_most(count, runs, delta)


@some_runs
def test_intervals_hold_under_optional_stopping(runs, seed):
    """The bracket covers the mean at every reward at once."""
    for law, (draw, support, _) in LAWS.items():
        mean = mean_of(law)
        for make in (fr.NAS, fr.EBStop, fr.EBGStop, fr.GeometricNAS):
            missed = 0
            for child in np.random.SeedSequence([seed, 7]).spawn(runs):
                x = draw(np.random.default_rng(child), 2000)
                rule = make(1e-3, 0.1, support)
                for start in range(0, x.size, 50):
                    rule.update_many(x[start : start + 50])
                    low, high = rule.interval
                    if not low <= mean <= high:
                        missed += 1
                        break
            assert_rate_at_most(missed, runs, 0.1)
            assert rule.stopped_by == "", law
