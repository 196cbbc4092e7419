"""Evaluations that cost money: models on prompts that all of them answer, 200 tables of each kind.

`track_` methods count evaluations and wrong answers. No time is measured: a call takes far longer than a race.
``python -m benchmarks.paid``, from the folder above, prints the tables of `TwelveModels` and `SixNearTied`.
"""

import asyncio
import functools
import math

import numpy as np
from scipy.special import gammaln

import fastrace as fr
from benchmarks.in_flight import on_table

DELTA, SEEDS = 0.05, 200
IN_FLIGHT = "race_async, 64 in flight"      # up to a second of CPU each


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


@functools.lru_cache
def runs(door, instance, n_rows=50_000):
    """Evaluations paid for in every run, and how many runs named another model than the best of the table."""
    means, sd = INSTANCES[instance]
    taken, wrong = [], 0
    for k in range(SEEDS):
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
def near_ties(instance, epsilon, growth=None):
    """Share of the prompts that every run reads, and how many named a variant that is worse by `epsilon` or more."""
    share, wrong = [], 0
    for k in range(SEEDS):
        table = NEAR_TIES[instance](k)
        found = fr.race(paid(table), DELTA, n_arms=6, n_rows=20_000, support=(0, 1), epsilon=epsilon, rng=k,
                        growth=growth)
        share.append(found.pulls.max() / 20_000)
        means = table.mean(axis=0)
        wrong += means[found.best] <= means.max() - epsilon if epsilon else means[found.best] < means.max()
    return np.array(share), int(wrong)


def near_ties_known(instance, epsilon, n_tables=SEEDS):
    """Share of the prompts that who knows the table needs on average to show that the best variant will do.

    Each rival has a test of its own with a fifth of delta, that of the ratio of likelihoods of the counts of prompts on
    which the two differ: as they are, and as they would be were the rival better by `epsilon`. So tests a pair who
    needs about the fewest prompts on average and may stop at any time; a race may name another variant than the best.
    """
    found = []
    for k in range(n_tables):
        table = NEAR_TIES[instance](k)
        table = table[np.random.default_rng(k).permutation(len(table))]
        best, needed = table.mean(axis=0).argmax(), 0
        for rival in np.delete(np.arange(table.shape[1]), best):
            up, down = (table[:, best] > table[:, rival]).cumsum(), (table[:, best] < table[:, rival]).cumsum()
            differ = up[-1] + down[-1]
            worse = math.ceil(0.5 * (differ + epsilon * len(table)))
            ratio = (log_ways(up[-1], up) + log_ways(down[-1], down)
                     - log_ways(differ - worse, up) - log_ways(worse, down))
            shown = ratio >= math.log((table.shape[1] - 1) / DELTA)
            needed = max(needed, 1 + shown.argmax() if shown.any() else len(table))
        found.append(needed / len(table))
    return np.array(found)


def log_ways(n, k):
    """Log of the number of ways to choose each k of n; -inf where there is none."""
    inside = np.minimum(k, n)
    return np.where(k > n, -np.inf, gammaln(n + 1) - gammaln(inside + 1) - gammaln(n - inside + 1))


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
        print(f"| {door}, {SEEDS} runs | " + " | ".join(cells) + " |", flush=True)


def print_near_ties():
    print("| | epsilon = .01: mean, most | wrong | growth = 1.1 | table known | no epsilon | wrong |")
    print(7 * "|---" + "|")
    for name in NEAR_TIES:
        near, whole = (f"{100 * share.mean():.1f} %, {100 * share.max():.1f} % | {wrong}"
                       for share, wrong in (near_ties(name, epsilon) for epsilon in SixNearTied.params[1]))
        coarser = f"{100 * near_ties(name, 0.01, 1.1)[0].mean():.1f} %"
        known = near_ties_known(name, 0.01) if name.startswith("answers") else None
        floor = "" if known is None else f"{100 * known.mean():.1f} % +- {100 * known.std() / math.sqrt(SEEDS):.1f}"
        print(f"| {name} | {near} | {coarser} | {floor} | {whole} |", flush=True)


if __name__ == "__main__":
    print_twelve_models()
    print_near_ties()
