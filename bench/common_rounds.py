"""Evaluations until the best arm is known: of 12 models and 50,000 prompts, and of independent arms; for README.md.

    python bench/common_rounds.py [runs]
"""

import functools
import sys

import numpy as np
from benchmarks.lucb import Distance, bernoulli_evidence, characteristic_time
from benchmarks.stream_racing import SameRows

import fastrace as fr
from fastrace.pulls import BernoulliPulls

RULES = {"FiniteRace": "FiniteRace", "BettingRace": "differences", "BettingRace, rows as they come":
         "differences, in order", "LUCB": "LUCB", "LUCB, paired": "LUCB, paired"}
DELTA, MOST_ROUNDS = 0.05, 60_000
KNOWN = "whole rounds, means known"
BY_INTERVALS = "LUCB by intervals"      # its rule when the goals of independent arms were set
RUNS = {"LUCB": 400, BY_INTERVALS: 400, "LUCB, paired": 100, "BettingRace": 100, KNOWN: 100}       # of independent arms


def rounds_time(means):
    """As `characteristic_time`, of whole rounds that arms leave: no shares of the pulls can be chosen."""
    best, *others = np.sort(means)[::-1]
    rounds = [1.0 / bernoulli_evidence(best, mean, 1.0) for mean in others]
    return sum(rounds) + max(rounds)


def known_means(means, k):
    """Pulls of whole rounds by who knows all means, and tests each arm against the best one with delta / (n_arms - 1).

    An arm leaves once the ratio of the likelihood of both means to that of their average, under which the test of a
    smaller mean is hardest, is above ``(n_arms - 1) / delta``: no test of the pair that may stop at any time needs
    fewer rounds on average.
    """
    order = np.argsort(-means)
    best, others = means[order[0]], means[order[1:]]
    rewards = np.random.default_rng(k).random((MOST_ROUNDS, means.size), dtype=np.float32) < means[order]
    middle = 0.5 * (best + others)
    first, second = rewards[:, :1], rewards[:, 1:]
    evidence = np.where(first, np.log(best / middle), np.log((1.0 - best) / (1.0 - middle))) + np.where(
        second, np.log(others / middle), np.log((1.0 - others) / (1.0 - middle)))
    over = np.cumsum(evidence, axis=0) >= np.log(others.size / DELTA)
    assert over.any(axis=0).all()
    rounds = 1 + over.argmax(axis=0)
    return rounds.sum() + rounds.max()


def independent(means, rule, k):
    if rule == KNOWN:
        return known_means(means, k)
    if rule == "BettingRace":
        rewards = (np.random.default_rng(k).random((MOST_ROUNDS, len(means)), dtype=np.float32) < means).view(np.uint8)
        result = fr.BettingRace(len(means), support=(0, 1), rule="differences").run(rewards, order="given")
        assert result.stopped_by == "bound"
        return result.pulls.sum()
    options = {"LUCB, paired": {"paired": True}, BY_INTERVALS: {"rule": "intervals"}}.get(rule, {})
    return fr.LUCB(len(means), 1, delta=DELTA, **options).run(BernoulliPulls(means, rng=k)).n_read


@functools.lru_cache
def pulls(name, rule):
    """Pulls of every run on independent arms."""
    return np.array([independent(Distance.instances[name], rule, k) for k in range(RUNS[rule])])


def main(runs=40):
    bench = SameRows()
    print("| correlation | gap | " + " | ".join(RULES) + " |")
    print("|---|---|" + "---|" * len(RULES))
    for correlation in (0.8, 0.0):
        for gap in (0.02, 0.005):
            means = []
            for rule in RULES.values():
                made = []
                for k in range(runs):
                    table = bench.table(gap, correlation, np.random.default_rng([20201204, k]))
                    made.append(bench.pulls(table, rule, k))
                means.append(f"{np.mean(made):,.0f}")
            print(f"| {correlation} | {gap} | " + " | ".join(means) + " |", flush=True)
    columns = "T* log(1 / delta)", "the same, whole rounds", *RUNS
    print("\n| independent arms of 0/1 rewards | " + " | ".join(columns) + " |\n|---|" + "---|" * len(columns))
    for name, means in Distance.instances.items():
        made = [pulls(name, rule) for rule in RUNS]
        least = characteristic_time(means) * -np.log(DELTA), rounds_time(means) * -np.log(DELTA)
        base = np.mean(made[0])
        cells = [f"{np.mean(x):,.0f} ({np.mean(x) / base:.2f})" for x in made[1:]]
        print(f"| {name} | {least[0]:,.0f} | {least[1]:,.0f} | {base:,.0f} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
