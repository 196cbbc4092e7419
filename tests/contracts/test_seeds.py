"""What a test finds by generators that got no seed, it finds again."""

import numpy as np
from conftest import pytest_runtest_setup
from scipy import stats

import fastrace as fr


def drawn(test):
    pytest_runtest_setup(test)
    race = fr.FiniteRace(2, 10**6)
    return [*(np.random.default_rng().random() for _ in range(2)), np.random.SFC64().random_raw(),
            np.random.RandomState().random_sample(), stats.uniform.rvs(), *race.ask()[1][:2].tolist()]


def test_generators_without_a_seed_are_those_of_the_test(request):
    """NumPy might take its entropy from elsewhere one day."""
    numbers = drawn(request.node)
    assert numbers == drawn(request.node) and len(set(numbers)) == len(numbers)
    assert np.random.SeedSequence().entropy != np.random.SeedSequence().entropy
