"""Evaluations that cost money: models on prompts that all of them answer, 200 tables of each kind.

`track_` methods count evaluations and wrong answers. No time is measured: a call takes far longer than a race.
``python -m benchmarks.paid``, from the folder above, prints the tables of `TwelveModels` and `SixNearTied`.
"""

import asyncio
import functools
import math

import numpy as np

import fastrace as fr
from benchmarks.in_flight import on_table

DELTA, SEEDS = 0.05, 200
IN_FLIGHT, SLOW_SEEDS = "race_async, 64 in flight", 50      # a second or more of its simulated clock each


def scores(seed, n_rows, means, sd, correlation=0.8):
    """Scores of models on prompts, with that correlation between any two models; models in random order."""
    rng = np.random.default_rng([20160619, seed])
    hard, own = rng.standard_normal((n_rows, 1)), rng.standard_normal((n_rows, means.size))
    noise = math.sqrt(correlation) * hard + math.sqrt(1.0 - correlation) * own
    return np.clip(means[rng.permutation(means.size)] + sd * noise, 0.0, 1.0)


def paid(table):
    """The table as a function that a race pays for."""
    return lambda arms, rows: table[np.ix_(rows, arms)]


def ask_and_tell(rule, table):
    while not rule.done:
        arms, rows = rule.ask()
        rule.tell(table[np.ix_(rows, arms)])
    return rule.result()


DOORS = {
    "race": lambda table, seed: fr.race(
        paid(table), DELTA, n_arms=table.shape[1], n_rows=len(table), support=(0, 1), rng=seed),
    "FiniteRace": lambda table, seed: ask_and_tell(
        fr.FiniteRace(table.shape[1], len(table), DELTA, support=(0, 1), rng=seed), table),
    IN_FLIGHT: lambda table, seed: asyncio.run(on_table(table, seed, 64))[0],
    "BettingRace": lambda table, seed: fr.BettingRace(table.shape[1], None, DELTA, (0, 1)).run(table, rng=seed),
    "select_best": lambda table, seed: fr.select_best(table, delta=DELTA, rng=seed),
}
INSTANCES = {           # means, and the standard deviation of a score
    "one is .005 ahead, sd .1": (0.5 - 0.005 * (np.arange(12) > 0), 0.1),
    "steps of .005, sd .2": (0.5 - 0.005 * np.arange(12), 0.2),
    "steps of .02, sd .2": (0.5 - 0.02 * np.arange(12), 0.2),
}


def seeds(door):
    return SLOW_SEEDS if door == IN_FLIGHT else SEEDS


@functools.lru_cache
def runs(door, instance, n_rows=50_000):
    """Evaluations paid for in every run, and how many runs named another model than the best of the table."""
    means, sd = INSTANCES[instance]
    taken, wrong = [], 0
    for k in range(seeds(door)):
        table = scores(k, n_rows, means, sd)
        found = DOORS[door](table, k)
        taken.append(found.n_read + found.n_unused)
        wrong += int(found.best) != table.mean(axis=0).argmax()
    return np.array(taken), wrong


class TwelveModels:
    """12 models, 50,000 prompts, correlation 0.8; goal: 31,000 of 600,000 evaluations on average, at most 60,000."""

    params = (list(DOORS), list(INSTANCES))
    param_names = ["door", "instance"]
    timeout = 600

    def track_mean_evaluations(self, door, instance):
        return runs(door, instance)[0].mean()

    def track_most_evaluations(self, door, instance):
        return int(runs(door, instance)[0].max())

    def track_wrong(self, door, instance):
        return runs(door, instance)[1]


def answers(seed, n_rows, means, changed):
    """Right or wrong answers of variants that agree with a common answer but for that share of the prompts."""
    rng = np.random.default_rng([20160620, seed])
    level = rng.random((n_rows, 1)) * np.ones(means.size)
    fresh = rng.random((n_rows, means.size)) < changed
    level[fresh] = rng.random(int(fresh.sum()))
    return (level < means[rng.permutation(means.size)]).astype(float)


TIES, AHEAD = 0.7 - 0.001 * np.arange(6), 0.7 - 0.012 * (np.arange(6) > 0)
NEAR_TIES = {           # tables by seed; the standard deviation of a difference stands in the name
    "scores, within .005, sd .06": lambda k: scores(k, 20_000, TIES, 0.1),
    "scores, one is .012 ahead, sd .06": lambda k: scores(k, 20_000, AHEAD, 0.1),
    "answers, within .005, sd .15": lambda k: answers(k, 20_000, TIES, 0.025),
    "answers, one is .012 ahead, sd .15": lambda k: answers(k, 20_000, AHEAD, 0.025),
    "answers, within .005, sd .29": lambda k: answers(k, 20_000, TIES, 0.1),
}


@functools.lru_cache
def near_ties(instance, epsilon):
    """Share of the prompts that every run reads, and how many named a variant that is worse by `epsilon` or more."""
    share, wrong = [], 0
    for k in range(SEEDS):
        table = NEAR_TIES[instance](k)
        found = fr.race(paid(table), DELTA, n_arms=6, n_rows=20_000, support=(0, 1), epsilon=epsilon, rng=k)
        share.append(found.pulls.max() / 20_000)
        means = table.mean(axis=0)
        wrong += means[found.best] <= means.max() - epsilon if epsilon else means[found.best] < means.max()
    return np.array(share), int(wrong)


class SixNearTied:
    """Six variants of 20,000 prompts, epsilon one point; goal: at most 10 % of the prompts, at most 10 wrong."""

    params = (list(NEAR_TIES), [0.01, 0.0])
    param_names = ["instance", "epsilon"]
    timeout = 600

    def track_mean_share_of_prompts(self, instance, epsilon):
        return near_ties(instance, epsilon)[0].mean()

    def track_largest_share_of_prompts(self, instance, epsilon):
        return near_ties(instance, epsilon)[0].max()

    def track_wrong_of_200(self, instance, epsilon):
        return near_ties(instance, epsilon)[1]


def print_twelve_models():
    print("| | " + " | ".join(INSTANCES) + " |\n|---|" + "---|" * len(INSTANCES))
    for door in DOORS:
        made = [runs(door, instance) for instance in INSTANCES]
        cells = (f"{taken.mean():,.0f}, {taken.max():,}, {wrong}" for taken, wrong in made)
        print(f"| {door}, {seeds(door)} runs | " + " | ".join(cells) + " |", flush=True)


def print_near_ties():
    print("| | epsilon = .01: mean, most | wrong | no epsilon | wrong |\n|---|---|---|---|---|")
    for name in NEAR_TIES:
        cells = (f"{100 * share.mean():.1f} %, {100 * share.max():.1f} % | {wrong}"
                 for share, wrong in (near_ties(name, epsilon) for epsilon in SixNearTied.params[1]))
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    print_twelve_models()
    print_near_ties()
