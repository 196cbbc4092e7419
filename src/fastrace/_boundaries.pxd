# cython: cdivision=True
"""Curved boundaries that a sum of centred rewards crosses at some time with small probability, whatever its law."""

from libc.math cimport exp, fabs, lgamma, log

from fastrace._bets cimport fr_stitched

ctypedef double (*incomplete_gamma_t)(double a, double y, int skip) noexcept nogil    # regularised, lower


cdef inline double mixture_rho(double level, double best_at) noexcept nogil:
    """The mixture that is tightest near intrinsic time `best_at`, for level = log(2 / delta)."""
    cdef double both = 2.0 * (level - log(2.0))
    both = both if both > 0.1 else 0.1
    return best_at / (both + log(1.0 + both))


cdef inline double gamma_exponential(double level, double v, double rho, incomplete_gamma_t below) noexcept nogil:
    """u(v) > 0 at which the gamma mixture of exponential supermartingales of scale 1 is exp(level).

    Howard, Ramdas, McAuliffe & Sekhon (2021), Proposition 9. The logarithm of the mixture is convex in u, so Newton's
    method converges from the right, where it starts: the stitched boundary is mostly above, and a step from below
    leads above.
    """
    cdef double a = v + rho
    cdef double constant = (rho * log(rho) - lgamma(rho) - log(below(rho, rho, 0)) + lgamma(a))
    cdef double gamma_a = lgamma(a)
    cdef double u = fr_stitched(level, v), y, part, value, slope, step
    cdef int _k
    for _k in range(60):
        y = u + a
        part = below(a, y, 0)
        value = constant + log(part) - a * log(y) + y - rho - level
        slope = exp((a - 1.0) * log(y) - y - gamma_a) / part - a / y + 1.0
        step = value / slope
        u = u - step if u - step > 0.0 else 0.5 * u
        if fabs(step) <= 1e-13 * u:
            break
    return u
