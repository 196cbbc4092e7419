"""R-hat and effective sample sizes of chains, as numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from fastrace._base._checks import reals

__all__ = ["each_effective_size", "each_rhat", "each_split_rhat", "effective_sample_size"]

_AT_ONCE = 300_000  # numbers transformed at once
_LARGEST = 1e100  # draw, whose square a float holds with room


def _each(
    flat: NDArray[Any], function: Callable[[NDArray[np.float64]], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """A function of halves of chains, shape (m, n, k), for all coordinates, some of them at a time."""
    count = max(1, _AT_ONCE // max(1, flat.shape[0] * flat.shape[1]))
    parts = []
    for first in range(0, flat.shape[2], count):
        some = flat[:, :, first : first + count].transpose(0, 2, 1).astype(np.float64, order="C")  # draws side by side
        parts.append(function(_halves(some.transpose(0, 2, 1))))
    return np.concatenate([*parts, np.empty(0)])


def _halves(chains: NDArray[np.float64]) -> NDArray[np.float64]:
    half = chains.shape[1] // 2
    return np.concatenate([chains[:, :half], chains[:, -half:]]) if half else chains


def each_rhat(flat: NDArray[Any]) -> NDArray[np.float64]:
    """R-hat of each coordinate of draws of shape (n_chains, n_draws, n), as `Trace.rhat` explains it."""
    return _each(flat, _ranked_rhat)


def each_split_rhat(flat: NDArray[Any]) -> NDArray[np.float64]:
    """The same of the draws themselves in place of their ranks."""
    return _each(flat, _rhat)


def _ranked_rhat(chains: NDArray[np.float64]) -> NDArray[np.float64]:
    """The larger R-hat of ranks, and of ranks of distances from the median."""
    m, n, k = chains.shape
    finite = np.isfinite(chains).all(axis=(0, 1))
    if not m * n or not finite.any():
        return np.where(finite, _rhat(chains), np.nan)
    columns = chains.transpose(2, 0, 1).reshape(k, m * n)
    scores = np.zeros((2, k, m * n))
    by_rank = special.ndtri((1.0 + 0.5 * np.arange(2 * m * n - 1) - 0.375) / (m * n + 0.25))
    for j in np.flatnonzero(finite):
        _scores(columns[j], by_rank, scores[:, j])
    plain, folded = (_rhat(part.reshape(k, m, n).transpose(1, 2, 0)) for part in scores)
    return np.where(finite, np.maximum(plain, folded), np.nan)


def _scores(x: NDArray[np.float64], by_rank: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Normal scores of the ranks of x, shape (N,), into out[0], and of its distances from the median into out[1].

    `by_rank` has the score of rank 1 + i / 2 at place i: equal numbers share the middle of their ranks. x is sorted
    once; distances below and above the median are then two sorted runs, which a stable sort merges in O(N).
    """
    order = np.argsort(x)
    low = x[order]
    out[0, order] = _of_sorted(low, by_rank)
    half = len(x) // 2
    median = np.mean(low[half - 1 + len(x) % 2 : half + 1])
    order = np.concatenate([order[:half][::-1], order[half:]])
    apart = np.concatenate([median - low[:half][::-1], low[half:] - median])
    merged = np.argsort(apart, kind="stable")
    out[1, order[merged]] = _of_sorted(apart[merged], by_rank)


def _of_sorted(x: NDArray[np.float64], by_rank: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores of sorted numbers."""
    first = np.flatnonzero(x[1:] != x[:-1]) + 1
    if len(first) == len(x) - 1:
        return by_rank[::2]
    ends = np.concatenate([[0], first, [len(x)]])
    return np.repeat(by_rank[ends[:-1] + ends[1:] - 1], np.diff(ends))


def _rhat(chains: NDArray[np.float64]) -> NDArray[np.float64]:
    m, n, k = chains.shape
    if n < 2:
        return np.full(k, np.nan)
    within = chains.var(axis=1, ddof=1).mean(axis=0)
    between = chains.mean(axis=1).var(axis=0, ddof=1) if m > 1 else np.zeros(k)
    still = (np.ptp(chains, axis=1) == 0.0).all(axis=0)  # whose variance may be rounding
    with np.errstate(divide="ignore", invalid="ignore"):
        out = np.sqrt((n - 1) / n + between / within)
    return np.where(still, np.where(np.ptp(chains[:, 0], axis=0) == 0.0, 1.0, np.inf), out)


def each_effective_size(flat: NDArray[Any]) -> NDArray[np.float64]:
    """Effective sample size of each coordinate of draws of shape (n_chains, n_draws, n)."""
    return _each(flat, _ess)


def effective_sample_size(chains: ArrayLike) -> float:
    """Effective sample size of draws of shape (n_chains, n_draws), by Geyer's monotone sequence on split chains.

    Parameters
    ----------
    chains : array_like, shape (n_chains, n_draws)
        Draws of one coordinate. A vector is one chain.

    Returns
    -------
    float
        Number of independent draws whose mean would be as accurate.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace.mcmc import effective_sample_size
    >>> bool(3000 < effective_sample_size(np.random.default_rng(0).normal(size=(4, 1000))) < 5000)
    True
    """
    table = np.atleast_2d(reals(chains, "chains"))
    if np.ndim(chains) == 0 or table.ndim != 2 or not table.size:
        raise ValueError(f"chains has shape {np.shape(chains)}; draws of one coordinate, of shape (n_chains, n_draws), "
                         f"are needed: of trace.draws, take one coordinate at a time, trace.draws[:, :, k]")
    bad = ~(np.abs(table) <= _LARGEST)
    if bad.any():
        raise ValueError(f"chains holds {table[bad][0]}; finite numbers of at most {_LARGEST:g} are needed")
    return float(_ess(_halves(table[:, :, None]))[0])


def _ess(x: NDArray[np.float64]) -> NDArray[np.float64]:
    m, n, k = x.shape
    if n < 4:
        return np.full(k, float(m * n))
    size = 1 << (2 * n - 1).bit_length()
    transformed = np.fft.rfft(x - x.mean(axis=1, keepdims=True), size, axis=1)
    power = (transformed.real**2 + transformed.imag**2).mean(axis=0)  # before the way back, which is linear
    covariance = np.fft.irfft(power, size, axis=0)[:n] / n
    within = covariance[0] * n / (n - 1)
    variance = within * (n - 1) / n + (x.mean(axis=1).var(axis=0, ddof=1) if m > 1 else 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = 1.0 - (within - covariance) / variance
    rho[0] = 1.0
    pairs = rho[0 : 2 * (n // 2) : 2] + rho[1 : 2 * (n // 2) : 2]
    before = np.logical_and.accumulate(pairs > 0.0, axis=0)
    tau = -1.0 + 2.0 * np.where(before, np.minimum.accumulate(pairs, axis=0), 0.0).sum(axis=0)
    out = m * n / np.maximum(tau, 1.0 / np.log10(max(m * n, 10)))
    return np.where(np.ptp(x, axis=(0, 1)) == 0.0, float(m * n), out)
