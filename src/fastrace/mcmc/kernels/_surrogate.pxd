"""Moves on a surrogate posterior: prior times expansion, no row. A chain then decides on what the rows leave of it."""

cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._base._guard cimport guard_t
from fastrace._models._arrow cimport Quadratic
from fastrace._models._priors cimport JointPrior
from fastrace.mcmc.kernels._chain cimport Chain, Move
from fastrace.mcmc.kernels._group_blocks cimport GroupBlocks


# A transition that is reversible with respect to pi_s(theta) = prior(theta) exp(Q(psi)), theta = [psi | phi]. An inner
# has working memory of its own and serves one thread. Nothing in it but that memory may change in `move`: how a move is
# made depends on `theta`, on `size`, on what it was made with and on the bits alone, so that chains go on exactly from
# a saved state.
cdef class Inner:
    cdef guard_t guard
    cdef readonly Quadratic surrogate           # Q
    cdef readonly Py_ssize_t n_seen, n_hyper, dim
    cdef readonly bint exact                    # whether rows leave nothing: only `beside` is decided on
    cdef public double size                     # 1.0 is a whole move; smaller ones, above 0, go less far; 0 < size <= 1

    # theta <- where the transition goes from theta, in place. Phi is on its unconstrained scale. A transition that
    # stays leaves theta as it was, bit for bit.
    cdef int move(self, double *theta, bitgen_t *bits) except -1 nogil
    # Phi moves given what rows see, and the answer is 1; it stays where an inner has no such move, or phi no density.
    cdef int move_hyper(self, double *theta, bitgen_t *bits) except -1 nogil
    # log of what pi_s has beyond the density that `move` is reversible for; 0.0 unless a subclass needs it. The
    # decision makes up for it.
    cdef double beside(self, const double *theta) except? -1.0 nogil
    # log pi_s(theta), up to a constant.
    cdef double log_density(self, const double *theta) except? -1.0 nogil


# What a decision is about.
cdef enum proposal_t:
    MAIN                # inner moves, or at times a plain step of a scale or of all coordinates
    ALONG               # a plain step along a direction of what rows see
    SHIFT               # a plain step along a direction that no row sees
    HYPER               # phi given what rows see
    BLOCKS              # effects of groups, group by group
    SCALING             # a scale or correlation together with the effects that it is of


# The outer step: some inner moves, then one decision of the chain on what the rows leave; and where the posterior is
# far from the surrogate, more moves with a decision each.
cdef class SurrogateMove(Move):
    cdef readonly Inner inner
    cdef readonly Py_ssize_t n_inner
    cdef public bint undecided                  # whether every move is taken, as on the way to where rows are few
    cdef readonly double stride                 # deviation of plain steps of what rows see last; 0: none
    cdef cnp.ndarray _walks
    cdef const double *walks                    # deviations of plain steps of all coordinates, or NULL
    cdef cnp.ndarray _along
    cdef const double *along                    # n_along directions of plain steps of what rows see
    cdef readonly Py_ssize_t n_along
    cdef readonly Py_ssize_t n_walked           # of these directions in a step
    cdef readonly double far                    # times as long as the others the longest of those are, at least 1
    cdef double log_far
    cdef cnp.ndarray _scalings
    cdef const double *scalings                 # n_scalings x dim: exponents of what rows see, and steps of phi
    cdef readonly Py_ssize_t n_scalings
    cdef JointPrior standard                    # which effects those leave as they are, standardised
    cdef readonly GroupBlocks blocks            # effects that move group by group, or None
    cdef cnp.ndarray _shifts
    cdef const double *shifts                   # n_shifts directions that rows do not see
    cdef readonly Py_ssize_t n_shifts
    cdef cnp.ndarray _theta
    cdef double *theta                          # the point that the inner moves
    cdef double *xi                             # the same, effects standardised

    cdef int decided(self, Chain chain, proposal_t kind, const double *way, bitgen_t *bits) except -1 nogil
    cdef int further(self, Chain chain, proposal_t kind, const double *way, bitgen_t *bits) except -1 nogil
    cdef double level(self, bint plain) except? -1.0 nogil
    cdef double scale_effects(self, const double *way, double step) except? -1.0 nogil
