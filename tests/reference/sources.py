"""Plain twins of the compiled sources: one row and one arm at a time."""

import math

import numpy as np
from scipy import special


def log_likelihood(family, eta, y, scale=1.0, df=4.0):
    """Log-likelihood of one observation, without what depends on no parameter: log(y!) of counts; of the negative
    binomial and gamma families, of dispersion `scale`, all that depends on y and `scale` alone, see `left_out`.
    """
    if family == "logistic":
        z = -eta if y else eta
        return -(max(z, 0.0) + math.log1p(math.exp(-abs(z))))
    if family == "binomial":        # of one trial
        return log_likelihood("logistic", eta, y)
    if family == "probit":
        return float(special.log_ndtr(eta if y else -eta))
    if family == "cloglog":
        return math.log(-math.expm1(-math.exp(eta))) if y else -math.exp(eta)
    if family == "poisson":
        return y * eta - math.exp(eta)
    if family == "negative-binomial":
        return y * eta - (y + 1 / scale) * math.log1p(scale * math.exp(eta))
    if family == "gamma":
        k = 1 / scale
        return k * math.log(k) - math.lgamma(k) - k * (eta + y * math.exp(-eta))
    z = (y - eta) / scale
    if family == "gaussian":
        return -0.5 * z * z - math.log(scale) - 0.5 * math.log(2 * math.pi)
    constant = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi) - math.log(scale)
    return constant - (df + 1) / 2 * math.log1p(z * z / df)


def left_out(family, y, scale):
    """What `log_likelihood` leaves out of y and the dispersion, which belongs to it where the dispersion is learned."""
    k = 1 / scale
    if family == "negative-binomial":
        return math.lgamma(y + k) - math.lgamma(k) - y * math.log(k)
    return k * math.log(y) if family == "gamma" else 0.0


def linear_predictor(x, theta):
    """x . theta, summed from left to right, as the compiled loop does."""
    eta = 0.0
    for a, b in zip(x, theta, strict=True):
        eta += float(a) * float(b)
    return eta


def glm_rewards(x, y, theta, family, rows, arms, scale=1.0, df=4.0):
    """Shape (len(rows), len(arms))."""
    return np.array([[log_likelihood(family, linear_predictor(x[row], theta[arm]), y[row], scale, df) for arm in arms]
                     for row in rows])


def derivatives(family, eta, y, scale=1.0, df=4.0):
    """First and second derivative of `log_likelihood` in eta."""
    if family == "logistic":
        probability = 1 / (1 + math.exp(-eta)) if eta > 0 else math.exp(eta) / (1 + math.exp(eta))
        return y - probability, -probability * (1 - probability)
    if family == "binomial":
        return derivatives("logistic", eta, y)
    if family == "probit":
        sign = 1.0 if y else -1.0
        ratio = math.exp(-0.5 * eta * eta - special.log_ndtr(sign * eta)) / math.sqrt(2.0 * math.pi)
        return sign * ratio, -ratio * (sign * eta + ratio)
    if family == "cloglog":
        e = math.exp(eta)
        first = e / math.expm1(e) if y else -e
        return first, first * (1.0 - e - first) if y else -e
    if family == "negative-binomial":
        k = 1 / scale
        share = math.exp(eta) / (k + math.exp(eta))
        return y - (y + k) * share, -(y + k) * share * (1.0 - share)
    if family == "gamma":
        return (y * math.exp(-eta) - 1.0) / scale, -y * math.exp(-eta) / scale
    if family == "poisson":
        return y - math.exp(eta), -math.exp(eta)
    r = y - eta
    if family == "gaussian":
        return r / scale**2, -1 / scale**2
    d = df * scale**2 + r * r
    return (df + 1) * r / d, -(df + 1) * (df * scale**2 - r * r) / d**2


def taylor_glm(x, y, theta, theta_hat, family, rows, arms, scale=1.0, df=4.0):
    """Second-order expansion of the log-likelihood about theta_hat: shape (len(rows), len(arms))."""
    out = np.empty((len(rows), len(arms)))
    for i, row in enumerate(rows):
        hat = linear_predictor(x[row], theta_hat)
        first, second = derivatives(family, hat, y[row], scale, df)
        for j, arm in enumerate(arms):
            step = linear_predictor(x[row], theta[arm]) - hat
            out[i, j] = log_likelihood(family, hat, y[row], scale, df) + first * step + 0.5 * second * step * step
    return out


def binned_taylor(y, labels, references, value, gradient, hessian, rows, arms):
    """value_b + gradient_b (y - reference_b) + half the quadratic form of hessian_b, b the bin of the row."""
    out = np.empty((len(rows), len(arms)))
    for i, row in enumerate(rows):
        b = labels[row]
        step = y[row] - references[b]
        for j, arm in enumerate(arms):
            out[i, j] = value[b, arm] + gradient[b, arm] @ step + 0.5 * step @ hessian[b, arm] @ step
    return out


def design(X, factors):
    """All columns of a model with groups: those of X, then of each factor, given as (codes, n_groups, values of shape
    (n_rows, q)), q columns a group that are 0 in the rows of other groups.
    """
    X = np.asarray(X, dtype=float)
    columns = [X]
    for codes, n_groups, values in factors:
        block = np.zeros((len(X), n_groups * values.shape[1]))
        for row, group in enumerate(codes):
            block[row, group * values.shape[1] : (group + 1) * values.shape[1]] = values[row]
        columns.append(block)
    return np.column_stack(columns)
