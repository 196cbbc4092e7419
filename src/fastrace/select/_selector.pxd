"""The frame of rules that select the m best of n arms from endless streams: requests, rewards, moments, order."""

from libc.stdint cimport int64_t
cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._base._guard cimport guard_t
from fastrace._draws._heaps cimport heap_t
from fastrace._draws._uniforms cimport uniforms_t
from fastrace.pulls cimport PullSource

cdef enum status_t:             # places in STOPPED_BY
    RUNNING
    BY_DELTA                    # the error bound reached delta
    BY_CAP                      # every arm has been pulled as often as a fixed plan would
    BY_PLAN                     # a fixed plan has been carried out
    BY_SEPARATION               # no bounds collide, or all arms have been decided
    BY_HORIZON                  # the rounds are used up
    BY_BUDGET                   # the budget is spent
    BY_ALL                      # all arms are wanted
    BY_MAX_PULLS                # told to stop; may go on


cdef enum:
    MOST_PER_BATCH = 1 << 24        # pulls that a decision draws one by one

cdef int64_t MOST_PULLS             # that can be counted; that of `_checks`

cdef class Selector:
    cdef readonly Py_ssize_t n_arms, n_best
    cdef readonly int64_t total     # pulls made
    cdef readonly int status
    cdef guard_t guard              # level 0 is set up by `start` or `set_state`, 1 and 2 by subclasses
    # per arm; the arrays own the memory, the pointers are for the loops
    cdef readonly cnp.ndarray _low, _high, _span, _pulls, _mean, _m2
    cdef double *low
    cdef double *high
    cdef double *span               # high - low
    cdef int64_t *pulls
    cdef double *mean
    cdef double *m2                 # sum of squared deviations from the mean
    # what is asked for: wanted[k] more pulls of asked[k], for at <= k < n_asked
    cdef cnp.ndarray _asked, _wanted, _piece
    cdef Py_ssize_t *asked
    cdef int64_t *wanted
    cdef int64_t *piece
    cdef Py_ssize_t n_asked, at
    cdef double *rewards            # of one piece
    # the m best so far and the others, by mean; kept by those that call `split` and `resplit`
    cdef heap_t best, rest
    cdef Py_ssize_t *heap_memory
    cdef char *is_best
    cdef Py_ssize_t joined, left    # the arms that crossed over last
    # random numbers
    cdef readonly object rng
    cdef object lock
    cdef bitgen_t *bits
    cdef uniforms_t ahead

    cdef bint due                   # a request is to be made: Ctrl-C came while `plan` made it
    cdef int64_t work               # nanoseconds, roughly, since Ctrl-C was last looked for

    # A subclass supplies `plan`: set status, or fill asked, wanted, n_asked (each wanted at least 1) and set at = 0.
    # It is called whenever all that was asked for has been told, and again from the start if Ctrl-C cuts it short. What
    # takes O(n_arms) in it, or in an answer, says so to `worked`. `absorb` takes rewards of one arm as they come.
    cdef int plan(self) except -1 nogil
    cdef int absorb(self, Py_ssize_t arm, const double *rewards, int64_t count) except -1 nogil

    cdef int ask_for(self, Py_ssize_t arm, int64_t count) noexcept nogil
    cdef double uniform(self) except? -1.0 nogil
    # Count work of so many nanoseconds, roughly, and look for Ctrl-C after every 10 ms of it.
    cdef int worked(self, int64_t nanoseconds) except -1 nogil
    cdef int split(self) except -1 nogil
    cdef bint resplit(self, Py_ssize_t arm) noexcept nogil
    # the frame's own
    cdef int _ready(self) except -1
    cdef int _plan(self) except -1 nogil
    cdef int _catch_up(self) except -1
    cdef void _exchange(self) noexcept nogil
    cdef Py_ssize_t _next_piece(self, int64_t limit) noexcept nogil
    cdef int _check(self, const double *rewards, const int64_t *counts, Py_ssize_t n) except -1 nogil
    cdef int _refuse(self, Py_ssize_t arm, double reward, int64_t pull) except -1
    cdef int _serve(self, const double *rewards, const int64_t *counts, Py_ssize_t n) except -1 nogil
    cdef int _run(self, PullSource source, int64_t limit) except -1 nogil


# A copy of `values`, one finite number of the given dtype per arm, or an error that names them.
cdef cnp.ndarray per_arm(object values, Py_ssize_t n_arms, object dtype, str name)
