"""Tables of rewards, what any source of them delivers, and callbacks that read them."""

import ctypes

import numpy as np
from scipy import LowLevelCallable

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


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


def unaligned(x):
    raw = np.zeros(x.nbytes + 1, np.uint8)
    out = raw[1:].view(x.dtype).reshape(x.shape)
    out[...] = x
    return out


def spread(x):
    """Every second row and every third column of a larger table, or every second number of a vector."""
    out = np.full((2 * x.shape[0], *(3 * n for n in x.shape[1:])), 77.0, x.dtype)
    view = out[::2, ::3] if x.ndim == 2 else out[::2]
    view[...] = x
    return view


def memory_map(x, folder):
    np.save(folder / "x.npy", x)
    return np.load(folder / "x.npy", mmap_mode="r")


def lookup(values):
    return lambda arms, rows: values[np.ix_(rows, arms)]


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
