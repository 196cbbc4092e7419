"""Sums over the rows of a multinomial logistic regression, and how far a step moves its predictors apart."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastrace._models._softmax import offset_table
from fastrace._models.rows import chunks, lengths

Array = NDArray[np.float64]

# A third derivative of a term is a third cumulant of the step's predictors over the classes. For a variable of range 1
# the largest is p q (q - p) of two values, at p = (3 - sqrt(3)) / 6; mixed derivatives have that bound (Banach 1938).
THIRD = 1.0 / (6.0 * math.sqrt(3.0))


class Sums(NamedTuple):
    """The sum of all terms at a point, with derivatives."""

    value: float
    gradient: Array     # shape (d,)
    hessian: Array      # shape (d, d)
    largest: float      # number that a row's term or residual is computed from, in absolute value


def offset_from_first(offset: Any, shape: tuple[int, int]) -> Array:
    """Offsets of all classes but the first, from that of the first."""
    table = offset_table(offset, shape)
    return np.ascontiguousarray(table[:, 1:] - table[:, :1])


def predictors(source: Any, at: Array) -> Iterator[tuple[slice, Array, Array]]:
    """Some rows, their explanatory variables, and their predictors of all classes, the first's 0."""
    table = at.reshape(source.n_classes - 1, -1)
    for part, x in chunks(source.rows.X):
        eta = np.zeros((len(x), source.n_classes))
        eta[:, 1:] = x @ table.T
        if source.offset is not None:
            eta[:, 1:] += source.offset[part]
        yield part, x, eta


def softmax_sums(source: Any, at: Array) -> Sums:
    """Of the terms of a `SoftmaxSource` at one vector of parameters, in one pass."""
    p, free = source.rows.X.shape[1], source.n_classes - 1
    value, largest, gradient, hessian = 0.0, 0.0, np.zeros((free, p)), np.zeros((free, p, free, p))
    times = source.rows.weights
    for part, x, eta in predictors(source, at):
        count = None if times is None else times[part]
        size = np.abs(eta).max(axis=1)
        eta -= eta.max(axis=1, keepdims=True)
        share = np.exp(eta)
        total = share.sum(axis=1)
        share /= total[:, None]
        own = np.arange(len(x)), source.rows.y[part].astype(np.intp)
        level = eta[own] - np.log(total)
        size = np.maximum(size, np.abs(level))
        value += float(level.sum() if count is None else count @ level)
        largest = max(largest, float((size if count is None else count * size).max()))
        left = -share
        left[own] += 1.0
        if count is not None:
            left *= count[:, None]
        gradient += left[:, 1:].T @ x
        for k in range(free):
            for j in range(k + 1):
                # 1 less a share may round to 0 where the shares of other classes do not.
                rest = np.delete(share, k + 1, axis=1).sum(axis=1) if k == j else -share[:, j + 1]
                weight = share[:, k + 1] * rest
                if count is not None:
                    weight *= count
                hessian[k, :, j] -= x.T @ (weight[:, None] * x)
    for k in range(free):
        for j in range(k):
            hessian[j, :, k] = hessian[k, :, j].T
    return Sums(value, gradient.ravel(), hessian.reshape(free * p, free * p), largest)


def lengths_apart(X: Any, factor: Array, j: int, k: int) -> Array:
    """How far a step ``factor @ w`` with ``|w| = 1`` moves each row's predictors of classes j < k apart, at most."""
    p = X.shape[1]
    apart = factor[(k - 1) * p : k * p]
    if j:
        apart = apart - factor[(j - 1) * p : j * p]
    return lengths(X, np.linalg.qr(apart.T)[1].T)  # of as many columns as X


def spreads(X: Any, factor: Array, n_classes: int) -> Array:
    """The same for the two classes that it moves farthest apart."""
    out = np.zeros(X.shape[0])
    for j, k in combinations(range(n_classes), 2):
        np.maximum(out, lengths_apart(X, factor, j, k), out=out)
    return out
