"""What a user's function answered, entry by entry: an entry that is no number costs none of the others."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastrace._base import _checks

MISTAKEN = TypeError, LookupError, ValueError, AttributeError       # of a function that reads its arguments wrongly


class Apart(NamedTuple):
    """An answer with an entry that is no number: what was asked, and rewards where `read`; nan elsewhere."""

    arms: NDArray[np.intp]
    where: NDArray[np.int64]        # rows, or how many pulls of each arm
    rewards: NDArray[np.float64]
    read: NDArray[np.bool_]


def said_call(error: Exception, call: str, first: str, second: str, back: str) -> None:
    """Add to what a user's function raised how it was called, and what it must return."""
    note = f"fastrace called {call} with {first} and {second}, both NumPy arrays of int; it must return {back}"
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def keep_answer(error: Exception, answer: Any) -> None:
    """Give the error that refuses what a user's function returned that answer, which may have been paid for."""
    with contextlib.suppress(Exception):
        error.answer = answer  # type: ignore[attr-defined]


def keep_apart(
    error: Exception, source: object, arms: NDArray[np.intp], where: NDArray[np.int64],
    objects: NDArray[np.object_] | None,
) -> None:
    """Give an error those of the `objects` that a source's function returned which are rewards, for `take_apart`."""
    if objects is not None:
        rewards, read = numbers_among(objects)
        error._fastrace_apart = id(source), Apart(arms, where, rewards, read)  # type: ignore[attr-defined]


def take_apart(error: BaseException, source: object) -> Apart | None:
    """What `keep_apart` gave an error about this source; None in a second call, and of any other error."""
    of, apart = getattr(error, "_fastrace_apart", (None, None))
    if of != id(source):
        return None
    del error._fastrace_apart  # type: ignore[attr-defined]
    return apart


def entries(answer: Any, shape: tuple[int, ...]) -> NDArray[np.object_] | None:
    """The entries of an answer, each as it came; None where it has another shape, or NumPy made words of them all."""
    if isinstance(answer, (list, tuple)):
        if len(answer) != shape[0]:
            return None
        out = np.empty(shape, object)
        for k, part in enumerate(answer):
            if not shape[1:]:
                out[k] = part       # None too: a missing reward
            elif (of_part := entries(part, shape[1:])) is not None:
                out[k] = of_part
            else:
                return None
        return out
    if isinstance(answer, np.ma.MaskedArray):
        return None
    try:
        array = np.asarray(answer)
    except Exception:       # of whatever it is
        return None
    return array.astype(object) if array.dtype.kind in "fiubO" and array.shape == shape else None


def parts_entries(answer: Any, counts: Sequence[int]) -> NDArray[np.object_] | None:
    """The entries of an answer that is one vector, or a list of one vector per arm."""
    flat = entries(answer, (sum(counts),))
    if not isinstance(answer, (list, tuple)) or len(answer) != len(counts):
        return flat
    if not all(hasattr(part, "__len__") and not isinstance(part, str) for part in answer):
        return flat
    parts = [entries(part, (count,)) for part, count in zip(answer, counts, strict=True)]
    return None if any(part is None for part in parts) else np.concatenate(parts)  # type: ignore[arg-type]


def flat_numbers(given: Any, arms: list[int], counts: list[int]) -> NDArray[np.float64]:
    """What a user gave for so many pulls of each arm, one arm after the other, as one contiguous vector."""
    n, total = len(arms), sum(counts)
    _checks.at_once(given, "pull")
    _checks.unmasked(given, "rewards")
    parts: list[NDArray[Any]] = []
    try:
        if isinstance(given, (list, tuple)) and len(given) == n and not all(np.ndim(part) == 0 for part in given):
            parts = [np.asarray(part) for part in given]
        found = np.asarray(given if not parts else parts[0])
    except ValueError as error:
        raise ValueError(f"rewards are a {type(given).__name__} that is no array ({error}); {total} real numbers are "
                         f"needed, one for each pull of {n} arms in the order asked for, or a list of {n} "
                         f"arrays") from error
    for k, part in enumerate(parts):
        if part.shape != (counts[k],):
            raise ValueError(f"the rewards of arm {arms[k]} have shape {part.shape}; ({counts[k]},) is needed, one for "
                             f"each pull")
    found = np.concatenate(parts) if parts else found
    _checks.refuse_rounded(given, found, "rewards")
    found = _checks.numbers_of(found, "rewards")
    if found.dtype.kind not in "fiub":
        raise ValueError(f"rewards are a {type(given).__name__} of dtype {found.dtype}; real numbers are needed")
    if found.shape != (total,):
        raise ValueError(f"rewards have shape {found.shape}; ({total},) is needed, one number for each pull of "
                         f"{n} arms in the order asked for, or a list of {n} arrays")
    return np.ascontiguousarray(found, dtype=np.float64)


def numbers_among(objects: NDArray[np.object_]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Rewards of an array of objects, nan where there is none, and which of them are rewards, missing ones included."""
    values = list(map(_plain, objects.ravel().tolist()))
    read = [_checks.is_readable(value) for value in values]
    found = [np.nan if not good or _checks.is_absent(value) else _checks.nearest(value)
             for value, good in zip(values, read, strict=True)]
    return np.array(found, np.float64).reshape(objects.shape), np.array(read, bool).reshape(objects.shape)


def first_unread(objects: NDArray[np.object_] | None, needed: str) -> tuple[tuple[int, ...], str] | None:
    """Where the first object stands that is no reward, and words for it and why it is none: what is `needed`.

    None if there are no objects, if all are rewards, or none of several is: it is not that one which is wrong.
    """
    if objects is None or (read := numbers_among(objects)[1]).all() or (read.size > 1 and not read.any()):
        return None
    bad = np.argwhere(~read)
    at = tuple(bad[0].tolist())
    value = _plain(objects[at])
    return at, _checks.shown(value) + (f", {_checks.LOST_DIGITS}" if _checks.is_number(value) else f"; {needed}")


def _plain(value: Any) -> Any:
    """A scalar out of an array without dimensions."""
    lone = value is not np.ma.masked and getattr(value, "shape", None) == () and hasattr(value, "__array__")
    return np.asarray(value)[()] if lone else value
