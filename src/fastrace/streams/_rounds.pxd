# cython: cdivision=True
"""The rounds of a race on streams, for the class that brings their rewards."""

from libc.stdint cimport int64_t
cimport numpy as cnp

from fastrace._base._guard cimport guard_t
from fastrace._draws._duels cimport Duels
from fastrace._math._columns cimport column_t
from fastrace._math._rounds cimport fr_bets, fr_rule, fr_sums, fr_view

cdef enum:      # places in STOPPED_BY
    RUNNING
    BY_BOUND
    BY_EPSILON
    BY_HORIZON
    SINGLE
    INCONSISTENT
    EXACT
    BY_MAX_PULLS                # may go on

cdef enum:      # places in BOUNDS
    HOEFFDING
    EMPIRICAL_BERNSTEIN
    BETTING
    ASYMPTOTIC

cdef enum:      # places in MISSING
    REFUSED
    SKIPPED
    WORST

cdef enum:
    FIELDS = 10                 # numbers kept for each place

cdef enum:      # what has been decided about an arm
    OPEN
    DROPPED
    CHOSEN


cdef class Rounds:
    cdef readonly Py_ssize_t n_arms, n_open, n_best
    cdef readonly int64_t rounds, horizon
    cdef readonly double epsilon
    cdef int bound, status
    cdef Py_ssize_t n_wanted            # best arms still to be found among the open ones
    cdef int64_t until_check
    cdef guard_t guard
    cdef int64_t limit                  # rewards after which to stop
    cdef int missing                    # what a missing reward does, a place in MISSING
    cdef readonly int64_t n_missing     # missing rewards
    cdef readonly int64_t n_dropped     # rounds that were dropped
    cdef int64_t silent                 # rounds that were dropped since the last one that was not
    cdef Duels duels                    # by which arms are told apart, or None: by their brackets
    cdef double goal                    # evidence that a duel needs
    cdef double first_look, spread      # of asymptotic brackets: rounds before the first, and of the mixture
    cdef bint intersecting              # brackets are intersected over time, in bets.lower and bets.upper
    cdef fr_rule rule
    cdef fr_sums sums
    cdef fr_bets bets
    cdef column_t *columns              # of each arm, by number, if the support is unknown: its means are those of them
    cdef cnp.ndarray _columns, _fields, _arm, _verdict, _column, _low, _high, _scratch
    cdef double *field[FIELDS]
    cdef double *lower                  # scratch, by place
    cdef double *upper
    cdef double *work
    cdef Py_ssize_t *arm
    cdef Py_ssize_t *column             # of each place in the table at hand
    cdef signed char *verdict
    cdef double *low
    cdef double *high
    cdef object arguments

    cdef int _point(self) except -1
    cdef void _brackets(self, Py_ssize_t n, double t, double *lower, double *upper) noexcept nogil
    cdef void _settle(self, Py_ssize_t place, int verdict, double mean, double m2, double lower,
                      double upper) noexcept nogil
    cdef Py_ssize_t _judge(self, Py_ssize_t n, const double *lower, const double *upper, signed char *verdict,
                           double *scratch) noexcept nogil
    cdef void _decide(self, Py_ssize_t n) noexcept nogil
    cdef void _count(self, int verdict) noexcept nogil
    cdef void _end_if_decided(self) noexcept nogil
    cdef void _compact(self) noexcept nogil
    cdef int _rounds(self, fr_view *view, Py_ssize_t n_rounds, Py_ssize_t *used) except -1 nogil
    cdef Py_ssize_t _round(self, fr_view *view, Py_ssize_t first) noexcept nogil
    cdef Py_ssize_t _block(self, fr_view *view, Py_ssize_t first, Py_ssize_t count) noexcept nogil
    cdef Py_ssize_t _narrowing_block(self, fr_view *view, Py_ssize_t count) noexcept nogil
    cdef Py_ssize_t _bet(self, fr_view *view, Py_ssize_t round) noexcept nogil
    cdef double _reward(self, const fr_view *view, Py_ssize_t round, Py_ssize_t place) noexcept nogil
    cdef void _assign(self) noexcept nogil
    cdef void _duel(self, fr_view *view, Py_ssize_t round) noexcept nogil
    cdef void _decide_duels(self) noexcept nogil
    cdef void _means(self, double *mean) noexcept nogil
    cdef int64_t position(self) noexcept nogil
    cdef int64_t _affordable(self) noexcept nogil
    cdef bint _is_clear(self) noexcept nogil
    cdef void _clear_at_block(self) noexcept nogil
    cdef bint _may_decide(self, Py_ssize_t n, double first, double last) noexcept nogil
    cdef void _replay(self, fr_view *view, int64_t start, Py_ssize_t count) noexcept nogil
    cdef void _end_exactly(self) noexcept nogil
    cdef double mean_of(self, Py_ssize_t place) noexcept nogil
    cdef double m2_of(self, Py_ssize_t place) noexcept nogil
    cdef double low_of(self, Py_ssize_t place) noexcept nogil
    cdef double high_of(self, Py_ssize_t place) noexcept nogil
    cdef int _begin(self) except -1
    cdef void _finish(self)
