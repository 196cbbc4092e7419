# cython: cdivision=True
"""Effects of groups that are moved and decided one group at a time, each by its own rows."""

from libc.math cimport exp, log
from libc.stdint cimport int64_t
from libc.string cimport memcpy
cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._base._guard cimport guard_await, guard_build, guard_built, guard_check_built
from fastrace._draws._rng cimport random_standard_exponential
from fastrace._models._arrow cimport Arrow, Quadratic, factor_block, solve_lower, solve_upper
from fastrace._models._expanded cimport Expanded
from fastrace._models._priors cimport JointPrior
from fastrace.mcmc.kernels._chain cimport Chain, begin

import numpy as np

from fastrace._models._arrow import added

cdef extern from "numpy/random/distributions.h" nogil:
    double random_standard_normal(bitgen_t *bits)

cdef double LOCAL_SHARE = 0.6       # of sweeps that propose from the surrogate, and
cdef double PRIOR_SHARE = 0.2       # from the prior; the others walk,
cdef double SHORTEST = 0.5          # in standard deviations of the surrogate's, so far at least and
cdef double LONGEST = 30.0          # so far at most; the logarithm is uniform

cnp.import_array()


cdef class GroupBlocks:
    r"""Sweeps over the effects of groups, each moved given all else and decided by the rows of its group.

    Let u be the effects of one group, p(u) their prior density given the hyperparameters, and L_g(u) the log-likelihood
    of the group's rows, all else held. A proposal of density q(u) is accepted with probability
    min(1, exp(change of (L_g + log p - log q))).

    Parameters
    ----------
    surrogate : Quadratic
        What the chain's rewards, those of an `Expanded`, leave out of the log-likelihood. Its curvature is 0 between
        effects of different groups.
    prior : JointPrior
        Copied. Effects are normal about 0 given the hyperparameters.
    factor : Factor
        The group of each row, and where the effects are.
    groups : ndarray of int, ascending
        Those to sweep over; each has rows.
    first_precision : int
        Where the precision of the effects begins among those of the prior.
    tilt, bend : ndarray of shape (n_seen,) and Arrow, or None
        Added to gradient and curvature of what is proposed from, but not of what is decided by.
    following : GroupBlocks, optional
        Of another factor, to be swept after this one.
    """

    def __cinit__(self):
        guard_await(&self.guard, 0)

    def __init__(self, Quadratic surrogate not None, JointPrior prior not None, factor, groups, first_precision,
                 tilt=None, Arrow bend=None, GroupBlocks following=None):
        cdef Arrow curvature = surrogate.curvature
        cdef Py_ssize_t n = surrogate.dim, q = factor.width
        cdef double *number
        guard_check_built(&surrogate.guard, surrogate)
        if following is not None:
            guard_check_built(&following.guard, following)
        groups, codes = np.asarray(groups, dtype=np.intp), np.asarray(factor.codes)
        counts = np.bincount(codes, minlength=factor.n_groups)[groups]
        if prior.n_seen != n or not len(groups) or not counts.all():
            raise ValueError(f"the prior is of {prior.n_seen} parameters that rows see, and the surrogate of {n}; "
                             f"{len(groups)} groups have {counts.tolist()} rows, and each needs one")
        guard_build(&self.guard, 0, self)
        order = np.argsort(codes, kind="stable")
        order = order[np.isin(codes[order], groups)]
        self._rows, self._ends = order.astype(np.int64), np.cumsum(counts).astype(np.intp)
        self._places = (factor.start + groups * q).astype(np.intp)
        self.n_groups, self.n_rows, self.width = len(groups), len(order), q
        self.in_order = np.array_equal(order, np.arange(len(codes)))
        self.surrogate = surrogate.shared()
        lean = np.zeros(n) if tilt is None else np.asarray(tilt, dtype=np.float64)
        self.near = Quadratic(surrogate.center, surrogate.value, surrogate.gradient + lean, added(curvature, bend))
        self._blocks = curvature.blocks_at(self._places, q)
        self._near_blocks = self.near.curvature.blocks_at(self._places, q)
        self.prior, self.first_precision, self.following = prior.copy(), first_precision, following
        self._memory = np.zeros(4 * n + prior.n_precision + 2 * self.n_groups + 2 * self.n_rows + q * q + 2 * q)
        number = <double *>cnp.PyArray_DATA(self._memory)
        self.mean, self.gap, self.slope, self.near_slope = number, number + n, number + 2 * n, number + 3 * n
        self.precision = number + 4 * n
        self.gain = self.precision + prior.n_precision
        self.drop = self.gain + self.n_groups
        self.before = self.drop + self.n_groups
        self.after = self.before + self.n_rows
        self.root = self.after + self.n_rows
        self.middle = self.root + q * q
        self.step = self.middle + q
        self.rows = <const int64_t *>cnp.PyArray_DATA(self._rows)
        self.places = <const Py_ssize_t *>cnp.PyArray_DATA(self._places)
        self.ends = <const Py_ssize_t *>cnp.PyArray_DATA(self._ends)
        self.blocks = <const double *>cnp.PyArray_DATA(self._blocks)
        self.near_blocks = <const double *>cnp.PyArray_DATA(self._near_blocks)
        guard_built(&self.guard, 0)

    def __reduce__(self):
        raise TypeError("GroupBlocks belong to the kernel that made them and are not saved")

    cdef int gradients(self, const double *psi) noexcept nogil:
        """Of both quadratics at psi."""
        cdef Py_ssize_t i
        for i in range(self.surrogate.dim):
            self.gap[i] = psi[i] - self.surrogate.hat[i]
        self.surrogate.curvature.product(self.gap, self.slope)
        self.near.curvature.product(self.gap, self.near_slope)
        for i in range(self.surrogate.dim):
            self.slope[i] = self.surrogate.slope[i] - self.slope[i]
            self.near_slope[i] = self.near.slope[i] - self.near_slope[i]
        return 0

    cdef double propose(self, Py_ssize_t g, block_proposal_t kind, const double *now, double *new,
                        bitgen_t *bits) noexcept nogil:
        """`new` effects of a group in place of `now`, and the change of the log of the prior less that of q."""
        cdef Py_ssize_t i, q = self.width, at = self.places[g]
        cdef const double *P = self.precision + self.first_precision
        cdef double length = 1.0, out = 0.0
        cdef double *middle = self.middle
        for i in range(q * q):
            self.root[i] = P[i] if kind == PRIOR else P[i] + self.near_blocks[g * q * q + i]
        if not factor_block(self.root, q):              # a prior without a density: nothing is proposed
            memcpy(new, now, q * sizeof(double))
            self.drop[g] = 0.0
            return 0.0
        if kind == WALK:
            length = SHORTEST * exp(log(LONGEST / SHORTEST) * bits.next_double(bits.state))
            memcpy(middle, now, q * sizeof(double))
        elif kind == PRIOR:
            for i in range(q):
                middle[i] = 0.0
        else:                                           # the maximum: a Newton step from `now`
            for i in range(q):
                middle[i] = self.near_slope[at + i] - product_at(P, now, i, q)
            solve_lower(self.root, middle, q)
            solve_upper(self.root, middle, q)
            for i in range(q):
                middle[i] += now[i]
        for i in range(q):
            new[i] = length * random_standard_normal(bits)
        solve_upper(self.root, new, q)
        for i in range(q):
            new[i] += middle[i]
            self.step[i] = new[i] - now[i]
        self.drop[g] = 0.5 * form(self.blocks + g * q * q, self.step, q)
        for i in range(q):
            self.drop[g] -= self.slope[at + i] * self.step[i]
        if kind == WALK:                                # else the prior is in the target and in q
            out = -0.5 * (form(P, new, q) - form(P, now, q))
        elif kind == LOCAL:
            out = 0.5 * form(self.near_blocks + g * q * q, self.step, q)
            for i in range(q):
                out -= self.near_slope[at + i] * self.step[i]
        return out

    cdef int sweep(self, Chain chain, bitgen_t *bits) except -1 nogil:
        """One proposal and decision for each group; what was read goes into the chain's step."""
        cdef Py_ssize_t g, i, first = 0, q = self.width
        cdef Py_ssize_t[2] arms
        cdef double *out[2]
        cdef double coin, change, total = 0.0
        cdef block_proposal_t kind
        begin(chain, bits)
        arms[0], arms[1], out[0], out[1] = 0, 1, self.before, self.after
        self.prior.conditional(chain.phi_now, self.mean, self.precision)
        self.gradients(chain.now)
        coin = bits.next_double(bits.state)
        kind = LOCAL if coin < LOCAL_SHARE else PRIOR if coin < LOCAL_SHARE + PRIOR_SHARE else WALK
        memcpy(chain.new, chain.now, chain.n_seen * sizeof(double))
        for g in range(self.n_groups):
            i = self.places[g]
            self.gain[g] = (self.propose(g, kind, chain.now + i, chain.new + i, bits)
                            + random_standard_exponential(bits))
        (<Expanded>chain.source).source.terms(NULL, NULL if self.in_order else self.rows, 0, self.n_rows, arms, 2, out)
        for g in range(self.n_groups):
            change = 0.0
            for i in range(first, self.ends[g]):
                change += self.after[i] - self.before[i]
            first, i = self.ends[g], self.places[g]
            if change + self.gain[g] > 0.0:             # not where it is nan
                memcpy(chain.now + i, chain.new + i, q * sizeof(double))
                total += change + self.drop[g]
            else:
                memcpy(chain.new + i, chain.now + i, q * sizeof(double))
        chain.moved_by(total)
        chain.step.n_read = self.n_rows
        chain.step.n_looks = 1
        if self.following is not None:
            self.following.sweep(chain, bits)
            chain.step.n_read += self.n_rows
            chain.step.n_looks += 1
        return 0
