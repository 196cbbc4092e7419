"""Stopping rules by name, their plain twins, and laws of rewards to try them on."""

import functools
import math

import numpy as np

import fastrace as fr
from reference import stopping as twin

RULES = {
    "NAS, as printed": functools.partial(fr.NAS, two_sided=False),
    "NAS": fr.NAS,
    "geometric NAS": functools.partial(fr.GeometricNAS, two_sided=False),
    "EBStop, telescoping": functools.partial(fr.EBStop, spending="telescoping"),
    "EBStop": fr.EBStop,
    "EBGStop": functools.partial(fr.EBGStop, preset="plain"),
    "EBGStop*": fr.EBGStop,
    "SRA": fr.SRA,
    "AA": fr.AA,
}
TWINS = {
    "NAS, as printed": lambda x, e, d, low, high: twin.nas(x, e, d, high - low, two_sided=False),
    "NAS": lambda x, e, d, low, high: twin.nas(x, e, d, high - low),
    "geometric NAS": lambda x, e, d, low, high: twin.geometric_nas(x, e, d, high - low, two_sided=False),
    "EBStop, telescoping": lambda x, e, d, low, high: twin.bernstein(x, e, d, high - low, "telescoping"),
    "EBStop": lambda x, e, d, low, high: twin.bernstein(x, e, d, high - low),
    "EBGStop": lambda x, e, d, low, high: twin.bernstein(x, e, d, high - low, "telescoping", beta=1.5),
    "EBGStop*": lambda x, e, d, low, high: twin.bernstein(x, e, d, high - low, beta=1.1),
    "SRA": lambda x, e, d, low, high: twin.sra(x, e, d, high),
    "AA": lambda x, e, d, low, high: twin.aa(x, e, d, high),
}
LAWS = {        # draw, support, mean
    "Bernoulli 0.01": (lambda rng, k: (rng.random(k) < 0.01).astype(float), (0, 1), 0.01),
    "uniform": (lambda rng, k: rng.random(k), (0, 1), 0.5),
    "beta(0.5, 0.5)": (lambda rng, k: rng.beta(0.5, 0.5, k), (0, 1), 0.5),
    "two-point": (lambda rng, k: np.where(rng.random(k) < 0.3, 2.0, 0.5), (0.5, 2), 0.95),
    "constant": (lambda rng, k: np.full(k, 0.3), (0, 1), 0.3),
    "truncated lognormal": (lambda rng, k: np.minimum(rng.lognormal(0, 1, k), 10.0), (0, 10), None),
}


def lognormal_mean():
    """Of min(exp(Z), 10)."""
    from scipy.stats import norm

    cut = math.log(10)
    return math.exp(0.5) * norm.cdf(cut - 1) + 10 * norm.sf(cut)


def mean_of(law):
    return lognormal_mean() if law == "truncated lognormal" else LAWS[law][2]


def outcome(rule):
    return rule.n_samples, rule.stopped_by, rule.estimate, rule.interval


def one_by_one(rule, x):
    """Rewards used."""
    return next((k for k, v in enumerate(x, 1) if rule.update(v)), len(x))


ALL = {
    **{name: functools.partial(make, 0.1, 0.05) for name, make in RULES.items()},
    "absolute": functools.partial(fr.AbsoluteStop, 0.02, 0.05, bound="empirical-bernstein"),
    "fixed size": functools.partial(fr.AbsoluteStop, 0.02, 0.05, bound="fixed-size"),
    "sign": functools.partial(fr.SignStop, 0.45, 0.05, (0, 1), bound="empirical-bernstein"),
    "floor": functools.partial(fr.EBGStop, 1e-4, 0.05, floor=0.6),
    "NAS, floor": functools.partial(fr.NAS, 1e-4, 0.05, floor=0.6),
    "clipped": functools.partial(fr.EBStop, 0.1, 0.05, (0.1, 0.9), outside="clip"),
}
