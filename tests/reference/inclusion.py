"""Variable selection, one step at a time: Gibbs over sets from determinants, then values, then a pass over all rows.

The density of a set is that of George & McCulloch (1997) on the expansion of the log-likelihood; the decision that of
Liu (2001), section 9.4.3. Slabs that are not normal are normal given precisions, drawn first: Andrews & Mallows (1974).
"""

import math

import numpy as np


def log_density(inside, precision, linear, gain, counts, free):
    """Of a set of coefficients, values integrated out, up to a constant."""
    chosen = np.flatnonzero(inside)
    total = sum(gain[j] for j in chosen) + counts[sum(inside[j] for j in free)]
    if len(chosen):
        A, c = precision[np.ix_(chosen, chosen)], linear[chosen]
        total += 0.5 * c @ np.linalg.solve(A, c) - 0.5 * np.linalg.slogdet(A)[1]
    return total


def moved_scale(rng, t, log_prior, n, squares):
    """The logarithm of a learned scale, given n coefficients with these squared distances from their means."""

    def log_density(t):
        return log_prior(t) - n * t - 0.5 * squares * math.exp(-2.0 * t)

    for kind in ["gamma"] * (n > 0) + ["walk"] * 3:
        if kind == "gamma":
            new = -0.5 * math.log(rng.standard_gamma(n / 2.0) / (squares / 2.0))
            gain = log_prior(new) - log_prior(t)
        else:
            new = t + 1.5 * rng.standard_normal()
            gain = log_density(new) - log_density(t)
        t = new if -rng.standard_exponential() < gain else t
    return t


def precision_behind(rng, value, df, mean, scale):
    """Of a slab, given the coefficient's value; from its prior where the coefficient is out, as 0 says."""
    if df > 0.0:        # Student-t: normal given a gamma variable
        z = (value - mean) / scale
        w = rng.standard_gamma((df + 1.0) / 2.0) / ((df + z * z) / 2.0) if value else (
            rng.standard_gamma(df / 2.0) / (df / 2.0))
        return w / scale**2
    if not value:       # Laplace: the variance is exponential
        return 0.5 / rng.standard_exponential() / scale**2
    mu = scale / abs(value - mean)                  # inverse Gaussian: Michael, Schucany & Haas (1976)
    y = rng.standard_normal() ** 2
    smaller = mu + mu * mu * y / 2.0 - mu / 2.0 * math.sqrt(4.0 * mu * y + mu * mu * y * y)
    return (smaller if rng.random() < mu / (mu + smaller) else mu * mu / smaller) / scale**2


def step(rng, theta, plan, residual, log_priors=()):
    """The next state; `residual` is what the expansion leaves of the log-likelihood, summed over rows.

    After the coefficients come the logarithms of the scales that slabs share, whose log densities are `log_priors`.
    """
    precision, linear, gain, free, counts, n_flips, *mixed = plan
    theta, logs = theta[: len(linear)], theta[len(linear) :]
    rng.bit_generator.random_raw()                  # seeds the rows of a race
    threshold = -rng.standard_exponential()
    precision, linear, gain = precision.copy(), linear.copy(), gain.copy()
    slabs = []
    for j, df, mean, scale, number in zip(*mixed[0], strict=True) if mixed else ():
        learned = 1.0 if number < 0 else math.exp(logs[int(number)])
        w = (scale * learned) ** -2 if df < 0.0 else precision_behind(rng, theta[j], df, mean, scale * learned)
        slabs.append((j, number, mean, w * learned**2))
        precision[j, j] += w
        linear[j] += w * mean
        gain[j] += 0.5 * math.log(w) - 0.5 * w * mean**2
    theta = decided(rng, theta, threshold, precision, linear, gain, free, counts, n_flips, residual)
    new = logs.copy()
    for k, log_prior in enumerate(log_priors):
        own = [(w, theta[j] - mean) for j, number, mean, w in slabs if number == k and theta[j] != 0.0]
        new[k] = moved_scale(rng, logs[k], log_prior, len(own), sum(w * away**2 for w, away in own))
    return np.concatenate([theta, new])


def decided(rng, theta, threshold, precision, linear, gain, free, counts, n_flips, residual):
    """A set and its values from the surrogate, if the rows accept them."""
    inside = [theta[j] != 0.0 or j not in free for j in range(len(theta))]
    for _ in range(n_flips):
        j = free[int(len(free) * rng.random())]
        logs = []
        for chosen in (False, True):
            inside[j] = chosen
            logs.append(log_density(inside, precision, linear, gain, counts, free))
        inside[j] = rng.random() < 1.0 / (1.0 + math.exp(logs[0] - logs[1]))
    chosen = np.flatnonzero(inside)
    new = np.zeros(len(theta))
    if len(chosen):
        lower = np.linalg.cholesky(precision[np.ix_(chosen, chosen)])
        xi = np.array([rng.standard_normal() for _ in chosen])
        new[chosen] = np.linalg.solve(lower.T, np.linalg.solve(lower, linear[chosen]) + xi)
    return new if residual(new) - residual(theta) > threshold else theta
