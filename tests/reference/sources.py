"""Plain twins of the compiled sources: one row and one arm at a time."""

import math

import numpy as np


def log_likelihood(family, eta, y, scale=1.0, df=4.0):
    """Log-likelihood of one observation; Poisson without log(y!), which depends on no parameter."""
    if family == "logistic":
        z = -eta if y else eta
        return -(max(z, 0.0) + math.log1p(math.exp(-abs(z))))
    if family == "poisson":
        return y * eta - math.exp(eta)
    z = (y - eta) / scale
    if family == "gaussian":
        return -0.5 * z * z - math.log(scale) - 0.5 * math.log(2 * math.pi)
    constant = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi) - math.log(scale)
    return constant - (df + 1) / 2 * math.log1p(z * z / df)


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
