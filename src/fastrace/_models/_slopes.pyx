# cython: cdivision=True
"""Log-likelihoods of all rows at a point, with their gradients: what Hamiltonian moves on the posterior itself ask."""

from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset
cimport numpy as cnp

from fastrace._base._guard cimport guard_await, guard_build, guard_built, guard_check_built
from fastrace._base._signals cimport check_signals
from fastrace.likelihoods cimport GLMSource, fr_glm

import numpy as np

from fastrace._base import _checks

cnp.import_array()

cdef extern from "_glm.h" nogil:
    int fr_glm_slope(const fr_glm *m, const double *theta, int64_t first, Py_ssize_t n_rows, double *value,
                     double *gradient)

cdef enum:
    ROWS_PER_CHECK = 1 << 14        # rows between two looks at pending signals


cdef class Slopes:
    """What all have in common. Subclasses supply ``at``."""

    def __cinit__(self, *args):
        guard_await(&self.guard, 0)

    def __init__(self, dim, n_rows):
        guard_build(&self.guard, 0, self)
        self.dim, self.n_rows = dim, n_rows
        guard_built(&self.guard, 0)

    cdef double at(self, const double *theta, double *gradient) except? -1.0 nogil:
        with gil:
            raise TypeError(f"{type(self).__name__} does not define at()")

    def evaluate(self, theta):
        """Value and gradient at a point of shape (dim,)."""
        cdef cnp.ndarray point = np.ascontiguousarray(theta, dtype=np.float64)
        cdef cnp.ndarray gradient
        cdef double value
        guard_check_built(&self.guard, self)
        if point.ndim != 1 or point.shape[0] != self.dim:
            raise ValueError(f"theta is {_checks.shown(theta)}; {self.dim} numbers are needed")
        gradient = np.empty(self.dim)
        with nogil:
            value = self.at(<const double *>cnp.PyArray_DATA(point), <double *>cnp.PyArray_DATA(gradient))
        return value, gradient


cdef class GLMSlopes(Slopes):
    """Of a generalised linear model: compiled, one pass over the rows, in blocks that stay in the cache.

    Parameters
    ----------
    source : GLMSource
    """

    cdef readonly GLMSource source

    def __cinit__(self, *args):
        guard_await(&self.guard, 1)

    def __init__(self, GLMSource source not None):
        guard_check_built(&source.guard, source)
        Slopes.__init__(self, source.model.n_parameters, source.n_rows)
        guard_build(&self.guard, 1, self)
        self.source = source
        guard_built(&self.guard, 1)

    def __reduce__(self):
        return GLMSlopes, (self.source,)

    cdef double at(self, const double *theta, double *gradient) except? -1.0 nogil:
        cdef int64_t first = 0, count
        cdef double value = 0.0
        memset(gradient, 0, self.dim * sizeof(double))
        while first < self.n_rows:
            count = min(<int64_t>ROWS_PER_CHECK, self.n_rows - first)
            if fr_glm_slope(&self.source.model, theta, first, count, &value, gradient):
                with gil:
                    raise MemoryError()
            first += count
            if first < self.n_rows:
                check_signals()
        return value


cdef class AskedSlopes(Slopes):
    """Of any model, by a function of Python.

    Parameters
    ----------
    ask : callable
        ``ask(theta)`` gives the log-likelihood, and its gradient of shape (dim,).
    dim, n_rows : int
    """

    cdef readonly object ask

    def __cinit__(self, *args):
        guard_await(&self.guard, 1)

    def __init__(self, ask, dim, n_rows):
        Slopes.__init__(self, dim, n_rows)
        guard_build(&self.guard, 1, self)
        self.ask = ask
        guard_built(&self.guard, 1)

    def __reduce__(self):
        return AskedSlopes, (self.ask, self.dim, self.n_rows)

    cdef double at(self, const double *theta, double *gradient) except? -1.0 nogil:
        with gil:
            return self._asked(theta, gradient)

    cdef double _asked(self, const double *theta, double *gradient) except? -1.0:
        cdef cnp.ndarray point = np.empty(self.dim), slope
        memcpy(cnp.PyArray_DATA(point), theta, self.dim * sizeof(double))
        value, found = self.ask(point)
        slope = np.ascontiguousarray(found, dtype=np.float64)
        if slope.ndim != 1 or slope.shape[0] != self.dim:
            raise ValueError(f"the gradient of the log-likelihood has shape {np.shape(found)}; ({self.dim},) is needed")
        memcpy(gradient, cnp.PyArray_DATA(slope), self.dim * sizeof(double))
        return value
