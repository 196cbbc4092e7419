# cython: cdivision=True
"""Effects of groups that are moved and decided one group at a time, and the small dense algebra of that."""

from libc.stdint cimport int64_t
cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._base._guard cimport guard_t
from fastrace._models._arrow cimport Quadratic
from fastrace._models._priors cimport JointPrior
from fastrace.mcmc.kernels._chain cimport Chain


# What all groups propose from in one sweep.
cdef enum block_proposal_t:
    LOCAL               # the normal density that the surrogate has of the effects, given all else
    PRIOR               # their prior given the hyperparameters: it reaches wherever a flat side does
    WALK                # a random walk of a random length


# Given phi, and what rows see of all else, the effects of groups are independent: each group's are proposed and decided
# by its own rows, and one pass over these serves all groups. It leaves the posterior invariant, as Gibbs steps do.
cdef class GroupBlocks:
    cdef guard_t guard
    cdef readonly Py_ssize_t n_groups, n_rows, width
    cdef readonly bint in_order                 # whether the rows are 0, 1, ... n_rows - 1
    cdef readonly GroupBlocks following         # of another factor, which is swept next, or None
    cdef readonly Quadratic surrogate, near     # the expansion that rewards leave out; and with what moves add to it
    cdef JointPrior prior
    cdef Py_ssize_t first_precision             # of the effects, among what `prior.conditional` gives
    cdef cnp.ndarray _rows, _places, _ends, _blocks, _near_blocks, _memory
    cdef const int64_t *rows                    # n_rows: those of one group after those of another
    cdef const Py_ssize_t *places               # n_groups: where the effects of a group begin in psi
    cdef const Py_ssize_t *ends                 # n_groups: where its rows end
    cdef const double *blocks                   # n_groups x width x width: curvatures of `surrogate`, and
    cdef const double *near_blocks              # of `near`
    cdef double *mean                           # n_seen and so on: of the prior
    cdef double *precision
    cdef double *gap                            # n_seen each: psi less the point of expansion, and
    cdef double *slope                          # gradients of `surrogate` and
    cdef double *near_slope                     # `near`
    cdef double *gain                           # n_groups: log of what a group is decided by, but for its rows
    cdef double *drop                           # of `surrogate`, if the group moves
    cdef double *before                         # n_rows each: terms
    cdef double *after
    cdef double *root                           # width x width: factor of the precision of what is proposed from
    cdef double *middle                         # width each: its mean,
    cdef double *step                           # and how far the effects go

    cdef int sweep(self, Chain chain, bitgen_t *bits) except -1 nogil
    cdef int gradients(self, const double *psi) noexcept nogil
    cdef double propose(self, Py_ssize_t g, block_proposal_t kind, const double *now, double *new,
                        bitgen_t *bits) noexcept nogil


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
