# cython: cdivision=True
"""Moves on a surrogate that is normal given the hyperparameters and a learned scale."""

from libc.math cimport INFINITY, exp, expm1, isfinite
cimport numpy as cnp

from fastrace._base._guard cimport guard_await, guard_built, guard_check_built
from fastrace._models._arrow cimport Quadratic
from fastrace._models._priors cimport JointPrior
from fastrace.mcmc.kernels._nested_normal cimport NormalInner

import numpy as np

from fastrace._models._arrow import Arrow

cnp.import_array()


def scaled_inner(compressed, center=None, factor=None, stretch=None, exact=False):
    """A `ScaledInner` on an expansion; center, factor and stretch are of the logarithm of the scale and phi."""
    likelihood = Quadratic(compressed.psi_hat, compressed.value, compressed.slope, compressed.curvature)
    return ScaledInner(compressed.quadratic, likelihood, compressed.prior, center, factor, stretch, exact)


cdef class ScaledInner(NormalInner):
    r"""Nested normal where the last coordinate that the rows see is the logarithm s of a scale.

    A Gaussian log-likelihood of w rows in all is, at beta_hat + d and s_hat + t, with e = exp(-2 t),

        V - w t - (e - 1) S / 2 + e (g' d - d' H d / 2),

    where S is the weighted sum of squared residuals over exp(2 s_hat). Value, gradient and curvature of its expansion
    hold all of this: the curvature in s is 2 S, the gradient S - w, and the mixed curvature 2 g. So the surrogate is
    the likelihood itself, normal in d given t; s moves with phi, by their joint marginal, and no row is read.

    Of another likelihood with a scale the surrogate is this function with the same expansion: where the mixed
    curvature c is not 2 g, the gradient in d is e g + (e - 1) (c - 2 g) / 2. The decision has the rest.

    Parameters
    ----------
    whole : Quadratic
        The expansion of the likelihood, with a quadratic part of the prior if there is one.
    likelihood : Quadratic
        That of the likelihood alone: its curvature follows the scale.
    prior : JointPrior
        With an auxiliary parameter. Copied.
    center, factor : array_like of shape (1 + n_hyper,) and (1 + n_hyper, 1 + n_hyper)
        A normal density near the marginal of s and phi.
    stretch : array_like of shape (2, 1 + n_hyper), optional
        Of its two sides, as in `NormalInner`.
    exact : bool
        Whether the surrogate is the likelihood.
    """

    cdef Quadratic expansion                    # `whole`
    cdef cnp.ndarray _numbers
    cdef double s_hat, weight, squares, level   # w, S and V
    cdef double *D                              # of the likelihood: dense part of the curvature, border and blocks
    cdef double *C
    cdef double *B
    cdef double *D_prior                        # of the prior's part
    cdef double *g
    cdef double *g_prior
    cdef double *mixed                          # c - 2 g
    cdef double *bent                           # diagonals of both parts of the curvature
    cdef double *bent_prior

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 2)

    def __init__(self, Quadratic whole not None, Quadratic likelihood not None, JointPrior prior not None, center=None,
                 factor=None, stretch=None, exact=False):
        cdef Py_ssize_t n = whole.dim - 1, s = whole.curvature.n_dense - 1
        cdef Py_ssize_t m = whole.curvature.n_blocks * whole.curvature.width
        cdef double *number
        guard_check_built(&whole.guard, whole)
        guard_check_built(&likelihood.guard, likelihood)
        self.n_aside = 1
        if prior.given[3] is None or n < 0 or likelihood.dim != whole.dim:
            raise ValueError("a prior with a learned scale, and two expansions of as many parameters, are needed")
        last = np.zeros(n + 1)
        last[n] = 1.0
        bent, slope = likelihood.curvature.shared().times(last), np.asarray(likelihood.gradient)
        kept = [np.asarray(part.curvature.dense)[:s, :s] for part in (likelihood, whole)]
        diagonals = [part.curvature.diagonal()[:n] for part in (likelihood, whole)]
        arrow = whole.curvature
        border, blocks = np.asarray(arrow.border)[:s], np.asarray(arrow.blocks)
        grouped = (border, blocks, arrow.start) if arrow.n_blocks else ()
        super().__init__(Quadratic(np.asarray(whole.center)[:n], 0.0, np.asarray(whole.gradient)[:n],
                                   Arrow(kept[1], *grouped)), prior, center, factor, stretch)
        self._numbers = np.concatenate([
            kept[0].ravel(), (kept[1] - kept[0]).ravel(), border.ravel(), blocks.ravel(), slope[:n],
            (np.asarray(whole.gradient) - slope)[:n], bent[:n] - 2.0 * slope[:n],
            diagonals[0], diagonals[1] - diagonals[0]])
        number = <double *>cnp.PyArray_DATA(self._numbers)
        self.D, self.D_prior, self.C = number, number + s * s, number + 2 * s * s
        self.B = self.C + s * m
        self.g = self.B + m * arrow.width
        self.g_prior, self.mixed, self.bent, self.bent_prior = (
            self.g + n, self.g + 2 * n, self.g + 3 * n, self.g + 4 * n)
        self.expansion, self.level, self.exact = whole.shared(), whole.value, exact
        self.s_hat, self.squares = whole.center[n], 0.5 * bent[n]
        self.weight = self.squares - slope[n]
        if not (self.squares > 0.0 and self.weight > 0.0):
            raise ValueError("the likelihood has no maximum in the scale where it was expanded; expand elsewhere")
        guard_built(&self.guard, 2)

    cdef double turn(self, double s) noexcept nogil:
        """Make gradient and curvature those at this scale; return the level there."""
        cdef double t = s - self.s_hat, e = exp(-2.0 * t), less = expm1(-2.0 * t)
        cdef Py_ssize_t i, n = self.n_seen, k = self.factor.base.n_dense
        cdef Py_ssize_t m = self.factor.base.n_blocks * self.factor.base.width
        if not isfinite(e):
            return -INFINITY
        for i in range(k * k):
            self.factor.base.D[i] = e * self.D[i] + self.D_prior[i]
        for i in range(k * m):
            self.factor.base.C[i] = e * self.C[i]
        for i in range(m * self.factor.base.width):
            self.factor.base.B[i] = e * self.B[i]
        for i in range(n):
            self.surrogate.slope[i] = e * self.g[i] + 0.5 * less * self.mixed[i] + self.g_prior[i]
            self.bend[i] = e * self.bent[i] + self.bent_prior[i]
        return self.level - self.weight * t - 0.5 * less * self.squares

    cdef double log_of_phi(self, const double *phi) except? -1.0 nogil:
        cdef double out = self.prior.log_hyper(phi + 1)
        return out + self.prior.log_aux(phi[0]) + self.turn(phi[0]) - self.level

    cdef double log_likelihood(self, const double *theta) noexcept nogil:
        """In place of the expansion, which it has at s_hat; with the prior's part."""
        return self.turn(theta[self.n_seen]) + self.surrogate.log_density(theta, NULL)

    cdef double prior_left(self, const double *theta) except? -1.0 nogil:
        cdef double s = theta[self.n_seen]
        return self.prior.beside(theta) - self.prior.log_aux(s) + self.prior.log_near(self.n_seen, s)

    cdef double straightened(self, const double *theta) noexcept nogil:
        return self.expansion.log_density(theta, NULL) - self.log_likelihood(theta)

    cdef double beside(self, const double *theta) except? -1.0 nogil:
        return self.prior_left(theta) if self.exact else self.prior_left(theta) + self.straightened(theta)

    cdef double log_density(self, const double *theta) except? -1.0 nogil:
        cdef double out = self.prior.log_density(theta, NULL)
        return out + (self.log_likelihood(theta) if self.exact else self.expansion.log_density(theta, NULL))
