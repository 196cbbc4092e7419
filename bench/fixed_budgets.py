"""How often the best arm is missed after a fixed number of pulls, by rules that stop at a promise and by others.

    python bench/fixed_budgets.py [trials]

Rewards are 0 or 1. `LUCB` stops earlier where it has its promise, and is then charged for what it pulled alone.
"""

import functools
import math
import sys

import numpy as np

import fastrace as fr
from fastrace.pulls import BernoulliPulls

INSTANCES = {
    "0.55, nine of 0.45": (np.r_[0.55, np.full(9, 0.45)], 10_600),
    "0.6, 99 of 0.4": (np.r_[0.6, np.full(99, 0.4)], 28_800),
    "20 arms, 0.9 to 0.1": (np.linspace(0.9, 0.1, 20), 19_400),
    "0.5 0.45 0.43 0.4": (np.array([0.5, 0.45, 0.43, 0.4]), 11_900),
    "0.3 0.21 0.2 0.19 0.18": (np.array([0.3, 0.21, 0.2, 0.19, 0.18]), 5_000),
}
SHARES = (0.05, 0.2)    # of the pulls that intervals of single arms need for their promise at delta 0.1


def by_rule(make):
    return lambda means, budget, seed: make(len(means), budget).run(BernoulliPulls(means, rng=seed), budget).best


def halving(means, budget, seed):
    """Sequential halving (Karnin et al. 2013) that keeps what earlier rounds have seen."""
    rng, left = np.random.default_rng(seed), np.arange(len(means))
    wins, rounds = np.zeros(len(means)), math.ceil(math.log2(len(means)))
    pulls = np.zeros(len(means))
    for _ in range(rounds):
        each = int(budget / rounds / len(left))
        wins[left] += rng.binomial(each, means[left])
        pulls[left] += each
        rate = wins[left] / np.maximum(pulls[left], 1.0)
        left = left[np.lexsort((rng.random(len(left)), -rate))[: (len(left) + 1) // 2]]
    return int(left[0])


RULES = {
    "LUCB": by_rule(lambda n, budget: fr.LUCB(n, 1)),
    "KL-LUCB": by_rule(lambda n, budget: fr.KLLUCB(n, 1)),
    "SAR": by_rule(lambda n, budget: fr.SAR(n, 1, budget)),
    "halving": halving,
}


@functools.lru_cache
def missed(name, share, trials):
    """The pulls, and how often each rule names another arm than the first, which is the best."""
    means, whole = INSTANCES[name]
    budget = int(share * whole)
    return budget, [np.mean([rule(means, budget, seed) != 0 for seed in range(trials)]) for rule in RULES.values()]


def quick():
    budget, wrong = missed("0.3 0.21 0.2 0.19 0.18", 0.2, 5)
    assert budget == 1000 and len(wrong) == len(RULES) and max(wrong) < 1.0


def main(trials=1000):
    print(f"wrong in % of {trials} runs, +- one standard error")
    print(f"{'means':24}{'pulls':>7}", *(f"{name:>14}" for name in RULES))
    for name in INSTANCES:
        for share in SHARES:
            budget, wrong = missed(name, share, trials)
            print(f"{name:24}{budget:7}", *(f"{100 * w:8.1f} +-{100 * math.sqrt(w * (1 - w) / trials):4.1f}"
                                            for w in wrong), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
