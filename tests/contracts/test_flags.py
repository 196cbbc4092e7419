"""A switch is True or False: any other value, such as the word "no", is refused by name."""

import numpy as np
import pytest

import fastrace as fr
from fastrace import mcmc, model_selection

MODEL = mcmc.GLM(np.random.default_rng(0).normal(size=(50, 2)), np.arange(50) % 2, prior_sd=1.0)
ROWS = np.random.default_rng(1).random((50, 3))

SWITCHES = [
    (lambda **own: fr.AcceptTest(ROWS[:, :2], **own), ["student"]),
    (lambda **own: fr.Adapt(3, 1, 0.1, **own), ["anytime", "cap", "strict"]),
    (lambda **own: fr.DiscreteSampler(ROWS, **own), ["student", "skewness_guard", "tail_guard"]),
    (lambda **own: fr.EBGStop(0.1, **own), ["use_support"]),
    (lambda **own: fr.EBStop(0.1, **own), ["use_support"]),
    (lambda **own: fr.FiniteRace(3, 50, **own), ["student", "skewness_guard", "tail_guard"]),
    (lambda **own: fr.GeometricNAS(0.1, **own), ["two_sided"]),
    (lambda **own: fr.NAS(0.1, **own), ["two_sided"]),
    (lambda **own: fr.SubsetRace(3, 1, 100, **own), ["beyond"]),
    (lambda **own: fr.UnequalRace([50, 50], **own), ["student", "tail_guard"]),
    (lambda **own: mcmc.RacingMetropolis(MODEL, **own), ["delayed", "student"]),
    (lambda **own: model_selection.DAUB(3, 5000, **own), ["training_bound", "clip_slope", "verify", "capped"]),
    (lambda **own: model_selection.DAUBHalving(3, 5000, **own), ["training_bound", "aggressive", "finish"]),
]


@pytest.mark.parametrize(("make", "name"), [(make, name) for make, names in SWITCHES for name in names])
def test_a_switch_that_is_no_truth_value_is_refused_by_name(make, name):
    with pytest.raises(TypeError, match=rf"{name} is 'no'; True or False is needed"):
        make(**{name: "no"})
