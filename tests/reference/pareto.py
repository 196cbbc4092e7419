"""Pareto-smoothed importance weights, one draw at a time, from Vehtari, Simpson, Gelman, Yao & Gabry (2024).

The fit is that of Zhang & Stephens (2009), section 2: b on their grid, weighted by its profile likelihood.
"""

import math


def fit(excess):
    """Shape and scale of a generalised Pareto distribution of ascending excesses; the shape with the paper's prior."""
    n = len(excess)
    m = 30 + math.floor(math.sqrt(n))
    quartile = excess[math.floor(n / 4 + 0.5) - 1]
    grid, profile = [], []
    for i in range(1, m + 1):
        b = 1.0 / excess[-1] + (1.0 - math.sqrt(m / (i - 0.5))) / (3.0 * quartile)
        k = sum(math.log1p(-b * x) for x in excess) / n
        grid.append(b)
        profile.append(n * (math.log(-b / k) - k - 1.0))
    shares = []
    for i in range(m):
        others = sum(math.exp(min(700.0, profile[j] - profile[i])) for j in range(m))
        shares.append(1.0 / others)
    b = sum(share * b for share, b in zip(shares, grid, strict=False)) / sum(shares)
    k = sum(math.log1p(-b * x) for x in excess) / n
    return (n * k + 10 * 0.5) / (n + 10), -k / b


def smooth(log_ratios):
    """Normalised weights and the shape k."""
    n = len(log_ratios)
    largest = max(log_ratios)
    weights = [math.exp(x - largest) for x in log_ratios]
    size = math.ceil(min(0.2 * n, 3.0 * math.sqrt(n)))
    order = sorted(range(n), key=lambda i: weights[i])
    tail, cutoff = order[n - size :], weights[order[n - size - 1]]
    k, scale = fit([weights[i] - cutoff for i in tail])
    for z, i in enumerate(tail, start=1):
        share = (z - 0.5) / size
        weights[i] = min(cutoff + scale * ((1.0 - share) ** -k - 1.0) / k, 1.0)
    total = sum(weights)
    return [w / total for w in weights], k
