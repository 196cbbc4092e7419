"""Sweeps of a mixture of logistic regressions over groups, one number at a time, from the definition of the kernel.

Labels come from weight_k exp(Q_g(theta_k)), parameters from prior(theta) exp(sum of Q_g(theta)). A change is accepted
with probability min(1, exp(change of the sum of R_g)), by Poisson minibatches or by all rows. A share of the changes is
plain: labels from these shares to a power, parameters by a random walk, accepted with what that makes of the ratio.
"""

import math

import numpy as np

from reference.mcmc import RowStream, alias_table, log_terms, size_of_move

PLAIN, WIDE = 0.1, 0.25                    # share of plain changes, and the power of their shares
THIRD = 1.0 / (6.0 * math.sqrt(3.0))        # largest third derivative of a logistic term


class Group:
    """The rows of a group, and their expansion at a point."""

    def __init__(self, X, y, hat, precision):
        self.X, self.y, self.hat = X, y, hat
        eta = X @ hat
        p = 1.0 / (1.0 + np.exp(-eta))
        self.eta, self.slope, self.curvature = eta, y - p, -p * (1.0 - p)
        self.value = log_terms("logistic", X, y, hat)
        self.H = X.T @ ((p * (1.0 - p))[:, None] * X)
        metric = self.H + np.diag(np.minimum(precision, 0.05 * np.diag(self.H)))
        self.root = np.linalg.cholesky(metric).T
        self.weights = THIRD * np.linalg.norm(X @ np.linalg.inv(self.root), axis=1) ** 3
        self.keep, self.other = alias_table(self.weights)

    def expansion(self, theta):
        step = theta - self.hat
        return self.value.sum() + self.slope @ self.X @ step - 0.5 * step @ self.H @ step

    def residuals(self, theta, rows=slice(None)):
        a = self.X[rows] @ theta - self.eta[rows]
        terms = log_terms("logistic", self.X[rows], self.y[rows], theta)
        return terms - self.value[rows] - a * (self.slope[rows] + 0.5 * self.curvature[rows] * a)

    def log_ratio(self, now, new, stream, most):
        """What the rows say of a change that the expansion does not, by a Poisson minibatch or by all of them."""
        n, out = len(self.y), 0.0
        size = size_of_move(self.root @ (now - self.hat), self.root @ (new - self.hat))
        if not self.weights.sum() * size < most * n:
            return (self.residuals(new) - self.residuals(now)).sum(), n
        rows = []
        for _ in range(stream.poisson(self.weights.sum() * size)):
            i = stream.below(n)
            rows.append(i if stream.uniform() < self.keep[i] else self.other[i])
        for i in rows:
            bound = self.weights[i] * size
            change = float((self.residuals(new, [i]) - self.residuals(now, [i]))[0])
            here = bound - max(change, 0.0)
            if stream.uniform() * bound < here:
                out += math.log((here + change) / here)
        return out, len(rows)


def sweeps(groups, labels, theta, weights, mean, sd, rng, n, *, most, concentration, prior, sd_scale=None):
    """States after each of n sweeps, and the rows read; hierarchical where `sd_scale` is given.

    `prior` is mean and precision: of the parameters of the classes, or of `mean`.
    """
    labels, theta, weights, (n_classes, d) = list(labels), theta.copy(), weights.copy(), theta.shape
    mean, sd, out, read = mean.copy(), sd.copy(), [], []
    for _ in range(n):
        stream, rows = RowStream(int(rng.bit_generator.random_raw())), 0
        for g, group in enumerate(groups):
            power = WIDE if rng.random() < PLAIN else 1.0
            score = np.log(weights) + [group.expansion(t) for t in theta]
            share = np.exp(power * (score - score.max()))
            new = int(np.searchsorted(np.cumsum(share), rng.random() * share.sum(), side="right"))
            if new != labels[g]:
                ratio, some = group.log_ratio(theta[labels[g]], theta[new], stream, most)
                rows += some
                if ratio + (1.0 - power) * (score[new] - score[labels[g]]) > -rng.standard_exponential():
                    labels[g] = new
        for k in range(n_classes):
            own = [group for group, label in zip(groups, labels, strict=True) if label == k]
            at, precision = (mean, 1.0 / sd**2) if sd_scale is not None else prior
            A, b = np.diag(precision), precision * at
            for group in own:
                A, b = A + group.H, b + group.H @ group.hat + group.slope @ group.X
            plain = own and rng.random() < PLAIN
            size = 2.4 / math.sqrt(d) * math.exp(1.5 * rng.standard_normal()) if plain else 1.0
            noise = size * np.linalg.solve(np.linalg.cholesky(A).T, [rng.standard_normal() for _ in range(d)])
            new, ratio = (theta[k] if plain else np.linalg.solve(A, b)) + noise, 0.0
            if plain:
                ratio = 0.5 * precision @ ((theta[k] - at) ** 2 - (new - at) ** 2)
                ratio += sum(group.expansion(new) - group.expansion(theta[k]) for group in own)
            for group in own:
                change, some = group.log_ratio(theta[k], new, stream, most)
                ratio, rows = ratio + change, rows + some
            if not own or ratio > -rng.standard_exponential():
                theta[k] = new
        weights = np.array([rng.standard_gamma(concentration + labels.count(k)) for k in range(n_classes)])
        weights /= weights.sum()
        for j in range(d if sd_scale is not None else 0):
            own = 1.0 / sd[j] ** 2
            precision = prior[1][j] + n_classes * own
            mean[j] = ((prior[1][j] * prior[0][j] + own * theta[:, j].sum()) / precision
                       + rng.standard_normal() / math.sqrt(precision))
            inverse = rng.standard_exponential() / (own + 1.0 / sd_scale**2)
            rate = inverse + 0.5 * ((theta[:, j] - mean[j]) ** 2).sum()
            sd[j] = math.sqrt(rate / rng.standard_gamma(0.5 * (1.0 + n_classes)))
        out.append([*labels, *theta.ravel(), *weights, *([] if sd_scale is None else [*mean, *sd])])
        read.append(rows)
    return np.array(out), np.array(read)
