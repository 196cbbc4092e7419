"""Rules for the best m of n arms, and what tests of several of them share."""

import numpy as np
import pytest

import fastrace as fr

RULES = {
    "direct": lambda n, m, rng=1, **kw: fr.Direct(n, m, 0.4, 0.1, rng=rng, **kw),
    "halving": lambda n, m, rng=1, **kw: fr.Halving(n, m, 0.9, 0.3, rng=rng, **kw),
    "incremental": lambda n, m, rng=1, **kw: fr.Incremental(n, m, 0.9, 0.3, const=2, rng=rng, **kw),
    "adapt": lambda n, m, rng=1, **kw: fr.Adapt(n, m, 0.1, 0.1, rng=rng, **kw),
    "adapt in blocks": lambda n, m, rng=1, **kw: fr.Adapt(n, m, 0.1, 0.1, batch=20, rng=rng, **kw),
    "adapt by shares": lambda n, m, rng=1, **kw: fr.Adapt(n, m, 0.1, 0.1, batch=0.05, rng=rng, **kw),
    "adapt anytime": lambda n, m, rng=1, **kw: fr.Adapt(n, m, 0.1, 0.1, anytime=True, rng=rng, **kw),
    "colliding": lambda n, m, rng=1, **kw: fr.Adapt(n, m, 0.3, 0.1, policy="colliding", rng=rng, **kw),
    "uniform": lambda n, m, rng=1, **kw: fr.Adapt(n, m, 0.4, 0.1, policy="uniform", batch=7, rng=rng, **kw),
    "optimal": lambda n, m, rng=1, **kw: fr.Adapt(n, m, 0.3, 0.1, cutoff="optimal", batch=10, rng=rng, **kw),
    "ocba": lambda n, m, rng=1, **kw: fr.OCBA(n, m, 900, batch=3, rng=rng, **kw),
    "ocba deficit": lambda n, m, rng=1, **kw: fr.OCBA(n, m, 900, n0=5, batch=10, draw="deficit", rng=rng, **kw),
    "race": lambda n, m, rng=1, **kw: fr.SubsetRace(n, m, 400, 0.1, rng=rng, **kw),
    "race by variance": lambda n, m, rng=1, **kw: fr.SubsetRace(n, m, 400, 0.1, bound="bernstein", rng=rng, **kw),
}
MEANS = np.array([0.15, 0.85, 0.4, 0.7, 0.3, 0.2])
every_rule = pytest.mark.parametrize("make", RULES.values(), ids=RULES)


def drive(rule, source):
    while not rule.done:
        rule.tell(source.read(*rule.ask()))
    return rule.result()


def assert_same(result, other):
    assert result.stopped_by == other.stopped_by
    for name in ("best", "pulls", "mean", "lower", "upper", "error_bound"):
        assert np.array_equal(getattr(result, name), getattr(other, name), equal_nan=True), name
