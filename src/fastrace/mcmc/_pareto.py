"""Pareto smoothing of importance weights, and what the shape of their tail says of them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["GOOD", "LEAST", "MOST", "smoothed", "trusted_below"]

Array = NDArray[np.float64]

GOOD = 0.5       # shape below which the weights have a finite variance
MOST = 0.7       # shape above which smoothed weights are wrong however many draws there are
LEAST = 25       # log ratios of which a tail of five can be taken
_EQUAL = 1e-9    # log ratios whose spread is rounding
_PRIOR = 10      # observations that the prior of the shape, 0.5, is worth


def smoothed(log_ratios: Array) -> tuple[Array, float]:
    """Logarithms of Pareto-smoothed importance weights that sum to 1, and the shape k of their tail.

    Parameters
    ----------
    log_ratios : ndarray of shape (n,)
        Log densities of target over proposal, up to a constant; -inf where the target has no mass, which is left out.

    Returns
    -------
    log_weights : ndarray of shape (n,)
    k : float
        0 where all ratios are equal up to rounding; infinite where fewer than five of the largest differ.

    References
    ----------
    .. [1] Vehtari, Simpson, Gelman, Yao, Gabry, "Pareto smoothed importance sampling", JMLR 25(72), 2024.
    """
    log_weights = log_ratios - log_ratios.max()
    order = np.argsort(log_weights, kind="stable")[np.isneginf(log_weights).sum() :]
    n = len(order)      # those of weight 0, as beyond an edge of the target, say nothing of a tail
    k = 0.0
    if np.ptp(log_weights[order]) > _EQUAL:
        size = math.ceil(min(0.2 * n, 3.0 * math.sqrt(n)))
        largest = order[n - size :]
        cutoff = math.exp(log_weights[order[n - size - 1]])
        excess = np.exp(log_weights[largest]) - cutoff
        tail = largest[excess > 0.0]
        excess = excess[excess > 0.0]
        k = math.inf
        if len(excess) >= 5:
            k, scale = _fitted(excess)
            share = (np.arange(len(excess)) + 0.5) / len(excess)
            values = -np.log1p(-share) if k == 0.0 else np.expm1(-k * np.log1p(-share)) / k
            log_weights[tail] = np.minimum(np.log(cutoff + scale * values), 0.0)
    return log_weights - _log_sum(log_weights), k


def trusted_below(n: int) -> float:
    """Shape up to which n smoothed weights can be trusted: 0.7, and less for fewer than 2154 of them."""
    return min(1.0 - 1.0 / math.log10(n), MOST)


def _fitted(excess: Array) -> tuple[float, float]:
    """Shape and scale of a generalised Pareto distribution, of ascending excesses.

    Zhang & Stephens, "A new and efficient estimation method for the generalized Pareto distribution", Technometrics
    51(3), 2009: the mean of b = -k / scale over its profile posterior on a grid. The shape is then drawn to 0.5.
    """
    n = len(excess)
    count = 30 + int(math.sqrt(n))
    b = 1.0 / excess[-1] + (1.0 - np.sqrt(count / (np.arange(1, count + 1) - 0.5))) / (
        3.0 * excess[int(n / 4 + 0.5) - 1])
    shape = np.log1p(-b[:, None] * excess).mean(axis=1)
    log_profile = n * (np.log(-b / shape) - shape - 1.0)
    weight = np.exp(log_profile - _log_sum(log_profile))
    weight[weight < 10.0 * np.finfo(float).eps] = 0.0
    mean = float(b @ weight / weight.sum())
    k = float(np.log1p(-mean * excess).mean())
    return (n * k + _PRIOR * 0.5) / (n + _PRIOR), -k / mean


def _log_sum(x: Array) -> float:
    """Logarithm of the sum of exponentials; at least one of them is finite."""
    largest = float(x.max())
    return largest + math.log(float(np.exp(x - largest).sum()))
