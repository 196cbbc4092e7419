"""Rows of explanatory variables in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

CHUNK = 4096


def chunks(table: NDArray[Any]) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Consecutive rows in float64, a few at a time, and which they are."""
    for first in range(0, len(table), CHUNK):
        part = slice(first, min(first + CHUNK, len(table)))
        yield part, np.asarray(table[part], dtype=np.float64)


def lengths(table: NDArray[Any], factor: NDArray[np.float64]) -> NDArray[np.float64]:
    """Norm of each row of table @ factor, or a little more."""
    return np.concatenate([np.sqrt(np.square(x @ factor).sum(axis=1)) for _, x in chunks(table)]) * (1.0 + 1e-12)
