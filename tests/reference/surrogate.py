"""Plain twins of the moves on a surrogate: dense matrices, one random number at a time, from the same generator.

Prior: independent normal coefficients, then factors whose effects are independent normal given one standard deviation
per term, and half-normal standard deviations; chains move the logarithms of the latter.
"""

import math

import numpy as np

from reference.mcmc import alias_table

TAIL, WIDTH, MOST_STEPS, MOST_SHRINKS = 5.0, 2.5, 32, 200


class Prior:
    """coefficients: standard deviations. factors: (number of groups, scales of the half-normal priors)."""

    def __init__(self, coefficients, factors):
        self.sds, self.factors = np.asarray(coefficients, dtype=float), factors
        self.n_seen = len(self.sds) + sum(count * len(scales) for count, scales in factors)
        self.n_hyper = sum(len(scales) for _, scales in factors)

    def log_hyper(self, phi):
        scales = np.array([scale for _, own in self.factors for scale in own])
        ratio = np.exp(phi) / scales
        return float((0.5 * math.log(2.0 / math.pi) - np.log(scales) - 0.5 * ratio**2 + phi).sum())

    def precision(self, phi):
        parts, k = [self.sds**-2.0], 0
        for count, scales in self.factors:
            parts.append(np.tile(np.exp(-2.0 * phi[k : k + len(scales)]), count))
            k += len(scales)
        return np.concatenate(parts)


class NormalInner:
    """order: coordinates of the blocks, then the dense ones; A = L L' in that order."""

    def __init__(self, hat, gradient, H, prior, order, center, factor, walk_share, size=1.0):
        self.hat, self.g, self.H, self.prior, self.order = hat, gradient, H, prior, order
        self.center, self.factor, self.walk_share, self.size = center, factor, walk_share, size

    def given(self, phi):
        """L in `order`, and A^-1 b."""
        P = np.diag(self.prior.precision(phi))
        A = self.H + P
        L = np.linalg.cholesky(A[np.ix_(self.order, self.order)])
        b = self.g - P @ self.hat
        return A, L, np.linalg.solve(A, b), b, P

    def log_density(self, theta):
        """Prior times expansion: of hyperparameters, of what the rows see given them, and the quadratic."""
        psi, phi = theta[:self.prior.n_seen], theta[self.prior.n_seen :]
        precision, d = self.prior.precision(phi), psi - self.hat
        return (self.prior.log_hyper(phi) + 0.5 * (np.log(precision).sum() - psi @ (precision * psi))
                + self.g @ d - 0.5 * d @ self.H @ d)

    def log_marginal(self, phi):
        A, _, mean, b, P = self.given(phi)
        return self.prior.log_hyper(phi) + 0.5 * (
            np.linalg.slogdet(P)[1] - np.linalg.slogdet(A)[1] + b @ mean - self.hat @ P @ self.hat)

    def log_proposal(self, phi):
        k = len(phi)
        step = np.linalg.solve(self.factor, phi - self.center)
        return -0.5 * (TAIL + k) * math.log1p(step @ step / TAIL)

    def move_phi(self, phi, rng):
        k = len(phi)
        here = self.log_marginal(phi)
        if self.walk_share > 0.0 and rng.random() < self.walk_share:
            return self.slice(phi, here, rng)
        xi = np.array([rng.standard_normal() for _ in range(k)])
        stretch = math.sqrt(0.5 * TAIL / rng.standard_gamma(0.5 * TAIL))
        new = self.center + stretch * self.factor @ xi
        ratio = self.log_marginal(new) - here + self.log_proposal(phi) - self.log_proposal(new)
        return new if -rng.standard_exponential() < ratio else phi

    def slice(self, phi, here, rng):
        level = here - rng.standard_exponential()
        direction = self.factor @ np.array([rng.standard_normal() for _ in phi])
        low = -WIDTH * rng.random()
        high = low + WIDTH
        left = int(MOST_STEPS * rng.random())
        right = MOST_STEPS - 1 - left
        while left > 0 and self.log_marginal(phi + low * direction) > level:
            low, left = low - WIDTH, left - 1
        while right > 0 and self.log_marginal(phi + high * direction) > level:
            high, right = high + WIDTH, right - 1
        for _ in range(MOST_SHRINKS):
            step = low + (high - low) * rng.random()
            if self.log_marginal(phi + step * direction) > level:
                return phi + step * direction
            low, high = (step, high) if step < 0.0 else (low, step)
        return phi

    def move(self, theta, rng):
        n, order = self.prior.n_seen, self.order
        psi, phi = theta[:n], theta[n:]
        keep = math.sqrt(1.0 - self.size**2)
        _, L, mean, _, _ = self.given(phi)
        z = np.empty(n)
        z[order] = L.T @ (psi - self.hat - mean)[order]
        if len(phi):
            phi = self.move_phi(phi, rng)
        _, L, mean, _, _ = self.given(phi)
        z = keep * z + self.size * np.array([rng.standard_normal() for _ in range(n)])
        psi = np.empty(n)
        psi[order] = np.linalg.solve(L.T, z[order])
        return np.concatenate([self.hat + mean + psi, phi])


def exact_step(inner, log_likelihood, theta, rng, n_inner=1, stride=0.0):
    """One step decided by all rows: R is the log-likelihood less its expansion. The next state, and if it is new.

    With a stride a fifth of the steps are plain ones of the last coordinate that the rows see: symmetric proposals.
    """
    n = inner.prior.n_seen

    def residual(psi):
        d = psi - inner.hat
        return log_likelihood(psi) - inner.g @ d + 0.5 * d @ inner.H @ d

    rng.bit_generator.random_raw()              # the seed of the step's own stream, which no row needs
    plain = stride > 0.0 and rng.random() < 0.2
    level = -rng.standard_exponential()
    if plain:
        new = theta.copy()
        new[n - 1] += stride * rng.standard_normal()
        before, after = (residual(at[:n]) + inner.log_density(at) for at in (theta, new))
        return (new if after - before > level else theta), after - before > level
    new = theta
    for _ in range(n_inner):
        new = inner.move(new, rng)
    accepted = residual(new[:n]) - residual(theta[:n]) > level
    return (new if accepted else theta), accepted


def cubic_change(before, both, after, step):
    straight = math.sqrt(step) * (before + both + after)
    return min(straight, before**1.5 + after**1.5) / 6.0 * (1.0 + 1e-9)


class Blocks:
    """Rows block after block, each with an alias table of its weights."""

    def __init__(self, weights, codes, n_blocks):
        self.rows = [np.flatnonzero(codes == g) for g in range(n_blocks)]
        self.weights = [weights[rows] for rows in self.rows]
        self.tables = [alias_table(own) if len(own) else None for own in self.weights]


def minibatch(stream, blocks, z0, z1, dense, coordinates, changes, threshold):
    """Whether the rows' changes, all of them in a function of the row, sum to more than the threshold; rows read.

    z0 and z1: whitened points; `dense` and `coordinates[g]`: which of them the rows of block g see.
    """
    sizes, upto, rate = [], [], 0.0
    for own, weights in zip(coordinates, blocks.weights, strict=True):
        seen = np.r_[dense, own]
        a, b = z0[seen], z1[seen]
        sizes.append(cubic_change(a @ a, a @ b, b @ b, (b - a) @ (b - a)))
        rate += weights.sum() * sizes[-1]
        upto.append(rate)
    drawn = []
    for _ in range(stream.poisson(rate)):
        level = rate * stream.uniform()
        g = next(k for k, sum_ in enumerate(upto) if sum_ > level)
        keep, other = blocks.tables[g]
        i = stream.below(len(keep))
        i = i if stream.uniform() < keep[i] else other[i]
        drawn.append((blocks.rows[g][i], blocks.weights[g][i] * sizes[g]))
    total = 0.0
    for row, bound in drawn:
        change = min(max(changes(row), -bound), bound)
        here = bound - change if change > 0.0 else bound
        if stream.uniform() * bound < here:
            total += math.log((here + change) / here)
    return total > threshold, len(drawn)
