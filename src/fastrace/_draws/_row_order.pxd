# cython: cdivision=True
"""A random order of the rows of a table, for whoever reads the table as a stream."""

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
    cdef bitgen_t *bits
    cdef order_t order                      # up to ORDER_LIMIT rows
    cdef keyed_order_t keyed                # beyond

    cdef int settle(self, int64_t target) except -1 nogil


cdef object saved_order(order_t *order, int64_t drawn)
cdef int restore_order(order_t *order, saved, int64_t drawn) except -1


cdef inline int64_t row_in(RowOrder order, int64_t position) noexcept nogil:
    """The row at a position that has been settled."""
    if order.n_rows > ORDER_LIMIT:
        return keyed_order_at(&order.keyed, position)
    return order_row(&order.order, position)
