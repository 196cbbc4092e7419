"""Directions in which the parameters of a model with groups move and no row sees it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace._models._arrow import Arrow
from fastrace._models.grouping import Factor
from fastrace._models.rows import CHUNK

__all__ = ["orthonormal", "unseen_directions"]

Array = NDArray[np.float64]

SAME = 1e-12  # of a column's largest value, by which rounding may move it
DEPENDENT = 1e-10  # of the largest eigenvalue of their products: directions that others are made of, up to rounding


def unseen_directions(X: Any, factors: Sequence[Factor], dim: int) -> Array:
    """Steps of a coefficient against the effects of all groups, shape (k, dim): rows see no change.

    There are such where a column is an effect's values times a number for each group: of an intercept, of a slope
    that varies too, and of a column that is the same in all rows of a group.
    """
    out = []
    for f in factors:
        for j, k, times in _multiples(X, f):
            way = np.zeros(dim)
            way[j], way[f.start + k : f.stop : f.width] = 1.0, -times
            out.append(way)
    return np.reshape(out, (-1, dim))


def orthonormal(ways: Array, metric: Arrow) -> Array:
    """Directions with the span of `ways`, orthonormal in the metric, and the metric times each; shape (2, k, dim)."""
    if len(ways) == 0:
        return np.array([ways, ways])
    ways = ways / np.sqrt([[way @ metric.times(way)] for way in ways])
    values, vectors = np.linalg.eigh(ways @ np.array([metric.times(way) for way in ways]).T)
    apart = values > DEPENDENT * values[-1]
    ways = (vectors[:, apart] / np.sqrt(values[apart])).T @ ways
    return np.array([ways, [metric.times(way) for way in ways]])


def _multiples(X: Any, f: Factor) -> Iterator[tuple[int, int, Array]]:
    """Columns of X, effects of a group, and the numbers that make the one of the other's values, by group.

    Few rows tell most columns apart, so that the others alone are read on.
    """
    n, p = X.shape
    left = {(j, k): np.zeros(0) for j in range(p) for k in range(f.width)}
    known = np.zeros((f.n_groups, f.width), dtype=bool)
    for first in range(0, n, CHUNK):
        part = slice(first, min(first + CHUNK, n))
        values, codes, rows = f.values(X, part), f.codes[part], X[part]
        squares = np.stack([np.bincount(codes, v * v, f.n_groups) for v in values.T], axis=1)
        new = (squares > 0.0) & ~known
        known |= new
        stored = set(np.unique(rows.indices).tolist()) if hasattr(rows, "nnz") else range(p)
        for (j, k), times in list(left.items()):
            if j not in stored and len(times) == 0:
                continue  # 0 in all rows up to here
            x = rows[:, [j]]
            x = np.ravel(x.toarray() if hasattr(x, "toarray") else x).astype(np.float64)
            if len(times) == 0:
                times = left[j, k] = np.zeros(f.n_groups)
            own = new[:, k]
            times[own] = np.bincount(codes, x * values[:, k], f.n_groups)[own] / squares[own, k]
            if not np.abs(x - times[codes] * values[:, k]).max() <= SAME * np.abs(x).max():
                del left[j, k]
        if not left:
            return
    for (j, k), times in left.items():
        if times.any():
            yield j, k, times
