"""Compiled loop of LUCB, for rules that pull as it does and stop in another way."""

from libc.stdint cimport int64_t

from fastrace._draws._heaps cimport heap_t
from fastrace._math._anytime cimport mixture_t
from fastrace.select._selector cimport Selector

cdef struct side_t:         # lower bounds of the chosen, or upper bounds of the others
    heap_t heap             # by bound: the arm next to the cutoff on top
    double log_inv_alpha, level
    mixture_t mixture       # of gamma-exponential mixtures; its first rho is that of the normal mixture too
    double *table


cdef class LucbSelector(Selector):
    cdef side_t[2] side
    cdef double *bound              # of an arm: the lower if it is chosen, else the upper
    cdef double epsilon
    cdef int64_t batch, rounds, level_round, next_gap
    cdef int kind
    cdef bint moving                # bounds widen with the rounds
    cdef bint stale                 # bounds and their order are to be computed anew before they are used
    cdef int64_t bound_cost         # nanoseconds that a bound takes, roughly; from a table where there is one
    # the history of what the chosen may fall short by
    cdef int64_t *gap_at
    cdef double *gap
    cdef Py_ssize_t n_gaps

    cdef void _set_level(self, side_t *side) noexcept nogil
    cdef double _boundary(self, Py_ssize_t i, const side_t *side, bint exact) noexcept nogil
    cdef double _kl_bound(self, Py_ssize_t i, int k) noexcept nogil
    # Lower bound (k = 0) or upper bound (k = 1) of the arm's mean by which arms are pulled; and that which is reported.
    cdef double _bound(self, Py_ssize_t i, int k, bint exact) noexcept nogil
    cdef double _end(self, Py_ssize_t i, int k) noexcept nogil
    cdef int _refresh(self) except -1 nogil
    cdef void _rebound(self, Py_ssize_t i, Py_ssize_t at) noexcept nogil
    cdef int _renew(self) except -1 nogil
    cdef void _note(self, double gap) noexcept nogil
    cdef int64_t _size(self, Py_ssize_t weakest, Py_ssize_t rival) noexcept nogil
    cdef int _apart(self, double ratio, double *bound) except -1 nogil
    cdef double _log_error(self, double log_delta, double *near, double *far) except? 1.0 nogil
