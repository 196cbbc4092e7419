"""Limits for tests of probabilistic promises."""

from scipy import stats


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
