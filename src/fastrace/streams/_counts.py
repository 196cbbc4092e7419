"""What is sure of a count over all resamples, after some of them were read in exchangeable order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]


def log_wealth(count: Any, read: Any, total: int, candidate: Any) -> Float:
    """Log wealth against the hypothesis that `candidate` of `total` resamples reach; `count` of `read` did.

    The ratio of the Krichevsky-Trofimov mixture to the likelihood of the candidate. Infinite where that is 0.
    """
    from scipy.special import betaln, gammaln  # here, since it takes 0.3 s to import

    ones, zeros = candidate - count, total - candidate - (read - count)     # left in the resamples not yet read
    possible = (ones >= 0) & (zeros >= 0)
    ones, zeros = np.where(possible, ones, 0.0), np.where(possible, zeros, 0.0)
    likelihood = (gammaln(total - read + 1.0) - gammaln(ones + 1.0) - gammaln(zeros + 1.0)
                  - gammaln(total + 1.0) + gammaln(candidate + 1.0) + gammaln(total - candidate + 1.0))
    mixture = betaln(count + 0.5, read - count + 0.5) - math.log(math.pi)
    return np.where(possible, mixture - likelihood, np.inf)


def fewer(count: Any, read: Any, total: int, cut: Any, bar: float) -> NDArray[np.bool_]:
    """Whether it is sure that fewer than `cut` of all resamples reach: the wealth against `cut` and more is e^bar."""
    k = np.minimum(np.maximum(cut, 0.0), float(total))
    falling = (total - read - k + count) * (k + 1.0) <= (k + 1.0 - count) * (total - k)     # likelihood beyond k
    crossed = falling & (log_wealth(count, read, total, k) >= bar)
    return np.where(np.asarray(cut) > total, True, crossed & (np.asarray(cut) > 0))


def at_least(count: Any, read: Any, total: int, cut: Any, bar: float) -> NDArray[np.bool_]:
    """Whether it is sure that `cut` or more of all resamples reach: the wealth against fewer is e^bar."""
    k = np.minimum(np.maximum(np.asarray(cut) - 1.0, 0.0), float(total))
    rising = (total - read - k + 1.0 + count) * k >= (k - count) * (total - k + 1.0)        # likelihood up to k
    crossed = rising & (log_wealth(count, read, total, k) >= bar)
    return np.where(np.asarray(cut) <= 0, True, crossed & (np.asarray(cut) <= total))


def bisected(holds: Callable[[Float], NDArray[np.bool_]], shape: tuple[int, ...], most: int) -> Float:
    """The least whole number from 1 to `most` at which `holds`, entry by entry; once it holds, it holds beyond."""
    low, high = np.zeros(shape), np.full(shape, float(most))
    while (high - low > 1.0).any():
        middle = np.floor((low + high) / 2.0)
        passed = holds(middle) & (high - low > 1.0)
        high = np.where(passed, middle, high)
        low = np.where(passed | (high - low <= 1.0), low, middle)
    return high
