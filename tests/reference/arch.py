"""Plain twin of the terms of ARCH models."""

import numpy as np
from scipy import stats


def log_likelihood_terms(returns, q, first, weights, nu):
    """Student-t log densities of returns[first:], one after the other."""
    out = []
    for t in range(first, len(returns)):
        variance = weights[0] + sum(weights[i] * returns[t - i] ** 2 for i in range(1, q + 1))
        out.append(stats.t.logpdf(returns[t], nu, scale=np.sqrt(variance)))
    return np.array(out)
