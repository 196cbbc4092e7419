"""What a table calls its arms: names in results, and warnings of columns that look like an index."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastrace._base import _checks, _frames
from fastrace.results.races import RaceResult, StreamRaceResult, UnequalResult
from fastrace.results.selections import SelectionResult

Result = TypeVar("Result", RaceResult, SelectionResult, StreamRaceResult, UnequalResult)


def best_of(arms: NDArray[np.intp], mean: NDArray[np.float64]) -> Any:
    """What `best` is in a result: an int where one arm is asked for, else an array with the largest mean first."""
    return int(arms[0]) if arms.size == 1 else arms[np.lexsort((arms, -mean[arms]))]


def named(result: Result, columns: tuple[str, ...] | None, source: Any) -> Result:
    """The result with the names of a table's columns, unless it has names, and warnings of columns that look odd."""
    if columns is None or len(columns) != source.n_arms:
        return result
    names = columns if result.names is None else result.names
    doubts = result.warnings + index_warnings(columns, source.n_rows, source.read)
    twin = _checks.twice(names)
    if twin is not None:
        doubts += (f"more than one column is named {twin!r}: go by the numbers of the arms, or give names",)
    return dataclasses.replace(result, names=names, warnings=doubts)


def remembered(names: tuple[str, ...] | None, columns: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The names that a race keeps when it is given a table: its own, or those of the columns if no two are alike.

    Columns of the same names in another order are refused, as arms are columns by position; so are other names than
    those that a series, or a table told, has brought before.
    """
    if isinstance(names, _checks.FoundNames) and columns is not None and columns != names and not (
            _frames.only_numbered(columns) or _frames.only_numbered(names)):
        raise ValueError(f"the columns are {_frames.some(columns)}, and a series or table given before has named "
                         f"the arms {_frames.some(names)}: say names=..., in the order of the columns, where the race "
                         f"is made, and entries go by name; or bring both into one order")
    _frames.require_same_order("names", names=names, columns=columns)
    return columns if names is None and columns is not None and _checks.twice(columns) is None else names


def called(names: Any, columns: tuple[str, ...] | None, n_arms: int, **given: Any) -> tuple[str, ...] | None:
    """What a race over a table calls its arms: `names` if said, else the columns, else the index of a series `given`.
    """
    known = remembered(_checks.arm_names(names, n_arms), columns)
    return remembered(_frames.arms_called(None, n_arms, **given), columns) if known is None else known


def model_names(columns: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The names that a model's parameters have by the columns of its table: none, with a warning, if two are alike."""
    twin = None if columns is None else _checks.twice(columns)
    if twin is None:
        return columns
    warnings.warn(
        f"more than one column is named {twin!r}: go by the numbers of the columns, or give names",
        stacklevel=_checks.users_level(),
    )
    return None


@contextlib.contextmanager
def naming(race: Any, columns: tuple[str, ...] | None, core: object, rows: Any = None) -> Iterator[None]:
    """Let a race remember the names of a table that it runs on; one that is refused leaves the former names.

    After Ctrl-C the race keeps them, as it has rows of that table. Errors call its rows as its index `rows` does.
    """
    former = race._names
    race._names = remembered(former, columns)
    try:
        with _checks.named_arms(race._names, core, rows):
            yield
    except Exception:
        race._names = former
        raise


def index_warnings(
    names: tuple[str, ...] | None, n_rows: int, read: Callable[[NDArray[np.intp], NDArray[np.intp]], NDArray[Any]]
) -> tuple[str, ...]:
    """Warn of columns that look like an index: read few rows of all, then more of those that might be one.

    `read` takes rows and arms, and returns a block of shape (len(rows), len(arms)).
    """
    if names is None or len(names) < 2:
        return ()
    arms, why = np.arange(len(names)), [""]
    for most in (10, _frames.RUNNING):
        block = read(np.arange(min(most, n_rows)), arms)
        if block.ndim != 2:         # a vector per row and arm
            return ()
        why = [_frames.index_like(names[arm], head) for arm, head in zip(arms, block.T, strict=True)]
        arms, why = arms[[bool(text) for text in why]], [text for text in why if text]
        if not why:
            return ()
    return tuple(
        f"column {names[arm]!r} {text}: leave it out if it is no arm to race"
        for arm, text in zip(arms[:5], why[:5], strict=True)
    )
