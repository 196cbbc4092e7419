# cython: cdivision=True
"""Wealth of a gambler who bets against mean(d) <= 0, seeing a finite population without replacement.

If mean(d) <= 0 and the n_rows values d are seen in uniform random order, the wealth is a nonnegative supermartingale
that starts at 1, so P(it ever reaches 1 / alpha) <= alpha, whatever the looks and whatever made one stop (Ville). The
martingale without replacement is that of Waudby-Smith & Ramdas (2020). Several bettors play at once, each with its own
guess of the standardised mean, and the wealth is their weighted sum: any fixed or predictable bets keep the promise.
"""

from libc.math cimport fabs, log, pow, sqrt
from libc.stdint cimport int64_t

cdef enum:
    MAX_BETS = 24       # a multiple of BET_LANES; reaches sizes of 2^50 rows, more than anyone reads
    BET_LANES = 8       # bettors are updated, and their wealth summed, in lanes of fixed order
    BET_FOLD = 16       # rewards between two rescalings, counted from the first reward of the stream
    BET_BLOCK = 128     # rewards whose differences are formed at once
    BET_DELAY = 8       # rewards seen before the first bet

cdef struct bets_t:                 # the bettors for a population of n_rows
    int count
    double gap[MAX_BETS]            # standardised mean a bettor is best at
    double weight[MAX_BETS]         # its share of the first unit of wealth

cdef struct wealth_t:
    int64_t n                       # rewards seen
    double total                    # their sum, rewards since the last rescaling aside
    double carry                    # what rounding took from `total` (Neumaier)
    double recent                   # sum since the last rescaling
    double first                    # the first reward, subtracted in the sums below to limit cancellation
    double deviation
    double square
    double largest                  # largest absolute value among the rewards and the bound
    double wealth[MAX_BETS]         # each bettor's wealth, its weight included, over exp(scale)
    double scale
    double peak                     # largest log of the wealth after any reward so far, at least 0
    bint impossible                 # no values within the support could bring the mean down to 0 any more


cdef inline void bets_init(bets_t *bets, int64_t n_rows) noexcept nogil:
    """Sizes 16, 64, 256, ... < n_rows, each with the gap that a test at level 0.01 detects after that many rows.

    The weights grow with size^0.4. With at most 16 rows nobody bets: only reading all, or `impossible`, decides.
    """
    cdef double size = 16.0, sum_of_weights = 0.0
    cdef int k
    bets.count = 0
    for k in range(MAX_BETS):
        bets.gap[k] = 0.0
        bets.weight[k] = 0.0
    while bets.count < MAX_BETS and size < <double>n_rows:
        bets.gap[bets.count] = sqrt(2.0 * log(100.0) * (1.0 / size - 1.0 / <double>n_rows))
        bets.weight[bets.count] = pow(size, 0.4)
        sum_of_weights += bets.weight[bets.count]
        bets.count += 1
        size *= 4.0
    for k in range(bets.count):
        bets.weight[k] /= sum_of_weights


cdef inline void wealth_init(wealth_t *w) noexcept nogil:
    cdef int k
    w.n = 0
    w.total = w.carry = w.recent = w.first = w.deviation = w.square = w.largest = w.scale = w.peak = 0.0
    w.impossible = False
    for k in range(MAX_BETS):
        w.wealth[k] = 0.0


cdef inline double _summed(const double *lane) noexcept nogil:
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]))


cdef inline double _mixture(const double *wealth, int width) noexcept nogil:
    cdef double lane[BET_LANES]
    cdef int j, k
    for k in range(BET_LANES):
        lane[k] = wealth[k]
    for j in range(8, width, 8):
        for k in range(BET_LANES):
            lane[k] += wealth[j + k]
    return _summed(lane)


cdef inline void wealth_extend(wealth_t *w, const bets_t *bets, const double *x, const double *y, double shift,
                               Py_ssize_t n, double low, int64_t n_rows) noexcept nogil:
    """Bet on the rewards x[i] - y[i] + shift, in order; NULL stands for zeros. Finite rewards, not below `low`.

    The state after n rewards does not depend on how they were cut into calls.
    """
    cdef double size = <double>n_rows, seen = <double>w.n
    cdef double before = w.total + w.carry, recent = w.recent
    cdef double first = w.first, deviation = w.deviation, square = w.square, largest = max(w.largest, fabs(low))
    cdef int width = (bets.count + BET_LANES - 1) // BET_LANES * BET_LANES
    cdef double reward[BET_BLOCK]
    cdef double gap[MAX_BETS]
    cdef double wealth[MAX_BETS]
    cdef double d, left, mean, room, slack, swing, spread, unit, cap, bet, sums, best = 0.0
    cdef Py_ssize_t start, count, i
    cdef int k
    if n > n_rows - w.n:
        n = <Py_ssize_t>(n_rows - w.n)
    if w.n == 0 and n > 0:
        first = x[0] + shift if y == NULL else (shift - y[0] if x == NULL else (x[0] - y[0]) + shift)
    for k in range(MAX_BETS):
        gap[k] = bets.gap[k]
        wealth[k] = w.wealth[k] if w.n else bets.weight[k]
    for start in range(0, n, 128):
        count = min(<Py_ssize_t>BET_BLOCK, n - start)
        if y == NULL:
            for i in range(count):
                reward[i] = x[start + i] + shift
        elif x == NULL:
            for i in range(count):
                reward[i] = shift - y[start + i]
        else:
            for i in range(count):
                reward[i] = (x[start + i] - y[start + i]) + shift
        for i in range(count):
            d = reward[i]
            left = 1.0 / (size - seen)
            mean = -(before + recent) * left            # the largest mean of the rest under mean(d) <= 0
            room = mean - low
            # Rounding error of `room`. Where the rest of the population sits on the bound, room is 0 up to rounding:
            # neither a proof that the mean is positive, nor a reason to bet without limit.
            slack = 1e-9 * largest
            spread = seen * square - deviation * deviation          # variance times seen^2
            if room < -slack:
                w.impossible = True
            elif room > slack and seen >= BET_DELAY:
                # Without a spread to see, as large a one as the room allows, and smaller the longer none is seen.
                if spread <= (1e-12 * largest * seen) * (1e-12 * largest * seen):
                    spread = room * room * seen
                unit = size * left * seen / sqrt(spread)
                cap = 0.9 / room
                # From below the swing is -room, unless the support was wrong; what a bettor would win beyond 1e12
                # fold he gives away, so that no product overflows.
                swing = min(max(d - mean, -room), 1e12 * room)
                for k in range(width):
                    bet = gap[k] * unit
                    bet = bet if bet < cap else cap
                    wealth[k] *= 1.0 + bet * swing
                sums = _mixture(wealth, width)
                best = sums if sums > best else best
            seen += 1.0
            w.n += 1
            recent += d
            largest = max(largest, fabs(d))
            d -= first
            deviation += d
            square += d * d
            if w.n % BET_FOLD == 0:
                _fold(w, recent, wealth, width, &best)
                before = w.total + w.carry
                recent = 0.0
    if best > 0.0:
        w.peak = max(w.peak, w.scale + log(best))
    w.recent = recent
    w.first = first
    w.deviation = deviation
    w.square = square
    w.largest = largest
    for k in range(MAX_BETS):
        w.wealth[k] = wealth[k]
    # The mean of the rest is also known between calls.
    if w.n < n_rows and -(before + recent) / (size - seen) - low < -1e-9 * largest:
        w.impossible = True


cdef inline void wealth_spread_again(wealth_t *w, const double *x, const double *y, double shift, Py_ssize_t n,
                                     bint fresh) noexcept nogil:
    """Replace the spread of the rewards seen by that of x[i] - y[i] + shift, given in blocks of which one is `fresh`.

    For rewards that come from another law from now on, where those seen have been told anew in its terms. Bets may rest
    on whatever is known before them, so the promise is as it was. NULL stands for zeros.
    """
    cdef double d
    cdef Py_ssize_t i
    for i in range(n):
        d = ((x[i] if x != NULL else 0.0) - (y[i] if y != NULL else 0.0)) + shift
        if fresh:
            w.first = d
            w.deviation = w.square = 0.0
            fresh = False
        d -= w.first
        w.deviation += d
        w.square += d * d


cdef inline void _fold(wealth_t *w, double recent, double *wealth, int width, double *best) noexcept nogil:
    """Add the recent sum to the total; bring the wealths back to where sixteen more bets cannot overflow.

    A bettor left with 1e-250 of the whole is out: numbers below 1e-308 are slow, and giving up money is allowed.
    """
    cdef double sums = w.total + recent
    cdef int k
    if fabs(w.total) >= fabs(recent):
        w.carry += (w.total - sums) + recent
    else:
        w.carry += (recent - sums) + w.total
    w.total = sums
    if width == 0:
        return
    sums = _mixture(wealth, width)
    if best[0] > 0.0 and not 1e-30 < sums < 1e30:
        w.peak = max(w.peak, w.scale + log(best[0]))
        best[0] = 0.0
    if not 1e-30 < sums < 1e30:
        w.scale += log(sums)
        for k in range(width):
            wealth[k] /= sums
    for k in range(width):
        wealth[k] = wealth[k] if wealth[k] > 1e-250 else 0.0


cdef inline double wealth_log(const wealth_t *w, const bets_t *bets) noexcept nogil:
    """Logarithm of the present wealth."""
    if w.n == 0 or bets.count == 0:
        return 0.0
    return w.scale + log(_mixture(w.wealth, (bets.count + BET_LANES - 1) // BET_LANES * BET_LANES))


cdef inline bint wealth_rejects(const wealth_t *w, double log_inv_alpha) noexcept nogil:
    """Whether mean(d) <= 0 is refuted at level alpha."""
    return w.impossible or w.peak >= log_inv_alpha
