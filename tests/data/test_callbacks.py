"""Compiled callbacks as sources of rewards: ctypes, cffi and Numba, their signatures and errors."""

import ctypes
import gc
import pickle
import threading

import numpy as np
import pytest
from scipy import LowLevelCallable

from fastrace._base import _callbacks
from fastrace.pulls import CallbackPulls
from fastrace.sources import CallbackSource
from reward_tables import BLOCK, BLOCK_DATA, PER_ARM, PER_ARM_DATA, ROWS, assert_delivers, ctypes_callback, table


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
