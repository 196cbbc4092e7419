"""Comparisons to try: events of arms, each kind of a comparison, and how it is told."""

import numpy as np

import fastrace as fr


def events(rng, n, shares=(0.7, 0.2, 0.1), lifts=(0.0, 0.05, -0.05)):
    arms = rng.choice(len(shares), size=n, p=shares)
    return arms, (rng.random(n) < 0.4 + np.array(lifts)[arms]).astype(float)


def holds(low, mean, high):
    return bool(np.all((low - 1e-9 <= mean) & (mean <= high + 1e-9)))


MAKERS = {
    "exact": lambda: fr.Comparison(["a", "b", "c"], support=(0, 1)),
    "asymptotic": lambda: fr.Comparison(["a", "b", "c"], first_look=20),
    "clusters": lambda: fr.Comparison(["a", "b", "c"], first_look=20, clusters=True),
}


def given(n, seed=6):
    rng = np.random.default_rng(seed)
    arms, x = events(rng, n)
    return np.array(["a", "b", "c"])[arms], x, rng.integers(0, 80, size=n)


def observe(test, arms, x, keys):
    test.observe_many(arms, x, clusters=keys if test.clusters else None)
