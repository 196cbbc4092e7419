"""Directions in which the parameters of a model with groups move and no row sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace._models._arrow import Arrow
from fastrace._models.grouping import Factor
from fastrace._models.rows import CHUNK

__all__ = ["Multiples", "orthonormal", "unseen_directions"]

Array = NDArray[np.float64]

SAME = 1e-12  # of a column's largest value, by which rounding may move it
DEPENDENT = 1e-10  # of the largest eigenvalue of their products: directions that others are made of, up to rounding


def unseen_directions(X: Any, factors: Sequence[Factor], dim: int) -> Array:
    """Steps of a coefficient against the effects of all groups, shape (k, dim): rows see no change.

    There are such where a column is an effect's values times a number for each group: of an intercept, of a slope
    that varies too, and of a column that is the same in all rows of a group.
    """
    seen = Multiples(X, factors)
    for first in range(0, X.shape[0], CHUNK):
        if seen.settled:
            break
        part = slice(first, min(first + CHUNK, X.shape[0]))
        seen.take(part, X[part])
    return seen.directions(dim)


def orthonormal(ways: Array, metric: Arrow) -> Array:
    """Directions with the span of `ways`, orthonormal in the metric, and the metric times each; shape (2, k, dim)."""
    if len(ways) == 0:
        return np.array([ways, ways])
    ways = ways / np.sqrt([[way @ metric.times(way)] for way in ways])
    values, vectors = np.linalg.eigh(ways @ np.array([metric.times(way) for way in ways]).T)
    apart = values > DEPENDENT * values[-1]
    ways = (vectors[:, apart] / np.sqrt(values[apart])).T @ ways
    return np.array([ways, [metric.times(way) for way in ways]])


class Multiples:
    """Columns of X, effects of groups, and the numbers that make the one of the other's values, by group.

    Few rows tell most columns apart, so that the others alone are read on.

    Parameters
    ----------
    X : table of shape (n, p)
    factors : sequence of Factor
    """

    def __init__(self, X: Any, factors: Sequence[Factor]) -> None:
        self.X, self.factors = X, factors
        self._left = [{(j, k): np.zeros(0) for j in range(X.shape[1]) for k in range(f.width)} for f in factors]
        self._known = [np.zeros((f.n_groups, f.width), dtype=bool) for f in factors]

    @property
    def settled(self) -> bool:
        """Whether no further row matters: there are no such columns."""
        return not any(self._left)

    def take(self, part: slice, rows: Any) -> None:
        """The next rows, and which they are."""
        for f, left, known in zip(self.factors, self._left, self._known, strict=True):
            if left:
                self._take(f, left, known, part, rows)

    def _take(
        self, f: Factor, left: dict[tuple[int, int], Array], known: NDArray[np.bool_], part: slice, rows: Any
    ) -> None:
        values, codes = f.values(self.X, part), f.codes[part]
        squares = np.stack([np.bincount(codes, v * v, f.n_groups) for v in values.T], axis=1)
        new = (squares > 0.0) & ~known
        known |= new
        stored = set(np.unique(rows.indices).tolist()) if hasattr(rows, "nnz") else range(self.X.shape[1])
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

    def directions(self, dim: int) -> Array:
        """`unseen_directions`, once all rows were taken."""
        out = []
        for f, left in zip(self.factors, self._left, strict=True):
            for (j, k), times in left.items():
                if times.any():
                    way = np.zeros(dim)
                    way[j], way[f.start + k : f.stop : f.width] = 1.0, -times
                    out.append(way)
        return np.reshape(out, (-1, dim))
