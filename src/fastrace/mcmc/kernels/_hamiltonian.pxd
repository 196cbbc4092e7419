# cython: cdivision=True
"""Hamiltonian moves on a surrogate posterior."""

cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._models._priors cimport JointPrior
from fastrace.mcmc.kernels._surrogate cimport Inner


# Trajectories in standardised coordinates xi, whitened: xi moves along S r for a velocity r ~ N(0, I), where S is
# diagonal or lower triangular. The number of steps and the step are drawn without looking at the state.
cdef class HamiltonianInner(Inner):
    cdef readonly JointPrior prior
    cdef JointPrior standard                    # a copy, in whose xi each effect with a learned scale is standardised
    cdef readonly Py_ssize_t n_scales           # hyperparameters that move together with their effects
    cdef const Py_ssize_t *scales               # their places in theta
    cdef readonly double step                   # mean step
    cdef readonly double length                 # mean length of a trajectory, whitened, for `size` 1
    cdef readonly bint dense
    cdef readonly double acceptance             # probability with which the last trajectory was accepted
    cdef readonly Py_ssize_t n_gradients        # evaluated so far
    cdef cnp.ndarray _root, _memory, _scales
    cdef double *root                           # S: dim numbers, or dim x dim
    cdef double *xi
    cdef double *at                             # theta of xi
    cdef double *slope                          # gradient by xi
    cdef double *pulled                         # the same, whitened
    cdef double *velocity
    cdef double *by_seen

    cdef int trajectory(self, double *theta, bitgen_t *bits) except -1 nogil
    cdef int move_scale(self, double *theta, Py_ssize_t place, bitgen_t *bits) except -1 nogil
    cdef double log_standard(self, const double *theta) except? -1.0 nogil
    cdef double density(self) except? -1.0 nogil
    cdef void pull(self) noexcept nogil
    cdef void drift(self, double step) noexcept nogil
