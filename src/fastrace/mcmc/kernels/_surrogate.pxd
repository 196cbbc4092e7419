"""Moves on a surrogate posterior: prior times expansion, no row. A chain then decides on what the rows leave of it."""

cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._base._guard cimport guard_t
from fastrace._models._arrow cimport Arrow, ArrowFactor, Quadratic
from fastrace._models._priors cimport JointPrior
from fastrace.mcmc.kernels._chain cimport Chain, Move


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
    # log of what pi_s has beyond the density that `move` is reversible for; 0.0 unless a subclass needs it. The
    # decision makes up for it.
    cdef double beside(self, const double *theta) except? -1.0 nogil
    # log pi_s(theta), up to a constant.
    cdef double log_density(self, const double *theta) except? -1.0 nogil


# The outer step: some inner moves, then one decision of the chain on what the rows leave.
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
    cdef cnp.ndarray _theta
    cdef double *theta                          # the point that the inner moves

    cdef int decided(self, Chain chain, Py_ssize_t along, bitgen_t *bits) except -1 nogil
    cdef double level(self, bint plain) except? -1.0 nogil


# Normal priors of psi given phi: phi from its marginal under the surrogate, then psi given phi, both without a row.
cdef class NormalInner(Inner):
    cdef JointPrior prior
    cdef ArrowFactor factor
    cdef readonly Py_ssize_t n_aside            # coordinates at the end of what the rows see that move with phi
    cdef readonly double walk_share             # share of slice moves among those of phi
    cdef cnp.ndarray _memory
    cdef double *mean                           # n_seen each: of the prior, of b, of standard normals, and scratch
    cdef double *b
    cdef double *z
    cdef double *scratch
    cdef double *precision
    # where phi is looked for: a normal density near its marginal, its factor lower triangular
    cdef double *phi_center
    cdef double *phi_factor
    cdef double *phi_try
    cdef double *phi_step
    cdef double *phi_here                       # what `factor`, `about` and `b` are of, with `value`; and
    cdef double *phi_kept                       # where the last move began, with `kept`
    cdef double value, kept
    cdef bint fresh, has_kept
    # moves without a factor of their own: with that of `phi_center`, and phi given psi
    cdef readonly double fixed_share            # of all moves
    cdef ArrowFactor fixed
    cdef double *fixed_b                        # n_seen each: L^-1 b there, mean of the prior, and scratch
    cdef double *fixed_mean
    cdef double *gap
    cdef double *pull
    cdef double *fixed_precision
    cdef double *tilt                           # n_seen each: of the surrogate's gradient,
    cdef Arrow added                            # to the surrogate's curvature, or None
    cdef cnp.ndarray _stay
    cdef const double *stay                     # n_seen: not 0 where z may stay; or NULL
    cdef double *about                          # the point that `b` is about,
    cdef double *fixed_about                    # that of `fixed_b`,
    cdef double *bend                           # and the diagonal of the surrogate's curvature
    cdef const double *held                     # psi while phi moves given it; NULL if phi moves by its marginal

    cdef double log_of_phi(self, const double *phi) except? -1.0 nogil
    cdef double log_marginal(self, const double *phi) except? -1.0 nogil
    cdef bint choose_about(self) noexcept nogil
    cdef double prior_left(self, const double *theta) except? -1.0 nogil
    cdef double straightened(self, const double *theta) noexcept nogil
    cdef double tilted(self, const double *theta) noexcept nogil
    cdef double log_proposal(self, const double *phi) noexcept nogil
    cdef int move_phi(self, double *phi, double here, bitgen_t *bits) except -1 nogil
    cdef double log_normal(self, const double *psi, const double *mean, const double *precision) noexcept nogil
    cdef double log_given(self, const double *phi) except? -1.0 nogil
    cdef int move_fixed(self, double *theta, bitgen_t *bits) except -1 nogil
    cdef int move_seen(self, double *psi, const double *phi, bitgen_t *bits) except -1 nogil
    cdef int slice_phi(self, double *phi, double here, bitgen_t *bits) except -1 nogil
