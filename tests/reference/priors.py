"""Joint priors written plainly: densities on the natural scale from SciPy, and the Jacobians of the logarithms."""

import numpy as np
from scipy import special, stats

SCALE = {
    "half-normal": lambda a, b: stats.halfnorm(scale=a),
    "half-student": lambda a, b: stats.t(b, scale=a),       # twice its density, on positive numbers
    "gamma": lambda a, b: stats.gamma(a, scale=1.0 / b),
    "log-normal": lambda a, b: stats.lognorm(b, scale=np.exp(a)),
}
LOCATION = {
    "normal": lambda df: stats.norm(),
    "student": lambda df: stats.t(df),
    "laplace": lambda df: stats.laplace(),
}


def scale_log_density(name, a, b, *power_and_t):
    """Log density of t = log(scale), where the density is that of scale^power, 1 by default."""
    *power, t = power_and_t
    if power:
        return scale_log_density(name, a, b, power[0] * t) + np.log(abs(power[0]))
    if name == "inverse-gamma-of-square":
        return stats.invgamma(a, scale=b).logpdf(np.exp(2 * t)) + np.log(2) + 2 * t
    return SCALE[name](a, b).logpdf(np.exp(t)) + t + (np.log(2) if name == "half-student" else 0.0)


def correlations(y, q):
    """The Cholesky factor of a correlation matrix from unconstrained numbers, row after row."""
    z, lower, k = np.tanh(y), np.zeros((q, q)), 0
    for i in range(q):
        for j in range(i):
            lower[i, j] = z[k] * np.sqrt(1 - (lower[i, :j] ** 2).sum())
            k += 1
        lower[i, i] = np.sqrt(1 - (lower[i, :i] ** 2).sum())
    return lower


def lkj_log_density(matrix, eta):
    """Log density of a correlation matrix; the constant of Lewandowski, Kurowicka & Joe (2009), equation 16."""
    q = len(matrix)
    constant = 0.0
    for k in range(1, q):
        b = eta + (q - k - 1) / 2
        constant += (2 * eta - 2 + q - k) * (q - k) * np.log(2) + (q - k) * special.betaln(b, b)
    return (eta - 1) * np.linalg.slogdet(matrix)[1] - constant


def lkj_log_jacobian(y, q):
    """Log of |d correlations / d y|, by the formula of the determinants of its triangular parts."""
    lower, out, k = correlations(y, q), 0.0, 0
    for i in range(q):
        out += (q - 1 - i) * np.log(lower[i, i])            # from the factor to the matrix, its diagonal being fixed
        for j in range(i):
            out += 0.5 * np.log(1 - (lower[i, :j] ** 2).sum()) + np.log(1 - np.tanh(y[k]) ** 2)
            k += 1
    return out


def split(given, theta):
    """Conditional scale of each coefficient, covariance of each factor, log density of the hyperparameters."""
    coefficients, pools, factors, aux, _ = given
    n_seen = len(coefficients) + sum(n * len(sds) for n, sds, _ in factors) + (aux is not None)
    phi, k, value = theta[n_seen:], 0, 0.0
    scales = np.array([c[2] for c in coefficients], dtype=float)
    for number, pool in enumerate(pools):
        members = [j for j, c in enumerate(coefficients) if c[4] == number]
        if pool[0] == "shared":
            scales[members] = np.exp(phi[k])
            value += scale_log_density(*pool[1], phi[k])
            k += 1
            continue
        first = k + 1 + (pool[3] is not None)
        local = phi[first:first + len(members)]
        overall, squares = np.exp(phi[k]), np.exp(2 * local)
        value += scale_log_density(*pool[1], phi[k]) + sum(scale_log_density(*pool[2], t) for t in local)
        scales[members] = overall * np.sqrt(squares)
        if pool[3] is not None:
            slab = np.exp(phi[k + 1])
            value += scale_log_density(*pool[3], phi[k + 1])
            scales[members] = overall * np.sqrt(slab**2 * squares / (slab**2 + overall**2 * squares))
        k = first + len(members)
    covariances = []
    for _, sds, eta in factors:
        q = len(sds)
        sd = np.exp(phi[k:k + q])
        value += sum(scale_log_density(*prior, t) for prior, t in zip(sds, phi[k:k + q], strict=True))
        k += q
        lower = np.eye(q)
        if eta is not None and q > 1:
            y = phi[k:k + q * (q - 1) // 2]
            lower = correlations(y, q)
            value += lkj_log_density(lower @ lower.T, eta) + lkj_log_jacobian(y, q)
            k += len(y)
        covariances.append(np.outer(sd, sd) * (lower @ lower.T))
    return scales, covariances, value


def log_density(given, theta):
    """log p(theta) of a `JointPrior` made of `given`."""
    coefficients, _, factors, aux, own = given
    scales, covariances, value = split(given, theta)
    for j, (kind, mean, _, df, _) in enumerate(coefficients):
        if kind != "flat":
            value += LOCATION[kind](df).logpdf((theta[j] - mean) / scales[j]) - np.log(scales[j])
    first = len(coefficients)
    for (n_groups, sds, _), covariance in zip(factors, covariances, strict=True):
        for _ in range(n_groups):
            effects = theta[first:first + len(sds)]
            value += stats.multivariate_normal(np.zeros(len(sds)), covariance).logpdf(effects)
            first += len(sds)
    if aux is not None:
        value += scale_log_density(*aux, theta[first])
    return value + sum(f(theta if places is None else theta[places])[0] for f, places in own)
