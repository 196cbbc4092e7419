"""Where endless streams of rewards come from. `PullSource` may be cimported and subclassed by other packages."""

from libc.stdint cimport int64_t
cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._uniforms cimport uniforms_t
from fastrace.sources cimport Source


cdef class PullSource:
    cdef readonly Py_ssize_t n_arms

    # out = counts[0] rewards of arms[0], then counts[1] rewards of arms[1], ...; every count is at least 1.
    # Return 0, or -1 with a Python exception set: the rewards of this call are then not used.
    cdef int pull(self, const Py_ssize_t *arms, const int64_t *counts, Py_ssize_t n, double *out) except -1 nogil


cdef class RandomPulls(PullSource):
    cdef readonly object rng
    cdef object lock
    cdef bitgen_t *bits
    cdef uniforms_t ahead

    cdef int refill(self) except -1 nogil


cdef class BernoulliPulls(RandomPulls):
    cdef cnp.ndarray _mean
    cdef const double *mean


cdef class UniformPulls(RandomPulls):
    cdef cnp.ndarray _low, _width
    cdef const double *low
    cdef const double *width


cdef class ResampledPulls(RandomPulls):
    cdef readonly Source source


cdef class RecordedPulls(PullSource):
    cdef cnp.ndarray _values, _used
    cdef const double *values
    cdef int64_t n_recorded
    cdef int64_t *used


cdef class CallablePulls(PullSource):
    cdef readonly object function

    cdef int _call(self, const Py_ssize_t *arms, const int64_t *counts, Py_ssize_t n, double *out) except -1


cdef class CallbackPulls(PullSource):
    cdef readonly object callback
    cdef bint takes_data
    cdef void *function
    cdef void *data
