"""The true chance of an error of rules that a union over rounds makes careful, by enumeration.

Trials do not refute these rules: one that spends many times the delta it promises errs less often than it promises. So
each is held to its true chance of an error in a hard case: two arms of equal means, where a reward of one is 0 whenever
that of the other is 1, and a look after each round. The bounds allow any dependence between arms, and whatever the rule
decides is then an error. The chance must equal that of the formula in print, to rounding, which refutes a rule that
spends 1.05 to 1.2 times delta (4.4 times within 7 rounds). It must also be below delta. That alone would refute a
Hoeffding race from 58 times delta on, KL-LUCB from 10^5 times on, and a Bernstein race from 8 * 10^9 times on.
"""

import math

import numpy as np
import pytest
from scipy import special

import fastrace as fr
from exact_chances import chance_over_paths


def hoeffding(t, m, n, delta):
    """How far intervals of the means m and 1 - m are apart after t of n rounds: half-widths of log(2 M N / delta)."""
    return abs(2 * m - 1) - 2 * math.sqrt(math.log(4 * n / delta) / (2 * t))


def bernstein(t, m, n, delta):
    x = math.log(6 * n / delta)
    return abs(2 * m - 1) - 2 * (math.sqrt(2 * m * (1 - m) * x / t) + 3 * x / t)


def divergence(t, m, n, delta):
    """Kaufmann & Kalyanakrishnan (2013), Theorem 1, with k1 = 405.5 and alpha = 1.1."""
    x = math.log(405.5 * t**1.1 * 2 / delta)
    return special.rel_entr(m, 0.5) + special.rel_entr(1 - m, 0.5) - (x + math.log(x)) / t


# How a rule is made, its formula, rounds, the delta that is promised, which a rule that spends 0.9 must break, and how
# many times a delta of 0.2 the exact chance tells from 0.2 itself.
BOLD = 0.9
RULES = {
    "HoeffdingRace, short": (lambda n, delta: fr.HoeffdingRace(2, n, delta, (0, 1)), hoeffding, 7, 0.0156, 4.4),
    "HoeffdingRace": (lambda n, delta: fr.HoeffdingRace(2, n, delta, (0, 1)), hoeffding, 24, 0.0066, 1.05),
    "BernsteinRace": (lambda n, delta: fr.BernsteinRace(2, n, delta, (0, 1)), bernstein, 42, 1.16e-10, 1.2),
    "SubsetRace": (lambda n, delta: fr.SubsetRace(2, 1, n, delta), hoeffding, 24, 0.0066, 1.05),
    "SubsetRace, Bernstein": (
        lambda n, delta: fr.SubsetRace(2, 1, n, delta, bound="bernstein"), bernstein, 42, 1.16e-10, 1.2),
    "KLLUCB": (lambda n, delta: fr.KLLUCB(2, 1, 0.0, delta, batch=1), divergence, 30, 9.2e-6, 1.2),
}


def decided(make, n, delta):
    """Chance that a rule decides within n rounds, between two arms of equal means."""

    def has(rewards):
        table = np.column_stack([rewards, 1.0 - rewards])
        return make(n, delta).run(table, order="given", max_pulls=2 * len(rewards)).stopped_by == "bound"

    return chance_over_paths(has, n, 0.5)


def by_formula(formula, n, delta):
    return chance_over_paths(lambda rewards: formula(len(rewards), rewards.mean(), n, delta) > 0.0, n, 0.5)


@pytest.mark.parametrize("name", RULES)
def test_the_true_chance_of_an_error_is_that_of_the_formula_and_within_delta(name):
    make, formula, n, delta, near = RULES[name]
    chance = {promised: decided(make, n, promised) for promised in (delta, 0.2, BOLD)}
    for promised in (0.2, BOLD):
        assert chance[promised] == pytest.approx(by_formula(formula, n, promised), rel=1e-9, abs=0.0)
    assert chance[delta] <= delta
    # controls: rules that spend more than they promise
    assert chance[BOLD] > delta
    assert decided(make, n, near * 0.2) > 1.001 * by_formula(formula, n, 0.2)
