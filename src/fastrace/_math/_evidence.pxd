# cython: cdivision=True
"""The inverse of half-widths: how small delta may be for a lead to be believed."""

from libc.math cimport INFINITY, log, sqrt
from libc.stdint cimport int64_t

from fastrace._math._bounds cimport empirical_bernstein_serfling, hoeffding_serfling, serfling_factor
from fastrace._math._rule cimport EMPIRICAL_BERNSTEIN_SERFLING, HOEFFDING_SERFLING, SERFLING


cdef inline double look_evidence(int bound, int64_t n, int64_t n_rows, double std, double span,
                                 double lead) noexcept nogil:
    """log(1 / delta) at which the half-width of a Serfling bound at a look equals this lead; 0 where there is none."""
    cdef double a, b, root, best = 0.0
    if not lead > 0.0:
        return 0.0
    if n >= n_rows:
        return INFINITY
    if bound != EMPIRICAL_BERNSTEIN_SERFLING:
        a = hoeffding_serfling(n, n_rows, 1.0, span)
        best = (lead / a) * (lead / a)
    if bound != HOEFFDING_SERFLING:         # a sqrt(x) + b x = lead, with x = log(5 / delta)
        a = std * sqrt(2.0 * serfling_factor(n, n_rows) / n)
        b = empirical_bernstein_serfling(n, n_rows, 0.0, 1.0 - log(5.0), span)
        root = 2.0 * lead / (a + sqrt(a * a + 4.0 * b * lead))
        best = max(best, root * root - log(5.0))
    return max(best - (log(2.0) if bound == SERFLING else 0.0), 0.0)
