"""The true chance of an error without a support, by enumeration of rewards of 0 and 1.

What these rules promise is nearly right: at most 1.2 times delta is allowed here, as wherever they are tried. Trials
refute them only from two or three times delta on. The chances below are exact but for states of less chance than 1e-7,
and the same rule told some times the delta that it promises must break the promise. Beside each case stand both
chances, of the rule and of the bold one, over what is allowed.
"""

import numpy as np
import pytest

import fastrace as fr
from exact_chances import SELDOM, chance_of_a_miss, chance_over_paths

DELTA = 0.1
ALLOWED = 1.2 * DELTA


def growing(first, last, by):
    """Numbers from the first to the last, each `by` times the one before, or 1 more."""
    found = [first]
    while (more := max(found[-1] + 1, int(by * found[-1]))) <= last:
        found.append(more)
    return found


def of_cases(cases):
    return pytest.mark.parametrize("name", [
        pytest.param(name, marks=pytest.mark.long if name.startswith("long") else ()) for name in cases])


# One mean

def sequence_misses(first_look, last, by, rate, delta):
    """Chance that a sequence ever misses the mean of rewards of this rate, looked at after growing numbers of them."""

    def missed(pulls, ones):
        sequence = fr.ConfidenceSequence(support=None, delta=delta, first_look=first_look)
        sequence.update_many((np.arange(*pulls) < ones[0]).astype(float))
        low, high = sequence.interval
        return not low <= rate <= high

    return chance_of_a_miss(missed, [(n,) for n in growing(first_look, last, by)], (rate,))


# First look, last one, growth, rate; how many times delta a bold rule spends.
SEQUENCES = {
    "every reward from 10 on": ((10, 100, 1.0, 0.5), 4),        # 0.14, 1.32
    "one in two": ((200, 2000, 1.05, 0.5), 4),                  # 0.29, 1.45
    "nine in ten": ((200, 2000, 1.05, 0.9), 4),                 # 0.22, 1.31
    "one in fifty": ((200, 2000, 1.05, 0.02), 5),               # 0.12, 1.12
    "long": ((200, 10_000, 1.02, 0.5), 3),                      # 0.49, 1.62
    "long, one in a hundred": ((200, 10_000, 1.02, 0.01), 5),   # 0.19, 1.64
}


@of_cases(SEQUENCES)
def test_a_sequence_misses_a_mean_as_seldom_as_said(name):
    given, bold = SEQUENCES[name]
    assert sequence_misses(*given, DELTA) <= ALLOWED < sequence_misses(*given, bold * DELTA)


# Two arms in rounds: where the reward of the first is `sizes[0]` the other's is 0, and else that is `sizes[1]`

def race_errs(rule, sizes, first_look, last, what, delta):
    """Chance that a race on equal means ever drops the first arm, or that the interval of the difference misses 0."""

    def missed(ones):
        race = fr.BettingRace(2, None, delta, None, rule=rule, first_look=first_look)
        race.tell(np.column_stack([sizes[0] * ones, sizes[1] * (1.0 - ones)]))
        if what == "drop":
            return 0 not in race.active
        result = race.result()
        low, high = result.differences[1 - result.best]
        return not low <= 0.0 <= high

    return chance_over_paths(missed, last, sizes[1] / sum(sizes), SELDOM)


# The rule, sizes, first look, last one, what is an error; how many times delta a bold rule spends.
RACES = {
    "drop": (("differences", (1, 1), 20, 130, "drop"), 6),                  # 0.05, 1.13
    "drop, larger": (("differences", (1, 2), 20, 130, "drop"), 6),          # 0.09, 1.09
    "interval": (("differences", (1, 1), 20, 80, "interval"), 5),           # 0.13, 1.55
    "interval, brackets": (("brackets", (1, 1), 20, 100, "interval"), 8),   # 0.05, 1.25
    "long, drop, smaller": (("differences", (2, 1), 20, 300, "drop"), 7),   # 0.03, 1.41
    "long, drop, brackets": (("brackets", (1, 1), 20, 250, "drop"), 9),     # 0.05, 1.03
    "long, interval": (("differences", (1, 2), 20, 250, "interval"), 4),    # 0.22, 1.49
}


@of_cases(RACES)
def test_a_race_in_rounds_errs_as_seldom_as_said(name):
    given, bold = RACES[name]
    assert race_errs(*given, DELTA) <= ALLOWED < race_errs(*given, bold * DELTA)


# Two independent arms, of which LUCB says at growing numbers of pulls whether one is better

def lucb_errs(rate, first, last, by, delta):
    """Chance that LUCB ever finds the first of two arms of one rate to be better, as if it were worse by a hair.

    The promise holds for any pulls; here both arms have as many at each look. Two rewards of each, a 0 and a 1, set the
    unit of the bets, and all others up to this look come in one batch: before, the means are equal.
    """

    def wrong(pulls, ones):
        n = pulls[0]
        if not 1 <= ones[1] < ones[0] <= n - 1:         # rewards that are all alike wait for thousands
            return False
        rule = fr.LUCB(2, 1, 0.0, delta, None, batch=n - 2, first_look=2)
        for told in ([0.0, 1.0, 0.0, 1.0], np.concatenate([np.arange(n - 2) < few - 1 for few in ones]).astype(float)):
            assert [counts.tolist() for counts in rule.ask()] == [[0, 1], [len(told) // 2] * 2]
            rule.tell(told)
        return rule.done and rule.result().best == 0

    return chance_of_a_miss(wrong, [(n, n) for n in growing(first, last, by)], (rate, rate))


# The rate, first look, last one, growth; how many times delta a bold rule spends.
CHOICES = {
    "half": ((0.5, 20, 80, 1.3), 8),            # 0.00, 1.76
    "long": ((0.5, 20, 200, 1.25), 6),          # 0.02, 1.21
}


@of_cases(CHOICES)
def test_lucb_finds_the_better_of_equal_arms_as_seldom_as_said(name):
    given, bold = CHOICES[name]
    assert lucb_errs(*given, DELTA) <= ALLOWED < lucb_errs(*given, bold * DELTA)
