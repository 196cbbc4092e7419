# cython: cdivision=True
"""Boosting by filtering: who passes the filter, when to give up, and brackets of an edge.

The edge of a hypothesis h is the mean of z = 1[h(x) = y] - 1/2, in [-1/2, 1/2]; `wins` counts h(x) = y, so that the
chance of a win is the edge plus 1/2. `log_inv_delta` is log(1 / delta) of one hypothesis.
"""

from libc.math cimport ceil, exp, fabs, log, log1p
from libc.stdint cimport int64_t

cdef enum:
    LOWER
    UPPER

cdef struct edge_bets_t:        # TargetEB on a stream of wins and losses
    double wins                 # as of the last look
    double low, high            # bracket of the chance of a win
    double[2] weight, centre, spent


cdef inline double acceptance(double margin) noexcept nogil:
    """Share of examples with y F(x) = `margin` that pass the filter: the logistic weight."""
    return 1.0 / (1.0 + exp(min(max(margin, -50.0), 50.0)))


cdef inline double filter_limit(double epsilon, double log_inv_delta, int64_t call) noexcept nogil:
    """Rejections in a row after which an error above epsilon is refuted; Bradley & Schapire (2008), with a union
    over the calls of the filter by delta / (r (r + 1))."""
    return ceil(2.0 / epsilon * (log_inv_delta + log(<double>call) + log1p(<double>call)))


cdef inline double telescope(int64_t k, double log_inv_delta) noexcept nogil:
    """log(1 / d_k) of d_k = delta / (k (k + 1)), whose sum is delta."""
    return log_inv_delta + log(<double>k) + log1p(<double>k)


cdef inline void edge_bets_clear(edge_bets_t *bets) noexcept nogil:
    cdef int side
    bets.wins = 0.0
    bets.low = 0.0
    bets.high = 1.0
    for side in range(2):
        bets.weight[side] = bets.centre[side] = bets.spent[side] = 0.0


cdef inline double gamma_cost(double x) noexcept nogil:
    """-log(1 - x) - x, without loss of digits for small x."""
    if x < 1e-4:
        return x * x * (0.5 + x * (1.0 / 3.0 + 0.25 * x))
    return -log1p(-x) - x


cdef inline void edge_bets_push(edge_bets_t *bets, int64_t before, int64_t n, double wins, double tau,
                                double log_inv_delta) noexcept nogil:
    """Trials `before` + 1 .. n, after which there are `wins` of them; bets were placed at `before`, so they are
    predictable, and aim at a half-width of tau times the edge seen then."""
    cdef double mean = (0.5 + bets.wins) / <double>(before + 1)
    cdef double variance = mean * (1.0 - mean)
    cdef double wanted = max(tau * fabs(mean - 0.5), 1e-12)
    cdef double won = wins - bets.wins
    cdef double lost = <double>(n - before) - won
    cdef double squares = won * (1.0 - mean) * (1.0 - mean) + lost * mean * mean
    cdef double scale, stake, threshold = log(2.0) + log_inv_delta
    cdef int side
    for side in range(2):
        scale = mean if side == LOWER else 1.0 - mean
        stake = min(wanted / (variance + scale * wanted), 0.9 / scale)
        bets.weight[side] += stake * (won + lost)
        bets.centre[side] += stake * won
        bets.spent[side] += squares * gamma_cost(stake * scale) / (scale * scale)
    bets.wins = wins
    bets.low = max(bets.low, (bets.centre[LOWER] - threshold - bets.spent[LOWER]) / bets.weight[LOWER])
    bets.high = min(bets.high, (bets.centre[UPPER] + threshold + bets.spent[UPPER]) / bets.weight[UPPER])
