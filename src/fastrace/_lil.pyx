"""Compiled loop of the adapted lil'UCB race."""

from libc.stdint cimport int64_t
from cpython.pycapsule cimport PyCapsule_GetPointer
from numpy.random cimport bitgen_t
cimport numpy as cnp

from fastrace._keyed_order cimport keyed_order_at, keyed_order_init, keyed_order_t

import numpy as np

cnp.import_array()


def _keyed_rows(int64_t n, int64_t first, Py_ssize_t count, rng):
    """Positions first .. first + count - 1 of a fresh keyed order of [0, n); a door for tests and benchmarks."""
    cdef keyed_order_t order
    cdef bitgen_t *bits = <bitgen_t *>PyCapsule_GetPointer(rng.bit_generator.capsule, "BitGenerator")
    cdef cnp.ndarray out = np.empty(count, dtype=np.int64)
    cdef int64_t *rows = <int64_t *>cnp.PyArray_DATA(out)
    cdef Py_ssize_t i
    with rng.bit_generator.lock, nogil:
        keyed_order_init(&order, n, bits)
    with nogil:
        for i in range(count):
            rows[i] = keyed_order_at(&order, first + i)
    return out


def _keyed_counts(int64_t n, Py_ssize_t repeats, rng):
    """How often the first two positions of fresh orders of [0, n) held each pair: shape (n, n); a door for tests."""
    cdef keyed_order_t order
    cdef bitgen_t *bits = <bitgen_t *>PyCapsule_GetPointer(rng.bit_generator.capsule, "BitGenerator")
    cdef cnp.ndarray out = np.zeros((n, n), dtype=np.int64)
    cdef int64_t *counts = <int64_t *>cnp.PyArray_DATA(out)
    cdef Py_ssize_t i
    with rng.bit_generator.lock, nogil:
        for i in range(repeats):
            keyed_order_init(&order, n, bits)
            counts[keyed_order_at(&order, 0) * n + keyed_order_at(&order, 1)] += 1
    return out
