"""Every source delivers the rewards of the table it stands for, and refuses what it cannot deliver."""

import ctypes
import functools
import gc
import pickle
import re
import threading

import numpy as np
import pytest
from scipy import LowLevelCallable

import fastrace as fr
from fastrace import sources
from fastrace._base import _callbacks
from fastrace.pulls import CallbackPulls
from fastrace.sources import ArraySource, CallableSource, CallbackSource, as_source

ROWS = [4, 0, 2, 2]
ARMS = [1, 0, 2]


def table(shape=(7, 3), dtype=np.float64):
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def assert_delivers(source, values):
    """All doors of a source agree with the table `values`."""
    values = np.asarray(values, dtype=np.float64)
    assert (source.n_rows, source.n_arms) == values.shape
    np.testing.assert_array_equal(source.read(ROWS, ARMS), values[np.ix_(ROWS, ARMS)])
    np.testing.assert_array_equal(source.read(np.arange(len(values))), values)
    np.testing.assert_allclose(source.totals(), values.sum(axis=0), rtol=1e-14)
    np.testing.assert_allclose(source.totals([2]), values.sum(axis=0)[2:], rtol=1e-14)
    np.testing.assert_array_equal(source.shifts(), 0.0)


# Arrays


def _read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


def _memmap(x, tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, x)
    return np.load(path, mmap_mode="r")


ARRAY_KINDS = {
    "float64": table(),
    "float32": table(dtype=np.float32),
    "float16": table(dtype=np.float16),
    "int64": table(dtype=np.int64),
    "int8": table(dtype=np.int8),
    "uint8": table(dtype=np.uint8),
    "bool": table() % 2 == 0,
    "longdouble": table(dtype=np.longdouble),
    "big-endian": table(dtype=">f8"),
    "big-endian float32": table(dtype=">f4"),
    "read-only": _read_only(table()),
    "Fortran": np.asfortranarray(table()),
    "negative strides": table()[::-1, ::-1],
    "strided float32": table((14, 6), np.float32)[::2, ::2],
    "broadcast": np.broadcast_to(np.arange(3.0), (7, 3)),
    "masked without masked entries": np.ma.masked_array(table(), mask=False),
    "list": table().tolist(),
}


@pytest.mark.parametrize("kind", ARRAY_KINDS)
def test_array_kinds(kind):
    values = ARRAY_KINDS[kind]
    before = np.array(values, copy=True)
    assert_delivers(ArraySource(values), values)
    np.testing.assert_array_equal(values, before)


def test_array_memmap(tmp_path):
    values = _memmap(table(dtype=np.float32), tmp_path)
    source = ArraySource(values)
    assert np.shares_memory(source.values, values)
    assert_delivers(source, table())


def test_array_unaligned():
    raw = np.zeros(table().nbytes + 1, dtype=np.uint8)
    values = raw[1:].view(np.float64).reshape(7, 3)
    values[...] = table()
    assert_delivers(ArraySource(values), table())


def test_array_pandas():
    pd = pytest.importorskip("pandas")
    assert_delivers(as_source(pd.DataFrame(table(), columns=list("abc"))), table())
    assert_delivers(as_source(pd.DataFrame({"a": range(7), "b": np.arange(7.0), "c": True})),
                    np.column_stack([np.arange(7), np.arange(7), np.ones(7)]))
    assert_delivers(as_source(pd.DataFrame(table(), dtype="Float32")), table())
    with pytest.raises(ValueError, match="not numbers: a"):
        as_source(pd.DataFrame({"a": ["x", "y"]}))


def test_array_polars():
    pl = pytest.importorskip("polars")
    assert_delivers(as_source(pl.DataFrame(table(), schema=list("abc"))), table())


def test_array_arrow():
    pa = pytest.importorskip("pyarrow")
    whole = pa.table({"a": np.arange(7), "b": np.arange(7.0), "c": [True, False, True, True, True, False, True]})
    numbers = np.column_stack([np.arange(7), np.arange(7), [1, 0, 1, 1, 1, 0, 1]])
    assert_delivers(as_source(whole), numbers)
    assert_delivers(as_source(whole.to_batches()[0]), numbers)
    assert_delivers(as_source({name: whole[name] for name in whole.column_names}), numbers)
    with pytest.raises(ValueError, match="not numbers: b"):
        as_source(pa.table({"a": [1, 2], "b": ["x", "y"]}))


def test_array_dict_of_columns():
    assert_delivers(as_source(dict(zip("abc", table().T, strict=True))), table())
    assert_delivers(as_source(dict(zip("abc", table().T.astype(int).tolist(), strict=True))), table())


@pytest.mark.parametrize("values, words", [
    (table(dtype=complex), "complex128"),
    (np.array([[None, 1.0, 2.0]]), "object"),
    (np.array([["a", "b"]]), "<U1"),
    (np.ma.masked_array(table(), mask=np.eye(7, 3, dtype=bool)), "masked entries"),
    (np.arange(3.0), r"shape \(3,\)"),
    (1.5, r"shape \(\)"),
    (np.zeros((3, 0)), "at least one arm"),
])
def test_array_refusals(values, words):
    with pytest.raises(ValueError, match=words):
        ArraySource(values)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_arrays_are_read_in_place(dtype, tmp_path):
    values = np.zeros((1000, 4), dtype=dtype)[:, ::2]
    assert np.shares_memory(ArraySource(values).values, values)


@pytest.mark.parametrize("n_rows", [3, 8, 1025, 5000])
def test_totals_are_the_same_to_the_last_bit_in_every_layout(n_rows, rng):
    """A saved source comes back packed: a full pass of it must end where one of the original ended."""
    values = rng.normal(size=(n_rows, 7))
    exact = ArraySource(values).totals()
    wide = np.zeros((2 * n_rows, 21))
    wide[::2, ::3] = values
    for other in (np.asfortranarray(values), wide[::2, ::3], values[::-1].copy()[::-1], values.astype(">f8")):
        np.testing.assert_array_equal(ArraySource(other).totals(), exact)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(ArraySource(other))).totals(), exact)
        for arms in ([2], [5, 0], [6, 1, 2, 3]):
            np.testing.assert_array_equal(ArraySource(other).totals(arms), exact[arms])
    single = values.astype(np.float32)
    np.testing.assert_array_equal(ArraySource(single).totals(), ArraySource(np.asfortranarray(single)).totals())


@pytest.mark.parametrize("shape", [(5000, 3), (1, 1), (1023, 1), (2049, 70), (0, 2)])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_totals_of_any_shape(shape, order, dtype, rng):
    values = np.asarray(rng.standard_normal(shape), dtype=dtype, order=order)
    arms = rng.permutation(shape[1])[: max(1, shape[1] // 2)]
    exact = values.astype(np.longdouble).sum(axis=0)
    np.testing.assert_allclose(ArraySource(values).totals(), exact.astype(float), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(ArraySource(values).totals(arms), exact.astype(float)[arms], rtol=1e-12, atol=1e-12)


def test_array_pickles():
    source = pickle.loads(pickle.dumps(ArraySource(table(), support=(0, 21))))
    assert source.support == (0, 21)
    assert_delivers(source, table())


# Bad requests, to any source


@pytest.mark.parametrize("rows, arms, words", [
    ([7], None, r"within \[0, 7\)"),
    ([-1], None, "runs from -1"),
    ([[0]], None, r"shape \(1, 1\)"),
    ([0.5], None, "float64"),
    ([0], [3], r"arms .* within \[0, 3\)"),
])
def test_bad_indices(rows, arms, words):
    with pytest.raises(ValueError, match=words):
        ArraySource(table()).read(rows, arms)


def test_empty_requests():
    source = ArraySource(table())
    assert source.read([]).shape == (0, 3)
    assert source.read([1], []).shape == (1, 0)


@pytest.mark.parametrize("change, words", [
    ({"n_arms": 0}, "n_arms is 0"),
    ({"n_rows": -1}, "n_rows is -1"),
    ({"scan_advantage": 0.5}, "scan_advantage is 0.5"),
    ({"scan_advantage": float("nan")}, "scan_advantage is nan"),
    ({"first_look": 0}, "first_look is 0"),
])
def test_bad_sizes(change, words):
    arguments = {"n_arms": 2, "n_rows": 5} | change
    with pytest.raises(ValueError, match=words):
        CallableSource(lambda arms, rows: np.zeros((len(rows), len(arms))), **arguments)
    with pytest.raises(ValueError, match=words):
        sources.Source(**arguments)


def test_a_source_without_fill_says_so():
    with pytest.raises(TypeError, match="does not define fill"):
        sources.Source(2, 3).read([0])


def test_a_bare_source_refuses_to_pickle():
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(sources.Source(2, 3))


def test_first_look_is_larger_where_python_is_called():
    assert ArraySource(table()).first_look == 50
    assert CallableSource(lambda arms, rows: None, 1, 1).first_look == 256


# Python functions


def lookup(values):
    return lambda arms, rows: values[np.ix_(rows, arms)]


class Lookup:
    """A function that pickles."""

    def __init__(self, values):
        self.values = values

    def __call__(self, arms, rows):
        return self.values[np.ix_(rows, arms)]


@pytest.mark.parametrize("convert", [
    lambda x: x,
    np.asfortranarray,
    lambda x: x.tolist(),
    lambda x: x.astype(np.float32),
    lambda x: x.astype(np.float16),
    lambda x: x.astype(np.int32),
    lambda x: x.astype(">f8"),
    lambda x: x.astype(np.longdouble),
    lambda x: x.astype(np.uint8),
    lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    lambda x: np.ma.masked_array(x, mask=False),
    _read_only,
], ids=range(13))
def test_callable_may_return_any_real_block(convert):
    values = table()
    assert_delivers(CallableSource(lambda arms, rows: convert(values[np.ix_(rows, arms)]), 3, 7), values)


def test_callable_returning_pandas():
    pd = pytest.importorskip("pandas")
    assert_delivers(CallableSource(lambda arms, rows: pd.DataFrame(table()[np.ix_(rows, arms)]), 3, 7), table())


@pytest.mark.resources
def test_population_beyond_2_to_31():
    seen = []

    def function(arms, rows):
        assert arms.dtype == np.intp and rows.dtype == np.int64
        seen.extend(rows.tolist())
        return (rows % 1000)[:, None] + 0.0 * arms

    source = CallableSource(function, 1, 2**33)
    row = 2**31 + 7
    np.testing.assert_array_equal(source.read([row, 2**33 - 1]), [[row % 1000], [(2**33 - 1) % 1000]])
    assert seen == [row, 2**33 - 1]


@pytest.mark.resources
def test_population_beyond_2_to_31_compiled():
    seen = []

    @PER_ARM
    def callback(out, n_rows, rows, arm):
        for i in range(n_rows):
            seen.append(rows[i])
            out[i] = float(rows[i])
        return 0

    source = CallbackSource(LowLevelCallable(callback), 1, 2**33)
    assert source.read([2**31 + 7])[0, 0] == 2**31 + 7
    assert seen == [2**31 + 7]


@pytest.mark.parametrize("failing_call", [0, 1, 5])
@pytest.mark.parametrize("error", [ZeroDivisionError("mine"), KeyboardInterrupt(), StopIteration(3)])
def test_callable_raises(failing_call, error):
    calls = 0

    def function(arms, rows):
        nonlocal calls
        calls += 1
        if calls == failing_call + 1:
            raise error
        return table()[np.ix_(rows, arms)]

    source = CallableSource(function, 3, 7)
    for _ in range(failing_call):
        source.read([0])
    with pytest.raises(type(error)) as caught:
        source.totals()
    assert caught.value is error
    assert_delivers(source, table())


@pytest.mark.parametrize("answer, words", [
    (None, "returned None"),
    (3, r"int of shape \(\)"),
    (1.5, r"float of shape \(\)"),
    (np.float64(2.0), r"float64 of shape \(\)"),
    (np.array(2.0), r"shape \(\)"),
    (np.zeros((3, 4)), r"shape \(3, 4\)"),
    (np.zeros(12), r"shape \(12,\)"),
    (np.zeros((4, 3, 1)), r"shape \(4, 3, 1\)"),
    (np.zeros((4, 3), dtype=complex), "complex128"),
    ([[1, 2, 3], [1, 2]], "no array"),
    ("rewards", "<U7"),
    ([[None] * 3] * 4, "object"),
    (np.ma.masked_array(np.zeros((4, 3)), mask=np.eye(4, 3)), "masked"),
    (lambda: None, "function of dtype object"),
    (float, "type of dtype object"),
])
def test_callable_returns_nonsense(answer, words):
    source = CallableSource(lambda arms, rows: answer, 3, 7)
    with pytest.raises(ValueError, match=words) as caught:
        source.read(ROWS)
    assert "(4, 3), rows by arms" in str(caught.value)


def test_callable_may_keep_and_change_its_arguments():
    kept, values = [], table()

    def function(arms, rows):
        block = values[np.ix_(rows, arms)]
        kept.append((arms, rows))
        rows[:] = -1
        arms[:] = -1
        return block

    source = CallableSource(function, 3, 7)
    rows, arms = np.array(ROWS), np.array(ARMS)
    for _ in range(3):
        np.testing.assert_array_equal(source.read(rows, arms), values[np.ix_(ROWS, ARMS)])
    assert rows.tolist() == ROWS and arms.tolist() == ARMS
    assert not np.shares_memory(kept[0][1], kept[1][1])
    assert all(row.tolist() == [-1] * 4 and arm.tolist() == [-1] * 3 for arm, row in kept)
    np.testing.assert_array_equal(source.totals(), values.sum(axis=0))


def test_callable_may_re_enter_its_source():
    values = table()

    def function(arms, rows):
        inner = source.read(rows, arms) if len(rows) > 1 and rows[0] != rows[-1] else None
        block = values[np.ix_(rows, arms)]
        assert inner is None or np.array_equal(inner, block)
        return block

    depth = 0

    def guarded(arms, rows):
        nonlocal depth
        depth += 1
        try:
            return function(arms, rows) if depth == 1 else values[np.ix_(rows, arms)]
        finally:
            depth -= 1

    source = CallableSource(guarded, 3, 7)
    assert_delivers(source, values)


def test_callable_full_pass_comes_in_large_blocks():
    sizes = []

    def function(arms, rows):
        sizes.append(len(rows))
        return np.ones((len(rows), len(arms)))

    np.testing.assert_array_equal(CallableSource(function, 2, 20_000).totals(), 20_000)
    assert sizes == [8192, 8192, 20_000 - 2 * 8192]


def test_callable_pickles_when_its_function_does():
    source = CallableSource(Lookup(table()), 3, 7, support=(0, 20), scan_advantage=2.0, first_look=99)
    again = pickle.loads(pickle.dumps(source))
    assert (again.support, again.scan_advantage, again.first_look) == ((0, 20), 2.0, 99)
    assert_delivers(again, table())
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(CallableSource(lambda arms, rows: None, 1, 1))
    cloudpickle = pytest.importorskip("cloudpickle")
    assert_delivers(pickle.loads(cloudpickle.dumps(CallableSource(lookup(table()), 3, 7))), table())


def test_callable_must_be_callable():
    with pytest.raises(ValueError, match="function is 3"):
        CallableSource(3, 1, 1)


# Compiled callbacks

DOUBLES, INT64S, INTPS = (ctypes.POINTER(t) for t in (ctypes.c_double, ctypes.c_int64, ctypes.c_ssize_t))
PER_ARM = ctypes.CFUNCTYPE(ctypes.c_int, DOUBLES, ctypes.c_ssize_t, INT64S, ctypes.c_ssize_t)
PER_ARM_DATA = ctypes.CFUNCTYPE(ctypes.c_int, DOUBLES, ctypes.c_ssize_t, INT64S, ctypes.c_ssize_t, ctypes.c_void_p)
BLOCK = ctypes.CFUNCTYPE(ctypes.c_int, DOUBLES, ctypes.c_ssize_t, INT64S, ctypes.c_ssize_t, INTPS)
BLOCK_DATA = ctypes.CFUNCTYPE(ctypes.c_int, DOUBLES, ctypes.c_ssize_t, INT64S, ctypes.c_ssize_t, INTPS,
                              ctypes.c_void_p)


def ctypes_callback(form, values):
    data = (ctypes.c_double * values.size)(*values.ravel())
    width = values.shape[1]

    def per_arm(out, n_rows, rows, arm, pointer=None):
        x = ctypes.cast(pointer, DOUBLES) if pointer else data
        for i in range(n_rows):
            out[i] = x[rows[i] * width + arm]
        return 0

    def block(out, n_rows, rows, n_arms, arms, pointer=None):
        x = ctypes.cast(pointer, DOUBLES) if pointer else data
        for j in range(n_arms):
            for i in range(n_rows):
                out[j * n_rows + i] = x[rows[i] * width + arms[j]]
        return 0

    function = {PER_ARM: per_arm, PER_ARM_DATA: per_arm, BLOCK: block, BLOCK_DATA: block}[form]
    if form in (PER_ARM_DATA, BLOCK_DATA):
        return LowLevelCallable(form(function), ctypes.cast(ctypes.pointer(data), ctypes.c_void_p)), data
    return LowLevelCallable(form(function)), data


@pytest.mark.parametrize("form", [PER_ARM, PER_ARM_DATA, BLOCK, BLOCK_DATA],
                         ids=["per arm", "per arm, data", "block", "block, data"])
def test_ctypes_callback(form):
    callback, data = ctypes_callback(form, table())
    source = CallbackSource(callback, 3, 7)
    del callback
    gc.collect()
    assert source.all_arms == (form in (BLOCK, BLOCK_DATA))
    assert source.takes_data == (form in (PER_ARM_DATA, BLOCK_DATA))
    assert_delivers(source, table())
    assert len(data) == 21


@pytest.fixture(scope="module")
def c_library(tmp_path_factory):
    """Four callbacks in C, built with cffi."""
    cffi = pytest.importorskip("cffi")
    pytest.importorskip("setuptools")
    ffi = cffi.FFI()
    declarations = """
        typedef struct { double *x; intptr_t width; int fail; } table_t;
        int per_arm(double *out, intptr_t n_rows, const intptr_t *rows, intptr_t arm, void *data);
        int block(double *out, intptr_t n_rows, const int64_t *rows, intptr_t n_arms, const ptrdiff_t *arms,
                  void *data);
        int product(double *out, intptr_t n_rows, const int64_t *rows, intptr_t arm);
        double scalar(double *out, intptr_t n_rows, const int64_t *rows, intptr_t arm);
        int narrow(double *out, int n_rows, const int *rows, int arm, void *data);
    """
    ffi.cdef(declarations)
    ffi.set_source("_fastrace_test_callbacks", "#include <stddef.h>\n#include <stdint.h>\n" + declarations + """
        int per_arm(double *out, intptr_t n_rows, const intptr_t *rows, intptr_t arm, void *data)
        {
            table_t *t = (table_t *)data;
            for (intptr_t i = 0; i < n_rows; i++) out[i] = t->x[rows[i] * t->width + arm];
            return t->fail;
        }
        int block(double *out, intptr_t n_rows, const int64_t *rows, intptr_t n_arms, const ptrdiff_t *arms, void *data)
        {
            table_t *t = (table_t *)data;
            for (intptr_t j = 0; j < n_arms; j++)
                for (intptr_t i = 0; i < n_rows; i++) out[j * n_rows + i] = t->x[rows[i] * t->width + arms[j]];
            return t->fail;
        }
        int product(double *out, intptr_t n_rows, const int64_t *rows, intptr_t arm)
        {
            for (intptr_t i = 0; i < n_rows; i++) out[i] = (double)rows[i] * (double)arm;
            return 0;
        }
        double scalar(double *out, intptr_t n_rows, const int64_t *rows, intptr_t arm) { return 0.0; }
        int narrow(double *out, int n_rows, const int *rows, int arm, void *data) { return 0; }
        """)
    folder = tmp_path_factory.mktemp("callbacks")
    try:
        path = ffi.compile(tmpdir=str(folder))
    except cffi.VerificationError as error:
        pytest.skip(f"no C compiler at hand: {error}")
    from importlib.util import module_from_spec, spec_from_file_location
    spec = spec_from_file_location("_fastrace_test_callbacks", path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def c_callback(module, name, values, fail=0):
    ffi = module.ffi
    x = ffi.from_buffer("double[]", values)
    data = ffi.new("table_t *", {"x": x, "width": values.shape[1], "fail": fail})
    function = ffi.addressof(module.lib, name)
    return LowLevelCallable(function, ffi.cast("void *", data)), (x, data)


@pytest.mark.parametrize("name", ["per_arm", "block"])
def test_cffi_callback(c_library, name):
    values = table()
    callback, kept = c_callback(c_library, name, values)
    source = CallbackSource(callback, 3, 7)
    assert source.all_arms == (name == "block")
    assert_delivers(source, values)
    assert kept


def test_cffi_callback_without_data(c_library):
    callback = LowLevelCallable(c_library.ffi.addressof(c_library.lib, "product"))
    assert_delivers(CallbackSource(callback, 3, 7), np.outer(np.arange(7), np.arange(3)))


@pytest.mark.parametrize("name", ["per_arm", "block"])
@pytest.mark.parametrize("code", [1, -1, 7])
def test_callback_fails(c_library, name, code):
    values = table()
    callback, (_, data) = c_callback(c_library, name, values, fail=code)
    source = CallbackSource(callback, 3, 7)
    with pytest.raises(RuntimeError, match=f"callback returned {code} for 4 rows from row 4"):
        source.read(ROWS)
    with pytest.raises(RuntimeError, match=f"callback returned {code}"):
        source.totals()
    data.fail = 0
    assert_delivers(source, values)


@pytest.mark.parametrize("name", ["scalar", "narrow"])
def test_callback_of_another_form(c_library, name):
    callback = LowLevelCallable(c_library.ffi.addressof(c_library.lib, name))
    with pytest.raises(ValueError, match=r"accepted are .*int64_t \*, intptr_t, void \*") as caught:
        CallbackSource(callback, 3, 7)
    assert callback.signature in str(caught.value)


def test_callback_runs_in_threads(c_library, rng):
    values = rng.standard_normal((5000, 3))
    callback, kept = c_callback(c_library, "block", values)
    source = CallbackSource(callback, 3, 5000)
    rows, answers = rng.permutation(5000), {}

    def read(name):
        for _ in range(50):
            answers.setdefault(name, []).append(source.read(rows))

    threads = [threading.Thread(target=read, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(block, values[rows]) for blocks in answers.values() for block in blocks)
    assert len(answers) == 4 and kept


def test_user_data_that_nothing_takes():
    function = PER_ARM(lambda out, n_rows, rows, arm: 0)
    with pytest.raises(ValueError, match="no void"):
        CallbackSource(LowLevelCallable(function, ctypes.c_void_p(1)), 1, 1)


def test_numba_callback(rng):
    numba = pytest.importorskip("numba")
    from numba import types
    signature = types.int32(types.CPointer(types.float64), types.intp, types.CPointer(types.int64), types.intp,
                            types.voidptr)

    @numba.cfunc(signature)
    def callback(out, n_rows, rows, arm, data):
        for i in range(n_rows):
            out[i] = 3.0 * rows[i] + arm
        return 0

    assert_delivers(CallbackSource(LowLevelCallable(callback.ctypes), 3, 7), table())

    @numba.cfunc(types.int32(types.CPointer(types.float64), types.intp, types.CPointer(types.intp), types.intp,
                             types.CPointer(types.intp)))
    def block(out, n_rows, rows, n_arms, arms):
        for j in range(n_arms):
            for i in range(n_rows):
                out[j * n_rows + i] = 3.0 * rows[i] + arms[j]
        return 0

    assert_delivers(CallbackSource(LowLevelCallable(block.ctypes), 3, 7), table())


@pytest.mark.parametrize("signature, accepted", [
    ("int (double *, Py_ssize_t, Py_ssize_t const *, Py_ssize_t, void *)", True),
    ("int (double *, Py_ssize_t, const npy_intp *, npy_intp, void *)", True),
    ("int(double*,intptr_t,int64_t const*,ptrdiff_t,void*)", True),
    ("signed int (double *, long long int, long long *, long long)", True),
    ("int (double *, Py_ssize_t, int64_t *, Py_ssize_t, Py_ssize_t const *, void *)", True),
    ("int (double *, size_t, int64_t *, Py_ssize_t, void *)", False),
    ("int (float *, Py_ssize_t, int64_t *, Py_ssize_t, void *)", False),
    ("int (double *, Py_ssize_t, int64_t, Py_ssize_t, void *)", False),
    ("int (double *, Py_ssize_t, int64_t *, Py_ssize_t, double *)", False),
    ("void (double *, Py_ssize_t, int64_t *, Py_ssize_t, void *)", False),
    ("long (double *, Py_ssize_t, int64_t *, Py_ssize_t, void *)", False),
    ("nonsense", False),
])
def test_spellings_of_signatures(signature, accepted):
    function = PER_ARM_DATA(lambda out, n_rows, rows, arm, data: 0)
    callback = LowLevelCallable(function, signature=signature)
    if accepted:
        CallbackSource(callback, 1, 1).read([0])
    else:
        with pytest.raises(ValueError, match="accepted are"):
            CallbackSource(callback, 1, 1)


PULLS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_ssize_t), ctypes.POINTER(ctypes.c_int64),
                         ctypes.c_ssize_t, ctypes.POINTER(ctypes.c_double))


@pytest.mark.parametrize("bytes_of_long", [4, 8])
@pytest.mark.parametrize("make, form, signature", [
    (lambda callback: CallbackPulls(callback, 1), PULLS, "int (long *, long *, long, double *)"),
    (lambda callback: CallbackPulls(callback, 1), PULLS, "int (intptr_t *, long *, intptr_t, double *)"),
    (lambda callback: CallbackSource(callback, 1, 1), PER_ARM, "int (double *, intptr_t, long *, intptr_t)"),
])
def test_a_long_counts_by_its_size_on_the_platform(make, form, signature, bytes_of_long, monkeypatch):
    """Windows has longs of 32 bits: such a callback would read counts of 64 bits as pairs."""
    monkeypatch.setitem(_callbacks._INTEGER_SIZES, "long", bytes_of_long)
    callback = LowLevelCallable(form(lambda *arguments: 0), signature=signature)
    if bytes_of_long == 8:
        make(callback)
    else:
        with pytest.raises(ValueError, match="accepted"):
            make(callback)


@pytest.mark.parametrize("callback", [None, lambda: 0, (1, 2, 3), PER_ARM(lambda out, n_rows, rows, arm: 0)])
def test_callback_must_be_low_level(callback):
    with pytest.raises(ValueError, match="LowLevelCallable"):
        CallbackSource(callback, 1, 1)


def test_callback_refuses_to_pickle():
    source = CallbackSource(LowLevelCallable(PER_ARM(lambda out, n_rows, rows, arm: 0)), 1, 1)
    with pytest.raises(TypeError, match="function pointer"):
        pickle.dumps(source)


# as_source


@pytest.mark.parametrize(("call", "called"), [
    (fr.race, "rewards"), (fr.DiscreteSampler, "rewards"), (fr.FiniteRace(2, 3).run, "source"),
    (fr.LilUCB(2, 3, support=(0, 1)).run, "source"), (lambda table: fr.metropolis_accept(table, 0.0), "source"),
    (lambda table: fr.select_best(table, 2), "pull"),
    (lambda table: fr.select_best(table, 2, order="given"), "pull"),
    (fr.pulls.ResampledPulls, "source"), (fr.pulls.RecordedPulls, "values"),
    (sources.ArraySource, "values"), (sources.as_source, "rewards"),
    (fr.HoeffdingRace(2, 9, support=(0, 1)).run, "rewards"),
])
def test_a_refused_table_is_called_as_the_argument_is(call, called):
    masked = np.ma.masked_array(np.zeros((3, 2)), mask=np.eye(3, 2))
    for table, words in ((np.zeros((3, 2, 1)), "shape (3, 2, 1)"), (np.array([["a", "b"]]), "dtype <U1"),
                         (masked, "masked entries"), ([[1.0], [1.0, 2.0]], "no table")):
        with pytest.raises(ValueError, match=rf"(^|: ){called} (has|is) {re.escape(words)}"):
            call(table)


def test_as_source_takes_every_kind():
    values = table()
    callback, _ = ctypes_callback(PER_ARM, values)
    source = ArraySource(values)
    assert as_source(source) is source
    assert as_source(source, n_arms=3, n_rows=7) is source
    assert isinstance(as_source(values.tolist()), ArraySource)
    assert isinstance(as_source(lookup(values), 3, 7), CallableSource)
    assert isinstance(as_source(callback, 3, 7), CallbackSource)
    for rewards in (source, values, values.tolist(), lookup(values), callback):
        assert_delivers(as_source(rewards, 3, 7), values)
    assert as_source(values, support=(0, 20)).support == (0, 20)
    assert as_source(lookup(values), 3, 7, (0, 20)).support == (0, 20)


@pytest.mark.parametrize("arguments, words", [
    ((lookup(table()),), "n_arms is None and n_rows is None"),
    ((lookup(table()), 3), "n_rows is None"),
    ((table(), 4), "n_arms is 4, but the rewards have 3"),
    ((table(), None, 8), "n_rows is 8, but the rewards have 7"),
    ((ArraySource(table()), 2), "n_arms is 2"),
    ((ArraySource(table()), None, None, (0, 1)), "beside a source"),
    ((np.arange(3.0),), r"shape \(3,\)"),
    ((None,), "rewards is of type NoneType"),
    (({"a": [1.0], "b": ["x"]},), "columns that are not numbers: b"),
    (({"a": [1.0], "b": [1.0, 2.0]},), r"a: \(1,\), b: \(2,\)"),
    (({"a": 1.0},), r"a: \(\)"),
    (({},), "at least one arm"),
    (({1.0},), "rewards is of type set"),
    (("scores.csv",), "rewards is of type str"),
    (([[1.0, 2.0], [3.0]],), "no table, rows by arms"),
])
def test_as_source_refusals(arguments, words):
    with pytest.raises((ValueError, TypeError), match=words):
        as_source(*arguments)


NO_NUMBERS = {
    "date": lambda n: np.datetime64("2020-01-01", "us") + np.arange(n).astype("m8[us]"),
    "duration": lambda n: np.arange(n).astype("m8[us]"),
    "text": lambda n: ["1.5"] * n,
}


@pytest.mark.parametrize("kind", NO_NUMBERS)
@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_dates_durations_and_text_are_refused_by_name(library, kind):
    module = pytest.importorskip(library)
    columns = {"a": np.arange(9.0), "z": NO_NUMBERS[kind](9)}
    make = module.table if library == "pyarrow" else module.DataFrame
    for table in (make(columns), make({"z": columns["z"]})):
        with pytest.raises(ValueError, match="columns that are not numbers: z; leave them out"):
            as_source(table)


def test_columns_of_pandas_that_only_convert_to_numbers_are_refused_by_name():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": np.arange(3.0)})
    for column in (pd.Categorical(["5"] * 3), pd.Categorical([5] * 3), pd.array(["1.5"] * 3, dtype="string"),
                   np.array([1, "1.5", 2], object), pd.date_range("2020", periods=3, tz="UTC")):
        with pytest.raises(ValueError, match="columns that are not numbers: z; leave them out"):
            as_source(frame.assign(z=column))
    with pytest.raises(ValueError, match="columns that are not numbers: 1;"):
        as_source(pd.DataFrame({0: [1.0], 1: ["1.5"]}))
    for column in ([True] * 3, pd.array([1] * 3, dtype="Int64"), pd.array([True] * 3, dtype="boolean"),
                   np.array([1, True, np.float32(1.0)], object)):
        assert as_source(frame.assign(z=column)).totals().tolist() == [3.0, 3.0]


@pytest.mark.parametrize(("make", "called"), [
    (lambda f: fr.race(f, n_arms=2, n_rows=9), r"function\(arms, rows\)"),
    (lambda f: fr.BettingRace(2, support=(0, 1)).run(f), r"function\(arms, rows\)"),
    (lambda f: fr.DiscreteSampler(f, n_arms=2, n_rows=9), r"function\(arms, rows\)"),
    (lambda f: fr.select_best(f, 2, 1, 0.1), r"function\(arms, counts\)"),
    (lambda f: fr.race_sums(f, [3, 4]), r"rewards\(arm, rows\)"),
])
def test_functions_of_other_arguments_say_how_they_are_called(make, called):
    functions = (lambda: 1, r"\(\)"), (lambda a, b, c: 1, r"\(a, b, c\)"), (lambda *, a, b: 1, r"\(\*, a, b\)")
    for function, found in functions:
        with pytest.raises(TypeError, match=f"is called as {called}, and it takes {found}: "):
            make(function)


def test_functions_that_take_more_than_they_show_are_called():
    def shown(rows):
        """What a decorator tells of itself need not be what it takes."""

    @functools.wraps(shown)
    def taken(*arguments):
        arms, rows = arguments
        return np.ones((len(rows), 1)) * arms

    assert fr.race(taken, n_arms=2, n_rows=9).best == 1
    assert fr.race(functools.partial(lambda more, arms, rows: taken(arms, rows), 1), n_arms=2, n_rows=9).best == 1


def test_sums_and_pulls_name_what_a_function_returned():
    for returned, words in (([[1.0], [1.0, 2.0], 3.0], "rows of different lengths; one reward per row"),
                            (["a"] * 3, r"dtype <U1; one reward per row, .* shape \(3,\)")):
        with pytest.raises(ValueError, match=rf"rewards\(arm, rows\) returned {words}"):
            fr.race_sums(lambda arm, rows, returned=returned: returned, [3, 3])
    for returned, words in ((None, "NoneType of dtype object; real numbers"), ([[1.0], [1.0, 2.0], 3.0], "no array")):
        with pytest.raises(ValueError, match=f"rewards are a.*{words}"):
            fr.select_best(lambda arms, counts, returned=returned: returned, 2, 1, 0.1)
