"""Running comoments: moments of differences, merges, too few rows."""

import operator

import numpy as np
import pytest

from fastrace.moments import RunningComoments, RunningMoments
from reference import moments as plain
from running_moments import assert_close, comoments_of, moments_of, state


@pytest.mark.parametrize("leader", [0, 4])
def test_comoments_equal_the_moments_of_differences(leader, rng):
    x = rng.normal(size=(3000, 5)) + rng.normal(size=(3000, 1))
    c = comoments_of(x, leader)
    d = x[:, [leader]] - x
    assert (c.n_arms, c.leader, c.count) == (5, leader, 3000)
    assert_close(c.difference_mean, [plain.two_pass(column.tolist())[0] for column in d.T], 1e-11)
    assert_close(c.difference_variance(), d.var(axis=0, ddof=1), 1e-12)
    assert_close(c.difference_variance(ddof=0), d.var(axis=0), 1e-12)
    assert c.difference_mean[leader] == c.difference_variance()[leader] == 0.0
    for j in range(5):
        assert state(c)[1][j] == state(moments_of(d[:, j]))[1][0]


def test_comoments_keep_their_digits_when_arms_are_almost_the_same(rng):
    # The variance of differences is 1e-18 of that of rewards: var + var - 2 cov has no digit left.
    common = rng.normal(size=(20_000, 1)) * 2.0**20
    x = common + np.round(rng.normal(size=(20_000, 3)) * 2.0**20) * 2.0**-30
    wanted = [plain.two_pass((x[:, 0] - x[:, j]).tolist())[1] for j in range(3)]
    cancelled = np.cov(x.T)
    assert abs(cancelled[0, 0] + cancelled[1, 1] - 2 * cancelled[0, 1] - wanted[1]) > wanted[1]
    c = RunningComoments(3)
    for part in np.array_split(x, 7):
        c.update_many(part)
    assert_close(c.difference_variance()[1:], wanted[1:], 1e-12)


def test_comoments_merge_as_if_the_rows_had_come_here(rng):
    x = rng.normal(size=(4000, 3)) + 1e9
    parts = [comoments_of(part, 1) for part in np.split(x, [1, 700, 3000])]
    merged = parts[0] + parts[1]
    merged.merge(parts[2])
    merged += parts[3]
    whole = comoments_of(x, 1)
    assert merged.count == 4000
    assert_close(merged.difference_variance()[[0, 2]], whole.difference_variance()[[0, 2]], 1e-12)
    np.testing.assert_allclose(merged.difference_mean, whole.difference_mean, atol=1e-14)


def test_comoments_of_too_few_rows_are_nan():
    c = RunningComoments(2)
    assert np.isnan(c.difference_mean).all()
    c.update_many([[1.0, 2.0]])
    assert c.difference_mean.tolist() == [0.0, -1.0]
    assert np.isnan(c.difference_variance()).all()
    assert c.difference_variance(ddof=0).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("make", [RunningMoments, lambda: RunningComoments(2)])
def test_merging_an_object_with_itself_is_refused(make):
    """Its rewards used to count twice."""
    seen = make()
    seen.update_many(np.ones((4, 2)) if isinstance(seen, RunningComoments) else np.ones(4))
    for merge in (lambda: seen.merge(seen), lambda: operator.iadd(seen, seen)):
        with pytest.raises(ValueError, match="merged with itself: its rewards would count twice"):
            merge()
    assert seen.count == 4
    seen.merge(seen.copy())
    assert seen.count == 8
