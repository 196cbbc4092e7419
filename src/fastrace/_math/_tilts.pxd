# cython: cdivision=True
"""Wealth of a gambler who bets that a mean is larger than `at`, seeing rewards without bounds.

A bettor of tilt l > 0 multiplies his wealth by exp(l y - l^2 q / 2) at every reward, y = reward - `at`, in units of a
scale. If rewards are sub-Gaussian of that scale, q = 1. If they are symmetric about their mean, of any scale, q = y^2:
for a law symmetric about mu <= `at`, exp(u - u^2 / 2) + exp(v - v^2 / 2) is at most 2 at u = e - d and v = -e - d,
d = `at` - mu >= 0, e >= 0. If u < 0, so is v, and neither term is larger than 1. Else v <= -u <= 0, where
exp(v - v^2 / 2) rises in v, so that the sum is at most 2 exp(-u^2 / 2) cosh(u) <= 2. So the wealth of every bettor is a
nonnegative supermartingale, and so is that of several: the one is a sub-Gaussian mixture, the other is from de la Pena
(1999).

With q = y^2 the wealth falls again far below the rewards, where y is large. There the bettor takes `at` = -1 / l,
counted from a centre that is fixed beforehand, instead: who refutes a larger mean has refuted a smaller one.

Of rewards of any law, the same wealth is asymptotic evidence. Its sum of squares then grows by `tail` for each unit
that the rewards lie above n `at`: a mean so low, if few low rewards carry it, varies more than the rewards seen
(`_skewness.tail_variance`). With it the log wealth of a bettor is still concave from -1 / l on.

The smallest tilts tell means apart that many rewards are needed for. Fewer rewards say nothing for or against them, so
that they count as nothing until there are so many: to leave out what is not negative keeps the promise.
"""

from libc.math cimport INFINITY, exp, fmax, fmin, log

cdef enum:
    TILTS = 48          # the smallest is 1e-9, or less
    FIRST_TILTS = 18    # that are always looked at

cdef struct tilts_t:                    # the bettors
    double[TILTS] tilt                  # descending
    double[TILTS] weight                # share of the first unit of wealth; they add up to 1

cdef struct sums_t:                     # of the rewards less a centre, in units of the scale
    double n, first, second             # how many, their sum, and that of their squares
    double tail                         # 0, but for rewards of any law
    bint symmetric                      # whether q = y^2, or 1


cdef inline void tilts_init(tilts_t *t, double most) noexcept nogil:
    """Tilts most / 1.6^k; those next to 0.08, for arms that differ by a sixth of the scale, have the largest shares.

    Shares fall as the square of the logarithm, so that small tilts cost large ones little.
    """
    cdef double total = 0.0, tilt = most
    cdef int j
    for j in range(TILTS):
        t.tilt[j] = tilt
        t.weight[j] = 1.0 / (1.0 + log(tilt / 0.08) * log(tilt / 0.08))
        total += t.weight[j]
        tilt /= 1.6
    for j in range(TILTS):
        t.weight[j] /= total


cdef inline int n_tilts(const tilts_t *t, double n) noexcept nogil:
    """How many bettors are looked at after n rewards: those of 0.3 standard errors of a mean, and larger."""
    cdef int j = FIRST_TILTS
    while j < TILTS and t.tilt[j] * t.tilt[j] * n > 0.1:
        j += 1
    return j


cdef inline sums_t turned(sums_t s) noexcept nogil:
    """Those of rewards with the other sign."""
    s.first = -s.first
    return s


cdef inline double bettor(const sums_t *s, double tilt, double cut) noexcept nogil:
    """Log wealth of one bettor: linear in `cut`, or level below -1 / tilt and concave above."""
    cdef double here = fmax(cut, -1.0 / tilt), above = s.first - s.n * here, squares
    if s.symmetric:
        squares = s.second - here * (2.0 * s.first - s.n * here)
        if s.tail > 0.0 and above > 0.0:
            squares += s.tail * above
        return tilt * above - 0.5 * tilt * tilt * squares
    return tilt * (s.first - s.n * cut) - 0.5 * tilt * tilt * s.n


cdef inline double log_tilted(const tilts_t *t, const sums_t *s, double a, double b, double *slope) noexcept nogil:
    """A bound from below of the log wealth at cuts in [a, b]: its value in the middle and its slope; exact if a = b.

    Each log wealth is replaced by its chord, or by the smaller end where its level part ends between, so that the bound
    is convex and above its tangents.
    """
    cdef double[TILTS] part
    cdef double[TILTS] rise
    cdef double top = -INFINITY, sum = 0.0, left, right, share
    cdef int j, count = n_tilts(t, s.n)
    for j in range(count):
        left = bettor(s, t.tilt[j], a)
        rise[j] = 0.0
        part[j] = left
        if b > a:
            right = bettor(s, t.tilt[j], b)
            if s.symmetric and a < -1.0 / t.tilt[j] < b:
                part[j] = fmin(left, right)
            else:
                part[j] = 0.5 * (left + right)
                rise[j] = (right - left) / (b - a)
        elif s.symmetric:
            if a > -1.0 / t.tilt[j]:
                rise[j] = -t.tilt[j] * s.n + t.tilt[j] * t.tilt[j] * (s.first - s.n * a)
                if s.tail > 0.0 and s.first > s.n * a:
                    rise[j] += 0.5 * t.tilt[j] * t.tilt[j] * s.n * s.tail
        else:
            rise[j] = -t.tilt[j] * s.n
        top = fmax(top, part[j])
    slope[0] = 0.0
    for j in range(count):
        share = t.weight[j] * exp(part[j] - top)
        sum += share
        slope[0] += share * rise[j]
    slope[0] /= sum
    return top + log(sum)


cdef inline double log_beyond(const tilts_t *t, const sums_t *s, double cut) noexcept nogil:
    """A bound from below of the log wealth at all cuts up to `cut`; it falls in `cut`."""
    cdef double[TILTS] part
    cdef double top = -INFINITY, sum = 0.0
    cdef int j, count = n_tilts(t, s.n)
    if not s.symmetric and cut == -INFINITY:
        return INFINITY if s.n > 0.0 else 0.0
    for j in range(count):
        part[j] = bettor(s, t.tilt[j], cut)
        if s.symmetric:
            part[j] = fmin(part[j], bettor(s, t.tilt[j], -1.0 / t.tilt[j]))
        top = fmax(top, part[j])
    for j in range(count):
        sum += t.weight[j] * exp(part[j] - top)
    return top + log(sum)
