"""The gambler against his plain twin, and his promise: wealth 1 / alpha with probability at most alpha."""

import math

import numpy as np
import pytest

from fastrace.races._threshold import _wealth
from guarantee import assert_rate_at_most, few_or_many
from populations import hard_populations
from reference import betting


@pytest.mark.parametrize("n_rows", [5, 16, 17, 300, 3000])
def test_wealth_equals_twin(rng, n_rows):
    x = rng.normal(0.1, 1.0, n_rows)
    n = min(n_rows, 700)
    path, peak, impossible = betting.wealth(x[:n], n_rows, x.min())
    ours = _wealth(x[:n], n_rows, x.min(), cuts=range(1, n))
    np.testing.assert_allclose([row[0] for row in ours], path, rtol=1e-9, atol=1e-9)
    assert ours[-1][1] == pytest.approx(peak, rel=1e-9, abs=1e-9)
    assert ours[-1][2] == impossible


def test_wealth_equals_twin_after_long_losses(rng):
    x = rng.normal(-0.5, 1.0, 2500)
    path, peak, _ = betting.wealth(x[:2000], 10**9, -5.0)
    ours = _wealth(x[:2000], 10**9, -5.0)[-1]
    assert ours[0] == pytest.approx(path[-1], rel=1e-9)
    assert ours[1] == pytest.approx(peak, abs=1e-9)


def test_state_does_not_depend_on_cuts(rng):
    x = rng.exponential(1.0, 4000) - 0.97
    whole = _wealth(x, 10_000, -0.97)[-1]
    for _ in range(20):
        cuts = np.sort(rng.integers(0, 4000, 30))
        assert _wealth(x, 10_000, -0.97, cuts=cuts)[-1] == whole
    assert _wealth(x, 10_000, -0.97, cuts=range(4000))[-1] == whole


def test_difference_shift_and_mirror(rng):
    x, y = rng.random(500), rng.random(500)
    want = _wealth((x - y) + 0.25, 2000, -0.75)
    assert _wealth(x, 2000, -0.75, shift=0.25, y=y) == want
    assert _wealth(-y, 2000, -1.0, shift=0.25) == _wealth(y, 2000, -1.0, shift=0.25, mirrored=True)


def test_scaling_and_sign_of_affine_maps(rng):
    x = rng.random(600) - 0.4
    want = _wealth(x, 5000, -0.4)[-1]
    for scale in (2.0**-60, 2.0**40):
        assert _wealth(x * scale, 5000, -0.4 * scale)[-1] == want


def test_wins_on_a_positive_mean_and_not_on_a_negative_one(rng):
    x = rng.random(10_000)
    assert _wealth(x - 0.4, 10**6, -0.4)[-1][1] > math.log(1e6)
    assert _wealth(x - 0.6, 10**6, -0.6)[-1][1] < math.log(1e3)


def test_huge_population_and_huge_wealth_stay_finite(rng):
    x = np.full(5000, 1.0)
    x[::2] = 1.0 - 1e-6
    log_wealth, peak, impossible = _wealth(x, 2**62, -1e-6)[-1]
    assert math.isfinite(log_wealth) and peak > 1000.0 and not impossible
    values = rng.standard_normal(3000)
    assert all(math.isfinite(value) for value in _wealth(values, 2**62, -6.0)[-1][:2])


def test_at_most_sixteen_rows_nobody_bets():
    assert _wealth(np.full(15, 1.0), 16, -1.0, cuts=(7,)) == [(0.0, 0.0, False), (0.0, 0.0, True)]


def test_impossible_is_seen_as_soon_as_it_is_true():
    # nine rewards of 1 leave one row: it would have to be -9, below -8.5
    assert [row[2] for row in _wealth(np.ones(9), 10, -8.5, cuts=range(1, 9))] == [False] * 8 + [True]
    assert not _wealth(np.ones(9), 10, -9.0)[-1][2]


def test_rest_on_the_bound_is_no_proof(rng):
    """Five rare values in 5000, the rest exactly on the bound: mean 0 or just below, yet rounding can fake a proof."""
    wrong = trials = 0
    while trials < 300:
        low = -rng.random()
        x = np.full(5000, low)
        x[:5] = -999 * low
        x[0] -= math.fsum(x)
        if math.fsum(x) > 0:
            continue
        _, peak, impossible = _wealth(rng.permutation(x), 5000, low)[-1]
        wrong += impossible or peak >= math.log(1 / 0.01)
        trials += 1
    assert_rate_at_most(wrong, trials, 0.01)


@few_or_many("trials", 150, 1000)
def test_promise_on_worst_populations(trials, rng):
    """P(the wealth ever reaches 1 / alpha) <= alpha at mean 0, on each population and its mirror image."""
    for x in (side * x for x in hard_populations(rng, 5000).values() for side in (1, -1)):
        wrong = {0.1: 0, 0.01: 0}
        for _ in range(trials):
            _, peak, impossible = _wealth(rng.permutation(x), x.size, x.min())[-1]
            for alpha in wrong:
                wrong[alpha] += impossible or peak >= math.log(1 / alpha)
        for alpha, count in wrong.items():
            assert_rate_at_most(count, trials, alpha)


def test_constant_population_proves_nothing():
    assert _wealth(np.zeros(1000), 1000, 0.0)[-1] == (pytest.approx(0.0, abs=1e-15), 0.0, False)
