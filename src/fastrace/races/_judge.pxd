"""Who is still in a race: comparisons with the leader, half-widths, tails. `_core.Race` adds the loop that reads."""

from libc.stdint cimport int64_t
cimport numpy as cnp

from fastrace._base._types cimport moments4_t
from fastrace._math._rule cimport look_t
from fastrace.races._memory cimport RaceMemory

cdef enum:      # why a race ended; places in `_judge.STOPPED_BY`
    RUNNING = 0
    BY_BOUND = 1
    BY_EXACT = 2
    SINGLE = 3
    BY_BUDGET = 4

cdef enum:      # what may void the promise
    OUTSIDE_SUPPORT = 1
    CONSTANT_FIRST_LOOK = 2
    SKEWED = 4
    IMPOSSIBLE_REWARD = 8
    HELD_BACK = 16


cdef class RaceJudge(RaceMemory):
    cdef int bound                      # of `_math._rule`
    cdef bint guarded, tails            # heuristics of the normal rule against skewed rewards
    cdef bint bounded_support
    # the plan: when to look, and what each look may spend
    cdef Py_ssize_t n_looks
    cdef cnp.ndarray _looks, _quantiles
    cdef int64_t *look                  # rows read at each look; the last reads all
    cdef double *quantile               # standard errors of the normal rule
    cdef double log_inv_delta           # of one comparison at one look
    cdef look_t now                     # half-widths by moments; written by `_choose_width`

    cdef int _judge(self) except -1 nogil
    cdef double _rows_needed(self) noexcept nogil
    cdef bint _is_dead(self, Py_ssize_t i) noexcept nogil
    cdef bint _out(self, const moments4_t *own, Py_ssize_t leader, Py_ssize_t i, double gap,
                   double width) noexcept nogil
    cdef void _choose_width(self) noexcept nogil
    cdef double _width(self, const moments4_t *m, Py_ssize_t i, Py_ssize_t j) noexcept nogil
    cdef double _weigh_tails(self, const moments4_t *own, moments4_t *lead, Py_ssize_t leader, Py_ssize_t i, double gap,
                             double width) except -1.0 nogil
    cdef void _wait_for(self, Py_ssize_t column, Py_ssize_t i, double rows) noexcept nogil
    cdef int _column_moments(self, Py_ssize_t arm, moments4_t *m) except -1 nogil
    cdef double _tail_rows(self, const moments4_t *m, Py_ssize_t arm, Py_ssize_t leader, Py_ssize_t i, double side,
                           double gap) noexcept nogil
    cdef int _catch_up(self, Py_ssize_t leader, Py_ssize_t i) except -1 nogil
    cdef void _interval(self, Py_ssize_t i, int64_t n, int64_t rows, double mean, double std, double share,
                        double quantile, double *lower, double *upper) noexcept nogil
