"""Where endless streams of rewards come from. `PullSource` may be cimported and subclassed by other packages."""

from libc.stdint cimport int64_t
cimport numpy as cnp

from fastrace._pull_source cimport BernoulliPulls, PullSource, RandomPulls, UniformPulls
from fastrace.sources cimport Source


cdef class ResampledPulls(RandomPulls):
    cdef readonly Source source
    cdef readonly bint paired
    cdef cnp.ndarray _column        # where the rewards of each arm of a request go
    cdef cnp.ndarray _first         # rows to take before any is drawn; the first `n_first` were taken
    cdef cnp.ndarray _drawn         # rows of the last request, `n_drawn` of them
    cdef int64_t n_first, n_drawn

    cdef int64_t *_room(self, const int64_t *counts, Py_ssize_t n) except NULL nogil


cdef class RecordedPulls(PullSource):
    cdef cnp.ndarray _values, _used
    cdef const double *values
    cdef int64_t n_recorded
    cdef int64_t *used
    cdef readonly bint paired

    cdef int _pull_rounds(self, const Py_ssize_t *arms, const int64_t *counts, Py_ssize_t n,
                          double *out) except -1 nogil


cdef class CallablePulls(PullSource):
    cdef readonly object function

    cdef int _call(self, const Py_ssize_t *arms, const int64_t *counts, Py_ssize_t n, double *out) except -1


cdef class CallbackPulls(PullSource):
    cdef readonly object callback
    cdef bint takes_data
    cdef void *function
    cdef void *data
