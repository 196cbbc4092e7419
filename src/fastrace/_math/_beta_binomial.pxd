# cython: cdivision=True
"""Intervals for the share of ones among rewards of 0 and 1, in closed form: a prior's evidence over the likelihood.

The ratio of the evidence of Krichevsky & Trofimov's prior, Beta(1/2, 1/2), to the likelihood of the rewards under the
true share is a nonnegative martingale from 1, with replacement and without: the prior-posterior ratio of Waudby-Smith &
Ramdas (2020), the wealth of Ryu & Wornell (2024). By Ville's inequality a share is refuted where it reaches 1 / delta.
"""

from libc.math cimport M_PI, floor, fmax, fmin, lgamma, log, log1p

from fastrace._math._anytime cimport kl_lower, log_gamma_rest

cdef inline double log_evidence(double ones, double zeros) noexcept nogil:
    """Log of the probability of so many ones and zeros, in one given order, under the prior."""
    return lgamma(ones + 0.5) + lgamma(zeros + 0.5) - lgamma(ones + zeros + 1.0) - log(M_PI)


cdef inline double log_falling(double x, double count) noexcept nogil:
    """log x (x - 1) ... (x - count + 1), without the cancellation where count is small beside x."""
    cdef double top = x + 1.0, rest = top - count
    if count == 0.0:
        return 0.0
    return count * log(top) - rest * log1p(-count / top) - count + log_gamma_rest(top) - log_gamma_rest(rest)


cdef inline double log_ratio(double total, double ones, double zeros, double n_rows, double evidence) noexcept nogil:
    """Log of the evidence over the likelihood if `total` of the n_rows rows are ones; convex in `total`."""
    return (evidence + log_falling(n_rows, ones + zeros) - log_falling(total, ones)
            - log_falling(n_rows - total, zeros))


cdef inline double least_total(double ones, double zeros, double n_rows, double start, double level) noexcept nogil:
    """The smallest number of ones among n_rows that is not refuted; those below `start` have been refuted before.

    The ratio is at most 1 at the likeliest total, and falls up to there.
    """
    cdef double likeliest = fmin(fmax(floor((n_rows + 1.0) * (ones / (ones + zeros))), ones), n_rows - zeros)
    cdef double evidence = log_evidence(ones, zeros), refuted = fmax(start, ones) - 1.0, kept, middle, step = 1.0
    kept = refuted + 1.0
    while kept < likeliest and log_ratio(kept, ones, zeros, n_rows, evidence) >= level:
        refuted = kept
        kept = fmin(kept + step, likeliest)
        step *= 2.0
    while kept - refuted > 1.0:
        middle = floor(0.5 * (refuted + kept))
        if log_ratio(middle, ones, zeros, n_rows, evidence) >= level:
            refuted = middle
        else:
            kept = middle
    return kept


cdef inline double least_share(double ones, double zeros, double level) noexcept nogil:
    """The smallest share of ones among independent rewards that is not refuted."""
    cdef double n = ones + zeros, regret = -log_evidence(ones, zeros)
    if ones > 0.0:
        regret += ones * log(ones / n)
    if zeros > 0.0:
        regret += zeros * log(zeros / n)
    return kl_lower(ones / n, (level + regret) / n)
