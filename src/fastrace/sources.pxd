"""Where rewards come from. `Source` is the one class that other packages may cimport and subclass."""

from libc.stdint cimport int64_t
cimport numpy as cnp

from fastrace._base._guard cimport guard_t


cdef class Source:
    cdef readonly Py_ssize_t n_arms
    cdef readonly int64_t n_rows
    # Cost of one row read at random over one row read in order, at least 1: a race turns to one full pass by it.
    cdef readonly double scan_advantage
    # Nanoseconds a reward takes, read in order, roughly: what the work of a race's own rule is weighed against.
    cdef readonly double reward_cost
    # Rewards per arm that each call of `shift` reads: counted as cost, and as read.
    cdef readonly int64_t n_always_read
    # Rows worth asking for in the first look, at least 1: large where each call has a price of its own.
    cdef readonly Py_ssize_t first_look
    # None, or (low, high): scalars or one value per arm that hold every reward.
    cdef public object support
    # Level 0 is set up by `Source.__init__`; a subclass with memory of its own takes level 1.
    cdef guard_t guard

    # A subclass supplies `fill`; the rest has defaults built on it. All return 0, or -1 with a Python exception set.

    # out[j][i] = reward of arms[j] on rows[i], for i < n_rows and j < n_arms (the counts asked for, not the totals).
    cdef int fill(self, const int64_t *rows, Py_ssize_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms,
                  double **out) except -1 nogil
    # The same on rows first, first + 1, ..., first + n_rows - 1.
    cdef int fill_range(self, int64_t first, Py_ssize_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms,
                        double **out) except -1 nogil
    # out[j] += sum over the same rows of the rewards of arms[j].
    cdef int add_sums(self, int64_t first, int64_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms,
                      double *out) except -1 nogil
    # out[j] = sum over all rows of the rewards of arms[j].
    cdef int total(self, const Py_ssize_t *arms, Py_ssize_t n_arms, double *out) except -1 nogil
    # out[j] = what is known of the sum of arms[j] beside its rewards, such as the exact sum of a control variate.
    cdef int shift(self, const Py_ssize_t *arms, Py_ssize_t n_arms, double *out) except -1 nogil


# Adds the rewards of rows first, first + 1, ... to out[j], `size` rows at a time; looks at signals each `often` rows.
cdef int add_blocks(Source source, Py_ssize_t size, int64_t often, int64_t first, int64_t n_rows,
                    const Py_ssize_t *arms, Py_ssize_t n_arms, double *out) except -1 nogil


# A source whose rewards come from one body; only `Source` is for other packages.
cdef class _BlockSource(Source):
    # What `fill` and `fill_range` share: rows[i], or first + i where `rows` is NULL.
    cdef int block(self, const int64_t *rows, int64_t first, Py_ssize_t n_rows, const Py_ssize_t *arms,
                   Py_ssize_t n_arms, double **out) except -1 nogil


cdef class ArraySource(_BlockSource):
    cdef readonly cnp.ndarray values
    cdef const char *data
    cdef Py_ssize_t row_stride, arm_stride
    cdef bint single


cdef class CallableSource(_BlockSource):
    cdef readonly object function

    cdef int _ask(self, const int64_t *rows, int64_t first, Py_ssize_t n_rows, const Py_ssize_t *arms,
                  Py_ssize_t n_arms, double **out, double *sums) except -1


cdef class CallbackSource(Source):
    cdef readonly object callback
    # Whether the callback takes all arms at once, and whether it takes user data.
    cdef readonly bint all_arms, takes_data
    cdef void *function
    cdef void *data
