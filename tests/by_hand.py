"""Races over tables that are driven by hand, and when two answers are the same."""

import pickle

import numpy as np

from fastrace.races._options import BOUNDS

RULES = [rule for rule in BOUNDS if rule != "auto"]


def drive(race, values):
    """Run by hand."""
    while not race.done:
        arms, rows = race.ask()
        race.tell(values[np.ix_(rows, arms)])
    return race.result()


def drive_saved(race, values):
    """Run by hand, and after each answer go on with a saved copy, which knows the same; return the last one."""
    while not race.done:
        arms, rows = race.ask()
        race.tell(values[np.ix_(rows, arms)])
        again = pickle.loads(pickle.dumps(race))
        assert again.result() == race.result()
        race = again
    return race


def same(one, other):
    """Two results that agree but for the rounding of sums."""
    assert one.best == other.best
    assert one.stopped_by == other.stopped_by
    assert one.n_looks == other.n_looks
    np.testing.assert_array_equal(one.pulls, other.pulls)
    np.testing.assert_allclose(one.mean, other.mean, rtol=1e-12, atol=1e-12)
