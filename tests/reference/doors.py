"""Plain twins of the doors to Optuna and Inspect, from their docstrings."""

import numpy as np

from reference.sequences import running, universal


def difference_at_all_times(gains, share, support, n_rows):
    """Interval of the mean gain after each row, gains in the order in which rows are read."""
    span = support[1] - support[0]
    bounds = running(universal((np.asarray(gains) + span) / (2 * span), share, n_rows))
    return [(2 * span * low - span, 2 * span * high - span) for low, high in bounds]


def pruned_study(tables, orders, epsilon, delta, support):
    """Rows read by each trial of a study that maximizes, one trial after the other; `tables` (trials, rows)."""
    best, at_risk, read = None, 0, []
    for values, order in zip(tables, orders, strict=True):
        n_rows, n_read = len(values), len(values)
        if best is not None:
            gains = (values - best)[order]
            share = delta / ((at_risk + 1) * (at_risk + 2))
            ends = difference_at_all_times(gains, share, support, n_rows)
            worse = [n for n, (_, high) in enumerate(ends, 1) if high < epsilon and n < n_rows]
            n_read = worse[0] if worse else n_rows
            at_risk += not worse and gains.mean() >= epsilon
        if n_read == n_rows and (best is None or values.mean() > best.mean()):
            best = values
        read.append(n_read)
    return read


def verdict_after_each(gains, epsilon, delta, support):
    """Verdict of one epoch after each sample, gains over the reference in the order of samples."""
    n_rows = len(gains)
    low, high = support
    bounds = running(universal((np.asarray(gains) - low) / (high - low), delta, n_rows))
    out = []
    for a, b in ((low + (high - low) * x, low + (high - low) * y) for x, y in bounds):
        if out and out[-1] != "not known yet":
            out.append(out[-1])
        elif a > 0 or b < 0:
            out.append("better" if a > 0 else "worse")
        else:
            out.append("equivalent" if -epsilon <= a and b <= epsilon else "not known yet")
    return out
