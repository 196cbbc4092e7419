"""What running moments take: arrays of any kind without a copy, numbers of any kind, and refusals."""

import ctypes
import math
import sys
import tracemalloc
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from fastrace.moments import RunningComoments, RunningMoments
from resident import assert_grows_at_most
from reward_tables import memory_map, read_only, spread, unaligned
from running_moments import assert_close, comoments_of, moments_of, state


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
    "read-only": lambda x, _: read_only(x),
    "unaligned": lambda x, _: unaligned(x),
    "strided": lambda x, _: spread(x),
    "strided float32": lambda x, _: spread(x.astype(np.float32)),
    "reversed": lambda x, _: x[::-1].copy()[::-1],
    "reversed float32": lambda x, _: x.astype(np.float32)[::-1],
    "Fortran": lambda x, _: np.asfortranarray(x),
    "Fortran float32": lambda x, _: np.asfortranarray(x.astype(np.float32)),
    "zero-stride": lambda x, _: np.broadcast_to(x[:1], x.shape),
    "masked, nothing masked": lambda x, _: np.ma.masked_array(x, mask=np.zeros(x.shape, bool)),
    "memory map": memory_map,
    "pandas": lambda x, _: pd.DataFrame(x) if x.ndim == 2 else pd.Series(x),
    "list": lambda x, _: x.tolist(),
    "tuple": lambda x, _: tuple(map(tuple, x)) if x.ndim == 2 else tuple(x),
    "memoryview": lambda x, _: memoryview(x),
    "ctypes": lambda x, _: np.ctypeslib.as_ctypes(x.copy()),
}


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
    objects = [[object()], [1.0, "2"], (v for v in [1.0]), {1.0: 2}, None]
    for xs in (*objects, [1j], np.ones(2, complex), ["1.0"], [b"1"], "12", np.ones(2, "M8[s]"), np.ones(2, "m8[s]"),
               np.zeros(2, [("a", float)])):
        with pytest.raises(TypeError, match="xs has dtype .*real numbers|xs is a (generator|str); an array or a list"):
            m.update_many(xs)
    with pytest.raises(ValueError, match=r"xs\[0\] is nan"):
        m.update_many([None])
    with pytest.raises(ValueError, match=r"xs holds 1000000000000000000000000000000, which no float64 holds"):
        m.update_many([10**30, 1])
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
