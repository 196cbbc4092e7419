"""Keys of clusters and labels of arms: a date or duration is one key, whichever library or unit it came in."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace._base._checks import as_array, shown

AT_ONCE = 1 << 16       # keys that are checked between two times that Ctrl-C is heard
DATED = (date, timedelta, np.datetime64, np.timedelta64)        # a datetime is a date
UNITS = ("us", "ns", "ps", "fs", "as", "ms", "s")     # the last two reach beyond the years of the first
SIMPLE = {int, str, bytes, bool}        # keys of these types need no look at each


def listed(array: NDArray[Any]) -> list[Any]:
    """The entries as `array.tolist()` gives them, but for dates and durations that it gives as bare whole numbers.

    Those are of units below a microsecond, or beyond the years of `datetime`. They become a datetime or timedelta if
    that holds them exactly, else a scalar of NumPy in the first unit of `UNITS` that does.
    """
    values: list[Any] = array.tolist()
    if array.dtype.kind not in "mM" or np.datetime_data(array.dtype)[0] == "generic":
        return values
    if not any(isinstance(value, int) for value in values):
        return values
    unit = f"{array.dtype.kind}8[us]"
    micro = array.astype(unit)
    exact = (micro.astype(array.dtype) == array).tolist()
    for place, (found, same) in enumerate(zip(micro.tolist(), exact, strict=True)):
        if isinstance(values[place], int):
            values[place] = found if same and not isinstance(found, int) else _fine(array[place])
    return values


def _fine(scalar: Any) -> Any:
    """A date or duration of NumPy in the first unit of `UNITS` that holds it exactly."""
    for unit in UNITS:
        with contextlib.suppress(OverflowError):
            made = scalar.astype(f"{scalar.dtype.kind}8[{unit}]")
            if made.astype(scalar.dtype) == scalar:
                return made
    return scalar


def canonical(keys: list[Any]) -> list[Any]:
    """The keys, where one instant is one key: a date is its midnight, and a time with a zone is in UTC."""
    if not any(issubclass(kind, DATED) for kind in set(map(type, keys))):
        return keys
    return [_instant(key) if isinstance(key, DATED) else key for key in keys]


def _instant(key: Any) -> Any:
    if key != key:                                      # not a time
        return key
    if getattr(key, "tzinfo", None) is not None:
        with contextlib.suppress(OverflowError):        # at the ends of the calendar
            key = key.astimezone(UTC)
        return key.to_pydatetime() if getattr(key, "nanosecond", 1) == 0 else key
    if isinstance(key, (date, timedelta)):
        to_numpy = getattr(key, "to_numpy", None)       # of pandas
        if to_numpy is None:
            return key if isinstance(key, (datetime, timedelta)) else datetime(key.year, key.month, key.day)
        key = to_numpy()
    found = listed(np.array([key]))[0]
    return datetime(found.year, found.month, found.day) if type(found) is date else found


def is_itself(value: Any) -> bool:
    """Whether a value equals itself: neither nan does, nor what pandas has for a missing entry."""
    same = value == value
    return isinstance(same, (bool, np.bool_)) and bool(same)


def keys_of(clusters: Any, count: int) -> list[Hashable]:
    """The key of each of `count` rewards, checked, from one per reward or one for all."""
    if isinstance(clusters, (Mapping, set, frozenset)) or hasattr(type(clusters), "columns"):
        of = "a set has no order" if isinstance(clusters, (set, frozenset)) else "of a frame or dict, give one column"
        raise TypeError(f"clusters is {shown(clusters)}; a key per reward, in order, or one key for all is needed: {of}"
                        )
    one = isinstance(clusters, (str, bytes)) or not hasattr(type(clusters), "__iter__") or (
        isinstance(clusters, (np.ndarray, np.generic)) and clusters.ndim == 0)
    if one:
        keys = [clusters[()] if isinstance(clusters, np.ndarray) else clusters]
    else:
        keys = _listed_keys(clusters)
    if not one and len(keys) != count:
        raise ValueError(f"clusters has {len(keys)} keys and rewards {count}; each reward needs one, or one is for all")
    _require_keys(keys, one)
    keys = canonical(keys)
    return keys * count if one else keys


def _listed_keys(clusters: Any) -> list[Any]:
    kind = getattr(clusters, "dtype", None)
    if isinstance(kind, np.dtype) and kind.kind in "mM":
        return listed(as_array(clusters, "clusters"))
    if hasattr(clusters, "tolist"):
        return list(clusters.tolist())
    if hasattr(clusters, "to_pylist"):                  # of Arrow, in chunks: its own scalars are keys of their own
        return list(clusters.to_pylist())
    if hasattr(kind, "time_unit"):                      # of polars, whose list has lost what is below a microsecond
        return listed(dates_of(clusters, "clusters"))
    return list(clusters)


def dates_of(values: Any, name: str) -> NDArray[Any]:
    """An array of a column; times of polars that have a zone keep it, where NumPy would make times in UTC without one.

    What is below a microsecond is in no datetime: such a time stays one of NumPy, in UTC.
    """
    array = as_array(values, name)
    if array.dtype.kind != "M" or getattr(getattr(values, "dtype", None), "time_zone", None) is None:
        return array
    found = np.empty(array.shape, dtype=object)
    found[:] = [when.replace(tzinfo=UTC) if isinstance(when, datetime) else when for when in listed(array)]
    return found


def _require_keys(keys: list[Any], one: bool) -> None:
    """Refuse what cannot be looked up, and what is missing."""
    kinds = set(map(type, keys))
    if kinds <= SIMPLE:
        return
    odd = next((key for key in keys if not isinstance(key, Hashable)), None)
    if odd is not None:
        raise TypeError(f"clusters holds {shown(odd)} of type {type(odd).__name__}; a key per reward is needed, a "
                        f"word, a number or a tuple")
    parts = (keys[start:start + AT_ONCE] for start in range(0, len(keys), AT_ONCE))
    if any(key is None or not is_itself(key) for part in parts for key in dict.fromkeys(part)):
        bad = next(place for place, key in enumerate(keys) if key is None or not is_itself(key))
        raise ValueError(f"{'clusters' if one else f'clusters[{bad}]'} is {keys[bad]!r}; a key is needed: drop such "
                         f"rewards, or give each one")
