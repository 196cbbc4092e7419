"""How often the best arms are missed after a fixed number of pulls, by rules that stop at a promise and by others.

    python bench/fixed_budgets.py [trials]
    python bench/fixed_budgets.py few [trials]

All rules get the same rewards, and arms in a random order, as ties go to the lower number. `LUCB` stops earlier where
it has its promise, and is then charged for what it pulled alone. ``few`` shows what it gains from knowing that pulls
are few: of those of FRESH nothing was measured before the rule was settled.
"""

import math
import sys

import numpy as np
from scipy import stats

import fastrace as fr
from fastrace.pulls import RecordedPulls

INSTANCES = {       # and the pulls that intervals of single arms need for their promise at delta 0.1
    "0.55, nine of 0.45": (np.r_[0.55, np.full(9, 0.45)], 10_600),
    "0.6, 99 of 0.4": (np.r_[0.6, np.full(99, 0.4)], 28_800),
    "20 arms, 0.9 to 0.1": (np.linspace(0.9, 0.1, 20), 19_400),
    "0.5 0.45 0.43 0.4": (np.array([0.5, 0.45, 0.43, 0.4]), 11_900),
    "0.3 0.21 0.2 0.19 0.18": (np.array([0.3, 0.21, 0.2, 0.19, 0.18]), 5_000),
}
SHARES = (0.05, 0.2)    # of these pulls
SEEN = {            # and how many are to be found
    "0.6, 99 of 0.4": (np.r_[0.6, np.full(99, 0.4)], 1),
    "0.8, 24 of 0.65": (np.r_[0.8, np.full(24, 0.65)], 1),
    "0.95, 0.93, 10 of 0.85": (np.r_[0.95, 0.93, np.full(10, 0.85)], 1),
    "0.9, 39 of 0.8": (np.r_[0.9, np.full(39, 0.8)], 1),
    "0.35, 0.3, 28 of 0.2": (np.r_[0.35, 0.3, np.full(28, 0.2)], 1),
    "12 arms, 0.99 to 0.7": (np.linspace(0.99, 0.7, 12), 1),
    "3 of 15 arms, 0.8 to 0.2": (np.linspace(0.8, 0.2, 15), 3),
    "0.15, 0.12, 48 of 0.05": (np.r_[0.15, 0.12, np.full(48, 0.05)], 1),
    "0.99, 19 of 0.97": (np.r_[0.99, np.full(19, 0.97)], 1),
}
FRESH = {
    "0.98, 14 of 0.95": (np.r_[0.98, np.full(14, 0.95)], 1),
    "0.7, 0.66, 18 of 0.55": (np.r_[0.7, 0.66, np.full(18, 0.55)], 1),
    "2 of 10 arms, 0.97 to 0.5": (np.linspace(0.97, 0.5, 10), 2),
    "0.08, 29 of 0.03": (np.r_[0.08, np.full(29, 0.03)], 1),
}
EACH = (6, 12, 17, 24, 32, 48, 128)      # pulls an arm


def halving(rewards, budget):
    """Sequential halving (Karnin et al. 2013) that keeps what earlier rounds have seen."""
    n_arms = rewards.shape[1]
    left, rounds = np.arange(n_arms), math.ceil(math.log2(n_arms))
    pulls, won = 0, np.vstack([np.zeros(n_arms), np.cumsum(rewards, axis=0)])
    for _ in range(rounds):
        pulls += int(budget / rounds / len(left))
        left = left[np.argsort(-won[pulls, left], kind="stable")[: (len(left) + 1) // 2]]
    return left


def chosen(rule, rewards, budget, aware=True):
    """The answer after so many pulls, without the rest of a result, which takes longer than the pulls."""
    if aware:
        rule._core.allow(budget)
    rule._core.run(RecordedPulls(rewards), budget)
    return rule._core.chosen()


RULES = {       # of rewards of shape (pulls, arms), the budget and n_best
    "LUCB": lambda x, budget, m: chosen(fr.LUCB(x.shape[1], m), x, budget),
    "KL-LUCB": lambda x, budget, m: chosen(fr.KLLUCB(x.shape[1], m), x, budget),
    "SAR": lambda x, budget, m: chosen(fr.SAR(x.shape[1], m, budget), x, budget),
    "halving": lambda x, budget, m: halving(x, budget),
    "unaware": lambda x, budget, m: chosen(fr.LUCB(x.shape[1], m), x, budget, aware=False),
}


def wrong(means, budget, trials, rules, n_best=1):
    """Whether each rule names an arm that is not among the best, by run and rule."""
    found = []
    for trial in range(trials):
        rng = np.random.default_rng([20100621, means.size, budget, trial])
        there = rng.permutation(means)
        rewards = (rng.random((budget, means.size), np.float32) < there).astype(float)
        least = np.sort(means)[-n_best]
        found.append([(there[RULES[rule](rewards, budget, n_best)] < least).any() for rule in rules])
    return np.array(found, float)


def missed(name, share, trials):
    """The pulls, and how often the first four rules miss the best arm."""
    means, whole = INSTANCES[name]
    budget = int(share * whole)
    return budget, wrong(means, budget, trials, list(RULES)[:4])


def chance(found, first, other):
    """How probable it is that one rule alone is wrong in so many runs or more, where both are wrong equally often."""
    alone, its = ((found[:, i] > found[:, j]).sum() for i, j in ((first, other), (other, first)))
    return float(stats.binom.sf(alone - 1, alone + its, 0.5))


def said(found, first, other):
    """How much more often one rule is wrong than another one on the same rewards, in points, +- a standard error."""
    more = found[:, first] - found[:, other]
    return (f"{100 * more.mean():+6.1f} +-{100 * more.std() / math.sqrt(len(more)):4.1f} "
            f"(p{chance(found, first, other):5.2f})")


def few(trials=1000):
    print(f"wrong in % of {trials} runs")
    for name, (means, n_best) in (SEEN | FRESH).items():
        for each in EACH:
            found = wrong(means, each * means.size, trials, ("LUCB", "KL-LUCB", "SAR", "unaware"), n_best)
            print(f"{name:26}{each:4} an arm", *(f"{100 * share:6.1f}" for share in found.mean(axis=0)),
                  f"LUCB over KL-LUCB{said(found, 0, 1)}, over unaware{said(found, 0, 3)}", flush=True)


def quick():
    budget, found = missed("0.3 0.21 0.2 0.19 0.18", 0.2, 5)
    assert budget == 1000 and found.shape == (5, 4) and found.mean() < 1.0
    assert wrong(SEEN["12 arms, 0.99 to 0.7"][0], 60, 2, RULES).shape == (2, 5)


def main(trials=1000):
    print(f"wrong in % of {trials} runs, a standard error beside differences")
    print(f"{'means':24}{'pulls':>7}", *(f"{name:>8}" for name in list(RULES)[:4]))
    for name in INSTANCES:
        for share in SHARES:
            budget, found = missed(name, share, trials)
            print(f"{name:24}{budget:7}", *(f"{100 * share:8.1f}" for share in found.mean(axis=0)),
                  f"  LUCB over KL-LUCB{said(found, 0, 1)}, over halving{said(found, 0, 3)}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["few"]:
        few(*map(int, sys.argv[2:]))
    else:
        main(*map(int, sys.argv[1:]))
