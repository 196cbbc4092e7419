"""The base of all streams that stop themselves: what comes in, what it knows, when it is over.

To write a rule, subclass `Stream` in Cython and supply `push`, `mean`, `memory`, `_own_state` and `_set_own_state`;
`extend` too where blocks are faster than one reward at a time.
"""

from libc.stdint cimport int64_t
cimport numpy as cnp

from fastrace._base._guard cimport guard_t

cdef enum:
    STREAM_BLOCK = 1024         # most rewards in one call of `extend`

cdef enum:                      # places in STOPPED_BY
    RUNNING
    STOPPED
    INCONSISTENT
    OUT_OF_SAMPLES


cdef struct stream_t:           # what the base keeps of a stream and puts back after a bad call
    int64_t n                   # rewards used
    int64_t n_clipped
    int status
    bint by_floor               # it stopped because |mean| <= floor
    double lower, upper         # running intersection; of the mean unless the rule says otherwise
    double answer               # the estimate of a rule that has stopped


cdef class Stream:
    cdef readonly double low, high      # the support, or all finite numbers
    cdef bint bounded                   # whether the support is known
    cdef double slack                   # rounding forgiven outside the support: 1e-12 of its width
    cdef double least, most             # what a reward may be: the support and the slack, but see `_reach`
    cdef double epsilon_, delta_, threshold, floor
    cdef int criterion_
    cdef bint clip
    cdef bint binary                    # every reward must be one of the two ends of the support
    cdef guard_t guard                  # level 0 is set up by `_configure`; never taken without the GIL
    cdef int64_t limit                  # max_samples
    cdef int64_t population             # rows of a population read without replacement, or 0
    cdef Py_ssize_t per_check           # rewards between two looks at pending signals: 50 ms of work or less
    cdef stream_t s
    cdef readonly dict arguments        # with which the object can be made again

    # To supply. `s.n` counts the reward when `push` is called. A stream that is over is never pushed. `memory` is all
    # that `push` changes beside `s`, in one piece whose size never changes.
    cdef void push(self, double x) noexcept nogil                           # absorb a reward and judge
    cdef double mean(self) noexcept nogil                                   # of the rewards used; nan if there are none
    cdef void *memory(self, Py_ssize_t *size) noexcept nogil

    # Absorb up to n <= STREAM_BLOCK good rewards, advance `s.n`, and return how many: fewer than n only if over.
    cdef Py_ssize_t extend(self, const double *x, Py_ssize_t n) noexcept nogil

    # Intersect what is known with a new interval of the mean, and stop by the criterion.
    cdef void judge(self, double lower, double upper) noexcept nogil
    cdef void conclude(self) noexcept nogil
    # Every row of the population has been read: its mean is this.
    cdef void settle(self, double mean) noexcept nogil
    cdef void stop(self, double answer) noexcept nogil
    cdef bint _is_full(self) noexcept nogil
    cdef object _one_too_many(self, name)
    # The limit of rewards is reached: the stream is over, and inconsistent if no mean fits what is known.
    cdef void give_up(self) noexcept nogil

    # Copy all that `push` changes, `s` included, and put it back. With NULL, only the size.
    cdef Py_ssize_t keep(self, char *to) noexcept nogil
    cdef void put_back(self, const char *kept) noexcept nogil

    cdef Py_ssize_t _take(self, cnp.ndarray array, Py_ssize_t first) except -1
    cdef Py_ssize_t _run(self, const char *data, Py_ssize_t n, Py_ssize_t stride, bint single,
                         Py_ssize_t *bad) except -1 nogil
    cdef bint _between_ends(self, double x) noexcept nogil
    cdef Py_ssize_t _clip(self, const double *x, Py_ssize_t n, double *out) noexcept nogil
    cdef bint _was_clipped(self, const char *data, Py_ssize_t i, Py_ssize_t stride, bint single) noexcept nogil


cdef class Over(Stream):
    cdef Stream inner
