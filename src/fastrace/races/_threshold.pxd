"""Race of one mean against a threshold; chains decide their steps by it without the GIL."""

from libc.stdint cimport int64_t
from numpy.random cimport bitgen_t

from fastrace._base._guard cimport guard_t
from fastrace._draws._keyed_order cimport keyed_order_t
from fastrace._draws._order cimport order_t
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
    cdef rule_t rule
    cdef tally_t tally
    cdef bint shuffled, of_array
    cdef bint strict                        # refuse differences outside the support
    cdef double lowest, highest             # its ends, with room for rounding
    cdef double advantage
    cdef object rng, lock
    cdef bitgen_t *bits
    cdef order_t order
    cdef keyed_order_t keyed
    cdef int64_t start
    cdef int64_t *rows
    cdef double *block
    # A chain holds its generator's lock through many decisions and has one stream of random numbers for each.
    cdef bint held
    cdef int64_t drawn
    cdef double totals[2]           # of a full pass over two arms, in a chain

    cdef void _forget(self) noexcept nogil
    cdef int _finish(self, bint accepted, int stop) noexcept nogil
    cdef int _decide(self) except -1 nogil
    cdef int decide_alone(self, bitgen_t *bits, double threshold, double low, double high) except -1 nogil
    cdef int _settle(self, int64_t first, int64_t count) except -1 nogil
    cdef int _draw(self, int64_t first, int64_t count) noexcept nogil
    cdef int64_t _row(self, int64_t first, Py_ssize_t i) noexcept nogil
    cdef int _ask(self, int64_t first, Py_ssize_t count) except -1 nogil
    cdef int _read(self, int64_t first, Py_ssize_t count, double level) except -1 nogil
    cdef void _describe(self, double shift) noexcept nogil
    cdef bint _scan_is_cheaper(self, Py_ssize_t k, double level) noexcept nogil
    cdef int _scan(self, const Py_ssize_t *arms, int n_arms, double target, double shift) except -1 nogil
    cdef int _find_bad_row(self) except -1
