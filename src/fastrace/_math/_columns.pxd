# cython: cdivision=True
"""Rewards of one arm of a race on streams whose support is not known: its moments, and what they say of its tails."""

from libc.math cimport INFINITY, fabs, fmax, nextafter

from fastrace._base._types cimport moments4_t
from fastrace._math._anytime cimport t_mixture_half_width
from fastrace._math._moments cimport moments4_add, moments4_skewness, moments4_std, moments4_variance
from fastrace._math._skewness cimport (EVENTS_ENOUGH, constant_rows, stream_varies, tail_end, tail_rows, tail_shift,
                                       value_size)

cdef struct column_t:
    moments4_t moments          # of rewards less the origin
    double origin               # the first reward: a mean far from 0 is then known as well as one near it
    double weight               # square by which the last reward missed the mean of those before it


cdef inline void column_push(column_t *c, double x) noexcept nogil:
    cdef double[4] sums
    if c.moments.n == 0:
        c.origin = x
    sums[0] = x - c.origin
    sums[1] = sums[2] = sums[3] = 0.0
    c.weight = (sums[0] - c.moments.mean) * (sums[0] - c.moments.mean)
    moments4_add(&c.moments, sums, 1)


cdef inline double column_mean(const column_t *c) noexcept nogil:
    return c.origin + c.moments.mean


cdef inline bint column_varies(const column_t *c) noexcept nogil:
    return stream_varies(moments4_std(&c.moments), fabs(column_mean(c)))


cdef inline double column_size(const column_t *c) noexcept nogil:
    """Size of the values that carry its longer tail; 0 of equal values."""
    return value_size(moments4_std(&c.moments), moments4_skewness(&c.moments)) if column_varies(c) else 0.0


cdef inline double column_rows(const column_t *c, double side, double size, double other, double gap) noexcept nogil:
    """Rows to read before a lead is believed, for the right tail of a column that takes part in it, or the left (-1).

    The lead loses `size` at a value of the tail; `other` is the `column_size` of the other column.
    """
    if not column_varies(c):
        return constant_rows(other, gap)
    return tail_rows(side * moments4_skewness(&c.moments), size, gap, c.moments.n)


cdef inline double column_end(const column_t *c, double side, double half_width) noexcept nogil:
    """How far the end of the bracket of a mean is from it, on the right, or on the left (-1), for `half_width` of a
    normal law.
    """
    return tail_end(half_width, moments4_variance(&c.moments, 1.0) / <double>c.moments.n,
                    tail_shift(side * moments4_skewness(&c.moments), c.moments.n, 1.0))


cdef inline double unseen_end(const column_t *c, double other) noexcept nogil:
    """The same of a column whose values have all been equal: a bracket that ends before another begins is then apart
    from it by a lead that is believed. `other` is the largest `column_size` of the columns compared.
    """
    cdef double n = <double>c.moments.n
    return 2.0 * EVENTS_ENOUGH * other / n if n >= constant_rows(0.0, 1.0) else INFINITY


cdef inline void column_brackets(const column_t *columns, const Py_ssize_t *arm, Py_ssize_t n, bint known,
                                 double spread, double level, bint decide, double *lower,
                                 double *upper) noexcept nogil:
    """Brackets of the means of n arms: asymptotic ones if `known`, else infinite. If they `decide` between arms, they
    allow for what columns of equal values hide."""
    cdef Py_ssize_t i
    cdef double count, half, left, right, other = 0.0
    cdef const column_t *c
    for i in range(n if decide else 0):
        other = fmax(other, column_size(&columns[arm[i]]))
    for i in range(n):
        c = &columns[arm[i]]
        count = <double>c.moments.n
        lower[i], upper[i] = -INFINITY, INFINITY
        if known:
            half = t_mixture_half_width(moments4_variance(&c.moments, 1.0) / count, count, count - 1.0, spread, level)
            if decide and not column_varies(c):
                left = right = unseen_end(c, other)
            else:
                left, right = column_end(c, -1.0, half), column_end(c, 1.0, half)
            # Outwards, as far from 0 the width may be lost in rounding.
            lower[i] = nextafter(c.origin + (c.moments.mean - left), -INFINITY)
            upper[i] = nextafter(c.origin + (c.moments.mean + right), INFINITY)


cdef inline void column_means(const column_t *columns, const Py_ssize_t *arm, Py_ssize_t n,
                              double *mean) noexcept nogil:
    """Let n means, given, count from the origin of the largest, so that those of arms far from 0 compare."""
    cdef Py_ssize_t i, best = 0
    for i in range(1, n):
        best = i if mean[i] > mean[best] else best
    for i in range(n):
        mean[i] = columns[arm[i]].origin - columns[arm[best]].origin + columns[arm[i]].moments.mean
