# cython: cdivision=True
"""When to look at the bounds, and what share of delta a look may spend."""

from libc.math cimport M_E, ceil, floor, log, pow, sqrt
from libc.stdint cimport int64_t


cdef inline int64_t next_look(int64_t n, int64_t n_rows, int64_t first_look, double growth) noexcept nogil:
    """Rows read at the look after the one at n; 0 gives the first. The last look reads all n_rows."""
    cdef double target
    if n <= 0:
        return first_look if first_look < n_rows else n_rows
    if n >= n_rows - 1:
        return n_rows
    target = floor(growth * <double>n)
    if target >= <double>n_rows:
        return n_rows
    return <int64_t>target if target > <double>(n + 1) else n + 1


cdef inline double log_inv_look_delta(int64_t look, double log_inv_delta, double power) noexcept nogil:
    """log(1 / delta_k) of look k = 1, 2, ...: delta_k = delta (p-1) / (p k^p), whose sum is at most delta.

    For an unknown number of looks; Mnih, Szepesvari & Audibert (2008), Bardenet, Doucet & Holmes (2014).
    """
    return log_inv_delta + log(power / (power - 1.0)) + power * log(<double>look)


cdef inline double log_inv_telescoping_delta(double look, double log_inv_delta) noexcept nogil:
    """log(1 / delta_k) with delta_k = delta / (k (k+1)), whose sum is delta; Domingo, Gavalda & Watanabe (2002)."""
    return log_inv_delta + log(look) + log(look + 1.0)


# Intervals {floor(beta^(k-1)) + 1, ..., floor(beta^k)} of a geometric grid; Mnih, Szepesvari & Audibert (2008), Alg. 3.

cdef inline double geometric_end(double k, double beta) noexcept nogil:
    """The last t of interval k."""
    return floor(pow(beta, k))


cdef inline double geometric_index(double t, double beta) noexcept nogil:
    """The first k with t <= floor(beta^k); intervals that hold no t are passed over in one step."""
    cdef double k = floor(log(t) / log(beta))
    cdef double step = max(1.0, ceil(k * 2.220446049250313e-16))      # for a beta that is next to 1, k passes 2^53
    while k > 0.0 and geometric_end(k - step, beta) >= t:
        k -= step
    while geometric_end(k, beta) < t:
        k += step
    return k


cdef enum:                      # when the interval of a rule is looked at
    ONCE                        # only at a number of rewards known beforehand
    EVERY                       # after every reward, a share of delta for each t
    GEOMETRIC                   # after every reward, a share of delta for each interval of a geometric grid

cdef struct spending_t:
    int schedule
    bint telescoping            # shares delta / (k (k+1)), else like 1 / k^power
    double beta, power
    double log_inv_delta        # of delta over the number of failures that a half-width counts


cdef inline double log_inv_share(const spending_t *how, double k) noexcept nogil:
    """log(1 / d_k) of share k."""
    if how.telescoping:
        return log_inv_telescoping_delta(k, how.log_inv_delta)
    return log_inv_look_delta(<int64_t>k, how.log_inv_delta, how.power)


cdef inline void spend(const spending_t *how, double t, double *end, double *x) noexcept nogil:
    """Set the x that enters the half-width at t, and the last t that it serves; eq. (5) of Mnih et al. (2008)."""
    cdef double k
    if how.schedule == EVERY:
        x[0] = log_inv_share(how, t)
    elif how.schedule == GEOMETRIC and t > end[0]:
        k = geometric_index(t, how.beta)
        end[0] = geometric_end(k, how.beta)
        x[0] = end[0] / geometric_end(k - 1.0, how.beta) * log_inv_share(how, k)


cdef inline double next_on_grid(double t, double beta, double *k) noexcept nogil:
    """The place of the first test after t on the grid floor(beta^(k-1)), whose number goes to k."""
    k[0] = geometric_index(t + 1.0, beta) + 1.0
    return geometric_end(k[0] - 1.0, beta)


# Sample sizes of Dagum, Karp, Luby & Ross (2000) for rewards in [0, 1], by log(1 / delta).

cdef inline double upsilon(double epsilon, double log_inv_delta) noexcept nogil:
    """Rewards that settle a mean near 1 to a relative accuracy."""
    return 4.0 * (M_E - 2.0) * (log(2.0) + log_inv_delta) / (epsilon * epsilon)


cdef inline double upsilon_sum(double epsilon, double log_inv_delta) noexcept nogil:
    """Their Upsilon_1: the sum at which the stopping rule algorithm ends."""
    return 1.0 + (1.0 + epsilon) * upsilon(epsilon, log_inv_delta)


cdef inline double upsilon_final(double epsilon, double log_inv_delta) noexcept nogil:
    """Their Upsilon_2, for the last two steps of AA; the bracket carries log(2 / delta) over to log(3 / delta)."""
    cdef double root = sqrt(epsilon)
    return (2.0 * (1.0 + root) * (1.0 + 2.0 * root) * (1.0 + log(1.5) / (log(2.0) + log_inv_delta))
            * upsilon(epsilon, log_inv_delta))
