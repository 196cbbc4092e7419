# cython: cdivision=True
"""Metropolis-Hastings proposals as a move of a chain; the chain decides on what the rows make of each."""

from libc.math cimport INFINITY, isnan, log1p, sqrt
cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._draws._rng cimport random_standard_exponential
from fastrace.mcmc.kernels._chain cimport Chain, Move, begin

import numpy as np

from fastrace._base import _checks

cdef extern from "numpy/random/distributions.h" nogil:
    double random_standard_normal(bitgen_t *bits)
    double random_standard_gamma(bitgen_t *bits, double shape)

cnp.import_array()


cdef class Proposal(Move):
    """Metropolis-Hastings: one point, tried once.

    Parameters
    ----------
    keep, noise, walk, walk_share : float
        z1 = keep z0 + noise xi; in a share of the steps z1 = z0 + walk xi, which is never delayed.
    propose : callable or None
        Takes the place of all that: position -> proposal, log q(x | x') - log q(x' | x).
    delayed : bool
        Accept on all that is known without rows first, where the state and the proposal are both within `radius` of the
        center, in whitened units. Farther out acceptance is decided at once.
    radius : float
    plain_share : float
        Share of the steps between such points that are decided at once all the same.
    tails : (float, ndarray of shape (dim,), float) or None
        Degrees of freedom, center and scale, whitened, of a Student-t density. Proposals that are no walks are then
        draws from it, decided at once, in place of keep z0 + noise xi.
    """

    cdef readonly double keep, noise, walk, walk_share
    cdef readonly object propose
    cdef readonly bint delayed
    cdef readonly double plain_share
    cdef double near_squared
    cdef double degrees, scale      # of the Student-t density; degrees are 0.0 without one
    cdef cnp.ndarray shift
    cdef const double *middle

    def __cinit__(self, keep=1.0, noise=1.0, walk=1.0, walk_share=0.0, *, propose=None, delayed=False, radius=INFINITY,
                  plain_share=0.0, tails=None):
        self.keep, self.noise, self.walk, self.walk_share = keep, noise, walk, walk_share
        self.propose = propose
        self.delayed = delayed
        self.plain_share = plain_share
        self.near_squared = radius * radius
        if tails is not None:
            self.degrees, shift, self.scale = tails
            self.shift = np.array(shift, dtype=np.float64)
            self.middle = <const double *>cnp.PyArray_DATA(self.shift)

    def __reduce__(self):
        raise TypeError("a Proposal belongs to the kernel that made it and is not saved")

    cdef int make(self, Chain chain, bitgen_t *bits) except -1 nogil:
        """One step. Let a be the Metropolis-Hastings ratio as far as it needs no row, b what the rows make of the rest.

        A proposal is accepted with probability min(1, a) min(1, b), in two stages, if both states are near, and with
        probability min(1, a b) if one of them is not. For either rule the flow from x to y is the flow from y to x,
        because a(y, x) = 1 / a(x, y) and b(y, x) = 1 / b(x, y); and which rule a pair of states is under does not
        depend on their order: it is a coin of its own where both are near. So every pair is in balance, and the
        posterior invariant.
        """
        cdef double ratio, first
        cdef bint walked = False, near = False
        begin(chain, bits)
        ratio = ratio_of(self, chain, bits, &walked, &near)
        first = -random_standard_exponential(bits)
        if ratio == -INFINITY:
            return 0
        if self.delayed and near and not walked and self.degrees == 0.0 and not (
                self.plain_share > 0.0 and bits.next_double(bits.state) < self.plain_share):
            if not first < ratio:
                return 0
            first = -random_standard_exponential(bits)
        else:
            first -= ratio
        chain.decide(first)
        if chain.step.accepted:
            chain.arrive()
        return 0

    cdef double _ask(self, Chain chain) except? -1.0:
        cdef Py_ssize_t i
        cdef const double[::1] proposed
        answer = self.propose(chain._theta[0].copy())
        try:
            point, log_ratio = answer
            proposed = np.ascontiguousarray(point, dtype=np.float64)
            ratio = float(log_ratio)
        except (TypeError, ValueError) as error:
            raise ValueError(f"the proposal returned {_checks.shown(answer)}; a pair is needed: {chain.dim} finite "
                             f"parameters, and "
                             f"log q(x | x') - log q(x' | x)") from error
        if proposed.shape[0] != chain.dim or not np.isfinite(proposed).all() or isnan(ratio) or ratio == INFINITY:
            raise ValueError(f"the proposal returned {_checks.shown(point)} with log ratio "
                             f"{_checks.shown(log_ratio)}; {chain.dim} finite "
                             f"parameters, and log q(x | x') - log q(x' | x) below infinity, are needed")
        for i in range(chain.dim):
            chain.new[i] = proposed[i]
        return ratio


cdef inline double log_tail(Proposal move, const double *z, Py_ssize_t d) noexcept nogil:
    """Log of the Student-t density, up to a constant."""
    cdef Py_ssize_t i
    cdef double squares = 0.0
    for i in range(d):
        squares += (z[i] - move.middle[i]) * (z[i] - move.middle[i])
    return -0.5 * (move.degrees + d) * log1p(squares / (move.scale * move.scale * move.degrees))


cdef inline double ratio_of(Proposal move, Chain chain, bitgen_t *bits, bint *walked,
                            bint *near) except? -1.0 nogil:
    """Put a proposal in place; log of the Metropolis-Hastings ratio as far as it needs no row."""
    cdef Py_ssize_t i, d = chain.dim
    cdef double keep = move.keep, noise = move.noise, before = 0.0, after = 0.0, ratio = 0.0, stretch = 0.0
    if move.propose is not None:
        with gil:
            ratio = move._ask(chain)
        chain.to_z(chain.new, chain.z1)
    else:
        if move.walk_share > 0.0 and bits.next_double(bits.state) < move.walk_share:
            keep, noise = 1.0, move.walk
            walked[0] = True
        elif move.degrees > 0.0:
            stretch = move.scale * sqrt(0.5 * move.degrees / random_standard_gamma(bits, 0.5 * move.degrees))
        if stretch > 0.0:
            for i in range(d):
                chain.z1[i] = move.middle[i] + stretch * random_standard_normal(bits)
        else:
            for i in range(d):
                chain.z1[i] = keep * chain.z0[i] + noise * random_standard_normal(bits)
        chain.to_theta(chain.z1, chain.new)
    for i in range(d):
        before += chain.z0[i] * chain.z0[i]
        after += chain.z1[i] * chain.z1[i]
    near[0] = before <= move.near_squared and after <= move.near_squared
    if stretch > 0.0:
        ratio += log_tail(move, chain.z0, d) - log_tail(move, chain.z1, d)
        if chain.surrogate:
            ratio -= 0.5 * (after - before)
    elif move.propose is None and keep != 1.0:
        ratio += 0.5 * (after - before) * ((1.0 - keep * keep) / (noise * noise)
                                           - (1.0 if chain.surrogate else 0.0))
    elif chain.surrogate:
        ratio -= 0.5 * (after - before)
    chain.prior_new = chain.log_prior_of(chain.new)
    if chain.prior_new == -INFINITY:
        return -INFINITY
    return ratio + (chain.prior_new - chain.prior_now)
