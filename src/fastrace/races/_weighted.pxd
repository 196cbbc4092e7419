"""Draws of rows in proportion to their weights, and races over such draws."""

from libc.stdint cimport int64_t, uint32_t
from numpy.random cimport bitgen_t
cimport numpy as cnp

from fastrace._base._guard cimport guard_t
from fastrace._draws._alias cimport alias_t
from fastrace._math._rule cimport rule_t, tally_t
from fastrace.races._reading cimport DRAWS_PER_CALL
from fastrace.sources cimport Source


cdef inline double slack_of(double rounding) noexcept nogil:
    """How far beyond its bound a row's change may seem to be, before the bound must be wrong."""
    return max(1e-10, rounding)


cdef struct urn_t:                  # an `AliasTable`, which must outlive it, for loops without the GIL
    const alias_t *table
    const double *weight
    double total                    # of the weights
    uint32_t n


cdef class AliasTable:
    cdef guard_t guard
    cdef alias_t *table
    cdef urn_t urn
    cdef readonly uint32_t n
    cdef readonly cnp.ndarray weights


cdef class WeightedRace:
    cdef guard_t guard                  # of its set-up; the chain that decides with it has one user
    cdef readonly bint accepted
    cdef readonly bint lost             # reading all rows in order is cheaper than to go on
    cdef readonly int64_t n_read        # rows drawn, as often as they were drawn
    cdef readonly int64_t n_looks
    cdef AliasTable table
    cdef double advantage
    cdef rule_t rule
    cdef tally_t tally
    cdef int64_t rows[DRAWS_PER_CALL]
    cdef double before[DRAWS_PER_CALL]
    cdef double after[DRAWS_PER_CALL]

    cdef int decide(self, Source source, const urn_t *urn, bitgen_t *bits, double threshold, double size,
                    double rounding) except -1 nogil
    cdef int read(self, Source source, const urn_t *urn, bitgen_t *bits, Py_ssize_t count, double level, double size,
                  double rounding) except -1 nogil
