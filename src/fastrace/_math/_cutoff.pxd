# cython: cdivision=True
"""Bounds turned round: the level at which the bound of a mean reaches a cutoff, as a logarithm; and the cutoff itself.

`gap` is how far the mean lies on the right side of the cutoff, in reward units; a gap of 0 or less has level 1. Each
level is that of a one-sided bound. Kalyanakrishnan & Stone (2010), section 4.
"""

from libc.math cimport INFINITY, erfc, exp, log, log1p, sqrt
from libc.stdint cimport int64_t

from fastrace._math._anytime cimport log_mean_mixture_at_least, mixture_t, one_over_mean_mixture

cdef enum kind_t:
    HOEFFDING                   # at one number of pulls
    BERNSTEIN
    TIGHTEST                    # the better of the two, arm by arm
    NORMAL_MIXTURE              # at all numbers of pulls
    GAMMA_MIXTURE               # the mean of several

cdef struct evidence_t:         # what is known of one arm
    int64_t pulls
    double m2                   # sum of squared deviations from the mean
    double error                # sum of squared errors of predicting each reward by the mean of those before it
    double span
    const mixture_t *mixture    # of the bounds that hold at all times; the normal mixture has its first rho


cdef inline double log_level_hoeffding(const evidence_t *arm, double gap) noexcept nogil:
    cdef double z = gap / arm.span
    return -2.0 * arm.pulls * z * z


cdef inline double log_level_bernstein(const evidence_t *arm, double gap) noexcept nogil:
    """Audibert, Munos & Szepesvari (2007): the half-width s sqrt(2x / u) + 3 R x / u, x = log(3 / level), solved for x.

    The quadratic in sqrt(x) is solved without cancellation: it is safe for zero variance and for a large count.
    """
    cdef double linear = sqrt(2.0 * arm.m2) / arm.pulls
    cdef double square = 3.0 * arm.span / arm.pulls
    cdef double y = 2.0 * gap / (linear + sqrt(linear * linear + 4.0 * square * gap))
    return min(0.0, log(3.0) - y * y)


cdef inline double log_level_normal_mixture(const evidence_t *arm, double gap) noexcept nogil:
    """One-sided normal mixture for sub-Gaussian rewards; Howard et al. (2021), Prop. 6. One over its martingale."""
    cdef double rho = arm.mixture.rho[0], variance = 0.25 * arm.pulls + rho
    cdef double z = arm.pulls * (gap / arm.span) / sqrt(variance)
    return min(0.0, -(0.5 * log(rho / variance) + 0.5 * z * z + log(2.0) + log1p(-0.5 * erfc(z / sqrt(2.0)))))


cdef inline double log_level_gamma_mixture(const evidence_t *arm, double gap) noexcept nogil:
    """Mean of gamma-exponential mixtures with empirical variances; Howard et al. (2021), Prop. 9, Thm 4. As above."""
    cdef double v = arm.error / (arm.span * arm.span), s = arm.pulls * (gap / arm.span)
    return min(0.0, -log_mean_mixture_at_least(s, v, arm.mixture))


cdef inline double log_level(kind_t kind, const evidence_t *arm, double gap) noexcept nogil:
    if not gap > 0.0 or arm.pulls == 0:
        return 0.0
    if kind == HOEFFDING:
        return log_level_hoeffding(arm, gap)
    if kind == TIGHTEST:
        return min(log_level_hoeffding(arm, gap), log_level_bernstein(arm, gap))
    if kind == BERNSTEIN:
        return log_level_bernstein(arm, gap)
    if kind == NORMAL_MIXTURE:
        return log_level_normal_mixture(arm, gap)
    return log_level_gamma_mixture(arm, gap)


cdef inline double level(kind_t kind, const evidence_t *arm, double gap) noexcept nogil:
    """exp(log_level), to rounding."""
    if kind == GAMMA_MIXTURE and gap > 0.0 and arm.pulls > 0:
        return min(1.0, one_over_mean_mixture(arm.pulls * (gap / arm.span), arm.error / (arm.span * arm.span),
                                              arm.mixture))
    return exp(log_level(kind, arm, gap))


cdef inline double width_at(kind_t kind, const evidence_t *arm, double log_wanted) noexcept nogil:
    """The half-width at a level; of a mixture, infinity if it is more than twice the support."""
    cdef double low = 0.0, high = 2.0 * arm.span, middle, x = log(3.0) - log_wanted
    cdef double by_range = arm.span * sqrt(-log_wanted / (2.0 * arm.pulls))
    cdef double by_variance = sqrt(2.0 * x * arm.m2) / arm.pulls + 3.0 * arm.span * x / arm.pulls
    cdef int _k
    if kind == HOEFFDING:
        return by_range
    if kind == BERNSTEIN:
        return by_variance
    if kind == TIGHTEST:
        return min(by_range, by_variance)
    if log_level(kind, arm, high) > log_wanted:
        return INFINITY
    for _k in range(60):
        middle = 0.5 * (low + high)
        if log_level(kind, arm, middle) > log_wanted:
            low = middle
        else:
            high = middle
    return high


cdef inline double standard_error(const evidence_t *arm) noexcept nogil:
    """Of the mean, and at least R / u: a constant arm would otherwise pin the cutoff to itself, and never stop."""
    cdef double error = sqrt(arm.m2) / arm.pulls
    cdef double floor = arm.span / arm.pulls
    return error if error > floor else floor


cdef inline double cutoff_between(double best, double rest, double best_error, double rest_error) noexcept nogil:
    """The paper's c-hat: divides the way from `rest` to `best` in proportion to the standard errors."""
    return rest + (best - rest) * (rest_error / (best_error + rest_error))
