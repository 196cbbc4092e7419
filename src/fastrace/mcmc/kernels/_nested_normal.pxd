"""The nested normal: a move on a surrogate whose prior is normal given its hyperparameters."""

cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._models._arrow cimport Arrow, ArrowFactor
from fastrace._models._priors cimport JointPrior
from fastrace.mcmc.kernels._surrogate cimport Inner


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
    cdef double *phi_stretch                    # of its two sides along each column
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
