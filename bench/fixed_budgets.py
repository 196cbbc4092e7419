"""How often the best arm is missed after a fixed number of pulls, by rules that stop at a promise and by others.

    python bench/fixed_budgets.py [trials]
    python bench/fixed_budgets.py shares [trials]

Rewards are 0 or 1. `LUCB` stops earlier where it has its promise, and is then charged for what it pulled alone.
``shares`` gives all rules the same rewards, and shows what `LUCB` would miss if a pair shared its first pulls evenly.
EVEN was chosen with the first two instances that it shows; those of LATER were written down after that.
"""

import functools
import math
import sys

import numpy as np

import fastrace as fr
from fastrace.pulls import BernoulliPulls, RecordedPulls

INSTANCES = {
    "0.55, nine of 0.45": (np.r_[0.55, np.full(9, 0.45)], 10_600),
    "0.6, 99 of 0.4": (np.r_[0.6, np.full(99, 0.4)], 28_800),
    "20 arms, 0.9 to 0.1": (np.linspace(0.9, 0.1, 20), 19_400),
    "0.5 0.45 0.43 0.4": (np.array([0.5, 0.45, 0.43, 0.4]), 11_900),
    "0.3 0.21 0.2 0.19 0.18": (np.array([0.3, 0.21, 0.2, 0.19, 0.18]), 5_000),
}
LATER = {       # and pulls
    "0.7, 49 of 0.55": (np.r_[0.7, np.full(49, 0.55)], 1_000),
    "20 arms, 0.6 to 0.4": (np.linspace(0.6, 0.4, 20), 475),
    "8 arms, 0.7 to 0.35": (np.linspace(0.7, 0.35, 8), 400),
}
EVEN = (0, 16, math.inf)    # pulls an arm, up to which a pair shares evenly
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


def score_bounds(wins, pulls, level, upper):
    """Those by which `LUCB` chooses what to pull, of rewards 0 and 1."""
    mean, sign = wins / pulls, 1.0 if upper else -1.0
    scale, varies = level / pulls, mean * (1.0 - mean)
    whole = (mean + scale + sign * np.sqrt(scale * (2.0 * varies + scale))) / (1.0 + 2.0 * scale)
    half = (mean + 0.5 * scale + sign * np.sqrt(scale * (2.0 * varies + scale * (varies + 0.25)))) / (1.0 + scale)
    return np.maximum(whole, half) if upper else np.minimum(whole, half)


def lucb_by_shares(rewards, budget, even, delta=0.05):
    """The arm that `LUCB` names if it does not stop before the budget, but for ties; with `even` at 0 it pulls alike.

    While arms have had fewer than `even` pulls on average, either arm of a pair gets half of its pulls.
    """
    n_arms, arms = len(rewards), np.arange(len(rewards))
    won = np.cumsum(rewards, axis=1)
    pulls, total, rounds, grid, carry = np.ones(n_arms, int), n_arms, 1, 1, 0.0
    while total < budget:
        while grid < rounds:
            grid = max(grid + 1, math.ceil(1.02 * grid))
        wins = won[arms, pulls - 1].astype(float)
        mean = wins / pulls
        leader = int(mean.argmax())
        bound = score_bounds(wins, pulls, math.log(1 / delta) + 0.5 * math.log(grid), True)
        bound[leader] = -np.inf
        rival = int(bound.argmax())
        count = max(1, min(pulls[leader], pulls[rival]) // 100)
        ours, its = ((pulls[i] * mean[i] * (1.0 - mean[i]) + 0.25) / ((pulls[i] + 1.0) * pulls[i])
                     for i in (leader, rival))
        wanted = 2.0 * count * (0.5 if total < even * n_arms else ours / (ours + its)) + carry
        first = int(min(max(math.floor(wanted + 0.5), 0), 2 * count))
        carry = wanted - first
        rounds += count
        for arm, more in ((leader, first), (rival, 2 * count - first)):
            more = min(more, budget - total)
            pulls[arm] += more
            total += more
    return int((won[arms, pulls - 1] / pulls).argmax())


def shares(trials=1000, names=("0.6, 99 of 0.4", "20 arms, 0.9 to 0.1", *LATER)):
    """Wrong in %, on the same rewards, and how much more often than KL-LUCB and than `LUCB` as it is."""
    for name in names:
        means, budget = LATER[name] if name in LATER else (INSTANCES[name][0], int(SHARES[0] * INSTANCES[name][1]))
        wrong = []
        for seed in range(trials):
            rewards = np.random.default_rng([20100621, seed]).random((budget, means.size), np.float32) < means
            pulls = functools.partial(RecordedPulls, rewards.astype(float))
            answers = [rule.run(pulls(), budget).best for rule in (fr.LUCB(means.size, 1), fr.KLLUCB(means.size, 1))]
            answers += [lucb_by_shares(rewards.T, budget, even) for even in EVEN]
            wrong.append([answer != 0 for answer in answers])
        wrong = np.array(wrong)
        print(f"{name}, {budget} pulls, {trials} runs; as `LUCB` itself in {(wrong[:, 0] == wrong[:, 2]).sum()}")
        for rule, column in zip(("LUCB", "KL-LUCB", *(f"first {even}" for even in EVEN)), wrong.T, strict=True):
            print(f"{rule:9}{100 * column.mean():6.1f}", end="")
            for over, other in (("KL-LUCB", wrong[:, 1]), ("first 0", wrong[:, 2])):
                more = column.astype(float) - other
                print(f", over {over} {100 * more.mean():+5.1f} +-{100 * more.std() / math.sqrt(trials):4.1f}", end="")
            print(flush=True)


def quick():
    budget, wrong = missed("0.3 0.21 0.2 0.19 0.18", 0.2, 5)
    assert budget == 1000 and len(wrong) == len(RULES) and max(wrong) < 1.0
    shares(2)


def main(trials=1000):
    print(f"wrong in % of {trials} runs, +- one standard error")
    print(f"{'means':24}{'pulls':>7}", *(f"{name:>14}" for name in RULES))
    for name in INSTANCES:
        for share in SHARES:
            budget, wrong = missed(name, share, trials)
            print(f"{name:24}{budget:7}", *(f"{100 * w:8.1f} +-{100 * math.sqrt(w * (1 - w) / trials):4.1f}"
                                            for w in wrong), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["shares"]:
        shares(*map(int, sys.argv[2:]))
    else:
        main(*map(int, sys.argv[1:]))
