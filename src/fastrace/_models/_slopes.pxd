# cython: cdivision=True
"""Log-likelihoods of all rows at a point, with their gradients."""

from libc.stdint cimport int64_t

from fastrace._base._guard cimport guard_t


# One object may serve chains in several threads: `at` changes nothing in it.
cdef class Slopes:
    cdef guard_t guard
    cdef readonly Py_ssize_t dim
    cdef readonly int64_t n_rows

    # The sum of all terms at theta; its gradient into `gradient`, of `dim` numbers.
    cdef double at(self, const double *theta, double *gradient) except? -1.0 nogil
