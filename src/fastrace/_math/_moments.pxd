# cython: cdivision=True
"""Means and sums of powers of deviations: one value at a time, in blocks, merged."""

from libc.math cimport NAN, sqrt
from libc.stdint cimport int64_t

from fastrace._base._types cimport moments4_t, moments_t
from fastrace._math._simd cimport fr_centred, fr_moments4, fr_moments4_difference

# Two passes over a block of this many doubles stay in the first-level cache; half of it for pairs of blocks.
cdef enum:
    MOMENTS_BLOCK = 1024
    MOMENTS_PAIR_BLOCK = 512


# moments_t with mean and m2 as unevaluated sums of two doubles. At a mean of 1e9 a rounded mean is off by 1e-7, which
# costs every merge nine digits of its small step; and 10^9 additions of like rounding may drift. Zeroed, it is empty.
cdef struct running_t:
    int64_t n
    double mean
    double mean_low
    double m2
    double m2_low


cdef inline double two_sum(double a, double b, double *low) noexcept nogil:
    """a + b rounded, its error in `low`; Knuth (1969)."""
    cdef double total = a + b
    cdef double part = total - a
    low[0] = (a - (total - part)) + (b - part)
    return total


cdef inline void running_push(running_t *m, double x) noexcept nogil:
    """Welford (1962)."""
    cdef double low = 0.0
    cdef double step = (x - m.mean) - m.mean_low
    m.n += 1
    m.mean = two_sum(m.mean, step / <double>m.n, &low)
    m.mean_low += low
    m.m2 = two_sum(m.m2, step * ((x - m.mean) - m.mean_low), &low)
    m.m2_low += low


cdef inline void running_add(running_t *m, double n, double mean, double mean_low, double m2,
                             double m2_low) noexcept nogil:
    """Chan, Golub & LeVeque (1979), but for the count."""
    cdef double total = <double>m.n + n, low = 0.0
    cdef double step = (mean - m.mean) + (mean_low - m.mean_low)
    m.m2 = two_sum(m.m2, m2, &low)
    m.m2_low += low + m2_low
    m.m2 = two_sum(m.m2, step * (step * (<double>m.n * (n / total))), &low)
    m.m2_low += low
    if <double>m.n >= n:
        m.mean = two_sum(m.mean, step * (n / total), &low)
        m.mean_low += low
    else:                       # from the heavier side, so that what is empty or light costs no digits
        m.mean_low = mean_low - step * (<double>m.n / total)
        m.mean = two_sum(mean, m.mean_low, &low)
        m.mean_low = low


cdef inline void running_merge(running_t *into, const running_t *other) noexcept nogil:
    if other.n > 0:
        running_add(into, <double>other.n, other.mean, other.mean_low, other.m2, other.m2_low)
        into.n += other.n


cdef inline void running_extend(running_t *m, const double *x, Py_ssize_t n) noexcept nogil:
    """Blocks of two passes, merged."""
    cdef double block[3]
    cdef Py_ssize_t start = 0, count
    while start < n:
        count = min(<Py_ssize_t>MOMENTS_BLOCK, n - start)
        fr_centred(x + start, count, block)
        running_add(m, <double>count, block[0], block[1], block[2], 0.0)
        m.n += count
        start += count


cdef inline double running_variance(const running_t *m, double ddof) noexcept nogil:
    """nan when n <= ddof."""
    if <double>m.n <= ddof:
        return NAN
    return max(m.m2 + m.m2_low, 0.0) / (<double>m.n - ddof)


cdef inline void moments_extend(moments_t *m, const double *x, Py_ssize_t n) noexcept nogil:
    """Blocks of two passes, merged; rounded once, at the end."""
    cdef running_t run
    run.n = m.n
    run.mean = m.mean
    run.mean_low = 0.0
    run.m2 = m.m2
    run.m2_low = 0.0
    running_extend(&run, x, n)
    m.n = run.n
    m.mean = run.mean + run.mean_low
    m.m2 = run.m2 + run.m2_low


cdef inline double moments_variance(const moments_t *m, double ddof) noexcept nogil:
    """nan when n <= ddof."""
    return m.m2 / (<double>m.n - ddof) if <double>m.n > ddof else NAN


cdef inline void moments4_merge(moments4_t *into, const moments4_t *other) noexcept nogil:
    """Pebay (2008), equations 2.1 and on."""
    cdef double a, b, n, step, share, square
    if other.n == 0:
        return
    if into.n == 0:
        into[0] = other[0]
        return
    a = <double>into.n
    b = <double>other.n
    n = a + b
    step = other.mean - into.mean
    share = step / n
    square = share * share
    into.m4 += (other.m4 + step * a * b * share * square * (a * a - a * b + b * b)
                + 6.0 * square * (a * a * other.m2 + b * b * into.m2) + 4.0 * share * (a * other.m3 - b * into.m3))
    into.m3 += other.m3 + step * a * b * square * (a - b) + 3.0 * share * (a * other.m2 - b * into.m2)
    into.m2 += other.m2 + step * a * b * share
    into.mean += share * b
    into.n += other.n


cdef inline void moments4_add(moments4_t *m, const double *sums, Py_ssize_t n) noexcept nogil:
    """Add what fr_moments4 says of n values."""
    cdef moments4_t block
    block.n = n
    block.mean = sums[0]
    block.m2 = sums[1]
    block.m3 = sums[2]
    block.m4 = sums[3]
    moments4_merge(m, &block)


cdef inline void moments4_extend(moments4_t *m, const double *x, Py_ssize_t n) noexcept nogil:
    """Blocks of two passes, merged."""
    cdef double sums[4]
    cdef Py_ssize_t start = 0, count
    while start < n:
        count = min(<Py_ssize_t>MOMENTS_BLOCK, n - start)
        fr_moments4(x + start, count, sums)
        moments4_add(m, sums, count)
        start += count


cdef inline void moments4_extend_difference(moments4_t *m, const double *x, const double *y,
                                            Py_ssize_t n) noexcept nogil:
    """The same of x - y, which is never stored."""
    cdef double sums[4]
    cdef Py_ssize_t start = 0, count
    while start < n:
        count = min(<Py_ssize_t>MOMENTS_PAIR_BLOCK, n - start)
        fr_moments4_difference(x + start, y + start, count, sums)
        moments4_add(m, sums, count)
        start += count


cdef inline double moments4_variance(const moments4_t *m, double ddof) noexcept nogil:
    """nan when n <= ddof."""
    return max(m.m2, 0.0) / (<double>m.n - ddof) if <double>m.n > ddof else NAN


cdef inline double moments4_std(const moments4_t *m) noexcept nogil:
    """Divisor n."""
    return sqrt(moments4_variance(m, 0.0))


cdef inline double moments4_skewness(const moments4_t *m) noexcept nogil:
    """g1 of the values themselves, no correction for a sample; nan when they do not vary."""
    if not m.m2 > 0.0:
        return NAN
    return m.m3 / m.m2 * sqrt(<double>m.n / m.m2)


cdef inline double moments4_kurtosis(const moments4_t *m) noexcept nogil:
    """Excess g2 of the values themselves; nan when they do not vary."""
    if not m.m2 > 0.0:
        return NAN
    return m.m4 / m.m2 * (<double>m.n / m.m2) - 3.0
