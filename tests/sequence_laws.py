"""Confidence sequences and rules that stop by bets: their names, their twins, and laws of rewards to try them on."""

import math

import numpy as np

import fastrace as fr
from reference import sequences as twin

BOUNDS = ["empirical-bernstein-mixture", "plug-in", "stitched", "hoeffding", "betting", "universal"]
OF_POPULATIONS = ["plug-in", "betting", "universal"]
TWINS = {
    "empirical-bernstein-mixture": twin.mixture,
    "plug-in": twin.plug_in,
    "stitched": twin.stitched,
    "hoeffding": twin.hoeffding,
    "betting": twin.betting,
    "universal": twin.universal,
}
LAWS = {
    "bernoulli 0.5": lambda rng, n: (rng.random(n) < 0.5).astype(float),
    "bernoulli 0.05": lambda rng, n: (rng.random(n) < 0.05).astype(float),
    "bernoulli 0.01": lambda rng, n: (rng.random(n) < 0.01).astype(float),
    "uniform": lambda rng, n: rng.random(n),
    "beta(0.5, 0.5)": lambda rng, n: rng.beta(0.5, 0.5, n),
    "two points": lambda rng, n: np.where(rng.random(n) < 0.3, 0.9, 0.2),
    "constant 0": lambda rng, n: np.zeros(n),
    "constant 0.3": lambda rng, n: np.full(n, 0.3),
    "constant 1": lambda rng, n: np.ones(n),
    "lognormal": lambda rng, n: np.minimum(rng.lognormal(-2.5, 1.0, n), 1.0),
}
# of min(lognormal(-2.5, 1), 1): exp(m + s^2 / 2) Phi((0 - m - s^2) / s) + 1 - Phi((0 - m) / s)
MEANS = {"bernoulli 0.5": 0.5, "bernoulli 0.05": 0.05, "bernoulli 0.01": 0.01, "uniform": 0.5, "beta(0.5, 0.5)": 0.5,
         "two points": 0.41, "constant 0": 0.0, "constant 0.3": 0.3, "constant 1": 1.0,
         "lognormal": math.exp(-2.0) * 0.5 * math.erfc(-1.5 / math.sqrt(2)) + 0.5 * math.erfc(2.5 / math.sqrt(2))}
RULES = {
    "TargetEBStop": lambda **given: fr.TargetEBStop(**given),
    "TargetBetStop": lambda **given: fr.TargetBetStop(**given),
    "TargetOddsStop": lambda **given: fr.TargetOddsStop(**given),
    "BettingStop": lambda **given: fr.BettingStop(**given),
}


def streams(n):
    """The streams of the test vectors: no random numbers."""
    g = (np.arange(1, n + 1) * 0.6180339887498949) % 1.0
    return {"constant": np.full(n, 0.5), "g": g, "g^4": g**4, "g < 0.3": (g < 0.3).astype(float),
            "narrow": 0.4 + 0.2 * g}


def makers():
    for bound in BOUNDS:
        yield f"ConfidenceSequence {bound}", lambda bound=bound, **given: fr.ConfidenceSequence(bound, **given)
    yield from RULES.items()
    for bound in ("target", "target-odds", "betting"):
        yield f"AbsoluteStop {bound}", lambda bound=bound, **given: fr.AbsoluteStop(
            **{"epsilon": 0.02, "bound": bound, **given})
    yield "universal population", lambda **given: fr.ConfidenceSequence("universal", n_rows=4000, **given)
    yield "SignStop", lambda **given: fr.SignStop(**{"threshold": 0.41, "support": (0, 1), **given})


MAKERS = dict(makers())


def state(stream):
    return stream.interval, stream.n_samples, stream.stopped_by, repr(stream.estimate)
