"""What errors show of a user's value: all of a short one, and type and shape of a long one."""

import numpy as np
import pytest

import fastrace as fr
from fastrace import mcmc
from fastrace._base._checks import shown
from fastrace.pulls import BernoulliPulls, as_pulls

TABLE = np.random.default_rng(0).normal(size=(25, 9))
NUMBERS = list(range(10_000))


@pytest.mark.parametrize("value, text", [
    (3, "3"), ("fast", "'fast'"), ((0, 1), "(0, 1)"), (np.float64(2.0), "np.float64(2.0)"), (np.array(3), "array(3)"),
    ([0.5, 1.0], "[0.5, 1.0]"), (np.arange(3), "array([0, 1, 2])"), (None, "None"),
    (TABLE, "<ndarray of shape (25, 9)>"), (NUMBERS, "<list of length 10000>"), ("x" * 1000, "<str>"),
    ([TABLE], "<list of length 1>"), (dict.fromkeys(NUMBERS), "<dict of length 10000>"),
])
def test_a_short_value_is_shown_whole_and_a_long_one_by_its_type_and_size(value, text):
    assert shown(value) == text


@pytest.mark.parametrize("call", [
    lambda bad: mcmc.RacingMetropolis(bad),
    lambda bad: mcmc.sample(bad),
    lambda bad: mcmc.Gibbs(bad),
    lambda bad: mcmc.GLM(TABLE, TABLE[:, 0] > 0.0, prior_sd=bad),
    lambda bad: mcmc.FunctionModel(bad, 1, 5),
    lambda bad: mcmc.Metropolis(mcmc.GLM(TABLE, TABLE[:, 0] > 0.0)).init(bad),
    lambda bad: fr.race(TABLE, delta=bad),
    lambda bad: fr.race(TABLE, bound=bad),
    lambda bad: fr.race(TABLE, support=bad),
    lambda bad: fr.EBStop(epsilon=bad),
    lambda bad: fr.EBStop(0.1, 0.1).update(bad),
    lambda bad: fr.RunningMoments().update(bad),
    lambda bad: as_pulls(None, bad),
    lambda bad: BernoulliPulls(bad),
    lambda bad: fr.FiniteRace(bad, 100),
])
@pytest.mark.parametrize("bad", [TABLE, TABLE.tolist() * 40, NUMBERS])
def test_no_error_prints_a_table(call, bad):
    with pytest.raises((TypeError, ValueError)) as caught:
        call(bad)
    assert len(str(caught.value)) < 500
