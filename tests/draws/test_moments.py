"""Running moments equal two passes over the data, however the data came, and lose nothing to bad input."""

import copy
import ctypes
import math
import operator
import pickle
import subprocess
import sys
import threading
import tracemalloc
from fractions import Fraction

import cloudpickle
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import ctrl_c
from fastrace import moments
from fastrace.moments import RunningComoments, RunningMoments
from reference import moments as plain
from resident import assert_grows_at_most


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


def exact(x):
    """Mean and unbiased variance in rational numbers."""
    values = [Fraction(float(v)) for v in x]
    mean = sum(values) / len(values)
    return float(mean), float(sum((v - mean) ** 2 for v in values) / (len(values) - 1))


def assert_close(got, wanted, rtol):
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=0.0)


# Reductions

SIZES = [0, 1, 2, 4, 5, 8, 31, 32, 33, 63, 64, 65, 95, 1000, 1023, 1024, 1025, 1029, 3000]


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


# Headers

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


# RunningMoments


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_update_and_update_many_have_the_bits_of_their_twin(n, offset, rng):
    x = rng.normal(size=n) + offset
    m, twin = RunningMoments(), plain.Running()
    for v in x[: n // 3]:
        m.update(v)
        twin.update(float(v))
    m.update_many(x[n // 3 :])
    twin.update_many(x[n // 3 :].tolist())
    assert state(m) == ([n], [twin.state])


@pytest.mark.parametrize("offset", [0.0, 1.0, -1e6, 1e9, 1e12])
@pytest.mark.parametrize("n", [2, 3, 1000, 100_000])
def test_variance_equals_two_passes_to_1e_12_at_any_offset(n, offset, rng):
    x = rng.normal(size=n) + offset
    wanted = plain.two_pass(x.tolist())
    single = RunningMoments()
    for v in x.tolist():
        single.update(v)
    halves = moments_of(x[: n // 2])
    halves.merge(moments_of(x[n // 2 :]))
    for m in (single, moments_of(x), halves):
        assert m.count == n
        assert_close(m.mean, wanted[0], 1e-12)
        assert_close(m.variance(), wanted[1], 1e-12)
        assert_close(m.variance(ddof=0), wanted[1] * (n - 1) / n, 1e-12)
        assert_close(m.std(), math.sqrt(wanted[1]), 1e-12)
    if n >= 1000 and offset <= 1e9:         # otherwise the rounding of its mean shows in NumPy's variance
        assert_close(moments_of(x).variance(), np.var(x, ddof=1), 1e-12)


def test_ten_million_at_a_mean_of_1e9_equal_two_passes(rng):
    x = rng.normal(size=10**7) + 1e9
    d = x - 1e9
    variance = np.var(d)
    m = moments_of(x)
    assert_close(m.mean - 1e9, d.mean(), 1e-3)
    assert_close(m.variance(ddof=0), variance, 1e-12)


def test_an_outlier_first_costs_no_digits(rng):
    x = np.concatenate([[1e9], rng.normal(size=5000)])
    m = RunningMoments()
    for v in x:
        m.update(v)
    assert_close([m.mean, m.variance()], exact(x), 1e-12)
    assert_close([moments_of(x).mean, moments_of(x).variance()], exact(x), 1e-12)


magnitudes = st.floats(-1e3, 1e3).filter(lambda v: v == 0.0 or abs(v) > 1e-3)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(magnitudes, min_size=2, max_size=120),
    st.integers(0, 3000),
    st.lists(st.integers(0, 3200), max_size=5),
    st.sampled_from([(0.0, 1e-10), (1e9, 1e-6)]),
)
def test_update_one_by_one_equals_update_many_equals_merge(values, more, cuts, case):
    offset, rtol = case
    filler = np.random.default_rng(more).normal(size=more)
    x = np.concatenate([values, filler]) + offset
    single = RunningMoments()
    for v in x:
        single.update(v)
    merged = RunningMoments()
    in_steps = RunningMoments()
    for part in np.split(x, sorted(min(c, len(x)) for c in cuts)):
        merged.merge(moments_of(part))
        in_steps.update_many(part)
    mean, variance = exact(x)
    tiny = 1e-12 * max(abs(mean), math.sqrt(variance))
    for m in (single, moments_of(x), merged, in_steps, sum([moments_of(x)], RunningMoments())):
        assert m.count == len(x)
        assert abs(m.mean - mean) <= tiny
        assert abs(m.variance() - variance) <= rtol * variance


def test_mean_of_constant_is_exact_after_a_billion():
    m = moments_of(np.full(10**6, 0.1))
    for _ in range(1000):
        m.update(0.1)
    for _ in range(10):
        m.merge(m.copy())
    assert m.count == (10**6 + 1000) * 1024
    for _ in range(1000):
        m.update(0.1)
    assert abs(m.mean - 0.1) <= 1e-12 * 0.1
    assert m.variance() <= 1e-30


def test_a_billion_values_do_not_drift():
    # 0, 0, 1 over and over: all roundings of plain sums go the same way. A zero-stride table costs no memory.
    x = np.broadcast_to(np.array([0.0, 0.0, 1.0]), (100_000, 3)).reshape(-1)
    single = RunningMoments()
    for v in x.tolist():
        single.update(v)
    assert_close(single.mean, 1 / 3, 1e-15)
    assert_close(single.variance(ddof=0), 2 / 9, 1e-14)
    m = moments_of(x)
    for _ in range(12):
        m.merge(m.copy())
    assert m.count == 3 * 10**5 * 4096
    for v in x[:30_000].tolist():
        m.update(v)
    assert_close(m.mean, 1 / 3, 1e-15)
    assert_close(m.variance(ddof=0), 2 / 9, 1e-14)


def test_counters_are_64_bits_wide():
    m = moments_of([1.0, 3.0])
    for _ in range(40):
        m.merge(m.copy())
    assert m.count == 2**41
    m.update(2.0)
    m.update_many([1.0, 3.0])
    assert m.count == 2**41 + 3
    assert_close([m.mean, m.variance()], [2.0, 1.0], 1e-11)
    for _ in range(20):
        m.merge(m.copy())
    before = state(m)
    m.merge(m.copy())
    with pytest.raises(OverflowError, match="2\\*\\*63"):
        m.merge(m.copy())
    assert m.count == 2 * before[0][0]


@pytest.mark.resources
def test_a_million_arms_take_40_bytes_each():
    row = np.ones((1, 10**6))

    def updated():
        m = RunningMoments(10**6)
        m.update_many(row)
        m.update_many(row)
        return m

    m = assert_grows_at_most(64 * 10**6 + 2**20, updated)
    assert m.count.sum() == 2 * 10**6
    assert (m.mean == 1.0).all()
    assert m.variance()[-1] == 0.0


def test_one_arm_gives_numbers_and_several_give_vectors(rng):
    m = moments_of([1.0, 2.0, 6.0])
    assert (m.n_arms, m.count, m.mean, m.variance()) == (1, 3, 3.0, 7.0)
    assert type(m.count) is int
    assert all(type(v) is float for v in (m.mean, m.variance(), m.std()))
    x = rng.normal(size=(700, 13)) * np.arange(1, 14)
    m = moments_of(x, 13)
    assert m.count.dtype == np.int64
    assert (m.count == 700).all()
    assert_close(m.mean, x.mean(axis=0), 1e-10)
    assert_close(m.variance(), x.var(axis=0, ddof=1), 1e-12)
    assert_close(m.std(ddof=0), x.std(axis=0), 1e-12)
    m.update(4.0, arm=2)
    m.update(4.0, 2)
    assert m.count.tolist() == [700] * 2 + [702] + [700] * 10
    for j in range(13):
        if j != 2:
            assert state(m)[1][j] == state(moments_of(x[:, j]))[1][0]


@pytest.mark.parametrize("n_rows", [1, 3, 5, 2000])
def test_many_arms_in_few_rows(n_rows, rng):
    x = rng.normal(size=(n_rows, 3000))
    m, wide = moments_of(x, 3000), x.astype(np.longdouble)
    np.testing.assert_allclose(m.mean, wide.mean(axis=0).astype(float), rtol=1e-14, atol=1e-15)
    assert_close(m.variance(ddof=0), wide.var(axis=0).astype(float), 1e-13)


def test_too_few_rewards_say_nan_not_zero():
    m = RunningMoments(2)
    assert np.isnan(m.mean).all()
    m.update(1.0, arm=1)
    assert m.mean[1] == 1.0
    assert np.isnan(m.variance()).all()
    assert m.variance(ddof=0)[1] == 0.0
    assert math.isnan(RunningMoments().mean)
    assert math.isnan(RunningMoments().std())
    assert math.isnan(moments_of([1.0, 2.0]).variance(ddof=2))


@pytest.mark.resources
def test_ctrl_c_stops_within_100_ms_and_leaves_the_object_as_it_was():
    m = moments_of([1.0, 2.0])
    before = state(m)
    endless = np.broadcast_to(np.float64(0.5), 10**11)
    tables = [(m, endless), (RunningComoments(3), np.broadcast_to(0.5, (10**10, 3))), (m, endless.view(np.int64))]
    for target, xs in tables:
        assert ctrl_c.press(lambda target=target, xs=xs: target.update_many(xs), 3) == 3
    assert state(m) == before
    m.update_many([3.0])
    assert (m.count, m.mean) == (3, 2.0)


# Made by version 0.1.0.
def test_pickle_copy_and_continue_to_the_same_bits(rng):
    x = rng.normal(size=(5000, 4)) + 1e6
    for make in (lambda: moments_of(x, 4), lambda: comoments_of(x, 2), lambda: moments_of(x[:, 0])):
        whole = make()
        tail = x[:1234] if whole.n_arms == 4 else x[:1234, 0]
        copies = [pickle.loads(pickle.dumps(whole, p)) for p in range(2, pickle.HIGHEST_PROTOCOL + 1)]
        copies += [copy.copy(whole), copy.deepcopy(whole), whole.copy(), pickle.loads(cloudpickle.dumps(whole))]
        whole.update_many(tail)
        for other in copies:
            assert type(other) is type(whole)
            assert state(other) != state(whole)
            other.update_many(tail)
            assert state(other) == state(whole)
            assert repr(other) == repr(whole)


def test_a_pickle_reaches_another_process():
    m = moments_of([1.0, 2.0, 4.0])
    code = "import pickle, sys; m = pickle.load(sys.stdin.buffer); m.update(8.0); print(m.count, m.mean)"
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(m), capture_output=True, check=True)
    assert done.stdout.split() == [b"4", b"3.75"]


def test_damaged_pickles_are_refused():
    restore, (version, cls, leader, counts, values) = moments_of([1.0, 2.0]).__reduce__()
    for args, error in [
        ((2, cls, leader, counts, values), "version 2"),
        ((version, cls, leader, counts, values[:, :3]), "damaged"),
        ((version, cls, leader, -counts, values), "damaged"),
        ((version, cls, leader, counts, values * math.nan), "damaged"),
        ((version, cls, 1, counts, values), "damaged"),
        ((version, cls, 0, counts, values), "damaged"),
        ((version, RunningComoments, leader, counts, values), "damaged"),
        ((version, int, leader, counts, values), "damaged"),
    ]:
        with pytest.raises((ValueError, TypeError), match=error):
            restore(*args)


class Tagged(RunningMoments):
    """A subclass with an attribute of its own."""


def test_subclasses_keep_class_and_attributes():
    m = Tagged()
    m.tag = "left"
    m.update(2.0)
    for other in (pickle.loads(pickle.dumps(m)), copy.deepcopy(m), m.copy(), m + m):
        assert type(other) is Tagged
        assert other.tag == "left"
        assert other.mean == 2.0
    m += RunningMoments()
    assert (type(m), m.count) == (Tagged, 1)


def test_threads_lose_nothing(rng):
    x = rng.normal(size=(8, 50_000))
    shared = RunningMoments()
    own = [RunningMoments() for _ in x]

    def work(part, mine):
        for piece in np.split(part, 10):
            shared.update_many(piece)
            mine.update_many(piece)

    threads = [threading.Thread(target=work, args=a) for a in zip(x, own, strict=True)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert shared.count == x.size
    assert_close(shared.variance(ddof=0), x.var(), 1e-12)
    for part, mine in zip(x, own, strict=True):
        serial = RunningMoments()
        for piece in np.split(part, 10):
            serial.update_many(piece)
        assert state(mine) == state(serial)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_inf_are_refused_with_their_position(bad, rng):
    m = moments_of([1.0, 2.0])
    before = state(m)
    with pytest.raises(ValueError, match=f"reward 2 is {bad}; rewards must be finite"):
        m.update(bad)
    for n, place in [(1, 0), (40, 39), (3000, 2047), (700_000, 600_001)]:
        for x in (rng.normal(size=n), rng.normal(size=n).astype(np.float32), rng.normal(size=n).astype(np.float16)):
            x[place] = bad
            with pytest.raises(ValueError, match=rf"xs\[{place}\] is {bad}; rewards must be finite"):
                m.update_many(x)
            x[0] = bad
            with pytest.raises(ValueError, match=r"xs\[0\] is "):
                m.update_many(x)
    assert state(m) == before
    m3, c3 = RunningMoments(3), RunningComoments(3, leader=2)
    with pytest.raises(ValueError, match=f"reward 0 of arm 1 is {bad}"):
        m3.update(bad, arm=1)
    for arm in range(3):
        table = rng.normal(size=(200_000, 3))
        table[150_000, arm] = bad
        for target in (m3, c3):
            with pytest.raises(ValueError, match=rf"xs\[150000, {arm}\] is {bad}"):
                target.update_many(table)
    assert state(m3)[0] == state(c3)[0] == [0, 0, 0]
    with pytest.raises(ValueError, match=r"xs\[0, 0\]"):
        RunningComoments(1).update_many([[bad]])


def test_rewards_too_large_to_square_are_refused_not_made_nan():
    m = moments_of([1.0])
    before = state(m)
    for call in (
        lambda: m.update(1e200),
        lambda: m.update_many([1.0, 1e200]),
        lambda: m.update_many([1.7e308] * 10),
        lambda: m.merge(moments_of([1e200])),
        lambda: RunningComoments(2).update_many([[1.7e308, -1.7e308]]),
    ):
        with pytest.raises(ValueError, match="overflow float64; scale the rewards"):
            call()
    assert state(m) == before
    m = moments_of([1e150, -1e150])
    assert_close(m.variance(), 2e300, 1e-15)


def test_wrong_shapes_and_arguments_are_refused():
    m, m3 = moments_of([1.0, 2.0]), moments_of(np.ones((2, 3)), 3)
    befores = state(m), state(m3)
    for call, error, text in [
        (lambda: RunningMoments(0), ValueError, "n_arms is 0; at least 1 is needed"),
        (lambda: RunningMoments(-1), ValueError, "n_arms is -1"),
        (lambda: RunningMoments(2**60), ValueError, "n_arms is"),
        (lambda: RunningMoments(2.0), TypeError, "n_arms is 2.0 of type float; an integer"),
        (lambda: RunningMoments("3"), TypeError, "n_arms is '3'"),
        (lambda: RunningComoments(2, leader=2), ValueError, r"leader is 2; it must stay within \[0, 2\)"),
        (lambda: RunningComoments(2, leader=-1), ValueError, "leader is -1"),
        (lambda: RunningComoments(2, leader=None), TypeError, "leader is None"),
        (lambda: m.update_many(1.0), ValueError, r"xs has shape \(\); .*call update\(x\)"),
        (lambda: m.update_many([[1.0]]), ValueError, r"xs has shape \(1, 1\); a vector"),
        (lambda: m3.update_many([1.0, 2.0, 3.0]), ValueError, r"xs has shape \(3,\); for 3 arms"),
        (lambda: m3.update_many(np.ones((3, 2))), ValueError, r"xs has shape \(3, 2\)"),
        (lambda: m3.update_many(np.ones((0, 2))), ValueError, r"xs has shape \(0, 2\)"),
        (lambda: m3.update_many(np.ones((3, 3, 1))), ValueError, r"xs has shape \(3, 3, 1\)"),
        (lambda: m3.update(1.0, arm=3), ValueError, r"arm is 3; it must stay within \[0, 3\)"),
        (lambda: m3.update(1.0, arm=-1), ValueError, "arm is -1"),
        (lambda: m.update(1.0, arm="0"), TypeError, "integer"),
        (lambda: m.variance(ddof=-1), ValueError, "ddof is -1"),
        (lambda: m.std(ddof=math.nan), ValueError, "ddof is nan"),
        (lambda: m.variance(ddof="1"), TypeError, "ddof is '1'"),
        (lambda: m.merge(m3), ValueError, "n_arms is 3 on one side and 1 on the other"),
        (lambda: m.merge(1.0), TypeError, "other is a float"),
        (lambda: m3.merge(RunningComoments(3)), TypeError, "other is a RunningComoments"),
        (lambda: RunningComoments(3).merge(m3), TypeError, "other is a RunningMoments"),
        (lambda: RunningComoments(3).merge(RunningComoments(3, 1)), ValueError, "leader is 1 on one side and 0"),
        (lambda: m + 1, TypeError, "unsupported operand"),
        (lambda: RunningComoments(3) + m3, TypeError, "unsupported operand"),
        (lambda: m.__init__(2), TypeError, "in use"),
    ]:
        with pytest.raises(error, match=text):
            call()
    assert (state(m), state(m3)) == befores


def test_nothing_is_no_change():
    m, m3, c = moments_of([1.0, 2.0]), moments_of(np.ones((2, 3)), 3), comoments_of(np.ones((2, 3)))
    befores = state(m), state(m3), state(c)
    m.update_many([])
    m.update_many(np.empty(0, dtype=np.float32))
    m.merge(RunningMoments())
    for several in (m3, c):
        several.update_many([])
        several.update_many(np.empty((0, 3)))
    m3.merge(RunningMoments(3))
    c.merge(RunningComoments(3))
    assert (state(m), state(m3), state(c)) == befores


def _read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


def _unaligned(x):
    raw = np.zeros(x.nbytes + 1, np.uint8)
    out = raw[1:].view(x.dtype).reshape(x.shape)
    out[...] = x
    return out


def _spread(x):
    out = np.full((2 * x.shape[0], *(3 * n for n in x.shape[1:])), 77.0, x.dtype)
    view = out[::2, ::3] if x.ndim == 2 else out[::2]
    view[...] = x
    return view


WAYS = {
    "float64": lambda x, _: x,
    "float32": lambda x, _: x.astype(np.float32),
    "float16": lambda x, _: x.astype(np.float16),
    "int64": lambda x, _: x.astype(np.int64),
    "int8": lambda x, _: x.astype(np.int8),
    "uint8": lambda x, _: np.abs(x).astype(np.uint8),
    "bool": lambda x, _: x > 0,
    "longdouble": lambda x, _: x.astype(np.longdouble),
    "big-endian": lambda x, _: x.astype(">f8"),
    "big-endian float32": lambda x, _: x.astype(">f4"),
    "read-only": lambda x, _: _read_only(x),
    "unaligned": lambda x, _: _unaligned(x),
    "strided": lambda x, _: _spread(x),
    "strided float32": lambda x, _: _spread(x.astype(np.float32)),
    "reversed": lambda x, _: x[::-1].copy()[::-1],
    "reversed float32": lambda x, _: x.astype(np.float32)[::-1],
    "Fortran": lambda x, _: np.asfortranarray(x),
    "Fortran float32": lambda x, _: np.asfortranarray(x.astype(np.float32)),
    "zero-stride": lambda x, _: np.broadcast_to(x[:1], x.shape),
    "masked, nothing masked": lambda x, _: np.ma.masked_array(x, mask=np.zeros(x.shape, bool)),
    "memory map": lambda x, path: _memmap(x, path),
    "pandas": lambda x, _: pd.DataFrame(x) if x.ndim == 2 else pd.Series(x),
    "list": lambda x, _: x.tolist(),
    "tuple": lambda x, _: tuple(map(tuple, x)) if x.ndim == 2 else tuple(x),
    "memoryview": lambda x, _: memoryview(x),
    "ctypes": lambda x, _: np.ctypeslib.as_ctypes(x.copy()),
}


def _memmap(x, path):
    np.save(path / "x.npy", x)
    return np.load(path / "x.npy", mmap_mode="r")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", [(2500,), (300_000,), (2500, 3), (1100, 300)])
def test_array_kinds_give_the_bits_of_the_contiguous_copy(way, shape, rng, tmp_path):
    x = WAYS[way](rng.integers(-100, 100, size=shape).astype(np.float64), tmp_path)
    wanted = np.ascontiguousarray(np.asarray(x), dtype=np.float64)
    kept = wanted.copy()
    n_arms = shape[1] if len(shape) == 2 else 1
    assert state(moments_of(x, n_arms)) == state(moments_of(wanted, n_arms))
    if n_arms > 1:
        assert state(comoments_of(x, 1)) == state(comoments_of(wanted, 1))
    np.testing.assert_array_equal(np.asarray(x, dtype=np.float64), kept)
    assert_close(np.ravel(moments_of(x, n_arms).variance()), np.ravel(wanted.var(axis=0, ddof=1)), 1e-12)


def test_what_is_not_real_is_refused():
    m = moments_of([1.0, 2.0])
    before = state(m)
    objects = [[None], [object()], [10**30, 1], (v for v in [1.0]), {1.0: 2}, None]
    for xs in (*objects, [1j], np.ones(2, complex), ["1.0"], [b"1"], "12", np.ones(2, "M8[s]"), np.ones(2, "m8[s]"),
               np.zeros(2, [("a", float)])):
        with pytest.raises(TypeError, match="xs has dtype .*real numbers|xs is a (generator|str); an array or a list"):
            m.update_many(xs)
    with pytest.raises(ValueError, match=r"xs\[1\] is nan"):
        m.update_many(pd.Series([1, None], dtype="Int64"))
    with pytest.raises(ValueError, match="xs has masked entries"):
        m.update_many(np.ma.masked_array([1.0, 2.0], mask=[0, 1]))
    for x in (1j, np.complex128(1), np.complex64(1), "1.0", b"1", None, [1.0], np.ones(1), np.array(1j), object(), {}):
        with pytest.raises(TypeError, match="x is .*one real number is needed"):
            m.update(x)
    assert state(m) == before


def test_update_takes_every_kind_of_real_number():
    class Float(float):
        pass

    values = [2.0, 2, True + 1, np.float64(2), np.float32(2), np.float16(2), np.int8(2), np.uint64(2), np.array(2.0),
              np.array(2, dtype=">i4"), Float(2), Fraction(2), np.longdouble(2), ctypes.c_double(2).value]
    m = RunningMoments()
    for v in values:
        m.update(v)
    m.update(np.True_)
    assert m.count == len(values) + 1
    assert_close(m.mean, (2 * len(values) + 1) / (len(values) + 1), 1e-15)


def test_numbers_that_use_the_same_object_while_being_read():
    m = RunningMoments()

    class Echo:
        def __float__(self):
            m.update(1.0)
            return 3.0

    class Rows:
        def __array__(self, dtype=None, copy=None):
            m.update(5.0)
            return np.array([7.0])

    m.update(Echo())
    m.update_many(Rows())
    assert (m.count, m.mean) == (4, 4.0)

    class Broken:
        def __float__(self):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        m.update(Broken())
    assert m.count == 4


@pytest.mark.resources
def test_memory_does_not_grow():
    x = np.ones(50)
    table = np.ones((20, 3))

    def everything(times):
        for _ in range(times):
            m = RunningMoments()
            m.update(1.0)
            m.update_many(x)
            m.merge(m.copy())
            c = RunningComoments(3)
            c.update_many(table)
            c = c + c
            repr(m), repr(c), m.mean, m.variance(), m.std(), m.count, c.difference_mean, c.difference_variance()
            for bad in (m.update, m.update_many):
                try:
                    bad(math.nan)
                except ValueError:
                    pass

    everything(200)
    blocks = sys.getallocatedblocks()
    assert_grows_at_most(256 * 1024, lambda: everything(5000))
    assert sys.getallocatedblocks() - blocks <= 100


@pytest.mark.resources
def test_update_allocates_nothing():
    m, m3, values = RunningMoments(), RunningMoments(3), [0.5, 1.5] * 50_000
    update, update3 = m.update, m3.update
    for v in values[:10]:
        update(v)
        update3(v, 1)
    tracemalloc.start()
    try:
        for v in values:
            update(v)
            update3(v, 1)
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        for v in values:
            update(v)
            update3(v, 1)
        now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert now - before <= 64
    assert peak - before <= 512


@pytest.mark.resources
def test_casting_needs_memory_for_one_portion_only():
    x = np.broadcast_to(np.int8(1), 3 * 10**7)
    m = RunningMoments()
    m.update_many(x[:100])
    tracemalloc.start()
    try:
        m.update_many(x)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert m.count == 3 * 10**7 + 100
    assert peak < 5 * 2**20     # all of it would take 230


def test_plus_makes_a_new_object_and_leaves_both(rng):
    a, b = moments_of(rng.normal(size=100)), moments_of(rng.normal(size=50))
    befores = state(a), state(b)
    c = a + b
    assert (state(a), state(b)) == befores
    a.merge(b)
    assert state(c) == state(a)
    b += c
    assert b.count == 200


def test_repr_is_a_line_or_a_short_table():
    assert repr(moments_of([1.0, 3.0])) == f"RunningMoments(count=2, mean=2.0, std={math.sqrt(2.0)!r})"
    lines = repr(moments_of(np.arange(45.0).reshape(3, 15), 15)).splitlines()
    assert lines[0] == "RunningMoments of 15 arms"
    assert lines[1].split() == ["arm", "count", "mean", "std"]
    assert lines[2].split() == ["0", "3", "15", "15"]
    assert len(lines) == 13
    assert lines[-1].strip() == "... and 5 more"
    assert repr(comoments_of([[1.0, 2.0]])).splitlines()[0] == (
        "RunningComoments of 1 row: arm 0 minus each of 2 arms"
    )


# RunningComoments


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
