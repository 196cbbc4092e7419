# cython: cdivision=True
"""Wealth of a gambler who bets that a mean is larger than `floor`, seeing independent rewards in [0, 1].

A bettor of log odds u > 0 multiplies his wealth by (1 - x + x exp(u)) / (1 - floor + floor exp(u)) at every reward x.
If the mean is at most `floor`, that is a nonnegative supermartingale that starts at 1; so is the mean of several. The
same u suits means near .5, .05 and .005 whose odds differ from those of the floor by the same ratio.

What a bettor has follows from three sums of the rewards. log(1 - x + x exp(u)), as a function of x, has a negative
fourth derivative, so that the cubic through its values at 0 and 1 that touches it at a point inside is nowhere above it
on [0, 1]. The sum of a cubic over the rewards is its sum over any numbers with the same first three moments: here over
`zeros` zeros, `ones` ones and `inner` times the one point inside that their moments ask for. So the wealth of those
rewards is at most the wealth of the true ones, and equal to it where all rewards are 0 and 1: a divergence of Bernoulli
laws then, and second order exact in general, which sees the variance. The log of the wealth is convex in `floor`.

The smallest differences ask for log odds far below 1 / n of n rewards, which say nothing yet of larger ones. Such a
bettor has at least 1 - (exp(u) - 1) n of what he began with, whatever the rewards were, and counts as that: the work of
n rewards grows as log(n), and no bettor has to come in later, with a share that the others would have to give.
"""

from libc.math cimport INFINITY, exp, expm1, fmax, log, log1p, pow

cdef enum:
    MOST_BETS = 40      # the smallest log odds are 3e-11: they would tell means apart that differ by a third of it
    BET_SCALES = 26     # half-normal mixtures over u, tightest at scales 2.5 apart
    NEGLIGIBLE = 40     # log of what a bettor's wealth is below the largest by when it is left out

cdef struct ladder_t:                   # the bettors
    double[MOST_BETS] odds              # u of each, descending
    double[MOST_BETS] gain              # exp(u) - 1
    double[MOST_BETS] weight            # share of the first unit of wealth; they add up to 1
    double[MOST_BETS + 1] rest          # what this one and all with smaller odds have of it,
    double[MOST_BETS + 1] pace          # and the most of it that one reward can take away

cdef struct spread_t:                   # how many zeros, ones and rewards of the size `point` stand for the rewards
    double zeros, inner, ones, point


cdef inline double scale_share(int s) noexcept nogil:
    """Of the s-th scale: most for differences of means as one looks for, the rest as s^-1.5, which ends nowhere."""
    if s < 3:
        return 0.05 * <double>(1 << s)
    return 0.6 * pow(<double>(s - 5), -1.5) if s > 5 else 0.6 if s == 3 else 1.0


cdef inline void ladder_init(ladder_t *l) noexcept nogil:
    """Log odds 16 / 2^k, and the weights of half-normal mixtures of scales 15 / 2.5^s."""
    cdef double scale = 15.0, share, norm, total = 0.0, u = 16.0
    cdef int j, s
    for j in range(MOST_BETS):
        l.odds[j] = u
        l.gain[j] = expm1(u)
        l.weight[j] = 0.0
        u *= 0.5
    for s in range(BET_SCALES):
        norm = 0.0
        share = scale_share(s)
        for j in range(MOST_BETS):
            norm += l.odds[j] * exp(-0.5 * (l.odds[j] / scale) * (l.odds[j] / scale))
        for j in range(MOST_BETS):
            l.weight[j] += share / norm * l.odds[j] * exp(-0.5 * (l.odds[j] / scale) * (l.odds[j] / scale))
        total += share
        scale /= 2.5
    l.rest[MOST_BETS] = l.pace[MOST_BETS] = 0.0
    for j in range(MOST_BETS - 1, -1, -1):
        l.weight[j] /= total
        l.rest[j] = l.rest[j + 1] + l.weight[j]
        l.pace[j] = l.pace[j + 1] + l.weight[j] * l.gain[j]


cdef inline int n_awake(const ladder_t *l, double n) noexcept nogil:
    """How many bettors are looked at after n rewards; the odds ratios of the others are at most 1 + 1 / n."""
    cdef int j = 0
    while j < MOST_BETS and l.gain[j] * n > 1.0:
        j += 1
    return j


cdef inline spread_t spread_of(double n, double total, double first, double second) noexcept nogil:
    """From the number of rewards, and their sums of x, x (1 - x) and x^2 (1 - x)."""
    cdef spread_t s
    s.inner = 0.0
    s.ones = total
    s.point = second / first if first > 1e-12 * n else 0.0
    if 1e-9 < s.point < 1.0 - 1e-9:
        s.inner = first / (s.point * (1.0 - s.point))
        s.ones = fmax(total - first / (1.0 - s.point), 0.0)
    else:
        s.point = 0.5
    s.zeros = fmax(n - s.inner - s.ones, 0.0)
    return s


cdef inline spread_t mirrored(spread_t s) noexcept nogil:
    """That of 1 - x."""
    cdef spread_t m
    m.zeros = s.ones
    m.ones = s.zeros
    m.inner = s.inner
    m.point = 1.0 - s.point
    return m


cdef inline void set_tolls(const ladder_t *l, double floor, int first, int end, double *toll) noexcept nogil:
    """What every reward costs the log wealth of the bettors from `first` up to `end`."""
    cdef int j
    for j in range(first, end):
        toll[j] = log1p(floor * l.gain[j])


cdef inline double log_wealth(const ladder_t *l, const spread_t *s, double floor, int awake, const double *toll,
                              double *slope) noexcept nogil:
    """Log of the mean wealth, and its derivative in `floor`, above 0; `toll` is that of `set_tolls`."""
    cdef double[MOST_BETS] part
    cdef double n = s.zeros + s.inner + s.ones, top = 0.0, sum, share
    cdef int j
    for j in range(awake):
        part[j] = s.ones * l.odds[j] - n * toll[j]
        if s.inner > 0.0:
            part[j] += s.inner * log1p(s.point * l.gain[j])
        top = fmax(top, part[j])
    sum = fmax(l.rest[awake] - l.pace[awake] * n, 0.0) * exp(-top)
    slope[0] = 0.0
    for j in range(awake):
        if part[j] > top - NEGLIGIBLE:
            share = l.weight[j] * exp(part[j] - top)
            sum += share
            slope[0] -= share * n * l.gain[j] / (1.0 + floor * l.gain[j])
    slope[0] /= sum
    return top + log(sum)


cdef inline double log_hedged(double wealth, double n, double kept, double *slope) noexcept nogil:
    """Log of the wealth of one who keeps a share, and splits the rest among n gamblers, of whom this is one.

    `wealth` is a log; `slope` becomes that of the result.
    """
    cdef double ours = wealth + log((1.0 - kept) / n), rest = log(kept), both
    both = fmax(ours, rest) + log1p(exp(rest - ours if ours > rest else ours - rest))
    slope[0] *= exp(ours - both)
    return both
