# cython: cdivision=True
"""A random order of the rows of a table, for whoever reads the table as a stream."""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int64_t
from numpy.random cimport bitgen_t

from fastrace._guard cimport guard_enter, guard_leave
from fastrace._keyed_order cimport keyed_order_init, keyed_order_set
from fastrace._memory cimport restore_order, saved_order
from fastrace._order cimport ORDER_LIMIT, order_advance, order_free, order_init
from fastrace.sources cimport check_signals

import copy

import numpy as np

from fastrace import _checks

cdef enum:
    DRAWS_PER_CHECK = 1 << 17       # positions settled between two looks at pending signals


cdef class RowOrder:
    """A uniform random order of `n_rows` rows, settled position by position: O(k) time and memory for k rows.

    Beyond 2**31 rows it is a keyed bijection, see `_keyed_order.pxd`.
    """

    def __cinit__(self, n_rows, rng):
        self.n_rows = n_rows
        self.rng = rng
        self.lock = rng.bit_generator.lock
        self.bits = <bitgen_t *>PyCapsule_GetPointer(rng.bit_generator.capsule, b"BitGenerator")
        if self.n_rows <= ORDER_LIMIT and order_init(&self.order, self.n_rows):
            raise MemoryError(f"no memory for an order of {n_rows} rows")

    def __dealloc__(self):
        order_free(&self.order)

    cdef int settle(self, int64_t target) except -1 nogil:
        """Settle positions up to `target`."""
        cdef int64_t until
        cdef int short = 0
        while self.drawn < target:
            until = min(target, self.drawn + DRAWS_PER_CHECK)
            with gil:
                self.lock.acquire()
            if self.n_rows <= ORDER_LIMIT:
                short = order_advance(&self.order, self.bits, self.drawn, until - self.drawn)
            elif self.drawn == 0:
                keyed_order_init(&self.keyed, self.n_rows, self.bits)
            with gil:
                self.lock.release()
                if short:
                    raise MemoryError(f"no memory for an order of {self.n_rows} rows")
            self.drawn = until
            if until < target:
                check_signals()
        return 0

    def take(self, count):
        """The next rows, at most `count`: ndarray of int64; empty once all have been taken."""
        cdef int64_t first, wanted = count, i
        cdef int64_t[::1] row
        if wanted < 0:
            raise ValueError(f"count is {count}; a number of rows is needed")
        guard_enter(&self.guard, self)
        try:
            first = self.drawn
            wanted = min(wanted, self.n_rows - first)
            rows = np.empty(wanted, dtype=np.int64)
            row = rows
            with nogil:
                self.settle(first + wanted)
                for i in range(wanted):
                    row[i] = row_in(self, first + i)
        finally:
            guard_leave(&self.guard)
        return rows

    def get_state(self):
        """All that the order needs to go on exactly."""
        guard_enter(&self.guard, self)
        try:
            return (self.n_rows, self.drawn, saved_order(&self.order, self.drawn),
                    (self.keyed.keys[0], self.keyed.keys[1]), copy.deepcopy(self.rng))
        finally:
            guard_leave(&self.guard)


def restored(state):
    """The order that `get_state` saved; a damaged state raises ValueError."""
    with _checks.undamaged("order of rows"):
        if not isinstance(state, tuple) or len(state) != 5 or not isinstance(state[4], np.random.Generator):
            raise ValueError("its parts are not those of an order")
        n_rows, drawn, order, keys, rng = state
        if not 0 <= drawn <= n_rows <= 1 << 62:
            raise ValueError("its counts cannot be right")
        return _restored(n_rows, drawn, order, keys[0], keys[1], copy.deepcopy(rng))


cdef RowOrder _restored(n_rows, int64_t drawn, order, key, other, rng):
    cdef RowOrder new = RowOrder(n_rows, rng)
    if new.n_rows > ORDER_LIMIT:
        keyed_order_set(&new.keyed, new.n_rows, key, other)
    else:
        restore_order(&new.order, order, drawn)
    new.drawn = drawn
    return new
