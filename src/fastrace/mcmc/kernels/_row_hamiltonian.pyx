# cython: cdivision=True
"""Hamiltonian moves on a posterior itself, by the gradients of all rows."""

from libc.math cimport INFINITY, ceil, cos, exp, isfinite, isnan, sin
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy
cimport numpy as cnp
from numpy.random cimport bitgen_t

from scipy.linalg.cython_blas cimport dtrmv

from fastrace._base._guard cimport guard_await, guard_build, guard_built, guard_check_built
from fastrace._base._signals cimport check_signals
from fastrace._models._arrow cimport Quadratic, solve_lower
from fastrace._models._priors cimport JointPrior
from fastrace._models._slopes cimport Slopes
from fastrace.mcmc.kernels._chain cimport Chain, Move, refuse_sum
from fastrace.mcmc.kernels._hamiltonian cimport HamiltonianInner

import numpy as np

cnp.import_array()

cdef extern from "numpy/random/distributions.h" nogil:
    double random_standard_normal(bitgen_t *bits)

cdef enum:
    LONGEST = 1024              # steps of a trajectory
    ROWS_PER_CHECK = 1 << 16    # rows between two looks at pending signals

cdef double DIVERGENT = 1e3    # change of the energy, against the state, from which on a trajectory is divergent
cdef double SHORTEST = 0.7      # of a trajectory, in its mean length, and
cdef double SPREAD = 0.6        # how much longer the longest is


cdef class RowInner(HamiltonianInner):
    r"""Hamiltonian trajectories whose potential has all rows in it.

    The energy is that of a standard normal density of the whitened position z and velocity r, plus what the posterior
    has beyond that density. The first part turns (z, r) by an angle, exactly; the second one changes r by its gradient,
    before and after each turn [1]_. Where the posterior is nearly normal only that difference limits the angle.

    Parameters
    ----------
    rows : Slopes
        The log-likelihood.
    beside : Quadratic
        What the log density has besides, apart from the prior.
    prior : JointPrior
        Copied, with its choice of standardised coordinates.
    center : ndarray of shape (dim,)
        Of the normal density, in these coordinates.
    step, length, root
        As in `HamiltonianInner`: angles. A trajectory is .7 to 1.3 times the length.

    References
    ----------
    .. [1] Shahbaba, Lan, Johnson, Neal, "Split Hamiltonian Monte Carlo", Statistics and Computing 24, 2014.
    """

    cdef readonly Slopes rows
    cdef readonly bint taken                    # whether the last trajectory was accepted, and whether it met
    cdef readonly bint diverged                 # a point of an energy beyond all others, or of none
    cdef cnp.ndarray _center, _state
    cdef const double *center
    cdef double *z                              # of xi
    cdef double *by_beside
    cdef double *kept_xi                        # where a chain stands, with
    cdef double *kept_pulled                    # the whitened gradient
    cdef double kept_value                      # and log density there,
    cdef bint keeps                             # if any are kept
    cdef Py_ssize_t n_unchecked                 # rows read since signals were looked at
    cdef cnp.ndarray _spoiled_at
    cdef double *spoiled_at                     # where the last trajectory met
    cdef double spoiled_by                      # this sum, nan or infinite, or a finite one whose gradient is not
    cdef bint spoiled                           # if it did

    cdef double log_likelihood(self, const double *theta) except? -1.0 nogil
    cdef void whiten(self) noexcept nogil
    cdef void place(self) noexcept nogil
    cdef void kick(self, double step) noexcept nogil
    cdef void turn(self, double angle) noexcept nogil
    cdef int keep(self, double value) noexcept nogil
    cdef double value_here(self) except? -1.0 nogil
    cdef int look(self, const double *theta, double value) noexcept nogil

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 2)

    def __init__(self, Slopes rows not None, Quadratic beside not None, JointPrior prior not None, center, step, length,
                 root):
        guard_check_built(&rows.guard, rows)
        HamiltonianInner.__init__(self, beside, prior, step, length, root)
        middle = np.array(center, dtype=np.float64)
        if rows.dim != beside.dim or middle.shape != (self.dim,) or not np.isfinite(middle).all():
            raise ValueError(f"rows see {rows.dim} parameters and center has shape {middle.shape}; {beside.dim}, and "
                             f"({self.dim},) finite numbers, are needed")
        guard_build(&self.guard, 2, self)
        self.rows, self._center, self._state = rows, middle, np.zeros(3 * self.dim + self.n_seen)
        self._spoiled_at = np.zeros(self.n_seen)
        self.spoiled_at = <double *>cnp.PyArray_DATA(self._spoiled_at)
        self.center = <const double *>cnp.PyArray_DATA(self._center)
        self.z = <double *>cnp.PyArray_DATA(self._state)
        self.kept_xi, self.kept_pulled = self.z + self.dim, self.z + 2 * self.dim
        self.by_beside = self.z + 3 * self.dim
        guard_built(&self.guard, 2)

    cdef double log_likelihood(self, const double *theta) except? -1.0 nogil:
        """Of all rows, with what is beside it and the gradient of both in `by_seen`."""
        cdef Py_ssize_t i
        cdef double out = self.rows.at(theta, self.by_seen)
        self.n_gradients += 1
        self.n_unchecked += self.rows.n_rows
        if self.n_unchecked >= ROWS_PER_CHECK:
            self.n_unchecked = 0
            check_signals()
        self.look(theta, out)
        out += self.surrogate.log_density(theta, self.by_beside)
        for i in range(self.n_seen):
            self.by_seen[i] += self.by_beside[i]
        return out

    cdef int look(self, const double *theta, double value) noexcept nogil:
        """Note a point at which the rows have no log-likelihood, or no gradient of it; -inf is one."""
        cdef Py_ssize_t i
        cdef bint bad = isnan(value) or value == INFINITY
        if self.spoiled or value == -INFINITY:
            return 0
        for i in range(self.n_seen):
            if not isfinite(theta[i]):      # where a trajectory ended that its steps were too long for
                return 0
            bad = bad or not isfinite(self.by_seen[i])
        if bad:
            self.spoiled, self.spoiled_by = True, value
            memcpy(self.spoiled_at, theta, self.n_seen * sizeof(double))
        return 0

    cdef double log_density(self, const double *theta) except? -1.0 nogil:
        return self.prior.log_density(theta, NULL) + self.log_likelihood(theta)

    cdef double log_standard(self, const double *theta) except? -1.0 nogil:
        cdef double out = self.standard.log_density(theta, NULL)
        return out + self.standard.log_jacobian() + self.log_likelihood(theta)

    cdef double density(self) except? -1.0 nogil:
        """Log density of xi, its whitened gradient, and theta."""
        cdef Py_ssize_t i
        cdef double out, likelihood
        self.prior.seen_from(self.xi, self.at)
        likelihood = self.log_likelihood(self.at)
        out = self.prior.log_density(self.at, self.slope) + likelihood
        for i in range(self.n_seen):
            self.slope[i] += self.by_seen[i]
        out += self.prior.pull_back(self.xi, self.at, self.slope)
        self.pull()
        return out

    cdef void whiten(self) noexcept nogil:
        """z of xi."""
        cdef Py_ssize_t i
        for i in range(self.dim):
            self.z[i] = self.xi[i] - self.center[i]
        if self.dense:
            solve_lower(self.root, self.z, self.dim)
        else:
            for i in range(self.dim):
                self.z[i] /= self.root[i]

    cdef void place(self) noexcept nogil:
        """xi of z."""
        cdef int n = <int>self.dim, unit = 1
        cdef Py_ssize_t i
        memcpy(self.xi, self.z, self.dim * sizeof(double))
        if self.dense:          # lower in C order is upper to BLAS, transposed
            dtrmv(b"U", b"T", b"N", &n, self.root, &n, self.xi, &unit)
        else:
            for i in range(self.dim):
                self.xi[i] *= self.root[i]
        for i in range(self.dim):
            self.xi[i] += self.center[i]

    cdef void kick(self, double step) noexcept nogil:
        """The velocity changes by the gradient of what the posterior has beyond the normal density."""
        cdef Py_ssize_t i
        for i in range(self.dim):
            self.velocity[i] += step * (self.pulled[i] + self.z[i])

    cdef void turn(self, double angle) noexcept nogil:
        cdef double c = cos(angle), s = sin(angle), x
        cdef Py_ssize_t i
        for i in range(self.dim):
            x = self.z[i]
            self.z[i] = c * x + s * self.velocity[i]
            self.velocity[i] = c * self.velocity[i] - s * x

    cdef int keep(self, double value) noexcept nogil:
        """Keep what is known of xi: where a move begins that the last one ended at, no row is read for it."""
        memcpy(self.kept_xi, self.xi, self.dim * sizeof(double))
        memcpy(self.kept_pulled, self.pulled, self.dim * sizeof(double))
        self.kept_value, self.keeps = value, True
        return 0

    cdef double value_here(self) except? -1.0 nogil:
        """As `density`, kept for the end of the move."""
        cdef double value
        if self.keeps and not memcmp(self.xi, self.kept_xi, self.dim * sizeof(double)):
            memcpy(self.pulled, self.kept_pulled, self.dim * sizeof(double))
            return self.kept_value
        self.keeps = False
        value = self.density()
        if not isfinite(value) and not self.spoiled:
            with gil:
                raise ValueError(f"the log-posterior is {value} at the chain's own state; a chain must start where it "
                                 f"is finite: give such a point as init")
        self.keep(value)
        return value

    cdef int trajectory(self, double *theta, bitgen_t *bits) except -1 nogil:
        """Turns by equal angles, as few as do not exceed `step`; their sum is drawn without a look at the state."""
        cdef double way = self.size * self.length * (SHORTEST + SPREAD * bits.next_double(bits.state))
        cdef double uniform = bits.next_double(bits.state), energy = 0.0, left = 0.0, value, step
        cdef Py_ssize_t n_steps = <Py_ssize_t>min(max(ceil(way / self.step), 1.0), <double>LONGEST), i, _k
        step = min(way / n_steps, self.step)
        self.taken = self.diverged = False
        self.acceptance = 0.0
        self.prior.to_free(theta, self.xi)
        value = self.value_here()
        if not isfinite(value):
            return 0            # spoiled, as the move will say
        self.whiten()
        for i in range(self.dim):
            self.velocity[i] = random_standard_normal(bits)
            energy += 0.5 * self.velocity[i] * self.velocity[i]
        energy -= value
        for _k in range(n_steps):
            self.kick(0.5 * step)
            self.turn(step)
            self.place()
            value = self.density()
            self.kick(0.5 * step)
            left = energy + value
            for i in range(self.dim):
                left -= 0.5 * self.velocity[i] * self.velocity[i]
            if not left >= -DIVERGENT:          # nan too
                self.diverged = True            # and is followed to its end, or it would not be reversible
            if not isfinite(value):
                break
        if isfinite(left):
            self.acceptance = 1.0 if left >= 0.0 else exp(left)
            if uniform < self.acceptance:
                memcpy(theta, self.at, self.dim * sizeof(double))
                self.keep(value)
                self.taken = True
        return 0

    def take_up(self, kept):
        """What `kept` gave where a chain stands, maybe of another object; None: nothing is known of its point."""
        cdef cnp.ndarray own
        guard_check_built(&self.guard, self)
        self.keeps = False
        if kept is None:
            return
        own = np.ascontiguousarray(kept, dtype=np.float64)
        if own.ndim != 1 or own.shape[0] != 2 * self.dim + 1:
            raise ValueError(f"what a chain keeps of its point has shape {np.shape(kept)}; ({2 * self.dim + 1},) is "
                             f"needed: a state is of one kernel alone")
        memcpy(self.kept_xi, cnp.PyArray_DATA(own), 2 * self.dim * sizeof(double))
        self.kept_value, self.keeps = own[2 * self.dim], True

    @property
    def kept(self):
        """What is known of the point at which a chain stands: coordinates, gradient and log density; or None."""
        guard_check_built(&self.guard, self)
        if not self.keeps:
            return None
        return np.append(self._state[self.dim : 3 * self.dim], self.kept_value)


cdef class RowMove(Move):
    """A Hamiltonian move of a chain on the posterior, which needs no decision.

    Parameters
    ----------
    inner : RowInner
        Of this chain alone.
    strict : bool, default False
        Whether a log-likelihood that is nan or +inf, or has no finite gradient, is an error: where terms are a user's.
        Those of a model that is finite everywhere are so far away only that numbers overflow.
    """

    cdef readonly RowInner inner
    cdef readonly bint strict
    cdef uint8_t *marks                         # of the steps of a run, 1 for a divergent one; NULL between runs
    cdef cnp.ndarray _theta
    cdef double *theta

    cdef int refuse(self, Chain chain) except -1 with gil

    def __cinit__(self, RowInner inner not None, bint strict=False):
        guard_check_built(&inner.guard, inner)
        self.strict = strict
        self.inner, self._theta = inner, np.zeros(inner.dim)
        self.theta = <double *>cnp.PyArray_DATA(self._theta)

    def __reduce__(self):
        raise TypeError("a RowMove belongs to the kernel that made it and is not saved")

    cdef int suits(self, Chain chain) except -1:
        if chain.dim != self.inner.dim:
            raise ValueError(f"the chain has {chain.dim} coordinates and the move {self.inner.dim}")
        return 0

    cdef int refuse(self, Chain chain) except -1 with gil:
        """Raise for the row, or the gradient, that spoiled a trajectory."""
        self.inner.keeps = False
        if isfinite(self.inner.spoiled_by):
            raise ValueError(f"the gradient of the log-likelihood is not finite at {self.inner._spoiled_at}, where the "
                             f"log-likelihood is {self.inner.spoiled_by}; finite numbers are needed")
        return refuse_sum(chain.source, 1)

    cdef int make(self, Chain chain, bitgen_t *bits) except -1 nogil:
        cdef Py_ssize_t n = chain.n_seen, before = self.inner.n_gradients
        memcpy(self.theta, chain.now, n * sizeof(double))
        memcpy(self.theta + n, chain.phi_now, chain.n_hyper * sizeof(double))
        self.inner.spoiled = False
        self.inner.move(self.theta, bits)
        if self.inner.spoiled and self.strict:
            memcpy(chain.new, self.inner.spoiled_at, n * sizeof(double))
            self.refuse(chain)
        if self.inner.diverged and self.marks != NULL:
            self.marks[chain.n_done] = 1
        chain.step.n_looks = self.inner.n_gradients - before
        chain.step.n_read = chain.step.n_looks * self.inner.rows.n_rows
        chain.step.full_pass = chain.step.n_looks > 0
        chain.step.accepted, chain.step.undecided = self.inner.taken, False
        memcpy(chain.new, self.theta, n * sizeof(double))
        memcpy(chain.phi_new, self.theta + n, chain.n_hyper * sizeof(double))
        return chain.arrive()


cdef class RowChain(Chain):
    """A chain that such moves make. What is known of its point goes with its state, whatever object goes on with it."""

    cdef uint8_t *marks                         # of the run about to begin

    def run(self, rng, double[:, ::1] draws, int64_t[::1] rows, int32_t[::1] looks, uint8_t[::1] flags):
        """Make as many steps as the arrays have places; bit 3 of `flags` says which are divergent."""
        cdef Py_ssize_t n = flags.shape[0], t
        cdef cnp.ndarray marks = np.zeros(max(n, draws.shape[0]), np.uint8)
        self.marks = <uint8_t *>cnp.PyArray_DATA(marks)
        try:
            Chain.run(self, rng, draws, rows, looks, flags)
        finally:
            for t in range(min(n, <Py_ssize_t>self.n_done)):
                flags[t] |= (<uint8_t *>cnp.PyArray_DATA(marks))[t] << 3

    cdef int hold(self) except -1:
        Chain.hold(self)
        (<RowMove?>self.move).marks = self.marks
        return 0

    cdef void release(self) noexcept:
        (<RowMove>self.move).marks = NULL
        Chain.release(self)

    def _take_cache(self, cache):
        (<RowMove?>self.move).inner.take_up(cache)

    @property
    def cache(self):
        return (<RowMove?>self.move).inner.kept
