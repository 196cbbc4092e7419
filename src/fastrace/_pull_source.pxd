"""Sources of pulls that draw by themselves, and their bases.

Other packages may subclass `PullSource`; they cimport it from `pulls`.
"""

from libc.stdint cimport int64_t
cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._base._guard cimport guard_t
from fastrace._draws._uniforms cimport uniforms_t


cdef class PullSource:
    cdef readonly Py_ssize_t n_arms
    # One user at a time: held by `read`, and by a rule for as long as it runs.
    cdef guard_t guard
    # Whether a pull changes nothing in the object, so that several may run at once; set it in __cinit__.
    cdef bint stateless
    # Most rewards that `read` asks for in one call; between two calls it looks for Ctrl-C. Set it in __cinit__.
    cdef int64_t most_at_once

    # out = counts[0] rewards of arms[0], then counts[1] rewards of arms[1], ...; every count is at least 1.
    # Return 0, or -1 with a Python exception set: the rewards of this call are then not used.
    # Whoever calls it holds the source.
    cdef int pull(self, const Py_ssize_t *arms, const int64_t *counts, Py_ssize_t n, double *out) except -1 nogil

    # Take the source for any number of pulls, or raise RuntimeError if someone has it; then give it back.
    cdef int hold(self) except -1
    cdef void release(self) noexcept
    cdef int _pull_in_parts(self, const Py_ssize_t *arms, int64_t *left, int64_t *part, Py_ssize_t n,
                            double *out) except -1 nogil


cdef class RandomPulls(PullSource):
    cdef readonly object rng
    cdef object lock
    cdef bitgen_t *bits
    cdef uniforms_t ahead

    # Make sure of a number drawn ahead; how many there are from `ahead.at` on, at most `wanted`.
    cdef Py_ssize_t have(self, int64_t wanted) except -1 nogil


cdef class BernoulliPulls(RandomPulls):
    cdef cnp.ndarray _mean
    cdef const double *mean


cdef class UniformPulls(RandomPulls):
    cdef cnp.ndarray _low, _high, _width
    cdef const double *low
    cdef const double *width


# The sum of counts that are at least 0, or a ValueError if it is beyond what one read may be.
cdef int64_t sum_of_counts(cnp.ndarray counts) except -1
