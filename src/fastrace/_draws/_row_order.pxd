# cython: cdivision=True
"""The order in which rows of a table are read: random, or a window of rows in order from a random start."""

from libc.stdint cimport int64_t
from numpy.random cimport bitgen_t

from fastrace._base._guard cimport guard_t
from fastrace._draws._keyed_order cimport keyed_order_at, keyed_order_t
from fastrace._draws._order cimport ORDER_LIMIT, order_row, order_t


cdef class RowOrder:
    cdef guard_t guard                      # of `take` and `get_state`; a race that owns an order has a guard itself
    cdef readonly int64_t n_rows, drawn     # rows, and positions settled so far
    cdef readonly object rng
    cdef object lock
    cdef bint held                          # the lock, by a chain, through many decisions
    cdef bitgen_t *bits                     # where random numbers come from: of `rng`, or a chain's own stream
    cdef bint in_window                     # rows follow each other in the table
    cdef int64_t start                      # of the window
    cdef order_t order                      # up to ORDER_LIMIT rows
    cdef keyed_order_t keyed                # beyond

    cpdef take_generator(self, rng)
    cdef int settle(self, int64_t target) except -1 nogil
    cdef int draw(self, int64_t until) noexcept nogil
    cdef void begin_again(self) noexcept nogil


cdef object saved_order(order_t *order, int64_t drawn)
cdef int restore_order(order_t *order, saved, int64_t drawn) except -1


cdef inline int64_t row_in(RowOrder order, int64_t position) noexcept nogil:
    """The row at a position that has been settled."""
    if order.in_window:
        position += order.start
        return position - order.n_rows if position >= order.n_rows else position
    if order.n_rows > ORDER_LIMIT:
        return keyed_order_at(&order.keyed, position)
    return order_row(&order.order, position)


cdef inline void rows_in(RowOrder order, int64_t first, Py_ssize_t count, int64_t *row) noexcept nogil:
    """The rows at positions first .. first + count - 1, all of them settled."""
    cdef Py_ssize_t i
    if order.in_window or order.n_rows > ORDER_LIMIT:
        for i in range(count):
            row[i] = row_in(order, first + i)
    else:
        for i in range(count):
            row[i] = order_row(&order.order, first + i)
