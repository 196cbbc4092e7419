"""The frame of rules that select the m best of n arms from endless streams: requests, rewards, moments, order."""

from libc.stdint cimport int64_t, uint32_t
cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._base._guard cimport guard_t
from fastrace._draws._alias cimport alias_t
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
    BY_EPSILON                  # no arm is better by epsilon
    BY_READING                  # every cell of a table that could matter was read


cdef enum:                      # places in MISSING
    REFUSED
    DROPPED
    WORST

cdef enum:
    MOST_PER_BATCH = 1 << 24        # pulls that a decision draws one by one

cdef int64_t MOST_PULLS             # that can be counted; that of `_checks`

cdef class Selector:
    cdef readonly Py_ssize_t n_arms, n_best
    cdef readonly int64_t total     # pulls made
    cdef readonly int status
    cdef guard_t guard              # awaits `start` or `set_state`
    cdef bint configured            # `__init__` is done
    cdef list memory                # owns what `room` returned
    cdef dict vectors               # by name: arrays of one number per arm that make up a saved state
    # per arm; the arrays own the memory, the pointers are for the loops
    cdef readonly cnp.ndarray _low, _high, _span, _pulls, _mean
    cdef double *low
    cdef double *high
    cdef double *span               # high - low
    cdef int64_t *pulls
    cdef double *origin             # what the rewards and the mean of an arm count from; 0 of a known support
    cdef double *mean
    cdef double *m2                 # sum of squared deviations from the mean
    cdef double *error              # sum of squared errors of predicting each reward by the mean of those before it
    # the request: owed[k] more pulls of asked[k], for served <= k < n_asked
    cdef cnp.ndarray _asked, _owed
    cdef Py_ssize_t *asked
    cdef int64_t *owed
    cdef int64_t *piece
    cdef Py_ssize_t n_asked, served
    cdef readonly int64_t each      # pulls of each arm that the first request is for, while it is cut short; else 0
    cdef double *rewards            # of one piece
    cdef readonly bint asking       # a source was asked for a piece, and the rule has not taken its rewards
    cdef Py_ssize_t n_arrived       # arms of that piece, once its rewards have come; 0 before
    cdef int missing                # what a missing reward does, a place in MISSING
    cdef int64_t *missed            # missing rewards of each arm; NULL where they are refused
    cdef int64_t *silent            # those since its last reward
    # the m best so far and the others, by mean; of rules with first pulls, kept from then on
    cdef int64_t first              # pulls of each arm before `plan` is called; 0: `plan` begins
    cdef readonly bint ready        # the first pulls are made, and the order is kept
    cdef heap_t best, rest
    cdef char *is_best
    cdef Py_ssize_t joined, left    # the arms that crossed over last
    # random numbers, and draws of a block of pulls by weight
    cdef readonly object rng
    cdef object lock
    cdef bitgen_t *bits
    cdef uniforms_t ahead
    cdef double *weight
    cdef int64_t *tally
    cdef alias_t *alias
    cdef uint32_t *stack

    cdef bint due                   # a request is to be made: Ctrl-C came while `plan` made it
    cdef int64_t work               # nanoseconds, roughly, since Ctrl-C was last looked for

    # A subclass supplies `_configure`, which takes the options that `__init__` does not know, and `plan`: set status
    # or ask for pulls, at least 1 of each arm named. It is called when all that was asked for has been told, and again
    # from the start if Ctrl-C cuts it short. What takes O(n_arms) in it, or in an answer, says so to `worked`.
    # `absorb` takes rewards of one arm as they come, `reorder` takes note of its new mean. Fields that are one number
    # per arm come from `vector`, and are saved; other memory comes from `room`.
    cdef int plan(self) except -1 nogil
    cdef int absorb(self, Py_ssize_t arm, const double *rewards, int64_t count) except -1 nogil
    cdef void reorder(self, Py_ssize_t arm) noexcept nogil

    cdef void *vector(self, str name, object dtype) except NULL
    cdef void *room(self, Py_ssize_t count, Py_ssize_t size) except NULL
    cdef int room_for_blocks(self) except -1
    cdef int ask_for(self, Py_ssize_t arm, int64_t count) noexcept nogil
    cdef int ask_one_more(self, Py_ssize_t arm, int64_t count) noexcept nogil
    cdef int draw_block(self, double sum_of_weights, int64_t size) except -1 nogil
    cdef double uniform(self) except? -1.0 nogil
    # Count work of so many nanoseconds, roughly, and look for Ctrl-C after every 10 ms of it.
    cdef int worked(self, int64_t nanoseconds) except -1 nogil
    cdef int split(self) except -1 nogil
    cdef bint resplit(self, Py_ssize_t arm) noexcept nogil
    # the frame's own
    cdef int _set_up(self) except -1
    cdef int _plan(self) except -1 nogil
    cdef int64_t _made_of(self, Py_ssize_t arm) noexcept nogil
    cdef int64_t _of_each(self) noexcept nogil
    cdef void _ask_each(self, int64_t total) noexcept nogil
    cdef int _catch_up(self) except -1
    cdef void _exchange(self) noexcept nogil
    cdef Py_ssize_t _next_piece(self, int64_t limit) noexcept nogil
    cdef int _check(self, const double *rewards, const int64_t *counts, Py_ssize_t n) except -1 nogil
    cdef int _refuse(self, Py_ssize_t arm, double reward, int64_t pull) except -1
    # Missing rewards of an arm: drop them, or let them be the low end of its support; how many rewards there are then.
    cdef int64_t settle(self, Py_ssize_t arm, double *rewards, int64_t count) noexcept nogil
    cdef bint _fall_short(self) noexcept nogil
    cdef int _listen_to_all(self, const double *rewards, const int64_t *counts, Py_ssize_t n) except -1 nogil
    cdef int _listen(self, Py_ssize_t arm, const double *rewards, int64_t count, bint named) except -1 nogil
    cdef int _serve(self, const double *rewards, const int64_t *counts, Py_ssize_t n) except -1 nogil
    cdef int _run(self, PullSource source, int64_t limit) except -1 nogil


# `values` as a vector, one number of the given dtype per arm, none nan, all finite if asked; or an error naming them.
# It may be `values` itself, which nobody may change then.
cdef cnp.ndarray per_arm(object values, Py_ssize_t n_arms, object dtype, str name, bint finite=*)
