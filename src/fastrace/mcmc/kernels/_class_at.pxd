"""A class of a mixture at one point: the density of its parameters there, and the normal density that follows it."""

from libc.stdint cimport int64_t
cimport numpy as cnp

from fastrace._base._guard cimport guard_t
from fastrace._models._group_expansions cimport GroupExpansions
from fastrace.likelihoods cimport GLMSource


cdef class ClassAt:
    cdef guard_t guard
    cdef GLMSource glm
    cdef GroupExpansions groups
    cdef Py_ssize_t dim
    cdef Py_ssize_t moving              # parameters that the normal density is of, the first; the others are held
    cdef int64_t most                   # rows of a group that is read; larger groups have their expansions
    cdef object _kept                   # arrays behind the pointers
    cdef double value                   # log density at the point, up to a constant; nan where terms overflow
    cdef double half_log_det            # of the precision
    cdef double *center                 # (dim,): mean of the normal density
    cdef double *root                   # (dim, dim): Cholesky factor of its precision, as LAPACK keeps it
    cdef double *whole                  # (dim, dim): the precision
    cdef double *slope                  # (dim,)
    cdef double *work                   # derivatives of the rows of a group, and one row

    # Look at a class of these groups. `features` are those of theta; `sums` the coefficients of its groups that are not
    # read, together; `beside` is what its log prior has there beyond the normal density of this mean and precision.
    cdef int look(self, const double *theta, const double *features, const double *sums, const double *mean,
                  const double *precision, double beside, const Py_ssize_t *members, Py_ssize_t count) except -1 nogil
    # The same but for prior and normal density: the likelihood's `value`, its `slope` and `whole`.
    cdef int add_up(self, const double *theta, const double *features, const double *sums, const Py_ssize_t *members,
                    Py_ssize_t count) except -1 nogil
    # Add the terms of consecutive rows to `value`, their gradients to `slope`, minus their Hessians to `whole`.
    cdef int read(self, const double *theta, int64_t first, int64_t n) except -1 nogil
    # Factor the precision, which is damped where it is not positive definite: 0 if that cannot be.
    cdef bint factor(self) noexcept nogil
    # |root' step|^2
    cdef double squared(self, const double *step) noexcept nogil
