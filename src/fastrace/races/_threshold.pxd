"""Race of one mean against a threshold; chains decide their steps by it without the GIL."""

from libc.stdint cimport int64_t
from numpy.random cimport bitgen_t

from fastrace._base._guard cimport guard_t
from fastrace._draws._row_order cimport RowOrder
from fastrace._math._rule cimport rule_t, tally_t
from fastrace.sources cimport Source


cdef class ThresholdRace:
    cdef guard_t guard                      # taken by a decision, and by a chain for all steps of a run
    cdef Source _source
    cdef readonly int64_t n_rows
    cdef readonly bint accepted
    cdef readonly double threshold          # of the last decision, for the sum over all rows
    cdef readonly int64_t n_read            # distinct rows that the last decision rests on
    cdef readonly int64_t n_evaluated       # rows asked of the source, those read again in a full pass included
    cdef readonly int64_t n_looks
    cdef readonly double mean, half_width, skewness, kurtosis
    cdef readonly bint outside, constant, skewed        # what may void the promise: see AcceptResult.warnings
    cdef int stop
    cdef double last, apart                 # the row read last, and the sum of distances of each to the one before
    cdef double carried                     # see `carried_by_few`
    cdef double past_kurtosis               # left by the decisions before, see `kurtosis_to_keep`; -1 before the first
    cdef rule_t rule
    cdef tally_t tally
    cdef bint of_array
    cdef bint strict                        # refuse differences outside the support
    cdef double lowest, highest             # its ends, with room for rounding
    cdef double advantage
    cdef RowOrder order             # of rows; a chain holds its lock, and lends it a stream of its own a decision
    cdef int64_t *rows              # room for ROWS_PER_DECISION row numbers
    cdef double *block              # and for the rewards of two arms on them
    cdef double totals[2]           # of a full pass over two arms, in a chain

    cdef void _forget(self) noexcept nogil
    cdef int _finish(self, bint accepted, int stop) noexcept nogil
    cdef int _decide(self) except -1 nogil
    cdef bint _looks_closer(self) noexcept nogil
    cdef Py_ssize_t _look_at(self, Py_ssize_t k, double rows) noexcept nogil
    cdef int _look_at_all(self, const Py_ssize_t *arms, int n_arms, double *sums) except -1 nogil
    cdef int decide_alone(self, bitgen_t *bits, double threshold, double low, double high) except -1 nogil
    cdef void _clear(self) noexcept nogil
    cdef void _extend(self, Py_ssize_t count, double level) noexcept nogil
    cdef int _read(self, int64_t first, Py_ssize_t count, double level) except -1 nogil
    cdef void _describe(self, double shift) noexcept nogil
    cdef bint _guards(self) noexcept nogil
    cdef double _advantage(self) noexcept nogil
    cdef bint _scan_is_cheaper(self, Py_ssize_t k, double level, Py_ssize_t following) noexcept nogil
    cdef bint _takes_moments(self) noexcept nogil
    cdef double _price_of_moments(self) noexcept nogil
    cdef int _scan(self, const Py_ssize_t *arms, int n_arms, double target, double shift) except -1 nogil
    cdef int _find_bad_row(self) except -1
