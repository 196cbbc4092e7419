"""What a table calls its arms: names in results, and warnings of columns that look like an index."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastrace._base import _checks
from fastrace.results.races import RaceResult, StreamRaceResult, UnequalResult
from fastrace.results.selections import SelectionResult

Result = TypeVar("Result", RaceResult, SelectionResult, StreamRaceResult, UnequalResult)


def best_of(arms: NDArray[np.intp], mean: NDArray[np.float64]) -> Any:
    """What `best` is in a result: an int where one arm is asked for, else an array with the largest mean first."""
    return int(arms[0]) if arms.size == 1 else arms[np.lexsort((arms, -mean[arms]))]


def named(result: Result, names: tuple[str, ...] | None, source: Any) -> Result:
    """The result with the names of a table's columns, and warnings of columns that look like an index."""
    if names is None or len(names) != source.n_arms:
        return result
    return dataclasses.replace(
        result, names=names, warnings=result.warnings + index_warnings(names, source.n_rows, source.read)
    )


def renamed(result: Result, names: Sequence[str] | None) -> Result:
    """The result with names that the caller gives, which replace those of a table."""
    if names is None:
        return result
    found = tuple(str(name) for name in names)
    if len(found) != result.pulls.size:
        raise ValueError(f"names has {len(found)} entries; one per arm is needed, and there are {result.pulls.size}")
    return dataclasses.replace(result, names=found)


def index_warnings(
    names: tuple[str, ...] | None, n_rows: int, read: Callable[[NDArray[np.intp], NDArray[np.intp]], NDArray[Any]]
) -> tuple[str, ...]:
    """Warn of columns that look like an index: read few rows of all, then more of those that might be one.

    `read` takes rows and arms, and returns a block of shape (len(rows), len(arms)).
    """
    if names is None or len(names) < 2:
        return ()
    arms, why = np.arange(len(names)), [""]
    for most in (10, _checks.RUNNING):
        block = read(np.arange(min(most, n_rows)), arms)
        if block.ndim != 2:         # a vector per row and arm
            return ()
        why = [_checks.index_like(names[arm], head) for arm, head in zip(arms, block.T, strict=True)]
        arms, why = arms[[bool(text) for text in why]], [text for text in why if text]
        if not why:
            return ()
    return tuple(
        f"column {names[arm]!r} {text}: leave it out if it is no arm to race"
        for arm, text in zip(arms[:5], why[:5], strict=True)
    )
