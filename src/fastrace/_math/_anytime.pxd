# cython: cdivision=True
"""One-sided bounds that hold at all times at once, for means of rewards in [0, 1]; one function per formula.

`log_inv_alpha` is log(1 / alpha), alpha the probability that the bound ever fails. `v` is the sum of squared errors of
predictions each made before its reward; `n` rewards have been seen. A boundary is for the sum of deviations from the
mean, a half-width for their average. For rewards in an interval of width R divide them by R first: v by R^2, and
multiply what comes out by R.
"""

from libc.math cimport INFINITY, M_LN2, M_PI, erfc, exp, expm1, fmax, fmin, lgamma, log, log1p, sqrt
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy
from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer

ctypedef double (*incomplete_gamma_t)(double a, double y, int skip) noexcept nogil    # regularised, lower

cdef enum:
    TABLE_BITS = 4              # leading bits of the mantissa: 16 cells of one octave
    TABLE_SHIFT = 52 - 4
    TABLE_LOWEST = -10          # octaves: from 2^-10 on, and up to 2^27
    TABLE_SIZE = (37 << 4) + 2


cdef inline incomplete_gamma_t incomplete_gamma() except NULL:
    """SciPy's regularised lower incomplete gamma function; here, since scipy.special takes 0.2 s to import."""
    from scipy.special import cython_special
    capsule = cython_special.__pyx_capi__["gammainc"]
    return <incomplete_gamma_t>PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule))


# Gamma-exponential mixture: Howard, Ramdas, McAuliffe & Sekhon (2021), Prop. 9, for rewards in [0, 1].

cdef inline double log_gamma_rest(double x) noexcept nogil:
    """log Gamma(x) - x log x + x, without the cancellation."""
    cdef double inverse = 1.0 / x, square = inverse * inverse
    if x < 20.0:
        return lgamma(x) - x * log(x) + x
    return (0.5 * log(2.0 * M_PI * inverse)
            + inverse * (1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square / 1680.0))))


cdef inline double gamma_rest(double x) noexcept nogil:
    """exp(log_gamma_rest(x)), with a root in place of a logarithm."""
    cdef double inverse = 1.0 / x, square = inverse * inverse, small
    if x < 20.0:
        return exp(log_gamma_rest(x))
    small = inverse * (1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square / 1680.0)))
    return sqrt(2.0 * M_PI * inverse) * (
        1.0 + small * (1.0 + small / 2.0 * (1.0 + small / 3.0 * (1.0 + small / 4.0 * (1.0 + small / 5.0)))))


cdef inline double log_mixture_start(double rho, incomplete_gamma_t below) noexcept nogil:
    """The part of the log mixture that depends on rho alone."""
    return -log_gamma_rest(rho) - log(below(rho, rho, 0))


cdef inline double log_mixture(double s, double v, double rho, double start, incomplete_gamma_t below,
                               double *slope) noexcept nogil:
    """Log of the mixture of exp(l s - v psi(l)), and its derivative in s; `start` is log_mixture_start(rho)."""
    cdef double k = v + rho
    cdef double rest = log_gamma_rest(k), inside = below(k, k + s, 0), room = s - k * log1p(s / k)
    slope[0] = s / (k + s) + exp(-rest - room) / ((k + s) * inside)
    return start + rest + log(inside) + room


# A mixture with one rho is loose where v is far from where that rho is tightest: by 12 times the s at v = 0.1 if it
# was tuned for v = 400. The mean of several such mixtures is a mixture too, and never worse than each at a level that
# is smaller by its weight.

cdef enum:
    MOST_SCALES = 4

cdef struct mixture_t:
    int n                           # mixtures in the mean, from 1 to MOST_SCALES
    double[MOST_SCALES] rho         # of each, in squared widths of the support, above 0
    double[MOST_SCALES] start       # log_mixture_start of each, and the log of its weight; weights add up to 1
    double[MOST_SCALES] factor      # exp(start)
    incomplete_gamma_t below


cdef inline double log_mean_mixture(double s, double v, const mixture_t *mixture, double *slope) noexcept nogil:
    """Log of the mean of the mixtures, and its derivative in s."""
    cdef double[MOST_SCALES] part, rise
    cdef double top = -INFINITY, share, sum = 0.0
    cdef int k
    for k in range(mixture.n):
        part[k] = log_mixture(s, v, mixture.rho[k], mixture.start[k], mixture.below, &rise[k])
        top = fmax(top, part[k])
    slope[0] = 0.0
    for k in range(mixture.n):
        share = exp(part[k] - top)
        sum += share
        slope[0] += share * rise[k]
    slope[0] /= sum
    return top + log(sum)


cdef inline double log_mean_mixture_at_least(double s, double v, const mixture_t *mixture) noexcept nogil:
    """A little less than log_mean_mixture, for loops: the incomplete gamma function is replaced by a lower bound.

    P(k, k + s) >= max(1/2, 1 - exp(-room)): that of the median, and Chernoff's. Less by at most 0.06 from 3 on.
    """
    cdef double[MOST_SCALES] part
    cdef double top = -INFINITY, sum = 0.0, shape, room, inside
    cdef int k
    for k in range(mixture.n):
        shape = v + mixture.rho[k]
        room = s - shape * log1p(s / shape)
        inside = 1.0 - exp(-room)
        part[k] = mixture.start[k] + log_gamma_rest(shape) + room + log(inside if inside > 0.5 else 0.5)
        top = fmax(top, part[k])
    for k in range(mixture.n):
        sum += exp(part[k] - top)
    return top + log(sum)


cdef inline double one_over_mean_mixture(double s, double v, const mixture_t *mixture) noexcept nogil:
    """exp(-log_mean_mixture_at_least), to rounding, at half its price."""
    cdef double sum = 0.0, shape, room, missing
    cdef int k
    for k in range(mixture.n):
        shape = v + mixture.rho[k]
        room = s - shape * log1p(s / shape)
        if room > 600.0:            # its exponential might not be a number
            return exp(-log_mean_mixture_at_least(s, v, mixture))
        missing = exp(-room)
        sum += mixture.factor[k] * gamma_rest(shape) * (1.0 - missing if missing < 0.5 else 0.5) / missing
    return 1.0 / sum


cdef inline double mean_mixture_boundary(double v, const mixture_t *mixture, double log_inv_alpha) noexcept nogil:
    """The s at which the mean reaches 1 / alpha. Newton's rule on a convex function: from above after one step."""
    cdef double slope = 0.0, step, rho = mixture.rho[0], s
    cdef int k, _round
    for k in range(1, mixture.n):
        rho = fmax(rho, mixture.rho[k])
    s = sqrt(2.0 * (v + rho) * (log_inv_alpha + 1.0)) + log_inv_alpha
    for _round in range(60):
        step = (log_mean_mixture(s, v, mixture, &slope) - log_inv_alpha) / slope
        s = fmax(s - step, 0.0)
        if -1e-13 * s < step < 1e-13 * s:
            break
    return s


cdef inline double mixture_boundary(double v, double rho, double start, incomplete_gamma_t below,
                                    double log_inv_alpha) noexcept nogil:
    """That of a single mixture."""
    cdef mixture_t mixture
    mixture.n = 1
    mixture.rho[0] = rho
    mixture.start[0] = start
    mixture.below = below
    return mean_mixture_boundary(v, &mixture, log_inv_alpha)


cdef inline double mixture_rho(double v_best, double log_inv_alpha) noexcept nogil:
    """The rho whose boundary is tightest near v = v_best; needs alpha < 1/2."""
    cdef double twice = 2.0 * (log_inv_alpha - M_LN2)
    return v_best / (twice + log1p(twice))


cdef inline int set_mixture(mixture_t *mixture, object scales, double log_inv_alpha) except -1:
    """Set the mean of mixtures from pairs of the squared errors at which each is tightest, and its weight."""
    cdef int k
    cdef double total = 0.0, best_v, weight
    if not 1 <= len(scales) <= MOST_SCALES:
        raise ValueError(f"{len(scales)} scales are given; from 1 to {MOST_SCALES} are needed")
    mixture.n = len(scales)
    mixture.below = incomplete_gamma()
    for _, share in scales:
        total += share
    for k in range(mixture.n):
        best_v, weight = scales[k]
        if not (0.0 < best_v < INFINITY and 0.0 < weight < INFINITY):
            raise ValueError(f"scale {k} is {scales[k]}; a sum of squared errors and a weight, above 0, are needed")
        mixture.rho[k] = mixture_rho(best_v, log_inv_alpha)
        mixture.start[k] = log_mixture_start(mixture.rho[k], mixture.below) + log(weight / total)
        mixture.factor[k] = exp(mixture.start[k])
    return 0


# A table over v, by exponent and leading bits of the mantissa, filled as it is asked. The log of the mixture is convex
# in (s, v) together, so that the boundary is concave in v: a chord, extended beyond its ends, is never below it. So the
# line through the next two points on the right is an upper bound within a cell, and at most 0.1 % too wide.

cdef inline double table_place(int64_t at) noexcept nogil:
    """The v of point number `at`."""
    cdef uint64_t bits = <uint64_t>(at + ((<int64_t>TABLE_LOWEST + 1023) << TABLE_BITS)) << TABLE_SHIFT
    cdef double v = 0.0
    memcpy(&v, &bits, 8)
    return v


cdef inline double table_point(double *table, int64_t at, const mixture_t *mixture,
                               double log_inv_alpha) noexcept nogil:
    """The boundary at a point, computed when it is first asked for."""
    if table[at] == 0.0:
        table[at] = mean_mixture_boundary(table_place(at), mixture, log_inv_alpha)
    return table[at]


cdef inline double table_boundary(double *table, double v, const mixture_t *mixture,
                                  double log_inv_alpha) noexcept nogil:
    """mean_mixture_boundary or a little more; from v = 2^27 on exactly, below 2^-10 as if there."""
    cdef uint64_t bits = 0
    cdef int64_t at
    cdef double near, far, first, second
    memcpy(&bits, &v, 8)
    at = <int64_t>(bits >> TABLE_SHIFT) - ((<int64_t>TABLE_LOWEST + 1023) << TABLE_BITS)
    if at < 0:
        return table_point(table, 0, mixture, log_inv_alpha)
    if at + 2 >= TABLE_SIZE:
        return mean_mixture_boundary(v, mixture, log_inv_alpha)
    first = table_point(table, at + 1, mixture, log_inv_alpha)
    second = table_point(table, at + 2, mixture, log_inv_alpha)
    near = table_place(at + 1)
    far = table_place(at + 2)
    return first - (second - first) * ((near - v) / (far - near))


# Closed forms.

cdef inline double normal_mixture_level(double log_inv_alpha) noexcept nogil:
    """log(1 / (2 alpha)) - log Phi(sqrt(2 log(1 / (2 alpha)))): enough for one side; from alpha = 1/2 on, log 2."""
    cdef double half = fmax(log_inv_alpha - M_LN2, 0.0)
    return half - log1p(-0.5 * erfc(sqrt(half)))


cdef inline double normal_mixture_boundary(double v, double rho, double level) noexcept nogil:
    """Sub-Gaussian sums, v = n / 4; Robbins (1970), one-sided.

    fr_normal_mixture of _bets.h repeats it for lanes, two-sided: its level is log(2 / delta), less log 2 inside.
    """
    return sqrt((v + rho) * (log1p(v / rho) + 2.0 * level))


# A mean of unknown support. The Bayes factor of normal rewards, of unknown variance, with the right Haar prior on the
# scale and a prior N(0, g) on (mean - m) / scale is a test martingale of "the mean is m" (Lai 1976; Wang & Ramdas
# 2025). Its interval is exact for normal rewards; as n grows it becomes that of Waudby-Smith et al. (2024), Thm. 2.2.

cdef inline double t_mixture_half_width(double variance, double n, double freedom, double g,
                                        double log_inv_alpha) noexcept nogil:
    """Two-sided; `variance` is that of the mean of n rewards, guessed with this freedom. Infinite if unknown."""
    cdef double top = 1.0 + n * g, excess = expm1((log(top) + 2.0 * log_inv_alpha) / (freedom + 1.0))
    cdef double room = 1.0 - (1.0 + excess) / top
    if not (freedom > 0.0 and 0.0 < variance < INFINITY and room > 0.0):
        return INFINITY
    return sqrt(variance * freedom * (excess / room))


cdef inline double t_mixture_level(double away, double variance, double n, double freedom, double g) noexcept nogil:
    """The log_inv_alpha at which that half-width is `away`: log of the evidence against a mean so far away."""
    cdef double top = 1.0 + n * g, square
    if not (freedom > 0.0 and 0.0 < variance < INFINITY):
        return 0.0
    square = away * away / (variance * freedom)
    return 0.5 * ((freedom + 1.0) * (log1p(square) - log1p(square / top)) - log(top))


cdef inline double t_mixture_spread(double n_best, double log_inv_alpha) noexcept nogil:
    """The g whose half-width is narrowest near n = n_best (Waudby-Smith et al. 2024, section 2.4)."""
    return (2.0 * log_inv_alpha + log1p(2.0 * log_inv_alpha)) / n_best


cdef inline double lucb1_half_width(double n, double rounds, double log_inv_alpha) noexcept nogil:
    """Kalyanakrishnan, Tewari, Auer & Stone (2012): all rounds up to and with this one, n at most `rounds`."""
    return sqrt((log(1.25) + 4.0 * log(rounds) + log_inv_alpha) / (2.0 * n))


# Bernoulli divergence: Kaufmann & Kalyanakrishnan (2013).

cdef inline double bernoulli_kl(double p, double q) noexcept nogil:
    """Divergence of q from p, both in [0, 1]."""
    cdef double d = q - p
    if d == 0.0:
        return 0.0
    return ((-p * log1p(d / p) if p > 0.0 else 0.0) + (-(1.0 - p) * log1p(-d / (1.0 - p)) if p < 1.0 else 0.0))


cdef inline double kl_upper(double p, double level) noexcept nogil:
    """Largest q in [p, 1] with bernoulli_kl(p, q) <= level. Newton's rule from above on a convex function."""
    cdef double q, step, entropy
    cdef int _k
    if p >= 1.0 or level <= 0.0:
        return p
    if p <= 0.0:
        return -expm1(-level)
    entropy = -p * log(p) - (1.0 - p) * log1p(-p)
    q = fmin(p + sqrt(0.5 * level), -expm1(-(level + entropy) / (1.0 - p)))
    for _k in range(100):
        if q >= 1.0:
            return 1.0
        if q <= p:
            return p
        step = (bernoulli_kl(p, q) - level) * (q * (1.0 - q) / (q - p))
        q -= step
        if step <= 1e-14 * (1.0 - q) * q:
            break
    return q


cdef inline double kl_lower(double p, double level) noexcept nogil:
    """Smallest q in [0, p] with bernoulli_kl(p, q) <= level."""
    return 1.0 - kl_upper(1.0 - p, level)


cdef inline double kl_level(double rounds, double log_inv_alpha) noexcept nogil:
    """Their threshold for n times the divergence with alpha = 1.1, k_1 = 405.5, at this round."""
    cdef double x = log(405.5) + 1.1 * log(rounds) + log_inv_alpha
    return x + log(x)


cdef inline double kl_easy_level(double rounds, double log_inv_alpha) noexcept nogil:
    """The rate used in experiments: log((1 + log t) / delta), without a proof; `log_inv_alpha` is log(1 / delta)."""
    return log1p(log(rounds)) + log_inv_alpha
