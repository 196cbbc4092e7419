# cython: cdivision=True
"""Wealth of a gambler who bets that a mean is larger than `floor`, seeing independent rewards in [0, 1].

If the mean is at most `floor`, a bettor who puts the share f of his wealth at stake on every reward,
wealth *= 1 - f + f x / floor, has a nonnegative supermartingale that starts at 1; so has the mean of several bettors.

What a bettor has follows from three sums of the rewards. log(1 - f + f x / floor), as a function of x, has a negative
fourth derivative, so that the cubic through its values at 0 and 1 that touches it at a point inside is nowhere above it
on [0, 1]. The sum of a cubic over the rewards is its sum over any numbers with the same first three moments: here over
`zeros` zeros, `ones` ones and `inner` times the one point inside that their moments ask for. So the wealth of those
rewards is at most the wealth of the true ones, and equal to it where all rewards are 0 and 1: a divergence of Bernoulli
laws then, and second order exact in general, which sees the variance. The log of the wealth is convex in `floor`.
"""

from libc.math cimport INFINITY, exp, fmax, log, log1p

cdef enum:
    MOST_BETS = 16
    BET_SCALES = 6      # half-normal mixtures over f, tightest at scales 2.5 apart

cdef struct ladder_t:                   # the bettors
    int n
    double[MOST_BETS] bet               # f of each, ascending, in (0, 1)
    double[MOST_BETS] lost              # log(1 - f)
    double[MOST_BETS] weight            # share of the first unit of wealth; they add up to 1

cdef struct spread_t:                   # how many zeros, ones and rewards of the size `point` stand for the rewards
    double zeros, inner, ones, point


cdef inline void ladder_init(ladder_t *l) noexcept nogil:
    """Shares .95 / 2^k, and the weights of half-normal mixtures: four of one weight, two for near ties."""
    cdef double scale = 0.8, share = 0.5, norm, total = 0.0, f
    cdef int j, s
    l.n = 10
    f = 0.95
    for j in range(l.n - 1, -1, -1):
        l.bet[j] = f
        l.lost[j] = log1p(-f)
        l.weight[j] = 0.0
        f *= 0.5
    for s in range(BET_SCALES):
        norm = 0.0
        for j in range(l.n):
            norm += l.bet[j] * exp(-0.5 * (l.bet[j] / scale) * (l.bet[j] / scale))
        for j in range(l.n):
            l.weight[j] += share / norm * l.bet[j] * exp(-0.5 * (l.bet[j] / scale) * (l.bet[j] / scale))
        total += share
        scale /= 2.5
        share = 1.0 if s < 3 else 0.5 * share
    for j in range(l.n):
        l.weight[j] /= total


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


cdef inline void set_wins(const ladder_t *l, double floor, double *win) noexcept nogil:
    """What a reward of 1 does to the log wealth of each bettor."""
    cdef int j
    for j in range(l.n):
        win[j] = log(1.0 - l.bet[j] + l.bet[j] / floor)


cdef inline double log_wealth(const ladder_t *l, const spread_t *s, double floor, const double *win,
                              double *slope) noexcept nogil:
    """Log of the mean wealth, and its derivative in `floor`, above 0; `win` is from `set_wins`."""
    cdef double[MOST_BETS] part
    cdef double[MOST_BETS] rise
    cdef double top = -INFINITY, sum = 0.0, share, stake
    cdef int j
    slope[0] = 0.0
    for j in range(l.n):
        part[j] = s.zeros * l.lost[j] + s.ones * win[j]
        rise[j] = s.ones / (floor * (1.0 - l.bet[j]) / l.bet[j] + 1.0)
        if s.inner > 0.0:
            stake = 1.0 - l.bet[j] + l.bet[j] * s.point / floor
            part[j] += s.inner * log(stake)
            rise[j] += s.inner * (l.bet[j] * s.point / floor) / stake
        top = fmax(top, part[j])
    for j in range(l.n):
        share = l.weight[j] * exp(part[j] - top)
        sum += share
        slope[0] -= share * rise[j]
    slope[0] /= sum * floor
    return top + log(sum)


cdef inline double log_hedged(double wealth, double n, double kept, double *slope) noexcept nogil:
    """Log of the wealth of one who keeps a share, and splits the rest among n gamblers, of whom this is one.

    `wealth` is a log; `slope` becomes that of the result.
    """
    cdef double ours = wealth + log((1.0 - kept) / n), rest = log(kept), both
    both = fmax(ours, rest) + log1p(exp(rest - ours if ours > rest else ours - rest))
    slope[0] *= exp(ours - both)
    return both
