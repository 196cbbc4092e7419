"""Running moments of arrays, and all their bits."""

import numpy as np

from fastrace.moments import RunningComoments, RunningMoments


def moments_of(xs, n_arms=1):
    m = RunningMoments(n_arms)
    m.update_many(xs)
    return m


def comoments_of(xs, leader=0):
    c = RunningComoments(np.shape(xs)[1], leader)
    c.update_many(xs)
    return c


def state(m):
    """All bits of a RunningMoments or RunningComoments: counts, then mean and m2 as pairs of doubles."""
    _, args = m.__reduce__()[:2]
    return args[3].tolist(), args[4].tolist()


def assert_close(got, wanted, rtol):
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=0.0)


SIZES = [0, 1, 2, 4, 5, 8, 31, 32, 33, 63, 64, 65, 95, 1000, 1023, 1024, 1025, 1029, 3000]
