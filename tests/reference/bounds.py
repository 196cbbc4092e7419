"""Plain twins of `fastrace.bounds`: one formula a function, one number at a time, slow and obvious."""

import functools
import itertools
import math

import numpy as np
from scipy import optimize, stats


def variance_factor(n, n_rows):
    return 1 / n * (1 - (n - 1) / (n_rows - 1)) if n_rows > 1 else 0.0


def serfling_factor(n, n_rows):
    if n <= n_rows / 2:
        return 1 - (n - 1) / n_rows
    return (1 - n / n_rows) * (1 + 1 / n)


def hoeffding(n, delta, support):
    return (support[1] - support[0]) * math.sqrt(math.log(1 / delta) / (2 * n))


def empirical_bernstein(n, std, delta, support):
    x = math.log(3 / delta)
    return std * math.sqrt(2 * x / n) + 3 * (support[1] - support[0]) * x / n


def hoeffding_serfling(n, n_rows, delta, support):
    rho = serfling_factor(n, n_rows)
    return (support[1] - support[0]) * math.sqrt(rho * math.log(1 / delta) / (2 * n))


def empirical_bernstein_serfling(n, n_rows, std, delta, support, onwards=False):
    """After n rows, or with the spread of any later number of them for all these at once."""
    if n == n_rows:
        return 0.0
    x = math.log(5 / delta)
    kappa = 7 / 3 + 3 / math.sqrt(2)
    rho = min(1.0, n_rows / n - 1) if onwards else serfling_factor(n, n_rows)
    return std * math.sqrt(2 * rho * x / n) + kappa * (support[1] - support[0]) * x / n


def serfling(n, n_rows, std, delta, support, onwards=False):
    return min(
        hoeffding_serfling(n, n_rows, delta / 2, support),
        empirical_bernstein_serfling(n, n_rows, std, delta / 2, support, onwards),
    )


def normal(n, n_rows, std, quantile):
    return quantile * std * math.sqrt(variance_factor(n, n_rows))


def looks(n_rows, first_look, growth):
    found = [min(first_look, n_rows)]
    while found[-1] < n_rows:
        found.append(min(n_rows, max(found[-1] + 1, math.floor(growth * found[-1]))))
    return found


def look_delta(look, delta, power):
    return delta * (power - 1) / (power * look**power)


def skewness_inflation(skewness, n, n_rows, quantile):
    read = n / n_rows
    g = skewness * (1 - 2 * read) / math.sqrt(1 - read) if read < 0.5 else 0.0
    excess = max(0.0, -g * (2 * quantile**2 + 1) / (6 * math.sqrt(n)))
    return excess * math.exp(stats.norm.logpdf(quantile) - stats.norm.logsf(quantile))


def tail_half_width(half_width, std, skewness, n, n_rows, quantile):
    """Wilson's upper limit of a Poisson count of events of size v, the root c of c - k = B sqrt(c), in units v / n.

    Twice the skewness beyond its standard error makes v; `half_width` is B sigma sqrt((1 - (n - 1) / (N - 1)) / n).
    """
    skewness = 2 * (skewness - math.sqrt(6 / n))
    if not skewness > 0:
        return half_width
    b = quantile * math.sqrt((n_rows - n) / (n_rows - 1))
    v = std * skewness
    k = n * std**2 / v**2
    return v / n * (b * b / 2 + b * math.sqrt(k + b * b / 4))


def tail_end(half_width, variance, means):
    """Distance of an end whose half-width is that of a normal law of this variance.

    `means` are those that the interval is about, one or two: skewness towards the end, number of rewards, variance.
    """
    if math.isinf(half_width):
        return half_width
    total, h = sum(error for *_, error in means), 0.0
    for skewness, n, error in means:
        beyond, share = abs(skewness) - math.sqrt(6 / n), error / total
        if not beyond > 0:
            continue
        known = min(n / beyond**2 / 24, 1)
        if skewness > 0:
            factor = max(share, 1 - known) * min(1 / known, 3) / 2
        else:
            factor = -share * known**2 / 3
        h += factor * beyond * half_width**2 / math.sqrt(variance) * math.sqrt(share / n)
    return max(*np.roots([1, -2 * h, -(half_width**2)]), 0.8 * half_width)    # w^2 = half_width^2 + 2 h w


def sample_skewness(x):
    """g1 of the values, nan where they do not vary."""
    d = x - x.mean()
    spread = (d**2).mean()
    return (d**3).mean() / spread**1.5 if spread > 0 else math.nan


def tail_rows(x, side, size, gap):
    """Rows to read before a lead is believed in which the tail of the column x takes part."""
    skewness = side * sample_skewness(x) - math.sqrt(6 / len(x))
    if not skewness > 0:
        return len(x)
    events = len(x) / skewness**2
    if events >= 24 or len(x) * gap >= 48 * size:
        return len(x)
    return min(24 * skewness**2, 48 * size / gap)


def tail_variance(x, side, away):
    """What is added to the variance of x against a mean that lies `away` further towards a tail."""
    x = np.asarray(x, float)
    return 2 * away * x.std() * max(side * sample_skewness(x) - math.sqrt(6 / x.size), 0.0) if np.ptp(x) > 0 else 0.0


def varies(std, size):
    """Whether rewards of a stream differ by more than rounding."""
    return std > np.finfo(float).eps * size


def tail_size(x):
    """Size of the values that carry the longer tail of a stream; 0 of equal values."""
    x = np.asarray(x, float)
    return x.std() * max(1.0, abs(sample_skewness(x))) if np.ptp(x) > 0 else 0.0


def lead_counts(x, side, size, size_of_other, gap, origin=0.0):
    """Whether a lead counts in which a stream takes part with its right tail (side 1) or its left one (-1).

    The lead loses `size` at a value of the tail. Of equal values so far, `size_of_other` counts, or 100 leads if more.
    """
    x = np.asarray(x, float)
    if not varies(np.std(x), abs(np.mean(x) + origin)):
        return gap > 0 and len(x) >= 48 * max(size_of_other / gap, 100)
    return tail_rows(x, side, size, max(gap, 1e-300)) <= len(x)


def student_quantile(quantile, n, ddof=1):
    """For a standard deviation of divisor n - ddof; Student's own has n - 1."""
    return student_isf(stats.norm.sf(quantile), n - 1) * math.sqrt((n - ddof) / (n - 1))


@functools.lru_cache(1 << 16)       # of SciPy's distributions each call checks its arguments for 0.1 ms
def student_isf(tail, degrees):
    return stats.t.isf(tail, degrees)


@functools.lru_cache(1 << 16)
def normal_isf(tail):
    return stats.norm.isf(tail)


def normal_density(z):
    return np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)


@functools.cache
def gauss_legendre(nodes):
    return np.polynomial.legendre.leggauss(nodes)


def crossing_probability(quantile, variances, first_exit, nodes=300):
    """Density propagation with one Gauss-Legendre rule on the whole interval."""
    low = -quantile if first_exit else -9.0
    x, w = gauss_legendre(nodes)
    z = low + 0.5 * (quantile - low) * (x + 1)
    w = 0.5 * (quantile - low) * w
    density = normal_density(z)
    mass = stats.norm.sf(quantile)
    for before, now in itertools.pairwise(variances):
        r = math.sqrt(now / before)
        s = math.sqrt(1 - r * r)
        mass += w @ (density * stats.norm.sf((quantile - r * z) / s))
        density = normal_density((z[:, None] - r * z) / s) / s @ (w * density)
    return mass


@functools.cache
def normal_quantile(delta, n_rows, first_look, growth, first_exit):
    """The quantile that the standardised means of the looks before the last exceed with probability delta."""
    variances = [variance_factor(n, n_rows) for n in looks(n_rows, first_look, growth)[:-1]]
    if not variances or delta >= 0.5:
        return 0.0

    def excess(quantile):
        return math.log(crossing_probability(quantile, variances, first_exit, nodes=100) / delta)

    return optimize.brentq(excess, 0.0, stats.norm.isf(delta / len(variances)) + 1e-9, rtol=1e-12)


def walk(variances, trials, rng):
    """Standardised errors of the mean at each look, shape (n_looks, trials)."""
    z = np.empty((len(variances), trials))
    z[0] = rng.standard_normal(trials)
    for k in range(1, len(variances)):
        r = math.sqrt(variances[k] / variances[k - 1])
        z[k] = r * z[k - 1] + math.sqrt(1 - r * r) * rng.standard_normal(trials)
    return z
