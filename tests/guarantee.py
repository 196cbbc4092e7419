"""Limits for tests of probabilistic promises.

A promise that at most a share delta fails is refuted, by error once in a million, from so many failures on; the rate is
found with a probability of 0.99:

    trials          40    60   100   150   200   300   400   1000   2000
    delta 0.1: of   16    20    28    36    44    58    72    149    268      rate 0.57 .47 .39 .32 .29 .25 .23 .18 .15
    delta 0.05: of  12    15    19    24    28    37    45     87    150      rate 0.47 .38 .29 .23 .20 .17 .15 .11 .09
"""

import numpy as np
import pytest
from scipy import stats

from fastrace import mcmc


def few_or_many(names, few, many):
    """Run a test with few trials by default, and with many under the mark `long`."""
    return pytest.mark.parametrize(names, [
        pytest.param(*(few if isinstance(few, tuple) else [few]), id="few"),
        pytest.param(*(many if isinstance(many, tuple) else [many]), id="many", marks=pytest.mark.long)])


def assert_rate_at_most(failures, trials, promised, alpha=1e-6):
    """Fail only if the runs refute the promise: Clopper-Pearson lower limit above it, by error once in 1 / alpha."""
    low = stats.beta.ppf(alpha, failures, trials - failures + 1) if failures else 0.0
    assert low <= promised, f"{failures}/{trials} failed: rate >= {low:.4f}, promised {promised}"


def assert_fits(counts, probabilities, alpha=1e-6):
    """Chi-squared test of counts against probabilities, refused by error once in 1 / alpha."""
    total = sum(counts)
    expected = [p * total for p in probabilities]
    p_value = stats.chisquare(counts, expected).pvalue
    assert p_value >= alpha, f"counts {list(counts)} against {expected}: p = {p_value:.2g}"


def assert_uniform(ranks, draws, cells):
    """Ranks from 0 to `draws`, in columns: chi-squared of the counts in so many cells, as `assert_fits`."""
    for column in np.transpose(ranks):
        assert_fits(np.bincount(column * cells // (draws + 1), minlength=cells), np.full(cells, 1.0 / cells))


def assert_same_law(first, second):
    """Draws of two chains. Of each column, by quarters of draws so far apart that they are independent."""
    for one, other in zip(first.T, second.T, strict=True):
        edges = np.quantile(one, [0.25, 0.5, 0.75])
        thin = max(2, int(4.0 * max(len(x) / mcmc.effective_sample_size(x) for x in (one, other))))
        counts = [np.bincount(np.searchsorted(edges, x[::thin]), minlength=4) for x in (one, other)]
        assert_fits(counts[1], sum(counts) / sum(map(sum, counts)))


def assert_mean(draws, expected, alpha=1e-6):
    """Mean of correlated draws, or means of their columns, refused by error once in 1 / alpha."""
    columns, means = np.atleast_2d(np.asarray(draws).T), np.atleast_1d(expected)
    for column, mean in zip(columns, means, strict=True):
        error = column.std() / np.sqrt(mcmc.effective_sample_size(column))
        assert abs(column.mean() - mean) < stats.norm.isf(alpha / (2 * len(means))) * error, \
            f"mean {column.mean():.4g} against {mean:.4g}, standard error {error:.2g}"


def assert_centred(rows, alpha=1e-6):
    """Independent rows of bounded numbers whose means are 0, refused by error once in 1 / alpha.

    By Hotelling's test of all columns together, which finds what many share, and by Student's of each.
    """
    rows = np.asarray(rows)
    n, k = rows.shape
    mean, covariance = rows.mean(axis=0), np.atleast_2d(np.cov(rows.T))
    together = n * mean @ np.linalg.solve(covariance, mean) * (n - k) / (k * (n - 1))
    each = np.abs(mean) / np.sqrt(np.diag(covariance) / n)
    p_values = [2.0 * stats.f.sf(together, k, n - k), 4.0 * k * stats.t.sf(each.max(), n - 1)]
    assert min(p_values) >= alpha, f"means {mean.round(3)}: together p = {p_values[0]:.2g}, least p = {p_values[1]:.2g}"
