"""Rows of explanatory variables in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace._models.grouping import Factor

CHUNK = 4096


def stored_chunks(table: Any) -> Iterator[tuple[slice, Any]]:
    """Consecutive rows of a table, a few at a time, and which they are: in float64, or sparse as the table."""
    for first in range(0, table.shape[0], CHUNK):
        part = slice(first, min(first + CHUNK, table.shape[0]))
        yield part, table[part] if hasattr(table, "nnz") else np.asarray(table[part], dtype=np.float64)


def chunks(table: Any) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """The same in dense float64, whatever the table is."""
    for part, rows in stored_chunks(table):
        yield part, np.asarray(rows.toarray() if hasattr(rows, "nnz") else rows, dtype=np.float64)


def products(
    table: Any, factors: Sequence[Factor], matrix: NDArray[np.float64], each: Callable[[Any], Any] = lambda x: x
) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Rows of the design times a matrix, a few at a time. The design has the columns of the table, which may be sparse,
    and those that the effects of the factors multiply; `each` is applied to its entries.
    """
    for part, x in stored_chunks(table):
        (out,) = products_of(part, each(x), table, factors, [matrix], each)
        yield part, out


def products_of(
    part: slice | NDArray[np.intp], x: Any, table: Any, factors: Sequence[Factor],
    matrices: Sequence[NDArray[np.float64]], each: Callable[[Any], Any] = lambda x: x,
) -> list[NDArray[np.float64]]:
    """The same of some rows with several matrices, each by itself. `x` are the rows' entries of the table."""
    outs = [x @ matrix[: x.shape[1]] for matrix in matrices]
    for factor in factors:
        values, effects = each(factor.values(table, part)), factor.start + factor.codes[part] * factor.width
        for out, matrix in zip(outs, matrices, strict=True):
            for k in range(factor.width):
                out += values[:, k].reshape(-1, *[1] * (out.ndim - 1)) * matrix[effects + k]
    return outs


def products_with(
    rows: NDArray[np.intp], table: Any, factors: Sequence[Factor], matrix: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The same of these rows, which alone are read."""
    parts = []
    for first in range(0, len(rows), CHUNK):
        own = rows[first : first + CHUNK]
        x = table[own] if hasattr(table, "nnz") else np.asarray(table[own], dtype=np.float64)
        parts += products_of(own, x, table, factors, [matrix])
    return np.concatenate(parts) if parts else np.zeros((0, *matrix.shape[1:]))


def lengths(table: Any, factor: NDArray[np.float64], factors: Sequence[Factor] = ()) -> NDArray[np.float64]:
    """Norm of each row of the design times `factor`, or a little more."""
    return np.concatenate([norms(x) for _, x in products(table, factors, factor)])


def norms(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each row, or a little more."""
    return np.asarray(np.sqrt(np.square(rows).sum(axis=1)) * (1.0 + 1e-12))
