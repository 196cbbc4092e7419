# cython: cdivision=True
"""On which side of a level the mean of a finite population lies: rules, what is known after some rows, and verdicts."""

from libc.math cimport INFINITY, NAN, fabs, isnan, log, sqrt
from libc.stdint cimport int64_t

from fastrace._base._types cimport moments4_t
from fastrace._math._betting cimport bets_t, wealth_extend, wealth_init, wealth_rejects, wealth_t
from fastrace._math._bounds cimport (empirical_bernstein_serfling, held_back, hoeffding_serfling, normal,
                                     skewed_beyond_noise)
from fastrace._math._moments cimport moments4_extend, moments4_kurtosis, moments4_skewness, moments4_std
from fastrace._math._simd cimport fr_range

cdef enum:          # places in `_threshold.RULES`
    NORMAL
    BETTING
    HOEFFDING
    BERNSTEIN
    SMALLER

cdef struct bound_t:            # half-width at one look: the smaller of by_std * std + by_span * span and cap * span
    int64_t n                   # rows read at this look
    double by_std
    double by_span
    double cap
    double quantile             # of the normal rule

cdef struct rule_t:             # the same for every decision
    int kind
    bint guard                  # of the normal rule: wider where the sample is skewed or a few rows carry its spread
    int64_t n_rows
    double log_inv_delta
    Py_ssize_t n_bounds
    bound_t *bound              # one per look; the last look reads every row
    bets_t bets

cdef struct tally_t:            # of one decision
    moments4_t seen
    double low                  # the interval that holds every difference; infinite ends if there is none
    double high
    double smallest
    double largest
    wealth_t above              # of who bets on a mean above the level, and on one below
    wealth_t below


cdef inline double _bettors_quantile(const rule_t *rule, int64_t n) noexcept nogil:
    cdef double size = 16.0
    cdef int k = 0
    if rule.bets.count == 0:
        return INFINITY
    while k < rule.bets.count - 1 and size * 2.0 < <double>n:
        size *= 4.0
        k += 1
    return sqrt(2.0 * (rule.log_inv_delta - log(rule.bets.weight[k])))


cdef inline void rule_bound(const rule_t *rule, bound_t *b, int64_t n, double share, double quantile) noexcept nogil:
    """The bound of a look at n rows, with log(1 / share of delta) and the normal rule's quantile."""
    cdef double half = share + log(2.0) if rule.kind == SMALLER else share
    b.n = n
    b.quantile = quantile
    b.by_std = b.by_span = 0.0
    b.cap = INFINITY
    if rule.kind == NORMAL:
        b.by_std = normal(n, rule.n_rows, 1.0, quantile)
    elif rule.kind == BETTING:              # what the bettor who is best at this look needs: for forecasts only
        b.by_std = normal(n, rule.n_rows, 1.0, _bettors_quantile(rule, n))
    elif rule.kind == HOEFFDING:
        b.by_span = hoeffding_serfling(n, rule.n_rows, half, 1.0)
    else:
        b.by_std = empirical_bernstein_serfling(n, rule.n_rows, 1.0, half, 0.0)
        b.by_span = empirical_bernstein_serfling(n, rule.n_rows, 0.0, half, 1.0)
        if rule.kind == SMALLER:
            b.cap = hoeffding_serfling(n, rule.n_rows, half, 1.0)


cdef inline void tally_clear(tally_t *t, const rule_t *rule) noexcept nogil:
    """Forget what has been read, not the interval."""
    t.seen.n = 0
    t.seen.mean = t.seen.m2 = t.seen.m3 = t.seen.m4 = 0.0
    t.smallest, t.largest = INFINITY, -INFINITY
    if rule.kind == BETTING:
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
    if rule.kind == BETTING:
        # One of the two hypotheses is true, so each may spend all of delta.
        wealth_extend(&t.above, &rule.bets, d, NULL, -level, count, t.low - level, rule.n_rows)
        wealth_extend(&t.below, &rule.bets, NULL, d, level, count, level - t.high, rule.n_rows)


cdef inline double tally_std(const tally_t *t) noexcept nogil:
    """Standard deviation so far; nan if all differences agree to rounding, which says nothing of the rest."""
    cdef double std = moments4_std(&t.seen)
    return std if std > 1e-12 * max(fabs(t.smallest), fabs(t.largest)) else NAN


cdef inline double rule_radius(const rule_t *rule, Py_ssize_t k, double std, double span) noexcept nogil:
    """Half-width at look k."""
    cdef double half
    if rule.kind == NORMAL or rule.kind == BETTING:
        return rule.bound[k].by_std * std
    half = rule.bound[k].by_std * std + rule.bound[k].by_span * span
    return rule.bound[k].cap * span if rule.bound[k].cap * span < half else half


cdef inline double tally_held_back(const tally_t *t, const rule_t *rule, Py_ssize_t k, double std) noexcept nogil:
    """What the guard adds at look k: this times 1 / n - 1 / n_rows."""
    if rule.kind != NORMAL or not rule.guard:
        return 0.0
    return held_back(std, moments4_skewness(&t.seen), moments4_kurtosis(&t.seen), t.seen.n, rule.n_rows,
                     rule.bound[k].quantile)


cdef inline double guarded_radius(const rule_t *rule, Py_ssize_t k, double std, double span,
                                  double held) noexcept nogil:
    """Half-width at look k with what the guard holds back."""
    return rule_radius(rule, k, std, span) + held * (1.0 / rule.bound[k].n - 1.0 / rule.n_rows)


cdef inline bint tally_decides(const tally_t *t, const rule_t *rule, Py_ssize_t k, double level, double *half_width,
                               bint *constant, bint *skewed) noexcept nogil:
    """Whether the mean is known at look k to be on the side of the level where it seems to be.

    `constant` is set if the first look had differences that agree, `skewed` if a verdict without the guard is not to
    be trusted; `half_width` stays as it is where the rule has none.
    """
    cdef double gap = t.seen.mean - level
    cdef double std, skewness
    if rule.kind == BETTING:
        # Each gambler is right to be heard at any time; both at once only if the support is wrong.
        return wealth_rejects(&t.above if gap > 0.0 else &t.below, rule.log_inv_delta)
    # Only the bound on the side of the truth can fail, so each look spends its share on one side.
    if rule.kind != NORMAL:
        half_width[0] = rule_radius(rule, k, moments4_std(&t.seen), t.high - t.low)
        return fabs(gap) > half_width[0]
    std = tally_std(t)
    if isnan(std):
        constant[0] = constant[0] or k == 0
        return False
    half_width[0] = guarded_radius(rule, k, std, t.high - t.low, tally_held_back(t, rule, k, std))
    if not fabs(gap) > half_width[0]:
        return False
    if not rule.guard:          # from a quarter more errors than promised on, the verdict is not to be trusted
        skewness = moments4_skewness(&t.seen)
        skewed[0] = skewed_beyond_noise(skewness if gap > 0.0 else -skewness, t.seen.n, rule.n_rows,
                                        rule.bound[k].quantile, 0.25)
    return True


cdef inline double tally_needs(const tally_t *t, const rule_t *rule, Py_ssize_t k, double level) noexcept nogil:
    """Rows at the first look after look k whose half-width is below the gap, should gap and spread stay.

    Infinite if no look has one: the last look of draws with replacement is not exact.
    """
    cdef double std = tally_std(t), gap, held
    cdef Py_ssize_t low = k + 1, high = rule.n_bounds - 1, middle
    if isnan(std):
        return <double>rule.n_rows
    gap = fabs(t.seen.mean - level)
    held = tally_held_back(t, rule, k, std)
    while low < high:           # half-widths fall
        middle = (low + high) // 2
        if guarded_radius(rule, middle, std, t.high - t.low, held) < gap:
            high = middle
        else:
            low = middle + 1
    if rule.bound[low].n < rule.n_rows and not guarded_radius(rule, low, std, t.high - t.low, held) < gap:
        return INFINITY
    return <double>rule.bound[low].n
