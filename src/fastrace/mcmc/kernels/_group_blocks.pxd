# cython: cdivision=True
"""Effects of groups that are moved and decided one group at a time, and the small dense algebra of that."""

from libc.stdint cimport int64_t
cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._base._guard cimport guard_t
from fastrace._models._arrow cimport Quadratic
from fastrace._models._priors cimport JointPrior
from fastrace.mcmc.kernels._chain cimport Chain


# Given phi, and what rows see of all else, the effects of groups are independent: each group's are moved by its own
# rows, and one pass over these serves all groups. It leaves the posterior invariant, as Gibbs steps do.
cdef class GroupBlocks:
    cdef guard_t guard
    cdef readonly Py_ssize_t n_groups, n_rows, width
    cdef readonly Py_ssize_t n_free             # predictors of a row, of each of which a group has as many effects
    cdef readonly GroupBlocks following         # of another factor, which is swept next, or None
    cdef readonly Quadratic surrogate           # the expansion that rewards leave out
    cdef JointPrior prior
    cdef Py_ssize_t n_all                       # rows, those of other groups too
    cdef Py_ssize_t first_precision             # of the effects, among what `prior.conditional` gives
    cdef readonly Py_ssize_t n_sliced           # groups that slice in half of the sweeps
    cdef cnp.ndarray _rows, _values, _places, _ends, _blocks, _places_open, _rows_open, _memory, _sliced
    cdef const char *sliced                     # n_groups: which these are
    cdef const int64_t *rows                    # n_rows: those of one group after those of another
    cdef const double *values                   # n_rows x (width / n_free): what the effects of these rows multiply
    cdef const Py_ssize_t *places               # n_groups: where the effects of a group begin in psi
    cdef const Py_ssize_t *ends                 # n_groups: where its rows end
    cdef const double *blocks                   # n_groups x width x width: curvatures of `surrogate`
    cdef double *mean                           # n_seen and so on: of the prior
    cdef double *precision
    cdef double *gap                            # n_seen each: psi less the point of expansion, and
    cdef double *slope                          # the gradient of `surrogate`
    cdef double *gain                           # n_groups each: above 0 where a group moves,
    cdef double *left                           # the change of its terms then,
    cdef double *low                            # ends of the bracket of a slice,
    cdef double *high
    cdef double *angle                          # the next angle in it,
    cdef double *sums                           # sums of terms there, and
    cdef double *above                          # what they must be above
    cdef double *noise                          # n_groups x width: draws of the prior
    cdef Py_ssize_t *open                       # groups without a point on their slice, and
    cdef int64_t *rows_open                     # the rows of these
    cdef double *level                          # n_all: terms at a point,
    cdef double *by_eta                         # n_all x n_free: derivatives in a predictor, or shares of classes,
    cdef double *bent                           # n_all: and second derivatives, or a row's class
    cdef double total                           # of the terms of the group that `newton` looked at
    cdef int64_t visited                        # rows read in a sweep, once for each point
    cdef double *root                           # width x width: factor of the precision of what is proposed from
    cdef double *middle                         # width each: its mean,
    cdef double *step                           # and how far the effects go

    cdef int sweep(self, Chain chain, bitgen_t *bits) except -1 nogil
    cdef int about_newton(self, Chain chain, bint others, bitgen_t *bits) except -1 nogil
    cdef int on_ellipses(self, Chain chain, bitgen_t *bits) except -1 nogil
    cdef int add_terms(self, Chain chain, Py_ssize_t arm, Py_ssize_t count) except -1 nogil
    cdef int differentiate(self, Chain chain, const double *psi) except -1 nogil
    cdef void add_rows(self, Py_ssize_t g) noexcept nogil
    cdef double newton(self, Py_ssize_t g, const double *now) noexcept nogil
    cdef double away(self, const double *effects) noexcept nogil
    cdef void gradient(self, const double *psi) noexcept nogil
    cdef double fall(self, Py_ssize_t g, const double *now, const double *new) noexcept nogil


# The same where rows have a predictor for each class but the first.
cdef class ClassBlocks(GroupBlocks):
    cdef const double *times                    # n_all: weights of rows, or NULL


cdef inline double form(const double *a, const double *x, Py_ssize_t q) noexcept nogil:
    """x' A x."""
    cdef Py_ssize_t i, j
    cdef double sum = 0.0
    for i in range(q):
        for j in range(q):
            sum += x[i] * a[i * q + j] * x[j]
    return sum


cdef inline double product_at(const double *a, const double *x, Py_ssize_t i, Py_ssize_t q) noexcept nogil:
    """Entry i of A x."""
    cdef Py_ssize_t j
    cdef double sum = 0.0
    for j in range(q):
        sum += a[i * q + j] * x[j]
    return sum
