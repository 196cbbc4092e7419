# cython: cdivision=True
"""What moves on a surrogate posterior share, and the step that lets a chain decide on what the rows leave of them."""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.math cimport exp, isfinite, log
from libc.string cimport memcmp, memcpy
cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._base._guard cimport guard_await, guard_build, guard_built, guard_check_built
from fastrace._draws._rng cimport random_standard_exponential
from fastrace._models._arrow cimport Quadratic
from fastrace._models._expanded cimport Expanded
from fastrace._models._priors cimport JointPrior
from fastrace._models._softmax cimport SoftmaxSource
from fastrace.likelihoods cimport GLMSource
from fastrace.mcmc.kernels._chain cimport Chain, Move, begin, step_t
from fastrace.mcmc.kernels._group_blocks cimport ClassBlocks, GroupBlocks

import numpy as np

from fastrace._base import _checks

cdef extern from "numpy/random/distributions.h" nogil:
    double random_standard_normal(bitgen_t *bits)

cdef double STRIDE_SHARE = 0.2  # of the steps that are plain ones of a scale, where there are such steps, and
cdef double WALK_SHARE = 0.05   # of those that are plain ones of all coordinates
cdef double LONGER = 0.5        # of plain steps along directions: longer than the others

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

    cdef int move_hyper(self, double *theta, bitgen_t *bits) except -1 nogil:
        return 0

    cdef double beside(self, const double *theta) except? -1.0 nogil:
        return 0.0

    def _point(self, value, name, size):
        """A copy of a point that a user gave."""
        point = np.array(value, dtype=np.float64)
        guard_check_built(&self.guard, self)
        if point.shape != (size,):
            raise ValueError(f"{name} is {_checks.shown(value)}; {size} numbers are needed")
        return point

    def _steps(self, value, name, size):
        """A copy of directions of steps."""
        steps = np.array(value, dtype=np.float64)
        if steps.ndim != 2 or steps.shape[1] != size:
            raise ValueError(f"{name} has shape {np.shape(value)}; (n, {size}) is needed")
        return steps

    def draws(self, theta, n, rng):
        """`n` moves from theta on the surrogate alone: the points after each, shape (n, dim)."""
        cdef cnp.ndarray point = self._point(theta, "theta", self.dim), out = np.empty((n, self.dim))
        cdef double *here = <double *>cnp.PyArray_DATA(point)
        cdef double *to = <double *>cnp.PyArray_DATA(out)
        cdef Py_ssize_t t, count = n
        cdef bitgen_t *bits = <bitgen_t *>PyCapsule_GetPointer(rng.bit_generator.capsule, "BitGenerator")
        with rng.bit_generator.lock, nogil:
            for t in range(count):
                self.move(here, bits)
                memcpy(to + t * self.dim, here, self.dim * sizeof(double))
        return out

    def log_density_of(self, theta):
        """log pi_s(theta), up to a constant."""
        cdef cnp.ndarray point = self._point(theta, "theta", self.dim)
        return self.log_density(<const double *>cnp.PyArray_DATA(point))

    cdef double log_density(self, const double *theta) except? -1.0 nogil:
        with gil:
            raise TypeError(f"{type(self).__name__} does not define log_density()")


cdef class GivenMove(Move):
    """Draws of the surrogate that another sampler made, each tried once, in their order: an independence chain."""

    cdef cnp.ndarray _points
    cdef const double *following
    cdef Py_ssize_t n_left

    def __cinit__(self, points):
        self._points = np.array(points, dtype=np.float64, order="C")
        if self._points.ndim != 2:
            raise ValueError(f"points have shape {np.shape(points)}; (n, n_seen) is needed")
        self.following, self.n_left = <double *>cnp.PyArray_DATA(self._points), self._points.shape[0]

    def __reduce__(self):
        raise TypeError("a GivenMove belongs to the chain that it was made for and is not saved")

    cdef int suits(self, Chain chain) except -1:
        if self._points.shape[1] != chain.n_seen:
            raise ValueError(f"points have shape {np.shape(self._points)}; (n, {chain.n_seen}) is needed")
        return 0

    cdef int make(self, Chain chain, bitgen_t *bits) except -1 nogil:
        begin(chain, bits)
        if self.n_left == 0:
            with gil:
                raise ValueError("all points have been tried")
        memcpy(chain.new, self.following, chain.n_seen * sizeof(double))
        self.following += chain.n_seen
        self.n_left -= 1
        if memcmp(chain.new, chain.now, chain.n_seen * sizeof(double)):
            chain.decide(-random_standard_exponential(bits))
        else:
            chain.step.accepted = True
        if chain.step.accepted:
            chain.arrive()
        return 0


cdef class SurrogateMove(Move):
    """Some inner moves on the surrogate, then one decision on what the rows leave of them.

    Parameters
    ----------
    inner : Inner
        Of this chain alone.
    n_inner : int
        Inner moves between two decisions.
    undecided : bool
        Take every move without a decision: only while tuning.
    stride : float
        Standard deviation of plain normal steps of the last coordinate that the rows see, the logarithm of a scale,
        which are a share of all steps. 0: there are none.
    walks : ndarray of shape (dim,) or None
        Standard deviations of plain normal steps of all coordinates, a share of all steps wherever the chain is.
    along : ndarray of shape (n, n_seen) or None
        Directions of plain normal steps, one along each after every other step: there the posterior is far from the
        surrogate. Hyperparameters move given what the rows see after each of them.
    far : float, default 1.0
        Half of the steps along directions are longer than the others, by a factor between 1 and this one whose
        logarithm is uniform.
    n_walked : int, optional
        Directions that a step walks along, drawn alike with replacement where they are fewer than all of them.
    scalings : ndarray of shape (n, n_hyper) or None
        Steps of hyperparameters together with the effects behind which they stand, one along each row, which follow
        those along directions. The effects stay as they are once standardised.
    standard : JointPrior or None
        The prior, where there are scalings, copied; its `set_free` says which of what rows see is standardised.
    blocks : GroupBlocks or None
        Effects that move group by group after all that, and the hyperparameters given them.
    shifts : ndarray of shape (n, n_seen) or None
        Directions of plain normal steps along which no row's predictor moves, one along each before the groups: only
        the prior decides them.
    """

    def __cinit__(self, Inner inner not None, n_inner=1, undecided=False, stride=0.0, walks=None, along=None, far=1.0,
                  scalings=None, n_walked=None, GroupBlocks blocks=None, shifts=None, JointPrior standard=None):
        guard_check_built(&inner.guard, inner)
        if walks is not None:
            self._walks = inner._point(walks, "walks", inner.dim)
            self.walks = <double *>cnp.PyArray_DATA(self._walks)
        if along is not None and len(along):
            self._along = inner._steps(along, "along", inner.n_seen)
            self.along, self.n_along = <double *>cnp.PyArray_DATA(self._along), self._along.shape[0]
        self.n_walked = self.n_along if n_walked is None else min(n_walked, self.n_along)
        if not 1.0 <= far < np.inf:
            raise ValueError(f"far is {far}; a number of at least 1 is needed")
        self.far, self.log_far = far, log(far)
        if scalings is not None and len(scalings):
            self._scalings = inner._steps(scalings, "scalings", inner.n_hyper)
            if standard is None or standard.dim != inner.dim:
                raise ValueError("scalings leave effects standardised by a prior, which is not that of the model")
            self.standard = standard.copy()
            self.scalings, self.n_scalings = <double *>cnp.PyArray_DATA(self._scalings), self._scalings.shape[0]
        if shifts is not None and len(shifts):
            self._shifts = inner._steps(shifts, "shifts", inner.n_seen)
            self.shifts, self.n_shifts = <double *>cnp.PyArray_DATA(self._shifts), self._shifts.shape[0]
        if blocks is not None:
            guard_check_built(&blocks.guard, blocks)
        self.blocks = blocks
        self.inner, self.n_inner, self.undecided, self.stride = inner, n_inner, undecided, stride
        self._theta = np.zeros(2 * inner.dim)
        self.theta = <double *>cnp.PyArray_DATA(self._theta)
        self.xi = self.theta + inner.dim

    def __reduce__(self):
        raise TypeError("a SurrogateMove belongs to the kernel that made it and is not saved")

    cdef int suits(self, Chain chain) except -1:
        if self.blocks is None:
            return 0
        kind = SoftmaxSource if isinstance(self.blocks, ClassBlocks) else GLMSource
        if not (isinstance(chain.source, Expanded) and isinstance((<Expanded>chain.source).source, kind)):
            raise ValueError(f"groups move one by one, by the terms of a {kind.__name__} in an Expanded source; the "
                             f"chain reads {type(chain.source).__name__}")
        return 0

    cdef double level(self, bint plain) except? -1.0 nogil:
        """What a decision makes up for besides R at the point that is moved."""
        return self.inner.log_density(self.theta) if plain else self.inner.beside(self.theta)

    cdef int make(self, Chain chain, bitgen_t *bits) except -1 nogil:
        """A move with its decision, then further ones with their own where there are any; what all read is summed."""
        cdef Py_ssize_t k, t
        self.decided(chain, MAIN, NULL, bits)
        if self.undecided:
            return 0
        for t in range(self.n_walked):
            k = t
            if self.n_walked < self.n_along:
                k = <Py_ssize_t>(self.n_along * bits.next_double(bits.state))
            self.further(chain, ALONG, self.along + k * chain.n_seen, bits)
            if self.far > 1.0 and chain.n_hyper > 0:
                self.further(chain, HYPER, NULL, bits)
        for k in range(self.n_scalings):
            self.further(chain, SCALING, self.scalings + k * chain.n_hyper, bits)
        for k in range(self.n_shifts):
            self.further(chain, SHIFT, self.shifts + k * chain.n_seen, bits)
        if self.blocks is not None:
            self.further(chain, BLOCKS, NULL, bits)
            if chain.n_hyper > 0:
                self.further(chain, HYPER, NULL, bits)
        return 0

    cdef int further(self, Chain chain, proposal_t kind, const double *way, bitgen_t *bits) except -1 nogil:
        """Another decision of the same step, which is new only if the first one was."""
        cdef step_t first = chain.step
        if kind == BLOCKS:
            self.blocks.sweep(chain, bits)
        else:
            self.decided(chain, kind, way, bits)
        first.n_read += chain.step.n_read
        first.n_looks += chain.step.n_looks
        first.full_pass |= chain.step.full_pass
        first.undecided |= chain.step.undecided
        chain.step = first
        return 0

    cdef double scale_effects(self, const double *way, double step) except? -1.0 nogil:
        """Move the hyperparameters of `theta`, effects with them, and return the log of the Jacobian."""
        cdef Py_ssize_t i
        cdef double jacobian
        self.standard.to_free(self.theta, self.xi)
        jacobian = self.standard.log_jacobian()
        for i in range(self.inner.n_hyper):
            self.xi[self.inner.n_seen + i] += step * way[i]
        self.standard.seen_from(self.xi, self.theta)
        return self.standard.log_jacobian() - jacobian

    cdef int decided(self, Chain chain, proposal_t kind, const double *way, bitgen_t *bits) except -1 nogil:
        """One decision.

        T, the inner moves, is reversible for pi_s / exp(beside), and so are moves of phi given the rest; what is left
        of pi is exp(beside + R). A plain step is a symmetric proposal: it is decided by the change of log pi_s + R. So
        is a scaling, in standardised effects: their Jacobian comes to the change.
        """
        cdef Py_ssize_t i, _i, n = chain.n_seen
        cdef double threshold, coin = 1.0, scales = STRIDE_SHARE if self.stride > 0.0 else 0.0
        cdef double step, jacobian = 0.0
        cdef bint plain
        begin(chain, bits)
        memcpy(self.theta, chain.now, n * sizeof(double))
        memcpy(self.theta + n, chain.phi_now, chain.n_hyper * sizeof(double))
        if kind == MAIN and (self.stride > 0.0 or self.walks != NULL):
            coin = bits.next_double(bits.state)
        plain = kind == ALONG or kind == SHIFT or kind == SCALING
        plain = plain or coin < scales + (WALK_SHARE if self.walks != NULL else 0.0)
        threshold = self.level(plain) - random_standard_exponential(bits)
        if kind == HYPER:
            self.inner.move_hyper(self.theta, bits)
        elif kind == ALONG or kind == SHIFT:
            step = random_standard_normal(bits)
            if kind == ALONG and self.far > 1.0 and bits.next_double(bits.state) < LONGER:
                step *= exp(self.log_far * bits.next_double(bits.state))
            for i in range(n):
                self.theta[i] += step * way[i]
        elif kind == SCALING:
            jacobian = self.scale_effects(way, random_standard_normal(bits))
        elif coin < scales:
            self.theta[n - 1] += self.stride * random_standard_normal(bits)
        elif plain:
            for i in range(chain.dim):
                self.theta[i] += self.walks[i] * random_standard_normal(bits)
        else:
            for _i in range(self.n_inner):
                self.inner.move(self.theta, bits)
        for i in range(chain.dim):
            if not isfinite(self.theta[i]):         # so far out that double precision ends: refused
                return 0
        threshold -= self.level(plain) + jacobian
        if not memcmp(self.theta, chain.now, n * sizeof(double)):      # the rows see what they saw: R is as it was
            chain.step.accepted = threshold <= 0.0
            if chain.step.accepted:
                memcpy(chain.phi_now, self.theta + n, chain.n_hyper * sizeof(double))
            return 0
        memcpy(chain.new, self.theta, n * sizeof(double))
        memcpy(chain.phi_new, self.theta + n, chain.n_hyper * sizeof(double))
        if self.undecided:
            chain.step.accepted = True
        elif self.inner.exact or kind == SHIFT:        # R is as it was, up to rounding
            chain.step.accepted = threshold <= 0.0
        else:
            chain.along = kind == ALONG
            chain.decide(threshold)
        if chain.step.accepted and kind == SHIFT:
            memcpy(chain.now, chain.new, n * sizeof(double))
            chain.moved_by(0.0)
        elif chain.step.accepted:
            chain.arrive()
        return 0
