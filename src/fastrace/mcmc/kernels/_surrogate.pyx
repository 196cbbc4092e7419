# cython: cdivision=True
"""Moves on a surrogate posterior, and the step that lets a chain decide on what the rows leave of them."""

from libc.math cimport isfinite
from libc.string cimport memcpy
cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._base._guard cimport guard_await, guard_build, guard_built, guard_check_built
from fastrace._draws._rng cimport random_standard_exponential
from fastrace._models._arrow cimport Quadratic
from fastrace.mcmc.kernels._chain cimport Chain, Move, begin

import numpy as np

cnp.import_array()


cdef class Inner:
    """What all inner moves share. Subclasses supply ``move`` and ``log_density``."""

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 0)
        self.size = 1.0

    def __init__(self, Quadratic surrogate not None, n_hyper=0):
        guard_check_built(&surrogate.guard, surrogate)
        guard_build(&self.guard, 0, self)
        self.surrogate = surrogate.shared()
        self.n_seen, self.n_hyper = surrogate.dim, n_hyper
        self.dim = self.n_seen + self.n_hyper
        guard_built(&self.guard, 0)

    def __reduce__(self):
        raise TypeError(f"a {type(self).__name__} belongs to the kernel that made it and is not saved")

    cdef int move(self, double *theta, bitgen_t *bits) except -1 nogil:
        with gil:
            raise TypeError(f"{type(self).__name__} does not define move()")

    cdef double beside(self, const double *theta) except? -1.0 nogil:
        return 0.0

    cdef double log_density(self, const double *theta) except? -1.0 nogil:
        with gil:
            raise TypeError(f"{type(self).__name__} does not define log_density()")


cdef class SurrogateMove(Move):
    """Some inner moves on the surrogate, then one decision on what the rows leave of them.

    Parameters
    ----------
    inner : Inner
        Of this chain alone.
    n_inner : int
        Inner moves between two decisions.
    """

    def __init__(self, Inner inner not None, n_inner=1):
        guard_check_built(&inner.guard, inner)
        self.inner, self.n_inner = inner, n_inner
        self._theta = np.zeros(inner.dim)
        self.theta = <double *>cnp.PyArray_DATA(self._theta)

    def __reduce__(self):
        raise TypeError("a SurrogateMove belongs to the kernel that made it and is not saved")

    cdef int make(self, Chain chain, bitgen_t *bits) except -1 nogil:
        """One step. T, the inner moves, is reversible for pi_s / exp(beside); the rest of pi is exp(beside + R)."""
        cdef Py_ssize_t i, _i, n = chain.n_seen
        cdef double threshold
        begin(chain, bits)
        memcpy(self.theta, chain.now, n * sizeof(double))
        memcpy(self.theta + n, chain.phi_now, chain.n_hyper * sizeof(double))
        threshold = self.inner.beside(self.theta) - random_standard_exponential(bits)
        for _i in range(self.n_inner):
            self.inner.move(self.theta, bits)
        for i in range(chain.dim):
            if not isfinite(self.theta[i]):         # so far out that double precision ends: refused
                return 0
        threshold -= self.inner.beside(self.theta)
        memcpy(chain.new, self.theta, n * sizeof(double))
        memcpy(chain.phi_new, self.theta + n, chain.n_hyper * sizeof(double))
        chain.decide(threshold)
        if chain.step.accepted:
            chain.arrive()
        return 0
