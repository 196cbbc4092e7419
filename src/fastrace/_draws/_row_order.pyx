# cython: cdivision=True
"""The order in which rows of a table are read: random, or a window of rows in order from a random start."""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport realloc
cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._base._guard cimport guard_enter, guard_leave
from fastrace._base._signals cimport check_signals
from fastrace._draws._keyed_order cimport keyed_order_init, keyed_order_set
from fastrace._draws._order cimport (ORDER_LIMIT, displaced_t, order_advance, order_free, order_grow, order_init,
                                     order_keep, order_reset, order_slot, order_t)
from fastrace._draws._rng cimport bounded

import copy

import numpy as np

cnp.import_array()

from fastrace._base import _checks
from fastrace._base._checks import DamagedError

cdef enum:
    DRAWS_PER_CHECK = 1 << 17       # positions settled between two looks at pending signals


cdef class RowOrder:
    """A uniform random order of `n_rows` rows, settled position by position: O(k) time and memory for k rows.

    Beyond 2**31 rows it is a keyed bijection, see `_keyed_order.pxd`. A window is a table in order from a random row
    on, round its end. A user who reads the rows again sets `drawn` to 0.
    """

    def __cinit__(self, n_rows, rng, bint in_window=False):
        self.n_rows = n_rows
        self.in_window = in_window
        self.take_generator(rng)
        if not in_window and self.n_rows <= ORDER_LIMIT and order_init(&self.order, self.n_rows):
            raise MemoryError(f"no memory for an order of {n_rows} rows")

    def __dealloc__(self):
        order_free(&self.order)

    cpdef take_generator(self, rng):
        """Draw from this generator from now on."""
        cdef bitgen_t *bits = <bitgen_t *>PyCapsule_GetPointer(rng.bit_generator.capsule, b"BitGenerator")
        guard_enter(&self.guard, self)
        self.bits = bits
        self.rng = rng
        self.lock = rng.bit_generator.lock
        guard_leave(&self.guard)

    cdef int settle(self, int64_t target) except -1 nogil:
        """Settle positions up to `target`, once: rows that could not be read are asked for again."""
        cdef int64_t until
        cdef int short
        while self.drawn < target:
            until = min(target, self.drawn + DRAWS_PER_CHECK)
            if not self.held:
                with gil:
                    self.lock.acquire()
            short = self.draw(until)
            if not self.held:
                with gil:
                    self.lock.release()
            if short:
                with gil:
                    raise MemoryError(f"no memory for an order of {self.n_rows} rows")
            self.drawn = until
            if until < target:
                check_signals()
        return 0

    cdef int draw(self, int64_t until) noexcept nogil:
        """Draw positions up to `until`; -1 if memory is short. The generator's lock is held."""
        if self.in_window:
            if self.drawn == 0:
                self.start = bounded(self.bits, self.n_rows)
        elif self.n_rows <= ORDER_LIMIT:
            return order_advance(&self.order, self.bits, self.drawn, until - self.drawn)
        elif self.drawn == 0:
            keyed_order_init(&self.keyed, self.n_rows, self.bits)
        return 0

    cdef void begin_again(self) noexcept nogil:
        """Forget what has been drawn: the next rows depend on the generator alone."""
        if not self.in_window and self.n_rows <= ORDER_LIMIT:
            order_reset(&self.order, self.drawn)
        self.drawn = 0

    def take(self, count):
        """The next rows, at most `count`: ndarray of int64; empty once all have been taken."""
        cdef int64_t first, n = count
        cdef int64_t[::1] row
        if n < 0:
            raise ValueError(f"count is {count}; a number of rows is needed")
        guard_enter(&self.guard, self)
        try:
            first = self.drawn
            n = min(n, self.n_rows - first)
            rows = np.empty(n, dtype=np.int64)
            row = rows
            with nogil:
                self.settle(first + n)
                if n > 0:
                    rows_in(self, first, n, &row[0])
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


cdef object saved_order(order_t *order, int64_t drawn):
    """What kind of order this is, and the entries that make it: (kind, positions, values, settled rows)."""
    cdef displaced_t *entry
    cdef cnp.uint32_t[::1] code
    cdef uint32_t i
    if order.code != NULL and order.n:
        code = <cnp.uint32_t[:order.n]>order.code
        codes = np.asarray(code)
        positions = np.flatnonzero(codes).astype(np.uint32)
        return "permutation", positions, codes[positions], None
    if order.table == NULL:
        return "none", None, None, None
    entries = []
    for i in range(<uint32_t>1 << order.bits):
        entry = &order.table[i]
        if drawn > 0 and entry.race == order.race:
            entries.append((entry.position, entry.row))
    positions, rows = np.array(entries, np.uint32).reshape(-1, 2).T
    settled = np.empty(drawn, np.uint32)
    for i in range(<uint32_t>drawn):
        settled[i] = order.settled[i]
    return "displaced", positions, rows, settled


cdef int restore_order(order_t *order, saved, int64_t drawn) except -1:
    """Make a fresh order what `saved_order` saw, `drawn` positions settled."""
    cdef displaced_t *entry
    cdef cnp.uint32_t[::1] code
    cdef uint32_t position, row
    cdef Py_ssize_t i
    kind, positions, values, settled = saved
    if kind == "none":
        _demand_order(order.n == 0)
        return 0
    positions, values = np.asarray(positions), np.asarray(values)
    _demand_order(positions.dtype == values.dtype == np.uint32 and positions.ndim == 1
                  and positions.shape == values.shape and np.all(positions < order.n)
                  and np.unique(positions).size == positions.size)
    if kind == "permutation":
        _demand_order(np.array_equal(np.sort(positions ^ values), np.sort(positions)))
        if order.code == NULL and order.n > 0 and order_keep(order, 0):
            raise MemoryError()
        if order.n > 0:
            code = <cnp.uint32_t[:order.n]>order.code
            np.asarray(code)[positions] = values
        return 0
    settled = np.asarray(settled)
    _demand_order(kind == "displaced" and order.table != NULL and settled.dtype == np.uint32
                  and settled.shape == (drawn,) and np.all(settled < order.n) and np.all(values < order.n)
                  and np.unique(settled).size == settled.size)
    order.race = 1
    order.settled = <uint32_t *>realloc(order.settled, max(len(settled), 1) * sizeof(uint32_t))
    if order.settled == NULL:
        raise MemoryError()
    order.room = len(settled)
    for i in range(len(settled)):
        order.settled[i] = settled[i]
    while 2 * len(positions) > <int64_t>1 << order.bits:
        if order_grow(order):
            raise MemoryError()
    for position, row in zip(positions.tolist(), values.tolist(), strict=True):
        entry = order_slot(order.table, order.bits, 1, position)
        entry.race, entry.position, entry.row = 1, position, row
        order.used += 1
    return 0


cdef int _demand_order(bint good) except -1:
    if not good:
        raise DamagedError("the saved order of rows cannot be right: it is damaged")
    return 0
