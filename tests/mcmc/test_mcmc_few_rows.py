"""RacingMetropolis on a user's terms of which few decide: its races remember it, and a chain goes on with that."""

import warnings

import numpy as np
import pytest

from fastrace import mcmc
from guarantee import assert_rate_at_most

N = 5000


def model_of(few):
    """All rows weigh little but a few, and the model has no derivatives to expand it by."""
    rng = np.random.default_rng(few)
    weights, y = np.full(N, 2e-3), 0.5 * rng.standard_normal(N)
    weights[rng.choice(N, few, replace=False)] = 2.0
    return mcmc.FunctionModel(lambda theta, rows: -weights[rows] * (y[rows] - theta[0]) ** 2, 1, N, prior_sd=10.0)


def kernel_of(few, **options):
    return mcmc.RacingMetropolis(model_of(few), covariance=[[1.0 / few]], **options)


def checked(kernel):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace = mcmc.sample(kernel, n_draws=300, n_chains=2, n_tune=100, rng=1)
        return mcmc.check_bias(kernel, trace, 300, rng=2)


@pytest.mark.parametrize("few", [10, 25, 50])
def test_chains_of_races_keep_their_promise_where_few_rows_decide(few):
    found = checked(kernel_of(few))
    assert_rate_at_most(found.n_wrong, found.n_checked, 0.05)
    assert found.n_wrong <= 2


def test_without_the_guard_they_are_wrong():
    assert checked(kernel_of(25, skewness_guard=False)).n_wrong >= 8


def test_what_races_left_is_in_the_state_of_a_chain():
    kernel = kernel_of(25)
    state, whole = kernel.run(np.random.default_rng(3), kernel.init([0.0]), 60)
    rng = np.random.default_rng(3)
    middle, first = kernel.run(rng, kernel.init([0.0]), 25)
    last, second = kernel_of(25).run(rng, middle, 35)
    assert middle.cache[2] > 40.0 and last.cache == state.cache
    np.testing.assert_array_equal(np.concatenate([first.draws, second.draws]), whole.draws)
    np.testing.assert_array_equal(np.concatenate([first.rows, second.rows]), whole.rows)
