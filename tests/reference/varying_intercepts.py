"""The posterior of a model with an intercept and one group intercept, by quadrature.

y of row i is Bernoulli or Poisson with predictor b + u_g, u_g = sigma z_g and z_g standard normal; b is normal about 0
and sigma half-normal. Given b and sigma the groups are independent, so that grids of one dimension are enough.
"""

import numpy as np


class VaryingIntercepts:
    """`log_sigma`: means and standard deviations, and `below`, are of [b, u_0, ..., log sigma]."""

    def __init__(self, family, y, codes, sd, scale):
        self.b = np.linspace(-7.0 * sd, 7.0 * sd, 281)
        self.s = np.linspace(np.log(scale) - 8.0, np.log(scale) + 1.6, 97)
        self.z = np.linspace(-7.0, 7.0, 281)
        sigma = np.exp(self.s)
        log_p = -0.5 * np.square(self.b / sd)[:, None] - 0.5 * np.square(sigma / scale) + self.s
        self.given = []                         # of each group the law of z on the grid, given b and sigma
        eta = self.b[:, None, None] + sigma[:, None] * self.z
        one = np.logaddexp(0.0, eta) if family == "logistic" else np.exp(np.minimum(eta, 700.0))
        for g in range(codes.max() + 1):
            own = y[codes == g]
            log_w = own.sum() * eta - len(own) * one - 0.5 * np.square(self.z)
            top = log_w.max(axis=2)
            w = np.exp(log_w - top[:, :, None])
            whole = w.sum(axis=2)
            log_p = log_p + top + np.log(whole)
            self.given.append((w / whole[:, :, None]).astype(np.float32))
        self.p = np.exp(log_p - log_p.max())
        self.p /= self.p.sum()

    def _expected(self, f):
        """The mean of a function of each coordinate."""
        u = np.exp(self.s)[:, None] * self.z
        groups = [float(np.sum(self.p * np.einsum("bsz,sz->bs", law, f(k, u)))) for k, law in enumerate(self.given, 1)]
        return np.array([self.p.sum(axis=1) @ f(0, self.b), *groups, self.p.sum(axis=0) @ f(len(groups) + 1, self.s)])

    def moments(self):
        mean = self._expected(lambda k, x: x)
        return mean, np.sqrt(self._expected(lambda k, x: np.square(x - mean[k])))

    def below(self, points):
        """The probability that each coordinate is below its point, by a line between points of the grid."""
        def share(k, x):
            width = np.gradient(x, axis=-1) if x.ndim > 1 else np.gradient(x)
            return np.clip((points[k] - x) / width + 0.5, 0.0, 1.0)

        return self._expected(share)


def hyper_laws(family, y, codes, sd, scale, b, s):
    """Probabilities of the intercept on the grid `b`, and of log sigma on the grid `s`, of many groups of few kinds.

    Groups with as many rows and the same sum of outcomes have the same integral.
    """
    z = np.linspace(-8.0, 8.0, 401)
    sigma, kinds = np.exp(s), np.column_stack([np.bincount(codes, y), np.bincount(codes)])
    log_p = -0.5 * np.square(b / sd)[:, None] - 0.5 * np.square(sigma / scale) + s
    eta = b[:, None, None] + sigma[:, None] * z
    one = np.logaddexp(0.0, eta) if family == "logistic" else np.exp(eta)
    for (total, count), times in zip(*np.unique(kinds, axis=0, return_counts=True), strict=True):
        log_w = total * eta - count * one - 0.5 * np.square(z)
        top = log_w.max(axis=2)
        log_p += times * (top + np.log(np.exp(log_w - top[:, :, None]).sum(axis=2)))
    p = np.exp(log_p - log_p.max())
    return p.sum(axis=1) / p.sum(), p.sum(axis=0) / p.sum()
