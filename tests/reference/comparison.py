"""A comparison as its page says: rewards in lists, nothing kept but them."""

import math

import numpy as np

from reference import bounds, sequences


def t_level(away, variance, n, freedom, g):
    """Log of the evidence of a mixture of t-statistics, with prior N(0, g) on the effect size."""
    square = away**2 / (variance * freedom)
    return 0.5 * (freedom + 1) * math.log((1 + square) / (1 + square / (1 + n * g))) - 0.5 * math.log(1 + n * g)


def half_width(variance, n, freedom, g, level):
    """Where the evidence reaches the level, by bisection."""
    near, far = 0.0, 1e9 * math.sqrt(variance)
    if t_level(far, variance, n, freedom, g) < level:
        return math.inf
    for _ in range(200):
        middle = 0.5 * (near + far)
        near, far = (near, middle) if t_level(middle, variance, n, freedom, g) > level else (middle, far)
    return near


def spread(best_at, level):
    return (2 * level + math.log(1 + 2 * level)) / best_at


def by_cluster(rewards, keys):
    """Number, mean, variance and skewness of clusters: the ratio of sums, and what each cluster adds to its error."""
    sums = {}
    for x, key in zip(rewards, keys, strict=True):
        count, total = sums.get(key, (0, 0.0))
        sums[key] = count + 1, total + x
    counts, totals = (np.array(column, dtype=float) for column in zip(*sums.values(), strict=True))
    mean = totals.sum() / counts.sum()
    away = (totals - mean * counts) / counts.mean()
    return len(sums), mean, (away**2).sum() / (len(sums) - 1), bounds.sample_skewness(away)


def shared(rewards, keys, others, other_keys):
    """Clusters of both arms, and the covariance of the errors of the means: a sum over the clusters of both."""
    away = []
    for x, k in ((rewards, keys), (others, other_keys)):
        mean = x.mean()
        away.append({key: (x[k == key] - mean).sum() / x.size for key in set(k.tolist())})
    both = away[0].keys() & away[1].keys()
    return len(both), sum(away[0][key] * away[1][key] for key in both)


def asymptotic(moments, delta, first_look, pairs, common=None):
    """Intervals of arms and of pairs; `moments` are number, mean, variance and skewness of its rewards or clusters.

    `common` has, by pair, the number of clusters of both arms and the covariance of the two means.
    """
    best_at = first_look * math.log(max(first_look, 3))
    level, arms, differences = math.log(5 * len(moments) / delta), [], []
    for n, mean, variance, skewness in moments:
        half = half_width(variance / n, n, n - 1, spread(best_at, level), level) if n >= first_look else math.inf
        arms.append(tuple(mean + side * bounds.tail_end(half, variance / n, [(side * skewness, n, variance / n)])
                          for side in (-1, 1)))
    level = math.log(len(pairs) / (0.8 * delta))
    for a, b in pairs:
        (n, mean, variance, skewness), (m, other, variance_b, skewness_b) = moments[a], moments[b]
        both = variance / n + variance_b / m
        freedom = both**2 / ((variance / n) ** 2 / (n - 1) + (variance_b / m) ** 2 / (m - 1))
        if common:
            count, covariance = common[a, b]
            both, freedom = both - 2 * covariance, min(freedom, n + m - count - 1)
        known = min(n, m) >= first_look
        half = half_width(both, n * m / (n + m), freedom, spread(best_at / 2, level), level) if known else math.inf
        below, above = (bounds.tail_end(half, both, [(side * skewness, n, variance / n),
                                                     (-side * skewness_b, m, variance_b / m)]) for side in (-1, 1))
        differences.append((max(mean - other - below, arms[a][0] - arms[b][1]),
                            min(mean - other + above, arms[a][1] - arms[b][0])))
    return arms, differences


def exact_differences(rewards, arms, delta, pairs):
    """Differences of rewards in [0, 1], given the intervals of the arms."""
    level, found = math.log(2 * len(pairs) / (0.8 * delta)), []
    for a, b in pairs:
        low, high, _, _ = sequences.portfolio_difference(rewards[a], rewards[b], level)
        found.append((max(low, arms[a][0] - arms[b][1]), min(high, arms[a][1] - arms[b][0])))
    return found
