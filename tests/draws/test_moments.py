"""Running moments equal two passes over the data, however the data came, and lose nothing to bad input."""

import copy
import math
import pickle
import subprocess
import sys
import threading
from fractions import Fraction

import cloudpickle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ctrl_c
from fastrace.moments import RunningComoments, RunningMoments
from reference import moments as plain
from resident import assert_grows_at_most
from running_moments import SIZES, assert_close, comoments_of, moments_of, state


def exact(x):
    """Mean and unbiased variance in rational numbers."""
    values = [Fraction(float(v)) for v in x]
    mean = sum(values) / len(values)
    return float(mean), float(sum((v - mean) ** 2 for v in values) / (len(values) - 1))


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
