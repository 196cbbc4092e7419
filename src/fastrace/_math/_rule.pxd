# cython: cdivision=True
"""The rule of races over a finite population: the names of the bounds, the choice between them, half-widths, verdicts.

Every race calls it: for a difference of means `_core`, for a mean against a threshold `_threshold` and `_weighted`, for
sums of different sizes `_unequal`, for all of them inside XLA `_xla`. A new bound has its formula in `_bounds.pxd`, its
name and its branch here, and its array form in `bounds/_rigorous.py`.
"""

from libc.math cimport INFINITY, NAN, fabs, isnan, log, sqrt
from libc.stdint cimport int64_t

from fastrace._base._types cimport moments4_t
from fastrace._math._betting cimport bets_t, wealth_extend, wealth_init, wealth_rejects, wealth_t
from fastrace._math._bounds cimport (empirical_bernstein_serfling, hoeffding_serfling, normal, onwards_factor,
                                     serfling_factor)
from fastrace._math._moments cimport moments4_extend, moments4_kurtosis, moments4_skewness, moments4_std
from fastrace._math._simd cimport fr_range
from fastrace._math._skewness cimport inflates, inflates_beyond_noise, room_for_unseen

cdef enum:          # bounds, in the order of `bound_name`
    NORMAL
    BETTING
    HOEFFDING_SERFLING
    EMPIRICAL_BERNSTEIN_SERFLING
    SERFLING        # the smaller of the two, each at delta / 2
    N_BOUNDS


cdef inline const char *bound_name(int bound) noexcept nogil:
    if bound == NORMAL:
        return b"normal"
    if bound == BETTING:
        return b"betting"
    if bound == HOEFFDING_SERFLING:
        return b"hoeffding-serfling"
    if bound == EMPIRICAL_BERNSTEIN_SERFLING:
        return b"empirical-bernstein-serfling"
    return b"serfling"


cdef struct look_t:             # of one bound: half-width min(by_std * std + by_span * span, cap * span)
    int64_t n                   # rows read at this look
    double by_std
    double by_span
    double cap
    double quantile             # standard errors of the normal rule

cdef struct rule_t:             # the same for every decision against a threshold; written once, at set-up
    int bound
    bint guard                  # of the normal rule: wider where the sample is skewed or a few rows carry its spread
    int64_t n_rows
    double log_inv_delta        # of one side at all looks of the betting rule
    Py_ssize_t n_looks
    look_t *look                # the last one reads every row
    bets_t bets

cdef struct tally_t:            # of one decision
    moments4_t seen             # differences read
    double low                  # the interval that holds every difference; infinite ends if there is none
    double high
    double smallest             # difference read
    double largest
    wealth_t above              # of who bets on a mean above the level, and on one below
    wealth_t below


# Half-widths.

cdef inline void look_init(look_t *look, int bound, int64_t n, int64_t n_rows, double log_inv_delta,
                           double quantile) noexcept nogil:
    """The bound of a look at n rows, with log(1 / share of delta) and the normal rule's quantile.

    Betting has no half-width; for forecasts it has that of the normal rule at the quantile given.
    """
    cdef double half = log_inv_delta + log(2.0)
    look.n = n
    look.quantile = quantile
    look.by_std = look.by_span = 0.0
    look.cap = INFINITY
    if bound == NORMAL or bound == BETTING:
        look.by_std = normal(n, n_rows, 1.0, quantile)
    elif bound == HOEFFDING_SERFLING:
        look.by_span = hoeffding_serfling(n, n_rows, log_inv_delta, 1.0)
    elif bound == EMPIRICAL_BERNSTEIN_SERFLING:
        look.by_std = empirical_bernstein_serfling(n, n_rows, 1.0, log_inv_delta, 0.0)
        look.by_span = empirical_bernstein_serfling(n, n_rows, 0.0, log_inv_delta, 1.0)
    else:
        look.by_std = empirical_bernstein_serfling(n, n_rows, 1.0, half, 0.0)
        look.by_span = empirical_bernstein_serfling(n, n_rows, 0.0, half, 1.0)
        look.cap = hoeffding_serfling(n, n_rows, half, 1.0)


cdef inline void look_onwards(look_t *look, int bound, int64_t n_rows) noexcept nogil:
    """Let the half-width of a look, with the mean and the spread of any later number of rows, hold for all at once.

    Let m_k be the mean of k rows, s_k their standard deviation, L = log(1 / share). Given all that come later, m_k has
    the mean m_{k+1}: read backwards, means without replacement are martingales, and so are those of (x - mu)^2. So by
    Doob what Chernoff's bound says of n rows holds with the same probability for all k >= n at once. Hoeffding-Serfling
    is such a bound. Theorem 4.3 of Bardenet & Maillard (2015) is not: it rests on conditional variances, for a fixed n,
    with the factor rho_n. In its place, each with probability exp(-L) and for all k >= n, R the width of the support:

    - m_k - mu <= sigma sqrt(2 f L / n) + R L / 3 n, f = min(1, (N - n) / n): Bernstein, by Theorem 4 of Hoeffding
      (1963); for n > N / 2 of the rows not read, since m_n - mu is -(N - n) / n times theirs
    - the mean of (x - mu)^2 is at least sigma^2 - R sigma sqrt(2 L / n), as their squares have a mean of R^2 sigma^2 at
      most (Maurer 2003)
    - m_k - mu <= R sqrt(L / 2 n), and mu - m_k (Hoeffding).

    The last two say that sigma <= s_k + (1 + sqrt 2) R sqrt(L / 2 n). All in all, m_k - mu is at most
    s_k sqrt(2 f L / n) + (1 + sqrt 2 + 1 / 3) R L / n with probability 1 - 4 exp(-L). The formula spends 5 exp(-L), and
    7 / 3 + 3 / sqrt 2 is more than that, so that f in place of rho_n is all that is to change.
    """
    if look.n < n_rows and bound != NORMAL and bound != BETTING:
        look.by_std *= sqrt(onwards_factor(look.n, n_rows) / serfling_factor(look.n, n_rows))


cdef inline double look_width(const look_t *look, double std, double span) noexcept nogil:
    """Half-width of a mean, or of a difference of paired means; `span` may be infinite if the rule does not use it."""
    cdef double width = look.by_std * std if look.by_std > 0.0 else 0.0      # an infinite std may not matter
    if look.by_span > 0.0:
        width += look.by_span * span
        if look.cap * span < width:
            width = look.cap * span
    return width


cdef inline double mean_with_rest(double mean, double known, double read, double reward) noexcept nogil:
    """The mean over all rows if those not yet read, all but the share `read`, had this reward; `known` is its constant.
    """
    return known + read * (mean - known) + (1.0 - read) * reward


cdef inline double width_of_two(int bound, double width, double other) noexcept nogil:
    """Half-width of the difference of two independent means or sums from those of each."""
    return sqrt(width * width + other * other) if bound == NORMAL else width + other


cdef inline bint constant_so_far(double std, double size) noexcept nogil:
    """Whether rewards of this size agree to rounding: then their spread is unknown, not zero."""
    return not std > 1e-12 * size


cdef inline bint lost_in_sums(double std, double size) noexcept nogil:
    """Whether rewards of this size differ, but too little for their sums: `_checks.COARSE` is that of a support."""
    return 0.0 < std < 5e-13 * size


# What bettors are worth: quantiles of the normal rule for forecasts.

cdef inline double quantile_of_equal_evidence(double log_inv_delta) noexcept nogil:
    """Of all bettors together, without saying which of them is best at a look."""
    return sqrt(2.0 * (log_inv_delta + 2.0))


cdef inline double quantile_of_best_bettor(const bets_t *bets, double log_inv_delta, int64_t n) noexcept nogil:
    """Of the bettor who is best at a look at n rows."""
    cdef double size = 16.0
    cdef int k = 0
    if bets.count == 0:
        return INFINITY
    while k < bets.count - 1 and size * 2.0 < <double>n:
        size *= 4.0
        k += 1
    return sqrt(2.0 * (log_inv_delta - log(bets.weight[k])))


# Verdicts.

cdef inline bint lead_stands(bint guarded, double skewness, int64_t n, int64_t n_rows, double quantile,
                             bint *skewed) noexcept nogil:
    """Whether skewness lets stand what the normal rule has decided.

    `skewness` is towards the loser's side. Without the guard it stands, and `skewed` is set if it is not to be trusted.
    """
    if guarded:
        return not inflates(skewness, n, n_rows, quantile)
    if inflates_beyond_noise(skewness, n, n_rows, quantile):
        skewed[0] = True
    return True


cdef inline void rule_look(const rule_t *rule, look_t *look, int64_t n, double share, double quantile) noexcept nogil:
    """The look at n rows of decisions against a threshold, with log(1 / share of delta)."""
    if rule.bound == BETTING:
        quantile = quantile_of_best_bettor(&rule.bets, rule.log_inv_delta, n)
    look_init(look, rule.bound, n, rule.n_rows, share, quantile)


cdef inline void tally_clear(tally_t *t, const rule_t *rule) noexcept nogil:
    """Forget what has been read, not the interval."""
    t.seen.n = 0
    t.seen.mean = t.seen.m2 = t.seen.m3 = t.seen.m4 = 0.0
    t.smallest, t.largest = INFINITY, -INFINITY
    if rule.bound == BETTING:
        wealth_init(&t.above)
        wealth_init(&t.below)


cdef inline void tally_extend(tally_t *t, const rule_t *rule, const double *d, Py_ssize_t count,
                              double level) noexcept nogil:
    """Digest further differences, all finite."""
    cdef double low = 0.0, high = 0.0
    fr_range(d, count, &low, &high)
    t.smallest = min(t.smallest, low)
    t.largest = max(t.largest, high)
    moments4_extend(&t.seen, d, count)
    if rule.bound == BETTING:
        # One of the two hypotheses is true, so each may spend all of delta.
        wealth_extend(&t.above, &rule.bets, d, NULL, -level, count, t.low - level, rule.n_rows)
        wealth_extend(&t.below, &rule.bets, NULL, d, level, count, level - t.high, rule.n_rows)


cdef inline double tally_std(const tally_t *t) noexcept nogil:
    """Standard deviation so far; nan if all differences agree to rounding, which says nothing of the rest."""
    cdef double std = moments4_std(&t.seen)
    return NAN if constant_so_far(std, max(fabs(t.smallest), fabs(t.largest))) else std


cdef inline double tally_room(const tally_t *t, const rule_t *rule, Py_ssize_t k, double std) noexcept nogil:
    """What the guard adds at look k: this times 1 / n - 1 / n_rows."""
    if rule.bound != NORMAL or not rule.guard:
        return 0.0
    return room_for_unseen(std, moments4_skewness(&t.seen), moments4_kurtosis(&t.seen), t.seen.n, rule.n_rows,
                           rule.look[k].quantile)


cdef inline double guarded_radius(const rule_t *rule, Py_ssize_t k, double std, double span,
                                  double room) noexcept nogil:
    """Half-width at look k with what the guard adds."""
    return look_width(&rule.look[k], std, span) + room * (1.0 / rule.look[k].n - 1.0 / rule.n_rows)


cdef inline bint tally_decides(const tally_t *t, const rule_t *rule, Py_ssize_t k, double level, double *half_width,
                               bint *constant, bint *skewed) noexcept nogil:
    """Whether the mean is known at look k to be on the side of the level where it seems to be.

    `constant` is set if the first look had differences that agree, `skewed` if a verdict without the guard is not to
    be trusted; `half_width` stays as it is where the rule has none.
    """
    cdef double gap = t.seen.mean - level
    cdef double std, skewness
    if rule.bound == BETTING:
        # Each gambler is right to be heard at any time; both at once only if the support is wrong.
        return wealth_rejects(&t.above if gap > 0.0 else &t.below, rule.log_inv_delta)
    # Only the bound on the side of the truth can fail, so each look spends its share on one side.
    if rule.bound != NORMAL:
        half_width[0] = look_width(&rule.look[k], moments4_std(&t.seen), t.high - t.low)
        return fabs(gap) > half_width[0]
    std = tally_std(t)
    if isnan(std):
        constant[0] = constant[0] or k == 0
        return False
    half_width[0] = guarded_radius(rule, k, std, t.high - t.low, tally_room(t, rule, k, std))
    if not fabs(gap) > half_width[0]:
        return False
    if not rule.guard:
        skewness = moments4_skewness(&t.seen)
        lead_stands(False, skewness if gap > 0.0 else -skewness, t.seen.n, rule.n_rows, rule.look[k].quantile, skewed)
    return True


cdef inline double tally_needs(const tally_t *t, const rule_t *rule, Py_ssize_t k, double level) noexcept nogil:
    """Rows at the first look after look k whose half-width is below the gap, should gap and spread stay.

    Infinite if no look has one: the last look of draws with replacement is not exact.
    """
    cdef double std = tally_std(t), gap, room
    cdef Py_ssize_t low = k + 1, high = rule.n_looks - 1, middle
    if isnan(std):
        return <double>rule.n_rows
    gap = fabs(t.seen.mean - level)
    room = tally_room(t, rule, k, std)
    while low < high:           # half-widths fall
        middle = (low + high) // 2
        if guarded_radius(rule, middle, std, t.high - t.low, room) < gap:
            high = middle
        else:
            low = middle + 1
    if rule.look[low].n < rule.n_rows and not guarded_radius(rule, low, std, t.high - t.low, room) < gap:
        return INFINITY
    return <double>rule.look[low].n
