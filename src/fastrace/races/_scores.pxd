"""Rewards of a race less what a proxy says of them. See `_scores.pyx` for why the bets stay valid."""

from libc.stdint cimport int64_t
cimport numpy as cnp

from fastrace._base._types cimport moments4_t
from fastrace._math._betting cimport wealth_t
from fastrace.races._memory cimport RaceMemory
from fastrace.races._reading cimport ROWS_PER_BLOCK


cdef class RaceScores(RaceMemory):
    cdef readonly bint proxied
    cdef bint shared                    # one column of scores for all arms
    cdef Py_ssize_t n_columns
    cdef cnp.ndarray _table, _centre, _least, _most
    cdef const double *score            # rows by columns; scores as they came
    cdef double *centre                 # mean of each column over all rows
    cdef double *lowest                 # smallest score less that mean, of each column
    cdef double *highest
    cdef double **gap                   # of an arm: the least and the largest of its score less that of each other arm
    # per arm
    cdef readonly cnp.ndarray _slope, _score_sum, _adjusted_sum
    cdef double *slope                  # newest coefficient
    cdef double *score_sum              # scores less their mean, of the rows read
    cdef double *adjusted_sum           # adjusted rewards of the rows read
    cdef readonly cnp.ndarray _lower, _upper, _found_at
    cdef double *lower                  # interval of the mean, found after `found_at` rows
    cdef double *upper
    cdef int64_t *found_at
    # parts of the order of rows, each with coefficients of its own
    cdef Py_ssize_t n_parts
    cdef readonly cnp.ndarray _begins, _slopes, _shifts
    cdef int64_t *begins
    cdef double *slopes                 # a row per part
    cdef double *shifts
    # adjusted rewards of a block
    cdef double x[ROWS_PER_BLOCK]
    cdef double y[ROWS_PER_BLOCK]

    cdef void _forget_slopes(self) noexcept nogil
    cdef void _learn(self, int64_t n, const double *total) noexcept nogil
    cdef void _slopes_of_arms(self, int64_t n) noexcept nogil
    cdef void _slope_of_all(self, int64_t n) noexcept nogil
    cdef double _explained(self, Py_ssize_t i, int64_t n) noexcept nogil
    cdef int _bet_adjusted(self, wealth_t *w, Py_ssize_t a, Py_ssize_t b, double shift, double low,
                           int64_t rows) except -1 nogil
    cdef void _see_again(self, wealth_t *w, Py_ssize_t a, Py_ssize_t b, double shift, Py_ssize_t part) noexcept nogil
    cdef double _top(self, Py_ssize_t a, Py_ssize_t b, Py_ssize_t part) except? -1.0 nogil
    cdef int _measure_gap(self, Py_ssize_t a, Py_ssize_t b) except -1 nogil
    cdef void _moments_adjusted(self, Py_ssize_t a, Py_ssize_t b, int64_t n, moments4_t *m) noexcept nogil
    cdef void _take_rows(self, int64_t start, Py_ssize_t count) noexcept nogil
    cdef const double *_take_adjusted(self, Py_ssize_t i, double slope, double shift, int64_t start, Py_ssize_t count,
                                      double *out) noexcept nogil
    cdef double _score(self, Py_ssize_t i, int64_t row) noexcept nogil
    cdef double _slope_of(self, Py_ssize_t i, Py_ssize_t part) noexcept nogil
    cdef double _shrunk(self, double both, double square, int64_t n, Py_ssize_t i) noexcept nogil
    cdef double _most_slope(self, Py_ssize_t i) noexcept nogil
