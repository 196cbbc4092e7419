"""Sweeps of a mixture of regressions over groups, one number at a time, from the definition of the kernel.

Labels come from weight_k exp(Q_g(theta_k)), parameters from prior(theta) exp(sum of Q_g(theta)). A change is accepted
with probability min(1, exp(change of the sum of R_g)), by Poisson minibatches or by all rows. A share of the changes is
plain: labels from these shares to a power, parameters by a random walk, accepted with what that makes of the ratio.

Rows are of logistic regressions, or of Gaussian or Student-t ones whose scale is learned: the last parameter of a class
is then its logarithm. Labels of groups of few rows come from weight_k exp(L_g(theta_k)).
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
        self.gradient, self.radius = self.slope @ X, math.inf
        self.keep, self.other = alias_table(self.weights)

    def expansion(self, theta):
        step = theta - self.hat
        return self.value.sum() + self.gradient @ step - 0.5 * step @ self.H @ step

    def terms(self, theta, rows=slice(None)):
        return log_terms("logistic", self.X[rows], self.y[rows], theta)

    def residuals(self, theta, rows=slice(None)):
        a = self.X[rows] @ theta - self.eta[rows]
        return self.terms(theta, rows) - self.value[rows] - a * (self.slope[rows] + 0.5 * self.curvature[rows] * a)

    def log_ratio(self, now, new, stream, most):
        """What the rows say of a change that the expansion does not, by a Poisson minibatch or by all of them."""
        n, out = len(self.y), 0.0
        near = [self.root @ (theta - self.hat) for theta in (now, new)]
        size = size_of_move(*near) if max(map(np.linalg.norm, near)) <= self.radius else math.inf
        if not self.weights.sum() * size < most * n:
            return (self.terms(new) - self.terms(now)).sum() - self.expansion(new) + self.expansion(now), n
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


class ScaledGroup(Group):
    """The same of Student-t rows, or Gaussian ones without `df`, in coefficients and the logarithm t of the scale.

    `metric`, `weights` and `radius` are the lengths in which, and how far, the weights bound third derivatives.
    """

    def __init__(self, X, y, hat, metric, weights, radius, df=None):
        self.X, self.y, self.hat, self.df, self.radius = X, y, hat, df, radius
        self.eta, self.value = X @ hat[:-1], self.terms(hat)
        self.slope, self.curvature, self.gradient, self.H = self.derivatives(hat)
        if radius == 0.0:                                   # no bounds; what is curved upwards is taken off
            scale = np.sqrt(np.abs(np.diag(self.H)))
            values, vectors = np.linalg.eigh(self.H / np.outer(scale, scale))
            self.H = (vectors * np.maximum(values, 0.0)) @ vectors.T * np.outer(scale, scale)
        self.root, self.weights = np.linalg.cholesky(metric).T, weights if radius else np.full(len(y), np.inf)
        if radius:
            self.keep, self.other = alias_table(self.weights)

    def derivatives(self, theta):
        """Of each row by eta and t, and twice; the gradient of their sum, and minus its Hessian."""
        u, by_eta = (self.y - self.X @ theta[:-1]) * math.exp(-theta[-1]), math.exp(-theta[-1])
        first, second = u, np.ones(len(u))                  # of g, where a term is -t - g(u)
        if self.df is not None:
            first = (self.df + 1.0) * u / (self.df + u**2)
            second = (self.df + 1.0) * (self.df - u**2) / (self.df + u**2) ** 2
        slope = np.stack([first * by_eta, first * u - 1.0])
        curvature = -np.stack([second * by_eta**2, (second * u + first) * by_eta, (second * u + first) * u])
        H = np.zeros((len(theta), len(theta)))
        H[:-1, :-1] = self.X.T @ (-curvature[0][:, None] * self.X)
        H[-1, :-1] = H[:-1, -1] = -curvature[1] @ self.X
        H[-1, -1] = -curvature[2].sum()
        return slope, curvature, np.append(slope[0] @ self.X, slope[1].sum()), H

    def terms(self, theta, rows=slice(None)):
        family = "gaussian" if self.df is None else "student-t"
        return log_terms(family, self.X[rows], self.y[rows], theta[:-1], math.exp(theta[-1]), self.df or 4.0)

    def residuals(self, theta, rows=slice(None)):
        a, t = self.X[rows] @ theta[:-1] - self.eta[rows], theta[-1] - self.hat[-1]
        slope, bend = self.slope[:, rows], self.curvature[:, rows]
        expansion = slope[0] * a + slope[1] * t + 0.5 * (bend[0] * a * a + 2.0 * bend[1] * a * t + bend[2] * t * t)
        return self.terms(theta, rows) - self.value[rows] - expansion


def derivatives(theta, large, small):
    """Log-likelihood of groups at a point, its gradient and minus its Hessian: expansions of large ones, and rows."""
    value = sum(group.expansion(theta) for group in large) + sum(group.terms(theta).sum() for group in small)
    slope, H = np.zeros(len(theta)), np.zeros((len(theta), len(theta)))
    for group in large:
        slope, H = slope + group.gradient - group.H @ (theta - group.hat), H + group.H
    for group in small:
        _, _, gradient, curvature = group.derivatives(theta)
        slope, H = slope + gradient, H + curvature
    return value, slope, H


def followed(theta, large, small, at, precision, moving):
    """Log density of a class at a point, but for what a scale's prior is besides, and the normal density there.

    That one is of the first parameters, `moving` of them. Mean and precision of it come from Newton's step; the
    diagonal of a precision grows until it is one.
    """
    value, slope, H = derivatives(theta, large, small)
    value -= 0.5 * precision @ (theta - at) ** 2
    slope, H = (slope - precision * (theta - at))[:moving], (H + np.diag(precision))[:moving, :moving]
    damping, diagonal = 0.0, np.abs(np.diag(H))
    while np.linalg.eigvalsh(H + np.diag(damping * diagonal))[0] <= 0.0:
        damping = max(1.0, 4.0 * damping)
    H = H + np.diag(damping * diagonal)
    return value, theta[:moving] + np.linalg.solve(H, slope), H


class HalfStudentScale:
    """Prior of the logarithm t of a scale that is half-Student, and the normal density at its mode."""

    def __init__(self, df, scale):
        self.df, self.scale = df, scale
        self.mean, self.precision = math.log(scale), 2.0 * df / (df + 1.0)

    def log_density(self, t):
        return t - 0.5 * (self.df + 1.0) * math.log1p((math.exp(t) / self.scale) ** 2 / self.df)

    def beside(self, t):
        return self.log_density(t) + 0.5 * self.precision * (t - self.mean) ** 2

    def draw(self, rng):
        z = abs(rng.standard_normal())
        return math.log(self.scale * z / math.sqrt(2.0 * rng.standard_gamma(0.5 * self.df) / self.df))


def shared_scale(groups, labels, theta, scale, rng, stream, most, small_rows, noise):
    """Move the last entry of all rows of `theta`, one number, given the others; the rows read."""
    plain = rng.random() < PLAIN
    size = 2.4 * math.exp(1.5 * rng.standard_normal()) if plain else noise
    keep, rows, t = 1.0 if plain else math.sqrt(1.0 - noise**2), 0, theta[0, -1]

    def along(t):
        value = scale.beside(t) - 0.5 * scale.precision * (t - scale.mean) ** 2
        slope, curved = -scale.precision * (t - scale.mean), scale.precision
        for group, label in zip(groups, labels, strict=True):
            parts = ([], [group]) if len(group.y) <= small_rows else ([group], [])
            part, gradient, H = derivatives(np.append(theta[label, :-1], t), *parts)
            value, slope, curved = value + part, slope + gradient[-1], curved + H[-1, -1]
        return value, slope, curved if curved > 0.0 else scale.precision

    value, slope, curved = along(t)
    z = rng.standard_normal()
    new = t + (1.0 - keep) * slope / curved + size * z / math.sqrt(curved)
    there, back, curved_there = along(new)
    step = t - new - (1.0 - keep) * back / curved_there
    ratio = there - value + 0.5 * (z**2 + math.log(curved_there / curved) - curved_there * step**2 / size**2)
    for k in range(len(theta)):
        for group in [group for group, label in zip(groups, labels, strict=True) if label == k]:
            if len(group.y) <= small_rows:
                rows += len(group.y)
                continue
            change, some = group.log_ratio(theta[k], np.append(theta[k, :-1], new), stream, most)
            ratio, rows = ratio + change, rows + some
    if ratio > -rng.standard_exponential():
        theta[:, -1] = new
    return rows


def sweeps(groups, labels, theta, weights, mean, sd, rng, n, *, most, concentration, prior, sd_scale=None, scale=None,
           small_rows=0, noise=1.0, shared=False):
    """States after each of n sweeps, and the rows read; hierarchical where `sd_scale` is given.

    `prior` is mean and precision: of the parameters of the classes, or of `mean`. With `scale`, a prior such as
    `HalfStudentScale`, the last parameter of a class is the logarithm of its scale, and is recorded as the scale.
    `noise` is the share of it in proposals of parameters that are not plain. `shared`: all classes have one scale.
    """
    labels, theta, weights, (n_classes, d) = list(labels), theta.copy(), weights.copy(), theta.shape
    mean, sd, out, read, p = mean.copy(), sd.copy(), [], [], d if scale is None else d - 1
    m = p if shared else d                      # parameters that a class moves
    for _ in range(n):
        stream, rows = RowStream(int(rng.bit_generator.random_raw())), 0
        for g, group in enumerate(groups):
            if len(group.y) <= small_rows:
                score = np.log(weights) + [group.terms(t).sum() for t in theta]
                share = np.exp(score - score.max())
                labels[g] = int(np.searchsorted(np.cumsum(share), rng.random() * share.sum(), side="right"))
                rows += len(group.y)
                continue
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
            at, precision = (mean, 1.0 / sd**2) if sd_scale is not None else (prior[0][:p], prior[1][:p])
            if scale is not None:
                at, precision = np.append(at, scale.mean), np.append(precision, scale.precision)
            A, b = np.diag(precision), precision * at
            for group in own:
                A, b = A + group.H, b + group.H @ group.hat + group.gradient
            plain = own and rng.random() < PLAIN
            size = 2.4 / math.sqrt(m) * math.exp(1.5 * rng.standard_normal()) if plain else noise
            keep = 1.0 if plain else math.sqrt(1.0 - noise**2)
            small = [group for group in own if len(group.y) <= small_rows]
            large = [group for group in own if len(group.y) > small_rows]
            if small:
                value, center, H = followed(theta[k], large, small, at, precision, m)
                z, new = np.array([rng.standard_normal() for _ in range(m)]), theta[k].copy()
                new[:m] = center + keep * (new[:m] - center) + size * np.linalg.solve(np.linalg.cholesky(H).T, z)
                there, back, H_there = followed(new, large, small, at, precision, m)
                step = theta[k][:m] - (back + keep * (new[:m] - back))
                ratio = there - value + 0.5 * z @ z - 0.5 * step @ H_there @ step / size**2
                ratio += 0.5 * (np.linalg.slogdet(H_there)[1] - np.linalg.slogdet(H)[1])
                ratio += scale.beside(new[-1]) - scale.beside(theta[k][-1])
                rows += sum(len(group.y) for group in small)
                for group in large:
                    change, some = group.log_ratio(theta[k], new, stream, most)
                    ratio, rows = ratio + change, rows + some
                if ratio > -rng.standard_exponential():
                    theta[k] = new
                continue
            own_A, ratio, new = A[:m, :m], 0.0, theta[k].copy()
            away = size * np.linalg.solve(np.linalg.cholesky(own_A).T, [rng.standard_normal() for _ in range(m)])
            center = np.linalg.solve(own_A, b[:m] - A[:m, m:] @ new[m:])
            new[:m] = center + keep * (new[:m] - center) + away
            if plain:
                ratio = 0.5 * precision @ ((theta[k] - at) ** 2 - (new - at) ** 2)
                ratio += sum(group.expansion(new) - group.expansion(theta[k]) for group in own)
            if scale is not None and own:
                ratio += scale.beside(new[-1]) - scale.beside(theta[k][-1])
            elif scale is not None and not shared:
                new[-1] = scale.draw(rng)
            for group in own:
                change, some = group.log_ratio(theta[k], new, stream, most)
                ratio, rows = ratio + change, rows + some
            if not own or ratio > -rng.standard_exponential():
                theta[k] = new
        if shared:
            rows += shared_scale(groups, labels, theta, scale, rng, stream, most, small_rows, noise)
        weights = np.array([rng.standard_gamma(concentration + labels.count(k)) for k in range(n_classes)])
        weights /= weights.sum()
        for j in range(p if sd_scale is not None else 0):
            own = 1.0 / sd[j] ** 2
            precision = prior[1][j] + n_classes * own
            mean[j] = ((prior[1][j] * prior[0][j] + own * theta[:, j].sum()) / precision
                       + rng.standard_normal() / math.sqrt(precision))
            inverse = rng.standard_exponential() / (own + 1.0 / sd_scale**2)
            rate = inverse + 0.5 * ((theta[:, j] - mean[j]) ** 2).sum()
            sd[j] = math.sqrt(rate / rng.standard_gamma(0.5 * (1.0 + n_classes)))
        out.append([*labels, *theta[:, :p].ravel(), *np.exp(theta[: 1 if shared else None, p:]).ravel(), *weights,
                    *([] if sd_scale is None else [*mean, *sd])])
        read.append(rows)
    return np.array(out), np.array(read)
