"""Finite populations that break what assumes too much: each has mean 0 to rounding, values within its support."""

import numpy as np


def centred(values):
    values = np.asarray(values, float)
    return values - values.mean()


def rare(n, share, rng):
    """Mostly one value, a share far away."""
    values = np.zeros(n)
    values[rng.permutation(n)[: max(1, round(n * share))]] = 1.0
    return centred(values)


POPULATIONS = {
    "normal": lambda n, rng: centred(rng.standard_normal(n)),
    "uniform": lambda n, rng: centred(rng.random(n)),
    "lognormal": lambda n, rng: centred(np.exp(2 * rng.standard_normal(n))),
    "lognormal, turned": lambda n, rng: -centred(np.exp(2 * rng.standard_normal(n))),
    "1 in 100": lambda n, rng: rare(n, 0.01, rng),
    "1 in 100, turned": lambda n, rng: -rare(n, 0.01, rng),
    "1 in 1000": lambda n, rng: rare(n, 0.001, rng),
    "1 in 1000, turned": lambda n, rng: -rare(n, 0.001, rng),
    "two points": lambda n, rng: centred((np.arange(n) % 2).astype(float)),
    "huge offset": lambda n, rng: centred(rng.standard_normal(n)) + 1e9 - (1e9),
}


def hard_populations(rng, n):
    """Populations of mean 0 on which rules that trust early samples go wrong, by name."""
    share = {name: (np.arange(n) < n // part).astype(float) for name, part in (("1 in 1000", 1000), ("1 in 100", 100))}
    raw = {"normal": rng.standard_normal(n), "uniform": rng.random(n), "lognormal": rng.lognormal(0.0, 2.0, n), **share,
           "two points": np.repeat([0.0, 1.0], n // 2), "offset": rng.random(n) * 1e-3 + 1e6, "constant": np.zeros(n)}
    return {name: centred(values) for name, values in raw.items()}
