"""Pulls until LUCB stops, by pairs and by intervals: those it was made for and with, and twenty others; for README.md.

    python bench/pairs.py [runs]
    python bench/pairs.py small [runs]

For the five of GOAL, at delta .1, pairs are to take at most three quarters of the pulls on three, and for the twenty,
which were written down before any of them was run, never more than 1.05 times as many. The last columns are the ratio
of the pulls with its standard error, and the wrong answers of either rule.

`small` is of small rates and small gaps, where pairs once saw nothing. It adds the pulls of KL-LUCB, and
T* log(1 / delta), the least that any rule takes on average as delta goes to 0.
"""

import functools
import sys

import numpy as np
from benchmarks.lucb import characteristic_time

import fastrace as fr
from fastrace.pulls import BernoulliPulls, UniformPulls


def bernoulli(rng, means):
    return (rng.random(len(means)) < means).astype(float)


def uniform(width):
    return lambda rng, means: means + width * (rng.random(len(means)) - 0.5)


def normal(scale):
    return lambda rng, means: np.clip(rng.normal(means, scale), 0.0, 1.0)


def beta(size):
    return lambda rng, means: rng.beta(size * means, size * (1.0 - means))


# Means from the best to the worst, how many are wanted, epsilon, delta, and the law.
GOAL = {
    ".55, nine of .45; delta .1": (np.r_[0.55, np.full(9, 0.45)], 1, 0.0, 0.1, bernoulli),
    ".6, 99 of .4; delta .1": (np.r_[0.6, np.full(99, 0.4)], 1, 0.0, 0.1, bernoulli),
    "20 from .9 to .1; delta .1": (np.linspace(0.9, 0.1, 20), 1, 0.0, 0.1, bernoulli),
    ".5 .45 .43 .4; delta .1": (np.array([0.5, 0.45, 0.43, 0.4]), 1, 0.0, 0.1, bernoulli),
    ".3 .21 .2 .19 .18; delta .1": (np.array([0.3, 0.21, 0.2, 0.19, 0.18]), 1, 0.0, 0.1, bernoulli),
}
FIVE = {
    ".55, nine of .45": (np.r_[0.55, np.full(9, 0.45)], 1, 0.0, 0.05, bernoulli),
    ".6, 49 of .4": (np.r_[0.6, np.full(49, 0.4)], 1, 0.0, 0.05, bernoulli),
    "10 from .75 to .25": (np.linspace(0.75, 0.25, 10), 1, 0.0, 0.05, bernoulli),
    "50 from .9 to .1": (np.linspace(0.9, 0.1, 50), 1, 0.0, 0.05, bernoulli),
    "10, sd .05, gap .1": (np.r_[0.6, np.full(9, 0.5)], 1, 0.0, 0.05, normal(0.05)),
}
TWENTY = {
    "two, .6 and .5": (np.array([0.6, 0.5]), 1, 0.0, 0.05, bernoulli),
    "two, .1 and .05": (np.array([0.1, 0.05]), 1, 0.0, 0.05, bernoulli),
    "two, .95 and .9": (np.array([0.95, 0.9]), 1, 0.0, 0.05, bernoulli),
    "three, .5 .45 .2": (np.array([0.5, 0.45, 0.2]), 1, 0.0, 0.05, bernoulli),
    "2 of 5, .7 to .3": (np.linspace(0.7, 0.3, 5), 2, 0.0, 0.05, bernoulli),
    "3 of 10, .8 to .2": (np.linspace(0.8, 0.2, 10), 3, 0.0, 0.05, bernoulli),
    "5 of 10, .6 and .45": (np.repeat([0.6, 0.45], 5), 5, 0.0, 0.05, bernoulli),
    "9 of 10, all but .4": (np.r_[np.full(9, 0.55), 0.4], 9, 0.0, 0.05, bernoulli),
    "5 of 20, .9 to .1": (np.linspace(0.9, 0.1, 20), 5, 0.0, 0.05, bernoulli),
    ".3, 29 of .15": (np.r_[0.3, np.full(29, 0.15)], 1, 0.0, 0.05, bernoulli),
    ".9, 99 of .6": (np.r_[0.9, np.full(99, 0.6)], 1, 0.0, 0.05, bernoulli),
    ".05, nine of .01": (np.r_[0.05, np.full(9, 0.01)], 1, 0.0, 0.05, bernoulli),
    ".99, nine of .95": (np.r_[0.99, np.full(9, 0.95)], 1, 0.0, 0.05, bernoulli),
    "8, gaps .02 .04 .08 ...": (np.r_[0.7, 0.7 - 0.02 * 2.0 ** np.arange(5), 0.1, 0.05], 1, 0.0, 0.05, bernoulli),
    "10 of .5, epsilon .1": (np.full(10, 0.5), 1, 0.1, 0.05, bernoulli),
    "2 of 8, epsilon .05": (np.linspace(0.7, 0.35, 8), 2, 0.05, 0.05, bernoulli),
    "10, delta .001": (np.linspace(0.75, 0.25, 10), 1, 0.0, 0.001, bernoulli),
    "10, delta .3": (np.linspace(0.75, 0.25, 10), 1, 0.0, 0.3, bernoulli),
    "10 uniform, width .4": (np.linspace(0.7, 0.3, 10), 1, 0.0, 0.05, uniform(0.4)),
    "10 beta, sizes of 40": (np.linspace(0.34, 0.16, 10), 1, 0.0, 0.05, beta(40.0)),
}
ALL = {**GOAL, **FIVE, **TWENTY}
SMALL = {
    name: np.array(means) for name, means in {
        ".012 and .010": [0.012, 0.010], ".0115 and .010": [0.0115, 0.010], ".011 and .010": [0.011, 0.010],
        ".0011 and .0010": [0.0011, 0.0010], ".9995 and .9990": [0.9995, 0.9990], ".021 and .020": [0.021, 0.020],
        ".06 and .058": [0.06, 0.058], ".051 and .050": [0.051, 0.050], ".501 and .500": [0.501, 0.500],
        ".5004 and .5000": [0.5004, 0.5000], ".012, nine of .010": [0.012, *[0.010] * 9],
    }.items()
}
NARROW = "uniform, width .04, .5001 and .5000"      # the one that is not of rewards 0 and 1
RULES = {"intervals": {"rule": "intervals"}, "pairs": {"rule": "pairs"}, "KL-LUCB": {"bound": "kl"}}
MOST = 600_000_000


def run(instance, k, **options):
    means, n_best, epsilon, delta, law = instance
    rng = np.random.default_rng(k)
    rule = fr.LUCB(len(means), n_best, epsilon, delta, **options)
    result = rule.run(lambda arms, counts: law(rng, np.repeat(means[arms], counts)))
    return result.n_read, means[np.atleast_1d(result.best)].min() < means[n_best - 1] - epsilon - 1e-12


@functools.lru_cache
def compared(name, runs):
    """Mean pulls by intervals and by pairs, the ratio with its standard error, and wrong answers of each."""
    instance = ALL[name]
    made = np.array([[run(instance, k, rule=rule) for k in range(runs)] for rule in ("intervals", "pairs")], float)
    (intervals, pairs), wrong = made[..., 0], made[..., 1].sum(axis=1)
    ratio = pairs.mean() / intervals.mean()
    error = np.std(pairs / intervals.mean() - ratio * intervals / intervals.mean()) / np.sqrt(runs)
    return intervals.mean(), pairs.mean(), ratio, error, wrong


def pulls_of(name, rule, k):
    """Pulls, at most MOST, whether the rule ended by itself, and whether its answer is wrong."""
    means = SMALL.get(name, np.array([0.5001, 0.5]))
    source = (UniformPulls(means - 0.02, means + 0.02, rng=k) if name == NARROW else BernoulliPulls(means, rng=k))
    result = fr.LUCB(means.size, 1, **RULES[rule]).run(source, MOST)
    ended = result.stopped_by == "bound"
    return result.n_read, ended, ended and result.best != 0


def small(runs=8):
    print(f"| instance, {runs} runs | T* log(1 / delta) | {' | '.join(RULES)} | pairs over intervals | wrong |")
    print("|---|---|---|---|---|---|---|")
    for name in [*SMALL, NARROW]:
        least = f"{characteristic_time(SMALL[name]) * -np.log(0.05):,.0f}" if name in SMALL else ""
        found = {rule: np.array([pulls_of(name, rule, k) for k in range(runs)]) for rule in RULES}
        mean = {rule: of[:, 0].mean() for rule, of in found.items()}
        ended = {rule: int(of[:, 1].sum()) for rule, of in found.items()}
        shown = [f"{mean[rule]:,.0f}" if ended[rule] == runs else
                 f"more than {mean[rule]:,.0f}; {ended[rule]} of {runs} ended" for rule in RULES]
        print(f"| {name} | {least} | {' | '.join(shown)} | {mean['pairs'] / mean['intervals']:.2f} "
              f"| {found['pairs'][:, 2].sum()} of {runs} |", flush=True)


def main(runs=20):
    ratios = []
    print("| instance | by intervals | by pairs | pairs over intervals | wrong |\n|---|---|---|---|---|")
    for name in ALL:
        intervals, pairs, ratio, error, wrong = compared(name, runs)
        ratios.append(ratio)
        print(f"| {name} | {intervals:,.0f} | {pairs:,.0f} | {ratio:.2f} +- {error:.2f} "
              f"| {wrong[0]:.0f}, {wrong[1]:.0f} of {runs} |", flush=True)
    within = sum(ratio <= 1.05 for ratio in ratios[-len(TWENTY):])
    print(f"\nIn {len(ratios)} comparisons, intervals took {1 / max(ratios):.1f} to {1 / min(ratios):.1f} times as "
          f"many pulls as pairs. On {within} of the {len(TWENTY)}, pairs took at most 1.05 times those of intervals.")


if __name__ == "__main__":
    if sys.argv[1:2] == ["small"]:
        small(*map(int, sys.argv[2:]))
    else:
        main(*map(int, sys.argv[1:]))
