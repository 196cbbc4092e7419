# cython: cdivision=True
"""What second-order expansions leave of any rewards, from derivatives kept for each row."""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
cimport numpy as cnp

import numpy as np

from fastrace._base import _checks
from fastrace._base._guard cimport guard_await, guard_built, guard_check_built
from fastrace.sources cimport Source

cnp.import_array()

cdef extern from "_clones.h" nogil:
    void PREFETCH(const void *p)

cdef enum:
    AHEAD = 4       # rows of the table asked of memory before they are read


def packed(value, gradient, hessian):
    """Rows of an `ExpandedSource` table: value, gradient, and the Hessian's lower triangle, its diagonal halved."""
    gradient, hessian = np.asarray(gradient, dtype=np.float64), np.asarray(hessian, dtype=np.float64)
    d = gradient.shape[1]
    table = np.empty((len(gradient), 1 + d + d * (d + 1) // 2))
    table[:, 0] = value
    table[:, 1:1 + d] = gradient
    k = 1 + d
    for a in range(d):
        for b in range(a):
            table[:, k] = 0.5 * (hessian[:, a, b] + hessian[:, b, a])
            k += 1
        table[:, k] = 0.5 * hessian[:, a, a]
        k += 1
    return table


cdef class ExpandedSource(Source):
    """The rewards of a source less their second-order expansions in the parameters.

    Parameters
    ----------
    source : Source
        The rewards.
    parameters : ndarray of float64, shape (n_arms, d), in C order
        Where the source reads its parameters.
    theta_hat : array_like of shape (d,)
        Where the rewards are expanded.
    table : ndarray of float64, shape (n_rows, 1 + d + d (d + 1) / 2), in C order
        Of each row the value, gradient and Hessian there, as `packed` has them.
    """

    cdef readonly Source source
    cdef readonly cnp.ndarray theta_hat, table
    cdef cnp.ndarray parameters

    def __cinit__(self):
        guard_await(&self.guard, 1)

    def __init__(self, Source source not None, parameters, theta_hat, table):
        guard_check_built(&source.guard, source)
        hat = np.array(theta_hat, dtype=np.float64)
        d = len(hat)
        if not isinstance(parameters, np.ndarray) or parameters.dtype != np.float64 \
                or parameters.shape != (source.n_arms, d) or not parameters.flags.c_contiguous:
            raise ValueError(f"parameters has shape {np.shape(parameters)}; a float64 array of shape "
                             f"{(source.n_arms, d)} in C order is needed")
        kept = np.ascontiguousarray(table, dtype=np.float64)
        shape = (source.n_rows, 1 + d + d * (d + 1) // 2)
        if kept.shape != shape or not np.isfinite(kept).all():
            raise ValueError(f"table has shape {kept.shape}; finite numbers of shape {shape} are needed")
        super().__init__(source.n_arms, source.n_rows, scan_advantage=source.scan_advantage,
                         reward_cost=source.reward_cost + 0.5 * shape[1], n_always_read=source.n_always_read,
                         first_look=source.first_look)
        self.source = source
        self.parameters = parameters
        self.theta_hat = hat
        self.table = kept
        guard_built(&self.guard, 1)

    def __reduce__(self):
        guard_check_built(&self.guard, self)
        return _expanded_source.saved(self.source, np.asarray(self.parameters), np.asarray(self.theta_hat),
                                      np.asarray(self.table))

    cdef int less_expansion(self, const int64_t *rows, int64_t first, Py_ssize_t n_rows, const Py_ssize_t *arms,
                            Py_ssize_t n_arms, double **out) except -1 nogil:
        cdef Py_ssize_t d = self.parameters.shape[1], m = self.table.shape[1], i, j, a, b, k
        cdef const double *theta
        cdef const double *hat = <const double *>cnp.PyArray_DATA(self.theta_hat)
        cdef const double *table = <const double *>cnp.PyArray_DATA(self.table)
        cdef const double *kept
        cdef double *powers = <double *>malloc(max(n_arms, 1) * m * sizeof(double))
        cdef double *p
        cdef double sum
        if powers == NULL:
            with gil:
                raise MemoryError()
        for j in range(n_arms):
            theta = <const double *>cnp.PyArray_DATA(self.parameters) + arms[j] * d
            p = powers + j * m
            p[0] = 1.0
            k = 1 + d
            for a in range(d):
                p[1 + a] = theta[a] - hat[a]
                for b in range(a + 1):
                    p[k] = p[1 + a] * p[1 + b]
                    k += 1
        for i in range(n_rows):
            kept = table + (rows[i] if rows != NULL else first + i) * m
            if rows != NULL and i + AHEAD < n_rows:
                for k in range(0, m, 8):
                    PREFETCH(table + rows[i + AHEAD] * m + k)
            for j in range(n_arms):
                p = powers + j * m
                sum = 0.0
                for k in range(m):
                    sum += kept[k] * p[k]
                out[j][i] -= sum
        free(powers)
        return 0

    cdef int fill(self, const int64_t *rows, Py_ssize_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms,
                  double **out) except -1 nogil:
        self.source.fill(rows, n_rows, arms, n_arms, out)
        return self.less_expansion(rows, 0, n_rows, arms, n_arms, out)

    cdef int fill_range(self, int64_t first, Py_ssize_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms,
                        double **out) except -1 nogil:
        self.source.fill_range(first, n_rows, arms, n_arms, out)
        return self.less_expansion(NULL, first, n_rows, arms, n_arms, out)

    cdef int shift(self, const Py_ssize_t *arms, Py_ssize_t n_arms, double *out) except -1 nogil:
        return self.source.shift(arms, n_arms, out)


@_checks.rebuilds(1, ExpandedSource)
def _expanded_source(source, parameters, theta_hat, table):
    """Rebuild a pickled `ExpandedSource`."""
    return ExpandedSource(source, parameters, theta_hat, table)
