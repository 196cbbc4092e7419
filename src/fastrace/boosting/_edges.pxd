# cython: cdivision=True
"""The race of edges, for the loops that feed it."""

from libc.stdint cimport int64_t
cimport numpy as cnp

from fastrace._base._guard cimport guard_t
from fastrace._math._bets cimport fr_bet_t, fr_sums_t
from fastrace._math._schedules cimport spending_t

cdef enum:      # places in STATUS
    RUNNING
    FIRED
    ERROR_BELOW
    NO_EDGE
    INCONSISTENT
    MAX_SAMPLES

cdef struct edge_t:             # of a rule that bets: what a stream keeps
    fr_sums_t sums              # of wins
    double lower, upper         # running intersection


cdef class EdgeRule:
    cdef guard_t guard
    cdef readonly Py_ssize_t n_hypotheses, best
    cdef readonly int64_t n, next_look
    cdef readonly double tau, growth, min_edge
    cdef readonly bint by_leader
    cdef int kind, state
    cdef int64_t pending
    cdef double log_inv_delta, log_inv_share    # of all hypotheses, and of one
    cdef spending_t how
    cdef fr_bet_t bet
    cdef double number, end, x                  # of the look on a grid; last n that x serves, and what enters the width
    cdef cnp.ndarray _low, _high, _sums, _edges
    cdef double *low            # brackets of |edge|
    cdef double *high
    cdef double *sums           # of z, set before a look
    cdef edge_t *edge

    cdef void begin(self, double log_inv_delta) noexcept nogil
    cdef int look(self, int64_t n) noexcept nogil
    cdef void _set_width(self, int64_t n) noexcept nogil
    cdef bint _judge(self, Py_ssize_t h, int64_t n, double mean) noexcept nogil
    cdef int64_t _look_after(self, int64_t n) noexcept nogil
    cdef object _copied(self, array)
    cdef dict get(self)
    cdef put(self, state)
