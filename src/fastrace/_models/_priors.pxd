# cython: cdivision=True
"""Joint priors of what the rows see and of the hyperparameters behind it."""

from libc.stdint cimport uint8_t
cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._math._densities cimport density_t
from fastrace._models._factors cimport factor_t

cdef struct coefficient_t:
    int kind                    # a location of _math/_densities.pxd
    double mean, scale, df      # scale: where it is fixed; of a horseshoe, the slab's, infinite without one
    double constant             # of the standardised density
    Py_ssize_t shared           # hyperparameter that is the log of the scale, or -1
    Py_ssize_t local            # hyperparameter that is the log of a horseshoe's local scale, or -1
    Py_ssize_t overall, slab    # of the logs of the horseshoe's global scale and of its slab's, or -1


# Numba's or C's: parameters, their number and where to write the gradient
ctypedef double (*own_function)(const double *theta, Py_ssize_t n, double *gradient) noexcept nogil

cdef struct own_density_t:      # of the user's own, compiled
    own_function function
    Py_ssize_t n
    Py_ssize_t *places          # of its parameters in theta, or NULL: all, in order


cdef class JointPrior:
    """Not shared between threads: it keeps what the last hyperparameters gave. Each chain takes a `copy()`."""

    cdef readonly Py_ssize_t n_seen, n_hyper, dim
    cdef readonly Py_ssize_t n_precision        # numbers that `conditional` writes to `precision`
    cdef readonly bint normal                   # psi is normal given phi, and nothing else: `beside` is 0
    cdef readonly object given                  # what this was made of
    cdef Py_ssize_t n_coefficients, n_factors, aux              # aux: its place in psi, or -1
    cdef coefficient_t *coefficients
    cdef factor_t *factors
    cdef density_t *hyper                       # one for each hyperparameter
    cdef density_t of_aux
    cdef list own                               # densities besides, in Python
    cdef Py_ssize_t n_compiled
    cdef own_density_t *compiled                # and compiled ones, which need no GIL
    cdef double *own_work                       # their parameters, and their gradient
    cdef cnp.ndarray _own_places, _own_memory
    cdef bint own_sees_local                    # whether one of them takes a horseshoe's local scale
    cdef cnp.ndarray _memory, _near, _free
    cdef double *phi                            # hyperparameters that `scale`, `share` and the factors' roots are of
    cdef double *scale                          # of each coefficient
    cdef double *share                          # of a horseshoe's variance, as its logarithm follows the local scale's
    cdef double *work                           # as long as the largest group of effects, three times
    cdef double *near_mean                      # normal approximations of what is not normal in psi, for `conditional`
    cdef double *near_precision
    cdef uint8_t *free                          # of each psi: moved as a standardised effect in coordinates xi

    # log p(theta), Jacobians of logarithms included; theta = [psi | phi]; the gradient may be NULL
    cdef double log_density(self, const double *theta, double *gradient) except? -1.0 nogil
    # log p(phi)
    cdef double log_hyper(self, const double *phi) except? -1.0 nogil
    # normal density of psi given phi: one q x q block of the precision per group, 1 x 1 elsewhere, in order of psi;
    # precision 0 where there is none
    cdef int conditional(self, const double *phi, double *mean, double *precision) except -1 nogil
    # log_density - log_hyper - log of that normal density (its proper coordinates): what is left for a decision
    cdef double beside(self, const double *theta) except? -1.0 nogil
    # standardised coordinates: theta = f(xi), where `free` says so; the gradient by theta becomes that by xi, the
    # Jacobian of f included, and the log of the Jacobian is returned
    cdef int seen_from(self, const double *xi, double *theta) except -1 nogil
    cdef int to_free(self, const double *theta, double *xi) except -1 nogil
    cdef double pull_back(self, const double *xi, const double *theta, double *gradient) except? -1.0 nogil
    # the log of the Jacobian alone, at the hyperparameters of the last call
    cdef double log_jacobian(self) noexcept nogil

    # a Metropolis move of each local scale of a horseshoe given all else: reversible, and cheap
    cdef int move_local_scales(self, double *theta, bitgen_t *bits) except -1 nogil

    cdef int refresh(self, const double *phi) noexcept nogil
    cdef double log_aux(self, double x) noexcept nogil          # of the log of the auxiliary parameter
    cdef double draw_aux(self, bitgen_t *bits) noexcept nogil   # from that density; infinite where numbers overflow
    cdef double log_near(self, Py_ssize_t j, double x) noexcept nogil
    cdef _near_of(self, Py_ssize_t j, double hat, double slope, double curvature)
    cdef double own_densities(self, const double *theta, double *gradient) except? -1.0 nogil
    cdef double ask_own(self, const double *theta, double *gradient) except? -1.0 with gil
