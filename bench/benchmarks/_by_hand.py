"""Chains and draws as people write them by hand, in Numba: random-walk Metropolis whose accept test races on what a
Taylor expansion leaves (Chen & Ghahramani 2016, union bound over doubling looks, a window of shuffled rows), the exact
Poisson minibatch on top of the same expansion, and the raced draw of a categorical variable."""

# ruff: noqa: NPY002    (Numba compiles np.random's own functions)

from statistics import NormalDist

import numpy as np

try:
    from numba import njit
except ImportError:         # asv imports every file of this folder
    njit = None


def compiled(function):
    return function if njit is None else njit(nogil=True)(function)


@compiled
def _residual(x, y, i, now, new, mode):
    """What the expansion leaves of the change of one logistic term."""
    a = b = m = 0.0
    for k in range(x.shape[1]):
        a += x[i, k] * now[k]
        b += x[i, k] * new[k]
        m += x[i, k] * mode[k]
    p = 1.0 / (1.0 + np.exp(-m))
    change = y[i] * (b - a) - max(b, 0.0) - np.log1p(np.exp(-abs(b))) + max(a, 0.0) + np.log1p(np.exp(-abs(a)))
    return change - (y[i] - p) * (b - a) + 0.5 * p * (1.0 - p) * ((b - m) ** 2 - (a - m) ** 2)


@compiled
def _expansion(now, new, mode, gradient, hessian):
    a, b = now - mode, new - mode
    return gradient @ (new - now) + 0.5 * (b @ (hessian @ b)) - 0.5 * (a @ (hessian @ a))


@compiled
def race_chain(x, y, now, factor, n, seed, first, quantile, mode, gradient, hessian):
    np.random.seed(seed)
    rows, d = x.shape
    draws, read = np.empty((n, d)), 0
    for t in range(n):
        new = now + factor @ np.random.standard_normal(d)
        level = (np.log(np.random.random()) - _expansion(now, new, mode, gradient, hessian)) / rows
        start, used, target, sum1, sum2 = np.random.randint(rows), 0, first, 0.0, 0.0
        while True:
            target = min(target, rows)
            for j in range(used, target):
                v = _residual(x, y, (start + j) % rows, now, new, mode)
                sum1 += v
                sum2 += v * v
            used = target
            mean = sum1 / used
            spread = np.sqrt(max(sum2 / used - mean * mean, 0.0) / used * (1.0 - (used - 1.0) / (rows - 1.0)))
            if used == rows or abs(mean - level) > quantile * spread:
                break
            target = 2 * used
        read += used
        if mean > level:
            now = new
        draws[t] = now
    return draws, read


@compiled
def poisson_chain(x, y, now, factor, n, seed, mode, gradient, hessian, bound, cumulated):
    np.random.seed(seed)
    rows, d = x.shape
    draws, read = np.empty((n, d)), 0
    for t in range(n):
        new = now + factor @ np.random.standard_normal(d)
        if np.log(np.random.random()) < _expansion(now, new, mode, gradient, hessian):
            a, b, step = now - mode, new - mode, new - now
            size = 0.5 * np.sqrt(step @ step) * max(a @ a, b @ b)
            count, ratio = np.random.poisson(cumulated[-1] * size), 0.0
            for _ in range(count):
                i = min(np.searchsorted(cumulated, np.random.random() * cumulated[-1]), rows - 1)
                change, most = _residual(x, y, i, now, new, mode), bound[i] * size
                here = most - max(change, 0.0)
                if np.random.random() * most < here:
                    ratio += np.log((here + change) / here)
            read += count
            if np.log(np.random.random()) < ratio:
                now = new
        draws[t] = now
    return draws, read


@compiled
def choice_draws(x, y, w, n, seed, first, quantile):
    """Gumbel-perturbed states raced on Gaussian factors, variances against the leader; `first` = rows: exact."""
    np.random.seed(seed)
    rows, d = x.shape
    states = len(w)
    out, value = np.empty(n, np.int64), np.empty(states)
    for t in range(n):
        noise = np.empty(states)
        for a in range(states):
            noise[a] = -np.log(-np.log(np.random.random())) / rows
        sums, squares = np.zeros(states), np.zeros((states, states))
        live, start, used, target = np.arange(states), np.random.randint(rows), 0, first
        while True:
            target = min(target, rows)
            for j in range(used, target):
                i = (start + j) % rows
                for a in live:
                    e = y[i]
                    for k in range(d):
                        e -= x[i, k] * w[a, k]
                    value[a] = -0.5 * e * e
                    sums[a] += value[a]
                if target < rows:
                    for a in live:
                        for b in live:
                            squares[a, b] += (value[a] - value[b]) ** 2
            used = target
            best = live[0]
            for a in live:
                if sums[a] / used + noise[a] > sums[best] / used + noise[best]:
                    best = a
            if used == rows:
                break
            keep = np.zeros(states, np.bool_)
            for a in live:
                gap = (sums[best] - sums[a]) / used
                spread = max(squares[best, a] / used - gap * gap, 0.0) / used * (1.0 - (used - 1.0) / (rows - 1.0))
                keep[a] = a == best or gap + noise[best] - noise[a] <= quantile * np.sqrt(spread)
            live = np.flatnonzero(keep)
            if len(live) == 1:
                break
            target = 2 * used
        out[t] = best
    return out


def union_quantile(delta, n_rows, first):
    """One-sided normal quantile, delta shared by the looks before the last."""
    looks = max(1, int(np.ceil(np.log2(n_rows / first))))
    return NormalDist().inv_cdf(1.0 - delta / looks)
