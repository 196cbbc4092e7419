# cython: cdivision=True
"""Heuristics of the normal rule against skewed rewards; a rigorous bound needs none, and none of them is a promise.

All rest on how far skewness inflates the error of "mean > 0" (`skewness_inflation`), and know a skewness of n rewards
only to its standard error sqrt(6 / n). Each serves another decision:

- `inflates` : `skewness_guard` of races over columns. A lead whose error is inflated by more than a quarter waits. The
  same figure, two standard errors nearer to zero, warns where there is no guard (`inflates_beyond_noise`).
- `room_for_unseen` : `skewness_guard` of decisions against a threshold. A verdict must stand even if a few rows as far
  out as the farthest are yet to come.
- `kurtosis_to_keep`, `few_shown`, `rows_to_meet_few` : the same guard between decisions. Where few rows carried the
  spread of one decision, the next one reads on until it meets some of them.
- `tail_half_width`, `tail_rows`, `unseen_rows` : `tail_guard` of races over columns and of sums. A lead waits until
  enough values carry each tail that could turn it.
- `tail_variance`, `tail_rows`, `constant_rows` : the same guard for streams, whose rules know evidence in place of
  half-widths, and have no last row to read on to.
- `tail_shift`, `tail_end`, `tail_away` : intervals of streams, of a mean and of a difference of two. An end lies
  farther off on the side of a long tail, and nearer on the other.
"""

from libc.float cimport DBL_EPSILON
from libc.math cimport INFINITY, fabs, fmax, fmin, isnan, sqrt
from libc.stdint cimport int64_t

from fastrace._math._bounds cimport inverse_mills, variance_factor

cdef enum:
    EVENTS_ENOUGH = 24      # effective number of values that must carry a tail before its size is believed
    UNSEEN_LEADS = 100      # size of what a stream may hide whose values have all been equal, in units of the lead
    TAIL_AT_MOST = 3        # most by which an interval enlarges a tail that few values carry
    FEW = 40                # kurtosis, from which on few rows carry the spread: 1 in 40, if they are of one size
    FEW_MET = 5             # of them, on average, in rows that need not show any: 1 in 150 samples has none
    BULK_BARE = 8          # 4 variance / (mean distance of two)^2, from which on the others say little of the spread


cdef inline double skewness_inflation(double skewness, int64_t n, int64_t n_rows, double quantile) noexcept nogil:
    """Relative excess of the true error over the normal one when "mean > 0" is decided at n of n_rows rows.

    First Edgeworth term of the studentised mean (Hall 1992, sec. 2.6) with the skewness of a mean without replacement.
    For "mean < 0" give minus the skewness. A heuristic. Infinite if the skewness is unknown (nan: a constant sample).
    """
    cdef double read = <double>n / <double>n_rows
    cdef double shrink, excess
    if n >= n_rows:
        return 0.0
    if isnan(skewness):
        return INFINITY
    shrink = (1.0 - 2.0 * read) / sqrt(1.0 - read) if read < 0.5 else 0.0
    excess = -skewness * shrink * (2.0 * quantile * quantile + 1.0) / (6.0 * sqrt(<double>n))
    return excess * inverse_mills(quantile) if excess > 0.0 else 0.0


cdef inline bint inflates(double skewness, int64_t n, int64_t n_rows, double quantile) noexcept nogil:
    """Whether the normal rule errs by a quarter more than it says, were this the skewness."""
    return skewness_inflation(skewness, n, n_rows, quantile) > 0.25


cdef inline bint inflates_beyond_noise(double skewness, int64_t n, int64_t n_rows, double quantile) noexcept nogil:
    """The same even with a skewness two standard errors nearer to zero: a few normal rewards often look skewed."""
    return inflates(min(0.0, skewness + 2.0 * sqrt(6.0 / n)), n, n_rows, quantile)


cdef inline double room_for_unseen(double std, double skewness, double kurtosis, int64_t n, int64_t n_rows,
                                   double quantile) noexcept nogil:
    """What is added to the normal half-width of n of n_rows rows, over 1 / n - 1 / n_rows.

    A sample is under suspicion where its skewness, one standard error nearer to zero, inflates the error of a decision
    on either side by more than a quarter, or where its excess kurtosis says that the variance is known worse than to
    22 %. A decision must then stand even if for every n rows seven more are to come as far out as the farthest;
    the fourth root of the sum of fourth powers stands for that one, as it is no smaller and hardly larger where a few
    rows lie far out. Samples miss part of a long tail, so their skewness may have either sign. A heuristic.
    """
    cdef double nearer = min(0.0, sqrt(6.0 / n) - fabs(skewness))
    if inflates(nearer, n, n_rows, quantile) or kurtosis + 2.0 > 0.05 * <double>n:
        return 7.0 * std * sqrt(sqrt((kurtosis + 3.0) * <double>n))
    return 0.0


cdef inline double carried_by_few(double excess, double std, double apart, int64_t n) noexcept nogil:
    """Kurtosis of n rows if few of them carry their spread; 0 if not, or if it is unknown, nan.

    `apart` is the mean distance of one row to the next. Of k equal rows among n others that are equal too it is 2 std
    sqrt(k / n), so that 4 std^2 / apart^2 is n / k as the kurtosis is. A heavy tail has a large kurtosis as well, but
    its bulk tells of the spread: 4 std^2 / apart^2 is 3.1 for the normal law, 5 for Student-t (3), 6 for a lognormal of
    sigma 1, whatever their kurtosis; 17 for a lognormal of sigma 1.5, whose samples show few rows too. Rows in an order
    of their own are nearer to each other than at random, so that they count as few rather too often.
    """
    if excess + 3.0 > FEW and 4.0 * std * std > BULK_BARE * apart * apart:
        return fmin(excess + 3.0, <double>n)    # n is the most there is, unless fourth powers overflow
    return 0.0


cdef inline double kurtosis_to_keep(double carried, double before) noexcept nogil:
    """What a decision leaves to the next: its kurtosis, and half of what it was left itself; 0 where few carry nothing.

    `carried` is that of `carried_by_few`. k equal rows among n that barely differ have a kurtosis of n / k. A sample
    that holds one of them has one near its size: 48 of 50 rows. To reach 40 there, a row must be 20 times as far out as
    the others spread. Of 10^6 samples of 50 exponential rows none did, of Student-t (5) rows 6 in 100,000, of cubes of
    normals 7 in 1000, of lognormals 9.
    """
    cdef double kept = fmax(0.5 * before, carried)
    return kept if kept > FEW else 0.0


cdef inline double rows_to_meet_few(double kurtosis) noexcept nogil:
    """Rows that hold FEW_MET of those that carry the spread, on average."""
    return FEW_MET * kurtosis


cdef enum:          # what a sample shows of the few rows that carried the spread of decisions before
    NOTHING         # its verdict waits for the rows of `rows_to_meet_few`
    TOO_LITTLE      # its verdict waits for the next look
    ENOUGH


cdef inline int few_shown(double before, double kurtosis, int64_t n) noexcept nogil:
    """What n rows of this kurtosis show of the few that left `before`, the kurtosis of `kurtosis_to_keep`.

    One of the few among n rows makes a kurtosis near n, or near `before` if that is less; the others alone make one
    that does not grow with n. The root stands between. n / kurtosis is about how many of the few there are: a verdict
    on one or two of them knows nothing of their size. Long tails show all of that in small samples, so that their
    verdicts hardly wait. At FEW_MET times `before` rows a sample may decide whatever it shows.
    """
    if not before > 0.0 or <double>n >= FEW_MET * before:
        return ENOUGH
    if not kurtosis * kurtosis >= fmin(before, <double>n):      # nan of rows that are all equal
        return NOTHING
    return TOO_LITTLE if <double>n < FEW_MET * kurtosis else ENOUGH


cdef inline double tail_excess(double skewness, int64_t n) noexcept nogil:
    """Skewness towards a tail beyond its standard error; 0 if there is none, or if it is unknown."""
    cdef double excess = skewness - sqrt(6.0 / n)
    return excess if excess > 0.0 else 0.0


cdef inline double tail_half_width(double half_width, double std, double skewness, int64_t n, int64_t n_rows,
                                   double quantile) noexcept nogil:
    """Half-width of the normal rule towards a tail, given the skewness towards that tail.

    A tail of rare events of size v adds to the mean what a Poisson count times v / n does, and v is std * skewness. A
    count k at its upper limit c solves c - k = quantile sqrt(c) (Wilson 1927), which gives
    h + sqrt(half_width^2 + h^2) with h = quantile^2 v / (2 n), less what reading without replacement saves. The
    skewness counts twice, since samples of long tails show too little of it, and only beyond its standard error.
    """
    cdef double excess = tail_excess(skewness, n)
    cdef double h
    if excess == 0.0:
        return half_width
    h = quantile * quantile * variance_factor(n, n_rows) * std * excess
    return h + sqrt(half_width * half_width + h * h)


cdef inline double tail_variance(double away, double std, double skewness, int64_t n) noexcept nogil:
    """What is added to the variance of a reward against the null that the mean lies `away` further towards a tail.

    `tail_half_width` for who knows evidence: with `away` = q sqrt((std^2 + this) / n), it makes a half-width of
    q std / sqrt(n) as wide as `away`. Rare events of that mean would vary by `away` times their size more than those
    seen; the skewness counts twice, as there.
    """
    return 2.0 * away * (std * tail_excess(skewness, n))


cdef inline double tail_events(double skewness, int64_t n) noexcept nogil:
    """Effective number of values that carry a tail, given the skewness towards it; infinite within its standard error.

    k equal values among zeros have skewness sqrt(n / k) while they are few.
    """
    cdef double excess = tail_excess(skewness, n)
    return n / (excess * excess) if excess > 0.0 else INFINITY


cdef inline double tail_shift(double skewness, int64_t n, double share) noexcept nogil:
    """What skewness does to the end of an interval that rests on a mean of n rewards, for `tail_end`.

    `skewness` is that towards the end. `share` is the part of this mean in the variance of what the interval is about:
    1, or less for a difference of two means, whose shift is the sum of sqrt(share) times the shift of each.

    On the side of the tail it is that of `tail_half_width`: q^2 v / (2 n), v = std * skewness the size of the values
    that carry it. While fewer than EVENTS_ENOUGH of them have been seen, the tail is known in part: v is enlarged in
    proportion, up to TAIL_AT_MOST times, and so is the share, as its variance is not known either. On the other side
    it is q^2 v / (3 n) nearer, the first Edgeworth term of the studentised mean (Hall 1992, sec. 2.6), and less where
    the tail is known in part.
    """
    cdef double beyond = fabs(skewness) - sqrt(6.0 / n), root = sqrt(<double>n), known
    if not beyond > 0.0:        # within its standard error, or unknown
        return 0.0
    known = fmin(n / (EVENTS_ENOUGH * beyond * beyond), 1.0)
    if skewness < 0.0:
        return -share * known * known * beyond / (3.0 * root)
    return fmax(share, 1.0 - known) * beyond / (2.0 * fmax(known, 1.0 / TAIL_AT_MOST) * root)


cdef inline double tail_end(double half_width, double variance, double shift) noexcept nogil:
    """Distance of an end from what the interval is about, for its half-width by a normal law of this variance.

    At least 0.8 half-widths, as the term of `tail_shift` is the first of a series.
    """
    cdef double h
    if half_width == INFINITY:
        return INFINITY
    h = half_width / sqrt(variance) * shift
    return half_width * fmax(h + sqrt(1.0 + h * h), 0.8)


cdef inline double tail_away(double away, double variance, double shift) noexcept nogil:
    """The half-width for which `tail_end` is `away`."""
    return away / sqrt(fmax(1.0 + 2.0 * away / sqrt(variance) * shift, 0.8 * 0.8))


cdef inline double tail_rows(double skewness, double size, double gap, int64_t n) noexcept nogil:
    """Rows to read before a lead is believed in which a tail of a column takes part; at most n: it is believed.

    `skewness` is that of the column towards its tail, `size` what the lead loses at a value of the tail, `gap` is the
    lead.
    The tail is known well enough from EVENTS_ENOUGH effective values on, or where twice as many unseen ones would not
    close the gap.
    """
    cdef double events = tail_events(skewness, n)
    if events >= EVENTS_ENOUGH or n * gap >= 2.0 * EVENTS_ENOUGH * size:
        return <double>n
    return min(n * (EVENTS_ENOUGH / events), 2.0 * EVENTS_ENOUGH * size / gap)


cdef inline double unseen_rows(double reach, double gap, int64_t n, int64_t n_rows) noexcept nogil:
    """The same where the n rewards of the column have all been equal, and no other lies farther off than `reach`."""
    return min(max(<double>n, 2.0 * EVENTS_ENOUGH * reach / gap), <double>n_rows)


cdef inline double constant_rows(double size, double gap) noexcept nogil:
    """Rewards of a stream to read before a lead of `gap` is believed in which it takes part, all of them equal so far.

    What such a stream hides cannot be seen, and there is no last row. So it is taken to hide values as far off as
    `size`, that of the values that carry the tail of the stream that it is compared with, and UNSEEN_LEADS leads at
    least; as in `tail_rows`, twice EVENTS_ENOUGH of them must not close the gap. If events of probability p are the
    whole difference, they are missed with probability exp(-p n): at the 4800 rows that are needed at least, below
    0.9 % for every p from 0.001 on.
    """
    return 2.0 * EVENTS_ENOUGH * max(size / gap, <double>UNSEEN_LEADS)


cdef inline double value_size(double std, double skewness) noexcept nogil:
    """Size of the values that carry the longer tail of a stream; the standard deviation if there is none."""
    return std * max(1.0, fabs(skewness))


cdef inline bint stream_varies(double std, double size) noexcept nogil:
    """Whether rewards of this size differ by more than the rounding of a single one."""
    return std > DBL_EPSILON * size
