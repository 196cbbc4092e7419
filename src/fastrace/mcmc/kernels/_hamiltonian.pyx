# cython: cdivision=True
"""Hamiltonian moves on a surrogate posterior: prior times expansion, no row."""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.math cimport exp, isfinite
from libc.string cimport memcpy
cimport numpy as cnp
from numpy.random cimport bitgen_t

from scipy.linalg.cython_blas cimport dtrmv

from fastrace._base._guard cimport guard_await, guard_build, guard_built, guard_check_built, guard_enter, guard_leave
from fastrace._models._arrow cimport Quadratic
from fastrace._models._priors cimport JointPrior
from fastrace.mcmc.kernels._surrogate cimport Inner

import numpy as np

cnp.import_array()

cdef extern from "numpy/random/distributions.h" nogil:
    double random_standard_normal(bitgen_t *bits)

cdef enum:
    LONGEST = 1024              # steps of a trajectory

cdef double SCALE_STEP = 3.0    # longest deviation of steps of a scale's logarithm, and
cdef double SHORTER = 3.4       # the logarithm of how many times shorter the shortest one is


cdef class HamiltonianInner(Inner):
    """Hamiltonian trajectories, accepted by the change of their energy.

    Parameters
    ----------
    surrogate : Quadratic
    prior : JointPrior
        A copy is taken, with its choice of standardised coordinates.
    step, length : float
        Mean step and mean length of a trajectory, in whitened units.
    root : ndarray of shape (dim,) or (dim, dim), optional
        Standard deviations of the coordinates, or the lower Cholesky factor of their covariance.
    """

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 1)

    def __init__(self, Quadratic surrogate not None, JointPrior prior not None, step=0.1, length=1.5, root=None):
        if prior.n_seen != surrogate.dim:
            raise ValueError(f"the expansion has {surrogate.dim} parameters and the prior {prior.n_seen} that rows see")
        if not (0.0 < step and 0.0 < length < np.inf):
            raise ValueError(f"step is {step} and length {length}; positive numbers are needed")
        n = prior.dim
        own = np.ones(n) if root is None else np.array(root, dtype=np.float64, order="C")
        if own.shape not in ((n,), (n, n)) or not np.isfinite(own).all():
            raise ValueError(f"root has shape {own.shape}; ({n},) or ({n}, {n}) finite numbers are needed")
        Inner.__init__(self, surrogate, prior.n_hyper)
        guard_build(&self.guard, 1, self)
        self.prior, self.step, self.length, self.dense = prior.copy(), step, length, own.ndim == 2
        self.standard = prior.copy()
        self.standard.set_free(True)
        self._scales = np.array(prior.places_of_scales(), dtype=np.intp)
        self.scales, self.n_scales = <const Py_ssize_t *>cnp.PyArray_DATA(self._scales), len(self._scales)
        self._root = own
        self._memory = np.zeros(5 * self.dim + self.n_seen)
        self.root = <double *>cnp.PyArray_DATA(self._root)
        self.xi = <double *>cnp.PyArray_DATA(self._memory)
        self.at, self.slope = self.xi + self.dim, self.xi + 2 * self.dim
        self.pulled, self.velocity = self.xi + 3 * self.dim, self.xi + 4 * self.dim
        self.by_seen = self.xi + 5 * self.dim
        guard_built(&self.guard, 1)

    cdef double log_density(self, const double *theta) except? -1.0 nogil:
        return self.prior.log_density(theta, NULL) + self.surrogate.log_density(theta, NULL)

    cdef double density(self) except? -1.0 nogil:
        """Log density of xi, its gradient, and theta."""
        cdef Py_ssize_t i
        cdef double out
        self.n_gradients += 1
        self.prior.seen_from(self.xi, self.at)
        out = self.prior.log_density(self.at, self.slope) + self.surrogate.log_density(self.at, self.by_seen)
        for i in range(self.n_seen):
            self.slope[i] += self.by_seen[i]
        out += self.prior.pull_back(self.xi, self.at, self.slope)
        self.pull()
        return out

    cdef void pull(self) noexcept nogil:
        """The gradient along whitened coordinates: S' times that by xi."""
        cdef int n = <int>self.dim, unit = 1
        cdef Py_ssize_t i
        if self.dense:          # lower in C order is upper to BLAS, transposed
            memcpy(self.pulled, self.slope, n * sizeof(double))
            dtrmv(b"U", b"N", b"N", &n, self.root, &n, self.pulled, &unit)
        else:
            for i in range(n):
                self.pulled[i] = self.root[i] * self.slope[i]

    cdef void drift(self, double step) noexcept nogil:
        """xi moves by step S r."""
        cdef int n = <int>self.dim, unit = 1
        cdef Py_ssize_t i
        if self.dense:
            memcpy(self.pulled, self.velocity, n * sizeof(double))
            dtrmv(b"U", b"T", b"N", &n, self.root, &n, self.pulled, &unit)
            for i in range(n):
                self.xi[i] += step * self.pulled[i]
        else:
            for i in range(n):
                self.xi[i] += step * self.root[i] * self.velocity[i]

    cdef int move(self, double *theta, bitgen_t *bits) except -1 nogil:
        """Local scales given the rest, a scale and a trajectory in either order, local scales given the rest.

        Each is reversible, and so is the mixture of both orders. Where a local scale is large, trajectories find the
        ridge of its coefficient narrow; given that it moves freely. Where a scale that effects share is small, they
        find these stiff.
        """
        cdef double coin = 0.0
        cdef Py_ssize_t place = 0
        if self.n_scales > 0:
            coin = 2.0 * bits.next_double(bits.state)
            place = self.scales[<Py_ssize_t>(self.n_scales * (coin if coin < 1.0 else coin - 1.0))]
        self.prior.move_local_scales(theta, bits)
        if self.n_scales > 0 and coin < 1.0:
            self.move_scale(theta, place, bits)
        self.trajectory(theta, bits)
        if self.n_scales > 0 and coin >= 1.0:
            self.move_scale(theta, place, bits)
        return self.prior.move_local_scales(theta, bits)

    cdef int move_scale(self, double *theta, Py_ssize_t place, bitgen_t *bits) except -1 nogil:
        """A normal step of a scale's logarithm together with its effects, which stay as they are once standardised.

        Given these the likelihood says nothing of a small scale, so that steps among small ones, and from and to larger
        ones, are accepted (Papaspiliopoulos, Roberts & Skold, 2007).
        """
        cdef double step = self.size * SCALE_STEP * exp(-SHORTER * bits.next_double(bits.state))
        cdef double uniform, change
        step *= random_standard_normal(bits)
        uniform = bits.next_double(bits.state)
        self.standard.to_free(theta, self.xi)
        change = -self.log_standard(theta)
        self.xi[place] += step
        self.standard.seen_from(self.xi, self.at)
        change += self.log_standard(self.at)
        if uniform < exp(change):
            memcpy(theta, self.at, self.dim * sizeof(double))
        return 0

    cdef double log_standard(self, const double *theta) except? -1.0 nogil:
        """Log density in the coordinates of `standard`."""
        cdef double out = self.standard.log_density(theta, NULL)
        return out + self.standard.log_jacobian() + self.surrogate.log_density(theta, NULL)

    cdef int trajectory(self, double *theta, bitgen_t *bits) except -1 nogil:
        """The step is uniform within a fifth of its mean, the number of steps up to twice its mean."""
        cdef double step = self.step * (0.8 + 0.4 * bits.next_double(bits.state))
        cdef double most = 2.0 * self.size * self.length / self.step * bits.next_double(bits.state)
        cdef Py_ssize_t n_steps = <Py_ssize_t>min(most, <double>LONGEST) + 1, i, _k
        cdef double uniform = bits.next_double(bits.state), energy = 0.0, value
        self.prior.to_free(theta, self.xi)
        value = self.density()
        for i in range(self.dim):
            self.velocity[i] = random_standard_normal(bits)
            energy += 0.5 * self.velocity[i] * self.velocity[i]
        energy -= value
        for _k in range(n_steps):
            for i in range(self.dim):
                self.velocity[i] += 0.5 * step * self.pulled[i]
            self.drift(step)
            value = self.density()
            for i in range(self.dim):
                self.velocity[i] += 0.5 * step * self.pulled[i]
            if not isfinite(value):
                break
        for i in range(self.dim):
            energy -= 0.5 * self.velocity[i] * self.velocity[i]
        energy += value
        self.acceptance = 0.0
        if isfinite(energy):
            self.acceptance = 1.0 if energy >= 0.0 else exp(energy)
            if uniform < self.acceptance:
                memcpy(theta, self.at, self.dim * sizeof(double))
        return 0

    def draws(self, start, n_draws, rng):
        """Moves from a point: ndarray of shape (n_draws, dim), where each ended."""
        cdef bitgen_t *bits = <bitgen_t *>PyCapsule_GetPointer(rng.bit_generator.capsule, "BitGenerator")
        cdef Py_ssize_t n = n_draws, i
        cdef cnp.ndarray theta = self._point(start, "start", self.dim)
        cdef double[:, ::1] out = np.empty((n, self.dim))
        cdef double total = 0.0
        guard_enter(&self.guard, self)
        try:
            with rng.bit_generator.lock, nogil:
                for i in range(n):
                    self.move(<double *>cnp.PyArray_DATA(theta), bits)
                    total += self.acceptance
                    memcpy(&out[i, 0], cnp.PyArray_DATA(theta), self.dim * sizeof(double))
        finally:
            guard_leave(&self.guard)
        self.acceptance = total / n if n else 0.0           # the mean of these
        return np.asarray(out)

    def use(self, step, length):
        """Other steps and lengths of trajectories, while tuning."""
        guard_check_built(&self.guard, self)
        self.step, self.length = step, length
