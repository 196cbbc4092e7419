"""Formulas behind running moments: reductions on every instruction set, Welford, Chan, four moments."""

import math
import sys

import numpy as np
import pytest
from scipy import stats

from fastrace import moments
from reference import moments as plain
from running_moments import SIZES, assert_close


@pytest.mark.parametrize("n", SIZES)
def test_reductions_have_the_bits_of_their_twin_on_every_instruction_set(n, rng):
    x = rng.normal(size=n) * 10.0 ** rng.integers(-6, 6, size=n)
    total, low, high, finite = moments._reductions(x)
    assert total == plain.lane_sum(x.tolist())
    assert (low, high) == ((x.min(), x.max()) if n else (math.inf, -math.inf))
    assert finite


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("n", [1, 33, 1500])
def test_range_leaves_out_nan_and_finite_sees_every_place(bad, n, rng):
    for place in rng.integers(n, size=20):
        x = rng.normal(size=n)
        x[place] = bad
        _, low, high, finite = moments._reductions(x)
        assert not finite
        kept = x[~np.isnan(x)]
        assert (low, high) == ((kept.min(), kept.max()) if kept.size else (math.inf, -math.inf))


def test_finite_accepts_the_largest_doubles_and_denormals():
    x = np.array([sys.float_info.max, -sys.float_info.max, 5e-324, -0.0] * 50)
    assert moments._reductions(x)[3]


def cut(parts):
    """One value at a time."""
    x = np.concatenate(parts)
    return np.split(x, x.size)


@pytest.mark.parametrize("offset, rtol", [(0.0, 1e-13), (1e3, 1e-10), (1e9, 1e-5)])
@pytest.mark.parametrize("one_by_one", [False, True])
def test_moments_struct_equals_welford_and_chan(offset, rtol, one_by_one, rng):
    parts = [rng.gamma(2.0, size=n) + offset for n in (3000, 0, 1, 700)]
    n, mean, m2, variance = moments._moments(cut(parts) if one_by_one else parts)
    wanted = (0, 0.0, 0.0)
    for part in parts:
        wanted = plain.chan(wanted, plain.welford(part.tolist()))
    assert n == wanted[0] == 3701
    assert_close([mean, m2], wanted[1:], rtol)
    assert_close([mean, variance], plain.two_pass(np.concatenate(parts).tolist()), rtol)


def test_moments_extend_is_right_at_an_offset_of_1e9(rng):
    x = rng.normal(size=300_000) + 1e9
    assert_close(moments._moments([x])[3], plain.two_pass(x.tolist())[1], 1e-12)


def test_moments_variance_of_too_few_is_nan():
    assert math.isnan(moments._moments([])[3])
    assert math.isnan(moments._moments([np.ones(1)])[3])
    assert math.isnan(moments._moments([np.ones(2)], ddof=2.0)[3])
    assert moments._moments([np.ones(1)], ddof=0.0)[3] == 0.0


LAWS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "skewed": lambda rng, n: rng.gamma(0.5, size=n),
    "two-point": lambda rng, n: (rng.random(n) < 0.02) * 1.0,
    "uniform": lambda rng, n: rng.random(n) - 0.5,
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("one_by_one", [False, True])
def test_four_moments_equal_exact_sums_and_scipy(law, one_by_one, rng):
    parts = [LAWS[law](rng, n) for n in (2500, 1, 0, 40, 600)]
    x = np.concatenate(parts)
    sums, std, skewness, kurtosis = moments._moments4(cut(parts) if one_by_one else parts)
    wanted = plain.four_moments(x.tolist())
    assert sums[0] == wanted[0]
    scale = [x.std() ** power * x.size for power in (2, 3, 4)]
    np.testing.assert_allclose(sums[1], wanted[1], atol=1e-14 * np.abs(x).max())
    assert (np.abs(np.subtract(sums[2:], wanted[2:])) <= 1e-12 * np.array(scale)).all()
    assert_close(std, x.std(), 1e-12)
    assert abs(skewness - stats.skew(x)) <= 1e-11 * max(1.0, abs(stats.skew(x)))
    assert abs(kurtosis - stats.kurtosis(x)) <= 1e-11 * max(1.0, stats.kurtosis(x))


def test_four_moments_of_differences_keep_their_digits_beside_a_huge_common_term(rng):
    common = rng.normal(size=5000) * 1e6
    x, y = common + rng.gamma(2.0, size=5000), common
    sums, std, skewness, kurtosis = moments._moments4([x[:3000], x[3000:]], [y[:3000], y[3000:]])
    d = x - y
    assert_close(sums[2:], plain.four_moments(d.tolist())[2:], 1e-12)
    assert_close([std, skewness, kurtosis], [d.std(), stats.skew(d), stats.kurtosis(d)], 1e-11)


def test_shape_of_values_that_do_not_vary_is_unknown():
    for parts in ([], [np.full(50, 0.1)], [np.ones(1)]):
        _, std, skewness, kurtosis = moments._moments4(parts)
        assert math.isnan(skewness)
        assert math.isnan(kurtosis)
        assert math.isnan(std) if not parts else std == 0.0
