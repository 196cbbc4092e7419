"""What a race knows at any time. `_core.Race` adds the loop that reads."""

from libc.stdint cimport int64_t

from fastrace.races._judge cimport RaceJudge


cdef class RaceAnswers(RaceJudge):
    cdef object levels                  # what intervals of differences may spend; None: there are none
    cdef object of_means                # what ends of intervals of means may spend, where bets give them; or None
    cdef void _interval(self, Py_ssize_t i, int64_t n, int64_t absent, int64_t rows, double mean, double std,
                        double share, double quantile, double *lower, double *upper) noexcept nogil
    cdef int _difference(self, Py_ssize_t leader, Py_ssize_t i, int64_t n, int64_t rows, double share, double quantile,
                         double *low, double *high) except -1 nogil
    cdef int _interval_by_bets(self, Py_ssize_t i, double share) except -1 nogil
    cdef int64_t _rows_present(self, int64_t n) noexcept nogil
    cdef double _refuted(self, Py_ssize_t a, Py_ssize_t b, double known, int64_t n, double share, double mean,
                         double guess, double most) except -1.0 nogil
