# cython: cdivision=True
"""Half-widths of confidence intervals, one function per formula; one-sided unless said.

`log_inv_delta` is log(1 / delta), since shares of delta underflow long before their logarithms do. `n` rewards have
been read, of `n_rows` in the population; all arithmetic is in double, so counts up to 2^62 do not overflow. `span` is
the width of an interval that holds every reward; `std` has divisor n.
"""

from libc.float cimport DBL_EPSILON
from libc.math cimport INFINITY, M_PI, M_SQRT1_2, erfc, exp, fabs, isnan, log, log1p, sqrt
from libc.stdint cimport int64_t

cdef enum:
    MILLS_TERMS = 40        # of the continued fraction; from 5 on, it is then exact to rounding


# Factors of sampling without replacement: 0 when all rows have been read.

cdef inline double variance_factor(int64_t n, int64_t n_rows) noexcept nogil:
    """Variance of the mean of n rows over that of one row: (1/n) (1 - (n-1) / (N-1))."""
    if n >= n_rows:
        return 0.0
    return <double>(n_rows - n) / <double>(n_rows - 1) / <double>n


cdef inline double serfling_factor(int64_t n, int64_t n_rows) noexcept nogil:
    """rho_n of Bardenet & Maillard (2015), eq. 10: what reading without replacement saves."""
    if n >= n_rows:
        return 0.0
    if n <= n_rows - n:
        return <double>(n_rows - n + 1) / <double>n_rows
    return <double>(n_rows - n) / <double>n_rows * (1.0 + 1.0 / <double>n)


cdef inline double onwards_factor(int64_t n, int64_t n_rows) noexcept nogil:
    """The same for the empirical Bernstein bound at all times from n rows on; see `_rule.look_onwards`."""
    if n <= n_rows - n:
        return 1.0
    return <double>(n_rows - n) / <double>n


# A support as it is enforced: rewards that are computed may miss its ends by rounding.

cdef inline double lower_end(double low, double high) noexcept nogil:
    return low - 1e-11 * max(fabs(low), fabs(high)) if high < INFINITY else low


cdef inline double upper_end(double low, double high) noexcept nogil:
    return high + 1e-11 * max(fabs(low), fabs(high)) if low > -INFINITY else high


cdef inline double stream_slack(double low, double high) noexcept nogil:
    """The same for rules that scale rewards to [0, 1]; also what may be rounding between two bounds of a mean."""
    return 1e-12 * (high - low)


cdef inline double tie_width(double low, double high) noexcept nogil:
    """How far the mean of a population that was read in full may lie from a threshold by rounding alone."""
    return 1e-12 * (high - low) + DBL_EPSILON * max(fabs(low), fabs(high))


# Rigorous bounds.

cdef inline double hoeffding(int64_t n, double log_inv_delta, double span) noexcept nogil:
    """Hoeffding (1963), Thm 2; with and without replacement."""
    return span * sqrt(log_inv_delta / (2.0 * n))


cdef inline double empirical_bernstein(int64_t n, double std, double log_inv_delta, double span) noexcept nogil:
    """Empirical Bernstein, two-sided; Audibert, Munos & Szepesvari (2007), Thm 1."""
    cdef double x = log(3.0) + log_inv_delta
    return std * sqrt(2.0 * x / n) + 3.0 * span * x / n


cdef inline double empirical_bernstein_within(double share, double m2, double x, double span) noexcept nogil:
    """The same at once for all n of an interval [first, last], with x = (last / first) log(3 / delta).

    Mnih, Szepesvari & Audibert (2008), eq. 5. `m2` is the sum of squared deviations from the mean of n rewards, and
    `share` is 1 / n. _stop.c repeats this for blocks, operation for operation.
    """
    return (sqrt(2.0 * x * m2) + 3.0 * span * x) * share


cdef inline double hoeffding_serfling(int64_t n, int64_t n_rows, double log_inv_delta, double span) noexcept nogil:
    """Bardenet & Maillard (2015), Cor. 2.5."""
    return span * sqrt(serfling_factor(n, n_rows) * log_inv_delta / (2.0 * n))


cdef inline double empirical_bernstein_serfling(int64_t n, int64_t n_rows, double std, double log_inv_delta,
                                                double span) noexcept nogil:
    """Bardenet & Maillard (2015), Thm 4.3; 0 when all rows have been read, where the formula is not."""
    cdef double x = log(5.0) + log_inv_delta
    if n >= n_rows:
        return 0.0
    return std * sqrt(2.0 * serfling_factor(n, n_rows) * x / n) + (7.0 / 3.0 + 3.0 * M_SQRT1_2) * span * x / n


# Normal approximation.

cdef inline double normal(int64_t n, int64_t n_rows, double std, double quantile) noexcept nogil:
    """Chen & Ghahramani (2016), eq. 9, with `quantile` their B."""
    if n >= n_rows:
        return 0.0
    return quantile * std * sqrt(variance_factor(n, n_rows))


cdef inline double inverse_mills(double x) noexcept nogil:
    """Hazard of the standard normal, density over upper tail, without overflow or underflow."""
    cdef double ratio
    cdef int k
    if x < 5.0:
        return exp(-0.5 * x * x) / (sqrt(0.5 * M_PI) * erfc(x * M_SQRT1_2))
    ratio = x
    for k in range(MILLS_TERMS, 0, -1):
        ratio = x + k / ratio
    return ratio


cdef inline double log_normal_tail(double x) noexcept nogil:
    """log P(Z > x) for a standard normal Z, for any x."""
    if x < 5.0:
        return log1p(-0.5 * erfc(-x * M_SQRT1_2)) if x < 0.0 else log(0.5 * erfc(x * M_SQRT1_2))
    return -0.5 * x * x - 0.5 * log(2.0 * M_PI) - log(inverse_mills(x))


cdef inline double normal_upper_quantile(double log_tail) noexcept nogil:
    """The x >= 0 with log P(Z > x) = log_tail; 0 from 1/2 on. Newton's rule: monotone, as the log tail is concave."""
    cdef double x, step
    cdef int _k
    if isnan(log_tail) or log_tail > -0.6931471805599453:
        return 0.0 if not isnan(log_tail) else log_tail
    if log_tail == -INFINITY:
        return INFINITY
    x = sqrt(-2.0 * log_tail)
    for _k in range(60):
        step = (log_normal_tail(x) - log_tail) / inverse_mills(x)
        x += step
        if fabs(step) <= 1e-15 * x:
            break
    return x if x > 0.0 else 0.0


# What a second-order expansion leaves.

cdef inline double cubic_move(double before, double after) noexcept nogil:
    """By how much the residual of a row can change, per bound on its third derivative.

    `before` and `after` are how far its predictor is from that at the point of expansion. As |R'(a)| <= M3 a^2 / 2, the
    way from one to the other adds up to M3 |after^3 - before^3| / 6, whether or not it leads through 0.
    """
    return fabs(after * after * after - before * before * before) / 6.0


cdef inline double cubic_change(double before, double both, double after, double step) noexcept nogil:
    """By how much the residual of a row of weight 1 can change between two points.

    `before` and `after` are |w|^2 of the points as seen from the point of expansion, `both` is their product w0 . w1,
    `step` is |w1 - w0|^2. With M3 |x|^3 a row's weight, the residual R(a), a = x . w, has |R'(a)| <= M3 a^2 / 2.
    Along the way from w0 to w1 that adds up to M3 |x|^3 |w1 - w0| (|w0|^2 + w0 . w1 + |w1|^2) / 6; by way of 0 to
    M3 |x|^3 (|w0|^3 + |w1|^3) / 6.
    """
    cdef double straight = sqrt(step) * (before + both + after)
    cdef double by_hat = before * sqrt(before) + after * sqrt(after)
    return (straight if straight < by_hat else by_hat) / 6.0 * (1.0 + 1e-9)
