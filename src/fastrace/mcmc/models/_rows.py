"""Rows of explanatory variables, in chunks and in random order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks
from fastrace.likelihoods import require_finite

CHUNK = 4096


def chunks(table: NDArray[Any]) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Consecutive rows in float64, a few at a time, and which they are."""
    for first in range(0, len(table), CHUNK):
        part = slice(first, min(first + CHUNK, len(table)))
        yield part, np.asarray(table[part], dtype=np.float64)


def in_order(
    X: ArrayLike, y: ArrayLike, shuffle: _checks.RngLike
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Finite explanatory variables and outcomes as arrays, in random order where a generator is given."""
    table, outcome = np.asarray(X), np.asarray(y)
    require_finite(table)  # before the shuffle, so that the error names the row as it was given
    if shuffle is not None and table.ndim == 2 and outcome.shape == table.shape[:1]:
        order = _checks.generator(shuffle, "shuffle").permutation(len(table))
        table, outcome = table[order], outcome[order]
    return table, outcome
